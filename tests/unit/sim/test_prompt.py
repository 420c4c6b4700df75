"""The prompt: what is wrong is told and it goes on; names are completed; what was typed is kept."""

import builtins
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from borgish.sim.faux.opened import opened
from borgish.sim.faux.prompt import completions, prompt_of, run_prompt
from borgish.sim.faux.session import Session
from tests.scenario.fauxmaster.kept_cell import KeptCell, job


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    kept = KeptCell(tmp_path)
    kept.machines(3)
    kept.submit(job("web", 2))
    kept.store.close()
    with opened(str(kept.file)) as there, closing(Session(there)) as session:
        yield session


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException]) -> list[str]:
    """Have lines be typed; return the prompts that were shown."""
    left, prompts = list(lines), []

    def read(prompt: str) -> str:
        prompts.append(prompt)
        line = left.pop(0) if left else EOFError
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr(builtins, "input", read)
    return prompts


def test_it_goes_on_after_what_was_wrong(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    prompts = typed(
        monkeypatch, "stap", KeyboardInterrupt, "cordon m1", "back", "help cordon", "quit", "show"
    )
    position = session.cell.position
    assert run_prompt(session, json=False) == 0
    caught = capsys.readouterr()
    assert "there is no command 'stap'" in caught.err
    assert "m1 takes no new tasks" in caught.out
    assert "usage: cordon" in caught.out
    assert prompts == [f"kept@{position}> "] * 3 + [f"kept@{position}+copy> "] + [f"kept@{position}> "] * 2


def test_the_end_of_input_is_the_end(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(typed(monkeypatch)) == 0
    assert run_prompt(session, json=False) == 0
    assert prompt_of(session).endswith("> ")


@pytest.mark.parametrize(
    ("line", "text", "there"),
    [
        ("st", "st", ["step"]),
        ("", "", ["step", "quit", "help"]),
        ("next TasksE", "TasksE", ["TasksEnded", "TasksEvicted"]),
        ("next TasksEnded ann", "ann", ["ann/web"]),
        ("drain m", "m", ["m1", "m2", "m3"]),
        ("kill a", "a", ["ann/web"]),
        ("lose rack=", "rack=", ["rack=r1", "rack=r2"]),
        ("lose mach", "mach", ["machine=m1", "machine=m2", "machine=m3"]),
        ("evicts dr", "dr", ["drain"]),
        ("evicts drain m", "m", ["m1"]),
        ("help sc", "sc", ["scale", "schedule"]),
        ("run ", "", []),
    ],
)
def test_words_are_completed(session: Session, line: str, text: str, there: list[str]) -> None:
    found = completions(session, line, text)
    assert set(there) <= set(found)
    assert all(word.startswith(text) for word in found)


def test_files_are_completed(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "web.yaml").write_text("")
    assert "jobs/" in completions(session, "submit jo", "jo")
    assert completions(session, "fits jobs/", "jobs/") == ["jobs/web.yaml"]
    assert "./jobs/" in completions(session, "evicts ./j", "./j")
    assert completions(session, "submit nowhere/x", "nowhere/x") == []
