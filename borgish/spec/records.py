"""Mappings with known fields: which there are, which must be there, and what a wrong one was meant to be."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from borgish.spec.document import Mapping, Node, Scalar
from borgish.spec.kinds import Kind, Place, Schema, Wrong, nearest, pairs
from borgish.spec.mistakes import quote

T = TypeVar("T")
_FIELDS_MAX = 1000  # more than any record knows; so many unknown ones need not be told one by one

# What other systems, and people, call these things.
_OTHER_NAMES = {
    "args": "run",
    "argv": "run",
    "cmd": "run",
    "command": "run",
    "entrypoint": "run",
    "exec": "run",
    "replicas": "tasks",
    "count": "tasks",
    "instances": "tasks",
    "environment": "env",
    "memory": "ram",
    "mem": "ram",
    "cpus": "cpu",
    "cores": "cpu",
    "storage": "disk",
    "healthcheck": "health",
    "check": "health",
    "probe": "health",
    "working_dir": "workdir",
    "cwd": "workdir",
    "owner": "user",
    "limits": "resources",
    "restart_policy": "restart",
    "retries": "attempts",
    "timeout_seconds": "timeout",
    "period": "interval",
    "deadline": "max_runtime",
    "container": "image",
    "path": "http",
    "preferences": "prefer",
    "preferred": "prefer",
    "affinity": "near",
    "affinities": "near",
    "anti_affinity": "apart",
    "antiaffinity": "apart",
    "topology_spread": "spread",
    "tolerate": "tolerations",
    "tolerates": "tolerations",
    "sidecars": "group",
    "containers": "group",
    "alloc": "in",
    "alloc_set": "in",
    "hostports": "fixed_ports",
    "static_ports": "fixed_ports",
}

# Fields of a part, which people look for in the job itself.
_PARTS = {
    "resources": ("cpu", "ram", "disk", "memory", "mem", "cpus"),
    "restart": ("policy", "attempts", "within", "backoff", "retries"),
    "stop": ("signal", "grace"),
    "health": ("http", "tcp", "interval", "timeout", "failures"),
}
_PART_OF = {field: part for part, fields in _PARTS.items() for field in fields}


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

    def tell(self, field: str, message: str, hint: str = "") -> None:
        """Tell a mistake at a field's value, or at the whole record when it is not there."""
        if field in self.nodes:
            self.place.at(field).tell(self.nodes[field], message, hint)
        else:
            self.place.tell(self.node, message, hint)


class Record(Generic[T]):
    """A mapping with known fields, made into a value by ``make``, which may tell what does not go together.

    ``make`` gets the values that are right, of which some may be missing where mistakes were told.
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
        return self._make(self.values(node, place))

    def values(self, node: Node, place: Place) -> Values:
        """Read every field and tell of unknown and missing ones."""
        example = self._one(node.text) if self._one and isinstance(node, Scalar) else self._example
        entries = pairs(node, example, _FIELDS_MAX)
        if not isinstance(node, Mapping):  # pairs() has raised
            raise Wrong
        values = Values(node, place, {}, {})
        for key, child in entries:
            self._read_field(key, child, values)
        for field in self._fields:
            if field.required and field.name not in values.nodes:
                place.tell(
                    node, f"{field.name} is missing from {self._what}", f"add {field.name}: {field.about}"
                )
        return values

    def _read_field(self, key: Scalar, child: Node, values: Values) -> None:
        field = self._by_name.get(key.text)
        if field is None:
            hint = self._unknown_hint(key.text)
            message = f"{quote(key.text)} is not a field of {self._what}"
            values.place.found.tell(key.line, key.column, message, hint, values.place.at(key.text).path)
            return
        values.nodes[field.name] = child
        value = values.place.at(field.name).read(field.kind, child)
        if value is not None:
            values.given[field.attribute] = value

    def _unknown_hint(self, word: str) -> str:
        if (part := _PART_OF.get(word, "")) in self._by_name:
            field = _OTHER_NAMES.get(word, word)
            return f"write it inside {part}: {{{field}: ...}}"
        meant = _OTHER_NAMES.get(word.lower(), "")
        close = meant if meant in self._by_name else nearest(word, self._by_name)
        return f"did you mean {close}?" if close else f"the fields are: {', '.join(self._by_name)}"

    def schema(self) -> Schema:
        schema: Schema = {
            "type": "object",
            "properties": {f.name: {"description": f.about, **f.kind.schema()} for f in self._fields},
            "additionalProperties": False,
        }
        required = [field.name for field in self._fields if field.required]
        return {**schema, "required": required} if required else schema


def other_name(word: str) -> str:
    """Return what borgish calls what other systems call so, or ""."""
    return _OTHER_NAMES.get(word.lower(), "")
