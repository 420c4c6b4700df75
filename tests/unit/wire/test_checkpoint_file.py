"""A checkpoint outside of its cell: whole, or known not to be."""

import hashlib

import msgspec
import pytest

from borgish.errors import BorgishError, StoreDamaged, UnsafeConfiguration
from borgish.wire.checkpoint_file import (
    CheckpointHeader,
    JournalPart,
    is_checkpoint,
    pack_checkpoint,
    unpack_checkpoint,
    unpack_with_journal,
)

STORED = b"\x28\xb5\x2f\xfd any\nbytes\x00\xff"
HEADER = CheckpointHeader(
    "local", 7, 1.25, "ön\ndemand", "noon", len(STORED), hashlib.sha256(STORED).hexdigest()
)
FILE = pack_checkpoint(HEADER, STORED)


def test_what_is_packed_is_unpacked() -> None:
    assert is_checkpoint(FILE)
    assert unpack_checkpoint(FILE) == (HEADER, STORED)


@pytest.mark.parametrize("length", range(len(FILE)))
def test_a_torn_file_is_known(length: int) -> None:
    with pytest.raises(StoreDamaged):
        unpack_checkpoint(FILE[:length])


@pytest.mark.parametrize("at", range(len(FILE) - len(STORED), len(FILE)))
def test_an_altered_body_is_known(at: int) -> None:
    altered = FILE[:at] + bytes([FILE[at] ^ 1]) + FILE[at + 1 :]
    with pytest.raises(StoreDamaged, match="does not match"):
        unpack_checkpoint(altered)


@pytest.mark.parametrize("more", [b"\0", FILE])
def test_what_was_added_is_known(more: bytes) -> None:
    with pytest.raises(BorgishError, match="altered"):
        unpack_checkpoint(FILE + more)


def test_another_version_is_named() -> None:
    with pytest.raises(UnsafeConfiguration, match="format 3;"):
        unpack_checkpoint(FILE.replace(b"checkpoint 1", b"checkpoint 3", 1))


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\0", b"borgish snapshot 1\n", b"borgish checkpoint x\n"]
)
def test_another_file_is_none(content: bytes) -> None:
    with pytest.raises(StoreDamaged, match="not a checkpoint"):
        unpack_checkpoint(content)


JOURNAL = b"what\nhappened"
PART = JournalPart(2, 9, len(JOURNAL), hashlib.sha256(JOURNAL).hexdigest())
WITH_JOURNAL = pack_checkpoint(msgspec.structs.replace(HEADER, journal=PART), STORED, JOURNAL)


def test_a_journal_goes_with_it() -> None:
    header, stored, journal = unpack_with_journal(WITH_JOURNAL)
    assert (header.journal, stored, journal) == (PART, STORED, JOURNAL)
    assert unpack_checkpoint(WITH_JOURNAL)[1] == STORED
    assert unpack_with_journal(FILE) == (HEADER, STORED, b"")


@pytest.mark.parametrize("length", range(len(WITH_JOURNAL)))
def test_a_torn_file_with_a_journal_is_known(length: int) -> None:
    with pytest.raises(StoreDamaged):
        unpack_with_journal(WITH_JOURNAL[:length])


def test_an_altered_journal_is_known() -> None:
    with pytest.raises(StoreDamaged, match="of its journal does not match"):
        unpack_with_journal(WITH_JOURNAL[:-1] + b"!")


@pytest.mark.parametrize(("file", "to"), [(WITH_JOURNAL, b"1"), (FILE, b"2")])
def test_a_version_that_does_not_go_with_it_is_known(file: bytes, to: bytes) -> None:
    with pytest.raises(StoreDamaged, match="altered"):
        unpack_with_journal(file[:19] + to + file[20:])
