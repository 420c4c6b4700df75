"""A checkpoint outside of its cell: a mark, one line of JSON about it, and the body as it was stored.

The line has the body's SHA-256, so a torn or altered file is found wherever it has been. What is in the
body is for who knows cells.
"""

import hashlib

import msgspec

from borgish.errors import StoreDamaged, UnsafeConfiguration

MARK = b"borgish checkpoint "
VERSION = 1
_HINT = "Use another one: `borgctl checkpoint verify` says which of the kept ones are good"


class CheckpointHeader(msgspec.Struct, frozen=True):
    """What is said of the body."""

    cell: str
    position: int
    at: float  # seconds since 1970
    reason: str
    name: str
    bytes: int
    sha256: str


_decode_header = msgspec.json.Decoder(CheckpointHeader).decode


def pack_checkpoint(header: CheckpointHeader, stored: bytes) -> bytes:
    """Return the whole file."""
    return b"%s%d\n%s\n%s" % (MARK, VERSION, msgspec.json.encode(header), stored)


def is_checkpoint(start: bytes) -> bool:
    """Return whether a file that starts like this is a checkpoint, of whatever version."""
    return start.startswith(MARK)


def unpack_checkpoint(file: bytes) -> tuple[CheckpointHeader, bytes]:
    """Return what is said of the body, and the body, which is as it was stored.

    Raises StoreDamaged for a file that is torn or altered or none of these, UnsafeConfiguration for one
    of another version.
    """
    first, _, rest = file.partition(b"\n")
    version = first.removeprefix(MARK)
    if not (is_checkpoint(first) and version.isdigit()):
        raise StoreDamaged("This is no checkpoint of a cell", _HINT)
    if version != b"%d" % VERSION:
        raise UnsafeConfiguration(
            f"The file is a checkpoint of format {version[:9].decode()}; this borgish reads format {VERSION}",
            "Use the version of borgish that wrote it",
        )
    line, _, stored = rest.partition(b"\n")
    try:
        header = _decode_header(line)
    except msgspec.DecodeError as error:
        raise StoreDamaged(f"What the checkpoint says of itself cannot be read: {error}", _HINT) from error
    _expect_whole(header, stored)
    return header, stored


def _expect_whole(header: CheckpointHeader, stored: bytes) -> None:
    if len(stored) != header.bytes:
        raise StoreDamaged(
            f"The checkpoint has {len(stored)} bytes of {header.bytes}: it was torn off, or altered", _HINT
        )
    if hashlib.sha256(stored).hexdigest() != header.sha256:
        raise StoreDamaged("The checkpoint's SHA-256 does not match: it was altered", _HINT)
