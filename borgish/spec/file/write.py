"""A ``JobSpec`` becomes the text of a job file again, for people to read and change: ``read`` makes that very
job of it. Only what is not as it would be anyway is written, in the order of ``fields``.
"""

from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any

import msgspec
import yaml

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.resources import DEVICE_MILLIS, Resources
from borgish.spec.app import AppSpec
from borgish.spec.file.fields import APP_KIND, JOB_FIELDS
from borgish.spec.file.read import DEFAULT_RESOURCES
from borgish.spec.job import Constraint, ExitCodes, JobSpec, Mount, Program, Restart
from borgish.spec.shares import Rate, Share
from borgish.vocabulary import Appclass, RestartPolicy, Runtime

_ALWAYS = ("name", "user", "tasks")
_LINE_CHARACTERS_MAX = 100
_IN_QUOTES = "\x85\u2028\u2029"  # they end lines for YAML 1.1, and a job file may have them as escapes only


def write_job(spec: JobSpec, bands: Bands = DEFAULT_BANDS) -> str:
    """Return a job as YAML; ``bands`` are the cell's."""
    return write_file(job_file(spec, bands))


def write_app(spec: AppSpec) -> str:
    """Return the document of an application as YAML."""
    return write_file(app_file(spec))


def write_file(file: Mapping[str, Any]) -> str:
    """Return a document as YAML."""
    text = yaml.dump(file, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf"))
    return str(text)


def app_file(spec: AppSpec) -> dict[str, Any]:
    """Return what the document of an application says, as plain data."""
    return {"kind": APP_KIND, **{name: value for name, value in msgspec.to_builtins(spec).items() if value}}


def job_file(spec: JobSpec, bands: Bands = DEFAULT_BANDS) -> dict[str, Any]:
    """Return what a job file says, as plain data."""
    defaults = _defaults(spec)
    file: dict[str, Any] = {}
    for field in JOB_FIELDS:
        value = getattr(spec, field.attribute)
        if field.name in _ALWAYS or value != defaults[field.attribute]:
            file[field.name] = _of_job(spec, field.name, value, bands)
    if ports := [name for name in spec.ports if name not in spec.fixed_ports]:
        file["ports"] = ports
    else:
        file.pop("ports", None)
    return file


def _defaults(spec: JobSpec) -> dict[str, Any]:
    """Return what each attribute would be if it were not given."""
    found = {field.name: field.default for field in msgspec.structs.fields(JobSpec)}
    return {
        **{name: None if default is msgspec.NODEFAULT else default for name, default in found.items()},
        **{field.name: {} for field in msgspec.structs.fields(JobSpec) if field.default_factory is dict},
        "run": (),
        "runtime": Runtime.DOCKER if spec.image else Runtime.PROCESS,
        "appclass": Appclass.LATENCY_SENSITIVE if spec.is_service else Appclass.BATCH,
    }


def _of_job(spec: JobSpec, field: str, value: Any, bands: Bands) -> Any:
    match field:
        case "priority":
            band = bands.of(value)
            return str(band) if bands.floor(band) == value else value
        case "resources":
            return _limits(value, DEFAULT_RESOURCES)
        case "overrides":
            return {
                index: {
                    **_fields(msgspec.structs.replace(each, resources=None)),
                    **({"resources": _limits(each.resources, spec.resources)} if each.resources else {}),
                }
                for index, each in value.items()
            }
        case "restart":
            return _restart(value)
        case "group":
            return {program.name: _fields(program) for program in value}
        case "max_runtime" | "preempt_within":
            return _duration(value)
        case _:
            return _plain(value)


def _restart(restart: Restart) -> dict[str, Any]:
    """Return how a program is restarted; the time in which attempts count depends on the policy where it is
    not given."""
    found = _fields(restart)
    if restart.policy is RestartPolicy.ON_FAILURE and restart.attempts:
        found.pop("within", None)
        if not restart.counts_for_life:
            found["within"] = _duration(restart.within_seconds)
    return found


def _plain(value: Any) -> Any:
    """Return a value as a job file has it; see ``_fields`` for durations."""
    match value:
        case StrEnum() | Constraint() | Share():
            return str(value)
        case ExitCodes():
            return value.low if value.low == value.high else str(value)
        case Rate():
            return f"{value.count} per {_duration(value.within_seconds)}"
        case Mount():
            return {"from": value.source, "to": value.target, **({"write": True} if value.write else {})}
        case msgspec.Struct():
            return _fields(value)
        case tuple():
            return [_plain(each) for each in value]
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case _:
            return value


def _fields(record: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a record that are not as they would be anyway."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(record):
        value = getattr(record, field.name)
        default = {} if field.default_factory is dict else field.default
        if value == default or (isinstance(record, Program) and field.name == "name"):
            continue
        name = field.name.removesuffix("_seconds")
        found[name] = _plain(value) if name == field.name else _duration(value)
    return found


def _limits(amounts: Resources, base: Resources) -> dict[str, Any]:
    """Return what of these differs from what it is laid over; something, in any case."""
    found: dict[str, Any] = {}
    if amounts.cpu_millis != base.cpu_millis:
        found["cpu"] = _thousandths(amounts.cpu_millis)
    if amounts.ram_bytes != base.ram_bytes:
        found["ram"] = _bytes(amounts.ram_bytes)
    if amounts.disk_bytes != base.disk_bytes:
        found["disk"] = _bytes(amounts.disk_bytes)
    if devices := _others(amounts.devices, base.devices):
        found["devices"] = {kind: _thousandths(millis) for kind, millis in devices.items()}
    found |= _others(amounts.named, base.named)
    return found or {"cpu": _thousandths(amounts.cpu_millis)}


def _others(amounts: Mapping[str, int], base: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if base.get(name) != amount}


def _thousandths(millis: int) -> int | str:
    return f"{millis}m" if millis % DEVICE_MILLIS else millis // DEVICE_MILLIS


def _bytes(amount: int) -> int | str:
    for unit, size in (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if amount and amount % size == 0:
            return f"{amount // size}{unit}"
    return amount


def _duration(seconds: float) -> str:
    """Return a duration, exactly, in the largest unit in which it is a whole number."""
    exact = Decimal(repr(seconds))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if exact and exact % size == 0:
            return f"{int(exact / size)}{unit}"
    if exact == int(exact):
        return f"{int(exact)}s"
    return f"{(exact * 1000).normalize():f}ms"


class _Dumper(yaml.SafeDumper):
    """Writes as people do: short lists on one line, texts of several lines as they are."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True  # a job file has none


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    style = '"' if any(each in text for each in _IN_QUOTES) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: _Dumper, items: list[Any]) -> yaml.Node:
    is_short = all(not isinstance(item, dict | list) and "\n" not in str(item) for item in items)
    is_short = is_short and sum(len(str(item)) + 2 for item in items) <= _LINE_CHARACTERS_MAX
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=is_short)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
