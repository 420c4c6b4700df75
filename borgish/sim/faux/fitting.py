"""How many more tasks of a job find room: the real master is asked to place as many as a job can have."""

from collections import Counter

import msgspec

from borgish.cell.commands import SubmitJob
from borgish.cell.events import Entry, TasksEvicted
from borgish.cell.model import Rules
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.errors import Refused
from borgish.master.core import Core
from borgish.master.step import Ask
from borgish.reconcilers.settings import ReconcileSettings
from borgish.scheduler.plan import Refusal
from borgish.sim.faux.copied import ACTOR, twin
from borgish.spec.job import JobSpec
from borgish.vocabulary import TASKS_PER_JOB_MAX, State, job_key

TRIAL = "fauxmaster-trial"
JOBS_MAX = 100
STEPS_MAX = 10_000


class Fit(msgspec.Struct, frozen=True):
    """How many tasks of a job found room, by machine, and what stopped the next one ("": nothing)."""

    machines: dict[str, int]
    evicted: int  # tasks of others that would have to leave
    refusal: str
    hint: str

    @property
    def tasks(self) -> int:
        """How many in all."""
        return sum(self.machines.values())

    @property
    def data(self) -> dict[str, object]:
        """Return what there is to say besides the count."""
        return {"machines": self.machines, "refusal": self.refusal, "hint": self.hint}


def fit(cell: Cell, wall: float, spec: JobSpec) -> Fit:
    """Submit the job again and again, as large as a job can be, until something is refused.

    Room is asked about, not what somebody may have: quotas are left out. A job whose tasks must keep
    together or apart is tried once, since what holds inside it does not hold between two of them.
    """
    cell = twin(cell)
    cell.quotas.clear()
    cell.rules = Rules(cell.rules.bands)
    now = Now(wall, 0.0)
    core = Core(cell, ReconcileSettings(), now)
    entries = _stepped(core, now, None)
    before, placed, refusal = len(entries), Counter[str](), None
    for number in range(JOBS_MAX if _is_alike(spec) else 1):
        trial = msgspec.structs.replace(
            spec, name=f"{TRIAL}-{number}", tasks=TASKS_PER_JOB_MAX, overrides={}, gang=False
        )
        entries += _stepped(core, now, trial)
        placed.update(t.machine for t in core.cell.jobs[trial.key].tasks if t.state is State.RUNNING)
        refusal = next(iter(core.refusals.get(trial.key, ())), None)
        if refusal is not None:
            break
    evicted = _evicted(entries[before:], spec.user)
    return Fit(dict(sorted(placed.items())), evicted, *_words(refusal))


def _is_alike(spec: JobSpec) -> bool:
    """Return whether one of its tasks is like any other, whatever job it is in."""
    return not (spec.spread or spec.near or spec.apart or spec.fixed_ports)


def _stepped(core: Core, now: Now, spec: JobSpec | None) -> list[Entry]:
    """Submit a job, or nothing, and step until all is placed that can be. Raises Refused."""
    step = core.step([Ask(1, SubmitJob(spec), ACTOR)] if spec is not None else [], now)
    for _, reply in step.replies:
        if isinstance(reply, Refused):
            raise reply
    entries = list(step.entries)
    for _ in range(STEPS_MAX):
        if not step.more:
            break
        step = core.step([], now)
        entries += step.entries
    return entries


def _evicted(entries: list[Entry], user: str) -> int:
    own = job_key(user, TRIAL)
    events = [event for entry in entries for event in entry.events if isinstance(event, TasksEvicted)]
    return len({(e.job, index) for e in events if not e.job.startswith(own) for index in e.indexes})


def _words(refusal: Refusal | None) -> tuple[str, str]:
    return (refusal.text, refusal.hint) if refusal is not None else ("", "")
