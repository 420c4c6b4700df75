"""Real daemons do not start where others could read, or change, what is theirs alone."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forked import Forked
from tests.integration.tls.test_own_authority import SECONDS_MAX, Place, until

OF_THE_MASTER = ("secret", "tokens/admin.token", "master.pem", "authority.*.key", ".")
OF_A_MACHINE = ("machine.pem", "machine.next.key", "membership.json", ".")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def loosened(folder: Path, name: str) -> tuple[Path, str]:
    """Open a file or folder to others; return it, and the mode that it should have."""
    path = folder if name == "." else next(folder.glob(name), folder / name)
    if not path.exists():
        path.write_text("a key\n")
    path.chmod(0o755 if path.is_dir() else 0o640)
    return path, "700" if path.is_dir() else "600"


def refused(start: Callable[[], None], place: Place, log: Path, path: Path, command: str) -> None:
    start()
    assert place.daemons.pop().wait(SECONDS_MAX) == 74, log.read_text()
    assert f"{path} " in log.read_text()
    assert f"`{command} {path}`" in log.read_text()


@pytest.mark.parametrize("name", OF_THE_MASTER)
def test_a_master_does_not_start_where_others_may_look(place: Place, name: str) -> None:
    path, mode = loosened(place.cell, name)
    shown = f"{path.stat().st_mode & 0o777:04o}"
    refused(place.master, place, place.cell / "log", path, f"chmod {mode}")
    assert f"is open to others (its mode is {shown})" in (place.cell / "log").read_text()
    path.chmod(int(mode, 8))
    with place.running():
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to others")
@pytest.mark.parametrize("name", ["secret", "."])
def test_a_master_does_not_start_with_what_belongs_to_another(place: Place, name: str) -> None:
    path = place.cell if name == "." else place.cell / name
    os.chown(path, 1000, -1)
    refused(place.master, place, place.cell / "log", path, "chown 0")
    assert "belongs to uid 1000" in (place.cell / "log").read_text()


@pytest.mark.parametrize("name", OF_A_MACHINE)
def test_a_borglet_does_not_start_where_others_may_look(place: Place, name: str) -> None:
    with place.running():
        assert place.join(place.tokens[0]) == 0, place.log.read_text()
        path, mode = loosened(place.machine / "state", name)
        refused(place.borglet, place, place.log, path, f"chmod {mode}")
        path.chmod(int(mode, 8))
        if name == "machine.next.key":
            path.unlink()
        place.borglet()
        until(place.hears, place.log)


def test_what_daemons_make_is_for_their_user_alone(place: Place) -> None:
    before = os.umask(0)
    try:
        with place.running():
            assert place.join(place.tokens[0]) == 0, place.log.read_text()
            place.borglet()
            until(place.hears, place.log)
            assert [umask_of(daemon) for daemon in place.daemons] == ["0077", "0077"]
    finally:
        os.umask(before)


def umask_of(daemon: Forked) -> str:
    status = Path(f"/proc/{daemon.pid}/status").read_text()
    return status.partition("Umask:")[2].split()[0]
