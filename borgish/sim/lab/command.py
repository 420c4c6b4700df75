"""``fauxmaster lab``: runs an experiment and shows what came of it."""

import argparse
import json
import logging
import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Literal

import msgspec

from borgish.errors import Conflict
from borgish.sim.lab.plots import svg
from borgish.sim.lab.report import Report, as_data, lines
from borgish.text import safe

SEED_MAX = 2**32 - 1
WIDTH_MIN, WIDTH_MAX, WIDTH_PIPED = 72, 120, 100
OUTPUTS = "text", "json"


def _number(kind: type[int] | type[float], low: float, high: float) -> Callable[[str], int | float]:
    """Return what reads a number from one to another. It raises ArgumentTypeError."""

    def read(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError:
            what = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"'{safe(text)}' is not a {what}") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not from {low} to {high}")
        return value

    return read


class Option(msgspec.Struct, frozen=True):
    """A number that a lab takes."""

    name: str
    default: int | float
    read: Callable[[str], int | float]
    help: str


class Lab(msgspec.Struct, frozen=True):
    """An experiment: its module has ``run``, which takes its options and the seed."""

    name: str
    help: str
    options: tuple[Option, ...]

    def run(self, values: dict[str, int | float]) -> Report:
        """Make the experiment."""
        logging.disable()  # what daemons log of the faults that they are given is no news here
        try:
            report: Report = import_module(f"borgish.sim.lab.{self.name}").run(**values)
        finally:
            logging.disable(logging.NOTSET)
        return report


_SEED = Option("seed", 1, _number(int, 0, SEED_MAX), "of all chance: the same gives the same, to the byte")
LABS = {
    lab.name: lab
    for lab in (
        Lab(
            "triggers",
            "reconcilers on edges, on levels, by a timer, under lost, late, doubled and overlapping changes",
            (
                _SEED,
                Option("runs", 2, _number(int, 1, 100), "seeds for each line of the table"),
                Option(
                    "share",
                    0.3,
                    _number(float, 0, 1),
                    "of the edges that are lost, late or doubled, from 0 to 1",
                ),
                Option("resync", 1.0, _number(float, 0.5, 600), "seconds between two resyncs"),
            ),
        ),
        Lab(
            "actors",
            "the master as one process, and taken apart into actors with caches, by load and delay",
            (
                _SEED,
                Option(
                    "loss", 0.05, _number(float, 0, 0.5), "of the messages that are lost in one of the tables"
                ),
            ),
        ),
        Lab(
            "schedulers",
            "one scheduler, offers, or shared state with optimistic commit, by how long a decision takes",
            (_SEED, Option("hours", 2.5, _number(float, 0.5, 48), "of work, on virtual time")),
        ),
    )
}


def add_words(question: argparse.ArgumentParser) -> None:
    """Add the labs, and what each takes."""
    question.description = (
        "Experiments with borgish's own reconcilers and scheduler, in the simulator. Each takes about "
        "half a minute on a quiet host, and with the same options it gives the same."
    )
    labs = question.add_subparsers(dest="lab", required=True, metavar="LAB")
    for lab in LABS.values():
        words = labs.add_parser(lab.name, help=lab.help)
        for option in lab.options:
            words.add_argument(
                f"--{option.name}",
                type=option.read,
                default=option.default,
                metavar="N",
                help=f"{option.help} (%(default)s)",
            )
        words.add_argument("--svg", type=Path, metavar="FILE", help="draw the figures to a file")
        words.add_argument("-o", dest="output", choices=OUTPUTS, default=OUTPUTS[0], help="text unless given")


def run_lab(arguments: argparse.Namespace) -> None:
    """Make an experiment and print what came of it. Raises Conflict."""
    lab = LABS[arguments.lab]
    if arguments.svg is not None:
        _write(arguments.svg, "", "a")  # before the work, not after it
    if sys.stderr.isatty():
        sys.stderr.write("this takes about half a minute on a quiet host ...\n")
    report = lab.run({option.name: getattr(arguments, option.name) for option in lab.options})
    if arguments.svg is not None:
        _write(arguments.svg, svg(report.figures))
    if arguments.output == "json":
        sys.stdout.write(json.dumps(as_data(report), indent=1, allow_nan=False) + "\n")
        return
    for line in lines(report, _width()):
        sys.stdout.write(f"{safe(line)}\n")


def _write(path: Path, text: str, mode: Literal["a", "w"] = "w") -> None:
    try:
        with path.open(mode) as file:
            file.write(text)
    except OSError as error:
        raise Conflict(f"cannot write {path}: {error.strerror}", "name another file with --svg") from None


def _width() -> int:
    if not sys.stdout.isatty():
        return WIDTH_PIPED
    return min(WIDTH_MAX, max(WIDTH_MIN, shutil.get_terminal_size().columns))
