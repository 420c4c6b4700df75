"""What the journal keeps of commands, and how they are read back: of each, what its events lack.

A command and its events have much in common: JobSubmitted has the specification of SubmitJob, TasksPlaced
the thousands of places of PlaceTasks. A column with whole commands would double the journal. So a field is
left out where the first event that has a field of its name has the same value, or where no event has one and
the value is the field's default. This is checked when the command is written: what is read back is the very
command, and nothing of it is guessed. Storms of the simulator and every story of the scheduler are decided
anew in tests, from what was read back, and come out bit for bit.

Of a report (Observe) only the facts are kept by which something happened (``cell.reported``), and of other
commands what ``decide`` looked at besides the cell: how long a machine was silent, and which borglet it was.

The kind of a command is the entry's ``cause``. A pass of the scheduler is one entry of several commands of
one kind (``PASSES``); those from which nothing followed are not kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from borgish.cell.command import Command
from borgish.cell.commands import (
    AdvanceRollouts,
    EvictTasks,
    JoinMachine,
    Observe,
    PauseRollouts,
    PlaceTasks,
    PromisePlaces,
    RemoveMachine,
)
from borgish.cell.events import AnyEvent, Entry, Facts, Recorded, RolloutWentOn, TasksEvicted
from borgish.cell.model import Cell
from borgish.cell.observed import Observed, SeenMachine
from borgish.cell.reported import report_facts, report_of
from borgish.clock import Now
from borgish.errors import StoreDamaged
from borgish.vocabulary import Eviction, task_name

Events = Sequence[AnyEvent]

PASSES: Mapping[str, type[Command]] = {"preempt": EvictTasks, "promise": PromisePlaces, "place": PlaceTasks}
"""By the cause of the entry of a pass, what its commands are."""


def record(decided: Sequence[tuple[Command, Events]], facts: Facts | None = None) -> Recorded:
    """Return what is kept of commands, each with the events that it led to."""
    fields = tuple(_not_in_events(command, events) for command, events in decided)
    if spared := tuple(_spared(decided)):
        facts = Facts(spared=spared)
    return Recorded(fields if any(fields) else (), facts)


def recorded_of(observed: Observed, command: Command, events: Events, now: Now) -> Recorded:
    """Return what is kept of one command, decided now."""
    if isinstance(command, Observe):
        return Recorded(observed=report_facts(command, events))
    return record([(command, events)], facts_of(observed, command, now))


def commands_of(cell: Cell, entry: Entry) -> tuple[Command, ...] | None:
    """Return the commands that an entry was decided from; None where they were not recorded.

    ``cell`` is as it was before. Raises StoreDamaged for what this version of borgish cannot read.
    """
    recorded = entry.command
    if recorded is None:
        return None
    kind = PASSES.get(entry.cause) or _kinds().get(entry.cause)
    parts = list(_parts(entry.events)) if entry.cause in PASSES else [entry.events]
    try:
        if kind is Observe:
            return (report_of(cell, entry, recorded.observed or Facts()),)
        if kind is None:
            raise TypeError(f"there is no command {entry.cause}")
        fields = recorded.fields or ({},) * len(parts)
        return tuple(_command(kind, *pair) for pair in zip(parts, fields, strict=True))
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise StoreDamaged(
            f"The command of journal entry {entry.position} cannot be read: {error}",
            "Use the version of borgish that wrote it",
        ) from error


def facts_of(observed: Observed, command: Command, now: Now) -> Facts | None:
    """Return what ``decide`` looks at besides the cell and the command; None for most commands."""
    match command:
        case JoinMachine(machine, _, known) if not known:
            seen = observed.machines.get(machine.name)
            return Facts(instance=seen.instance) if seen and seen.instance else None
        case RemoveMachine(name):
            seen = observed.machines.get(name)
            return Facts(silent_seconds=now.mono - seen.answered) if seen else None
    return None


def observed_of(facts: Facts | None, command: Command, now: Now) -> Observed:
    """Return as much of what was observed as ``decide`` looks at for a command that was accepted.

    No program is said to run on a machine that was let go of: such a one is not while it is up, and while it
    is down nobody asks for them.
    """
    if isinstance(command, EvictTasks | AdvanceRollouts):
        observed = Observed(known=False)
        observed.spared = frozenset(facts.spared if facts else ())
        return observed
    observed = Observed()
    if facts is None:
        return observed
    heard = now.mono - facts.silent_seconds
    seen = SeenMachine(heard=heard, watched_since=heard, instance=facts.instance)
    match command:
        case JoinMachine(machine):
            observed.machines[machine.name] = seen
        case RemoveMachine(name):
            observed.machines[name] = seen
    return observed


def _spared(decided: Sequence[tuple[Command, Events]]) -> Iterator[str]:
    """Yield the tasks that evictions named and left alone, by what was observed."""
    for command, events in decided:
        if isinstance(command, EvictTasks):
            # The first event is the command's own: the others are of what was in allocs.
            gone = events[0].indexes if events and isinstance(events[0], TasksEvicted) else ()
            yield from (task_name(command.job, index) for index in command.indexes if index not in gone)
        elif isinstance(command, AdvanceRollouts):
            reached = {event.job: event.reached for event in events if isinstance(event, RolloutWentOn)}
            for job, indexes in command.stop.items():
                yield from (task_name(job, index) for index in indexes if index not in reached.get(job, ()))


def _parts(events: Events) -> Iterator[list[AnyEvent]]:
    """Yield the events of a pass, those of each command apart: what is in an alloc is evicted with it."""
    part: list[AnyEvent] = []
    for event in events:
        if part and not (isinstance(event, TasksEvicted) and event.cause is Eviction.ALLOC_MOVED):
            yield part
            part = []
        part.append(event)
    if part:
        yield part


def _not_in_events(command: Command, events: Events) -> dict[str, Any]:
    """Return the fields that have to be kept, as JSON has them. Called for each command that places tasks."""
    first = _first_of_each_type(events)
    kept = {}
    for name, source, default in _sources(type(command), tuple(first)):
        value = getattr(command, name)
        implied = default if source is None else getattr(first[source], name)
        if value is implied or (type(value) is type(implied) and value == implied):
            continue
        kept[name] = _difference(value, implied, _fields(type(command))[name].type)
    return kept


def _plain(value: object) -> Any:
    """Return a value as JSON has it, a set in an order that is the same in every process."""
    plain = sorted(value) if isinstance(value, frozenset) else value
    return msgspec.json.decode(msgspec.json.encode(plain))


def _difference(value: object, implied: object, kind: object) -> Any:
    """Return a value as JSON has it; of a struct that is implied, only the fields that are not as implied."""
    if not (isinstance(value, msgspec.Struct) and kind is type(implied)):
        return _plain(value)
    kept = {}
    for name, field in _fields(type(value)).items():
        one, other = getattr(value, name), getattr(implied, name, msgspec.NODEFAULT)
        if not (one is other or (type(one) is type(other) and one == other)):
            kept[name] = _difference(one, other, field.type)
    return kept


def _event_fields(kind: type[Command], events: Events) -> dict[str, Any]:
    """Return the fields of a command as its events and its defaults imply them."""
    first = _first_of_each_type(events)
    found = {
        name: default if source is None else getattr(first[source], name)
        for name, source, default in _sources(kind, tuple(first))
    }
    return {name: value for name, value in found.items() if value is not msgspec.NODEFAULT}


def _first_of_each_type(events: Events) -> dict[type[AnyEvent], AnyEvent]:
    first: dict[type[AnyEvent], AnyEvent] = {}
    for event in events:
        first.setdefault(type(event), event)
    return first


@cache
def _sources(
    kind: type[Command], types: tuple[type[AnyEvent], ...]
) -> tuple[tuple[str, type[AnyEvent] | None, Any], ...]:
    """Return of each field of a command: its name, the type of event that implies it or None, its default."""
    return tuple(
        (name, next((each for each in types if name in each.__struct_fields__), None), field.default)
        for name, field in _fields(kind).items()
    )


def _command(kind: type[Command], events: Events, kept: Mapping[str, Any]) -> Command:
    return kind(**_merged(kind, _event_fields(kind, events), kept))


def _merged(
    kind: type[msgspec.Struct], event_fields: Mapping[str, Any], kept: Mapping[str, Any]
) -> dict[str, Any]:
    """Undo ``_difference``."""
    fields = _fields(kind)
    if unknown := kept.keys() - fields.keys():
        raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(unknown))}")
    merged = dict(event_fields)
    for name, value in kept.items():
        there = event_fields.get(name)
        if isinstance(there, msgspec.Struct) and fields[name].type is type(there):
            merged[name] = type(there)(**_merged(type(there), msgspec.structs.asdict(there), value))
        else:
            merged[name] = msgspec.convert(value, fields[name].type, str_keys=True)
    return merged


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(kind)}


@cache
def _kinds() -> dict[str, type[Command]]:
    kinds: dict[str, type[Command]] = {kind.__name__: kind for kind in Command.__subclasses__()}
    # As older journals have them.
    return kinds | {"GoOnRollingBack": AdvanceRollouts, "PauseRollback": PauseRollouts}
