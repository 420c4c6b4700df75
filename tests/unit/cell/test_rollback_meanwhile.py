"""While a rollback goes on, others want the room that it frees, and people submit what it ended."""

from borgish.cell.commands import KillTasks, ScaleJob, SubmitJob
from borgish.vocabulary import State
from tests.unit.cell.lived import FIVE, Lived, spec


def test_a_submission_brings_back_nothing_that_it_ended() -> None:
    lived = Lived()
    lived.do(SubmitJob(spec(tasks=FIVE)))
    good = lived.position
    lived.do(ScaleJob("ann/web", 10))
    lived.settle()
    lived.do(KillTasks("ann/web", (5, 6)))
    lived.roll_back(good)
    lived.step()
    assert "ann/web" in lived.cell.lagging
    assert lived.do(SubmitJob(spec(tasks=FIVE))) == "ann/web is there already, exactly like this"
    lived.do(KillTasks("ann/web", (1,)))
    assert "1 task that was killed is pending again" in lived.do(SubmitJob(spec(tasks=FIVE)))
    lived.settle()
    assert lived.states() == [State.RUNNING] * FIVE
