#!/usr/bin/env -S .venv/bin/python
"""Mutation testing with mutmut, on a copy; see scripts/mutate.

A module is judged by the tests of its package: tests/matrix/PACKAGE and tests/unit/PACKAGE, and what outlives
these by tests/property/PACKAGE. Of all mutants of a module a seeded sample is tried, since a module has
hundreds to thousands. mutmut judges a mutant in a fork of a process that has imported the module: a mistake
in what is called on import (what makes a table) is not in that table. Such mutants are judged once more, each
in a process of its own. So are those that took too long by the clock, as they may on a busy machine: there
they may take ten times the processor's time that the tests take without a mutant.
"""

import argparse
import contextlib
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import get_mutant_name, mangled_name_from_mutant_name

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("CONTRIBUTING.md", "borgish", "configs", "docs", "migrations", "pyproject.toml", "tests")
ROUNDS = (("matrix", "unit"), ("property",))
"""Folders of tests; those of a round judge what the round before has left alive."""
ALSO = {"cell": ("reconcilers",)}
"""Packages whose tests judge a package as well: reconcilers do little but ask rules of the cell."""
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
    packages = dict.fromkeys(
        name for module in modules for name in (module.parts[1], *ALSO.get(module.parts[1], ()))
    )
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


def sampled(module: Path, count: int, seed: int) -> tuple[list[str], int]:
    """Return the names of some mutants of a module, and how many it has."""
    mutants = mutate_file_contents(str(module), module.read_text()).mutant_names
    names = sorted(get_mutant_name(module, name) for name in mutants)
    return sorted(random.Random(seed).sample(names, min(count, len(names)))), len(names)


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


def called_on_import(modules: list[Path]) -> set[str]:
    """Return the functions that these modules call when they are imported, as mutmut names them."""
    imports = "".join(f"import {'.'.join(module.with_suffix('').parts)}\n" for module in modules)
    code = f"from mutmut.state import state\n{imports}print(*state()._stats, sep='\\n')"
    return set(alone("stats", "-c", code).stdout.split())


def alone(mutant: str, *args: str, seconds_max: int = -1) -> subprocess.CompletedProcess[str]:
    """Run Python with a mutant from its start on. It is killed when it has used the processor for longer."""
    environment = {**os.environ, "MUTANT_UNDER_TEST": mutant, "PYTHONPATH": "."}
    asked = ["prlimit", f"--cpu={seconds_max}", sys.executable, *args]
    return subprocess.run(asked, cwd="mutants", env=environment, capture_output=True, text=True, check=False)


def tried_alone(names: list[str], judges: list[str]) -> dict[str, str]:
    """Try these mutants, each in a process that imports everything with it."""
    options = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not reads_code")
    command = ("-m", "pytest", *options, "--hypothesis-profile=quick", *judges)
    if not names:
        return {}
    before = os.times().children_user
    if (unharmed := alone("", *command)).returncode:
        sys.exit(f"{unharmed.stdout[-4000:]}\nscripts/mutate: tests fail without a mutant, see above")
    most = math.ceil(10 * (os.times().children_user - before))
    runs = {name: alone(name, *command, seconds_max=most) for name in names}
    return {name: "killed" if run.returncode else "survived" for name, run in runs.items()}


def killed(names: list[str], found: dict[str, str]) -> int:
    return sum(found[name] in KILLED for name in names)


def shown(names: list[str], found: dict[str, str]) -> str:
    count = killed(names, found)
    return f"{count:4} of {len(names):3} killed, {count / max(len(names), 1):4.0%}"


def main() -> None:
    about = (__doc__ or "").partition("\n\n")[2]
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=about)
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="a file or folder in borgish/")
    parser.add_argument(
        "--sample", type=int, default=100, metavar="N", help="how many of each module to try (100)"
    )
    parser.add_argument("--seed", type=int, default=0, help="another one tries others (0)")
    parser.add_argument("--children", type=int, default=1, metavar="N", help="how many at once (1)")
    given = parser.parse_args()
    modules = modules_of(given.modules)
    chosen: dict[Path, list[str]] = {}
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="borgish-mutants-") as folder:
        for number, judges in enumerate(judges_of(modules)):
            work = Path(folder) / str(number)
            work.mkdir()
            with contextlib.chdir(work):
                prepare(modules, judges)
                for module in modules if not chosen else ():
                    chosen[module], there_are = sampled(module, given.sample, given.seed)
                    print(f"{module}: {len(chosen[module])} of {there_are} mutants")
                names = [each for some in chosen.values() for each in some if found.get(each) not in KILLED]
                print(f"{len(names)} are judged by {', '.join(judges)}", flush=True)
                for name, status in (tried(modules, names, given.children) if names else {}).items():
                    found[name] = status if status != "no tests" else found.get(name, status)
                left = [each for each in names if found[each] not in KILLED]
                on_import = called_on_import(modules) if left else set()
                again = [each for each in left if mangled_name_from_mutant_name(each) in on_import]
                again += [each for each in names if found[each] == "timeout"]
                print(f"{len(again)} are judged again, each in a process of its own", flush=True)
                found |= tried_alone(again, judges)
                left = [each for each in names if found[each] not in KILLED]
                diffs = {name: get_diff_for_mutant(name) for name in left}
    for name, diff in diffs.items():
        print(f"\n{found[name]}: {name}\n{diff}")
    print()
    for module, names in chosen.items():
        print(f"{shown(names, found)}: {module}")
    print(f"{shown([*found], found)}: all {dict(Counter(found.values()))}")
    enough = {module: killed(some, found) >= KILLED_SHARE_MIN * len(some) for module, some in chosen.items()}
    if below := [str(module) for module, is_enough in enough.items() if not is_enough]:
        where = ", ".join(below)
        sys.exit(f"scripts/mutate: fewer than {KILLED_SHARE_MIN:.0%} in {where}; read the survivors above")


if __name__ == "__main__":
    main()
