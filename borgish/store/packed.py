"""A stretch of the journal as one piece of bytes: a line of JSON for each entry, compressed."""

from collections.abc import Iterable

import msgspec

from borgish.cell.events import Entry
from borgish.errors import StoreDamaged, TooLarge
from borgish.store.codec import UNREADABLE, packing, unpacked

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Entry).decode


class PackedJournal(msgspec.Struct, frozen=True):
    """So many entries, up to a position; 0 for none."""

    body: bytes
    entries: int
    last: int


def pack_entries(entries: Iterable[Entry], bytes_max: int) -> PackedJournal:
    """Return entries as bytes. Raises TooLarge when they are more, compressed, than ``bytes_max``."""
    pieces, body, count, last = packing(), bytearray(), 0, 0
    for entry in entries:
        body += pieces.compress(_encode(entry) + b"\n")
        count, last = count + 1, entry.position
        if len(body) > bytes_max:
            raise TooLarge(
                f"The journal up to position {last} alone has over {bytes_max} bytes",
                "Export a later checkpoint, or let fauxmaster open the database",
            )
    body += pieces.flush()
    return PackedJournal(bytes(body), count, last)


def unpack_entries(body: bytes) -> list[Entry]:
    """Return the entries. Raises StoreDamaged for what is none."""
    try:
        return [_decode(line) for line in unpacked(body).split(b"\n") if line]
    except (*UNREADABLE, msgspec.DecodeError) as error:
        raise StoreDamaged(f"The journal in the file cannot be read: {error}", "Export it again") from error
