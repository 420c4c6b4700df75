"""A copy of a cell, as a backup or a cloned machine, beside the cell that it was taken of or in its place."""

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from borgish.cli.lookup import every_task
from borgish.client import Client
from borgish.errors import Fenced, InUse, StoreOlder
from tests.cells import RealCell, runs, wait_until
from tests.e2e.test_failover import serves
from tests.e2e.watched import (
    PATIENCE_SECONDS,
    Life,
    becomes,
    foreground,
    lives,
    status_of,
    submitted,
    watched_cell,
)
from tests.ports import free_port

MASTER = "borgish.master.main"
TAKE_OVER = "--take-over"
JOB = "name: {}\ntasks: 3\nrun: [sleep, '100000']\nresources: {{cpu: 10m, ram: 8MiB}}\n"
CONFIG = 'name = "local"\nlisten = "127.0.0.1:{}"\nstate = "."\ndb = "{}"\n'
LEASE = "[lease]\nttl_seconds = 20\nrenew_seconds = 1\ndeadline_seconds = 16\n"
"""So long that a host which stands still for some seconds costs nobody the lead; who finds another leader
waits for its deadline."""
SHORT_LEASE = "[lease]\nttl_seconds = 3\nrenew_seconds = 1\ndeadline_seconds = 2\n"
DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


class Copied:
    """A cell of two machines in which a job runs, and copies of all that its master has."""

    def __init__(self, made: RealCell, copied_url: Callable[[], str]) -> None:
        self.made = made
        self._copied_url = copied_url

    def copy(self, folder: Path, lease: str = SHORT_LEASE) -> Path:
        """Copy the master's folder and database, in use or not; return the copy's configuration."""
        folder.mkdir(mode=0o700)
        for name in ("secret", "tokens"):
            source = self.made.folder / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
        url = self._copied_url()
        if not url:
            database, its_copy = (sqlite3.connect(each / "cell.db") for each in (self.made.folder, folder))
            with closing(database), closing(its_copy):
                database.backup(its_copy)
        config = folder / "cell.toml"
        config.write_text(CONFIG.format(0, url) + lease * bool(url))
        return config

    def is_refused(self, config: Path, address: str, *options: str) -> None:
        """A master on a copy ends with 74 and names who leads."""
        with foreground(MASTER, config, *options) as master:
            assert master.ended(4 * PATIENCE_SECONDS) == InUse.exit_code == 74, master.said()
            assert re.search(rf"Another borgmaster, at {address}, leads \d of \d machines", master.said())
            assert TAKE_OVER in master.said()


@pytest.fixture(params=DATABASES)
def copied(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Copied]:
    folder = tmp_path / "cell"
    url, copied_url = "", lambda: ""
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        url = server.fresh_url()
        copied_url = partial(server.copied, url)
    folder.mkdir(mode=0o700)
    (folder / "cell.toml").write_text(CONFIG.format(free_port(), url) + LEASE * bool(url))
    with watched_cell(folder, machines=2) as made:
        submitted(made, JOB.format("steady"))
        yield Copied(made, copied_url)


def test_a_copy_beside_its_master_ends_with_74_and_disturbs_nothing(copied: Copied, tmp_path: Path) -> None:
    made, before = copied.made, lives(copied.made)
    old = copied.copy(tmp_path / "old")
    made.kill("borgmaster")
    made.ok("up")
    becomes(lambda: lives(made), before)
    submitted(made, JOB.format("later"))
    every, status = lives(made), status_of(made)
    address = made.client().url
    copied.is_refused(old, address)  # the machines have seen more than it holds, which is not the point here
    copied.is_refused(copied.copy(tmp_path / "hot"), address)
    copied.is_refused(copied.copy(tmp_path / "other"), address, "--take-over-from-older-store")
    submitted(made, JOB.format("last"))
    assert every.items() < lives(made).items()
    now = status_of(made)
    assert (now.epoch, now.timeline, now.refusing) == (status.epoch, 1, ())


def lives_at(made: RealCell, url: str) -> dict[str, Life]:
    """Return the running program of each task that has one, as a master at another address says."""
    with closing(Client(url, (made.folder / "tokens" / "admin.token").read_text().strip())) as client:
        return {
            task.name: Life(task.attempt, task.pid, task.restarts, task.started_at)
            for task in every_task(client)
            if task.pid
        }


def test_a_copy_in_the_place_of_its_master_leads(copied: Copied, tmp_path: Path) -> None:
    made, before = copied.made, lives(copied.made)
    moved = copied.copy(tmp_path / "moved", LEASE)
    made.kill("borgmaster")
    with foreground(MASTER, moved) as master:
        url = wait_until(lambda: serves(master), PATIENCE_SECONDS)
        assert "another borgmaster may lead" not in master.said()  # one look is enough where nobody does
        made.ok("--url", url, "job", "submit", "-", "--user", "ann", stdin=JOB.format("later"))
        wait_until(lambda: len(lives_at(made, url)) == 6, PATIENCE_SECONDS)
        assert before.items() < lives_at(made, url).items()


def test_a_copy_that_takes_over_is_obeyed_and_the_other_one_ends(copied: Copied, tmp_path: Path) -> None:
    made, before = copied.made, lives(copied.made)
    config, original = copied.copy(tmp_path / "copy", LEASE), made.folder / "cell.toml"
    made.kill("borgmaster")
    with foreground(MASTER, original) as first:
        wait_until(lambda: serves(first), PATIENCE_SECONDS)
        submitted(made, JOB.format("lost"))
        every = lives(made)
        with foreground(MASTER, config, TAKE_OVER) as second:
            url = wait_until(lambda: serves(second), 2 * PATIENCE_SECONDS)
            assert "taken over as asked for" in second.said()
            assert first.ended() == Fenced.exit_code == 71
            assert re.search("no command is accepted, since . of . machines that answer obey", first.said())
            assert f"of the borgmaster at {url}" in first.said()
            copied.is_refused(original, url)  # started again it knows a rival from an older database
            becomes(lambda: lives_at(made, url), before)
            assert all(runs(life.pid or 0) for life in every.values())
            history = made.ok("--url", url, "history", "--cell")
            assert "the machines were led by another borgmaster" in history
            second.process.kill()
            second.ended()
    with foreground(MASTER, original) as refused:  # nobody polls the machines now
        assert refused.ended() == StoreOlder.exit_code == 73, refused.said()
    with foreground(MASTER, original, TAKE_OVER) as again:
        wait_until(lambda: serves(again), PATIENCE_SECONDS)
        becomes(lambda: lives(made), every)
        assert status_of(made).timeline == 3
