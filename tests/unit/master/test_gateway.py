"""What the master accepts of the API while machines refuse to do as it says."""

from types import SimpleNamespace
from typing import Any

import pytest

from borgish.api.moments import NOW, Moment
from borgish.cell.commands import KillTasks
from borgish.errors import Fenced
from borgish.link.refusals import Refusals
from borgish.master.gateway import MasterGateway
from borgish.resources import Resources
from borgish.wire.api_past import RollbackRequest
from borgish.wire.link import Facts, JoinRequest


@pytest.fixture
def gateway() -> MasterGateway:
    """One whose only machine refuses it; nothing else of it may be reached."""
    refusals = Refusals()
    refusals.note("m1", "m1 obeys another")
    given: list[Any] = [None] * 15
    given[3] = SimpleNamespace(refusals=refusals)
    return MasterGateway(*given)


async def test_commands_are_answered_503_with_the_reason(gateway: MasterGateway) -> None:
    joining = JoinRequest("m2", "127.0.0.1", 1, "b", "i", Facts(Resources(), {}, (), 1, 2))
    for ask in (
        lambda: gateway.command(KillTasks("ann/web"), "ann", "", ""),
        lambda: gateway.roll_back(Moment(NOW), RollbackRequest("now"), "ann", "", ""),
        lambda: gateway.join(joining),
    ):
        with pytest.raises(Fenced, match="m1 obeys another") as caught:
            await ask()
        assert caught.value.status == 503
