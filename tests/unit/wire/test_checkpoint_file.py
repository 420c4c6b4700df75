"""A checkpoint outside of its cell: whole, or known not to be."""

import hashlib

import pytest

from borgish.errors import BorgishError, StoreDamaged, UnsafeConfiguration
from borgish.wire.checkpoint_file import CheckpointHeader, is_checkpoint, pack_checkpoint, unpack_checkpoint

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
    with pytest.raises(UnsafeConfiguration, match="format 2;"):
        unpack_checkpoint(FILE.replace(b"checkpoint 1", b"checkpoint 2", 1))


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\0", b"borgish snapshot 1\n", b"borgish checkpoint x\n"]
)
def test_another_file_is_none(content: bytes) -> None:
    with pytest.raises(StoreDamaged, match="no checkpoint"):
        unpack_checkpoint(content)
