"""How many machines must refuse a master, and for how long, until it counts as deposed."""

import pytest

from borgish.errors import Fenced
from borgish.link.fencing import FencingMonitor


def refusals(*obeying: str) -> FencingMonitor:
    made = FencingMonitor()
    for machine in obeying:
        made.note(machine)
    return made


def test_one_machine_of_several_deposes_nobody() -> None:
    made = refusals("m1", "m2", "m3")
    made.note("m1", "m1 obeys another")
    assert made.fenced() is None
    assert made.seconds(100.0) == made.seconds(200.0) == 0.0
    made.check()


def test_half_of_those_that_answer_do() -> None:
    made = refusals("m1", "m2", "m3")
    made.note("m2", "m2 obeys another")
    made.drop("m3")
    found = made.fenced()
    assert found is not None
    assert "1 of 2 machines that answer obey another borgmaster" in found.text
    assert "m2 obeys another" in found.text
    with pytest.raises(Fenced, match="no command is accepted") as caught:
        made.check()
    assert (caught.value.status, caught.value.exit_code) == (503, 71)
    assert "--take-over" in caught.value.hint


def test_the_time_counts_as_long_as_it_stays_so() -> None:
    made = refusals("m1")
    made.note("m1", "no")
    assert [made.seconds(mono) for mono in (10.0, 12.0)] == [0.0, 2.0]
    made.note("m1")
    assert made.seconds(13.0) == 0.0
    made.note("m1", "no")
    assert [made.seconds(mono) for mono in (14.0, 15.0)] == [0.0, 1.0]


def test_machines_that_are_gone_have_no_say() -> None:
    made = refusals("m1")
    made.note("m1", "no")
    made.drop("m1")
    assert made.fenced() is None
