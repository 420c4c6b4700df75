"""The guides about masters and machines of one's own, typed with folders and ports of a test."""

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cells import RealCell, wait_until
from tests.e2e.watched import PATIENCE_SECONDS, watched_cell
from tests.ports import free_port
from tests.typed import Guide

SLEEPERS = "name: sleepers\ntasks: 3\nrun: [sleep, '100000']\nresources: {cpu: 10m, ram: 8MiB}\n"


def master_of(guide: Guide, config: str, port: int) -> str:
    """Have a ``cell.toml`` say a port of the test; return the address."""
    path = guide.shell.home / config
    path.write_text(
        re.sub(r'^listen = ".*:\d+"', f'listen = "127.0.0.1:{port}"', path.read_text(), flags=re.M)
    )
    return f"127.0.0.1:{port}"


def heard(guide: Guide, machine: str) -> None:
    """Wait until a machine is up."""
    wait_until(
        lambda: any(
            each["name"] == machine and each["state"] == "up"
            for each in json.loads(guide.shell.run("borgctl machine list -o json", code=None).out or "[]")
        ),
        PATIENCE_SECONDS,
    )


def answers(guide: Guide) -> None:
    """Wait until a master leads."""
    wait_until(lambda: guide.shell.run("borgctl status", code=None).code == 0, PATIENCE_SECONDS)


def with_sleepers(guide: Guide) -> None:
    """Have three tasks run."""
    guide.file("sleepers.yaml", SLEEPERS)
    guide.shell.run("borgctl job submit --settle 0 sleepers.yaml")


def sealed(guide: Guide) -> None:
    """Seal what masters share, and keep the passphrase in a file."""
    (said,) = [line for line in guide.next().out.splitlines() if line.startswith("passphrase: ")]
    guide.file("passphrase", said.partition(": ")[2] + "\n")


@contextmanager
def stopped_machines(guide: Guide, *folders: str) -> Iterator[None]:
    """Behind it no task of these machines runs any more."""
    try:
        yield
    finally:
        guide.shell.close()
        for folder in folders:
            if (guide.shell.home / folder / "borglet.toml").exists():
                guide.shell.run(f"borglet --config {folder}/borglet.toml --stop-all", code=None)


def test_machines(tmp_path: Path) -> None:
    with Guide("how-to/machines", tmp_path) as guide, stopped_machines(guide, "m1"):
        guide.next()
        master_of(guide, "cell/cell.toml", free_port())
        guide.start("borgmaster")
        guide.next()
        answers(guide)
        # The line is printed, and run.
        guide.start("$(borgctl machine invite m1) --dir ~/m1")
        heard(guide, "m1")


def test_masters(tmp_path: Path) -> None:
    port, other = free_port(), free_port()
    with Guide(
        "how-to/masters", tmp_path, instead={"7401": str(other), "/var/lib/borgish": f"{tmp_path}/a"}
    ) as guide:
        guide.shell.run("mkdir -p ~/cell && cp configs/cell.toml ~/cell/")
        first = master_of(guide, "cell/cell.toml", port)
        guide.start("borgmaster --config ~/cell/cell.toml --standby")
        guide.shell.run("export BORGISH_DIR=~/cell/state/cell")
        answers(guide)
        guide.start("borgmaster --config ~/cell/cell.toml --standby --listen")
        guide.comes("borgctl status", f"{first} leads; http://127.0.0.1:{other} stands by")
        guide.shell.run(f"borgctl cell init --name prod --listen 127.0.0.1:{free_port()} --dir {tmp_path}/a")
        sealed(guide)
        # The second host has no folder yet.
        asked = guide.leave("borgctl cell unseal").replace(f"{tmp_path}/a", f"{tmp_path}/b")
        guide.shell.run(asked.partition("#")[0] + " --passphrase-file passphrase")
        assert (tmp_path / "b" / "authority.pem").read_text() == (
            tmp_path / "a" / "authority.pem"
        ).read_text()


def test_failover_drill(tmp_path: Path) -> None:
    with (
        watched_cell(tmp_path / ".borgish", machines=2) as made,
        Guide("how-to/failover-drill", tmp_path) as guide,
    ):
        with_sleepers(guide)
        guide.shell.start(
            f"borgmaster --config .borgish/cell.toml --standby --listen 127.0.0.1:{free_port()}"
        )
        guide.comes("borgctl status", "stands by at position")
        before = epoch(guide.next().out)
        # Whether something warns depends on the host.
        assert ", 0 fail" in guide.shell.run(guide.leave("borgctl doctor"), code=None).err
        guide.next()
        os.kill(made.pid("borgmaster"), signal.SIGKILL)
        assert epoch(guide.next().out) == before + 1
        guide.next()
        assert " lead " in guide.next().out.splitlines()[-1]
        attempts = [
            {task["name"]: task["attempt"] for task in json.loads((tmp_path / file).read_text())}
            for file in ("before.json", "after.json")
        ]
        assert attempts[0] == attempts[1]
        assert len(attempts[0]) == 3


def epoch(status: str) -> int:
    """Return the epoch that ``borgctl status`` shows."""
    found = re.search(r"epoch (\d+)", status)
    assert found, status
    return int(found[1])


def test_backup(tmp_path: Path) -> None:
    lib = f"{tmp_path}/.borgish"
    with (
        watched_cell(tmp_path / ".borgish") as made,
        Guide("how-to/backup", tmp_path, instead={"/var/lib/borgish": lib}) as guide,
    ):
        with_sleepers(guide)
        guide.next()
        guide.next()
        sealed(guide)
        for _ in range(2):
            restored(guide, made, guide.leave("borgmaster --config").replace(lib, f"{tmp_path}/new"))
        guide.shell.run("borgctl job scale sleepers 4")
        guide.upto("borgctl checkpoint import")
        guide.shell.run("borgctl checkpoint delete --yes noon")
        guide.next()


def restored(guide: Guide, made: RealCell, recover: str) -> None:
    """Make the database on another host, from the files beside the old one or from an export."""
    new = guide.shell.home / "new"
    shutil.rmtree(new, ignore_errors=True)
    guide.shell.run("borgctl cell unseal cell.sealed --dir new --passphrase-file passphrase")
    shutil.copy(made.folder / "cell.toml", new / "cell.toml")
    if "nightly.checkpoint" not in recover:
        shutil.copytree(made.folder / "cell.checkpoints", new / "cell.checkpoints")
    guide.shell.run(recover)
    assert (new / "cell.db").exists()
    guide.shell.run("borgctl cell recover --dir new")


def test_recovery(tmp_path: Path) -> None:
    config = f"{tmp_path}/.borgish/cell.toml"
    with (
        watched_cell(tmp_path / ".borgish") as made,
        Guide("how-to/recovery", tmp_path, instead={"~/cell/cell.toml": config}) as guide,
    ):
        with_sleepers(guide)
        guide.shell.run("borgctl checkpoint create")
        (made_at,) = made.items("checkpoint", "list")
        made.kill("borgmaster")
        said = guide.shell.run(guide.leave("borgmaster --config").replace("1200", str(made_at["position"])))
        assert "The store is sound" in said.err


def test_certificates(tmp_path: Path) -> None:
    instead = {"/var/lib": str(tmp_path), "7400": str(free_port())}
    with (
        Guide("how-to/certificates", tmp_path, "root", instead=instead) as guide,
        stopped_machines(guide, "borglet", "m1"),
    ):
        guide.next()
        guide.shell.start("borgmaster --config borgish/cell.toml")
        guide.shell.run("export BORGISH_DIR=~/borgish")
        answers(guide)
        join(guide, "borglet join")
        heard(guide, "m1")
        adopted(guide)


def join(guide: Guide, beginning: str, *, wait: bool = False) -> None:
    """Type a line of the page with the address and the invitation of this cell."""
    printed = guide.shell.run("borgctl machine invite m1").out.split()
    line = guide.leave(beginning)
    typed_so = re.sub(r"https://master\.example:\d+ BG1\.\.\.::\.\.\.", " ".join(printed[2:4]), line)
    assert typed_so != line
    if wait:
        guide.shell.run(typed_so)
    else:
        guide.shell.start(typed_so)


def adopted(guide: Guide) -> None:
    """Give a cell in clear an authority, and its machine a certificate."""
    shell = guide.shell
    shell.run("cp configs/cell.toml cell.toml")
    master_of(guide, "cell.toml", free_port())
    shell.run("export BORGISH_DIR=~/state/cell")
    in_clear = shell.start("borgmaster --config cell.toml")
    answers(guide)
    borglet = shell.start("$(borgctl machine invite m1) --dir m1")
    heard(guide, "m1")
    guide.next()
    for daemon in (in_clear, borglet):
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(PATIENCE_SECONDS)
    shell.start("borgmaster --config cell.toml")
    answers(guide)
    line = guide.next().out.splitlines()[0]
    shell.start(f"{line} --dir m1")
    wait_until((shell.home / "m1" / "state" / "machine.pem").exists, PATIENCE_SECONDS)
    heard(guide, "m1")


def test_install(tmp_path: Path) -> None:
    instead = {"/var/lib": str(tmp_path), "7400": str(free_port())}
    with Guide("how-to/install", tmp_path, instead=instead) as guide:
        guide.leave("apt install")  # tests/integration/units makes the package, and looks into it
        guide.shell.run(guide.leave("runuser").removeprefix("runuser -u borgish -- "))
        guide.leave("systemctl")
        guide.shell.start("borgmaster --config borgish/cell.toml")
        guide.shell.run("export BORGISH_DIR=~/borgish")
        answers(guide)
        join(guide, "borglet join", wait=True)
        assert (tmp_path / "borglet" / "borglet.toml").exists()
        guide.leave("systemctl")
        # What the image starts is what runs above; it takes debootstrap, and so minutes.
        guide.leave("docker run --rm")
        guide.leave("docker run -d")
