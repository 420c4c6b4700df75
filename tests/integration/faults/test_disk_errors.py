"""Each write and each sync of SQLite's file fails once: the store ends, and has all of it or nothing."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from borgish.cell.events import JobSubmitted
from borgish.errors import BorgishError, OutcomeUnknown, UnsafeConfiguration
from borgish.store import sqlite
from borgish.store.codec import sha256_of
from borgish.store.open import open_store
from borgish.store.tables import differences
from tests.contract.store.samples import CELL, Life, body_of, job
from tests.faults.vfs import FULL, READ_ONLY, SYNC_FAILED, WRITE_FAILED, Done, Watched, watched

ERRORS = [
    pytest.param(FULL, "disk is full", "Make room", id="full"),
    pytest.param(WRITE_FAILED, "disk I/O error", "Look at the disk", id="write"),
    pytest.param(SYNC_FAILED, "disk I/O error", "Look at the disk", id="sync"),
]
WHAT_IS_DONE: dict[str, Callable[[Life], object]] = {
    "append": lambda life: life.do(JobSubmitted(job("large", tasks=200))),
    "checkpoint": Life.checkpoint,
    "lead": lambda life: life.store.lead("me", "here"),
}


class Failing:
    """Fails one write (or sync) after so many, once."""

    def __init__(self, code: int, after: int) -> None:
        self.left = after
        self._code = code

    def __call__(self, change: Done) -> int:
        if change.what != ("sync" if self._code == SYNC_FAILED else "write"):
            return 0
        self.left -= 1
        return self._code if self.left == -1 else 0

    @property
    def is_over(self) -> bool:
        return self.left < 0


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """A disk with a WAL that is carried over often: those writes are to fail as well."""
    pragmas = [pragma for pragma in sqlite._PRAGMAS if "wal_autocheckpoint" not in pragma]
    monkeypatch.setattr(sqlite, "_PRAGMAS", (*pragmas, "wal_autocheckpoint = 8"))
    with watched() as watching:
        yield watching


@pytest.mark.parametrize("done", WHAT_IS_DONE)
@pytest.mark.parametrize(("code", "said", "way_out"), ERRORS)
def test_a_failed_write_is_there_or_not(
    disk: Watched, tmp_path: Path, code: int, said: str, way_out: str, done: str
) -> None:
    failed = 0
    for after in range(0, 60, 3):
        url = f"sqlite:///{tmp_path}/{after}.db"
        life = Life(open_store(url, CELL))
        life.story()
        allowed = {sha256_of(life.body())}
        disk.refuse = failing = Failing(code, after)
        error = tried(WHAT_IS_DONE[done], life)
        disk.refuse = lambda _: 0
        allowed |= {sha256_of(life.body())}
        if isinstance(error, OutcomeUnknown):
            failed += 1
            assert said in error.message
            assert way_out in error.hint
            assert tried(Life.do, life) is error  # nothing more is done with it
        elif error is None:  # it was the WAL that could not be carried over: another time
            life.do()
            allowed = {sha256_of(life.body())}
        life.store.close()
        assert_sound(url, allowed)
        if not failing.is_over:
            break
    assert failed > 0


def tried(do: Callable[[Life], object], life: Life) -> BorgishError | None:
    """Do it, and return the error; there may be none but ours."""
    try:
        do(life)
    except BorgishError as error:
        return error
    return None


def assert_sound(url: str, allowed: set[str]) -> None:
    store = open_store(url, CELL)
    try:
        cell = store.load()
        assert sha256_of(body_of(cell)) in allowed
        assert store.warnings == []
        assert differences(cell, store.table_rows) == []
        Life(store).do()
    finally:
        store.close()


def opened(url: str) -> BorgishError | None:
    try:
        open_store(url, CELL).close()
    except BorgishError as error:
        return error
    return None


@pytest.mark.parametrize(("code", "said", "way_out"), ERRORS)
def test_a_failed_first_start_leaves_nothing_by_half(
    disk: Watched, tmp_path: Path, code: int, said: str, way_out: str
) -> None:
    failed = 0
    for after in range(0, 40, 1 if code == SYNC_FAILED else 6):
        url = f"sqlite:///{tmp_path}/{after}.db"
        disk.refuse = failing = Failing(code, after)
        if error := opened(url):
            failed += 1
            assert said in error.message or "stays in mode" in error.message
            assert way_out in error.hint or "local disk" in error.hint
        disk.refuse = lambda _: 0
        store = open_store(url, CELL)
        Life(store).story()
        store.close()
        if not failing.is_over:
            break
    assert failed > 1


def test_a_file_that_may_only_be_read(disk: Watched, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/cell.db"
    life = Life(open_store(url, CELL))
    life.story()
    body = life.body()
    disk.refuse = lambda change: READ_ONLY if change.what == "write" else 0
    with pytest.raises(OutcomeUnknown, match="readonly database") as caught:
        life.do()
    assert "Let this user write" in caught.value.hint
    disk.refuse = lambda _: 0
    life.store.close()
    assert_sound(url, {sha256_of(body)})


def test_a_file_that_cannot_be_opened_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opening = os.open

    def refuse(path: Path, *given: int) -> int:
        if str(path).endswith("cell.db"):
            raise OSError(errno.EROFS, "Read-only file system")
        return opening(path, *given)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UnsafeConfiguration, match=r"cell\.db cannot be opened: Read-only file system"):
        open_store(f"sqlite:///{tmp_path}/cell.db", CELL)


def test_a_disk_on_which_there_can_be_no_wal(disk: Watched, tmp_path: Path) -> None:
    """SQLite says so in an answer, not by an error, and would go on in another way."""
    disk.has_shared_memory = False
    with pytest.raises(UnsafeConfiguration, match="stays in mode 'delete'") as caught:
        open_store(f"sqlite:///{tmp_path}/cell.db", CELL)
    assert "local disk" in caught.value.hint
