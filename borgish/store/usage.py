"""Samples of usage as stored: columns of many tasks' numbers in one compressed body.

Usage is observed and not journalled: nothing of the cell follows from it, and a table with a row for each
task and minute would be the largest by far. So a block holds some hundred machines' tasks in the order of
their names, each column as its differences, which compresses to 9 bytes a sample. Of 200,000 tasks on 10,000
machines a sample takes half a second of CPU in threads, one transaction, and holds the event loop for some 30
ms. Who wants them as rows exports them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile

import msgspec

from borgish.errors import StoreDamaged
from borgish.store.codec import DECOMPRESS_ERRORS, compress, decompress_pieces
from borgish.vocabulary import split_task_name, task_name

Used = Mapping[tuple[str, int], tuple[int, int]]
"""What one machine's tasks use: (task name, attempt) -> (CPU in thousandths, RAM in bytes)."""


class UsageSample(msgspec.Struct, frozen=True, gc=False):
    """What one attempt used at some time."""

    machine: str
    task: str  # user/job/3
    attempt: int
    cpu_millis: int
    ram_bytes: int


class UsageBlock(msgspec.Struct, frozen=True):
    """The samples of some machines at one time. ``at`` and ``part`` identify a block."""

    at: float  # seconds since 1970
    part: int
    samples: int
    body: bytes


class _Columns(msgspec.Struct, array_like=True):
    """The body of a block. ``jobs`` has (job, how many of its tasks), ``machines`` names; the other columns
    have shape (tasks,), in the order of ``jobs``."""

    version: int
    machines: list[str]
    jobs: list[tuple[str, int]]
    indexes: list[int]  # differences
    attempts: list[int]  # differences
    machine_of: list[int]  # index into ``machines``
    cpu_millis: list[int]
    ram_bytes: list[int]


_VERSION = 1
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(_Columns).decode


def encode_usage(at: float, part: int, used: Iterable[tuple[str, Used]]) -> UsageBlock:
    """Return the block of these machines, of the time ``at`` (seconds since 1970).

    Pure, so that it may be done in any thread.
    """
    machines: list[str] = []
    rows = []
    for index, (machine, usage) in enumerate(used):
        machines.append(machine)
        rows += [
            (*split_task_name(task), attempt, index, cpu, ram)
            for (task, attempt), (cpu, ram) in usage.items()
        ]
    rows.sort()
    jobs: dict[str, int] = {}
    for row in rows:
        jobs[row[0]] = jobs.get(row[0], 0) + 1
    _, indexes, attempts, machine_of, cpu_millis, ram_bytes = (
        map(list, zip(*rows, strict=True)) if rows else [[]] * 6
    )
    columns = _Columns(
        _VERSION,
        machines,
        list(jobs.items()),
        _differences(indexes),
        _differences(attempts),
        machine_of,
        cpu_millis,
        ram_bytes,
    )
    return UsageBlock(at, part, len(rows), compress(_pack(columns)))


class UsageSum(msgspec.Struct, frozen=True):
    """What some tasks used at a time, in all."""

    cpu_millis: int = 0
    ram_bytes: int = 0
    tasks: int = 0


def sum_usage(block: UsageBlock, job: str = "", index: int | None = None, machine: str = "") -> UsageSum:
    """Return what of a block one job, one of its tasks, or one machine used; all of it where none is named.

    Columns are added up as they are: 10,000 samples take some milliseconds. Raises StoreDamaged.
    """
    found = _columns(block)
    first, last = 0, len(found.indexes)
    if job:
        counts = dict(found.jobs)
        first = sum(tasks for _, tasks in takewhile(lambda each: each[0] != job, found.jobs))
        last = first + counts.get(job, 0)
    rows: Sequence[int] = range(first, last)
    if index is not None:
        rows = [
            row for row, each in enumerate(accumulate(found.indexes)) if first <= row < last and each == index
        ]
    if machine:
        wanted = found.machines.index(machine) if machine in found.machines else -1
        rows = [row for row in rows if found.machine_of[row] == wanted]
    cpu, ram = found.cpu_millis, found.ram_bytes
    return UsageSum(sum(cpu[row] for row in rows), sum(ram[row] for row in rows), len(rows))


def _columns(block: UsageBlock) -> _Columns:
    try:
        found = _unpack(decompress_pieces(block.body))
    except (*DECOMPRESS_ERRORS, msgspec.DecodeError) as error:
        raise _unreadable(block, str(error)) from error
    if found.version != _VERSION:
        raise _unreadable(block, f"it has format {found.version}")
    return found


def decode_usage(block: UsageBlock) -> Iterator[UsageSample]:
    """Yield the samples of a block, in the order of their tasks' names. Raises StoreDamaged."""
    found = _columns(block)
    jobs = (job for job, tasks in found.jobs for _ in range(tasks))
    columns = (
        accumulate(found.indexes),
        accumulate(found.attempts),
        found.machine_of,
        found.cpu_millis,
        found.ram_bytes,
    )
    try:
        for job, task, attempt, machine, cpu, ram in zip(jobs, *columns, strict=True):
            yield UsageSample(found.machines[machine], task_name(job, task), attempt, cpu, ram)
    except (ValueError, IndexError) as error:
        raise _unreadable(block, str(error)) from error


def _differences(numbers: list[int]) -> list[int]:
    return [now - before for before, now in zip([0, *numbers], numbers, strict=False)]


def _unreadable(block: UsageBlock, why: str) -> StoreDamaged:
    return StoreDamaged(
        f"Samples of usage of {block.at:.0f}, part {block.part}, cannot be read: {why}",
        "Export the time before and after it",
    )
