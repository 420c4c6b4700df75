"""Constraints that no machine can meet together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from borgish.spec.constraints import contradiction, contradiction_words, matches, parse_constraint
from borgish.spec.job import Constraint


def parsed(*texts: str) -> list[Constraint]:
    return [parse_constraint(text) for text in texts]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (("a == x", "a == y"), "both a == x and a == y"),
        (("b == 1", "a == x", "a == y"), "both a == x and a == y"),
        (("n < 3", "n > 5"), "both n < 3 and n > 5"),
        (("n > 3", "n < 3"), "both n > 3 and n < 3"),
        (("n == x", "n <= 3"), "both n == x and n <= 3"),
        (("present(a)", "not present(a)"), "both present(a) and not present(a)"),
        (("a == x", "not present(a)"), "both a == x and not present(a)"),
        (("a in (x, y)", "a not in (x)", "a != y"), "all of a in (x, y), a not in (x) and a != y"),
        (("n > 1", "n > 3", "n < 2"), "both n > 3 and n < 2"),
        (("n > 100000000000000000000", "n < 5"), "both n > 100000000000000000000 and n < 5"),
    ],
)
def test_what_contradicts_itself(texts: tuple[str, ...], words: str) -> None:
    assert contradiction_words(parsed(*texts)) == f"no machine can match {words}"


@pytest.mark.parametrize(
    "texts",
    [
        (),
        ("a == x",),
        ("a == x", "a == x"),
        ("a == x", "b == y"),
        ("a != x", "a != y", "not present(a)"),
        ("a in (x, y)", "a in (y, z)"),
        ("n > 2", "n < 3"),
        ("n >= 3", "n <= 3"),
        ("n >= 3", "n <= 3", "n != 3"),  # 3.0 is another value
        ("n == 3.0", "n >= 3"),
        ("n > 100000000000000000000",),
        ("present(a)", "a != x"),
    ],
)
def test_what_does_not(texts: tuple[str, ...]) -> None:
    assert contradiction(parsed(*texts)) == ()


VALUES = st.sampled_from(["x", "y", "1", "2", "2.5", "3"])
NUMBERS = st.sampled_from(["1", "2", "2.5", "3"])
CONSTRAINTS = st.one_of(
    st.builds(Constraint, st.just("a"), st.sampled_from(["==", "!="]), st.tuples(VALUES)),
    st.builds(Constraint, st.just("a"), st.sampled_from(["<", "<=", ">", ">="]), st.tuples(NUMBERS)),
    st.builds(
        Constraint, st.just("a"), st.sampled_from(["in", "not in"]), st.lists(VALUES, min_size=1).map(tuple)
    ),
    st.builds(Constraint, st.just("a"), st.sampled_from(["present", "not present"])),
)


@given(st.lists(CONSTRAINTS, max_size=6), st.one_of(VALUES, st.sampled_from([None, "z", "0", "1.5", "9"])))
def test_no_machine_ever_meets_what_is_called_contradictory(
    constraints: list[Constraint], value: str | None
) -> None:
    found = contradiction(constraints)
    if all(matches(each, {} if value is None else {"a": value}) for each in constraints):
        assert found == ()
    assert set(found) <= set(constraints)
    if found:
        assert len(found) > 1
        assert all(contradiction([each for each in found if each != one]) == () for one in found)
