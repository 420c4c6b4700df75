"""Where borgmasters are killed: a place to start them from, and a database of each kind."""

from collections.abc import Iterator

import pytest

from tests.faults.nursery import Nursery

DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """A process to fork masters from, for this test process."""
    with Nursery() as made:
        yield made


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database; "" is SQLite in the cell's folder."""
    if request.param == "sqlite":
        return ""
    found: str = request.getfixturevalue("postgres_url")
    return found
