"""Asks fauxmaster as a user does, and compares what it says with what was recorded.

``BORGISH_RECORD=1`` records it anew. Times of day depend on the zone, and paths on the folder: both are
written as words.
"""

import io
import os
import re
import sys
from pathlib import Path

import msgspec
import pytest

from borgish.sim import fauxmaster

RECORDED = Path(__file__).parent / "recorded"
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


class Ended(msgspec.Struct, frozen=True):
    code: int
    out: str
    err: str


class Asker:
    """Calls ``fauxmaster`` in this process."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def ask(self, *words: object, stdin: str = "") -> Ended:
        self._monkeypatch.setattr(sys, "argv", ["fauxmaster", *map(str, words)])
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            fauxmaster.main()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        caught = self._capsys.readouterr()
        return Ended(code, self._plain(caught.out), self._plain(caught.err))

    def ok(self, *words: object, stdin: str = "") -> str:
        said = self.ask(*words, stdin=stdin)
        assert said.code == 0, said
        return said.out

    def _plain(self, text: str) -> str:
        return _TIME.sub("TIME", text.replace(str(self.folder), "DIR"))


def expect_recorded(name: str, text: str) -> None:
    """Compare a text with the recorded one of this name."""
    file = RECORDED / f"{name}.txt"
    if os.environ.get("BORGISH_RECORD"):
        file.write_text(text)
    assert file.read_text() == text, f"{file.name} is otherwise; BORGISH_RECORD=1 records it anew"
