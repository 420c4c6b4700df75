"""``borgctl logs``: what tasks write, many at once, through restarts and moves.

A *run* is one life of a program: an attempt of its task, and how often it was restarted there. Whoever
follows asks for one run after the other by name, so that none is shown twice, and none that is still kept is
left out. ``Board`` says each second which runs there are, one ``Follower`` a task reads them, and the command
writes what they bring, line by line.
"""

import queue
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from borgish.cli import complete
from borgish.cli.at_option import NowOnly
from borgish.cli.commands.task import TAIL_LINES_MAX, ProgramOption
from borgish.cli.screen import has_colour, print_err, styled
from borgish.cli.session import Session, session_of, single
from borgish.clock import SystemClock
from borgish.errors import Conflict, Forbidden, Invalid, NotFound, Unreachable
from borgish.resources import parse_seconds
from borgish.text import instant, safe, safe_lines, seconds_since, zoned
from borgish.vocabulary import State
from borgish.wire.api import TaskList, TaskView

if TYPE_CHECKING:
    from borgish.client import Client, Params

logs_app = single()

FOLLOWED_MAX = 50
"""Tasks that are followed at a time: each takes a connection to the master, and one from there on."""
LINES_WAITING_MAX = 1000
LINE_BYTES_MAX = 64 * 1024  # what is longer comes as several lines: a task may write no line end at all
LOOK_SECONDS = 1.0
ASKED_AT_ONCE = 10  # where more things are named, they are looked at less often
LOST_SECONDS_MAX = 60.0  # that the master may be silent
RESUMED_LINES_MAX = 1000
RESUMED_BY_LINES = 50  # so many of the last lines are looked for, to go on behind them
COLOURS = (
    *("cyan", "green", "yellow", "magenta", "blue"),
    *("bright_cyan", "bright_green", "bright_yellow", "bright_magenta", "bright_blue"),
)


@logs_app.command(no_args_is_help=True)
def logs(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="JOB|TASK...",
            help="Jobs, of which all tasks, or tasks.",
            autocompletion=complete.jobs_and_tasks,
        ),
    ] = None,
    selector: Annotated[
        str,
        typer.Option(
            "--selector",
            "-l",
            metavar="CONDITION,...",
            help="Tasks of jobs with these labels: app=web,tier!=db.",
        ),
    ] = "",
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on with what is written, also after a restart or a move."),
    ] = False,
    since: Annotated[
        str,
        typer.Option("--since", metavar="TIME|AGE", help="Only what was written since then: 10m, 12:00."),
    ] = "",
    tail: Annotated[
        int | None,
        typer.Option("--tail", min=1, max=TAIL_LINES_MAX, help="Begin with the last N lines of each task."),
    ] = None,
    grep: Annotated[
        str,
        typer.Option("--grep", metavar="REGEX", help="Only lines in which this is found; (?i): any case."),
    ] = "",
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="When each line was written, in UTC and to a second.")
    ] = False,
    previous: Annotated[bool, typer.Option("--previous", help="Output of the previous runs.")] = False,
    program: ProgramOption = "",
    _at: NowOnly = "",
) -> None:
    """Show what tasks wrote, many at once.

    Of one task that is the output as it is, of more each line has the task's name in front. With -f a task
    that is restarted or moves goes on in the same command, which says so on stderr; it ends when all of them
    are dead. At most 50 tasks are followed at a time. --tail is applied before --grep.

    Exit code 1: none of them has any output, or the master was lost for a minute.
    """
    pattern = _pattern(grep)
    if not names and not selector:
        raise typer.BadParameter("name jobs or tasks, or give their labels with -l", param_hint="JOB|TASK")
    if previous and follow:
        raise typer.BadParameter("is over, and cannot be followed", param_hint="--previous")
    begin = _moment(since) if since else 0.0
    session = session_of(context)
    client = session.client()
    wanted = _wanted(client, names or [], selector)
    views = [view for view in _views(client, wanted, gone=False).values() if not _ended_before(view, begin)]
    output = Output(
        pattern, prefixed=not all(each.path for each in wanted) or len(views) > 1, timestamps=timestamps
    )
    chosen: Params = {
        "program": program,
        "since": instant(begin) if begin else None,
        "timestamps": True if timestamps else None,  # which an older borgmaster does not know
    }
    if not views:
        raise NotFound("there is no such task", "`borgctl task list` shows those there are")
    if not follow:
        client.close()
        which = {**chosen, "tail": tail, "previous": int(previous)}
        raise typer.Exit(_show_each(client, views, output, which))
    if len(views) > FOLLOWED_MAX:
        raise Invalid(
            f"{len(views)} tasks are meant, and {FOLLOWED_MAX} can be followed at a time",
            "Name some of the tasks, like web/0 web/1, or more labels with -l; without -f all are shown",
        )
    _follow(session, client, wanted, views, output, tail, chosen)


# -- which tasks are meant ---------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """One thing that was named: a task by its ``path``, or all tasks that ``params`` of a list choose, also
    those to come."""

    path: str
    params: "Params"


def _wanted(client: "Client", names: Sequence[str], selector: str) -> list[Wanted]:
    from borgish.cli.lookup import job_keys, match_subject
    from borgish.client import quoted

    known = job_keys(client) if names else []
    found = [match_subject(name, known) for name in names]
    wanted = [
        Wanted("", {"job": name}) if name in known else Wanted(quoted("tasks", *name.split("/")), {})
        for name in dict.fromkeys(found)
    ]
    return [*wanted, *([Wanted("", {"label": selector})] if selector else [])]


def _views(client: "Client", wanted: Sequence[Wanted], *, gone: bool = True) -> dict[str, TaskView]:
    """Return the tasks that are meant by their names, as they are; those may be ``gone`` that were there.
    Raises NotFound."""
    from borgish.cli.lookup import every

    views: dict[str, TaskView] = {}
    for path, params in wanted:
        with suppress(NotFound) if gone else nullcontext():
            found = (
                [client.get(path, None, TaskView)]
                if path
                else every(client, "/v1/tasks", dict(params), TaskList)
            )
            views |= {view.name: view for view in found}
    return views


def _ended_before(view: TaskView, begin: float) -> bool:
    return bool(begin) and view.state is State.DEAD and seconds_since(view.since, begin) > 0


def _moment(text: str) -> float:
    """Return the moment that was typed, in seconds since 1970: 10m for that long ago, 12:00, or a date."""
    try:
        return SystemClock().now().wall - parse_seconds(text.removesuffix(" ago"))
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(zoned(text)).timestamp()
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"'{text}' is neither an age like 10m nor a time like 12:00 or 2026-01-31T12:00",
            param_hint="--since",
        ) from None


def _pattern(text: str) -> "re.Pattern[str] | None":
    try:
        return re.compile(text) if text else None
    except re.error as error:
        where = "" if error.pos is None else f" at character {error.pos + 1}"
        raise typer.BadParameter(
            f"'{text}' is not a regular expression: {error.msg}{where}", param_hint="--grep"
        ) from None


# -- lines -------------------------------------------------------------------------------------------------


_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})\d*Z ")


class Output:
    """Where lines go: stdout, each with the name of its task in front, where there are several."""

    def __init__(
        self, pattern: "re.Pattern[str] | None", *, prefixed: bool = True, timestamps: bool = False
    ) -> None:
        self._pattern, self._prefixed, self._timestamps = pattern, prefixed, timestamps
        self._is_terminal, self._is_coloured = sys.stdout.isatty(), has_colour(sys.stdout)
        self._colours: dict[str, str] = {}
        sys.stdout.flush()

    def write(self, name: str, line: bytes) -> None:
        """Write a line of a task, if it is one that is wanted."""
        front = b""
        if self._timestamps and (stamp := _STAMP.match(line)):  # none from a machine of an older release
            front, line = b"%sZ " % stamp[1], line[stamp.end() :]
        if self._pattern or self._is_terminal:
            text = line.decode("utf-8", "backslashreplace").removesuffix("\r")
            if self._pattern and not self._pattern.search(text):
                return
            if self._is_terminal:  # elsewhere bytes stay as they are
                line = safe_lines(text).encode(errors="backslashreplace")
        if self._prefixed:
            colour = self._colours.setdefault(name, COLOURS[len(self._colours) % len(COLOURS)])
            label = f"{safe(name)} |"
            front += ((styled(label, colour, sys.stdout) if self._is_coloured else label) + " ").encode()
        sys.stdout.buffer.write(front + line + b"\n")

    def flush(self) -> None:
        sys.stdout.buffer.flush()


def lines_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines in a stream; see ``lines_in``."""
    from borgish.client import lines_in

    return chain.from_iterable(lines_in(pieces, LINE_BYTES_MAX))


def behind(lines: Iterable[bytes], shown: Sequence[bytes]) -> Iterator[bytes]:
    """Yield of lines those behind the ones that were ``shown`` last; where these are not among the first
    ``RESUMED_LINES_MAX``, all."""
    held: deque[bytes] | None = deque() if shown else None
    for line in lines:
        if held is None:
            yield line
            continue
        held.append(line)
        if len(held) >= len(shown) and line == shown[-1] and _ends_with(held, shown):
            held = None
        elif len(held) >= RESUMED_LINES_MAX:
            yield from held
            held = None
    yield from held or ()


def _ends_with(held: "deque[bytes]", shown: Sequence[bytes]) -> bool:
    return all(held[-back] == shown[-back] for back in range(1, len(shown) + 1))


def _show_each(client: "Client", views: Sequence[TaskView], output: Output, which: "Params") -> int:
    """Show what each task wrote, one after the other; return the exit code."""
    some = False
    for view in views:
        try:
            for line in lines_of(client.stream(_path(view.name), which)):
                some = True
                output.write(view.name, line)
            output.flush()
        except (NotFound, Conflict, Forbidden) as error:
            if len(views) == 1:
                raise
            print_err(f"{safe(view.name)}: {error.message}", "dim")
    if not some:
        print_err(
            f"{safe(views[0].name)} has written nothing" if len(views) == 1 else "none has written anything"
        )
    return 0 if some or len(views) == 1 else 1


def _path(task: str) -> str:
    from borgish.client import quoted

    return quoted("tasks", *task.split("/"), "logs")


# -- following ---------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """One life of a program."""

    attempt: int
    restarts: int
    machine: str


def next_run(view: TaskView, shown: Run | None, program: str = "") -> Run | None:
    """Return the run to show after the one that was ``shown`` whole; None while there is none.

    Of an attempt the last two runs are kept on its machine: those between are gone.
    """
    if not view.attempt:
        return None
    restarts = (
        next((it.restarts for it in view.programs if it.name == program), 0) if program else view.restarts
    )
    machine = view.machine or ""
    if shown is None:
        return Run(view.attempt, restarts, machine)
    first = shown.restarts + 1 if shown.attempt == view.attempt else 0
    return Run(view.attempt, max(first, restarts - 1), machine) if restarts >= first else None


def transition(name: str, before: Run, now: Run) -> str:
    """Return what to say where a task goes on with another run."""
    if now.attempt == before.attempt:
        return f"{name}: restarted on {now.machine}"
    if now.machine != before.machine:
        return f"{name}: moved from {before.machine} to {now.machine}"
    return f"{name}: began anew on {now.machine}"


class Board:
    """How the tasks are, looked at each second in a thread of its own."""

    def __init__(
        self, client: "Client", wanted: Sequence[Wanted], views: Sequence[TaskView], said: "Said"
    ) -> None:
        self.changed = threading.Condition()
        self._views = {view.name: view for view in views}
        self._client, self._wanted, self._said = client, wanted, said

    @property
    def names(self) -> list[str]:
        """The tasks there are, in order."""
        with self.changed:
            return list(self._views)

    def view(self, name: str) -> TaskView | None:
        """Return a task as it was seen last; None where it is gone."""
        with self.changed:
            return self._views.get(name)

    def watch(self) -> None:
        """Look, until the process ends. What cannot be mended goes to who reads."""
        lost_at: float | None = None
        pause, clock = threading.Event(), SystemClock()
        pause_seconds = LOOK_SECONDS * max(1.0, len(self._wanted) / ASKED_AT_ONCE)
        while True:
            pause.wait(pause_seconds)
            try:
                views = _views(self._client, self._wanted)
            except Unreachable as error:
                now = clock.now().mono
                if lost_at is None:
                    lost_at = now
                    self._said.put(f"{error.message}; trying again")
                if now - lost_at > LOST_SECONDS_MAX:
                    self._said.put(error)
                    return
                continue
            except BaseException as error:  # raised to who reads
                self._said.put(error)
                return
            if lost_at is not None:
                lost_at = None
                self._said.put("the borgmaster answers again")
            with self.changed:
                self._views = views
                self.changed.notify_all()


class Line(NamedTuple):
    """A line that a task wrote."""

    task: str
    text: bytes


Said = queue.Queue[Line | str | BaseException]
"""What threads bring to who writes: lines, words for stderr, and what ends the command. Bounded, so whoever
reads slowly slows the tasks' connections down, and nothing piles up here."""


class Follower:
    """Reads the output of one task, run by run."""

    def __init__(
        self, client: "Client", name: str, board: Board, said: Said, tail: int | None, chosen: "Params"
    ) -> None:
        self.is_idle = False  # all that it wrote was shown, and it is dead or gone
        self._client, self._name, self._board, self._said = client, name, board, said
        self._tail, self._chosen = tail, chosen
        self._is_lost = False  # the connection broke, and nothing came since
        self._last: deque[bytes] = deque(maxlen=RESUMED_BY_LINES)  # of the run that is being read

    def follow(self) -> None:
        """Read on and on; what cannot be mended goes to who reads."""
        shown: Run | None = None
        reading: Run | None = None
        try:
            while True:
                view = self._board.view(self._name)
                run = next_run(view, shown, str(self._chosen["program"])) if view else None
                if run is None:
                    self._rest(view)
                    continue
                self.is_idle = False
                if shown is not None and run != reading:
                    self._said.put(transition(self._name, shown, run))
                if run != reading:
                    self._last.clear()
                reading = run
                if self._read(run, is_first=shown is None):
                    shown = run
        except Forbidden as error:
            if len(self._board.names) == 1:
                self._said.put(error)
            self._said.put(f"{self._name}: {error.message}")
            self.is_idle = True
        except BaseException as error:
            self._said.put(error)

    def _rest(self, view: TaskView | None) -> None:
        """Wait for news of a task that has nothing to show."""
        is_over = view is None or view.state is State.DEAD
        if is_over and not self.is_idle:
            how = "gone" if view is None else f"dead ({view.outcome or 'killed'})"
            why = f": {view.reason}" if view is not None and view.reason else ""
            self._said.put(f"{self._name} is {how}{why}")
        self.is_idle = is_over
        with self._board.changed:
            self._board.changed.wait(LOOK_SECONDS)

    def _read(self, run: Run, *, is_first: bool) -> bool:
        """Read a run, from behind what was shown of it; return whether it is over."""
        resumed = list(self._last)
        tail = RESUMED_LINES_MAX if resumed else self._tail if is_first else None
        params: Params = {
            **self._chosen,
            "follow": 1,
            "tail": tail,
            "attempt": run.attempt,
            "restarts": run.restarts,
        }
        try:
            for line in behind(lines_of(self._client.stream(_path(self._name), params)), resumed):
                self._is_lost = False
                self._last.append(line)
                self._said.put(Line(self._name, line))
        except (NotFound, Conflict) as error:
            self._said.put(f"{self._name}: {error.message}")
            return True
        except Unreachable as error:
            if not self._is_lost:
                self._said.put(f"{self._name}: {error.message}; looking where it is")
            self._is_lost = True
            with self._board.changed:
                self._board.changed.wait(2 * LOOK_SECONDS)
            # On a machine that is down there is nothing more to read.
            view = self._board.view(self._name)
            return view is None or view.state is not State.RUNNING or view.attempt != run.attempt
        return True


def _follow(
    session: Session,
    client: "Client",
    wanted: Sequence[Wanted],
    views: Sequence[TaskView],
    output: Output,
    tail: int | None,
    chosen: "Params",
) -> None:
    """Write what the tasks write until all of them are dead."""
    said: Said = queue.Queue(LINES_WAITING_MAX)
    board = Board(client, wanted, views, said)
    followers: dict[str, Follower] = {}
    _in_background(board.watch)
    refused: set[str] = set()
    while True:
        for name in board.names:
            if name in followers or name in refused:
                continue
            if len(followers) >= FOLLOWED_MAX:
                refused.add(name)
                print_err(f"{safe(name)} is not followed: {FOLLOWED_MAX} tasks are")
                continue
            followers[name] = Follower(session.client(), name, board, said, tail, chosen)
            _in_background(followers[name].follow)
        try:
            _write(said.get(timeout=LOOK_SECONDS / 4), output)
            while not said.empty():
                _write(said.get(), output)
        except queue.Empty:
            if all(follower.is_idle for follower in followers.values()) and said.empty():
                return
        output.flush()


def _write(item: Line | str | BaseException, output: Output) -> None:
    if isinstance(item, BaseException):
        raise item
    if isinstance(item, Line):
        output.write(item.task, item.text)
    else:
        output.flush()
        print_err(item, "dim")


def _in_background(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="logs", daemon=True).start()
