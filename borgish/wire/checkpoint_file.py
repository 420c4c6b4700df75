"""A checkpoint outside of its cell: a mark, one line of JSON about it, and the body as it was stored.

The journal after it may follow (format 2), for a checkpoint says how a cell was, not who changed it. The line
has the SHA-256 of both, so a torn or altered file is found wherever it has been. What is in them is for who
knows cells.
"""

import hashlib

import msgspec

from borgish.errors import StoreDamaged, UnsafeConfiguration

MARK = b"borgish checkpoint "
VERSION = 1
VERSION_WITH_JOURNAL = 2
_HINT = "Use another one: `borgctl checkpoint verify` says which of the kept ones are good"


class JournalPart(msgspec.Struct, frozen=True):
    """What is said of the journal in the file: so many entries, up to this position."""

    entries: int
    last: int
    bytes: int
    sha256: str


class CheckpointHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is said of the body."""

    cell: str
    position: int
    at: float  # seconds since 1970
    reason: str
    name: str
    bytes: int
    sha256: str
    journal: JournalPart | None = None  # None: the file has none


_decode_header = msgspec.json.Decoder(CheckpointHeader).decode


def pack_checkpoint(header: CheckpointHeader, stored: bytes, journal: bytes = b"") -> bytes:
    """Return the whole file. ``journal`` is there when the header says so."""
    version = VERSION if header.journal is None else VERSION_WITH_JOURNAL
    return b"%s%d\n%s\n%s%s" % (MARK, version, msgspec.json.encode(header), stored, journal)


def is_checkpoint(start: bytes) -> bool:
    """Return whether a file that starts like this is a checkpoint, of whatever version."""
    return start.startswith(MARK)


def unpack_checkpoint(file: bytes) -> tuple[CheckpointHeader, bytes]:
    """Return what is said of the body, and the body, which is as it was stored.

    Raises what ``unpack_with_journal`` raises.
    """
    header, stored, _ = unpack_with_journal(file)
    return header, stored


def unpack_with_journal(file: bytes) -> tuple[CheckpointHeader, bytes, bytes]:
    """Return what is said of the body, the body, and the journal after it: b"" for none.

    Raises StoreDamaged for a file that is torn or altered or none of these, UnsafeConfiguration for one
    of another version.
    """
    first, _, rest = file.partition(b"\n")
    version = first.removeprefix(MARK)
    if not (is_checkpoint(first) and version.isdigit()):
        raise StoreDamaged("This is not a checkpoint of a cell", _HINT)
    if version not in (b"%d" % VERSION, b"%d" % VERSION_WITH_JOURNAL):
        raise UnsafeConfiguration(
            f"The file is a checkpoint of format {version[:9].decode()}; this borgish reads "
            f"{VERSION} and {VERSION_WITH_JOURNAL}",
            "Use the version of borgish that wrote it",
        )
    line, _, body = rest.partition(b"\n")
    try:
        header = _decode_header(line)
    except msgspec.DecodeError as error:
        raise StoreDamaged(f"The checkpoint's header cannot be read: {error}", _HINT) from error
    if (header.journal is not None) is not (version == b"%d" % VERSION_WITH_JOURNAL):
        raise StoreDamaged("The checkpoint's header was altered", _HINT)
    return header, *_parts(header, body)


def _parts(header: CheckpointHeader, body: bytes) -> tuple[bytes, bytes]:
    part = header.journal
    size = header.bytes + (part.bytes if part else 0)
    if len(body) != size or header.bytes < 0 or (part and part.bytes < 0):
        raise StoreDamaged(
            f"The checkpoint has {len(body)} bytes of {size}: it was truncated or altered", _HINT
        )
    stored, journal = body[: header.bytes], body[header.bytes :]
    if hashlib.sha256(stored).hexdigest() != header.sha256:
        raise StoreDamaged("The checkpoint's SHA-256 does not match: it was altered", _HINT)
    if part and hashlib.sha256(journal).hexdigest() != part.sha256:
        raise StoreDamaged("The SHA-256 of its journal does not match: it was altered", _HINT)
    return stored, journal
