"""The tree of a job file, its places, and the texts there is no tree of; with both YAML parsers."""

import json

import pytest
import yaml

from borgish.errors import Invalid
from borgish.spec.file import document
from borgish.spec.file.document import Broken, Mapping, Node, Scalar, Sequence, parse_all
from borgish.spec.file.kinds import is_null
from borgish.spec.file.mistakes import Mistakes


@pytest.fixture(params=["CSafeLoader", "SafeLoader"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_LOADER", getattr(yaml, request.param))


def parse(source: str | bytes) -> tuple[Node, Mistakes]:
    parsed = parse_all(source)
    return parsed.only(), parsed.found


def plain(node: Node) -> object:
    """Return a tree without its places."""
    match node:
        case Scalar():
            return node.text
        case Sequence():
            return [plain(item) for item in node.items]
        case Mapping():
            return {key.text: plain(value) for key, value in node.items}
    return Broken


def mistakes(source: str | bytes) -> list[tuple[int, int, str]]:
    """Return what is told of a text, whether or not there is a tree."""
    try:
        _, found = parse(source)
        found.stop()
    except Invalid as error:
        return [(m.line, m.column, m.message) for m in error.mistakes]
    return []


def test_nodes_know_their_places() -> None:
    root, found = parse('name: web\nrun:\n  - sh\n  - "-c"\n')
    assert not len(found)
    assert isinstance(root, Mapping)
    (_, name), (key, run) = root.items
    assert name == Scalar("web", True, 1, 7)
    assert key == Scalar("run", True, 2, 1)
    assert isinstance(run, Sequence)
    assert run.items == (Scalar("sh", True, 3, 5), Scalar("-c", False, 4, 5))


@pytest.mark.parametrize("text", ["no", "on", "012", "1_000", "1e3", "0x10", ".nan", "2001-01-01", "1:30"])
def test_scalars_stay_text(text: str) -> None:
    root, _ = parse(f"a: {text}")
    assert plain(root) == {"a": text}


@pytest.mark.parametrize(
    ("text", "nothing"),
    [("", True), ("~", True), ("null", True), ('""', False), ("'~'", False), ("no", False)],
)
def test_null_is_plain(text: str, *, nothing: bool) -> None:
    root, _ = parse(f"a: {text}")
    assert isinstance(root, Mapping)
    value = root.items[0][1]
    assert isinstance(value, Scalar)
    assert is_null(value) is nothing


@pytest.mark.parametrize("indent", [None, 2, "\t"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_json_is_read(indent: int | str | None, ascii_only: bool) -> None:
    value = {"name": "x", "run": ["😀", "a\tb\n", "\\ud83d\\ude00", "c:/d", "é"], "env": {"A": ""}}
    root, found = parse(json.dumps(value, indent=indent, ensure_ascii=ascii_only))
    assert not len(found)
    assert plain(root) == value


def test_byte_order_mark_and_line_ends_of_windows() -> None:
    root, _ = parse("\ufeffa: 1\r\nb: 2\r\n".encode())
    assert plain(root) == {"a": "1", "b": "2"}
    assert mistakes(b"a: 1\r\nb: \x07\r\n") == [(2, 4, "the character U+0007 is not allowed here")]


@pytest.mark.parametrize(
    ("source", "line", "column", "message"),
    [
        ("", 1, 1, "the file is empty"),
        ("# nothing\n", 1, 1, "the file is empty"),
        ("a: &x 1", 1, 4, "an anchor (&name)"),
        ("a: *x", 1, 4, "an alias (*name)"),
        ("a: !!int 3", 1, 4, "a tag (!name)"),
        ("a: ! b", 1, 4, "a tag (!name)"),
        ("<<: {a: 1}", 1, 1, "a merge key (<<)"),
        ("a: 1\nb: 2\na: 3", 3, 1, "'a' is given twice; the first is in line 1"),
        ("{'a': 1, \"a\": 2}", 1, 10, "'a' is given twice; the first is in line 1"),
        ("a: 1\n---\nb: 2", 2, 1, "a second document (after ---)"),
        ("[a]: 1", 1, 1, "a key that is not text"),
        ("run: [x, {{port.http}}]", 1, 11, "a substitution without quotes"),
        ("%YAML 1.1\n---\na: 1", 1, 1, "a YAML directive (a line that begins with %)"),
        ("a: \x00", 1, 4, "the character U+0000 is not allowed here"),
        ("a: \x1b[1m", 1, 4, "the character U+001B is not allowed here"),
        ("a: b\ufeff", 1, 5, "the character U+FEFF is not allowed here"),
        ("a: \u2028", 1, 4, "the character U+2028 is not allowed here"),
        ("a: \ud800", 1, 4, "the character U+D800 is not allowed here"),
        ('a: "\\0"', 1, 4, "a value with a NUL or half a character"),
        (b"\xff\xfea", 1, 1, "the byte 0xff is not UTF-8"),
        (b"a: 1\nb: \xe9", 2, 4, "the byte 0xe9 is not UTF-8"),
        ("\ta: 1", 1, 1, "a tab cannot be used to indent"),
        ("a: @b", 1, 4, "text without quotes cannot begin with @"),
        ("a: `b", 1, 4, "text without quotes cannot begin with `"),
        ("a: 'b", 1, 4, "a quote that is never closed"),
        ("a: [b", 1, 4, "a list that is not closed, or lacks a comma"),
        ("a: {b: c", 1, 4, "a mapping that is not closed, or lacks a comma"),
        ("a: b: c", 1, 5, "a ':' that is not allowed here"),
        ("a: - b", 1, 4, "a '-' that is not allowed here"),
        ('a: "b" c', 1, 8, "this does not match the lines above it"),
        ("a: 1\n b: 2", 2, 3, "a ':' that is not allowed here"),
        ("- a\nb: 1", 2, 1, "this does not match the lines above it"),
        ("{a: 1}}", 1, 7, "text after the end of the job"),
        ("a: ]", 1, 4, "a value is missing here"),
        ('a: "\\q"', 1, 4, "an escape that double quotes do not know"),
        ("a: 1\nb\n", 2, 1, "a key without a ':'"),
    ],
)
def test_mistakes_of_a_text(source: str | bytes, line: int, column: int, message: str) -> None:
    assert mistakes(source) == [(line, column, message)]


def test_mistakes_that_do_not_stand_in_the_way_are_told_together() -> None:
    told = mistakes("a: &x 1\nb: *x\na: 2\n<<: 3\nc: !t 4\n--- 5\n")
    assert [line for line, _, _ in told] == [1, 2, 3, 4, 5, 6]


def test_what_is_broken_is_told_once() -> None:
    root, found = parse("a: *x\nb: {{c}}")
    assert plain(root) == {"a": Broken, "b": Broken}
    assert len(found) == 2


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert document.NODES_MAX == 50_000
    monkeypatch.setattr(document, "NODES_MAX", 5000)  # the slower loader takes a second for all
    deep = "[" * document.DEPTH_MAX + "]" * document.DEPTH_MAX
    assert mistakes(deep) == []
    assert "nested" in mistakes(f"[{deep}]")[0][2]
    wide = "[" + "a," * (document.NODES_MAX - 1) + "]"
    assert mistakes(wide) == []
    assert "5000 values" in mistakes(wide[:-1] + "a]")[0][2]
    assert "1048577 bytes" in mistakes("a" * (1024 * 1024 + 1))[0][2]
    assert "1048578 bytes" in mistakes("é" * (512 * 1024 + 1))[0][2]


def test_a_mistake_brings_its_line() -> None:
    with pytest.raises(Invalid) as caught:
        parse("a: 1\nb: 'c\n")
    (mistake,) = caught.value.mistakes
    assert mistake.excerpt == "b: 'c"
    assert mistake.hint == "close the quote"
    assert caught.value.message == "the job file has a mistake; line 2: a quote that is never closed"
