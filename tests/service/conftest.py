import pytest
from service_tools import Gated, engine_with

from paceline.service.service import Service


@pytest.fixture
def drafter():
    return Gated()


@pytest.fixture
def service(drafter):
    made = Service(engine_with(drafter))
    yield made
    drafter.gate.set()
    made.close()
    made.engine.cache.check()
    assert made.engine.cache.held() == 0
