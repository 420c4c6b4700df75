"""What is decided about machines: that they join, leave, are marked, go down and come back, and what follows
from what they report.

Of a report only news about *current* attempts has consequences, and the results of attempts that were lost
with the machine. The rest (attempts that were superseded, or that nobody knows) is absorbed into ``observed``
and answered by the machine's next assignment.
"""

from collections.abc import Iterator

import msgspec

from borgish.cell.access.events import InvitationRevoked, InvitationUsed, MachineRevoked
from borgish.cell.access.model import Invitation
from borgish.cell.access.secrets import held_by
from borgish.cell.commands import (
    CordonMachine,
    Decision,
    JoinMachine,
    LoseMachine,
    Observe,
    ReleaseMachine,
    RemoveMachine,
    RevokeMachine,
    SeenAttempt,
    SetMachineDown,
    SetMachineUp,
    TaintMachine,
    UncordonMachine,
    UntaintMachine,
)
from borgish.cell.events import (
    AnyEvent,
    LeasesEnded,
    LeasesFound,
    MachineCordoned,
    MachineDown,
    MachineFacts,
    MachineJoined,
    MachineLost,
    MachineReleased,
    MachineRemoved,
    MachineTainted,
    MachineUncordoned,
    MachineUp,
    TasksEnded,
    TasksEvicted,
    TasksRestarted,
)
from borgish.cell.limits.affected import check_affected
from borgish.cell.lookup import find_machine
from borgish.cell.machines.flapping import quarantine
from borgish.cell.machines.suitability import evict_at
from borgish.cell.model import Cell, Machine, Taint, TaskLease, task_count
from borgish.cell.observed import Observed
from borgish.cell.tasks.allocs import is_alloc_set
from borgish.cell.tasks.failing import moved, why_moved
from borgish.cell.tasks.leases import lease_of, on_machine
from borgish.cell.updates.handover import ends_of_incoming, lost_with
from borgish.clock import Now
from borgish.errors import Conflict, Forbidden, NotFound
from borgish.vocabulary import RESULTS, Ending, Eviction, Phase, split_task_name

SILENT_SECONDS = 10.0
"""What a machine that is down holds is given up when it was silent for so long under this master."""


def join(cell: Cell, observed: Observed, command: JoinMachine, _actor: str, now: Now) -> Decision:
    """Take a machine in, or note its new facts and address.

    Raises Conflict for a name that is held, and Forbidden for a machine that was revoked and for an
    invitation that lets it in no more.
    """
    machine = command.machine
    there = cell.machines.get(machine.name)
    invitation = _invitation(cell, command, now.wall)
    is_invited = invitation is not None and (there is None or invitation.machine == machine.name)
    if there is not None and not is_invited:
        _check_proof(observed, there, command)
    if there is not None:
        machine = msgspec.structs.replace(
            machine,
            joined_at=there.joined_at,
            # What a reboot ended is reported first after it, so joining leaves the boot that the
            # last report was of. What the borglet has started again by itself goes on: after a power cut in
            # the whole cell everything comes back where it was, without a decision.
            boot_id=there.boot_id,
            cordoned=there.cordoned,
            reason=there.reason if there.cordoned else "",
            port_next=there.port_next,
            taints=there.taints,
            drains=there.drains,
            quarantined_until=there.quarantined_until,
            flaps=there.flaps,
            generation=there.generation,
            admission=there.admission,
        )
    events: tuple[AnyEvent, ...] = ()
    if invitation is not None:
        used = InvitationUsed(invitation.sha256, machine.name)
        events = (MachineJoined(machine, admitted=True), used)
    elif machine != there:
        events = (MachineJoined(machine),)
    return Decision(events, machine.name, f"{machine.name} is in the cell")


def _invitation(cell: Cell, command: JoinMachine, at: float) -> Invitation | None:
    """Return what lets a machine in. Raises Forbidden where it does not, or no more."""
    if not command.invitation:
        return None
    name, found = command.machine.name, cell.access.invitations.get(command.invitation)
    if found is None or found.uses <= 0 or found.is_over(at):
        raise Forbidden(
            f"the invitation for {name} was used, revoked, or its time is over",
            f"make another one: `borgctl machine invite {name}`",
        )
    if found.machine and found.machine != name:
        raise Forbidden(
            f"the invitation is for {found.machine}, and this machine calls itself {name}",
            f"join as {found.machine}, or make another one: `borgctl machine invite {name}`",
        )
    return found


def _check_proof(observed: Observed, there: Machine, command: JoinMachine) -> None:
    """Raise Forbidden unless whoever asks may be the machine that is in the cell under this name."""
    name = there.name
    if there.revoked_at:
        raise Forbidden(
            f"{name} was revoked", f"an administrator lets it in again: `borgctl machine invite {name}`"
        )
    if command.known:
        return
    seen = observed.machines.get(name)
    answers = seen is None or not seen.instance or (there.up and seen.instance != command.instance)
    raise Conflict(
        f"a machine named {name} is in this cell" + " and answers" * (answers and there.up),
        "give this one another name in its borglet.toml; where it is the same and has lost its state folder, "
        f"let it in by `borgctl machine invite {name}`",
    )


def revoke(cell: Cell, _o: Observed, command: RevokeMachine, _actor: str, now: Now) -> Decision:
    """Have a machine out at once, and give up what it holds. Raises NotFound."""
    machine = find_machine(cell, command.machine)
    uninvited = tuple(_uninvited(cell, machine.name))
    if machine.revoked_at:
        return Decision(uninvited, machine.name, f"{machine.name} is revoked already")
    placed = len(cell.placed[machine.name])
    lost = (MachineLost(machine.name, now.wall),) * bool(placed)
    evicted = evicted_as_lost(cell, machine.name, "it was revoked")
    events = (MachineRevoked(machine.name, now.wall), *uninvited, *lost, *evicted)
    moved = f", and {task_count(placed)} of it run elsewhere" if placed else ""
    text = f"{machine.name} is out of the cell{moved}"
    notes = ["what runs there goes on until somebody switches it off: nobody tells it to stop any more"]
    if held := held_by(cell, machine.name):
        notes.append(f"set anew the secrets that it was given: {', '.join(held)}")
    return Decision(events, machine.name, text, tuple(notes))


def _uninvited(cell: Cell, machine: str) -> Iterator[AnyEvent]:
    """Yield the ends of invitations for a machine's name: it comes back by one that is made afterwards."""
    invitations = cell.access.invitations.values()
    yield from (InvitationRevoked(each.sha256) for each in invitations if each.machine == machine)


def cordon(cell: Cell, _o: Observed, command: CordonMachine, _actor: str, _now: Now) -> Decision:
    """Place nothing new on a machine. Raises NotFound."""
    machine = find_machine(cell, command.machine)
    if machine.cordoned:
        return Decision((), machine.name, f"{machine.name} is cordoned already")
    text = f"{machine.name} takes no new tasks; what runs there goes on"
    return Decision((MachineCordoned(machine.name, command.reason),), machine.name, text)


def uncordon(cell: Cell, _o: Observed, command: UncordonMachine, _actor: str, _now: Now) -> Decision:
    """Place tasks on it again, also where it is quarantined. Raises NotFound."""
    machine = find_machine(cell, command.machine)
    if not machine.cordoned and not machine.quarantined_until:
        return Decision((), machine.name, f"{machine.name} is not cordoned")
    return Decision((MachineUncordoned(machine.name),), machine.name, f"{machine.name} takes tasks again")


def taint(cell: Cell, _o: Observed, command: TaintMachine, _actor: str, now: Now) -> Decision:
    """Add a taint, or change the one that is there under the key. Raises NotFound."""
    machine = find_machine(cell, command.machine)
    there = {taint.key: taint for taint in machine.taints}
    before = there.get(command.key)
    text = f"{machine.name} is tainted {command.key}"
    if before and (before.value, before.effect) == (command.value, command.effect):
        return Decision((), machine.name, f"{text} already")
    taint = there[command.key] = Taint(command.key, command.value, command.effect, now.wall)
    specs = (cell.jobs[key].spec for key, _ in cell.placed[machine.name])
    leaving = sum(evict_at(spec.tolerations, (taint,)) is not None for spec in specs)
    check_affected(cell, leaving, command.max_affected)
    taints = tuple(there[key] for key in sorted(there))
    return Decision((MachineTainted(machine.name, taints),), machine.name, text)


def untaint(cell: Cell, _o: Observed, command: UntaintMachine, _actor: str, _now: Now) -> Decision:
    """Remove a taint. Raises NotFound, also where the machine has no such taint."""
    machine = find_machine(cell, command.machine)
    taints = tuple(taint for taint in machine.taints if taint.key != command.key)
    if taints == machine.taints:
        known = ", ".join(taint.key for taint in machine.taints) or "none"
        raise NotFound(f"{machine.name} has no taint {command.key}", f"its taints are: {known}")
    text = f"{machine.name} is no longer tainted {command.key}"
    return Decision((MachineTainted(machine.name, taints),), machine.name, text)


def down(cell: Cell, _o: Observed, command: SetMachineDown, _actor: str, _now: Now) -> Decision:
    """Note that a machine does not answer; one that does so again and again is quarantined. Raises
    NotFound."""
    machine = find_machine(cell, command.machine)
    text = f"{machine.name} is down: {command.reason}"
    if not machine.up:
        return Decision((), machine.name, text)
    events: list[AnyEvent] = [MachineDown(machine.name, command.reason, command.at)]
    if command.at and (quarantined := quarantine(machine, command.at)):
        events.append(quarantined)
    return Decision(tuple(events), machine.name, text)


def release(cell: Cell, _o: Observed, command: ReleaseMachine, _actor: str, _now: Now) -> Decision:
    """End a machine's quarantine. Raises NotFound."""
    machine = find_machine(cell, command.machine)
    events = (MachineReleased(machine.name),) * bool(machine.quarantined_until)
    return Decision(events, machine.name, f"the quarantine of {machine.name} is over")


def lose(cell: Cell, _o: Observed, command: LoseMachine, _actor: str, _now: Now) -> Decision:
    """Give up a machine that is down, whole: all that it holds is evicted. Raises NotFound."""
    machine = find_machine(cell, command.machine)
    placed = len(cell.placed[machine.name])
    if machine.up or not (placed or machine.name in cell.arriving):
        return Decision((), machine.name, f"{machine.name} holds nothing that is lost")
    evicted = evicted_as_lost(cell, machine.name, command.reason)
    text = f"{machine.name} is given up: {task_count(placed)} evicted"
    return Decision((MachineLost(machine.name, command.at), *evicted), machine.name, text)


def up(cell: Cell, _o: Observed, command: SetMachineUp, _actor: str, _now: Now) -> Decision:
    """Note that a machine answers again. Raises NotFound."""
    machine = find_machine(cell, command.machine)
    events = (MachineUp(machine.name),) * (not machine.up and not machine.revoked_at)
    return Decision(events, machine.name, f"{machine.name} is up")


def remove(cell: Cell, observed: Observed, command: RemoveMachine, _actor: str, now: Now) -> Decision:
    """Let go of a machine that is down, or that holds nothing. Raises NotFound and Conflict.

    What the cell still wants of a machine that is down runs elsewhere; what runs there nobody stops then.
    """
    machine = find_machine(cell, command.machine)
    seen = observed.machines.get(machine.name)
    placed = len(cell.placed[machine.name])
    if machine.up:
        ending = sum(attempt.ended is None for attempt in seen.attempts.values()) if seen else 0
        if held := placed + len(cell.arriving.get(machine.name, ())):
            raise Conflict(
                f"{machine.name} is up and runs {task_count(held)}",
                f"Move them with `borgctl machine drain {machine.name}`, or stop its borglet and wait",
            )
        if ending:
            raise Conflict(
                f"{machine.name} is up, and programs that should not run there have not ended: {ending}",
                "Ask again in a moment; `borgctl machine show` says what is wrong when they stay",
            )
        text = f"{machine.name} is removed; it joins again by `borgctl machine invite {machine.name}` alone"
    else:
        # This master must have found it silent: the one before may have set it down, and it be back.
        if placed and (seen is None or now.mono - seen.answered < SILENT_SECONDS):
            raise Conflict(
                f"{machine.name} counts as down and holds tasks, but was not silent for {SILENT_SECONDS:g} s",
                "Ask again in some seconds: if it is down its tasks are moved, if it is not it is up again",
            )
        check_affected(cell, placed, command.max_affected)
        moved = f": {task_count(placed)} of it run elsewhere" if placed else ""
        text = f"{machine.name} is removed{moved}; when it is back, `borgctl machine invite` lets it in"
    reason = "it was removed from the cell"
    evicted = evicted_as_lost(cell, machine.name, reason)
    ended = [
        LeasesEnded(job, tuple(index for index, _ in rows), tuple(each.attempt for _, each in rows), reason)
        for job, rows in on_machine(cell, machine.name).items()
    ]
    notes = (f"{machine.name} held exclusive tasks: be sure that it is off, or they run twice",) * bool(ended)
    events = (*evicted, MachineRemoved(machine.name), *ended, *_uninvited(cell, machine.name))
    return Decision(events, machine.name, text, notes)


def evicted_as_lost(cell: Cell, machine: str, reason: str) -> Iterator[AnyEvent]:
    """Yield the evictions of all that a machine holds that is down, job by job, and before them the ends of
    its incoming attempts.

    Of what runs to completion the result counts, should it be reported when the machine is back.
    """
    yield from lost_with(cell, machine, reason)
    groups: dict[tuple[str, bool], list[int]] = {}
    for key, index in sorted(cell.placed[machine]):
        job = cell.jobs[key]
        # The result of another version, which a rollback has not reached yet, is of no use.
        is_current = job.spec_of(job.tasks[index]) is job.spec
        has_result = is_current and not job.spec.is_service and not is_alloc_set(job)
        groups.setdefault((key, has_result), []).append(index)
    for (key, results_count), indexes in groups.items():
        yield TasksEvicted(
            key,
            tuple(indexes),
            Eviction.MACHINE_LOST,
            f"{machine} is down: {reason}",
            results_count=results_count,
        )


# Reports


def observe(cell: Cell, _o: Observed, report: Observe, _actor: str, now: Now) -> Decision:
    """Return the events that a machine's report brings about. A machine not in the cell brings none."""
    machine = cell.machines.get(report.machine)
    if machine is None or machine.revoked_at:
        return Decision((), report.machine, "not in this cell")
    events: list[AnyEvent] = [*_machine_events(machine, report)]
    events.extend(ends_of_incoming(cell, report, now) if cell.handovers else ())  # they take over no more
    news = [a for a in report.changed if cell.is_current(machine.name, a.task, a.attempt)]
    if report.boot_id != machine.boot_id:
        gone = [a for a in news if _is_gone_with_boot(a)]
        news = [a for a in news if a not in gone]
        for job, rows in _by_job(gone):
            reason = f"{machine.name} was rebooted"
            events.append(TasksEvicted(job, tuple(index for index, _ in rows), Eviction.VANISHED, reason))
    events.extend(_restarts(cell, news))  # first: of a task that has ended since, the count is history too
    failed, news = _failures(cell, news, now.wall)
    ended = [a for a in news if a.ended in RESULTS]
    events.extend(failed)
    events.extend(_endings(ended))
    events.extend(_evictions(cell, machine, report, news))
    late = _late_endings(cell, machine, report, {a.task for a in ended})
    events.extend(_endings(late, late=True))
    events.extend(_leases(cell, machine, report, {(a.task, a.attempt) for a in (*ended, *late)}))
    return Decision(tuple(events), machine.name, f"report of {machine.name}")


def _failures(cell: Cell, news: list[SeenAttempt], at: float) -> tuple[list[TasksEvicted], list[SeenAttempt]]:
    """Return the evictions of services' tasks that failed where they are, and the news of all others."""
    evicted: list[TasksEvicted] = []
    others: list[SeenAttempt] = []
    for attempt in news:
        why = ""
        if (attempt.early_ends or attempt.ended is Ending.FAIL) and not attempt.port_in_use:
            key, index = split_task_name(attempt.task)
            job = cell.jobs[key]
            why = why_moved(job, job.tasks[index], attempt)
        if why:
            evicted.append(moved(job, job.tasks[index], attempt, why, at))
        else:
            others.append(attempt)
    return sorted(evicted, key=lambda event: (event.job, event.indexes)), others


_NOT_STARTED = (Phase.STARTING, Phase.BACKING_OFF, Phase.CRASH_LOOPING)


def _is_gone_with_boot(attempt: SeenAttempt) -> bool:
    """Return whether an attempt of before its machine booted has not been started again there since.

    How it ended is known only if that was before.
    """
    if attempt.ended in RESULTS:
        return not _is_exit_known(attempt)
    was_running = _is_exit_known(attempt) or bool(attempt.exit_reason)
    return attempt.ended is None and was_running and attempt.phase in _NOT_STARTED


def _is_exit_known(attempt: SeenAttempt) -> bool:
    return attempt.exit_code is not None or attempt.signal is not None


def _machine_events(machine: Machine, report: Observe) -> Iterator[AnyEvent]:
    if not machine.up:
        yield MachineUp(machine.name)
    facts = (
        report.capacity if report.capacity is not None else machine.capacity,
        report.attributes if report.attributes is not None else machine.attributes,
        report.runtimes if report.runtimes is not None else machine.runtimes,
        report.boot_id,
    )
    if facts != (machine.capacity, machine.attributes, machine.runtimes, machine.boot_id):
        yield MachineFacts(machine.name, *facts)


def _endings(ended: list[SeenAttempt], *, late: bool = False) -> Iterator[AnyEvent]:
    for job, attempts in _by_job(ended):
        for ending in (Ending.FAIL, Ending.FINISH):
            rows = [row for row in attempts if row[1].ended is ending]
            if rows:
                yield TasksEnded(
                    job,
                    tuple(index for index, _ in rows),
                    ending,
                    tuple(a.reason or a.exit_reason for _, a in rows),
                    tuple(a.exit_code for _, a in rows),
                    tuple(a.signal for _, a in rows),
                    tuple(a.started_at for _, a in rows),
                    tuple(a.attempt for _, a in rows) if late else (),
                )


def _by_job(attempts: list[SeenAttempt]) -> list[tuple[str, list[tuple[int, SeenAttempt]]]]:
    """Return attempts by job, each with its index, in order of both."""
    jobs: dict[str, list[tuple[int, SeenAttempt]]] = {}
    for attempt in attempts:
        job, index = split_task_name(attempt.task)
        jobs.setdefault(job, []).append((index, attempt))
    return [(job, sorted(rows, key=lambda row: row[0])) for job, rows in sorted(jobs.items())]


def _late_endings(cell: Cell, machine: Machine, report: Observe, ended: set[str]) -> list[SeenAttempt]:
    """Return the ended ones of the attempts that were lost with the machine, of tasks without another end."""
    # A result is a result, also when it is late: the work is done, and a later attempt would do it again.
    # That one is stopped, as whatever runs of a task that is dead, and the task's record, with its logs and
    # exit code, is about the attempt that ended. What was ordered to stop ends with KILL, so it cannot be
    # mistaken; a borglet whose runtime is not open yet obeys no stop before it knows what has ended.
    late: dict[str, SeenAttempt] = {}
    for attempt in sorted(report.changed, key=lambda a: a.attempt):
        is_result = attempt.ended in RESULTS and _is_exit_known(attempt) and attempt.task not in ended
        if is_result and cell.may_end_late(machine.name, attempt.task, attempt.attempt):
            late.setdefault(attempt.task, attempt)
    return list(late.values())


def _leases(
    cell: Cell, machine: Machine, report: Observe, results: set[tuple[str, int]]
) -> Iterator[AnyEvent]:
    """Yield what a report says of leases: which attempts have ended, but for those with a result; and which
    run, though nothing of them was known, or will not end by themselves."""
    # That a report lacks an attempt proves nothing: where a borglet lost its folder its programs run on.
    ended: dict[str, list[tuple[int, int]]] = {}
    found: dict[str, list[tuple[int, TaskLease]]] = {}
    for attempt in sorted(report.changed, key=lambda a: (a.task, a.attempt)):
        key, index = split_task_name(attempt.task)
        leases = cell.leases.get(key, {}).get(index, ())
        lease = next((e for e in leases if (e.attempt, e.machine) == (attempt.attempt, machine.name)), None)
        job = cell.jobs.get(key)
        is_stuck = attempt.phase is Phase.UNKILLABLE
        if lease is not None and attempt.ended is not None:
            if (attempt.task, attempt.attempt) not in results:
                ended.setdefault(key, []).append((index, attempt.attempt))
        elif lease is not None and is_stuck and lease.lapses:
            found.setdefault(key, []).append((index, msgspec.structs.replace(lease, lapses=False)))
        elif lease is None and job is not None and job.spec.exclusive and _is_astray(cell, machine, attempt):
            lease = lease_of(job.spec, machine, attempt.attempt)
            lease = msgspec.structs.replace(lease, lapses=lease.lapses and not is_stuck)
            found.setdefault(key, []).append((index, lease))
    for key, rows in ended.items():
        yield LeasesEnded(key, tuple(index for index, _ in rows), tuple(number for _, number in rows))
    for key, pairs in found.items():
        yield LeasesFound(key, tuple(index for index, _ in pairs), tuple(lease for _, lease in pairs))


def _is_astray(cell: Cell, machine: Machine, attempt: SeenAttempt) -> bool:
    """Return whether an attempt runs that should not."""
    return attempt.ended is None and not cell.is_current(machine.name, attempt.task, attempt.attempt)


def _restarts(cell: Cell, news: list[SeenAttempt]) -> Iterator[AnyEvent]:
    restarted = [
        attempt
        for attempt in news
        if attempt.ended in (None, Ending.FINISH, Ending.FAIL)
        and (task := cell.task(attempt.task)) is not None
        and attempt.restarts > task.restarts
    ]
    for job, rows in _by_job(restarted):
        counts = cell.jobs[job].spec.restart.counts_for_life
        yield TasksRestarted(
            job,
            tuple(index for index, _ in rows),
            tuple(a.restarts for _, a in rows),
            # The last exit of an attempt that has ended is its end, which has an event of its own.
            tuple(None if a.ended else a.exit_code for _, a in rows),
            tuple(None if a.ended else a.signal for _, a in rows),
            tuple("" if a.ended else a.exit_reason or a.reason for _, a in rows),
            tuple(a.failures for _, a in rows) if counts else (),
        )


def _had_its_time(cell: Cell, job: str) -> bool:
    """Return whether what is killed of a job may have run for too long: it is to end, not to begin anew."""
    return cell.jobs[job].spec.max_runtime_seconds > 0


def _evictions(cell: Cell, machine: Machine, report: Observe, news: list[SeenAttempt]) -> Iterator[AnyEvent]:
    for attempt in sorted(news, key=lambda a: a.task):
        job, index = split_task_name(attempt.task)
        if attempt.ended in (Ending.KILL, Ending.LOST):
            reason = f"ended on {machine.name}: {attempt.reason or attempt.ended}"
            yield TasksEvicted(job, (index,), Eviction.VANISHED, reason)
        elif attempt.ended is None and attempt.port_in_use:
            reason = f"port {attempt.port_in_use} on {machine.name} is held by another program"
            yield TasksEvicted(job, (index,), Eviction.PORT_IN_USE, reason)
        elif attempt.ended is None and attempt.phase is Phase.UNKILLABLE and not _had_its_time(cell, job):
            yield TasksEvicted(job, (index,), Eviction.UNKILLABLE, f"on {machine.name} {attempt.reason}")
    for name, attempt_id in report.gone:
        if cell.is_current(machine.name, name, attempt_id):
            job, index = split_task_name(name)
            yield TasksEvicted(job, (index,), Eviction.VANISHED, f"{machine.name} no longer has it")
