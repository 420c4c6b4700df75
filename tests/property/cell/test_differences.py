"""For any history: nothing differs from itself, what came one way went the other, no task is told twice."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.cell.diff import Kind, difference
from borgish.cell.model import Cell
from borgish.store.memory import MemoryStore
from borgish.store.replay import cell_at
from tests.contract.store.samples import CELL, Life
from tests.profiles import examples
from tests.property.store.histories import next_event

STEPS_MAX = 30
_OTHER_WAY = {Kind.ADDED: Kind.REMOVED, Kind.REMOVED: Kind.ADDED, Kind.CHANGED: Kind.CHANGED}


@settings(max_examples=examples(60))
@given(st.data())
def test_differences_of_two_moments(data: st.DataObject) -> None:
    life = Life(MemoryStore(CELL))
    for _ in range(data.draw(st.integers(1, STEPS_MAX))):
        event = next_event(life.cell, data)
        life.do(*([event] if event else []))
    old, new = (_drawn(life, data) for _ in range(2))

    found, reversed_ = difference(old, new), difference(new, old)

    assert not any(difference(old, old).values())
    for section, changes in found.items():
        there = [(change.kind, change.subject) for change in changes]
        back = [(_OTHER_WAY[change.kind], change.subject) for change in reversed_[section]]
        assert sorted(there) == sorted(back)
    assert _names(found["machines"], Kind.ADDED) == new.machines.keys() - old.machines.keys()
    assert _names(found["jobs"], Kind.REMOVED) == old.jobs.keys() - new.jobs.keys()
    told = Counter((change.name, index) for change in found["tasks"] for index in change.indexes)
    assert set(told.values()) <= {1}
    assert told.keys() >= {
        (key, before.index)
        for key in old.jobs.keys() & new.jobs.keys()
        for before, after in zip(old.jobs[key].tasks, new.jobs[key].tasks, strict=False)
        if before.state is not after.state
    }


def _drawn(life: Life, data: st.DataObject) -> Cell:
    return cell_at(life.store, CELL, data.draw(st.integers(0, life.cell.position))).cell


def _names(changes: object, kind: Kind) -> set[str]:
    assert isinstance(changes, tuple)
    return {change.name for change in changes if change.kind is kind}
