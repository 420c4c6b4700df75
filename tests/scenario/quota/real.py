"""The real core behind the real API: what the turn does, without a store and without machines' programs."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from borgish.api.app import create_app
from borgish.api.serve import Serving, serve
from borgish.api.services import Reading
from borgish.bands import Bands
from borgish.cell.access.model import Asker, User
from borgish.cell.command import Command
from borgish.cell.commands import JoinMachine
from borgish.cell.model import Cell, Rules, Snapshot
from borgish.clock import Now
from borgish.errors import Refused
from borgish.master.core import Core
from borgish.master.step import CommandRequest, PollsAnswered
from borgish.reconcilers.settings import ReconcileSettings
from borgish.vocabulary import Band
from borgish.wire.api import Accepted
from tests.integration.api.fakes import TOKENS, FakeMaster, RunningApi
from tests.unit.api.cells import NOW, machine

T = TypeVar("T")
RULES = Rules(Bands(names={"prod": Band.PRODUCTION}))
MACHINES = ("m1", "m2")


class CoreMaster(FakeMaster):
    """Decides as a master does. ``now`` is moved by the test."""

    def reset(self) -> None:
        super().reset()
        self.begin(Cell(Snapshot("test")), RULES)
        joins = [JoinMachine(machine(name), "i", known=False) for name in MACHINES]
        self.core.step([CommandRequest(n, join, "join") for n, join in enumerate(joins)], self.now)

    def begin(self, cell: Cell, rules: Rules) -> None:
        """Let a master begin, on this cell and with this configuration."""
        self.now = NOW
        self.core = Core(cell, ReconcileSettings(), self.now)
        self.core.begin(cell.epoch + 1, "me", self.now, rules)
        self.cell, self.observed = self.core.cell, self.core.observed
        for user in ("ann", "bob"):
            self.cell.access.users[user] = User(user, grants=("band:production",))

    async def ask(
        self,
        command: Command,
        actor: str,
        request_id: str,
        digest: str,
        *,
        expected: int | None = None,
        asker: Asker,
    ) -> Accepted:
        heard = PollsAnswered(dict.fromkeys(MACHINES, self.now.mono))
        asked = CommandRequest(1, command, actor, request_id, digest, expected=expected, asker=asker)
        step = self.core.step([heard, asked], self.now)
        self.journal += step.entries
        ((_, reply),) = step.replies
        if isinstance(reply, Refused):
            raise reply
        return reply

    async def read(self, view: Callable[[Reading], T], at_least: int = 0) -> T:
        return await super().read(
            lambda reading: view(msgspec.structs.replace(reading, now=self.now)), at_least
        )

    def pass_by(self, seconds: float) -> None:
        """Let time go by, on the clock that is shown."""
        self.now = Now(self.now.wall + seconds, self.now.mono)


class CoreApi(RunningApi):
    """The API in front of a real core."""

    master: CoreMaster

    async def _start(self) -> tuple[CoreMaster, Serving]:
        master = CoreMaster()
        return master, await serve(create_app(master.services, TOKENS), "127.0.0.1", 0)
