"""Events and snapshots come back as they were; what is no such thing is refused."""

import pytest

from borgish.cell.events import Facts, JobSubmitted, MachineJoined, Recorded, TasksEvicted
from borgish.cell.model import Answer, Snapshot
from borgish.errors import StoreDamaged, UnsafeConfiguration
from borgish.store.codec import (
    compress,
    compress_pieces,
    decode_command,
    decode_events,
    decode_snapshot,
    decompress,
    decompress_pieces,
    encode_command,
    encode_events,
    encode_in_pieces,
    encode_record,
    encode_snapshot,
    sha256_of,
)
from borgish.vocabulary import Eviction
from tests.contract.store.samples import CELL, job, machine


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_in_pieces_it_is_the_same_however_many_there_are(count: int) -> None:
    machines = dict.fromkeys(map(str, range(count)), machine())
    encoded = {"machines": {name: encode_record(each) for name, each in machines.items()}}
    snapshot = Snapshot(CELL, 7, machines=machines)
    pieces = list(encode_in_pieces(snapshot, encoded))
    assert b"".join(pieces) == encode_snapshot(snapshot)
    assert decompress_pieces(compress_pieces(pieces)) == encode_snapshot(snapshot)


def test_events_come_back_as_they_were() -> None:
    events = (
        JobSubmitted(job()),
        MachineJoined(machine()),
        TasksEvicted("a/b", (1, 2), Eviction.DRAIN, "\0ö"),
    )

    assert decode_events(encode_events(events), 1) == events


def test_events_in_the_journal_say_their_kind() -> None:
    text = encode_events((TasksEvicted("a/b", (1,), Eviction.DRAIN),))

    assert text == '[{"type":"TasksEvicted","job":"a/b","indexes":[1],"cause":"drain"}]'


@pytest.mark.parametrize("text", ["", "[", "{}", '[{"type":"Unheard"}]', '[{"type":"MachineUp"}]'])
def test_what_are_no_events_names_the_entry(text: str) -> None:
    with pytest.raises(StoreDamaged, match="entry 7 cannot be read"):
        decode_events(text, 7)


def test_commands_come_back_as_they_were() -> None:
    kept = Recorded(({"indexes": None, "reason": "\0ö"}, {}), Facts(silent_seconds=1.5))

    assert decode_command(encode_command(kept), 1) == kept
    assert encode_command(Recorded()) == "{}"
    assert decode_command(encode_command(None), 1) is None


@pytest.mark.parametrize("text", ["", "[", "[]", '{"fields":[5]}', "null"])
def test_what_is_no_command_names_the_entry(text: str) -> None:
    with pytest.raises(StoreDamaged, match="entry 7 cannot be read"):
        decode_command(text, 7)


def test_a_snapshot_comes_back_as_it_was() -> None:
    snapshot = Snapshot(CELL, 5, 2, 3, {}, {"m1": machine()}, {}, {"r": Answer("d", 1, "s", "t")})
    body = encode_snapshot(snapshot)
    stored = compress(body)

    assert decode_snapshot(decompress(stored, sha256_of(stored)), CELL) == snapshot


def test_every_cut_and_every_turned_bit_is_noticed() -> None:
    stored = compress(encode_snapshot(Snapshot(CELL, machines={"m1": machine()})))
    right = sha256_of(stored)
    cut = [stored[:length] for length in range(len(stored))]
    turned = [stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :] for at in range(len(stored))]

    for damaged in cut + turned:
        with pytest.raises(StoreDamaged):
            decompress(damaged, right)


def test_a_body_that_was_never_packed_is_refused() -> None:
    with pytest.raises(StoreDamaged, match="unpacked"):
        decompress(b"plain", sha256_of(b"plain"))


@pytest.mark.parametrize(
    "body", [b"", b"something else\n", b"borgish snapshot x\n", b"borgish snapshot 1\n\xc1"]
)
def test_what_is_no_snapshot_is_refused(body: bytes) -> None:
    with pytest.raises(StoreDamaged):
        decode_snapshot(body, CELL)


def test_a_snapshot_of_another_format_or_cell_is_refused() -> None:
    body = encode_snapshot(Snapshot(CELL))

    with pytest.raises(UnsafeConfiguration, match="of cell 'testing', not of 'other'"):
        decode_snapshot(body, "other")
    with pytest.raises(UnsafeConfiguration, match="format 12; this borgish reads format 1"):
        decode_snapshot(body.replace(b"snapshot 1", b"snapshot 12", 1), CELL)
