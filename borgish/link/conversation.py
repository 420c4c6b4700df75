"""What master and one machine have exchanged so far, and so what to send next. Pure.

The poller carries it over the network; the simulator carries it over a simulated one. Here are also both ways
between the cell's records and the words on the wire: ``Outgoing`` makes assignments, ``Incoming`` reads
reports.

Assignments (the desired state) and reports (the observed one) are levels, not edges. Of an assignment only
what changed is sent to a borglet that has an earlier one, and what is compared is the whole
(``wire/changes.py``). A lost message costs one poll, and a restarted master or borglet needs no special path:
the first report under a new epoch is a whole one, and everything follows from it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from sys import intern

import msgspec

from borgish.cell.access.model import Secret, secret_key
from borgish.cell.commands import (
    Observe,
    SeenAttempt,
    SeenProgram,
)
from borgish.cell.crons.model import output_seconds
from borgish.cell.model import Cell, Job, Machine, Task
from borgish.cell.moves import Cursor
from borgish.cell.observed import ORPHAN_SECONDS, Observed, SeenKey, leaving_attempts
from borgish.cell.tasks.allocs import alloc_name
from borgish.cell.tasks.leases import lease_seconds
from borgish.clock import Now
from borgish.errors import NotFollowed
from borgish.spec.substitute import render
from borgish.vocabulary import (
    CRASH_LOOP_STARTS,
    NAME_PATTERN,
    JobKind,
    Phase,
    State,
    split_task_name,
    task_name,
)
from borgish.wire.changes import Changed, Digests
from borgish.wire.link import (
    UNKNOWN,
    Assignment,
    AssignmentChange,
    AttemptReport,
    AttemptSpec,
    ConditionKind,
    Exit,
    Leader,
    PollReply,
    PollRequest,
    ProgramReport,
    Report,
    SecretValue,
    StopOrder,
    attempt_key,
)

_Place = tuple[str, int, int]  # job, index, attempt
Reveal = Callable[[Secret], bytes | None]
"""Returns what a secret is worth; None where it cannot be opened."""


def reveal_none(_secret: Secret) -> None:
    """Open no secret."""


WALL_MAX = 2.0**33
"""Seconds since 1970; what a machine says beyond that, in the year 2242, is no date."""
_TASK = rf"{NAME_PATTERN}/{NAME_PATTERN}/(0|[1-9][0-9]{{0,5}})"
_TASK_NAME = re.compile(_TASK)
_ALLOC_NAME = re.compile(rf"{_TASK}@[0-9]{{1,18}}")


class Conversation:
    """One machine's assignment, what the machine is known to have of it, and what it last reported."""

    def __init__(
        self,
        cell: Cell,
        observed: Observed,
        machine: str,
        generation: int = 0,
        leader: Leader = UNKNOWN,
        reveal: Reveal = reveal_none,
    ) -> None:
        """``generation`` is that of the last assignment made for this machine under this epoch, if any;
        ``leader`` is who asks. ``reveal`` opens secrets."""
        self._leader = leader
        self._cell = cell
        self._observed = observed
        self._machine = machine
        self._outgoing = Outgoing(cell, machine, reveal)
        self._incoming = Incoming(machine)
        self._generation = generation
        # As of the last renewal, which is durable: a rollback under way has raised the cell's timeline, and
        # machines that heard of it would refuse the next master, should this one die before its commit.
        self.timeline, self._epoch = cell.timeline, cell.epoch
        self._held_generation = 0  # of the assignment that the borglet last reported to work on
        self._seen = 0
        self._seen_instance = ""
        self._instance = ""  # the borglet run that answered last
        self._former_instance = ""  # the one before it
        self._boot_id, self._stamp = "", 0.0  # of the last answer
        self.authorities = ""  # the hash of those that the borglet trusts, as it last said
        self.certificate_ends = 0.0  # seconds since 1970, as it last said; 0: it has none, or has not said
        self._echo = 0.0  # the stamp of the last reply that was taken in, of ``_seen_instance``

    @property
    def generation(self) -> int:
        """The generation of the last assignment."""
        return self._generation

    def renew(self, now: Now) -> None:
        """Make the assignment anew from what is now durable."""
        self.timeline, self._epoch = self._cell.timeline, self._cell.epoch
        self._generation += 1
        try:
            self._outgoing.renew(self._observed, self._generation, now)
        except Exception:
            self._outgoing.forget()  # it was told what moved, and has not taken in all of that
            raise

    def request(self, wait_seconds: float, authorities: str = "") -> PollRequest:
        """Return the next poll, which may be held for so long; not held while nothing is known of the
        machine: it has an answer then, and that there is none should be known soon. ``authorities`` is the
        hash of those that the cell trusts."""
        has_assignment = 0 < self._generation == self._held_generation
        change = None if has_assignment else self._outgoing.change_since(self._held_generation)
        return PollRequest(
            cell=self._cell.name,
            timeline=self.timeline,
            epoch=self._epoch,
            generation=self._generation,
            seen=self._seen,
            seen_instance=self._seen_instance,
            wait_seconds=wait_seconds if self._seen_instance else 0.0,
            assignment=None if has_assignment or change else self._outgoing.whole(),
            change=change,
            leader=self._leader,
            echo=self._echo,
            authorities=authorities,
            takes_changes=self._incoming.takes_changes,
        )

    def observe(self, reply: PollReply) -> Observe | None:
        """Return what the master should know of a reply, None when it is nothing new.

        Raises NotFollowed where the reply brings changes of a report that is not known here, or that lead
        elsewhere: ``lose`` is to follow, and then the whole comes.
        """
        if self._is_outdated(reply):
            return None
        if reply.instance != self._instance:
            self._former_instance, self._instance = self._instance, reply.instance
        self._boot_id, self._stamp = reply.boot_id, reply.stamp
        self._held_generation, self.authorities = reply.generation, reply.authorities
        self._outgoing.confirm(reply.generation, reply.digest)
        self.certificate_ends = reply.certificate_ends if 0 < reply.certificate_ends < WALL_MAX else 0.0
        record = self._cell.machines.get(self._machine)
        if reply.report is None or record is None:  # None: it was removed a moment ago
            return None
        return self._incoming.observe(reply, reply.report, record)

    def acknowledge(self, reply: PollReply) -> None:
        """What this reply brought about is durable: the machine may let go of it."""
        if not self._is_outdated(reply):
            self._seen, self._seen_instance = reply.report_generation, reply.instance
            self._echo = reply.stamp

    def _is_outdated(self, reply: PollReply) -> bool:
        """Whether it answers an overtaken poll, with less than is known: what a borglet reported that has
        since been started again tells nothing of what its successor runs."""
        if reply.instance != self._instance and reply.boot_id == self._boot_id and reply.stamp > 0:
            return reply.stamp < self._stamp  # by the machine's clock, whichever of its runs was read last
        if reply.instance == self._former_instance:
            return True
        return reply.instance == self._seen_instance and reply.report_generation < self._seen

    def lose(self) -> None:
        """After a failed poll nothing is taken for known: the next answer is to be whole."""
        self._seen, self._seen_instance, self._held_generation, self._echo = 0, "", 0, 0.0
        self._stamp = 0.0  # no poll is under way any more
        self._outgoing.confirm(0, None)
        self._incoming.forget()


class _Rendered(msgspec.Struct, frozen=True, gc=False):
    """An attempt as its machine was told, of a version of its job."""

    spec: AttemptSpec
    version: int


class Outgoing:
    """Makes one machine's assignments, and differences between them. Keeps what it rendered, since most of it
    stays the same, and what changed since the assignment that the borglet has."""

    def __init__(self, cell: Cell, machine: str, reveal: Reveal = reveal_none) -> None:
        self._cell = cell
        self._machine = machine
        self._reveal = reveal
        self._generation = 0
        self._run: dict[_Place, _Rendered] = {}
        self._with_secrets: set[_Place] = set()  # of these
        self._cursor = Cursor()
        self._stop: tuple[StopOrder, ...] = ()
        self._secrets: tuple[SecretValue, ...] = ()
        self._digests: Digests[_Place] = Digests()  # of what is to run
        self._takes_changes = False  # and not wholes only, or nothing is known of it
        self._changed: Changed[_Place] = Changed()

    def assignment(self, observed: Observed, generation: int, now: Now) -> Assignment:
        """Return all that the machine should run, and what it reported and should stop."""
        self.renew(observed, generation, now)
        return self.whole()

    def renew(self, observed: Observed, generation: int, now: Now) -> None:
        """Make the assignment of this generation from the cell as it is."""
        self._generation = generation
        run, fresh, gone = self._run, dict[_Place, AttemptSpec](), list[_Place]()
        for place in self._moved():
            known, wanted = run.get(place), self._wanted(*place)
            if known is not None and (wanted is None or wanted[1].version != known.version):
                del run[place]
                self._with_secrets.discard(place)
                gone.append(place)
            if wanted is not None and place not in run:
                spec, version = attempt_spec(self._cell, *wanted), wanted[1].version
                run[place], fresh[place] = _Rendered(spec, version), spec
                if spec.secret_env or spec.secret_files:
                    self._with_secrets.add(place)
        self._digests.follow(fresh, gone)
        self._changed.note(sorted({*fresh, *gone}), generation)
        self._stop = tuple(stop_orders(self._cell, observed, self._machine, now))
        self._secrets = tuple(self._values())

    def forget(self) -> None:
        """Look at all tasks of the machine when the assignment is made next."""
        self._cursor = Cursor()

    def whole(self) -> Assignment:
        """Return the assignment as it was last made."""
        run = tuple(each.spec for _, each in sorted(self._run.items(), key=itemgetter(0)))
        return Assignment(self._generation, run, self._stop, self._secrets)

    def change_since(self, base: int) -> AssignmentChange | None:
        """Return what makes an assignment of generation ``base`` the last one; None where nobody knows, or
        where the borglet takes wholes only."""
        changed = self._changed.since(base) if self._takes_changes else None
        if changed is None:
            return None
        return AssignmentChange(
            base,
            self._generation,
            self._digests.whole,
            run=tuple(self._run[place].spec for place in changed if place in self._run),
            gone=tuple(
                attempt_key(task_name(key, index), attempt)
                for key, index, attempt in changed
                if (key, index, attempt) not in self._run
            ),
            stop=self._stop,
            secrets=self._secrets,
        )

    def confirm(self, generation: int, digest: int | None) -> None:
        """Record which assignment the borglet has, and the digest of its ``run``; None: it takes wholes only,
        or nothing is known of it."""
        # A borglet of another release encodes other fields, so its digest of the same run is another one.
        is_same = generation != self._generation or digest == self._digests.whole
        self._takes_changes = digest is not None and generation > 0 and is_same
        if self._takes_changes:
            self._changed.confirm(generation)
        else:
            self._changed.forget(self._generation)

    def _values(self) -> Iterator[SecretValue]:
        """Yield what secrets of these are worth, each once."""
        specs = [self._run[place].spec for place in self._with_secrets]
        wanted = {
            (spec.user, name)
            for spec in specs
            for name in (*spec.secret_env.values(), *spec.secret_files.values())
        }
        for user, name in sorted(wanted):
            secret = self._cell.access.secrets.get(secret_key(user, name))
            if secret is not None and (value := self._reveal(secret)) is not None:
                yield SecretValue(user, name, value)

    def _moved(self) -> Iterable[_Place]:
        """Return what may have come to the machine or gone since this was last asked, each once."""
        moves = self._cursor.news(self._cell.moves.get(self._machine))
        if moves is not None:
            return dict.fromkeys((move.job, move.index, move.attempt) for move in moves)
        cell, found = self._cell, dict.fromkeys(self._run)
        for key, index in cell.placed.get(self._machine, ()):
            found[key, index, cell.jobs[key].tasks[index].attempt] = None
        for key, index in cell.arriving.get(self._machine, ()):
            found[key, index, cell.handovers[key][index].attempt] = None
        return found

    def _wanted(self, key: str, index: int, attempt: int) -> tuple[Job, Task] | None:
        """Return a task whose attempt should run on the machine, else None; of an incoming attempt the task
        as it will be."""
        job = self._cell.jobs.get(key)
        if job is None or index >= len(job.tasks):
            return None
        task, here = job.tasks[index], (attempt, self._machine)
        if task.state is State.RUNNING and (task.attempt, task.machine) == here:
            is_run = job.spec.kind is not JobKind.ALLOC_SET  # that is reserved here, nothing to run
            return (job, task) if is_run else None
        incoming = self._cell.handover(key, index)
        if incoming is not None and (incoming.attempt, incoming.machine) == here:
            return job, incoming.task(index)
        return None


def attempt_spec(cell: Cell, job: Job, task: Task) -> AttemptSpec:
    """Return a running task as its machine needs it."""
    spec = job.spec_of(task)
    ports = dict(zip(spec.ports, task.ports, strict=True))
    rendered = render(
        spec,
        task.index,
        cell=cell.name,
        machine=task.machine,
        attempt=task.attempt,
        ports=ports,
        devices=task.devices,
    )
    return AttemptSpec(
        task=task_name(job.key, task.index),
        attempt=task.attempt,
        run=rendered.run,
        env=rendered.env,
        runtime=spec.runtime,
        resources=spec.needs(task.index),
        restart=spec.restart,
        stop=spec.stop,
        image=spec.image,
        workdir=rendered.workdir,
        ports=ports,
        health=rendered.health,
        max_runtime_seconds=spec.max_runtime_seconds,
        labels=spec.labels,
        devices=task.devices,
        alloc=alloc_name(cell.jobs[spec.inside], task.alloc) if task.alloc >= 0 else "",
        programs=rendered.group,
        lease_seconds=lease_seconds(spec),
        on_exit=spec.on_exit,
        failures=task.failures if task.failures and spec.restart.counts_for_life else 0,
        keep_output_seconds=_keep_output_seconds(cell, job),
        container=spec.container,
        root=spec.root,
        network=spec.network,
        secret_env=spec.secret_env,
        secret_files=spec.secret_files,
    )


def _keep_output_seconds(cell: Cell, job: Job) -> float:
    """Return for how long the output of a job's attempts is wanted; 0 where it is no run of a cron, or of one
    that was removed. A machine goes by what it was told first, whatever becomes of the cron."""
    cron = cell.crons.get(job.cron) if job.cron else None
    return output_seconds(cron.spec, job.due) if cron is not None else 0.0


def stop_orders(cell: Cell, observed: Observed, machine: str, now: Now) -> Iterator[StopOrder]:
    """Yield what a machine runs and should not: the superseded at once, orphans only when old."""
    seen = observed.machines.get(machine)
    if seen is None:
        return
    for task, attempt in sorted((each.task, each.attempt) for each in leaving_attempts(cell, machine, seen)):
        orphaned_at = seen.orphans.get((task, attempt))
        if orphaned_at is None:
            why, notice_seconds = _why_stopped(cell, task, attempt), _notice_seconds(cell, task, attempt)
            # As the job is now, and not as it was when the attempt began: it is about the clients of today.
            job, current = cell.jobs.get(split_task_name(task)[0]), cell.task(task)
            was_incoming = current is not None and attempt > current.attempt  # no client has known it
            deregister_seconds = job.spec.deregister_seconds if job is not None and not was_incoming else 0.0
            yield StopOrder(task, attempt, why, notice_seconds, deregister_seconds)
        elif now.mono - orphaned_at >= ORPHAN_SECONDS:
            yield StopOrder(task, attempt, "this cell does not know it")


def _why_stopped(cell: Cell, name: str, attempt: int) -> str:
    task = cell.task(name)
    if task is None:
        return "its job is gone"
    if task.state is State.RUNNING and attempt > task.attempt:
        return "it was to take over, and is not to any more"
    return task.reason or ("another attempt runs in its place" if task.state is State.RUNNING else task.state)


def _notice_seconds(cell: Cell, name: str, attempt: int) -> float | None:
    """Return how long an attempt gets to end where it was evicted in a hurry, else None."""
    task = cell.task(name)
    if task is None or task.notice_seconds < 0:
        return None
    evicted = task.previous_attempt if task.state is State.RUNNING else task.attempt
    return task.notice_seconds if attempt == evicted else None


class Incoming:
    """Turns one machine's reports into what differs from the report before.

    ``takes_changes`` is whether reports may be sent as what changed: not by a borglet of another release,
    whose attempts have other fields.
    """

    def __init__(self, machine: str) -> None:
        self.takes_changes = True
        self._machine = machine
        self._before: dict[SeenKey, AttemptReport] | None = None
        self._digests: Digests[SeenKey] = Digests()  # of these, where the borglet has digests
        self._images: dict[str, str] | None = None
        self._confinement: dict[str, str] | None = None

    def forget(self) -> None:
        """Take the next report as a whole: nothing is known of what came before it."""
        self._before = self._images = self._confinement = None

    def observe(self, reply: PollReply, report: Report, record: Machine) -> Observe:
        """Return what the master should know of this report; the machine's record tells known facts. Raises
        NotFollowed.

        An attempt that bears no task's name was not started for this cell, and is passed over.
        """
        whole, before = self._before is None, self._before or {}
        attempts = {(a.task, a.attempt): a for a in report.attempts}
        changed = [a for key, a in attempts.items() if before.get(key) != a]
        if report.base:
            gone = [key for key in report.gone if key in before]
            self._follow(report, attempts, gone)
        else:
            gone = sorted(before.keys() - attempts.keys())
            self._take_whole(report, attempts)
        facts = report.facts
        images = None
        if facts.images != self._images:
            images = self._images = {intern(name): intern(arch) for name, arch in facts.images.items()}
        confinement = None
        if facts.confinement != self._confinement:
            found = facts.confinement.items()
            confinement = self._confinement = {intern(name): intern(text) for name, text in found}
        return Observe(
            machine=self._machine,
            boot_id=reply.boot_id,
            instance=reply.instance,
            changed=tuple(seen_attempt(a) for a in changed if _TASK_NAME.fullmatch(a.task)),
            gone=tuple(key for key in gone if _TASK_NAME.fullmatch(key[0])),
            whole=whole,
            conditions=tuple(f"{c.kind}: {c.about}: {c.text}" for c in report.conditions),
            unhealthy_runtimes=tuple(
                runtime
                for runtime in facts.runtimes
                for c in report.conditions
                if c.kind is ConditionKind.RUNTIME_UNHEALTHY and c.about == runtime
            ),
            capacity=facts.capacity if facts.capacity != record.capacity else None,
            attributes=facts.attributes if facts.attributes != record.attributes else None,
            runtimes=facts.runtimes if facts.runtimes != record.runtimes else None,
            generation=reply.generation,
            images=images,
            confinement=confinement,
        )

    def _take_whole(self, report: Report, attempts: dict[SeenKey, AttemptReport]) -> None:
        self._before, self._digests = attempts, Digests()
        if report.digest is not None:
            self._digests.follow(attempts)
        self.takes_changes = report.digest in (None, self._digests.whole)

    def _follow(self, report: Report, attempts: dict[SeenKey, AttemptReport], gone: list[SeenKey]) -> None:
        """Follow what changed, at the cost of the change. Raises NotFollowed, with nothing followed."""
        if (before := self._before) is None:
            raise NotFollowed(f"{self._machine} told what changed since a report that is not known here")
        # This alone tells whether it was from what is known here that the borglet counted its changes.
        if report.digest is None or not self._digests.follow(attempts, gone, report.digest):
            raise NotFollowed(f"{self._machine} told what changed, and it leads to another report")
        for key in gone:
            del before[key]
        before |= attempts


def seen_attempt(report: AttemptReport) -> SeenAttempt:
    """Return an attempt's report as ``observed`` keeps it."""
    last = report.last_exit
    return SeenAttempt(
        task=report.task,
        attempt=report.attempt,
        phase=seen_phase(report),
        needs=report.needs,
        ports=tuple(report.ports.values()),
        pid=report.pid,
        started_at=report.started_at,
        restarts=report.restarts,
        ended=report.ended,
        exit_code=last.code if last else None,
        signal=last.signal if last else None,
        exit_reason=_exit_reason(last) if last else "",
        reason=report.reason,
        port_in_use=report.port_in_use,
        devices=report.devices,
        alloc=report.alloc if _ALLOC_NAME.fullmatch(report.alloc) else "",
        programs=tuple(seen_program(program) for program in report.programs),
        early_ends=report.early_ends,
        gave_up=report.gave_up,
        failures=report.failures,
    )


def seen_program(report: ProgramReport) -> SeenProgram:
    """Return a report of one of an attempt's programs as ``observed`` keeps it."""
    return SeenProgram(report.name, seen_phase(report), report.pid, report.restarts, report.reason)


def seen_phase(report: AttemptReport | ProgramReport) -> Phase:
    """Return the phase of what was reported.

    The wire has one phase for what starts and what waits to, with how often it ended early beside it: an
    older master would refuse a whole report for one word that it does not know.
    """
    if isinstance(report, AttemptReport) and report.unkillable:
        return Phase.UNKILLABLE
    if report.phase is not Phase.STARTING or not report.held_back:
        return report.phase
    return Phase.CRASH_LOOPING if report.early_ends >= CRASH_LOOP_STARTS else Phase.BACKING_OFF


def _exit_reason(last: Exit) -> str:
    return last.reason or ("out of memory" if last.oom else "")
