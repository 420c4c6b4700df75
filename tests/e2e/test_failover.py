"""Two real masters: one leads, the other stands by, and takes over when the first is killed or stopped."""

import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from borgish.client import Client
from borgish.clock import SystemClock
from borgish.errors import Fenced, Unreachable
from borgish.masters import LEADERLESS_SECONDS_MAX
from borgish.wire.api import Accepted, HealthView, ScaleRequest, StatusView
from tests.cells import RealCell, wait_until
from tests.e2e.watched import (
    PATIENCE_SECONDS,
    Foreground,
    Life,
    becomes,
    foreground,
    lives,
    status_of,
    submitted,
    watched_cell,
)
from tests.ports import free_port

SLEEPERS = "name: sleepers\ntasks: 3\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 8MiB}\n"
# So long that a host which stands still for some seconds costs nobody the lead; a paused leader's must end.
LEASE = "[lease]\nttl_seconds = 15\nrenew_seconds = 1\ndeadline_seconds = 12\n"
DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


class Pair:
    """A cell with two masters; ``made`` finds the one that leads, whichever it is."""

    def __init__(self, made: RealCell, config: Path, port: int, standby: Foreground) -> None:
        self.made = made
        self.config = config
        self.standby_url = f"http://127.0.0.1:{port}"
        self.standby = standby

    def client(self, url: str) -> Client:
        return Client(url, (self.made.folder / "tokens" / "admin.token").read_text().strip())

    def health(self, url: str) -> HealthView:
        return self.client(url).get("/v1/health", None, HealthView)

    def is_warm(self) -> bool:
        """Whether the standby has taken in all that the leader has written."""
        assert self.standby.process.poll() is None, self.standby.said()
        if "standing by" not in self.standby.said():
            return False
        try:
            view = self.health(self.standby_url)
        except Unreachable:
            return False  # it does not know the cell yet, and so no tokens
        return view.role == "standby" and view.position == status_of(self.made).position

    def leads(self) -> bool:
        """Whether the one that stood by leads."""
        assert self.standby.process.poll() is None, self.standby.said()
        return self.health(self.standby_url).role == "leader"


@pytest.fixture(params=DATABASES)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    """A cell in which three tasks run, with a standby: on Postgres in a folder of its own."""
    folder, beside = tmp_path / "cell", tmp_path / "beside"
    ports = free_port(), free_port()
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    folder.mkdir(mode=0o700)
    config = f'name = "local"\nlisten = "127.0.0.1:{{}}"\nstate = "."\ndb = "{url}"\n'
    if url:  # masters of one folder make each other known
        config += f"masters = {[f'http://127.0.0.1:{port}' for port in ports]}\n{LEASE}"
    (folder / "cell.toml").write_text(config.format(ports[0]))
    with watched_cell(folder) as made:
        submitted(made, SLEEPERS)
        its_config = folder / "cell.toml"
        if url:
            beside.mkdir(mode=0o700)
            shutil.copy(folder / "secret", beside / "secret")
            its_config = beside / "cell.toml"
            its_config.write_text(config.format(ports[0]))
        options = ("--standby", "--listen", f"127.0.0.1:{ports[1]}")
        with foreground("borgish.master.main", its_config, *options) as standby:
            one = Pair(made, its_config, ports[1], standby)
            wait_until(one.is_warm, PATIENCE_SECONDS)
            yield one


def goes_on(pair: Pair, before: dict[str, Life], epoch: int) -> None:
    """The one that stood by leads, the same programs run, and a write reaches it through borgctl."""
    began = SystemClock().now().mono
    said = pair.made.borgctl("job", "scale", "ann/sleepers", 4)
    if said.code == 4:  # it asks for a while: on a busy host a standby may need longer
        assert SystemClock().now().mono - began > LEADERLESS_SECONDS_MAX, said
        wait_until(pair.leads, PATIENCE_SECONDS)
        said = pair.made.borgctl("job", "scale", "ann/sleepers", 4)
    assert said.code == 0, said
    assert pair.leads()
    assert pair.client(pair.standby_url).get("/v1/status", None, StatusView).epoch == epoch + 1
    wait_until(lambda: before.items() < lives(pair.made).items(), PATIENCE_SECONDS)


def test_a_standby_sends_on_to_the_leader_and_leads_when_it_is_killed(pair: Pair) -> None:
    made, before, epoch = pair.made, lives(pair.made), status_of(pair.made).epoch
    sent_on = pair.client(pair.standby_url)
    sent_on.post("/v1/jobs/ann/sleepers/scale", ScaleRequest(3), Accepted)
    assert sent_on.url == made.client().url
    shown = made.ok("status")
    assert f"{made.client().url} leads; {pair.standby_url} stands by at position" in shown
    position = str(status_of(made).position)
    read = made.borgctl("--read-from", "standby", "--at-least", position, "job", "list")
    assert read.code == 0, read
    assert f"; {pair.standby_url} stands by.\n" in read.out
    assert "ann/sleepers" in read.out
    past = made.borgctl("--read-from", "standby", "task", "list", "--at", position)
    assert past.code == 0, past
    assert re.search(
        rf"^As of position {position} .* were not journalled; {pair.standby_url} stands", past.out
    )
    assert past.out.count("ann/sleepers/") == 3
    assert past.err == ""
    for command in (("diff", "1"), ("history",), ("events",), ("checkpoint", "list")):
        told = made.borgctl("--read-from", "standby", "--at-least", position, *command)
        assert (told.code, f"; {pair.standby_url} stands by.\n" in told.out) == (0, True), told
    made.kill("borgmaster")
    goes_on(pair, before, epoch)


def test_an_orderly_stop_hands_over_at_once(pair: Pair) -> None:
    made, before, epoch = pair.made, lives(pair.made), status_of(pair.made).epoch
    os.kill(made.pid("borgmaster"), signal.SIGTERM)
    wait_until(lambda: not made.pid("borgmaster"))  # on a busy host it may take a command before its end
    goes_on(pair, before, epoch)


@pytest.mark.postgres
@pytest.mark.parametrize("pair", ["postgres"], indirect=True)
def test_a_leader_that_lost_its_session_is_no_rival(pair: Pair, postgres_url: str) -> None:
    """It lives, and polls until it knows; the one that stood by waits for that, and leads."""
    before, epoch = lives(pair.made), status_of(pair.made).epoch
    engine = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        its_own = "database = (select oid from pg_database where datname = current_database())"
        holders = f"select pid from pg_locks where locktype = 'advisory' and granted and {its_own}"
        assert connection.execute(text(f"select pg_terminate_backend(pid) from ({holders}) h")).all()
    engine.dispose()
    wait_until(pair.leads, PATIENCE_SECONDS)
    goes_on(pair, before, epoch)


@pytest.mark.postgres
@pytest.mark.parametrize("pair", ["postgres"], indirect=True)
def test_a_paused_leader_ends_with_71_and_changes_nothing(pair: Pair) -> None:
    """Stopped beyond its lease, it finds that its time is over before it has said or written anything."""
    made, before, epoch = pair.made, lives(pair.made), status_of(pair.made).epoch
    made.kill("borgmaster")
    goes_on(pair, before, epoch)
    with foreground("borgish.master.main", made.folder / "cell.toml", "--standby") as third:
        third_url = status_url(third)
        wait_until(lambda: pair.health(third_url).warm, PATIENCE_SECONDS)
        pair.standby.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: pair.health(third_url).role == "leader", PATIENCE_SECONDS)
        pair.client(third_url).post("/v1/jobs/ann/sleepers/scale", ScaleRequest(5), Accepted)
        pair.standby.process.send_signal(signal.SIGCONT)
        assert pair.standby.ended() == Fenced.exit_code == 71
        assert "The lease could not be renewed" in pair.standby.said()
        becomes(lambda: len(lives(made)), 5)
        assert before.items() < lives(made).items()
        assert pair.client(third_url).get("/v1/status", None, StatusView).epoch == epoch + 2


def status_url(master: Foreground) -> str:
    """Return where a master says that it stands by."""
    return str(wait_until(lambda: re.search(r"standing by for local on (\S+)", master.said()), 60)[1])


def serves(master: Foreground) -> str:
    """Return where a master leads, "" while it does not."""
    assert master.process.poll() is None, master.said()
    found = re.search(r"serving local on (\S+)", master.said())
    return found[1] if found else ""
