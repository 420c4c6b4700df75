"""What a task sends as a copy is taken for hostile, and written where it was asked for alone."""

import io
import os
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from borgish.cli.commands import task_cp
from borgish.cli.commands.task_cp import HEADERS_BYTES_MAX, Place, copy_in, copy_out, split_place
from borgish.client import Client, Params
from borgish.errors import BorgishError, Invalid, NotFound
from borgish.wire.api_commands import CopyCall
from borgish.wire.link import ExecPiece
from tests.unit.cli.conftest import Run


class Task(Client):
    """A task whose tar says what it is told to."""

    def __init__(self, said: bytes, code: int = 0) -> None:
        super().__init__("http://127.0.0.1:1", "token")
        self._said, self._code, self.given = said, code, 0

    def stream(
        self, path: str, params: Params | None = None, body: object = None, opened: object = None
    ) -> Iterator[bytes]:
        for at in range(0, len(self._said), 3000):
            self.given = at
            yield msgspec.json.encode(ExecPiece(self._said[at : at + 3000])) + b"\n"
        yield msgspec.json.encode(ExecPiece(exit_code=self._code)) + b"\n"

    def post(self, *_: object, **__: object) -> Any:
        raise NotFound("it has ended")


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def packed(*members: tarfile.TarInfo, content: bytes = b"x" * 700) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for info in members:
            info.size = len(content) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return made.getvalue()


def fetch(said: bytes, target: Path, code: int = 0, bytes_max: int = 10**6, path: str = "logs") -> None:
    copy_out(Task(said, code), "/v1/tasks/ann/web/0", CopyCall(path), str(target), bytes_max)


def send(source: Path) -> None:
    copy_in(Task(b"name\n"), "/v1/tasks/ann/web/0", CopyCall("a", to_task=True), str(source), 10**6)


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("web/0:logs/a", Place("web/0", "logs/a")),
        ("ann/web/12:/etc/a:b", Place("ann/web/12", "/etc/a:b")),
        ("web/0:", Place("web/0", ".")),
        ("./web/0:logs", Place("", "./web/0:logs")),
        ("/tmp/web/0:x", Place("", "/tmp/web/0:x")),
        ("web:logs", Place("", "web:logs")),
        ("logs", Place("", "logs")),
    ],
)
def test_sides_of_a_copy(text: str, place: Place) -> None:
    assert split_place(text) == place


def test_a_tree_goes_under_its_name_or_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = packed(
        member("./logs", tarfile.DIRTYPE, mode=0o500),
        member("./logs/a", mode=0o4755),
        member("./logs/same", tarfile.LNKTYPE, "./logs/a"),
        member("./logs/short", tarfile.SYMTYPE, "a"),
        member("./logs/away", tarfile.SYMTYPE, "../../etc"),
        member("./logs/dev", tarfile.CHRTYPE),
    )
    fetch(said + b"tar: ./logs/b: file changed as we read it", tmp_path)
    assert everything(tmp_path) == ["logs", "logs/a", "logs/same", "logs/short"]
    assert (tmp_path / "logs/a").stat().st_mode & 0o7777 == 0o755, "nothing that sets a user"
    heard = capsys.readouterr()
    assert "away: a link that leads elsewhere" in heard.err
    assert "changed as we read it" in heard.err
    assert heard.out == "copied 3 files, 700B\n"
    fetch(said, tmp_path / "new")
    assert (tmp_path / "new/short").read_bytes() == b"x" * 700


def test_modes_are_cut_by_the_umask(tmp_path: Path) -> None:
    sent = packed(
        member("./logs", tarfile.DIRTYPE, mode=0o7777),
        member("./logs/a", mode=0o7777),
        member("./logs/shut", tarfile.DIRTYPE, mode=0o100),
        member("./logs/shut/b", mode=0o400),
    )
    before = os.umask(0o027)
    try:
        fetch(sent, tmp_path)
    finally:
        os.umask(before)
    modes = {name: (tmp_path / name).stat().st_mode & 0o7777 for name in everything(tmp_path)}
    assert modes == {"logs": 0o750, "logs/a": 0o750, "logs/shut": 0o700, "logs/shut/b": 0o400}


@pytest.mark.parametrize(
    "members",
    [
        pytest.param((member("./logs/../../evil"),), id="upwards"),
        pytest.param((member("/evil"),), id="absolute"),
        pytest.param((member("./other/evil"),), id="another name"),
        pytest.param((member("./logs", tarfile.LNKTYPE, "/etc/passwd"),), id="hard link to elsewhere"),
        pytest.param((member("./logs/a/b", tarfile.LNKTYPE, "./logs/../../x"),), id="hard link upwards"),
    ],
)
def test_what_was_not_asked_for_is_refused(tmp_path: Path, members: tuple[tarfile.TarInfo, ...]) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(BorgishError, match="not asked for"):
        fetch(packed(*members), tmp_path / "in")
    assert not (tmp_path / "evil").exists()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("pax", "link"),
    [
        pytest.param({"path": "./a\0b"}, "", id="NUL in its name"),
        pytest.param({"mtime": "nan"}, "", id="no time"),
        pytest.param({"mtime": "1e300"}, "", id="a time too late"),
        pytest.param({}, ".", id="a hard link to the folder itself"),
    ],
)
def test_what_no_file_can_be_is_an_error(tmp_path: Path, pax: dict[str, str], link: str) -> None:
    info = member("./a", tarfile.LNKTYPE if link else tarfile.REGTYPE, link)
    info.pax_headers = pax
    with pytest.raises(BorgishError, match=r"The task sent .*, which"):
        fetch(packed(info), tmp_path, path=".")


def test_no_link_is_followed_on_the_way(tmp_path: Path) -> None:
    """Neither one that was sent before, nor one that is there."""
    outside, inside = tmp_path / "outside", tmp_path / "in"
    outside.mkdir()
    inside.mkdir()
    sent = packed(
        member("./logs", tarfile.DIRTYPE),
        member("./logs/d", tarfile.SYMTYPE, "e"),
        member("./logs/e", tarfile.DIRTYPE),
        member("./logs/d/evil"),
    )
    with pytest.raises(BorgishError, match=r"directory|symbolic"):
        fetch(sent, inside)
    assert everything(inside / "logs/e") == []
    (inside / "logs/f").symlink_to(outside)
    with pytest.raises(BorgishError, match=r"directory|symbolic"):
        fetch(packed(member("./logs/f/evil")), inside)
    (inside / "logs/g").symlink_to(outside / "g")
    fetch(packed(member("./logs/g")), inside)
    assert not (inside / "logs/g").is_symlink()
    assert everything(outside) == []


def test_a_copy_has_its_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BorgishError, match="more than 1000B"):
        fetch(packed(member("./logs"), content=b"x" * 1001), tmp_path, bytes_max=1000)
    monkeypatch.setattr(task_cp, "FILES_MAX", 1)
    with pytest.raises(BorgishError, match="more than 1 folders"):
        fetch(
            packed(member("./logs", tarfile.DIRTYPE), member("./logs/a", tarfile.DIRTYPE)), tmp_path / "new"
        )
    with pytest.raises(BorgishError, match="more than 1 folders"):
        fetch(packed(member("./logs/" + "d/" * 30 + "a")), tmp_path / "deep")
    assert len(everything(tmp_path / "deep")) <= 2
    with pytest.raises(BorgishError, match="a path of more than"):
        fetch(packed(member("./logs/" + "d/" * 30_000 + "a")), tmp_path / "deeper")
    assert everything(tmp_path / "deeper") == []
    endless = member("./@LongLink", tarfile.GNUTYPE_LONGNAME)
    endless.size = 2 * HEADERS_BYTES_MAX
    with pytest.raises(BorgishError):
        fetch(endless.tobuf(tarfile.GNU_FORMAT) + b"a" * endless.size, tmp_path)


def unknown(size: int) -> bytes:
    info = member("./logs", b"Z")
    info.size = size
    return info.tobuf()


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(packed(member("./logs")), id="an archive"),
        pytest.param(b"x" * 10240, id="no archive"),
        pytest.param(unknown(10**9), id="content of what is no file"),
    ],
)
def test_what_follows_an_archive_has_its_bounds(tmp_path: Path, before: bytes) -> None:
    sent = before + bytes(2 * task_cp.REST_BYTES_MAX)
    task = Task(sent)
    with pytest.raises(BorgishError, match="behind"):
        copy_out(task, "/v1/tasks/ann/web/0", CopyCall("logs"), str(tmp_path), 10**6)
    assert task.given < task_cp.REST_BYTES_MAX + 2 * HEADERS_BYTES_MAX


@pytest.mark.parametrize(
    ("said", "code"),
    [(b"tar: ./logs: no such \x1b[2Jfile", 2), (packed() + b"tar: ./logs: no such \x1b[2Jfile", 2)],
)
def test_what_tar_says_is_passed_on(tmp_path: Path, said: bytes, code: int) -> None:
    with pytest.raises(BorgishError, match=r"tar: ./logs: no such \\x1b\[2Jfile"):
        fetch(said, tmp_path, code)


def test_what_is_not_here_is_not_copied(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no file or folder"):
        copy_in(Task(b""), "/v1/tasks/ann/web/0", CopyCall("a", to_task=True), str(tmp_path / "a"), 1)


def test_the_reason_is_shown_and_no_remark(tmp_path: Path) -> None:
    said = (
        b"tar: Removing leading `/' from member names\n"
        b"tar: ./d/sock: socket ignored\n"
        b"tar: ./d/log: file changed as we read it\n"
        b"tar: ./d/shut: Cannot open: Permission denied\n"
        b"tar: Exiting with failure status due to previous errors"
    )
    with pytest.raises(BorgishError, match=r"it: tar: ./d/shut: Cannot open: Permission denied\. It is"):
        fetch(packed() + said, tmp_path, 2)
    with pytest.raises(BorgishError, match=r"it: tar: ./d/sock: socket ignored\. It is"):
        fetch(packed() + b"tar: ./d/sock: socket ignored\n", tmp_path, 2)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param(packed(member("./logs", tarfile.FIFOTYPE)), "no file, folder or link", id="a fifo"),
        pytest.param(
            packed(member("./logs", tarfile.SYMTYPE, "/etc")),
            "a link that leads elsewhere, to /etc",
            id="a link",
        ),
        pytest.param(packed() + b"tar: ./logs: socket ignored", "socket ignored", id="a socket"),
    ],
)
def test_what_was_asked_for_and_left_out_is_an_error(
    tmp_path: Path, said: bytes, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BorgishError, match="Nothing was copied"):
        fetch(said, tmp_path)
    heard = capsys.readouterr()
    assert why in heard.err
    assert heard.out == ""


def test_into_a_task_what_is_no_file_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(folder / "sock"))
    for name in ("fifo", "sock"):
        with pytest.raises(BorgishError, match="Nothing was copied"):
            send(folder / name)
        assert f"{name}: it is no file, folder or link" in capsys.readouterr().err
    send(folder)
    heard = capsys.readouterr()
    assert heard.err.count("left out") == 2
    assert heard.out == "copied 0 files, 0B\n"


@pytest.mark.parametrize(("source", "target"), [("web/0:logs", ""), ("", "web/0:logs")])
def test_an_empty_path_is_a_mistake(
    source: str, target: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("task", "cp", source, target) == 2
    assert "a path is empty" in capsys.readouterr().err
