#!/usr/bin/env -S .venv/bin/python
"""Mutation testing with mutmut, on a copy; see scripts/mutate.

A module is judged by the tests of its package: tests/matrix/PACKAGE and tests/unit/PACKAGE, and what outlives
these by tests/property/PACKAGE. Of all mutants a seeded sample is tried, since a module has hundreds to
thousands. mutmut plants mistakes in functions only, and never sees what one does that is called when its
module is imported: tables and constants are held by tests that write them out again (tests/matrix).
"""

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import get_mutant_name

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("CONTRIBUTING.md", "README.md", "borgish", "configs", "migrations", "pyproject.toml", "tests")
ROUNDS = (("matrix", "unit"), ("property",))
"""Folders of tests; those of a round judge what the round before has left alive."""
KILLED = {"killed", "timeout", "segfault", "suspicious"}
KILLED_SHARE_MIN = 0.9


def modules_of(names: list[str]) -> list[Path]:
    """Return the Python files that are named, or are in folders that are named, relative to the root."""
    found: list[Path] = []
    for name in names:
        path = (Path.cwd() / name).resolve()
        if not path.exists() or not path.is_relative_to(ROOT / "borgish"):
            sys.exit(f"scripts/mutate: {name} is no module of borgish")
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [path.relative_to(ROOT) for path in found]


def judges_of(modules: list[Path]) -> list[list[str]]:
    """Return the folders with the tests that judge these modules, of each round."""
    packages = dict.fromkeys(module.parts[1] for module in modules)
    rounds = [[f"tests/{kind}/{package}" for package in packages for kind in kinds] for kinds in ROUNDS]
    there = [found for folders in rounds if (found := [each for each in folders if (ROOT / each).is_dir()])]
    return there or sys.exit(f"scripts/mutate: there are no tests in {', '.join(rounds[0])}")


def prepare(modules: list[Path], judges: list[str]) -> None:
    """Make in the current folder what mutmut works on, with its settings."""
    for name in COPIED:
        Path(name).symlink_to(ROOT / name)
    lists = {
        "source_paths": ["borgish"],
        "only_mutate": [str(module) for module in modules],
        "also_copy": [name for name in COPIED if name not in ("borgish", "pyproject.toml", "tests")],
        "pytest_add_cli_args_test_selection": judges,
        "pytest_add_cli_args": [
            "-p no:cacheprovider",
            "-p no:xdist",
            "-m not reads_code",
            "--hypothesis-profile=quick",
        ],
    }
    lines = [f"{key} =" + "".join(f"\n    {each}" for each in values) for key, values in lists.items()]
    settings = ["[mutmut]", *lines, "use_git_change_detection = false", "track_dependencies = false"]
    Path("setup.cfg").write_text("\n".join(settings) + "\n")


def sampled(modules: list[Path], count: int, seed: int) -> tuple[list[str], int]:
    """Return the names of some mutants, and how many there are."""
    names = [
        get_mutant_name(module, name)
        for module in modules
        for name in mutate_file_contents(str(module), module.read_text()).mutant_names
    ]
    if not names:
        sys.exit("scripts/mutate: there is no function to mutate")
    return sorted(random.Random(seed).sample(sorted(names), min(count, len(names)))), len(names)


def tried(modules: list[Path], names: list[str], children: int) -> dict[str, str]:
    """Try these mutants. Return what became of each, in mutmut's words."""
    with Path("mutmut.log").open("w+") as log:
        command = [Path(sys.executable).with_name("mutmut"), "run", "--max-children", str(children), *names]
        ended = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
        if ended.returncode:
            log.seek(0)
            sys.exit(f"{log.read()[-4000:]}\nscripts/mutate: mutmut ended with {ended.returncode}, see above")
    codes: dict[str, int | None] = {}
    for module in modules:
        if (meta := Path(f"mutants/{module}.meta")).exists():
            codes |= json.loads(meta.read_text())["exit_code_by_key"]
    return {name: status_by_exit_code[codes[name]] for name in names}


def main() -> None:
    about = (__doc__ or "").partition("\n\n")[2]
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=about)
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="a file or folder in borgish/")
    parser.add_argument("--sample", type=int, default=100, metavar="N", help="how many mutants to try (100)")
    parser.add_argument("--seed", type=int, default=0, help="another one tries others (0)")
    parser.add_argument("--children", type=int, default=1, metavar="N", help="how many at once (1)")
    given = parser.parse_args()
    modules = modules_of(given.modules)
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="borgish-mutants-") as folder:
        for number, judges in enumerate(judges_of(modules)):
            work = Path(folder) / str(number)
            work.mkdir()
            with contextlib.chdir(work):
                prepare(modules, judges)
                if not found:
                    names, there_are = sampled(modules, given.sample, given.seed)
                    print(f"{len(names)} of {there_are} mutants")
                names = [name for name in names if found.get(name) not in KILLED]
                print(f"{len(names)} are judged by {', '.join(judges)}", flush=True)
                found |= tried(modules, names, given.children) if names else {}
                diffs = {name: get_diff_for_mutant(name) for name in names if found[name] not in KILLED}
    for name, diff in diffs.items():
        print(f"\n{found[name]}: {name}\n{diff}")
    killed = sum(status in KILLED for status in found.values())
    print(f"\n{killed} of {len(found)} killed, {killed / len(found):.0%}: {dict(Counter(found.values()))}")
    if killed < KILLED_SHARE_MIN * len(found):
        sys.exit(f"scripts/mutate: fewer than {KILLED_SHARE_MIN:.0%}; read the survivors above")


if __name__ == "__main__":
    main()
