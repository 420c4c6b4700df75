"""A cell with a story: events that go together, taken into a cell and into its store."""

from borgish.cell.apply import apply_entry
from borgish.cell.events import (
    AnyEvent,
    Elected,
    Entry,
    Facts,
    JobSubmitted,
    MachineJoined,
    Recorded,
    TasksEnded,
    TasksEvicted,
    TasksPlaced,
)
from borgish.cell.model import Cell, Machine
from borgish.resources import Resources
from borgish.spec.job import JobSpec
from borgish.store.base import CheckpointInfo, Store, records_of
from borgish.store.codec import compress, encode_snapshot
from borgish.vocabulary import Ending, Eviction, Runtime

CELL = "testing"
JOB = "ann/web"


def job(name: str = "web", tasks: int = 3) -> JobSpec:
    return JobSpec(name=name, user="ann", tasks=tasks, run=("true",), ports=("http",), env={"A": "ö'\"\n"})


def machine(name: str = "m1") -> Machine:
    return Machine(
        name=name,
        host="127.0.0.1",
        port=7000,
        tls=False,
        capacity=Resources(4000, 2**34, 2**40, {"gpu": 2}),
        attributes={"rack": "r1"},
        runtimes=(Runtime.PROCESS,),
        ports_low=20000,
        ports_high=20999,
        boot_id="boot-1",
        joined_at=99.5,
    )


class Life:
    """A master's life on a store: loads the cell, leads, and writes what happens."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.cell: Cell = store.load()
        self.epoch = store.lead("tester", "127.0.0.1:1")
        self.durable = self.cell.position
        self.do(Elected(epoch=self.epoch, timeline=1, holder="tester"))

    def entry(self, *events: AnyEvent) -> Entry:
        """Take events into the cell only. Of every other one it is recorded what was asked."""
        position = self.cell.position + 1
        command = Recorded(({"reason": "\0ö", "indexes": None},), Facts("i", 1.5)) if position % 2 else None
        entry = Entry(
            position,
            100.25 + position,
            1,
            self.epoch,
            "tester",
            "test",
            events,
            f"r{position}",
            "d",
            command=command,
        )
        apply_entry(self.cell, entry)
        return entry

    def write(self, *entries: Entry) -> None:
        self.store.append(entries, records_of(self.cell, self.cell.take_touched()))
        self.durable = self.cell.position

    def do(self, *events: AnyEvent) -> Entry:
        entry = self.entry(*events)
        self.write(entry)
        return entry

    def story(self) -> None:
        """A job of three: one running, one evicted, one failed."""
        self.do(MachineJoined(machine()))
        self.do(JobSubmitted(job()))
        placed = self.entry(TasksPlaced(JOB, (0, 1, 2), ("m1",) * 3, ((20000,), (20001,), (20002,))))
        evicted = self.entry(TasksEvicted(JOB, (1,), Eviction.DRAIN))
        ended = self.entry(TasksEnded(JOB, (2,), Ending.FAIL, ("no \0 such file",), (127,), (None,), (98.5,)))
        self.write(placed, evicted, ended)

    def checkpoint(self, reason: str = "test") -> CheckpointInfo:
        return self.store.save_checkpoint(self.stored(), self.cell.position, 200.5, reason)

    def body(self) -> bytes:
        return body_of(self.cell)

    def stored(self) -> bytes:
        return compress(self.body())


def body_of(cell: Cell) -> bytes:
    """Return a cell as bytes: two cells are alike when these are."""
    return bytes(encode_snapshot(cell.snapshot()))
