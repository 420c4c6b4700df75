"""A job that runs on time (Kubernetes' CronJob): a document ``kind: cron`` becomes a ``CronSpec``.

It is a job file with a schedule and some fields more. Each of its runs is a job of its own, whose name is
that of the cron and the instant, in UTC, at which it was due: two runs never have one name, also where clocks
are put back, and whoever counts again comes to the same one. With ``app`` each run is a copy of the stages of
an application, jobs whose names are that of the run and their own.
"""

from collections.abc import Mapping as Dict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import yaml

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.spec.file.document import Node, Scalar, child_of, parse_all
from borgish.spec.file.fields import JOB_FIELDS, RESTART_OF_RUN, document_schema, job_schema, with_variables
from borgish.spec.file.kinds import (
    Choice,
    Field,
    Leaf,
    Name,
    Place,
    Record,
    Schema,
    Values,
    Whole,
    Wrong,
    text_at,
)
from borgish.spec.file.mistakes import nearest, quote
from borgish.spec.file.read import NO_VARIABLES, filled, job_of, job_values, read_job, refuse_foreign
from borgish.spec.file.variables import VARS
from borgish.spec.file.write import write_job
from borgish.spec.job import JobSpec, Restart
from borgish.spec.schedule import (
    TIMES_SHOWN,
    UTC_ZONE,
    BadSchedule,
    Schedule,
    is_time_zone,
    schedule_of,
    show_time,
    time_zones,
)
from borgish.vocabulary import CronKind, Missed, Overlap, RestartPolicy, job_key

SCHEDULE_CHARACTERS_MAX = 256
RUNS_KEPT_MAX = 100
RUNS_MISSED_MAX = 10
"""So many of the runs that were missed begin at once with ``missed: all`` (F111)."""

_STAMP = "%Y%m%dt%H%M%S"
BY_HAND = "hand"
JOB_NAME_CHARACTERS_MAX = 63
NAME_CHARACTERS_MAX = JOB_NAME_CHARACTERS_MAX - len(f"-{BY_HAND}-20261122t020000")
"""Of a cron's name: with what its runs have behind it they are names of jobs."""


class CronSpec(msgspec.Struct, frozen=True):
    """A job that runs when its schedule says. ``job`` is each of its runs, but for the name, which is the
    cron's there. ``keep`` is how many runs that are over are kept.

    With ``app``, the name of an application of the same user, each run is a copy of its stages, and ``job``
    says whose the cron is and how it is called, and nothing else.
    """

    schedule: str  # as it was written: 30 2 * * mon-fri
    job: JobSpec
    time_zone: str = UTC_ZONE  # IANA
    overlap: Overlap = Overlap.FORBID
    missed: Missed = Missed.ONCE
    keep: int = 5
    app: str = ""  # "": its runs are jobs

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def user(self) -> str:
        return self.job.user

    @property
    def key(self) -> str:
        """The cron's name in its cell: ``user/name``."""
        return self.job.key

    @property
    def times(self) -> Schedule:
        """When it is due."""
        return schedule_of(self.schedule, self.time_zone)

    @property
    def app_key(self) -> str:
        """The application whose stages it runs, by its name in the cell; "": none."""
        return job_key(self.user, self.app) if self.app else ""

    def run_at(self, due: float) -> str:
        """Return the name of the run that was due at an instant, in seconds since 1970."""
        stamp = _stamp(due)
        return f"{self.name}-{stamp if self.times.has_seconds else stamp[:-2]}"

    def run_by_hand(self, at: float) -> str:
        """Return the name of a run that somebody asked for at a moment, in seconds since 1970."""
        return f"{self.name}-{BY_HAND}-{_stamp(at)}"

    def jobs_of(self, run: str, stages: Sequence[JobSpec] = ()) -> tuple[JobSpec, ...]:
        """Return the jobs of a run of this name. ``stages``: what it is a copy of; they wait for each other,
        and end with each other, within their run."""
        if not self.app:
            return (msgspec.structs.replace(self.job, name=run),)
        keys = {spec.key: job_key(self.user, f"{run}-{spec.name}") for spec in stages}
        return tuple(
            msgspec.structs.replace(
                spec,
                name=f"{run}-{spec.name}",
                after=tuple(
                    msgspec.structs.replace(each, job=keys.get(each.job, each.job)) for each in spec.after
                ),
                parent=keys.get(spec.parent, spec.parent),
            )
            for spec in stages
        )


def run_key(cron: str, job: str) -> str:
    """Return of which run a job is, by the keys of its cron and its own: ``user/nightly-20261122t0200``."""
    parts = job[len(cron) + 1 :].split("-")
    return "-".join((cron, *parts[: 1 + (parts[0] == BY_HAND)]))


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime(_STAMP)


class _Schedule(Leaf[str]):
    """A crontab, or a shorthand like @daily."""

    example = "30 2 * * mon-fri"

    def of(self, found: Scalar) -> str:
        if (length := len(found.text)) > SCHEDULE_CHARACTERS_MAX:
            raise Wrong(
                f"a schedule of {length} characters; at most {SCHEDULE_CHARACTERS_MAX} are allowed",
                "write ranges and steps, like 1-5 or */15, or make several crons of it",
            )
        text = " ".join(found.text.split())
        try:
            Schedule(text)
        except BadSchedule as bad:
            raise Wrong(bad.message, bad.hint) from None
        return text

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1, "maxLength": SCHEDULE_CHARACTERS_MAX}


class _TimeZone(Leaf[str]):
    """A time zone by its IANA name."""

    example = "Europe/Berlin"

    def of(self, found: Scalar) -> str:
        if is_time_zone(found.text):
            return found.text
        named = found.text[:64].replace(" ", "_")
        close = nearest(named, sorted(time_zones())) or next(
            (zone for zone in sorted(time_zones()) if zone.lower().endswith(f"/{named.lower()}")), ""
        )
        hint = f"did you mean {close}?" if close else "write an IANA name, like Europe/Berlin"
        raise Wrong(f"{quote(found.text)} is no time zone", hint)

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1}


class _AppName(Name):
    """An application of the cron's own user."""

    def of(self, found: Scalar) -> str:
        user, slash, name = found.text.partition("/")
        if slash:
            hint = f"write app: {name}, and user: {user} where that is another"
            raise Wrong("an application is named without its user, whose the cron is", hint)
        return super().of(found)


class _OfJobs:
    """A field that the stages of an application have, and the cron that runs them has not."""

    def read(self, _node: Node, _place: Place, /) -> None:
        raise Wrong("the jobs of the application have their own", "remove it, or app")

    def schema(self) -> Schema:
        return {}


_OWN_FIELDS = (
    Field("kind", Choice(CronKind), "cron: a job that runs on time", required=True),
    Field("schedule", _Schedule(), "crontab, like 30 2 * * mon-fri, or @daily", required=True),
    Field("time_zone", _TimeZone(), "the time zone of the schedule, like Europe/Berlin; UTC unless given"),
    Field(
        "overlap",
        Choice(Overlap),
        "while a run still goes on, the next is left out (forbid), begins too (allow), or ends it (replace)",
    ),
    Field(
        "missed",
        Choice(Missed),
        f"of what was due without a master: skip it, run once, or all, at most the last {RUNS_MISSED_MAX}",
    ),
    Field("keep", Whole(1, RUNS_KEPT_MAX), "so many runs that are over are kept; 5 unless given"),
    Field("app", _AppName(), "the application whose stages each run is a copy of, instead of a job"),
)
CRON_FIELDS = (
    *_OWN_FIELDS,
    *(
        msgspec.structs.replace(field, kind=RESTART_OF_RUN) if field.name == "restart" else field
        for field in JOB_FIELDS
        if field.name != "kind"
    ),
)
CRON: Record[Values] = Record("the cron", CRON_FIELDS, "name: nightly", lambda values: values)
_ALSO_OF_APP = ("name", "user")
"""Fields of a job that a cron with ``app`` has, too."""
_OF_APP: Record[Values] = Record(
    "the cron",
    tuple(
        field
        if field in _OWN_FIELDS or field.name in _ALSO_OF_APP
        else msgspec.structs.replace(field, kind=_OfJobs(), required=False)
        for field in CRON_FIELDS
    ),
    "name: nightly",
    lambda values: values,
)


def cron_schema(bands: Bands = DEFAULT_BANDS) -> Schema:
    """Return the JSON Schema (draft 2020-12) of a cron for editors and checkers, as ``job_schema`` does."""
    schema, job = CRON.schema(), job_schema(bands)
    of_app = [*(field.name for field in _OWN_FIELDS), *_ALSO_OF_APP, VARS]
    schema["properties"]["priority"] = job["properties"]["priority"]
    return {
        "$schema": job["$schema"],
        "title": "borgish cron",
        "description": "A job that runs when its schedule says.",
        **schema,
        "anyOf": [
            *({"required": [field], "not": {"required": ["app"]}} for field in ("run", "image")),
            {"required": ["app"], "propertyNames": {"enum": of_app}},
        ],
    }


def file_schema(bands: Bands = DEFAULT_BANDS) -> Schema:
    """Return the JSON Schema of any document, as ``document_schema`` does, crons among them."""
    others, cron = document_schema(bands), with_variables(cron_schema(bands))
    return {
        "$schema": others.pop("$schema"),
        "title": others.pop("title"),
        "description": "A job, a cron (kind: cron), or what several jobs have in common (kind: app).",
        "if": {"required": ["kind"], "properties": {"kind": {"const": CronKind.CRON}}},
        "then": {key: value for key, value in cron.items() if key != "$schema"},
        "else": others,
    }


def read_cron(
    text: str | bytes,
    default_user: str,
    bands: Bands = DEFAULT_BANDS,
    variables: Dict[str, str] = NO_VARIABLES,
) -> CronSpec:
    """Read a file of one cron as ``read_job`` reads one of a job. Raises Invalid with all mistakes."""
    parsed = parse_all(text)
    refuse_foreign(parsed)
    place = Place("", parsed.found, bands)
    values = cron_values(filled(parsed, parsed.only(), place, variables), place, default_user)
    if values is None or len(parsed.found):
        raise parsed.found.invalid()
    return cron_of(values, default_user)


def read_job_or_cron(
    text: str | bytes,
    default_user: str,
    bands: Bands = DEFAULT_BANDS,
    variables: Dict[str, str] = NO_VARIABLES,
) -> JobSpec | CronSpec:
    """Read a file with one job or one cron, by its ``kind``. Raises Invalid with all mistakes."""
    parsed = parse_all(text)
    if len(parsed.parts) == 1 and text_at(parsed.parts[0].root, "kind") == CronKind.CRON:
        return read_cron(text, default_user, bands, variables)
    return read_job(text, default_user, bands, variables)


def cron_values(root: Node, place: Place, default_user: str) -> Values | None:
    """Return what a document says of a cron, as ``job_values`` does."""
    if child_of(root, "app") is not None:
        values = job_values(root, place, default_user, _OF_APP, checks=())
    else:
        values = job_values(root, place, default_user, CRON, _complete)
    if values is not None:
        _check_name(values)
        _check_missed(values)
    return values


def cron_of(values: Values, default_user: str) -> CronSpec:
    """Return the cron that values without mistakes mean."""
    given = values.given
    own = {field.name: given.pop(field.name) for field in _OWN_FIELDS if field.name in given}
    del own["kind"]  # it is what this is
    return CronSpec(job=job_of(values, default_user), **own)


def _complete(values: Values) -> None:
    """Let its runs come to an end: what is not said of ``restart`` is as for what runs to completion."""
    given = values.given
    policy = child_of(values.nodes.get("restart"), "policy")
    if "restart" not in values.nodes:
        given["restart"] = Restart(policy=RestartPolicy.NEVER)
    elif policy is None and "restart" in given:
        given["restart"] = msgspec.structs.replace(given["restart"], policy=RestartPolicy.ON_FAILURE)
    elif policy is not None and "restart" in given and given["restart"].policy is RestartPolicy.ALWAYS:
        values.place.at("restart").at("policy").report(
            policy, "a run of a cron comes to an end, and a service does not", "write on_failure or never"
        )
    if given.get("exclusive"):
        message = "each run is a job of its own, so exclusive keeps no two of them apart"
        values.report("exclusive", message, "remove it; overlap: forbid does")


def _check_name(values: Values) -> None:
    name = values.given.get("name", "")
    if len(name) > NAME_CHARACTERS_MAX:
        message = f"a name of {len(name)} characters; a cron's has at most {NAME_CHARACTERS_MAX}"
        values.report("name", message, f"its runs are jobs named like {name[:8]}...-20261122t0200")


def _check_missed(values: Values) -> None:
    overlap = values.given.get("overlap", Overlap.FORBID)
    if values.given.get("missed") is Missed.ALL and overlap is not Overlap.ALLOW:
        message = f"all that were missed begin at once, which overlap: {overlap} is against"
        values.report("missed", message, "write overlap: allow, or missed: once")


def write_cron(spec: CronSpec, bands: Bands = DEFAULT_BANDS) -> str:
    """Return a cron as YAML: ``read_cron`` makes that very cron of it."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(CronSpec)}
    own: dict[str, Any] = {"kind": str(CronKind.CRON)}
    for field in _OWN_FIELDS[1:]:
        value = getattr(spec, field.name)
        if value != defaults[field.name]:
            own[field.name] = str(value) if isinstance(value, str) else value
    of_app = {"name": spec.name, "user": spec.user} if spec.app else {}
    text = yaml.safe_dump(own | of_app, sort_keys=False, allow_unicode=True, width=1000)
    return text if spec.app else text + write_job(spec.job, bands)


def next_times_text(spec: CronSpec, at: float) -> str:
    """Return when a cron is due next after a moment, in words, by the clocks of its time zone."""
    times = spec.times.next_times(at, TIMES_SHOWN)
    shown = ", ".join(show_time(each, spec.time_zone) for each in times)
    return f"next: {shown}" if times else "it is never due"


def same_times(a: CronSpec, b: CronSpec) -> bool:
    """Return whether two are due at the same instants, as far as their texts say."""
    return (a.schedule, a.time_zone) == (b.schedule, b.time_zone)
