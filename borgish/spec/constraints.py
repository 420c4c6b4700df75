"""Conditions on machines as users write them: ``rack in (r1, r2)``, ``arch == amd64``, ``present(gpu)``."""

import re
from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt

from borgish.spec.job import Constraint

EXAMPLES = "arch == amd64, mem >= 5, rack in (r1, r2), present(gpu)"
EXPRESSION_CHARACTERS_MAX = 1024

_ATTRIBUTE = r"(?!(?:not|in|present)(?![A-Za-z0-9_./-]))[A-Za-z_][A-Za-z0-9_./-]{0,62}"
_VALUE = r"[^\s,()<>=!'\"]{1,253}"
_COMPARISON = re.compile(rf"({_ATTRIBUTE})\s*(==|!=|<=|>=|<|>)\s*({_VALUE})")
_MEMBERSHIP = re.compile(rf"({_ATTRIBUTE})\s+(in|not\s+in)\s*\(([^()]*)\)")
_PRESENCE = re.compile(rf"(present|not\s+present)\s*\(\s*({_ATTRIBUTE})\s*\)")
_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?", re.ASCII)
ORDERS: dict[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}

OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "present", "not present")


def parse_constraint(text: str) -> Constraint:
    """Read one expression. Raises ValueError with the reason."""
    text = text.strip()
    if len(text) > EXPRESSION_CHARACTERS_MAX:
        raise ValueError(f"is longer than {EXPRESSION_CHARACTERS_MAX} characters")
    if match := _COMPARISON.fullmatch(text):
        return _comparison(match[1], match[2], match[3])
    if match := _MEMBERSHIP.fullmatch(text):
        return Constraint(match[1], " ".join(match[2].split()), _values(match[3]))
    if match := _PRESENCE.fullmatch(text):
        return Constraint(match[2], " ".join(match[1].split()))
    raise ValueError(_reason(text))


def _comparison(attribute: str, op: str, value: str) -> Constraint:
    if op in ORDERS and not _NUMBER.fullmatch(value):
        raise ValueError(f"compares with '{value}', which is not a number")
    return Constraint(attribute, op, (value,))


def _values(text: str) -> tuple[str, ...]:
    values = tuple(value.strip() for value in text.split(","))
    for value in values:
        if not re.fullmatch(_VALUE, value):
            raise ValueError(f"has '{value}' in its list, which is not a plain word")
    return values


def _reason(text: str) -> str:
    if text.count("(") != text.count(")"):
        return "has a '(' without a ')'"
    if re.fullmatch(rf"{_ATTRIBUTE}\s*=\s*{_VALUE}", text):
        return "has '=' where '==' is meant"
    return "is not a condition"


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
    return _in_order(actual, op, constraint.values[0])


def _in_order(actual: str, op: str, wanted: str) -> bool:
    """Compare numbers; what is not a number is in no order."""
    if not _NUMBER.fullmatch(actual):
        return False
    return ORDERS[op](float(actual), float(wanted))
