"""Simulated machines: the real borglet core, with programs that are up at once."""

from borgish.borglet.actions import Action, Forget, Kill, Signal, Start
from borgish.borglet.core import BorgletCore
from borgish.borglet.runtimes.base import RunState
from borgish.cell.model import Machine
from borgish.clock import Clock, Now
from borgish.resources import Resources
from borgish.vocabulary import Runtime
from borgish.wire.link import Exit, Facts, PollReply, PollRequest, Usage

GIB = 1024**3
FACTS = Facts(Resources(64_000, 256 * GIB, 1000 * GIB), {"os": "sim"}, (Runtime.FAKE,), 20000, 20999)
BOOT = "boot"


class InstantBorglet:
    """One machine's borglet. Answers polls; nothing on it takes time."""

    def __init__(self, name: str, clock: Clock, facts: Facts = FACTS) -> None:
        self._clock = clock
        self._pid = 1000
        self.core = BorgletCore(name, BOOT, f"{name}-1", facts, now=clock.now())
        for kind in facts.runtimes:
            self.core.adopted(kind, [], clock.now())
        self.core.step(clock.now())

    def take(self, request: PollRequest) -> None:
        """Take in a poll and do all that follows from it."""
        now = self._clock.now()
        self.core.poll(request, now)
        while todo := self.core.step(now).todo:
            for action in todo:
                self._do(action, now)

    def answer(self, request: PollRequest) -> PollReply:
        """Take in a poll and return its answer."""
        self.take(request)
        return self.core.reply(request)

    def usage(self) -> tuple[Usage, ...]:
        """Return samples of all that is here."""
        return tuple(Usage(each.task, each.attempt, 100, 64 * 1024**2) for each in self.core.report())

    def _do(self, action: Action, now: Now) -> None:
        match action:
            case Start(spec, run):
                self._pid += 1
                self.core.ran(spec.key, RunState(spec.key, run, self._pid, now.wall), now)
            case Signal(key) | Kill(key):
                run = self.core.attempts()[key].run
                ended = RunState(key, run, self._pid, now.wall, Exit(signal=15, at=now.wall))
                self.core.ran(key, ended, now)
            case Forget(key):
                self.core.forgotten(key)


def machine_record(name: str, facts: Facts = FACTS) -> Machine:
    """Return a machine as the cell knows it."""
    return Machine(
        name=name,
        host="sim",
        port=0,
        tls=False,
        capacity=facts.capacity,
        attributes=facts.attributes,
        runtimes=facts.runtimes,
        ports_low=facts.ports_low,
        ports_high=facts.ports_high,
        boot_id=BOOT,
        joined_at=0.0,
        port_next=facts.ports_low,
    )
