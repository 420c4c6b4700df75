"""The rules of the house that a machine can check and no linter knows."""

import ast
import re
from collections.abc import Iterator

import hypothesis

from tests.documents import DOCS, page
from tests.profiles import EXAMPLES
from tests.tidy.texts import ROOT, name, pythons, texts

LINES_MAX = 670  # as the longest of h11: what is one concept is not cut for its length
# Written in pieces, so that this file keeps the rules too.
UNFINISHED = re.compile(
    r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error")) + r")\b"
)
OF_ONE_MACHINE = re.compile("(?<![\\w.{}])/(" + "|".join(("wo" + "rk", "ro" + "ot", "ho" + "me")) + r")/\w")
PURE = ("borglet/attempts", "borglet/core", "cell", "master/core", "reconcilers", "scheduler", "spec")


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name(path)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_file_is_too_long_to_read() -> None:
    sizes = {name(path): len(path.read_text().splitlines()) for path in pythons()}
    assert {path: size for path, size in sizes.items() if size > LINES_MAX} == {}


def test_every_module_says_what_it_is_for() -> None:
    ours = [path for path in pythons() if not name(path).startswith("tests/")]
    assert [name(path) for path in ours if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_nothing_is_left_unfinished() -> None:
    assert lines_with(UNFINISHED) == []


def test_no_path_of_one_machine() -> None:
    assert lines_with(OF_ONE_MACHINE) == []


def pure_trees() -> Iterator[tuple[str, ast.Module]]:
    for part in PURE:
        base = ROOT / "borgish" / part
        for path in [base.with_suffix(".py"), *sorted(base.rglob("*.py"))]:
            if path.is_file():
                yield name(path), ast.parse(path.read_text())


def test_what_decides_is_given_its_clock_and_its_chance() -> None:
    """Import-linter cannot see names: SystemClock beside Now, random.choice beside random.Random."""
    found = [
        f"{path}:{node.lineno}"
        for path, tree in pure_trees()
        for node in ast.walk(tree)
        if (isinstance(node, ast.ImportFrom) and any(alias.name == "SystemClock" for alias in node.names))
        or (isinstance(node, ast.Attribute) and node.attr == "SystemClock")
        or (isinstance(node, ast.ImportFrom) and node.module == "random")
        or (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "random"
            and node.attr != "Random"
        )
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "random.Random" and not node.args)
    ]
    assert found == []


def test_scripts_can_be_run_and_are_documented() -> None:
    said = page("developing")
    for script in sorted((ROOT / "scripts").iterdir()):
        assert script.stat().st_mode & 0o111, f"{name(script)} is not executable"
        assert script.read_text().startswith("#!"), f"{name(script)} names no interpreter"
        assert name(script) in said, f"docs/developing.md does not say what {name(script)} is for"
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_configs_are_documented_and_tried() -> None:
    said = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    tried = "".join(path.read_text() for path in pythons() if name(path).startswith("tests/"))
    for config in sorted(path for path in (ROOT / "configs").iterdir() if path.is_file()):
        assert name(config) in said, f"docs/ does not say what {name(config)} is for"
        assert config.name in tried, f"no test reads {name(config)}"
    assert "configs/jobs" in said


def test_contributing_names_files_that_there_are() -> None:
    named = re.findall(r"`(?:\./)?([a-z_/]+\.py)`", (ROOT / "CONTRIBUTING.md").read_text())
    paths = [path for path in named if "/" in path]
    assert len(paths) > 20
    missing = {path for path in paths if not any((ROOT / top / path).is_file() for top in ("", "borgish"))}
    assert missing == set()


def test_no_property_fails_because_the_machine_is_busy() -> None:
    for profile in EXAMPLES:
        found = hypothesis.settings.get_profile(profile)
        assert found.deadline is None
        assert hypothesis.HealthCheck.too_slow in found.suppress_health_check
