"""A snapshot that was encoded in slices, while the cell went on, is the cell as it is in the end."""

from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.store.memory import MemoryStore
from borgish.store.replay import cell_at
from borgish.store.sliced import SlicedSnapshot
from tests.contract.store.samples import CELL, Life
from tests.profiles import examples
from tests.property.store.histories import next_event, rollback


@settings(max_examples=examples(100))
@given(st.data())
def test_it_is_the_cell_at_the_end(data: st.DataObject) -> None:
    life = Life(MemoryStore(CELL))
    sliced = SlicedSnapshot(life.cell)
    for _ in range(data.draw(st.integers(1, 25))):
        if data.draw(st.integers(0, 9)) == 0:
            sliced = SlicedSnapshot(life.cell)
        if data.draw(st.booleans()):
            position = data.draw(st.integers(0, life.durable))
            is_rollback = data.draw(st.integers(0, 9)) == 0 and position
            then = rollback(life.cell, cell_at(life.store, CELL, position).cell) if is_rollback else None
            event = then or next_event(life.cell, data)
            entry = life.entry(*([event] if event else []))
            sliced.note([entry], life.cell.touched)
            life.write(entry)
        else:
            slices = data.draw(st.integers(0, 3))
            sliced.encode_some(iter([True] * slices + [False] * 100).__next__)
    told = b"".join(sliced.finish())
    assert told == life.body()
    assert sliced.is_nearly_done


@given(st.data())
@settings(max_examples=examples(20))
def test_one_that_was_not_told_of_all_encodes_the_cell_anew(data: st.DataObject) -> None:
    life = Life(MemoryStore(CELL))
    life.story()
    sliced = SlicedSnapshot(life.cell)
    sliced.encode_some(lambda: True)
    for told in data.draw(st.lists(st.booleans(), min_size=1, max_size=6)):
        event = next_event(life.cell, data)
        entry = life.entry(*([event] if event else []))
        if told:
            sliced.note([entry], life.cell.touched)
        life.write(entry)
    assert b"".join(sliced.finish()) == life.body()
