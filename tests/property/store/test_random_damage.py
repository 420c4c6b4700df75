"""A database file is damaged anywhere: it is brought back whole up to some position, or said to be lost."""

import random
from contextlib import closing
from pathlib import Path

import pytest

from borgish.cell.events import JobSubmitted
from borgish.errors import StoreDamaged
from borgish.store.codec import sha256_of
from borgish.store.open import open_store
from borgish.store.recovery import Recovery
from borgish.store.tables import differences
from tests.contract.store.samples import CELL, Life, body_of, job
from tests.profiles import examples

DAMAGES = examples(40)  # of each kind
PAGE_BYTES = 4096


def flip(data: bytearray, at: int) -> None:
    data[at] ^= 1 << at % 8


def cut(data: bytearray, at: int) -> None:
    del data[at:]


def blank(data: bytearray, at: int) -> None:
    data[at : at + PAGE_BYTES - at % PAGE_BYTES] = bytes(min(PAGE_BYTES - at % PAGE_BYTES, len(data) - at))


def lived(url: str) -> dict[int, str]:
    """Give a store a past; return the SHA-256 of the cell at each position."""
    life, bodies = Life(open_store(url, CELL)), {}
    life.story()
    for number in range(40):
        life.do(JobSubmitted(job(f"job{number}", tasks=5)))
        bodies[life.cell.position] = sha256_of(life.body())
        if number % 8 == 0:
            life.checkpoint()
    life.store.close()
    return bodies


@pytest.mark.parametrize("damage", [flip, cut, blank])
def test_what_comes_back_is_whole(tmp_path: Path, damage: object) -> None:
    file, chance = tmp_path / "cell.db", random.Random(7)
    bodies = lived(f"sqlite:///{file}")
    sound = file.read_bytes()
    saved = 0
    for number in range(DAMAGES):
        data = bytearray(sound)
        # Everywhere alike: how much can be saved depends on where it is.
        at = int((number + chance.random()) / DAMAGES * len(data))
        damage(data, at)  # type: ignore[operator]  # one of the three
        for old in tmp_path.iterdir():
            old.unlink()
        file.write_bytes(data)
        saved += came_back(file, bodies, exact=damage is not flip)
    assert saved > DAMAGES / 3


def came_back(file: Path, bodies: dict[int, str], *, exact: bool) -> bool:
    """Bring a store back and judge it; return whether there was anything to go on from.

    A bit that is turned in a text of the journal makes another text, and nothing tells.
    """
    try:
        done = Recovery(f"sqlite:///{file}", CELL, file.parent, 1.0).recover()
    except StoreDamaged:
        return False
    with closing(open_store(f"sqlite:///{file}", CELL)) as store:
        cell = store.load()
        assert store.warnings == []
        assert differences(cell, store.table_rows) == []
        if exact and not done.saved.resumes_at:
            assert sha256_of(body_of(cell)) == bodies[cell.position]
        assert done.saved.resumes_at in (0, cell.position)
        Life(store).do()
    if done.checkpoint is not None:
        assert any(kept.name.startswith("cell.db.damaged-") for kept in file.parent.iterdir())
    return True


def test_a_schema_that_is_no_text_any_more(tmp_path: Path) -> None:
    """SQLite names what it cannot read, and what it names are bytes."""
    file = tmp_path / "cell.db"
    bodies = lived(f"sqlite:///{file}")
    sound, at = file.read_bytes(), 0
    for _ in range(6):
        at = sound.index(b"CREATE TABLE ", at + 1)
        data = bytearray(sound)
        data[at + 2], data[at + 16] = 0xAC, 0xAC
        for old in tmp_path.iterdir():
            old.unlink()
        file.write_bytes(data)
        came_back(file, bodies, exact=False)
