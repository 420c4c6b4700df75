"""What all lists share: their filters, in which order they are, which columns are shown, and how they are
watched.

The master sorts and cuts what may be long: jobs, tasks and machines. What is longer than one of its pages,
and all other lists, are sorted and cut here.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Generic, NoReturn, Protocol, TypeVar

import msgspec
import typer

from borgish.cli import complete
from borgish.cli.render import Column, Form, Table, show_list, writer
from borgish.cli.screen import is_terminal, print_err, print_out
from borgish.text import clock_time, plural, safe

if TYPE_CHECKING:
    from borgish.cli.lookup import Paged, Params
    from borgish.client import Client
    from borgish.errors import Invalid

T = TypeVar("T")

WATCH_SECONDS, WATCH_SECONDS_MIN = 2.0, 0.5
"""How long until what is watched is asked for again: without news, and where there are news all the time."""

LabelOption = Annotated[
    str,
    typer.Option(
        "--label",
        "-l",
        metavar="SELECTOR",
        help="Only with these labels: app=web, tier!=db, gpu, with commas.",
    ),
]
UserFilterOption = Annotated[
    str, typer.Option("--user", metavar="USER", help="Only of this user.", autocompletion=complete.owners)
]
LimitOption = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N.")]
LatestOption = Annotated[
    int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="Only the latest N.")
]
WatchOption = Annotated[
    bool,
    typer.Option(
        "--watch", "-w", help="Go on: draw it anew on a terminal, elsewhere add a line for what has changed."
    ),
]


def cells_option(words: str) -> Any:
    """Return the option ``--cells`` of a command that knows several; ``words`` say what becomes of them."""
    return typer.Option("--cells", metavar="all|NAME,...", help=words, autocompletion=complete.cells)


CellsOption = Annotated[
    str | None,
    cells_option(
        "Of several cells: all you are logged in to, or those named, `local` for the nearest one here. "
        "With -o name a line is CELL NAME."
    ),
]


def columns_option(columns: Callable[[], Sequence[Column[Any]]]) -> Any:
    """Return the option ``--columns`` of a list that has these."""

    def completed(incomplete: str) -> list[str]:
        return complete.with_commas(incomplete, _words(columns()))

    return typer.Option(
        "--columns",
        metavar="A,B,C",
        help="Only these columns, in this order; of csv, these fields.",
        autocompletion=completed,
    )


def sort_option(columns: Callable[[], Sequence[Column[Any]]]) -> Any:
    """Return the option ``--sort`` of a list that is sorted here, which has these columns."""

    def completed(incomplete: str) -> list[str]:
        return [word for word in ("name", *_words(columns())) if word.startswith(incomplete)]

    return typer.Option(
        "--sort",
        metavar="KEY",
        help="By name, or by any of the columns; -KEY is the reverse.",
        autocompletion=completed,
    )


def _words(columns: Sequence[Column[Any]]) -> Iterator[str]:
    """Yield titles as they complete: no shell takes one of two words as it is."""
    return (column.title.lower() for column in columns if column.title and " " not in column.title)


class Owned(Protocol):
    """What belongs to a user or a group."""

    @property
    def user(self) -> str: ...


U = TypeVar("U", bound=Owned)


def of_user(items: Iterable[U], user: str) -> Iterator[U]:
    """Yield what belongs to a user; all of it where none is named."""
    return (item for item in items if user in ("", item.user))


def latest(items: Sequence[T], limit: int | None) -> Sequence[T]:
    """Return the last so many of a list that has the latest last; all where there is no limit."""
    return items if limit is None else items[-limit:]


def one_more(context: typer.Context, limit: int) -> int:
    """Return how many of the latest to ask for: one more than ``limit`` where nobody gave that, which shows
    whether there are earlier ones."""
    source = context.get_parameter_source("limit")
    return limit + (source is None or source.name != "COMMANDLINE")


def say_earlier(nouns: str, shown: int) -> None:
    """Say that a list of the latest does not have those before them."""
    print_err(f"not shown: {nouns} before the latest {shown}; `--limit N` shows more")


def paged(
    client: "Client", noun: str, params: "Params", page: "type[Paged[T]]", limit: int | None
) -> Callable[[], Iterator[T]]:
    """Return what asks for jobs, tasks or machines; ``noun`` is the kind. Raises Invalid for a ``sort`` that
    there is not.

    The master sorts one page. More of them would each cost it all of the list, and what moves in the order
    between two would be on both or on neither: so a long list comes by name, and is sorted here.
    """
    from borgish.cli.lookup import PAGE_MAX, every, read_ahead
    from borgish.cli.merging import RANKS, in_order

    path, sort = f"/v1/{noun}s", "" if params["sort"] == "name" else str(params["sort"])
    if sort.removeprefix("-") not in RANKS[noun]:
        raise _no_order(sort, filter(None, RANKS[noun]))
    if limit is not None and (limit <= PAGE_MAX or not sort):
        asked = params | {"limit": min(limit, PAGE_MAX)}
        return lambda: islice(every(client, path, asked, page), limit)
    by_name = params | {"sort": ""}
    if not sort:
        return lambda: read_ahead(client, path, by_name, page)
    return lambda: islice(in_order(read_ahead(client, path, by_name, page), noun, sort), limit)


def _no_order(sort: str, known: Iterable[str]) -> "Invalid":
    from borgish.errors import Invalid

    hint = f"Use one of {', '.join(known)}, with a - before it for the reverse"
    return Invalid(f"sort: there is no order '{safe(sort[:63])}'", hint)


def order_by(
    key: str, columns: Sequence[Column[T]], name: Callable[[T], str]
) -> Callable[[Iterable[T]], Iterable[T]]:
    """Return what puts items in the order of a column: text as it is, the largest number first, and where
    there is nothing, last. What is alike stays as it was, and without a key all does. Raises Invalid for a
    column that there is not."""
    if not key:
        return lambda items: items
    values = {"name": _number_or_text(name)} | {
        column.title.lower(): column.by or (_number_or_text(column.text) if column.right else column.text)
        for column in columns
        if column.title
    }
    value = values.get(key.removeprefix("-").lower())
    if value is None:
        raise _no_order(key, values)

    def place(item: T) -> tuple[int, float, str]:
        found = value(item)
        if found in (None, "", "-"):
            return 2, 0.0, ""
        return (1, 0.0, found) if isinstance(found, str) else (0, -found, "")

    def ordered(items: Iterable[T]) -> list[T]:
        found = sorted(items, key=place)
        return found[::-1] if key.startswith("-") else found

    return ordered


def _number_or_text(text: Callable[[T], str]) -> Callable[[T], float | str]:
    return lambda item: int(found) if (found := text(item)).isdecimal() else found


def choose(
    wanted: str, columns: Sequence[Column[T]], form: Form
) -> tuple[Sequence[Column[T]], Sequence[str]]:
    """Return the columns of a table, and the fields of CSV where some are named."""
    names = [name.strip() for name in wanted.split(",")] if wanted else []
    if not names or form is Form.CSV:
        return columns, names
    if not form.is_for_people:
        raise typer.BadParameter("goes with the tables and with csv", param_hint="--columns")
    known = {column.title.lower(): column for column in columns if column.title}
    for name in names:
        if name.lower() not in known:
            raise typer.BadParameter(
                f"there is no column '{safe(name)}'; there are {', '.join(known)}", param_hint="--columns"
            )
    chosen = (known[name.lower()] for name in dict.fromkeys(names))
    return [msgspec.structs.replace(each, wide=False, rare=False) for each in chosen], ()


class Listing(msgspec.Struct, Generic[T]):
    """A list as somebody asked for it."""

    items: Callable[[], Iterable[T]]  # asks for them, each time anew
    columns: Sequence[Column[T]]
    form: Form
    name: Callable[[T], str]
    none: str
    chosen: str = ""  # the columns, or of csv the fields, that somebody wants
    sort: str = ""  # of a list that comes whole
    limit: int | None = None
    # Of one that the master sorts: what an item is, and by what it was asked to sort. Several are merged so.
    noun: str = ""
    sorted_by: str = ""
    left_out: Callable[[], int] = int  # asks how many items that ended earlier are not in it
    # Of the latest, in order: how many are shown, what they are, and whether more came than that.
    latest: int | None = None
    nouns: str = ""
    has_earlier: bool = False
    folded: Callable[[Iterable[T]], Iterator[T]] = iter  # what the table shows of the items
    client: "Client | None" = None  # of one that can be watched
    kinds: str = "tasks"  # what of the watch tells of changes
    # While it is watched: what writes more of it, and by name what was shown, but for what is restless.
    write: Callable[[Sequence[T]], str] | None = None
    seen: dict[str, tuple[str, ...]] = {}

    def show(self, *, watch: bool = False) -> None:
        """Show it once, or until interrupted."""
        if watch and self.client is not None:
            self._watch(self.client)
        columns, fields = self._chosen()
        show_list(self._rows(), columns, self.form, self.name, self.none, fields)
        if count := self.left_out():
            what = f"{plural(count, self.noun)} that ended earlier"
            print_err(f"not shown: {what}; `borgctl {self.noun} list --all` has all")
        if self.has_earlier and self.latest is not None:
            say_earlier(self.nouns, self.latest)

    def _watch(self, client: "Client") -> NoReturn:
        """Show it as kubectl does: on a terminal a table is drawn anew, and elsewhere, and in other forms,
        each item that has changed is written again."""
        from borgish.cli.changes import Changes, Deadline
        from borgish.errors import Unreachable

        if self.form is Form.YAML or not client.is_present:
            why = "a list in yaml has no end" if self.form is Form.YAML else "only the present changes"
            raise typer.BadParameter(f"cannot be used here: {why}", param_hint="--watch")
        is_redrawn = self.form.is_for_people and is_terminal(sys.stdout)
        show = self._redraw if is_redrawn else self._append
        changes = Changes(client, self.kinds)
        lost = ""
        try:
            show()
            while True:
                sys.stdout.flush()
                deadline, is_news = Deadline(WATCH_SECONDS), False
                while deadline.left and not (is_news and deadline.spent >= WATCH_SECONDS_MIN):
                    is_news = changes.wait(deadline.left) or is_news
                try:
                    show()
                    lost = ""
                except Unreachable as error:  # a master that is away is waited for, and that is said once
                    if not lost:
                        print_err(f"{error.message}; waiting for it")
                    lost = error.message
        except KeyboardInterrupt:
            raise typer.Exit from None

    def _rows(self) -> Iterator[T]:
        order = order_by(self.sort, self.columns, self.name)  # before anything is asked for
        found = self.items()
        if self.latest is not None:
            every = list(found)
            found, self.has_earlier = every[-self.latest :], len(every) > self.latest
        items = islice(order(found), self.limit)
        return self.folded(items) if self.form is Form.TABLE else items

    def _chosen(self) -> tuple[Sequence[Column[T]], Sequence[str]]:
        return choose(self.chosen, self.columns, self.form)

    def _redraw(self) -> None:
        import shutil

        from borgish.text import instant

        columns, _ = self._chosen()
        rows = list(self._rows())
        lines = Table(columns, rare=self.form is Form.WIDE).rows(rows).splitlines() if rows else [self.none]
        room = max(2, shutil.get_terminal_size().lines - 2)
        left = len(lines) - room
        head = f"{clock_time(instant(_now()))}; Ctrl-C ends"
        more = f"and {left} more; --limit, or a filter, shows less" if left > 0 else ""
        print_out("\x1b[H\x1b[2J" + "\n".join([head, *lines[:room], *([more] if more else [])]))

    def _append(self) -> None:
        """Write what is other than it was."""
        columns, fields = self._chosen()
        if self.write is None:
            form = Form.JSONL if self.form is Form.JSON else self.form
            self.write = writer(columns, form, self.name, fields)
        calm = [column for column in columns or self.columns if not column.restless]
        fresh = []
        gone, self.seen = self.seen, {}
        for item in self._rows():
            name, looks = self.name(item), tuple(column.text(item) for column in calm)
            if gone.pop(name, None) != looks:
                fresh.append(item)
            self.seen[name] = looks
        if fresh:
            print_out(self.write(fresh))
        for name in gone:
            print_err(f"{name} is not in the list any more")


def show_asked(
    context: typer.Context,
    listing: Callable[["Client"], Listing[Any]],
    cells: str | None,
    at: str,
    form: Form,
    *,
    watch: bool,
) -> None:
    """Show a list that somebody asked for, of the cell that is meant, or of those that ``--cells`` names.
    ``listing`` returns that of one cell."""
    if cells is None:
        from borgish.cli.at_option import client_at

        listing(client_at(context, at, form)).show(watch=watch)
        return
    from borgish.cli.cells import show_merged

    for given, option, why in ((at, "--at", "a moment is of one cell"), (watch, "--watch", _NOT_WATCHED)):
        if given:
            raise typer.BadParameter(f"cannot be used beside --cells: {why}", param_hint=option)
    raise typer.Exit(show_merged(context, listing, cells))


_NOT_WATCHED = "a watch is of one cell; `watch -n 5 borgctl ... --cells ...` asks all of them again"


def _now() -> float:
    from borgish.clock import SystemClock

    return SystemClock().now().wall
