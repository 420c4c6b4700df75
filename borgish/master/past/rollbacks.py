"""Rolls the cell of a running master back: finds the moment, looks what would happen, keeps the cell, asks.

Whatever is in the way is found before anything is changed. What follows is decided by the core, against the
cell as it is then.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

from borgish.api.moments import Moment
from borgish.api.views.history import rollback_plan
from borgish.cell.access.model import Asker
from borgish.cell.commands import RollBack
from borgish.cell.events import EntriesLost
from borgish.cell.updates.rollback import RollbackTarget, compare
from borgish.cell.updates.rollback_checks import checked_plan
from borgish.clock import Clock
from borgish.errors import Conflict, NotFound, StoreDamaged, UnsafeConfiguration
from borgish.master.core import Core
from borgish.master.inbox import Inbox
from borgish.master.past.checkpoints import Checkpointer
from borgish.master.past.moments import Moments
from borgish.master.step import Step
from borgish.master.turn import Turn
from borgish.store.base import Store
from borgish.store.checkpoints import verified_snapshot
from borgish.store.migrate import BEFORE_MIGRATION
from borgish.text import instant
from borgish.wire.api import Accepted, AsOf
from borgish.wire.api_past import RollbackPlan, RollbackRequest

REASON = "before a rollback"
SLICE_SECONDS = 0.005
_RECORDS_BETWEEN_LOOKS = 64  # at the clock


class Rollbacks:
    """Takes the cell back, one asker at a time."""

    def __init__(
        self,
        core: Core,
        turn: Turn,
        inbox: Inbox,
        store: Store,
        moments: Moments,
        checkpointer: Checkpointer,
        clock: Clock,
    ) -> None:
        self._core = core
        self._turn = turn
        self._inbox = inbox
        self._store = store
        self._moments = moments
        self._checkpointer = checkpointer
        self._clock = clock
        self._targets: set[RollbackTarget] = set()  # of those that are planned, or carried out
        self._one_at_a_time = asyncio.Lock()

    async def plan(self, moment: Moment, asked: RollbackRequest) -> RollbackPlan:
        """Return what a rollback would do. Raises what is in its way for good."""
        to, target, command = await self._command(moment, asked)
        async with self._compared(target, command):
            await self._turn.durable()
            return rollback_plan(self._core.cell, target, command, to, self._clock.now())

    async def roll_back(
        self, moment: Moment, asked: RollbackRequest, asker: Asker, request_id: str, digest: str
    ) -> Accepted:
        """Roll back, and return when that is durable. Raises what is in the way, with nothing changed."""
        actor = asker.principal.name
        async with self._one_at_a_time:
            if self._core.cell.answer_to(actor, request_id) is not None:
                # Asked again: whatever it would be by now, the answer is the one that was given.
                return await self._inbox.ask(RollBack(0, 0.0), actor, request_id, digest, asker=asker)
            _, target, command = await self._command(moment, asked)
            async with self._compared(target, command):
                await self._turn.durable()
                checked_plan(self._core.cell, target, command, self._clock.now())
                await self._keep()
                return await self._inbox.ask(command, actor, request_id, digest, target, asker=asker)

    def released(self, step: Step) -> None:
        """Take notice of a step that is durable."""
        for target in self._targets:
            target.note(step.touched)

    @asynccontextmanager
    async def _compared(self, target: RollbackTarget, command: RollBack) -> AsyncIterator[None]:
        """Find in slices what the command may change. Until the end what turns change is noted as well."""
        self._targets.add(target)
        try:
            if not command.only:
                until = self._clock.now().mono + SLICE_SECONDS
                for number, _ in enumerate(compare(self._core.cell, target)):
                    if number % _RECORDS_BETWEEN_LOOKS == 0 and self._clock.now().mono > until:
                        await asyncio.sleep(0)
                        until = self._clock.now().mono + SLICE_SECONDS
            yield
        finally:
            self._targets.discard(target)
            target.jobs = target.machines = None  # for one that is decided after its asker went away

    async def _command(self, moment: Moment, asked: RollbackRequest) -> tuple[AsOf, RollbackTarget, RollBack]:
        to = await self._moments.find(moment)
        if to.position == 0:
            raise NotFound("before its first entry there was no cell", "The earliest is position 1")
        if moment.at is not None:
            await asyncio.to_thread(self._expect_not_lost, moment, to)
        if moment.checkpoint:
            await asyncio.to_thread(self._expect_good, moment.checkpoint, to.position)
        await asyncio.to_thread(self._expect_this_version, to)
        command = RollBack(
            to.position,
            datetime.fromisoformat(to.at).timestamp(),
            frozenset(asked.only),
            asked.now,
            asked.max_affected,
        )
        return to, RollbackTarget(await self._moments.cell(to)), command

    def _expect_not_lost(self, moment: Moment, to: AsOf) -> None:
        """What was after the last entry that is left, and before the one that says so, nobody can tell."""
        following = next(iter(self._store.entries(to.position, 1)), None)
        was_lost = following is not None and any(isinstance(e, EntriesLost) for e in following.events)
        if following is not None and was_lost:
            raise Conflict(
                f"what was at '{moment.text}' may be lost: history ends at {to.at}, and goes on at "
                f"{instant(following.at)} from what was left",
                f"What was left is position {to.position}; name that, or a moment after it went on",
            )

    def _expect_this_version(self, to: AsOf) -> None:
        """What another version decided is shown as it was; nobody has tried whether this one allows it."""
        kept = self._store.checkpoints()
        migrated = max((one.position for one in kept if one.reason.startswith(BEFORE_MIGRATION)), default=0)
        if to.position < migrated:
            raise Conflict(
                f"position {to.position} is from an older version of borgish: "
                f"the database was migrated at position {migrated}",
                f"`--at` and `borgctl diff` show it; go back that far at most: `borgctl rollback {migrated}`",
            )

    def _expect_good(self, name: str, position: int) -> None:
        """Who names a checkpoint wants that one; another way to tell the moment is theirs to choose."""
        try:
            verified_snapshot(self._core.cell.name, *self._store.checkpoint_body(position))
        except (StoreDamaged, UnsafeConfiguration, NotFound) as error:
            raise Conflict(
                f"checkpoint '{name}' cannot be used: {error.message}",
                f"The journal may tell that moment without it: `borgctl rollback {position}`",
            ) from error

    async def _keep(self) -> None:
        """Keep the cell under a name, unless it is kept under one as it is."""
        kept = await self._checkpointer.kept()
        await self._turn.durable()
        position = self._core.cell.position
        if not any(one.position == position and one.name for one in kept):
            await self._checkpointer.make(REASON, f"before-rollback-{position}")
