"""What the master accepts of the API while machines refuse to do as it says."""

from contextlib import closing

import msgspec
import pytest

from borgish.errors import Unreachable
from borgish.link.fencing import FencingMonitor
from borgish.resources import Resources
from borgish.wire.api import Accepted
from borgish.wire.api_past import RollbackRequest
from borgish.wire.link import Facts, JoinReply, JoinRequest
from tests.integration.api.fakes import RunningApi


@pytest.fixture
def refused(api: RunningApi, monkeypatch: pytest.MonkeyPatch) -> RunningApi:
    """One whose only machine refuses it."""
    refusals = FencingMonitor()
    refusals.note("m1", "m1 obeys another")
    monkeypatch.setattr(api.master.services, "expect_obeyed", refusals.check)
    return api


def test_commands_are_answered_503_with_the_reason(refused: RunningApi) -> None:
    joining = JoinRequest("m2", "127.0.0.1", 1, "b", "i", Facts(Resources(), {}, (), 1, 2))
    for token, path, body, shape in (
        ("bgt_admin", "/v1/jobs/ann/web/kill", {}, Accepted),
        ("bgt_admin", "/v1/rollback", RollbackRequest("now"), Accepted),
        ("bgt_join", "/v1/machines", joining, JoinReply),
    ):
        with closing(refused.client(token)) as client, pytest.raises(Unreachable) as caught:
            client.post(path, msgspec.json.encode(body), shape)
        assert caught.value.status == 503
        assert "m1 obeys another" in caught.value.message
    assert (refused.master.asked, refused.master.rolled_back) == ([], [])
