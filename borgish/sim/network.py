"""Messages between the master and machines: slow, lost, or held up by a machine that is cut off."""

from borgish.errors import Conflict
from borgish.sim.clock import VirtualClock
from borgish.sim.faults import Fate
from borgish.sim.machine import Answer, SimMachine
from borgish.wire.link import PollReply, PollRequest


class Network:
    """Carries polls and their answers. What is lost says nothing: the asker has its own time limit."""

    def __init__(self, clock: VirtualClock, fate: Fate) -> None:
        self._clock = clock
        self._fate = fate

    def poll(self, machine: SimMachine, request: PollRequest, answer: Answer) -> None:
        """Bring a poll to a machine, and its answer back if both get through."""
        seconds = self._travel(machine)
        if seconds is not None:
            instance = machine.instance
            self._clock.after(seconds, lambda: self._arrive(machine, instance, request, answer))

    def _arrive(self, machine: SimMachine, instance: str, request: PollRequest, answer: Answer) -> None:
        def back(reply: PollReply | Conflict) -> None:
            seconds = self._travel(machine)
            if seconds is not None:
                self._clock.after(seconds, lambda: self._return(machine, instance, reply, answer))

        # A connection ends with the borglet at its other end.
        if machine.is_up and machine.instance == instance:
            machine.poll(request, back)

    def _return(
        self, machine: SimMachine, instance: str, reply: PollReply | Conflict, answer: Answer
    ) -> None:
        if machine.is_up and machine.instance == instance:
            answer(reply)

    def _travel(self, machine: SimMachine) -> float | None:
        return None if machine.is_cut_off else self._fate.travel_seconds()
