"""What is installed is what people need: the four commands, and the migrations inside the package."""

import importlib
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.tidy.texts import ROOT

COMMANDS = {"borgctl", "borgmaster", "borglet", "fauxmaster"}


def test_every_command_has_its_function() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts) == COMMANDS
    for target in scripts.values():
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function)), target


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", *offline, "-w", folder, ROOT], check=True, cwd=folder
    )
    return zipfile.ZipFile(next(folder.glob("borgish-*.whl")))


def test_the_wheel_has_every_module(wheel: zipfile.ZipFile) -> None:
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "borgish").rglob("*.py")}
    assert modules - set(wheel.namelist()) == set()


def test_the_wheel_says_that_it_is_typed(wheel: zipfile.ZipFile) -> None:
    assert "borgish/py.typed" in wheel.namelist()


def test_the_wheel_has_the_migrations(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "migrations"
    migrations = {
        str(Path("borgish/store/migrations") / path.relative_to(source)) for path in source.rglob("*.py")
    }
    assert "borgish/store/migrations/env.py" in migrations
    assert any("/versions/" in path for path in migrations)
    assert migrations - set(wheel.namelist()) == set()


def test_the_wheel_has_the_library_for_jsonnet(wheel: zipfile.ZipFile) -> None:
    assert "borgish/cli/borgish.libsonnet" in wheel.namelist()


def test_the_wheel_has_the_commands(wheel: zipfile.ZipFile) -> None:
    entry_points = next(path for path in wheel.namelist() if path.endswith("entry_points.txt"))
    lines = wheel.read(entry_points).decode().splitlines()
    assert {line.partition(" = ")[0] for line in lines if " = " in line} == COMMANDS
