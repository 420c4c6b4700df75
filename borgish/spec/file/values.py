"""The kinds of values that only job files have: amounts, priorities, signals, limits, constraints."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from borgish.bands import DEFAULT_BANDS, Bands
from borgish.resources import (
    NAMED_MAX,
    RAM_BYTES_MAX,
    RAM_BYTES_MIN,
    parse_bytes,
    parse_cpu_millis,
    parse_device_millis,
    parse_seconds,
)
from borgish.spec.constraints import EXAMPLES, EXPRESSION_CHARACTERS_MAX, parse_constraint
from borgish.spec.file.document import Node, Scalar
from borgish.spec.file.kinds import Field, Leaf, MapOf, Name, Place, Schema, Text, Whole, Wrong, pairs, scalar
from borgish.spec.file.mistakes import nearest, other_name, quote, standard_resource
from borgish.spec.job import Constraint, ExitCodes
from borgish.spec.shares import (
    SHARE_OR_NONE_PATTERN,
    SHARE_PATTERN,
    Rate,
    Share,
    parse_rate,
    parse_share,
)
from borgish.spec.substitute import OWN_PREFIX
from borgish.vocabulary import NAME_PATTERN, TASKS_PER_JOB_MAX

T = TypeVar("T")

SIGNALS = ("TERM", "INT", "QUIT", "HUP", "USR1", "USR2", "WINCH", "ABRT", "KILL")
"""Those that may ask a program to end."""
ENDING_SIGNALS = (
    *("TERM", "INT", "QUIT", "HUP", "USR1", "USR2", "ABRT", "KILL", "SEGV", "BUS", "FPE", "ILL", "TRAP"),
    *("SYS", "PIPE", "ALRM", "XCPU", "XFSZ"),
)
"""Those by which programs end."""
EXIT_CODE_MAX = 255


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
            hint = f"write it like {self.example}"
            with suppress(ValueError):
                self._parse(f"{text}s")  # a duration without its unit
                hint = f"write {text}s"
            raise Wrong(f"{quote(text)} {error}", hint) from None

    def schema(self) -> Schema:
        return {"type": list(self._types), "pattern": self._pattern}


_NUMBERED_PORT = re.compile(r"[0-9.:-]*[0-9]+[:-][0-9]+(/tcp|/udp)?|[0-9]+/(tcp|udp)")
"""A port as Docker and Compose write it: 80:8080, 127.0.0.1:80:8080, 53/udp."""


class Port(Name):
    """The name of a port. A number would be misread: borgish chooses the numbers."""

    def of(self, found: Scalar) -> str:
        text = found.text
        if text.isdigit() or (len(text) < 64 and _NUMBERED_PORT.fullmatch(text)):
            what = f"{text[:20]} is a number" if text.isdigit() else f"{quote(text)} has port numbers"
            hint = "name it, as ports: [http]; borgish chooses the number, which {{port.http}} stands for"
            raise Wrong(f"{what}; a port is declared by name", hint)
        return super().of(found)

    def schema(self) -> Schema:
        return {**super().schema(), "not": {"pattern": "^[0-9]+$"}}


class TaskShare(Leaf[Share]):
    """A number of tasks, or a percentage of them; at least ``low``, which is 0 or 1."""

    example = "1 or 10%"

    def __init__(self, low: int = 1) -> None:
        self._low = low

    def of(self, found: Scalar) -> Share:
        return _parsed(lambda text: parse_share(text, self._low), found.text, self.example)

    def schema(self) -> Schema:
        pattern = SHARE_PATTERN if self._low else SHARE_OR_NONE_PATTERN
        return {"type": ["integer", "string"], "pattern": pattern, "minimum": self._low}


class TaskRate(Leaf[Rate]):
    """A number of tasks in a time."""

    example = "5 per 10m"

    def of(self, found: Scalar) -> Rate:
        return _parsed(parse_rate, found.text, self.example)

    def schema(self) -> Schema:
        return {"type": "string", "pattern": r"^[0-9]+ per [0-9]+(\.[0-9]+)? ?(ms|s|m|h|d)$"}


def _parsed(parse: Callable[[str], T], text: str, example: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise Wrong(f"{quote(text)} {error}", f"write it like {example}") from None


_BYTES_PATTERN = r"^[0-9]+(\.[0-9]+)? ?([kMGT]?B|[KMGT]iB?)?$"
_CPU = Amount(parse_cpu_millis, "500m or 0.5", r"^[0-9]+(\.[0-9]+)?m?$", ("string", "number"))
_RAM = Amount(
    lambda text: parse_bytes(text, RAM_BYTES_MIN, RAM_BYTES_MAX),
    "256MiB",
    _BYTES_PATTERN,
    ("string", "integer"),
)
_DISK = Amount(parse_bytes, "1GiB", _BYTES_PATTERN, ("string", "integer"))
_DEVICE = Amount(parse_device_millis, "2, 0.5 or 500m", r"^[0-9]+(\.[0-9]+)?m?$", ("string", "number"))
_DEVICES = MapOf(Name(), _DEVICE, 8, "{gpu: 1}")


def duration(low: float, high: float, example: str) -> Amount[float]:
    """Return the kind of a duration, read as seconds; both bounds included."""
    pattern = r"^[0-9]+(\.[0-9]+)? ?(ms|s|m|h|d)$"
    return Amount(lambda text: parse_seconds(text, low, high), example, pattern, ("string",))


class Priority:
    """A band's name, which means its lowest priority, or a number inside a band."""

    def read(self, node: Node, place: Place, /) -> int:
        found, bands = scalar(node, "batch"), place.bands
        band = bands.named(found.text)
        if band is not None:
            return bands.floor(band)
        if found.text[:1].isalpha():
            close = nearest(found.text, bands.words)
            hint = f"did you mean {close}?" if close else f"or a number from 0 to {bands.highest}"
            raise Wrong(f"{quote(found.text)} is not one of the bands {', '.join(bands.words)}", hint)
        return Whole(0, bands.highest).of(found)

    def schema(self, bands: Bands = DEFAULT_BANDS) -> Schema:
        return {"anyOf": [{"enum": [str(word) for word in bands.words]}, Whole(0, bands.highest).schema()]}


class Signal(Leaf[str]):
    """A signal by name, with or without SIG in front."""

    example = "TERM"

    def __init__(self, names: tuple[str, ...] = SIGNALS) -> None:
        self._names = names

    def of(self, found: Scalar) -> str:
        text = found.text
        name = text.removeprefix("SIG")
        if name not in self._names:
            close = nearest(name.lower().removeprefix("sig"), [known.lower() for known in self._names])
            hint = f"did you mean {close.upper()}?" if close else ""
            raise Wrong(f"{quote(text)} is not one of the signals {', '.join(self._names)}", hint)
        return name

    def schema(self) -> Schema:
        return {"enum": [*self._names, *(f"SIG{name}" for name in self._names)]}


_EXIT_CODES = re.compile(r"([0-9]{1,3})(?:\s*-\s*([0-9]{1,3}))?")


class Codes(Leaf[ExitCodes]):
    """An exit code that is no success, or a range of them."""

    example = "42 or 64-78"

    def of(self, found: Scalar) -> ExitCodes:
        text = found.text
        parts = _EXIT_CODES.fullmatch(text)
        if parts is None:
            raise Wrong(f"{quote(text)} is not an exit code", f"write it like {self.example}")
        low, high = int(parts[1]), int(parts[2] or parts[1])
        if low == 0:
            hint = f"write codes from 1 to {EXIT_CODE_MAX}"
            raise Wrong("exit code 0 is success, and the task is finished then", hint)
        if high > EXIT_CODE_MAX:
            raise Wrong(f"{quote(text)} is outside 1 to {EXIT_CODE_MAX}", f"write it like {self.example}")
        if low > high:
            raise Wrong(f"{quote(text)} ends before it begins", f"write {high}-{low}")
        return ExitCodes(low, high)

    def schema(self) -> Schema:
        pattern = r"^[0-9]{1,3}( *- *[0-9]{1,3})?$"
        return {"type": ["integer", "string"], "pattern": pattern, "minimum": 1, "maximum": EXIT_CODE_MAX}


class Limits:
    """What a task may use, as a dict by attribute of ``Resources``: only what is given."""

    _fields = (
        Field("cpu", _CPU, "thousandths of a core, or cores: 500m, 0.5, 2", "cpu_millis"),
        Field("ram", _RAM, "memory: 256MiB", "ram_bytes"),
        Field("disk", _DISK, "disk: 1GiB", "disk_bytes"),
        Field("devices", _DEVICES, "accelerators by kind: whole ones, or a part of one: {gpu: 0.5}"),
    )
    _known = {field.name: field for field in _fields}
    _amount = Whole(0, NAMED_MAX)

    def read(self, node: Node, place: Place, /) -> dict[str, Any]:
        given: dict[str, Any] = {}
        named: dict[str, int] = {}
        for key, child in pairs(node, "{cpu: 500m, ram: 256MiB}", 64):
            spot = place.at(key.text)
            if field := self._known.get(key.text):
                given[field.attribute] = spot.read(field.kind, child)
            elif meant := other_name(key.text):
                hint = f"did you mean {meant}?"
                place.found.report(
                    key.line, key.column, f"{quote(key.text)} is not a resource", hint, spot.path
                )
            elif spot.read(Name(), key):
                meant = standard_resource(key.text)  # an amount with a unit shows that this was meant
                typo = Whole(0, NAMED_MAX, f"did you mean {meant}?", all_mistakes=True)
                named[key.text] = spot.read(typo if meant else self._amount, child) or 0
        return {**given, "named": named} if named else given

    def schema(self) -> Schema:
        return {
            "type": "object",
            "properties": {f.name: {"description": f.about, **f.kind.schema()} for f in self._fields},
            "propertyNames": {"pattern": f"^{NAME_PATTERN}$"},
            "additionalProperties": {"description": "a named resource of machines", **self._amount.schema()},
        }


class EnvName(Text):
    """The name of an environment variable that is not borgish's own."""

    def __init__(self) -> None:
        super().__init__(128, r"[A-Za-z_][A-Za-z0-9_.-]*", "letters, digits and _, like LOG_LEVEL")

    def of(self, found: Scalar) -> str:
        name = super().of(found)
        if name.startswith(OWN_PREFIX):
            raise Wrong(f"names that begin with {OWN_PREFIX} are set by borgish", "choose another name")
        return name

    def schema(self) -> Schema:
        return {**super().schema(), "not": {"pattern": f"^{OWN_PREFIX}"}}


class Index(Whole):
    """The index of a task, as a key: JSON writes it in quotes."""

    def __init__(self) -> None:
        super().__init__(0, TASKS_PER_JOB_MAX - 1)

    def of(self, found: Scalar) -> int:
        return super().of(msgspec.structs.replace(found, plain=True))

    def schema(self) -> Schema:
        return {"pattern": "^(0|[1-9][0-9]{0,3})$"}


class Tcp(Leaf[str]):
    """``true``, or the name of the port to connect to: the probe's (tcp, port)."""

    example = "tcp: true"

    def of(self, found: Scalar) -> str:
        """Return the port's name, or "" for ``true``."""
        if found.text == "true":
            return ""
        if found.text == "false":
            raise Wrong(
                "false; a probe that is not wanted is left out", "remove the line, or write tcp: true"
            )
        return Port().of(found)

    def schema(self) -> Schema:
        return {"anyOf": [{"const": True}, Port().schema()]}


class Condition(Leaf[Constraint]):
    """One constraint, as an expression."""

    example = "it in quotes, like 'rack in (r1, r2)'"

    def of(self, found: Scalar) -> Constraint:
        text = found.text
        try:
            return parse_constraint(text)
        except ValueError as error:
            hint = f"write it like {EXAMPLES}"
            if text.count("(") != text.count(")"):
                hint = "in a [list] commas divide; put the whole expression in quotes"
            raise Wrong(f"{quote(text)} {error}", hint) from None

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1, "maxLength": EXPRESSION_CHARACTERS_MAX}
