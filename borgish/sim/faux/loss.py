"""``lose``: what follows when machines die at once: they are lost in a copy, and time passes there.

Of 40 of 10,000 machines with 200,000 tasks that is known after ten seconds of cpu, since only machines where
something happens are simulated (``copied.py``).
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence

import msgspec

from borgish.cell.events import MachineDown
from borgish.cell.model import Cell
from borgish.errors import Invalid, NotFound
from borgish.reconcilers.settings import ReconcileSettings, is_mass_failure
from borgish.scheduler.plan import Refusal
from borgish.sim.faux.copied import Copy
from borgish.sim.faux.evictions import EXIT_TASKS_AFFECTED, Leaving, leaving, newly_waiting
from borgish.sim.faux.names import find_machine, nearest
from borgish.sim.faux.output import Answer, cut, refusal_data, refused
from borgish.sim.faux.session import Session
from borgish.text import plural, show_indexes
from borgish.vocabulary import State


def lose_arguments(parser: ArgumentParser) -> None:
    """Which machines."""
    parser.add_argument(
        "what", nargs="+", metavar="ATTRIBUTE=VALUE", help="rack=r2, machine=m1; several: all of them"
    )


def lose(session: Session, args: Namespace) -> Answer:
    """Say what follows when machines die at once: what is lost, where it goes, and how long that takes."""
    names = machines_with(session.here, args.what)
    found = lose_machines(session.trial(), names)
    return Answer(tuple(_loss_lines(found)), found.data(), EXIT_TASKS_AFFECTED if found.waiting else 0)


def _loss_lines(found: "Loss") -> list[str]:
    lines = [f"{plural(len(found.machines), 'machine')} lost: {', '.join(cut(found.machines, 12))}"]
    if not found.lost:
        return [*lines, "nothing ran there"]
    count = sum(len(indexes) for indexes in found.lost.values())
    lines.append(f"{plural(count, 'task')} lost:")
    lines += cut(
        [f"  {job}/{show_indexes(those)}: {found.fate_of(job)}" for job, those in found.lost.items()]
    )
    if found.others:
        lines.append(f"{plural(sum(len(e.indexes) for e in found.others), 'other task')} evicted for them:")
        lines += cut([f"  {e.job}/{show_indexes(e.indexes)}: {e.why}; then {e.now}" for e in found.others])
    lines += cut(refused(found.waiting))
    return [*lines, *found.times()]


COMMANDS = {"lose": (lose_arguments, lose)}


MACHINE = "machine"
LOOK_SECONDS = 0.25
QUIET_SECONDS = 20.0
"""Longer than it takes to find a machine silent, so that nothing is expected any more."""
SECONDS_MAX = 900.0
FROZEN = (
    "nothing is moved: with so many machines silent the master takes it for a fault of its own network, "
    "and leaves all as it is"
)


class Loss(msgspec.Struct, frozen=True):
    """What came of it; times are in simulated seconds after the loss."""

    machines: tuple[str, ...]
    lost: dict[str, tuple[int, ...]]  # tasks that ran there, by job
    fates: dict[str, str]  # what became of them, in words
    others: tuple[Leaving, ...]  # evicted for those lost
    waiting: dict[str, tuple[Refusal, ...]]
    seen_seconds: float  # until the last of the machines was known to be down; below 0: never
    again_seconds: float  # until the last task that found a place ran again; below 0: none did
    again: int  # tasks that run again
    frozen: bool

    def fate_of(self, job: str) -> str:
        """Return what became of a job's tasks."""
        return self.fates[job]

    def times(self) -> list[str]:
        """Return how long it all took, in words."""
        if self.frozen:
            return [FROZEN]
        lost = sum(len(indexes) for indexes in self.lost.values())
        seen = f"known to be down after {self.seen_seconds:.1f} s"
        if self.again < lost:
            last = f", the last of them after {self.again_seconds:.1f} s" if self.again else ""
            return [f"{seen}; {self.again} of {lost} run again{last}; the others wait"]
        return [f"{seen}; all {lost} run again after {self.again_seconds:.1f} s (simulated)"]

    def data(self) -> dict[str, object]:
        """Return all of it as data."""
        return {
            "machines": self.machines,
            "lost": {job: show_indexes(indexes) for job, indexes in self.lost.items()},
            "fates": self.fates,
            "evicted": [
                {"job": e.job, "indexes": show_indexes(e.indexes), "why": e.why} for e in self.others
            ],
            "waiting": refusal_data(self.waiting),
            "seen_seconds": self.seen_seconds,
            "again_seconds": self.again_seconds,
            "again": self.again,
            "frozen": self.frozen,
        }


def machines_with(cell: Cell, wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the machines that ``rack=r2`` or ``machine=m1`` mean; of several, all.

    Raises Invalid and NotFound.
    """
    found: set[str] = set()
    for text in wanted:
        attribute, is_there, value = text.partition("=")
        if not is_there or not attribute or not value:
            raise Invalid(
                f"'{text}' does not select machines", "Write ATTRIBUTE=VALUE: rack=r2, or machine=m1"
            )
        found |= {find_machine(cell, value)} if attribute == MACHINE else _having(cell, attribute, value)
    return tuple(sorted(found))


def _having(cell: Cell, attribute: str, value: str) -> set[str]:
    machines = cell.machines.values()
    values = {m.attributes[attribute] for m in machines if attribute in m.attributes}
    if not values:
        there = {MACHINE, *(name for machine in machines for name in machine.attributes)}
        raise NotFound(f"no machine has the attribute '{attribute}'", nearest(attribute, there, "attributes"))
    if value not in values:
        raise NotFound(f"no machine has {attribute}={value}", nearest(value, values, "values"))
    return {machine.name for machine in machines if machine.attributes.get(attribute) == value}


def lose_machines(copy: Copy, machines: tuple[str, ...]) -> Loss:
    """Lose them, and let time pass until all that was lost runs again, or nothing more happens."""
    copy.settle()
    lost = _placed_on(copy.cell, machines)
    before, waited, began = len(copy.entries), dict(copy.core.refusals), copy.now()
    copy.lose(machines)
    again = _wait(copy, [(job, index) for job, indexes in lost.items() for index in indexes], began.mono)
    entries = copy.entries[before:]
    down = [e.at - began.wall for e in entries if any(isinstance(each, MachineDown) for each in e.events)]
    gone = {(job, index) for job, indexes in lost.items() for index in indexes}
    return Loss(
        machines,
        lost,
        {job: _fate(copy.cell, job, indexes) for job, indexes in lost.items()},
        tuple(each for each in leaving(copy.cell, entries) if (each.job, each.indexes[0]) not in gone),
        newly_waiting(waited, copy.core.refusals),
        round(max(down, default=-1.0), 2),
        round(max(again.values(), default=-1.0), 2),
        len(again),
        is_mass_failure(copy.cell, copy.core.observed, ReconcileSettings(), copy.now()),
    )


def _placed_on(cell: Cell, machines: Iterable[str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for key, index in sorted(place for name in machines for place in cell.placed.get(name, ())):
        found.setdefault(key, []).append(index)
    return {key: tuple(sorted(indexes)) for key, indexes in found.items()}


def _wait(copy: Copy, lost: list[tuple[str, int]], began: float) -> dict[tuple[str, int], float]:
    """Return when each of the lost tasks ran again, in seconds; those that did not are not in it."""
    again: dict[tuple[str, int], float] = {}
    happened, happened_at = len(copy.entries), began
    while len(again) < len(lost) and copy.now().mono - happened_at < QUIET_SECONDS:
        copy.run(LOOK_SECONDS)
        seconds = copy.now().mono - began
        if len(copy.entries) > happened:
            happened, happened_at = len(copy.entries), copy.now().mono
        for job, index in lost:
            if (job, index) not in again and copy.runs_again(job, index):
                again[job, index] = seconds
        if seconds > SECONDS_MAX:
            break
    return again


def _fate(cell: Cell, key: str, indexes: tuple[int, ...]) -> str:
    tasks = [cell.jobs[key].tasks[index] for index in indexes]
    machines = sorted({task.machine for task in tasks if task.state is State.RUNNING})
    pending = [task.index for task in tasks if task.state is State.PENDING]
    parts = [f"now on {', '.join(cut(machines, 5))}"] if machines else []
    if pending:
        parts.append("waiting" if len(pending) == len(tasks) else f"{show_indexes(pending)} waiting")
    return "; ".join(parts) or "dead"
