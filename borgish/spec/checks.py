"""What must go together in a job file, across its fields. Each check is one rule; ``CHECKS`` is all of them.

Checks read the tree as well as the values, so that each mistake is told at its own place, and run also
when other mistakes were found: a value may be missing.
"""

from collections.abc import Iterator

from borgish.spec.document import Mapping, Node, Scalar, Sequence
from borgish.spec.job import Health
from borgish.spec.kinds import Place, nearest
from borgish.spec.mistakes import quote
from borgish.spec.records import Values
from borgish.spec.slips import meant_by_slip
from borgish.spec.substitute import VARIABLES, port_variable, references
from borgish.vocabulary import TASKS_PER_JOB_MAX, JobKind, Runtime

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


def check_program(values: Values) -> None:
    """There is something to run, and a runtime that goes with it."""
    if values.given.get("kind") is JobKind.ALLOC_SET:
        return
    image, runtime = "image" in values.nodes, values.given.get("runtime")
    run = values.given.get("run")
    if not image and "run" not in values.nodes:
        values.place.tell(values.node, "run is missing from the job", "add run: [program, argument]")
    if not image and run == ():
        values.tell("run", "there is no program to run", "write run: [program, argument]")
    if run and not run[0]:
        values.tell("run", "the program's name is empty", "write run: [program, argument]")
    if image and runtime not in (None, Runtime.DOCKER):
        values.tell("runtime", f"{runtime} cannot run an image", "remove it, or write runtime: docker")
    if runtime is Runtime.DOCKER and not image:
        values.tell("runtime", "docker needs an image", "add image: NAME")


_OF_PROGRAMS = (
    *("run", "image", "runtime", "group", "ports", "fixed_ports", "env", "workdir", "restart"),
    *("stop", "health", "max_runtime", "in", "overrides"),
)
"""Fields that mean nothing for an envelope without a program."""


def check_alloc_set(values: Values) -> None:
    """An alloc set reserves and runs nothing."""
    if values.given.get("kind") is not JobKind.ALLOC_SET:
        return
    for field in _OF_PROGRAMS:
        if field in values.nodes:
            hint = "remove it; the jobs submitted with in: NAME have their own"
            values.tell(field, f"an alloc set runs no program, so {field} means nothing here", hint)


def check_group(values: Values) -> None:
    """Every program of the group has something to run, in the job's runtime."""
    node = values.nodes.get("group")
    image = "image" in values.nodes
    for name, program in values.given.get("group", {}).items():
        place = values.place.at("group").at(name)
        spot = _child(node, name) or values.node
        if not image and "image" in program:
            place.tell(spot, "has an image, and the job has none", "give the job an image too")
        elif not image and not any(program.get("run", ())[:1]):
            place.tell(spot, "there is no program to run", "add run: [program, argument]")


def check_health_port(values: Values) -> None:
    """The probe's port is one of the job's."""
    health = values.given.get("health")
    ports = values.given.get("ports", ())
    node = values.nodes.get("health")
    # By what is written, not by what is right: another mistake in the probe does not hide this one.
    is_probe = _child(node, "http") is not None or _child(node, "tcp") is not None
    if not isinstance(health, Health) or node is None or not is_probe:
        return
    if "ports" in values.nodes and not isinstance(values.nodes["ports"], Sequence):
        return
    place = values.place.at("health")
    if not health.port and (_child(node, "port") is not None or _is_port_name(_child(node, "tcp"))):
        return  # the port is a mistake of its own
    if not health.port and len(ports) != 1:
        what = f"one of {', '.join(ports)}" if ports else "NAME, and ports: [NAME] to the job"
        place.tell(node, "the probe needs a port", f"add port: {what}")
    elif health.port and health.port not in ports:
        key = "port" if _child(node, "port") else "tcp"
        hint = (
            f"did you mean {close}?"
            if (close := meant_by_slip(health.port, ports))
            else f"add ports: [{health.port}]"
        )
        place.at(key).tell(
            _child(node, key) or node, f"{quote(health.port)} is not one of the job's ports", hint
        )


def _is_port_name(tcp: Node | None) -> bool:
    return isinstance(tcp, Scalar) and tcp.text not in ("true", "false")


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
            place.tell(key, message, f"the last one is {tasks - 1}")
        run = _child(child, "run")
        if "image" not in values.nodes and isinstance(run, Sequence) and _starts_nothing(run):
            spot = place.at(key.text).at("run")
            spot.tell(run, "there is no program to run", "write run: [program, argument]")


def _starts_nothing(run: Sequence) -> bool:
    return not run.items or (
        isinstance(run.items[0], Scalar) and not run.items[0].text and not run.items[0].plain
    )


def check_port_variables(values: Values) -> None:
    """No variable is given that borgish sets to a port's number."""
    own = {port_variable(name): name for name in values.given.get("ports", ())}
    for path, env in _environments(values):
        for key, _ in env.items if isinstance(env, Mapping) else ():
            if key.text in own:
                message = f"{path}: {key.text} is set by borgish to the number of the port {own[key.text]}"
                values.place.found.tell(
                    key.line, key.column, message, "choose another name", f"{path}.{key.text}"
                )


def _environments(values: Values) -> Iterator[tuple[str, Node | None]]:
    yield "env", values.nodes.get("env")
    overrides = values.nodes.get("overrides")
    for key, child in overrides.items if isinstance(overrides, Mapping) else ():
        yield f"overrides.{key.text[:64]}.env", _child(child, "env")
    group = values.nodes.get("group")
    for key, child in group.items if isinstance(group, Mapping) else ():
        yield f"group.{key.text[:64]}.env", _child(child, "env")


def check_substitutions(values: Values) -> None:
    """Every ``{{...}}`` names something that is known."""
    ports_known = "ports" in values.given or "ports" not in values.nodes
    ports = tuple(values.given.get("ports", ()))
    for path in _SUBSTITUTED:
        node: Node | None = values.nodes.get(path[0])
        place = values.place.at(path[0])
        for key in path[1:]:
            node, place = _child(node, key), place.at(key)
        for text, spot in _texts(node, place):
            _check_text(text, spot, ports, ports_known=ports_known)


def _check_text(node: Scalar, place: Place, ports: tuple[str, ...], *, ports_known: bool) -> None:
    names, unclosed = references(node.text)
    if unclosed:
        place.tell(node, "a '{{' that no '}}' closes", "write it like {{task.index}}")
    for name in names:
        kind, _, port = name.partition(".")
        if name in VARIABLES or (kind == "port" and (port in ports or not ports_known)):
            continue
        place.tell(
            node, f"{quote('{{' + name + '}}')} is not known", _reference_hint(kind, port, name, ports)
        )


def _reference_hint(kind: str, port: str, name: str, ports: tuple[str, ...]) -> str:
    of_ports = [f"port.{port}" for port in ports]
    if close := nearest(name, VARIABLES) or meant_by_slip(name, of_ports):
        return f"did you mean {{{{{close}}}}}?"
    if kind == "port" and port:
        return f"add ports: [{port[:64]}] to the job"
    return f"known are {', '.join((*VARIABLES, *of_ports))}"


def _texts(node: Node | None, place: Place) -> Iterator[tuple[Scalar, Place]]:
    """Yield every text below a node (not the keys). Bounded: the tree's depth is."""
    if isinstance(node, Scalar):
        yield node, place
    elif isinstance(node, Sequence):
        for number, item in enumerate(node.items):
            yield from _texts(item, place.item(number))
    elif isinstance(node, Mapping):
        for key, child in node.items:
            yield from _texts(child, place.at(key.text))


def _child(node: Node | None, key: str) -> Node | None:
    if not isinstance(node, Mapping):
        return None
    return next((child for name, child in node.items if name.text == key), None)


CHECKS = (
    check_program,
    check_alloc_set,
    check_group,
    check_health_port,
    check_overrides,
    check_port_variables,
    check_substitutions,
)
