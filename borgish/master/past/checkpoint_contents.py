"""Looks into a stored checkpoint in a process of its own.

To read back a large cell holds the interpreter for a third of a second, and needs as much memory again
as the cell; the turns of a borgmaster, and its memory, are spared both.
"""

import subprocess
import sys

import msgspec

from borgish.cell.model import Snapshot
from borgish.errors import BorgishError
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import info_of, verified_snapshot
from borgish.store.codec import PackedJournal, sha256_of
from borgish.wire.api_past import CheckpointContents
from borgish.wire.checkpoint_file import CheckpointHeader, JournalPart, pack_checkpoint, unpack_checkpoint

SECONDS_MAX = 100.0


class Inspection(msgspec.Struct, frozen=True):
    """What is in a checkpoint, or what is wrong with it."""

    contents: CheckpointContents | None
    problem: str = ""


def inspect_checkpoint(cell: str, info: CheckpointInfo, stored: bytes) -> Inspection:
    """Return what is in a checkpoint of this cell. Blocks; raises BorgishError when none can tell."""
    # -P: nothing in the current directory, where anybody may have put it, is imported instead of the library.
    command = [sys.executable, "-P", "-m", __name__]
    try:
        done = subprocess.run(
            command, input=packed(cell, info, stored), capture_output=True, timeout=SECONDS_MAX, check=True
        )
        return msgspec.json.decode(done.stdout, type=Inspection)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise BorgishError(
            f"The checkpoint at {info.position} could not be looked into: {type(error).__name__}",
            "Is there memory and time enough on the master's host?",
        ) from error


def packed(cell: str, info: CheckpointInfo, stored: bytes, journal: PackedJournal | None = None) -> bytes:
    """Return a checkpoint as it is kept outside of its cell, with the journal after it if given."""
    part = None
    if journal is not None:
        sha256 = sha256_of(journal.body)
        part = JournalPart(journal.entries, journal.last, len(journal.body), sha256)
    header = CheckpointHeader(
        cell, info.position, info.at, info.reason, info.name, info.bytes, info.sha256, part
    )
    return pack_checkpoint(header, stored, journal.body if journal else b"")


def inspect_file(file: bytes) -> Inspection:
    """Return what is in a packed checkpoint."""
    try:
        header, stored = unpack_checkpoint(file)
        return Inspection(contents_of(verified_snapshot(header.cell, info_of(header), stored)))
    except BorgishError as error:
        return Inspection(None, error.message)


def contents_of(snapshot: Snapshot) -> CheckpointContents:
    """Return what a snapshot holds, in numbers."""
    jobs = snapshot.jobs.values()
    return CheckpointContents(
        timeline=snapshot.timeline,
        epoch=snapshot.epoch,
        machines=len(snapshot.machines),
        machines_up=sum(machine.up for machine in snapshot.machines.values()),
        jobs=len(jobs),
        tasks=sum(len(job.tasks) for job in jobs),
        pending=sum(job.pending for job in jobs),
        running=sum(job.running for job in jobs),
        dead=sum(job.dead for job in jobs),
        finished=sum(job.finished for job in jobs),
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(inspect_file(sys.stdin.buffer.read())))
