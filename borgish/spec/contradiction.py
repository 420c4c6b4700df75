"""Which of a job's constraints no machine can ever meet together, whatever its attributes are.

Constraints on different attributes never stand in each other's way. On one attribute it is enough to try
some values: those that are named, numbers at and between the bounds, one like no other, and none at all.
"""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Context, Decimal
from itertools import pairwise

from borgish.spec.constraints import ORDERS, matches
from borgish.spec.job import Constraint

_LARGEST = Decimal("9" * 30)
_EXACT = Context(prec=80)  # a bound has at most 30 digits on each side
_DIGITS = 30  # more decimals than anybody writes, so that no text for a number is among those ruled out


def contradiction(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Return constraints that no machine can meet together, no more than it takes; empty: there are none."""
    by_attribute: dict[str, list[Constraint]] = {}
    for constraint in dict.fromkeys(constraints):
        by_attribute.setdefault(constraint.attribute, []).append(constraint)
    for group in by_attribute.values():
        if not _is_possible(group):
            return tuple(_fewest(group))
    return ()


def contradiction_words(constraints: Iterable[Constraint]) -> str:
    """Return what is contradictory, like ``no machine can match both a == x and a == y``; "" for nothing."""
    words = [str(each) for each in contradiction(constraints)]
    if not words:
        return ""
    *others, last = words
    both = {0: "", 1: "both "}.get(len(others), "all of ")
    return f"no machine can match {both}{', '.join(others)}{' and ' * bool(others)}{last}"


def _fewest(group: list[Constraint]) -> list[Constraint]:
    """Return those of impossible constraints without any of which the rest would be possible."""
    for constraint in list(group):
        fewer = [each for each in group if each is not constraint]
        if not _is_possible(fewer):
            group = fewer
    return group


def _is_possible(group: Sequence[Constraint]) -> bool:
    return any(_all_match(group, value) for value in _values_to_try(group))


def _all_match(group: Sequence[Constraint], value: str | None) -> bool:
    return all(matches(each, {} if value is None else {each.attribute: value}) for each in group)


def _values_to_try(group: Sequence[Constraint]) -> Iterator[str | None]:
    yield None
    named = [value for each in group for value in each.values]
    yield from named
    yield "x" * (1 + max(map(len, named), default=0))
    bounds = sorted({Decimal(each.values[0]) for each in group if each.op in ORDERS})
    if bounds:
        between = [_EXACT.divide(_EXACT.add(low, high), Decimal(2)) for low, high in pairwise(bounds)]
        far = min(2 * max(map(abs, bounds)) + 1, _LARGEST)  # a little more would be the same as a float
        for number in (*bounds, *between, far, -far):
            yield f"{number:.{_DIGITS}f}"
