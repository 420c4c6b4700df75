"""``scripts/labs``: makes the labs anew and writes their numbers and figures into the documentation.

The numbers of a page stand between two marks, and nobody types them.
"""

import argparse
import sys
from pathlib import Path

from borgish.sim.lab.command import LABS
from borgish.sim.lab.plots import svg
from borgish.sim.lab.report import markdown

BEGIN, END = "<!-- made by scripts/labs: begin -->", "<!-- made by scripts/labs: end -->"


def main() -> None:
    """Write the pages; with ``--check``, exit 1 where one is not as it would be written."""
    arguments = _arguments()
    stale = []
    for name in arguments.labs or LABS:
        for path, text in made(arguments.docs, name).items():
            if path.exists() and path.read_text() == text:
                continue
            if arguments.check:
                stale.append(path)
            else:
                path.write_text(text)
    for path in stale:
        print(f"{path} is not what its lab comes to: run scripts/labs")
    sys.exit(1 if stale else 0)


def made(docs: Path, name: str) -> dict[Path, str]:
    """Return what the files of a lab's page are to be, by their paths, with its default options."""
    lab = LABS[name]
    report = lab.run({option.name: option.default for option in lab.options})
    page = docs / "explanation" / f"lab-{name}.md"
    picture = docs / "images" / f"lab-{name}.svg"
    return {page: filled(page.read_text(), markdown(report)), picture: svg(report.figures)}


def filled(page: str, numbers: str) -> str:
    """Return a page with other numbers between its marks. Raises ValueError where it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the lines {BEGIN} and {END}")
    return f"{before}{begin}\n\n{numbers}\n{end}{after}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/labs",
        description="Make the labs anew and write their numbers into the documentation: "
        "about half a minute each on a quiet host.",
    )
    parser.add_argument("labs", nargs="*", metavar="LAB", help=f"some of {', '.join(LABS)}; all unless given")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="where that is (%(default)s)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where something differs")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.labs if name not in LABS]:
        parser.error(f"there is no lab {unknown[0]!r}, only {', '.join(LABS)}")
    return arguments


if __name__ == "__main__":
    main()
