"""Whatever machines do, and however often the master changes: they are given up at a limited rate."""

from bisect import bisect_left

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.cell.apply import apply_entry
from borgish.cell.commands import (
    JoinMachine,
    SubmitJob,
)
from borgish.cell.events import Entry, MachineLost, TasksEvicted
from borgish.cell.model import Cell, Snapshot
from borgish.cell.observed import Miss
from borgish.clock import Now
from borgish.master.core import Core
from borgish.master.step import CommandRequest, Input, PollsAnswered, PollsMissed
from borgish.reconcilers.settings import LOST_SECONDS, ReconcileSettings
from borgish.vocabulary import Eviction
from tests.profiles import examples
from tests.unit.cell.lived import machine, spec

MACHINES = 7
NAMES = [f"m{number}" for number in range(1, MACHINES + 1)]
SETTINGS = ReconcileSettings(election_grace_seconds=0.0)

silence = st.tuples(st.just("silent"), st.sampled_from(NAMES), st.integers(1, 40))
successor = st.tuples(st.just("master"), st.just(""), st.integers(0, 15))
leap = st.tuples(st.just("leap"), st.just(""), st.sampled_from([-4000, -7, 7, 4000]))
quiet = st.tuples(st.just("quiet"), st.just(""), st.integers(1, 15))


class Life:
    """A cell under one master after another; a step a second. Each task takes most of a machine."""

    def __init__(self) -> None:
        self.mono, self.leapt = 100.0, 0.0
        self.core = Core(Cell(Snapshot("c")), SETTINGS, self.now)
        self.entries: list[Entry] = []
        self.lost_at: list[float] = []  # monotonic, one for each machine
        self.silent: dict[str, float] = {}  # until when
        self.step(*(CommandRequest(0, JoinMachine(machine(name), name, known=False), "a") for name in NAMES))
        self.step(CommandRequest(0, SubmitJob(spec("web", 2 * MACHINES)), "a"))

    @property
    def now(self) -> Now:
        return Now(1e9 + self.mono + self.leapt, self.mono)

    def step(self, *inputs: Input) -> None:
        answering = {name: self.mono for name in NAMES if self.silent.get(name, 0.0) <= self.mono}
        missing = {name: Miss("lost") for name in NAMES if name not in answering}
        step = self.core.step([PollsAnswered(answering), PollsMissed(missing), *inputs], self.now)
        self.entries += step.entries
        for entry in step.entries:
            for event in entry.events:
                if isinstance(event, TasksEvicted):
                    assert event.cause is Eviction.MACHINE_LOST
                if isinstance(event, MachineLost):
                    self.lost_at.append(self.mono)
        self.mono += 1.0

    def next_master(self) -> None:
        """Another one leads, from the journal as it is stored."""
        cell = Cell(Snapshot("c"))
        for entry in self.entries:
            apply_entry(cell, msgspec.json.decode(msgspec.json.encode(entry), type=Entry))
        assert cell.losses == self.core.cell.losses
        self.core = Core(cell, SETTINGS, self.now)


@settings(max_examples=examples(60))
@given(st.lists(silence | silence | successor | leap | quiet, min_size=5, max_size=25))
def test_the_rate_is_kept_over_restarts(course: list[tuple[str, str, int]]) -> None:
    life = Life()
    for kind, name, amount in course:
        match kind:
            case "silent":
                life.silent[name] = life.mono + amount
            case "master":
                life.next_master()
            case "leap":
                life.leapt += amount
        for _ in range(amount if kind in ("quiet", "master") else 1):
            life.step()
    for _ in range(30):
        life.step()
    for at in life.lost_at:
        window = bisect_left(life.lost_at, at + LOST_SECONDS) - bisect_left(life.lost_at, at)
        assert window == 1, life.lost_at
