"""The pending queue: what a pass reads of it, how much it takes, and who has his turn."""

from collections import Counter

import numpy as np
import pytest

from borgish.cell.command import Command
from borgish.cell.commands import CordonMachine, KillTasks, Observe, ScaleJob, SeenAttempt, SubmitJob
from borgish.cell.model import Cell, Job, Snapshot
from borgish.clock import Now
from borgish.master.core import Core
from borgish.master.step import CommandRequest, Input, PollsAnswered
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import Resources
from borgish.scheduler import affinity, passes
from borgish.scheduler.fleet import Fleet
from borgish.scheduler.pending import TRIED_AGAIN, PendingQueue
from borgish.scheduler.placing import Taken
from borgish.scheduler.queue import Classes, Waiting, levels, turns, waiting_of
from borgish.scheduler.schedule import RESYNC_SECONDS, Scheduler
from borgish.scheduler.task_class import TaskClass
from borgish.spec.job import Affinity, Constraint, JobSpec, Override, Spread
from borgish.vocabulary import Phase
from tests.unit.scheduler.cells import GIB, NOW, cell_of, machine, observed_of, spec

WHOLE = 4000  # thousandths of a core: a whole machine
BUDGET = 10_000


class Busy:
    """A master whose machines each run one task that takes all of it; and what its passes read of what
    waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, machines: int = 3, cpu: int = WHOLE) -> None:
        self.now, self.tasks_max = Now(100.0, 100.0), BUDGET
        names = [f"m{number}" for number in range(machines)]
        there = {
            name: machine(name, capacity=Resources(cpu, GIB * 1024, devices={"gpu": 1000})) for name in names
        }
        self.core = Core(Cell(Snapshot("p", machines=there)), ReconcileSettings(), self.now)
        self.core.begin(1, "me", self.now)
        self.read: list[str] = []

        def counted(cell: Cell, classes: Classes, fleet: Fleet, key: str, at: float) -> Waiting | None:
            self.read.append(key)
            return waiting_of(cell, classes, fleet, key, at)

        monkeypatch.setattr("borgish.scheduler.pending.waiting_of", counted)
        self.do(*(SubmitJob(spec(f"old/{name}", cpu=cpu)) for name in names))

    def do(self, *commands: Command) -> list[str]:
        """Have this done, and step until nothing is left to do; return the jobs that got places."""
        waiting, self.steps = set(self.core.cell.waiting), 0
        asked: list[Input] = [CommandRequest(number, each, "ann") for number, each in enumerate(commands)]
        heard = PollsAnswered(dict.fromkeys(self.core.cell.machines, self.now.mono))
        while True:
            step, asked = self.core.step([heard, *asked], self.now, tasks_max=self.tasks_max), []
            self.steps += 1
            assert not step.failures
            assert self.steps < 100
            if not (step.more or step.entries):
                return sorted(waiting - self.core.cell.waiting.keys())

    def wait(self, *specs: JobSpec) -> None:
        """Let jobs come for which there is no room."""
        assert self.do(*map(SubmitJob, specs)) == []
        self.read.clear()


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Busy:
    return Busy(monkeypatch)


def numbered(jobs: int, user: str = "ann", priority: int = 0) -> list[JobSpec]:
    return [spec(f"{user}/j{number:03}", cpu=WHOLE, priority=priority) for number in range(jobs)]


def test_what_cannot_be_placed_is_not_read_again(busy: Busy) -> None:
    busy.wait(*numbered(300))
    busy.do(SubmitJob(spec("bob/new", cpu=WHOLE)))
    assert busy.read == ["bob/new"]
    assert len(busy.core.refusals) == 301  # and yet each says why it waits
    assert {why.text for found in busy.core.refusals.values() for why in found} == {
        "0 of 3 machines fit: 3 have too little cpu free (needs 4, most free 0)"
    }


def test_one_place_that_comes_free_is_taken_without_reading_all_that_wait(busy: Busy) -> None:
    busy.wait(*numbered(300))
    (placed,) = busy.do(KillTasks("old/m1", None))
    assert placed.startswith("ann/")
    # Those that were taken and got nothing came back as they were.
    assert busy.read == []


def test_a_place_for_which_many_classes_would_do_is_not_tried_by_all(
    busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy.wait(*(spec(f"ann/j{number:03}", cpu=WHOLE - number) for number in range(300)))
    tried = Counter[TaskClass]()
    place = passes.Pass._place_class

    def counted(self: passes.Pass, kind: TaskClass, runs: list[tuple[Job, int]]) -> list[Taken]:
        tried[kind] += 1
        return place(self, kind, runs)

    monkeypatch.setattr(passes.Pass, "_place_class", counted)
    assert len(busy.do(KillTasks("old/m1", None))) == 1
    assert 1 <= len(tried) <= TRIED_AGAIN + 1
    assert len(busy.core.refusals) == 299


def test_all_places_that_come_free_at_once_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Busy(monkeypatch, machines=100)
    busy.wait(*numbered(300))
    assert len(busy.do(*(KillTasks(f"old/m{number}", None) for number in range(100)))) == 100
    assert busy.steps <= 3


def test_each_class_is_tried_now_and_then_should_what_helps_it_have_gone_unseen(busy: Busy) -> None:
    busy.wait(*numbered(300))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes._ChangedMachines, "may_fit", lambda _self, kinds, _reach: np.zeros(len(kinds)))
        assert busy.do(KillTasks("old/m1", None), KillTasks("old/m2", None)) == []
    busy.now = busy.now.later(RESYNC_SECONDS)
    assert len(busy.do(SubmitJob(spec("bob/another", cpu=2 * WHOLE)))) == 2


def test_what_nobody_told_of_is_found_now_and_then(busy: Busy) -> None:
    busy.wait(*numbered(3))
    with pytest.MonkeyPatch.context() as patch:
        note = Scheduler.note
        patch.setattr(Scheduler, "note", lambda self, _jobs: note(self, ()))
        busy.do(SubmitJob(spec("bob/small", cpu=0)), KillTasks("ann/j000", None))
    assert busy.core.cell.waiting.keys() == {"ann/j001", "ann/j002", "bob/small"}
    assert busy.core.refusals.keys() == {"ann/j000", "ann/j001", "ann/j002"}
    busy.now = busy.now.later(RESYNC_SECONDS)
    assert busy.do(CordonMachine("m0")) == ["bob/small"]
    assert busy.core.refusals.keys() == {"ann/j001", "ann/j002"}


def test_why_many_new_classes_wait_is_said_in_several_passes(
    busy: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "EXPLAINED_NEW", 10)
    busy.wait(*(spec(f"ann/j{number:03}", cpu=WHOLE + number) for number in range(35)))
    assert busy.steps >= 4
    assert len(busy.core.refusals) == 35


def queue_of(specs: list[JobSpec], *, failed_before: bool = False) -> PendingQueue:
    cell = cell_of([machine("m0")], specs)
    queue = PendingQueue(cell.waiting)
    queue.read(cell, Classes(), Fleet.of(cell, observed_of(cell), 0, NOW.mono), NOW.wall)
    for kind in queue.classes if failed_before else ():
        kind.failed_version = 1
    return queue


def test_users_have_their_turns_whatever_the_number_of_their_jobs() -> None:
    specs = [*numbered(20, "ann"), *numbered(1, "bob"), *numbered(3, "cid")]
    first = Counter[str]()
    for position in range(1, 1201):
        queue = queue_of(specs, failed_before=True)
        taken, _ = queue.take(list(queue.classes), lambda _: 1, BUDGET, position)
        first[next(turns(levels(taken, position)[0])).spec.user] += 1
        assert len(taken) == 2  # one more than there is room for
    assert all(300 < times < 500 for times in first.values()), first
    assert len(first) == 3


def test_the_jobs_of_a_user_have_their_turns() -> None:
    queue = queue_of(numbered(5), failed_before=True)
    first = Counter[str]()
    for position in range(1, 1001):
        taken, _ = queue.take(list(queue.classes), lambda _: 1, BUDGET, position)
        first[next(turns(levels(taken, position)[0])).spec.key] += 1
        for each in taken:
            queue.give_back(each)
    assert all(130 < times < 280 for times in first.values()), first
    assert len(first) == 5


def test_a_job_of_many_tasks_takes_no_more_places_than_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for together in (1, 5, 10):
        busy = Busy(monkeypatch, machines=40)
        busy.wait(spec("ann/big", 1000, cpu=WHOLE), *numbered(100, "bob"))
        for first in range(0, 40, together):
            busy.do(*(KillTasks(f"old/m{first + more}", None) for more in range(together)))
        assert 15 <= busy.core.cell.jobs["ann/big"].running <= 25


def never_fitting(gangs: int) -> list[SubmitJob]:
    """Return jobs that look as if they fitted, and do not: of three tasks there is room for two."""
    names = (f"hi/g{number:02}" for number in range(gangs))
    return [SubmitJob(spec(name, 3, cpu=4000, gang=True, priority=150)) for name in names]


def test_what_is_lower_gets_its_turn_where_something_always_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Busy(monkeypatch, machines=1, cpu=2 * WHOLE)
    busy.do(KillTasks("old/m0", None), SubmitJob(spec("x/t0", cpu=10, priority=250)))
    busy.do(*never_fitting(4 * TRIED_AGAIN))
    asked: list[Input] = [CommandRequest(0, SubmitJob(spec("low/small", cpu=500)), "ann")]
    for number in range(10):  # steps, each with a change that may help all of them
        others = KillTasks(f"x/t{number}", None), SubmitJob(spec(f"x/t{number + 1}", cpu=10, priority=250))
        asked += [CommandRequest(1 + place, each, "ann") for place, each in enumerate(others)]
        busy.core.step(asked, busy.now)
        asked = []
    assert busy.core.cell.jobs["low/small"].running == 1


def test_a_kept_place_is_no_news_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = Busy(monkeypatch, machines=1, cpu=2 * WHOLE)
    gpu = Resources(1000, GIB, devices={"gpu": 1000})
    busy.do(KillTasks("old/m0", None), SubmitJob(spec("low/victim", resources=gpu)))
    task = busy.core.cell.jobs["low/victim"].tasks[0]
    up = SeenAttempt("low/victim/0", task.attempt, Phase.UP, gpu, devices=task.devices)
    busy.do(Observe("m0", "b", "i", (up,), whole=True))
    busy.do(*never_fitting(4 * TRIED_AGAIN))
    busy.do(SubmitJob(spec("hi/first", priority=250, resources=gpu)))
    assert busy.core.cell.promised, "the victim is leaving"
    assert busy.steps < 10
    busy.do(SubmitJob(spec("low/small", cpu=500)))
    assert busy.core.cell.jobs["low/small"].running == 1
    assert busy.steps < 10


def test_no_more_jobs_are_taken_than_a_pass_may_try() -> None:
    queue = queue_of([*numbered(5), *numbered(5, "bob", priority=100), *numbered(5, "cid", priority=50)])
    taken, above = queue.take(list(queue.classes), lambda _: 1000, 7, 1)
    assert Counter(each.spec.user for each in taken) == {"bob": 5, "cid": 2}
    assert above == 1  # of what is lower nothing was taken, and nothing else of it may be tried
    assert sum(not each.is_taken for each in queue.jobs.values()) == 8
    for each in taken:
        queue.give_back(each)
    everything, above = queue.take(list(queue.classes), lambda _: 1000, BUDGET, 1)
    assert (len(everything), above) == (15, None)
    assert queue.classes == {}


def test_a_job_of_several_classes_is_taken_once() -> None:
    own = {0: Override(resources=Resources(2000, GIB)), 1: Override(resources=Resources(3000, GIB))}
    queue = queue_of([spec("ann/odd", 4, overrides=own), spec("bob/even", 4)])
    assert len(queue.classes) == 3
    taken, _ = queue.take(list(queue.classes), lambda _: 1000, BUDGET, 1)
    assert sorted(each.job.key for each in taken) == ["ann/odd", "bob/even"]
    queue.give_back(taken[0])
    queue.note([taken[0].job.key])
    assert sum(each.tasks for each in queue.classes.values()) == 4


def test_counters_that_are_in_use_are_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "COUNTERS_KEPT", 0)
    busy = Busy(monkeypatch, machines=2)
    busy.do(*(KillTasks(f"old/m{number}", None) for number in range(2)))
    spread = spec("ann/web", 3, cpu=100, spread=(Spread("machine", 1),))
    busy.do(SubmitJob(spread))
    assert busy.core.cell.waiting == {"ann/web": {2}}
    for _ in range(3):
        busy.do(SubmitJob(spec("bob/other", cpu=100)), KillTasks("bob/other", None))
    busy.do(KillTasks("ann/web", (0,)))
    assert busy.core.cell.waiting == {}
    assert {name: len(placed) for name, placed in busy.core.cell.placed.items()} == {"m0": 1, "m1": 1}


NEAR_DB = Affinity((Constraint("app", "==", ("db",)),), "machine")


def free(monkeypatch: pytest.MonkeyPatch) -> Busy:
    busy = Busy(monkeypatch)
    busy.do(*(KillTasks(f"old/m{number}", None) for number in range(3)))
    return busy


def test_another_rule_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = free(monkeypatch)
    busy.do(SubmitJob(spec("ann/web", 6, cpu=100, spread=(Spread("machine", 1),))))
    assert len(busy.core.cell.waiting["ann/web"]) == 3
    busy.do(SubmitJob(spec("ann/web", 6, cpu=100, spread=(Spread("machine", 2),))))
    assert busy.core.cell.waiting == {}


def test_a_gang_of_fewer_is_tried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = free(monkeypatch)
    busy.do(SubmitJob(spec("ann/web", 6, cpu=WHOLE, gang=True)))
    assert len(busy.core.cell.waiting["ann/web"]) == 6
    busy.do(ScaleJob("ann/web", 3))
    assert busy.core.cell.waiting == {}


def test_other_labels_of_what_runs_count_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = free(monkeypatch)
    busy.do(SubmitJob(spec("ann/db", cpu=100)))
    busy.do(SubmitJob(spec("ann/web", cpu=100, near=(NEAR_DB,))))
    assert busy.core.cell.waiting == {"ann/web": {0}}
    busy.do(SubmitJob(spec("ann/db", cpu=100, labels={"app": "db"})))
    assert busy.core.cell.waiting == {}


def test_what_is_placed_after_those_who_wait_to_be_near_of_it_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy = free(monkeypatch)
    web, db = spec("ann/web", cpu=100, near=(NEAR_DB,)), spec("bob/db", cpu=100, labels={"app": "db"})
    assert busy.do(SubmitJob(web), SubmitJob(db)) == []
    assert busy.core.cell.waiting == {}


def test_gangs_that_do_not_fit_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = free(monkeypatch)
    labels, over = {"app": "db"}, ("machine", "rack")
    apart = [(Affinity(NEAR_DB.labels, each),) for each in over]
    gangs = [spec(f"ann/{each[0].over}", 4, cpu=100, gang=True, labels=labels, apart=each) for each in apart]
    busy.do(SubmitJob(gangs[0]))
    # Both are tried before it, and each counts what the other would count; yet neither is any better off.
    busy.tasks_max = 1
    busy.do(SubmitJob(gangs[1]), SubmitJob(spec("bob/web", 2, cpu=100)))
    assert busy.core.cell.waiting.keys() == {"ann/machine", "ann/rack"}
