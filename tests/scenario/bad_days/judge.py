"""Who was down, when and by whose doing, judged by the programs of the machines alone: neither the master nor
its gate is asked.

A task is up while a program of any of its attempts runs that was not asked to end. Where its last one was
asked to, the outage is our doing; where that ended by itself, or with its machine, it is not, and uses a
budget up all the same.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from borgish.sim import runtime
from borgish.sim.machines import Machine
from borgish.sim.runtime import Program
from borgish.vocabulary import split_task_name

STOPPED_TOGETHER_SECONDS = 0.1
"""Tasks that are stopped by one decision end within so long."""


class Bound(NamedTuple):
    """How many of a job's ``tasks`` may be down at once.

    ``settle_seconds``: a task counts until it has been up for so long, as in an update. ``unseen_seconds``:
    what is lost counts after so long only, since nobody knows sooner.
    """

    job: str
    tasks: int
    most: int
    settle_seconds: float = 0.0
    unseen_seconds: float = 0.0


class Outage(NamedTuple):
    """A time, on the monotonic clock of the world, in which no program of a task ran."""

    task: int
    began: float
    ended: float
    is_ours: bool


class Run(NamedTuple):
    """One run of a task's main program, as it truly was, until it ended or was asked to."""

    machine: str
    attempt: int
    began: float
    ended: float
    is_ours: bool  # it was asked to end
    is_up: bool  # it did what it was there for


def runs_of(machines: Mapping[str, Machine], job: str) -> dict[int, list[Run]]:
    """Return all runs of a job's tasks, by index, in order."""
    found: dict[int, list[Run]] = {}
    for name, machine in machines.items():
        for lives in machine.programs.lives.values():
            for life in lives:
                key, index = split_task_name(life.spec.task)
                if key == job and not life.spec.program:
                    found.setdefault(index, []).append(_run(name, life))
    return {index: sorted(runs, key=lambda run: run.began) for index, runs in sorted(found.items())}


def _run(machine: str, life: Program) -> Run:
    is_sick = life.spec.labels.get("sim") == "sick"  # never healthy
    was_stopped = (
        life.is_signalled and life.state.exit is not None
    )  # else its machine went before it could end
    ended = (life.ended or math.inf) - runtime.STOP_SECONDS * was_stopped
    return Run(machine, life.spec.attempt, life.began, ended, life.is_signalled, not is_sick)


def outages(runs: list[Run], index: int) -> Iterator[Outage]:
    """Yield the outages of one task after it was first up."""
    end, is_ours = math.inf, False
    for run in (run for run in runs if run.is_up):
        if run.began > end:
            yield Outage(index, end, run.began, is_ours)
        if end == math.inf or run.ended > end:
            end, is_ours = run.ended, run.is_ours
    if end < math.inf:
        yield Outage(index, end, math.inf, is_ours)


def problems(machines: Mapping[str, Machine], bound: Bound) -> list[str]:
    """Return each moment at which our doing made more tasks be down than may be."""
    runs = runs_of(machines, bound.job)
    down = [outage for index in range(bound.tasks) for outage in outages(runs.get(index, []), index)]
    found = []
    for stop in sorted(outage for outage in down if outage.is_ours):
        at = stop.began + STOPPED_TOGETHER_SECONDS
        gone = {each.task for each in down if _counts(each, stop.began, bound)}
        gone |= {each.task for each in down if each.is_ours and stop.began <= each.began <= at}
        if bound.settle_seconds:
            gone |= {index for index in range(bound.tasks) if not _is_settled(runs[index], stop, bound)}
        if len(gone) > bound.most:
            text = f"at {stop.began:.2f} s tasks {sorted(gone)} of {bound.job} are down, or not settled"
            found.append(f"{text}: {bound.most} may be")
    return found


def _counts(outage: Outage, at: float, bound: Bound) -> bool:
    """Return whether a task is down at a moment, as far as anybody can know."""
    unseen_seconds = 0.0 if outage.is_ours else bound.unseen_seconds
    return outage.began + unseen_seconds <= at < outage.ended


def _is_settled(runs: list[Run], stop: Outage, bound: Bound) -> bool:
    """Return whether a task had been up for long enough when another one was stopped. Of what is lost nobody
    knows at once."""
    since = stop.began - bound.settle_seconds
    return any(
        run.is_up
        and run.began <= since
        and stop.began <= run.ended + bound.unseen_seconds * (not run.is_ours)
        for run in runs
    )


def stops_of(machines: Mapping[str, Machine], job: str) -> dict[int, int]:
    """Return how often each task of a job was truly taken down by us. A program that is stopped while another
    one of its task runs, as after a loss that was none, takes nothing down."""
    runs = runs_of(machines, job)
    return {index: sum(each.is_ours for each in outages(runs[index], index)) for index in runs}
