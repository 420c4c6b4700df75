"""The tutorial, typed as it stands, page by page: files are written, and commands say what the pages show."""

import shlex
from pathlib import Path

from tests.cells import COMMAND_SECONDS_MAX, RealCell, taken_down
from tests.documents import Example, blocks, examples, page
from tests.forked import BORGCTL, call
from tests.typed import differs

PAGES = ("first-cell", "first-change", "first-time-back")


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
    environment = {"HOME": str(home), "LOGNAME": "ann"}
    done = call(BORGCTL, words, "", COMMAND_SECONDS_MAX, home, environment)
    assert done.code == example.exit_code, f"{where}: {example.command}: {done}"
    at_home = done._replace(out=done.out.replace(str(home), "~"), err=done.err.replace(str(home), "~"))
    assert not (why := differs(example, at_home)), f"{where}: {example.command} {why}"
