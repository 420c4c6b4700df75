"""For any times of entries, also of a clock that was set back."""

from hypothesis import given
from hypothesis import strategies as st

from borgish.cell.events import Entry, MachineUp
from borgish.store.base import Records
from borgish.store.memory import MemoryStore
from borgish.store.replay import position_at

TIMES = st.integers(0, 30).map(float)


@given(st.lists(TIMES, min_size=1, max_size=40), TIMES)
def test_the_position_was_reached_by_then_and_the_next_was_not(times: list[float], then: float) -> None:
    store = MemoryStore("c")
    store.lead("me", "")
    rows = [Entry(p, at, 1, 1, "a", "b", (MachineUp("m"),)) for p, at in enumerate(times, 1)]
    store.append(rows, Records())

    position = position_at(store, then, len(times))

    assert position == 0 or times[position - 1] <= then
    assert position == len(times) or times[position] > then
