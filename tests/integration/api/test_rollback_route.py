"""``/v1/rollback``: what is asked, by whom, and what is no question."""

import pytest

from borgish.api.moments import Moment
from borgish.client import Client
from borgish.errors import Conflict, Forbidden, Invalid
from borgish.wire.api import Accepted
from borgish.wire.api_past import RollbackPlan, RollbackRequest
from tests.integration.api.fakes import PAST, RunningApi

ASKED = RollbackRequest("noon", ("ann/web",), now=True, max_affected=3)


def test_a_rollback_is_asked_for(api: RunningApi, admin: Client) -> None:
    done = admin.post("/v1/rollback", ASKED, Accepted)
    assert (done.position, done.text) == (21, "rolled back by root")
    assert (api.master.rolled_back, api.master.sought) == ([ASKED], [Moment("noon", checkpoint="noon")])


def test_what_it_would_do_is_told(api: RunningApi, admin: Client) -> None:
    plan = admin.post("/v1/rollback/plan", RollbackRequest("7"), RollbackPlan)
    assert (plan.to, plan.stopped, [job.name for job in plan.jobs]) == (PAST, 1, ["ann/web"])
    assert api.master.rolled_back == []
    api.master.failure = Conflict("nothing differs", "There is nothing to roll back")
    with pytest.raises(Conflict, match="nothing differs"):
        admin.post("/v1/rollback/plan", RollbackRequest("7"), RollbackPlan)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (RollbackRequest("!"), "invalid moment '!'"),
        (RollbackRequest(""), "invalid moment ''"),
        (RollbackRequest("7", ("web",)), "'web' is not the full name of a job"),
        (RollbackRequest("7", ("ann/web",) * 1001), "at most 1000"),
        (RollbackRequest("7", max_affected=-1), "max_affected must not be negative"),
    ],
)
def test_what_is_no_question(api: RunningApi, admin: Client, asked: RollbackRequest, said: str) -> None:
    for path in ("/v1/rollback", "/v1/rollback/plan"):
        with pytest.raises(Invalid, match=said):
            admin.post(path, asked, Accepted)
    assert api.master.rolled_back == []


def test_it_is_for_admins(api: RunningApi) -> None:
    for token in ("bgt_ann", "bgt_reader", "bgt_join"):
        for path in ("/v1/rollback", "/v1/rollback/plan"):
            with pytest.raises(Forbidden):
                api.client(token).post(path, ASKED, Accepted)
