"""What happens to machines, carried out: the part of ``apply`` that is about their own records."""

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from borgish.cell.access.events import MachineRevoked
from borgish.cell.access.secrets import note_revoked
from borgish.cell.events import (
    AnyEvent,
    Entry,
    MachineCordoned,
    MachineDown,
    MachineDrained,
    MachineFacts,
    MachineJoined,
    MachineLost,
    MachineQuarantined,
    MachineReleased,
    MachineRemoved,
    MachineTainted,
    MachineUncordoned,
    MachineUp,
)
from borgish.cell.lifecycle import drop_promises
from borgish.cell.machines.flapping import downs_with
from borgish.cell.model import LOSSES_KEPT_SECONDS, Cell, Flaps, Machine
from borgish.cell.moves import Moves


def _machine_joined(cell: Cell, event: MachineJoined, entry: Entry) -> None:
    # A copy: the entry is history and must not change when the machine does.
    machine = copy.copy(event.machine)
    there = cell.machines.get(machine.name)
    machine.generation = there.generation if there is not None else entry.position
    if event.admitted:
        machine.admission = entry.position
    cell.machines[machine.name] = machine
    cell.placed.setdefault(event.machine.name, set())
    cell.moves.setdefault(event.machine.name, Moves())
    cell.touched.machines.add(event.machine.name)


def _machine_facts(cell: Cell, event: MachineFacts, _entry: Entry) -> None:
    machine = _machine(cell, event.machine)
    machine.capacity, machine.attributes = event.capacity, event.attributes
    machine.runtimes, machine.boot_id = event.runtimes, event.boot_id


def _machine_down(cell: Cell, event: MachineDown, _entry: Entry) -> None:
    machine = _machine(cell, event.machine)
    machine.up, machine.reason = False, event.reason
    if event.at:
        machine.flaps = msgspec.structs.replace(machine.flaps, downs=downs_with(machine.flaps, event.at))


def _machine_quarantined(cell: Cell, event: MachineQuarantined, _entry: Entry) -> None:
    machine = _machine(cell, event.machine)
    machine.quarantined_until = event.until
    machine.flaps = Flaps((), event.times, event.until)


def _machine_released(cell: Cell, event: MachineReleased, _entry: Entry) -> None:
    _machine(cell, event.machine).quarantined_until = 0.0


def _machine_lost(cell: Cell, event: MachineLost, _entry: Entry) -> None:
    # Those of a clock that was set since are dropped on either side.
    kept = (at for at in cell.losses if abs(event.at - at) < LOSSES_KEPT_SECONDS)
    cell.losses = (*kept, event.at)


def _machine_revoked(cell: Cell, event: MachineRevoked, _entry: Entry) -> None:
    machine = _machine(cell, event.machine)
    machine.up, machine.revoked_at, machine.reason = False, event.at, "it was revoked"
    note_revoked(cell, event.machine)


def _machine_up(cell: Cell, event: MachineUp, _entry: Entry) -> None:
    machine = _machine(cell, event.machine)
    machine.up, machine.reason = True, ""


def _machine_cordoned(cell: Cell, event: MachineCordoned, _entry: Entry) -> None:
    machine = _machine(cell, event.machine)
    machine.cordoned, machine.reason = True, event.reason or machine.reason


def _machine_uncordoned(cell: Cell, event: MachineUncordoned, _entry: Entry) -> None:
    machine = _machine(cell, event.machine)
    machine.cordoned, machine.quarantined_until, machine.flaps = False, 0.0, Flaps()
    machine.reason = "" if machine.up else machine.reason


def _machine_tainted(cell: Cell, event: MachineTainted, _entry: Entry) -> None:
    _machine(cell, event.machine).taints = event.taints


def _machine_drained(cell: Cell, event: MachineDrained, _entry: Entry) -> None:
    _machine(cell, event.machine).drains = event.drains


def _machine_removed(cell: Cell, event: MachineRemoved, _entry: Entry) -> None:
    del cell.machines[event.machine]
    del cell.placed[event.machine], cell.moves[event.machine]
    for job, index in sorted(cell.promised.get(event.machine, ())):
        drop_promises(cell, cell.jobs[job], (index,))
    cell.touched.machines.discard(event.machine)
    cell.touched.machines_gone.add(event.machine)


def _machine(cell: Cell, name: str) -> Machine:
    cell.touched.machines.add(name)
    return cell.machines[name]


APPLY: dict[type[AnyEvent], Callable[[Cell, Any, Entry], None]] = {
    MachineJoined: _machine_joined,
    MachineFacts: _machine_facts,
    MachineDown: _machine_down,
    MachineQuarantined: _machine_quarantined,
    MachineReleased: _machine_released,
    MachineLost: _machine_lost,
    MachineRevoked: _machine_revoked,
    MachineUp: _machine_up,
    MachineCordoned: _machine_cordoned,
    MachineUncordoned: _machine_uncordoned,
    MachineTainted: _machine_tainted,
    MachineDrained: _machine_drained,
    MachineRemoved: _machine_removed,
}
