"""A hub to fetch models from, and a home of this test alone to fetch them into."""

import pytest
from fake_hub import BODY, KNOWN, serve

from paceline.formats import catalog as sources


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sources, "KNOWN", {"tiny": KNOWN})
    for key in ("HF_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(key, raising=False)
    return tmp_path / "home" / "models"


@pytest.fixture
def hub(monkeypatch):
    import huggingface_hub.constants
    import huggingface_hub.file_download

    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 4096)
    monkeypatch.setattr(huggingface_hub.file_download.time, "sleep", lambda _: None)  # between its retries
    with serve({"org/tiny-GGUF": {"tiny.gguf": BODY, "README.md": b"x"}}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield hub
