"""``fauxmaster lab``: what it takes, and what it says where that is wrong."""

import argparse
import json
import sys
from pathlib import Path

import pytest

from borgish.sim import fauxmaster
from borgish.sim.lab.command import LABS
from borgish.sim.lab.plots import Figure, Line
from borgish.sim.lab.report import Report, Table, markdown

REPORT = Report(
    "triggers",
    "What?",
    {"seed": 7},
    (Table("Numbers", ("name", "size"), (("a", "1"), ("b", "2"))),),
    (Figure("Picture", "x", "y", (Line("a", ((0.0, 0.0), (1.0, 1.0))),)),),
    ("It is 1.",),
    {"a": 1},
)


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fauxmaster", "lab", *words])
    try:
        fauxmaster.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, int | float]]:
    """What a lab was asked for; none is made."""
    found: list[dict[str, int | float]] = []

    def made(_lab: object, values: dict[str, int | float]) -> Report:
        found.append(values)
        return REPORT

    monkeypatch.setattr("borgish.sim.lab.command.Lab.run", made)
    return found


@pytest.mark.parametrize("lab", LABS)
def test_a_lab_takes_its_seed(
    lab: str,
    monkeypatch: pytest.MonkeyPatch,
    asked: list[dict[str, int | float]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, lab, "--seed", "7") == 0
    assert asked[0]["seed"] == 7
    out = capsys.readouterr().out
    assert "Numbers" in out
    assert "It is 1." in out


@pytest.mark.parametrize("lab", LABS)
def test_each_option_has_a_default_that_it_would_take(lab: str) -> None:
    for option in LABS[lab].options:
        assert option.read(f"{option.default}") == option.default


def test_json_has_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, asked: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "triggers", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["measured"] == {"a": 1}


def test_figures_are_drawn_to_a_file(
    monkeypatch: pytest.MonkeyPatch, asked: list[object], tmp_path: Path
) -> None:
    assert run(monkeypatch, "triggers", "--svg", str(tmp_path / "out.svg")) == 0
    assert (tmp_path / "out.svg").read_text().startswith("<svg")


def test_a_file_that_cannot_be_written_is_said_before_the_lab_is_made(
    monkeypatch: pytest.MonkeyPatch, asked: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "triggers", "--svg", str(tmp_path / "none" / "out.svg")) == 1
    assert asked == []
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "LAB"),
        (("nothing",), "invalid choice"),
        (("triggers", "--seed", "-1"), "is not from 0 to"),
        (("triggers", "--seed", "many"), "'many' is not a whole number"),
        (("triggers", "--runs", "0"), "0 is not from 1 to 100"),
        (("triggers", "--share", "2"), "2.0 is not from 0 to 1"),
        (("triggers", "--share", "nan"), "nan is not from 0 to 1"),
        (("triggers", "--share", "\x1b[2J"), "is not a number"),
        (("triggers", "-o", "yaml"), "invalid choice"),
    ],
)
def test_what_is_wrong_is_refused_in_words(
    words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "\x1b" not in err


def test_a_file_that_is_there_stays_as_it_is_until_the_lab_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "out.svg"
    path.write_text("before")

    def fails(_lab: object, _values: object) -> Report:
        raise KeyboardInterrupt

    monkeypatch.setattr("borgish.sim.lab.command.Lab.run", fails)
    assert run(monkeypatch, "triggers", "--svg", str(path)) == 130
    assert path.read_text() == "before"


def test_a_page_has_the_command_the_tables_and_the_conclusion() -> None:
    page = markdown(REPORT)
    assert "`fauxmaster lab triggers --seed 7`" in page
    assert "| name | size |\n|---|---:|\n| a | 1 |" in page
    assert page.endswith("It is 1.\n")


def test_options_are_read_as_argparse_has_it() -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        LABS["triggers"].options[0].read("x")
