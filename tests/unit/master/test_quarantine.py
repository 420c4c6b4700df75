"""What the master fails at is left out, told once, and costs nobody else anything."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import borgish
from borgish.cell.apply import apply_entry
from borgish.cell.command import Command
from borgish.cell.commands import (
    Decision,
    ForgetJob,
    JoinMachine,
    KillTasks,
    ScaleJob,
    SubmitJob,
)
from borgish.cell.decide import decide
from borgish.cell.model import Cell, Snapshot
from borgish.clock import Now
from borgish.errors import CellBroken, Poison, UnsafeConfiguration
from borgish.master import core as core_module
from borgish.master.core import Core
from borgish.master.daemon import POISON_FILE, PoisonFile
from borgish.master.quarantine import PAUSE_SECONDS, culprits
from borgish.master.step import CommandRequest, Step
from borgish.reconcilers import RECONCILERS, Reconciler
from borgish.reconcilers.settings import ReconcileSettings
from borgish.scheduler.schedule import Scheduler
from borgish.spec.job import JobSpec
from borgish.store.codec import encode_snapshot
from borgish.vocabulary import Runtime
from borgish.wire.api import Accepted
from tests.bench.borglets import machine_record

SOUND = [f"ann/sound{n}" for n in range(5)]


def spec(key: str, tasks: int = 1) -> JobSpec:
    return JobSpec(
        name=key.removeprefix("ann/"), user="ann", tasks=tasks, run=("true",), runtime=Runtime.FAKE
    )


class Cellar:
    """A core with one machine, and a clock that moves when told to."""

    def __init__(self, poison: dict[str, str] | None = None) -> None:
        self.now = Now(1000.0, 50.0)
        self.core = Core(Cell(Snapshot("test")), ReconcileSettings(), self.now, poison=poison)
        self.ids = itertools.count()
        self.core.begin(1, "me", self.now)
        self.ask(JoinMachine(machine_record("m1"), "i1", known=True))

    def ask(self, *commands: Command) -> Step:
        asks = [
            CommandRequest(n, command, "ann", f"r{next(self.ids)}", f"d{n}")
            for n, command in enumerate(commands)
        ]
        return self.core.step(asks, self.now)

    def wait(self, seconds: float) -> Step:
        self.now = self.now.later(seconds)
        return self.core.step([], self.now)

    def body(self) -> bytes:
        return bytes(encode_snapshot(self.core.cell.snapshot()))

    def running(self) -> set[str]:
        return {key for key, job in self.core.cell.jobs.items() if job.running}


@pytest.fixture
def cellar() -> Cellar:
    return Cellar()


def fail_to_decide(monkeypatch: pytest.MonkeyPatch, bad: type[Command]) -> None:
    def failing(cell: Cell, observed: Any, command: Command, *more: Any, **given: Any) -> Decision:
        if isinstance(command, bad):
            raise ZeroDivisionError("nobody foresaw this")
        return decide(cell, observed, command, *more, **given)

    monkeypatch.setattr(core_module, "decide", failing)


def test_a_request_that_cannot_be_decided_is_refused_and_changes_nothing(
    cellar: Cellar, monkeypatch: pytest.MonkeyPatch
) -> None:
    cellar.ask(SubmitJob(spec("ann/web")))
    fail_to_decide(monkeypatch, ScaleJob)
    before = cellar.body()
    for number in (2, 3):  # a retry is refused as well
        step = cellar.ask(ScaleJob("ann/web", 3))
        [(_, reply)] = step.replies
        assert isinstance(reply, Poison)
        assert reply.status == 500
        assert "ScaleJob" in reply.message
        assert f"position {cellar.core.cell.position}" in reply.hint
        assert step.entries == ()
        [failure] = step.failures
        assert failure.what == f"ScaleJob of ann, request id 'r{number}'"
        assert "nobody foresaw this" in failure.trace
        assert "Traceback" in failure.trace
    assert cellar.body() == before


def test_what_is_asked_beside_it_is_done(cellar: Cellar, monkeypatch: pytest.MonkeyPatch) -> None:
    cellar.ask(SubmitJob(spec("ann/web")))
    fail_to_decide(monkeypatch, ScaleJob)
    step = cellar.ask(SubmitJob(spec("ann/a")), ScaleJob("ann/web", 3), SubmitJob(spec("ann/b")))
    assert [isinstance(reply, Accepted) for _, reply in step.replies] == [True, False, True]
    assert cellar.running() == {"ann/web", "ann/a", "ann/b"}


def test_a_loop_that_fails_ends_neither_the_others_nor_what_it_asked_before(
    cellar: Cellar, monkeypatch: pytest.MonkeyPatch
) -> None:
    cellar.ask(SubmitJob(spec("ann/old")))
    cellar.ask(KillTasks("ann/old"))

    def failing(*_: object) -> Iterator[Command]:
        yield ForgetJob("ann/old")
        yield ForgetJob("ann/old")  # refused: it is gone by then
        raise KeyError("gone")

    loops = (Reconciler("broken", failing, failing), *RECONCILERS)
    monkeypatch.setattr(core_module, "RECONCILERS", loops)
    step = cellar.ask(SubmitJob(spec("ann/web")))
    assert "ann/old" not in cellar.core.cell.jobs
    assert cellar.running() == {"ann/web"}
    assert [failure.what for failure in step.failures] == ["broken", "ForgetJob of broken"]
    assert "KeyError: 'gone'" in step.failures[0].trace
    assert [failure.what for failure in cellar.wait(1).failures] == []  # told once


def test_a_loop_that_fails_at_each_resync_is_reported_once(
    cellar: Cellar, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> Iterator[Command]:
        yield from ()
        raise KeyError("gone")

    monkeypatch.setattr(core_module, "RECONCILERS", (Reconciler("broken", failing),))
    steps = [cellar.wait(0.25) for _ in range(12)]
    assert [failure.what for step in steps for failure in step.failures] == ["broken"]


def fail_to_schedule(monkeypatch: pytest.MonkeyPatch, bad: set[str]) -> list[frozenset[str]]:
    """Make every pass fail in which one of these waits; return the passes, as they come."""
    schedule, passes = Scheduler.schedule, []

    def failing(self: Scheduler, cell: Cell, *rest: Any) -> Any:
        waiting = frozenset(key for key, indexes in cell.waiting.items() if indexes)
        passes.append(waiting)
        if waiting & bad:
            raise IndexError("nobody foresaw this")
        return schedule(self, cell, *rest)

    monkeypatch.setattr(Scheduler, "schedule", failing)
    return passes


def test_a_job_that_the_scheduler_fails_at_is_left_out_and_said_to_be(
    cellar: Cellar, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = fail_to_schedule(monkeypatch, {"ann/bad", "ann/worse"})
    step = cellar.ask(*(SubmitJob(spec(key)) for key in [*SOUND, "ann/bad", "ann/worse"]))
    assert cellar.running() == set(SOUND)
    assert [failure.what for failure in step.failures] == ["scheduling ann/bad", "scheduling ann/worse"]
    [refusal] = cellar.core.refusals["ann/bad"]
    assert refusal.text == "the scheduler fails at this job; all others go on"
    assert "report it" in refusal.hint
    passes.clear()
    step = cellar.ask(SubmitJob(spec("ann/later")))
    assert cellar.running() == {*SOUND, "ann/later"}
    assert passes == [{"ann/later"}]
    assert step.failures == ()
    assert cellar.core.refusals.keys() == {"ann/bad", "ann/worse"}


def test_a_job_that_was_changed_is_tried_again(cellar: Cellar, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = {"ann/bad"}
    fail_to_schedule(monkeypatch, bad)
    cellar.ask(SubmitJob(spec("ann/bad")))
    bad.clear()
    cellar.wait(1)
    assert cellar.running() == set()
    cellar.ask(ScaleJob("ann/bad", 2))
    assert cellar.running() == {"ann/bad"}
    assert cellar.core.refusals == {}


def test_a_scheduler_that_fails_at_nothing_in_particular_rests(
    cellar: Cellar, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = Scheduler.schedule

    def failing(self: Scheduler, cell: Cell, *rest: Any) -> Any:
        if len(cell.waiting) > 1:
            raise MemoryError
        return schedule(self, cell, *rest)

    monkeypatch.setattr(Scheduler, "schedule", failing)
    step = cellar.ask(SubmitJob(spec("ann/a")), SubmitJob(spec("ann/b")))
    assert [failure.what for failure in step.failures] == ["scheduling"]
    monkeypatch.undo()
    cellar.wait(PAUSE_SECONDS / 2)
    assert cellar.running() == set()
    cellar.wait(PAUSE_SECONDS / 2)
    assert cellar.running() == {"ann/a", "ann/b"}


def test_culprits_are_found_by_halves() -> None:
    asked = []

    def fails(jobs: Any) -> bool:
        asked.append(jobs)
        return not {3, 77}.isdisjoint(jobs)

    assert culprits(fails, range(100)) == [3, 77]  # type: ignore[arg-type,comparison-overlap]  # numbers will do
    assert len(asked) < 40


def test_an_entry_taken_in_by_half_breaks_the_cell(cellar: Cellar, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(cell: Cell, entry: Any) -> None:
        apply_entry(cell, entry)
        raise RuntimeError("half of it")

    monkeypatch.setattr(core_module, "apply_entry", failing)
    with pytest.raises(CellBroken) as caught:
        cellar.ask(SubmitJob(spec("ann/web")))
    assert "SubmitJob of ann at position 3, request id 'r1' broke the cell" in caught.value.message
    assert "Nothing of it is stored" in caught.value.hint
    assert caught.value.exit_code == 70
    assert caught.value.digest == "d0"


def test_what_broke_a_master_is_not_tried_by_the_next(tmp_path: Path) -> None:
    suspects = PoisonFile(tmp_path)
    assert suspects.known() == {}
    suspects.note("d0", "it broke")
    cellar = Cellar(PoisonFile(tmp_path).known())
    step = cellar.ask(SubmitJob(spec("ann/web")), SubmitJob(spec("ann/other")))
    [(_, refused), (_, accepted)] = step.replies
    assert isinstance(refused, Poison)
    assert "it broke" in refused.message
    assert isinstance(accepted, Accepted)
    assert (tmp_path / POISON_FILE).stat().st_mode & 0o777 == 0o600


def test_another_version_tries_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PoisonFile(tmp_path).note("d0", "it broke")
    monkeypatch.setattr(borgish, "__version__", "999")
    assert PoisonFile(tmp_path).known() == {}


def test_a_damaged_list_is_named(tmp_path: Path) -> None:
    (tmp_path / POISON_FILE).write_text("[{]")
    with pytest.raises(UnsafeConfiguration, match=r"poison\.json cannot be read"):
        PoisonFile(tmp_path)


def test_the_list_does_not_grow_for_ever(tmp_path: Path) -> None:
    suspects = PoisonFile(tmp_path)
    for number in range(120):
        suspects.note(f"d{number}", "it broke")
    known = PoisonFile(tmp_path).known()
    assert len(known) == 100
    assert "d119" in known
    assert msgspec.json.decode((tmp_path / POISON_FILE).read_bytes())[0]["digest"] == "d20"


def test_a_pass_that_moves_a_task_twice_moves_it_once(
    cellar: Cellar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its commands may be alone; together they would break off the entry half-way."""
    schedule = Scheduler.schedule

    def twice(self: Scheduler, cell: Cell, *rest: Any) -> Any:
        plan = schedule(self, cell, *rest)
        return msgspec.structs.replace(plan, placements=plan.placements * 2)

    monkeypatch.setattr(Scheduler, "schedule", twice)
    step = cellar.ask(SubmitJob(spec("ann/web", 2)))
    assert cellar.running() == {"ann/web"}
    assert [failure.what for failure in step.failures] == ["PlaceTasks of scheduler"]
    assert [entry.cause for entry in step.entries] == ["SubmitJob", "place"]
