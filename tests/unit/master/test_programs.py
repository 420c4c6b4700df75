"""Where the output of a task comes from: which machine, which attempt, and when there is no more to come."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from borgish.errors import NotFound, Unreachable
from borgish.master.host import programs
from borgish.master.host.programs import Programs
from borgish.vocabulary import JobKind, State
from borgish.wire.link import LogWanted

TASK = "ann/web/0"


class Made:
    """Programs of a cell with one task on m2, which was on m1 before."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, bool, int]] = []
        self.pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed = False
        task = SimpleNamespace(
            state=State.RUNNING,
            restarts=0,
            attempt=21,
            machine="m2",
            previous_attempt=17,
            previous_machine="m1",
        )
        spec = SimpleNamespace(kind=JobKind.JOB, group=())
        self.machines = {name: SimpleNamespace(up=True) for name in ("m1", "m2")}
        self.cell = SimpleNamespace(
            task=lambda _: task, jobs={"ann/web": SimpleNamespace(spec=spec)}, machines=self.machines
        )
        core: Any = SimpleNamespace(cell=self.cell)
        turn: Any = SimpleNamespace(durable=self._durable)
        link: Any = SimpleNamespace(logs=self._logs)
        self.programs = Programs(core, turn, link)

    async def _durable(self) -> None:
        return None

    async def _logs(
        self, machine: str, _task: str, attempt: int, wanted: LogWanted, _program: str, run: int
    ) -> AsyncIterator[bytes]:
        self.asked.append((machine, attempt, wanted.previous, run))
        try:
            while piece := await self.pieces.get():
                yield piece
        finally:
            self.closed = True

    async def logs(
        self, *, follow: bool = False, previous: bool = False, **which: Any
    ) -> AsyncIterator[bytes]:
        return await self.programs.logs(TASK, LogWanted(previous, follow), **which)


@pytest.mark.parametrize(
    ("which", "asked"),
    [
        ({}, ("m2", 21, False, 0)),
        ({"previous": True}, ("m1", 17, False, 0)),
        ({"attempt": 21, "restarts": 0}, ("m2", 21, False, 1)),
        ({"attempt": 17, "restarts": 4}, ("m1", 17, False, 5)),
    ],
)
async def test_an_attempt_is_looked_for_where_it_was(
    which: dict[str, Any], asked: tuple[str, int, bool, int]
) -> None:
    made = Made()
    made.pieces.put_nowait(b"")
    assert [piece async for piece in await made.logs(**which)] == []
    assert made.asked == [asked]


async def test_an_attempt_of_long_ago_is_nowhere() -> None:
    with pytest.raises(NotFound, match="attempt 9 of ann/web/0 is neither its last one nor the one before"):
        await Made().logs(attempt=9)


async def test_nobody_waits_for_a_machine_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "LOOK_SECONDS", 0.001)
    made = Made()
    pieces = await made.logs(follow=True)
    made.pieces.put_nowait(b"one\n")
    assert await anext(pieces) == b"one\n"
    made.machines["m2"].up = False
    with pytest.raises(Unreachable, match="machine m2 is down"):
        await anext(pieces)
    assert made.closed, "the connection to the machine is let go of"
