from collections.abc import Iterator

import pytest

from borgish.client import Client
from tests.integration.api.fakes import RunningApi


@pytest.fixture(scope="session")
def running_api() -> Iterator[RunningApi]:
    running = RunningApi()
    yield running
    running.stop()


@pytest.fixture
def api(running_api: RunningApi) -> Iterator[RunningApi]:
    """The API in front of a master as new."""
    running_api.do(running_api.master.reset)
    yield running_api
    running_api.do(running_api.master.hub.close)


@pytest.fixture
def admin(api: RunningApi) -> Iterator[Client]:
    client = api.client()
    yield client
    client.close()
