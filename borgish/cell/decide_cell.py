"""What is decided about the cell itself: who leads it, its rules, and who may ask for how much."""

import msgspec

from borgish.cell.commands import (
    BeginEpoch,
    Decision,
    FreezeCell,
    RemoveBudget,
    RemoveQuota,
    Seen,
    SetBudget,
    SetQuota,
    UnfreezeCell,
)
from borgish.cell.events import (
    AnyEvent,
    BudgetRemoved,
    BudgetSet,
    CellFrozen,
    CellUnfrozen,
    Elected,
    EntriesLost,
    QuotaRemoved,
    QuotaSet,
    RulesSet,
)
from borgish.cell.limits.admission import check_within_cell, has_ended, show_moment
from borgish.cell.limits.quotas import Quota, quota_key
from borgish.cell.model import Cell, Rules
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.errors import Invalid, NotFound, UnsafeConfiguration
from borgish.resources import by_kind, show_amounts
from borgish.vocabulary import Band, State

POSITIONS_MORE = 1_000_000
"""The lost history may have gone on for so long after the last attempt that a machine still knows of."""


def begin_epoch(cell: Cell, _o: Observed, command: BeginEpoch, _actor: str, _now: Now) -> Decision:
    """Begin a master's epoch. Raises UnsafeConfiguration."""
    lost = (entries_lost(cell, command.seen),) if command.seen is not None else ()
    timeline = lost[0].timeline if lost else cell.timeline
    elected = Elected(command.epoch, timeline, command.holder)
    events: tuple[AnyEvent, ...] = (*lost, elected, *decide_rules(cell, command.rules))
    return Decision(events, command.holder, f"{command.holder} leads epoch {command.epoch}")


def is_older(cell: Cell, seen: Seen) -> bool:
    """Return whether a machine has seen more than the cell's store has."""
    return (seen.timeline, seen.epoch) > (cell.timeline, cell.epoch) or seen.attempt > cell.position


def entries_lost(cell: Cell, seen: Seen) -> EntriesLost:
    """Return the first event of a master that takes over a store which has lost history, as one restored from
    a backup has."""
    # The journal goes on above all positions that the lost history may have had: the attempts it placed stay
    # unknown here, and are not taken for something else.
    last = max(cell.position, seen.attempt) + POSITIONS_MORE
    # Above every timeline that machines have obeyed, so that they obey again.
    timeline = max(cell.timeline, seen.timeline) + 1
    reason = seen.reason or "the store was older than what machines have seen"
    return EntriesLost(cell.position + 1, last, timeline, reason)


def decide_rules(cell: Cell, rules: Rules | None) -> tuple[RulesSet, ...]:
    """Return what follows when the configuration says so; None: it says nothing.

    Raises UnsafeConfiguration when a job that is not dead would come into another band: quotas, and what
    may be preempted for what, were decided by the band that it is in.
    """
    if rules is None or rules == cell.rules:
        return ()
    moved = [
        job
        for job in cell.jobs.values()
        if job.state is not State.DEAD
        and rules.bands.of(job.spec.priority) is not cell.rules.bands.of(job.spec.priority)
    ]
    if moved:
        before, first = cell.rules.bands, moved[0].spec
        more = f" (and {len(moved) - 1} more)" if len(moved) > 1 else ""
        raise UnsafeConfiguration(
            f"[bands] would move jobs that are not dead to another band: {first.key}, of priority "
            f"{first.priority}, from {before.of(first.priority)} to {rules.bands.of(first.priority)}{more}",
            f"end them first, or write monitoring = {before.monitoring}, production = {before.production}, "
            f"batch = {before.batch} as before",
        )
    return (RulesSet(rules),)


# Quotas


def set_quota(cell: Cell, _o: Observed, command: SetQuota, _actor: str, now: Now) -> Decision:
    """Set a quota, whether or not more is used already. Raises Invalid, and Conflict beyond the cell."""
    # As quotas are kept: sorted, and without what is nothing.
    named = {name: amount for name, amount in sorted(command.limits.named.items()) if amount}
    devices = {name: amount for name, amount in sorted(command.limits.devices.items()) if amount}
    limits = msgspec.structs.replace(command.limits, named=named, devices=devices)
    quota = Quota(command.user, command.band, limits, command.until)
    if quota.band is Band.FREE:
        raise Invalid("the free band is not limited", "nobody needs a quota there")
    if has_ended(quota, now.wall):
        raise Invalid(
            f"until: {show_moment(quota.until)} is in the past", "name a later moment, or leave it out"
        )
    if not command.beyond_cell:
        check_within_cell(cell, quota, now.wall)
    there = cell.quotas.get(quota.key)
    events = () if there is not None and there.terms == quota.terms else (QuotaSet(quota),)
    until = f" until {show_moment(quota.until)}" if quota.until else ""
    text = f"{quota.user} may ask for {show_amounts(limits)} in {quota.band}{until}"
    used, allowed = cell.demand.of(quota.key), by_kind(limits)
    if any(amount > allowed.get(kind, 0) for kind, amount in by_kind(used).items()):
        text = (
            f"{text}; {show_amounts(used)} are asked for already: that goes on, and nothing more is admitted"
        )
    return Decision(events, quota.key, text)


def remove_quota(cell: Cell, _o: Observed, command: RemoveQuota, _actor: str, _now: Now) -> Decision:
    """Remove a quota. Raises NotFound."""
    key = quota_key(command.user, command.band)
    if key not in cell.quotas:
        theirs = ", ".join(it.band for it in cell.quotas.values() if it.user == command.user)
        raise NotFound(
            f"{command.user} has no quota in {command.band}",
            f"there is one in {theirs}" if theirs else "`borgctl quota list` shows those there are",
        )
    then = "may ask for nothing more" if cell.rules.quota_required else "is not limited any more"
    text = f"{command.user} has no quota in {command.band}, and {then} there"
    return Decision((QuotaRemoved(key),), key, text)


# Disruptions


def set_budget(cell: Cell, _o: Observed, command: SetBudget, _actor: str, _now: Now) -> Decision:
    """Set a budget across jobs. Raises Invalid for one about every job there is."""
    budget = command.budget
    if not budget.where:
        raise Invalid(
            f"the budget {budget.name} selects no labels, and so all jobs of the cell",
            "say which jobs it is about, like --where 'app == web'",
        )
    jobs = sum(budget.chooses(job.spec) for job in cell.jobs.values())
    there = cell.budgets.get(budget.name)
    events = () if there is not None and there.terms == budget.terms else (BudgetSet(budget),)
    text = f"at most {budget.max_unavailable} of the tasks of {budget.selector} may be down on purpose"
    notes = () if jobs else (f"no job has such labels now; {budget.name} holds for those that come",)
    return Decision(events, budget.name, text, notes)


def remove_budget(cell: Cell, _o: Observed, command: RemoveBudget, _actor: str, _now: Now) -> Decision:
    """Remove a budget across jobs. Raises NotFound."""
    if command.budget not in cell.budgets:
        raise NotFound(f"there is no budget {command.budget}", "`borgctl budget list` shows those there are")
    text = f"there is no budget {command.budget} any more; those of the jobs themselves hold on"
    return Decision((BudgetRemoved(command.budget),), command.budget, text)


PASSES_FREEZE = "preemption by production goes on, and so does what a program or a machine does by itself"


def freeze(cell: Cell, _o: Observed, command: FreezeCell, _actor: str, _now: Now) -> Decision:
    """Let nothing be taken down on purpose. Once more changes the reason."""
    if cell.freeze is not None and command.reason in ("", cell.freeze.reason):
        return Decision((), cell.name, f"{cell.name} is {cell.freeze}")
    text = f"{cell.name} is frozen: nothing is taken down on purpose until `borgctl unfreeze`"
    return Decision((CellFrozen(command.reason),), cell.name, text, (PASSES_FREEZE,))


def unfreeze(cell: Cell, _o: Observed, _command: UnfreezeCell, _actor: str, _now: Now) -> Decision:
    """Let tasks be taken down on purpose again, within the budgets."""
    if cell.freeze is None:
        return Decision((), cell.name, f"{cell.name} is not frozen")
    return Decision((CellUnfrozen(),), cell.name, f"{cell.name} is not frozen any more")
