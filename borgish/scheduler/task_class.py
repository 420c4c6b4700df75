"""Equivalence classes: tasks that are alike in all that placing depends on are evaluated once (section 3.4).

What a class keeps follows from the machines' rows and is known to be stale by their version numbers.
``queue.Classes`` finds the class of a task.
"""

from typing import NamedTuple

import msgspec

from borgish.scheduler.affinity import Rule
from borgish.scheduler.arrays import BoolArray, FloatArray, IntArray
from borgish.spec.job import Constraint, Preference, Toleration
from borgish.vocabulary import Runtime

NOT_FAILED, RETRY = -1, -2
"""Instead of the version at which a class failed: it is not known to fail, or is to be tried once more."""

Needs = tuple[tuple[int, float], ...]


class Wanted(NamedTuple):
    """What a task wants of a machine that does not change with placements."""

    runtime: Runtime
    constraints: tuple[Constraint, ...]
    tolerations: tuple[Toleration, ...]
    image: str
    avoids: tuple[str, ...] = ()  # machines on which the task failed


class ClassKey(NamedTuple):
    """All in which tasks of a class are alike."""

    needs: Needs
    devices: tuple[tuple[str, int], ...]
    fixed_ports: tuple[int, ...]
    wanted: Wanted
    prefer: tuple[Preference, ...]
    band: int
    reach: int  # tasks below this priority may be preempted
    is_service: bool
    alone: str  # of one job, or one task; "": of any
    rules: tuple[object, ...] = ()  # of one job: all that its rules follow from, and a gang's size


class Explanation(msgspec.Struct, frozen=True):
    """Why no machine takes a class of tasks, as of a version of the machines' rows and a journal position."""

    version: int
    position: int
    machines: int
    reasons: dict[str, int]
    text: str
    hint: str
    impossible: bool  # on the machines there are, even empty ones
    waits_for: str  # "" where waiting alone does not help
    of_gang: bool = False  # made while other tasks of its gang were on the machines


class TaskClass(msgspec.Struct, eq=False):
    """Tasks alike. ``needs`` are amounts by kind, only those above zero, ports and devices among them.

    Amounts of cpu and devices are in thousandths, of ram and disk in bytes.
    """

    key: ClassKey
    needs: Needs
    devices: tuple[tuple[str, int], ...]  # thousandths by kind
    fixed_ports: tuple[int, ...]
    wanted: Wanted
    prefer: tuple[Preference, ...]
    reach: int
    priority: int
    is_prod: bool
    is_service: bool
    cpu: float
    ram: float
    ports: int  # those whose numbers are ours to choose
    rules: tuple[Rule, ...] = ()
    rules_version: int = -1  # of the terms they were made from
    costs: FloatArray | None = None  # by row: less is better, inf where it does not fit
    scored: IntArray | None = None  # the rows that ``costs`` are of; None: of all
    costs_version: int = -1  # of the rows these costs were computed from
    costs_learned: int = -1  # the policy's version then
    suitable: BoolArray | None = None  # by row: whether its facts are right
    suitable_version: int = -1
    static_score: FloatArray | None = None  # by row: the part of the costs that follows from facts
    static_score_version: int = -1
    failed_version: int = NOT_FAILED  # of the rows when nothing more of it fitted
    failed_counts: int = 0  # sum of its counters' versions then
    explanation: Explanation | None = None  # why it failed

    @property
    def counts_version(self) -> int:
        """What grows when the counts that its rules read change."""
        return sum([rule.counter.version for rule in self.rules])
