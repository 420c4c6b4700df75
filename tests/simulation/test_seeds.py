"""Lives of a whole cell, each with its faults; and proof that the checkers see what is wrong."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable

import msgspec
import pytest

from borgish.borglet.core import BorgletCore
from borgish.cell.commands import Observe
from borgish.cell.machines import decide as decide_machines
from borgish.cell.model import Cell
from borgish.errors import StoreFull
from borgish.link import conversation
from borgish.master import turn
from borgish.master.core import Core
from borgish.master.inbox import Inbox
from borgish.master.turn import Pace
from borgish.reconcilers import stranded
from borgish.sim.faults import NO_FAULTS, Faults
from borgish.sim.world import World
from tests.profiles import seeds
from tests.simulation.planted import first_problem


@pytest.mark.parametrize("seed", seeds(quick=2, ci=4, nightly=40))
def test_seed(seed: int) -> None:
    verdict = World(seed).run()
    assert verdict.problems == (), f"seed {seed}: run `./scripts/sim --seeds 1 --seed {seed}`"
    # A life in which nothing happened proves nothing.
    assert verdict.starts > 20
    assert verdict.masters >= 2
    assert verdict.borglet_deaths >= 2


def test_at_rest_nothing_is_decided_and_nothing_is_kept_of_what_is_over() -> None:
    world = World(0)
    verdict = world.run()
    assert max(world.master.store.sim_disk.decided_at.values()) < verdict.virtual_seconds - 60
    for machine in world.machines.values():
        assert machine.disk.entries.keys() == set(machine.programs.alive())


def test_without_faults_nothing_is_stopped_that_nobody_asked_for() -> None:
    verdict = World(1, faults=NO_FAULTS).run()
    assert verdict.problems == ()
    assert verdict.masters == 1


STALLS = msgspec.structs.replace(NO_FAULTS, master_stalls_seconds=15.0, away_seconds=40.0)


def test_a_master_that_is_held_up_costs_no_task_its_place() -> None:
    for seed in seeds(quick=1, ci=1, nightly=10):
        assert World(seed, faults=STALLS).run().problems == ()


def test_it_would_be_found_if_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Core, "_restart_silence_after_stall", lambda *_: None)
    monkeypatch.setattr(
        stranded, "is_mass_failure", lambda *_: False
    )  # all are silent: it would hold them back
    verdicts = (World(seed, faults=STALLS).run(calm_seconds=0.0) for seed in range(5))
    assert any("was declared lost" in text for verdict in verdicts for text in verdict.problems)


@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=10))
def test_turns_that_take_on_next_to_nothing_leave_nothing_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In virtual time all that arrived fits into a turn, and all that waits into a pass."""
    monkeypatch.setattr(turn, "TAKE_SECONDS", -1.0)  # one of each queue
    monkeypatch.setattr(Pace, "took", lambda self, _seconds, was_full: setattr(self, "tasks", 1))
    verdict = World(seed).run()
    assert verdict.problems == ()
    assert verdict.starts > 20


FILLS = msgspec.structs.replace(Faults(), store_fills_seconds=12.0)


@pytest.mark.parametrize("seed", seeds(quick=1, ci=1, nightly=10))
def test_a_store_that_fills_up_now_and_then_loses_nothing(seed: int) -> None:
    verdict = World(seed, faults=FILLS).run()
    assert verdict.problems == ()
    assert verdict.starts > 20


def write_though_it_is_full(patch: pytest.MonkeyPatch) -> None:
    step = Core.step
    patch.setattr(
        Core, "step", lambda self, inputs, now, _room, tasks: step(self, inputs, now, tasks_max=tasks)
    )


def acknowledge_what_was_refused(patch: pytest.MonkeyPatch) -> None:
    observe = Inbox.observe

    async def never_refused(self: Inbox, report: Observe) -> None:
        with contextlib.suppress(StoreFull):
            await observe(self, report)

    patch.setattr(Inbox, "observe", never_refused)


FILLS_ALONE = msgspec.structs.replace(
    NO_FAULTS, store_fills_seconds=8.0, task_lives_seconds=30.0, away_seconds=40.0
)
"""No message is lost: after one that is, the whole is reported again, which mends what was acknowledged."""


@pytest.mark.parametrize(
    ("plant", "faults"), [(write_though_it_is_full, FILLS), (acknowledge_what_was_refused, FILLS_ALONE)]
)
def test_a_store_that_is_not_minded_would_be_found(
    plant: Callable[[pytest.MonkeyPatch], None], faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert first_problem(faults)


def hash_in_another_process(seed: int, hash_seed: str) -> str:
    code = f"from borgish.sim.world import World; print(World({seed}).run(calm_seconds=0.0).journal_sha256)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_same_seed_gives_the_same_journal_in_every_process() -> None:
    here = World(3).run(calm_seconds=0.0).journal_sha256
    for hash_seed in seeds(quick=1, ci=1, nightly=4):
        assert hash_in_another_process(3, str(hash_seed)) == here
    assert World(4).run(calm_seconds=0.0).journal_sha256 != here


Plant = Callable[[pytest.MonkeyPatch], None]


def never_stop(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conversation, "stop_orders", lambda *_: iter(()))


def stop_what_should_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cell, "is_current", lambda *_: False)


def forget_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide_machines, "_endings", lambda *_: iter(()))


def acknowledge_too_early(patch: pytest.MonkeyPatch) -> None:
    def observe(self: conversation.Conversation, reply: object) -> None:
        self.acknowledge(reply)  # type: ignore[arg-type]

    patch.setattr(conversation.Conversation, "observe", observe)


def do_requests_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Core, "_known", lambda *_: None)


def adopt_nothing(patch: pytest.MonkeyPatch) -> None:
    adopted = BorgletCore.adopted
    patch.setattr(BorgletCore, "adopted", lambda self, kind, _runs, now: adopted(self, kind, (), now))


@pytest.mark.parametrize(
    "plant",
    [
        never_stop,
        stop_what_should_run,
        forget_ends,
        acknowledge_too_early,
        do_requests_again,
        adopt_nothing,
    ],
)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert first_problem(Faults()), "not found with the bug in place"
