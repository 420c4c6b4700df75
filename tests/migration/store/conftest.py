"""Databases for migrations: of each kind, empty."""

from pathlib import Path

import pytest

DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/cell.db"
    found: str = request.getfixturevalue("postgres_url")
    return found
