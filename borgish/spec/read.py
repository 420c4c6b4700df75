"""A job file becomes a ``JobSpec``, or an error that carries every mistake in it.

``document`` reads the text, ``fields`` the values, ``checks`` sees whether they go together; what is
left here is to fill in what was not given.
"""

import re
from typing import Any

import msgspec

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.resources import Resources
from borgish.spec.checks import CHECKS
from borgish.spec.document import EMPTY_HINT, Node, Scalar, parse
from borgish.spec.fields import JOB
from borgish.spec.foreign import foreign_file
from borgish.spec.job import Health, JobSpec, Override, Program, Restart
from borgish.spec.kinds import Place, Wrong
from borgish.spec.mistakes import quote
from borgish.spec.records import Values
from borgish.vocabulary import NAME_PATTERN, Appclass, RestartPolicy, Runtime, job_key

_DEFAULT_RESOURCES = Resources(cpu_millis=100, ram_bytes=128 * 1024**2)


def read_job(text: str | bytes, default_user: str, bands: Bands = DEFAULT_BANDS) -> JobSpec:
    """Read a job file, YAML or JSON, at most 1 MiB; ``default_user`` owns the job when it names no user.

    ``bands`` are those of the cell that it is for.

    Raises Invalid with all mistakes found, each with line and column; nothing else, whatever the text.
    """
    root, found = parse(text)
    if foreign := foreign_file(root):
        found.only(root.line, root.column, f"this is {foreign.what}, not a job file of borgish", foreign.hint)
    values = _values(root, Place("", found, bands))
    _join_ports(values)
    for check in CHECKS:
        check(values)
    _check_user(values, default_user)
    found.stop()
    return _fill_in(values.given, default_user)


def _values(root: Node, place: Place) -> Values:
    found = place.found
    try:
        return JOB.read(root, place)
    except Wrong as wrong:
        if isinstance(root, Scalar) and root.is_null:
            found.tell(root.line, root.column, "the file is empty", EMPTY_HINT)
        elif wrong.message:
            found.tell(
                root.line, root.column, f"a job file is a mapping; this is {wrong.message}", wrong.hint
            )
        raise found.invalid() from None


def _join_ports(values: Values) -> None:
    """Let ``ports`` be all names of ports, those of fixed numbers last."""
    fixed = values.given.get("fixed_ports", {})
    ports = values.given.get("ports", ())
    for name in fixed:
        if name in ports:
            values.tell("fixed_ports", f"{name} is one of ports too", "keep one of them")
    if fixed:
        values.given["ports"] = (*ports, *(name for name in fixed if name not in ports))


def _check_user(values: Values, default_user: str) -> None:
    if "user" not in values.nodes and not re.fullmatch(NAME_PATTERN, default_user):
        message = f"the job would belong to {quote(default_user)}, which is not a name"
        values.place.tell(values.node, message, "add user: NAME")


def _fill_in(given: dict[str, Any], default_user: str) -> JobSpec:
    """Return the canonical form of values that are all right."""
    resources = _lay_over(_DEFAULT_RESOURCES, given.get("resources", {}))
    filled = {
        "user": default_user,
        "tasks": 1,
        "run": (),
        "runtime": Runtime.DOCKER if "image" in given else Runtime.PROCESS,
        "appclass": _appclass(given.get("restart", Restart())),
        **given,
        "resources": resources,
        "inside": _inside(given.get("inside", ""), given.get("user", default_user)),
        "group": tuple(Program(name, **rest) for name, rest in given.get("group", {}).items()),
        "health": _health(given),
        "overrides": {
            index: _override(override, limits, resources)
            for index, (override, limits) in sorted(given.get("overrides", {}).items())
        },
    }
    return JobSpec(**filled)


def _inside(alloc_set: str, user: str) -> str:
    """Return the key of an alloc set; one that names no user is the job's own user's."""
    return alloc_set if "/" in alloc_set or not alloc_set else job_key(user, alloc_set)


def _appclass(restart: Restart) -> Appclass:
    return Appclass.LATENCY_SENSITIVE if restart.policy is RestartPolicy.ALWAYS else Appclass.BATCH


def _health(given: dict[str, Any]) -> Health | None:
    """Return the probe; the port of a job that has one is the one meant."""
    health: Health | None = given.get("health")
    if health and not health.command and not health.port:
        return msgspec.structs.replace(health, port=given["ports"][0])
    return health


def _override(override: Override, limits: dict[str, Any] | None, job: Resources) -> Override:
    return msgspec.structs.replace(override, resources=_lay_over(job, limits)) if limits else override


def _lay_over(base: Resources, given: dict[str, Any]) -> Resources:
    named = {**base.named, **given.get("named", {})}
    devices = {**base.devices, **given.get("devices", {})}
    laid_over = {"named": dict(sorted(named.items())), "devices": dict(sorted(devices.items()))}
    return msgspec.structs.replace(base, **{**given, **laid_over})
