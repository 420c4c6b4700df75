"""Every field of a job file, from its text to what starts the program: carried, used, or why not.

``FIELDS`` walks what users can write and where the wire carries it, ``ATTRIBUTES`` what the wire carries and
what each runtime makes of it. A field or attribute that is in neither table, or of which the table is not
true, fails: nothing that users write is lost on its way without somebody having said so here.
"""

import ast
import asyncio
import json
import os
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from borgish.borglet.runtimes.base import StartFailed
from borgish.borglet.runtimes.cgroups import Groups
from borgish.borglet.runtimes.docker.container import Owner, Place, container_config
from borgish.borglet.runtimes.folders import RunFolder, name_of
from borgish.borglet.runtimes.process.confinement import Confinement, ConfineRules
from borgish.borglet.runtimes.process.shim.basics import read_all
from borgish.borglet.runtimes.process.starter import Starter
from borgish.borglet.runtimes.process.zygote import Zygote
from borgish.cell.commands import (
    JoinMachine,
    PlaceTasks,
    RestartTasks,
    SubmitJob,
)
from borgish.errors import Invalid
from borgish.link.conversation import Outgoing
from borgish.resources import Resources
from borgish.spec.file.fields import job_schema
from borgish.spec.file.read import read_job
from borgish.spec.file.write import write_job
from borgish.spec.job import Container, ExitRule, Health, Mount, Program, Restart, Stop
from borgish.vocabulary import HELD, PROGRAM_MEASURES, JobKind, OnExit, RestartPolicy, Runtime
from borgish.wire.link import AttemptSpec
from tests.tidy.texts import ROOT
from tests.unit.cell.test_decide import GIB, NOW, Desk, machine

# -- from the job file to the wire ---------------------------------------------------------------------


class Sample(msgspec.Struct, frozen=True):
    """Two jobs that differ in one field, as what is laid over ``JOB``; and what becomes of the field.

    ``carried`` is where in ``AttemptSpec`` the difference shows. ``master_only`` says why it does not.
    """

    before: dict[str, Any]
    after: dict[str, Any]
    carried: str = ""
    master_only: str = ""


JOB = {"name": "web", "run": ["serve"]}
PLACED = "it says where tasks go, or who goes first: the scheduler has used it when there is an attempt"

GATE = "it says whether a task may be taken down: nobody asks its machine"
ORDER = "it says when tasks may start, and when they end: the master waits"
ROLLOUT = "the master changes tasks a few at a time"


def carried(field: str, before: Any, after: Any, where: str, **both: Any) -> Sample:
    return Sample(_nested(field, before) | both, _nested(field, after) | both, carried=where)


def master_only(field: str, before: Any, after: Any, why: str = PLACED, **both: Any) -> Sample:
    return Sample(_nested(field, before) | both, _nested(field, after) | both, master_only=why)


def _nested(field: str, value: Any) -> dict[str, Any]:
    """Return a mapping in which a path has a value; None leaves the field out."""
    key, _, rest = field.partition(".")
    if value is None:
        return {}
    return {key: _nested(rest, value) if rest else value}


def _over(kind: str, more: dict[str, Any]) -> Sample:
    rule = {"labels": "app == db"}
    return master_only(kind, [rule], [rule | more])


HTTP = {"ports": ["a", "b"]}
ONCE = {"restart": {"policy": "on_failure"}}

FIELDS = {
    "name": carried("name", "web", "shop", "task"),
    "kind": Sample({}, {"kind": "alloc_set", "run": None}, master_only="nothing of an alloc set is assigned"),
    "user": carried("user", "ann", "bob", "task"),
    "tasks": master_only("tasks", 1, 2, "each task is an attempt of its own, and knows its index"),
    "run": carried("run", ["serve"], ["serve", "-v"], "run"),
    "image": carried("image", "busybox:1", "busybox:2", "image"),
    **{
        f"container.{field}": carried("container", {"user": "0"}, {"user": "0"} | more, where, image="a")
        for field, more, where in (
            ("user", {"user": "1000:100"}, "container.user"),
            ("read_only", {"read_only": True}, "container.read_only"),
            ("capabilities", {"capabilities": ["CAP_NET_ADMIN"]}, "container.capabilities"),
            ("mounts.from", {"mounts": [{"from": "/srv/a", "to": "/a"}]}, "container.mounts"),
            ("mounts.to", {"mounts": [{"from": "/srv", "to": "/b"}]}, "container.mounts"),
            ("mounts.write", {"mounts": [{"from": "/srv", "to": "/a", "write": True}]}, "container.mounts"),
        )
    },
    "group.*.run": carried("group.proxy.run", ["a"], ["b"], "programs.0.run"),
    "group.*.image": carried("group.proxy.image", "a", "b", "programs.0.image", image="c"),
    "group.*.env": carried(
        "group.proxy", {"run": ["a"]}, {"run": ["a"], "env": {"A": "1"}}, "programs.0.env"
    ),
    "group.*.workdir": carried(
        "group.proxy", {"run": ["a"]}, {"run": ["a"], "workdir": "/srv"}, "programs.0.workdir"
    ),
    "runtime": Sample({}, {"runtime": "docker", "image": "busybox:1"}, carried="runtime"),
    "priority": master_only("priority", "free", "production"),
    "appclass": master_only(
        "appclass", "batch", "latency_sensitive", "no runtime treats the classes differently"
    ),
    "resources.cpu": carried("resources.cpu", 1, 2, "resources.cpu_millis"),
    "resources.ram": carried("resources.ram", "64MiB", "128MiB", "resources.ram_bytes"),
    "resources.disk": carried("resources.disk", "1GiB", "2GiB", "resources.disk_bytes"),
    "resources.devices": carried("resources.devices", {"gpu": 1}, {"gpu": 2}, "resources.devices.gpu"),
    "resources.*": carried("resources.tokens", 1, 2, "resources.named.tokens"),
    "ports": carried("ports", ["a"], ["a", "b"], "ports.b"),
    "fixed_ports": carried("fixed_ports", {"a": 9100}, {"a": 9200}, "ports.a"),
    "env": carried("env", {"A": "1"}, {"A": "2"}, "env.A"),
    "workdir": carried("workdir", "/a", "/b", "workdir"),
    "root": carried("root", "/srv/roots/a", "/srv/roots/b", "root"),
    "network": carried("network", "machine", "none", "network"),
    "secret_env": carried("secret_env", {"A": "a"}, {"A": "b"}, "secret_env.A"),
    "secret_files": carried("secret_files", {"a": "a"}, {"a": "b"}, "secret_files.a"),
    "restart.policy": carried("restart.policy", "always", "never", "restart.policy"),
    "restart.attempts": carried("restart.attempts", 1, 2, "restart.attempts"),
    "restart.within": carried("restart.within", "1m", "2m", "restart.within_seconds"),
    "restart.backoff": carried("restart.backoff", "1s", "2s", "restart.backoff_seconds"),
    "on_exit.do": carried(
        "on_exit", [{"codes": [1], "do": "fail"}], [{"codes": [1], "do": "finish"}], "on_exit", **ONCE
    ),
    "on_exit.codes": carried(
        "on_exit", [{"codes": [1, "3-5"], "do": "fail"}], [{"codes": [1], "do": "fail"}], "on_exit", **ONCE
    ),
    "on_exit.signals": carried(
        "on_exit",
        [{"signals": ["KILL"], "do": "fail"}],
        [{"signals": ["SEGV"], "do": "fail"}],
        "on_exit",
        **ONCE,
    ),
    "max_failures": master_only(
        "max_failures", 0, "20%", "it is about the job, of which a machine has a task", **ONCE
    ),
    "stop.signal": carried("stop.signal", "TERM", "INT", "stop.signal"),
    "stop.grace": carried("stop.grace", "1s", "2s", "stop.grace_seconds"),
    "stop.deregister": carried("stop.deregister", "0s", "2s", "stop.deregister_seconds"),
    "health.http": carried(
        "health", {"http": "/", "port": "a"}, {"http": "/b", "port": "a"}, "health.http", **HTTP
    ),
    "health.tcp": carried("health", {"http": "/", "port": "a"}, {"tcp": "a"}, "health.tcp", **HTTP),
    "health.command": carried("health.command", ["a"], ["b"], "health.command"),
    "health.port": carried(
        "health", {"http": "/", "port": "a"}, {"http": "/", "port": "b"}, "health.port", **HTTP
    ),
    "labels": carried("labels", {"a": "1"}, {"a": "2"}, "labels.a"),
    "annotations": master_only("annotations", {"a": "1"}, {"a": "2"}, "they are notes for those who ask"),
    "constraints": master_only("constraints", [], ["arch == amd64"]),
    "prefer.when": master_only("prefer", [{"when": "a == b"}], [{"when": "a == c"}]),
    "prefer.weight": master_only("prefer", [{"when": "a == b"}], [{"when": "a == b", "weight": 9}]),
    "spread.over": master_only("spread", [{"max": 2}], [{"max": 2, "over": "rack"}]),
    "spread.max": master_only("spread", [{"over": "rack"}], [{"max": 2, "over": "rack"}]),
    **{
        f"{kind}.{field}": _over(kind, {field: value})
        for kind in ("near", "apart")
        for field, value in (("labels", "app == web"), ("over", "rack"), ("weight", 9))
    },
    "tolerations.taint": master_only("tolerations", [{"taint": "a"}], [{"taint": "b"}]),
    "tolerations.value": master_only("tolerations", [{"taint": "a"}], [{"taint": "a", "value": "b"}]),
    "tolerations.for": master_only("tolerations", [{"taint": "a"}], [{"taint": "a", "for": "1h"}]),
    "recheck": master_only("recheck", "keep", "evict"),
    "in": carried("in", None, "room", "alloc"),
    "gang": master_only("gang", after=True, before=False),
    "exclusive": carried("exclusive", False, True, "lease_seconds"),
    "allow_exec": master_only(
        "allow_exec", False, True, "the master refuses who may not before a machine is asked"
    ),
    "preempt_within": master_only(
        "preempt_within", "1s", "2s", "it is the victims' notice, and reaches their machines in a StopOrder"
    ),
    "update.at_a_time": master_only("update.at_a_time", 2, "20%", ROLLOUT),
    "update.settle": master_only("update.settle", "5s", "6s", ROLLOUT),
    "update.deadline": master_only("update.deadline", "5m", "6m", ROLLOUT),
    "update.canaries": master_only("update.canaries", 1, 2, ROLLOUT),
    "update.max_disruptions": master_only("update.max_disruptions", 5, 6, ROLLOUT),
    "update.on_failure": master_only("update.on_failure", "pause", "undo", ROLLOUT),
    "update.handover": master_only("update.handover", False, True, ROLLOUT),
    "after": master_only("after", ["db"], [{"job": "db", "until": "up", "within": "10m"}], ORDER),
    "parent": master_only("parent", "db", "cache", ORDER),
    "disruption.max_unavailable": master_only("disruption.max_unavailable", 1, "20%", GATE),
    "disruption.max_rate": master_only("disruption.max_rate", "5 per 10m", "6 per 10m", GATE),
    "overrides.*.run": carried("overrides.0.run", ["a"], ["b"], "run"),
    "overrides.*.env": carried("overrides.0.env", {"A": "1"}, {"A": "2"}, "env.A"),
    **{
        f"overrides.*.resources.{field}": carried(
            f"overrides.0.resources.{field}", low, high, f"resources.{where}"
        )
        for field, low, high, where in (
            ("cpu", 1, 2, "cpu_millis"),
            ("ram", "64MiB", "128MiB", "ram_bytes"),
            ("disk", "1GiB", "2GiB", "disk_bytes"),
            ("devices", {"gpu": 1}, {"gpu": 2}, "devices.gpu"),
        )
    },
    "overrides.*.resources.*": carried("overrides.0.resources.tokens", 1, 2, "resources.named.tokens"),
    "max_runtime": carried("max_runtime", "1h", "2h", "max_runtime_seconds"),
    **{
        f"health.{field}": carried(
            "health", {"command": ["a"]}, {"command": ["a"], field: value}, f"health.{where}"
        )
        for field, value, where in (
            ("interval", "3s", "interval_seconds"),
            ("timeout", "3s", "timeout_seconds"),
            ("failures", 9, "failures"),
            ("grace", "3s", "grace_seconds"),
        )
    },
}


def written(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield the path of each field that a job file may hold; ``*`` is a name that users choose."""
    schema = schema.get("items", schema)
    known, free = schema.get("properties", {}), schema.get("additionalProperties") or {}
    if not known and "properties" not in free:
        yield path
    for name, field in known.items():
        yield from written(field, f"{path}.{name}" if path else name)
    if (known and free) or "properties" in free:
        yield from written(free, f"{path}.*")


def attempt_of(changes: dict[str, Any]) -> AttemptSpec | None:
    """Return what a machine gets of the first task of such a job; None when it gets nothing."""
    fields = {name: value for name, value in (JOB | changes).items() if value is not None}
    job = read_job(json.dumps(fields), "ann")
    desk = Desk()
    amounts = Resources(64000, 64 * GIB, 64 * GIB, {"tokens": 9}, {"gpu": 8000})
    large = msgspec.structs.replace(
        machine("m2"),
        capacity=amounts,
        runtimes=(Runtime.PROCESS, Runtime.DOCKER),
        attributes={"arch": "amd64"},
    )
    desk.do(JoinMachine(large, "i2", known=False))
    gpus = job.needs(0).devices.get("gpu", 0) // 1000
    devices = (tuple(f"gpu:{number}" for number in range(gpus)),)
    if job.inside:
        desk.do(SubmitJob(read_job("{name: room, kind: alloc_set, resources: {cpu: 4, ram: 4GiB}}", "ann")))
        desk.do(PlaceTasks("ann/room", (0,), ("m2",)))
    if job.parent:
        desk.do(SubmitJob(read_job(f"{{name: {job.parent.partition('/')[2]}, run: [serve]}}", "ann")))
    desk.do(SubmitJob(job), job.user)
    if job.after:
        desk.do(RestartTasks(job.key))
    ports = (tuple(job.fixed_ports.get(name, 20000 + number) for number, name in enumerate(job.ports)),)
    allocs = (0,) if job.inside else ()
    desk.do(PlaceTasks(job.key, (0,), ("m2",), ports, devices, allocs))
    assert desk.cell.placed["m2"], "the sample's task was not placed"
    assigned = Outgoing(desk.cell, "m2").assignment(desk.observed, 1, NOW).run
    if job.kind is JobKind.ALLOC_SET:
        assert not assigned
    return next(iter(assigned), None)


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return the leaves of a structure by path."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {path: value}
    leaves: dict[str, Any] = {}
    for key, child in value.items():
        leaves |= flat(child, f"{path}.{key}" if path else str(key))
    return leaves


def differing(before: Any, after: Any) -> set[str]:
    old, new = flat(before), flat(after)
    return {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}


def test_every_field_of_a_job_file_is_in_the_table() -> None:
    assert sorted(FIELDS) == sorted(written(job_schema()))


@pytest.mark.parametrize("field", FIELDS)
def test_what_is_written_of_a_job_has_it(field: str) -> None:
    for changes in (FIELDS[field].before, FIELDS[field].after):
        file = {key: value for key, value in (JOB | changes).items() if value is not None}
        spec = read_job(json.dumps(file), "ann")
        assert read_job(write_job(spec), "nobody") == spec


@pytest.mark.parametrize("field", [field for field, sample in FIELDS.items() if sample.carried])
def test_the_wire_carries(field: str) -> None:
    sample = FIELDS[field]
    changed = differing(attempt_of(sample.before), attempt_of(sample.after))
    where = sample.carried
    assert any(path == where or path.startswith(f"{where}.") for path in changed), changed


@pytest.mark.parametrize("field", [field for field, sample in FIELDS.items() if sample.master_only])
def test_the_master_keeps_to_itself(field: str) -> None:
    sample = FIELDS[field]
    before, after = attempt_of(sample.before), attempt_of(sample.after)
    assert after is None or differing(before, after) == set(), sample.master_only


# -- from the wire to the runtimes -----------------------------------------------------------------------

USED = "it is in what the runtime asks its engine, or its shim, for"
CORE = "the borglet's core or shell uses it, in the same way for each runtime"
REFUSED = "a job that has it is refused for this runtime"
IN_ENV = "programs are told by their environment, which is complete"
COUNTED = "the scheduler counts it; there is nothing on a machine that could hold it"
IN_MEMORY = "its values are put into folders in memory, which runtimes are given: runtimes/secrets.py"
UNLEASED = "containers have no leases: only what their machine says of their end counts"
UNREAD = "nothing on a machine reads it"
ORDERED = "the order to stop says it, as the job has it then: its clients are those of that moment"
IMPLIED = "a probe that has neither http nor command connects to its port"

# What the process runtime makes of an attribute, and what the docker runtime does.
ATTRIBUTES = {
    "task": (USED, USED),
    "attempt": (USED, USED),
    "run": (USED, USED),
    "env": (USED, USED),
    "runtime": (CORE, CORE),
    "resources.cpu_millis": (USED, USED),
    "resources.ram_bytes": (USED, USED),
    "resources.disk_bytes": (USED, USED),
    "resources.named": (COUNTED, COUNTED),
    "resources.devices": (IN_ENV, IN_ENV),
    "restart.policy": (CORE, CORE),
    "restart.attempts": (CORE, CORE),
    "restart.within_seconds": (CORE, CORE),
    "restart.backoff_seconds": (CORE, CORE),
    "stop.signal": (CORE, CORE),
    "stop.grace_seconds": (CORE, USED),
    "stop.deregister_seconds": (ORDERED, ORDERED),
    "image": (REFUSED, USED),
    "workdir": (USED, USED),
    "ports": (IN_ENV, USED),
    "health.http": (CORE, CORE),
    "health.tcp": (IMPLIED, IMPLIED),
    "health.command": (CORE, CORE),
    "health.port": (CORE, CORE),
    "health.interval_seconds": (CORE, CORE),
    "health.timeout_seconds": (CORE, CORE),
    "health.failures": (CORE, CORE),
    "health.grace_seconds": (CORE, CORE),
    "max_runtime_seconds": (CORE, CORE),
    "labels": (UNREAD, UNREAD),
    "devices": (IN_ENV, IN_ENV),
    "alloc": (CORE, CORE),
    "programs": (USED, CORE),
    "program": (USED, USED),
    "lease_seconds": (USED, UNLEASED),
    "on_exit": (CORE, CORE),
    "failures": (CORE, CORE),
    "keep_output_seconds": (CORE, CORE),
    "container.user": (REFUSED, USED),
    "container.read_only": (REFUSED, USED),
    "container.capabilities": (REFUSED, USED),
    "container.mounts": (REFUSED, USED),
    "root": (USED, REFUSED),
    "network": (USED, USED),
    "secret_env": (IN_MEMORY, IN_MEMORY),
    "secret_files": (IN_MEMORY, IN_MEMORY),
}

FULL = AttemptSpec(
    task="ann/web/0",
    attempt=7,
    run=("serve",),
    env={"A": "1"},
    runtime=Runtime.PROCESS,
    resources=Resources(1000, GIB, GIB, {"tokens": 1}, {"gpu": 1000}),
    restart=Restart(RestartPolicy.ALWAYS, 1),
    stop=Stop(deregister_seconds=1.0),
    image="busybox:1",
    workdir="/srv",
    ports={"http": 20000},
    health=Health("/", True, ("probe",), "http"),
    max_runtime_seconds=9.0,
    labels={"app": "web"},
    devices=("gpu:0",),
    alloc="ann/room/0@3",
    container=Container("1000", mounts=(Mount("/srv/a", "/a"),)),
)


def attributes(struct: type[Any], path: str = "") -> Iterator[str]:
    """Yield the path of each attribute; of those that are structures, the paths of theirs."""
    for field in msgspec.structs.fields(struct):
        kinds = [each for each in (field.type, *get_args(field.type)) if isinstance(each, type)]
        inner = next(
            (each for each in kinds if issubclass(each, msgspec.Struct) and each is not Program), None
        )
        if inner is None or field.name in ("programs", "on_exit", "mounts"):
            yield f"{path}{field.name}"
        else:
            yield from attributes(inner, f"{path}{field.name}.")


def with_another(spec: Any, path: str) -> Any:
    """Return a structure with another value at a path."""
    name, _, rest = path.partition(".")
    value = getattr(spec, name)
    return msgspec.structs.replace(spec, **{name: with_another(value, rest) if rest else _other(name, value)})


def _other(name: str, value: Any) -> Any:
    if name == "programs":
        return (*value, Program("proxy", ("proxy",)))
    if name == "on_exit":
        return (*value, ExitRule(OnExit.FAIL, signals=("KILL",)))
    if name == "user":
        return "2000"
    if name == "mounts":
        return (*value, Mount("/srv/b", "/b"))
    match value:
        case bool():
            return not value
        case Enum():
            return next(each for each in type(value) if each is not value)
        case int() | float():
            return value + 1000
        case str():
            return value + "x"
        case tuple():
            return (*value, "x")
        case dict():
            return {**value, "x": next(iter(value.values()), "x")}
    raise AssertionError(f"no other value is known for {name}: {value!r}")


class Recorder(Zygote):
    """Keeps what it is asked for, and starts nothing."""

    def __init__(self, log: Path) -> None:
        super().__init__(log)
        self.asked: dict[str, Any] = {}

    async def send(self, *fds: int) -> None:
        self.asked = json.loads(read_all(os.dup(fds[0])))
        raise OSError("nothing is started here")


def by_process(spec: AttemptSpec) -> Any:
    """Return what the process runtime asks a shim for."""
    zygote = Recorder(Path("shim.log"))
    confinement = Confinement(Path("state"), ConfineRules(roots=("/",)))
    confinement.measures |= dict.fromkeys(PROGRAM_MEASURES, HELD) | {"uid": "no account is asked for here"}
    starter = Starter(zygote, "boot", confinement)
    starter.groups = Groups(2, {"cpu": "/cgroup", "memory": "/cgroup", "pids": "/cgroup"})
    folder = RunFolder(Path("runs") / name_of(spec.key))
    with pytest.raises(StartFailed):
        asyncio.run(starter.launch(spec, 1, folder))
    return zygote.asked


def by_docker(spec: AttemptSpec) -> Any:
    """Return what the docker runtime asks its engine for."""
    return container_config(spec, 1, Owner("test", "m1"), Place("borgish-test", ("127.0.0.1",)))


ASKED: dict[Runtime, Callable[[AttemptSpec], Any]] = {Runtime.PROCESS: by_process, Runtime.DOCKER: by_docker}


def core_reads(path: str) -> bool:
    """Return whether anything of the borglet that is no runtime reads this attribute of an attempt, as in
    ``spec.alloc`` or ``restart.policy``."""
    of, _, name = f"spec.{path}".rpartition(".")
    borglet = ROOT / "borgish" / "borglet"
    paths = sorted(set(borglet.rglob("*.py")) - set((borglet / "runtimes").rglob("*.py")))
    trees = [ast.parse(path.read_text()) for path in paths]
    reads = (n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == name)
    whose = {ast.unparse(read.value).rpartition(".")[2] for read in reads}
    return any(each.startswith(of.rpartition(".")[2]) for each in whose)


def test_every_attribute_of_an_attempt_is_in_the_table() -> None:
    assert list(ATTRIBUTES) == list(attributes(AttemptSpec))


def test_every_runtime_is_in_the_table() -> None:
    assert list(ASKED) == [runtime for runtime in Runtime if runtime is not Runtime.FAKE]
    assert {len(uses) for uses in ATTRIBUTES.values()} == {len(ASKED)}


@pytest.mark.parametrize("runtime", ASKED)
@pytest.mark.parametrize("path", ATTRIBUTES)
def test_a_runtime_uses_what_the_table_says(path: str, runtime: Runtime) -> None:
    asked, what = ASKED[runtime], ATTRIBUTES[path][list(ASKED).index(runtime)]
    is_used = asked(FULL) != asked(with_another(FULL, path))
    assert is_used == (what == USED), f"{path}: {what}"
    if what == CORE:
        assert core_reads(path), f"{path}: {what}"


def test_a_shim_reads_all_that_it_is_asked_for() -> None:
    shim = ROOT / "borgish" / "borglet" / "runtimes" / "process" / "shim"
    trees = [ast.parse(path.read_text()) for path in sorted(shim.glob("*.py"))]
    words = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert by_process(FULL).keys() <= words


def test_an_image_is_refused_for_processes() -> None:
    with pytest.raises(Invalid, match="process cannot run an image"):
        read_job("{name: web, image: busybox, runtime: process}", "ann")
