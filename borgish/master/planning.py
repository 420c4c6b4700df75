"""From what the scheduler planned to commands; what would become of a job if it were submitted now (dry run),
and the token by which just that can be asked for.

A token holds no plan: at the submission the plan is made again, on the cell as it is then, and must come
out the same. So a token cannot be forged into anything, and needs no keeping. Pure.
"""

import base64
import binascii
from hashlib import blake2b

import msgspec

from borgish.cell.commands import Decision
from borgish.cell.events import FailuresForgotten, JobChanged, JobSubmitted, TasksResubmitted
from borgish.cell.model import Cell
from borgish.cell.tasks.allocs import inside, is_alloc_set
from borgish.cell.updates.decide import UpdatePlan, update_plan
from borgish.errors import Conflict, Invalid
from borgish.scheduler.feasibility import AVOIDED
from borgish.scheduler.plan import Plan, Refusal
from borgish.spec.job import JobSpec
from borgish.vocabulary import task_name

PREFIX = "plan-"
DIGEST_BYTES = 16
AGAIN = "make a new plan: `borgctl plan FILE`"


class DryRun(msgspec.Struct, frozen=True):
    """What a submission would bring about. ``decision`` without events: it is so already.

    ``victims`` are the tasks that would have to leave for each task, those in allocs that leave among them.
    """

    spec: JobSpec
    decision: Decision
    plan: Plan
    victims: dict[str, tuple[str, ...]]
    update: UpdatePlan | None = None  # of a job that runs, with another specification
    token: str = ""  # "" where nothing would be done, or not at once
    waits: str = ""  # for which jobs it would wait before it starts
    standing: tuple[Refusal, ...] = ()  # why pending tasks of a job that stays as it is have no place

    @property
    def is_there(self) -> bool:
        """Whether the job is there already, exactly like this; killed tasks of it may come back."""
        return self.update is None and not is_new(self.decision)

    @property
    def again(self) -> tuple[int, ...]:
        """The killed tasks of a live job that would come back; none where the job would be a new one."""
        return coming_back(self.decision)

    @property
    def digest(self) -> bytes:
        """What tells outcomes apart. Numbers of ports are the machines' choice, and not part of it."""
        placements = [msgspec.structs.replace(each, ports=()) for each in self.plan.placements]
        return _digest((placements, self.plan.preemptions, self.plan.promises, self.victims, self.update))


class PlanToken(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Which plan is meant. ``position`` is where the cell was, for people; it may move on."""

    cell: str
    timeline: int
    position: int
    job: str
    spec: bytes
    plan: bytes


def coming_back(decision: Decision) -> tuple[int, ...]:
    """Return the killed tasks of a live job that its submission brings back."""
    return next((event.indexes for event in decision.events if isinstance(event, TasksResubmitted)), ())


def is_new(decision: Decision) -> bool:
    """Return whether a submission makes a job, or begins one that ended anew."""
    return any(isinstance(event, JobSubmitted) for event in decision.events)


def dry_run(
    cell: Cell,
    spec: JobSpec,
    decision: Decision,
    plan: Plan,
    waits: str = "",
    standing: tuple[Refusal, ...] = (),
) -> DryRun:
    """Return a plan with its token. ``standing`` is why pending tasks of that job have no place now."""
    job = cell.jobs.get(spec.key)
    changed = any(isinstance(event, JobChanged) for event in decision.events)
    update = update_plan(cell, job, spec) if job is not None and changed else None
    waits = waits if plan.placements or plan.promises else ""
    if any(isinstance(event, FailuresForgotten) for event in decision.events):
        standing = tuple(each for each in standing if AVOIDED not in each.reasons)  # they avoid none then
    found = DryRun(spec, decision, plan, _victims(cell, plan), update, waits=waits)
    if found.is_there:
        found = msgspec.structs.replace(found, standing=standing)
    is_done = decision.events and not waits
    return msgspec.structs.replace(found, token=_token(cell, found)) if is_done else found


def _victims(cell: Cell, plan: Plan) -> dict[str, tuple[str, ...]]:
    victims: dict[str, list[str]] = {}
    for each in plan.preemptions:
        job, leaving = cell.jobs[each.job], victims.setdefault(each.preemptor, [])
        for index in each.indexes:
            leaving.append(task_name(job.key, index))
            if is_alloc_set(job):
                leaving += sorted(
                    task_name(inner.key, task.index) for inner, task in inside(cell, job, index)
                )
    return {preemptor: tuple(names) for preemptor, names in victims.items()}


def check_token(text: str, cell: Cell, spec: JobSpec) -> PlanToken:
    """Return the token, which must be of this cell, timeline and job. Raises Invalid and Conflict."""
    token = _read(text)
    if token.cell != cell.name:
        raise Conflict(f"this plan is of the cell {token.cell}, and this is {cell.name}", AGAIN)
    if token.timeline != cell.timeline:
        raise Conflict(
            f"this plan is of timeline {token.timeline}; since the cell was rolled back it is on "
            f"timeline {cell.timeline}",
            AGAIN,
        )
    if token.job != spec.key:
        raise Conflict(f"this plan is of {token.job}, and the job file is of {spec.key}", AGAIN)
    if token.spec != _digest(spec):
        raise Conflict(f"the job file of {spec.key} is not the one that this plan was made for", AGAIN)
    return token


def check_unchanged(token: PlanToken, now: DryRun) -> None:
    """Raise Conflict when the plan does not come out as it did."""
    if not now.decision.events:
        raise Conflict(f"this plan cannot be carried out any more: {now.decision.text}", AGAIN)
    if token.plan != now.digest:
        raise Conflict(
            f"the cell changed since this plan was made, at position {token.position}: "
            f"the tasks of {token.job} would go elsewhere, or others would have to leave for them",
            AGAIN,
        )


def _token(cell: Cell, found: DryRun) -> str:
    spec = found.spec
    token = PlanToken(cell.name, cell.timeline, cell.position, spec.key, _digest(spec), found.digest)
    return PREFIX + base64.urlsafe_b64encode(msgspec.msgpack.encode(token)).decode().rstrip("=")


def _read(text: str) -> PlanToken:
    try:
        body = text.removeprefix(PREFIX)
        decoded = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        return msgspec.msgpack.decode(decoded, type=PlanToken)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise Invalid("this is not the token of a plan", "`borgctl plan FILE` prints one") from None


def _digest(thing: object) -> bytes:
    plain = msgspec.to_builtins(thing, str_keys=True)  # only words can be put in order
    return blake2b(msgspec.json.encode(plain, order="deterministic"), digest_size=DIGEST_BYTES).digest()
