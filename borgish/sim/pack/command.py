"""``fauxmaster pack``: how well a policy packs anybody's tasks on anybody's machines."""

import argparse
import re
import shutil
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Self, TypeVar

import msgspec

from borgish.errors import Invalid
from borgish.resources import show_bytes, show_cpu, show_devices
from borgish.scheduler.plan import Plan
from borgish.scheduler.policies import POLICIES
from borgish.sim.pack.arrive import Arrived, arrive
from borgish.sim.pack.compact import (
    PENDING_SHARE_MAX,
    PICKY_MACHINES_MAX,
    TRIALS,
    Compacted,
    Work,
    packed_tightly,
    result_plan,
)
from borgish.sim.pack.files import (
    MACHINE_COLUMNS,
    PLACEMENT_COLUMNS,
    TASK_COLUMNS,
    TIME_COLUMNS,
    PlacementWriter,
    new_placements,
    read_machines,
    read_tasks,
)
from borgish.sim.pack.packing import Arrival, Note, OnPlacement
from borgish.spec.file.mistakes import show_mistakes
from borgish.text import safe

_Found = TypeVar("_Found")

EXPERIMENTS = ("arrive", "compact")
SHOWN_PERCENT = 5
SEED_MAX = 2**32 - 1


def add_words(pack: argparse.ArgumentParser) -> None:
    """Add what the command says of itself, and its options."""
    pack.description = "Pack tasks on machines that are in CSV files, with the real scheduler."
    pack.epilog = (
        f"Machines have the columns {','.join(MACHINE_COLUMNS)}, and further ones are attributes. "
        f"Tasks have {','.join(TASK_COLUMNS)}, in order of arrival; several constraints have ; between. "
        "arrive: tasks come one at a time, and what finds no place goes. compact: how few machines, "
        "drawn at random, hold all tasks. Example: fauxmaster pack --machines M.csv --tasks T.csv "
        "--departures --placements P.csv"
    )
    pack.add_argument("--machines", type=Path, required=True, metavar="M.csv")
    pack.add_argument("--tasks", type=Path, required=True, metavar="T.csv")
    pack.add_argument("--policy", default=next(iter(POLICIES)), metavar="P", help=", ".join(POLICIES))
    pack.add_argument("--experiment", default=EXPERIMENTS[0], metavar="|".join(EXPERIMENTS))
    pack.add_argument(
        "--seed", type=_seed, default=0, metavar="N", help="for ties, and for which machines go"
    )
    pack.add_argument(
        "--trials", type=_trials, default=TRIALS, metavar="N", help=f"of compact; {TRIALS} unless given"
    )
    pack.add_argument(
        "--pending-share",
        type=_percent,
        default=100 * PENDING_SHARE_MAX,
        metavar="PERCENT",
        help=f"of compact: how many of the tasks may wait where they are picky; {100 * PENDING_SHARE_MAX:g} "
        "unless given, as in the Borg paper",
    )
    pack.add_argument(
        "--picky-machines",
        type=_count,
        default=PICKY_MACHINES_MAX,
        metavar="N",
        help="of compact: a task is picky that no more machines of the cell take, even when empty; "
        f"{PICKY_MACHINES_MAX} unless given",
    )
    pack.add_argument(
        "--departures",
        action="store_true",
        help=f"of arrive: tasks leave. They have the columns {' and '.join(TIME_COLUMNS)}, in seconds, as "
        "Alibaba's cluster-trace-gpu-v2023 has them; one without a deletion_time stays",
    )
    pack.add_argument(
        "--placements",
        type=Path,
        metavar="P.csv",
        help=f"write where each task went to a new file: {','.join(PLACEMENT_COLUMNS)}, in the order of the "
        "tasks, without a machine where it found no place; of compact, in the trial that gave the result",
    )
    pack.add_argument("--json", action="store_true", help="one JSON object")


def run_pack(arguments: argparse.Namespace) -> None:
    """Run an experiment and print what came of it. Raises Invalid, NotFound, Conflict."""
    policy, experiment = _known(arguments.policy, POLICIES), _known(arguments.experiment, EXPERIMENTS)
    if arguments.departures and experiment == "compact":
        raise Invalid("compact packs all tasks at once: none leaves", "leave --departures out")
    with _Progress() as progress, _placements(arguments.placements) as placements:
        machines = _read(read_machines, arguments.machines, progress)
        tasks = _read(partial(read_tasks, with_times=arguments.departures), arguments.tasks, progress)
        if machines is None or tasks is None:
            sys.exit(Invalid.exit_code)

        def write(number: int, machine: str, devices: tuple[str, ...]) -> None:
            if placements is not None:
                placements.write(tasks.arrivals[number], tasks.indexes[number], machine, devices)

        asked: dict[str, object] = {"experiment": experiment, "policy": policy, "seed": arguments.seed}
        asked["machines"] = len(machines)
        if experiment == "arrive":
            arrived = arrive(
                machines, tasks.arrivals, policy, arguments.seed, progress.note, tasks.times, write
            )
            progress.end()
            print(_json(asked, arrived) if arguments.json else show_arrived(arrived))
            return
        share = arguments.pending_share / 100
        work = Work.of(machines, tasks.arrivals, share, arguments.picky_machines)
        compacted = packed_tightly(work, policy, arguments.seed, arguments.trials, progress.note)
        progress.end()
        print(_json(asked, compacted) if arguments.json else show_compacted(compacted))
        if placements is not None:
            report_plan(result_plan(work, compacted, policy, arguments.seed), tasks.arrivals, write)


@contextmanager
def _placements(path: Path | None) -> Iterator[PlacementWriter | None]:
    """Have the file that was asked for, or none."""
    if path is None:
        yield None
        return
    with new_placements(path) as writer:
        yield writer


def report_plan(plan: Plan, arrivals: Sequence[Arrival], on_placement: OnPlacement) -> None:
    """Report where a plan puts tasks, in the order of their arrival."""
    where: dict[tuple[str, int], tuple[str, tuple[str, ...]]] = {}
    for placement in plan.placements:
        devices = placement.devices or repeat(())
        for index, machine, given in zip(placement.indexes, placement.machines, devices, strict=False):
            where[placement.job, index] = machine, given
    come: Counter[str] = Counter()  # of each job
    for number, arrival in enumerate(arrivals):
        on_placement(number, *where.get((arrival.key, come[arrival.key]), ("", ())))
        come[arrival.key] += 1


class _Progress:
    """Shows how far it has come in one line of a terminal, and nowhere else."""

    def __init__(self) -> None:
        self._shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def note(self, words: str) -> None:
        """Show this instead of what was shown before."""
        if sys.stderr.isatty():
            self._shown = True
            width = shutil.get_terminal_size().columns - 1  # a line that wraps could not be taken away
            sys.stderr.write(f"\r\x1b[K{safe(words)[:width]}")
            sys.stderr.flush()

    def end(self) -> None:
        """Show nothing any more."""
        if self._shown:
            self._shown = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _percent(text: str) -> float:
    if not re.fullmatch(r"\d{1,3}(\.\d{1,6})?", text, re.ASCII) or float(text) > 100:
        raise argparse.ArgumentTypeError(f"{text} is not a share in percent, like 0.2")
    return float(text)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) > SEED_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of machines")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) > SEED_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 0 to {SEED_MAX}")
    return int(text)


def _trials(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 to 1000")
    return int(text)


def _read(read: Callable[[Path, Note], _Found], path: Path, progress: _Progress) -> _Found | None:
    """Return what is in a file, or tell its mistakes: those of both files are told."""
    try:
        return read(path, progress.note)
    except Invalid as error:
        progress.end()
        print(show_mistakes(error.mistakes, str(path)), file=sys.stderr)
        return None


def _known(name: str, names: object) -> str:
    known = list(names) if isinstance(names, dict | tuple) else []
    if name not in known:
        raise Invalid(f"{name} is unknown", f"there are {', '.join(known)}")
    return name


def _json(asked: dict[str, object], result: Arrived | Compacted) -> str:
    found = msgspec.to_builtins(result)
    if isinstance(result, Compacted):
        found |= {"result": result.result, "median": statistics.median(result.needed)}
    return msgspec.json.encode(found | asked).decode()


def show_arrived(arrived: Arrived) -> str:
    """Return the shares of every fifth percent, and why tasks are pending."""
    lines = [f"requested and allocated {arrived.measured}, allocated cpu and ram, in % of the cell"]
    last = arrived.steps[-1]
    for step in arrived.steps:
        if step.requested_percent % SHOWN_PERCENT == 0 or step is last:
            shares = (step.allocated, step.cpu_allocated, step.ram_allocated)
            lines.append(f"{step.requested_percent:>9}" + "".join(f"{100 * share:>9.2f}" for share in shares))
    pending = sum(arrived.pending.values())
    left = f", of which {arrived.left} left before the last one came" if arrived.left else ""
    lines.append(
        f"placed {arrived.placed} of {arrived.tasks} tasks{left}, {pending} pending{':' if pending else ''}"
    )
    lines += [f"{count:>9} {reason}" for reason, count in arrived.pending.items()]
    return "\n".join(lines)


def show_compacted(compacted: Compacted) -> str:
    """Return how many machines are needed, beside what no packing can do without."""
    needed, bounds, result = compacted.needed, compacted.bounds, compacted.result
    cell = f"{compacted.machines} machines"
    if compacted.clones > 1:
        cell += f", {compacted.clones} times those given"
    spread = f"median {statistics.median(needed):g}, {min(needed)} to {max(needed)}"
    bound = statistics.median(bounds)
    more = 100 * (statistics.mean(n / b for n, b in zip(needed, bounds, strict=True)) - 1)
    return (
        f"{compacted.tasks} tasks on {cell}, {len(needed)} trials\n"
        f"needed: {result} machines (90th percentile; {spread}), "
        f"{100 * result / compacted.machines:.1f} % of the cell\n"
        f"their sums ask for {bound:g} (median) whatever the packing; {more:.2f} % on top of that\n"
        + "\n".join(_deciding(compacted))
    )


def _deciding(compacted: Compacted) -> Iterator[str]:
    """Yield which tasks decide how many machines are needed."""
    if not compacted.decided_by:
        yield "decided by the sums of what the tasks ask for"
        return
    yield "decided by tasks that find no place on one machine less, where they may not wait:"
    given = compacted.machines // compacted.clones
    for each in compacted.decided_by:
        needs = f"{show_cpu(each.needs.cpu_millis)} cpu, {show_bytes(each.needs.ram_bytes)} ram"
        needs += "".join(f", {show_devices(n)} {kind}" for kind, n in each.needs.devices.items())
        needs += "".join(f", {constraint}" for constraint in each.constraints)
        more = f" and {each.tasks - 1} more like it" if each.tasks > 1 else ""
        yield f"  {each.task}{more} ({needs}): {each.machines} of {given} machines take it when empty"
    if compacted.decided_by_more:
        yield f"  and {compacted.decided_by_more} more kinds of task"
