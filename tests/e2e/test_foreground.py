"""A deployment by hand: both daemons in the foreground, from copies of the files in ``configs``."""

import os
import signal
from pathlib import Path

from borgish.client import Client
from borgish.wire.api import Accepted, MachineList, TaskView
from tests.cells import ROOT, runs, wait_until
from tests.e2e.watched import PATIENCE_SECONDS, Foreground, foreground
from tests.invited import invite_many
from tests.ports import free_port

JOB = b"name: web\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 16MiB}\nconstraints: ['rack == r1']\n"


def copied(folder: Path, name: str, changes: dict[str, str]) -> Path:
    """Copy a file of ``configs`` with some of its values replaced."""
    text = (ROOT / "configs" / name).read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    folder.mkdir()
    (folder / name).write_text(text)
    return folder / name


def test_both_daemons_from_the_example_files(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    state = tmp_path / "state"
    cell = copied(tmp_path / "master", "cell.toml", {"127.0.0.1:7400": url[7:], '"state/cell"': f'"{state}"'})
    machine = copied(
        tmp_path / "machine",
        "borglet.toml",
        {
            "http://127.0.0.1:7400": url,
            '"20000-20999"': '"9000-9099"',
            '# runtimes = ["process", "docker"]': 'runtimes = ["process"]',
        },
    )
    with foreground("borgish.borglet.main", machine, forked=False) as borglet:
        wait_until(lambda: "no join token" in borglet.said(), PATIENCE_SECONDS)  # it says so, and goes on
        with foreground("borgish.master.main", cell, forked=False) as master:
            wait_until(lambda: f"serving cell on {url}" in master.said(), PATIENCE_SECONDS)
            assert "joined" not in borglet.said()
            admin = (state / "tokens" / "admin.token").read_text().strip()
            (machine.parent / "join.token").write_text(invite_many(url.removeprefix("http://"), admin))
            try:
                pid = run_a_job(Client.find(state))
                end_in_order(master, "stopped in order; tasks go on")
                end_in_order(borglet, "ended; tasks go on")
                assert runs(pid)
            finally:
                end_in_order(borglet, "")
                with foreground("borgish.borglet.main", machine, "--stop-all", forked=False) as last:
                    assert last.ended() == 0, last.said()
            assert not runs(pid)
    assert [oct(path.stat().st_mode & 0o777) for path in (state / "tokens").iterdir()] == ["0o600"]


def run_a_job(client: Client) -> int:
    """Wait for the machine, run a job there, and return its process."""
    try:
        wait_until(lambda: names_up(client) == ["m1"], PATIENCE_SECONDS)
        client.post("/v1/jobs", JOB, Accepted, params={"user": "ann"}, content_type="application/yaml")
        return int(
            wait_until(lambda: client.get("/v1/tasks/ann/web/0", None, TaskView).pid, PATIENCE_SECONDS)
        )
    finally:
        client.close()


def names_up(client: Client) -> list[str]:
    machines = client.get("/v1/machines", None, MachineList).items
    return [machine.name for machine in machines if machine.heard_seconds_ago is not None]


def end_in_order(daemon: Foreground, words: str) -> None:
    if daemon.process.poll() is None:
        os.kill(daemon.process.pid, signal.SIGTERM)
    assert daemon.ended() == 0, daemon.said()
    assert words in daemon.said()
