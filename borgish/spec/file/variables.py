"""Variables of job files: declared under ``vars``, used as ``{{var.NAME}}`` (Helm's values, Nomad's
variables).

They are filled in before anything else is read, into the tree and not into the text: what is wrong with a
value is shown where it is used, and no value can change what the rest of the document says.
"""

import re
from collections.abc import Mapping as Dict

import msgspec

from borgish.spec.file.document import Broken, Mapping, Node, Scalar, Sequence
from borgish.spec.file.kinds import (
    Choice,
    Field,
    Leaf,
    ListOf,
    MapOf,
    Place,
    Record,
    Schema,
    Text,
    Values,
    Wrong,
    is_null,
    scalar,
)
from borgish.spec.file.mistakes import DIGITS_MAX, nearest, quote
from borgish.spec.substitute import REFERENCE
from borgish.vocabulary import BODY_BYTES_MAX, VariableType

VARS = "vars"
GIVEN = "--var"
"""Where the values come from that were given beside the text, as mistakes name it."""

VARIABLES_MAX = 100
VALUE_BYTES_MAX = 4096
_PREFIX = "var."
_NAME = r"[A-Za-z_][A-Za-z0-9_-]{0,62}"
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")


class Variable(msgspec.Struct, frozen=True):
    """A variable as it is declared, and the ``value`` it has: the one given, or else its default."""

    name: str
    type: VariableType
    default: str | None  # None: it has to be given
    help: str
    choices: tuple[str, ...]  # (): any value of its type
    value: str
    source: str
    line: int


class Scope(msgspec.Struct):
    """The variables that a document may use. Where they are not ``known``, for a mistake in how they are
    declared, nothing is said of how they are used."""

    values: dict[str, Variable | None]  # None: there is a mistake in it, which was reported
    known: bool = True


class _AsWritten(Leaf[Scalar]):
    """A value of any type."""

    example = "a text, a number, true or false"

    def of(self, found: Scalar) -> Scalar:
        if _references(found.text):
            raise Wrong("a variable cannot be made of others", "write the value out")
        if len(found.text.encode()) > VALUE_BYTES_MAX:
            raise Wrong(f"a value of more than {VALUE_BYTES_MAX} bytes")
        return found

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean"], "maxLength": VALUE_BYTES_MAX}


class _Declared(msgspec.Struct, frozen=True):
    """What ``vars`` says of a variable."""

    type: VariableType
    default: str | None
    help: str
    choices: tuple[str, ...]


def _make(values: Values) -> _Declared | None:
    if values.given.keys() < values.nodes.keys():
        return None  # one of them is a mistake
    default, choices = values.given.get("default"), values.given.get("choices", ())
    typed = values.given.get("type") or _type_of(default or next(iter(choices), None))
    before = len(values.place.found)
    for field, written in (("default", default), *(("choices", choice) for choice in choices)):
        if written is not None and (wrong := _not_of_type(written.text, typed)):
            values.place.at(field).report(written, *wrong)
    texts = tuple(choice.text for choice in choices)
    if default is not None and texts and default.text not in texts:
        values.place.at("default").report(default, *_not_a_choice(default.text, texts))
    if len(values.place.found) > before:
        return None
    return _Declared(typed, default.text if default else None, values.given.get("help", ""), texts)


_ANY = _AsWritten()
_RECORD = Record(
    "a variable",
    (
        Field("type", Choice(VariableType), "text, int or bool; that of its default, unless given"),
        Field("default", _ANY, "its value where none is given; without a default it has to be given"),
        Field("help", Text(256, empty=True), "what it is for"),
        Field("choices", ListOf(_ANY, 64, "[small, large]"), "the values that it may have; any unless given"),
    ),
    "{type: text, default: blue}",
    _make,
)


class _Declaration:
    """A default alone, or all that is to be said of a variable."""

    def read(self, node: Node, place: Place, /) -> _Declared:
        if isinstance(node, Mapping):
            if (declared := _RECORD.read(node, place)) is None:
                raise Wrong
            return declared
        if isinstance(node, Scalar) and is_null(node):
            raise Wrong("there is no default", "give one; without a default, write {type: text}")
        default = _ANY.of(scalar(node, "a default, or {type: text}"))
        return _Declared(_type_of(default), default.text, "", ())

    def schema(self) -> Schema:
        return {"anyOf": [_ANY.schema(), _RECORD.schema()]}


_VARS = MapOf(
    Text(63, _NAME, "letters, digits, _ and -, like replicas"), _Declaration(), VARIABLES_MAX, "{replicas: 3}"
)


def schema() -> Schema:
    """Return the JSON Schema of ``vars``."""
    return {
        "description": "variables, used as {{var.NAME}}; `--var NAME=VALUE` gives values",
        **_VARS.schema(),
    }


def _type_of(written: Scalar | None) -> VariableType:
    if written is None or not written.plain:
        return VariableType.TEXT
    if written.text in ("true", "false"):
        return VariableType.BOOL
    return VariableType.INT if _WHOLE.fullmatch(written.text) else VariableType.TEXT


def _not_of_type(text: str, typed: VariableType) -> tuple[str, str] | None:
    """Return what is wrong with a value and what to do, None where nothing is."""
    if typed is VariableType.INT and not (_WHOLE.fullmatch(text) and len(text) <= DIGITS_MAX):
        return f"{quote(text)} is not a whole number", "its type is int"
    if typed is VariableType.BOOL and text not in ("true", "false"):
        return f"{quote(text)} is neither true nor false", "its type is bool"
    if _NOT_TEXT.search(text) or len(text.encode("utf-8", "replace")) > VALUE_BYTES_MAX:
        return f"{quote(text)} is no text of at most {VALUE_BYTES_MAX} bytes", "give another"
    return None


def _not_a_choice(text: str, choices: tuple[str, ...]) -> tuple[str, str]:
    close = nearest(text, choices)
    hint = f"did you mean {close}?" if close else ""
    return f"{quote(text)} is not one of {', '.join(map(quote, choices[:10]))}", hint


def declare(root: Node, place: Place, given: Dict[str, str]) -> tuple[Node, Scope]:
    """Return a document without its ``vars``, and the variables declared there, with the values ``given``."""
    node = (
        next((child for key, child in root.items if key.text == VARS), None)
        if isinstance(root, Mapping)
        else None
    )
    if node is None or not isinstance(root, Mapping):
        return root, Scope({})
    rest = Mapping(tuple(item for item in root.items if item[0].text != VARS), root.line, root.column)
    place = place.at(VARS)
    declared = place.read(_VARS, node)
    if declared is None or not isinstance(node, Mapping):
        return rest, Scope({}, known=False)
    scope = Scope({key.text: None for key, _ in node.items})
    for key, _ in node.items:
        if found := declared.get(key.text):
            scope.values[key.text] = _valued(key, found, place.at(key.text), given)
    return rest, scope


def _valued(key: Scalar, declared: _Declared, place: Place, given: Dict[str, str]) -> Variable | None:
    name, value = key.text, given.get(key.text, declared.default)
    about = f" ({declared.help})" if declared.help else ""
    if value is None:
        hint = f"give it one: --var {name}=VALUE; or declare a default"
        place.report(key, f"the variable has no value{about}", hint)
        return None
    wrong = _not_of_type(value, declared.type)
    if not wrong and declared.choices and value not in declared.choices:
        wrong = _not_a_choice(value, declared.choices)
    if wrong:
        place.found.report_elsewhere(GIVEN, f"{name}: {wrong[0]}{about}", wrong[1])
        return None
    return Variable(
        name,
        declared.type,
        declared.default,
        declared.help,
        declared.choices,
        value,
        place.found.source,
        key.line,
    )


def undeclared(given: Dict[str, str], scopes: list[Scope]) -> list[tuple[str, str]]:
    """Return message and hint for each value given for a variable that no document declares."""
    if not all(scope.known for scope in scopes):
        return []
    known = list(dict.fromkeys(name for scope in scopes for name in scope.values))
    found = []
    for name in given:
        if name not in known:
            close = nearest(name, known)
            hint = f"did you mean {close}?" if close else f"declared are: {', '.join(known[:20])}"
            hint = hint if known else "declare it in the document: vars: {NAME: DEFAULT}"
            found.append((f"no document declares the variable {quote(name)}", hint))
    return found


def fill_in(root: Node, scope: Scope, place: Place, text: str) -> Node:
    """Return a document with its variables filled in; what cannot be is reported, and Broken."""
    if _PREFIX not in text or "{{" not in text:
        return root
    return _Filling(scope, BODY_BYTES_MAX).fill(root, place)


def _references(text: str) -> list[str]:
    return (
        [name.strip() for name in REFERENCE.findall(text) if name.strip().startswith(_PREFIX)]
        if "{{" in text
        else []
    )


class _Filling:
    """Fills in one document, up to so many bytes: short texts can stand for long ones, many times."""

    def __init__(self, scope: Scope, bytes_max: int) -> None:
        self._scope, self._left = scope, bytes_max

    def fill(self, node: Node, place: Place) -> Node:
        # Bounded: the tree's depth is.
        if isinstance(node, Mapping):
            items = tuple([(key, self.fill(child, place.at(key.text))) for key, child in node.items])
            return Mapping(items, node.line, node.column)
        if isinstance(node, Sequence):
            filled = tuple([self.fill(item, place.item(number)) for number, item in enumerate(node.items)])
            if any(isinstance(item, Broken) for item in filled):
                return Broken(node.line, node.column)  # a shorter list would mean something else
            return Sequence(filled, node.line, node.column)
        if isinstance(node, Scalar) and (names := _references(node.text)):
            return self._scalar(node, names, place)
        return node

    def _scalar(self, node: Scalar, names: list[str], place: Place) -> Node:
        values: dict[str, str] = {}
        for name in dict.fromkeys(names):
            found = self._scope.values.get(name.removeprefix(_PREFIX))
            if found is not None:
                values[name] = found.value
            elif name.removeprefix(_PREFIX) not in self._scope.values and self._scope.known:
                place.report(node, *self._unknown(name.removeprefix(_PREFIX)))
        if len(values) < len(set(names)):
            return Broken(node.line, node.column)
        self._left -= sum(len(values[name].encode()) for name in names)
        if self._left < 0:
            place.report(node, f"filled in, the variables have more than {BODY_BYTES_MAX} bytes", "use fewer")
            return Broken(node.line, node.column)
        text = REFERENCE.sub(lambda match: values.get(match[1].strip(), match[0]), node.text)
        whole = REFERENCE.fullmatch(node.text) is not None
        # A text that YAML would take for nothing, as the empty one, is a value all the same.
        plain = Scalar(text, True, node.line, node.column)
        return plain if whole and not is_null(plain) else Scalar(text, False, node.line, node.column)

    def _unknown(self, name: str) -> tuple[str, str]:
        known = self._scope.values
        close = nearest(name, known)
        hint = (
            f"did you mean {{{{var.{close}}}}}?" if close else f"declare it: vars: {{{name[:63]}: DEFAULT}}"
        )
        return f"the variable {quote(name)} is not declared", hint
