"""A private Postgres server for tests, from the machine's own programs, with a database for each test."""

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url

from borgish.store import postgres
from borgish.store.migrate import VERSION_TABLE
from borgish.store.open import open_store
from borgish.store.tables import REVISION

START_SECONDS_MAX = 60
# As fast as it goes: these databases need to outlive no crash of the machine.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "timezone": "UTC",
}


class PostgresServer:
    """A server that listens on a socket in its own folder only."""

    def __init__(self, folder: Path, programs: Path, settings: dict[str, str] = SETTINGS) -> None:
        self.folder = folder
        self._settings = settings
        self._programs = programs
        self._user = account_for_server()
        self._numbers = itertools.count(1)
        self._given_back: list[str] = []
        self._tables = ""

    def start(self) -> None:
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start_again()

    def start_again(self) -> None:
        """Start on what is there."""
        options = " ".join(f"-c {name}={value!r}" for name, value in self._settings.items())
        options += f" -c unix_socket_directories='{self.folder}'"
        log = str(self.folder / "log")
        self._run(
            "pg_ctl", "-D", self._data, "-w", "-t", str(START_SECONDS_MAX), "-l", log, "-o", options, "start"
        )

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-w", "-m", "immediate", "stop")

    def crash(self) -> None:
        """End it without order, as a crash does: its next start recovers."""
        self.stop()

    def keep(self) -> None:
        """Copy all of it, as a replica has it that is left behind. The server must not run."""
        subprocess.run(["cp", "-a", self._data, self._data + "-kept"], check=True)

    def fall_back(self) -> None:
        """Put the copy in the place of what there is. The server must not run."""
        shutil.rmtree(self._data)
        os.rename(self._data + "-kept", self._data)

    def fresh_url(self) -> str:
        """Return the URL of an empty database, which nobody else uses until it is given back."""
        if self._given_back:
            return self._given_back.pop()
        name = f"test{next(self._numbers)}"
        self._do("postgres", f"CREATE DATABASE {name}")
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def give_back(self, url: str) -> None:
        """End whatever is connected to a database, and empty it for another who wants one: to make a new one
        takes several times as long."""
        self._do(
            make_url(url).database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
            "DROP SCHEMA public CASCADE",
            "CREATE SCHEMA public",
        )
        self._given_back.append(url)

    @contextmanager
    def lent(self, *, migrated: bool = False) -> Iterator[str]:
        """Have the URL of an empty database for a while, or of one with the schema of this version."""
        url = self.fresh_url()
        if migrated:
            self._do(make_url(url).database, self._tables or self._dumped_tables())
        yield url
        self.give_back(url)

    def _dumped_tables(self) -> str:
        """Have the migrations make the tables, and keep the SQL, which takes a third of their time."""
        with self.lent() as url:
            open_store(url, "migrated").close()
            command = [str(self._programs / "pg_dump"), "--schema-only", "--no-owner", "-d", url]
            dump = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        # Neither what psql alone knows, nor settings: the session is used for nothing else.
        lines = [line for line in dump.splitlines() if not line.startswith(("--", "\\", "SET ", "SELECT "))]
        self._tables = "\n".join([*lines, f"INSERT INTO {VERSION_TABLE} VALUES ('{REVISION}')"])
        return self._tables

    def _do(self, database: str | None, *statements: str) -> None:
        import psycopg  # the extra is there where these tests run

        host, user = str(self.folder), "postgres"
        with psycopg.connect(host=host, user=user, dbname=database, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def copied(self, url: str) -> str:
        """Return the URL of a new database with all that is in another one, which may be in use."""
        made = self.fresh_url()
        dump, load = (self._programs / name for name in ("pg_dump", "psql"))
        taken = subprocess.run([dump, "-d", url], check=True, capture_output=True)
        arguments = ["-q", "-v", "ON_ERROR_STOP=1", "-d", made]
        subprocess.run([load, *arguments], input=taken.stdout, check=True, capture_output=True)
        return made

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _run(self, program: str, *arguments: str) -> None:
        # Output to a file: the server inherits it, and a pipe would stay open with it.
        with (self.folder / f"{program}.out").open("w+b") as said:
            ended = subprocess.run(
                [self._programs / program, *arguments],
                cwd=self.folder,
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                user=self._user,
                group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
                extra_groups=None if self._user is None else [],
            )
            if ended.returncode:
                said.seek(0)
                raise RuntimeError(f"{program} failed: {said.read().decode(errors='replace')}")


@contextmanager
def durable_server() -> Iterator[PostgresServer]:
    """A server as durable as one that is used: it syncs at each commit."""
    settings = SETTINGS | {"fsync": "on", "full_page_writes": "on"}
    # Not pytest's own folder: that is closed to other accounts, and a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="borgish-pg-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(Path(folder), postgres_programs(), settings)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def account_for_server() -> str | None:
    """Return whom to run the server as; None is who we are. The server refuses to be root."""
    if os.geteuid() != 0:
        return None
    accounts = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in accounts)


def postgres_programs() -> Path:
    """Return the folder of the newest installed server's programs."""
    installed = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = sorted(installed, key=lambda path: int(path.parts[4]) if path.parts[4].isdigit() else 0)
    found = newest[-1] if newest else shutil.which("initdb")
    if found is None:
        raise RuntimeError("no initdb on PATH or in /usr/lib/postgresql; install postgresql")
    return Path(found).resolve().parent


@contextmanager
def patience() -> Iterator[None]:
    """Have sessions of this process, as it uses them from now on, last although it is held up.

    A borgmaster that stands still for five seconds has to lose its session, and a server that does not
    answer for five seconds counts as away; a test on a busy machine does neither.
    """
    settings = tuple(setting.replace("'5s'", "'120s'") for setting in postgres._SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres, "_SETTINGS", settings)
        patch.setitem(postgres._CONNECT, "connect_timeout", 120)
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server for this test process."""
    # Not pytest's own folder: that is closed to other accounts, and a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="borgish-pg-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(Path(folder), postgres_programs())
        server.start()
        try:
            with patience():
                yield server
        finally:
            server.stop()


@pytest.fixture
def migrated_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database whose schema is that of this version, and which is nobody's yet."""
    with postgres_server.lent(migrated=True) as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database."""
    with postgres_server.lent() as url:
        yield url
