"""Whole numbers as people write them, and what they may have meant by the rest.

YAML's own number rules are left out on purpose: ``012`` is eight plus two there, ``1_000`` a thousand,
``1e3`` a float. Here a whole number is its digits and nothing else.
"""

import re

from borgish.spec.mistakes import quote

_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_DIGITS_MAX = 18  # longer ones are outside every bound, and never converted
_LEADING_ZEROS = re.compile(r"0+([0-9]{1,18})")
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(?:[_,'][0-9]{1,6}){1,5}")
_SIGNED_OR_POINT = re.compile(r"\+?([0-9]{1,18})(?:\.0*)?")
_POWER = re.compile(r"([1-9])(?:\.0*)?[eE]\+?([0-9])")
_OTHER_BASE = re.compile(r"0[xXoObB][0-9a-fA-F]{1,12}")


def whole_number(text: str, low: int, high: int) -> int:
    """Read a whole number from low to high. Raises ValueError(what is wrong, hint)."""
    bounds = f"a whole number from {low} to {high}"
    if not _WHOLE.fullmatch(text):
        meant = _meant(text)
        hint = f"write {meant}" if meant and low <= int(meant) <= high else f"write {bounds}"
        raise ValueError(f"{quote(text)} is not a whole number", hint)
    if len(text) > _DIGITS_MAX:
        raise ValueError(
            f"a number of {len(text.lstrip('-'))} digits is outside {low} to {high}", f"write {bounds}"
        )
    if not low <= int(text) <= high:
        raise ValueError(f"{text} is outside {low} to {high}", f"write {bounds}")
    return int(text)


def _meant(text: str) -> str:
    """Return the digits that the text seems to stand for, or ""."""
    if match := _LEADING_ZEROS.fullmatch(text) or _SIGNED_OR_POINT.fullmatch(text):
        return match[1].lstrip("0") or "0"
    if _GROUPED.fullmatch(text):
        return re.sub("[^0-9]", "", text)[:_DIGITS_MAX]
    if match := _POWER.fullmatch(text):
        return str(int(match[1]) * 10 ** int(match[2]))
    if _OTHER_BASE.fullmatch(text):
        return _from_base(text)
    return ""


def _from_base(text: str) -> str:
    try:
        return str(int(text, 0))
    except ValueError:  # 0b12
        return ""
