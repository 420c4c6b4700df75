"""Every fact of a machine, from what its borglet measures to all who use it: carried, or why not.

``FACTS`` walks what a borglet says of its machine (``wire.link.Facts``). A fact that is not in the table, or
of which the table is not true, fails: none is lost on its way without somebody having said so here.
"""

import ast
import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from borgish.api.views.machines import machine_view
from borgish.api.views.tally import Tally
from borgish.cell.commands import JoinMachine
from borgish.cell.decide import decide
from borgish.cell.diff import difference
from borgish.cell.events import Entry
from borgish.cell.model import Machine
from borgish.cell.moves import Cursor
from borgish.cell.observed import SeenMachine
from borgish.cell.reported import report_facts, report_of
from borgish.link.conversation import Incoming
from borgish.master.leader import _joined
from borgish.resources import Resources
from borgish.scheduler.fleet import Fleet
from borgish.sim.faults import NO_FAULTS, FaultInjector
from borgish.sim.faux.copied_machine import CopiedMachine
from borgish.sim.loop import VirtualLoop
from borgish.sim.network import Network
from borgish.store.tables import machine_row
from borgish.vocabulary import Runtime
from borgish.wire.api import MachineView
from borgish.wire.link import Facts, JoinRequest, PollReply, Report
from tests.matrix.spec.test_job_fields import attributes, differing, with_another
from tests.tidy.texts import ROOT
from tests.unit.cell.test_decide import GIB, NOW, Desk

USED = "it has it"
OBSERVED = "it is observed, and a new leader is told it anew"
AT_JOIN = "it is of the borglet's file, and a borglet that starts joins"
PEOPLE = "people decide by it, and the scheduler does not"
UNSHOWN = "whoever asks has the borglet's file, or the engine"


class Fact(NamedTuple):
    """Where a fact is, in the machine's record or in what was seen of it; and who has it, or why not."""

    where: str
    join: str = USED
    report: str = USED
    row: str = USED
    diff: str = USED
    view: str = USED
    fleet: str = USED
    copy: str = USED


FACTS = {
    **{
        f"capacity.{amount}": Fact(f"record.capacity.{amount}")
        for amount in ("cpu_millis", "ram_bytes", "disk_bytes", "named", "devices")
    },
    "attributes": Fact("record.attributes"),
    "runtimes": Fact("record.runtimes"),
    "ports_low": Fact("record.ports_low", report=AT_JOIN, view=UNSHOWN),
    "ports_high": Fact("record.ports_high", report=AT_JOIN, view=UNSHOWN),
    "images": Fact("seen.images", join=OBSERVED, row=OBSERVED, diff=OBSERVED, view=UNSHOWN, copy=OBSERVED),
    "confinement": Fact(
        *("seen.confinement", OBSERVED, USED, OBSERVED, OBSERVED), fleet=PEOPLE, copy=OBSERVED
    ),
}

BEFORE = Facts(
    Resources(4000, 8 * GIB, 100 * GIB, {"tokens": 1}, {"gpu": 1000}),
    {"arch": "amd64"},
    (Runtime.PROCESS,),
    20000,
    20009,
    {"busybox:1": "amd64"},
    {"disk": "held"},
)


def other(fact: str) -> Facts:
    """Return facts that differ in one alone."""
    if fact == "runtimes":
        return msgspec.structs.replace(BEFORE, runtimes=(Runtime.PROCESS, Runtime.DOCKER))
    changed: Facts = with_another(BEFORE, fact)
    return changed


class Known:
    """What a master knows of a machine that joined, and then reported each of these facts."""

    def __init__(self, joined: Facts, *reported: Facts) -> None:
        self.desk = Desk()
        self.cell, self.observed = self.desk.cell, self.desk.observed
        request = JoinRequest("m2", "127.0.0.1", 7500, "b1", "i2", joined)
        self.desk.do(JoinMachine(_joined(request, 1.0), "i2", known=False))
        for facts in reported:
            self.report(facts)

    def report(self, facts: Facts) -> int:
        """Take in a report; return how many events follow. What the journal keeps of it leads to the same."""
        report = Report(facts)
        command = Incoming("m2").observe(PollReply("m2", "b1", "i2", 0, 1, report), report, self.machine)
        events = decide(self.cell, self.observed, command, "m2", NOW).events
        entry = Entry(self.cell.position + 1, NOW.wall, 1, 1, "m2", "Observe", events, subject="m2")
        kept = report_of(self.cell, entry, report_facts(command, events))
        assert decide(self.cell, self.observed, kept, "m2", NOW).events == events
        return self.desk.do(command)[1]

    @property
    def machine(self) -> Machine:
        return self.cell.machines["m2"]

    def where(self) -> dict[str, Any]:
        record = msgspec.structs.replace(self.machine, port_next=0)  # it follows from the ports
        seen = self.observed.machines.get("m2", SeenMachine())
        return {"record": record, "seen": msgspec.structs.replace(seen, cursor=NOT_COMPARED)}


NOT_COMPARED = Cursor()


def in_fleet(before: Known, after: Known) -> bool:
    """Return whether the machine's row counts as changed, so that what is kept of it is computed anew."""
    fleet = Fleet.of(before.cell, before.observed, 0, NOW.mono)
    version = fleet.version
    fleet.read(after.cell, after.observed, ["m2"], NOW.mono)
    return fleet.version > version


def shown(known: Known) -> MachineView:
    return machine_view(known.cell, known.observed, Tally(), known.machine, NOW)


def copied(known: Known) -> Facts:
    """Return what a machine of a copied cell says of itself."""
    with contextlib.closing(VirtualLoop()) as loop:
        injector = FaultInjector(0, NO_FAULTS)
        return CopiedMachine(known.machine, loop, injector, Network(loop, injector, {})).facts


HAVING: dict[str, Callable[[Known, Known], bool]] = {
    "row": lambda before, after: machine_row(before.machine) != machine_row(after.machine),
    "diff": lambda before, after: any(difference(before.cell, after.cell).values()),
    "view": lambda before, after: shown(before) != shown(after),
    "fleet": in_fleet,
    "copy": lambda before, after: copied(before) != copied(after),
}


def test_every_fact_is_in_the_table() -> None:
    assert list(FACTS) == list(attributes(Facts))


def test_a_borglet_gives_every_fact() -> None:
    """One with a default that nobody measures would be the same of all machines."""
    tree = ast.parse((ROOT / "borgish" / "borglet" / "facts.py").read_text())
    given = {
        keyword.arg for node in ast.walk(tree) if isinstance(node, ast.Call) for keyword in node.keywords
    }
    assert {field.name for field in msgspec.structs.fields(Facts)} <= given


def check_where(fact: str, is_there: bool, before: Known, after: Known) -> None:
    where, paths = FACTS[fact].where, differing(before.where(), after.where())
    assert bool(paths) == is_there
    assert all(path == where or path.startswith(f"{where}.") for path in paths), paths


@pytest.mark.parametrize("fact", FACTS)
def test_a_machine_joins_with(fact: str) -> None:
    check_where(fact, FACTS[fact].join == USED, Known(BEFORE), Known(other(fact)))


@pytest.mark.parametrize("fact", FACTS)
def test_a_report_brings(fact: str) -> None:
    known = Known(BEFORE, BEFORE, other(fact))
    check_where(fact, FACTS[fact].report == USED, Known(BEFORE, BEFORE), known)
    assert not known.report(other(fact)), "the same report again is nothing new"


@pytest.mark.parametrize("who", HAVING)
@pytest.mark.parametrize("fact", FACTS)
def test_who_has(fact: str, who: str) -> None:
    before, after = Known(BEFORE, BEFORE), Known(other(fact), other(fact))
    reason = getattr(FACTS[fact], who)
    assert HAVING[who](before, after) == (reason == USED), reason
