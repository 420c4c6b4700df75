"""The forms in which borgctl shows what it was asked for: ``-o table|wide|json|yaml|name``.

json and yaml are the shapes of ``wire.api``, complete: an array of items for a list, the object for
one. They are for programs, so nothing else is written to stdout beside them.
"""

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, TypeVar

import msgspec
import typer

from borgish.cli.screen import data
from borgish.cli.table import Column, draw
from borgish.text import safe

T = TypeVar("T")


class Form(StrEnum):
    """How to show it."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


FormOption = Annotated[Form, typer.Option("--output", "-o", help="How to show it.")]

# JSON escapes the control characters below 0x20 only; these too must not reach a terminal.
_HIDDEN = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")


def show_list(
    items: Sequence[T], columns: Sequence[Column[T]], form: Form, name: Callable[[T], str], none: str
) -> None:
    """Show a list. ``none`` is what to say, to people, when it is empty."""
    if form in (Form.JSON, Form.YAML):
        data(as_json(items) if form is Form.JSON else as_yaml(items))
    elif form is Form.NAME:
        _names([name(item) for item in items])
    elif items:
        data(draw(items, [c for c in columns if form is Form.WIDE or not c.wide]))
    else:
        from borgish.cli.screen import say

        say(none)


def show_one(item: T, form: Form, name: str, people: Callable[[T, bool], str]) -> None:
    """Show one object; ``people(item, wide)`` returns it as safe text for the table forms."""
    if form in (Form.JSON, Form.YAML):
        data(as_json(item) if form is Form.JSON else as_yaml(item))
    elif form is Form.NAME:
        _names([name])
    else:
        data(people(item, form is Form.WIDE))


def as_json(value: object) -> str:
    """Return indented JSON in which every invisible character is escaped."""
    return _visible(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def as_json_line(value: object) -> str:
    """Return the same on one line."""
    return _visible(msgspec.json.encode(value).decode())


def _visible(text: str) -> str:
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def as_yaml(value: object) -> str:
    """Return YAML in plain ASCII, so that no character in it can act on a terminal."""
    import yaml

    plain = msgspec.to_builtins(value, str_keys=True)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(plain, Dumper=dumper, sort_keys=False, default_flow_style=False, width=100))


def fields(pairs: Sequence[tuple[str, str]]) -> str:
    """Return labelled lines, one a pair; empty values are left out."""
    shown = [(label, safe(value)) for label, value in pairs if value]
    width = max((len(label) for label, _ in shown), default=0)
    return "".join(f"{label:<{width}}  {value}\n" for label, value in shown)


def _names(names: Sequence[str]) -> None:
    if names:
        data("\n".join(safe(name) for name in names))
