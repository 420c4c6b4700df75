"""``borgctl quota`` on a running cell: set, used up, refused at once, listed, removed."""

from collections.abc import Iterator

import pytest

from tests.cells import RealCell
from tests.e2e.watched import status_of

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
    tidied.borgctl("quota", "remove", WHO, *BAND)


def test_a_quota_is_used_up_refuses_at_once_and_goes(limited: RealCell) -> None:
    assert "2 of 2 tasks up" in limited.ok("job", "submit", "-", stdin=job("within", 2))
    (quota,) = limited.items("quota", "list", WHO)
    assert [quota[part]["cpu_millis"] for part in ("limits", "used", "free")] == [30, 20, 10]
    position = status_of(limited).position

    refused = limited.borgctl("job", "submit", "-", stdin=job("beyond", 2))
    assert refused.code == 1
    assert "quinn/beyond asks for 20m cpu in production; quota 30m, used 20m: 10m cpu missing" in refused.err
    assert limited.borgctl("job", "scale", f"{WHO}/within", 4).code == 1
    assert status_of(limited).position == position

    limited.ok("quota", "remove", WHO, *BAND)
    assert "2 of 2 tasks up" in limited.ok("job", "submit", "-", stdin=job("beyond", 2))
    assert "removed the quota quinn/production" in limited.ok("history", "--cell", "-n", 20)
