"""A cell stopped and started in order: its state stays, its tasks run again, and a purge leaves nothing.

Where it is about processes, they are started by exec, as users have them.
"""

import json
import os
import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

from tests.cells import RealCell, runs, wait_until
from tests.documents import page
from tests.e2e.watched import (
    PATIENCE_SECONDS,
    Foreground,
    asking,
    becomes,
    end_of,
    foreground,
    lives,
    status_of,
    submitted,
    tasks_of,
    watched_cell,
)

SLEEPERS = "name: sleepers\ntasks: 3\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 8MiB}\n"
DONE = "name: done\nrun: ['true']\nrestart: {policy: on_failure}\nresources: {cpu: 10m, ram: 8MiB}\n"


def test_up_finds_the_state_that_down_left(own: RealCell) -> None:
    submitted(own, SLEEPERS)
    submitted(own, DONE)
    own.ok("job", "wait", "done", "--for", "finished")
    submitted(own, SLEEPERS.replace("sleepers", "killed"))
    own.ok("job", "kill", "--yes", "killed")
    own.ok("machine", "cordon", "m1", "--reason", "for a look inside")
    becomes(lambda: len(lives(own)), 3)
    before, jobs, position = lives(own), own.items("job", "list"), status_of(own).position
    ended = {name: end_of(task) for name, task in tasks_of(own).items() if task.state == "dead"}
    assert "and every task" in own.ok("down")
    assert not any(life.pid and runs(life.pid) for life in before.values())
    own.ok("up")
    machine = own.items("machine", "list")[0]
    assert (machine["state"], machine["reason"]) == ("cordoned", "for a look inside")
    own.ok("machine", "uncordon", "m1")
    own.ok("job", "wait", "sleepers", "--settle", 0)
    again = own.items("job", "list")
    assert {job["name"]: job["submitted_at"] for job in again} == {
        job["name"]: job["submitted_at"] for job in jobs
    }
    assert {job["name"]: job["state"] for job in again} == {
        "ann/done": "dead",
        "ann/killed": "dead",
        "ann/sleepers": "running",
    }
    assert {name: end_of(task) for name, task in tasks_of(own).items() if task.state == "dead"} == ended
    now = lives(own)
    assert now.keys() == before.keys()
    assert {life.restarts for life in now.values()} == {0}  # they were stopped and begin; they did not fail
    assert status_of(own).position > position
    assert status_of(own).last_checkpoint is not None
    own.ok("down")  # what began anew is no less the machine's own
    assert not any(life.pid and runs(life.pid) for life in now.values())


def test_up_says_that_another_program_has_the_port(own: RealCell) -> None:
    own.ok("down")
    address = urlsplit(json.loads((own.folder / "client.json").read_text())["url"])
    with HTTPServer((address.hostname or "", address.port or 0), BaseHTTPRequestHandler) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        said = own.borgctl("up")
        asked = own.borgctl("job", "list")
        other.shutdown()
    assert said.code == 1
    assert "address already in use" in said.err
    assert (asked.code, "is not a borgmaster" in asked.err, "Another program" in asked.err) == (4, True, True)
    own.ok("up")


def test_the_tables_are_where_the_documentation_says(tmp_path: Path) -> None:
    (path, query) = re.findall(r'sqlite3 "(file:\$HOME[^"]*)" "([^"]*)"', page("how-to/monitoring"))[0]
    with watched_cell(tmp_path / ".borgish") as made:  # the default folder of whoever lives in tmp_path
        submitted(made, SLEEPERS)
        becomes(lambda: len(lives(made)), 3)
        with closing(sqlite3.connect(path.replace("$HOME", str(tmp_path)), uri=True)) as database:
            assert database.execute(query).fetchall() == [("running", 3)]


def test_a_purge_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "cell"
    with watched_cell(folder, forked=False) as made:
        # Programs that leave their session and their parent are tasks' programs still.
        text = "name: deep\nrun: [sh, -c, 'setsid sleep 100000 & sleep 100000']\nresources: {cpu: 10m}\n"
        submitted(made, text)
        wait_until(lambda: len(processes_in(folder)) >= 6, PATIENCE_SECONDS)
    becomes(lambda: processes_in(folder), {})  # what its borglet leaves ends by itself
    assert not folder.exists()


def processes_in(folder: Path) -> dict[int, str]:
    """Return the processes that work in a folder, were started with it, or hold a file of it."""
    mark, found = os.fsencode(folder), {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            said = (process / "cmdline").read_bytes()
            held = [os.readlink(process / "cwd"), *(os.readlink(one) for one in (process / "fd").iterdir())]
        except OSError:
            continue
        if int(process.name) != os.getpid() and (mark in said or any(str(folder) in it for it in held)):
            found[int(process.name)] = said.replace(b"\0", b" ").decode(errors="replace")
    return found


def test_sigterm_ends_each_daemon_in_order_and_no_task_notices(own: RealCell) -> None:
    submitted(own, SLEEPERS)
    before = lives(own)
    with in_the_foreground(own, "m1") as borglet:
        with in_the_foreground(own, "borgmaster") as master, asking(own) as client:
            watch = client.watch({"kinds": "event"})  # what is open must not hold up the end
            own.ok("job", "wait", "sleepers", "--settle", 0)
            becomes(lambda: lives(own), before)
            master.process.send_signal(signal.SIGTERM)
            assert master.ended() == 0, master.said()
            watch.close()  # type: ignore[attr-defined]  # a generator
            assert "stopped in order; tasks go on" in master.said()
        borglet.process.send_signal(signal.SIGTERM)
        assert borglet.ended() == 0, borglet.said()
        assert "ended; tasks go on" in borglet.said()
    assert all(life.pid and runs(life.pid) for life in before.values())
    own.ok("up")
    becomes(lambda: lives(own), before)


@contextmanager
def in_the_foreground(made: RealCell, name: str) -> Iterator[Foreground]:
    """Run a daemon of the cell here instead of in the background."""
    os.kill(made.pid(name), signal.SIGTERM)
    wait_until(lambda: not made.pid(name), PATIENCE_SECONDS)
    is_master = name == "borgmaster"
    config = made.folder / ("cell.toml" if is_master else f"machines/{name}/borglet.toml")
    module = "borgish.master.main" if is_master else "borgish.borglet.main"
    with foreground(module, config, forked=False) as daemon:
        ready = "serving local" if is_master else "listens on"
        wait_until(lambda: ready in daemon.said(), PATIENCE_SECONDS)
        yield daemon
