"""``borgctl quota`` on a running cell, from set to removed; and a master that may not move bands."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from borgish.cell.events import JobSubmitted
from borgish.spec.job import JobSpec
from borgish.store.open import open_store
from tests.cells import RealCell
from tests.contract.store.samples import Life
from tests.e2e.watched import foreground, status_of
from tests.ports import free_port

WHO = "quinn"
BAND = ("--band", "production")


def job(name: str, tasks: int) -> str:
    return (
        f"name: {name}\nuser: {WHO}\ntasks: {tasks}\npriority: production\n"
        "run: [sleep, '100000']\nresources: {cpu: 10m, ram: 8MiB}\n"
    )


@pytest.fixture
def limited(tidied: RealCell) -> Iterator[RealCell]:
    """The shared cell with a quota of 30m cpu for one user; without it behind the test."""
    tidied.ok("quota", "set", WHO, *BAND, "--cpu", "30m", "--ram", "64MiB")
    yield tidied
    tidied.borgctl("quota", "remove", "--yes", WHO, *BAND)


def test_a_quota_is_used_up_refuses_at_once_and_goes(limited: RealCell) -> None:
    assert "2 of 2 tasks up" in limited.ok("job", "submit", "--settle", 0, "-", stdin=job("within", 2))
    (quota,) = limited.items("quota", "list", WHO)
    assert [quota[part]["cpu_millis"] for part in ("limits", "used", "free")] == [30, 20, 10]
    position = status_of(limited).position

    refused = limited.borgctl("job", "submit", "-", stdin=job("beyond", 2))
    assert refused.code == 1
    assert "quinn/beyond asks for 20m cpu in production; quota 30m, used 20m: 10m cpu missing" in refused.err
    assert limited.borgctl("job", "scale", f"{WHO}/within", 4).code == 1
    assert status_of(limited).position == position

    limited.ok("quota", "remove", "--yes", WHO, *BAND)
    assert "2 of 2 tasks up" in limited.ok("job", "submit", "--settle", 0, "-", stdin=job("beyond", 2))
    assert "removed the quota quinn/production" in limited.ok("history", "--cell", "-n", 20)


def test_a_master_whose_bands_would_move_a_job_ends_before_it_leads(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/cell.db", "moved")
    life = Life(store)
    life.do(JobSubmitted(JobSpec("middle", "ann", 1, ("true",), priority=150)))
    store.close()
    config = tmp_path / "cell.toml"
    config.write_text(
        f'name = "moved"\nlisten = "127.0.0.1:{free_port()}"\nstate = "{tmp_path}"\n[bands]\nbatch = 151\n'
    )
    with foreground("borgish.master.main", config) as master:
        assert master.ended() == 74
        assert "ann/middle, of priority 150, from batch to free" in master.said()
        assert "batch = 100 as before" in master.said()
    again = open_store(f"sqlite:///{tmp_path}/cell.db", "moved")
    assert again.load().position == life.cell.position
    assert again.lead("tester", "127.0.0.1:1") == life.epoch + 1
    again.close()
