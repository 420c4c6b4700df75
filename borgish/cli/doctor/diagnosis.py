"""What a doctor finds, and what it looks at: the words that the checks of ``doctor`` share."""

from collections.abc import Callable
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from borgish.cli.session import Session
from borgish.errors import BorgishError
from borgish.wire.api import MachineView, StatusView, SummaryView
from borgish.wire.api_access import TokenView

if TYPE_CHECKING:
    from borgish.client import Client

ANSWER_SECONDS_MAX = 10.0
"""A master that needs longer is one with trouble."""
BORGLET_FILE = "borglet.toml"
SHOWN_MAX = 5


class Level(StrEnum):
    """How a check ended, the worst last."""

    PASS = "pass"  # noqa: S105 - a word
    WARN = "warn"
    FAIL = "fail"


class Found(msgspec.Struct, frozen=True):
    """One thing that a check saw; ``to_do`` is the way out of what does not pass."""

    level: Level
    text: str
    to_do: str = ""


def good(text: str) -> list[Found]:
    """Return what passes."""
    return [Found(Level.PASS, text)]


def warn(text: str, to_do: str) -> list[Found]:
    """Return what somebody should look at by day."""
    return [Found(Level.WARN, text, to_do)]


def fail(text: str, to_do: str) -> list[Found]:
    """Return what is broken, or open to others."""
    return [Found(Level.FAIL, text, to_do)]


def some_of(items: list[str], shown: int = SHOWN_MAX) -> str:
    """Return the first few, and how many more there are."""
    more = f" and {len(items) - shown} more" if len(items) > shown else ""
    return ", ".join(items[:shown]) + more


class Finding(msgspec.Struct, frozen=True):
    """What is shown of it. ``row``: of the catalogue of security, "" for none. ``accepted``: why a warning
    counts as passed here."""

    check: str
    row: str
    level: Level
    text: str
    to_do: str = ""
    accepted: str = ""


class Patient:
    """The cell, and this host's folder of it or of one of its machines. ``trouble``: why its master does not
    answer; ``client`` is None where nothing says which master that is."""

    def __init__(self, session: Session) -> None:
        self.folder = session.cell_folder
        self.is_machine = (self.folder / BORGLET_FILE).is_file()
        self.client: Client | None = None
        self.status: StatusView | None = None
        self.trouble: BorgishError | None = None
        if self.is_machine and not session.url:
            return  # a machine has no token of a user
        try:
            self.client = session.client(ANSWER_SECONDS_MAX)
            self.status = self.client.get("/v1/status", None, StatusView)
        except BorgishError as error:
            self.trouble = error

    @property
    def asked(self) -> "Client":
        """The master; it has answered."""
        assert self.client is not None
        return self.client

    @property
    def seen(self) -> StatusView:
        """The cell at one glance; its master has answered."""
        assert self.status is not None
        return self.status

    @cached_property
    def machines(self) -> list[MachineView]:
        """All of the cell's. Raises BorgishError."""
        from borgish.cli.lookup import every_machine

        return every_machine(self.asked)

    @cached_property
    def summary(self) -> SummaryView:
        """What needs a look, cut to a screenful. Raises BorgishError."""
        return self.asked.get("/v1/summary", None, SummaryView)

    @cached_property
    def tokens(self) -> list[TokenView]:
        """All of the cell's, for an admin. Raises BorgishError."""
        from borgish.cli.lookup import every
        from borgish.wire.api_access import TokenList

        return list(every(self.asked, "/v1/tokens", {}, TokenList))


class Check(msgspec.Struct, frozen=True):
    """One row of the table that is executed. ``look`` raises BorgishError and OSError.

    ``of_cell``: it asks the master; else it looks at this host. ``security``: left out unless asked for.
    """

    name: str
    look: Callable[[Patient], list[Found]]
    row: str = ""
    security: bool = False
    of_cell: bool = True
