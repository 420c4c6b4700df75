"""The real borgmaster dies at every failpoint there is, under load, and nothing is lost or there twice."""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, insert, text

from borgish.cell.events import Elected, Entry
from borgish.errors import StoreDamaged
from borgish.failpoints import EXIT_CODE, FAILPOINTS, VARIABLE
from borgish.store.migrate import migrations_folder
from borgish.store.open import open_store
from borgish.store.tables import entry_row, journal
from tests.contract.store.places import InDatabase
from tests.faults.judge import CELL
from tests.faults.ledger import AppOwner
from tests.faults.nursery import Nursery
from tests.faults.siege import Siege
from tests.profiles import seeds

FORGETFUL = "[keep]\ndead_jobs_hours = 1e-9"
# Checkpoints come often, and what is older than a tenth of a second goes.
PRUNED = "[journal]\nkeep_days = 1e-6\n[checkpoints]\nevery_minutes = 0.005"
DEATHS_MAX = 20
FIRST_FILES = 5  # secret, two tokens, their table, client.json
# How often a point is passed before it is the time to die: by then there is a load, and a past.
TIMES = {"append": 8, "turn": 8, "release": 8, "answer": 8, "poll": 4, "checkpoint": 2}
# A death at some of the first writes of a life, at night at each: of every table, in turn.
TABLES = range(1, 13, 12 // len(seeds(quick=3, ci=4, nightly=12)))


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
    undone.remove("migrate.kept")
    undone.remove("migrate.revised")
    files = [f"{point}:1" for _ in range(FIRST_FILES) for point in of_parts("credentials")]
    return [*(f"{point}:1" for point in undone), "migrate.committed:1", *files]


BEGINNING = armed_at_the_beginning()
# The same on what an older version wrote, whose first revision is there.
MIGRATING = ["migrate.kept", *(f"migrate.revised:{n}" for n in range(1, revisions()))]
MIGRATING += [point for point in BEGINNING if point.startswith("migrate")]
STARTING = of_parts("recovery", "lead", "start")
ENDING = of_parts("shutdown", "close")
SERVING = {part: of_parts(part) for part in ("turn", "append", "release", "answer", "poll", "checkpoint")}
DELETING = of_parts("checkpoint_delete")
REBUILDING = of_parts("rebuild")
PRUNING = of_parts("journal")


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
    tried = [*BEGINNING, *MIGRATING, *STARTING, *serving, *DELETING, *PRUNING, *ENDING, *REBUILDING]
    tried.append("join.accepted")
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


def test_a_first_start_of_a_newer_version(nursery: Nursery, tmp_path: Path, url: str) -> None:
    """What an older version wrote is there after a migration that was cut off at each of its stages."""
    with Siege(nursery, tmp_path, url) as siege:
        written_by_the_first_version(siege.url)
        for armed in MIGRATING:
            siege.start(armed)
            dies_at(siege, armed.partition(":")[0])
        siege.begin()
        siege.start()
        assert siege.serves(), siege.said()
        siege.join_machines()
        siege.more(4)
        assert siege.end_in_peace() == []
        with closing(open_store(siege.url, CELL)) as store:
            assert next(iter(store.entries(0))).events == (Elected(3, 1, "first"),)
            assert store.load().epoch > 3


def written_by_the_first_version(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(migrations_folder()))
        command.upgrade(config, "0001")
        connection.execute(text(f"INSERT INTO leadership VALUES ('{CELL}', 1, 3, '', '', CURRENT_TIMESTAMP)"))
        row = entry_row(Entry(1, 1.5, 1, 3, "election", "BeginEpoch", (Elected(3, 1, "first"),)))
        written = dict(zip(journal.c.keys(), row, strict=True))
        written = {name: written[name] for name in written if name != "command"}
        written["events"] = json.loads(written["events"])
        connection.execute(insert(journal), written)
    engine.dispose()


def test_a_start_on_what_there_is(nursery: Nursery, tmp_path: Path, url: str) -> None:
    with Siege(nursery, tmp_path, url) as siege:
        siege.found_cell()
        siege.begin()
        for point in STARTING:
            siege.start(point)
            dies_at(siege, point)
            assert siege.problems() == [], point
        goes_on(siege)


def at_work() -> Iterator[ParameterSet]:
    """All of it on SQLite; on Postgres each time what writes, and the rest at night."""
    for part in SERVING:
        yield pytest.param("sqlite", part)
        often = part in ("append", "checkpoint")
        marks = [pytest.mark.postgres] if often else [pytest.mark.postgres, pytest.mark.nightly]
        yield pytest.param("postgres", part, marks=marks)


@pytest.mark.parametrize(("url", "part"), list(at_work()), indirect=["url"])
def test_at_work(nursery: Nursery, tmp_path: Path, url: str, part: str) -> None:
    """Each life begins with what the one before left unanswered, and dies under load."""
    with Siege(nursery, tmp_path, url, FORGETFUL if part == "append" else "") as siege:
        siege.found_cell()
        siege.begin()
        for point in SERVING[part]:
            for times in TABLES if point == "append.rows" else (TIMES[part],):
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


def test_when_the_journal_is_pruned(nursery: Nursery, tmp_path: Path, url: str) -> None:
    with Siege(nursery, tmp_path, url, PRUNED) as siege:
        siege.found_cell()
        siege.begin()
        for point in PRUNING:
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


@pytest.mark.parametrize("point", REBUILDING)
def test_a_recovery(nursery: Nursery, tmp_path: Path, point: str) -> None:
    recovers(nursery, tmp_path, "", point)


@pytest.mark.postgres
def test_a_recovery_on_a_server(nursery: Nursery, tmp_path: Path, postgres_url: str) -> None:
    recovers(nursery, tmp_path, postgres_url, "rebuild.written")  # one transaction: there is no other stage


def recovers(nursery: Nursery, tmp_path: Path, url: str, point: str) -> None:
    """Cut off, it is done again or was done: never is the database that was there half gone."""
    with Siege(nursery, tmp_path, url) as siege:
        siege.found_cell()
        InDatabase(siege.url).garble_entry(newest_checkpoint(siege) + 1)
        recover = ["--config", str(tmp_path / "cell.toml"), "--recover"]
        siege.run(recover, {VARIABLE: point})
        dies_at(siege, point)
        siege.start()
        if not siege.serves():
            assert siege.ended() == StoreDamaged.exit_code, siege.said()
            siege.run(recover)
            assert siege.ended() == 0, siege.said()
            siege.start()
            assert siege.serves(), siege.said()
        siege.kill()
        siege.run(recover)
        assert siege.ended() == 0
        assert "The store is sound" in siege.said()
        left = {path.name for path in tmp_path.glob("cell.db.*")}
        assert left <= {"cell.db.damaged-1", "cell.db.damaged-2"}


def newest_checkpoint(siege: Siege) -> int:
    with closing(open_store(siege.url, CELL)) as store:
        return store.checkpoints()[0].position


@pytest.mark.parametrize(
    ("bug", "found"),
    [
        ("acknowledge_what_is_not_durable", "was acknowledged at"),
        ("do_requests_again", "is in the journal 2 times"),
        ("write_tables_by_half", "should be ("),
    ],
)
def test_a_planted_bug_is_found(nursery: Nursery, tmp_path: Path, bug: str, found: str) -> None:
    with Siege(nursery, tmp_path) as siege:
        siege.found_cell()
        siege.begin()
        siege.start(before=f"tests.faults.planted:{bug}")
        assert siege.serves(), siege.said()
        siege.more(40)  # acknowledged: far more than are in the few appends that a bug leaves alone
        siege.kill()
        # Requests that a death leaves unanswered are asked again; some of them, as to scale to what there is
        # by then, leave no second entry. So there are deaths until one of them shows it.
        for _ in range(DEATHS_MAX):
            siege.start("answer.made:3", before=f"tests.faults.planted:{bug}")
            siege.serves()
            siege.ended()
            siege.start(before=f"tests.faults.planted:{bug}")
            if siege.serves():
                siege.more(2)
                siege.kill()
            else:
                siege.ended()
            problems = siege.problems()
            if any(found in problem for problem in problems):
                return
        raise AssertionError(f"{DEATHS_MAX} deaths, and nothing but {problems}")


@pytest.mark.parametrize(
    ("bug", "found"),
    [
        ("lose_applies", r"version=0, jobs={}, schedule=''\) and should be AppState\(version=1,"),
        ("apply_by_half", r"is AppState\(version=1, .* and should be AppState\(version=1,"),
        ("apply_twice", r"is AppState\(version=2, .* and should be AppState\(version=1,"),
        ("apply_what_is_refused", r"is AppState\(version=4, .* and should be AppState\(version=3,"),
    ],
)
def test_a_planted_bug_of_applying_is_found(nursery: Nursery, tmp_path: Path, bug: str, found: str) -> None:
    with Siege(nursery, tmp_path) as siege:
        siege.found_cell()
        siege.begin()
        siege.start(before=f"tests.faults.planted:{bug}")
        assert siege.serves(), siege.said()
        siege.until(lambda: was_refused_an_apply(siege))
        siege.kill()
        problems = siege.problems()
        assert any(re.search(found, problem) for problem in problems), problems


def was_refused_an_apply(siege: Siege) -> bool:
    apps = [owner for owner in siege.owners if isinstance(owner, AppOwner)]
    asked = [request for owner in apps for request in list(owner.asked)]
    return any(request.status and not request.is_done for request in asked)
