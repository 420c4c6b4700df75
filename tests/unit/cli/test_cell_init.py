"""``borgctl cell init``: a cell's folder, whole whenever it is cut off, and nobody else's."""

from pathlib import Path

import pytest

import borgish.credentials
from borgish.cli import local_cell
from borgish.cli.borgctl import run
from borgish.cli.commands import init
from borgish.errors import Conflict
from borgish.master.host.settings import read_settings
from borgish.tls.authority import describe, key_id_of
from borgish.tls.bundle import authorities_in
from borgish.tls.folder import read_authority


class Killed(BaseException):
    """The process is no more."""


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_new_cell_is_for_its_user_only_and_can_listen_anywhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cell"
    assert run(["cell", "init", "--name", "c1", "--listen", "0.0.0.0:7400", "--dir", str(folder)]) == 0
    said = capfd.readouterr()
    authority = read_authority(folder)
    assert authority.sha256 in said.out
    assert f"borgmaster --config {folder / 'cell.toml'}" in said.err
    assert "admin token ends" in said.err
    assert "`borgctl token create --role admin --user YOU --for 90d`" in said.err
    assert run(["cell", "recover", "--dir", str(folder)]) == 0
    assert "admin token ends" in capfd.readouterr().err
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in folder.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert {"master.c1.borgish", "127.0.0.1"} <= describe((folder / "master.pem").read_bytes()).names
    assert read_settings(folder / "cell.toml").has_authority

    before = files_in(folder)
    assert run(["cell", "init", "--dir", str(folder)]) == 0
    assert "is complete" in capfd.readouterr().out
    assert files_in(folder) == before


def test_the_admin_token_of_a_cell_on_loopback_has_no_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["cell", "init", "--dir", str(tmp_path / "cell")]) == 0
    assert run(["cell", "recover", "--dir", str(tmp_path / "cell")]) == 0
    assert "ends" not in capfd.readouterr().err


def test_a_death_at_any_step_is_mended_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments: list[str] = []
    fatal = 0  # the number of the moment that kills

    def reach(name: str) -> None:
        moments.append(name)
        if len(moments) == fatal:
            raise Killed

    monkeypatch.setattr(borgish.credentials, "reach", reach)
    while True:
        moments.clear()
        fatal += 1
        folder = tmp_path / str(fatal)
        folder.mkdir()
        try:
            init.make(folder, "c1", "127.0.0.1:7400")
            break
        except Killed:
            pass
        for certificate in _bundle(folder):
            assert (folder / f"authority.{key_id_of(certificate)}.key").exists()
        init.make(folder, "c1", "127.0.0.1:7400")
        assert init.make(folder, "", "") == ([], read_authority(folder).sha256)
        assert len(list(folder.glob("authority.*.key"))) == 1
        assert not list(folder.rglob(".*"))
    assert len(moments) == 2 * 7, "each file is drafted, then written"


def _bundle(folder: Path) -> list[bytes]:
    path = folder / "authority.pem"
    return authorities_in(path.read_bytes()) if path.exists() else []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--name", "Upper"], "is not the name of a cell"),
        (["--listen", "7400"], "is not HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "is not HOST:PORT"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_made(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert run(["cell", "init", "--dir", str(tmp_path / "cell"), *arguments]) == 2
    assert words in capfd.readouterr().err
    assert not (tmp_path / "cell").exists()


def test_another_cell_than_the_one_that_is_there_is_refused(tmp_path: Path) -> None:
    init.make(tmp_path, "c1", "127.0.0.1:7400")
    with pytest.raises(Conflict, match="has name = 'c1', not 'c2'"):
        init.make(tmp_path, "c2", "")
    with pytest.raises(Conflict, match="has listen"):
        init.make(tmp_path, "", "127.0.0.1:7401")


def test_folders_of_others_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    local_cell.make(tmp_path / "up", 1)
    assert run(["cell", "init", "--dir", str(tmp_path / "up")]) == 1
    assert "that `borgctl up` made" in capfd.readouterr().err
    (tmp_path / "elsewhere").mkdir()
    init.make(tmp_path / "elsewhere", "c1", "127.0.0.1:7400")
    (tmp_path / "elsewhere" / "cell.toml").rename(tmp_path / "cell.toml")
    before = files_in(tmp_path / "elsewhere")
    assert run(["cell", "init", "--dir", str(tmp_path / "elsewhere")]) == 1
    assert "borgctl cell adopt --config FILE" in capfd.readouterr().err
    assert files_in(tmp_path / "elsewhere") == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    assert run(["cell", "init", "--dir", str(tmp_path / "other")]) == 1
    assert "neither a cell nor empty" in capfd.readouterr().err


def test_up_and_down_leave_such_a_cell_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    init.make(tmp_path, "c1", "127.0.0.1:7400")
    before = files_in(tmp_path)
    for command in (["up"], ["down", "--purge", "--yes"]):
        assert run(["--dir", str(tmp_path), *command]) == 1
        assert "that `borgctl cell init` made" in capfd.readouterr().err
    assert files_in(tmp_path) == before
