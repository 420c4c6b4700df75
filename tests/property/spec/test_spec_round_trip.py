"""A job written as a file and read again is the same job."""

import json
from contextlib import suppress
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from borgish.resources import Resources
from borgish.spec.constraints import OPERATORS, matches, parse_constraint
from borgish.spec.diff import differences
from borgish.spec.file.read import read_job
from borgish.spec.file.values import SIGNALS
from borgish.spec.job import Constraint, Health, JobSpec, Override, Restart, Stop
from borgish.spec.substitute import VARIABLES, render
from borgish.vocabulary import NAME_PATTERN, Appclass, RestartPolicy, Runtime

NAMES = st.from_regex(NAME_PATTERN, fullmatch=True)
PORTS = NAMES.filter(lambda name: not name.isdigit())
# Any text a program can be given; braces are tried by VARIABLES. U+0085 must be escaped in a file, and
# the writer used here does not.
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0{\x85"), max_size=12
) | st.sampled_from(["no", "yes", "null", "~", "012", "1e3", "", " ", "a: b", "- c", "#", "{{task.index}}%"])
LINES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
KEYS = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,8}", fullmatch=True)
COMMANDS = st.tuples(TEXTS.filter(bool), TEXTS) | st.tuples(TEXTS.filter(bool))
ENVIRONMENTS = st.dictionaries(
    KEYS.filter(lambda key: not key.startswith(("BORGISH_", "PORT_"))), TEXTS, max_size=3
)
RESOURCES = st.builds(
    Resources,
    st.integers(1, 1_000_000),
    st.integers(4 * 1024**2, 16 * 1024**4),
    st.integers(0, 1024**5),
    st.dictionaries(NAMES.map(lambda name: f"r-{name}"[:60].rstrip("-")), st.integers(0, 10**9), max_size=2),
)
VALUES = st.from_regex(r"[A-Za-z0-9.:/+_-]{1,8}", fullmatch=True)
WORDS = KEYS.filter(lambda key: key not in ("not", "in", "present"))
CONSTRAINTS = (
    st.builds(Constraint, WORDS, st.sampled_from(["==", "!="]), st.tuples(VALUES))
    | st.builds(
        Constraint,
        WORDS,
        st.sampled_from(["<", "<=", ">", ">="]),
        st.tuples(st.integers().map(str).filter(lambda n: len(n) < 20)),
    )
    | st.builds(
        Constraint,
        WORDS,
        st.sampled_from(["in", "not in"]),
        st.lists(VALUES, min_size=1, max_size=3).map(tuple),
    )
    | st.builds(Constraint, WORDS, st.sampled_from(["present", "not present"]))
)


def seconds(low_ms: int, high_ms: int) -> st.SearchStrategy[float]:
    return st.integers(low_ms, high_ms).map(lambda ms: float(f"{ms / 1000}"))


RESTARTS = st.builds(
    Restart,
    st.sampled_from([RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE]),
    st.integers(0, 1_000_000),
    seconds(1000, 10_000_000),
    seconds(100, 300_000),
)
STOPS = st.builds(Stop, st.sampled_from(SIGNALS), seconds(0, 600_000), st.none() | seconds(0, 600_000))
TIMES = {
    "interval_seconds": seconds(100, 3_600_000),
    "timeout_seconds": seconds(10, 600_000),
    "failures": st.integers(1, 100),
    "grace_seconds": seconds(0, 3_600_000),
}


@st.composite
def jobs(draw: st.DrawFn) -> JobSpec:
    image = draw(st.sampled_from(["", "tiny:1"]))
    tasks = draw(st.integers(1, 10_000))
    ports = tuple(draw(st.lists(PORTS, max_size=3, unique=True)))
    probes: list[st.SearchStrategy[Health | None]] = [st.none(), st.builds(Health, command=COMMANDS, **TIMES)]
    if ports:
        port = st.sampled_from(ports)
        probes += [
            st.builds(Health, tcp=st.just(True), port=port, **TIMES),
            st.builds(Health, http=st.just("/{{port." + ports[0] + "}}"), port=port, **TIMES),
        ]
    return JobSpec(
        name=draw(NAMES),
        user=draw(NAMES),
        tasks=tasks,
        run=draw(COMMANDS),
        image=image,
        runtime=Runtime.DOCKER if image else draw(st.sampled_from([Runtime.PROCESS, Runtime.FAKE])),
        priority=draw(st.integers(0, 399)),
        appclass=draw(st.sampled_from(list(Appclass))),
        resources=draw(RESOURCES),
        ports=ports,
        env=draw(ENVIRONMENTS),
        workdir=draw(st.sampled_from(["", "/", "/srv/{{job.name}}"])),
        restart=draw(RESTARTS),
        stop=draw(STOPS),
        health=draw(st.one_of(probes)),
        labels=draw(st.dictionaries(KEYS.filter(lambda key: key[-1] != "_"), LINES, max_size=2)),
        annotations=draw(st.dictionaries(KEYS.filter(lambda key: key[-1] != "_"), TEXTS, max_size=2)),
        constraints=tuple(draw(st.lists(CONSTRAINTS, max_size=3))),
        overrides=draw(
            st.dictionaries(
                st.integers(0, tasks - 1),
                st.builds(Override, st.none() | COMMANDS, st.none() | ENVIRONMENTS, st.none() | RESOURCES),
                max_size=2,
            )
        ),
        max_runtime_seconds=draw(st.just(0.0) | seconds(1000, 10_000_000)),
    )


def limits(resources: Resources) -> dict[str, Any]:
    return {
        "cpu": f"{resources.cpu_millis}m",
        "ram": resources.ram_bytes,
        "disk": resources.disk_bytes,
        **resources.named,
    }


def lasting(amount: float) -> str:
    return f"{round(amount * 1000)}ms"


def job_file(spec: JobSpec) -> dict[str, Any]:
    """Return a job as its user would write it, every field given."""
    health, deregister = spec.health, spec.stop.deregister_seconds
    probe = health and {
        **{name: value for name in ("http", "tcp", "port") if (value := getattr(health, name))},
        **({"command": list(health.command)} if health.command else {}),
        "interval": lasting(health.interval_seconds),
        "timeout": lasting(health.timeout_seconds),
        "failures": health.failures,
        "grace": lasting(health.grace_seconds),
    }
    file = {
        "name": spec.name,
        "user": spec.user,
        "tasks": spec.tasks,
        "run": list(spec.run),
        "image": spec.image,
        "runtime": str(spec.runtime),
        "priority": spec.priority,
        "appclass": str(spec.appclass),
        "resources": limits(spec.resources),
        "ports": list(spec.ports),
        "env": spec.env,
        "workdir": spec.workdir,
        "restart": {
            "policy": str(spec.restart.policy),
            "attempts": spec.restart.attempts,
            "within": lasting(spec.restart.within_seconds),
            "backoff": lasting(spec.restart.backoff_seconds),
        },
        "stop": {
            "signal": f"SIG{spec.stop.signal}",
            "grace": lasting(spec.stop.grace_seconds),
            **({"deregister": lasting(deregister)} if deregister is not None else {}),
        },
        "health": probe,
        "labels": spec.labels,
        "annotations": spec.annotations,
        "constraints": [str(constraint) for constraint in spec.constraints],
        "overrides": {str(index): override_file(one) for index, one in spec.overrides.items()},
        "max_runtime": lasting(spec.max_runtime_seconds) if spec.max_runtime_seconds else None,
    }
    return {name: value for name, value in file.items() if value not in (None, "")}


def override_file(override: Override) -> dict[str, Any]:
    file = {
        "run": override.run and list(override.run),
        "env": override.env,
        "resources": override.resources and limits(override.resources),
    }
    return {name: value for name, value in file.items() if value is not None}


def expected(spec: JobSpec) -> JobSpec:
    """Return the spec as reading leaves it: an override's named resources are laid over the job's."""
    overrides = {
        index: Override(one.run, one.env, one.resources and with_named(one.resources, spec.resources))
        for index, one in spec.overrides.items()
    }
    return JobSpec(
        **{name: getattr(spec, name) for name in spec.__struct_fields__} | {"overrides": overrides}
    )


def with_named(resources: Resources, base: Resources) -> Resources:
    named = {**base.named, **resources.named}
    return Resources(resources.cpu_millis, resources.ram_bytes, resources.disk_bytes, named)


@given(jobs())
def test_a_job_written_and_read_again_is_the_same(spec: JobSpec) -> None:
    file = job_file(spec)
    again = read_job(json.dumps(file), "nobody")
    assert again == expected(spec)
    assert read_job(yaml.safe_dump(file, allow_unicode=True, sort_keys=False), "nobody") == again
    assert differences(again, expected(spec)) == ()


@given(jobs(), st.data())
def test_every_task_of_a_right_job_can_be_rendered(spec: JobSpec, data: st.DataObject) -> None:
    index = data.draw(st.sampled_from([0, spec.tasks - 1, *spec.overrides]))
    ports = {name: 20_000 + number for number, name in enumerate(spec.ports)}
    task = render(spec, index, "c", "m", 1, ports)
    texts = [*task.run, *task.env.values(), task.workdir, task.health.http if task.health else ""]
    assert not any(f"{{{{{variable}}}}}" in text for text in texts for variable in VARIABLES)
    assert task.env["BORGISH_INDEX"] == str(index)


@given(CONSTRAINTS, st.dictionaries(KEYS, VALUES, max_size=2))
def test_constraints(constraint: Constraint, attributes: dict[str, str]) -> None:
    assert parse_constraint(str(constraint)) == constraint
    assert constraint.op in OPERATORS
    opposite = {"==": "!=", "in": "not in", "present": "not present"}.get(constraint.op)
    if opposite:
        other = Constraint(constraint.attribute, opposite, constraint.values)
        assert matches(constraint, attributes) is not matches(other, attributes)


@given(st.text(max_size=60))
def test_any_text_is_a_constraint_or_refused(text: str) -> None:
    with suppress(ValueError):
        constraint = parse_constraint(text)
        assert parse_constraint(str(constraint)) == constraint
