"""Several cells with one borgctl: which ``--cells`` means, all of them asked at the same time, their lists as
one.

Nothing stands above cells: each is asked as it would be alone, with its own token, and knows of no other.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
import typer

from borgish.cli.changes import Deadline
from borgish.cli.errors import DONE, FAILED, NOT_ALLOWED, print_error
from borgish.cli.merging import folded_by_cell, merged
from borgish.cli.render import Column
from borgish.cli.session import ALL, LOCAL, Session, cells_folder, expect_logged_in, logged_in, session_of
from borgish.errors import BorgishError, Forbidden, Invalid, NotFound, Unauthenticated, Unreachable
from borgish.resources import Resources
from borgish.text import begun
from borgish.wire.api import HealthView, StatusView, WhoamiView

if TYPE_CHECKING:
    from borgish.cli.listing import Listing
    from borgish.client import Client

T = TypeVar("T")

PATIENCE_SECONDS = 5.0
"""How long a cell may take for its first answer: one that is away holds up nobody who asks the others."""
ANSWER_SECONDS = 30.0
"""For each answer after that, as of one cell."""
_OF_ONE_CELL = {"url": "--url", "token_file": "--token-file", "read_from": "--read-from"}


class Named(msgspec.Struct, frozen=True):
    """One of the cells that were named, and how it is asked."""

    name: str
    session: Session


class Answers(msgspec.Struct, Generic[T]):
    """What the cells said, in the order in which they were named; of the others, why they said nothing."""

    said: dict[str, T]
    failed: dict[str, BorgishError]


def cells_named(context: typer.Context, text: str) -> list[Named]:
    """Return the cells that ``--cells`` names, each once. Ends with usage beside what names one cell."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise typer.BadParameter("names no cell; give `all`, or names with commas", param_hint="--cells")
    session, root = session_of(context), context.find_root()
    # What the environment says is for commands of one cell; what was typed beside --cells was meant for this.
    sources = {name: root.get_parameter_source(name) for name in root.params}
    typed = [name for name, source in sources.items() if source and source.name == "COMMANDLINE"]
    for name, option in _OF_ONE_CELL.items():
        if name in typed:
            raise typer.BadParameter("cannot be used beside --cells: it is of one cell", param_hint=option)
    if "folder" in typed and LOCAL not in words:
        raise typer.BadParameter(f"goes with --cells where {LOCAL} is among them", param_hint="--dir")
    known = logged_in()
    if ALL in words and not known:
        hint = f"`borgctl login URL` keeps a token for one; --cells {LOCAL} is the nearest one on this host"
        raise NotFound("you are not logged in to any cell", hint)
    names = dict.fromkeys(chain.from_iterable(known if word == ALL else [word] for word in words))
    return [Named(name, _session_of(name, session)) for name in names]


def _session_of(name: str, session: Session) -> Session:
    if name == LOCAL:
        return Session(session.local_folder)
    expect_logged_in(name)
    return Session(cells_folder() / name)


def ask_each(cells: Sequence[Named], question: Callable[[Named, "Client"], T]) -> Answers[T]:
    """Ask all cells at the same time. Raises what is wrong with the question, and not with a cell."""
    asked = [_Asked(cell, question) for cell in cells]
    deadline, found = Deadline(PATIENCE_SECONDS), Answers[T]({}, {})
    for each in asked:
        answer = each.answer(deadline)
        if isinstance(answer, BorgishError):
            found.failed[each.cell.name] = answer
        else:
            found.said[each.cell.name] = answer
    return found


class _Asked(Generic[T]):
    """One cell that is asked in a thread of its own: a daemon, for nobody waits for one that is away."""

    def __init__(self, cell: Named, question: Callable[[Named, "Client"], T]) -> None:
        self.cell, self._question = cell, question
        self._is_there = threading.Event()  # it has answered, or it is over
        self._has_answered = False
        self._said: list[T] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._ask, name=f"cell {cell.name}", daemon=True)
        self._thread.start()

    def answer(self, deadline: Deadline) -> T | BorgishError:
        """Return what it says, or why it says nothing."""
        if not self._is_there.wait(deadline.left):
            hint = "Is its borgmaster up, and open to this host?"
            return Unreachable(f"it did not answer within {PATIENCE_SECONDS:g} s", hint)
        self._thread.join()
        if self._error is None:
            return self._said[0]
        # What is invalid in a question is so for each cell; before it, it is the address of this one.
        is_of_question = self._has_answered and isinstance(self._error, Invalid)
        if is_of_question or not isinstance(self._error, BorgishError):
            raise self._error
        return self._error

    def _ask(self) -> None:
        try:
            client = self.cell.session.client(PATIENCE_SECONDS)
            try:
                client.get("/v1/whoami", None, WhoamiView)
            except NotFound:  # a master of an older release
                client.get("/v1/health", None, HealthView)
            self._has_answered = True
            self._is_there.set()
            client.close()
            client.timeout_seconds = ANSWER_SECONDS
            self._said.append(self._question(self.cell, client))
            client.close()
        except Exception as error:  # it is raised to who waits for the answer
            self._error = error
        finally:
            self._is_there.set()


def say_failed(failed: Mapping[str, BorgishError]) -> int:
    """Say a line for each cell that could not be asked: why, and what to do. Return the exit code."""
    for name, error in failed.items():
        hint = error.hint
        if isinstance(error, Unauthenticated) and name != LOCAL:
            hint = f"`borgctl login URL --name {name}` keeps another token"
        print_error(f"{name}: {error.message}" + f". {begun(hint)}" * bool(hint))
    return NOT_ALLOWED if failed else DONE


def show_merged(context: typer.Context, listing: Callable[["Client"], "Listing[Any]"], text: str) -> int:
    """Show the lists of several cells as one; return the exit code."""

    def ask(_: Named, client: "Client") -> tuple["Listing[Any]", list[Any], int]:
        # Whole, so that a cell that breaks off is left out and not shown in part.
        one = listing(client)
        return one, list(one.items()), one.left_out()

    answers = ask_each(cells_named(context, text), ask)
    # A job or machine that only some of the cells know: the others have nothing to list.
    unknown = {name: error for name, error in answers.failed.items() if isinstance(error, NotFound)}
    away = {name: error for name, error in answers.failed.items() if name not in unknown}
    if not answers.said:
        say_failed(unknown)
        return say_failed(away) or FAILED
    first = next(iter(answers.said.values()))[0]
    lists = {name: items for name, (_, items, _) in answers.said.items()}
    left_out = sum(count for _, _, count in answers.said.values())
    msgspec.structs.replace(
        first,
        items=lambda: merged(lists, first.noun, first.sorted_by),
        columns=(Column("CELL", attrgetter("cell")), *first.columns),
        name=lambda item: f"{item.cell} {first.name(item)}",
        folded=lambda items: folded_by_cell(items, first.folded),
        left_out=lambda: left_out,
    ).show()
    return say_failed(away)


class CellStatus(msgspec.Struct, frozen=True):
    """One cell of several at one glance. What is not known of one that does not answer is null."""

    name: str
    state: str  # ok, or in a word why not
    reason: str = ""
    machines: int | None = None
    machines_up: int | None = None
    running: int | None = None  # tasks
    pending: int | None = None
    asked: Resources | None = None  # the limits of what runs
    capacity: Resources | None = None  # of the machines that are up


def asked_of(view: StatusView) -> Resources:
    """Return what all that runs in a cell may use."""
    return Resources(sum(band.cpu_millis for band in view.bands), sum(band.ram_bytes for band in view.bands))


def statuses(context: typer.Context, text: str) -> tuple[list[CellStatus], Mapping[str, BorgishError]]:
    """Return how each of several cells is, and of which it is not known, and why."""
    named = cells_named(context, text)
    answers = ask_each(named, lambda _, client: client.get("/v1/status", None, StatusView))
    rows = (
        _unknown(cell.name, answers.failed[cell.name])
        if cell.name in answers.failed
        else _known(cell.name, answers.said[cell.name])
        for cell in named
    )
    return list(rows), answers.failed


def _unknown(name: str, error: BorgishError) -> CellStatus:
    is_away, is_refused = isinstance(error, Unreachable), isinstance(error, Unauthenticated | Forbidden)
    state = "unreachable" if is_away else "not allowed" if is_refused else "failed"
    return CellStatus(name, state, error.message)


def _known(name: str, view: StatusView) -> CellStatus:
    return CellStatus(
        name,
        "refuses changes" if view.refusing else "ok",
        "; ".join(view.refusing),
        view.machines,
        view.machines_up,
        view.running,
        view.pending,
        asked_of(view),
        view.capacity,
    )
