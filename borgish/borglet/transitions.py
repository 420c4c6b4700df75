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
    STOPPING = "stopping"  # its program runs and was asked to end
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
    SIGNAL_DUE = "signal due"  # it was asked to stop and has not been signalled


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

_Rules = dict[Event, tuple[Stage, Purpose | None, Do]]  # no purpose: it stays as it is

_STOPS_BEFORE_IT_RUNS: _Rules = {  # RESTART: nothing runs that could be restarted
    Event.FAIL: (ENDED, FAIL, Do.END_AT_ONCE),
    Event.KILL: (ENDED, KILL, Do.END_AT_ONCE),
}
# The stop of what is being started waits for the answer: a signal that overtook the start would hit nothing.
_STOPS_WHILE_STARTING: _Rules = {e: (STARTING, p, Do.NOTE_PURPOSE) for p, e in TO_STOP.items()}
_STOPS: _Rules = {e: (STOPPING, p, Do.STOP) for p, e in TO_STOP.items()}
_STOPS_FOR_MORE: _Rules = {e: (STOPPING, p, Do.NOTE_PURPOSE) for p, e in TO_STOP.items()}
_IS_STOPPED: _Rules = {
    Event.SIGNAL_DUE: (STOPPING, None, Do.SIGNAL),
    Event.DUE: (STOPPING, None, Do.KILL),
    Event.BEGAN: (STOPPING, None, Do.STOP_RUN),
}
_GOES_ON_BY_POLICY: _Rules = {
    Event.EXITED: (WAITING, NONE, Do.WAIT),
    Event.EXITED_UNASSIGNED: (WAITING, NONE, Do.WAIT_FOR_SPEC),
    Event.FINISHED: (ENDED, NONE, Do.FINISH),
    Event.FAILED: (ENDED, NONE, Do.FAIL),
}
_ENDS: _Rules = dict.fromkeys(_GOES_ON_BY_POLICY, (ENDED, None, Do.END_AS_ASKED))

_RULES: tuple[tuple[Stage, tuple[Purpose, ...], _Rules], ...] = (
    (
        WAITING,
        (NONE,),
        _STOPS_BEFORE_IT_RUNS
        | {
            Event.DUE: (STARTING, NONE, Do.START),
            Event.ASSIGNED: (WAITING, NONE, Do.MAKE_DUE),
            Event.BEGAN: (UP, NONE, Do.RUN),  # the borglet before this one asked for it
            # The end of a run that was found, decided on when its spec came:
            Event.EXITED: (WAITING, NONE, Do.WAIT),
            Event.FINISHED: (ENDED, NONE, Do.FINISH),
            Event.FAILED: (ENDED, NONE, Do.FAIL),
        },
    ),
    # What waits for a purpose comes from the ledger: its start had not been answered.
    (
        WAITING,
        (RESTART,),
        _STOPS_BEFORE_IT_RUNS
        | {
            Event.NOT_STARTED: (WAITING, NONE, Do.WITHDRAW),
            Event.BEGAN: (STOPPING, RESTART, Do.STOP_RUN),
        },
    ),
    (
        WAITING,
        (FAIL, KILL),
        _STOPS_BEFORE_IT_RUNS
        | {
            Event.NOT_STARTED: (ENDED, None, Do.END_AS_ASKED),
            Event.BEGAN: (STOPPING, None, Do.STOP_RUN),
        },
    ),
    (
        STARTING,
        (NONE,),
        _STOPS_WHILE_STARTING
        | {
            Event.BEGAN: (UP, NONE, Do.RUN),
            Event.START_FAILED: (WAITING, NONE, Do.WAIT),
            Event.FAILED: (ENDED, NONE, Do.FAIL),
        },
    ),
    (
        STARTING,
        (RESTART,),
        _STOPS_WHILE_STARTING
        | {
            Event.BEGAN: (STOPPING, RESTART, Do.STOP_RUN),
            Event.START_FAILED: (WAITING, NONE, Do.WAIT),
            Event.FAILED: (ENDED, NONE, Do.FAIL),
        },
    ),
    (
        STARTING,
        (FAIL, KILL),
        _STOPS_WHILE_STARTING
        | {
            Event.BEGAN: (STOPPING, None, Do.STOP_RUN),
            Event.START_FAILED: (ENDED, None, Do.END_AS_ASKED),
            Event.FAILED: (ENDED, None, Do.END_AS_ASKED),
        },
    ),
    (
        UP,
        (NONE,),
        _STOPS
        | _GOES_ON_BY_POLICY
        | {
            Event.ASSIGNED: (UP, NONE, Do.BEGIN_PROBING),
            Event.PROBE_DUE: (UP, NONE, Do.PROBE),
            Event.BEGAN: (UP, NONE, Do.RUN),
        },
    ),
    (STOPPING, (RESTART,), _STOPS_FOR_MORE | _IS_STOPPED | _GOES_ON_BY_POLICY),
    (STOPPING, (FAIL, KILL), _STOPS_FOR_MORE | _IS_STOPPED | _ENDS),
    # A start that was under way when the attempt ended may succeed all the same: that run is killed.
    (
        ENDED,
        (NONE, RESTART, FAIL, KILL),
        {
            Event.BEGAN: (ENDED, None, Do.NOTE_RUN),
            Event.EXITED: (ENDED, None, Do.NOTE_EXIT),
            Event.DUE: (ENDED, None, Do.KILL_AFTER_END),
        },
    ),
)

TABLE: dict[tuple[Stage, Purpose, Event], Row] = {
    (stage, purpose, event): Row(next_stage, purpose if asked is None else asked, do)
    for stage, purposes, rules in _RULES
    for purpose in purposes
    for event, (next_stage, asked, do) in rules.items()
    if event not in TO_STOP.values() or (asked or NONE) > purpose  # only a stronger purpose counts
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
