"""The files of ``fauxmaster pack``, all CSV: reads machines and tasks and tells all mistakes, by line; writes
where the tasks went.
"""

import csv
import io
import os
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Protocol, TextIO, TypeVar

import msgspec

from borgish.bands import DEFAULT_BANDS
from borgish.cell.model import Machine
from borgish.durable import whole_file
from borgish.errors import Conflict, Invalid, Mistake, NotFound, TooLarge
from borgish.resources import DEVICE_MILLIS, DEVICES_MAX, Resources, show_bytes
from borgish.sim.pack.packing import DEVICE, Arrival, Note, Times, machine_of, nothing
from borgish.spec.constraints import EXAMPLES, parse_constraint
from borgish.spec.file.mistakes import quote
from borgish.spec.job import Constraint

MACHINE_COLUMNS = ("name", "cpu_millis", "ram_mib", "devices", "device_model")
TASK_COLUMNS = (
    "job",
    "index",
    "user",
    "priority",
    "cpu_millis",
    "ram_mib",
    "devices",
    "device_millis",
    "constraints",
)
TIME_COLUMNS = ("creation_time", "deletion_time")
"""When a task comes and leaves, in seconds from any moment, called as Alibaba's GPU trace of 2023 does."""
PLACEMENT_COLUMNS = ("job", "index", "user", "machine", "devices")
AMOUNT_COLUMNS = ("cpu_millis", "ram_mib", "devices", "device_millis")
AMOUNT_MAX = 10**9  # millis of cpu, MiB
INDEX_MAX = 10**9
TIME_MAX = 10**12  # seconds
KNOWN_MAX = 65_536  # different texts that are read once
NOTED_ROWS = 50_000
MISTAKES_MAX = 100
FILE_BYTES_MAX = 256 * 1024**2  # some millions of tasks
MIB = 1024**2
_Item = TypeVar("_Item")
_Key = TypeVar("_Key", str, tuple[str, ...])
_ATTRIBUTE = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,62}")


class Reader(Protocol):
    """Reads rows of values, and knows the line it has come to, as the module ``csv`` does."""

    @property
    def line_num(self) -> int: ...

    def __iter__(self) -> Iterator[list[str]]: ...

    def __next__(self) -> list[str]: ...


class Row:
    """The line of a file that is being read; what is wrong with its values is told to ``mistakes``."""

    def __init__(self, columns: Sequence[str], mistakes: list[Mistake]) -> None:
        self.columns = {name: place for place, name in enumerate(columns)}
        self.line = 0
        self.values: list[str] = []
        self.mistakes = mistakes

    def report(self, column: str, message: str, hint: str = "") -> None:
        """Add a mistake."""
        text = f"{column}: {message}" if column else message
        self.mistakes.append(Mistake(text, self.line, 1, hint))

    def word(self, column: str) -> str:
        """Return a text that must be there."""
        text = self.values[self.columns[column]]
        if not text or "/" in text:
            hint = "a name has no /" if text else f"give a name in the column {column}"
            self.report(column, f"{quote(text)} is not a name" if text else "is empty", hint)
        return text

    def whole(self, column: str, most: int, unless_given: int | None = None) -> int:
        """Return a whole number from 0 to ``most``."""
        text = self.values[self.columns[column]]
        if not text and unless_given is not None:
            return unless_given
        hint = f"write a whole number from 0 to {most}"
        if re.fullmatch(r"-\d{1,30}", text):
            self.report(column, f"{text} is negative", hint)
        elif not re.fullmatch(r"\d{1,30}", text, re.ASCII):
            self.report(column, f"{quote(text)} is not a whole number" if text else "is empty", hint)
        elif int(text) > most:
            self.report(column, f"{text} is more than {most}", hint)
        else:
            return int(text)
        return 0


def read_machines(path: Path, note: Note = nothing) -> list[Machine]:
    """Return the machines in a file, in its order. Raises Invalid with all mistakes, and NotFound."""
    lines: dict[str, int] = {}

    def read(row: Row) -> Machine:
        name = row.word("name")
        if name and lines.setdefault(name, row.line) != row.line:
            row.report("name", f"{quote(name)} is there already, in line {lines[name]}")
        devices = row.whole("devices", DEVICES_MAX, 0)
        capacity = Resources(
            row.whole("cpu_millis", AMOUNT_MAX),
            row.whole("ram_mib", AMOUNT_MAX) * MIB,
            devices={DEVICE: devices * DEVICE_MILLIS} if devices else {},
        )
        given = zip(row.columns, row.values, strict=True)
        attributes = {key: value for key, value in given if value and key not in MACHINE_COLUMNS[:4]}
        return machine_of(name, capacity, attributes)

    return _read(path, MACHINE_COLUMNS, read, note, are_attributes=True)


class _SameJob(msgspec.Struct):
    """What is known of a job whose tasks are read: the latest of them, and the index and line of each."""

    line: int
    latest: Arrival
    indexes: "array[int]"
    lines: "array[int]"


class TaskRows(msgspec.Struct, frozen=True):
    """The tasks of a file in its order, and in parallel to them their indexes as they stand there."""

    arrivals: list[Arrival]
    indexes: "array[int]"
    times: Times | None  # where they were asked for


class _Tasks:
    """Reads tasks. Tasks of a job that are alike are one object, so that a million take little memory."""

    def __init__(self) -> None:
        self.indexes = array("q")
        self.comes, self.leaves = array("d"), array("d")
        self.jobs: dict[tuple[str, str], _SameJob] = {}
        self._users: dict[str, str] = {}
        self._priorities: dict[str, int] = {}
        self._needs: dict[tuple[str, ...], Resources] = {}
        self._constraints: dict[str, tuple[Constraint, ...]] = {}

    def read(self, row: Row) -> Arrival:
        values, columns, before = row.values, row.columns, len(row.mistakes)
        names = values[columns["user"]], values[columns["job"]]
        job = self.jobs.get(names)
        if job is None:
            row.word("user"), row.word("job")
        text = values[columns["index"]]
        quick = text.isdecimal() and text.isascii() and len(text) < len(str(INDEX_MAX))
        index = int(text) if quick else row.whole("index", INDEX_MAX)
        self.indexes.append(index)
        priority = self._known(self._priorities, values[columns["priority"]], row, _priority)
        constraints = self._known(self._constraints, values[columns["constraints"]], row, _constraints)
        amounts = tuple([values[columns[name]] for name in AMOUNT_COLUMNS])
        needs = self._known(self._needs, amounts, row, _needs)
        if job is None:
            user = self._users.setdefault(names[0], names[0])
            arrival = Arrival(user, names[1], priority, needs, constraints)
            if len(row.mistakes) == before:
                indexes, lines = array("q", (index,)), array("L", (row.line,))
                self.jobs[user, names[1]] = _SameJob(row.line, arrival, indexes, lines)
            return arrival
        latest = job.latest
        if latest.priority != priority or latest.constraints != constraints:
            hint = "the tasks of a job are alike in these: give these another job name"
            where = f"{latest.key} has another priority or other constraints in line {job.line}"
            row.report("job", where, hint)
        job.indexes.append(index)
        job.lines.append(row.line)
        if latest.needs is not needs:
            job.latest = latest = Arrival(latest.user, latest.job, latest.priority, needs, latest.constraints)
        return latest

    def read_with_times(self, row: Row) -> Arrival:
        """Read a task, and when it comes and leaves."""
        comes = row.whole("creation_time", TIME_MAX)
        is_given = bool(row.values[row.columns["deletion_time"]])
        leaves = row.whole("deletion_time", TIME_MAX) if is_given else inf
        if self.comes and comes < self.comes[-1]:
            where = f"{comes} is before that of the row above, {self.comes[-1]:.0f}"
            row.report("creation_time", where, "sort the rows by it: tasks come in the order of the file")
        if leaves < comes:
            row.report("deletion_time", f"{leaves} is before {comes}, when the task comes", "leave it empty")
        self.comes.append(comes)
        self.leaves.append(leaves)
        return self.read(row)

    def _known(self, known: dict[_Key, _Item], key: _Key, row: Row, read: Callable[[Row], _Item]) -> _Item:
        """Return what a text stands for, read once; mistakes are told of each line."""
        found = known.get(key)
        if found is None:
            before = len(row.mistakes)
            found = read(row)
            if len(row.mistakes) == before and len(known) < KNOWN_MAX:
                known[key] = found
        return found

    def tell_repeated(self, mistakes: list[Mistake]) -> None:
        """Add a mistake for each index of a job that is there more than once."""
        for (user, name), job in self.jobs.items():
            if len(job.indexes) == 1 or len(set(job.indexes)) == len(job.indexes):
                continue
            first: dict[int, int] = {}
            for index, line in zip(job.indexes, job.lines, strict=True):
                if first.setdefault(index, line) != line:
                    text = f"index: task {index} of {user}/{name} is there already, in line {first[index]}"
                    mistakes.append(Mistake(text, line, 1))
        mistakes.sort(key=lambda mistake: mistake.line)


def read_tasks(path: Path, note: Note = nothing, *, with_times: bool = False) -> TaskRows:
    """Return the tasks in a file, in its order. Raises Invalid with all mistakes, and NotFound."""
    tasks = _Tasks()
    columns: tuple[str, ...] = (*TASK_COLUMNS, *TIME_COLUMNS) if with_times else TASK_COLUMNS
    read = tasks.read_with_times if with_times else tasks.read
    arrivals = _read(path, columns, read, note, tasks.tell_repeated)
    return TaskRows(arrivals, tasks.indexes, Times(tasks.comes, tasks.leaves) if with_times else None)


def _priority(row: Row) -> int:
    return row.whole("priority", DEFAULT_BANDS.highest)


def _needs(row: Row) -> Resources:
    devices = row.whole("devices", DEVICES_MAX, 0)
    whole = DEVICE_MILLIS if devices else 0
    millis = row.whole("device_millis", AMOUNT_MAX, whole)
    if millis > DEVICE_MILLIS:
        hint = "a task takes a part of one device, up to 1000, or whole ones, of 1000 each"
        row.report("device_millis", f"{millis} is more than one device", hint)
    elif devices > 1 and millis != DEVICE_MILLIS:
        row.report("device_millis", f"{devices} devices are taken whole, not {millis} thousandths of each")
    elif devices and not millis:
        row.report("device_millis", "nothing of a device is asked for", "write 1 to 1000, or 0 devices")
    elif millis and not devices:
        row.report("device_millis", f"{millis} thousandths of no device", "write how many in devices")
    cpu, ram = row.whole("cpu_millis", AMOUNT_MAX), row.whole("ram_mib", AMOUNT_MAX) * MIB
    return Resources(cpu, ram, devices={DEVICE: devices * millis} if devices else {})


def _constraints(row: Row) -> tuple[Constraint, ...]:
    found = []
    given = row.values[row.columns["constraints"]]
    for text in filter(None, (part.strip() for part in given.split(";"))):
        try:
            found.append(parse_constraint(text))
        except ValueError as error:
            row.report(
                "constraints", f"{quote(text)} {error}", f"examples: {EXAMPLES}; several with ; between"
            )
    return tuple(found)


def _read(
    path: Path,
    columns: tuple[str, ...],
    read: Callable[[Row], _Item],
    note: Note,
    check: Callable[[list[Mistake]], None] | None = None,
    *,
    are_attributes: bool = False,
) -> list[_Item]:
    mistakes: list[Mistake] = []
    found: list[_Item] = []
    for row in _rows(path, columns, mistakes, are_attributes=are_attributes):
        found.append(read(row))
        if len(found) % NOTED_ROWS == 0:
            note(f"{path}: {len(found):,} rows")
    if not found and not mistakes:
        mistakes.append(Mistake("has no row below its header", hint=f"its columns are {', '.join(columns)}"))
    if check is not None:
        check(mistakes)
    if mistakes:
        more = len(mistakes) - MISTAKES_MAX
        shown = mistakes[:MISTAKES_MAX] + ([Mistake(f"and {more} more mistakes")] if more > 0 else [])
        raise Invalid(f"{path} has {len(mistakes)} mistakes", mistakes[0].hint, tuple(shown))
    return found


def _rows(
    path: Path, columns: tuple[str, ...], mistakes: list[Mistake], *, are_attributes: bool
) -> Iterator[Row]:
    """Yield the rows of a file whose header is right, one after the other in the same ``Row``."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # a pipe will do
            reader = csv.reader(_lines(path, file), strict=True)
            try:
                yield from _rows_of(reader, columns, mistakes, are_attributes=are_attributes)
            except csv.Error as error:
                mistakes.append(Mistake(f"is not CSV: {error}", reader.line_num, 1))
    except OSError as error:
        raise NotFound(f"{path}: {error.strerror}", "Name a CSV file") from None
    except UnicodeDecodeError:
        mistakes.append(Mistake("is not a text in UTF-8"))


def _rows_of(
    reader: Reader, columns: tuple[str, ...], mistakes: list[Mistake], *, are_attributes: bool
) -> Iterator[Row]:
    header = next(reader, None)
    if header is None:
        mistakes.append(Mistake("is empty", hint=f"its first line names the columns: {','.join(columns)}"))
        return
    if not _is_header(header, columns, mistakes, are_attributes=are_attributes):
        return
    row = Row(header, mistakes)
    for values in reader:
        if len(values) == len(header):
            row.line, row.values = reader.line_num, [value.strip() for value in values]
            yield row
        elif values:
            text = f"has {len(values)} values where the header has {len(header)} columns"
            mistakes.append(Mistake(text, reader.line_num, 1))


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    """Yield the lines of a file, up to a limit: a device that never ends will not do."""
    left = FILE_BYTES_MAX
    while line := file.readline(left + 1):
        left -= len(line)
        if left < 0:
            raise TooLarge(f"{path} has more than {show_bytes(FILE_BYTES_MAX)}", "Split it, or take a sample")
        yield line


def _is_header(
    header: list[str], columns: tuple[str, ...], mistakes: list[Mistake], *, are_attributes: bool
) -> bool:
    header[:] = [name.strip() for name in header]
    columns_are = f"its columns are {', '.join(columns)}"
    wrong = [Mistake(f"has no column {name}", 1, 1, columns_are) for name in columns if name not in header]
    twice = sorted({name for name in header if header.count(name) > 1})
    wrong += [Mistake(f"has the column {quote(name)} more than once", 1, 1) for name in twice]
    if are_attributes:
        hint = "letters, digits and . _ / -, as in constraints"
        odd = [name for name in header if not _ATTRIBUTE.fullmatch(name)]
        wrong += [Mistake(f"{quote(name)} cannot be an attribute", 1, 1, hint) for name in odd]
    mistakes += wrong
    return not wrong


class PlacementWriter:
    """Writes a row a task: which one, its machine, "" where it has none, and its devices with ; between."""

    def __init__(self, file: TextIO) -> None:
        self._rows = csv.writer(file, lineterminator="\n")
        self._rows.writerow(PLACEMENT_COLUMNS)

    def write(self, arrival: Arrival, index: int, machine: str, devices: Sequence[str]) -> None:
        """Write where a task went."""
        self._rows.writerow((arrival.job, index, arrival.user, machine, ";".join(devices)))


@contextmanager
def new_placements(path: Path) -> Iterator[PlacementWriter]:
    """Have a file to write placements to, which is there once all are written, or not at all.

    Raises Conflict where something is there, or it cannot be written, and NotFound where there is no folder.
    """
    if not path.parent.is_dir():
        raise NotFound(f"{path.parent}: there is no such folder", "Create it first, or name another file")
    if os.path.lexists(path):
        raise _taken(path)
    try:
        with whole_file(path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            yield PlacementWriter(text)
            text.flush()
            text.detach()
    except FileExistsError:
        raise _taken(path) from None
    except BrokenPipeError:  # of who reads the output
        raise
    except OSError as error:
        hint = "Name a file in a folder that you may write to, with room"
        raise Conflict(f"{path} cannot be written: {error.strerror}", hint) from None


def _taken(path: Path) -> Conflict:
    return Conflict(f"{path} already exists", "Name another file, or remove that one")
