"""The words of borgish, each defined once.

Code, output, database and documents use these words for these things, and no other words. The
enumerations are the closed sets among them; the longer explanations are in ``borgish/README.md``.

cell         the machines that one borgmaster manages
machine      a host with a borglet; has capacity, attributes, labels
job          a user's named set of N tasks that run the same thing; ``user/job`` names it
task         one index of a job, ``user/job/3``; keeps its identity for the job's whole life
alloc        an envelope of resources reserved on a machine, in which tasks run
alloc set    a job-like group of allocs
cron         a job file with a schedule, ``user/cron``; each of its runs is a job of its own
attempt      one stay of a task on one machine; its id is the journal position of its placement
band         monitoring > production > batch > free; a priority is a number inside a band
quota        how much one user's jobs in one band may ask for at a time
rules        what decisions depend on of a cell's configuration, as the journal has it
command      what somebody asks; may be refused
event        what happened; the journal's alphabet; cannot be refused
journal      every event ever, in order, in the database; grows at its end, and only its oldest part may go
checkpoint   the whole cell at one journal position
timeline     grows at each rollback
epoch        grows at each election, that is at each start of a borgmaster
assignment   all that one machine should run now, with its generation
report       all that one machine does run now
step, turn   one pure call of the master; the step, made durable, then released
refusal      why a task was not placed, in counts and words
"""

from enum import StrEnum


class State(StrEnum):
    """The three states of Borg (EuroSys 2015, figure 2), of a task and of a job alike."""

    PENDING = "pending"
    RUNNING = "running"
    DEAD = "dead"


class Phase(StrEnum):
    """What is seen of a running task on its machine. Phases inform, states decide."""

    ASSIGNED = "assigned"  # placed; the machine has not yet said anything of it
    STARTING = "starting"  # being started
    BACKING_OFF = "backing off"  # its program ended twice or did not start; waits for its next start
    CRASH_LOOPING = "crash-looping"  # the same after CRASH_LOOP_STARTS in a row that ended early
    UP = "up"  # runs; not probed, or not probed long enough to tell
    HEALTHY = "healthy"  # runs and answers its probe
    UNHEALTHY = "unhealthy"  # runs and failed its probe; a restart follows
    STOPPING = "stopping"  # was asked to stop and has not ended
    UNKILLABLE = "unkillable"  # its program was killed and goes on, as one that the kernel waits for


HELD_BACK = frozenset({Phase.BACKING_OFF, Phase.CRASH_LOOPING})
HELD_UP = HELD_BACK | {Phase.UNHEALTHY, Phase.UNKILLABLE}
"""What runs in one of these needs somebody."""
CRASH_LOOP_STARTS = 3


class MachineState(StrEnum):
    """How the cell sees a machine. One that is drained is empty, one that is draining not yet."""

    UP = "up"
    DOWN = "down"
    DRAINING = "draining"
    DRAINED = "drained"
    CORDONED = "cordoned"
    QUARANTINED = "quarantined"
    REVOKED = "revoked"


class Ending(StrEnum):
    """How a task came to be dead."""

    FINISH = "finish"  # exit code 0 in a job that runs to completion
    FAIL = "fail"  # any other exit, and no attempts left
    KILL = "kill"  # somebody asked for it
    LOST = "lost"  # nobody can say what became of it


RESULTS = frozenset({Ending.FINISH, Ending.FAIL})
"""How a program ends by itself."""


FAILURES = frozenset({Ending.FAIL, Ending.LOST})
"""What counts as a failed task."""


class OnExit(StrEnum):
    """What a rule of ``on_exit`` makes of a program's end."""

    FAIL = "fail"  # the task has failed, whatever attempts are left
    FINISH = "finish"  # as exit code 0
    RESTART = "restart"  # another attempt, which ``restart.attempts`` does not count


class Outcome(StrEnum):
    """How what is dead came out; states do not tell it. A job failed when any of its tasks did or was lost,
    was killed when any was, and else finished."""

    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"
    LOST = "lost"


OUTCOMES = {
    Ending.FINISH: Outcome.FINISHED,
    Ending.FAIL: Outcome.FAILED,
    Ending.KILL: Outcome.KILLED,
    Ending.LOST: Outcome.LOST,
}


class Eviction(StrEnum):
    """Why a running task was sent back to pending."""

    RESTART = "restart"  # its user asked for a fresh attempt
    MACHINE_LOST = "machine lost"
    DRAIN = "drain"
    PREEMPTED = "preempted"
    OUT_OF_RESOURCES = "out of resources"
    PORT_IN_USE = "port in use"  # a foreign program holds a port it was given
    FAILED = "failed"  # a service that fails there, after its local restarts
    VANISHED = "vanished"  # its machine no longer knows it, as after a reboot
    TAINTED = "tainted"  # its machine got a taint it does not tolerate, or not that long
    UNSUITABLE = "unsuitable"  # its machine no longer meets its constraints
    ALLOC_MOVED = "alloc moved"  # the alloc it ran in left the machine
    UNKILLABLE = "unkillable"  # its program was to be restarted, was killed, and goes on


VOLUNTARY = frozenset(
    {Eviction.RESTART, Eviction.DRAIN, Eviction.PREEMPTED, Eviction.TAINTED, Eviction.UNSUITABLE}
)
"""Evictions on purpose, of which ``disruption.max_rate`` of a job is the limit."""


class HandoverCause(StrEnum):
    """Why a running task is to be replaced by one that is up before."""

    ROLLOUT = "rollout"  # an update, a restart or a rollback is to reach it
    DRAIN = "drain"  # its machine is to be empty
    TAINTED = "tainted"  # its machine got a taint it does not tolerate, or not that long
    UNSUITABLE = "unsuitable"  # its machine no longer meets its constraints


class RolloutKind(StrEnum):
    """Why the running tasks of a job are changed, a few at a time."""

    UPDATE = "update"  # its specification is another
    RESTART = "restart"  # its user asked for fresh attempts
    ROLLBACK = "rollback"  # the cell is what it was to be at an earlier moment


class Hold(StrEnum):
    """Why a rollout goes on only when somebody says so."""

    PAUSED = "paused"  # somebody said so
    FAILED = "failed"  # what it changed does not come up
    CANARY = "canary"  # its canaries are up


class Ownership(StrEnum):
    """By what somebody set a field of a job."""

    APPLY = "apply"
    SUBMIT = "submit"
    SCALE = "scale"
    UNDO = "undo"


class Band(StrEnum):
    """The priority bands, highest first (EuroSys 2015, section 2.5); free is best effort."""

    MONITORING = "monitoring"
    PRODUCTION = "production"
    BATCH = "batch"
    FREE = "free"


class JobKind(StrEnum):
    """What the tasks of a job are."""

    JOB = "job"  # programs
    ALLOC_SET = "alloc_set"  # envelopes of resources, for the tasks of other jobs (section 2.4)


class Until(StrEnum):
    """What of another job is waited for before a job starts."""

    UP = "up"  # all its tasks are up
    HEALTHY = "healthy"  # and answer their probe, where they have one
    FINISHED = "finished"  # it ran to completion, and every task finished


class CronKind(StrEnum):
    """What a document is that has a schedule."""

    CRON = "cron"


class Overlap(StrEnum):
    """What becomes of a cron's run that is due while the one before still lives."""

    FORBID = "forbid"  # it is left out
    ALLOW = "allow"  # both go on
    REPLACE = "replace"  # the one before is killed


class Missed(StrEnum):
    """What becomes of a cron's runs that were due while nobody could begin them."""

    SKIP = "skip"  # they are left out
    ONCE = "once"  # one run for all of them
    ALL = "all"  # each of them, as far as the last few


class Recheck(StrEnum):
    """What follows when a machine no longer meets the hard constraints of what runs there."""

    KEEP = "keep"  # it stays, and that it should not is shown
    EVICT = "evict"  # it goes back to pending


class VariableType(StrEnum):
    """What the value of a variable of a job file is."""

    TEXT = "text"
    INT = "int"
    BOOL = "bool"


class TaintEffect(StrEnum):
    """What a taint does to tasks that do not tolerate it."""

    AVOID = "avoid"  # they go elsewhere where they can
    REFUSE = "refuse"  # none is placed there; what runs goes on
    EVICT = "evict"  # none is placed there, and what runs has to leave


class OnFailure(StrEnum):
    """What follows when what an update changed does not come up."""

    PAUSE = "pause"  # it waits for somebody
    UNDO = "undo"  # the job is what it was before


class Appclass(StrEnum):
    """Whether somebody waits for the answer; independent of priority."""

    LATENCY_SENSITIVE = "latency_sensitive"
    BATCH = "batch"


class RestartPolicy(StrEnum):
    """What follows when a task's program ends."""

    ALWAYS = "always"  # a service: started again whatever the exit code
    ON_FAILURE = "on_failure"  # runs to completion: exit code 0 is the end
    NEVER = "never"  # runs once, whatever comes of it


class Runtime(StrEnum):
    """What starts the program."""

    PROCESS = "process"
    DOCKER = "docker"
    FAKE = "fake"  # simulation only


class Network(StrEnum):
    """What a task reaches."""

    MACHINE = "machine"  # what its machine does, or its engine's containers
    NONE = "none"  # nothing but itself


HELD = "held"  # what a machine reports of a measure that confines tasks there; else how it is, or why not
PROGRAM_MEASURES = (
    "uid",
    "capabilities",
    "namespaces",
    "files",
    "read_only",
    "proc",
    "syscalls",
    "landlock",
    "sockets",
    "network",
    "metadata",
)
"""Those that are of plain programs; see ``borglet.runtimes.process.confinement``."""

LEASES_ATTRIBUTE = "leases"  # of machines: the runtime whose runs are held to leases there
LEASE_END_SECONDS = 5.0  # after its lease and its grace a program, and what it started, is gone by then

# Names users choose: jobs, users, ports, machines, named resources. A DNS label, so that a name
# can stand in a file name, a label, an address and a metric without quoting.
NAME_PATTERN = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
NAME_HINT = "Use at most 63 of a-z, 0-9 and -, which is neither first nor last"
CHECKPOINT_NAME_PATTERN = r"(?!(all|now)$)[a-z]([a-z0-9-]{0,61}[a-z0-9])?"  # no position, no moment
TAINT_KEY_PATTERN = r"[A-Za-z_][A-Za-z0-9_./-]{0,62}"  # as attributes of machines
TAINT_VALUE_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_./-]{0,252}"
JOB_PATTERN = f"{NAME_PATTERN}/{NAME_PATTERN}"
TASK_PATTERN = rf"{JOB_PATTERN}/(0|[1-9][0-9]{{0,3}})"
TASKS_PER_JOB_MAX = 10_000
BODY_BYTES_MAX = 1024 * 1024  # of a job file
DOCUMENTS_MAX = 1_000  # that are read together, as one application
DOCUMENTS_BYTES_MAX = 8 * 1024**2  # of all their files together
APPLY_BYTES_MAX = 16 * 1024**2  # of an application: its files as texts in JSON
JSON_BYTES_MAX = 64 * 1024  # of any other body of the API, unless its route says more: 10,000 indexes fit
CHECKPOINT_FILE_BYTES_MAX = 256 * 1024**2  # a cell of 200,000 tasks has a hundredth of it


def job_key(user: str, name: str) -> str:
    """Return the name of a job in its cell: ``user/name``."""
    return f"{user}/{name}"


def task_name(job: str, index: int) -> str:
    """Return the name of a task in its cell: ``user/name/index``."""
    return f"{job}/{index}"


def split_task_name(name: str) -> tuple[str, int]:
    """Return the job key and the index in a task's name."""
    job, _, index = name.rpartition("/")
    return job, int(index)
