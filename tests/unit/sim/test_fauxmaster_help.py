"""Help comes at once: nothing is imported for it that help does not need."""

import json
import subprocess
import sys
from importlib import import_module

import pytest

from borgish.sim.faux.changes import CHANGES
from borgish.sim.faux.verbs import VERBS
from borgish.sim.fauxmaster import main

HEAVY = {"numpy", "sqlalchemy", "borgish.scheduler", "borgish.store", "borgish.master", "borgish.cell"}
RUN = """
import json, sys
from borgish.sim.fauxmaster import main
sys.argv[0] = "fauxmaster"
try:
    main()
except SystemExit as end:
    print(json.dumps([end.code, sorted(sys.modules)]), file=sys.stderr)
"""


def run(*words: str) -> tuple[str, int, set[str]]:
    """Return what a call prints, its exit code and the modules it imported."""
    done = subprocess.run([sys.executable, "-c", RUN, *words], capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stderr.splitlines()[-1])
    return done.stdout, code, set(modules)


@pytest.mark.parametrize("words", [("--version",), ("open", "-h")])
def test_help_imports_neither_scheduler_nor_store(words: tuple[str, ...]) -> None:
    text, code, modules = run(*words)
    assert text
    assert not code
    assert not HEAVY & modules


def test_help_names_every_command_and_imports_as_little() -> None:
    text, code, modules = run("-h")
    assert not code
    assert not HEAVY & modules
    for name in VERBS.keys() - {"back"} | {"open", "pack"}:
        assert f"\n    {name} " in text, name


@pytest.mark.parametrize(
    ("verb", "words"), [("compact", "--policy"), ("scale", "JOB N"), ("pack", "--trials")]
)
def test_a_command_shows_its_own_words(
    verb: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["fauxmaster", verb, "-h"])
    with pytest.raises(SystemExit) as end:
        main()
    assert words in capsys.readouterr().out
    assert not end.value.code


def test_every_command_has_help_and_does_something() -> None:
    for module in {verb.module for verb in VERBS.values()}:
        commands = import_module(f"borgish.sim.faux.{module}").COMMANDS
        assert commands.keys() == {verb.name for verb in VERBS.values() if verb.module == module}
    assert all(verb.help for verb in VERBS.values())
    assert CHANGES.keys() <= VERBS.keys()
