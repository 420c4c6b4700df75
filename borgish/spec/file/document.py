"""The text of a job file becomes a tree in which every node knows its place.

Strict: no aliases, anchors, tags, merge keys, directives or duplicate keys; bounded in
size, nodes and depth while it is read. Scalars stay text, with a note whether they were quoted: what
the text means is for the field that reads it to decide, so a plain ``no`` is the text "no" and nothing else.
JSON is read too. Every other text ends in ``errors.Invalid``, never in another exception.

A text may hold several documents. Whatever is wrong with one, those after it are read all the same: a line
that begins with ``---`` divides documents wherever it stands.
"""

import json
import re
from functools import cached_property
from typing import Any

import msgspec
import yaml

from borgish.spec.file.mistakes import LINE_BREAK, Mistakes, lines_of, quote, safe
from borgish.vocabulary import BODY_BYTES_MAX

NODES_MAX = 50_000
DEPTH_MAX = 32
APPLY_HINT = "`borgctl apply FILE` takes {}, and `borgctl apply --dry-run FILE` shows what that would change"
EMPTY_HINT = "a job needs name: NAME and run: [program, argument]"

# Both make the same events; the one in C, which not every system has, is ten times quicker.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
# Outside stands what YAML does not allow, what ends a line in YAML 1.1 only (U+0085, U+2028, U+2029),
# and a byte order mark that is not at the front.
_FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_DIRECTIVE = re.compile(r"(?:^|(?<=[\r\n]))%")
# A backslash counts when an even number of them stands before it.
_SURROGATE_PAIR = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
)


class Scalar(msgspec.Struct, frozen=True):
    """A text. ``plain`` when it was written without quotes."""

    text: str
    plain: bool
    line: int
    column: int


class Sequence(msgspec.Struct, frozen=True):
    """A list."""

    items: tuple["Node", ...]
    line: int
    column: int


class Mapping(msgspec.Struct, frozen=True):
    """Keys and values in the order of the text; no key is there twice."""

    items: tuple[tuple[Scalar, "Node"], ...]
    line: int
    column: int


class Broken(msgspec.Struct, frozen=True):
    """Something that cannot be used; what is wrong with it has been reported already."""

    line: int
    column: int


Node = Scalar | Sequence | Mapping | Broken


class Part(msgspec.Struct, frozen=True):
    """One document of a text. ``sound`` when nothing was found wrong in it yet."""

    root: Node
    line: int  # where it begins, which is that of its ``---``
    column: int
    sound: bool


class Parsed(msgspec.Struct, frozen=True):
    """A text as trees. Not ``whole`` when there are documents that could not be read at all."""

    parts: tuple[Part, ...]
    found: Mistakes
    text: str
    whole: bool

    def only(self) -> Node:
        """Return the document of a text that is to have one. Raises Invalid where there is none."""
        if len(self.parts) > 1:
            second, hint = self.parts[1], f"{APPLY_HINT.format('several')}; submit takes a file of one job"
            self.found.report(second.line, second.column, "a second document (after ---)", hint)
        if self.whole and not self.parts:
            self.found.report(1, 1, "the file is empty", EMPTY_HINT)
        if not self.whole or not self.parts:
            raise self.found.invalid()
        return self.parts[0].root


def child_of(node: Node | None, *path: str) -> Node | None:
    """Return what mappings in mappings have under these keys."""
    for key in path:
        if not isinstance(node, Mapping):
            return None
        node = next((child for name, child in node.items if name.text == key), None)
    return node


def parse_all(source: str | bytes, name: str = "") -> Parsed:
    """Read a text of any number of documents; ``name`` is that of its file. Empty documents are left out.

    Raises Invalid at once where there is no text: not UTF-8, over a limit.
    """
    text = _json_as_yaml(_decode(source, name))
    tree = _Tree(text, Mistakes(text, name))
    broken = _parse_from(text, 0, tree)
    if broken < 0:
        return Parsed(tuple(tree.parts), tree.found, text, whole=True)
    starts = [0, *(match.end() for match in LINE_BREAK.finditer(text))]  # of lines
    while 0 <= broken < len(tree.lines):
        tree.begin(broken)
        broken = _parse_from(text, starts[broken], tree)
    return Parsed(tuple(tree.parts), tree.found, text, whole=False)


def _parse_from(text: str, start: int, tree: "_Tree") -> int:
    """Read the documents from an offset on. Return -1 at the end of the text; else, where a document cannot
    be read, how many lines stand before the next one, or how many the text has."""
    loader = _LOADER(text[start:] if start else text)
    try:
        while loader.check_event():
            tree.take(loader.get_event())
        return -1
    except yaml.YAMLError as error:
        lines = tree.lines
        line, column, message, hint = _parser_error(error, lines, tree.lines_before)
        if not tree.found.has(line, message):
            tree.found.report(line, column, message, hint)
        mark = getattr(error, "problem_mark", None)
    finally:
        loader.dispose()
    # What is wrong may be noticed as late as at the divider, which then begins the next document. The one
    # that begins this document does not.
    first = max(tree.line, tree.lines_before + mark.line if mark else 0)
    return next((number for number in range(first, len(lines)) if _DIVIDER.match(lines[number])), len(lines))


_DIVIDER = re.compile(r"---(?=[ \t]|\Z)")


class _Open:
    """A list or mapping whose end has not come yet. ``key`` is set while a mapping awaits its value."""

    def __init__(self, event: Any, line: int, column: int) -> None:
        self.line, self.column = line, column
        self.is_mapping = isinstance(event, yaml.MappingStartEvent)
        self.items: list[Node] = []
        self.pairs: list[tuple[Scalar, Node]] = []
        self.key: Scalar | Broken | None = None
        self.key_lines: dict[str, int] = {}
        self.broken = False

    def close(self) -> Node:
        if self.broken:
            return Broken(self.line, self.column)
        if self.is_mapping:
            return Mapping(tuple(self.pairs), self.line, self.column)
        return Sequence(tuple(self.items), self.line, self.column)


class _Tree:
    """Builds the tree out of events; a stack instead of recursion."""

    def __init__(self, text: str, found: Mistakes) -> None:
        self._text, self.found = text, found
        self.parts: list[Part] = []
        self.lines_before = 0
        self.line = self._column = 1  # where the document begins
        self._mistakes_before = 0
        self._stack: list[_Open] = []
        self._nodes = 0

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text, without empty ones at its end."""
        return lines_of(self._text.rstrip("\r\n"))

    def begin(self, lines_before: int) -> None:
        """Take events of a text that follows so many lines, from its first on."""
        self.lines_before = lines_before
        self.line, self._column = lines_before + 1, 1
        self._stack.clear()

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.CollectionEndEvent):
            self._add(self._stack.pop().close())
        elif isinstance(event, yaml.DocumentStartEvent):
            self.line, self._column = self._place(event)
            self._mistakes_before = len(self.found)
        elif isinstance(event, yaml.NodeEvent):
            self._begin_node(event)

    def _begin_node(self, event: Any) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            self._report(event, f"the file has more than {NODES_MAX} values", "split it into several jobs")
            raise self.found.invalid()
        if len(self._stack) >= DEPTH_MAX:
            self._report(event, f"the file is nested more than {DEPTH_MAX} deep", "a job file needs 4 levels")
            raise self.found.invalid()
        if isinstance(event, yaml.AliasEvent):
            self._report(
                event, "an alias (*name)", "write the value out; text that begins with * needs quotes"
            )
            self._add(Broken(*self._place(event)))
            return
        if event.anchor is not None:
            self._report(event, "an anchor (&name)", "remove it; text that begins with & needs quotes")
        if event.tag is not None:
            self._report(event, "a tag (!name)", "remove it; text that begins with ! needs quotes")
        if isinstance(event, yaml.CollectionStartEvent):
            self._stack.append(_Open(event, *self._place(event)))
        elif _NOT_TEXT.search(event.value):
            hint = "remove it; no program can be given one"
            self._report(event, "a value with a NUL or half a character", hint)
            self._add(Broken(*self._place(event)))
        else:
            self._add(Scalar(event.value, not event.style, *self._place(event)))

    def _add(self, node: Node) -> None:
        if not self._stack:
            if not (isinstance(node, Scalar) and node.plain and not node.text):
                sound = len(self.found) == self._mistakes_before
                self.parts.append(Part(node, self.line, self._column, sound))
            return
        parent = self._stack[-1]
        if not parent.is_mapping:
            parent.items.append(node)
        elif parent.key is None:
            parent.key = self._key(parent, node)
        else:
            if isinstance(parent.key, Scalar):
                parent.pairs.append((parent.key, node))
            parent.key = None

    def _key(self, parent: _Open, node: Node) -> Scalar | Broken:
        if not isinstance(node, Scalar):
            parent.broken = True
            if not isinstance(node, Broken):
                self.found.report(node.line, node.column, *_not_a_key(node))
        elif node.plain and node.text == "<<":
            self.found.report(node.line, node.column, "a merge key (<<)", "write the values out")
        elif first := parent.key_lines.get(node.text):
            message = f"{quote(node.text)} is given twice; the first is in line {first}"
            self.found.report(node.line, node.column, message, "keep one of them")
        else:
            parent.key_lines[node.text] = node.line
            return node
        return Broken(node.line, node.column)

    def _report(self, event: Any, message: str, hint: str) -> None:
        self.found.report(*self._place(event), message, hint)

    def _place(self, event: Any) -> tuple[int, int]:
        mark = event.start_mark
        return self.lines_before + mark.line + 1, mark.column + 1


_UNQUOTED = "a substitution without quotes"


def _quoted(substitution: str) -> str:
    return f'put the whole value in quotes, like "{substitution}"'


def _not_a_key(node: Node) -> tuple[str, str]:
    """Return what to say of a key that is a list or a mapping: most often ``{{name}}`` without quotes."""
    if isinstance(node, Mapping) and len(node.items) == 1:
        name, value = node.items[0]
        if isinstance(value, Scalar) and not value.text:
            return _UNQUOTED, _quoted(f"{{{{{name.text[:64]}}}}}")
    return "a key that is not text", 'a substitution needs quotes: "{{port.http}}"'


# The text, before it is read as YAML


def _decode(source: str | bytes, name: str) -> str:
    """Return the text of a file, fit to be parsed. Raises Invalid where it is not."""
    size = len(source) if isinstance(source, bytes) else len(source.encode("utf-8", "replace"))
    if size > BODY_BYTES_MAX:
        found = Mistakes("", name)
        message = f"the file has {size} bytes; at most {BODY_BYTES_MAX} (1 MiB) are read"
        found.report(0, 0, message, "split it into several jobs")
        raise found.invalid()
    text = (_utf8(source, name) if isinstance(source, bytes) else source).removeprefix("\ufeff")
    found = Mistakes(text, name)
    if match := _FORBIDDEN.search(text):
        code = ord(match[0])
        hint = f'remove it; a value that needs it can hold "\\u{code:04x}" in double quotes'
        if code == 0 or 0xD800 <= code < 0xE000:
            hint = "remove it"
        found.report(*_position(text, match.start()), f"the character U+{code:04X} is not allowed here", hint)
    elif match := _DIRECTIVE.search(text):
        hint = "remove the line; text that begins with % needs quotes"
        found.report(*_position(text, match.start()), "a YAML directive (a line that begins with %)", hint)
    found.stop()
    return text


def _utf8(source: bytes, name: str) -> str:
    try:
        return source.decode("utf-8")
    except UnicodeDecodeError as error:
        good = source[: error.start].decode("utf-8")
        found = Mistakes(source.decode("utf-8", "replace"), name)
        message = f"the byte 0x{source[error.start]:02x} is not UTF-8"
        found.report(*_position(good, len(good)), message, "save the file in the UTF-8 encoding")
        raise found.invalid() from None


def _position(text: str, offset: int) -> tuple[int, int]:
    """Return line and column, from 1, of an offset into a text."""
    lines = lines_of(text[:offset])
    return len(lines), len(lines[-1]) + 1


def _json_as_yaml(text: str) -> str:
    """Bring valid JSON into the part of it that YAML 1.1 parsers read: no tabs, no surrogate pairs.

    Other text is returned as it is.
    """
    if not text.lstrip().startswith(("{", "[")):
        return text
    # The search for a pair takes 0.1 s of 1 MiB; most texts do not have what every pair begins with.
    if "\t" not in text and not ("\\u" in text and _SURROGATE_PAIR.search(text)):
        return text
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return text
    # In valid JSON a raw tab is always white space between tokens.
    return _SURROGATE_PAIR.sub(_one_character, text.replace("\t", " "))


def _one_character(pair: re.Match[str]) -> str:
    return pair[1] + (bytes.fromhex(pair[2]) + bytes.fromhex(pair[3])).decode("utf-16-be")


# What the YAML parsers report: there are two, in C and in Python, which find the same faults and name them
# differently.


class _Fault(msgspec.Struct, frozen=True):
    """A fault in words that say what to do.

    ``at_start``: it is best shown where the thing that is not finished began.
    """

    part: str  # of the words of either parser
    message: str
    hint: str
    at_start: bool = False


_NOT_FITTING = "this does not match the lines above it"
_ONE_LEVEL = "give keys of one level the same indentation, and put nothing after a closing quote"

_FAULTS = (
    _Fault(
        "mapping values are not allowed",
        "a ':' that is not allowed here",
        "quote text that holds ': ', and give keys of one level the same indentation",
    ),
    _Fault("unexpected document indicator", "a quote that is never closed", "close the quote", at_start=True),
    _Fault("unexpected document separator", "a quote that is never closed", "close the quote", at_start=True),
    _Fault("unexpected end of stream", "a quote that is never closed", "close the quote", at_start=True),
    _Fault("',' or ']'", "a list that is not closed, or lacks a comma", "close it with ']'", at_start=True),
    _Fault(
        "',' or '}'", "a mapping that is not closed, or lacks a comma", "close it with '}'", at_start=True
    ),
    _Fault("could not find expected ':'", "a key without a ':'", "write it as 'key: value'", at_start=True),
    _Fault(
        "unknown escape",
        "an escape that double quotes do not know",
        "write \\\\ for a backslash, or use single quotes",
        at_start=True,
    ),
    _Fault(
        "sequence entries are not allowed",
        "a '-' that is not allowed here",
        "begin a list in the line after its key, or write it as [a, b]",
    ),
    _Fault("expected key", _NOT_FITTING, _ONE_LEVEL),
    _Fault("expected '-' indicator", _NOT_FITTING, "begin every item of a list with '- '"),
    _Fault("expected <block end>", _NOT_FITTING, _ONE_LEVEL),
    _Fault("document start", "text after the end of the job", "remove it; look for a '}' or ']' too many"),
    _Fault("node content", "a value is missing here", "give the value, or remove the line"),
)


_SUBSTITUTION = re.compile(r"(?<=[\s\[,])\{\{([^{}]{1,64})\}\}")


def _parser_error(error: Any, lines: list[str], before: int) -> tuple[int, int, str, str]:
    """Return line, column, message and hint of what a parser raised (a yaml.YAMLError), which read the lines
    after those ``before``."""
    problem = str(getattr(error, "problem", None) or error)
    mark = getattr(error, "problem_mark", None)
    start = getattr(error, "context_mark", None) or mark
    line, column = _inside(mark, lines, before)
    if "cannot start any token" in problem:
        char = lines[line - 1][column - 1 : column]
        if char == "\t":
            return line, column, "a tab cannot be used to indent", "indent with spaces"
        return line, column, f"text without quotes cannot begin with {char}", "put the text in quotes"
    written = lines[line - 1].lstrip(" -")
    if (match := _SUBSTITUTION.search(lines[line - 1])) and '"' not in written and "'" not in written:
        return line, match.start() + 2, _UNQUOTED, _quoted(match[0])
    for fault in _FAULTS:
        if fault.part in problem:
            place = _inside(start, lines, before) if fault.at_start else (line, column)
            return *place, fault.message, fault.hint
    return line, column, f"this is not YAML: {safe(problem)}", "see the line and the one before it"


def _inside(mark: Any, lines: list[str], before: int) -> tuple[int, int]:
    """Return line and column, from 1; what lies behind the last line is its end."""
    number = before + mark.line if mark else before
    if number < len(lines):
        return number + 1, mark.column + 1 if mark else 1
    return len(lines), len(lines[-1]) + 1
