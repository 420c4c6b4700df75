"""Clients that look first and change what they saw, or nothing: also when masters die between."""

from typing import Any

import pytest

from borgish.cell.command import Command
from borgish.cell.model import Cell
from borgish.master import core
from borgish.sim.faults import NO_FAULTS
from borgish.sim.world import World

CAREFUL = 0.3
NOTHING_ELSE: dict[str, Any] = {"faults": NO_FAULTS, "pause_seconds": 0.7, "careful_share": CAREFUL}


def overlook(_cell: Cell, _command: Command, _expected: int) -> None:
    """Let every condition hold."""


def test_some_are_overtaken_and_change_nothing() -> None:
    overtaken = 0
    for seed in range(10):
        world = World(seed, pause_seconds=0.7, careful_share=CAREFUL)
        assert world.run().problems == ()
        overtaken += world.clients.conditions_failed
        if overtaken > 1:
            return
    pytest.fail("nobody was overtaken")


def test_a_master_that_overlooks_conditions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "check_generation", overlook)
    lives = (World(seed, **NOTHING_ELSE).run() for seed in range(5))
    assert any(", not at " in problem for life in lives for problem in life.problems)
