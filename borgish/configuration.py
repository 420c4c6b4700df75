"""Reads a daemon's TOML file into a typed struct, and says in the file's own words what is wrong.

What values mean beyond their types and bounds is left to who reads it.
"""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import msgspec.inspect

from borgish.errors import UnsafeConfiguration

T = TypeVar("T")

# Numbers of a file. The bounds are msgspec's to hold: what is outside, NaN too, is refused by name.
Positive = Annotated[float, msgspec.Meta(gt=0, lt=1e9)]
Amount = Annotated[float, msgspec.Meta(ge=0, lt=1e9)]
Count = Annotated[int, msgspec.Meta(ge=1, lt=10**9)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Days = Annotated[float, msgspec.Meta(ge=0, lt=1e6)]
NumberKept = Annotated[int, msgspec.Meta(ge=0, lt=10**6)]

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
_OUTSIDE = re.compile(r"Expected `(?:int|float)` ([<>]=?) (.*)")
_BOUNDS = {">": "above", ">=": "at least", "<": "below", "<=": "at most"}
_NUMBERS = {"int", "float"}


def read(path: Path, kind: type[T], example: str, hint: str) -> T:
    """Return what a file holds as a struct. ``example`` is a file that shows every key; ``hint`` is the way
    out where there is no such file.

    Raises UnsafeConfiguration, with the file and the key, for the first thing that does not fit.
    """
    shows = f"{example} shows every key"
    found: dict[str, object] = {}
    try:
        found = tomllib.loads(path.read_text("utf-8"))
        return msgspec.convert(found, kind)
    except OSError as error:
        raise UnsafeConfiguration(f"{path}: cannot be read: {error.strerror}", hint) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UnsafeConfiguration(f"{path}: is not TOML: {error}", shows) from None
    except msgspec.ValidationError as error:
        known = tuple(_keys(msgspec.inspect.type_info(kind)))
        message, hint = _in_words(str(error), found, known)
        raise UnsafeConfiguration(f"{path}: {message}", " ".join(filter(None, (hint, shows)))) from None


def _in_words(error: str, found: dict[str, object], known: tuple[str, ...]) -> tuple[str, str]:
    """Return msgspec's sentence as people who have the file before them would say it, with a hint or ""."""
    what, _, where = error.rpartition(" - at `$") if " - at `$" in error else (error, "", "")
    table = re.sub(r"\[[^]]*\]", "", where.strip("`")).strip(".")
    if match := _UNKNOWN.fullmatch(what):
        return _unknown(_joined(table, match[1]), known)
    if match := _MISSING.fullmatch(what):
        return f"{_joined(table, match[1])}: is missing", ""
    if match := _WRONG_TYPE.fullmatch(what):
        return _wrong_type(table, match[1].split(" | "), match[2])
    if match := _OUTSIDE.fullmatch(what):
        bound = f"{_BOUNDS[match[1]]} {float(match[2]):g}"
        return f"{table}: must be {bound}, and is {_value(found, table)}", "Remove it for the default."
    if match := _NO_WORD.fullmatch(what):
        return f"{table}: {match[1]} is not one of the allowed words", ""
    return f"{table}: {what[:1].lower()}{what[1:]}", ""


def _unknown(key: str, known: tuple[str, ...]) -> tuple[str, str]:
    near = _nearest(key, known)
    above = ", above the first [table]" if "." in key and near and "." not in near else ""
    return f"{key}: there is no such key", f"Did you mean {near}{above}?" if near else ""


def _wrong_type(key: str, wanted: list[str], got: str) -> tuple[str, str]:
    words = " or ".join(_WORDS.get(name, name) for name in wanted if name != "null")
    quoted = got == "str" and _NUMBERS.union({"bool"}).intersection(wanted)
    hint = "Write it without quotes." if quoted else ""
    return f"{key}: must be {words}, and is {_WORDS.get(got, got)}", hint


def _value(found: object, key: str) -> object:
    """Return what stands in the file at a key with its tables."""
    for name in key.split("."):
        found = found[name] if isinstance(found, Mapping) else found
    return found


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


def without_table(path: Path, table: str) -> str:
    """Return the text of a file without a table, and with its comments. Raises UnsafeConfiguration where it
    is written in a way that cannot be taken out line by line."""
    text, kept, inside = path.read_text("utf-8"), list[str](), False
    for line in text.splitlines(keepends=True):
        words = line.strip()
        if words.startswith("["):
            inside = words.partition("#")[0].strip() == f"[{table}]"
        if not inside or not words or words.startswith("#"):
            kept.append(line)
    before = tomllib.loads(text)
    before.pop(table, None)
    changed = "".join(kept)
    try:
        is_same = tomllib.loads(changed) == before
    except tomllib.TOMLDecodeError:
        is_same = False
    if not is_same:
        raise UnsafeConfiguration(
            f"{path}: [{table}] is not by itself there", "Remove it, and run this again"
        )
    return changed
