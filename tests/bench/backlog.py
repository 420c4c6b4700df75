"""A full cell before which jobs wait, through the real core: a part of ``schedule``.

What is timed is one change, with all steps that follow from it: ``leaves``, one task goes and one of the jobs
that wait takes its place; ``comes``, a task comes that finds room at once beside all that wait. By name, how
many jobs of one task wait, and in how many shapes. Nothing is stored, and there are no borglets.
"""

import time
from collections.abc import Iterator

from borgish.cell.command import Command
from borgish.cell.commands import KillTasks, SubmitJob
from borgish.resources import Resources
from borgish.spec.job import JobSpec
from tests.bench.figure import Figure, at_most
from tests.bench.kubernetes import NODE, Perf
from tests.bench.sizes import Sizes

CHANGE_MILLIS = 25.0
"""A turn's budget."""
USERS = 20
SHAPES = (1, 1_000)
SMALL = Resources(1, 1024**2)
SLACK_MILLIS = 200
"""Of each machine so much is left, for small tasks only."""


def figures(sizes: Sizes) -> Iterator[Figure]:
    """Yield the milliseconds of one change, with so many jobs that wait."""
    for jobs in sizes.backlog_jobs:
        for shapes in SHAPES:
            backlog = Backlog(sizes.cell_machines, jobs, shapes)
            name = f"schedule.backlog.{jobs}_jobs.{shapes}_shape{'s' * (shapes > 1)}"
            comes = [backlog.comes(number) for number in range(sizes.scale_changes)]
            yield Figure(f"{name}.comes", "ms", comes, at_most(CHANGE_MILLIS))
            leaves = [backlog.leaves(number) for number in range(sizes.scale_changes)]
            yield Figure(f"{name}.leaves", "ms", leaves, at_most(CHANGE_MILLIS))


class Backlog:
    """Machines that each run one task that fills them, and jobs that wait for one of these to leave."""

    def __init__(self, machines: int, jobs: int, shapes: int) -> None:
        self._perf = Perf(machines, 0, {})
        full = NODE.cpu_millis - SLACK_MILLIS
        self._do(*(_job(f"there-{number}", Resources(full, 1024**3)) for number in range(machines)))
        assert self._perf.running() == machines
        needs = [Resources(full - 1 - number % shapes, 1024**3) for number in range(jobs)]
        self._do(*(_job(f"waits-{number}", each) for number, each in enumerate(needs)))
        assert self._perf.running() == machines

    def comes(self, number: int) -> float:
        """Return how long it takes to place one more task, in milliseconds."""
        return self._change(_job(f"small-{number}", SMALL), more=1)

    def leaves(self, number: int) -> float:
        """Return how long it takes to end one task and to place another, in milliseconds."""
        return self._change(KillTasks(f"u{number % USERS}/there-{number}"), more=0)

    def _change(self, command: Command, more: int) -> float:
        before, began = self._perf.running(), time.perf_counter()
        self._do(command)
        seconds = time.perf_counter() - began
        assert self._perf.running() == before + more
        return 1000 * seconds

    def _do(self, *commands: Command) -> None:
        self._perf.ask(*commands)
        self._perf.settle()


def _job(name: str, needs: Resources) -> SubmitJob:
    user = f"u{int(name.rpartition('-')[2]) % USERS}"
    return SubmitJob(JobSpec(name, user, 1, ("true",), resources=needs))
