"""In which order a new master begins to poll."""

import asyncio
from typing import Any

import pytest

from borgish.cell.model import Cell, Snapshot, TaskLease
from borgish.cell.observed import Observed
from borgish.clock import SystemClock
from borgish.link import link
from borgish.link.link import Link
from tests.unit.cell.lived import machine


class Nobody:
    """Everything that is not asked for here."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


async def test_machines_with_leases_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would end on those that come last, where there are thousands."""
    names = [f"m{number}" for number in range(6)]
    leases = {"ann/db": {0: (TaskLease(3, "m4"), TaskLease(2, "gone")), 1: (TaskLease(4, "m1"),)}}
    cell = Cell(Snapshot("c", machines={name: machine(name) for name in names}, leases=leases))
    nobody: Any = Nobody()
    made = Link(cell, Observed(), nobody, SystemClock(), nobody, nobody, nobody, nobody)
    polled: list[str] = []
    monkeypatch.setattr(made, "sync", polled.extend)
    monkeypatch.setattr(link, "RAMP_UP_MACHINES", 2)
    await made.ramp_up(lambda: asyncio.sleep(0))
    assert polled == ["m1", "m4", "m0", "m2", "m3", "m5"]
