"""In every story, what the journal keeps of a command is read back and compared."""

import pytest

from tests.anew import recorded_and_compared


@pytest.fixture(autouse=True)
def _compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("borgish.master.core.record", recorded_and_compared)
    monkeypatch.setattr("borgish.cell.recorded.record", recorded_and_compared)
