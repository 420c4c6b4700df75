"""The lock on a store: one holder, who may be gone while a child that it forked still has it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from borgish.errors import InUse
from borgish.store import leadership
from borgish.store.leadership import FileLock

TAKE_AND_FORK = """\
import os, sys
from pathlib import Path
from borgish.store.leadership import FileLock

held = FileLock(Path(sys.argv[1]))
if os.fork():  # the child has the lock until it ends, when nobody writes to it any more
    os._exit(0)
sys.stdin.read(1)
"""


def orphan(path: Path) -> subprocess.Popen[bytes]:
    """Leave a lock to the child of a process that is gone; it ends when it is told."""
    process = subprocess.Popen([sys.executable, "-c", TAKE_AND_FORK, str(path)], stdin=subprocess.PIPE)
    process.wait()
    return process


def let_end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def test_one_has_it(tmp_path: Path) -> None:
    held = FileLock(tmp_path / "lock")
    with pytest.raises(InUse, match=f"process {os.getpid()} holds "):
        FileLock(tmp_path / "lock")
    held.release()
    FileLock(tmp_path / "lock").release()


def test_what_a_child_of_one_that_is_gone_has_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "HOLDER_EXIT_SECONDS_MAX", 60.0)
    process = orphan(tmp_path / "lock")
    monkeypatch.setattr("borgish.store.leadership.time.sleep", lambda _seconds: let_end(process))
    FileLock(tmp_path / "lock").release()


def test_it_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "HOLDER_EXIT_SECONDS_MAX", 0.05)
    process = orphan(tmp_path / "lock")
    with pytest.raises(InUse, match=f"process {process.pid} holds "):
        FileLock(tmp_path / "lock")
    let_end(process)


@pytest.mark.parametrize("said", ["", "not a number", "-", "9" * 30])
def test_nobody_who_cannot_be_known_is_waited_for(
    tmp_path: Path, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = FileLock(tmp_path / "lock")
    (tmp_path / "lock").write_text(said)
    monkeypatch.setattr("borgish.store.leadership.time.sleep", pytest.fail)
    with pytest.raises(InUse):
        FileLock(tmp_path / "lock")
    held.release()
