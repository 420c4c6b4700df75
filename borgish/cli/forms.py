"""Values of what is shown, by the names that the API gives them: for ``-o csv`` and ``-o template=...``.

A name may be dotted, ``resources.cpu_millis``. What a mapping does not have, as ``ports.http`` of a task
without that port, is empty, and so is what is in something that is null.
"""

import csv
import io
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import msgspec

from borgish.cli.render import as_json_line
from borgish.errors import Invalid
from borgish.text import safe, safe_lines


class Template:
    """A text with fields in braces, as Python's ``str.format`` has them: ``{name:<20} {usage.ram_bytes}``."""

    def __init__(self, text: str) -> None:
        """Raises Invalid for what is no template."""
        try:
            if not text:
                raise ValueError("it is empty")
            self._parts = list(string.Formatter().parse(text))
            if any(field == "" or conversion for _, field, _, conversion in self._parts):
                raise ValueError("each field has a name, and no conversion")
        except ValueError as error:
            raise Invalid(
                f"template: {safe(str(error))}", "Write it like '{name} {resources.cpu_millis}'; {{ is a {"
            ) from None

    def filled(self, item: object) -> str:
        """Return the text for one item, safe to be shown. Raises Invalid for a field that there is not."""
        shown = []
        for literal, field, form, _ in self._parts:
            shown.append(safe_lines(literal))
            if field is None:
                continue
            value = value_of(item, field)
            try:
                shown.append(
                    safe(format(value if isinstance(value, int | float) else text_of(value), form or ""))
                )
            except ValueError as error:
                raise Invalid(
                    f"template: {field}: {safe(str(error))}", "Write a width as in {name:<20}"
                ) from None
        return "".join(shown)


def value_of(item: object, field: str) -> object:
    """Return what a field of an item is. Raises Invalid, naming those near it."""
    found: Any = item
    for name in field.split("."):
        if isinstance(found, msgspec.Struct):
            if name not in found.__struct_fields__:
                raise Invalid(f"there is no field '{safe(field[:63])}'", _near(field, type(item)))
            found = getattr(found, name)
        elif isinstance(found, Mapping):
            found = next((value for key, value in found.items() if str(key) == name), None)
        elif isinstance(found, Sequence) and not isinstance(found, str) and name.isdecimal():
            found = found[int(name)] if int(name) < len(found) else None
        elif found is None:
            return None
        else:
            raise Invalid(f"there is no field '{safe(field[:63])}'", _near(field, type(item)))
    return found


def text_of(value: object) -> str:
    """Return a value on one line: nothing for null, words as they are, and JSON for all that is larger."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return as_json_line(value)


def fields_of(kind: type) -> tuple[str, ...]:
    """Return the names of all fields of what is shown, those inside of others dotted."""
    return tuple(_fields(kind))


def _fields(kind: type, within: tuple[type, ...] = ()) -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        several = get_args(field.type)
        kinds = several if type(None) in several else (field.type,)
        inside: Any = next(filter(_is_struct, kinds), None)
        if inside is not None and inside not in within:
            yield from (f"{field.encode_name}.{name}" for name in _fields(inside, (*within, inside)))
        else:
            yield field.encode_name


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _near(field: str, kind: type) -> str:
    from difflib import get_close_matches

    known = fields_of(kind) if _is_struct(kind) else ()
    known = tuple(dict.fromkeys((*(name.partition(".")[0] for name in known), *known)))
    near = [name for name in known if name.startswith(field) or field in name.split(".")]
    near += [name for name in get_close_matches(field, known, 3, 0.5) if name not in near]
    if near:
        return f"Did you mean {', '.join(near[:3])}?"
    return f"There are {', '.join(name for name in known if '.' not in name)}"


class CsvLines:
    """Items as lines of CSV below a header (RFC 4180, with plain line ends); with these fields only, where
    any are named."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names, self._is_begun = tuple(names), False

    def rows(self, items: Sequence[object]) -> str:
        """Return some more of the lines. Raises Invalid for a field that there is not."""
        lines = []
        if not self._is_begun:
            self._names, self._is_begun = self._names or fields_of(type(items[0])), True
            lines.append(self._names)
        lines += [tuple(safe(text_of(value_of(item, name))) for name in self._names) for item in items]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(lines)
        return text.getvalue()
