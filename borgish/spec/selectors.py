"""Selectors as people write them in one line: ``app=web, tier!=db, gpu`` (Kubernetes' label selectors). Each
condition is one of ``constraints``, so they mean the same about labels of jobs as about machines.
"""

import re
from collections.abc import Iterable, Mapping

from borgish.errors import Invalid
from borgish.spec.constraints import ATTRIBUTE_PATTERN, VALUE_PATTERN, matches, parse_constraint
from borgish.spec.job import Constraint

SELECTOR_CHARACTERS_MAX = 1024
_ONE = rf"(!?{ATTRIBUTE_PATTERN}|{ATTRIBUTE_PATTERN}(=|==|!=)[A-Za-z0-9][A-Za-z0-9_./-]{{0,62}})"
SELECTOR_PATTERN = rf"{_ONE}(,{_ONE}){{0,4}}"
"""What is documented of selectors: each of these is one, though more is understood."""
SELECTOR_HINT = "Write it like app=web,tier!=db,gpu or rack in (r1, r2): conditions with commas between them"

_COMMA = re.compile(r",(?![^()]*\))")  # between conditions, and not between the values of one
_EQUAL = re.compile(rf"({ATTRIBUTE_PATTERN})\s*=\s*({VALUE_PATTERN})")
_WORD = re.compile(rf"(!?)\s*({ATTRIBUTE_PATTERN})")


def parse_selector(text: str) -> tuple[Constraint, ...]:
    """Read conditions, all of which are to be met; none in an empty text. Raises ValueError with the one that
    is none, and the reason."""
    if len(text) > SELECTOR_CHARACTERS_MAX:
        raise ValueError(f"it is longer than {SELECTOR_CHARACTERS_MAX} characters")
    return tuple(_condition(part.strip()) for part in _COMMA.split(text)) if text.strip() else ()


def read_label(text: str) -> tuple[Constraint, ...]:
    """Return the conditions of a ``label`` that somebody asks for. Raises Invalid."""
    try:
        return parse_selector(text)
    except ValueError as error:
        raise Invalid(f"label: {error}", SELECTOR_HINT) from None


def selects(conditions: Iterable[Constraint], labels: Mapping[str, str]) -> bool:
    """Return whether labels, or the attributes of a machine, meet all of the conditions."""
    return all(matches(condition, labels) for condition in conditions)


def _condition(text: str) -> Constraint:
    if equal := _EQUAL.fullmatch(text):
        return Constraint(equal[1], "==", (equal[2],))
    if word := _WORD.fullmatch(text):
        return Constraint(word[2], "not present" if word[1] else "present")
    try:
        return parse_constraint(text)
    except ValueError as error:
        raise ValueError(f"'{text}' {error}") from None
