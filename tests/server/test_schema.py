"""Our own OpenAPI description against the server: no call that it allows makes the server fail."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from paceline.service.llm import LLM
from tests.server.conftest import serving

PATHS = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/tokenize",
    "/detokenize",
    "/v1/models",
    "/v1/models/{name}",
]
MOST = {"/v1/responses": "max_output_tokens"}
PATHS += ["/health", "/ready", "/metrics"]


@pytest.fixture(scope="module")
def described(talker):
    with serving(lambda: LLM(talker, draft="predicted,suffix", context=512, slots=4)) as server:
        yield schemathesis.openapi.from_url(f"{server.url}/openapi.json")


def test_every_path_is_described(described):
    assert sorted(described.raw_schema["paths"]) == sorted(PATHS)


@pytest.mark.parametrize("path", PATHS)
def test_no_call_of_the_description_makes_the_server_fail(described, path):
    for method in described[path]:
        strategy = described[path][method].as_strategy()

        @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
        @given(strategy)
        def check(case):
            if isinstance(case.body, dict) and path.startswith("/v1/"):
                case.body[MOST.get(path, "max_tokens")] = 2  # what is long is tested elsewhere
            response = case.call(timeout=60)
            assert response.status_code < 500, response.text
            if response.status_code >= 400:
                assert response.json()["error"]["message"]

        check()
