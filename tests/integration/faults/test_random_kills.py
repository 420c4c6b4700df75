"""Kill -9 at random moments; a thousand of them are `python -m tests.bench kills --count 1000`."""

from pathlib import Path

import pytest

from tests.faults.kills import kill_at_random
from tests.faults.nursery import Nursery
from tests.faults.siege import Siege
from tests.profiles import seeds

KILLS = len(seeds(quick=6, ci=12, nightly=20))


@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=20))
def test_on_sqlite(nursery: Nursery, tmp_path: Path, seed: int) -> None:
    survives(nursery, tmp_path, "", seed)


@pytest.mark.postgres
def test_on_postgres(nursery: Nursery, tmp_path: Path, postgres_url: str) -> None:
    survives(nursery, tmp_path, postgres_url, 4)


def survives(nursery: Nursery, folder: Path, url: str, seed: int) -> None:
    with Siege(nursery, folder, url, seed=seed) as siege:
        report = kill_at_random(siege, KILLS, seed)
    assert report.problems == []
    assert report.kills == KILLS
    # Kills of a master that nobody asks for anything prove nothing.
    assert report.acknowledged > KILLS
    assert len(report.start_seconds) > KILLS / 3
