"""What the lists of jobs, tasks and machines share: which filters they have, which columns are shown, and how
they are watched.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Generic, TypeVar

import msgspec
import typer

from borgish.cli import complete
from borgish.cli.render import Column, Form, Table, show_list, writer
from borgish.cli.screen import is_terminal, print_err, print_out
from borgish.text import clock_time, safe

if TYPE_CHECKING:
    from borgish.cli.lookup import Paged, Params
    from borgish.client import Client

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
ColumnsOption = Annotated[
    str,
    typer.Option(
        "--columns", metavar="A,B,C", help="Only these columns, in this order; of csv, these fields."
    ),
]
WatchOption = Annotated[
    bool,
    typer.Option(
        "--watch", "-w", help="Go on: draw it anew on a terminal, elsewhere add a line for what has changed."
    ),
]


class Listing(msgspec.Struct, Generic[T]):
    """A list as somebody asked for it."""

    client: "Client"
    path: str
    page: "type[Paged[T]]"
    params: "Params"
    columns: Sequence[Column[T]]
    form: Form
    name: Callable[[T], str]
    none: str
    limit: int | None = None
    chosen: str = ""  # the columns, or of csv the fields, that somebody wants
    folded: Callable[[Iterable[T]], Iterator[T]] = iter  # what the table shows of the items
    kinds: str = "tasks"  # what of the watch tells of changes
    # While it is watched: what writes more of it, and by name what was shown, but for what is restless.
    write: Callable[[Sequence[T]], str] | None = None
    seen: dict[str, tuple[str, ...]] = {}

    def show(self) -> None:
        """Show it once."""
        columns, fields = self._chosen()
        show_list(self._rows(), columns, self.form, self.name, self.none, fields)

    def watch(self) -> None:
        """Show it until interrupted, as kubectl does: on a terminal a table is drawn anew, and elsewhere, and
        in other forms, each item that has changed is written again."""
        from borgish.cli.changes import Changes, Deadline
        from borgish.errors import Unreachable

        if self.form is Form.YAML or not self.client.is_present:
            why = "a list in yaml has no end" if self.form is Form.YAML else "only the present changes"
            raise typer.BadParameter(f"cannot be used here: {why}", param_hint="--watch")
        is_redrawn = self.form.is_for_people and is_terminal(sys.stdout)
        show = self._redraw if is_redrawn else self._append
        changes = Changes(self.client, self.kinds)
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
        from borgish.cli.lookup import PAGE_MAX, every, read_ahead

        items: Iterator[T]
        if self.limit is None:
            items = read_ahead(self.client, self.path, self.params, self.page)
        else:
            params = self.params | {"limit": min(self.limit, PAGE_MAX)}
            items = islice(every(self.client, self.path, params, self.page), self.limit)
        return self.folded(items) if self.form is Form.TABLE else items

    def _chosen(self) -> tuple[Sequence[Column[T]], Sequence[str]]:
        """Return the columns of a table, and the fields of CSV where some are named."""
        names = [name.strip() for name in self.chosen.split(",")] if self.chosen else []
        if not names or self.form is Form.CSV:
            return self.columns, names
        if not self.form.is_for_people:
            raise typer.BadParameter("goes with the tables and with csv", param_hint="--columns")
        known = {column.title.lower(): column for column in self.columns}
        for name in names:
            if name.lower() not in known:
                raise typer.BadParameter(
                    f"there is no column '{safe(name)}'; there are {', '.join(known)}", param_hint="--columns"
                )
        columns = (known[name.lower()] for name in dict.fromkeys(names))
        return [msgspec.structs.replace(each, wide=False, rare=False) for each in columns], ()

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


def _now() -> float:
    from borgish.clock import SystemClock

    return SystemClock().now().wall
