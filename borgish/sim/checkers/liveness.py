"""Progress: when faults are over there is soon a leader, and what can run soon runs.

The storm may end in any state. So when all that was away is back, the master is killed once more, where it is
in this world's nature to die, and started again at once; and a small job is submitted as soon as somebody
leads.
"""

from collections.abc import Callable, Mapping

from borgish.cell.commands import SubmitJob
from borgish.cell.events import TasksPlaced
from borgish.errors import BorgishError
from borgish.resources import Resources
from borgish.sim.loop import VirtualLoop
from borgish.sim.machines import Machine
from borgish.sim.masters import MasterHost
from borgish.spec.job import JobSpec
from borgish.vocabulary import Runtime, task_name
from borgish.wire.api import Accepted

BACK_SECONDS = 40.0
"""So long after the storm everything is back that was away, and every machine takes tasks again."""
LEADER_SECONDS = 8.0
PLACED_SECONDS = 10.0
RUNS_SECONDS = 15.0
LOOK_SECONDS = 0.1

LAST_JOB = JobSpec(
    name="last",
    user="ann",
    tasks=1,
    run=("sim",),
    runtime=Runtime.FAKE,
    resources=Resources(10, 1024**2),
    labels={"sim": "service"},
)


class Liveness:
    """What is asked of a cell once faults are over."""

    def __init__(
        self, clock: VirtualLoop, master: Callable[[], MasterHost], machines: Mapping[str, Machine]
    ) -> None:
        self.problems: list[str] = []
        self._clock = clock
        self._master = master
        self._machines = machines
        self._since = 0.0

    def begin(self, *, kill: bool) -> None:
        """Ask for a leader from now on, and then for a place; with ``kill``, end the one that leads first."""
        self._since = self._clock.now().mono
        if kill:
            host = self._master()
            host.die()
            host.begin()
        self._find_leader()

    def _find_leader(self) -> None:
        waited = self._clock.now().mono - self._since
        if self._master().leader is not None:
            self._submit()
        elif waited > LEADER_SECONDS:
            self.problems.append(f"nobody leads {waited:.1f} s after faults were over")
        else:
            self._clock.after(LOOK_SECONDS, self._find_leader)

    def _submit(self) -> None:
        submitted_at = self._clock.now().mono

        def answered(reply: Accepted | BorgishError) -> None:
            if isinstance(reply, BorgishError):
                self.problems.append(f"{LAST_JOB.key} was refused: {reply}")

        self._master().command(SubmitJob(LAST_JOB), answered, "ann", "last", "d")
        self._clock.after(RUNS_SECONDS, lambda: self._judge(submitted_at))

    def _judge(self, submitted_at: float) -> None:
        """It was placed in time, and its program is alive, where its machine has answered since."""
        store = self._master().store.reopen()
        placed = [
            (event.machines[0], store.sim_disk.decided_at[entry.position])
            for entry in store.entries(0)
            for event in entry.events
            if isinstance(event, TasksPlaced) and event.job == LAST_JOB.key
        ]
        if not placed or placed[0][1] - submitted_at > PLACED_SECONDS:
            self.problems.append(f"{LAST_JOB.key} has no place {PLACED_SECONDS:g} s after it was submitted")
            return
        machine = self._machines[placed[-1][0]]
        has_answered = bool(machine.answered_at) and machine.answered_at[-1] > submitted_at
        name = task_name(LAST_JOB.key, 0)
        if has_answered and not any(key.startswith(f"{name}@") for key in machine.programs.alive()):
            self.problems.append(f"{name} does not run {RUNS_SECONDS:g} s after its job was submitted")
