"""``fauxmaster``: asks the real master about a copy of a cell. Nothing it does reaches the cell.

The name and the idea are Borg's (EuroSys 2015, section 3.1): the production code, a checkpoint, and
machines that are only simulated.
"""

import argparse
import sqlite3
import sys
import tempfile
from collections import Counter
from pathlib import Path

import msgspec

import borgish
from borgish.cell.commands import SubmitJob
from borgish.cell.model import Rules
from borgish.cell.state import Cell
from borgish.clock import Now
from borgish.errors import BorgishError, Invalid, NotFound
from borgish.master.core import Core
from borgish.master.step import Ask
from borgish.reconcilers.settings import ReconcileSettings
from borgish.resources import show_bytes, show_cpu
from borgish.sim.pack_command import add_pack, run_pack
from borgish.spec.job import JobSpec
from borgish.spec.mistakes import show_mistakes
from borgish.spec.read import read_job
from borgish.store.base import CheckpointInfo
from borgish.store.checkpoints import verified_snapshot
from borgish.vocabulary import TASKS_PER_JOB_MAX, State
from borgish.wire.checkpoint_file import MARK, is_checkpoint, unpack_checkpoint

START = Now(0.0, 0.0)
TRIAL = "fauxmaster-trial"


class Fit(msgspec.Struct, frozen=True):
    """How many tasks of a job found room, by machine, and what was in the way of the next one."""

    machines: dict[str, int]
    refusal: str
    hint: str

    @property
    def tasks(self) -> int:
        """How many in all."""
        return sum(self.machines.values())


def main() -> None:
    """Answer one question about a copy of a cell."""
    arguments = _arguments()
    try:
        if arguments.question == "pack":
            run_pack(arguments)
        elif arguments.question == "fits":
            _show_fit(arguments.file, arguments.job)
        else:
            _show_cell(open_cell(arguments.file))
    except Invalid as error:
        of_file = show_mistakes(error.mistakes, str(getattr(arguments, "job", "")))
        print(of_file or f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BorgishError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="fauxmaster", description="Ask the real borgmaster about a copy of a cell."
    )
    parser.add_argument("--version", action="version", version=f"fauxmaster {borgish.__version__}")
    questions = parser.add_subparsers(dest="question", required=True)
    show = questions.add_parser("show", help="what is in the cell")
    fits = questions.add_parser("fits", help="how many more tasks of a job would find room now")
    for question in (show, fits):
        question.add_argument(
            "file", type=Path, help="the cell's database, also while it runs, or an exported checkpoint"
        )
    fits.add_argument("job", type=Path, help="a job file")
    add_pack(questions)
    return parser.parse_args()


def open_cell(file: Path) -> Cell:
    """Return the cell in an exported checkpoint or in a SQLite file, whichever it is by its first bytes.

    Raises NotFound, StoreDamaged and UnsafeConfiguration.
    """
    try:
        with file.open("rb") as opened:
            is_exported = is_checkpoint(opened.read(len(MARK)))
        return _exported(file.read_bytes()) if is_exported else open_copy(file)
    except OSError as error:
        raise NotFound(f"{file}: {error.strerror}") from None


def _exported(content: bytes) -> Cell:
    header, stored = unpack_checkpoint(content)
    info = CheckpointInfo(header.position, header.at, header.reason, header.sha256, header.bytes, header.name)
    return Cell(verified_snapshot(header.cell, info, stored))


def open_copy(database: Path) -> Cell:
    """Return the cell in a SQLite file, read from a copy. Raises NotFound and StoreDamaged."""
    from borgish.store.open import open_store

    with tempfile.TemporaryDirectory(prefix="fauxmaster-") as folder:
        copy = Path(folder) / "cell.db"
        name = _copy(database, copy)
        store = open_store(f"sqlite:///{copy}", name)
        try:
            return store.load()
        finally:
            store.close()


def _copy(database: Path, copy: Path) -> str:
    """Copy a database that may be in use, and return the name of its cell."""
    try:
        source = sqlite3.connect(f"file:{database.resolve()}?mode=ro", uri=True)
        target = sqlite3.connect(copy)
        source.backup(target)
        (name,) = target.execute("SELECT cell FROM leadership").fetchone()
        source.close()
        target.close()
    except (sqlite3.Error, TypeError) as error:
        raise NotFound(
            f"{database} is neither a cell's database nor an exported checkpoint: {error}",
            "a local cell's is DIR/cell.db; `borgctl checkpoint export` writes the other",
        ) from None
    return str(name)


def fit(cell: Cell, spec: JobSpec) -> Fit:
    """Submit the job to the real master, as large as a job can be, and see what it places."""
    cell.quotas.clear()  # room is asked about, not what somebody may have
    cell.rules = Rules(cell.rules.bands)
    trial = msgspec.structs.replace(spec, name=TRIAL, tasks=TASKS_PER_JOB_MAX, overrides={})
    core = Core(cell, ReconcileSettings(), START)
    step = core.step([Ask(1, SubmitJob(trial), "fauxmaster")], START)
    while step.more:
        step = core.step([], START)
    job = core.cell.jobs[trial.key]
    placed = Counter(task.machine for task in job.tasks if task.state is State.RUNNING)
    refusal = next(iter(core.refusals.get(trial.key, ())), None)
    return Fit(dict(sorted(placed.items())), refusal.text if refusal else "", refusal.hint if refusal else "")


def _show_fit(file: Path, path: Path) -> None:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise NotFound(f"{path}: {error.strerror}") from None
    cell = open_cell(file)
    spec = read_job(text, "fauxmaster", cell.rules.bands)
    found = fit(cell, spec)
    if found.tasks == TASKS_PER_JOB_MAX:
        print(f"{found.tasks} more tasks of {spec.name} fit, as many as one job can have")
        return
    where = ", ".join(f"{name}: {count}" for name, count in found.machines.items())
    print(f"{found.tasks} more tasks of {spec.name} fit{f' ({where})' if where else ''}")
    print(f"the next one: {found.refusal}")
    if found.hint:
        print(f"hint: {found.hint}")


def _show_cell(cell: Cell) -> None:
    print(f"cell {cell.name} at journal position {cell.position} (timeline {cell.timeline})")
    for name, machine in sorted(cell.machines.items()):
        has = f"{show_cpu(machine.capacity.cpu_millis)} cpu, {show_bytes(machine.capacity.ram_bytes)} ram"
        state = "up" if machine.up else "down"
        print(f"machine {name}: {state}, {has}, tasks placed there: {len(cell.placed[name])}")
    for key, job in sorted(cell.jobs.items()):
        print(f"job {key}: {job.pending} pending, {job.running} running, {job.dead} dead")


if __name__ == "__main__":
    main()
