"""Fills in what only a placed task knows: ``{{task.index}}``, ``{{port.http}}``, and its environment
(Kubernetes' downward API).

Pure, and on a warm path: a job is compiled once, and a text without substitutions costs nothing.
Which texts are right is for ``checks`` to say; a compiled job is taken as right.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from borgish.resources import DEVICE_MILLIS
from borgish.spec.job import Health, JobSpec, Program

VARIABLES = ("task.index", "task.name", "job.name", "cell.name", "machine.name")
"""What a substitution can name, besides ``port.NAME``."""

OWN_PREFIX = "BORGISH_"
"""Environment variables that begin like this are set by borgish alone."""

_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""By which the libraries of most accelerators know theirs."""

# No braces inside, so that a run of them cannot make the search slow.
REFERENCE = re.compile(r"\{\{([^{}]*)\}\}")
_COMPILED_MAX = 1024


class Rendered(msgspec.Struct, frozen=True):
    """One task's own copy of what its job says; every substitution done."""

    run: tuple[str, ...]
    env: dict[str, str]  # complete, BORGISH_* and PORT_* included
    workdir: str
    health: Health | None
    group: tuple[Program, ...] = ()  # ``env`` of each is what it has on top


def references(text: str) -> tuple[tuple[str, ...], bool]:
    """Return the names substituted in a text, and whether a ``{{`` in it is never closed."""
    if "{{" not in text:
        return (), False
    parts = REFERENCE.split(text)
    return tuple(name.strip() for name in parts[1::2]), any("{{" in literal for literal in parts[::2])


def port_variable(name: str) -> str:
    """Return the environment variable that holds the number of a port: ``PORT_HTTP``."""
    return f"PORT_{name.upper().replace('-', '_')}"


def device_variables(devices: Iterable[str], amounts: Mapping[str, int]) -> dict[str, str]:
    """Return the environment variables that list a task's devices.

    They are listed and not enforced, in a container too: how a program is let see a device, or kept from it,
    differs by engine and driver.

    ``devices`` are those it was given, like gpu:0; ``amounts`` what it asked for, in thousandths by kind.
    """
    numbers: dict[str, list[str]] = {}
    for device in devices:
        kind, _, number = device.rpartition(":")
        numbers.setdefault(kind, []).append(number)
    found: dict[str, str] = {}
    for kind, given in numbers.items():
        name, shown, millis = kind.upper().replace("-", "_"), ",".join(given), amounts.get(kind, 0)
        found[f"{OWN_PREFIX}DEVICES_{name}"] = shown
        if millis % DEVICE_MILLIS:
            found[f"{OWN_PREFIX}DEVICE_MILLIS_{name}"] = str(millis)
        if kind == "gpu":
            found.update(dict.fromkeys(_GPU_VARIABLES, shown))
    return found


def render(
    spec: JobSpec,
    index: int,
    cell: str,
    machine: str,
    attempt: int,
    ports: Mapping[str, int],
    devices: tuple[str, ...] = (),
) -> Rendered:
    """Return what one task runs. ``ports`` holds a number for every port of the job."""
    return _compiled(spec).render(index, cell, machine, attempt, ports, devices)


# Jobs by identity: a spec holds dicts and cannot be hashed. The entry keeps its spec alive, so an
# id cannot come to mean another job while it is here.
_cache: dict[int, "_Compiled"] = {}


def _compiled(spec: JobSpec) -> "_Compiled":
    found = _cache.get(id(spec))
    if found is None:
        if len(_cache) >= _COMPILED_MAX:
            _cache.clear()
        found = _cache[id(spec)] = _Compiled(spec)
    return found


class _Compiled:
    """A job whose texts with substitutions have become ``%`` formats, which Python fills in quickly."""

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self._prefix = f"{spec.key}/"
        self._variables = tuple((name, port_variable(name)) for name in spec.ports)
        self._env = {**spec.env, f"{OWN_PREFIX}USER": spec.user, f"{OWN_PREFIX}JOB": spec.name}
        self._formats = _Formats(spec.run, spec.env, spec.workdir, spec.health)
        self._group = tuple(_named(program) for program in spec.group)
        formats = [_Formats(each.run, each.env, each.workdir, None) for each in self._group]
        self._group_formats = formats if any(each.any for each in formats) else []

    def render(
        self,
        index: int,
        cell: str,
        machine: str,
        attempt: int,
        ports: Mapping[str, int],
        devices: tuple[str, ...],
    ) -> Rendered:
        spec = self.spec
        name = f"{self._prefix}{index}"
        own = {
            "BORGISH_CELL": cell,
            "BORGISH_TASK": name,
            "BORGISH_INDEX": str(index),
            "BORGISH_MACHINE": machine,
            "BORGISH_ATTEMPT": str(attempt),
        }
        for port, variable in self._variables:
            own[variable] = str(ports[port])
        if devices:
            own.update(device_variables(devices, spec.needs(index).devices))
        base = Rendered(spec.run, self._env, spec.workdir, spec.health)
        formats = self._formats
        if spec.overrides and (override := spec.overrides.get(index)):
            run = spec.run if override.run is None else override.run
            overriding = override.env or {}
            base = Rendered(run, {**self._env, **overriding}, spec.workdir, spec.health)
            formats = _Formats(run, {**spec.env, **overriding}, spec.workdir, spec.health)
        group = self._group
        if formats.any:
            base = formats.fill(base, _words(spec, own, ports))
        if self._group_formats:
            group = self._fill_group(_words(spec, own, ports))
        if devices:
            group = tuple(_without(program, own) for program in group)
        return Rendered(base.run, {**base.env, **own}, base.workdir, base.health, group)

    def _fill_group(self, words: dict[str, str]) -> tuple[Program, ...]:
        filled = [
            formats.fill(Rendered(program.run, program.env, program.workdir, None), words)
            for program, formats in zip(self._group, self._group_formats, strict=True)
        ]
        return tuple(
            Program(program.name, done.run, program.image, done.env, done.workdir)
            for program, done in zip(self._group, filled, strict=True)
        )


def _without(program: Program, own: Mapping[str, str]) -> Program:
    """Return a program that says nothing of what only borgish says."""
    env = {name: text for name, text in program.env.items() if name not in own}
    return msgspec.structs.replace(program, env=env)


def _named(program: Program) -> Program:
    """Return a program with its own name in its environment."""
    return msgspec.structs.replace(program, env={**program.env, f"{OWN_PREFIX}PROGRAM": program.name})


def _words(spec: JobSpec, own: dict[str, str], ports: Mapping[str, int]) -> dict[str, str]:
    words = {
        "task.index": own["BORGISH_INDEX"],
        "task.name": own["BORGISH_TASK"],
        "job.name": spec.name,
        "cell.name": own["BORGISH_CELL"],
        "machine.name": own["BORGISH_MACHINE"],
    }
    for port in spec.ports:
        words[f"port.{port}"] = str(ports[port])
    return words


class _Formats:
    """The texts of a task as ``%`` formats; None, or left out, where there is nothing to fill in."""

    def __init__(
        self, run: tuple[str, ...], env: dict[str, str], workdir: str, health: Health | None
    ) -> None:
        self.run = _formats(run)
        self.env = {name: _format(text) for name, text in env.items() if "{{" in text}
        self.workdir = _format(workdir) if "{{" in workdir else None
        self.http = _format(health.http) if health and "{{" in health.http else None
        self.command = _formats(health.command) if health else None
        self.any = any((self.run, self.env, self.workdir, self.http, self.command))

    def fill(self, base: Rendered, words: dict[str, str]) -> Rendered:
        return Rendered(
            tuple([text % words for text in self.run]) if self.run else base.run,
            {**base.env, **{name: text % words for name, text in self.env.items()}},
            self.workdir % words if self.workdir else base.workdir,
            self._fill_health(base.health, words),
        )

    def _fill_health(self, health: Health | None, words: dict[str, str]) -> Health | None:
        if health is None or not (self.http or self.command):
            return health
        http = self.http % words if self.http else health.http
        command = tuple([text % words for text in self.command]) if self.command else health.command
        return msgspec.structs.replace(health, http=http, command=command)


def _formats(texts: tuple[str, ...]) -> tuple[str, ...] | None:
    return tuple(map(_format, texts)) if any("{{" in text for text in texts) else None


def _format(text: str) -> str:
    """Return a ``%`` format that gives the text with its substitutions done."""
    parts = REFERENCE.split(text.replace("%", "%%"))
    parts[1::2] = [f"%({name.strip()})s" for name in parts[1::2]]
    return "".join(parts)
