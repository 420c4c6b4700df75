"""The canonical form of a job: every default filled in, every amount in its unit.

Only ``spec.read`` makes these from what users write; everywhere else they are taken as right.
"""

import msgspec

from borgish.resources import Resources
from borgish.vocabulary import Appclass, RestartPolicy, Runtime, job_key


class Restart(msgspec.Struct, frozen=True):
    """When a program that ended is started again on its machine.

    ``attempts`` failures within ``within_seconds`` end the task; 0 means no such limit. The first
    restart is at once, then back-off doubles from ``backoff_seconds`` to 300 s and starts anew
    after 10 minutes of running well.
    """

    policy: RestartPolicy = RestartPolicy.ALWAYS
    attempts: int = 0
    within_seconds: float = 600.0
    backoff_seconds: float = 1.0


class Stop(msgspec.Struct, frozen=True):
    """How a task is asked to end: a signal by name without SIG, then SIGKILL after the grace."""

    signal: str = "TERM"
    grace_seconds: float = 10.0


class Health(msgspec.Struct, frozen=True, omit_defaults=True):
    """A probe. Exactly one of ``http`` (a path), ``tcp`` (true) and ``command`` is set.

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
    """One condition on a machine's attribute: ``arch == amd64``, ``rack in (r1, r2)``.

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


class Override(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one task of a job has different from the others; what is None is as in the job."""

    run: tuple[str, ...] | None = None
    env: dict[str, str] | None = None  # laid over the job's
    resources: Resources | None = None


class JobSpec(msgspec.Struct, frozen=True):
    """A job as its user wants it. Shapes are in the field names; see ``spec/schema.py`` for bounds."""

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
    env: dict[str, str] = {}
    workdir: str = ""
    restart: Restart = Restart()
    stop: Stop = Stop()
    health: Health | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    constraints: tuple[Constraint, ...] = ()
    overrides: dict[int, Override] = {}
    max_runtime_seconds: float = 0.0  # 0: no limit

    @property
    def key(self) -> str:
        """The job's name in its cell: ``user/name``."""
        return job_key(self.user, self.name)

    @property
    def is_service(self) -> bool:
        """Whether it is to keep running, rather than to run to completion."""
        return self.restart.policy is RestartPolicy.ALWAYS

    def needs(self, index: int) -> Resources:
        """Return the limits of one task."""
        override = self.overrides.get(index)
        return override.resources if override and override.resources else self.resources
