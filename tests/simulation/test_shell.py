"""Bugs planted in the shells, and in the policies of the core: the simulator runs both, and finds them."""

import itertools
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial

import msgspec
import pytest

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.borglet.attempts.failures import Backoff
from borgish.borglet.core import BorgletCore
from borgish.cell.commands import (
    Observe,
    RemoveMachine,
    SubmitJob,
)
from borgish.link import conversation
from borgish.link.link import Link
from borgish.master.core import Core
from borgish.master.host.preflight import TakeOver
from borgish.master.inbox import Inbox
from borgish.master.step import Step
from borgish.master.turn import Turn
from borgish.reconcilers import stranded
from borgish.resources import Resources
from borgish.sim.faults import NO_FAULTS, Faults
from borgish.sim.world import World
from borgish.spec.job import JobSpec, Restart
from borgish.vocabulary import Runtime, State, task_name
from borgish.wire.link import Assignment, attempt_key
from tests.simulation.planted import CALM_SECONDS, SEEDS, STORM_SECONDS, first_problem, problem_of

Plant = Callable[[pytest.MonkeyPatch], None]

STORM = Faults()
SLOW_STORE = msgspec.structs.replace(STORM, store_slow=0.3, append_fails=0.05, master_dies_seconds=15.0)
"""A commit takes long, and often it fails, or the master dies meanwhile."""
OVERTAKEN = msgspec.structs.replace(
    NO_FAULTS, message_doubled=0.2, message_slow=0.2, message_lost=0.02, slow_seconds=3.0
)
"""Polls arrive twice, and after later ones."""
CRASHES = msgspec.structs.replace(NO_FAULTS, task_lives_seconds=10.0)


def release_before_commit(patch: pytest.MonkeyPatch) -> None:
    commit, release = Turn._commit, Turn._release
    released: list[Step] = []

    async def commit_late(self: Turn, step: Step) -> None:
        release(self, step)
        released.append(step)
        await commit(self, step)

    def release_once(self: Turn, step: Step) -> None:
        if not released or released.pop() is not step:
            release(self, step)

    patch.setattr(Turn, "_commit", commit_late)
    patch.setattr(Turn, "_release", release_once)


def answer_before_append(patch: pytest.MonkeyPatch) -> None:
    commit = Turn._commit

    async def commit_late(self: Turn, step: Step) -> None:
        for handle, reply in step.replies:
            self._inbox.reply(handle, reply)
        await commit(self, step)

    patch.setattr(Turn, "_commit", commit_late)


def drop_every_20th_report(patch: pytest.MonkeyPatch) -> None:
    observe, numbers = Inbox.observe, itertools.count(1)

    async def observe_some(self: Inbox, report: Observe) -> None:
        if next(numbers) % 20:
            await observe(self, report)

    patch.setattr(Inbox, "observe", observe_some)


def forget_generations(patch: pytest.MonkeyPatch) -> None:
    drop = Link.drop

    def drop_and_forget(self: Link, machines: Iterable[str]) -> None:
        drop(self, machines)
        self._generations.clear()

    patch.setattr(Link, "drop", drop_and_forget)


def obey_older_generations(patch: pytest.MonkeyPatch) -> None:
    assign = BorgletCore.assign

    def assign_any(self: BorgletCore, assignment: Assignment, timeline: int, epoch: int, now: object) -> bool:
        if assignment.generation < self.head.generation:
            self.head = msgspec.structs.replace(self.head, generation=0)
        return assign(self, assignment, timeline, epoch, now)  # type: ignore[arg-type]

    patch.setattr(BorgletCore, "assign", assign_any)


def obey_older_epochs(patch: pytest.MonkeyPatch) -> None:
    hear = BorgletCore.hear

    def hear_any(self: BorgletCore, timeline: int, epoch: int, leader: object = None) -> None:
        del leader
        if (timeline, epoch) < self.head.term:
            self.head = msgspec.structs.replace(self.head, timeline=0, epoch=0)
        hear(self, timeline, epoch)

    patch.setattr(BorgletCore, "hear", hear_any)


def answer_any_request_again(patch: pytest.MonkeyPatch) -> None:
    known = Core._known
    patch.setattr(Core, "_known", lambda self, ask: known(self, msgspec.structs.replace(ask, digest="d")))


def never_back_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Backoff, "delay_seconds", lambda *_: 0.0)


def back_off_off_by_one(patch: pytest.MonkeyPatch) -> None:
    delay_seconds = Backoff.delay_seconds

    def one_less(self: Backoff, restart: Restart) -> float:
        return delay_seconds(msgspec.structs.replace(self, ends=self.ends - 1), restart)

    patch.setattr(Backoff, "delay_seconds", one_less)


@pytest.mark.parametrize(
    ("plant", "faults", "machines"),
    [
        pytest.param(release_before_commit, SLOW_STORE, 6, id="release before commit"),
        pytest.param(answer_before_append, SLOW_STORE, 6, id="answer before append"),
        # After a message that is lost everything is reported again, which mends what was dropped.
        pytest.param(drop_every_20th_report, NO_FAULTS, 6, id="every 20th report dropped"),
        pytest.param(obey_older_generations, OVERTAKEN, 3, id="an older generation obeyed"),
        pytest.param(answer_any_request_again, NO_FAULTS, 6, id="no digest check"),
        pytest.param(never_back_off, CRASHES, 6, id="no back-off"),
        pytest.param(back_off_off_by_one, CRASHES, 6, id="back-off off by one"),
    ],
)
def test_a_planted_bug_is_found(
    plant: Plant, faults: Faults, machines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert first_problem(faults, machines), "not found with the bug in place"


@pytest.mark.parametrize(
    ("faults", "machines"), [(STORM, 6), (SLOW_STORE, 6), (OVERTAKEN, 3), (CRASHES, 6), (NO_FAULTS, 6)]
)
def test_without_a_planted_bug_nothing_is_found(faults: Faults, machines: int) -> None:
    assert problem_of(1, faults, machines) == ""


@pytest.mark.parametrize("is_planted", [False, True], ids=["as it is", "planted"])
def test_a_machine_that_was_removed_obeys_when_it_is_back(
    is_planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_planted:
        forget_generations(monkeypatch)
    found: list[str] = []
    for seed in range(1 if not is_planted else SEEDS):
        world = World(seed, machines=3, faults=NO_FAULTS)
        away = world.machines["m1"]
        remove = partial(world.master.command, RemoveMachine("m1"), lambda _: None, "ann", "remove", "d")
        world.clock.after(20.0, partial(away.cut_off, cut=True))
        world.clock.after(40.0, remove)
        world.clock.after(45.0, partial(away.cut_off, cut=False))
        found += world.run(STORM_SECONDS, CALM_SECONDS).problems
        if found:
            break
    assert bool(found) is is_planted, found


def alive(world: World) -> set[str]:
    """Return what runs of all that does not end by itself."""
    return {
        key
        for machine in world.machines.values()
        for key in machine.programs.alive()
        if machine.programs.by_key[key].spec.labels["sim"] != "batch"
    }


@pytest.mark.parametrize("is_planted", [False, True], ids=["as it is", "planted"])
def test_of_two_masters_the_one_of_the_older_epoch_ends(
    is_planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_planted:
        obey_older_epochs(monkeypatch)
    # Two that are both obeyed poll without a pause: few machines, and nothing else, or that takes long.
    with closing(World(1, machines=2, faults=NO_FAULTS, pause_seconds=1e9)) as world:
        world.begin()
        world.clock.run_until(10.0)
        copy = world.copy_of(world.master.store)
        copy.begin(TakeOver.MACHINES)
        world.clock.run_until(22.0)
        assert copy.leader is not None
        assert (world.master.leader is not None) is is_planted


@pytest.mark.parametrize("is_planted", [False, True], ids=["as it is", "planted"])
def test_what_the_store_has_never_heard_of_is_stopped_after_ten_minutes(
    is_planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_planted:
        monkeypatch.setattr(conversation, "ORPHAN_SECONDS", 0.0)
    with closing(World(1, machines=3, faults=NO_FAULTS)) as world:
        world.begin()
        world.clock.run_until(30.0)
        older = world.copy_of(world.master.store)
        known = len(world.master.store.disk.entries)
        world.clock.run_until(60.0)
        world.clients.stop()
        world.clock.run_until(70.0)
        assert world.master.leader is not None
        cell = world.master.leader.core.cell
        # What it knows it may move, for a drain of then; and nobody renews leases of what it does not know.
        before = {
            attempt_key(task_name(key, task.index), task.attempt)
            for key, job in cell.jobs.items()
            for task in job.tasks
            if task.state is State.RUNNING and task.attempt > known and not job.spec.exclusive
        } & alive(world)
        assert before
        world.master.die()
        older.begin(TakeOver.OLDER_STORE)
        world.clock.run_until(120.0 if is_planted else 600.0)
        assert older.leader is not None
        assert bool(before - alive(world)) is is_planted


@pytest.mark.parametrize("is_planted", [False, True], ids=["as it is", "planted"])
def test_a_new_master_gives_nobody_up_before_half_have_answered(
    is_planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_planted:
        monkeypatch.setattr(stranded, "_has_heard_half", lambda *_: True)
    world = World(1, machines=3, faults=NO_FAULTS)

    def cut(*, is_cut: bool) -> None:
        for machine in list(world.machines.values())[:2]:
            machine.cut_off(cut=is_cut)

    world.clock.after(40.0, lambda: cut(is_cut=True))
    world.clock.after(41.0, world.master.die)
    world.clock.after(120.0, lambda: cut(is_cut=False))
    problems = world.run(storm_seconds=90.0).problems
    assert any("had answered the new master" in problem for problem in problems) is is_planted


@pytest.mark.parametrize("is_planted", [False, True], ids=["as it is", "planted"])
def test_production_is_not_preempted(is_planted: bool) -> None:
    world = World(1, machines=1, faults=NO_FAULTS, pause_seconds=1e9)
    if is_planted:  # a master that takes what is production for batch
        bands = Bands(production=DEFAULT_BANDS.production + 1)
        world.master.settings = msgspec.structs.replace(world.master.settings, bands=bands)

    def submit(name: str, tasks: int, priority: int) -> None:
        needs, labels = Resources(1000, 64 * 1024**2), {"sim": "service"}
        spec = JobSpec(name, "ann", tasks, ("sim",), runtime=Runtime.FAKE, resources=needs, labels=labels)
        command = SubmitJob(msgspec.structs.replace(spec, priority=priority))
        world.master.command(command, lambda _: None, "ann", name, "d")

    world.clock.after(10.0, lambda: submit("full", 8, DEFAULT_BANDS.production))
    world.clock.after(20.0, lambda: submit("higher", 1, DEFAULT_BANDS.monitoring))
    problems = world.run(storm_seconds=30.0).problems
    assert "ann/higher still waits with 1 tasks that would fit" in problems or is_planted
    assert ("ann/full is production and was preempted" in problems) is is_planted
