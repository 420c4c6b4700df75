"""``/v1/archive`` through the real client."""

import pytest

from borgish.client import Client
from borgish.errors import Forbidden, Invalid
from tests.integration.api.fakes import RunningApi
from tests.unit.api.cells import NOW


def test_the_lines_come_as_they_are(api: RunningApi, admin: Client) -> None:
    params = {"since": "1h", "until": "2026-01-01T00:00:00Z"}
    assert b"".join(admin.stream("/v1/archive", params)) == b'{"begin":1}\n{"end":2}\n'
    assert api.master.archived is not None
    since, until = api.master.archived
    assert (since, until) == (NOW.wall - 3600, 1767225600.0)


def test_without_a_time_it_is_all(api: RunningApi, admin: Client) -> None:
    list(admin.stream("/v1/archive"))
    assert api.master.archived == (None, None)


def test_it_is_for_admins(api: RunningApi) -> None:
    for client in (api.client("bgt_ann"), api.client("bgt_reader")):
        with pytest.raises(Forbidden):
            client.stream("/v1/archive")


@pytest.mark.parametrize("params", [{"since": "1h", "until": "2h"}, {"since": "noon"}, {"at": "1"}])
def test_times_that_are_none(api: RunningApi, admin: Client, params: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        admin.stream("/v1/archive", params)
    assert api.master.archived is None
