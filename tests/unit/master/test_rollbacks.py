"""Rolling back a running master: what is found in the way first, what is kept, and the same answer twice."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from borgish.api.moments import read_moment
from borgish.api.views.status import Daemon
from borgish.cell.access.model import Asker, Principal, Role
from borgish.cell.command import Command
from borgish.cell.commands import (
    JoinMachine,
    KillTasks,
    Seen,
    SubmitJob,
)
from borgish.clock import SystemClock
from borgish.errors import Conflict, Gone, Invalid, NotFound, Refused
from borgish.master.core import Core
from borgish.master.inbox import Inbox
from borgish.master.past.checkpoints import Checkpointer
from borgish.master.past.moments import Moments
from borgish.master.past.rollbacks import Rollbacks
from borgish.master.step import Step
from borgish.master.turn import Turn
from borgish.reconcilers.settings import ReconcileSettings
from borgish.store.base import Store
from borgish.store.codec import compress, encode_snapshot, sha256_of
from borgish.store.memory import MemoryStore
from borgish.store.migrate import BEFORE_MIGRATION
from borgish.store.open import open_store
from borgish.vocabulary import State
from borgish.wire.api import Accepted, CheckpointView
from borgish.wire.api_past import RollbackPlan, RollbackRequest
from tests.unit.cell.lived import machine, spec

CELL = "testing"
GOOD = 4  # the position after which all was well


class Bench:
    """A master's parts over a store in memory, with turns that run; no machine is ever spoken to."""

    def __init__(self, store: Store, seen: Seen | None = None) -> None:
        self.clock = SystemClock()
        self.store = store
        cell = store.load()
        epoch = self.store.lead("me", "here")
        silence_is_fine = ReconcileSettings(down_after_seconds=3600.0)
        self.core = Core(cell, silence_is_fine, self.clock.now())
        first = self.core.begin(epoch, "me", self.clock.now(), seen=seen)
        self.inbox = Inbox()
        self.turn = Turn(self.core, self.store, self.inbox, self.clock, self.released, lambda _: None)
        self.turns = asyncio.create_task(self.turn.run(first))
        self.checkpointer = Checkpointer(self.core, self.turn, self.store, self.clock)
        moments = Moments(self.core, self.turn, self.store, self.clock, lambda: Daemon(1.0, "memory"))
        self.rollbacks = Rollbacks(
            self.core,
            self.turn,
            self.inbox,
            self.store,
            moments,
            self.checkpointer,
            self.clock,
        )

    def released(self, step: Step) -> None:
        self.rollbacks.released(step)

    async def end(self) -> None:
        self.turn.stop()
        await self.turns
        self.turn.close()
        self.store.close()

    async def do(self, command: Command) -> Accepted:
        return await self.inbox.ask(command, "ann")

    async def live(self) -> None:
        """A good job at position 4, and a bad one in its place after it."""
        await self.do(JoinMachine(machine("m1"), "i", known=False))
        await self.do(SubmitJob(spec(tasks=4)))
        assert self.core.cell.position == GOOD
        await self.do(KillTasks("ann/web"))
        await self.do(SubmitJob(spec(tasks=4, run=("bad",))))

    async def back(self, to: str, request_id: str = "", **asked: Any) -> Accepted:
        moment = read_moment(to, self.clock.now().wall)
        asker = Asker(Principal("ann", Role.ADMIN))
        return await self.rollbacks.roll_back(moment, RollbackRequest(to, **asked), asker, request_id, "d")

    async def plan(self, to: str, **asked: Any) -> RollbackPlan:
        moment = read_moment(to, self.clock.now().wall)
        return await self.rollbacks.plan(moment, RollbackRequest(to, **asked))

    async def refused(self, error: type[Refused], match: str, to: str, **asked: Any) -> str:
        """Have it refused with nothing changed; return the way out."""
        before = bytes(encode_snapshot(self.core.cell.snapshot())), self.store.checkpoints()
        with pytest.raises(error, match=match) as caught:
            await self.back(to, **asked)
        assert (bytes(encode_snapshot(self.core.cell.snapshot())), self.store.checkpoints()) == before
        return caught.value.hint

    def names(self) -> list[str]:
        return [info.name for info in self.store.checkpoints()]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench(MemoryStore(CELL))
    await made.live()
    yield made
    await made.end()


async def test_it_is_done_and_kept_before(bench: Bench) -> None:
    before = bench.core.cell.position
    done = await bench.back(str(GOOD), max_affected=9)
    assert bench.core.cell.jobs["ann/web"].spec == spec(tasks=4)
    assert (done.position, bench.core.cell.timeline) == (before + 1, 2)
    assert bench.names() == [f"before-rollback-{before}"]
    assert bench.store.checkpoints()[0].reason == "before a rollback"


async def test_what_is_named_already_is_not_kept_twice(bench: Bench) -> None:
    await bench.checkpointer.make("asked for", "oh-no")
    await bench.back(str(GOOD), max_affected=9)
    assert bench.names() == ["oh-no"]


async def test_the_timeline_is_in_the_store(bench: Bench) -> None:
    done = await bench.back(str(GOOD), max_affected=9)
    entry = next(iter(bench.store.entries(done.position - 1, 1)))
    assert (entry.timeline, entry.actor, entry.cause) == (2, "ann", "RollBack")
    assert isinstance(bench.store, MemoryStore)
    assert bench.store.reopen().load().timeline == 2


async def test_asked_again_it_is_done_once(bench: Bench) -> None:
    first = await bench.back(str(GOOD), "r1", max_affected=9)
    again = await bench.back(str(GOOD), "r1", max_affected=9)
    assert again == msgspec.structs.replace(first, replayed=True)
    assert bench.core.cell.timeline == 2


async def test_a_dry_run_says_what_it_would_do_and_does_nothing(bench: Bench) -> None:
    before = bench.core.cell.position
    plan = await bench.plan(str(GOOD), max_affected=3)
    assert (plan.to.position, plan.stopped, plan.started, plan.kept) == (GOOD, 4, 4, 0)
    assert [(job.name, job.change, job.lines) for job in plan.jobs] == [
        ("ann/web", "changes", ("version: 2 -> 3", 'run: ["bad"] -> ["sleep", "1"]'))
    ]
    assert "stop 4 of 4 running tasks, and --max-affected allows 3" in plan.refusal
    assert "--max-affected 4" in plan.hint
    assert not (await bench.plan(str(GOOD), max_affected=4)).refusal
    assert (bench.core.cell.position, bench.names()) == (before, [])


async def test_too_many_stops_are_refused_before_anything_is_kept(bench: Bench) -> None:
    hint = await bench.refused(Conflict, "this would stop 4 of 4 running tasks", str(GOOD), max_affected=3)
    assert "--max-affected 4" in hint


async def test_moments_that_are_none(bench: Bench) -> None:
    head = bench.core.cell.position
    assert "1" in await bench.refused(NotFound, "there was no cell", "0")
    await bench.refused(Invalid, "does not exist yet", str(head + 1))
    await bench.refused(Invalid, "is in the future", "2999-01-01T00:00:00Z")
    assert "earliest is position 1" in await bench.refused(NotFound, "no history yet", "1971-01-01")
    await bench.refused(Invalid, "no checkpoint 'noon' is kept", "noon")
    await bench.refused(Conflict, "nothing differs", "now")
    await bench.refused(NotFound, "there is no job ann/none", str(GOOD), only=("ann/none",))


async def test_what_was_pruned_is_refused_with_what_there_is(bench: Bench) -> None:
    await bench.checkpointer.make("asked for")
    kept = bench.core.cell.position
    bench.store.prune_journal(kept, 1000)
    assert str(kept) in await bench.refused(Gone, "can no longer be reconstructed", str(GOOD))


async def test_what_was_lost_is_no_moment_to_go_back_to(tmp_path: Path) -> None:
    """Between the end of an older store and its being taken over there was a history that nobody has."""
    url = f"sqlite:///{tmp_path}/cell.db"
    first = Bench(open_store(url, CELL))
    await first.live()
    end = first.core.cell.position
    await first.end()
    again = Bench(open_store(url, CELL), Seen(1, 7, 400))
    try:
        await again.do(KillTasks("ann/web"))
        at = next(iter(again.store.entries(end - 1, 1))).at
        lost = datetime.fromtimestamp(at + 0.001, UTC).isoformat()  # written to the microsecond
        hint = await again.refused(Conflict, "what was at '.*' may be lost: history ends at", lost)
        assert f"What was left is position {end}" in hint
        await again.back(str(end))
        assert again.core.cell.timeline == 3
        await again.refused(Conflict, "nothing differs", "now")
    finally:
        await again.end()


def damage(bench: Bench, name: str, how: str) -> int:
    """Spoil the checkpoint of a name; return its position."""
    position = next(info.position for info in bench.store.checkpoints() if info.name == name)
    assert isinstance(bench.store, MemoryStore)
    info, stored = bench.store.disk.checkpoints[position]
    if how != "torn":
        body = bytes(encode_snapshot(bench.core.cell.snapshot()))
        body = (
            body.replace(b"snapshot 1", b"snapshot 9")
            if how == "newer"
            else body.replace(b"testing", b"another")
        )
        stored = compress(body)
        info = msgspec.structs.replace(info, sha256=sha256_of(stored), bytes=len(stored))
    bench.store.disk.checkpoints[position] = info, stored[:-1] if how == "torn" else stored
    return position


@pytest.mark.parametrize(
    ("how", "said"),
    [("torn", "SHA-256"), ("newer", "has format 9"), ("foreign", "is of cell 'another'")],
)
async def test_a_checkpoint_that_is_no_good_is_refused_by_its_name(bench: Bench, how: str, said: str) -> None:
    await bench.checkpointer.make("asked for", "noon")
    await bench.do(KillTasks("ann/web"))
    position = damage(bench, "noon", how)
    hint = await bench.refused(Conflict, f"checkpoint 'noon' cannot be used: .*{said}", "noon")
    assert f"borgctl rollback {position}" in hint
    await bench.back(str(position))  # the journal tells it as well
    assert bench.core.cell.jobs["ann/web"].running == 4


async def test_one_at_a_time(bench: Bench) -> None:
    await bench.back(str(GOOD), max_affected=9)
    assert bench.core.cell.rolling
    await bench.refused(Conflict, "a rollback to that is under way", str(GOOD), max_affected=9)
    with pytest.raises(Conflict, match="under way"):
        await bench.plan(str(GOOD))


async def test_two_who_ask_at_once(bench: Bench) -> None:
    one, other = await asyncio.gather(
        bench.back(str(GOOD), max_affected=9), bench.back(str(GOOD), max_affected=9), return_exceptions=True
    )
    assert isinstance(one, Accepted)
    assert isinstance(other, Conflict)
    assert bench.core.cell.timeline == 2


async def test_not_across_a_migration(bench: Bench) -> None:
    migrated = bench.core.cell.position
    await bench.checkpointer.make(f"{BEFORE_MIGRATION} from 0001 to 0002", "before-0002")
    await bench.do(KillTasks("ann/web"))
    hint = await bench.refused(Conflict, f"migrated at position {migrated}", str(GOOD), max_affected=9)
    assert f"`borgctl rollback {migrated}`" in hint
    await bench.back(str(migrated), max_affected=9)
    assert bench.core.cell.jobs["ann/web"].spec == spec(tasks=4, run=("bad",))


async def test_the_plan_says_what_becomes_of_versions_and_of_an_update(bench: Bench) -> None:
    await bench.do(SubmitJob(spec(tasks=4, run=("newer",))))
    (job,) = (await bench.plan(str(GOOD))).jobs
    assert job.lines[:2] == ("version: 3 -> 4", "the update under way is over")


async def test_what_changes_after_it_was_compared_is_rolled_back_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.do(SubmitJob(spec("other", 1)))
    good = bench.core.cell.position
    await bench.do(KillTasks("ann/web"))
    make = bench.checkpointer.make

    async def kept(*how: str) -> CheckpointView:
        await bench.do(KillTasks("ann/other"))  # the cell was compared before it is kept
        return await make(*how)

    monkeypatch.setattr(bench.checkpointer, "make", kept)
    await bench.back(str(good))
    states = {key: job.tasks[0].state for key, job in bench.core.cell.jobs.items()}
    assert states == {"ann/web": State.RUNNING, "ann/other": State.RUNNING}
