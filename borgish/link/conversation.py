"""What master and one machine have said to each other so far, and so what to say next. Pure.

The poller carries it over the network; the simulator carries it over a simulated one.
"""

from borgish.cell.commands import Observe
from borgish.cell.observed import Observed
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.link.translate import Incoming, Outgoing
from borgish.wire.link import UNKNOWN, Assignment, Leader, PollReply, PollRequest


class Conversation:
    """One machine's assignment, what the machine is known to have of it, and what it last reported."""

    def __init__(
        self,
        cell: Cell,
        observed: Observed,
        machine: str,
        generation: int = 0,
        leader: Leader = UNKNOWN,
    ) -> None:
        """``generation`` is that of the last assignment made for this machine under this epoch, if any;
        ``leader`` is who asks."""
        self._leader = leader
        self._cell = cell
        self._observed = observed
        self._machine = machine
        self._outgoing = Outgoing(cell, machine)
        self._incoming = Incoming(machine)
        self._assignment = Assignment(generation)
        # As of the last renewal, which is durable: a rollback under way has raised the cell's timeline, and
        # machines that heard of it would refuse the next master, should this one die before its commit.
        self.timeline, self._epoch = cell.timeline, cell.epoch
        self._held_generation = 0  # what the borglet last said it works on
        self._seen = 0
        self._seen_instance = ""
        self._instance = ""  # the borglet run that answered last
        self._former_instance = ""  # the one before it

    @property
    def generation(self) -> int:
        """The generation of the last assignment."""
        return self._assignment.generation

    def renew(self, now: Now) -> None:
        """Make the assignment anew from what is now durable."""
        self.timeline, self._epoch = self._cell.timeline, self._cell.epoch
        generation = self._assignment.generation + 1
        self._assignment = self._outgoing.assignment(self._observed, generation, now)

    def request(self, wait_seconds: float) -> PollRequest:
        """Return the next poll, which may be held for so long; not held while nothing is known of the
        machine: it has an answer then, and that there is none should be known soon."""
        has_assignment = 0 < self._assignment.generation == self._held_generation
        return PollRequest(
            cell=self._cell.name,
            timeline=self.timeline,
            epoch=self._epoch,
            generation=self._assignment.generation,
            seen=self._seen,
            seen_instance=self._seen_instance,
            wait_seconds=wait_seconds if self._seen_instance else 0.0,
            assignment=None if has_assignment else self._assignment,
            leader=self._leader,
        )

    def observe(self, reply: PollReply) -> Observe | None:
        """Return what the master should know of a reply, None when it is nothing new."""
        if self._is_outdated(reply):
            return None
        if reply.instance != self._instance:
            self._former_instance, self._instance = self._instance, reply.instance
        self._held_generation = reply.generation
        record = self._cell.machines.get(self._machine)
        if reply.report is None or record is None:  # None: it was removed a moment ago
            return None
        return self._incoming.observe(reply, reply.report, record)

    def acknowledge(self, reply: PollReply) -> None:
        """What this reply brought about is durable: the machine may let go of it."""
        if not self._is_outdated(reply):
            self._seen, self._seen_instance = reply.report_generation, reply.instance

    def _is_outdated(self, reply: PollReply) -> bool:
        """Whether it answers an overtaken poll, with less than is known: what a borglet said that has
        since been started again tells nothing of what its successor runs."""
        if reply.instance == self._former_instance:
            return True
        return reply.instance == self._seen_instance and reply.report_generation < self._seen

    def lose(self) -> None:
        """After a failed poll nothing is taken for known: the next answer is to be whole."""
        self._seen, self._seen_instance, self._held_generation = 0, "", 0
        self._incoming.forget()
