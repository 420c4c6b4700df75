"""A Postgres server that goes away, and one that failed over to a replica without the last commits."""

from pathlib import Path

import pytest

from borgish.errors import Fenced, OutcomeUnknown, StoreOlder
from tests.cells import runs, wait_until
from tests.e2e.test_failover import serves, status_url
from tests.e2e.test_postgres_cell import SLEEPERS, made_with
from tests.e2e.watched import (
    PATIENCE_SECONDS,
    PATIENT_LEASE,
    foreground,
    lives,
    status_of,
    submitted,
    watched_cell,
)
from tests.fixtures_postgres import durable_server

pytestmark = pytest.mark.postgres
LOST = "name: lost\ntasks: 2\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 8MiB}\n"
CONFIG = 'name = "local"\nlisten = "127.0.0.1:0"\nstate = "."\ndb = "{url}"\n' + PATIENT_LEASE


def test_a_standby_leads_after_a_crash_of_the_server_and_not_on_an_older_replica(tmp_path: Path) -> None:
    with durable_server() as server:
        url = server.fresh_url()
        made_with(tmp_path / "cell", url)
        with watched_cell(tmp_path / "cell") as made:
            submitted(made, SLEEPERS)
            before = lives(made)
            beside = tmp_path / "beside"
            beside.mkdir(mode=0o700)
            for name in ("secret", "tokens"):
                (beside / name).symlink_to(made.folder / name)
            (beside / "cell.toml").write_text(CONFIG.format(url=url))
            with foreground("borgish.master.main", beside / "cell.toml", "--standby") as second:
                status_url(second)
                server.crash()
                server.keep()
                server.start_again()
                wait_until(lambda: made.pid("borgmaster") == 0, PATIENCE_SECONDS)
                wait_until(lambda: serves(second), PATIENCE_SECONDS)
                made.ok(
                    "--url", serves(second), "job", "submit", "-", "--settle", 0, "--user", "ann", stdin=LOST
                )
                with foreground("borgish.master.main", made.folder / "cell.toml", "--standby") as third:
                    status_url(third)
                    every = lives(made)
                    assert len(every) == 5
                    server.crash()
                    server.fall_back()
                    server.start_again()
                    assert second.ended() in (OutcomeUnknown.exit_code, Fenced.exit_code)
                    assert third.ended() == StoreOlder.exit_code == 73
                    assert "older than what 1 of 1 machines that answered have seen" in third.said()
            assert before.items() < every.items()
            assert all(runs(life.pid or 0) for life in every.values())
            flag = "--take-over-from-older-store"
            with foreground("borgish.master.main", made.folder / "cell.toml", flag) as last:
                wait_until(lambda: serves(last), PATIENCE_SECONDS)
                wait_until(lambda: lives(made) == before, PATIENCE_SECONDS)
                assert status_of(made).timeline == 2
                assert all(runs(life.pid or 0) for life in every.values())
