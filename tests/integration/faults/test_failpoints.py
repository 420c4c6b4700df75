"""The real borgmaster dies at every failpoint there is, under load, and nothing is lost or there twice."""

import signal
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from borgish.failpoints import EXIT_CODE, FAILPOINTS
from borgish.store.migrate import migrations_folder
from tests.faults.nursery import Nursery
from tests.faults.siege import Siege

FORGETFUL = "[keep]\ndead_jobs_hours = 1e-9"
FIRST_FILES = 5  # secret, two tokens, their table, client.json
# How often a point is passed before it is the time to die: by then there is a load, and a past.
TIMES = {"append": 8, "turn": 8, "release": 8, "answer": 8, "poll": 4, "checkpoint": 2}
TABLES = 12  # a death at each of the first so many writes of a life: of every table, in turn


def revisions() -> int:
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    return len(list(ScriptDirectory.from_config(config).walk_revisions()))


def part_of(point: str) -> str:
    return point.partition(".")[0]


def of_parts(*parts: str) -> list[str]:
    return [point for point in FAILPOINTS if part_of(point) in parts]


def armed_at_the_beginning() -> list[str]:
    """Points of a first start, each time that it is passed; what was done before is done again or not."""
    undone = of_parts("open", "migrate")  # all in one transaction: the next start does it again
    undone.remove("migrate.committed")
    each = [f"migrate.revised:{n + 1}" for n in range(revisions())]
    files = [f"{point}:1" for _ in range(FIRST_FILES) for point in of_parts("credentials")]
    return [*(f"{point}:1" for point in undone), *each, "migrate.committed:1", *files]


BEGINNING = armed_at_the_beginning()
STARTING = of_parts("recovery", "lead", "start")
ENDING = of_parts("shutdown", "close")
SERVING = {part: of_parts(part) for part in ("turn", "append", "release", "answer", "poll", "checkpoint")}
DELETING = of_parts("checkpoint_delete")


def dies_at(siege: Siege, point: str) -> None:
    """Wait for the end of a master that was armed so: it must be that end and no other."""
    code, said = siege.ended(), siege.said()
    assert code == EXIT_CODE, f"{point}: {said}"
    assert said.endswith(f"died at failpoint {point}\n"), f"{point}: {said}"


def goes_on(siege: Siege, *, joining: bool = False) -> None:
    """Start a master that lives, let it work, and judge all that was done since the beginning."""
    siege.start()
    assert siege.serves(), siege.said()
    if joining:
        siege.join_machines()
    siege.more(8)
    siege.say_the_same_again()
    assert siege.end_in_peace() == []


def test_every_failpoint_is_died_at() -> None:
    serving = [point for part in SERVING.values() for point in part]
    tried = [*BEGINNING, *STARTING, *serving, *DELETING, *ENDING, "join.accepted"]
    assert {point.partition(":")[0] for point in tried} == FAILPOINTS.keys()
    assert len(FAILPOINTS) >= 40


def test_a_first_start(nursery: Nursery, tmp_path: Path, url: str) -> None:
    """Each start goes on where the one before died, until one comes through."""
    with Siege(nursery, tmp_path, url) as siege:
        siege.begin()
        for armed in BEGINNING:
            siege.start(armed)
            dies_at(siege, armed.partition(":")[0])  # not judged: to open the store would help it on
        siege.start()
        assert siege.serves(), siege.said()
        assert not list(tmp_path.rglob(".*")), "something is left of a file that was half written"
        siege.join_machines()
        siege.more(4)
        siege.kill()
        goes_on(siege)


def test_a_start_on_what_there_is(nursery: Nursery, tmp_path: Path, url: str) -> None:
    with Siege(nursery, tmp_path, url) as siege:
        siege.found_cell()
        siege.begin()
        for point in STARTING:
            siege.start(point)
            dies_at(siege, point)
            assert siege.problems() == [], point
        goes_on(siege)


@pytest.mark.parametrize("part", SERVING)
def test_at_work(nursery: Nursery, tmp_path: Path, url: str, part: str) -> None:
    """Each life begins with what the one before left unanswered, and dies under load."""
    with Siege(nursery, tmp_path, url, FORGETFUL if part == "append" else "") as siege:
        siege.found_cell()
        siege.begin()
        for point in SERVING[part]:
            for times in range(1, TABLES + 1) if point == "append.rows" else (TIMES[part],):
                siege.start(f"{point}:{times}")
                siege.serves()
                dies_at(siege, point)
                assert siege.problems() == [], point
        goes_on(siege)


def test_when_a_checkpoint_is_deleted(nursery: Nursery, tmp_path: Path, url: str) -> None:
    with Siege(nursery, tmp_path, url) as siege:
        siege.found_cell()
        siege.begin()
        for point in DELETING:
            siege.start(point)
            siege.serves()
            dies_at(siege, point)
            assert siege.problems() == [], point
        goes_on(siege)


def test_an_orderly_end(nursery: Nursery, tmp_path: Path, url: str) -> None:
    with Siege(nursery, tmp_path, url) as siege:
        siege.found_cell()
        siege.begin()
        for point in ENDING:
            siege.start(point)
            assert siege.serves(), siege.said()
            siege.more(4)
            siege.signal(signal.SIGTERM)
            dies_at(siege, point)
            assert siege.problems() == [], point
        goes_on(siege)


def test_when_a_machine_joins(nursery: Nursery, tmp_path: Path, url: str) -> None:
    with Siege(nursery, tmp_path, url) as siege:
        siege.start("join.accepted")
        assert siege.serves(), siege.said()
        siege.join_machines()
        dies_at(siege, "join.accepted")
        assert siege.problems() == []
        siege.begin()
        goes_on(siege, joining=True)


@pytest.mark.parametrize(
    ("bug", "point", "found"),
    [
        ("acknowledge_what_is_not_durable", "turn.committed:12", "was acknowledged at"),
        ("do_requests_again", "answer.made:3", "is in the journal 2 times"),
        ("write_tables_by_half", "turn.committed:6", "should be ("),
    ],
)
def test_a_planted_bug_is_found(nursery: Nursery, tmp_path: Path, bug: str, point: str, found: str) -> None:
    with Siege(nursery, tmp_path) as siege:
        siege.found_cell()
        siege.begin()
        siege.start(point, before=f"tests.faults.planted:{bug}")
        siege.serves()
        siege.ended()
        siege.start(before=f"tests.faults.planted:{bug}")
        if siege.serves():
            siege.more(2)
            siege.kill()
        assert any(found in problem for problem in siege.problems())
