"""What each group measured, kept in a file of this repository: its latest runs, the last one at the end.

One run says little on a host that others share; the latest few say how far they lie apart.
"""

import os
import subprocess
from pathlib import Path

import msgspec

from borgish import __version__
from tests.bench.figure import Record

ROOT = Path(__file__).parents[2]
PAGE, FOLDER = "docs/benchmarks.md", "docs/benchmarks"
RUNS_MAX = 5
"""Of each group."""
_FIRST_KEY = '{"name":'


class Run(msgspec.Struct, frozen=True):
    """A group that was measured once, as a whole."""

    day: str  # UTC
    code: str
    machine: str
    load: float  # at the start
    minutes: float
    host: tuple[Record, ...]  # how fast it was at the end
    figures: tuple[Record, ...]


def runs_of(name: str) -> tuple[Run, ...]:
    """Return what is kept of a group."""
    path = ROOT / FOLDER / f"{name}.json"
    return msgspec.json.decode(path.read_bytes(), type=tuple[Run, ...]) if path.exists() else ()


def keep(name: str, run: Run) -> None:
    """Add a run of a group, all or nothing."""
    path = ROOT / FOLDER / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    text = msgspec.json.encode((*runs_of(name), run)[-RUNS_MAX:]).decode()
    # A figure a line, so that a diff shows what changed.
    part.write_text(text.replace(_FIRST_KEY, f"\n{_FIRST_KEY}") + "\n")
    part.replace(path)


def code_here() -> str:
    """Return which release and commit is measured, and whether that is all of it."""
    release = f"borgish {__version__}"
    try:
        commit = _git("rev-parse", "--short=10", "HEAD").strip()
        # What an earlier group has recorded is no change of the code.
        changed = _git("status", "--porcelain", "--", ".", f":!{PAGE}", f":!{FOLDER}")
    except (OSError, subprocess.CalledProcessError):
        return f"{release}, not from a repository"
    return f"{release} at {commit}" + (", with changes that are not committed" if changed else "")


def _git(*words: str) -> str:
    environment = os.environ | {"LC_ALL": "C"}
    command = ["git", *words]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
