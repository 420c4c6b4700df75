"""Messages between the master and machines: slow, lost, or held up by a machine that is cut off."""

from collections.abc import Callable

from borgish.errors import Conflict, NotListening, Unreachable
from borgish.sim.clock import VirtualClock
from borgish.sim.faults import Fate
from borgish.sim.machine import Answer, SimMachine
from borgish.wire.link import HeadReply, PollReply, PollRequest

LATE_SECONDS = 1.0
"""A message that takes longer may make its poll fail."""


class Network:
    """Carries polls and their answers. What is lost says nothing: the asker has its own time limit.

    A host without a borglet refuses the connection; one that is off says nothing.
    """

    def __init__(self, clock: VirtualClock, fate: Fate) -> None:
        self._clock = clock
        self._fate = fate

    def poll(
        self,
        machine: SimMachine,
        port: int,
        request: PollRequest,
        answer: Answer,
        is_open: Callable[[], bool],
    ) -> None:
        """Bring a poll to a port of a machine, and its answer back if both get through.

        ``is_open`` tells whether the connection still is: it ends with the process of who asks.
        """
        for _ in range(1 + self._fate.happens(self._fate.faults.message_doubled)):
            seconds = self._travel(machine)
            if seconds is not None:
                self._clock.after(seconds, lambda: self._arrive(machine, port, request, answer, is_open))

    def head(self, machine: SimMachine, port: int, answer: Callable[[HeadReply], None]) -> None:
        """Ask a machine what it has seen of masters."""
        there, back = self._fate.travel_seconds(), self._fate.travel_seconds()
        if there is None or back is None or machine.is_cut_off:
            return

        def arrive() -> None:
            reply = machine.head() if machine.port == port else None
            if reply is not None:
                self._clock.after(back, lambda: answer(reply))

        self._clock.after(there, arrive)

    def _arrive(
        self,
        machine: SimMachine,
        port: int,
        request: PollRequest,
        answer: Answer,
        is_open: Callable[[], bool],
    ) -> None:
        def back(reply: PollReply | Conflict | Unreachable) -> None:
            seconds = self._travel(machine)
            if seconds is not None:
                # What was sent arrives, also when the borglet that sent it is gone by then.
                self._clock.after(seconds, lambda: answer(reply))

        if machine.is_up and machine.port == port:
            machine.poll(request, back, is_open)
        elif machine.is_on:
            back(NotListening("connection refused"))

    def _travel(self, machine: SimMachine) -> float | None:
        seconds = None if machine.is_cut_off else self._fate.travel_seconds()
        if seconds is None or seconds > LATE_SECONDS:
            machine.missed()
        return seconds
