"""A copy of all rows, for a pass that must leave no trace in the rows that are kept."""

from borgish.scheduler.arrays import copied
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.ports import PortRange


def copy_of(fleet: Fleet) -> Fleet:
    """Return the same rows, to be changed apart from these."""
    other = copied(fleet)
    taken = [set(ports.taken) for ports in fleet.ports]
    other.ports = [
        PortRange(ports.low, ports.high, ports.following, those)
        for ports, those in zip(fleet.ports, taken, strict=True)
    ]
    other.fixed_ports = fleet.fixed_ports.copy(taken)
    other.jobs = [dict(jobs) for jobs in fleet.jobs]
    other.kinds, other.attributes = copied(fleet.kinds), fleet.attributes.copy()
    other.marks, other.topology = fleet.marks.copy(), fleet.topology.copy()
    other.devices = {name: devices.copy() for name, devices in fleet.devices.items()}
    other.held = {priority: held.copy() for priority, held in fleet.held.items()}
    return other
