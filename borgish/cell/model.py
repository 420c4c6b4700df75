"""The records of a cell that are journalled and stored. Only ``apply`` writes to them.

``Task`` is the one there are 200,000 of, hence ``gc=False`` and plain fields.
"""

import msgspec

from borgish.resources import Resources
from borgish.spec.job import JobSpec
from borgish.vocabulary import Ending, Runtime, State


class Task(msgspec.Struct, gc=False):
    """One index of a job. ``machine`` and ``ports`` are those of ``attempt``, also when it is over."""

    index: int
    state: State = State.PENDING
    attempt: int = 0  # 0: never placed
    machine: str = ""
    ports: tuple[int, ...] = ()  # in the order of the job's port names
    since: float = 0.0  # of the state; seconds since 1970
    reason: str = ""  # of the state, for people
    restarts: int = 0  # local restarts in this attempt
    ending: Ending | None = None  # when dead
    exit_code: int | None = None  # of the last program that ended, in any attempt
    signal: int | None = None
    started_at: float = 0.0  # of the last program; known when it ended
    previous_attempt: int = 0  # the stay before this one, for its logs
    previous_machine: str = ""


class Job(msgspec.Struct):
    """A user's job. ``tasks[i].index == i``. The counts follow from the tasks; ``apply`` keeps them."""

    key: str  # user/name
    uid: int  # journal position of its submission
    spec: JobSpec
    submitted_at: float
    submitted_by: str
    generation: int = 1  # grows with each change of the spec
    tasks: list[Task] = []
    pending: int = 0
    running: int = 0
    dead: int = 0
    finished: int = 0  # of the dead, those that ended with finish

    @property
    def state(self) -> State:
        """Running when any task runs, else pending when any is, else dead."""
        if self.running:
            return State.RUNNING
        return State.PENDING if self.pending else State.DEAD


class Machine(msgspec.Struct):
    """A host with a borglet, as the cell has decided to see it. How it is now is in ``observed``."""

    name: str
    host: str
    port: int
    tls: bool
    capacity: Resources
    attributes: dict[str, str]
    runtimes: tuple[Runtime, ...]
    ports_low: int
    ports_high: int
    boot_id: str
    joined_at: float
    up: bool = True
    cordoned: bool = False
    reason: str = ""  # why it is down or cordoned
    port_next: int = 0  # where the search for a free port goes on, so that ports rest before reuse


class Answer(msgspec.Struct, frozen=True):
    """What a request id was answered, so that a retry gets the same."""

    digest: str  # of the request's body
    position: int
    subject: str
    text: str


class Snapshot(msgspec.Struct):
    """A whole cell at one journal position: the body of a checkpoint."""

    name: str
    position: int = 0
    timeline: int = 1
    epoch: int = 0
    jobs: dict[str, Job] = {}
    machines: dict[str, Machine] = {}
    requests: dict[str, Answer] = {}  # the latest, oldest first; bounded
