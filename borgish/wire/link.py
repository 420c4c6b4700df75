"""What master and borglet say to each other, as JSON over HTTP.

The master asks ``POST /v1/poll`` with a ``PollRequest``; the borglet answers with a ``PollReply``, at
once when its report differs from the one the master has seen, else when ``wait_seconds`` are over.
An assignment is everything a machine should run, a report everything it does. A report is sent whole, an
assignment as what changed since one that the borglet has, where it has one (``changes.py``).
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from borgish.resources import Resources
from borgish.spec.job import Container, ExitRule, Health, Program, Restart, Stop
from borgish.vocabulary import Ending, Network, Phase, Runtime

# What borglets count: bounded where it is read, because it ends in columns of a database.
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Small = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
ExitCode = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class AttemptSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One attempt as its machine needs it: all substitutions done, all ports numbered.

    ``env`` is complete (``BORGISH_*`` and ``PORT_*`` included). ``health.command`` is substituted.
    ``programs`` are what runs beside its main program, each with what its environment has on top.
    """

    task: str  # user/job/3
    attempt: int
    run: tuple[str, ...]
    env: dict[str, str]
    runtime: Runtime
    resources: Resources
    restart: Restart
    stop: Stop
    image: str = ""
    workdir: str = ""
    ports: dict[str, int] = {}
    health: Health | None = None
    max_runtime_seconds: float = 0.0
    labels: dict[str, str] = {}
    devices: tuple[str, ...] = ()  # those it was given, like gpu:0
    alloc: str = ""  # the attempt of the alloc that it runs in, like user/room/3@1200; its room is there
    programs: tuple[Program, ...] = ()
    program: str = ""  # on the machine only: which of the programs this is of; "": the main one
    lease_seconds: float = 0.0  # it is ended so long after the last contact that names it; 0: it goes on
    on_exit: tuple[ExitRule, ...] = ()
    failures: int = 0  # of attempts of its task before this one, that ``restart.attempts`` counts
    keep_output_seconds: float = 0.0  # for so long after its end its output is wanted; 0: as for any other
    container: Container = Container()
    root: str = ""  # the folder of the machine that its programs see as /; "": the machine's own
    network: Network = Network.MACHINE
    secret_env: dict[str, str] = {}  # names of secrets of its user, by variable; their values come beside it
    secret_files: dict[str, str] = {}  # likewise by file

    @property
    def user(self) -> str:
        """Whose task it is: a user or a group."""
        return self.task.partition("/")[0]

    @property
    def key(self) -> str:
        """The attempt's name: ``user/job/3@1207``; of one of its programs ``user/job/3@1207:proxy``."""
        return attempt_key(self.task, self.attempt, self.program)

    def beside(self, program: Program) -> "AttemptSpec":
        """Return what one of the programs needs. It is in nobody's way: the ports are the main one's, and
        it is started again whatever becomes of it."""
        return msgspec.structs.replace(
            self,
            run=program.run,
            env={**self.env, **program.env},
            image=program.image or self.image,
            workdir=program.workdir or self.workdir,
            restart=Restart(backoff_seconds=self.restart.backoff_seconds),
            ports={},
            health=None,
            max_runtime_seconds=0.0,
            programs=(),
            program=program.name,
            on_exit=(),
            failures=0,
        )


def attempt_key(task: str, attempt: int, program: str = "") -> str:
    """Return the name of an attempt, ``user/job/3@1207``, or of one of its programs."""
    return f"{task}@{attempt}:{program}" if program else f"{task}@{attempt}"


def split_attempt_key(key: str) -> tuple[str, int, str] | None:
    """Return the task, the attempt and the program ("": the main one) in a key; None when it is none."""
    task, mark, rest = key.rpartition("@")
    number, _, program = rest.partition(":")
    if not mark or not (number.isascii() and number.isdigit()):
        return None
    return task, int(number), program


def main_key(key: str) -> str:
    """Return the key of the main program of whatever program's key this is."""
    at = key.rfind("@")
    return key if (mark := key.find(":", at)) < 0 else key[:mark]


class StopOrder(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One attempt that should end. How (signal, grace) the borglet knows from its ledger.

    ``grace_seconds``: it gets no more than this, should its own grace be longer. None: its own.
    ``deregister_seconds``: what is up goes on for so long before it gets its signal; together they take no
    longer than ``grace_seconds``, where that is given. Both count from the first order that has them.
    """

    task: str
    attempt: int
    reason: str = ""
    grace_seconds: float | None = None
    deregister_seconds: float = 0.0

    @property
    def key(self) -> str:
        return attempt_key(self.task, self.attempt)


class SecretValue(msgspec.Struct, frozen=True):
    """What a secret of a user is worth, for tasks of that user alone. Never written to a disk."""

    user: str
    name: str
    value: bytes

    def __repr__(self) -> str:
        return f"SecretValue({self.user}/{self.name}, ***)"


class Assignment(msgspec.Struct, frozen=True):
    """All that one machine should run and stop. What it does not name is left alone."""

    generation: int  # grows by one each time the master makes a new one for this machine
    run: tuple[AttemptSpec, ...] = ()
    stop: tuple[StopOrder, ...] = ()
    secrets: tuple[SecretValue, ...] = ()  # those that ``run`` names, as far as they are there


class AssignmentChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What makes any assignment of a generation from ``base`` on, of the same term, that of ``generation``.

    ``run`` and ``gone`` name all that changed since ``base``, as it is now, so it does not matter which of
    the changes between got lost. ``stop`` and ``secrets`` are whole. ``digest`` is that of the whole ``run``
    that it leads to (``changes.Digests``): where another comes out, the borglet asks for the whole.
    """

    base: int
    generation: int
    digest: int
    run: tuple[AttemptSpec, ...] = ()
    gone: tuple[str, ...] = ()  # keys of attempts that it names no more
    stop: tuple[StopOrder, ...] = ()
    secrets: tuple[SecretValue, ...] = ()


class Leader(msgspec.Struct, frozen=True, omit_defaults=True):
    """A master that leads: where it is found, and the nonce of its term. Both are "" when it does not say.

    (timeline, epoch) alone does not name a master: two that lead copies of one store may come to the same.
    The nonce is drawn by the process and stored nowhere, so no copy has it.
    """

    address: str = ""
    nonce: str = ""

    def is_another(self, other: "Leader") -> bool:
        """Whether both are known, and not the same."""
        return bool(self.nonce and other.nonce) and self.nonce != other.nonce


UNKNOWN = Leader()
"""The leader of who does not say it: one that is a release older."""


class PollRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The master's question. A lower (timeline, epoch) than one already seen is refused with 409, and so is a
    second leader of the same one.

    ``generation`` is that of the assignment the master last made; ``assignment`` or ``change`` is there when
    the master does not know that the borglet has it. ``seen`` is the ``report_generation`` the master
    has *durably* taken in: a report that differs from it is answered at once, and the ends of attempts
    reported up to it need not be reported again once the assignment no longer names them.

    ``echo`` is the ``stamp`` of the last reply that was taken in, of the borglet run ``seen_instance``. When
    this request was sent is not known where it arrives; that it was sent after that stamp is. What the
    assignment names has its lease from then on.
    """

    cell: str
    timeline: int
    epoch: int
    generation: int
    seen: int = 0  # 0: nothing; send everything
    seen_instance: str = ""  # the borglet run that `seen` counts in
    wait_seconds: float = 0.0
    assignment: Assignment | None = None
    leader: Leader = UNKNOWN
    echo: float = 0.0  # 0: none
    authorities: str = ""  # the hash of those that the cell trusts (``tls.bundle``); "": it has none
    change: AssignmentChange | None = None
    takes_changes: bool = False  # of reports; else they are to be whole


class Exit(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How a program ended: an exit code, or a signal, or neither when it could not be learned."""

    code: ExitCode | None = None
    signal: ExitCode | None = None
    oom: bool = False  # the kernel ended it for its memory limit
    reason: str = ""  # words, where there is more to say: could not start, unhealthy, max_runtime
    at: float = 0.0  # seconds since 1970
    lapsed: bool = False  # its lease was over, so its machine ended it

    @property
    def ok(self) -> bool:
        return self.code == 0


class ProgramReport(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One of the programs beside the main one, as it is."""

    name: str
    phase: Phase
    pid: Small = 0
    restarts: Small = 0
    reason: str = ""
    early_ends: Small = 0  # as of an attempt
    held_back: bool = False


class AttemptReport(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One attempt as it is on its machine. ``ended`` is final; the phase means nothing from then on.

    All is of its main program, but that it has ended only when all of its programs have. What waits for its
    next start has the phase STARTING, which masters of every version know, and ``held_back`` set. Of what was
    killed and goes on ``unkillable`` is set, whatever its phase.
    """

    task: str
    attempt: Whole
    phase: Phase
    needs: Resources = Resources()
    ports: dict[str, Port] = {}
    devices: tuple[str, ...] = ()
    alloc: str = ""
    pid: Small = 0
    started_at: float = 0.0  # of the running program; 0 when none runs
    restarts: Small = 0  # local restarts in this attempt
    ended: Ending | None = None
    last_exit: Exit | None = None
    reason: str = ""  # restarts in 4 s after exit 1; stopping; port 8080 in use ...
    port_in_use: Port = 0  # a port of the attempt that a foreign program holds: place it elsewhere
    programs: tuple[ProgramReport, ...] = ()
    early_ends: Small = 0  # starts in a row that failed, or whose program ended before a good run
    held_back: bool = False  # back-off holds its next start back
    unkillable: bool = False  # it was killed and goes on
    gave_up: bool = False  # ended, since restart policy and limits allow no other start here
    failures: Small = 0  # that ``restart.attempts`` counts, those before this attempt included

    @property
    def key(self) -> str:
        return attempt_key(self.task, self.attempt)


class Usage(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What one attempt used when last sampled."""

    task: str
    attempt: Whole
    cpu_millis: Whole
    ram_bytes: Whole


class ConditionKind(StrEnum):
    """What can be wrong with a machine that still answers."""

    RUNTIME_UNHEALTHY = "runtime_unhealthy"
    DISK_PRESSURE = "disk_pressure"


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something wrong with a machine, and about what: the docker engine, a disk."""

    kind: ConditionKind
    about: str = ""
    text: str = ""


class Facts(msgspec.Struct, frozen=True):
    """What a machine is: sent when it joins and with each whole report."""

    capacity: Resources
    attributes: dict[str, str]  # arch, os, kernel, hostname, and what its configuration adds
    runtimes: tuple[Runtime, ...]
    ports_low: int
    ports_high: int  # inclusive
    images: dict[str, str] = {}  # container images that are there: by name:tag the architecture
    confinement: dict[str, str] = {}  # by measure that keeps tasks in: held, or how it is, or why it is not


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that one machine does run; or, where it has a ``base``, what makes any report of this borglet run
    from that generation on the one of ``report_generation``.

    ``attempts`` and ``gone`` then name all that changed since ``base``, as it is now, so it does not matter
    which of the reports between got lost. ``facts`` and ``conditions`` are whole. ``digest`` is that of all
    attempts (``changes.Digests``): where another comes out, the master asks for the whole.
    """

    facts: Facts
    attempts: tuple[AttemptReport, ...] = ()
    conditions: tuple[Condition, ...] = ()
    base: Whole = 0  # 0: it is whole
    gone: tuple[tuple[str, Whole], ...] = ()  # tasks and attempts that it names no more
    digest: Whole | None = None  # null: the borglet sends wholes only


class PollReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The borglet's answer. ``report`` is absent when nothing differs from what the master has seen."""

    machine: str
    boot_id: str  # changes when the machine boots
    instance: str  # changes when the borglet starts
    generation: Whole  # of the assignment it works on; 0 for none under this epoch
    report_generation: Whole  # grows with each change of the report, within one instance
    report: Report | None = None
    usage: tuple[Usage, ...] = ()
    stamp: float = 0.0  # when it was sent: seconds on the machine's CLOCK_BOOTTIME; 0: it does not say
    authorities: str = ""  # the hash of those that it trusts, once the first has signed its certificate
    certificate_ends: float = 0.0  # seconds since 1970; 0: it has none that the cell's authority signed
    digest: Whole | None = None  # of the ``run`` that it works on; null: it takes that only as a whole


class HeadReply(msgspec.Struct, frozen=True):
    """What a borglet has seen of its masters: ``GET /v1/head``, which changes nothing there."""

    machine: str
    timeline: Small
    epoch: Small
    attempt: Whole = 0  # the highest id among the attempts it knows
    leader: Leader = UNKNOWN  # of that timeline and epoch
    polls: Whole | None = None  # that it has obeyed since it started; null: it does not count them
    polled: bool = False  # the connection of the last poll is open, as it is while its master lives
    overdue_seconds: float = 0.0  # since the next poll should have come


class JoinRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A borglet asks to be in the cell: ``POST /v1/machines`` with the join token.

    ``poll_token`` proves that it is the machine it was, when it has joined before. ``to_sign`` is a request
    to sign (PKCS #10, in PEM) of a machine whose certificate is due, or that has none yet.
    """

    machine: str
    host: str
    port: int
    boot_id: str
    instance: str
    facts: Facts
    poll_token: str = ""
    tls: bool = False
    to_sign: str = ""


class JoinReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cell's answer: the token with which the master will poll. Kept by the borglet, 0600.

    ``certificate`` answers a request to sign; ``authorities`` are those that the cell trusts. Both in PEM.
    """

    cell: str
    machine: str
    poll_token: str
    certificate: str = ""
    authorities: str = ""


class Terminal(msgspec.Struct, frozen=True, omit_defaults=True):
    """The terminal that a command gets: its size in characters, and its kind as ``TERM`` has it."""

    rows: int = 24
    columns: int = 80
    kind: str = "xterm"


class LogWanted(msgspec.Struct, frozen=True):
    """Which of a run's output is wanted, and how."""

    previous: bool = False  # of the run before
    follow: bool = False  # and what comes, until the run ends
    tail: int = 0  # so many of the last lines; 0: all
    since: float = 0.0  # what was written since then, to a second; in seconds since 1970, 0: all
    timestamps: bool = False  # each line has when it was written in front, in ISO 8601


class ExecRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Run a command beside a task: ``POST /v1/exec`` on the borglet, in its folder, limits, environment.

    ``POST /v1/exec/stream`` answers with lines of ``ExecPiece`` while it runs, and the body of each
    ``POST /v1/exec/stdin`` with the same session is passed to it; ``rows`` and ``columns`` there are a new
    size of its terminal.
    """

    task: str
    attempt: int
    run: tuple[str, ...]
    timeout_seconds: float = 60.0
    program: str = ""  # beside which of the task's programs; "": the main one
    session: str = ""  # names its input; "": it has none
    terminal: Terminal | None = None  # it has one, and both streams go there; None: pipes
    silence_seconds: float = 0.0  # it ends when nothing of its session was heard for so long; 0: never
    port: str = ""  # instead of a command: be joined to the attempt's port of this name


class ExecPiece(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the answer while a command runs: JSON, some output; the last line has the exit code, or
    why there is none. Lines with neither may come at any time."""

    output: bytes = b""
    exit_code: int | None = None
    error: str = ""
    terminal: bool = False  # it has one; a borglet that knows of none says nothing


class StdinReply(msgspec.Struct, frozen=True):
    """How much of a command's input was taken so far; what was sent beyond it is to be sent again."""

    received: int
    ended: bool = False  # its end was taken, too
    closed: bool = False  # the command takes no more


class ExecReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the command said, both streams together, cut at 1 MiB."""

    output: bytes
    exit_code: int
    cut: bool = False
