"""A cell whose state is in Postgres: killed and started again, it is as it was."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from tests.e2e.watched import PATIENT_LEASE, becomes, lives, status_of, submitted, tasks_of, watched_cell
from tests.ports import free_port

pytestmark = pytest.mark.postgres

SLEEPERS = "name: sleepers\ntasks: 3\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 8MiB}\n"


def test_a_cell_on_postgres_outlives_its_master(tmp_path: Path, postgres_url: str) -> None:
    folder = tmp_path / "cell"
    made_with(folder, postgres_url)
    with watched_cell(folder) as made:
        assert status_of(made).store == "postgresql"
        submitted(made, SLEEPERS)
        before, epoch = lives(made), status_of(made).epoch
        assert count_by_state(postgres_url) == {"running": 3}
        made.kill("borgmaster")
        made.ok("up")
        becomes(lambda: lives(made), before)
        assert status_of(made).epoch == epoch + 1
        made.ok("job", "scale", "sleepers", 2)
        becomes(
            lambda: {t.index: str(t.state) for t in tasks_of(made).values() if t.pid},
            dict.fromkeys(range(2), "running"),
        )
        made.ok("down")
        made.ok("up")
        made.ok("job", "wait", "sleepers", "--settle", 0)
        assert len(lives(made)) == 2
    assert not (folder / "cell.db").exists()


def made_with(folder: Path, url: str) -> None:
    """Make the cell's file as a user would who wants Postgres; `up` makes the rest."""
    folder.mkdir(mode=0o700)
    listen = f"127.0.0.1:{free_port()}"
    about = f'name = "local"\nlisten = "{listen}"\nstate = "."\ndb = "{url}"\n'
    (folder / "cell.toml").write_text(about + PATIENT_LEASE)


def count_by_state(url: str) -> dict[str, int]:
    """Ask the tables as another program would."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    try:
        with engine.connect() as connection:
            rows = connection.execute(text("select state, count(*) from tasks group by state")).all()
            return {str(state): int(count) for state, count in rows}
    finally:
        engine.dispose()
