"""A database that hangs: the master that leads stops itself in time, although nobody tells it anything."""

import http.client
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import make_url

from borgish.errors import Fenced
from tests.contract.store.places import InDatabase
from tests.faults.ledger import JOB, Request
from tests.faults.nursery import Nursery
from tests.faults.siege import Siege

pytestmark = pytest.mark.postgres


def test_a_leader_that_cannot_renew_stops_itself(nursery: Nursery, tmp_path: Path, postgres_url: str) -> None:
    with Siege(nursery, tmp_path, postgres_url, lease_seconds=12.0) as siege:
        siege.found_cell()
        siege.start()
        assert siege.serves(), siege.said()
        place, name = InDatabase(siege.url), make_url(siege.url).database
        its_own = f"datname = '{name}' AND application_name = 'borgmaster'"
        query = f"SELECT pid FROM pg_stat_activity WHERE {its_own}"
        siege.until(lambda: len(place.read(query)) == 1)  # what it began with may be ending yet
        session = int(str(place.read(query)[0][0]))
        os.kill(session, signal.SIGSTOP)
        try:
            with suppress(OSError, http.client.HTTPException):  # it hangs in the commit, and says nothing
                status, _ = siege.ask(Request("/v1/jobs?user=ann", JOB.format(name="x", tasks=1).encode()))
                assert status == Fenced.status
            assert siege.ended() == Fenced.exit_code == 71
            assert "The lease could not be renewed" in siege.said()
            assert "Traceback" not in siege.said(), "of who waited for the commit"
        finally:
            os.kill(session, signal.SIGCONT)
        siege.start()
        assert siege.serves(), siege.said()
