"""Two who may lead one database: one does, the other reads along, and gets it when the first is gone."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from borgish.cell.events import MachineUp
from borgish.errors import Fenced, InUse, LostElection, OutcomeUnknown, Unreachable, UnsafeConfiguration
from borgish.store import election, leadership, postgres
from borgish.store.checkpoints import Retention
from borgish.store.election import Candidate, make_candidate
from borgish.store.replay import WarmReplica, cell_at
from borgish.store.sql import SqlStore
from tests.cells import wait_until
from tests.contract.store.places import InDatabase
from tests.contract.store.samples import CELL, Life, body_of

LEASE_SECONDS = 30.0
Make = Callable[..., Candidate[SqlStore]]


@pytest.fixture
def make(database: InDatabase, tmp_path: Path) -> Iterator[Make]:
    """Make candidates, each with a folder of its own."""
    made: list[Candidate[SqlStore]] = []

    def one(lease_seconds: float = LEASE_SECONDS, cell: str = CELL) -> Candidate[SqlStore]:
        folder = tmp_path / f"master{len(made)}"
        made.append(make_candidate(database.url, cell, folder, Retention(), lease_seconds))
        return made[-1]

    yield one
    for each in made:
        each.close()


def won(one: Candidate[SqlStore]) -> SqlStore:
    """Win; a server takes a moment to see that a session has ended."""
    store: SqlStore = wait_until(one.try_lead)
    return store


def test_the_second_reads_along_and_wins_when_the_first_lets_go(make: Make) -> None:
    life = Life(won(make()))
    life.story()
    second, copy = make(), WarmReplica()
    assert second.try_lead() is None
    reader = second.reader()
    assert reader is not None
    assert body_of(copy.catch_up(reader)) == life.body()
    life.do(MachineUp("m1"))
    assert body_of(copy.catch_up(reader)) == life.body()
    led = second.leadership()
    assert led is not None
    assert (led.epoch, led.holder, led.address) == (life.epoch, "tester", "127.0.0.1:1")
    assert second.try_lead() is None

    life.do(MachineUp("m1"))
    life.store.close()
    store = won(second)
    assert body_of(copy.catch_up(store)) == life.body()
    assert copy.loads == 1, "only the rest of the journal was taken in"
    assert store.lead("second", "there") == life.epoch + 1
    store.close()


def test_one_who_may_not_wait_is_told_who_leads(make: Make, database: InDatabase) -> None:
    life = Life(won(make()))
    second = make()
    assert second.try_lead() is None
    second.in_use_error()  # on a server: alive, once it renews before our eyes
    life.store.renew()
    error = second.in_use_error()
    assert isinstance(error, InUse)
    assert error.exit_code == 74
    assert "The store is in use: " in error.message
    life.store.close()


def test_a_leader_that_has_let_go_writes_no_more(make: Make) -> None:
    life = Life(won(make()))
    life.do()
    life.store.release()
    with pytest.raises(Fenced):
        life.do()


def test_one_who_was_deposed_cannot_renew(make: Make, database: InDatabase) -> None:
    life = Life(won(make()))
    life.store.renew()
    database.usurp()
    with pytest.raises(Fenced):
        life.store.renew()


def test_a_copy_of_another_history_is_made_anew(make: Make, database: InDatabase) -> None:
    """As when a server failed over to a replica that lacked the last commits, and went on from there."""
    life = Life(won(make()))
    life.story()
    second, copy = make(), WarmReplica()
    assert second.try_lead() is None
    reader = second.reader()
    assert reader is not None
    copy.catch_up(reader)
    last = life.cell.position
    database.run(f"UPDATE journal SET at = at + 1 WHERE position = {last}")
    assert copy.catch_up(reader).position == last
    assert copy.loads == 2
    database.run(f"DELETE FROM journal WHERE position = {last}")
    assert copy.catch_up(reader).position == last - 1
    assert copy.loads == 3
    life.store.close()


def test_another_cells_database_is_not_followed(make: Make) -> None:
    life = Life(won(make()))
    other = make(cell="other")
    assert other.try_lead() is None
    with pytest.raises(UnsafeConfiguration, match=f"belongs to cell '{CELL}'"):
        other.reader()
    life.store.close()


def test_what_of_another_version_stands_there_is_not_read(make: Make, database: InDatabase) -> None:
    life = Life(won(make()))
    database.run("UPDATE alembic_version SET version_num = '0001'")
    second = make()
    assert second.try_lead() is None
    assert second.reader() is None
    assert second.another_reader() is None
    life.store.close()


def test_what_takes_long_is_read_beside(make: Make) -> None:
    life = Life(won(make()))
    life.story()
    life.checkpoint()
    second, copy = make(), WarmReplica()
    assert second.try_lead() is None
    reader, beside = second.reader(), second.another_reader()
    assert reader is not None
    assert beside is not None
    pages = beside.entries(0)
    assert next(iter(pages)).position == 1
    with ThreadPoolExecutor(1) as thread:
        for _ in range(20):  # each by its own connection, at the same time
            told = thread.submit(cell_at, beside, CELL, life.cell.position)
            life.do(MachineUp("m1"))
            assert copy.catch_up(reader).position == life.cell.position
            assert second.try_lead() is None
            assert told.result().cell.position < life.cell.position
    life.store.close()
    won(second).close()
    assert [entry.position for entry in beside.entries_before(4, 1)] == [3]
    beside.close()
    with pytest.raises(Unreachable):
        beside.checkpoints()


@pytest.fixture
def server(request: pytest.FixtureRequest) -> InDatabase:
    return InDatabase(request.getfixturevalue("migrated_url"))


@pytest.mark.postgres
def test_a_lease_that_is_over_is_won_from_a_leader_that_hangs(server: InDatabase, tmp_path: Path) -> None:
    """Its session lives, as that of a host that vanished does: its lock is not free."""
    life = Life(won(make_candidate(server.url, CELL, tmp_path / "a", Retention(), LEASE_SECONDS)))
    life.do()
    patient = make_candidate(server.url, CELL, tmp_path / "b", Retention(), LEASE_SECONDS)
    assert patient.try_lead() is None
    server.run("UPDATE leadership SET renewed_at = now() - interval '31 s'")
    store, third = won(patient), make_candidate(server.url, CELL, tmp_path / "c", Retention(), LEASE_SECONDS)
    rival = won(third)  # it has seen the same
    store.load()
    store.lead("patient", "there")
    with pytest.raises(LostElection, match="became leader after epoch 1 first"):
        rival.lead("rival", "elsewhere")
    with pytest.raises(Fenced):
        life.do()
    late = make_candidate(server.url, CELL, tmp_path / "d", Retention(), LEASE_SECONDS)
    assert late.try_lead() is None, "the session of the first is no sign that the second is gone"
    late.close()
    life.store.close()
    assert late.try_lead() is None, "nor that it has ended"
    for each in (late, store, rival):
        each.close()


@pytest.mark.postgres
def test_one_candidate_follows_at_once_who_ends_in_order(server: InDatabase, tmp_path: Path) -> None:
    life = Life(won(make_candidate(server.url, CELL, tmp_path / "a", Retention(), LEASE_SECONDS)))
    life.do()
    second, third = (
        make_candidate(server.url, CELL, tmp_path / name, Retention(), LEASE_SECONDS) for name in "bc"
    )
    assert (second.try_lead(), third.try_lead()) == (None, None)
    life.store.release()  # its session is there still: the process has not ended yet
    led = second.leadership()
    assert led is not None
    assert (led.epoch, led.holder, led.address) == (life.epoch, "", "")
    store = second.try_lead()
    assert store is not None
    assert third.try_lead() is None, "two would lead in turn, and one of them end for it"
    store.load()
    assert store.lead("second", "there") == life.epoch + 1
    assert third.try_lead() is None
    for each in (third, store, life.store):
        each.close()


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("terms", "silent_seconds", "wins"),
    [
        (1, 31, True),  # a steady history: as soon as its lease is over
        (2, 31, True),
        (5, 31, False),  # masters take the lead from one another
        (5, 31 + election.TAKEOVER_DELAY_SECONDS_MAX, True),  # not for ever
        (5, 2, False),  # its session lives, and its lease
    ],
)
def test_masters_that_follow_each_other_quickly_wait_longer(
    server: InDatabase, tmp_path: Path, terms: int, silent_seconds: float, wins: bool
) -> None:
    life = Life(won(make_candidate(server.url, CELL, tmp_path / "a", Retention(), LEASE_SECONDS)))
    life.do()
    row = "timeline, epoch, actor, '{cause}', request_id, digest, subject, text, events"
    for _ in range(terms):
        server.run(
            "INSERT INTO journal SELECT position + 1, extract(epoch FROM now()), "
            f"{row.format(cause='BeginEpoch')} FROM journal ORDER BY position DESC LIMIT 1"
        )
    server.run(f"UPDATE leadership SET renewed_at = now() - interval '{silent_seconds} s'")
    second = make_candidate(server.url, CELL, tmp_path / "b", Retention(), LEASE_SECONDS)
    store = second.try_lead()
    assert (store is not None) is wins
    for each in (store, second, life.store):
        if each is not None:
            each.close()


@pytest.mark.postgres
def test_one_that_was_killed_is_followed_at_once_however_often(server: InDatabase, tmp_path: Path) -> None:
    for number in range(6):
        life = Life(won(make_candidate(server.url, CELL, tmp_path / str(number), Retention(), LEASE_SECONDS)))
        life.do()
        life.store.close()  # without letting go, as a process that was killed


@pytest.mark.postgres
def test_of_two_that_find_an_empty_database_one_has_it(server: InDatabase, tmp_path: Path) -> None:
    one, two = (
        make_candidate(server.url, CELL, tmp_path / name, Retention(), LEASE_SECONDS) for name in "ab"
    )
    session = postgres.connect_unpooled(make_url(server.url))
    with session.begin():
        assert leadership.read_leadership(session) is None
        assert leadership.try_advisory_lock(session, 0)  # as one that is about to make the tables
    assert one.try_lead() is None
    assert one.in_use_error() is None
    session.engine.dispose()
    store = won(two)
    assert (store.load().position, store.lead("two", "here")) == (0, 1)
    assert one.try_lead() is None
    one.close()
    store.close()


@pytest.mark.postgres
def test_a_server_that_went_away_is_found_again(server: InDatabase, tmp_path: Path) -> None:
    life = Life(won(make_candidate(server.url, CELL, tmp_path / "a", Retention(), LEASE_SECONDS)))
    life.do()
    second = make_candidate(server.url, CELL, tmp_path / "b", Retention(), LEASE_SECONDS)
    assert second.try_lead() is None
    name = make_url(server.url).database
    others = f"datname = '{name}' AND pid != pg_backend_pid()"
    server.read(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
    with pytest.raises(Unreachable):
        second.try_lead()
    won(second).close()  # the leader's session went away as well
    life.store.close()


@pytest.mark.postgres
def test_a_read_only_server_is_not_led_and_says_why(server: InDatabase, tmp_path: Path) -> None:
    """The leader finds it at its next write; one who stands by goes on, and leads when it may write."""
    life = Life(won(make_candidate(server.url, CELL, tmp_path / "a", Retention(), LEASE_SECONDS)))
    life.do()
    second = make_candidate(server.url, CELL, tmp_path / "b", Retention(), LEASE_SECONDS)
    name = make_url(server.url).database
    server.run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        assert isinstance(life.store, SqlStore)
        setting = "set_config('default_transaction_read_only', 'on', false)"
        life.store.rows(text(f"SELECT {setting}"))  # as for every session by a reload of the server
        with pytest.raises(OutcomeUnknown, match="read-only transaction") as ended:
            life.do()
        assert "default_transaction_read_only" in ended.value.hint
        life.store.close()
        with pytest.raises(Unreachable, match="is read-only for this user") as waiting:
            wait_until(second.try_lead)
        assert "default_transaction_read_only" in waiting.value.hint
    finally:
        make_writable = f"ALTER DATABASE {name} SET default_transaction_read_only = off"
        server.run(f"SET transaction_read_only = off; {make_writable}")
    won(second).close()


@pytest.mark.postgres
def test_a_folder_has_one_master(server: InDatabase, tmp_path: Path) -> None:
    first = make_candidate(server.url, CELL, tmp_path / "a", Retention(), LEASE_SECONDS)
    with pytest.raises(InUse, match="holds "):
        make_candidate(server.url, CELL, tmp_path / "a", Retention(), LEASE_SECONDS)
    won(first).close()
    won(make_candidate(server.url, CELL, tmp_path / "a", Retention(), LEASE_SECONDS)).close()
