"""Judged by time and by order: a leader and a place soon after the storm, stops that end, and answers in the
order of the journal; and proof that each would be found if it were not so."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from borgish.borglet.actions import Action
from borgish.borglet.attempts.attempt import EFFECTS, Attempt, Cause
from borgish.borglet.attempts.transitions import Do
from borgish.clock import Now
from borgish.master.core import Core
from borgish.master.host.preflight import check_machines
from borgish.master.step import CommandRequest
from borgish.master.turn import Turn
from borgish.sim.checkers.safety import request_problems
from borgish.sim.faults import Faults
from borgish.sim.runtime import SimRuntime
from borgish.sim.workload import Call
from borgish.sim.world import World
from borgish.wire.api import Accepted

PLANTED_SEEDS = 24
UNSURE = msgspec.structs.replace(Faults(), append_fails=0.1)
"""Often nobody knows whether a commit came about, and it is asked again."""
Plant = Callable[[pytest.MonkeyPatch], None]


def lead_late(patch: pytest.MonkeyPatch) -> None:
    async def late(*args: Any, **options: Any) -> Any:
        await asyncio.sleep(10.0)
        return await check_machines(*args, **options)

    patch.setattr("borgish.sim.masters.check_machines", late)


def schedule_seldom(patch: pytest.MonkeyPatch) -> None:
    schedule = Core._schedule
    patch.setattr(
        Core, "_schedule", lambda self, now, most: now.mono % 30.0 < 1.0 and schedule(self, now, most)
    )


def start_late(patch: pytest.MonkeyPatch) -> None:
    async def slow(_self: SimRuntime) -> None:
        await asyncio.sleep(20.0)

    patch.setattr(SimRuntime, "_answers", slow)


def kill_late(patch: pytest.MonkeyPatch) -> None:
    signal = EFFECTS[Do.SIGNAL]

    def patient(attempt: Attempt, now: Now, cause: Cause) -> list[Action] | None:
        actions = signal(attempt, now, cause)
        attempt.due = now.later(60.0)
        return actions

    patch.setitem(EFFECTS, Do.SIGNAL, patient)


def show_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    async def at_once(_self: Turn) -> None:
        return

    patch.setattr(Turn, "durable", at_once)


def answer_again_by_another_position(patch: pytest.MonkeyPatch) -> None:
    known = Core._known

    def later(self: Core, ask: CommandRequest) -> Accepted | None:
        answer = known(self, ask)
        return answer and Accepted(self.cell.position, answer.subject, answer.text, replayed=True)

    patch.setattr(Core, "_known", later)


@pytest.mark.parametrize(
    ("plant", "says", "faults"),
    [
        (lead_late, "nobody leads", Faults()),
        (schedule_seldom, "has no place 10 s after", Faults()),
        (start_late, "does not run 15 s after", Faults()),
        (kill_late, "was asked to end and runs after", Faults()),
        (show_what_is_not_durable, "and the journal ends at", Faults()),
        (answer_again_by_another_position, "and was acknowledged at", UNSURE),
    ],
)
def test_a_planted_bug_is_found(
    plant: Plant, says: str, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in range(PLANTED_SEEDS):
        if any(says in problem for problem in World(seed, faults=faults).run().problems):
            return
    pytest.fail(f"{PLANTED_SEEDS} seeds passed with the bug in place")


def test_what_is_asked_after_an_answer_comes_after_it() -> None:
    world = World(0)
    world.begin()
    world.clock.run_until(60.0)
    store, calls = world.master.store, world.clients.calls
    world.close()
    assert len(calls) > 3
    assert request_problems(store, calls) == []
    first, *_, last = sorted(calls, key=lambda call: call.position)
    turned = [
        Call(last.request_id, 0.0, 1.0, last.position),
        Call(first.request_id, 2.0, 3.0, first.position),
    ]
    wrong = f"{first.request_id} was asked after {last.request_id} was answered, and comes before it"
    assert request_problems(store, turned) == [wrong]
    assert request_problems(store, [each._replace(asked_at=0.5) for each in turned]) == []
