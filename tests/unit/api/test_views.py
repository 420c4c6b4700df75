import msgspec
import pytest

from borgish.api.views.jobs import job_detail, job_view
from borgish.api.views.machines import has_trouble, machine_view
from borgish.api.views.status import Daemon, status_view, summary_view
from borgish.api.views.tally import Tally
from borgish.api.views.tasks import task_view
from borgish.api.views.why import why_job
from borgish.cell.commands import (
    Observe,
    SeenAttempt,
    SeenProgram,
)
from borgish.cell.crons.model import Cron
from borgish.cell.model import App, AppVersion, Cell, exit_text
from borgish.cell.observed import Observed, SeenMachine, record_report
from borgish.cell.touched import Touched
from borgish.resources import Resources
from borgish.spec.app import AppSpec
from borgish.spec.cron import read_cron
from borgish.spec.job import JobSpec
from borgish.text import has_index, instant, instant_or_none, read_indexes, show_indexes, tasks_text
from borgish.vocabulary import OUTCOMES, Band, Ending, Outcome, Phase, State
from borgish.wire.api import AppSummary, ProgramView
from tests.unit.api.cells import (
    LARGE,
    NOW,
    SMALL,
    dead,
    job,
    machine,
    see,
    small_cell,
    small_observed,
    small_refusals,
)


@pytest.mark.parametrize(
    ("indexes", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 3, 4, 7], "0-4,7"), ([9, 1, 8], "1,8-9")]
)
def test_indexes_are_written_as_runs_and_read_back(indexes: list[int], text: str) -> None:
    assert show_indexes(indexes) == text
    assert [i for run in read_indexes(text) for i in run] == sorted(indexes)


def test_an_index_is_found_in_runs() -> None:
    assert has_index("0-4,7", 3)
    assert not has_index("0-4,7", 5)
    assert tasks_text([4]) == "task 4"
    assert tasks_text([4, 5]) == "tasks 4-5"


def test_moments_are_utc_with_milliseconds_and_z() -> None:
    assert instant(1_767_225_600.1239) == "2026-01-01T00:00:00.123Z"
    assert instant_or_none(0.0) is None


def test_a_healthy_task_shows_what_its_machine_said() -> None:
    view = task_view(small_observed(), small_cell().jobs["ann/web"], 0)
    assert (view.name, view.state, view.phase, view.machine) == (
        "ann/web/0",
        State.RUNNING,
        Phase.HEALTHY,
        "m1",
    )
    assert (view.pid, view.ports, view.attempt) == (100, {"http": 20000}, 11)
    assert view.started_at == instant(1e9)
    assert view.usage is not None
    assert view.usage.cpu_millis == 10


def test_a_task_its_machine_has_not_spoken_of_is_assigned() -> None:
    view = task_view(Observed(), small_cell().jobs["bob/db"], 0)
    assert (view.phase, view.pid, view.usage) == (Phase.ASSIGNED, None, None)


def test_a_pending_task_tells_the_refusal_that_is_about_it() -> None:
    web = small_cell().jobs["ann/web"]
    view = task_view(small_observed(), web, 2, small_refusals()["ann/web"])
    assert view.reason.startswith("0 of 3 machines fit")
    assert (view.phase, view.machine, view.ports) == (None, None, {})


def test_limits_of_its_own_are_shown_of_a_task() -> None:
    web = small_cell().jobs["ann/web"]
    assert task_view(small_observed(), web, 0).resources == SMALL
    assert task_view(small_observed(), web, 1).resources == LARGE


def test_a_dead_task_tells_how_it_ended() -> None:
    view = task_view(small_observed(), small_cell().jobs["ann/sum"], 1)
    assert (view.state, view.exit_code, view.reason) == (State.DEAD, 1, "no attempts left")
    assert (exit_text(1, None), exit_text(None, 9), exit_text(None, None)) == ("exit code 1", "signal 9", "")


def test_an_attempt_that_ended_and_is_not_yet_taken_in_is_stopping() -> None:
    observed = small_observed()
    see(observed, "m2", "bob/db", 0, SeenAttempt("bob/db/0", 14, Phase.UP, ended=Ending.FAIL))
    assert task_view(observed, small_cell().jobs["bob/db"], 0).phase is Phase.STOPPING


def test_the_programs_beside_the_main_one_are_shown_as_seen() -> None:
    observed = small_observed()
    beside = (SeenProgram("proxy", Phase.UP, 103, 2), SeenProgram("shipper", Phase.STARTING, reason="exit 1"))
    see(observed, "m2", "bob/db", 0, SeenAttempt("bob/db/0", 14, Phase.UP, programs=beside))
    assert task_view(observed, small_cell().jobs["bob/db"], 0).programs == (
        ProgramView("proxy", Phase.UP, 103, 2, ""),
        ProgramView("shipper", Phase.STARTING, None, 0, "exit 1"),
    )


def test_up_counts_healthy_where_probed_and_running_where_not() -> None:
    cell, observed = small_cell(), small_observed()
    assert job_view(cell, observed, cell.jobs["ann/web"], ()).up == 1
    assert job_view(cell, observed, cell.jobs["bob/db"], ()).up == 1
    see(observed, "m1", "ann/web", 0, SeenAttempt("ann/web/0", 11, Phase.UP))
    assert job_view(cell, observed, cell.jobs["ann/web"], ()).up == 0


def test_a_job_tells_the_first_thing_in_the_way() -> None:
    cell, observed = small_cell(), small_observed()
    web, total = cell.jobs["ann/web"], cell.jobs["ann/sum"]
    assert job_view(cell, observed, web, small_refusals()["ann/web"]).reason.startswith("0 of 3")
    assert job_view(cell, observed, web, ()).reason == "task 1: probe: 3 misses"
    assert job_view(cell, observed, total, ()).reason == "task 1: no attempts left"
    assert job_view(cell, observed, cell.jobs["bob/db"], ()).reason == ""


def test_finished_failed_and_killed_are_counted_apart() -> None:
    cell, observed = small_cell(), small_observed()
    total = job_view(cell, observed, cell.jobs["ann/sum"], ())
    assert (total.dead, total.finished, total.failed, total.state) == (2, 1, 1, State.DEAD)
    web = job_view(cell, observed, cell.jobs["ann/web"], ())
    assert (web.dead, web.failed, web.killed, web.band) == (1, 0, 1, Band.PRODUCTION)


@pytest.mark.parametrize(
    ("endings", "outcome"),
    [
        ((Ending.FINISH, Ending.FINISH), Outcome.FINISHED),
        ((Ending.FINISH, Ending.FAIL), Outcome.FAILED),
        ((Ending.KILL, Ending.LOST), Outcome.FAILED),
        ((Ending.FINISH, Ending.KILL), Outcome.KILLED),
    ],
)
def test_the_outcome_of_a_dead_job(endings: tuple[Ending, ...], outcome: Outcome) -> None:
    ended = [dead(index, ending, "because") for index, ending in enumerate(endings)]
    cell, found = small_cell(), job(JobSpec("x", "ann", 2, ("x",)), ended, uid=9)
    assert job_view(cell, small_observed(), found, ()).outcome is outcome
    assert why_job(cell, small_observed(), found, (), (), NOW).outcome is outcome
    assert task_view(small_observed(), found, 0).outcome is OUTCOMES[endings[0]]


def test_what_lives_has_no_outcome() -> None:
    cell, observed = small_cell(), small_observed()
    assert job_view(cell, observed, cell.jobs["ann/web"], ()).outcome is None
    assert task_view(observed, cell.jobs["ann/web"], 0).outcome is None


def test_values_of_the_environment_are_hidden_from_those_who_may_not_see_them() -> None:
    cell = small_cell()
    web = cell.jobs["ann/web"]
    shown = job_detail(cell, small_observed(), web, (), NOW, secrets=False)
    text = msgspec.json.encode(shown).decode()
    assert "hunter" not in text
    assert shown.spec.env.keys() == {"PASSWORD"}
    assert job_detail(cell, small_observed(), web, (), NOW, secrets=True).spec == web.spec


def test_a_machine_shows_what_is_committed_used_and_left_over() -> None:
    cell, observed = small_cell(), small_observed()
    m1 = machine_view(cell, observed, Tally(), cell.machines["m1"], NOW)
    assert m1.committed == Resources(500, 640 * 1024**2)
    assert (m1.usage and m1.usage.cpu_millis, m1.tasks, m1.heard_seconds_ago) == (30, 2, 1.5)
    m2 = machine_view(cell, observed, Tally(), cell.machines["m2"], NOW)
    assert (m2.state, m2.orphans) == ("cordoned", ("old/job/0@2",))
    m3 = machine_view(cell, observed, Tally(), cell.machines["m3"], NOW)
    assert (m3.state, m3.heard_seconds_ago, m3.reason) == ("down", None, "silent")


def test_a_tally_follows_what_it_is_told() -> None:
    cell, observed, tally = small_cell(), small_observed(), Tally()
    tally.fill(cell, observed)
    assert (tally.up("ann/web"), tally.up("bob/db"), tally.up("no/such")) == (1, 1, 0)
    see(observed, "m1", "ann/web", 1, SeenAttempt("ann/web/1", 12, Phase.HEALTHY))
    tally.fill(cell, observed)
    assert tally.up("ann/web") == 1, "kept until it is told"
    tally.note(Touched(), {"ann/web": [1], "gone/job": [0]})
    tally.fill(cell, observed)
    assert tally.up("ann/web") == 2


def test_a_tally_counts_only_current_attempts() -> None:
    cell, observed, tally = small_cell(), small_observed(), Tally()
    see(observed, "m2", "ann/web", 0, SeenAttempt("ann/web/0", 3, Phase.HEALTHY))
    see(observed, "m2", "ann/web", 9, SeenAttempt("ann/web/9", 3, Phase.HEALTHY))
    tally.fill(cell, observed)
    assert tally.up("ann/web") == 1


def test_a_tally_forgets_jobs_that_are_gone() -> None:
    cell, observed, tally = small_cell(), small_observed(), Tally()
    tally.fill(cell, observed)
    assert tally.all_up == 2
    del cell.jobs["bob/db"]
    tally.note(Touched(jobs_gone={"bob/db"}), {})
    tally.fill(cell, observed)
    assert (tally.up("bob/db"), tally.all_up) == (0, 1)


def test_a_tally_that_nobody_reads_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("borgish.api.views.tally.JOBS_BEHIND_MAX", 1)
    cell, observed, tally = small_cell(), small_observed(), Tally()
    tally.fill(cell, observed)
    see(observed, "m1", "ann/web", 1, SeenAttempt("ann/web/1", 12, Phase.HEALTHY))
    tally.note(Touched(), {"ann/web": [1]})
    tally.note(Touched(jobs_gone={"gone/job"}), {})
    tally.fill(cell, observed)
    assert tally.up("ann/web") == 2
    assert tally.sums.counts == counts_anew(cell, observed)


def counts_anew(cell: Cell, observed: Observed) -> list[int]:
    tally = Tally()
    tally.fill(cell, observed)
    return tally.sums.counts


def test_status_sums_the_cell() -> None:
    cell, observed = small_cell(), small_observed()
    status = status_view(cell, observed, Tally(), Daemon(NOW.wall - 60, "memory"), NOW)
    assert (status.jobs, status.tasks, status.running, status.up) == (3, 7, 3, 2)
    assert (status.pending, status.dead, status.machines, status.machines_up) == (1, 3, 3, 2)
    assert (status.finished, status.failed, status.killed) == (1, 1, 1)
    assert status.capacity.named == {"gpu": 4}
    bands = {use.band: use for use in status.bands}
    assert list(bands) == list(Band)
    assert (bands[Band.PRODUCTION].cpu_millis, bands[Band.PRODUCTION].tasks) == (500, 2)
    assert (bands[Band.FREE].cpu_millis, bands[Band.FREE].tasks) == (100, 1)
    assert status.now == "2026-01-01T00:00:00.000Z"


def test_summary_shows_trouble_first_and_fits_a_screen() -> None:
    cell, observed, tally = small_cell(), small_observed(), Tally()
    for number in range(150):
        name = f"x{number}"
        cell.machines[name] = machine(name)
        observed.machines[name] = SeenMachine()
    cell.reindex()
    status = status_view(cell, observed, tally, Daemon(NOW.wall, "memory"), NOW)
    summary = summary_view(cell, observed, tally, status, small_refusals(), (), NOW)
    assert [m.name for m in summary.machines[:3]] == ["m2", "m3", "m1"]
    assert len(summary.machines) == 100
    assert [j.name for j in summary.jobs] == ["ann/sum", "ann/web", "bob/db"]
    assert len(summary.pending) == 1


def test_an_application_of_crons_alone_is_in_the_summary() -> None:
    cell, observed, tally = small_cell(), small_observed(), Tally()
    spec = read_cron("{kind: cron, name: nightly, schedule: '@daily', run: [x]}", "ann")
    version = AppVersion(AppSpec("tidy", "ann"), (), NOW.wall, "ann", (spec,))
    cell.apps["ann/tidy"] = App("ann/tidy", 5, version)
    cell.crons[spec.key] = Cron(spec, NOW.wall, "ann", app="ann/tidy")
    status = status_view(cell, observed, tally, Daemon(NOW.wall, "memory"), NOW)
    summary = summary_view(cell, observed, tally, status, small_refusals(), (), NOW)
    assert summary.apps == (AppSummary("ann/tidy", 1, 0, 0, 0, crons=1),)


def test_a_job_tells_which_of_its_tasks_crash_loops() -> None:
    cell, observed = small_cell(), small_observed()
    reason = "exit code 3; restarts in 4 s"
    looping = SeenAttempt("bob/db/0", 14, Phase.CRASH_LOOPING, reason=reason, early_ends=3)
    see(observed, "m2", "bob/db", 0, looping)
    detail = job_detail(cell, observed, cell.jobs["bob/db"], (), NOW, secrets=True)
    assert detail.not_up == {Phase.CRASH_LOOPING: 1}
    assert (detail.job.state, detail.job.up) == (State.RUNNING, 0)
    assert detail.job.reason == f"task 0 crash-looping: {reason}"


def test_a_machine_names_what_cannot_be_killed_there() -> None:
    cell, observed = small_cell(), small_observed()
    seen = SeenAttempt("ann/old/0", 7, Phase.UNKILLABLE, reason="the program (pid 41) was killed and goes on")
    record_report(cell, observed, Observe("m1", "b1", "i1", (seen,), whole=True), NOW)
    view = machine_view(cell, observed, Tally(), cell.machines["m1"], NOW)
    assert view.conditions == ("unkillable: ann/old/0@7: the program (pid 41) was killed and goes on",)
    assert has_trouble(cell.machines["m1"], observed)
