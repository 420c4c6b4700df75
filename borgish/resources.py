"""Amounts of what a machine has and a task needs, and how people write them.

Inside borgish every amount is a whole number in the unit its name carries: ``cpu_millis``
(thousandths of a hyperthread), ``ram_bytes``, ``disk_bytes``, devices in thousandths of one, and
named resources in their own units. Text becomes amounts here and nowhere else.
"""

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

CPU_MILLIS_MAX = 1_000_000
RAM_BYTES_MIN = 4 * 1024**2
RAM_BYTES_MAX = 16 * 1024**4
DISK_BYTES_MAX = 1024**5
NAMED_MAX = 1_000_000_000
DEVICE_MILLIS = 1000
"""One whole device: an accelerator, say."""

DEVICES_MAX = 64
"""Devices of one kind on a machine."""

QUOTA_MAX = 2**53 - 1
"""The most of anything in a quota: what every reader of JSON takes."""

_BYTE_UNITS = {
    "": 1,
    "B": 1,
    **{u: 1000**i for i, u in enumerate(("kB", "MB", "GB", "TB"), 1)},
    **{u: 1024**i for i, u in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)},
    **{u: 1024**i for i, u in enumerate(("Ki", "Mi", "Gi", "Ti"), 1)},
}
_SECOND_UNITS = {
    u: Decimal(n) for u, n in (("ms", "0.001"), ("s", "1"), ("m", "60"), ("h", "3600"), ("d", "86400"))
}
_AMOUNT = re.compile(r"(\d{1,20}(?:\.\d{1,9})?)\s?([A-Za-z]{0,20})", re.ASCII)


Amounts = dict[str, int | dict[str, int]]
"""Some amounts, by attribute of ``Resources``: those that a file gives."""


class Resources(msgspec.Struct, frozen=True, gc=False):
    """A vector of amounts. All are >= 0.

    ``devices`` are thousandths by kind: a machine has a multiple of 1000; a task asks for less than
    1000 (a part of one device) or for a multiple of it (so many whole ones).
    """

    cpu_millis: int = 0
    ram_bytes: int = 0
    disk_bytes: int = 0
    named: dict[str, int] = {}
    devices: dict[str, int] = {}

    def plus(self, other: "Resources", times: int = 1) -> "Resources":
        """Return this and ``times`` the other, added by kind; amounts stay >= 0."""
        return Resources(
            max(0, self.cpu_millis + times * other.cpu_millis),
            max(0, self.ram_bytes + times * other.ram_bytes),
            max(0, self.disk_bytes + times * other.disk_bytes),
            _sum(self.named, other.named, times),
            _sum(self.devices, other.devices, times),
        )

    def overridden(self, given: "Amounts") -> "Resources":
        """Return this with the amounts that are given."""
        parts: dict[str, Any] = dict(given)
        for part, ours in (("named", self.named), ("devices", self.devices)):
            parts[part] = dict(sorted({**ours, **parts.get(part, {})}.items()))
        return msgspec.structs.replace(self, **parts)

    def within(self, other: "Resources") -> bool:
        """Return whether this is no more than the other, in any kind."""
        return (
            self.cpu_millis <= other.cpu_millis
            and self.ram_bytes <= other.ram_bytes
            and self.disk_bytes <= other.disk_bytes
            and all(amount <= other.named.get(name, 0) for name, amount in self.named.items())
            and all(millis <= other.devices.get(kind, 0) for kind, millis in self.devices.items())
        )


def _sum(ours: dict[str, int], theirs: dict[str, int], times: int) -> dict[str, int]:
    if not ours and not theirs:
        return {}
    names = sorted(ours.keys() | theirs.keys())
    return {name: max(0, ours.get(name, 0) + times * theirs.get(name, 0)) for name in names}


def _split(text: str) -> tuple[Decimal, str]:
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError("is not a number with a unit")
    try:
        return Decimal(match[1]), match[2]
    except InvalidOperation:  # pragma: no cover - the pattern admits only digits
        raise ValueError("is not a number") from None


def parse_cpu_millis(text: str) -> int:
    """Read ``500m``, ``0.5`` or ``2`` as thousandths of a core. Raises ValueError with the reason."""
    number, unit = _split(text)
    if unit not in ("", "m"):
        raise ValueError(f"has the unit '{unit}'; cpu is written like 500m or 0.5")
    millis = number if unit == "m" else number * 1000
    if millis != int(millis):
        raise ValueError("is finer than a thousandth of a core")
    if not 1 <= millis <= CPU_MILLIS_MAX:
        raise ValueError(f"is outside 1m to {CPU_MILLIS_MAX // 1000} cores")
    return int(millis)


def parse_bytes(text: str, low: int = 0, high: int = DISK_BYTES_MAX) -> int:
    """Read ``256MiB``, ``1GB`` or ``4096`` as bytes. Raises ValueError with the reason."""
    number, unit = _split(text)
    if unit not in _BYTE_UNITS:
        raise ValueError(f"has the unit '{unit}'; write it like 256MiB or 1GiB")
    amount = number * _BYTE_UNITS[unit]
    if amount != int(amount):
        raise ValueError("is not a whole number of bytes")
    if not low <= amount <= high:
        raise ValueError(f"is outside {show_bytes(low)} to {show_bytes(high)}")
    return int(amount)


def parse_seconds(text: str, low: float = 0, high: float = 366 * 86400) -> float:
    """Read ``250ms``, ``10s``, ``5m``, ``2h`` or ``1d`` as seconds. Raises ValueError with the reason."""
    number, unit = _split(text)
    if unit not in _SECOND_UNITS:
        raise ValueError("needs a unit: write it like 500ms, 10s, 5m or 2h")
    seconds = float(number * _SECOND_UNITS[unit])
    if not low <= seconds <= high:
        raise ValueError(f"is outside {show_seconds(low)} to {show_seconds(high)}")
    return seconds


def parse_device_millis(text: str) -> int:
    """Read ``0.5`` or ``500m`` (a part of one device) or ``2`` (whole ones) as thousandths of one.

    Raises ValueError with the reason.
    """
    number, unit = _split(text)
    if unit not in ("", "m"):
        raise ValueError(f"has the unit '{unit}'; devices are written like 2, 0.5 or 500m")
    millis = number if unit == "m" else number * DEVICE_MILLIS
    if millis != int(millis):
        raise ValueError("is finer than a thousandth of a device")
    if not 1 <= millis <= DEVICES_MAX * DEVICE_MILLIS:
        raise ValueError(f"is outside 1m to {DEVICES_MAX} devices")
    if millis > DEVICE_MILLIS and millis % DEVICE_MILLIS:
        raise ValueError("is neither a part of one device nor a number of whole ones")
    return int(millis)


def parse_quota_millis(text: str) -> int:
    """Read ``20``, ``0.5`` or ``500m`` of a user's quota, of cpu or of a device, as thousandths.

    Raises ValueError with the reason.
    """
    number, unit = _split(text)
    if unit not in ("", "m"):
        raise ValueError(f"has the unit '{unit}'; write it like 20, 0.5 or 500m")
    millis = number if unit == "m" else number * 1000
    if millis != int(millis):
        raise ValueError("is finer than a thousandth")
    if millis > QUOTA_MAX:
        raise ValueError(f"is more than {QUOTA_MAX // 1000}")
    return int(millis)


def show_devices(millis: int) -> str:
    """Write thousandths of a device as people read them: ``500m``, ``2``."""
    return str(millis // DEVICE_MILLIS) if millis % DEVICE_MILLIS == 0 else f"{millis}m"


def show_cpu(millis: int) -> str:
    """Write thousandths of a core as people read them: ``250m``, ``1.5``, ``16``."""
    if 0 < millis < 1000:
        return f"{millis}m"
    return f"{millis / 1000:.4g}" if millis < 10_000_000 else str(millis // 1000)


def show_bytes(amount: int) -> str:
    """Write bytes as people read them: ``256MiB``, ``1.5GiB``."""
    size = float(amount)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g}{unit}" if size < 999.5 else f"{size:.0f}{unit}"
        size /= 1024
    return f"{size:.4g}TiB"


def show_amounts(amounts: Resources) -> str:
    """Write a whole vector as people read it, without what is nothing: ``2 cpu, 4GiB ram, 1 gpu``."""
    parts = [
        f"{show_cpu(amounts.cpu_millis)} cpu" * bool(amounts.cpu_millis),
        f"{show_bytes(amounts.ram_bytes)} ram" * bool(amounts.ram_bytes),
        f"{show_bytes(amounts.disk_bytes)} disk" * bool(amounts.disk_bytes),
        *(f"{show_devices(millis)} {name}" for name, millis in amounts.devices.items() if millis),
        *(f"{amount} {name}" for name, amount in amounts.named.items() if amount),
    ]
    return ", ".join(filter(None, parts)) or "nothing"


Kind = tuple[str, str]
"""One kind of resource: what it is, and the name of a device or a named resource."""

_SHOWN: dict[str, Callable[[int], str]] = {
    "cpu": show_cpu,
    "ram": show_bytes,
    "disk": show_bytes,
    "device": show_devices,
    "named": str,
}


def by_kind(amounts: Resources) -> dict[Kind, int]:
    """Return a vector as amounts by kind: cpu, ram and disk always, of the others those that it names."""
    return {
        ("cpu", ""): amounts.cpu_millis,
        ("ram", ""): amounts.ram_bytes,
        ("disk", ""): amounts.disk_bytes,
        **{("device", name): millis for name, millis in amounts.devices.items()},
        **{("named", name): amount for name, amount in amounts.named.items()},
    }


def show_number(kind: Kind, amount: int) -> str:
    """Write an amount of one kind without its name: ``12``, ``64GiB``."""
    return _SHOWN[kind[0]](amount)


def show_kind(kind: Kind, amount: int) -> str:
    """Write an amount of one kind as people read it: ``12 cpu``, ``64GiB ram``, ``2 gpu``."""
    return f"{show_number(kind, amount)} {kind[1] or kind[0]}"


def show_seconds(seconds: float) -> str:
    """Write a duration as people read it: ``250ms``, ``12s``, ``5m``, ``3h``, ``2d``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    for limit, unit, size in ((120, "s", 1), (7200, "m", 60), (172_800, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.3g}{unit}"
    return f"{seconds / 86400:.3g}d"
