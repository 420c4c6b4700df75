"""How the values of a job file are read: texts, numbers, choices, lists, mappings, records.

A kind reads one node of the tree into a value, or says what is wrong with it; it also describes itself
as JSON Schema, so that what is accepted and what is described come from one place. ``values`` has the kinds
that only job files have; which fields there are is for ``fields`` to say.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.spec.file.document import Broken, Mapping, Node, Scalar, Sequence, child_of
from borgish.spec.file.mistakes import DIGITS_MAX, Mistakes, meant_number, nearest, quote, suggest_field
from borgish.vocabulary import NAME_PATTERN

Schema = dict[str, Any]
T = TypeVar("T")
K = TypeVar("K")
T_co = TypeVar("T_co", covariant=True)
E = TypeVar("E", bound=StrEnum)


class Wrong(Exception):
    """What is wrong with one value, worded to follow the value's path. Empty: reported already."""

    def __init__(self, message: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Place(msgspec.Struct, frozen=True):
    """Where in the document a value is, where mistakes are reported, and which bands its cell has."""

    path: str
    found: Mistakes
    bands: Bands = DEFAULT_BANDS

    def at(self, key: str) -> "Place":
        return Place(f"{self.path}.{key[:64]}" if self.path else key[:64], self.found, self.bands)

    def item(self, number: int) -> "Place":
        return Place(f"{self.path}[{number}]", self.found, self.bands)

    def report(self, node: Node, message: str, hint: str = "") -> None:
        text = f"{self.path}: {message}" if self.path else message
        self.found.report(node.line, node.column, text, hint, self.path)

    def read(self, kind: "Kind[T]", node: Node) -> T | None:
        """Return what a node says; when it is wrong, report it and return None, which no value is."""
        try:
            return kind.read(node, self)
        except Wrong as wrong:
            if wrong.message:
                self.report(node, wrong.message, wrong.hint)
            return None


class Kind(Protocol[T_co]):
    """One kind of value. ``read`` raises Wrong for the node itself, and reports what is wrong inside it."""

    def read(self, node: Node, place: Place, /) -> T_co: ...

    def schema(self) -> Schema: ...


def is_null(scalar: Scalar) -> bool:
    """Return whether it is one of YAML's ways to write nothing."""
    return scalar.plain and scalar.text in ("", "~", "null")


def text_at(node: Node | None, *path: str) -> str:
    """Return the text that mappings in mappings have under these keys; "" for none."""
    found = child_of(node, *path)
    return found.text if isinstance(found, Scalar) and not is_null(found) else ""


def scalar(node: Node, example: str = "") -> Scalar:
    """Return the node as a text that is there; raise Wrong when it is something else."""
    hint = f"write {example}" if example else ""
    if isinstance(node, Broken):
        raise Wrong
    if isinstance(node, Sequence):
        raise Wrong("a list, where a single value is expected", hint)
    if isinstance(node, Mapping):
        raise Wrong(
            "a mapping, where a single value is expected", hint or "text that holds ': ' needs quotes"
        )
    if is_null(node):
        raise Wrong("there is no value", 'give one, or remove the line; an empty text is ""')
    return node


class Leaf(ABC, Generic[T]):
    """A kind whose values are a single text; ``example`` is how to write one."""

    example = ""

    def read(self, node: Node, _place: Place, /) -> T:
        return self.of(scalar(node, self.example))

    @abstractmethod
    def of(self, found: Scalar) -> T:
        """Return what the text means. Raises Wrong."""


class Text(Leaf[str]):
    """A text as it is written; a number or a truth value without quotes is taken as its text.

    ``lines``: whether it may hold line ends, tabs and other control characters.
    """

    def __init__(
        self,
        bytes_max: int,
        pattern: str = ".*",
        shape: str = "",
        *,
        lines: bool = False,
        empty: bool = False,
    ) -> None:
        self._bytes_max = bytes_max
        self._pattern = re.compile(pattern, re.DOTALL)
        self._shape = shape
        self._lines = lines
        self._empty = empty

    def of(self, found: Scalar) -> str:
        text = found.text
        if not text and not self._empty:
            raise Wrong("an empty text", self._shape and f"write {self._shape}")
        if (size := len(text.encode())) > self._bytes_max:
            raise Wrong(f"a text of {size} bytes; at most {self._bytes_max} are allowed")
        if not self._lines and any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text):
            raise Wrong(f"{quote(text)} holds a control character", "remove it")
        if not self._pattern.fullmatch(text):
            raise Wrong(f"{quote(text)} cannot be used here", self._shape and f"write {self._shape}")
        return text

    def schema(self) -> Schema:
        schema: Schema = {"type": ["string", "number", "boolean"], "maxLength": self._bytes_max}
        if not self._empty:
            schema["minLength"] = 1
        if self._pattern.pattern != ".*":
            schema = {**schema, "type": "string", "pattern": f"^{self._pattern.pattern}$"}
        return schema


_NAME = re.compile(NAME_PATTERN)


def name_of(text: str) -> str:
    """Return a name that users choose, a DNS label. Raises Wrong for what is none."""
    if not _NAME.fullmatch(text):
        hint = "a name has 1 to 63 of a-z, 0-9 and -, and begins and ends with a letter or digit"
        better = re.sub(r"[^a-z0-9]+", "-", text[:256].lower()).strip("-")[:63].strip("-")
        raise Wrong(f"{quote(text)} is not a name", f"{hint}, like {better}" if better else hint)
    return text


class Name(Leaf[str]):
    """A name that users choose: a DNS label."""

    def of(self, found: Scalar) -> str:
        return name_of(found.text)

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{NAME_PATTERN}$"}


_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")


class Whole(Leaf[int]):
    """A whole number without quotes, both bounds included. ``hint`` is for one above them, or for
    ``all_mistakes``.

    It is its digits and nothing else. YAML's own number rules are left out on purpose: ``012`` is eight plus
    two there, ``1_000`` a thousand, ``1e3`` a float.
    """

    def __init__(self, low: int, high: int, hint: str = "", *, all_mistakes: bool = False) -> None:
        self._low, self._high, self._hint, self._all_mistakes = low, high, hint, all_mistakes

    def of(self, found: Scalar) -> int:
        text, low, high = found.text, self._low, self._high
        bounds = f"a whole number from {low} to {high}"
        if not found.plain:
            raise self._wrong(f'"{quote(text)[1:-1]}" is text; a number is expected', "remove the quotes")
        if not _WHOLE.fullmatch(text):
            meant = meant_number(text)
            hint = f"write {meant}" if meant and low <= int(meant) <= high else f"write {bounds}"
            raise self._wrong(f"{quote(text)} is not a whole number", hint)
        if len(text) <= DIGITS_MAX and low <= int(text) <= high:
            return int(text)
        what = text if len(text) <= DIGITS_MAX else f"a number of {len(text.lstrip('-'))} digits"
        hint = self._hint if self._hint and text != "0" and not text.startswith("-") else f"write {bounds}"
        raise self._wrong(f"{what} is outside {low} to {high}", hint)

    def _wrong(self, message: str, hint: str) -> Wrong:
        return Wrong(message, self._hint if self._all_mistakes else hint)

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self._low, "maximum": self._high}


class Flag(Leaf[bool]):
    """Yes or no."""

    example = "true"

    def of(self, found: Scalar) -> bool:
        if found.text not in ("true", "false") or not found.plain:
            raise Wrong(f"{quote(found.text)} is neither true nor false", "write true, without quotes")
        return found.text == "true"

    def schema(self) -> Schema:
        return {"type": "boolean"}


class Word(Leaf[str]):
    """One word and no other."""

    def __init__(self, word: str) -> None:
        self.example = word

    def of(self, found: Scalar) -> str:
        if found.text != self.example:
            raise Wrong(f"{quote(found.text)} is not {self.example}", f"write {self.example}")
        return found.text

    def schema(self) -> Schema:
        return {"const": self.example}


class Choice(Leaf[E]):
    """One word of a closed set."""

    def __init__(self, words: type[E]) -> None:
        self._words = words
        self.example = str(next(iter(words)))

    def of(self, found: Scalar) -> E:
        text = found.text
        try:
            return self._words(text)
        except ValueError:
            close = nearest(text, self._words)
            hint = f"did you mean {close}?" if close else ""
            raise Wrong(f"{quote(text)} is not one of {', '.join(self._words)}", hint) from None

    def schema(self) -> Schema:
        return {"enum": [str(word) for word in self._words]}


class ListOf(Generic[T]):
    """A list of values of one kind; ``example`` is how to write one."""

    def __init__(
        self,
        kind: Kind[T],
        high: int,
        example: str,
        *,
        unique: bool = False,
        one: Callable[[str], str] | None = None,
    ) -> None:
        self._kind, self._high, self._example, self._unique, self._one = kind, high, example, unique, one

    def read(self, node: Node, place: Place, /) -> tuple[T, ...]:
        if isinstance(node, Broken):
            raise Wrong
        if not isinstance(node, Sequence):
            raise self._not_a_list(node)
        if len(node.items) > self._high:
            raise Wrong(f"a list of {len(node.items)}; at most {self._high} are allowed")
        items: list[T] = []
        for number, child in enumerate(node.items):
            spot = place.item(number)
            item = spot.read(self._kind, child)
            if item is None:
                continue
            if self._unique and item in items:
                spot.report(child, f"{quote(str(item))} is given twice", "keep one of them")
            else:
                items.append(item)
        return tuple(items)

    def _not_a_list(self, node: Node) -> Wrong:
        if isinstance(node, Scalar) and not is_null(node):
            example = self._one(node.text) if self._one else self._example
            return Wrong("a single text, where a list is expected", f"write {example}")
        what = "a mapping" if isinstance(node, Mapping) else "nothing"
        return Wrong(f"{what}, where a list is expected", f"write {self._example}")

    def schema(self) -> Schema:
        schema: Schema = {"type": "array", "items": self._kind.schema(), "maxItems": self._high}
        return {**schema, "uniqueItems": True} if self._unique else schema


class MapOf(Generic[K, T]):
    """A mapping whose keys users choose."""

    def __init__(self, key: Kind[K], kind: Kind[T], high: int, example: str) -> None:
        self._key, self._kind, self._high, self._example = key, kind, high, example

    def read(self, node: Node, place: Place, /) -> dict[K, T]:
        values: dict[K, T] = {}
        for key, child in pairs(node, self._example, self._high):
            spot = place.at(key.text)
            name, value = spot.read(self._key, key), spot.read(self._kind, child)
            if name is not None and value is not None:
                values[name] = value
        return values

    def schema(self) -> Schema:
        return {
            "type": "object",
            "propertyNames": self._key.schema(),
            "additionalProperties": self._kind.schema(),
            "maxProperties": self._high,
        }


def pairs(node: Node, example: str, high: int) -> tuple[tuple[Scalar, Node], ...]:
    """Return the keys and values of a mapping; raise Wrong when the node is something else."""
    if isinstance(node, Broken):
        raise Wrong
    if not isinstance(node, Mapping):
        what = "a list" if isinstance(node, Sequence) else "nothing" if is_null(node) else "a single text"
        raise Wrong(f"{what}, where a mapping is expected", f"write {example}")
    if len(node.items) > high:
        raise Wrong(f"{len(node.items)} entries; at most {high} are allowed")
    return node.items


_FIELDS_MAX = 1000  # more than any record knows; so many unknown ones need not be reported one by one


class Field(msgspec.Struct, frozen=True):
    """One field of a record. ``into`` is the attribute of the struct that it fills, when named otherwise."""

    name: str
    kind: Kind[Any]
    about: str
    into: str = ""
    required: bool = False

    @property
    def attribute(self) -> str:
        return self.into or self.name


class Values(msgspec.Struct):
    """What a record was found to hold: right values by attribute, and nodes by field name."""

    node: Mapping
    place: Place
    given: dict[str, Any]
    nodes: dict[str, Node]

    def report(self, field: str, message: str, hint: str = "") -> None:
        """Report a mistake at a field's value, or at the whole record when it is not there."""
        if field in self.nodes:
            self.place.at(field).report(self.nodes[field], message, hint)
        else:
            self.place.report(self.node, message, hint)


class Record(Generic[T]):
    """A mapping with known fields, made into a value by ``make``, which may report what does not go together.

    ``make`` gets the values that are right, of which some may be missing where mistakes were reported.
    ``one`` returns the mapping that a single text, written in its place, most likely stands for.
    """

    def __init__(
        self,
        what: str,
        fields: tuple[Field, ...],
        example: str,
        make: Callable[[Values], T],
        *,
        one: Callable[[str], str] | None = None,
    ) -> None:
        self._what, self._fields, self._example, self._make, self._one = what, fields, example, make, one
        self._by_name = {field.name: field for field in fields}

    def read(self, node: Node, place: Place, /) -> T:
        example = self._one(node.text) if self._one and isinstance(node, Scalar) else self._example
        entries = pairs(node, example, _FIELDS_MAX)
        if not isinstance(node, Mapping):  # pairs() has raised
            raise Wrong
        values = Values(node, place, {}, {})
        for key, child in entries:
            field = self._by_name.get(key.text)
            if field is None:
                message = f"{quote(key.text)} is not a field of {self._what}"
                hint = suggest_field(key.text, self._by_name)
                place.found.report(key.line, key.column, message, hint, place.at(key.text).path)
                continue
            values.nodes[field.name] = child
            value = place.at(field.name).read(field.kind, child)
            if value is not None:
                values.given[field.attribute] = value
        for field in self._fields:
            if field.required and field.name not in values.nodes:
                place.report(
                    node, f"{field.name} is missing from {self._what}", f"add {field.name}: {field.about}"
                )
        return self._make(values)

    def schema(self) -> Schema:
        schema: Schema = {
            "type": "object",
            "properties": {f.name: {"description": f.about, **f.kind.schema()} for f in self._fields},
            "additionalProperties": False,
        }
        required = [field.name for field in self._fields if field.required]
        return {**schema, "required": required} if required else schema
