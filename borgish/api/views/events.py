"""What happened, for people: one or a few lines per journal event."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from borgish.cell.access.decide import grant_words
from borgish.cell.access.events import (
    CertificateEnds,
    GroupRemoved,
    GroupSet,
    InvitationRevoked,
    InvitationUsed,
    MachineInvited,
    MachineRevoked,
    SecretRemoved,
    SecretSet,
    TokenCreated,
    TokenRevoked,
    TokensUsed,
    UserRemoved,
    UserSet,
)
from borgish.cell.access.model import ID_CHARACTERS
from borgish.cell.crons.model import SPREAD_SECONDS
from borgish.cell.events import (
    AnyEvent,
    AppApplied,
    AppRemoved,
    BudgetRemoved,
    BudgetSet,
    CellFrozen,
    CellUnfrozen,
    CronFired,
    CronPaused,
    CronRemoved,
    CronResumed,
    CronSet,
    Elected,
    EntriesLost,
    Entry,
    FailuresForgotten,
    HandoversBegan,
    HandoversEnded,
    IncomingEnded,
    JobChanged,
    JobForgotten,
    JobHeld,
    JobReady,
    JobReleased,
    JobRestored,
    JobSubmitted,
    LeasesEnded,
    LeasesFound,
    MachineCordoned,
    MachineDown,
    MachineDrained,
    MachineFacts,
    MachineJoined,
    MachineLost,
    MachineQuarantined,
    MachineReleased,
    MachineRemoved,
    MachineRestored,
    MachineTainted,
    MachineUncordoned,
    MachineUp,
    PlacesPromised,
    QuotaRemoved,
    QuotaSet,
    RolledBack,
    RolloutBegan,
    RolloutFinished,
    RolloutPaused,
    RolloutResumed,
    RolloutWentOn,
    RulesSet,
    TasksEnded,
    TasksEvicted,
    TasksHandedOver,
    TasksPlaced,
    TasksRestarted,
    TasksResubmitted,
)
from borgish.cell.machines.drains import drain_words
from borgish.cell.model import Drain, exit_text, task_count
from borgish.resources import show_amounts, show_bytes, show_cpu
from borgish.text import instant, span, tasks_text
from borgish.vocabulary import FAILURES, OUTCOMES, Band, Ending, Eviction, Hold, RolloutKind
from borgish.wire.api import EventView

LINES_PER_EVENT_MAX = 5
MACHINES_NAMED_MAX = 3


class _Line(msgspec.Struct, frozen=True):
    """An event view without what all lines of an entry share."""

    kind: str
    text: str
    job: str = ""
    indexes: tuple[int, ...] = ()
    machine: str = ""
    bad: bool = False


def event_views(entry: Entry) -> list[EventView]:
    """Return the lines of one journal entry, in order. Pure: the same entry, the same lines."""
    at = instant(entry.at)
    return [
        EventView(entry.position, at, line.kind, line.text, line.job, line.indexes, line.machine, line.bad)
        for event in entry.events
        for line in _LINES[type(event)](event, entry)
    ]


def _elected(event: Elected, _entry: Entry) -> Iterator[_Line]:
    yield _Line("master", f"{event.holder} leads the cell (timeline {event.timeline}, epoch {event.epoch})")


def _rules_set(event: RulesSet, _entry: Entry) -> Iterator[_Line]:
    bands = event.rules.bands
    begin = ", ".join(f"{band} from {bands.floor(band)}" for band in Band)
    names = "".join(f", {name} for {band}" for name, band in sorted(bands.names.items()))
    who = "quotas are required" if event.rules.quota_required else "who has no quota is not limited"
    yield _Line("rules", f"the rules of the cell are: {begin} to {bands.highest}{names}; {who}")


def _entries_lost(event: EntriesLost, _entry: Entry) -> Iterator[_Line]:
    text = f"what happened from {event.first} to {event.last} is lost: {event.reason}"
    yield _Line("lost", f"{text}; the cell is as it was before (timeline {event.timeline})", bad=True)


def _job_submitted(event: JobSubmitted, entry: Entry) -> Iterator[_Line]:
    spec = event.spec
    count = task_count(spec.tasks)
    run = f", a run of {event.cron}" if event.cron else ""
    yield _Line("submitted", f"{entry.actor} submitted {spec.key}: {count}{run}", spec.key)


def _job_changed(event: JobChanged, entry: Entry) -> Iterator[_Line]:
    tasks = task_count(event.spec.tasks)
    version = f"version {event.version}, " if event.version else ""
    undone = event.rollout is not None and event.rollout.reason.startswith("undone")
    why = f", {event.rollout.reason}" if event.rollout is not None and undone else ""
    yield _Line("changed", f"{entry.actor} changed {event.job}: {version}{tasks}{why}", event.job)


def _job_forgotten(event: JobForgotten, _entry: Entry) -> Iterator[_Line]:
    yield _Line("forgotten", f"{event.job} was dead long enough and is no longer kept", event.job)


def _app_applied(event: AppApplied, entry: Entry) -> Iterator[_Line]:
    yield _Line("applied", f"{entry.actor} applied {event.app.key}, version {event.version}")
    for key in event.left:
        yield _Line("applied", f"{key} belongs to {event.app.key} no more", key)


def _app_removed(event: AppRemoved, entry: Entry) -> Iterator[_Line]:
    yield _Line("applied", f"{entry.actor} removed the application {event.app}")


def _placed(event: TasksPlaced, _entry: Entry) -> Iterator[_Line]:
    pairs = list(zip(event.indexes, event.machines, strict=True))
    for whose, is_incoming in (("", False), ("incoming attempt of ", True)):
        there = [pair for pair in pairs if (pair[0] in event.incoming) is is_incoming]
        if not there:
            continue
        indexes, machines = tuple(index for index, _ in there), sorted({name for _, name in there})
        text = f"{whose}{_tasks(event.job, indexes)} placed on {_named(machines)}"
        yield _Line("placed", text, event.job, indexes, machines[0] if len(machines) == 1 else "")


def _promised(event: PlacesPromised, _entry: Entry) -> Iterator[_Line]:
    machines = sorted({machine for machine in event.machines if machine})
    one = len(event.indexes) == 1
    has, places = ("has", "its place") if one else ("have", "their places")
    kept = f"{has} {places} kept on {_named(machines)}" if machines else f"{has} no place kept any more"
    yield _Line("promised", f"{_tasks(event.job, event.indexes)} {kept}", event.job, event.indexes)


def _restarted(event: TasksRestarted, _entry: Entry) -> Iterator[_Line]:
    ends = [
        _how(reason, code, signal)
        for reason, code, signal in zip(event.reasons, event.exit_codes, event.signals, strict=True)
    ]
    counts = dict(zip(event.indexes, event.restarts, strict=True))
    for how, indexes in _grouped(event.indexes, ends):
        most = max(counts[index] for index in indexes)
        text = f"{_tasks(event.job, indexes)} restarted in place (restart {most}){how}"
        yield _Line("restarted", text, event.job, indexes, bad=True)


def _evicted(event: TasksEvicted, _entry: Entry) -> Iterator[_Line]:
    reason = f": {event.reason}" if event.reason and event.reason != event.cause else ""
    bad = event.cause is not Eviction.RESTART
    if event.pending or not event.indexes:
        text = f"{_tasks(event.job, event.pending)} sent back to pending, {event.cause}{reason}"
        yield _Line("evicted", text, event.job, event.pending, bad=bad)
    if event.taken_over:
        text = f"{_tasks(event.job, event.taken_over)} taken over by the incoming attempt"
        text = f"{text}, {event.cause}{reason}"
        yield _Line("evicted", text, event.job, event.taken_over, bad=bad)


def _handovers_began(event: HandoversBegan, _entry: Entry) -> Iterator[_Line]:
    why = event.reason or event.cause
    text = f"{_tasks(event.job, event.indexes)} to be replaced by an incoming attempt: {why}"
    yield _Line("handover", text, event.job, event.indexes)


def _handed_over(event: TasksHandedOver, _entry: Entry) -> Iterator[_Line]:
    text = f"{_tasks(event.job, event.indexes)} handed over to the incoming attempt, which is up"
    yield _Line("handover", text, event.job, event.indexes)


def _incoming_ended(event: IncomingEnded, _entry: Entry) -> Iterator[_Line]:
    text = f"the incoming attempt of {_tasks(event.job, event.indexes)} is given up: {event.reason}"
    yield _Line("handover", text, event.job, event.indexes, bad=True)


def _handovers_ended(event: HandoversEnded, _entry: Entry) -> Iterator[_Line]:
    text = f"{_tasks(event.job, event.indexes)} no longer to be replaced: {event.reason}"
    yield _Line("handover", text, event.job, event.indexes)


def _failures_forgotten(event: FailuresForgotten, _entry: Entry) -> Iterator[_Line]:
    text = f"{_tasks(event.job, event.indexes)}: no machine is avoided any more"
    yield _Line("forgiven", text, event.job, event.indexes)


def _job_held(event: JobHeld, _entry: Entry) -> Iterator[_Line]:
    text = f"{event.job} is held, with one trial a minute, since it fails wherever it is: {event.reason}"
    yield _Line("held", text, event.job, bad=True)


def _job_released(event: JobReleased, _entry: Entry) -> Iterator[_Line]:
    yield _Line("released", f"{event.job} is held no longer: what had failed of it runs well", event.job)


def _job_ready(event: JobReady, _entry: Entry) -> Iterator[_Line]:
    text = f"{_tasks(event.job, event.indexes)} may start: {event.reason}"
    yield _Line("ready", text, event.job, event.indexes)


def _ended(event: TasksEnded, _entry: Entry) -> Iterator[_Line]:
    word = OUTCOMES[event.ending]
    kind = "killed" if event.ending is Ending.KILL else "ended"
    bad = event.ending in FAILURES
    unknown = (None,) * len(event.indexes)
    rows = zip(event.reasons, event.exit_codes or unknown, event.signals or unknown, strict=True)
    ends = [_how(*row) for row in rows]
    if event.attempts:
        ends = [
            f"{how} (by attempt {lost}, presumed lost)"
            for how, lost in zip(ends, event.attempts, strict=True)
        ]
    for how, indexes in _grouped(event.indexes, ends):
        text = how[1:] if how.startswith(f": {word} by ") else f" {word}{how}"
        yield _Line(kind, f"{_tasks(event.job, indexes)}{text}", event.job, indexes, bad=bad)


def _resubmitted(event: TasksResubmitted, entry: Entry) -> Iterator[_Line]:
    text = f"{entry.actor} submitted {_tasks(event.job, event.indexes)} again"
    yield _Line("submitted", text, event.job, event.indexes)


def _leases_found(event: LeasesFound, _entry: Entry) -> Iterator[_Line]:
    where = ", ".join(sorted({lease.machine for lease in event.leases}))
    text = f"{_tasks(event.job, event.indexes)} may run on {where} still, which has to say when it has ended"
    yield _Line("lease", text, event.job, event.indexes, bad=True)


def _leases_ended(event: LeasesEnded, _entry: Entry) -> Iterator[_Line]:
    how = f": {event.reason}" if event.reason else ""
    attempts = ", ".join(map(str, sorted(set(event.attempts))))
    text = f"{_tasks(event.job, event.indexes)} no longer run{'s' * (len(event.indexes) == 1)} "
    yield _Line("lease", f"{text}as attempt {attempts}{how}", event.job, event.indexes)


def _joined(event: MachineJoined, _entry: Entry) -> Iterator[_Line]:
    machine = event.machine
    has = f"{show_cpu(machine.capacity.cpu_millis)} cpu, {show_bytes(machine.capacity.ram_bytes)} ram"
    yield _machine(machine.name, f"joined with {has}")


def _facts(event: MachineFacts, _entry: Entry) -> Iterator[_Line]:
    has = f"{show_cpu(event.capacity.cpu_millis)} cpu, {show_bytes(event.capacity.ram_bytes)} ram"
    yield _machine(event.machine, f"now has {has}, runs {', '.join(event.runtimes) or 'nothing'}")


def _down(event: MachineDown, _entry: Entry) -> Iterator[_Line]:
    yield _machine(event.machine, f"is down: {event.reason}", bad=True)


def _lost(event: MachineLost, _entry: Entry) -> Iterator[_Line]:
    yield _machine(event.machine, "is given up, and its tasks are placed elsewhere", bad=True)


def _quarantined(event: MachineQuarantined, _entry: Entry) -> Iterator[_Line]:
    text = f"went down again and again: nothing new is placed on it until {instant(event.until)}"
    yield _machine(event.machine, text, bad=True)


def _released(event: MachineReleased, _entry: Entry) -> Iterator[_Line]:
    yield _machine(event.machine, "takes new tasks again: its quarantine is over")


def _up(event: MachineUp, _entry: Entry) -> Iterator[_Line]:
    yield _machine(event.machine, "is up again")


def _cordoned(event: MachineCordoned, entry: Entry) -> Iterator[_Line]:
    yield _machine(event.machine, f"was cordoned by {entry.actor}{f': {event.reason}' * bool(event.reason)}")


def _uncordoned(event: MachineUncordoned, entry: Entry) -> Iterator[_Line]:
    yield _machine(event.machine, f"takes new tasks again, by {entry.actor}")


def _tainted(event: MachineTainted, entry: Entry) -> Iterator[_Line]:
    taints = ", ".join(map(str, event.taints))
    has = f"has the taints {taints}" if taints else "has no taints any more"
    yield _machine(event.machine, f"{has}, by {entry.actor}")


def _drained(event: MachineDrained, entry: Entry) -> Iterator[_Line]:
    named = any(drain.by == entry.actor for drain in event.drains)  # the words about it name its user
    if entry.cause == "CancelMaintenance":
        left = f"; it {drains_text(event.drains)}" * bool(event.drains)
        text = f"maintenance of {event.machine} is cancelled by {entry.actor}{left}"
        yield _Line("machine", text, machine=event.machine)
    else:
        yield _machine(event.machine, f"{drains_text(event.drains)}{f', by {entry.actor}' * (not named)}")


def drains_text(drains: tuple[Drain, ...]) -> str:
    """Return why a machine is to be empty, or will be."""
    begun = "; ".join(drain_words(drain) for drain in drains if drain.begun)
    planned = "; ".join(drain_words(drain) for drain in drains if not drain.begun)
    parts = [f"is to be empty: {begun}"] * bool(begun) + [f"is planned for {planned}"] * bool(planned)
    return "; ".join(parts) or "is not drained"


def _quota_set(event: QuotaSet, entry: Entry) -> Iterator[_Line]:
    quota = event.quota
    until = f" until {instant(quota.until)}" if quota.until else ""
    yield _Line("quota", f"{entry.actor} set the quota {quota.key} to {show_amounts(quota.limits)}{until}")


def _quota_removed(event: QuotaRemoved, entry: Entry) -> Iterator[_Line]:
    yield _Line("quota", f"{entry.actor} removed the quota {event.key}")


def _budget_set(event: BudgetSet, entry: Entry) -> Iterator[_Line]:
    budget = event.budget
    text = f"{budget.name} to at most {budget.max_unavailable} of {budget.selector}"
    yield _Line("budget", f"{entry.actor} set the budget {text}")


def _budget_removed(event: BudgetRemoved, entry: Entry) -> Iterator[_Line]:
    yield _Line("budget", f"{entry.actor} deleted the budget {event.name}")


def _cron_set(event: CronSet, entry: Entry) -> Iterator[_Line]:
    yield _Line("cron", f"{entry.actor} set the cron {event.cron.key}: {event.cron.words}")


def _cron_removed(event: CronRemoved, entry: Entry) -> Iterator[_Line]:
    yield _Line("cron", f"{entry.actor} removed the cron {event.cron}")


def _cron_paused(event: CronPaused, entry: Entry) -> Iterator[_Line]:
    yield _Line("cron", f"{entry.actor} paused the cron {event.cron}")


def _cron_resumed(event: CronResumed, entry: Entry) -> Iterator[_Line]:
    following = f", next {instant(event.next)}" if event.next else ""
    yield _Line("cron", f"{entry.actor} let the cron {event.cron} go on{following}")


def _cron_fired(event: CronFired, entry: Entry) -> Iterator[_Line]:
    began = sum(isinstance(each, JobSubmitted) for each in entry.events)
    runs = f"{began} run{'s' * (began != 1)} began" if began else "no run began"
    late = f", {event.late_seconds:.0f} s late" if event.late_seconds > SPREAD_SECONDS else ""
    why = f": {event.note}" if event.note else ""
    text = f"the cron {event.cron} was due at {instant(event.last)}{late}, and {runs}{why}"
    yield _Line("cron", text, bad=not began)


def _frozen(event: CellFrozen, entry: Entry) -> Iterator[_Line]:
    why = f": {event.reason}" if event.reason else ""
    yield _Line("freeze", f"{entry.actor} froze the cell: nothing is taken down on purpose{why}")


def _unfrozen(_event: CellUnfrozen, entry: Entry) -> Iterator[_Line]:
    yield _Line("freeze", f"{entry.actor} unfroze the cell")


def _revoked(event: MachineRevoked, entry: Entry) -> Iterator[_Line]:
    yield _machine(event.machine, f"was revoked by {entry.actor}: it is out of the cell", bad=True)


def _user_set(event: UserSet, entry: Entry) -> Iterator[_Line]:
    granted = ", ".join(map(grant_words, event.user.grants)) or "nothing beyond the defaults"
    yield _Line("access", f"{event.user.name} is a user, granted {granted}, by {entry.actor}")


def _user_removed(event: UserRemoved, entry: Entry) -> Iterator[_Line]:
    yield _Line("access", f"{event.user} is no user any more, by {entry.actor}")


def _group_set(event: GroupSet, entry: Entry) -> Iterator[_Line]:
    group = event.group
    granted = f", granted {', '.join(map(grant_words, group.grants))}" if group.grants else ""
    members = ", ".join(group.members) or "nobody"
    yield _Line("access", f"in the group {group.name} is {members}{granted}, by {entry.actor}")


def _group_removed(event: GroupRemoved, entry: Entry) -> Iterator[_Line]:
    yield _Line("access", f"{event.group} is no group any more, by {entry.actor}")


def _token_created(event: TokenCreated, entry: Entry) -> Iterator[_Line]:
    token = event.token
    yield _Line("access", f"token {token.id} stands for {token.user} ({token.role}), by {entry.actor}")


def _token_revoked(event: TokenRevoked, entry: Entry) -> Iterator[_Line]:
    why = f": {event.why}" if event.why else ""
    text = f"token {event.sha256[:ID_CHARACTERS]} of {event.user} was revoked by {entry.actor}{why}"
    yield _Line("access", text)


def _secret_set(event: SecretSet, entry: Entry) -> Iterator[_Line]:
    yield _Line("access", f"the secret {event.secret.key} was set by {entry.actor}")


def _secret_removed(event: SecretRemoved, entry: Entry) -> Iterator[_Line]:
    yield _Line("access", f"the secret {event.secret} was removed by {entry.actor}")


def _tokens_used(_event: TokensUsed, _entry: Entry) -> Iterator[_Line]:
    yield from ()


def _invited(event: MachineInvited, entry: Entry) -> Iterator[_Line]:
    invitation = event.invitation
    whom = invitation.machine or "any name"
    yield _Line("access", f"invitation {invitation.id} is for {whom}, by {entry.actor}")


def _invitation_used(event: InvitationUsed, _entry: Entry) -> Iterator[_Line]:
    yield _machine(event.machine, f"came by the invitation {event.sha256[:ID_CHARACTERS]}")


def _invitation_revoked(event: InvitationRevoked, _entry: Entry) -> Iterator[_Line]:
    yield _Line("access", f"invitation {event.sha256[:ID_CHARACTERS]} is over")


def _certificate_ends(event: CertificateEnds, entry: Entry) -> Iterator[_Line]:
    left = event.ends_at - entry.at
    when = f"ends in {span(left)}, and was not renewed" if left > 0 else "is over"
    if event.machine:
        yield _machine(event.machine, f"has a certificate that {when}", bad=True)
    else:
        yield _Line("certificate", f"the certificate of the {event.role} {when}", bad=True)


def _removed(event: MachineRemoved, entry: Entry) -> Iterator[_Line]:
    yield _machine(event.machine, f"was removed from the cell by {entry.actor}")


def _rolled_back(event: RolledBack, entry: Entry) -> Iterator[_Line]:
    text = f"{entry.actor} rolled back to position {event.to}, on timeline {event.timeline}"
    yield _Line("rollback", text)
    for job in event.jobs_gone:
        yield _Line("rollback", f"{job} is gone: {event.reason}", job)
    for one in event.jobs:
        yield _Line("rollback", f"{one.job} {_becomes(one)}: {event.reason}", one.job)
    for mark in event.machines:
        yield _machine(mark.machine, f"{restored_machine_text(mark)} again: {event.reason}")
    for quota in event.quotas:
        yield _Line("quota", f"the quota {quota.key} is {show_amounts(quota.limits)} again: {event.reason}")
    for key in event.quotas_gone:
        yield _Line("quota", f"there is no quota {key}: {event.reason}")
    for budget in event.budgets:
        text = f"the budget {budget.name} is at most {budget.max_unavailable} of {budget.selector} again"
        yield _Line("budget", f"{text}: {event.reason}")
    for name in event.budgets_gone:
        yield _Line("budget", f"there is no budget {name}: {event.reason}")
    for app in event.apps:
        yield _Line("applied", f"the application {app.key} is what it was: {event.reason}")
    for name in event.apps_gone:
        yield _Line("applied", f"there is no application {name}: {event.reason}")
    for cron in event.crons:
        yield _Line("cron", f"the cron {cron.key} is {cron.words} again: {event.reason}")
    for key in event.crons_gone:
        yield _Line("cron", f"there is no cron {key}: {event.reason}")


def restored_machine_text(mark: MachineRestored) -> str:
    """Return what a rollback says of a machine."""
    is_draining = any(drain.begun for drain in mark.drains)
    parts = ["is cordoned"] if mark.cordoned else ["takes new tasks"] * (not is_draining)
    words = " and ".join([*parts, *[drains_text(mark.drains)] * bool(mark.drains)])
    return f"{words}, with the taints {', '.join(map(str, mark.taints))}," if mark.taints else words


def _becomes(one: JobRestored) -> str:
    tasks = one.rollout.tasks if one.rollout else one.tasks
    return f"is restored, with {task_count(tasks)}" if tasks else "will be removed"


def _rollout_began(event: RolloutBegan, _entry: Entry) -> Iterator[_Line]:
    indexes = tuple(sorted(event.rollout.attempts))
    text = f"{_tasks(event.job, indexes)} to be stopped, a few at a time: {event.rollout.reason}"
    yield _Line(event.rollout.kind, text, event.job, indexes)


def _rollout_went_on(event: RolloutWentOn, _entry: Entry) -> Iterator[_Line]:
    if event.pending:
        text = f"{_tasks(event.job, event.pending)} sent back to pending by the {event.kind}"
        yield _Line(event.kind, text, event.job, event.pending)
    if event.ended:
        text = f"{_tasks(event.job, event.ended)} ended by the {event.kind}"
        yield _Line(event.kind, text, event.job, event.ended)


def _rollout_paused(event: RolloutPaused, _entry: Entry) -> Iterator[_Line]:
    bad = event.hold is not Hold.CANARY
    words = "waits" if event.hold is None and event.kind is not RolloutKind.ROLLBACK else "is paused"
    if event.hold is Hold.CANARY:
        words = "waits to be promoted"
    who_paused = event.hold is Hold.PAUSED  # paused by ann
    text = f"is {event.reason}" if who_paused else f"{words}: {event.reason}"
    yield _Line(event.kind, f"the {event.kind} of {event.job} {text}", event.job, bad=bad)


def _rollout_resumed(event: RolloutResumed, entry: Entry) -> Iterator[_Line]:
    going = f"let the {event.kind} of {event.job} go on"
    what = f"promoted the canaries of {event.job}" if event.promoted else going
    yield _Line(event.kind, f"{entry.actor} {what}", event.job)


def _rollout_finished(event: RolloutFinished, _entry: Entry) -> Iterator[_Line]:
    yield _Line(event.kind, f"the {event.kind} of {event.job} is over: {event.outcome}", event.job)


def _machine(name: str, text: str, *, bad: bool = False) -> _Line:
    return _Line("machine", f"{name} {text}", machine=name, bad=bad)


def _tasks(job: str, indexes: tuple[int, ...]) -> str:
    """Return ``ann/web/3`` for one task, ``ann/web tasks 0-4`` for more."""
    return f"{job}/{indexes[0]}" if len(indexes) == 1 else f"{job} {tasks_text(indexes)}"


def _how(reason: str, code: int | None, signal: int | None) -> str:
    """Return ``: reason (exit code 1)``, with what is known."""
    ended = exit_text(code, signal)
    if not reason:
        return f": {ended}" if ended else ""
    return f": {reason} ({ended})" if ended and ended not in reason else f": {reason}"


def _grouped(indexes: tuple[int, ...], ends: list[str]) -> list[tuple[str, tuple[int, ...]]]:
    """Return indexes by how they ended; all of them in one group when there are too many."""
    groups: dict[str, list[int]] = {}
    for index, how in zip(indexes, ends, strict=True):
        groups.setdefault(how, []).append(index)
    if len(groups) > LINES_PER_EVENT_MAX:
        return [(", in different ways", indexes)]
    return [(how, tuple(group)) for how, group in groups.items()]


def _named(machines: list[str]) -> str:
    more = len(machines) - MACHINES_NAMED_MAX
    return ", ".join(machines[:MACHINES_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


_LINES: dict[type[AnyEvent], Callable[[Any, Entry], Iterator[_Line]]] = {
    Elected: _elected,
    RulesSet: _rules_set,
    EntriesLost: _entries_lost,
    JobSubmitted: _job_submitted,
    JobChanged: _job_changed,
    JobForgotten: _job_forgotten,
    AppApplied: _app_applied,
    AppRemoved: _app_removed,
    TasksPlaced: _placed,
    PlacesPromised: _promised,
    TasksRestarted: _restarted,
    TasksEvicted: _evicted,
    HandoversBegan: _handovers_began,
    TasksHandedOver: _handed_over,
    IncomingEnded: _incoming_ended,
    HandoversEnded: _handovers_ended,
    FailuresForgotten: _failures_forgotten,
    JobHeld: _job_held,
    JobReleased: _job_released,
    JobReady: _job_ready,
    TasksEnded: _ended,
    TasksResubmitted: _resubmitted,
    LeasesFound: _leases_found,
    LeasesEnded: _leases_ended,
    MachineJoined: _joined,
    MachineFacts: _facts,
    MachineDown: _down,
    MachineQuarantined: _quarantined,
    MachineReleased: _released,
    MachineLost: _lost,
    MachineUp: _up,
    MachineCordoned: _cordoned,
    MachineUncordoned: _uncordoned,
    MachineTainted: _tainted,
    MachineDrained: _drained,
    QuotaSet: _quota_set,
    QuotaRemoved: _quota_removed,
    BudgetSet: _budget_set,
    BudgetRemoved: _budget_removed,
    CronSet: _cron_set,
    CronRemoved: _cron_removed,
    CronPaused: _cron_paused,
    CronResumed: _cron_resumed,
    CronFired: _cron_fired,
    CellFrozen: _frozen,
    CellUnfrozen: _unfrozen,
    MachineRemoved: _removed,
    RolledBack: _rolled_back,
    RolloutBegan: _rollout_began,
    RolloutWentOn: _rollout_went_on,
    RolloutPaused: _rollout_paused,
    RolloutResumed: _rollout_resumed,
    RolloutFinished: _rollout_finished,
    MachineRevoked: _revoked,
    UserSet: _user_set,
    UserRemoved: _user_removed,
    GroupSet: _group_set,
    GroupRemoved: _group_removed,
    TokenCreated: _token_created,
    TokenRevoked: _token_revoked,
    TokensUsed: _tokens_used,
    MachineInvited: _invited,
    InvitationUsed: _invitation_used,
    InvitationRevoked: _invitation_revoked,
    SecretSet: _secret_set,
    SecretRemoved: _secret_removed,
    CertificateEnds: _certificate_ends,
}
"""Every event has its words; a test compares this with the journal's alphabet."""
