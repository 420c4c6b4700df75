"""A job file (Kubernetes' manifest) becomes a ``JobSpec``, or an error that carries every mistake in it.

``document`` reads the text and ``fields`` the values. What is left here: whether they go together across
fields (``CHECKS``), and what was not given. Several documents together are for ``documents``.
"""

import re
from collections.abc import Callable, Iterator
from collections.abc import Mapping as Dict
from types import MappingProxyType
from typing import Any

import msgspec

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.resources import Amounts, Resources
from borgish.spec.file.document import (
    APPLY_HINT,
    EMPTY_HINT,
    Mapping,
    Node,
    Parsed,
    Scalar,
    Sequence,
    child_of,
    parse_all,
)
from borgish.spec.file.fields import JOB
from borgish.spec.file.foreign import foreign, foreign_text
from borgish.spec.file.kinds import Place, Record, Values, Wrong, is_null, text_at
from borgish.spec.file.mistakes import nearest, one_edit_away, quote
from borgish.spec.file.variables import GIVEN, declare, fill_in, undeclared
from borgish.spec.job import Health, JobSpec, Program, Restart
from borgish.spec.substitute import VARIABLES, port_variable, references
from borgish.vocabulary import (
    NAME_PATTERN,
    TASKS_PER_JOB_MAX,
    Appclass,
    CronKind,
    JobKind,
    Network,
    RestartPolicy,
    Runtime,
    job_key,
)

NO_VARIABLES: Dict[str, str] = MappingProxyType({})
DEFAULT_RESOURCES = Resources(cpu_millis=100, ram_bytes=128 * 1024**2)


def read_job(
    text: str | bytes,
    default_user: str,
    bands: Bands = DEFAULT_BANDS,
    variables: Dict[str, str] = NO_VARIABLES,
) -> JobSpec:
    """Read a file of one job, YAML or JSON, at most 1 MiB; ``default_user`` owns it when it names no user.

    ``bands`` are those of the cell that it is for, ``variables`` the values given for those it declares.

    Raises Invalid with all mistakes found, each with line and column; nothing else, whatever the text.
    """
    parsed = parse_all(text)
    found = parsed.found
    refuse_foreign(parsed)
    root = _only_job(parsed)
    place = Place("", found, bands)
    values = job_values(filled(parsed, root, place, variables), place, default_user)
    if values is None or len(found):
        raise found.invalid()
    return job_of(values, default_user)


def filled(parsed: Parsed, root: Node, place: Place, variables: Dict[str, str]) -> Node:
    """Return the only document of a text with the values of its variables."""
    document, scope = declare(root, place, variables)
    for message, hint in undeclared(variables, [scope]):
        place.found.report_elsewhere(GIVEN, message, hint)
    return fill_in(document, scope, place, parsed.text)


def refuse_foreign(parsed: Parsed) -> None:
    """Raise Invalid, with that alone, where a text is a file of another system."""
    found = parsed.found
    if strange := foreign(tuple(part.root for part in parsed.parts)):
        root, what, hint = strange
        found.only(root.line, root.column, f"this is {what}, not a job file of borgish", hint)
    if not parsed.whole and (other := foreign_text(parsed.text)):
        found.only(1, 1, f"this is {other[0]}, not a job file of borgish", other[1])


_APPLY_HINT = APPLY_HINT.format("it")


def _only_job(parsed: Parsed) -> Node:
    """Return the only document of a text, which is to be a job. Raises Invalid."""
    root, found = parsed.only(), parsed.found
    kind = child_of(root, "kind")
    if isinstance(kind, Scalar) and kind.text in _NOT_JOBS:
        found.only(kind.line, kind.column, f"this is {_NOT_JOBS[kind.text]}, not a job", _APPLY_HINT)
    if isinstance(root, Sequence) and any(isinstance(item, Mapping) for item in root.items):
        found.only(root.line, root.column, "this is a list of documents, not a job", _APPLY_HINT)
    return root


_NOT_JOBS = {"app": "an application (kind: app)", "cron": "a cron job (kind: cron)"}
"""Documents of other kinds, which are not submitted as a job."""


def job_values(
    root: Node,
    place: Place,
    default_user: str,
    record: Record[Values] = JOB,
    complete: Callable[[Values], None] = lambda _: None,
    checks: tuple[Callable[[Values], None], ...] | None = None,
) -> Values | None:
    """Return what a document says of a job, all mistakes in it reported; None where it is none at all.

    ``record`` has its fields; ``complete`` fills in what is otherwise than of any job, before ``checks``,
    which are all that there are unless given.
    """
    found = place.found
    try:
        values = record.read(root, place)
    except Wrong as wrong:
        if isinstance(root, Scalar) and is_null(root):
            found.report(root.line, root.column, "the file is empty", EMPTY_HINT)
        elif wrong.message:
            found.report(
                root.line, root.column, f"a job file is a mapping; this is {wrong.message}", wrong.hint
            )
        return None
    complete(values)
    for check in CHECKS if checks is None else checks:
        check(values)
    if "user" not in values.nodes and not re.fullmatch(NAME_PATTERN, default_user):
        message = f"the job would belong to {quote(default_user)}, which is not a name"
        values.place.report(values.node, message, "add user: NAME")
    return values


def job_of(values: Values, default_user: str) -> JobSpec:
    """Return the job that a document without mistakes says."""
    return _fill_in(values.given, default_user)


def limits_of(values: Values) -> dict[int, Amounts]:
    """Return what the overrides of a document give of resources, by index: the rest is the job's."""
    return {
        index: limits for index, (_, limits) in sorted(values.given.get("overrides", {}).items()) if limits
    }


def _fill_in(given: dict[str, Any], default_user: str) -> JobSpec:
    """Return the canonical form of values that are all right."""
    resources = DEFAULT_RESOURCES.overridden(given.get("resources", {}))
    user = given.get("user", default_user)
    restart, inside, health = given.get("restart", Restart()), given.get("inside", ""), given.get("health")
    is_service = restart.policy is RestartPolicy.ALWAYS
    if health and not health.command and not health.port:  # the port of a job that has one is the one meant
        health = msgspec.structs.replace(health, port=given["ports"][0])
    filled = {
        "user": user,
        "tasks": 1,
        "run": (),
        "runtime": Runtime.DOCKER if "image" in given else Runtime.PROCESS,
        "appclass": Appclass.LATENCY_SENSITIVE if is_service else Appclass.BATCH,
        **given,
        "resources": resources,
        "inside": _key(user, inside),
        "after": tuple(
            msgspec.structs.replace(each, job=_key(user, each.job)) for each in given.get("after", ())
        ),
        "parent": _key(user, given.get("parent", "")),
        "group": tuple(Program(name, **rest) for name, rest in given.get("group", {}).items()),
        "health": health,
        "overrides": {
            index: msgspec.structs.replace(each, resources=resources.overridden(limits)) if limits else each
            for index, (each, limits) in sorted(given.get("overrides", {}).items())
        },
    }
    return JobSpec(**filled)


def _key(user: str, named: str) -> str:
    """Return the key of a job that is named alone, or with its user; "" for none."""
    return job_key(user, named) if named and "/" not in named else named


# What must go together across the fields. Each check is one rule. Checks read the tree as well as the values,
# so that each mistake is reported at its own place, and run also when other mistakes were found: a value may
# be missing.

_SUBSTITUTED = (
    ("run",),
    ("env",),
    ("workdir",),
    ("health", "http"),
    ("health", "command"),
    ("overrides",),
    ("group",),
)
"""Where substitutions are done, as paths."""


def check_ports(values: Values) -> None:
    """No port is named twice. From here on ``ports`` is all names of ports, those of fixed numbers last."""
    fixed = values.given.get("fixed_ports", {})
    ports = values.given.get("ports", ())
    for name in fixed:
        if name in ports:
            values.report("fixed_ports", f"{name} is also in ports", "keep one of them")
    if fixed:
        values.given["ports"] = (*ports, *(name for name in fixed if name not in ports))


def check_program(values: Values) -> None:
    """There is something to run, and a runtime that goes with it."""
    if values.given.get("kind") is JobKind.ALLOC_SET:
        return
    image, runtime = "image" in values.nodes, values.given.get("runtime")
    run = values.given.get("run")
    if not image and "run" not in values.nodes:
        values.place.report(values.node, "run is missing from the job", "add run: [program, argument]")
    if not image and run == ():
        values.report("run", "there is no program to run", "write run: [program, argument]")
    if run and not run[0]:
        values.report("run", "the program's name is empty", "write run: [program, argument]")
    if image and runtime not in (None, Runtime.DOCKER):
        values.report("runtime", f"{runtime} cannot run an image", "remove it, or write runtime: docker")
    if runtime is Runtime.DOCKER and not image:
        values.report("runtime", "docker needs an image", "add image: NAME")
    if "container" in values.nodes and not image:
        values.report("container", "it is about containers, and the job has no image", "add image: NAME")
    if image and "root" in values.given:
        values.report("root", "an image has a root of its own", "remove it, or the image")
    if values.given.get("network") is Network.NONE:
        for field in ("ports", "fixed_ports"):
            if values.given.get(field):
                values.report(field, "nothing reaches a task with network: none", "remove one of them")


def check_secrets(values: Values) -> None:
    """No variable of the environment is in the clear and a secret at once."""
    there = values.given.get("env", {})
    for name in values.given.get("secret_env", {}):
        if name in there:
            values.report("secret_env", f"{name} is also in env", "keep one of them")


_OF_PROGRAMS = (
    *("run", "image", "container", "runtime", "group", "ports", "fixed_ports", "env", "workdir", "restart"),
    *("root", "network", "secret_env", "secret_files", "allow_exec"),
    *("stop", "health", "max_runtime", "in", "overrides", "exclusive", "on_exit", "max_failures"),
)
"""Fields that mean nothing for an envelope without a program."""


def check_alloc_set(values: Values) -> None:
    """An alloc set reserves and runs nothing."""
    if values.given.get("kind") is not JobKind.ALLOC_SET:
        return
    for field in _OF_PROGRAMS:
        if field in values.nodes:
            hint = "remove it; the jobs submitted with in: NAME have their own"
            values.report(field, f"an alloc set runs no program, so {field} has no effect here", hint)


def check_completion(values: Values) -> None:
    """What is about how tasks come out is for a job whose tasks do: those of a service go on."""
    # By what is written: a policy that is wrong is a mistake of its own.
    node = values.nodes.get("restart")
    policy = text_at(node, "policy") if isinstance(node, Mapping) and child_of(node, "policy") else "always"
    is_known = "restart" in values.given or node is None
    is_no_service = values.given.get("kind") in (JobKind.ALLOC_SET, CronKind.CRON)
    if is_no_service or not is_known or policy != RestartPolicy.ALWAYS:
        return
    for field in ("on_exit", "max_failures"):
        if field in values.nodes:
            message = f"{field} is for a job that runs to completion, and this one is a service"
            values.report(field, message, "remove it, or write restart: {policy: on_failure}")


def check_handover(values: Values) -> None:
    """Only a task that may run twice for a moment, and has a place of its own for that, is handed over."""
    given, node = values.given, child_of(values.nodes.get("update"), "handover")
    update = given.get("update")
    if node is None or update is None or not update.handover:
        return
    place = values.place.at("update").at("handover")
    if given.get("kind") is JobKind.ALLOC_SET:
        place.report(node, "an alloc set runs no program, so nothing is handed over", "remove it")
    elif given.get("restart", Restart()).policy is not RestartPolicy.ALWAYS:
        message = "only the tasks of a service are handed over, and this job runs to completion"
        is_cron = given.get("kind") is CronKind.CRON
        place.report(
            node, message, "remove it" if is_cron else "remove it, or write restart: {policy: always}"
        )
    if given.get("exclusive"):
        message = "a second process of an exclusive task never runs, so none can take over from the first"
        place.report(node, message, "remove handover, or exclusive")
    if "in" in values.nodes:
        message = "the alloc of a task is given to no second one, so none can take over inside an alloc set"
        place.report(node, message, "remove it; jobs outside of alloc sets have it")
    if given.get("gang"):
        place.report(node, "a gang changes as a whole, and not task by task", "remove handover, or gang")


def check_order(values: Values) -> None:
    """Nothing waits for itself, for one job twice, or ends with itself. Circles are found at submit."""
    name, user = values.given.get("name", ""), values.given.get("user", "")
    own = {name, f"{user}/{name}"} if name else set()
    node, seen = values.nodes.get("after"), set[str]()
    items = node.items if isinstance(node, Sequence) else ()
    for number, item in enumerate(items):
        named = item.text if isinstance(item, Scalar) else text_at(item, "job")
        spot = values.place.at("after").item(number)
        if named in own:
            spot.report(item, "a job cannot wait for itself", "name the job that has to be there first")
        elif named and named in seen:
            spot.report(item, f"{quote(named)} is given twice", "keep one of them")
        seen.add(named)
    if values.given.get("parent") in own:
        values.report("parent", "a job cannot be its own parent", "name the job that it ends with")


def check_group(values: Values) -> None:
    """Every program of the group has something to run, in the job's runtime."""
    node = values.nodes.get("group")
    image = "image" in values.nodes
    for name, program in values.given.get("group", {}).items():
        place = values.place.at("group").at(name)
        spot = child_of(node, name) or values.node
        if not image and "image" in program:
            place.report(spot, "has an image, and the job has none", "give the job an image too")
        elif not image and not any(program.get("run", ())[:1]):
            place.report(spot, "there is no program to run", "add run: [program, argument]")


def check_health_port(values: Values) -> None:
    """The probe's port is one of the job's."""
    health = values.given.get("health")
    ports = values.given.get("ports", ())
    node = values.nodes.get("health")
    # By what is written, not by what is right: another mistake in the probe does not hide this one.
    tcp = child_of(node, "tcp")
    is_probe = child_of(node, "http") is not None or tcp is not None
    names_port = isinstance(tcp, Scalar) and tcp.text not in ("true", "false")
    if not isinstance(health, Health) or node is None or not is_probe:
        return
    if "ports" in values.nodes and not isinstance(values.nodes["ports"], Sequence):
        return
    place = values.place.at("health")
    if not health.port and (child_of(node, "port") is not None or names_port):
        return  # the port is a mistake of its own
    if not health.port and len(ports) != 1:
        what = f"one of {', '.join(ports)}" if ports else "NAME, and ports: [NAME] to the job"
        place.report(node, "the probe needs a port", f"add port: {what}")
    elif health.port and health.port not in ports:
        key = "port" if child_of(node, "port") else "tcp"
        close = one_edit_away(health.port, ports)
        hint = f"did you mean {close}?" if close else f"add ports: [{health.port}]"
        message = f"{quote(health.port)} is not one of the job's ports"
        place.at(key).report(child_of(node, key) or node, message, hint)


def check_overrides(values: Values) -> None:
    """Every override is of a task that the job has, and has something to run."""
    node = values.nodes.get("overrides")
    if not isinstance(node, Mapping):
        return
    place = values.place.at("overrides")
    indexes = {str(index): index for index in values.given.get("overrides", {})}
    tasks = values.given.get("tasks", TASKS_PER_JOB_MAX if "tasks" in values.nodes else 1)
    for key, child in node.items:
        if indexes.get(key.text, 0) >= tasks:
            message = f"there is no task {key.text}; the job has {tasks}, counted from 0"
            place.report(key, message, f"the last one is {tasks - 1}")
        run = child_of(child, "run")
        if "image" in values.nodes or not isinstance(run, Sequence):
            continue
        program = run.items[0] if run.items else None
        if program is None or (isinstance(program, Scalar) and not program.text and not program.plain):
            spot = place.at(key.text).at("run")
            spot.report(run, "there is no program to run", "write run: [program, argument]")


def check_port_variables(values: Values) -> None:
    """No variable is given that borgish sets to a port's number."""
    own = {port_variable(name): name for name in values.given.get("ports", ())}
    for path, env in _environments(values):
        for key, _ in env.items if isinstance(env, Mapping) else ():
            if key.text in own:
                message = f"{path}: {key.text} is set by borgish to the number of the port {own[key.text]}"
                values.place.found.report(
                    key.line, key.column, message, "choose another name", f"{path}.{key.text}"
                )


def _environments(values: Values) -> Iterator[tuple[str, Node | None]]:
    yield "env", values.nodes.get("env")
    overrides = values.nodes.get("overrides")
    for key, child in overrides.items if isinstance(overrides, Mapping) else ():
        yield f"overrides.{key.text[:64]}.env", child_of(child, "env")
    group = values.nodes.get("group")
    for key, child in group.items if isinstance(group, Mapping) else ():
        yield f"group.{key.text[:64]}.env", child_of(child, "env")


def check_substitutions(values: Values) -> None:
    """Every ``{{...}}`` names something that is known."""
    ports_known = "ports" in values.given or "ports" not in values.nodes
    ports = tuple(values.given.get("ports", ()))
    for path in _SUBSTITUTED:
        node, place = child_of(values.nodes.get(path[0]), *path[1:]), values.place
        for key in path if node is not None else ():
            place = place.at(key)
        for text, spot in _references(node, place):
            _check_references(text, spot, ports, ports_known=ports_known)


def _check_references(node: Scalar, place: Place, ports: tuple[str, ...], *, ports_known: bool) -> None:
    names, unclosed = references(node.text)
    if unclosed:
        place.report(node, "a '{{' that no '}}' closes", "write it like {{task.index}}")
    for name in names:
        kind, _, port = name.partition(".")
        if name in VARIABLES or (kind == "port" and (port in ports or not ports_known)):
            continue
        of_ports = [f"port.{port}" for port in ports]
        if close := nearest(name, VARIABLES) or one_edit_away(name, of_ports):
            hint = f"did you mean {{{{{close}}}}}?"
        elif kind == "port" and port:
            hint = f"add ports: [{port[:64]}] to the job"
        else:
            hint = f"known are {', '.join((*VARIABLES, *of_ports))}"
        place.report(node, f"{quote('{{' + name + '}}')} is not known", hint)


def _references(node: Node | None, place: Place) -> Iterator[tuple[Scalar, Place]]:
    """Yield every text with substitutions below a node (not the keys). Bounded: the tree's depth is."""
    if isinstance(node, Scalar):
        if "{{" in node.text:
            yield node, place
    elif isinstance(node, Sequence):
        for number, item in enumerate(node.items):
            yield from _references(item, place.item(number))
    elif isinstance(node, Mapping):
        for key, child in node.items:
            yield from _references(child, place.at(key.text))


CHECKS = (
    check_ports,  # first: others read the names of all ports
    check_program,
    check_secrets,
    check_alloc_set,
    check_completion,
    check_handover,
    check_order,
    check_group,
    check_health_port,
    check_overrides,
    check_port_variables,
    check_substitutions,
)
