"""Every command is decided and every event is applied: one that is forgotten ends a master that meets it."""

import typing

from borgish.cell import apply
from borgish.cell.commands import Command
from borgish.cell.decide import COMMANDS
from borgish.cell.events import AnyEvent


def test_every_command_is_decided() -> None:
    assert set(COMMANDS) == set(Command.__subclasses__())


def test_every_event_is_applied() -> None:
    assert set(apply._APPLY) == set(typing.get_args(AnyEvent))
