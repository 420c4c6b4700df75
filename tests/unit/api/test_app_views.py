"""Applications as people see them: what is in the way of one, and which crons run it."""

import msgspec

from borgish.api.views.apps import app_detail
from borgish.api.views.order import order_refusal
from borgish.api.views.tally import Tally
from borgish.api.views.why import JOBS_SHOWN, why_app
from borgish.cell.commands import (
    ApplyApp,
    ForgetJob,
    KillTasks,
    SetCron,
)
from borgish.spec.app import AppSpec, Document
from borgish.spec.job import After, JobSpec, Restart
from borgish.vocabulary import Ending, Outcome, RestartPolicy, State, Until
from borgish.wire.api import WhyView
from borgish.wire.api_apps import AppDetail
from tests.unit.cell.crons import cron
from tests.unit.cell.lived import CRASHES, Lived, spec

SHOP = AppSpec("shop", "ann")
DB, WEB = spec("db", 1), spec("web", 2, after=(After("ann/db", Until.UP),))


class Shop(Lived):
    """A cell with an application of these jobs."""

    def __init__(self, *jobs: JobSpec) -> None:
        super().__init__()
        self.do(ApplyApp(SHOP, tuple(Document(job, ("name", "run", "tasks")) for job in jobs)))

    def why(self) -> WhyView:
        refusals = {
            key: (found,)
            for key, job in self.cell.jobs.items()
            if (found := order_refusal(self.cell, self.core.observed, job))
        }
        return why_app(self.cell, self.core.observed, self.cell.apps["ann/shop"], refusals, self.now)

    def detail(self) -> AppDetail:
        tally = Tally()
        tally.fill(self.cell, self.core.observed)
        return app_detail(self.cell, self.core.observed, self.cell.apps["ann/shop"], {}, tally)


def test_where_all_is_well_nothing_is_in_the_way() -> None:
    shop = Shop(DB, WEB)
    shop.settle()
    why = shop.why()
    assert why.text == "ann/shop is an application of 2 jobs and 3 tasks; nothing is in the way of them."
    assert (why.state, why.outcome, why.tasks) == (State.RUNNING, None, ())


def test_what_is_in_the_way_is_told_job_by_job() -> None:
    shop = Shop(msgspec.structs.replace(DB, run=CRASHES), WEB)
    why = shop.why()
    head, db, web = why.text.split("\n")
    assert head == "ann/shop is an application of 2 jobs and 3 tasks."
    assert db.startswith("ann/db has 1 task: ")
    assert web.startswith("ann/web has 2 tasks: 2 pending.")
    assert "it starts after ann/db (up)" in web
    assert [task.name for task in why.tasks] == ["ann/db/0", "ann/web/0", "ann/web/1"]


def test_what_failed_is_told_before_what_waits_for_it() -> None:
    once = msgspec.structs.replace(spec("load", 1), restart=Restart(RestartPolicy.NEVER))
    shop = Shop(once, spec("fine", 1), spec("clean", 1, after=(After("ann/load", Until.FINISHED),)))
    shop.settle()
    shop.ended("ann/load", 0, Ending.FAIL)
    _, load, clean = shop.why().text.split("\n")
    assert load.startswith("ann/load has 1 task: 1 failed.")
    assert clean.startswith("ann/clean has 1 task: 1 pending.")


def test_jobs_of_its_files_that_are_none_of_it_are_named() -> None:
    shop = Shop(DB, spec("web", 1), spec("mail", 1))
    other = ApplyApp(AppSpec("other", "ann"), (Document(spec("web", 1), ("name", "run")),), take_over=True)
    shop.do(other)
    shop.do(KillTasks("ann/mail"))
    shop.do(ForgetJob("ann/mail"))
    shop.settle()
    absent = {"ann/web": "belongs to ann/other", "ann/mail": "is not in the cell"}
    detail = shop.detail()
    assert (detail.absent, detail.missing) == (absent, ("ann/mail",))
    assert (detail.app.absent, detail.app.reason) == (2, "ann/web belongs to ann/other")
    assert shop.why().text.split("\n") == [
        "ann/shop is an application of 1 job and 1 task.",
        "ann/web is in its files, and belongs to ann/other.",
        "ann/mail is in its files, and is not in the cell.",
    ]


def test_of_many_that_are_in_trouble_the_first_are_told() -> None:
    shop = Shop(*(spec(f"job-{number}", 1) for number in range(JOBS_SHOWN + 2)))
    for number in range(JOBS_SHOWN + 2):
        shop.do(KillTasks(f"ann/job-{number}"))
    why = shop.why()
    assert len(why.text.split("\n")) == JOBS_SHOWN + 2
    assert why.text.endswith("2 more of its jobs are in trouble.")
    assert (why.state, why.outcome) == (State.DEAD, Outcome.KILLED)


def test_a_cron_that_runs_it_and_is_no_part_of_it_is_shown() -> None:
    shop = Shop(DB)
    shop.do(SetCron(cron("hourly", app="shop")))
    detail = shop.detail()
    assert ([each.name for each in detail.run_by], detail.crons, detail.orphans) == (["ann/hourly"], (), ())
