"""Encodes journal entries and snapshots: JSON for the journal, msgpack and zstd for checkpoints.

Snapshots carry a version. What another version or another cell wrote is refused, never guessed.
"""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args, get_origin

import msgspec

from borgish.cell.events import AnyEvent, Entry, Recorded
from borgish.cell.model import Snapshot
from borgish.errors import StoreDamaged, TooLarge, UnsafeConfiguration

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SNAPSHOT_VERSION = 1
ZSTD_LEVEL = 3
SNAPSHOT_BYTES_MAX = 4 * 1024**3
"""Decompressed; a cell of 200,000 tasks has a hundredth of it."""

_PIECE_BYTES = 1024**2
_MARK = b"borgish snapshot "
_HEADER_BYTES_MAX = 64

DECOMPRESS_ERRORS = (zstd.ZstdError, EOFError)
"""What ``decompress_pieces`` raises."""

_encoder = msgspec.json.Encoder()
_events_decoder = msgspec.json.Decoder(tuple[AnyEvent, ...])
_command_decoder = msgspec.json.Decoder(Recorded)
_entry_decoder = msgspec.json.Decoder(Entry)
_snapshot_encoder = msgspec.msgpack.Encoder()

# A snapshot is read a record at a time: one of a large cell, read in one go, holds the interpreter for a
# tenth of a second, and with it the turns of a borgmaster that reads old checkpoints.
_split_map = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode
_NO_RECORDS = b"\x80"  # an empty map
_WHOLE = {
    field.name: msgspec.msgpack.Decoder(field.type).decode
    for field in msgspec.structs.fields(Snapshot)
    if get_origin(field.type) is not dict
}
_RECORDS = {
    field.name: msgspec.msgpack.Decoder(get_args(field.type)[1]).decode
    for field in msgspec.structs.fields(Snapshot)
    if get_origin(field.type) is dict
}


_RENAMED = {"RollbackWentOn": "RolloutWentOn", "RollbackPaused": "RolloutPaused"}
"""Events by the names that older journals have for them."""


def _by_present_names(text: str) -> str:
    # Inside a JSON string the quotes would be escaped, so that only names of events are found.
    for old, new in _RENAMED.items():
        if old in text:
            text = text.replace(f'"type":"{old}"', f'"type":"{new}"')
    return text


def encode_events(events: tuple[AnyEvent, ...]) -> str:
    """Return one entry's events as JSON text."""
    return _encoder.encode(events).decode()


def decode_events(text: str, position: int) -> tuple[AnyEvent, ...]:
    """Read one entry's events. Raises StoreDamaged, naming the entry."""
    try:
        return _events_decoder.decode(_by_present_names(text))
    except msgspec.DecodeError as error:
        raise _unreadable(position, error) from error


def encode_command(command: Recorded | None) -> str | None:
    """Return what is kept of an entry's commands as JSON text; None where they were not recorded."""
    return None if command is None else _encoder.encode(command).decode()


def decode_command(text: str | None, position: int) -> Recorded | None:
    """Read what is kept of one entry's commands. Raises StoreDamaged, naming the entry."""
    try:
        return None if text is None else _command_decoder.decode(text)
    except msgspec.DecodeError as error:
        raise _unreadable(position, error) from error


def _unreadable(position: int, error: msgspec.DecodeError) -> StoreDamaged:
    return StoreDamaged(
        f"Journal entry {position} cannot be read: {error}",
        "Use the version of borgish that wrote it; of damage the borgmaster's log says what can be saved",
    )


def encode_snapshot(snapshot: Snapshot) -> bytearray:
    """Return the snapshot as bytes, not yet compressed. The turn waits for this, so nothing is copied."""
    body = bytearray(b"%s%d\n" % (_MARK, SNAPSHOT_VERSION))
    _snapshot_encoder.encode_into(snapshot, body, len(body))
    return body


def encode_record(record: msgspec.Struct) -> bytes:
    """Return a record as it stands in a snapshot."""
    return _snapshot_encoder.encode(record)


def encode_in_pieces(snapshot: Snapshot, encoded: Mapping[str, dict[str, bytes]]) -> Iterator[bytes]:
    """Return what ``encode_snapshot`` does, in pieces, where the records of some fields are encoded already,
    by field and key (``encode_record``).

    All else is encoded, and the order of the records taken, before this returns. The encoded are taken out as
    they are needed, so that they are let go of one by one.
    """
    parts: list[tuple[bytes, list[str], dict[str, bytes]]] = []  # what is before records, and these
    fields = msgspec.structs.fields(Snapshot)
    body = bytearray(b"%s%d\n" % (_MARK, SNAPSHOT_VERSION)) + _map_header(len(fields))
    for field in fields:
        value = getattr(snapshot, field.name)
        body += _snapshot_encoder.encode(field.name)
        if field.name in encoded:
            parts.append((bytes(body + _map_header(len(value))), list(value), encoded[field.name]))
            body = bytearray()
        else:
            body += _snapshot_encoder.encode(value)
    return _pieces(parts, bytes(body))


def _pieces(parts: list[tuple[bytes, list[str], dict[str, bytes]]], end: bytes) -> Iterator[bytes]:
    for before, keys, records in parts:
        yield before
        for key in keys:
            yield _snapshot_encoder.encode(key)
            yield records.pop(key)
    yield end


def _map_header(count: int) -> bytes:
    """Return how msgpack begins a map of so many, as short as may be."""
    if count < 16:
        return bytes([0x80 | count])
    return b"\xde" + count.to_bytes(2, "big") if count < 2**16 else b"\xdf" + count.to_bytes(4, "big")


def decode_snapshot(body: bytes | bytearray, cell: str) -> Snapshot:
    """Read what ``encode_snapshot`` wrote.

    Raises StoreDamaged when it is no snapshot, UnsafeConfiguration when it is another version's or
    another cell's.
    """
    header, found, _ = body[:_HEADER_BYTES_MAX].partition(b"\n")
    version = header.removeprefix(_MARK)
    if not (found and header.startswith(_MARK) and version.isdigit()):
        raise StoreDamaged("This is not a snapshot of a cell", "Use another checkpoint")
    if int(version) != SNAPSHOT_VERSION:
        raise UnsafeConfiguration(
            f"The checkpoint has format {int(version)}; this borgish reads format {SNAPSHOT_VERSION}",
            "Use the version of borgish that wrote it",
        )
    return _of_cell(_decoded(memoryview(body)[len(header) + 1 :]), cell)


def _decoded(packed: memoryview) -> Snapshot:
    try:
        fields = _split_map(packed)
        found: dict[str, Any] = {name: read(fields[name]) for name, read in _WHOLE.items() if name in fields}
        for name, read in _RECORDS.items():
            found[name] = {
                key: read(record) for key, record in _split_map(fields.get(name, _NO_RECORDS)).items()
            }
        return Snapshot(**found)
    except (msgspec.DecodeError, TypeError) as error:  # TypeError: one without a name
        raise StoreDamaged(f"A snapshot cannot be read: {error}", "Use another checkpoint") from error


def _of_cell(snapshot: Snapshot, cell: str) -> Snapshot:
    if snapshot.name != cell:
        raise UnsafeConfiguration(
            f"The checkpoint is of cell '{snapshot.name}', not of '{cell}'",
            "Name the right cell, or the right database",
        )
    return snapshot


def compress(body: bytes | bytearray) -> bytes:
    """Return the body as it is stored."""
    return zstd.compress(body, ZSTD_LEVEL)


def compress_pieces(pieces: Iterable[bytes]) -> bytes:
    """Return a body that comes in pieces as it is stored; other threads run in between."""
    compressor, stored, waiting = zstd.ZstdCompressor(level=ZSTD_LEVEL), bytearray(), bytearray()
    for piece in pieces:
        waiting += piece
        # Each call gives up the interpreter, and waits until whoever has it gives it back.
        if len(waiting) >= _PIECE_BYTES:
            stored += compressor.compress(waiting)
            waiting.clear()
    return bytes(stored + compressor.compress(waiting) + compressor.flush())


def decompress(stored: bytes, sha256: str) -> bytearray:
    """Return the body of what is stored, after verifying it. Raises StoreDamaged."""
    if sha256_of(stored) != sha256:
        raise StoreDamaged("The checkpoint's SHA-256 does not match", "Use another checkpoint")
    try:
        return decompress_pieces(stored)
    except DECOMPRESS_ERRORS as error:
        raise StoreDamaged(f"The checkpoint cannot be unpacked: {error}", "Use another checkpoint") from error


def decompress_pieces(stored: bytes) -> bytearray:
    """Decompress a piece at a time, so that other threads run in between, and at most ``SNAPSHOT_BYTES_MAX``.

    Raises ``DECOMPRESS_ERRORS``.
    """
    decompressor, body = zstd.ZstdDecompressor(), bytearray()
    while not decompressor.eof:
        body += decompressor.decompress(stored, _PIECE_BYTES)
        stored = b""
        if decompressor.needs_input and not decompressor.eof:
            raise EOFError("it ends too early")
        if len(body) > SNAPSHOT_BYTES_MAX:
            raise EOFError(f"it has more than {SNAPSHOT_BYTES_MAX} bytes")
    return body


def sha256_of(stored: bytes) -> str:
    """Return the hash by which a stored body is verified."""
    return hashlib.sha256(stored).hexdigest()


class PackedJournal(msgspec.Struct, frozen=True):
    """A range of the journal as exported: a line of JSON for each entry, compressed."""

    body: bytes
    entries: int
    last: int  # position of the last one; 0 for none


def pack_entries(entries: Iterable[Entry], bytes_max: int) -> PackedJournal:
    """Compress entries. Raises TooLarge for more than ``bytes_max`` of compressed bytes."""
    compressor, body, count, last = zstd.ZstdCompressor(level=ZSTD_LEVEL), bytearray(), 0, 0
    for entry in entries:
        body += compressor.compress(_encoder.encode(entry) + b"\n")
        count, last = count + 1, entry.position
        if len(body) > bytes_max:
            raise TooLarge(
                f"The journal up to position {last} alone has over {bytes_max} bytes",
                "Export a later checkpoint, or let fauxmaster open the database",
            )
    body += compressor.flush()
    return PackedJournal(bytes(body), count, last)


def unpack_entries(body: bytes) -> list[Entry]:
    """Return the entries of a ``PackedJournal``'s body. Raises StoreDamaged."""
    try:
        lines = decompress_pieces(body).decode().split("\n")
        return [_entry_decoder.decode(_by_present_names(line)) for line in lines if line]
    except (*DECOMPRESS_ERRORS, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise StoreDamaged(f"The journal in the file cannot be read: {error}", "Export it again") from error
