"""``borgctl cell seal`` and ``unseal``: what masters share goes to another host, whole or not at all."""

from pathlib import Path

import pytest

import borgish.credentials
from borgish.cli.borgctl import run
from borgish.cli.commands import init, seal
from borgish.clock import SystemClock
from borgish.errors import Invalid
from borgish.master.host.settings import Settings
from borgish.tls import sealed
from borgish.tls.folder import renew_master, rotate

NOW = 1_800_000_000.0
CARRIED = ("authority.pem", "secret")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "SCRYPT_N", 2**4)


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    folder = tmp_path / "cell"
    folder.mkdir()
    init.make(folder, "c1", "127.0.0.1:7400")
    return folder


def sealed_from(cell: Path, capfd: pytest.CaptureFixture[str]) -> tuple[Path, Path]:
    """Return the sealed file and one with its passphrase."""
    file, word = cell.parent / "sealed", cell.parent / "word"
    file.unlink(missing_ok=True)
    assert run(["--dir", str(cell), "cell", "seal", str(file)]) == 0
    said = capfd.readouterr()
    assert "the audit log does not have this" in said.err
    (line,) = (line for line in said.out.splitlines() if line.startswith("passphrase: "))
    word.write_text(line.partition(": ")[2] + "\n")
    return file, word


def unseal(file: Path, word: Path, folder: Path) -> int:
    return run(["cell", "unseal", str(file), "--passphrase-file", str(word), "--dir", str(folder)])


def test_another_host_gets_what_masters_share_and_makes_the_rest(
    cell: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, word = sealed_from(cell, capfd)
    assert file.stat().st_mode & 0o777 == 0o600
    secret = (cell / "secret").read_bytes().strip()
    assert secret not in file.read_bytes()
    other = tmp_path / "other"
    assert unseal(file, word, other) == 0
    for name in CARRIED:
        assert (other / name).read_bytes().strip() == (cell / name).read_bytes().strip()
    assert {path.stat().st_mode & 0o077 for path in other.iterdir()} == {0}
    assert not (other / "master.pem").exists()
    renew_master(other, "c1", frozenset({"host-b"}), SystemClock().now().wall)
    assert Settings("c1", state=str(other)).has_authority
    assert unseal(file, word, other) == 0
    said = capfd.readouterr()
    assert "has all of it already" in said.out
    assert "start the borgmaster here, anew where it runs" in said.err


def test_who_has_the_file_alone_or_changes_it_has_nothing(
    cell: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, word = sealed_from(cell, capfd)
    good, other = file.read_bytes(), tmp_path / "other"
    wrong = tmp_path / "wrong"
    wrong.write_text("a passphrase of somebody else\n")
    assert unseal(file, wrong, other) == 2
    assert "does not open this file" in capfd.readouterr().err
    for changed in (good.replace(b'"c1"', b'"c2"'), good[:-20], b"{}", b"", good.replace(b": 16", b": 17")):
        file.write_bytes(changed)
        assert unseal(file, word, other) == 2
    assert not other.exists()


def test_another_cell_is_left_alone(cell: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file, word = sealed_from(cell, capfd)
    other = tmp_path / "other"
    other.mkdir()
    init.make(other, "c2", "127.0.0.1:7401")
    assert unseal(file, word, other) == 1
    assert "is of cell c2, and the file is of cell c1" in capfd.readouterr().err
    (other / "cell.toml").unlink()
    before = {path: path.read_bytes() for path in other.glob("*.*")}
    assert unseal(file, word, other) == 1
    (other / "secret").unlink()
    assert unseal(file, word, other) == 1
    assert before == {path: path.read_bytes() for path in before}


def test_an_authority_that_was_replaced_is_carried_and_never_taken_back(
    cell: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, word = sealed_from(cell, capfd)
    other = tmp_path / "other"
    assert unseal(file, word, other) == 0
    older = file.read_bytes(), word.read_bytes()
    rotate(cell, "c1", NOW)
    file, word = sealed_from(cell, capfd)
    assert unseal(file, word, other) == 0
    assert (other / "authority.pem").read_bytes().strip() == (cell / "authority.pem").read_bytes().strip()
    file.write_bytes(older[0])
    word.write_bytes(older[1])
    assert unseal(file, word, other) == 1
    assert "is newer than what was sealed" in capfd.readouterr().err


def test_a_death_at_any_step_is_mended_by_the_next_run(
    cell: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """The process is no more."""

    files, moments, fatal = seal.shared_files(cell), [], 0

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
            seal.take_over(folder, "c1", files)
            break
        except Killed:
            seal.take_over(folder, "c1", files)
        assert seal.shared_files(folder) == files
        assert not list(folder.glob(".*"))
    assert fatal == 2 * 3 + 1, "each file is drafted, then written"


def test_names_of_other_files_and_short_passphrases_are_refused(cell: Path, tmp_path: Path) -> None:
    for name in ("../x", "authority.key", "client.json"):
        with pytest.raises(Invalid, match="which is no cell's"):
            seal.take_over(tmp_path, "c1", {"secret": "x" * 64, name: "y"})
    with pytest.raises(Invalid, match="holds no secret"):
        seal.take_over(tmp_path, "c1", {})
    word = tmp_path / "word"
    word.write_text("short\n")
    file = tmp_path / "sealed"
    assert run(["--dir", str(cell), "cell", "seal", str(file), "--passphrase-file", str(word)]) == 2
    assert not file.exists()
    assert run(["--dir", str(tmp_path / "none"), "cell", "seal", str(file)]) == 1
    drawn = {sealed.draw_passphrase() for _ in range(100)}
    assert len(drawn) == 100
    assert {len(it) for it in drawn} == {39}


def test_a_key_that_is_kept_elsewhere_is_said(
    cell: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    next(cell.glob("authority.*.key")).rename(tmp_path / "elsewhere")
    assert run(["--dir", str(cell), "cell", "seal", str(tmp_path / "sealed")]) == 0
    assert "the authority's key is kept elsewhere" in capfd.readouterr().err
