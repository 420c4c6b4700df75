"""Turns what a daemon's TOML file holds into a typed struct, and says in the file's own words what is wrong.

Which file it is, and what its values mean beyond their types, is left to who reads it.
"""

import difflib
import re
from collections.abc import Iterator
from typing import TypeVar

import msgspec
import msgspec.inspect

T = TypeVar("T")

_WORDS = {
    "str": "a text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list in [ ]",
    "object": "a table",
}
_WRONG_TYPE = re.compile(r"Expected `(.*)`, got `(.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_NO_WORD = re.compile(r"Invalid enum value (.*)", re.DOTALL)
_NUMBERS = {"int", "float"}


class Misread(ValueError):
    """One thing that cannot be: ``message`` begins with the key, ``hint`` may be empty."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def typed(found: dict[str, object], kind: type[T]) -> T:
    """Return what a file holds as a struct. Raises Misread for the first thing that does not fit."""
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise _misread(str(error), tuple(_keys(msgspec.inspect.type_info(kind)))) from None


def _misread(said: str, known: tuple[str, ...]) -> Misread:
    """Return msgspec's sentence as people who have the file before them would say it."""
    what, _, where = said.rpartition(" - at `$") if " - at `$" in said else (said, "", "")
    table = re.sub(r"\[[^]]*\]", "", where.strip("`")).strip(".")
    if match := _UNKNOWN.fullmatch(what):
        return _unknown(_joined(table, match[1]), known)
    if match := _MISSING.fullmatch(what):
        return Misread(f"{_joined(table, match[1])}: is missing")
    if match := _WRONG_TYPE.fullmatch(what):
        return _wrong_type(table, match[1].split(" | "), match[2])
    if match := _NO_WORD.fullmatch(what):
        return Misread(f"{table}: {match[1]} is not one of the words that may stand here")
    return Misread(f"{table}: {what[:1].lower()}{what[1:]}")


def _unknown(key: str, known: tuple[str, ...]) -> Misread:
    near = _nearest(key, known)
    above = ", above the first [table]" if "." in key and near and "." not in near else ""
    return Misread(f"{key}: there is no such key", f"Did you mean {near}{above}?" if near else "")


def _wrong_type(key: str, wanted: list[str], got: str) -> Misread:
    words = " or ".join(_WORDS.get(name, name) for name in wanted if name != "null")
    quoted = got == "str" and _NUMBERS.union({"bool"}).intersection(wanted)
    return Misread(
        f"{key}: must be {words}, and is {_WORDS.get(got, got)}", "Write it without quotes." if quoted else ""
    )


def _nearest(key: str, known: tuple[str, ...]) -> str:
    """Return the known key of the same table that this one begins, or is most like; else one of the same
    name in another table; else ""."""
    table, _, word = key.rpartition(".")
    beside = [other for other in known if other.rpartition(".")[0] == table]
    begun = [other for other in beside if len(word) > 2 and other.startswith(key.lower())]
    words = [other.rpartition(".")[2] for other in beside]
    like = [_joined(table, near) for near in difflib.get_close_matches(word, words, 1, 0.6)]
    elsewhere = [other for other in known if other.rpartition(".")[2] == word]
    return next(iter([*begun, *like, *elsewhere]), "")


def _keys(info: msgspec.inspect.Type, table: str = "") -> Iterator[str]:
    """Return every key that a struct has, with those of its tables."""
    if isinstance(info, msgspec.inspect.UnionType):
        for one in info.types:
            yield from _keys(one, table)
    elif isinstance(info, msgspec.inspect.StructType):
        for field in info.fields:
            yield _joined(table, field.encode_name)
            yield from _keys(field.type, _joined(table, field.encode_name))


def _joined(table: str, key: str) -> str:
    return f"{table}.{key}" if table else key
