"""Every test that asks for ``place`` is run for every kind of store."""

from pathlib import Path

import pytest

from tests.contract.store.places import InDatabase, InMemory, Place

DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


def _place(kind: str, folder: Path, request: pytest.FixtureRequest) -> Place:
    if kind == "memory":
        return InMemory()
    if kind == "sqlite":
        return InDatabase(f"sqlite:///{folder}/cell.db")
    return InDatabase(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["memory", *DATABASES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return _place(request.param, tmp_path, request)


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """As ``place``, where there are tables."""
    return _place(request.param, tmp_path, request)
