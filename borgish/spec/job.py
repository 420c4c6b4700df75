"""The canonical form of a job: every default filled in, every amount in its unit.

Only ``spec.file.read`` makes these from what users write; everywhere else they are taken as right.
"""

import msgspec

from borgish.resources import Resources
from borgish.spec.shares import Rate, Share
from borgish.vocabulary import (
    Appclass,
    JobKind,
    Network,
    OnExit,
    OnFailure,
    Recheck,
    RestartPolicy,
    Runtime,
    Until,
)

MACHINE = "machine"
"""What spread and affinity are over when no attribute is named: each machine is a value of its own."""

WITHIN_SECONDS_MAX = 30 * 86_400.0
"""The longest ``restart.within``; of what runs to completion it means for good, and is the default."""

CONTAINER_USER = "65532"
"""As whom a container runs whose job names nobody: the "nonroot" of many images, and no user of a machine."""

HANDOVER_DEREGISTER_SECONDS = 5.0
"""How long clients have to leave a task that was replaced by another, unless its job says so."""


NEVER_MOUNTED = (
    *("/", "/boot", "/dev", "/etc", "/proc", "/root", "/run", "/sys", "/var/run"),
    *("/var/lib/containerd", "/var/lib/docker"),
)
"""Folders of a machine that no container gets, nor anything inside them, nor what they are inside of."""


class Restart(msgspec.Struct, frozen=True, gc=False):
    """When a program that ended is started again on its machine.

    ``attempts`` failures within ``within_seconds`` end the task, or have a service's go elsewhere; 0 means no
    such limit (but a service that crashes again and again goes elsewhere: ``cell.failing``). The first
    restart of a service is at once, then back-off doubles from ``backoff_seconds`` to 300 s and starts anew
    after 10 minutes of running well. What runs to completion has that wait before its second attempt, too.
    """

    policy: RestartPolicy = RestartPolicy.ALWAYS
    attempts: int = 0
    within_seconds: float = 600.0
    backoff_seconds: float = 1.0

    @property
    def counts_for_life(self) -> bool:
        """Whether ``attempts`` counts all failures of a task, on whatever machines (Kubernetes'
        backoffLimitPerIndex), and not those of some time in one place."""
        return self.policy is not RestartPolicy.ALWAYS and self.within_seconds >= WITHIN_SECONDS_MAX


class ExitCodes(msgspec.Struct, frozen=True, order=True):
    """Exit codes from one to another, both included."""

    low: int
    high: int

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


class ExitRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """What follows when the main program ends by itself with one of these exit codes, or by one of these
    signals (by name without SIG): Kubernetes' podFailurePolicy."""

    do: OnExit
    codes: tuple[ExitCodes, ...] = ()
    signals: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.do} at {', '.join([*map(str, self.codes), *self.signals])}"


class Stop(msgspec.Struct, frozen=True, gc=False):
    """How a task is asked to end: a signal by name without SIG, then SIGKILL after the grace (Kubernetes'
    terminationGracePeriodSeconds, Nomad's kill_timeout).

    What is to end for good by the master's order goes on for ``deregister_seconds`` before the signal, for
    clients that learn from the watch to leave it (Nomad's shutdown_delay). None: see
    ``JobSpec.deregister_seconds``.
    """

    signal: str = "TERM"
    grace_seconds: float = 10.0
    deregister_seconds: float | None = None


class Health(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A health check (liveness probe). Exactly one of ``http`` (a path), ``tcp`` (true) and ``command`` is
    set.

    ``failures`` misses in a row make the task unhealthy, which restarts it; nothing counts in the
    first ``grace_seconds`` until it has answered once.
    """

    http: str = ""
    tcp: bool = False
    command: tuple[str, ...] = ()
    port: str = ""  # the name of one of the job's ports; for http and tcp
    interval_seconds: float = 10.0
    timeout_seconds: float = 2.0
    failures: int = 3
    grace_seconds: float = 15.0


class Constraint(msgspec.Struct, frozen=True, omit_defaults=True):
    """One condition on a machine's attribute (node affinity): ``arch == amd64``, ``rack in (r1, r2)``.

    ``op`` is one of == != < <= > >= in, not in, present, not present. ``!=`` and ``not in`` hold
    for a machine without the attribute; the four orders compare numbers.
    """

    attribute: str
    op: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.op in ("present", "not present"):
            return f"{self.op}({self.attribute})"
        if self.op in ("in", "not in"):
            return f"{self.attribute} {self.op} ({', '.join(self.values)})"
        return f"{self.attribute} {self.op} {self.values[0]}"


class Preference(msgspec.Struct, frozen=True):
    """A soft constraint: machines that meet ``when`` are liked, by a weight of 1 to 100."""

    when: Constraint
    weight: int = 1


class Spread(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tasks of the job over the values of a machine attribute: at most ``max`` on each, 0 means even.

    A machine without the attribute takes none where there is a maximum.
    """

    over: str = MACHINE
    max: int = 0


class Affinity(msgspec.Struct, frozen=True, omit_defaults=True):
    """Near to, or apart from, running tasks whose job's labels meet all of ``labels`` (a label selector).

    Near (apart) means: on a machine whose attribute ``over`` has the value of one (of none) of theirs.
    ``weight`` 0: it must be so; 1 to 100: it is liked.
    """

    labels: tuple[Constraint, ...]
    over: str = MACHINE
    weight: int = 0


class Toleration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A taint that the job's tasks may run beside: of any value unless one is given.

    ``for_seconds`` is how long they may stay on a machine that evicts for it; None: for good.
    """

    taint: str
    value: str = ""
    for_seconds: float | None = None


class Disruption(msgspec.Struct, frozen=True):
    """How far the job may be disrupted on purpose (Kubernetes' PodDisruptionBudget; section 4 of the Borg
    paper).

    Nobody takes a task down while ``max_unavailable`` are down for whatever reason: one or a tenth, whichever
    is more, unless given. ``max_rate`` bounds how many are taken down in a time; None: nothing does.
    """

    max_unavailable: Share = Share(1, 10)
    max_rate: Rate | None = None


class Update(msgspec.Struct, frozen=True):
    """How running tasks are changed when the job is (section 2.3 of the Borg paper; Kubernetes' rollout,
    Nomad's update stanza).

    At most ``at_a_time`` tasks are down or not settled at once; None: as many as may be unavailable. A
    changed task has settled when it was healthy, or up where nothing probes it, for ``settle_seconds``
    without a break. One that has not after ``deadline_seconds`` has failed. The first ``canaries`` wait for
    a promotion; what would disrupt more than ``max_disruptions`` tasks (0: no limit) is skipped. With
    ``handover`` a task is replaced by one that is up before it is stopped.
    """

    at_a_time: Share | None = None
    settle_seconds: float = 10.0
    deadline_seconds: float = 600.0
    canaries: int = 0
    max_disruptions: int = 0
    on_failure: OnFailure = OnFailure.PAUSE
    handover: bool = False


class After(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job that has to be there before this one starts (section 2.3 of the Borg paper: "defer the start of a
    job until a prior one finishes"; systemd's After, Compose's depends_on).

    ``until`` None: it is finished where it runs to completion, else healthy, or up where nothing probes it.
    When the tasks have waited for ``within_seconds``, they fail; 0: they wait for good.
    """

    job: str  # its key: user/name
    until: Until | None = None
    within_seconds: float = 0.0

    def __str__(self) -> str:
        until = f" ({self.until})" if self.until is not None else ""
        return f"{self.job}{until}" + f" within {self.within_seconds:g}s" * bool(self.within_seconds)


class Program(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One more program of each task (a sidecar): starts, runs and ends with it, in its limits."""

    name: str
    run: tuple[str, ...] = ()
    image: str = ""
    env: dict[str, str] = {}  # overrides the job's
    workdir: str = ""


class Mount(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A folder of the machine inside a container (Kubernetes' hostPath, Docker's bind mount), for reading
    unless ``write``. In a job file these are ``from``, ``to`` and ``write``."""

    source: str
    target: str
    write: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.target}{':write' * self.write}"


def overlap(one: str, other: str) -> bool:
    """Return whether two absolute paths are the same folder, or one is inside the other.

    Everything is inside of ``/``, so here that is only itself.
    """
    return one == other or f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


class Container(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How far a container is open (Kubernetes' securityContext): by default not at all.

    ``user`` is a number, or two as in 1000:100, the second the group's where it is another number. 0 is root.
    """

    user: str = CONTAINER_USER
    read_only: bool = False  # its root file system
    capabilities: tuple[str, ...] = ()  # by name without CAP_
    mounts: tuple[Mount, ...] = ()

    @property
    def ids(self) -> tuple[int, int]:
        """The numbers of its user and its group."""
        user, _, group = self.user.partition(":")
        return int(user), int(group or user)


class Override(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one task of a job has different from the others; what is None is as in the job."""

    run: tuple[str, ...] | None = None
    env: dict[str, str] | None = None  # overrides the job's
    resources: Resources | None = None


class JobSpec(msgspec.Struct, frozen=True):
    """A job as its user wants it (Kubernetes' spec; the status is in ``cell.model``: ``Job``). Shapes are in
    the field names; see ``spec/file/fields.py`` for bounds."""

    name: str
    user: str
    tasks: int
    run: tuple[str, ...]
    image: str = ""
    runtime: Runtime = Runtime.PROCESS
    priority: int = 0
    appclass: Appclass = Appclass.LATENCY_SENSITIVE
    resources: Resources = Resources(cpu_millis=100, ram_bytes=128 * 1024**2)
    ports: tuple[str, ...] = ()
    fixed_ports: dict[str, int] = {}  # those of ``ports`` whose number is the user's choice
    env: dict[str, str] = {}
    workdir: str = ""
    restart: Restart = Restart()
    stop: Stop = Stop()
    health: Health | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    constraints: tuple[Constraint, ...] = ()
    overrides: dict[int, Override] = {}
    max_runtime_seconds: float = 0.0  # Kubernetes' activeDeadlineSeconds, of one task; 0: no limit
    kind: JobKind = JobKind.JOB
    inside: str = ""  # the key of the alloc set that its tasks run in; "": in none
    group: tuple[Program, ...] = ()
    gang: bool = False  # all of its waiting tasks are placed, or none
    prefer: tuple[Preference, ...] = ()
    spread: tuple[Spread, ...] = ()
    near: tuple[Affinity, ...] = ()
    apart: tuple[Affinity, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    recheck: Recheck = Recheck.KEEP
    preempt_within_seconds: float = 0.0  # the most notice its victims get; 0: all of their own grace
    disruption: Disruption = Disruption()
    exclusive: bool = False  # never two processes of one index, rather than always one (``cell.leases``)
    update: Update = Update()
    on_exit: tuple[ExitRule, ...] = ()  # the first that matches counts
    # When more of its tasks failed the rest is ended (Kubernetes' maxFailedIndexes); None: no limit.
    max_failures: Share | None = None
    after: tuple[After, ...] = ()  # see ``cell.order``
    parent: str = ""  # the key of the job that it ends with; "": none
    container: Container = Container()
    root: str = ""  # the folder of its machine that its programs see as /; "": the machine's own
    network: Network = Network.MACHINE
    # Names of secrets of its user: by the variable of the environment, and by the file that has the value.
    secret_env: dict[str, str] = {}
    secret_files: dict[str, str] = {}
    allow_exec: bool = False  # whether anybody may run commands beside its tasks, and copy files

    @property
    def key(self) -> str:
        """The job's name in its cell: ``user/name``."""
        # As ``vocabulary.job_key`` has it; written out, since nothing is asked for as often as this.
        return f"{self.user}/{self.name}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of the secrets of its user that its tasks get, each once, in order."""
        if not self.secret_env and not self.secret_files:
            return ()
        return tuple(sorted({*self.secret_env.values(), *self.secret_files.values()}))

    @property
    def is_service(self) -> bool:
        """Whether it is to keep running, rather than to run to completion."""
        return self.restart.policy is RestartPolicy.ALWAYS

    @property
    def deregister_seconds(self) -> float:
        """How long a task that is to end goes on before its signal. A job that hands over without saying how
        long has clients that are to notice nothing."""
        if (seconds := self.stop.deregister_seconds) is not None:
            return seconds
        return HANDOVER_DEREGISTER_SECONDS if self.update.handover else 0.0

    def needs(self, index: int) -> Resources:
        """Return the limits of one task."""
        override = self.overrides.get(index)
        return override.resources if override and override.resources else self.resources
