"""Conditions on machines as users write them: ``rack in (r1, r2)``, ``arch == amd64``, ``present(gpu)``;
which machines meet them, and which of them no machine can ever meet together.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from itertools import pairwise
from operator import ge, gt, le, lt

from borgish.spec.job import Constraint

EXAMPLES = "arch == amd64, mem >= 5, rack in (r1, r2), present(gpu)"
EXPRESSION_CHARACTERS_MAX = 1024

ATTRIBUTE_PATTERN = r"(?!(?:not|in|present)(?![A-Za-z0-9_./-]))[A-Za-z_][A-Za-z0-9_./-]{0,62}"
VALUE_PATTERN = r"[^\s,()<>=!'\"]{1,253}"
_COMPARISON = re.compile(rf"({ATTRIBUTE_PATTERN})\s*(==|!=|<=|>=|<|>)\s*({VALUE_PATTERN})")
_MEMBERSHIP = re.compile(rf"({ATTRIBUTE_PATTERN})\s+(in|not\s+in)\s*\(([^()]*)\)")
_PRESENCE = re.compile(rf"(present|not\s+present)\s*\(\s*({ATTRIBUTE_PATTERN})\s*\)")
_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?", re.ASCII)
ORDERS: dict[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_LARGEST = Decimal("9" * 30)
_EXACT = Context(prec=80)  # a bound has at most 30 digits on each side
_DIGITS = 30  # more decimals than anybody writes, so that no text for a number is among those ruled out

OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "present", "not present")


def parse_constraint(text: str) -> Constraint:
    """Read one expression. Raises ValueError with the reason."""
    text = text.strip()
    if len(text) > EXPRESSION_CHARACTERS_MAX:
        raise ValueError(f"is longer than {EXPRESSION_CHARACTERS_MAX} characters")
    if match := _COMPARISON.fullmatch(text):
        attribute, op, value = match.groups()
        if op in ORDERS and not _NUMBER.fullmatch(value):
            raise ValueError(f"compares with '{value}', which is not a number")
        return Constraint(attribute, op, (value,))
    if match := _MEMBERSHIP.fullmatch(text):
        values = tuple(value.strip() for value in match[3].split(","))
        for value in values:
            if not re.fullmatch(VALUE_PATTERN, value):
                raise ValueError(f"has '{value}' in its list, which is not a plain word")
        return Constraint(match[1], " ".join(match[2].split()), values)
    if match := _PRESENCE.fullmatch(text):
        return Constraint(match[2], " ".join(match[1].split()))
    if text.count("(") != text.count(")"):
        raise ValueError("has a '(' without a ')'")
    if re.fullmatch(rf"{ATTRIBUTE_PATTERN}\s*=\s*{VALUE_PATTERN}", text):
        raise ValueError("has '=' where '==' is meant")
    raise ValueError("is not a condition")


def matches(constraint: Constraint, attributes: Mapping[str, str]) -> bool:
    """Return whether a machine with these attributes satisfies the constraint."""
    op = constraint.op
    actual = attributes.get(constraint.attribute)
    if op == "present":
        return actual is not None
    if op == "not present":
        return actual is None
    if op in ("!=", "not in"):
        return actual is None or actual not in constraint.values
    if actual is None:
        return False
    if op in ("==", "in"):
        return actual in constraint.values
    # What is not a number is in no order.
    return bool(_NUMBER.fullmatch(actual)) and ORDERS[op](float(actual), float(constraint.values[0]))


def contradiction(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Return constraints that no machine can meet together, no more than it takes; empty: there are none.

    Constraints on different attributes never stand in each other's way. On one attribute it is enough to try
    some values: those that are named, numbers at and between the bounds, one like no other, and none at all.
    """
    by_attribute: dict[str, list[Constraint]] = {}
    for constraint in dict.fromkeys(constraints):
        by_attribute.setdefault(constraint.attribute, []).append(constraint)
    for group in by_attribute.values():
        if _is_possible(group):
            continue
        kept = group
        for constraint in group:  # leave out each without which the others are impossible too
            fewer = [each for each in kept if each is not constraint]
            if not _is_possible(fewer):
                kept = fewer
        return tuple(kept)
    return ()


def contradiction_words(constraints: Iterable[Constraint]) -> str:
    """Return what is contradictory, like ``no machine can match both a == x and a == y``; "" for nothing."""
    words = [str(each) for each in contradiction(constraints)]
    if not words:
        return ""
    *others, last = words
    both = {0: "", 1: "both "}.get(len(others), "all of ")
    return f"no machine can match {both}{', '.join(others)}{' and ' * bool(others)}{last}"


def _is_possible(group: Sequence[Constraint]) -> bool:
    return any(
        all(matches(each, {} if value is None else {each.attribute: value}) for each in group)
        for value in _values_to_try(group)
    )


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
