"""The lab of actors: caches follow the store, stale writes are refused, and what it finds is found again."""

import functools
import logging
from collections.abc import Iterator

import msgspec
import pytest

from borgish.cell.commands import (
    AdvanceRollouts,
    EvictTasks,
    FinishRollouts,
    PlaceTasks,
    SetMachineDown,
    SubmitJob,
)
from borgish.cell.model import Cell, Snapshot
from borgish.clock import Now
from borgish.errors import PreconditionFailed
from borgish.master.step import CommandRequest
from borgish.reconcilers.settings import ReconcileSettings
from borgish.sim.lab import actors
from borgish.sim.lab.actors import HANG_SECONDS, Setting, live
from borgish.sim.lab.cell import BEGIN_SECONDS, LabCell, service
from borgish.sim.lab.many import LOOPS, About, Counts, Many, StoreCore, about
from borgish.sim.lab.plots import svg
from borgish.sim.lab.report import never
from borgish.store.codec import encode_snapshot
from borgish.vocabulary import Eviction
from borgish.wire.api import Accepted

lived = functools.cache(functools.partial(live, 1))
"""Lets a cell live once with a setting: another time it would be the same life."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (PlaceTasks("a/b", (1, 2), ("m1", "m2")), {("a/b", 1), ("a/b", 2)}),
        (EvictTasks("a/b", (3,), Eviction.DRAIN), {("a/b", 3)}),
        (AdvanceRollouts({"a/b": (4,), "a/c": ()}), {("a/b", 4), "a/c"}),
        (FinishRollouts({"a/b": "complete"}), {"a/b"}),
        (SetMachineDown("m1", "silent"), {"m1"}),
    ],
)
def test_a_command_is_about_what_it_names(command: msgspec.Struct, found: set[About]) -> None:
    assert set(about(command)) == found  # type: ignore[arg-type]
    jobs = {each[0] if isinstance(each, tuple) else each for each in found}
    assert set(about(command, whole_jobs=True)) == jobs  # type: ignore[arg-type]


def test_a_write_is_refused_when_what_it_is_about_was_written_since_by_somebody_else() -> None:
    core, now = StoreCore(Cell(Snapshot("c")), ReconcileSettings(), Now(0.0, 0.0)), Now(1.0, 1.0)
    core.prepare(Counts(), whole_jobs=False)

    def ask(command: object, actor: str, basis: int | None = None) -> object:
        request = CommandRequest(1, command, actor, expected=basis)  # type: ignore[arg-type]
        return core.step([request], now).replies[0][1]

    ask(SubmitJob(service("one", 2, 1)), "ann")
    seen = core.cell.position
    ask(SubmitJob(service("one", 3, 1)), "ann")
    assert isinstance(ask(FinishRollouts({"ann/one": "x"}), "rollout", seen), PreconditionFailed)
    assert isinstance(ask(FinishRollouts({"ann/one": "x"}), "rollout", core.cell.position), Accepted)
    assert isinstance(ask(FinishRollouts({"ann/two": "x"}), "rollout", seen), Accepted)
    assert (core.counts.writes, core.counts.conflicts, core.counts.stale) == (3, 1, 2)


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_caches_come_to_be_what_the_store_has(loss: float) -> None:
    cell = LabCell(1, 6, StoreCore)
    many = Many(cell, 0.1, loss)
    try:
        cell.begin(service(f"job-{number}", 4, 1) for number in range(3))
        cell.scale("ann/job-0", 8)
        cell.machines["m01"].lose_programs()
        cell.clock.run_until(BEGIN_SECONDS + 60.0)
        assert cell.gaps() == {}
        core = cell.host.core
        assert core is not None
        truth = encode_snapshot(core.cell.snapshot())
        assert [actor.name for actor in many.actors] == list(LOOPS)
        assert all(encode_snapshot(each.core.cell.snapshot()) == truth for each in many.actors)
    finally:
        cell.close()


def test_one_process_sends_no_messages_and_needs_fewer_commits() -> None:
    one, many = lived(Setting(0.5)), lived(Setting(0.5, 0.1))
    assert (one.counts.messages, one.counts.writes, never(one.seconds)) == (0, 0, 0)
    assert never(many.seconds) == 0
    assert many.counts.messages > 1000
    assert many.each(many.counts.commits) > one.each(one.counts.commits)
    assert many.heal > one.heal


def test_the_longer_messages_take_the_older_caches_are() -> None:
    quick, slow = lived(Setting(0.5, 0.01)), lived(Setting(0.5, 0.5))
    assert quick.age < 0.01 < slow.age
    assert quick.stale_share < slow.stale_share
    assert quick.conflict_share < 0.03


def test_a_loop_that_hangs_alone_harms_less_than_a_process_that_does() -> None:
    one, apart = lived(Setting(0.5, hangs="taints")), lived(Setting(0.5, 0.01, hangs="taints"))
    assert max(one.heals) > HANG_SECONDS > max(apart.heals)
    assert apart == lived(Setting(0.5, 0.01))  # nobody misses it here
    assert max(lived(Setting(0.5, 0.01, hangs="scheduler")).heals) > max(apart.heals)


def test_the_same_seed_gives_the_same_picture_and_the_words_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert live(3, Setting(0.5, 0.1, loss=0.05)) == live(3, Setting(0.5, 0.1, loss=0.05))
    one, many = lived(Setting(0.5)), lived(Setting(0.5, 0.1))
    monkeypatch.setattr(actors, "live", lambda _seed, setting: one if setting.delay is None else many)
    report, other = (actors.run(seed=1, loss=0.05) for _ in range(2))
    assert report == other
    assert svg(report.figures) == svg(other.figures)
    assert f"needs {many.each(many.counts.messages):,.0f} messages" in report.conclusion[0]
    assert f"healed in {one.heal:.1f} s" in report.conclusion[1]
