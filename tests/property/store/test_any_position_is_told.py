"""For any history: the cell at any position, told from what is stored, is the cell that was lived there."""

from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.cell.model import Cell
from borgish.store.memory import MemoryStore
from borgish.store.replay import cell_at
from tests.contract.store.samples import CELL, Life, body_of
from tests.profiles import examples
from tests.property.store.histories import next_event

STEPS_MAX = 30


@settings(max_examples=examples(60))
@given(st.data())
def test_any_position_is_told_as_it_was_lived(data: st.DataObject) -> None:
    life = Life(MemoryStore(CELL))
    lived = {life.cell.position: life.body()}
    for _ in range(data.draw(st.integers(1, STEPS_MAX))):
        event = next_event(life.cell, data)
        life.do(*([event] if event else []))
        lived[life.cell.position] = life.body()
        if data.draw(st.integers(0, 6)) == 0:
            life.checkpoint()
    position = data.draw(st.sampled_from(sorted(lived)))

    told = cell_at(life.store, CELL, position).cell

    assert body_of(told) == lived[position]
    anew = Cell(told.snapshot())
    assert (told.placed, told.waiting) == (anew.placed, anew.waiting)
