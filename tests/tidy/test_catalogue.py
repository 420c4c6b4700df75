"""The tables of tests/README.md are true: each test that they name is there, and nothing is missing."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.tidy.texts import ROOT

TESTS = ROOT / "tests"
FAULTS = {f"F{number}" for number in range(1, 133)}
INVARIANTS = {f"I{number}" for number in range(1, 45)}
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
CHECKED = re.compile(r"`((?:cell|sim)/\w+\.py)`: ((?:`[\w.]+`(?:, | and )?)+)")


def rows() -> list[list[str]]:
    """Return the cells of each row about a fault or an invariant."""
    lines = (TESTS / "README.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return [row for row in cells if re.fullmatch(r"[FI]\d+", row[0])]


@cache
def collected(path: Path) -> set[str]:
    """Return the names of the tests in a file, and in its classes."""
    tree = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
    functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if function.name.startswith("test_")}


def test_every_fault_and_every_invariant_has_one_row() -> None:
    assert sorted(row[0] for row in rows()) == sorted(FAULTS | INVARIANTS)


def test_every_row_names_a_test_or_says_what_is_open() -> None:
    for name, *_, shown in rows():
        assert NAMED.search(shown) or "*open*: " in shown, name


def test_every_test_that_is_named_is_there() -> None:
    text = (TESTS / "README.md").read_text()
    assert text.count("::") == len(NAMED.findall(text))
    missing = [f"{file}::{test}" for file, test in NAMED.findall(text) if test not in collected(TESTS / file)]
    assert missing == []


def test_every_checker_that_is_named_is_there() -> None:
    missing = []
    for file, names in CHECKED.findall((TESTS / "README.md").read_text()):
        tree = ast.parse((ROOT / "borgish" / file).read_text())
        there = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        wanted = {part for name in re.findall(r"`([\w.]+)`", names) for part in name.split(".")}
        missing += [f"{file}: {part}" for part in sorted(wanted - there)]
    assert missing == []
