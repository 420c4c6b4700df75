"""What a rollback may not leave behind: users over their quotas, jobs without their alloc sets."""

from typing import Any

import msgspec
import pytest

from borgish.bands import Bands
from borgish.cell.commands import (
    ForgetJob,
    KillTasks,
    ScaleJob,
    SubmitJob,
)
from borgish.cell.events import JobChanged, QuotaRemoved, QuotaSet, RulesSet
from borgish.cell.limits.quotas import Quota
from borgish.cell.model import Rules
from borgish.errors import Conflict, OverQuota
from borgish.resources import Resources
from borgish.spec.job import Override, Restart
from borgish.vocabulary import Band, Ending, JobKind, RestartPolicy, State
from tests.unit.cell.lived import GIB, Lived, spec

PRODUCTION = 200
EACH = 100  # cpu_millis of a task
PLENTY = Resources(10_000, 100 * GIB, 0)
WEB = frozenset({"ann/web"})


def web(tasks: int = 3, **changes: Any) -> SubmitJob:
    return SubmitJob(spec(tasks=tasks, priority=PRODUCTION, **changes))


def room(**changes: Any) -> SubmitJob:
    return SubmitJob(spec("room", 2, kind=JobKind.ALLOC_SET, **changes))


def inner(**changes: Any) -> SubmitJob:
    return SubmitJob(spec("in", 2, inside="ann/room", **changes))


def give(lived: Lived, cpu_millis: int, until: float = 0.0) -> None:
    limits = msgspec.structs.replace(PLENTY, cpu_millis=cpu_millis)
    lived.happen(QuotaSet(Quota("ann", Band.PRODUCTION, limits, until)))


def end(lived: Lived, *jobs: str) -> None:
    for job in jobs or ("ann/web",):
        lived.do(KillTasks(job))
        lived.do(ForgetJob(job))


@pytest.fixture
def lived() -> Lived:
    return Lived()


# Quotas, where some jobs come back


def test_a_job_that_comes_back_alone_is_held_to_the_quota_of_now(lived: Lived) -> None:
    give(lived, 3 * EACH)
    lived.do(web())
    good = lived.position
    end(lived)
    give(lived, 2 * EACH)
    with pytest.raises(
        OverQuota, match=r"after the rollback ann would ask for 300m cpu \(quota 200m\) in production"
    ):
        lived.roll_back(good, only=WEB)
    give(lived, 3 * EACH)
    lived.roll_back(good, only=WEB)


def test_what_nobody_asks_for_now_counts_from_nothing(lived: Lived) -> None:
    lived.do(web(1, resources=Resources(EACH, GIB, 0, {"licence": 1})))
    good = lived.position
    end(lived)
    give(lived, EACH)
    with pytest.raises(OverQuota, match=r"would ask for 1 licence \(quota 0\) in production\."):
        lived.roll_back(good, only=WEB)
    limits = msgspec.structs.replace(PLENTY, cpu_millis=EACH, named={"licence": 1})
    lived.happen(QuotaSet(Quota("ann", Band.PRODUCTION, limits)))
    lived.roll_back(good, only=WEB)


def test_what_others_of_the_user_ask_for_counts(lived: Lived) -> None:
    give(lived, 5 * EACH)
    lived.do(web())
    good = lived.position
    end(lived)
    lived.do(SubmitJob(spec("other", 3, priority=PRODUCTION)))
    with pytest.raises(OverQuota, match="600m cpu"):
        lived.roll_back(good, only=WEB)
    lived.do(ScaleJob("ann/other", 2))
    lived.roll_back(good, only=WEB)


def test_what_goes_with_it_makes_room(lived: Lived) -> None:
    give(lived, 3 * EACH)
    lived.do(web())
    good = lived.position
    end(lived)
    lived.do(SubmitJob(spec("other", 3, priority=PRODUCTION)))
    with pytest.raises(OverQuota):
        lived.roll_back(good, only=WEB)
    lived.roll_back(good, only=WEB | {"ann/other"})


def test_fewer_tasks_are_no_matter_of_a_quota(lived: Lived) -> None:
    give(lived, 5 * EACH)
    lived.do(web(2))
    good = lived.position
    lived.do(ScaleJob("ann/web", 5))
    give(lived, EACH)
    lived.roll_back(good, only=WEB)


def test_more_tasks_are(lived: Lived) -> None:
    give(lived, 5 * EACH)
    lived.do(web(5))
    good = lived.position
    lived.do(ScaleJob("ann/web", 2))
    give(lived, 4 * EACH)
    with pytest.raises(OverQuota, match="500m cpu"):
        lived.roll_back(good, only=WEB)


def test_what_comes_into_another_band_counts_there(lived: Lived) -> None:
    give(lived, 3 * EACH)
    lived.do(web())
    good = lived.position
    lived.happen(JobChanged("ann/web", spec(tasks=3, priority=0)))
    give(lived, EACH)
    with pytest.raises(OverQuota, match="in production"):
        lived.roll_back(good, only=WEB)


def test_limits_of_single_tasks_count(lived: Lived) -> None:
    give(lived, 10 * EACH)
    lived.do(web(3, overrides={1: Override(resources=Resources(7 * EACH))}))
    good = lived.position
    end(lived)
    give(lived, 8 * EACH)
    with pytest.raises(OverQuota, match="900m cpu"):
        lived.roll_back(good, only=WEB)


def test_what_has_its_result_asks_for_nothing(lived: Lived) -> None:
    lived.do(web(3, restart=Restart(RestartPolicy.ON_FAILURE)))
    good = lived.position
    lived.ended("ann/web", 0, Ending.FINISH)
    lived.do(KillTasks("ann/web"))
    give(lived, 2 * EACH)
    lived.roll_back(good, only=WEB)
    assert lived.states() == [State.DEAD, State.RUNNING, State.RUNNING]


def test_only_what_is_asked_for_is_looked_at(lived: Lived) -> None:
    lived.do(web())
    good = lived.position
    end(lived)
    lived.happen(QuotaSet(Quota("ann", Band.PRODUCTION, Resources(0, 100 * GIB, 0))))
    with pytest.raises(OverQuota, match="cpu"):
        lived.roll_back(good, only=WEB)
    lived.happen(QuotaSet(Quota("ann", Band.PRODUCTION, Resources(10_000, 100 * GIB, 0))))
    lived.roll_back(good, only=WEB)


# Quotas, where all goes back


def test_quotas_of_then_count_where_all_goes_back(lived: Lived) -> None:
    give(lived, 3 * EACH)
    lived.do(web())
    good = lived.position
    end(lived)
    give(lived, EACH)
    lived.roll_back(good)
    assert lived.cell.quotas["ann/production"].limits.cpu_millis == 3 * EACH


def test_who_was_over_a_lowered_quota_may_be_so_again(lived: Lived) -> None:
    give(lived, 3 * EACH)
    lived.do(web())
    give(lived, EACH)
    good = lived.position
    end(lived)
    lived.roll_back(good)
    assert lived.states() == [State.RUNNING] * 3


def test_a_quota_that_ended_meanwhile_lets_nothing_return(lived: Lived) -> None:
    give(lived, 3 * EACH, until=lived.now.wall + 10.0)
    lived.do(web())
    good = lived.position
    end(lived)
    lived.roll_back(good)
    end(lived)
    lived.now = lived.now.later(60.0)
    lived.settle()
    with pytest.raises(OverQuota, match="that quota ended at 1970-01-01") as caught:
        lived.roll_back(good)
    assert "--only" in caught.value.hint


def test_what_goes_on_is_not_ended_for_a_quota_that_did(lived: Lived) -> None:
    give(lived, 3 * EACH, until=lived.now.wall + 10.0)
    lived.do(web())
    good = lived.position
    lived.do(SubmitJob(spec("late", 1)))
    lived.now = lived.now.later(60.0)
    lived.settle()
    lived.roll_back(good)
    assert lived.states() == [State.RUNNING] * 3


def test_a_quota_that_is_required_since_then(lived: Lived) -> None:
    lived.do(web())
    good = lived.position
    end(lived)
    lived.happen(RulesSet(Rules(quota_required=True)))
    with pytest.raises(OverQuota, match="ann has no quota there, and this cell requires one"):
        lived.roll_back(good)
    lived.happen(RulesSet(Rules()))
    lived.roll_back(good)


def test_a_removed_quota_comes_back_with_the_job(lived: Lived) -> None:
    lived.happen(RulesSet(Rules(quota_required=True)))
    give(lived, 3 * EACH)
    lived.do(web())
    good = lived.position
    end(lived)
    lived.happen(QuotaRemoved("ann/production"))
    with pytest.raises(OverQuota):
        lived.roll_back(good, only=WEB)
    lived.roll_back(good)


# Priorities


def test_a_priority_that_the_cell_no_longer_has(lived: Lived) -> None:
    lived.do(SubmitJob(spec(priority=350)))
    good = lived.position
    lived.do(SubmitJob(spec("goes", 1)))
    lived.happen(RulesSet(Rules(Bands(highest=320))))
    lived.roll_back(good)  # it goes on, and is no matter of that
    lived.do(KillTasks("ann/web", (0,)))
    lived.roll_back(good)  # nor is it, where it is changed and has that priority still
    end(lived)
    with pytest.raises(Conflict, match="ann/web had priority 350, and the cell's highest is 320 now"):
        lived.roll_back(good)


# Alloc sets


def test_a_job_comes_back_with_its_alloc_set_or_not_at_all(lived: Lived) -> None:
    lived.do(room())
    lived.do(inner())
    good = lived.position
    end(lived, "ann/in", "ann/room")
    with pytest.raises(
        Conflict, match="after the rollback ann/in needs the alloc set ann/room, which does not exist"
    ) as caught:
        lived.roll_back(good, only=frozenset({"ann/in"}))
    assert caught.value.hint == "it comes back too with `--only ann/room`"
    lived.roll_back(good, only=frozenset({"ann/in", "ann/room"}))
    lived.settle()
    assert lived.states("ann/in") == [State.RUNNING] * 2


def test_into_a_dead_alloc_set_nothing_comes_back_alone(lived: Lived) -> None:
    lived.do(room())
    lived.do(inner())
    good = lived.position
    end(lived, "ann/in")
    lived.do(KillTasks("ann/room"))
    with pytest.raises(Conflict, match="which is dead"):
        lived.roll_back(good, only=frozenset({"ann/in"}))
    lived.roll_back(good)


def test_into_what_is_no_alloc_set_any_more_nothing_comes_back(lived: Lived) -> None:
    lived.do(room())
    lived.do(inner())
    good = lived.position
    end(lived, "ann/in", "ann/room")
    lived.do(SubmitJob(spec("room", 2)))
    with pytest.raises(Conflict, match="which is a job"):
        lived.roll_back(good, only=frozenset({"ann/in"}))


def test_into_an_alloc_set_of_another_nothing_comes_back(lived: Lived) -> None:
    lived.do(SubmitJob(spec("room", 2, user="bob", kind=JobKind.ALLOC_SET)))
    lived.do(SubmitJob(spec("in", 1)))
    lived.happen(JobChanged("ann/in", spec("in", 1, inside="bob/room")))
    odd = lived.position
    end(lived, "ann/in")
    with pytest.raises(Conflict, match="bob/room is bob's, and ann/in is not"):
        lived.roll_back(odd, only=frozenset({"ann/in"}))


def test_an_alloc_set_does_not_go_from_under_a_job_alone(lived: Lived) -> None:
    before = lived.position
    lived.do(room())
    lived.do(inner())
    with pytest.raises(Conflict, match="which does not exist") as caught:
        lived.roll_back(before, only=frozenset({"ann/room"}))
    assert caught.value.hint == "name ann/in with --only as well, or end it first"
    lived.roll_back(before, only=frozenset({"ann/room", "ann/in"}))


def test_who_waited_for_a_dead_alloc_set_may_do_so_again(lived: Lived) -> None:
    lived.do(room())
    lived.do(inner())
    lived.do(KillTasks("ann/room"))
    good = lived.position
    assert lived.states("ann/in") == [State.PENDING] * 2
    end(lived, "ann/in")
    lived.roll_back(good)
    assert lived.states("ann/in") == [State.PENDING] * 2
