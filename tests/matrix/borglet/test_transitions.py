"""Every stage x purpose x event of an attempt: rows do what is written here, all else does nothing."""

import ast
import itertools
from pathlib import Path

import msgspec
import pytest

from borgish.borglet.actions import Action, Kill, Probe, Signal, Start
from borgish.borglet.attempts.attempt import EFFECTS, Attempt, Cause
from borgish.borglet.attempts.entry import to_entry
from borgish.borglet.attempts.failures import Backoff, first_probe
from borgish.borglet.attempts.transitions import LIVE, TABLE, Do, Event, Purpose, Stage, diagram
from borgish.borglet.core import BorgletCore
from borgish.borglet.runtimes.base import RunState
from borgish.clock import Now
from borgish.resources import Resources
from borgish.spec.job import Health, Restart, Stop
from borgish.vocabulary import Ending, Runtime
from borgish.wire.link import AttemptSpec, Exit, Facts

ROOT = Path(__file__).parents[3]
T0 = Now(1_000_000.0, 500.0)
NOW = T0.later(100.0)
KEY = "ann/web/0@7"
SPEC = AttemptSpec(
    task="ann/web/0",
    attempt=7,
    run=("serve",),
    env={},
    runtime=Runtime.FAKE,
    resources=Resources(cpu_millis=100, ram_bytes=2**27),
    restart=Restart(backoff_seconds=1.0),
    stop=Stop("INT", 5.0),
    ports={"http": 8080},
    health=Health(tcp=True, port="http", interval_seconds=2.0),
)
CAUSE = Cause("because", Backoff(ends=3), permanent_failures=2, run=RunState(KEY, 2, 42, T0.wall))

# Written out by hand, so that the code's table is held to something. An event leads to a stage and a purpose,
# with what is asked of the runtime in brackets, and from ENDED's neighbours with how it ended.
EXPECTED = {
    "waiting none": {
        "due": "starting none [start]",
        "assigned": "waiting none",
        "began": "up none",
        "exited": "waiting none",
        "finished": "ended none finish",
        "failed": "ended none fail",
        "fail": "ended fail fail",
        "kill": "ended kill kill",
    },
    "waiting restart": {
        "not started": "waiting none",
        "began": "stopping restart",
        "fail": "ended fail fail",
        "kill": "ended kill kill",
    },
    "waiting fail": {
        "not started": "ended fail fail",
        "began": "stopping fail",
        "kill": "ended kill kill",
    },
    "waiting kill": {
        "not started": "ended kill kill",
        "began": "stopping kill",
    },
    "starting none": {
        "began": "up none",
        "start failed": "waiting none",
        "failed": "ended none fail",
        "restart": "starting restart",
        "fail": "starting fail",
        "kill": "starting kill",
    },
    "starting restart": {
        "began": "stopping restart",
        "start failed": "waiting none",
        "failed": "ended none fail",
        "fail": "starting fail",
        "kill": "starting kill",
    },
    "starting fail": {
        "began": "stopping fail",
        "start failed": "ended fail fail",
        "failed": "ended fail fail",
        "kill": "starting kill",
    },
    "starting kill": {
        "began": "stopping kill",
        "start failed": "ended kill kill",
        "failed": "ended kill kill",
    },
    "up none": {
        "assigned": "up none",
        "probe due": "up none [probe]",
        "began": "up none",
        "exited": "waiting none",
        "exited unassigned": "waiting none",
        "finished": "ended none finish",
        "failed": "ended none fail",
        "restart": "stopping restart",
        "fail": "stopping fail",
        "kill": "stopping kill",
    },
    "up restart": {},  # what runs and is to end is stopping
    "up fail": {},
    "up kill": {},
    "stopping none": {},
    "stopping restart": {
        "signal due": "stopping restart [INT]",
        "due": "stopping restart [kill]",
        "began": "stopping restart",
        "exited": "waiting none",
        "exited unassigned": "waiting none",
        "finished": "ended none finish",
        "failed": "ended none fail",
        "fail": "stopping fail",
        "kill": "stopping kill",
    },
    "stopping fail": {
        "signal due": "stopping fail [INT]",
        "due": "stopping fail [kill]",
        "began": "stopping fail",
        "exited": "ended fail fail",
        "exited unassigned": "ended fail fail",
        "finished": "ended fail fail",
        "failed": "ended fail fail",
        "kill": "stopping kill",
    },
    "stopping kill": {
        "signal due": "stopping kill [INT]",
        "due": "stopping kill [kill]",
        "began": "stopping kill",
        "exited": "ended kill kill",
        "exited unassigned": "ended kill kill",
        "finished": "ended kill kill",
        "failed": "ended kill kill",
    },
} | {
    f"ended {purpose.name.lower()}": {
        "due": f"ended {purpose.name.lower()} lost [kill]",
        "began": f"ended {purpose.name.lower()} lost",
        "exited": f"ended {purpose.name.lower()} lost",
    }
    for purpose in Purpose
}
STOPS = (Event.RESTART, Event.FAIL, Event.KILL)
CELLS = list(itertools.product(Stage, Purpose, Event))


def at(stage: Stage, purpose: Purpose) -> Attempt:
    """An attempt that has got there; an ended one as no transition of the table ends one."""
    attempt = Attempt(task="ann/web/0", attempt=7, spec=SPEC, stage=stage, purpose=purpose, run=1, why="why")
    attempt.due = T0
    if stage in LIVE:
        attempt.pid, attempt.started, attempt.probe = 41, T0, first_probe(T0)
    if stage is Stage.ENDED:
        attempt.due, attempt.ended = None, Ending.LOST
    return attempt


def word(action: Action) -> str:
    match action:
        case Signal(_, signal):
            return signal
        case Start() | Kill() | Probe():
            return type(action).__name__.lower()
    return "forget"


def fields(attempt: Attempt) -> dict[str, object]:
    return msgspec.structs.asdict(attempt)


@pytest.mark.parametrize(("stage", "purpose", "event"), CELLS)
def test_every_cell_does_what_it_should(stage: Stage, purpose: Purpose, event: Event) -> None:
    attempt = at(stage, purpose)
    before = fields(attempt)
    todo = attempt.fire(event, NOW, CAUSE)
    expected = EXPECTED[f"{stage} {purpose.name.lower()}"].get(event.value)
    if expected is None:
        assert (fields(attempt), todo) == (before, [])
        return
    became = [attempt.stage, attempt.purpose.name.lower()]
    became += [attempt.ended] if attempt.ended else []
    became += [f"[{word(action)}]" for action in todo]
    assert " ".join(became) == expected


def test_every_stage_and_purpose_is_written_here() -> None:
    assert EXPECTED.keys() == {f"{stage} {purpose.name.lower()}" for stage in Stage for purpose in Purpose}


@pytest.mark.parametrize(("stage", "purpose", "event"), TABLE)
def test_what_follows_holds_together(stage: Stage, purpose: Purpose, event: Event) -> None:
    """Beside the stage: a program that runs has a pid's worth of facts, what ended has none of them."""
    attempt = at(stage, purpose)
    attempt.fire(event, NOW, CAUSE)
    if event is Event.BEGAN and stage is not Stage.ENDED:
        assert (attempt.run, attempt.started, attempt.probe is not None) == (2, T0, True)
        assert not attempt.signalled
        assert attempt.due is None
    if attempt.stage is Stage.ENDED and stage is not Stage.ENDED:
        is_new = attempt.purpose is Purpose.NONE or event in STOPS
        assert attempt.reason == ("because" if is_new else "why")
        assert (attempt.due, attempt.started, attempt.pid, attempt.probe) == (None, None, 0, None)
        assert (attempt.last_exit is None) == (attempt.ended is Ending.KILL)
    if event in (Event.EXITED, Event.START_FAILED) and attempt.stage is Stage.WAITING:
        assert (attempt.due, attempt.reason, attempt.why) == (NOW.later(2.0), "because", "")
        assert (attempt.backoff.ends, attempt.permanent_failures) == (3, 2)
    if event in (Event.EXITED, Event.START_FAILED, Event.FAILED) and attempt.purpose > Purpose.RESTART:
        assert (attempt.backoff.ends, attempt.permanent_failures) == (0, 0)  # it was not its doing
    if event in STOPS:
        assert attempt.why == attempt.reason == "because"


def test_every_effect_is_used_and_there() -> None:
    assert {row.do for row in TABLE.values()} == set(Do) == EFFECTS.keys()


def test_no_row_leaves_the_end_and_no_purpose_becomes_weaker_but_by_an_end_of_the_program() -> None:
    for (stage, purpose, event), (next_stage, next_purpose, _) in TABLE.items():
        assert stage is not Stage.ENDED or next_stage is Stage.ENDED
        assert next_purpose >= purpose or (purpose, next_purpose) == (Purpose.RESTART, Purpose.NONE)
        assert (next_stage is Stage.UP) <= (next_purpose is Purpose.NONE)
        assert next_stage is not Stage.STOPPING or next_purpose is not Purpose.NONE
        assert event is not Event.DUE or next_stage is not Stage.UP


@pytest.mark.reads_code
def test_only_fire_changes_stage_and_purpose() -> None:
    found = []
    for path in sorted((ROOT / "borgish" / "borglet").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                targets = [
                    target
                    for node in ast.walk(function)
                    if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
                    for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
                ]
                names = {n.attr for t in targets for n in ast.walk(t) if isinstance(n, ast.Attribute)}
                if names & {"stage", "purpose"}:
                    found.append((path.name, function.name))
    assert found == [("attempt.py", "fire")]


def test_the_tour_shows_this_diagram() -> None:
    assert diagram() in (ROOT / "borgish" / "README.md").read_text()


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("purpose", Purpose)
def test_what_was_not_asked_to_be_forgotten_stays(stage: Stage, purpose: Purpose) -> None:
    attempt = at(stage, purpose)
    if stage is Stage.ENDED:
        attempt.last_exit = Exit(code=0)
    facts = Facts(Resources(1000, 2**30, 2**30), {}, (Runtime.FAKE,), 20000, 20999)
    core = BorgletCore("m1", "boot", "i1", facts, ledger=[to_entry(attempt)], now=T0)
    core.adopted(Runtime.FAKE, [RunState(KEY, 1, 41, T0.wall)] if stage in LIVE else [], T0)
    core.step(T0)
    before = core.ledger(), core.report()
    core.forgotten(KEY)
    assert core.step(T0).records == {}
    assert (core.ledger(), core.report()) == before
