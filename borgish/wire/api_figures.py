"""The words of ``/v1`` for many numbers at once, which are drawn: the machines of racks, usage over time. The
rest is in ``api``."""

import msgspec

from borgish.wire.api import AsOf


class RackView(msgspec.Struct, frozen=True):
    """The machines of one rack, by name: of each its state, as in ``MachineView``, or ``silent``, and how
    full it is, by what is committed of cpu or ram, whichever is more."""

    rack: str  # "": of those without this attribute
    machines: tuple[str, ...]
    states: tuple[str, ...]
    full_percent: tuple[int, ...]


class RackList(msgspec.Struct, frozen=True):
    items: tuple[RackView, ...]
    as_of: AsOf | None = None


class UsagePoint(msgspec.Struct, frozen=True):
    """What was used at some time, in all, by so many tasks."""

    at: str
    cpu_millis: int
    ram_bytes: int
    tasks: int


class UsageSeries(msgspec.Struct, frozen=True):
    """What was used over time, in order. ``sample_seconds`` lie between two samples; of many, a part is
    given, at even distances."""

    items: tuple[UsagePoint, ...]
    sample_seconds: float
