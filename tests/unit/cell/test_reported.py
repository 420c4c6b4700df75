"""What is kept of a report is what its events lack, and leads to the same events again."""

from typing import Any

import pytest

from borgish.cell.commands import (
    Observe,
    SeenAttempt,
    SubmitJob,
)
from borgish.cell.decide import decide
from borgish.cell.events import Entry, Facts, Recorded
from borgish.cell.model import Machine
from borgish.cell.observed import Observed
from borgish.cell.recorded import commands_of, recorded_of
from borgish.errors import StoreDamaged
from borgish.resources import Resources
from borgish.vocabulary import Ending, Phase
from tests.anew import stored
from tests.unit.cell.lived import Lived, spec


@pytest.fixture
def lived() -> Lived:
    made = Lived(("m1",))
    made.step(SubmitJob(spec(tasks=3)))
    return made


def seen(lived: Lived, index: int, phase: Phase = Phase.UP, **fields: Any) -> SeenAttempt:
    attempt = lived.attempts()[index]
    return SeenAttempt(f"ann/web/{index}", attempt, phase, Resources(1000, 5), (20_000,), 77, **fields)


def machine_of(lived: Lived) -> Machine:
    return lived.cell.machines["m1"]


def kept(lived: Lived, report: Observe) -> Facts:
    """Return what is kept of a report, which must lead to the same."""
    events = decide(lived.cell, lived.core.observed, report, "m1", lived.now).events
    recorded = recorded_of(Observed(), report, events, lived.now)
    entry = stored(Entry(99, 1.0, 1, 1, "m1", "Observe", events, subject="m1", command=recorded))
    commands = commands_of(lived.cell, entry)
    assert commands is not None
    assert decide(lived.cell, Observed(), commands[0], "m1", lived.now).events == events
    assert recorded.observed is not None
    return recorded.observed


def test_of_an_end_it_is_which_attempt_ended(lived: Lived) -> None:
    ended = seen(lived, 0, ended=Ending.FINISH, exit_code=0, exit_reason="exit 0", started_at=5.5)
    facts = kept(lived, Observe("m1", "b1", "i", (ended, seen(lived, 1), seen(lived, 2)), whole=True))
    assert facts == Facts(attempts=({"task": "ann/web/0", "attempt": ended.attempt},))


def test_of_a_restart_it_is_not_its_phase(lived: Lived) -> None:
    again = seen(lived, 1, Phase.BACKING_OFF, restarts=2, exit_code=1, exit_reason="exit 1", reason="soon")
    facts = kept(lived, Observe("m1", "b1", "i", (again,)))
    assert facts.attempts == ({"task": "ann/web/1", "attempt": again.attempt},)


def test_restarted_and_ended(lived: Lived) -> None:
    both = seen(lived, 1, ended=Ending.FAIL, restarts=2, signal=9, reason="out of memory", started_at=9.0)
    facts = kept(lived, Observe("m1", "b1", "i", (both,)))
    assert facts.attempts == ({"task": "ann/web/1", "attempt": both.attempt},)


def test_what_vanished_and_ports_that_others_hold(lived: Lived) -> None:
    killed = seen(lived, 0, Phase.STOPPING, ended=Ending.KILL, reason="by hand")
    port = seen(lived, 1, Phase.STARTING, port_in_use=80)
    gone = ("ann/web/2", lived.attempts()[2])
    facts = kept(lived, Observe("m1", "b1", "i", (killed, port), (gone, ("ann/other/0", 3))))
    assert facts.gone == (gone,)
    assert facts.attempts[1]["port_in_use"] == 80


def test_a_machine_that_booted_and_has_other_facts(lived: Lived) -> None:
    gone = seen(lived, 0, Phase.STARTING, exit_reason="lost in the reboot")
    more = Resources(64_000, 2**40)
    report = Observe("m1", "b2", "i", (gone, seen(lived, 1)), capacity=more)
    facts = kept(lived, report)
    (of_gone,) = facts.attempts
    assert (of_gone["task"], of_gone["phase"]) == ("ann/web/0", "starting")
    assert kept(lived, Observe("m1", machine_of(lived).boot_id, "i", (), capacity=more)) == Facts()


@pytest.mark.parametrize("attempts", [({"task": 5},), ({"task": "ann/web/0"},), ({"attempt": "x"},)])
def test_what_this_version_cannot_read_names_the_entry(
    lived: Lived, attempts: tuple[dict[str, Any], ...]
) -> None:
    entry = Entry(99, 1.0, 1, 1, "m1", "Observe", (), command=Recorded(observed=Facts(attempts=attempts)))
    with pytest.raises(StoreDamaged, match="command of journal entry 99 cannot be read"):
        commands_of(lived.cell, entry)
