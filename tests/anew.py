"""Decides a journal anew, from its beginning: by the code that wrote it, all must come out as it is."""

from collections.abc import Sequence

import msgspec

from borgish.cell.command import Command
from borgish.cell.events import AnyEvent, Entry, Facts, Recorded
from borgish.cell.model import Cell, Snapshot
from borgish.cell.recorded import PASSES, commands_of, record
from borgish.sim.faux.opened import Exported, Opened
from borgish.sim.faux.replay import Replayed, decided_anew
from borgish.sim.faux.session import Session
from borgish.store.base import CheckpointInfo
from borgish.store.codec import compress, encode_snapshot, sha256_of

NO_CELL = Cell(Snapshot("none"))  # what was asked by people and loops is read back without one


def stored(entry: Entry) -> Entry:
    """Return an entry as a store gives it back, which is just as it was."""
    read = msgspec.json.decode(msgspec.json.encode(entry), type=Entry)
    assert read == entry
    return read


def decided_anew_of(cell: str, entries: Sequence[Entry]) -> Replayed:
    """Return what comes of it."""
    body = compress(encode_snapshot(Snapshot(cell)))
    info = CheckpointInfo(0, 0.0, "the beginning", sha256_of(body), len(body))
    head = entries[-1].position if entries else 0
    source = Exported(info, body, [stored(entry) for entry in entries])
    there = Opened("a journal", "checkpoint", cell, source, 0, head)
    return decided_anew(Session(there, "0"), 0, head)


def recorded_and_compared(
    decided: Sequence[tuple[Command, Sequence[AnyEvent]]], facts: Facts | None = None
) -> Recorded:
    """Do what ``record`` does, and have what is read back be the same commands; for the core's use of it."""
    kept = record(decided, facts)
    commands = tuple(command for command, _ in decided)
    events = tuple(event for _, part in decided for event in part)
    kind = type(commands[0])
    passes = [cause for cause, commands_are in PASSES.items() if commands_are is kind and events]
    for cause in [*passes, *([kind.__name__] if len(commands) == 1 else [])]:
        assert commands_of(NO_CELL, stored(Entry(1, 0.0, 1, 1, "", cause, events, command=kept))) == commands
    return kept
