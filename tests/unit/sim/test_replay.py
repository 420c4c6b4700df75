"""The journal is decided anew: by the same code all comes out as it is recorded, by another it does not."""

from pathlib import Path

import msgspec
import pytest

from borgish.cell.command import Command
from borgish.cell.commands import (
    CordonMachine,
    KillTasks,
    PlaceTasks,
    RemoveMachine,
    RemoveQuota,
    RestartTasks,
    RollBack,
    ScaleJob,
    Seen,
    SetQuota,
    SubmitJob,
    TaintMachine,
    UncordonMachine,
    UntaintMachine,
)
from borgish.cell.events import (
    AnyEvent,
    EntriesLost,
    Entry,
    JobSubmitted,
    MachineCordoned,
    MachineUncordoned,
    MachineUp,
    QuotaSet,
    Recorded,
    TasksEnded,
    TasksPlaced,
)
from borgish.cell.limits.quotas import Quota
from borgish.cell.recorded import PASSES, record
from borgish.resources import Resources
from borgish.sim.faux.replay import LOST, NOT_RECORDED, UNKNOWN, Replayed
from borgish.sim.world import World
from borgish.spec.file.read import read_job
from borgish.store.memory import MemoryStore
from borgish.vocabulary import Band, Ending, TaintEffect
from tests.anew import decided_anew_of, recorded_and_compared
from tests.profiles import seeds
from tests.scenario.fauxmaster.kept_cell import NAME, KeptCell, job


@pytest.fixture(autouse=True)
def _compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the journal keeps of a command is read back and compared, everywhere here."""
    monkeypatch.setattr("borgish.master.core.record", recorded_and_compared)
    monkeypatch.setattr("borgish.cell.recorded.record", recorded_and_compared)


@pytest.mark.parametrize("seed", seeds(quick=1, ci=2, nightly=10))
def test_a_storm_comes_out_as_it_was(seed: int) -> None:
    world = World(seed)
    world.run(storm_seconds=90.0, calm_seconds=60.0)
    entries = list(world.master.store.reopen().entries(0))
    found = decided_anew_of("sim", entries)
    assert found.otherwise is None
    assert found.left_out == {}
    assert found.decided > 50
    assert found.decided == len(entries)


@pytest.fixture
def kept(tmp_path: Path) -> KeptCell:
    made = KeptCell(tmp_path, MemoryStore(NAME))
    made.machines(4)
    made.submit(job("web", 3))
    return made


def journal(kept: KeptCell) -> list[Entry]:
    return list(kept.store.entries(0))


def test_what_people_ask_comes_out_as_it_was(kept: KeptCell) -> None:
    before = kept.position
    some, more = Resources(20_000, 2**40), Resources(9_000_000, 2**40)
    kept.do(SetQuota("bob", Band.BATCH, some, until=kept.now.wall + 60.0), "root")
    kept.do(SetQuota("eve", Band.PRODUCTION, more, beyond_cell=True), "root")
    kept.do(RemoveQuota("bob", Band.BATCH), "root")
    kept.do(ScaleJob("ann/web", 5))
    kept.do(ScaleJob("ann/web", 2))
    kept.do(KillTasks("ann/web", (1,)))
    kept.do(SubmitJob(kept.core.cell.jobs["ann/web"].spec))  # brings it back
    kept.do(RestartTasks("ann/web", hurried=True))
    kept.do(CordonMachine("m1", "to be mended"), "root")
    kept.do(UncordonMachine("m1"), "root")
    kept.do(TaintMachine("m1", "old", "yes", TaintEffect.AVOID), "root")
    kept.do(TaintMachine("m1", "slow", "", TaintEffect.EVICT), "root")
    kept.do(TaintMachine("m1", "old", "no", TaintEffect.REFUSE), "root")
    kept.do(UntaintMachine("m1", "slow"), "root")
    kept.wait(2)
    kept.do(KillTasks("ann/web"))
    kept.do(CordonMachine("m4"), "root")
    kept.do(RemoveMachine("m4"), "root")
    kept.do(RollBack(before, kept.now.wall, frozenset({"ann/web"}), max_affected=9), "root")
    kept.do(RollBack(before, kept.now.wall, hurried=True, max_affected=9), "root")
    kept.wait(3)
    found = decided_anew_of(NAME, journal(kept))
    assert found.otherwise is None, found.otherwise
    assert not found.left_out


def test_what_is_submitted_again_while_a_rollback_goes_on_comes_out_as_it_was(kept: KeptCell) -> None:
    before, spec = kept.position, kept.core.cell.jobs["ann/web"].spec
    kept.do(ScaleJob("ann/web", 8))
    kept.wait(2)
    kept.do(RollBack(before, kept.now.wall, frozenset({"ann/web"}), max_affected=9), "root")
    kept.do(KillTasks("ann/web", (0,)))
    kept.do(SubmitJob(spec))
    assert kept.core.cell.jobs["ann/web"].rollout is not None
    found = decided_anew_of(NAME, journal(kept))
    assert found.otherwise is None, found.otherwise


def test_a_machine_that_was_given_up_with_what_it_held(kept: KeptCell) -> None:
    """That it was silent is not journalled: it must have been, or it would not be down and removed."""
    kept.silent |= {"m1", "m2", "m3", "m4"}
    kept.wait(20)  # all of them: nothing is moved, for the fault may be the master's
    held = next(name for name, placed in kept.core.cell.placed.items() if placed)
    kept.do(RemoveMachine(held), "root")
    found = decided_anew_of(NAME, journal(kept))
    assert found.otherwise is None, found.otherwise


def written(after: Entry, actor: str, command: Command, *events: AnyEvent) -> Entry:
    """Return an entry that nobody decided."""
    cause = next((cause for cause, kind in PASSES.items() if kind is type(command)), type(command).__name__)
    kept = record([(command, events)])
    return Entry(
        after.position + 1, after.at + 1, 1, after.epoch, actor, cause, events, subject="x", command=kept
    )


def otherwise(kept: KeptCell, command: Command, *events: AnyEvent) -> tuple[int, str]:
    """Write something into the journal that nobody would decide; return where it is found, and why."""
    entries = journal(kept)
    last = entries[-1]
    entries.append(written(last, "eve", command, *events))
    found = decided_anew_of(NAME, entries).otherwise
    assert found is not None
    return found.entry.position - last.position, "; ".join(found.today)


def test_the_first_that_would_be_refused_is_found(kept: KeptCell) -> None:
    kept.do(SetQuota("ann", Band.BATCH, Resources(1000, 2**40)), "root")
    spec = read_job(job("more", 3, priority="batch"), "ann")
    where, why = otherwise(kept, SubmitJob(spec), JobSubmitted(spec))
    assert where == 1
    assert why.startswith("refused: ann")


def test_the_first_that_would_come_out_otherwise_is_found(kept: KeptCell) -> None:
    ended = TasksEnded("ann/web", (0,), Ending.KILL, ("because",))
    assert otherwise(kept, KillTasks("ann/web", (0,)), ended) == (1, "ann/web/0 killed by eve")
    assert otherwise(kept, UncordonMachine("m1"), MachineUncordoned("m1")) == (1, "nothing would follow")
    some = Resources(1000, 1000)
    set_ = QuotaSet(Quota("bob", Band.FREE, some))
    assert otherwise(kept, SetQuota("bob", Band.FREE, some), set_) == (
        1,
        "refused: the free band is not limited",
    )


@pytest.mark.parametrize(
    ("text", "machine", "why"),
    [
        (job("big", 1, cpu=9), "m1", "ann/big/0 has no room on m1"),
        (job("near", 1) + "constraints: [rack == r1]\n", "m4", "ann/near/0 may not run on m4"),
        (job("late", 1), "m2", "nothing would follow"),
        (job("two", 1, cpu=3) + "constraints: [rack == r9]\n", "m1", "ann/two/0 may not run on m1"),
    ],
)
def test_placements_that_are_not_allowed_are_found(kept: KeptCell, text: str, machine: str, why: str) -> None:
    kept.do(CordonMachine("m2"), "root")
    for name in ("m1", "m3", "m4"):
        kept.do(CordonMachine(name), "root")  # so that the scheduler leaves the job alone
    kept.submit(text)
    for name in ("m1", "m3", "m4"):
        kept.core.cell.machines[name].cordoned = False
    entries = journal(kept)
    key = read_job(text, "ann").key
    for name in ("m1", "m3", "m4"):
        entries.append(written(entries[-1], "root", UncordonMachine(name), MachineUncordoned(name)))
    place, placed = PlaceTasks(key, (0,), (machine,)), TasksPlaced(key, (0,), (machine,))
    entries.append(written(entries[-1], "scheduler", place, placed))
    found = decided_anew_of(NAME, entries).otherwise
    assert found is not None
    assert (found.entry.cause, found.today) == ("place", (why,))


def test_machines_that_hold_more_than_they_have_are_found(kept: KeptCell) -> None:
    for name in ("m1", "m2", "m3", "m4"):
        kept.do(CordonMachine(name), "root")
    kept.submit(job("six", 6))
    entries = journal(kept)
    up = written(entries[-1], "root", UncordonMachine("m1"), MachineUncordoned("m1"))
    six = "ann/six", tuple(range(6)), ("m1",) * 6
    placed = written(up, "scheduler", PlaceTasks(*six), TasksPlaced(*six))
    found = decided_anew_of(NAME, [*entries, up, placed]).otherwise
    assert found is not None
    assert found.today == ("m1 holds more than it has",)


def test_other_code_decides_otherwise(kept: KeptCell, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.do(ScaleJob("ann/web", 4))
    assert decided_anew_of(NAME, journal(kept)).otherwise is None
    monkeypatch.setattr("borgish.cell.decide.TASKS_PER_JOB_MAX", 3)
    found = decided_anew_of(NAME, journal(kept)).otherwise
    assert found is not None
    assert found.entry.cause == "ScaleJob"
    assert found.today == ("refused: 4 is outside 1 to 3 tasks",)


def test_what_cannot_be_decided_anew_is_counted(kept: KeptCell) -> None:
    entries = journal(kept)
    last = entries[-1]
    report = Entry(last.position + 1, last.at, 1, 1, "m1", "Observe", (MachineUp("m1"),))
    newer = Entry(last.position + 2, last.at, 1, 1, "ann", "Reshuffle", (), command=Recorded())
    other = Entry(
        last.position + 3, last.at, 1, 1, "ann", "CordonMachine", (), command=Recorded(({"for": 5},))
    )
    old = Entry(last.position + 4, last.at, 1, 1, "ann", "CordonMachine", (MachineCordoned("m1"),))
    gap = EntriesLost(last.position + 5, last.position + 8, 2)
    after = Entry(last.position + 9, last.at, 2, 1, "recovery", "recover", (gap,))
    found: Replayed = decided_anew_of(NAME, [*entries, report, newer, other, old, after])
    assert found.otherwise is None
    assert found.left_out == {UNKNOWN: 2, NOT_RECORDED: 2, LOST: 1}


def test_a_journal_without_commands_is_followed_to_its_end(kept: KeptCell) -> None:
    """As older versions left it."""
    kept.do(ScaleJob("ann/web", 4))
    old = [msgspec.structs.replace(entry, command=None) for entry in journal(kept)]
    found = decided_anew_of(NAME, old)
    assert (found.otherwise, found.decided) == (None, 0)
    assert found.left_out == {NOT_RECORDED: len(old)}
    kept.do(ScaleJob("ann/web", 2))
    found = decided_anew_of(NAME, [*old, *journal(kept)[len(old) :]])
    assert (found.otherwise, found.decided) == (None, 1)


def test_requests_from_which_nothing_follows_are_decided_anew(kept: KeptCell) -> None:
    entries, spec = journal(kept), kept.core.cell.jobs["ann/web"].spec
    entries.append(written(entries[-1], "ann", SubmitJob(spec)))
    found = decided_anew_of(NAME, entries)
    assert (found.otherwise, found.left_out) == (None, {})
    entries.append(written(entries[-1], "ann", KillTasks("ann/web")))
    found = decided_anew_of(NAME, entries)
    assert found.otherwise is not None
    assert found.otherwise.today == ("ann/web tasks 0-2 killed by ann",)


def test_who_is_let_go_of_was_silent_for_as_long_as_is_recorded(
    kept: KeptCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.silent |= {"m1", "m2", "m3", "m4"}
    kept.wait(20)
    held = next(name for name, placed in kept.core.cell.placed.items() if placed)
    kept.do(RemoveMachine(held), "root")
    monkeypatch.setattr("borgish.cell.machines.decide.SILENT_SECONDS", 30.0)
    found = decided_anew_of(NAME, journal(kept)).otherwise
    assert found is not None
    assert "was not silent for 30 s" in found.today[0]


def test_a_master_that_took_over_a_store_that_lost_history(tmp_path: Path) -> None:
    store = MemoryStore(NAME)
    KeptCell(tmp_path, store).machines(1)
    kept = KeptCell(tmp_path, store.reopen(), seen=Seen(3, 9, 500))
    kept.submit(job("web", 3))
    found = decided_anew_of(NAME, journal(kept))
    assert kept.core.cell.timeline == 4
    assert (found.otherwise, found.left_out) == (None, {})
