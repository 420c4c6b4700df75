"""Asks a master that says nothing whether it is there: one that is frozen keeps its connections open, and the
watch, which has nothing to say while nothing changes, would end after half a minute only."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from borgish.clock import Clock
from borgish.errors import BorgishError, Unreachable
from borgish.wire.api import StatusView

if TYPE_CHECKING:
    from borgish.client import Client

QUIET_SECONDS = 3.0
"""After so long without a word it is asked."""


class Pulse:
    """Knows when the master answered last. One thread writes ``answered_at``, on the monotonic clock.

    It asks for the status, which a standby does not answer, nor a master whose disk hangs.
    """

    def __init__(self, client: "Client", clock: Clock, heard_at: Callable[[], float]) -> None:
        """``heard_at`` tells when others last heard of the master."""
        self.answered_at = clock.now().mono
        self._client = client
        self._clock = clock
        self._heard_at = heard_at
        self._closed = threading.Event()

    def start(self) -> None:
        """Begin, in a thread that ends with the process at the latest."""
        threading.Thread(target=self._run, name="pulse", daemon=True).start()

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()

    @property
    def heard_at(self) -> float:
        """When the master was heard last, by whomever."""
        return max(self.answered_at, self._heard_at())

    def _run(self) -> None:
        asked_at = self.answered_at
        while not self._closed.wait(max(self.heard_at, asked_at) + QUIET_SECONDS - self._clock.now().mono):
            asked_at = self._clock.now().mono
            if asked_at - self.heard_at >= QUIET_SECONDS:
                self._ask()

    def _ask(self) -> None:
        try:
            self._client.get("/v1/status", None, StatusView)
        except Unreachable:
            return
        except BorgishError:
            pass  # a refusal is an answer
        self.answered_at = self._clock.now().mono
