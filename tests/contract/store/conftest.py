"""Every test that asks for ``place`` is run for every kind of store."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.store.places import InDatabase, InMemory, Place

DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


def _place(kind: str, folder: Path, request: pytest.FixtureRequest) -> Place:
    if kind == "memory":
        return InMemory()
    if kind == "sqlite":
        return InDatabase(f"sqlite:///{folder}/cell.db")
    return InDatabase(request.getfixturevalue("migrated_url"))


@pytest.fixture(params=["memory", *DATABASES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with closing(_place(request.param, tmp_path, request)) as made:
        yield made


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """As ``place``, where there are tables."""
    with closing(_place(request.param, tmp_path, request)) as made:
        yield made
