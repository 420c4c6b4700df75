"""How an attempt moves on its machine: (stage, purpose, event) -> next stage, next purpose, what to do.

``Attempt.fire`` executes this table and is all that changes a stage; where there is no row, an event
changes nothing. ``attempt`` decides which event an input is (did the program fail for the last time that
its restart policy allows?) and has the effects. The diagram in ``borgish/README.md`` is what ``diagram``
returns, and a test compares them.

Two things hold by the shape of the table. Only WAITING asks for a start, and it is entered again only by
an answer of the runtime, so an attempt never has two runs at once. No row leaves ENDED.
"""

from enum import IntEnum, StrEnum
from typing import NamedTuple


class Stage(StrEnum):
    """Where an attempt stands on its machine."""

    WAITING = "waiting"  # no program runs; a start is due, or its spec is not known yet
    STARTING = "starting"  # a start was asked for and has not been answered
    UP = "up"  # its program runs
    STOPPING = "stopping"  # its program runs and is to end
    ENDED = "ended"  # final


LIVE = frozenset({Stage.UP, Stage.STOPPING})


class Purpose(IntEnum):
    """What follows when the program that is being stopped ends. A stronger purpose replaces a weaker."""

    NONE = 0
    RESTART = 1  # it was unhealthy
    FAIL = 2  # it ran for too long
    KILL = 3  # the master asked for it


class Event(StrEnum):
    """What can happen to an attempt."""

    DUE = "due"  # the moment that it waited for has come
    PROBE_DUE = "probe due"
    ASSIGNED = "assigned"  # its spec came, after only a run of it had been found
    BEGAN = "began"  # the runtime reports a live run that was not known
    NOT_STARTED = "not started"  # what the borglet before this one had asked for, it is found now
    START_FAILED = "start failed"  # and is tried again
    EXITED = "exited"  # and runs again
    EXITED_UNASSIGNED = "exited unassigned"  # what follows is decided when its spec comes
    FINISHED = "finished"  # it ended well, and its restart policy asks for no more
    FAILED = "failed"  # its program or its start, for the last time that policy and limits allow
    RESTART = "restart"  # asked to stop, for this purpose
    FAIL = "fail"
    KILL = "kill"
    SIGNAL_DUE = "signal due"  # it was asked to stop, and its clients have had time to leave it


class Do(StrEnum):
    """The effect of a transition: what changes beside stage and purpose, and what is asked of the runtime."""

    START = "start"
    MAKE_DUE = "make due"
    RUN = "run"
    STOP_RUN = "stop run"
    BEGIN_PROBING = "begin probing"
    PROBE = "probe"
    STOP = "stop"
    NOTE_PURPOSE = "note purpose"
    SIGNAL = "signal"
    KILL = "kill"
    WAIT = "wait"
    WAIT_FOR_SPEC = "wait for spec"
    WITHDRAW = "withdraw"
    FINISH = "finish"
    FAIL = "fail"
    END_AT_ONCE = "end at once"
    END_AS_ASKED = "end as asked"
    NOTE_RUN = "note run"
    NOTE_EXIT = "note exit"
    KILL_AFTER_END = "kill after end"


class Row(NamedTuple):
    """What follows from an event."""

    stage: Stage
    purpose: Purpose
    do: Do


WAITING, STARTING, UP, STOPPING, ENDED = Stage
NONE, RESTART, FAIL, KILL = Purpose
TO_STOP = {RESTART: Event.RESTART, FAIL: Event.FAIL, KILL: Event.KILL}
"""The event of being asked to stop, by what it is for."""

SAME = None  # the purpose stays as it is
NO, TO_RESTART, TO_END, STOPPED = (NONE,), (RESTART,), (FAIL, KILL), (RESTART, FAIL, KILL)
BELOW_FAIL, BELOW_KILL, ANY = (NONE, RESTART), (NONE, RESTART, FAIL), (NONE, RESTART, FAIL, KILL)
EXITS = (Event.EXITED, Event.EXITED_UNASSIGNED, Event.FINISHED, Event.FAILED)

_RULES: tuple[tuple[Stage, tuple[Purpose, ...], tuple[Event, ...], Stage, Purpose | None, Do], ...] = (
    # stage, with one of these purposes, at one of these events; next stage, next purpose, what to do
    (WAITING, NO, (Event.DUE,), STARTING, NONE, Do.START),
    (WAITING, NO, (Event.ASSIGNED,), WAITING, NONE, Do.MAKE_DUE),
    (WAITING, NO, (Event.BEGAN,), UP, NONE, Do.RUN),  # the borglet before this one asked for it
    # The end of a run that was found, decided on when its spec came:
    (WAITING, NO, (Event.EXITED,), WAITING, NONE, Do.WAIT),
    (WAITING, NO, (Event.FINISHED,), ENDED, NONE, Do.FINISH),
    (WAITING, NO, (Event.FAILED,), ENDED, NONE, Do.FAIL),
    # What waits for a purpose comes from the ledger: its start had not been answered.
    (WAITING, TO_RESTART, (Event.NOT_STARTED,), WAITING, NONE, Do.WITHDRAW),
    (WAITING, TO_END, (Event.NOT_STARTED,), ENDED, SAME, Do.END_AS_ASKED),
    (WAITING, STOPPED, (Event.BEGAN,), STOPPING, SAME, Do.STOP_RUN),
    (STARTING, NO, (Event.BEGAN,), UP, NONE, Do.RUN),
    (STARTING, STOPPED, (Event.BEGAN,), STOPPING, SAME, Do.STOP_RUN),
    (STARTING, BELOW_FAIL, (Event.START_FAILED,), WAITING, NONE, Do.WAIT),
    (STARTING, BELOW_FAIL, (Event.FAILED,), ENDED, NONE, Do.FAIL),
    (STARTING, TO_END, (Event.START_FAILED, Event.FAILED), ENDED, SAME, Do.END_AS_ASKED),
    (UP, NO, (Event.ASSIGNED,), UP, NONE, Do.BEGIN_PROBING),
    (UP, NO, (Event.PROBE_DUE,), UP, NONE, Do.PROBE),
    (UP, NO, (Event.BEGAN,), UP, NONE, Do.RUN),
    (UP, NO, (Event.EXITED,), WAITING, NONE, Do.WAIT),
    (UP, NO, (Event.EXITED_UNASSIGNED,), WAITING, NONE, Do.WAIT_FOR_SPEC),
    (UP, NO, (Event.FINISHED,), ENDED, NONE, Do.FINISH),
    (UP, NO, (Event.FAILED,), ENDED, NONE, Do.FAIL),
    (STOPPING, STOPPED, (Event.SIGNAL_DUE,), STOPPING, SAME, Do.SIGNAL),
    (STOPPING, STOPPED, (Event.DUE,), STOPPING, SAME, Do.KILL),
    (STOPPING, STOPPED, (Event.BEGAN,), STOPPING, SAME, Do.STOP_RUN),
    (STOPPING, TO_RESTART, (Event.EXITED,), WAITING, NONE, Do.WAIT),
    (STOPPING, TO_RESTART, (Event.EXITED_UNASSIGNED,), WAITING, NONE, Do.WAIT_FOR_SPEC),
    (STOPPING, TO_RESTART, (Event.FINISHED,), ENDED, NONE, Do.FINISH),
    (STOPPING, TO_RESTART, (Event.FAILED,), ENDED, NONE, Do.FAIL),
    (STOPPING, TO_END, EXITS, ENDED, SAME, Do.END_AS_ASKED),
    # A start that was under way when the attempt ended may succeed all the same: that run is killed.
    (ENDED, ANY, (Event.BEGAN,), ENDED, SAME, Do.NOTE_RUN),
    (ENDED, ANY, (Event.EXITED,), ENDED, SAME, Do.NOTE_EXIT),
    (ENDED, ANY, (Event.DUE,), ENDED, SAME, Do.KILL_AFTER_END),
    # Asked to stop. Only a stronger purpose counts, and nothing can be restarted that does not run. The stop
    # of what is being started waits for the answer: a signal that overtook the start would hit nothing.
    (WAITING, BELOW_FAIL, (Event.FAIL,), ENDED, FAIL, Do.END_AT_ONCE),
    (WAITING, BELOW_KILL, (Event.KILL,), ENDED, KILL, Do.END_AT_ONCE),
    (STARTING, NO, (Event.RESTART,), STARTING, RESTART, Do.NOTE_PURPOSE),
    (STARTING, BELOW_FAIL, (Event.FAIL,), STARTING, FAIL, Do.NOTE_PURPOSE),
    (STARTING, BELOW_KILL, (Event.KILL,), STARTING, KILL, Do.NOTE_PURPOSE),
    (UP, NO, (Event.RESTART,), STOPPING, RESTART, Do.STOP),
    (UP, NO, (Event.FAIL,), STOPPING, FAIL, Do.STOP),
    (UP, NO, (Event.KILL,), STOPPING, KILL, Do.STOP),
    (STOPPING, TO_RESTART, (Event.FAIL,), STOPPING, FAIL, Do.NOTE_PURPOSE),
    (STOPPING, (RESTART, FAIL), (Event.KILL,), STOPPING, KILL, Do.NOTE_PURPOSE),
)

TABLE: dict[tuple[Stage, Purpose, Event], Row] = {
    (stage, purpose, event): Row(next_stage, purpose if next_purpose is SAME else next_purpose, do)
    for stage, purposes, events, next_stage, next_purpose, do in _RULES
    for purpose in purposes
    for event in events
}


def diagram() -> str:
    """Return the table as Mermaid text, for the tour of the code: what changes the stage, with the purposes
    for which it does where not all have it."""
    arrows: dict[tuple[Stage, Stage], dict[Event, list[Purpose]]] = {}
    purposes: dict[Stage, dict[Purpose, None]] = {}
    for (stage, purpose, event), row in TABLE.items():
        purposes.setdefault(stage, {})[purpose] = None
        if row.stage is not stage:
            arrows.setdefault((stage, row.stage), {}).setdefault(event, []).append(purpose)
    rows = ["stateDiagram-v2", "    [*] --> waiting: assigned, or found"]
    for (stage, target), events in arrows.items():
        labels = []
        for event, found in events.items():
            of_all = event in TO_STOP.values() or len(found) == len(purposes[stage])
            labels.append(event if of_all else f"{event} ({'|'.join(p.name.lower() for p in found)})")
        rows.append(f"    {stage} --> {target}: {', '.join(labels)}")
    return "\n".join([*rows, "    ended --> [*]: forgotten"])
