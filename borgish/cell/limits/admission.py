"""Admission control: is a job accepted, and with which warnings? Asked when something is asked for, never
when it is placed.

A quota limits what a user's jobs in one band ask for at a time, resource by resource; what it does not
name is nothing (section 2.5). The free band is not limited. Whoever has no quota in a band is not limited
there either, unless the cell requires quotas. What runs is never ended for a quota's sake: lowered, ended or
removed, it only keeps more from being asked for. How much the cell keeps of one user is limited in every
band (``check_footprint``).

Warnings are about a job that is accepted all the same. Machines and other jobs come and go, so that an
attribute that no machine has, or a place that no task can have, may be right tomorrow. Most often it is a
mistake. Warnings are journalled with the answer, each on a line of its own, so that the same request gets
them again.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches

from borgish.cell.access.secrets import missing_secrets
from borgish.cell.events import AnyEvent, AppApplied, CronSet, JobChanged, JobSubmitted, TasksResubmitted
from borgish.cell.limits.footprint import encoded_bytes, spec_bytes
from borgish.cell.limits.quotas import NOTHING, Quota, quota_key
from borgish.cell.model import Cell, Job
from borgish.errors import Conflict, OverQuota
from borgish.resources import Kind, Resources, by_kind, show_bytes, show_kind, show_number
from borgish.spec.constraints import contradiction, contradiction_words
from borgish.spec.file.mistakes import out_of_reach, resource_typos
from borgish.spec.job import MACHINE, Affinity, Constraint, JobSpec
from borgish.vocabulary import Band, State

_ATTRIBUTES_SHOWN = 8
_MET_WITHOUT = ("!=", "not in", "not present")  # a machine without the attribute meets these

PROD = (Band.MONITORING, Band.PRODUCTION)
"""The bands whose quotas together are what the cell has; those of the others, non-prod, are oversold."""


def admit(cell: Cell, spec: JobSpec, indexes: Sequence[int], wall: float) -> None:
    """Raise OverQuota unless these tasks of a job, none of which asks yet, may ask for their limits.

    ``wall`` is now, in seconds since 1970. Only what they ask for is compared: a quota that is exceeded
    in disk does not keep out a task without any.
    """
    band = cell.rules.bands.of(spec.priority)
    limits = limits_of(cell, spec.user, band, wall)
    if limits is None:
        return
    used = cell.demand.of(quota_key(spec.user, band))
    missing = list(_missing(band, asked_by(spec, indexes), used, limits))
    if missing:
        raise _over_quota(cell, spec, f"asks for {', and for '.join(missing)}", band, wall)


def _over_quota(cell: Cell, spec: JobSpec, what: str, band: Band, wall: float) -> OverQuota:
    return OverQuota(
        f"{spec.key} {what}{_why_nothing(cell, spec.user, band, wall)}",
        "ask for less, end something else, or write `priority: free`, which is not limited; an admin "
        f"gives more with `borgctl quota set {spec.user} --band {band} --cpu N --ram N`",
    )


def admit_change(cell: Cell, job: Job, spec: JobSpec, more: Sequence[int], wall: float) -> None:
    """Raise OverQuota unless a live job may ask for what another specification makes of it.

    ``more`` are those of its tasks that ask for nothing yet. Only what it asks for more than now is compared.
    """
    band = cell.rules.bands.of(spec.priority)
    limits = limits_of(cell, spec.user, band, wall)
    if limits is None:
        return
    asking = [task.index for task in job.tasks[: spec.tasks] if task.state is not State.DEAD]
    key = quota_key(spec.user, band)
    used = cell.demand.of(key)
    wanted = asked_by(spec, [*asking, *more])
    if band is cell.rules.bands.of(job.spec.priority):
        # Its own demand is in the sum already.
        own = asked_by(job.spec, [task.index for task in job.tasks if task.state is not State.DEAD])
        before = by_kind(own)
        used = used.plus(own, -1)
        wanted_more = {kind for kind, amount in by_kind(wanted).items() if amount > before.get(kind, 0)}
    else:
        wanted_more = set(by_kind(wanted))
    missing = list(_missing(band, wanted, used, limits, wanted_more))
    if missing:
        raise _over_quota(cell, spec, f"would ask for {', and for '.join(missing)}", band, wall)


def admit_together(
    cell: Cell, changes: Iterable[tuple[Job | None, JobSpec, Sequence[int]]], wall: float
) -> None:
    """Raise OverQuota unless several jobs may become what they are to be, all at once.

    Each is the job as it is, its specification then, and the indexes of its tasks that ask for something
    then. What one gives back another may ask for. Only what is asked for more than now is compared.
    """
    before: dict[str, Resources] = {}
    after: dict[str, tuple[JobSpec, Resources]] = {}
    together: Counter[str] = Counter()
    for job, spec, asking in changes:
        key = quota_key(spec.user, cell.rules.bands.of(spec.priority))
        together[key] += len(asking) > 0
        after[key] = (spec, after.get(key, (spec, NOTHING))[1].plus(asked_by(spec, asking)))
        if job is not None:
            own = quota_key(job.spec.user, cell.rules.bands.of(job.spec.priority))
            live = [task.index for task in job.tasks if task.state is not State.DEAD]
            before[own] = before.get(own, NOTHING).plus(asked_by(job.spec, live))
    for key, (spec, wanted) in after.items():
        band = cell.rules.bands.of(spec.priority)
        limits = limits_of(cell, spec.user, band, wall)
        if limits is None:
            continue
        now = before.get(key, NOTHING)
        there, used = by_kind(now), cell.demand.of(key).plus(now, -1)
        more = {kind for kind, amount in by_kind(wanted).items() if amount > there.get(kind, 0)}
        missing = list(_missing(band, wanted, used, limits, more))
        if missing:
            others = "and what comes with it " if together[key] > 1 else ""
            what = f"{others}would ask for {', and for '.join(missing)}"
            raise _over_quota(cell, spec, what, band, wall)


def check_footprint(cell: Cell, subject: str, events: Iterable[AnyEvent]) -> None:
    """Raise OverQuota where these events would let the records of a user grow beyond what the cell keeps of
    one. What is replaced by no more is accepted however much there is, so that everything can be mended."""
    grown: Counter[str] = Counter()
    for event in events:
        match event:
            case JobSubmitted(spec):
                grown[spec.user] += spec_bytes(spec, spec.tasks)
            case JobChanged(key, spec):
                job = cell.jobs[key]
                grown[spec.user] += spec_bytes(spec, spec.tasks) - spec_bytes(job.spec, len(job.tasks))
            case TasksResubmitted(key) if (job := cell.jobs[key]).state is State.DEAD:
                grown[job.spec.user] += spec_bytes(job.spec, len(job.tasks))
            case AppApplied(spec, documents, version, crons=crons):
                app = cell.apps.get(spec.key)
                if app is None or app.version != version:
                    before = encoded_bytes(app.present.content) if app is not None else 0
                    grown[spec.user] += encoded_bytes((spec, documents, crons)) - before
            case CronSet(cron):
                grown[cron.spec.user] += encoded_bytes(cron.spec) - cell.footprint.of_cron(cron.key)
            case _:
                pass
    most = cell.rules.footprint_bytes_max
    for user, growth in grown.items():
        total = cell.footprint.of(user) + growth
        if growth > 0 and total > most:
            raise OverQuota(
                f"{subject} would bring what the cell keeps of {user}'s jobs, applications and crons to "
                f"{show_bytes(total)}, and the most of one user is {show_bytes(most)}",
                "end what is not needed with `borgctl job kill`, or give jobs a smaller environment or "
                "fewer tasks; an admin sets the most by `[quota] footprint_mib` and starts the master anew",
            )


def asked_by(spec: JobSpec, indexes: Sequence[int]) -> Resources:
    """Return what these tasks of a job ask for: the sum of their limits."""
    if spec.inside:
        return NOTHING
    own = [index for index in indexes if index in spec.overrides] if spec.overrides else []
    total = NOTHING.plus(spec.resources, len(indexes) - len(own))
    for index in own:
        total = total.plus(spec.needs(index))
    return total


def limits_of(cell: Cell, user: str, band: Band, wall: float) -> Resources | None:
    """Return what a user may ask for in a band; None where that is not limited."""
    return limits_in(cell.quotas, user, band, wall, required=cell.rules.quota_required)


def limits_in(
    quotas: Mapping[str, Quota], user: str, band: Band, wall: float, *, required: bool
) -> Resources | None:
    """Return what a user may ask for in a band by these quotas, which are ``required`` or not."""
    if band is Band.FREE:
        return None
    quota = quotas.get(quota_key(user, band))
    if quota is None:
        return Resources() if required else None
    return _in_force(quota, wall)


def has_ended(quota: Quota, wall: float) -> bool:
    """Return whether a quota is nothing by now."""
    return quota.until != 0 and quota.until <= wall


def check_within_cell(cell: Cell, quota: Quota, wall: float) -> None:
    """Raise Conflict when a quota of prod is raised, and with it all of them are more than the cell has."""
    if quota.band not in PROD:
        return
    before, total, has = Resources(), quota.limits, Resources()
    for other in cell.quotas.values():
        if other.key == quota.key:
            before = _in_force(other, wall)
        elif other.band in PROD:
            total = total.plus(_in_force(other, wall))
    for machine in cell.machines.values():
        has = has.plus(machine.capacity)
    too_much = list(_too_much(before, quota.limits, total, has))
    if too_much:
        raise Conflict(
            f"the quotas of production and monitoring would add up to {', and '.join(too_much)}",
            "give less, or lower another quota first; --beyond-cell sets it anyway",
        )


def show_moment(wall: float) -> str:
    """Write seconds since 1970 as people read them, to the minute: ``2026-12-31 18:00 UTC``."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _in_force(quota: Quota, wall: float) -> Resources:
    return Resources() if has_ended(quota, wall) else quota.limits


def _missing(
    band: Band, asked: Resources, used: Resources, limits: Resources, kinds: Container[Kind] | None = None
) -> Iterator[str]:
    """Yield what is missing, of these ``kinds``; None: of all that is asked for."""
    there, allowed = by_kind(used), by_kind(limits)
    where = f" in {band}"
    for kind, amount in by_kind(asked).items():
        limit, now = allowed.get(kind, 0), there.get(kind, 0)
        if amount and now + amount > limit and (kinds is None or kind in kinds):
            yield (
                f"{show_kind(kind, amount)}{where}; quota {show_number(kind, limit)}, "
                f"used {show_number(kind, now)}: {show_kind(kind, now + amount - limit)} missing"
            )
            where = ""


def _why_nothing(cell: Cell, user: str, band: Band, wall: float) -> str:
    quota = cell.quotas.get(quota_key(user, band))
    if quota is None:
        return f" ({user} has no quota in {band}, and this cell requires one)"
    return f" (the quota of {user} ended at {show_moment(quota.until)})" if has_ended(quota, wall) else ""


def _too_much(before: Resources, after: Resources, total: Resources, has: Resources) -> Iterator[str]:
    old, new, there = by_kind(before), by_kind(after), by_kind(has)
    for kind, amount in by_kind(total).items():
        over = amount - there.get(kind, 0)
        if over > 0 and new.get(kind, 0) > old.get(kind, 0):
            has_it = show_number(kind, there.get(kind, 0))
            yield f"{show_kind(kind, amount)}, where the cell has {has_it}: {show_kind(kind, over)} too much"


# Warnings


def unknown_attribute(attribute: str, known: Iterable[str]) -> str:
    """Return that no machine has an attribute, and which is meant, or which there are."""
    names = sorted(known)
    near = get_close_matches(attribute, names, 1)
    more = ", ..." * (len(names) > _ATTRIBUTES_SHOWN)
    there = f"there are {', '.join(names[:_ATTRIBUTES_SHOWN])}{more}" if names else "there are none at all"
    return f"no machine has the attribute '{attribute}'; {f'did you mean {near[0]}?' if near else there}"


def job_warnings(cell: Cell, spec: JobSpec) -> Iterator[str]:
    """Yield the warnings, a sentence without its full stop each."""
    if spec.constraints and (words := contradiction_words(spec.constraints)):
        yield words
    for term in (*spec.near, *spec.apart):
        if contradictory := contradiction(term.labels):
            yield f"no labels can match {' and '.join(map(str, contradictory))}"
    machines = cell.machines.values()
    for name in dict.fromkeys(_attributes_of(spec)):
        if machines and not any(name in machine.attributes for machine in machines):
            yield unknown_attribute(name, {each for machine in machines for each in machine.attributes})
    for key in missing_secrets(cell, spec):
        name = key.rpartition("/")[2]
        yield (
            f"there is no secret {key}, and its tasks wait for it: "
            f"`borgctl secret set {name} --user {spec.user}` makes it"
        )
    yield from out_of_reach(spec)
    for name, text in resource_typos(spec):
        if not any(name in machine.capacity.named for machine in machines):
            yield text


def _attributes_of(spec: JobSpec) -> Iterator[str]:
    """Yield the attributes that some machine should have for the job to mean what it says."""
    conditions: list[Constraint] = [*spec.constraints, *(each.when for each in spec.prefer)]
    yield from (each.attribute for each in conditions if each.op not in _MET_WITHOUT)
    terms: list[Affinity] = [*spec.near, *spec.apart]
    over = [*(each.over for each in spec.spread), *(each.over for each in terms)]
    yield from (name for name in over if name != MACHINE)
