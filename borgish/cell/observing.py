"""Records in ``observed`` what machines report. Called by the master's step only, after ``decide``."""

from collections.abc import Iterable, Mapping

import msgspec

from borgish.cell.commands import Observe
from borgish.cell.observed import Miss, Observed, SeenMachine
from borgish.cell.state import Cell
from borgish.clock import Now

PORT_REST_SECONDS = 600.0
"""A port that a foreign program holds is not given out again for so long."""

ORPHAN_SECONDS = 600.0
"""An attempt that the store does not know is stopped only when it was seen for so long."""


def watch(observed: Observed, machines: Iterable[str], now: Now) -> None:
    """Judge the silence of machines from now on; what was not asked before cannot have kept silent."""
    for name in machines:
        observed.machines.setdefault(name, SeenMachine()).watched_since = now.mono


def mark_returned(observed: Observed, machines: Iterable[str], now: Now) -> None:
    """Note that machines that were down are up again, and watch them from now on."""
    for name in machines:
        watch(observed, (name,), now)
        observed.machines[name].returned = now.mono


def forget_machine(observed: Observed, machine: str) -> None:
    """Let go of what was seen of a machine that is no longer in the cell."""
    observed.machines.pop(machine, None)


def record_answers(observed: Observed, heard: Mapping[str, float]) -> set[str]:
    """Note when machines last gave a valid answer (master's monotonic clock); return those that had not
    been answering."""
    back = set()
    for name, mono in heard.items():
        seen = observed.machines.get(name)
        if seen is not None:
            if not seen.is_answering:
                back.add(name)
            seen.first_heard = seen.first_heard or mono
            seen.heard = max(seen.heard, mono)
            seen.trouble, seen.misses = "", 0
    return back


def record_misses(observed: Observed, missed: Mapping[str, Miss]) -> set[str]:
    """Note that polls of machines got no valid answer; return those that are not answering from now on."""
    silent = set()
    for name, found in missed.items():
        seen = observed.machines.get(name)
        if seen is not None:
            was_answering = seen.is_answering
            seen.trouble = found.trouble
            seen.misses += found.polls
            seen.refused = max(seen.refused, found.refused)
            if was_answering and not seen.is_answering:
                silent.add(name)
    return silent


def record_usage(observed: Observed, machine: str, usage: Mapping[tuple[str, int], tuple[int, int]]) -> None:
    """Take in the latest samples of one machine."""
    seen = observed.machines.get(machine)
    if seen is not None:
        seen.usage = dict(usage)


def record_report(cell: Cell, observed: Observed, report: Observe, now: Now) -> None:
    """Record what differs on one machine from what it reported before."""
    seen = observed.machines.setdefault(report.machine, SeenMachine(watched_since=now.mono))
    seen.boot_id, seen.instance, seen.generation = report.boot_id, report.instance, report.generation
    seen.conditions, seen.unhealthy_runtimes = report.conditions, report.unhealthy_runtimes
    before = seen.attempts
    if report.whole:
        seen.attempts = {}
    if report.images is not None:
        seen.images = report.images
    seen.ports_blocked = {port: until for port, until in seen.ports_blocked.items() if until > now.mono}
    for attempt in report.changed:
        key = attempt.task, attempt.attempt
        then = before.get(key)
        # A restart that nobody saw is a break of its phase, too.
        is_same = then is not None and (then.phase, then.restarts) == (attempt.phase, attempt.restarts)
        since = then.since if then is not None and is_same else now.mono
        seen.attempts[key] = msgspec.structs.replace(attempt, since=since)
        if attempt.port_in_use:
            seen.ports_blocked[attempt.port_in_use] = now.mono + PORT_REST_SECONDS
    for key in report.gone:
        seen.attempts.pop(key, None)
    # An attempt that this cell does not know was placed by a history that its store has not. It stays an
    # orphan when the journal grows past that id: what this store wrote there is something else.
    unknown = {key for key in seen.attempts if key in seen.orphans or cell.is_unknown(key[1])}
    seen.orphans = {key: seen.orphans.get(key, now.mono) for key in sorted(unknown)}
