"""A master that comes to lead a moment after another one has: it stands by, if it may."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from borgish.errors import LostElection
from borgish.master import process
from borgish.master.host.preflight import TakeOver
from borgish.master.host.settings import Settings
from borgish.reload import Hangup


class Rivals:
    """Stands for processes of which the first loses; keeps what became of each."""

    def __init__(self) -> None:
        self.became = list[str]()

    def process(self, *_: object, **__: object) -> "Rivals":
        self.became.append("began")
        return self

    def reload(self, _: object) -> None:
        pass

    async def run(self) -> None:
        if self.became == ["began"]:
            raise LostElection("Another borgmaster became leader after epoch 13 first")

    async def end(self) -> None:
        self.became.append("ended")


def lived(monkeypatch: pytest.MonkeyPatch, *, may_wait: bool) -> list[str]:
    rivals = Rivals()
    monkeypatch.setattr(process, "Process", rivals.process)
    settings, hangup = Settings("c", state=str(Path())), Hangup()

    async def live() -> None:
        await process.live(
            settings, hangup, cast(process.ReadAnew, None), may_wait=may_wait, take_over=TakeOver.NOTHING
        )

    try:
        asyncio.run(live())
    except LostElection:
        rivals.became.append("raised")
    return rivals.became


def test_one_that_may_wait_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lived(monkeypatch, may_wait=True) == ["began", "ended", "began", "ended"]


def test_another_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lived(monkeypatch, may_wait=False) == ["began", "ended", "raised"]
