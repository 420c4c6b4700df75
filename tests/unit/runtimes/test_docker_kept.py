"""Which containers are those that were let go, which run is asked for, and which have to go."""

import asyncio
from collections.abc import Iterator

import pytest

from borgish.borglet.runtimes.docker.container import Container, Owner
from borgish.borglet.runtimes.docker.engine import Engine, Listed
from borgish.borglet.runtimes.docker.inventory import AT_ONCE, Gone, KeptContainers, gone_name
from borgish.borglet.runtimes.leftovers import Retention
from borgish.clock import Now

NOW = 1_000_000.0
OWNER = Owner("local", "m1", "ab12")


class FixedClock:
    def now(self) -> Now:
        return Now(NOW, 0.0)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


def kept(engine: Engine, keep: Retention, *rows: Listed) -> KeptContainers:
    made = KeptContainers(engine, OWNER, FixedClock(), keep, asyncio.Lock())
    made.see({row["Id"]: row for row in rows})
    return made


def row(one: str, attempt: int = 7, run: int = 1, *, at: float = NOW, name: str = "") -> Listed:
    gone = Gone(Container(one, f"ann/web/3@{attempt}", run), at)
    labels = {"borgish.task": "ann/web/3", "borgish.attempt": str(attempt), "borgish.run": str(run)}
    return {"Id": one, "Names": ["/" + (name or gone_name(OWNER, gone))], "Labels": labels}


def ids(containers: list[Container]) -> list[str]:
    return [container.id for container in containers]


def test_the_name_says_when_and_what() -> None:
    gone = Gone(Container("x", "ann/web/3@1207", 2), 12.4)
    assert gone_name(OWNER, gone) == "borgish.gone.12.400.local-ab12-ann-web-3-1207-2"
    wanted = Gone(Container("x", "ann/web/3@1207", 2), 12.4, 3600.0)
    assert gone_name(OWNER, wanted) == "borgish.gone.12.400.3600s.local-ab12-ann-web-3-1207-2"


@pytest.mark.parametrize("cell", ["local", "gone", "gone-12"])
def test_the_name_of_a_run_is_no_such_mark(engine: Engine, cell: str) -> None:
    name = f"borgish-{Owner(cell, 'm1').run_name('ann/web/3@7', 1)}"
    assert "a" not in kept(engine, Retention(), row("a", name=name))


def test_the_latest_run_and_the_one_before(engine: Engine) -> None:
    here = kept(engine, Retention(), row("c", run=3), row("a", run=1), row("b", run=2), row("x", 8))
    found = [here.find("ann/web/3@7", previous=previous) for previous in (False, True)]
    assert [one and one.id for one in found] == ["c", "b"]
    assert here.find("ann/web/3@8", previous=True) is None
    assert here.find("ann/web/3@9", previous=False) is None


def test_too_many_and_too_old_ones_go_oldest_first(engine: Engine) -> None:
    rows = row("new", at=NOW - 1), row("old", at=NOW - 200), row("mid", at=NOW - 50)
    assert ids(kept(engine, Retention(seconds=100), *rows).outdated()) == ["old"]
    assert ids(kept(engine, Retention(containers=1), *rows).outdated()) == ["old", "mid"]
    assert ids(kept(engine, Retention(containers=0), *rows).outdated()) == ["old", "mid", "new"]
    assert ids(kept(engine, Retention(), *rows).outdated()) == []


def test_what_is_wanted_for_longer_stays_so_long(engine: Engine) -> None:
    """A cell may have a name like the seconds of another."""
    wanted = gone_name(OWNER, Gone(Container("a", "ann/web/3@7", 1), NOW - 500, 3600.0))
    other = gone_name(Owner("3600s", "m1"), Gone(Container("b", "ann/web/3@7", 2), NOW - 500))
    rows = row("a", name=wanted), row("b", run=2, name=other)
    assert ids(kept(engine, Retention(seconds=100, last_seconds=200), *rows).outdated()) == ["b"]


def test_why_a_container_went_is_known(engine: Engine) -> None:
    rows = row("new", 9), row("last", 8, at=NOW - 200), row("old", 7, at=NOW - 200)
    here = kept(engine, Retention(seconds=100), *rows)
    assert ids(here.outdated()) == ["old"]
    assert here.removed.why("ann/web/3@7") == "it ended more than 100s ago"
    assert here.removed.why("ann/web/3@8") == ""


def test_of_many_only_some_go_at_once(engine: Engine) -> None:
    rows = [row(f"{n:03}", n, at=NOW - 100 + n) for n in range(1, 90)]
    here = kept(engine, Retention(containers=1), *rows)
    assert ids(here.outdated()) == [f"{n:03}" for n in range(1, AT_ONCE + 1)]


def test_of_one_moment_the_earlier_run_goes_first(engine: Engine) -> None:
    assert ids(kept(engine, Retention(containers=1), row("b", run=2), row("a", run=1)).outdated()) == ["a"]


def test_what_the_engine_no_longer_has_is_not_kept(engine: Engine) -> None:
    here = kept(engine, Retention(), row("a"), row("b"))
    here.see({"b": row("b")})
    assert ("a" in here, "b" in here) == (False, True)
