"""Keys kept in order are those of all names, sorted."""

from hypothesis import given, settings
from hypothesis import strategies as st

from borgish.cell.ordered import Ordered
from tests.profiles import examples

NAMES = [f"n{number}" for number in range(60)]
changes = st.dictionaries(st.sampled_from(NAMES), st.none() | st.integers(0, 5), max_size=60)


@given(st.lists(changes, max_size=20))
@settings(max_examples=examples(100))
def test_it_is_what_sorting_says(rounds: list[dict[str, int | None]]) -> None:
    ordered: Ordered[tuple[int, str]] = Ordered()
    known: dict[str, tuple[int, str]] = {}
    for each in rounds:
        keys = {name: None if key is None else (key, name) for name, key in each.items()}
        ordered.change(keys)
        known = {name: key for name, key in (known | keys).items() if key is not None}
        expected = sorted(known.values())
        assert list(ordered.last_first()) == expected[::-1]
        for key in ((0, ""), (3, "n30"), (9, "")):
            assert list(ordered.after(key)) == [one for one in expected if one > key]
