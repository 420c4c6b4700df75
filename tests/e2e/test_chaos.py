"""Things are broken in a local cell, and nowhere else; each comes back, by itself or by ``chaos heal``."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from borgish.vocabulary import State
from tests.cells import RealCell, wait_until
from tests.e2e.watched import PATIENCE_SECONDS, lives, runs_anew, submitted, tasks_of, watched_cell

SLEEPERS = "name: sleepers\nrun: [sleep, '100000']\ntasks: 4\nresources: {cpu: 10m, ram: 16MiB}\n"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCell]:
    """A cell of two machines, on each of which something sleeps."""
    with watched_cell(tmp_path_factory.mktemp("chaos") / "cell", machines=2) as made:
        submitted(made, SLEEPERS)
        yield made


def is_there(pid: int | None) -> bool:
    return Path(f"/proc/{pid}").exists()


def state_of(pid: int) -> str:
    """Return the state that the kernel says a process is in: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_program_that_is_killed_is_started_again(broken: RealCell) -> None:
    before = lives(broken)["ann/sleepers/0"]
    said = broken.ok("chaos", "kill", "sleepers/0")
    assert said.startswith(f"killed the program of ann/sleepers/0, pid {before.pid} on m")
    wait_until(lambda: runs_anew(broken, "ann/sleepers/0", before), PATIENCE_SECONDS)


def test_a_machine_that_is_killed_takes_its_programs_along_until_it_is_mended(broken: RealCell) -> None:
    there = {name: life for name, life in lives(broken).items() if tasks_of(broken)[name].machine == "m1"}
    assert there
    said = broken.ok("chaos", "kill", "m1")
    assert said == f"killed m1: its borglet and {len(there)} program{'s' * (len(there) > 1)}\n"
    assert broken.pid("m1") == 0
    wait_until(lambda: not any(map(is_there, (life.pid for life in there.values()))), PATIENCE_SECONDS)
    broken.ok("chaos", "heal")
    assert broken.pid("m1")
    wait_until(lambda: all(runs_anew(broken, name, life) for name, life in there.items()), PATIENCE_SECONDS)


def test_the_master_is_killed_and_nobody_minds(broken: RealCell) -> None:
    before = lives(broken)
    assert broken.ok("chaos", "kill", "master") == "killed the master\n"
    assert broken.pid("borgmaster") == 0
    assert broken.ok("chaos", "kill", "master") == "the master does not run\n"
    broken.ok("chaos", "heal")
    wait_until(lambda: lives(broken) == before, PATIENCE_SECONDS)


@pytest.mark.parametrize(("verb", "programs"), [("freeze", True), ("cut", False)])
def test_what_is_stopped_goes_on(broken: RealCell, verb: str, programs: bool) -> None:
    before = lives(broken)
    pids = {"m1": broken.pid("m1")}
    said = broken.borgctl("chaos", verb, "m1", "--for", "50ms")
    assert said.code == 0
    assert said.out.startswith("stopped m1 and " if programs else "stopped m1\n")
    for pid in (*pids.values(), *(life.pid for life in before.values())):
        assert pid is not None
        assert state_of(pid) != "T"
    wait_until(lambda: lives(broken) == before, PATIENCE_SECONDS)


def test_a_full_cell_is_emptied_again(broken: RealCell) -> None:
    said = broken.ok("chaos", "fill", "--for", "0s")
    assert "of the free band, 100m of cpu each" in said
    assert said.endswith("ended what filled the cell\n")
    filling = [each for each in tasks_of(broken).values() if each.job.endswith("/chaos-fill")]
    assert filling
    wait_until(
        lambda: all(
            each.state is State.DEAD for each in tasks_of(broken).values() if each.job.endswith("/chaos-fill")
        ),
        PATIENCE_SECONDS,
    )


def test_scenes_of_the_story(broken: RealCell) -> None:
    said = broken.ok("chaos", "play", "--scenes", "1,8,9,11", "--pause", "0s")
    assert "1. A program dies" in said
    assert "is rolled back to position" in said
    assert "undone: " in said
    assert said.count("all tasks are up again after") == 4
    assert all(each.state is State.DEAD for each in tasks_of(broken).values() if "/chaos-web/" in each.name)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("kill", "m9"), 1, "there is no machine 'm9' here"),
        (("kill", "sleepers/99"), 1, "sleepers"),
        (("cut", "master"), 1, "there is no machine 'master' here"),
        (("rack", "r1"), 1, "no machine is in rack 'r1'"),
        (("freeze", "m1", "--for", "soon"), 2, "is not a number with a unit"),
        (("play", "--scenes", "0"), 2, "there are 1 to 11"),
    ],
)
def test_what_cannot_be_broken_is_left_alone(
    broken: RealCell, arguments: tuple[str, ...], code: int, words: str
) -> None:
    before = lives(broken)
    said = broken.borgctl("chaos", *arguments)
    assert said.code == code
    assert words in said.err
    assert lives(broken) == before


def test_nothing_is_broken_elsewhere(broken: RealCell, tmp_path: Path) -> None:
    elsewhere = RealCell(tmp_path / "none")
    assert "there is none in this folder" in elsewhere.borgctl("chaos", "kill", "m1").err
    said = broken.borgctl("--url", "http://127.0.0.1:1", "chaos", "kill", "m1")
    assert said.code == 1
    assert "it breaks processes of this host" in said.err
