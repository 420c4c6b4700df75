"""What was observed of machines: when one last answered, what runs there, and for how long."""

from typing import Any

import pytest

from borgish.cell.commands import (
    Observe,
    SeenAttempt,
)
from borgish.cell.model import Cell, Snapshot
from borgish.cell.observed import (
    MISSES_MAX,
    ORPHAN_SECONDS,
    PORT_REST_SECONDS,
    Miss,
    Observed,
    SeenMachine,
    forget_machine,
    mark_returned,
    record_answers,
    record_misses,
    record_report,
    record_usage,
    watch,
)
from borgish.clock import Now
from borgish.vocabulary import Phase, Runtime

T = 1000.0
TASK = "ann/web/0"


@pytest.fixture
def observed() -> Observed:
    """m1 and m2 were answering."""
    observed = Observed()
    watch(observed, ("m1", "m2"), Now(0.0, T))
    record_answers(observed, {"m1": T + 1, "m2": T + 1})
    return observed


def heard(observed: Observed, mono: float, *attempts: SeenAttempt, **fields: Any) -> SeenMachine:
    """Have m1 report at a moment; return what is known of it."""
    report = Observe("m1", "b1", "i1", attempts, **fields)
    record_report(Cell(Snapshot("c", position=100)), observed, report, Now(0.0, mono))
    return observed.machines["m1"]


def test_answers_are_noted_with_the_first_and_the_last_of_them(observed: Observed) -> None:
    assert record_answers(observed, {"m1": T + 5, "gone": T + 5}) == set()
    record_answers(observed, {"m1": T + 3})  # one that was overtaken
    seen = observed.machines["m1"]
    assert (seen.first_heard, seen.heard, seen.answered) == (T + 1, T + 5, T + 5)
    assert set(observed.machines) == {"m1", "m2"}


def test_who_does_not_answer_is_told_apart_once(observed: Observed) -> None:
    missed = {"m1": Miss("lost", T + 2, polls=MISSES_MAX), "m2": Miss("lost"), "gone": Miss("lost", polls=9)}
    assert record_misses(observed, missed) == {"m1"}
    assert record_misses(observed, {"m1": Miss("reset", T + 1)}) == set()
    seen = observed.machines["m1"]
    assert (seen.trouble, seen.misses, seen.refused) == ("reset", MISSES_MAX + 1, T + 2)
    assert observed.machines["m2"].is_answering
    assert record_answers(observed, {"m1": T + 9, "m2": T + 9}) == {"m1"}
    assert (seen.trouble, seen.misses) == ("", 0)


def test_silence_counts_from_when_a_machine_is_watched(observed: Observed) -> None:
    mark_returned(observed, ("m1", "m3"), Now(0.0, T + 60))
    for name in ("m1", "m3"):
        seen = observed.machines[name]
        assert (seen.returned, seen.answered) == (T + 60, T + 60)
    assert observed.machines["m2"].returned == 0.0
    forget_machine(observed, "m3")
    forget_machine(observed, "m3")
    assert set(observed.machines) == {"m1", "m2"}


def test_samples_of_usage_take_the_place_of_the_last_ones(observed: Observed) -> None:
    for usage in ({(TASK, 5): (10, 20)}, {(TASK, 6): (30, 40)}):
        record_usage(observed, "m1", usage)
        record_usage(observed, "gone", usage)
    assert observed.machines["m1"].usage == {(TASK, 6): (30, 40)}
    assert set(observed.machines) == {"m1", "m2"}


def test_a_phase_lasts_until_it_changes_or_is_broken_by_a_restart(observed: Observed) -> None:
    since = []
    for mono, phase, restarts in (
        (T + 1, Phase.STARTING, 0),
        (T + 2, Phase.UP, 0),
        (T + 3, Phase.UP, 0),
        (T + 4, Phase.UP, 1),
    ):
        heard(observed, mono, SeenAttempt(TASK, 5, phase, restarts=restarts), whole=mono == T + 3)
        found = observed.attempt("m1", TASK, 5)
        assert found is not None
        since.append(found.since)
    assert since == [T + 1, T + 2, T + 2, T + 4]
    assert observed.attempt("m1", TASK, 6) is None
    assert observed.attempt("gone", TASK, 5) is None


def test_a_phase_does_not_outlive_a_boot(observed: Observed) -> None:
    """A borglet whose disk was lost, too, starts the attempt for the first time, as far as it knows."""
    up = SeenAttempt(TASK, 5, Phase.UP)
    heard(observed, T + 1, up)
    record_report(
        Cell(Snapshot("c", position=100)), observed, Observe("m1", "b2", "i2", (up,)), Now(0.0, T + 2)
    )
    found = observed.attempt("m1", TASK, 5)
    assert found is not None
    assert found.since == T + 2


def test_a_report_names_what_changed_and_a_whole_one_all_there_is(observed: Observed) -> None:
    up = {name: SeenAttempt(name, 5, Phase.UP) for name in ("ann/a/0", "ann/b/0", "ann/c/0")}
    heard(observed, T, *up.values())
    seen = heard(observed, T + 1, gone=(("ann/a/0", 5), ("ann/d/0", 5)))
    assert set(seen.attempts) == {("ann/b/0", 5), ("ann/c/0", 5)}
    heard(observed, T + 2, up["ann/c/0"], whole=True)
    assert set(seen.attempts) == {("ann/c/0", 5)}


def test_the_state_of_a_machine_is_that_of_its_last_report(observed: Observed) -> None:
    images = {"web:1": "amd64"}
    heard(observed, T, generation=3, conditions=("disk full",), images=images)
    seen = heard(observed, T + 1, generation=4, unhealthy_runtimes=(Runtime.PROCESS,))
    assert (seen.boot_id, seen.instance, seen.generation) == ("b1", "i1", 4)
    assert (seen.conditions, seen.unhealthy_runtimes) == ((), (Runtime.PROCESS,))
    assert seen.images == images  # they were not reported again
    assert heard(observed, T + 2, images={}).images == {}


def test_a_port_that_another_program_holds_rests(observed: Observed) -> None:
    seen = heard(observed, T, SeenAttempt(TASK, 5, Phase.STARTING, port_in_use=80))
    assert seen.ports_blocked == {80: T + PORT_REST_SECONDS}
    heard(observed, T + PORT_REST_SECONDS - 1)
    assert set(seen.ports_blocked) == {80}
    heard(observed, T + PORT_REST_SECONDS)
    assert seen.ports_blocked == {}


def test_an_orphan_is_one_since_it_was_first_seen(observed: Observed) -> None:
    known, unknown = SeenAttempt(TASK, 100, Phase.UP), SeenAttempt(TASK, 101, Phase.UP)
    heard(observed, T, known, unknown)
    seen = heard(observed, T + ORPHAN_SECONDS)
    assert seen.orphans == {(TASK, 101): T}
    heard(observed, T + 1, gone=((TASK, 101),))
    assert seen.orphans == {}


def test_a_machine_that_reports_before_it_is_watched_is_watched_from_then_on() -> None:
    observed = Observed()
    assert heard(observed, T).watched_since == T
