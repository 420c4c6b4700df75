"""What is decided about machines that are to be empty: drains that people ask for, and maintenance windows.

Each is kept for itself, so that the end of a window does not undo what a person wants. A machine is drained
while any of them has begun; who leaves it then, and when, is ``cell.drains``.
"""

from collections.abc import Iterable

from borgish.cell.commands import (
    CancelMaintenance,
    Decision,
    DrainMachines,
    MaintainMachines,
    TurnWindows,
    UndrainMachines,
)
from borgish.cell.events import MachineDrained
from borgish.cell.limits.admission import show_moment
from borgish.cell.limits.affected import check_affected
from borgish.cell.lookup import find_machine
from borgish.cell.machines.drains import turned
from borgish.cell.model import Cell, Drain, Machine, Window, task_count
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.errors import Conflict, Invalid
from borgish.spec.constraints import EXAMPLES, matches, parse_constraint
from borgish.spec.job import MACHINE

WINDOWS_MAX = 20
"""Of one machine."""
NAMED_MAX = 5


def drain(cell: Cell, _o: Observed, command: DrainMachines, actor: str, now: Now) -> Decision:
    """Let machines be empty. Raises Invalid, NotFound, and Conflict where force would stop too much."""
    machines = _chosen(cell, command.machines, command.where)
    fresh = Drain(actor, now.wall, now.wall + command.deadline_seconds, command.reason, command.force)
    changed = {
        machine.name: (fresh, *_windows(machine)) for machine in machines if not _is_so(machine, fresh)
    }
    running = sum(len(cell.placed[name]) for name in changed)
    if command.force and running:
        check_affected(cell, running, command.max_affected or 0)  # what no budget holds is never unasked
    left = f"{task_count(running)} to leave" if running else "nothing runs there"
    return _decision(machines, changed, command.where, f"drained: {left}", "drained already")


def undrain(cell: Cell, _o: Observed, command: UndrainMachines, _actor: str, _now: Now) -> Decision:
    """Take people's drains back. Raises Invalid and NotFound."""
    machines = _chosen(cell, command.machines, command.where)
    changed = {machine.name: _windows(machine) for machine in machines if _windows(machine) != machine.drains}
    held = [m.name for m in machines if m.cordoned or any(each.begun for each in _windows(m))]
    still = f"; cordoned or in maintenance still: {_named(held)}" if held else ""
    return _decision(machines, changed, command.where, f"drained no more{still}", f"not drained{still}")


def maintain(cell: Cell, _o: Observed, command: MaintainMachines, actor: str, now: Now) -> Decision:
    """Plan a window of maintenance. Raises Invalid, NotFound, and Conflict for too many windows."""
    if command.ends <= now.wall or command.ends <= command.begins:
        raise Invalid(
            f"the window ends at {show_moment(command.ends)}, which is over or before it begins",
            "name a later time, or a longer one",
        )
    machines = _chosen(cell, command.machines, command.where)
    drains_from = command.begins - command.lead_seconds
    window = Window(command.begins, command.ends, drains_from)
    begun = drains_from <= now.wall
    fresh = Drain(actor, now.wall, command.begins, command.reason, window=window, begun=begun)
    changed = {machine.name: _with(machine, fresh) for machine in machines if not _is_so(machine, fresh)}
    many = [name for name, drains in changed.items() if len(drains) > WINDOWS_MAX]
    if many:
        raise Conflict(
            f"{many[0]} has {WINDOWS_MAX} maintenance windows already",
            f"cancel them with `borgctl machine maintain {many[0]} --cancel`, or wait until one is over",
        )
    when = "now" if begun else f"from {show_moment(drains_from)}"
    done = f"in maintenance {show_moment(window.begins)} to {show_moment(window.ends)}, drained {when}"
    return _decision(machines, changed, command.where, done, "to be in maintenance then already")


def cancel(cell: Cell, _o: Observed, command: CancelMaintenance, _actor: str, _now: Now) -> Decision:
    """Take the windows of machines back. Raises Invalid and NotFound."""
    machines = _chosen(cell, command.machines, command.where)
    changed = {machine.name: _people(machine) for machine in machines if _windows(machine)}
    return _decision(machines, changed, command.where, "in no maintenance any more", "in no maintenance")


def turn(cell: Cell, _o: Observed, command: TurnWindows, _actor: str, now: Now) -> Decision:
    """Begin the windows whose time has come, and end those that are over."""
    machines = [cell.machines[name] for name in command.machines if name in cell.machines]
    changed = {
        machine.name: drains for machine in machines if (drains := turned(machine, now)) != machine.drains
    }
    return _decision(machines, changed, "", "drained as their maintenance windows say", "as planned")


# Which machines


def _chosen(cell: Cell, names: tuple[str, ...], where: str) -> list[Machine]:
    """Return the machines that are meant, in order. Raises Invalid and NotFound."""
    if bool(names) is bool(where):
        raise Invalid(
            "machines are either named or chosen by a condition",
            "name them, like m3, or write --where with a condition, like rack == r2",
        )
    if not where:
        return [find_machine(cell, name) for name in sorted(set(names))]
    try:
        condition = parse_constraint(where)
    except ValueError as error:
        raise Invalid(f"'{where}' {error}", f"write it like {EXAMPLES}") from None
    return [
        machine
        for _, machine in sorted(cell.machines.items())
        if matches(condition, machine.attributes | {MACHINE: machine.name})
    ]


# What they have


def _is_so(machine: Machine, fresh: Drain) -> bool:
    """Return whether the same was asked for before: how long it is until the deadline counts from then."""
    return any(
        (each.window, each.reason, each.force) == (fresh.window, fresh.reason, fresh.force)
        and (each.window is not None or each.deadline - each.at == fresh.deadline - fresh.at)
        for each in machine.drains
    )


def _with(machine: Machine, fresh: Drain) -> tuple[Drain, ...]:
    windows = [each for each in _windows(machine) if each.window != fresh.window]
    return (*_people(machine), *sorted([*windows, fresh], key=_window_of))


def _window_of(drain: Drain) -> Window:
    assert drain.window is not None, "a person's drain has no window"
    return drain.window


def _people(machine: Machine) -> tuple[Drain, ...]:
    return tuple(each for each in machine.drains if each.window is None)


def _windows(machine: Machine) -> tuple[Drain, ...]:
    return tuple(each for each in machine.drains if each.window is not None)


# What is answered


def _decision(
    machines: list[Machine], changed: dict[str, tuple[Drain, ...]], where: str, done: str, so_already: str
) -> Decision:
    """Return what follows. It is about one machine, about several, or, where none is meant, about none."""
    events = tuple(MachineDrained(name, drains) for name, drains in sorted(changed.items()))
    if not machines:
        return Decision((), "", f"0 machines matched {where}, nothing done")
    names = sorted(changed) or [machine.name for machine in machines]
    subject = machines[0].name if len(machines) == 1 else f"{len(machines)} machines"
    verb = "is" if len(names) == 1 else "are"
    return Decision(events, subject, f"{_named(names)} {verb} {done if changed else so_already}")


def _named(names: Iterable[str]) -> str:
    first = [*names]
    more = f" and {len(first) - NAMED_MAX} more" if len(first) > NAMED_MAX else ""
    return f"{', '.join(first[:NAMED_MAX])}{more}"
