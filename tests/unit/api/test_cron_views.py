"""What people see of the runs of a cron that runs an application."""

import pytest

from borgish.api.views.crons import run_view
from borgish.cell.crons.runs import Run
from borgish.cell.model import Job, Task
from borgish.vocabulary import Ending, Outcome, State
from tests.unit.cell.test_decide import spec

NAME = "nightly-20270115t0801"


def job(stage: str, ending: Ending | None, running: int = 0) -> Job:
    """Return a stage that is dead by this ending, or else runs or is pending."""
    name = f"{NAME}-{stage}" if stage else NAME
    made = Job(f"ann/{name}", 7, spec(name, tasks=1), 5.0, "ann", tasks=[Task(0)])
    made.running, made.pending, made.dead = running, int(ending is None) - running, int(ending is not None)
    made.finished, made.failed = int(ending is Ending.FINISH), int(ending is Ending.FAIL)
    return made


FINISHED, FAILED, KILLED = Ending.FINISH, Ending.FAIL, Ending.KILL


@pytest.mark.parametrize(
    ("jobs", "state", "outcome"),
    [
        ([job("a", FINISHED), job("b", FINISHED)], State.DEAD, Outcome.FINISHED),
        ([job("a", FINISHED), job("b", KILLED)], State.DEAD, Outcome.KILLED),
        ([job("a", FAILED), job("b", KILLED)], State.DEAD, Outcome.FAILED),
        ([job("a", FAILED), job("b", None)], State.PENDING, Outcome.FAILED),
        ([job("a", FINISHED), job("b", None, 1), job("c", None)], State.RUNNING, None),
        ([job("a", KILLED), job("b", None)], State.PENDING, None),
    ],
)
def test_the_outcome_of_a_run_is_the_worst_of_its_stages(
    jobs: list[Job], state: State, outcome: Outcome | None
) -> None:
    seen = run_view(Run(f"ann/{NAME}", 60.0, tuple(jobs)))
    assert (seen.name, seen.state, seen.outcome) == (f"ann/{NAME}", state, outcome)
    assert [stage.name for stage in seen.stages] == [each.key for each in jobs]


def test_a_run_that_is_a_job_has_no_stages() -> None:
    assert run_view(Run(f"ann/{NAME}", 60.0, (job("", FINISHED),))).stages == ()
