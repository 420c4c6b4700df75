"""The forms in which borgctl shows what it was asked for, which ``-o`` names.

json and yaml are the shapes of ``wire.api``, complete: an array of items for a list, the object for
one. jsonl has an item on each line, csv a column for each field, and a template the fields that it names.
They are for programs, so nothing else is written to stdout beside them.
"""

import codecs
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Annotated, ClassVar, Generic, TextIO, TypeVar

import msgspec
import typer

from borgish.cli.complete import among
from borgish.cli.screen import has_colour, is_terminal, print_out, styled, width_of
from borgish.clock import SystemClock
from borgish.text import age, local_times, safe, safe_lines, wall_time
from borgish.vocabulary import TASKS_PER_JOB_MAX, Outcome, State

T = TypeVar("T")


class Form(msgspec.Struct, frozen=True):
    """How something is written; ``template`` is that of the form of this name."""

    word: str
    template: str = ""
    TABLE: ClassVar["Form"]
    WIDE: ClassVar["Form"]
    JSON: ClassVar["Form"]
    YAML: ClassVar["Form"]
    JSONL: ClassVar["Form"]
    CSV: ClassVar["Form"]
    NAME: ClassVar["Form"]
    FILE: ClassVar["Form"]  # of what has one

    def __str__(self) -> str:
        return f"{self.word}={self.template}" if self.template else self.word

    @property
    def is_for_people(self) -> bool:
        """Whether it is one of the tables, which stand among words."""
        return self in (Form.TABLE, Form.WIDE)


_WORDS = ("table", "wide", "json", "yaml", "jsonl", "csv", "name")
for _word in (*_WORDS, "file"):
    setattr(Form, _word.upper(), Form(_word))
_TEMPLATE = "template="


def _read_form(text: "str | Form") -> Form:
    return _form(text, _WORDS)


def _read_form_or_file(text: "str | Form") -> Form:
    return _form(text, (*_WORDS, "file"))


def _form(text: "str | Form", words: Sequence[str]) -> Form:
    """Return the form that somebody asks for; a default is one already."""
    if isinstance(text, Form):
        return text
    if text.startswith(_TEMPLATE):
        from borgish.cli.forms import Template
        from borgish.errors import Invalid

        try:
            Template(template := text.removeprefix(_TEMPLATE))
        except Invalid as error:
            raise typer.BadParameter(str(error)) from None
        return Form("template", template)
    if text not in words:
        raise typer.BadParameter(f"'{safe(text)}' is not one of {', '.join(words)}, template='{{name}}'")
    found: Form = getattr(Form, text.upper())
    return found


FormOption = Annotated[
    Form,
    typer.Option(
        "--output",
        "-o",
        parser=_read_form,
        autocompletion=among(*_WORDS, _TEMPLATE),
        metavar="|".join((*_WORDS, "template=TEXT")),
        help="Output format. A template names fields of the JSON: '{name} {resources.cpu_millis}'.",
    ),
]
FileFormOption = Annotated[
    Form,
    typer.Option(
        "--output",
        "-o",
        parser=_read_form_or_file,
        autocompletion=among(*_WORDS, "file", _TEMPLATE),
        metavar="|".join((*_WORDS, "file", "template=TEXT")),
        help="Output format. `file` is a file that can be submitted; a template names fields of the JSON.",
    ),
]

# JSON escapes the control characters below 0x20 only; these too must not reach a terminal.
_HIDDEN = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")


class Column(msgspec.Struct, Generic[T], frozen=True):
    """One column: its title, and how an item's cell reads and looks."""

    title: str
    text: Callable[[T], str]
    style: Callable[[T], str] = lambda _: ""
    right: bool = False  # numbers
    wide: bool = False  # only in the wide table
    rare: bool = False  # in the wide table, and where any of the items has something else than 0 or -
    restless: bool = False  # it is another each time without anything having happened
    # What it is sorted by, where that is not its text, or of ``right`` the number in it; None comes last.
    by: Callable[[T], float | str | None] | None = None


def age_column(title: str, moment: Callable[[T], str]) -> Column[T]:
    """Return a column that says how long ago something was."""
    return Column(
        title,
        lambda item: age(moment(item)),
        right=True,
        restless=True,
        by=lambda item: wall_time(moment(item)),
    )


def show_list(
    items: Iterable[T],
    columns: Sequence[Column[T]],
    form: Form,
    name: Callable[[T], str],
    none: str,
    fields: Sequence[str] = (),
) -> None:
    """Show a list, but for json and yaml as its items come. ``none`` is what to say, to people, when there is
    nothing; ``fields`` are those that CSV has, where not all."""
    if form in (Form.JSON, Form.YAML):
        whole = list(items)
        print_out(as_json(whole) if form is Form.JSON else as_yaml(whole))
        return
    written, is_empty = writer(columns, form, name, fields), True
    following = iter(items)
    while some := list(islice(following, ROWS_AT_ONCE)):
        is_empty = False
        print_out(written(some))
        sys.stdout.flush()
    if is_empty and form.is_for_people:
        from borgish.cli.screen import print_err

        print_err(none)


def writer(
    columns: Sequence[Column[T]], form: Form, name: Callable[[T], str], fields: Sequence[str] = ()
) -> Callable[[Sequence[T]], str]:
    """Return what writes some more items of a list, as they come, in a form that goes on."""
    if form.is_for_people:
        return Table(columns, rare=form is Form.WIDE).rows
    if form is Form.NAME:
        return lambda items: "\n".join(safe(name(item)) for item in items)
    if form is Form.CSV:
        from borgish.cli.forms import CsvLines

        return CsvLines(fields).rows
    if form.template:
        from borgish.cli.forms import Template

        template = Template(form.template)
        return lambda items: "\n".join(map(template.filled, items))
    return lambda items: "\n".join(map(as_json_line, items))


def show_one(item: T, form: Form, name: str, people: Callable[[T, bool], str]) -> None:
    """Show one object; ``people(item, wide)`` returns it as safe text for the table forms."""
    if form in (Form.JSON, Form.YAML):
        print_out(as_json(item) if form is Form.JSON else as_yaml(item))
    elif form.is_for_people:
        print_out(people(item, form is Form.WIDE))
    elif form is not Form.NAME or name:
        write: Callable[[Sequence[T]], str] = writer((), form, lambda _: name)
        print_out(write([item]))


def as_json(value: object) -> str:
    """Return indented JSON in which every invisible character is escaped."""
    return _visible(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def as_json_line(value: object) -> str:
    """Return the same on one line."""
    return _visible(msgspec.json.encode(value).decode())


def _visible(text: str) -> str:
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def as_yaml(value: object) -> str:
    """Return YAML in plain ASCII, so that no character in it can act on a terminal."""
    import yaml

    plain = msgspec.to_builtins(value, str_keys=True)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(plain, Dumper=dumper, sort_keys=False, default_flow_style=False, width=100))


def fields(pairs: Sequence[tuple[str, str]]) -> str:
    """Return labelled lines, one a pair; empty values are left out."""
    shown = [(label, safe(value)) for label, value in pairs if value]
    width = max((len(label) for label, _ in shown), default=0)
    return "".join(f"{label:<{width}}  {value}\n" for label, value in shown)


_GAP = "  "
_LAST_WIDTH_MIN = 12
ROWS_AT_ONCE = 1000
"""A page of the API: the first rows of a list stand there while the others are still on their way."""


def draw(items: Sequence[T], columns: Sequence[Column[T]], file: TextIO | None = None) -> str:
    """Return the items as a table with a header. Only the last column is cut to fit a terminal."""
    return Table(columns, file, rare=True).rows(items)


class Table(Generic[T]):
    """A table of which some rows are drawn at a time. Its columns are as wide as what came until then, and
    where one is needed that was not, the header stands there again."""

    def __init__(self, columns: Sequence[Column[T]], file: TextIO | None = None, *, rare: bool) -> None:
        """``rare``: with all of the columns; else with neither the wide ones nor those of which all is 0."""
        self._columns = [column for column in columns if rare or not column.wide]
        self._file = file or sys.stdout
        self._needed = {column.title for column in self._columns if rare or not column.rare}
        self._widths: dict[str, int] = {}  # of those in the last header

    def rows(self, items: Sequence[T]) -> str:
        """Return some rows, with a header above them where there was none with these columns."""
        self._needed |= {
            column.title
            for column in self._columns
            if column.title not in self._needed and any(column.text(item) not in ("0", "-") for item in items)
        }
        columns = [column for column in self._columns if column.title in self._needed]
        titles = self._widths.keys() != self._needed
        texts = [
            [column.title] * titles + [safe(local_times(column.text(item))) for item in items]
            for column in columns
        ]
        widths = [
            max(self._widths.get(column.title, 0), *map(cell_width, cells))
            for column, cells in zip(columns, texts, strict=True)
        ]
        self._widths = {column.title: width for column, width in zip(columns, widths, strict=True)}
        if room := _last_width(widths, width_of(self._file)):
            texts[-1] = [cut(text, room) for text in texts[-1]]
        # Column by column, for a list of a cell's tasks has a million cells: what holds for all of a column
        # is found once, and where there are no colours nothing is asked for one.
        is_coloured, last = has_colour(self._file), columns[-1]
        drawn: list[Sequence[str]] = []
        for column, cells, width in zip(columns, texts, widths, strict=True):
            shown: Sequence[str] = cells
            if is_coloured:
                styles = ["bold"] * titles + [column.style(item) for item in items]
                shown = [styled(text, style, self._file) for text, style in zip(cells, styles, strict=True)]
            if column.right or column is not last:
                pads = [" " * (width - cell_width(text)) for text in cells]
                before, after = (pads, shown) if column.right else (shown, pads)
                shown = [one + other for one, other in zip(before, after, strict=True)]
            drawn.append(shown)
        return "".join([_GAP.join(row).rstrip() + "\n" for row in zip(*drawn, strict=True)])


def cell_width(text: str) -> int:
    """Return how many columns of a terminal a safe text takes."""
    if text.isascii():
        return len(text)
    return sum(_character_width(c) for c in text)


def cut(text: str, width: int) -> str:
    """Return the text, shortened with an ellipsis where it is wider than ``width`` columns."""
    if cell_width(text) <= width:
        return text
    kept, used = [], 1
    for character in text:
        used += _character_width(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + "…"


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _last_width(widths: Sequence[int], screen: int) -> int:
    """Return the room of the last column; 0 for as much as it needs."""
    before = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    return max(_LAST_WIDTH_MIN, screen - before) if screen else 0


PLAIN_EVERY_SECONDS = 1.0


class Progress:
    """Shows the latest text on stderr. The caller made it safe."""

    def __init__(self) -> None:
        self._live = is_terminal(sys.stderr)
        self._clock = SystemClock()
        self._shown = ""
        self._shown_at = float("-inf")

    def show(self, text: str) -> None:
        """Show the text, if it differs; elsewhere than on a terminal at most once a second."""
        now = self._clock.now().mono
        if text == self._shown or (not self._live and now < self._shown_at + PLAIN_EVERY_SECONDS):
            return
        self._shown, self._shown_at = text, now
        if self._live:
            sys.stderr.write(f"\r\x1b[2K{cut(text, max(20, width_of(sys.stderr) - 1))}")
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Take the line away from a terminal, so that what follows stands in its place."""
        if self._live and self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
        self._shown = ""


def safe_output(pieces: Iterable[bytes]) -> Iterator[str]:
    """Yield what a program wrote, fit for a terminal; a character may be split over two pieces."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    for piece in pieces:
        yield safe_lines(decoder.decode(piece).replace("\r\n", "\n"))
    yield safe_lines(decoder.decode(b"", final=True))


def state_text(state: State, outcome: Outcome | None) -> str:
    """Return the state, of what is dead with its outcome: ``dead (failed)``."""
    return f"{state} ({outcome})" if outcome else state


def outcomes(finished: int, failed: int, killed: int) -> list[str]:
    """Return ``2 finished``, ``1 failed``: how dead tasks came out, those that are none left out."""
    counts = ((finished, "finished"), (failed, "failed"), (killed, "killed"))
    return [f"{count} {word}" for count, word in counts if count]


def parse_indexes(text: str) -> tuple[int, ...]:
    """Read ``0-2,5`` as 0, 1, 2 and 5. Raises ValueError with the reason."""
    indexes: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not (low.isdecimal() and low.isascii()) or (dash and not (high.isdecimal() and high.isascii())):
            raise ValueError("is not a list of task indexes like 0-2,5")
        first, last = int(low), int(high or low)
        if not first <= last < TASKS_PER_JOB_MAX:
            raise ValueError(f"has indexes outside 0 to {TASKS_PER_JOB_MAX - 1}, or a descending range")
        indexes.update(range(first, last + 1))
    return tuple(sorted(indexes))
