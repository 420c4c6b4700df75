"""What differs between two jobs, in words: ``tasks: 3 -> 5``."""

import json
from typing import Any

import msgspec

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.resources import show_bytes, show_cpu, show_seconds
from borgish.spec.file.mistakes import safe
from borgish.spec.job import Constraint, JobSpec
from borgish.spec.shares import Rate, Share

_SHOWN_MAX = 60
_ABSENT = object()
_HIDDEN_FIELD = "env"  # values of variables are often secrets, and differences end up in messages and logs


def differences(old: JobSpec, new: JobSpec, bands: Bands = DEFAULT_BANDS) -> tuple[str, ...]:
    """Return one line for each thing that differs, in the order of the spec; empty when nothing does.

    ``bands`` are the cell's, by which priorities are shown.
    """
    before, after = _flat(old), _flat(new)
    paths = [*before, *(path for path in after if path not in before)]
    return tuple(
        _line(path, before.get(path, _ABSENT), after.get(path, _ABSENT), bands)
        for path in paths
        if before.get(path, _ABSENT) != after.get(path, _ABSENT)
    )


def _line(path: str, old: Any, new: Any, bands: Bands) -> str:
    word = "added" if old is _ABSENT else "removed" if new is _ABSENT else "changed"
    path = safe(path)
    if _HIDDEN_FIELD in path.split("."):
        return f"{path}: {word}"
    shown_old, shown_new = _show(path, old, bands), _show(path, new, bands)
    if shown_old == shown_new:  # amounts are rounded for people
        shown_old, shown_new = _plain(old), _plain(new)
    if word == "changed":
        return f"{path}: {shown_old} -> {shown_new}"
    return f"{path}: {word} {shown_new if old is _ABSENT else shown_old}"


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return the leaves of a spec by path, named as in a job file: ``resources.cpu``."""
    if isinstance(value, msgspec.Struct) and not isinstance(value, Constraint | Share | Rate):
        value = {_field(name): getattr(value, name) for name in value.__struct_fields__}
        if path.endswith("resources"):
            value |= value.pop("named")
    if not isinstance(value, dict):
        return {} if value is None else {path: value}
    leaves: dict[str, Any] = {}
    for key, child in value.items():
        leaves |= _flat(child, f"{path}.{key}" if path else str(key))
    return leaves


def _field(name: str) -> str:
    for unit in ("_seconds", "_bytes", "_millis"):
        name = name.removesuffix(unit)
    return name


def _show(path: str, value: Any, bands: Bands) -> str:
    name = path.rpartition(".")[2]
    if value in (_ABSENT, ""):
        return "nothing"
    if path == "priority":
        return f"{value} ({bands.of(value)})"
    if name == "cpu":
        return show_cpu(value)
    if name in ("ram", "disk") and isinstance(value, int):
        return show_bytes(value)
    if isinstance(value, float):
        return show_seconds(value) if value else "0"
    return _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, tuple):
        text = json.dumps([str(item) for item in value], ensure_ascii=False)
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    text = safe(text)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"
