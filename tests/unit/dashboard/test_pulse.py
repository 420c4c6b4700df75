"""A master that says nothing is asked whether it is there, one that talks is not."""

import queue
import threading
from typing import Any

import pytest

from borgish.client import Client
from borgish.clock import SystemClock
from borgish.dashboard import pulse as pulses
from borgish.dashboard.pulse import Pulse
from borgish.errors import BorgishError, TooManyRequests, Unreachable

PATIENCE_SECONDS = 60.0


class Master(Client):
    """Answers what asks for its status with what the test says."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self.asked: queue.Queue[str] = queue.Queue()
        self.answers: queue.Queue[BorgishError | None] = queue.Queue()

    def get(self, path: str, params: Any, answer: Any) -> Any:
        self.asked.put(path)
        if (error := self.answers.get(timeout=PATIENCE_SECONDS)) is not None:
            raise error


@pytest.mark.parametrize(
    ("answer", "is_heard"), [(None, True), (TooManyRequests("later"), True), (Unreachable("refused"), False)]
)
def test_what_counts_as_a_word(
    answer: BorgishError | None, is_heard: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulses, "QUIET_SECONDS", 0.01)
    master = Master()
    pulse = Pulse(master, SystemClock(), lambda: 0.0)
    began = pulse.heard_at
    pulse.start()
    assert master.asked.get(timeout=PATIENCE_SECONDS) == "/v1/status"
    assert pulse.heard_at == began
    master.answers.put(answer)
    master.asked.get(timeout=PATIENCE_SECONDS)  # it asks again, so that the first answer was taken in
    assert (pulse.heard_at > began) is is_heard
    pulse.close()
    master.answers.put(None)


def test_one_that_talks_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulses, "QUIET_SECONDS", 0.05)
    master, clock, looked = Master(), SystemClock(), threading.Semaphore(0)

    def heard_at() -> float:
        looked.release()
        return clock.now().mono

    pulse = Pulse(master, clock, heard_at)
    pulse.start()
    for _ in range(4):
        assert looked.acquire(timeout=PATIENCE_SECONDS)
    pulse.close()
    assert master.asked.empty()
