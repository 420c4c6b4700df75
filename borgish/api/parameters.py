"""What paths and queries may carry, with bounds, each kind declared once; how lists are cut into pages.

Queries are read strictly: a name that a route does not declare would be a filter that does not filter.
"""

import re
from collections import Counter
from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Any, Protocol, TypeVar
from urllib.parse import parse_qsl

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.params import FromQuery, ParameterKwarg, PathParameter, QueryParameter
from litestar.typing import FieldDefinition

from borgish.api.moments import AT, AT_LEAST, AT_PATTERN, LEADER_ONLY, MOMENT_PATTERN
from borgish.errors import Invalid
from borgish.spec.selectors import SELECTOR_CHARACTERS_MAX, SELECTOR_PATTERN
from borgish.vocabulary import (
    CHECKPOINT_NAME_PATTERN,
    JOB_PATTERN,
    NAME_HINT,
    NAME_PATTERN,
    TASK_PATTERN,
    TASKS_PER_JOB_MAX,
    MachineState,
    State,
)
from borgish.wire.api import Page

T = TypeVar("T")

_NAME = re.compile(NAME_PATTERN)

LIMIT_MAX = 1000
REASON_CHARACTERS_MAX = 500
TAIL_LINES_MAX = 100_000  # a borglet gives no more

# What is documented of a path is not held by the framework: a name that cannot be is one that is not there.
_NAMED = {"pattern": f"^{NAME_PATTERN}$", "maxLength": 63}
Owner = Annotated[str, PathParameter(schema_extra=_NAMED)]
JobName = Annotated[str, PathParameter(schema_extra=_NAMED)]
AppName = Annotated[str, PathParameter(schema_extra=_NAMED)]
MachineName = Annotated[str, PathParameter(schema_extra=_NAMED)]
BudgetName = Annotated[str, PathParameter(schema_extra=_NAMED)]
BandName = Annotated[str, PathParameter(schema_extra=_NAMED)]
SecretId = Annotated[str, PathParameter(schema_extra={"pattern": "^[0-9a-f]{4,64}$", "maxLength": 64})]
SecretName = Annotated[str, PathParameter(schema_extra=_NAMED)]
TaskIndex = Annotated[int, PathParameter(schema_extra={"minimum": 0, "maximum": TASKS_PER_JOB_MAX - 1})]
VersionNumber = Annotated[int, PathParameter(schema_extra={"minimum": 1, "maximum": 2**31 - 1})]
Position = Annotated[int, PathParameter(schema_extra={"minimum": 0, "maximum": 2**63 - 1})]


def checked_name(name: str, what: str) -> str:
    """Return the name of something new. Raises Invalid."""
    if not _NAME.fullmatch(name):
        raise Invalid(f"invalid {what} name {name[:63]!r}", NAME_HINT)
    return name


def _either(*patterns: str) -> dict[str, str]:
    """Return the schema of a text that is empty, which is not to be given, or fits one of the patterns."""
    return {"pattern": f"^({'|'.join(('', *patterns))})$"}


Limit = Annotated[int, QueryParameter(ge=1, le=LIMIT_MAX, description="maximum number of items")]
_AFTER = (
    "continue after this item; from a list's page.next. By name, what matches all the while is on exactly "
    "one page, however the cell changes, and nothing is on two; for pages of one moment give at=page.position"
)
After = Annotated[str, QueryParameter(max_length=400, description=_AFTER)]
AfterPosition = Annotated[
    int, QueryParameter(name="after", ge=0, le=2**63 - 1, description="only above this position")
]
DefaultUser = Annotated[
    str,
    QueryParameter(
        schema_extra=_either(NAME_PATTERN),
        name="user",
        max_length=63,
        description="owner of the job, if the file does not name one",
    ),
]
PlanToken = Annotated[
    str,
    QueryParameter(
        schema_extra=_either("plan-[0-9a-zA-Z_.-]+"),
        name="plan",
        max_length=1000,
        description="the token of a plan: carry out exactly that, or refuse since the cell has changed",
    ),
]
JobFilter = Annotated[
    str,
    QueryParameter(
        schema_extra=_either(JOB_PATTERN),
        name="job",
        max_length=200,
        description="only of this job: user/name",
    ),
]
UserFilter = Annotated[
    str,
    QueryParameter(
        schema_extra=_either(NAME_PATTERN), name="user", max_length=63, description="only of this user"
    ),
]
MachineFilter = Annotated[
    str,
    QueryParameter(
        schema_extra=_either(NAME_PATTERN),
        name="machine",
        max_length=63,
        description="only what runs on this machine",
    ),
]
TaskFilter = Annotated[
    str,
    QueryParameter(
        schema_extra=_either(TASK_PATTERN),
        name="task",
        max_length=200,
        description="only of this task: user/name/index",
    ),
]
SubjectMachine = Annotated[
    str,
    QueryParameter(
        schema_extra=_either(NAME_PATTERN),
        name="machine",
        max_length=63,
        description="only what is about this machine",
    ),
]
Since = Annotated[
    str,
    QueryParameter(
        schema_extra=_either(MOMENT_PATTERN),
        max_length=64,
        description="not before: ISO 8601, or an age like 2h",
    ),
]
Until = Annotated[
    str,
    QueryParameter(
        schema_extra=_either(MOMENT_PATTERN),
        max_length=64,
        description="not after: ISO 8601, or an age like 2h",
    ),
]
CheckpointName = Annotated[
    str,
    QueryParameter(
        schema_extra=_either(CHECKPOINT_NAME_PATTERN),
        name="name",
        max_length=63,
        description="its name in this cell; else the one in the file",
    ),
]
WithJournal = Annotated[
    bool, QueryParameter(name="journal", description="with the journal from there until now")
]
FromMoment = Annotated[
    str,
    QueryParameter(
        schema_extra=_either(AT_PATTERN),
        name="from",
        max_length=100,
        description="a moment, as for at; the earlier one",
    ),
]
ToMoment = Annotated[
    str,
    QueryParameter(
        schema_extra=_either(AT_PATTERN),
        name="to",
        max_length=100,
        description="the later moment; now by default",
    ),
]
AroundMoment = Annotated[
    str,
    QueryParameter(
        name="around",
        schema_extra=_either(AT_PATTERN),
        max_length=100,
        description="a moment, as for at; now by default",
    ),
]
BeforePosition = Annotated[
    int, QueryParameter(name="before", ge=0, le=2**63 - 1, description="only below this position; 0 for all")
]
AfterTask = Annotated[
    str,
    QueryParameter(
        name="after",
        max_length=400,
        schema_extra=_either(TASK_PATTERN, "[A-Za-z0-9_-]+"),
        description=_AFTER,
    ),
]
StateFilter = Annotated[State | None, QueryParameter(name="state", description="only what is in this state")]
MachineStateFilter = Annotated[
    MachineState | None, QueryParameter(name="state", description="only machines in this state")
]
LabelFilter = Annotated[
    str,
    QueryParameter(
        schema_extra=_either(SELECTOR_PATTERN),
        name="label",
        max_length=SELECTOR_CHARACTERS_MAX,
        description="only where all of these conditions hold, of labels or attributes: app=web,tier!=db,gpu",
    ),
]
TextFilter = Annotated[
    str,
    QueryParameter(
        name="text", max_length=100, description="only with this in their name or reason, whatever its case"
    ),
]
Recent = Annotated[
    bool,
    QueryParameter(
        name="recent", description="only what is live, failed within a day, or ended within the last hour"
    ),
]


def _sort(keys: Iterable[str], words: str) -> Any:
    """Return the parameter of a list's order."""
    return QueryParameter(
        schema_extra=_either(f"-?({'|'.join(keys)})"),
        max_length=63,
        description=f"by name, or {words}; a - before it reverses the order. What changes in that between "
        "two pages may be on both, or on neither; of one page, and by name, nothing is",
    )


JOB_SORTS = ("name", "trouble", "since", "tasks", "up", "pending", "failed", "priority")
TASK_SORTS = ("name", "trouble", "since", "restarts", "cpu", "ram")
MACHINE_SORTS = ("name", "trouble", "tasks", "cpu", "ram")
SortJobs = Annotated[
    str,
    _sort(
        JOB_SORTS,
        "trouble: what needs a look first, of both the latest; since: submitted last; or the most tasks, up "
        "(of the past: running), pending, failed, or the highest priority",
    ),
]
SortTasks = Annotated[
    str,
    _sort(
        TASK_SORTS,
        "trouble: unhealthy or held back, then waiting for a place, then failed or lost, then not up yet, of "
        "each the latest; since: changed its state last; or the most restarts, cpu or ram used",
    ),
]
SortMachines = Annotated[
    str,
    _sort(
        MACHINE_SORTS,
        "trouble: what needs a look first, of both the fullest; or the most tasks, or the largest share of "
        "its cpu or ram committed to tasks",
    ),
]
Kinds = Annotated[
    str,
    QueryParameter(
        schema_extra={"pattern": "^(event|tasks|summary)(,(event|tasks|summary))*$"},
        max_length=100,
        description="some of event,tasks,summary",
    ),
]
Tail = Annotated[
    int,
    QueryParameter(ge=0, le=TAIL_LINES_MAX, description="only the last lines, at most this many; 0 for all"),
]
AttemptId = Annotated[
    int,
    QueryParameter(
        ge=0, le=2**63 - 1, description="of this attempt, its last or the one before; 0: the last"
    ),
]
RestartsOf = Annotated[
    int | None,
    QueryParameter(ge=0, le=2**31 - 1, description="with attempt: of its run after so many restarts"),
]
ProgramName = Annotated[
    str,
    QueryParameter(
        schema_extra=_either(NAME_PATTERN),
        name="program",
        max_length=63,
        description="of this program beside the main one",
    ),
]
Session = Annotated[str, QueryParameter(max_length=128, description="names the input of one command")]
RequiredSession = Annotated[
    str,
    QueryParameter(
        name="session", min_length=1, max_length=128, description="the one that exec/stream was called with"
    ),
]
Offset = Annotated[int, QueryParameter(ge=0, le=2**63 - 1, description="where this piece begins, in bytes")]
Rows = Annotated[int, QueryParameter(ge=0, le=10_000, description="of its terminal now; 0: as before")]
Columns = Annotated[int, QueryParameter(ge=0, le=10_000, description="as rows")]
Flag = FromQuery[bool]


def cut(named: Iterable[tuple[str, T]], limit: int) -> tuple[list[T], Page]:
    """Return the first items of (name, item) pairs, and the page after them."""
    first = list(islice(named, limit + 1))
    following = first[limit - 1][0] if len(first) > limit else ""
    return [item for _, item in first[:limit]], Page(following)


_FIELDS_MAX = 20


def check_query(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Raise Invalid for a query with names that the route does not know, or with one twice."""
    raw = connection.scope["query_string"]
    if not raw:
        return
    given = Counter(_names(raw))
    known = sorted(_query_names(handler))
    for name, times in given.items():
        if name == AT and name not in known:
            raise Invalid("'at' is not supported here: this has no past", "Leave it out")
        if name == AT_LEAST and name not in known:
            why = handler.opt.get(LEADER_ONLY, "a standby answers what only reads")
            raise Invalid(f"'at_least' is not supported here: {why}", "Leave it out")
        if name not in known:
            near = get_close_matches(name, known, 1)
            way_out = f"Its parameters are {', '.join(known)}" if known else "It takes no parameters"
            raise Invalid(f"unknown parameter {name[:63]!r}", f"Did you mean {near[0]}?" if near else way_out)
        if times > 1:
            raise Invalid(f"{name} is given more than once", "Keep one of them")


def public_name(field_name: str, field: FieldDefinition | None) -> str:
    """Return the name of a handler's parameter as callers write it."""
    declared = field.kwarg_definition if field else None
    return (declared.name if isinstance(declared, ParameterKwarg) else None) or field_name


def _names(raw: bytes) -> list[str]:
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX
        )
    except UnicodeDecodeError:
        raise Invalid("the query is not UTF-8", "Encode it as UTF-8, and each byte as %XX") from None
    except ValueError:
        raise Invalid(f"the query has more than {_FIELDS_MAX} parameters", "Send fewer") from None
    return [name for name, _ in pairs]


def _query_names(handler: BaseRouteHandler) -> set[str]:
    parameters = handler.parsed_fn_signature.parameters
    declared = {
        public_name(name, field)
        for name, field in parameters.items()
        if isinstance(field.kwarg_definition, ParameterKwarg) and field.kwarg_definition.param_type == "query"
    }
    if handler.opt.get(AT):
        declared.add(AT)
    if takes_at_least(handler):
        declared.add(AT_LEAST)
    return declared


def takes_at_least(handler: BaseRouteHandler) -> bool:
    """Return whether a standby can answer a route."""
    return bool(handler.opt.get(AT) or handler.opt.get(AT_LEAST))


def checked_reason(reason: str) -> str:
    """Return the reason that somebody gave. Raises Invalid for what nobody could show."""
    if len(reason) > REASON_CHARACTERS_MAX:
        raise Invalid(f"the reason is longer than {REASON_CHARACTERS_MAX} characters", "Shorten it")
    if "\0" in reason:
        raise Invalid("the reason contains a NUL character", "Use plain text")
    return reason


class Affecting(Protocol):
    """A request that may stop running tasks."""

    @property
    def max_affected(self) -> int | None: ...


def checked_affected(asked: Affecting) -> int | None:
    """Return how many running tasks a request allows to be stopped. Raises Invalid."""
    if asked.max_affected is not None and asked.max_affected < 0:
        raise Invalid("max_affected must not be negative", "Say how many running tasks may be stopped")
    return asked.max_affected
