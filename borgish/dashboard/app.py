"""Runs the dashboard: four frames a second at most, and only when something to show has changed.

Reading the cell is left to ``feed``, what to show to ``frame``, and modes of the terminal to ``terminal``.
"""

import os
import shutil
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.text import Text

from borgish.clock import Clock, SystemClock
from borgish.dashboard.columns import Line, Role
from borgish.dashboard.feed import Feed, News
from borgish.dashboard.frame import Frame, Shown, frame
from borgish.dashboard.terminal import Keys, ended_by_sigterm, input_descriptor, keys_of, without_wrapping
from borgish.errors import Unreachable
from borgish.wire.api import SummaryView

if TYPE_CHECKING:
    from borgish.client import Client


FRAME_SECONDS = 0.25
WIDTH_OF_A_FILE = 100
_HEIGHT_ONCE_MIN = 40
_SIZE_UNKNOWN = (80, 24)  # what a terminal that does not say has most likely


def run(client: "Client", *, once: bool) -> int:
    """Show the cell until somebody quits; or one frame, with ``once`` or where there is no terminal.

    Returns the exit code. Raises BorgishError when the master cannot be reached to begin with.
    """
    view = client.get("/v1/summary", None, SummaryView)
    if once or not _is_screen():
        _print_one(view)
    else:
        _show(client, view)
    return 0


def banner_of(news: News, now_mono: float, *, paused: bool) -> str:
    """Return what is wrong with what is shown, as one line; "" when it is live."""
    parts = ["paused: p goes on"] if paused else []
    if news.lost_at is not None:
        word = "not reachable" if isinstance(news.error, Unreachable) else "no news"
        parts.append(f"{word} since {now_mono - news.lost_at:.0f} s: {news.error}")
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
        console.print(picture(shown, ascii_only=ascii_only))
    else:
        sys.stdout.write(plain(shown, ascii_only=ascii_only))
    sys.stdout.flush()


def _show(client: "Client", view: SummaryView) -> None:
    clock = SystemClock()
    feed = Feed(client, clock, view)
    console = _console(terminal=True)
    feed.start()
    try:
        with (
            ended_by_sigterm(),
            keys_of(input_descriptor()) as keys,
            without_wrapping(sys.stdout),
            _live(console) as live,
        ):
            _Screen(console, live, clock).follow(feed, keys)
    except KeyboardInterrupt:
        pass  # one way to quit
    finally:
        feed.close()


def _live(console: Console) -> Live:
    return Live(
        console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
    )


class _Held(msgspec.Struct, frozen=True):
    """What is shown while paused, and when that began."""

    news: News
    at_mono: float


class _Screen:
    """Draws frames on the terminal, and remembers the last so as not to draw it twice."""

    def __init__(self, console: Console, live: Live, clock: Clock) -> None:
        self._console = console
        self._live = live
        self._clock = clock
        self._held: _Held | None = None
        self._drawn: Frame | None = None

    def follow(self, feed: Feed, keys: Keys) -> None:
        """Draw what the feed has until somebody quits or the terminal is gone."""
        while True:
            self._draw(feed.news, keys)
            pressed = keys.wait(FRAME_SECONDS)
            if pressed is None or "q" in pressed.lower():
                return
            if pressed.lower().count("p") % 2:
                self._held = None if self._held else _Held(feed.news, self._clock.now().mono)

    def _draw(self, news: News, keys: Keys) -> None:
        columns, lines = self._size()
        made = frame(self._shown(news, keys), columns, lines)
        if made != self._drawn:
            self._console.size = ConsoleDimensions(columns, lines)
            self._live.update(picture(made, ascii_only=self._console.options.ascii_only), refresh=True)
            self._drawn = made

    def _shown(self, news: News, keys: Keys) -> Shown:
        """Return what to show of the news. Time stands still while nothing is heard or wanted."""
        now = self._clock.now().mono
        seen, until = (self._held.news, self._held.at_mono) if self._held else (news, now)
        elapsed = (until if seen.lost_at is None else seen.lost_at) - seen.heard_at
        banner = banner_of(news, now, paused=self._held is not None)
        return Shown(seen.view, elapsed, banner, keys.any)

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
}
"""Colours of the terminal's own palette, so that they fit light and dark backgrounds."""

_ASCII = str.maketrans("█▓▒░━─│·…", "MPBF#=|.~")


def picture(frame: Frame, *, ascii_only: bool = False) -> Group:
    """Return the frame for a rich console of its size."""
    return Group(*(_text(row, ascii_only=ascii_only) for row in frame.lines))


def plain(frame: Frame, *, ascii_only: bool = False) -> str:
    """Return the frame as text without any codes, for files and pipes."""
    rows = ("".join(piece.text for piece in row) for row in frame.lines)
    return "".join(f"{_ascii(row) if ascii_only else row}".rstrip() + "\n" for row in rows)


def _text(row: Line, *, ascii_only: bool) -> Text:
    text = Text(no_wrap=True, overflow="crop")
    for piece in row:
        text.append(_ascii(piece.text) if ascii_only else piece.text, STYLES[piece.role])
    return text


@lru_cache(4096)
def _ascii(text: str) -> str:
    """Return a text of the same width for terminals that know no other characters."""
    if text.isascii():
        return text
    return "".join(c if c.isascii() else "?" * cell_len(c) for c in text.translate(_ASCII))
