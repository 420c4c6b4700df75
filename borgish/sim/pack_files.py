"""Reads the machines and tasks of ``fauxmaster pack`` from CSV files, and tells all mistakes, by line."""

import csv
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from borgish.bands import DEFAULT_BANDS
from borgish.cell.model import Machine
from borgish.errors import Invalid, Mistake, NotFound, TooLarge
from borgish.resources import DEVICE_MILLIS, DEVICES_MAX, Resources, show_bytes
from borgish.sim.packing import DEVICE, Arrival, machine_of
from borgish.spec.constraints import EXAMPLES, parse_constraint
from borgish.spec.job import Constraint
from borgish.spec.mistakes import quote

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
AMOUNT_MAX = 10**9  # millis of cpu, MiB
MISTAKES_MAX = 100
FILE_BYTES_MAX = 256 * 1024**2  # some millions of tasks
MIB = 1024**2
_Item = TypeVar("_Item")
_ATTRIBUTE = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,62}")


class Row:
    """One line of a file, whose values are read by column; what is wrong is told to ``mistakes``."""

    def __init__(self, line: int, values: dict[str, str], mistakes: list[Mistake]) -> None:
        self.line = line
        self.values = values
        self._mistakes = mistakes

    def tell(self, column: str, message: str, hint: str = "") -> None:
        """Add a mistake."""
        text = f"{column}: {message}" if column else message
        self._mistakes.append(Mistake(text, self.line, 1, hint))

    def word(self, column: str) -> str:
        """Return a text that must be there."""
        text = self.values[column]
        if not text or "/" in text:
            hint = "a name has no /" if text else f"give a name in the column {column}"
            self.tell(column, f"{quote(text)} is not a name" if text else "is empty", hint)
        return text

    def whole(self, column: str, most: int, unless_given: int | None = None) -> int:
        """Return a whole number from 0 to ``most``."""
        text = self.values[column]
        if not text and unless_given is not None:
            return unless_given
        hint = f"write a whole number from 0 to {most}"
        if re.fullmatch(r"-\d{1,30}", text):
            self.tell(column, f"{text} is negative", hint)
        elif not re.fullmatch(r"\d{1,30}", text, re.ASCII):
            self.tell(column, f"{quote(text)} is not a whole number" if text else "is empty", hint)
        elif int(text) > most:
            self.tell(column, f"{text} is more than {most}", hint)
        else:
            return int(text)
        return 0


def read_machines(path: Path) -> list[Machine]:
    """Return the machines in a file, in its order. Raises Invalid with all mistakes, and NotFound."""
    lines: dict[str, int] = {}

    def read(row: Row) -> Machine:
        name = row.word("name")
        if name and lines.setdefault(name, row.line) != row.line:
            row.tell("name", f"{quote(name)} is there already, in line {lines[name]}")
        devices = row.whole("devices", DEVICES_MAX, 0)
        capacity = Resources(
            row.whole("cpu_millis", AMOUNT_MAX),
            row.whole("ram_mib", AMOUNT_MAX) * MIB,
            devices={DEVICE: devices * DEVICE_MILLIS} if devices else {},
        )
        others = {key: value for key, value in row.values.items() if key not in MACHINE_COLUMNS[:4]}
        return machine_of(name, capacity, {key: value for key, value in others.items() if value})

    return _read(path, MACHINE_COLUMNS, read, are_attributes=True)


def read_tasks(path: Path) -> list[Arrival]:
    """Return the tasks in a file, in its order. Raises Invalid with all mistakes, and NotFound."""
    lines: dict[tuple[str, str, int], int] = {}
    jobs: dict[tuple[str, str], tuple[int, int, tuple[Constraint, ...]]] = {}

    def read(row: Row) -> Arrival:
        user, job, index = row.word("user"), row.word("job"), row.whole("index", 10**9)
        if lines.setdefault((user, job, index), row.line) != row.line:
            first = lines[user, job, index]
            row.tell("index", f"task {index} of {user}/{job} is there already, in line {first}")
        priority, constraints = row.whole("priority", DEFAULT_BANDS.highest), _constraints(row)
        line, *agreed = jobs.setdefault((user, job), (row.line, priority, constraints))
        if agreed != [priority, constraints]:
            hint = "the tasks of a job are alike in these: give these another job name"
            row.tell("job", f"{user}/{job} has another priority or other constraints in line {line}", hint)
        return Arrival(user, job, priority, _needs(row), constraints)

    return _read(path, TASK_COLUMNS, read)


def _needs(row: Row) -> Resources:
    devices = row.whole("devices", DEVICES_MAX, 0)
    whole = DEVICE_MILLIS if devices else 0
    millis = row.whole("device_millis", AMOUNT_MAX, whole)
    if millis > DEVICE_MILLIS:
        hint = "a task takes a part of one device, up to 1000, or whole ones, of 1000 each"
        row.tell("device_millis", f"{millis} is more than one device", hint)
    elif devices > 1 and millis != DEVICE_MILLIS:
        row.tell("device_millis", f"{devices} devices are taken whole, not {millis} thousandths of each")
    elif devices and not millis:
        row.tell("device_millis", "nothing of a device is asked for", "write 1 to 1000, or 0 devices")
    elif millis and not devices:
        row.tell("device_millis", f"{millis} thousandths of no device", "write how many in devices")
    cpu, ram = row.whole("cpu_millis", AMOUNT_MAX), row.whole("ram_mib", AMOUNT_MAX) * MIB
    return Resources(cpu, ram, devices={DEVICE: devices * millis} if devices else {})


def _constraints(row: Row) -> tuple[Constraint, ...]:
    found = []
    for text in filter(None, (part.strip() for part in row.values["constraints"].split(";"))):
        try:
            found.append(parse_constraint(text))
        except ValueError as error:
            row.tell("constraints", f"{quote(text)} {error}", f"examples: {EXAMPLES}; several with ; between")
    return tuple(found)


def _read(
    path: Path, columns: tuple[str, ...], read: Callable[[Row], _Item], *, are_attributes: bool = False
) -> list[_Item]:
    mistakes: list[Mistake] = []
    found = [read(row) for row in _rows(path, columns, mistakes, are_attributes=are_attributes)]
    if not found and not mistakes:
        mistakes.append(Mistake("has no row below its header", hint=f"its columns are {', '.join(columns)}"))
    if mistakes:
        more = len(mistakes) - MISTAKES_MAX
        shown = mistakes[:MISTAKES_MAX] + ([Mistake(f"and {more} more mistakes")] if more > 0 else [])
        raise Invalid(f"{path} has {len(mistakes)} mistakes", mistakes[0].hint, tuple(shown))
    return found


def _rows(
    path: Path, columns: tuple[str, ...], mistakes: list[Mistake], *, are_attributes: bool
) -> Iterator[Row]:
    """Yield the rows of a file whose header is right."""
    reader = csv.reader(io.StringIO(_text(path, mistakes)), strict=True)
    try:
        header = next(reader, None)
        if header is None or not _is_header(header, columns, mistakes, are_attributes=are_attributes):
            if header is None and not mistakes:
                mistakes.append(
                    Mistake("is empty", hint=f"its first line names the columns: {','.join(columns)}")
                )
            return
        for values in reader:
            if len(values) == len(header):
                stripped = [value.strip() for value in values]
                yield Row(reader.line_num, dict(zip(header, stripped, strict=True)), mistakes)
            elif values:
                text = f"has {len(values)} values where the header has {len(header)} columns"
                mistakes.append(Mistake(text, reader.line_num, 1))
    except csv.Error as error:
        mistakes.append(Mistake(f"is not CSV: {error}", reader.line_num, 1))


def _text(path: Path, mistakes: list[Mistake]) -> str:
    try:
        with path.open("rb") as opened:  # a pipe will do; a device that never ends will not
            content = opened.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise TooLarge(f"{path} has more than {show_bytes(FILE_BYTES_MAX)}", "Split it, or take a sample")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise NotFound(f"{path}: {error.strerror}", "Name a CSV file") from None
    except UnicodeDecodeError:
        mistakes.append(Mistake("is not a text in UTF-8"))
        return ""


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
