"""Draw docs/images/dashboard.svg, the README's picture: the dashboard on the sample cell of its tests."""

import io
import os
import time
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from borgish.dashboard.app import Picture
from borgish.dashboard.place import View
from borgish.dashboard.screen import draw
from tests.unit.dashboard import answers

PICTURE = Path(__file__).resolve().parent.parent / "images" / "dashboard.svg"
WIDTH, HEIGHT = 118, 26
# Colours that serve on white and on black pages: the picture brings its own background.
THEME = TerminalTheme(
    (24, 27, 33),
    (214, 220, 228),
    [
        *((60, 66, 76), (240, 113, 120), (135, 199, 125), (229, 192, 107)),
        *((97, 175, 239), (198, 140, 222), (86, 182, 194), (214, 220, 228)),
    ],
)
# Rich's own form loads a font from elsewhere; this one takes what the reader has.
FORM = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", ui-monospace, Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""


def svg() -> str:
    """Return the picture."""
    at = answers.place(View.OVERVIEW, at=4)
    shown = draw(answers.walk(at), answers.known(at), WIDTH, HEIGHT).frame
    console = Console(
        record=True,
        file=io.StringIO(),
        width=WIDTH,
        height=HEIGHT,
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(Picture(shown), end="")
    return console.export_svg(title="borgctl dashboard", theme=THEME, code_format=FORM, unique_id="dashboard")


def main() -> None:
    """Write it, with times in UTC."""
    os.environ["TZ"] = "UTC"  # else they are in the zone of who runs this
    time.tzset()
    PICTURE.write_text(svg(), "utf-8")
    print(f"wrote {os.path.relpath(PICTURE)}")


if __name__ == "__main__":
    main()
