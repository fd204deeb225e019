"""Our own OpenAPI description against the server: no body that it allows, or nearly allows, makes the server fail."""

import json

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error

from paceline.service.llm import LLM
from tests.server.conftest import serving


@pytest.fixture(scope="module")
def described(talker):
    with serving(lambda: LLM(talker, draft="predicted,suffix", context=512, slots=4)) as server:
        yield schemathesis.openapi.from_url(f"{server.url}/openapi.json")


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_call_of_the_description_makes_the_server_fail(case):
    if isinstance(case.body, dict) and case.path.startswith("/v1/"):
        case.body["max_tokens"] = 2  # what is long is tested elsewhere
    response = case.call(timeout=60)
    case.validate_response(response, checks=[not_a_server_error])
    if response.status_code >= 400:
        error = response.json()["error"]
        assert error["message"], json.dumps(error)
