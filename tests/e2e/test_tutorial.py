"""The tutorial, typed as it stands, page by page: files are written, and commands say what the pages show.

Numbers, times and the like differ from run to run; "..." stands for lines that a page leaves out.
"""

import re
import shlex
from pathlib import Path

from tests.cells import COMMAND_SECONDS_MAX, RealCell, taken_down
from tests.documents import Example, blocks, examples, page
from tests.forked import BORGCTL, call

PAGES = ("first-cell", "first-change", "first-time-back")
MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
VOLATILE = (
    (r"[0-9a-f]{64}", "SUM"),
    (rf"\b({MONTHS})\b", "MONTH"),
    (r"\d[\d:.TZ-]*", "N"),
    (r"\bN(s|m|h)\b", "TIME"),
    (r"was restarted (once|N times)", "was restarted"),
    (r"\bN ago\b", "TIME ago"),
    (r"\s+", " "),
)


def test_the_tutorial(tmp_path: Path) -> None:
    made = RealCell(tmp_path / ".borgish")
    with taken_down(made):
        for name in PAGES:
            for block in blocks(page(f"tutorial/{name}")):
                if block.title:
                    (tmp_path / block.title).write_text("\n".join(block.lines) + "\n")
                elif block.language == "console":
                    for example in examples(block):
                        try_out(example, name, tmp_path)


def try_out(example: Example, where: str, home: Path) -> None:
    program, *words = shlex.split(example.command, comments=True)
    assert program == "borgctl"
    code = int(found[1]) if (found := re.search(r"# exit code (\d+)$", example.command)) else 0
    environment = {"HOME": str(home), "LOGNAME": "ann"}
    done = call(BORGCTL, words, "", COMMAND_SECONDS_MAX, home, environment)
    assert done.code == code, f"{where}: {example.command}: {done}"
    said = {
        normal(line.replace(str(home), "~")) for line in (done.out + done.err).splitlines() if line.strip()
    }
    shown = {normal(line) for line in example.said}
    missing = shown - said - {"..."}
    assert not missing, f"{where}: {example.command} does not say {missing}, but {said}"
    if shown and "..." not in shown:
        assert said == shown, f"{where}: {example.command} says more than is shown: {said - shown}"


def normal(line: str) -> str:
    """Return a line without what differs from run to run."""
    for pattern, word in VOLATILE:
        line = re.sub(pattern, word, line)
    return line.strip().replace("tasks", "task")
