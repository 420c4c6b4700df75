"""Failpoints: armed by the environment alone, each in the code where the list says, and silent when off."""

import ast
from pathlib import Path

import pytest

from borgish import failpoints
from borgish.errors import UnsafeConfiguration
from borgish.failpoints import FAILPOINTS, VARIABLE, arm, reach
from borgish.master.host.settings import read_settings

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def unarmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "_armed", "")
    monkeypatch.setattr(failpoints, "_left", 0)


def deaths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    died: list[str] = []
    monkeypatch.setattr(failpoints, "_die", died.append)
    return died


def in_code() -> set[str]:
    """The names that the code passes."""
    files = [*(ROOT / "borgish").rglob("*.py"), ROOT / "migrations" / "env.py"]
    trees = [ast.parse(text) for file in files if "import reach" in (text := file.read_text())]
    return {ast.literal_eval(name) for tree in trees for name in passed(tree)}


def passed(tree: ast.Module) -> list[ast.expr]:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "reach"]


def test_the_code_passes_each_that_is_listed_and_no_other() -> None:
    assert in_code() == FAILPOINTS.keys()


def test_off_they_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    died = deaths(monkeypatch)
    assert arm({}) == ""
    for name in FAILPOINTS:
        reach(name)
    assert died == []


def test_armed_one_dies_at_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    died = deaths(monkeypatch)
    assert arm({VARIABLE: "append.commit:3"}) == "append.commit"
    for name in ("append.commit", "append.committed", "append.commit"):
        reach(name)
    assert died == []
    reach("append.commit")
    assert died == ["append.commit"]


def test_without_a_number_it_is_the_first_time(monkeypatch: pytest.MonkeyPatch) -> None:
    died = deaths(monkeypatch)
    arm({VARIABLE: "lead.raised"})
    reach("lead.raised")
    assert died == ["lead.raised"]


@pytest.mark.parametrize("given", ["append", "append.commit:0", "append.commit:x", "append.commit:-1", ":2"])
def test_what_names_none_is_refused(given: str) -> None:
    with pytest.raises(UnsafeConfiguration, match="names no failpoint") as caught:
        arm({VARIABLE: given})
    assert "Unset it" in caught.value.hint
    assert caught.value.exit_code == 74


@pytest.mark.parametrize("key", ["failpoint", "BORGISH_FAILPOINT"])
def test_a_configuration_file_cannot_arm_any(tmp_path: Path, key: str) -> None:
    file = tmp_path / "cell.toml"
    file.write_text(f'name = "cell"\n{key} = "append.commit"\n')
    with pytest.raises(UnsafeConfiguration, match=f"{key}: there is no such key"):
        read_settings(file)
