"""How the values of a job file are read: texts, numbers, amounts, choices, lists, mappings, records.

A kind reads one node of the tree into a value, or says what is wrong with it; it also describes itself
as JSON Schema, so that what is accepted and what is described come from one place. Which fields there
are is for ``fields`` to say.
"""

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.spec.document import Broken, Mapping, Node, Scalar, Sequence
from borgish.spec.mistakes import Found, quote
from borgish.spec.numbers import whole_number
from borgish.vocabulary import NAME_PATTERN

Schema = dict[str, Any]
T = TypeVar("T")
K = TypeVar("K")
T_co = TypeVar("T_co", covariant=True)
E = TypeVar("E", bound=StrEnum)


class Wrong(Exception):
    """What is wrong with one value, said so that it can follow the value's path. Empty: told already."""

    def __init__(self, message: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Place(msgspec.Struct, frozen=True):
    """Where in the document a value is, where mistakes are told, and which bands its cell has."""

    path: str
    found: Found
    bands: Bands = DEFAULT_BANDS

    def at(self, key: str) -> "Place":
        return Place(f"{self.path}.{key[:64]}" if self.path else key[:64], self.found, self.bands)

    def item(self, number: int) -> "Place":
        return Place(f"{self.path}[{number}]", self.found, self.bands)

    def tell(self, node: Node, message: str, hint: str = "") -> None:
        text = f"{self.path}: {message}" if self.path else message
        self.found.tell(node.line, node.column, text, hint, self.path)

    def read(self, kind: "Kind[T]", node: Node) -> T | None:
        """Return what a node says; when it is wrong, tell so and return None, which no value is."""
        try:
            return kind.read(node, self)
        except Wrong as wrong:
            if wrong.message:
                self.tell(node, wrong.message, wrong.hint)
            return None


class Kind(Protocol[T_co]):
    """One kind of value. ``read`` raises Wrong for the node itself and tells the place of what is in it."""

    def read(self, node: Node, place: Place, /) -> T_co: ...

    def schema(self) -> Schema: ...


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
    if node.is_null:
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


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that this one begins, or is most like, or ""."""
    words = list(known)
    word = word[:64].lower()
    begun = [known for known in words if len(word) > 2 and known.startswith(word)]
    return next(iter(begun or difflib.get_close_matches(word, words, 1, 0.6)), "")


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


class Name(Leaf[str]):
    """A name that users choose: a DNS label."""

    def of(self, found: Scalar) -> str:
        text = found.text
        if not _NAME.fullmatch(text):
            raise Wrong(f"{quote(text)} is not a name", _name_hint(text))
        return text

    def schema(self) -> Schema:
        return {"type": "string", "pattern": f"^{NAME_PATTERN}$"}


def _name_hint(text: str) -> str:
    rule = "a name has 1 to 63 of a-z, 0-9 and -, and begins and ends with a letter or digit"
    better = re.sub(r"[^a-z0-9]+", "-", text[:256].lower()).strip("-")[:63].strip("-")
    return f"{rule}, like {better}" if better else rule


_NUMBERED_PORT = re.compile(r"[0-9.:-]*[0-9]+[:-][0-9]+(/tcp|/udp)?|[0-9]+/(tcp|udp)")
"""A port as Docker and Compose write it: 80:8080, 127.0.0.1:80:8080, 53/udp."""


class Port(Name):
    """The name of a port. A number would be misread: borgish chooses the numbers."""

    def of(self, found: Scalar) -> str:
        text = found.text
        if text.isdigit() or (len(text) < 64 and _NUMBERED_PORT.fullmatch(text)):
            what = f"{text} is a number" if text.isdigit() else f"{quote(text)} has numbers"
            hint = "name it, as ports: [http]; borgish chooses the number, and {{port.http}} tells it"
            raise Wrong(f"{what}; a port is given a name", hint)
        return super().of(found)

    def schema(self) -> Schema:
        return {**super().schema(), "not": {"pattern": "^[0-9]+$"}}


class Whole(Leaf[int]):
    """A whole number without quotes, both bounds included. ``hint`` is for one above them, or for
    ``all_mistakes``.
    """

    def __init__(self, low: int, high: int, hint: str = "", *, all_mistakes: bool = False) -> None:
        self._low, self._high, self._hint, self._all_mistakes = low, high, hint, all_mistakes

    def of(self, found: Scalar) -> int:
        if not found.plain:
            hint = self._hint if self._all_mistakes else "remove the quotes"
            raise Wrong(f'"{quote(found.text)[1:-1]}" is text; a number is expected', hint)
        try:
            return whole_number(found.text, self._low, self._high)
        except ValueError as error:
            message, hint = error.args
            is_above = "outside" in message and not found.text.startswith("-") and found.text != "0"
            is_ours = self._all_mistakes or (self._hint and is_above)
            raise Wrong(message, self._hint if is_ours else hint) from None

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


class Amount(Leaf[T]):
    """A number with a unit, read by one of the functions of ``resources``."""

    def __init__(self, parse: Callable[[str], T], example: str, pattern: str, types: tuple[str, ...]) -> None:
        self._parse, self.example, self._pattern, self._types = parse, example, pattern, types

    def of(self, found: Scalar) -> T:
        text = found.text
        if re.match(r"0[0-9]", text):
            raise Wrong(f"{quote(text)} begins with a 0", f"write {text[:20].lstrip('0') or '0'}")
        try:
            return self._parse(text)
        except ValueError as error:
            raise Wrong(f"{quote(text)} {error}", self._hint(text)) from None

    def _hint(self, text: str) -> str:
        try:
            self._parse(f"{text}s")  # a duration without its unit
        except ValueError:
            return f"write it like {self.example}"
        return f"write {text}s"

    def schema(self) -> Schema:
        return {"type": list(self._types), "pattern": self._pattern}


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
            raise Wrong(f"{quote(text)} is not one of {', '.join(self._words)}", self._hint(text)) from None

    def _hint(self, text: str) -> str:
        close = nearest(text, self._words)
        return f"did you mean {close}?" if close else ""

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
        items: list[T] = []
        for number, child in enumerate(self._items(node)):
            spot = place.item(number)
            item = spot.read(self._kind, child)
            if item is None:
                continue
            if self._unique and item in items:
                spot.tell(child, f"{quote(str(item))} is given twice", "keep one of them")
            else:
                items.append(item)
        return tuple(items)

    def _items(self, node: Node) -> tuple[Node, ...]:
        if isinstance(node, Broken):
            raise Wrong
        if not isinstance(node, Sequence):
            raise Wrong(*self._not_a_list(node))
        if len(node.items) > self._high:
            raise Wrong(f"a list of {len(node.items)}; at most {self._high} are allowed")
        return node.items

    def _not_a_list(self, node: Node) -> tuple[str, str]:
        if isinstance(node, Scalar) and not node.is_null:
            example = self._one(node.text) if self._one else self._example
            return "a single text, where a list is expected", f"write {example}"
        what = "a mapping" if isinstance(node, Mapping) else "nothing"
        return f"{what}, where a list is expected", f"write {self._example}"

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
        what = "a list" if isinstance(node, Sequence) else "nothing" if node.is_null else "a single text"
        raise Wrong(f"{what}, where a mapping is expected", f"write {example}")
    if len(node.items) > high:
        raise Wrong(f"{len(node.items)} entries; at most {high} are allowed")
    return node.items
