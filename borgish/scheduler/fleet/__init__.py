"""The machines of a cell as a structure of arrays: what they have, what is free, who is there."""

from borgish.scheduler.fleet.alloc_fleet import AllocFleet
from borgish.scheduler.fleet.devices import ABSENT
from borgish.scheduler.fleet.facts import RUNTIME_BIT
from borgish.scheduler.fleet.fleet import Fleet, device_kind, level_of
from borgish.scheduler.fleet.usage import (
    BAND_INDEX,
    CPU,
    DEVICE_PREFIX,
    DISK,
    KINDS,
    PORTS,
    RAM,
    Amounts,
    count_devices,
)

__all__ = [
    "ABSENT",
    "BAND_INDEX",
    "CPU",
    "DEVICE_PREFIX",
    "DISK",
    "KINDS",
    "PORTS",
    "RAM",
    "RUNTIME_BIT",
    "AllocFleet",
    "Amounts",
    "Fleet",
    "count_devices",
    "device_kind",
    "level_of",
]
