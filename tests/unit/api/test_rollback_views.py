"""A rollback that is paused says why, wherever people look."""

from borgish.api.views.events import event_views
from borgish.api.views.jobs import job_view
from borgish.api.views.status import Daemon, status_view
from borgish.api.views.tally import Tally
from borgish.api.views.why import why_job, why_task
from borgish.cli.commands.status import in_full
from borgish.wire.api import StatusView
from tests.unit.cell.lived import Lived, crashed_before


def paused() -> tuple[Lived, int, str]:
    lived, bad = crashed_before()
    lived.roll_back(bad)
    lived.settle()
    on = lived.cell.jobs["ann/web"].tasks[0].machine
    return lived, bad, f"task 0 was restarted once on {on} (exit code 1)"


def status(lived: Lived) -> StatusView:
    return status_view(lived.cell, lived.core.observed, Tally(), Daemon(0.0, "memory"), lived.now)


def test_the_status_says_why() -> None:
    lived, _, why = paused()
    view = status(lived)
    assert (view.to_change, view.rollbacks_paused) == (4, (f"ann/web: {why}",))
    lines = in_full(view, "http://x", 0).splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith(("changes", "paused"))] == [
        "4 tasks still to be changed or stopped",
        f"ann/web: {why}",
    ]
    assert status(Lived()).rollbacks_paused == ()


def test_the_job_says_why_and_what_can_be_done() -> None:
    lived, bad, why = paused()
    job, observed = lived.cell.jobs["ann/web"], lived.core.observed
    assert job.rollout is not None
    view = job_view(lived.cell, observed, job, ())
    assert view.reason == f"rolled back to position {bad}: 4 tasks still to be stopped; paused: {why}"
    text = why_job(lived.cell, observed, job, (), (), lived.now).text
    assert f"That is paused: {why}. It goes on by itself when all that it changed is up." in text
    assert f"`borgctl rollback {job.rollout.position - 1} --only ann/web` undoes it" in text
    assert f"`borgctl rollback {bad} --only ann/web --now` goes on regardless" in text
    assert (
        "is to be stopped for that when that goes on."
        in why_task(lived.cell, observed, job, 4, (), (), lived.now).text
    )


def test_history_says_why() -> None:
    lived, _, why = paused()
    (line,) = (event for entry in lived.entries for event in event_views(entry) if "paused" in event.text)
    assert (line.text, line.job, line.bad) == (f"the rollback of ann/web is paused: {why}", "ann/web", True)
