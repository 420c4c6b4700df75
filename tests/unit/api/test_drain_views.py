"""A machine that is drained, as it is shown: its state, why, what is left, and what that waits for."""

import pytest

from borgish.api.views.events import restored_machine_text
from borgish.api.views.history import HistoryFilter, history_view
from borgish.api.views.machines import STAYING_SHOWN, machine_view
from borgish.api.views.tally import Tally
from borgish.api.views.why import why_job, why_task
from borgish.cell.commands import (
    DrainMachines,
    MaintainMachines,
    SubmitJob,
)
from borgish.cell.events import MachineRestored
from borgish.cell.machines.drains import drain_words
from borgish.cell.model import Drain, Window
from borgish.cell.observed import Observed
from borgish.cell.updates.handover import NOT_HEARD
from borgish.resources import Resources
from borgish.spec.job import Override, Restart
from borgish.vocabulary import RestartPolicy
from borgish.wire.api import MachineView
from tests.unit.cell.lived import Lived, spec

PERSON = Drain("ann", 1.0, 2.0, "disk")
WINDOW = Drain("bob", 1.0, 2.0, window=Window(3600.0, 7200.0, 0.0), begun=False)


def view(lived: Lived, name: str = "m1", observed: Observed | None = None) -> MachineView:
    seen = lived.core.observed if observed is None else observed
    return machine_view(lived.cell, seen, Tally(), lived.cell.machines[name], lived.now)


def test_from_draining_to_drained() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=2)))
    lived.settle()
    lived.do(DrainMachines(("m1",), reason="disk"))
    # Its place is taken away, and its program runs until the machine has heard of it.
    shown = view(lived)
    assert (shown.state, shown.tasks, shown.ending) == ("draining", 0, 1)
    lived.settle()
    shown = view(lived)
    assert (shown.state, shown.ending, shown.staying) == ("drained", 0, ())
    assert shown.reason == "drained by ann: disk; nothing left"
    (drain,) = shown.drains
    assert (drain.by, drain.reason, drain.begun, drain.begins) == ("ann", "disk", True, "")


def test_what_a_new_master_has_not_heard_of_is_not_called_empty() -> None:
    lived = Lived()
    lived.do(DrainMachines(("m1",)))
    assert view(lived, observed=Observed()).state == "draining"


def test_what_stays_is_told_with_why_alike_together() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=5, overrides={4: Override(resources=Resources(99_000))})))
    lived.do(SubmitJob(spec("sum", 4, restart=Restart(RestartPolicy.ON_FAILURE))))
    lived.settle()
    lived.do(DrainMachines(("m1",)))
    lived.settle()
    web, total = sorted(view(lived).staying, key=lambda line: line.startswith("ann/sum"))
    assert web.endswith(
        "at most 1 of 5 tasks may be down (max_unavailable 10%), and down is task 4 (pending)"
    )
    assert total.endswith(": it may finish until 1970-01-01 01:16 UTC")
    why = why_task(lived.cell, lived.core.observed, lived.cell.jobs["ann/sum"], 0, (), (), lived.now)
    web_job = lived.cell.jobs["ann/web"]
    of_job = why_job(lived.cell, lived.core.observed, web_job, (), (), lived.now).text
    task, _, reason = web.partition(": ")
    assert of_job.endswith(f" for now on m1, which is to be empty: {reason}.")
    assert f" {task} stay" in of_job
    on_m1 = lived.cell.jobs["ann/sum"].tasks[0].machine == "m1"
    assert ("m1 is to be empty: drained by ann. It stays for now: it may finish" in why.text) is on_m1


def test_a_long_list_is_cut() -> None:
    lived = Lived(("m1",))
    for number in range(STAYING_SHOWN + 2):
        lived.do(SubmitJob(spec(f"j{number}", 1)))
    lived.settle()
    lived.do(DrainMachines(("m1",)))
    assert view(lived).staying[-1] == "and 2 more"
    assert set(view(lived, observed=Observed()).staying) <= {
        f"ann/j{number}/0: {NOT_HEARD}" for number in range(STAYING_SHOWN + 2)
    } | {"and 2 more"}


def test_a_window_to_come_is_no_trouble_and_is_shown() -> None:
    lived = Lived()
    lived.do(MaintainMachines(("m1",), begins=9000.0, ends=9600.0, lead_seconds=60.0))
    shown = view(lived)
    assert (shown.state, shown.reason, shown.drains[0].begun) == ("up", "", False)
    assert shown.drains[0].begins == "1970-01-01T02:30:00.000Z"


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        (MachineRestored("m1", drains=(PERSON,)), "is to be empty: drained by ann: disk"),
        (MachineRestored("m1", drains=()), "takes new tasks"),
        (
            MachineRestored("m1", drains=(WINDOW,)),
            f"takes new tasks and is planned for {drain_words(WINDOW)}",
        ),
        (
            MachineRestored("m1", cordoned=True, drains=(PERSON,)),
            "is cordoned and is to be empty: drained by ann: disk",
        ),
    ],
)
def test_what_a_rollback_does_to_drains_in_words(mark: MachineRestored, words: str) -> None:
    assert restored_machine_text(mark) == words


def test_what_left_is_in_the_history_of_its_machine() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=2)))
    lived.settle()
    lived.do(DrainMachines(("m1",)))
    lived.settle()
    lines = [
        line.text
        for entry in lived.entries
        if (shown := history_view(entry, HistoryFilter(machine="m1"))) is not None
        for line in shown.events
    ]
    assert any("drain: m1 is to be empty: drained by ann" in line for line in lines), lines
