"""YAML text becomes a tree in which every node knows its place.

Strict: one document; no aliases, anchors, tags, merge keys, directives or duplicate keys; bounded in
size, nodes and depth while it is read. Scalars stay text, with a note whether they were quoted: what
the text means is for the field that reads it to say, so a plain ``no`` is the text "no" and nothing else.
JSON is read too. Every other text ends in ``errors.Invalid``, never in another exception.
"""

import re
from typing import Any

import msgspec
import yaml

from borgish.spec.mistakes import Found, quote
from borgish.spec.phrases import tell_parser_error
from borgish.spec.source import decode, json_as_yaml

NODES_MAX = 50_000
DEPTH_MAX = 32
EMPTY_HINT = "a job needs name: NAME and run: [program, argument]"

# Both make the same events; the one in C, which not every system has, is ten times quicker.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NOT_TEXT = re.compile("[\0\ud800-\udfff]")


class Scalar(msgspec.Struct, frozen=True):
    """A text. ``plain`` when it was written without quotes."""

    text: str
    plain: bool
    line: int
    column: int

    @property
    def is_null(self) -> bool:
        """Whether it is one of YAML's ways to write nothing."""
        return self.plain and self.text in ("", "~", "null")


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
    """Something that cannot be used; what is wrong with it has been told already."""

    line: int
    column: int


Node = Scalar | Sequence | Mapping | Broken


def parse(source: str | bytes) -> tuple[Node, Found]:
    """Read a text; return its tree and the mistakes found that do not stand in the way of reading on.

    Raises Invalid at once where there is no tree: not UTF-8, not YAML, empty, over a limit.
    """
    text = json_as_yaml(decode(source))
    found = Found(text)
    tree = _Tree(found)
    loader = _LOADER(text)
    try:
        while loader.check_event() and tree.documents < 2:
            tree.take(loader.get_event())
    except yaml.YAMLError as error:
        tell_parser_error(error, text, found)
        raise found.invalid() from None
    finally:
        loader.dispose()
    if tree.root is None:
        found.tell(1, 1, "the file is empty", EMPTY_HINT)
        raise found.invalid()
    return tree.root, found


class _Open:
    """A list or mapping whose end has not come yet. ``key`` is set while a mapping awaits its value."""

    def __init__(self, event: Any) -> None:
        self.line, self.column = _place(event)
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

    def __init__(self, found: Found) -> None:
        self.root: Node | None = None
        self.documents = 0
        self._found = found
        self._stack: list[_Open] = []
        self._nodes = 0

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.CollectionEndEvent):
            self._add(self._stack.pop().close())
        elif isinstance(event, yaml.DocumentStartEvent):
            self._begin_document(event)
        elif isinstance(event, yaml.NodeEvent):
            self._begin_node(event)

    def _begin_document(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            self._tell(event, "a second document (after ---)", "put each job into a file of its own")

    def _begin_node(self, event: Any) -> None:
        self._keep_limits(event)
        if isinstance(event, yaml.AliasEvent):
            self._tell(event, "an alias (*name)", "write the value out; text that begins with * needs quotes")
            self._add(Broken(*_place(event)))
            return
        if event.anchor is not None:
            self._tell(event, "an anchor (&name)", "remove it; text that begins with & needs quotes")
        if event.tag is not None:
            self._tell(event, "a tag (!name)", "remove it; text that begins with ! needs quotes")
        if isinstance(event, yaml.CollectionStartEvent):
            self._stack.append(_Open(event))
        else:
            self._add(self._scalar(event))

    def _keep_limits(self, event: Any) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            self._tell(event, f"the file has more than {NODES_MAX} values", "split it into several jobs")
            raise self._found.invalid()
        if len(self._stack) >= DEPTH_MAX:
            self._tell(event, f"the file is nested more than {DEPTH_MAX} deep", "a job file needs 4 levels")
            raise self._found.invalid()

    def _scalar(self, event: Any) -> Node:
        if _NOT_TEXT.search(event.value):
            self._tell(
                event, "a value with a NUL or half a character", "remove it; no program can be given one"
            )
            return Broken(*_place(event))
        return Scalar(event.value, not event.style, *_place(event))

    def _add(self, node: Node) -> None:
        if not self._stack:
            self.root = node
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
                hint = 'a substitution needs quotes: "{{port.http}}"'
                self._found.tell(node.line, node.column, "a key that is not text", hint)
        elif node.plain and node.text == "<<":
            self._found.tell(node.line, node.column, "a merge key (<<)", "write the values out")
        elif first := parent.key_lines.get(node.text):
            message = f"{quote(node.text)} is given twice; the first is in line {first}"
            self._found.tell(node.line, node.column, message, "keep one of them")
        else:
            parent.key_lines[node.text] = node.line
            return node
        return Broken(node.line, node.column)

    def _tell(self, event: Any, message: str, hint: str) -> None:
        self._found.tell(*_place(event), message, hint)


def _place(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1
