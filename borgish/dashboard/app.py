"""Runs the dashboard: a frame for each key, and four a second, where what they show has changed.

Where a key leads is decided in ``place``, what to show there in ``screen``; reading the cell is left to
``feed``, ``reader`` and ``pulse``, commands to ``commands``, and modes of the terminal to ``terminal``.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions, ConsoleOptions
from rich.live import Live
from rich.segment import Segment
from rich.style import Style

from borgish.clock import Clock, SystemClock
from borgish.dashboard.asks import Answer, Ask, asks, is_fixed, log_place
from borgish.dashboard.bodies import Known
from borgish.dashboard.columns import Line, Role
from borgish.dashboard.commands import Commands
from borgish.dashboard.feed import Feed, News
from borgish.dashboard.frame import Frame, Shown, frame
from borgish.dashboard.keys import Decoder, Key
from borgish.dashboard.place import Place, Screen, Walk, press
from borgish.dashboard.pulse import Pulse
from borgish.dashboard.reader import Log, Reader
from borgish.dashboard.screen import draw
from borgish.dashboard.terminal import (
    Bell,
    Keys,
    ended_by_sigterm,
    input_descriptor,
    keys_of,
    set_up,
    told_of_sizes,
)
from borgish.dashboard.trails import Trails
from borgish.errors import Unreachable
from borgish.wire.api import SummaryView

if TYPE_CHECKING:
    from borgish.client import Client

T = TypeVar("T")

FRAME_SECONDS = 0.25
ESCAPE_SECONDS = 0.05
"""What follows an escape within this time belongs to it: the codes of other keys begin with one."""
SLOW_SECONDS = 5.0
"""A master that says nothing for longer is said to."""
WIDTH_OF_A_FILE = 100
_HEIGHT_ONCE_MIN = 40
_SIZE_UNKNOWN = (80, 24)  # what a terminal that does not say has most likely


def run(
    client: "Client", *, once: bool, commands: Commands | None = None, past: "Client | None" = None
) -> int:
    """Show the cell until somebody quits; or one frame, with ``once`` or where there is no terminal.
    ``commands`` runs what somebody chooses to do; without, one only looks. ``past`` answers in place of
    ``client`` what is of the past.

    Returns the exit code. Raises BorgishError when the master cannot be reached to begin with.
    """
    view = client.get("/v1/summary", None, SummaryView)
    if once or not _is_screen():
        _print_one(view)
    else:
        _show(client, view, commands or Commands(list, ""), past)
    return 0


def banner_of(
    news: News, now_mono: float, *, paused: bool, heard_at: float, asking_since: float | None = None
) -> str:
    """Return what is wrong with what is shown, as one line; "" when it is live. ``heard_at``: when the master
    said anything at last; ``asking_since``: since when an answer has been waited for."""
    parts = ["paused: p goes on"] if paused else []
    silent_since = heard_at if asking_since is None else min(heard_at, asking_since)
    if news.lost_at is not None:
        word = "not reachable" if isinstance(news.error, Unreachable) else "no news"
        since = min(news.lost_at, heard_at)  # of one that is frozen the watch ends long after its last word
        parts.append(f"{word} since {now_mono - since:.0f} s: {news.error}")
    elif now_mono - silent_since >= SLOW_SECONDS:
        parts.append(f"no answer for {now_mono - silent_since:.0f} s")
    return " | ".join(parts)


def _is_screen() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _console(*, terminal: bool) -> Console:
    """Return a console that reads no markup; colours as the terminal and NO_COLOR want them."""
    return Console(force_terminal=terminal, markup=False, emoji=False, highlight=False)


def _print_one(view: SummaryView) -> None:
    on_screen = _is_screen()
    size = shutil.get_terminal_size((WIDTH_OF_A_FILE, 0))
    width = size.columns if sys.stdout.isatty() else WIDTH_OF_A_FILE
    shown = frame(Shown(view, keys=False), width, max(_HEIGHT_ONCE_MIN, size.lines - 1), filled=False)
    console = _console(terminal=on_screen)
    ascii_only = console.options.ascii_only
    if on_screen:
        console.width = width
        console.print(Picture(shown, ascii_only=ascii_only))
    else:
        sys.stdout.write(plain(shown, ascii_only=ascii_only))
    sys.stdout.flush()


def _show(client: "Client", view: SummaryView, commands: Commands, past: "Client | None") -> None:
    clock, bell = SystemClock(), Bell()
    commands.heard = bell.ring
    feed = Feed(client, clock, view, bell.ring)
    reader = Reader(client.beside(), clock, bell.ring, past)
    pulse = Pulse(client.beside(), clock, lambda: max(feed.news.heard_at, reader.answered_at))
    console = _console(terminal=True)
    for each in (feed, reader, pulse):
        each.start()
    app = _App(console, clock, bell, feed, reader, pulse, commands, client)
    try:
        with (
            ended_by_sigterm(),
            told_of_sizes(app.draw_anew),
            keys_of(input_descriptor()) as keys,
            set_up(sys.stdout),
            _live(console) as live,
        ):
            app.follow(keys, live)
    except KeyboardInterrupt:
        pass  # one way to quit
    finally:
        app.close()


def _live(console: Console) -> Live:
    return Live(
        console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    )


class Still(Generic[T]):
    """What of something is shown: the latest, or what it was when it began to stand still."""

    def __init__(self, first: T) -> None:
        self._value = first
        self._about: object = None

    def of(self, latest: T, about: object, *, still: bool) -> T:
        """Return what to show; the latest in any case when it is about something else."""
        if not still or about != self._about:
            self._value, self._about = latest, about
        return self._value


class _App:
    """Draws what is known, and goes where keys lead; what that needs is read by others."""

    def __init__(
        self,
        console: Console,
        clock: Clock,
        bell: Bell,
        feed: Feed,
        reader: Reader,
        pulse: Pulse,
        commands: Commands,
        client: "Client",
    ) -> None:
        self._console = console
        self._clock = clock
        self._bell = bell
        self._feed = feed
        self._reader = reader
        self._pulse = pulse
        self._commands = commands
        self._client = client
        self._walk = Walk()
        self._log: Log | None = None
        now = clock.now().mono
        self._shown_news = Still((feed.news, now))
        self._shown_answer = Still(Answer(()))
        self._trails = Trails()
        self._shown_trails = Still(self._trails)
        self._shown_log = Still[tuple[tuple[str, ...], str]](((), ""))
        self._drawn: Frame | None = None

    def follow(self, keys: Keys, live: Live) -> None:
        """Draw until somebody quits or the terminal is gone."""
        decoder = Decoder()
        screen = self._draw(live)
        while True:
            seconds = ESCAPE_SECONDS if decoder.is_unfinished else FRAME_SECONDS
            pressed = keys.wait(seconds, self._bell)
            if pressed is None:
                return
            for key in decoder.feed(pressed):
                if key is Key.REDRAW:
                    self.draw_anew()
                else:
                    self._walk = press(self._walk, key, screen)
                screen = self._draw(live)
                if self._walk.is_over:
                    return
            self._commands.run(self._walk.commands)
            screen = self._draw(live)

    def draw_anew(self) -> None:
        """Draw the next frame even when it is as the last: something else is on the screen."""
        self._drawn = None

    def close(self) -> None:
        """Want nothing more of anybody."""
        self._feed.close()
        self._reader.close()
        self._pulse.close()
        if self._log is not None:
            self._log.close()

    def _draw(self, live: Live) -> Screen:
        place = self._walk.place
        self._reader.want(asks(place), fixed=is_fixed(place))
        self._read_log(log_place(self._walk))
        columns, lines = self._size()
        drawn = draw(self._walk, self._known(), columns, lines)
        self._walk = drawn.walk
        # First: the terminal may change its size, and ask for all of it again, while this one is drawn.
        before, self._drawn = self._drawn, drawn.frame
        if drawn.frame != before:
            self._console.size = ConsoleDimensions(columns, lines)
            live.update(Picture(drawn.frame, ascii_only=self._console.options.ascii_only), refresh=True)
        return drawn.screen

    def _read_log(self, place: Place | None) -> None:
        if self._log is not None and (place is None or self._log.of != (place.subject, place.previous)):
            self._log.close()
            self._log = None
        if place is not None and self._log is None:
            self._log = Log(self._client.beside(), place.subject, self._bell.ring, previous=place.previous)
            self._log.start()

    def _known(self) -> Known:
        """Return what is known. Time stands still while nothing is heard or wanted, and a log while somebody
        reads what came before."""
        walk, place, now = self._walk, self._walk.place, self._clock.now().mono
        latest = self._feed.news
        if latest.lost_at is None:
            self._trails = self._trails.then(latest.view.machines, now)
        news, until = self._shown_news.of((latest, now), None, still=walk.is_paused)
        # At once: the interpreter is not given away while a tuple is made.
        lines, ended = (tuple(self._log.lines), self._log.ended) if self._log else ((), "")
        is_read = bool(lines) and (log := log_place(walk)) is not None and not log.follows
        lines, ended = self._shown_log.of(
            (lines, ended), (self._log, bool(lines)), still=walk.is_paused or is_read
        )
        return Known(
            news.view,
            self._answer(asks(place)),
            (until if news.lost_at is None else news.lost_at) - news.heard_at,
            banner_of(
                latest,
                now,
                paused=walk.is_paused,
                heard_at=self._pulse.heard_at,
                asking_since=self._reader.asking_since,
            ),
            lines,
            ended,
            tuple(self._commands.outputs),
            self._shown_trails.of(self._trails, None, still=walk.is_paused),
            self._commands.role,
        )

    def _answer(self, asked: tuple[Ask, ...]) -> Answer:
        answer = self._reader.answer
        if answer.asks != asked:
            answer = Answer(asked)
        is_there = bool(answer.views) or answer.error is not None
        return self._shown_answer.of(answer, asked if is_there else None, still=self._walk.is_paused)

    def _size(self) -> tuple[int, int]:
        """Return the columns and lines of the terminal, which may have changed."""
        size = os.get_terminal_size(self._console.file.fileno())
        return size.columns or _SIZE_UNKNOWN[0], size.lines or _SIZE_UNKNOWN[1]


STYLES = {
    Role.PLAIN: "",
    Role.TITLE: "bold",
    Role.HEADING: "dim",
    Role.DIM: "dim",
    Role.GOOD: "green",
    Role.WARN: "yellow",
    Role.BAD: "red",
    Role.BANNER: "bold reverse red",  # reverse stays where colours are not wanted
    Role.USED: "green",
    Role.HELD: "blue",
    Role.MONITORING: "magenta",
    Role.PRODUCTION: "green",
    Role.BATCH: "cyan",
    Role.FREE: "blue",
    Role.KEY: "bold cyan",
    Role.NEW: "bold yellow",
    Role.FOUND: "bold reverse yellow",
}
"""Colours of the terminal's own palette, so that they fit light and dark backgrounds."""
_STYLES = {role: Style.parse(style) for role, style in STYLES.items()}
_CHOSEN = Style.parse("reverse")
_END = Segment.line()

_ASCII = str.maketrans("█▓▒░━─│·…▁▂▃▄▅▆▇●▏←→", "MPBF#=|.~1234567o_<>")


class Picture:
    """A frame for a rich console of its size. Its pieces are as wide as they should be and safe to show, so
    they go to the console as they are: to wrap and cut them as texts takes as long as all else of a frame."""

    def __init__(self, frame: Frame, *, ascii_only: bool = False) -> None:
        self._frame = frame
        self._ascii_only = ascii_only

    def __rich_console__(self, _console: Console, _options: ConsoleOptions) -> Iterator[Segment]:
        for row in self._frame.lines:
            yield from _segments(row, ascii_only=self._ascii_only)
            yield _END


def plain(frame: Frame, *, ascii_only: bool = False) -> str:
    """Return the frame as text without any codes, for files and pipes."""
    rows = ("".join(piece.text for piece in row) for row in frame.lines)
    return "".join(f"{_ascii(row) if ascii_only else row}".rstrip() + "\n" for row in rows)


@lru_cache(1024)  # most lines are as they were in the frame before
def _segments(row: Line, *, ascii_only: bool) -> tuple[Segment, ...]:
    pieces = (
        Segment(
            _ascii(piece.text) if ascii_only else piece.text,
            _CHOSEN if piece.chosen else _STYLES[piece.role],  # one bar, not one of many colours
        )
        for piece in row
    )
    return tuple(Segment.simplify(pieces))


@lru_cache(4096)
def _ascii(text: str) -> str:
    """Return a text of the same width for terminals that know no other characters."""
    if text.isascii():
        return text
    return "".join(c if c.isascii() else "?" * cell_len(c) for c in text.translate(_ASCII))
