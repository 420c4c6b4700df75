"""A task that is being replaced, as the API shows it."""

from borgish.api.views.machines import machine_view
from borgish.api.views.tally import Tally
from borgish.api.views.tasks import task_view_of
from borgish.api.views.why import why_task
from borgish.cell.commands import DrainMachines
from borgish.vocabulary import Phase
from tests.unit.cell.lived import Lived
from tests.unit.cell.test_handover import JOB, began, handover, until, web


def leaving() -> Lived:
    lived = began(web(tasks=1), ("m1", "m2"))
    lived.do(DrainMachines((lived.cell.jobs[JOB].tasks[0].machine,)))
    until(lived, "placed")
    lived.step()
    return lived


def test_what_takes_over_is_shown_with_what_it_waits_for() -> None:
    lived = leaving()
    job, found = lived.cell.jobs[JOB], handover(lived)
    view = task_view_of(lived.cell, lived.core.observed, job, 0)
    assert (view.attempt, view.machine) == (job.tasks[0].attempt, job.tasks[0].machine)
    assert view.incoming is not None
    assert (view.incoming.attempt, view.incoming.machine) == (found.attempt, found.machine)
    assert (view.incoming.phase, view.incoming.version) == (Phase.UP, 1)
    assert view.incoming.text.endswith("is up and takes over when it was so for 3s")
    assert "is to be empty: drained by ann" in view.incoming.why


def test_why_says_that_it_runs_on_meanwhile() -> None:
    lived = leaving()
    why = why_task(lived.cell, lived.core.observed, lived.cell.jobs[JOB], 0, (), (), lived.now)
    assert "It is being replaced: " in why.text
    assert "It runs on until that is up." in why.text


def test_a_machine_tells_of_attempts_that_are_to_take_over() -> None:
    lived = leaving()
    there = lived.cell.machines[handover(lived).machine]
    view = machine_view(lived.cell, lived.core.observed, Tally(), there, lived.now)
    assert (view.tasks, view.incoming) == (0, 1)
    assert view.committed == web().resources
