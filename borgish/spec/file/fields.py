"""The fields of a job file: their names, kinds, bounds and words. The reader, the JSON Schema and the help
come from these tables. What must go together across the whole file is in ``read``.
"""

import json
import re

import msgspec

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.resources import Amounts
from borgish.spec.container import CONTAINER
from borgish.spec.file.document import Node, Scalar, Sequence
from borgish.spec.file.kinds import (
    Choice,
    Field,
    Flag,
    ListOf,
    MapOf,
    Name,
    Place,
    Record,
    Schema,
    Text,
    Values,
    Whole,
    Word,
    Wrong,
)
from borgish.spec.file.mistakes import nearest, quote
from borgish.spec.file.values import (
    ENDING_SIGNALS,
    Codes,
    Condition,
    EnvName,
    Index,
    Limits,
    Port,
    Priority,
    Signal,
    TaskRate,
    TaskShare,
    Tcp,
    duration,
)
from borgish.spec.file.variables import schema as vars_schema
from borgish.spec.job import (
    MACHINE,
    WITHIN_SECONDS_MAX,
    Affinity,
    After,
    Constraint,
    Disruption,
    ExitRule,
    Health,
    Override,
    Preference,
    Restart,
    Spread,
    Stop,
    Toleration,
    Update,
)
from borgish.vocabulary import (
    NAME_PATTERN,
    TAINT_KEY_PATTERN,
    TAINT_VALUE_PATTERN,
    TASKS_PER_JOB_MAX,
    Appclass,
    JobKind,
    Network,
    OnExit,
    OnFailure,
    Recheck,
    RestartPolicy,
    Runtime,
    Until,
)

ENV_MAX = 128
SECRETS_MAX = 32
ENV_VALUE_BYTES_MAX = 32 * 1024
_DAY_SECONDS = 86_400
_SHELL = re.compile(r"[|&;<>$*`\"'\\(){}\n]")


def _command_example(text: str) -> str:
    """Return how a command written as one text is written as a list."""
    if len(text) > 200 or not text.strip():
        return "run: [program, argument]"
    if _SHELL.search(text):
        return f"run: [sh, -c, {json.dumps(text, ensure_ascii=False)}]"
    return f"run: [{', '.join(_flow_item(word) for word in text.split())}]"


def _flow_item(word: str) -> str:
    return word if re.fullmatch(r"[A-Za-z0-9_./=+-]+", word) and word != "-" else json.dumps(word)


_ARGUMENT = Text(ENV_VALUE_BYTES_MAX, lines=True, empty=True)
_COMMAND = ListOf(_ARGUMENT, 1000, "[program, argument]", one=_command_example)
_ENV = MapOf(EnvName(), Text(ENV_VALUE_BYTES_MAX, lines=True, empty=True), ENV_MAX, "{LOG_LEVEL: info}")
_LABEL = Text(128, r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?", "letters, digits and . _ / - inside")
_SECRET = Text(63, NAME_PATTERN, "the name of a secret, like db-password")
_SECRET_ENV = MapOf(EnvName(), _SECRET, SECRETS_MAX, "{DB_PASSWORD: db-password}")
_SECRET_FILE = Text(63, r"[A-Za-z0-9_][A-Za-z0-9._-]*", "the name of a file, like db.key")
_SECRET_FILES = MapOf(_SECRET_FILE, _SECRET, SECRETS_MAX, "{db.key: db-key}")
LABELS = MapOf(_LABEL, Text(256, empty=True), 64, "{team: search}")
ANNOTATIONS = MapOf(_LABEL, Text(4096, lines=True, empty=True), 64, "{note: some words}")

RESTART_FIELDS = (
    Field("policy", Choice(RestartPolicy), "always (a service), on_failure (runs to completion) or never"),
    Field(
        "attempts",
        Whole(0, 1_000_000),
        "failures within the time of `within` that end the task, or move a service's; 0: no limit",
    ),
    Field(
        "within",
        duration(1, WITHIN_SECONDS_MAX, "10m"),
        "the time in which attempts count; 10m unless given, and for good in what runs to completion",
        "within_seconds",
    ),
    Field("backoff", duration(0.1, 300, "1s"), "the first wait; doubles up to 5m", "backoff_seconds"),
)


def _make_restart(values: Values) -> Restart:
    restart = Restart(**values.given)
    if restart.policy is RestartPolicy.ON_FAILURE and restart.attempts and "within" not in values.nodes:
        restart = msgspec.structs.replace(restart, within_seconds=WITHIN_SECONDS_MAX)
    if restart.policy is RestartPolicy.NEVER and restart.attempts:
        hint = "remove it, or write policy: on_failure"
        values.report("attempts", "attempts has no effect with policy: never", hint)
    return restart


def _restart_example(text: str) -> str:
    """Return the policy that a single word means; Docker's and Compose's are among those understood."""
    word = text.replace("-", "_")
    docker = {"no": RestartPolicy.NEVER, "false": RestartPolicy.NEVER, "unless_stopped": RestartPolicy.ALWAYS}
    return f"{{policy: {docker.get(word) or nearest(word, RestartPolicy) or RestartPolicy.ON_FAILURE}}}"


def _restart_of_run_example(text: str) -> str:
    return _restart_example(text).replace(RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE)


RESTART = Record(
    "restart",
    RESTART_FIELDS,
    "{policy: on_failure}, or always, or never",
    _make_restart,
    one=_restart_example,
)
RESTART_OF_RUN = Record(
    "restart", RESTART_FIELDS, "{policy: on_failure}, or never", _make_restart, one=_restart_of_run_example
)
"""Of what comes to an end, as each run of a cron does."""

_ON_EXIT_FIELDS = (
    Field(
        "do",
        Choice(OnExit),
        "fail: the task has failed; finish: as exit code 0; restart: an attempt that does not count",
        required=True,
    ),
    Field("codes", ListOf(Codes(), 32, "[42, 64-78]", unique=True), "exit codes, and ranges of them"),
    Field("signals", ListOf(Signal(ENDING_SIGNALS), 32, "[KILL]", unique=True), "signals that ended it"),
)


def _make_exit_rule(values: Values) -> ExitRule | None:
    if "codes" not in values.nodes and "signals" not in values.nodes:
        values.place.report(values.node, "the rule says of no end what follows", "add codes: [42]")
    for field, node in values.nodes.items():
        if isinstance(node, Sequence) and not node.items:
            values.report(field, "the list is empty", "remove it, or write what the rule is about")
    return ExitRule(**values.given) if "do" in values.given else None


_EXIT_RULE = Record("a rule of on_exit", _ON_EXIT_FIELDS, "{codes: [42], do: fail}", _make_exit_rule)
ON_EXIT = ListOf(_EXIT_RULE, 32, "[{codes: [42], do: fail}]")

STOP_FIELDS = (
    Field("signal", Signal(), "the signal that asks the task to end; TERM unless given"),
    Field(
        "grace", duration(0, 600, "10s"), "how long to wait before SIGKILL; 10s unless given", "grace_seconds"
    ),
    Field(
        "deregister",
        duration(0, 600, "5s"),
        "how long a task that is to end goes on before the signal, for its clients to leave it; 0s unless "
        "given, 5s with update.handover",
        "deregister_seconds",
    ),
)
STOP = Record("stop", STOP_FIELDS, "{signal: TERM, grace: 10s}", lambda values: Stop(**values.given))

HEALTH_FIELDS = (
    Field("http", Text(1024, r"/[!-~]*", "a path, like /"), "a path to GET; 200 to 399 is healthy"),
    Field("tcp", Tcp(), "true, or the name of the port, where a connection is enough"),
    Field("command", _COMMAND, "a program run beside the task; exit 0 is healthy"),
    Field("port", Port(), "the name of the port to probe; may be left out when the job has one port"),
    Field(
        "interval",
        duration(0.1, 3600, "10s"),
        "from one probe to the next; 10s unless given",
        "interval_seconds",
    ),
    Field(
        "timeout",
        duration(0.01, 600, "2s"),
        "how long an answer may take; 2s unless given",
        "timeout_seconds",
    ),
    Field("failures", Whole(1, 100), "failures in a row that make the task unhealthy; 3 unless given"),
    Field(
        "grace",
        duration(0, 3600, "15s"),
        "failures before this age do not count; 15s unless given",
        "grace_seconds",
    ),
)
_PROBES = ("http", "tcp", "command")


def _make_health(values: Values) -> Health:
    probes = [name for name in _PROBES if name in values.nodes]
    if len(probes) != 1:
        what = f"both {' and '.join(probes)} are given" if probes else "none of http, tcp, command is given"
        values.place.report(values.node, f"{what}; a probe is exactly one", "write {http: /, port: http}")
    given = dict(values.given)
    if "tcp" in given:
        named = given["tcp"]
        given["tcp"] = True
        if named and given.setdefault("port", named) != named:
            values.report("port", "tcp and port name different ports", "keep one of them")
    if "command" in probes and "port" in given:
        values.report("port", "a command probe has no port", "remove it; the command finds PORT_NAME set")
    if "command" in given and not any(given["command"][:1]):
        values.report("command", "there is no program to run", "write command: [program, argument]")
    return Health(**given)


HEALTH = Record("health", HEALTH_FIELDS, "{http: /, port: http}", _make_health)

OVERRIDE_FIELDS = (
    Field("run", _COMMAND, "what this task runs instead"),
    Field("env", _ENV, "overrides the job's"),
    Field("resources", Limits(), "overrides the job's"),
)


def _make_override(values: Values) -> tuple[Override, Amounts | None]:
    """Return the override without its resources, and what it gives of these: the rest is the job's."""
    given = dict(values.given)
    resources = given.pop("resources", None)
    return Override(**given), resources


OVERRIDE = Record("an override", OVERRIDE_FIELDS, "{env: {ROLE: first}}", _make_override)

_IMAGE = Text(512, r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*", "an image, like busybox:1")
_WORKDIR = Text(4096, r"/.*", "an absolute path, like /srv")
_ROOT = Text(4096, r"/.+", "the absolute path of a folder, like /srv/roots/debian")
_ALLOC_SET = Text(127, rf"{NAME_PATTERN}(/{NAME_PATTERN})?", "an alloc set, like room or ann/room")

PROGRAM_FIELDS = (
    Field("run", _COMMAND, "the program and its arguments"),
    Field("image", _IMAGE, "a container image, where the job has one"),
    Field("env", _ENV, "overrides the job's"),
    Field("workdir", _WORKDIR, "the folder to start in; the job's unless given"),
)
PROGRAM = Record("a program", PROGRAM_FIELDS, "{run: [program, argument]}", lambda values: dict(values.given))

# Where its tasks are to be, and beside whom: preferences, spread, affinity, tolerations.

_ATTRIBUTE = Text(63, r"[A-Za-z_][A-Za-z0-9_./-]*", "an attribute of machines, like rack")
_TAINT_KEY = Text(63, TAINT_KEY_PATTERN, "a taint's key, like maintenance")
_TAINT_VALUE = Text(253, TAINT_VALUE_PATTERN, "letters, digits and . _ / - inside")
_WEIGHT = Whole(1, 100)


class Labels:
    """Conditions on labels: one expression, or a list of which all must hold."""

    _one = Condition()
    _several = ListOf(_one, 16, '"app == db"')

    def read(self, node: Node, place: Place, /) -> tuple[Constraint, ...]:
        if isinstance(node, Sequence):
            if not node.items:
                raise Wrong("no condition is given", 'write "app == db"')
            return self._several.read(node, place)
        return (self._one.read(node, place),)

    def schema(self) -> Schema:
        return {"anyOf": [self._one.schema(), self._several.schema()]}


_PREFER_FIELDS = (
    Field("when", Condition(), "a condition on machines, like disk == ssd", required=True),
    Field("weight", _WEIGHT, "weight of the preference, 1 to 100; 1 unless given"),
)


def _make_preference(values: Values) -> Preference | None:
    return Preference(**values.given) if "when" in values.given else None


_PREFERENCE = Record("a preference", _PREFER_FIELDS, '{when: "disk == ssd", weight: 10}', _make_preference)
PREFER = ListOf(_PREFERENCE, 32, '[{when: "disk == ssd", weight: 10}]')

_SPREAD_FIELDS = (
    Field("over", _ATTRIBUTE, "an attribute of machines, like rack; machine unless given"),
    Field("max", Whole(1, TASKS_PER_JOB_MAX), "at most so many tasks on each of its values; else even"),
)


class _SpreadList(ListOf[Spread]):
    """Spreads, each over another attribute."""

    def read(self, node: Node, place: Place, /) -> tuple[Spread, ...]:
        spreads = super().read(node, place)
        seen: set[str] = set()
        for spread in spreads:
            if spread.over in seen:
                place.report(node, f"{quote(spread.over)} is given twice", "keep one of them")
            seen.add(spread.over)
        return spreads


_SPREAD = Record("a spread", _SPREAD_FIELDS, "{over: rack, max: 2}", lambda values: Spread(**values.given))
SPREAD = _SpreadList(_SPREAD, 8, "[{over: rack, max: 2}]")

_AFFINITY_FIELDS = (
    Field("labels", Labels(), "whose tasks: conditions on the labels of their jobs", required=True),
    Field("over", _ATTRIBUTE, f"an attribute of machines, like rack; {MACHINE} unless given"),
    Field("weight", _WEIGHT, "weight of the preference, 1 to 100; without a weight it is required"),
)


def _make_affinity(values: Values) -> Affinity | None:
    return Affinity(**values.given) if values.given.get("labels") else None


_AFFINITY = Record("an affinity", _AFFINITY_FIELDS, '{labels: "app == db", over: rack}', _make_affinity)
AFFINITIES = ListOf(_AFFINITY, 16, '[{labels: "app == db", over: rack}]')

_TOLERATION_FIELDS = (
    Field("taint", _TAINT_KEY, "the taint's key", required=True),
    Field("value", _TAINT_VALUE, "its value; any unless given"),
    Field(
        "for",
        duration(0, 366 * _DAY_SECONDS, "1h"),
        "how long tasks may stay where it evicts; for good unless given",
        "for_seconds",
    ),
)


def _make_toleration(values: Values) -> Toleration | None:
    return Toleration(**values.given) if "taint" in values.given else None


_TOLERATION = Record("a toleration", _TOLERATION_FIELDS, "{taint: maintenance, for: 1h}", _make_toleration)
TOLERATIONS = ListOf(_TOLERATION, 32, "[{taint: dedicated, value: ml}]")

# Before which jobs it does not start, and with which it ends.

AFTER_MAX = 16
_JOB = Text(127, rf"{NAME_PATTERN}(/{NAME_PATTERN})?", "a job, like db or ann/db")
_AFTER_FIELDS = (
    Field("job", _JOB, "the job that has to be there first, like db or ann/db", required=True),
    Field(
        "until",
        Choice(Until),
        "up, healthy or finished; unless given finished for a job that runs to completion, else healthy, "
        "or up where nothing probes it",
    ),
    Field(
        "within",
        duration(1, 366 * _DAY_SECONDS, "10m"),
        "tasks that have waited for so long fail; they wait for good unless given",
        "within_seconds",
    ),
)


def _make_after(values: Values) -> After | None:
    return After(**values.given) if "job" in values.given else None


class _After:
    """One of them: its name alone, or with what is waited for."""

    _record = Record("an entry of after", _AFTER_FIELDS, "{job: db, until: healthy}", _make_after)

    def read(self, node: Node, place: Place, /) -> After | None:
        return After(_JOB.read(node, place)) if isinstance(node, Scalar) else self._record.read(node, place)

    def schema(self) -> Schema:
        return {"anyOf": [_JOB.schema(), self._record.schema()]}


AFTER = ListOf(_After(), AFTER_MAX, "[db], or [{job: db, until: healthy}]", one=lambda text: f"[{text}]")

DISRUPTION_FIELDS = (
    Field(
        "max_unavailable",
        TaskShare(),
        "so many tasks, or so much of them, are down before none is taken down on purpose; at least one; "
        "10% unless given",
    ),
    Field("max_rate", TaskRate(), "so many tasks in a time are taken down on purpose; no limit unless given"),
)
DISRUPTION = Record(
    "disruption",
    DISRUPTION_FIELDS,
    "{max_unavailable: 1}",
    lambda values: Disruption(**values.given),
)

UPDATE_FIELDS = (
    Field(
        "at_a_time",
        TaskShare(),
        "so many tasks, or so much of them, change at once; as many as may be unavailable, unless given",
    ),
    Field(
        "settle",
        duration(0, 3600, "10s"),
        "a changed task counts when it was healthy, or up and not probed, for so long; 10s unless given",
        "settle_seconds",
    ),
    Field(
        "deadline",
        duration(1, 7 * _DAY_SECONDS, "10m"),
        "a changed task that has not settled by then has failed; 10m unless given",
        "deadline_seconds",
    ),
    Field("canaries", Whole(0, TASKS_PER_JOB_MAX), "so many tasks change first and wait for a promotion"),
    Field(
        "max_disruptions",
        Whole(0, TASKS_PER_JOB_MAX),
        "what would disrupt more tasks is skipped; no limit unless given",
    ),
    Field(
        "on_failure",
        Choice(OnFailure),
        "pause, or undo: what was before comes back; pause unless given",
    ),
    Field("handover", Flag(), "true: a task of a service is replaced by one that is up before it is stopped"),
)
UPDATE = Record("update", UPDATE_FIELDS, "{at_a_time: 1}", lambda values: Update(**values.given))

JOB_FIELDS = (
    Field("name", Name(), "the job's name, like web", required=True),
    Field("kind", Choice(JobKind), "job, or alloc_set: reserved envelopes for the tasks of other jobs"),
    Field("user", Name(), "whose job it is; who asks, unless given"),
    Field(
        "tasks",
        Whole(
            1, TASKS_PER_JOB_MAX, f"a job has at most {TASKS_PER_JOB_MAX} tasks; split it into several jobs"
        ),
        "how many tasks run; 1 unless given",
    ),
    Field("run", _COMMAND, "the program and its arguments, like [python3, -m, http.server]"),
    Field("image", _IMAGE, "a container image; implies runtime: docker"),
    Field("container", CONTAINER, "as whom its containers run, and what they may beyond the ordinary"),
    Field("group", MapOf(Name(), PROGRAM, 8, "{proxy: {run: [program]}}"), "more programs of each task"),
    Field("runtime", Choice(Runtime), "process, or docker when there is an image"),
    Field(
        "priority",
        Priority(),
        "a band (monitoring, production, batch, free) or a number inside one; free unless given",
    ),
    Field("appclass", Choice(Appclass), "latency_sensitive for services, batch for the rest, unless given"),
    Field("resources", Limits(), "what one task may use; 100m of cpu and 128MiB of ram unless given"),
    Field("ports", ListOf(Port(), 32, "[http]", unique=True), "names of ports; borgish chooses the numbers"),
    Field(
        "fixed_ports",
        MapOf(Port(), Whole(1, 65535), 32, "{metrics: 9100}"),
        "names of ports whose numbers you choose; a machine takes one task that holds such a number",
    ),
    Field("env", _ENV, "environment variables"),
    Field("secret_env", _SECRET_ENV, "environment variables whose values are secrets of its user"),
    Field("secret_files", _SECRET_FILES, "secrets of its user as files in the folder $BORGISH_SECRETS"),
    Field("workdir", _WORKDIR, "the folder to start in"),
    Field("root", _ROOT, "a folder of the machine that its programs see as /; its machine has to allow it"),
    Field("network", Choice(Network), "machine, or none: its tasks reach nothing, and nothing them"),
    Field("restart", RESTART, "what follows when a task's program ends"),
    Field("on_exit", ON_EXIT, "what some exit codes and signals mean, in a job that runs to completion"),
    Field("stop", STOP, "how a task is asked to end"),
    Field("health", HEALTH, "how the health of a task is checked"),
    Field("labels", LABELS, "labels, by which jobs are selected"),
    Field("annotations", ANNOTATIONS, "notes for people and programs"),
    Field("constraints", ListOf(Condition(), 32, '["arch == amd64"]'), "conditions on machines"),
    Field("prefer", PREFER, "preferred machines"),
    Field("spread", SPREAD, "how its tasks are spread over machines, racks, zones"),
    Field("near", AFFINITIES, "affinity: beside tasks of these jobs"),
    Field("apart", AFFINITIES, "anti-affinity: away from tasks of these jobs"),
    Field("tolerations", TOLERATIONS, "taints that its tasks tolerate"),
    Field("recheck", Choice(Recheck), "when a machine stops meeting the constraints: keep or evict"),
    Field("in", _ALLOC_SET, "the alloc set that its tasks run in", "inside"),
    Field("gang", Flag(), "true: its waiting tasks are placed all together or not at all"),
    Field(
        "exclusive",
        Flag(),
        "true: never two processes of one task at a time, at the price of a minute without one",
    ),
    Field(
        "allow_exec",
        Flag(),
        "true: its owners and admins may run commands beside its tasks, and copy files; false unless given",
    ),
    Field(
        "preempt_within",
        duration(0.1, 600, "5s"),
        "longest grace period of the tasks that it preempts; their own unless given",
        "preempt_within_seconds",
    ),
    Field("update", UPDATE, "how its running tasks change with it"),
    Field("after", AFTER, "jobs that have to be there before its tasks start"),
    Field("parent", _JOB, "the job that it ends with"),
    Field("disruption", DISRUPTION, "how many of its tasks may be down on purpose, and how often"),
    Field(
        "overrides",
        MapOf(Index(), OVERRIDE, TASKS_PER_JOB_MAX, "{0: {env: {ROLE: first}}}"),
        "overrides of single tasks, by index",
    ),
    Field(
        "max_runtime",
        duration(1, 366 * _DAY_SECONDS, "1h"),
        "a task is ended after this long",
        "max_runtime_seconds",
    ),
    Field(
        "max_failures",
        TaskShare(low=0),
        "when more tasks than so many, or so much of them, failed, the job is ended; no limit unless given",
    ),
)
JOB = Record("the job", JOB_FIELDS, "name: web", lambda values: values)

APP_KIND = "app"
APP_FIELDS = (
    Field("kind", Word(APP_KIND), "app: what several jobs have in common", required=True),
    Field("name", Name(), "the application's name, like shop", required=True),
    Field("user", Name(), "whose it is, with all its jobs; who asks, unless given"),
    Field("labels", LABELS, "labels of each of its jobs; a job's own of the same name counts more"),
    Field("annotations", ANNOTATIONS, "notes for people and programs"),
)


def _make_app(values: Values) -> dict[str, object]:
    return {name: value for name, value in values.given.items() if name != "kind"}


APP = Record("the application", APP_FIELDS, "kind: app", _make_app)


def job_schema(bands: Bands = DEFAULT_BANDS) -> Schema:
    """Return the JSON Schema (draft 2020-12) of a job file for editors and checkers, with these bands.

    It says less than the reader knows: what goes together across fields is checked in ``read``.
    """
    schema = JOB.schema()
    schema["properties"]["priority"] |= Priority().schema(bands)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "borgish job",
        "description": "A named set of tasks that run the same thing.",
        **schema,
        "anyOf": [
            {"required": ["run"]},
            {"required": ["image"]},
            {"required": ["kind"], "properties": {"kind": {"const": JobKind.ALLOC_SET}}},
        ],
    }


_REFERENCE: Schema = {"type": "string", "pattern": r"\{\{ *var\."}
"""A value that a variable gives: it may stand for any."""


def document_schema(bands: Bands = DEFAULT_BANDS) -> Schema:
    """Return the JSON Schema (draft 2020-12) of one document: a job, or an application (``kind: app``).

    A document may have variables, which ``job_schema`` leaves out: what is sent to a cell as one job has its
    values.
    """
    job, app = with_variables(job_schema(bands)), with_variables(APP.schema())
    return {
        "$schema": job.pop("$schema"),
        "title": "borgish document",
        "description": "A job, or what several jobs have in common (kind: app).",
        "if": {"required": ["kind"], "properties": {"kind": {"const": APP_KIND}}},
        "then": app,
        "else": job,
    }


def with_variables(schema: Schema) -> Schema:
    """Return the schema of a document that may have variables."""
    properties = {name: _or_reference(each) for name, each in schema["properties"].items()}
    return {**schema, "properties": {**properties, "vars": vars_schema()}}


def _or_reference(schema: Schema) -> Schema:
    """Return a schema that allows a reference in place of each single value."""
    inside: Schema = {}
    for keyword, value in schema.items():
        if keyword == "properties":
            inside[keyword] = {name: _or_reference(each) for name, each in value.items()}
        elif keyword in ("items", "additionalProperties") and isinstance(value, dict):
            inside[keyword] = _or_reference(value)
        elif keyword == "anyOf":
            inside[keyword] = [_or_reference(each) for each in value]
        else:
            inside[keyword] = value
    if schema.get("type") in ("object", "array") or "anyOf" in schema:
        return inside
    about = {"description": inside.pop("description")} if "description" in inside else {}
    return {**about, "anyOf": [inside, _REFERENCE]}
