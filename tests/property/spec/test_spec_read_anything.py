"""Whatever the bytes: a job or Invalid, nothing else, and soon."""

import json
import time
from collections.abc import Callable

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from borgish.errors import Invalid
from borgish.spec.file import document, fields
from borgish.spec.file.mistakes import show_mistakes
from borgish.spec.file.read import read_job
from borgish.spec.job import JobSpec
from tests.profiles import examples

SOON_SECONDS = 0.2
LARGE_SECONDS = 1.0  # for files that are just large: nearly a megabyte, or nearly 50,000 values
FIELDS = [field.name for field in fields.JOB_FIELDS]


def read(source: str | bytes) -> JobSpec | Invalid:
    try:
        outcome: JobSpec | Invalid = read_job(source, "ann")
    except Invalid as error:
        outcome = error
    if isinstance(outcome, Invalid):
        assert outcome.mistakes
        shown = show_mistakes(outcome.mistakes, "f")
        assert all(c.isprintable() or c == "\n" for c in shown)
    return outcome


@given(st.binary(max_size=300))
@example(b"\xef\xbb\xbfname: a\nrun: [b]")
@example(b"\xff\xfe\x00")
def test_any_bytes(source: bytes) -> None:
    read(source)


@given(st.text(alphabet=st.characters(categories=None), max_size=200))
def test_any_text(source: str) -> None:
    read(source)


@given(
    st.lists(
        st.sampled_from([*"-:?[]{},&*!|>'\"%@`#~ \n\t", "a", "run", "name", "{{", "}}", "---", "<<"]),
        max_size=40,
    )
)
def test_yaml_alike(parts: list[str]) -> None:
    source = "".join(parts)
    outcome = read(source)
    if isinstance(outcome, JobSpec):
        assert read_job(source, "ann") == outcome


ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(FIELDS),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from([*FIELDS, "cpu", "http", "policy", "0"]) | st.text(max_size=5), inner, max_size=5
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(FIELDS), ANY_VALUE, max_size=8))
def test_any_value_in_any_field(job: dict[str, object]) -> None:
    read(json.dumps({"name": "a", "run": ["x"], **job}))
    read(yaml.safe_dump(job, allow_unicode=True))


@settings(max_examples=examples(50))
@given(
    st.lists(
        st.sampled_from(["a: 1\n", "- b\n", "  c: [d, 'e']\n", '"f": |\n', " g\n", "{h: i}\n", "\n"]),
        max_size=12,
    )
)
def test_both_parsers_see_the_same(lines: list[str]) -> None:
    def outcome() -> object:
        try:
            return document.parse_all("".join(lines)).only()
        except Invalid:
            return Invalid

    quick = document._LOADER
    first = outcome()
    document._LOADER = yaml.SafeLoader
    try:
        assert outcome() == first
    finally:
        document._LOADER = quick


def laughs() -> str:
    lines = ["a0: &a0 [lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(lines)


MIB = 1024 * 1024
BOMBS: dict[str, Callable[[], str]] = {
    "billion laughs": laughs,
    "deep flow lists": lambda: "[" * MIB,
    "deep flow mappings": lambda: "{a: " * (MIB // 4),
    "deep block lists": lambda: "- " * (MIB // 2),
    "deep keys": lambda: "? " * (MIB // 2),
    "deep indentation": lambda: "\n".join(" " * n + "a:" for n in range(1400)),
    "deep json with a tab": lambda: "{\t" + '"a":[' * 200_000,
    "a number of 5,000 digits": lambda: f"name: a\nrun: [b]\ntasks: {'9' * 5000}",
    "a number of a million digits": lambda: f"tasks: {'9' * (MIB - 10)}",
    "an amount of a million digits": lambda: f"resources: {{cpu: {'9' * (MIB - 100)}}}",
    "many unknown fields": lambda: "\n".join(f"field{n}: {n}" for n in range(20_000)),
    "many wrong items": lambda: "run: [" + "[],".join([""] * 20_000) + "]",
    "many aliases": lambda: "run: [" + "*a," * 40_000 + "]",
    "many equal keys": lambda: "a: 1\n" * 20_000,
    "many documents": lambda: "--- a\n" * (MIB // 6),
    "many directives": lambda: "".join(f"%TAG !{n}! b\n" for n in range(50_000)),
    "many directives after a document": lambda: (
        "a\n...\n" + "".join(f"%TAG !{n}! b\n" for n in range(50_000))
    ),
    "many tags": lambda: "[" + "!a b," * 24_000 + "]",
    "a long key": lambda: f"{'k' * (MIB - 10)}: 1",
    "long unknown fields": lambda: "\n".join(f"{'x' * 1000}{n}: 1" for n in range(1000)),
    "one long line of mistakes": lambda: "{" + ", ".join(f"k{n}: 1" for n in range(20_000)) + "}",
    "one long quote": lambda: '"' + "a " * (MIB // 2 - 2) + '"',
    "braces": lambda: f"name: a\nrun: ['{'{' * 30_000}']",
    "many references": lambda: "name: a\nrun: [" + '"{{x}}", ' * 900 + "]",
    "wide constraints": lambda: f"name: a\nrun: [b]\nconstraints: ['a in ({'a,' * 100_000})']",
    "spaces in a constraint": lambda: f"name: a\nrun: [b]\nconstraints: ['a {' ' * 1000} b']",
    "backslashes in json": lambda: '{"a":\t"' + "\\\\" * 250_000 + '\\ud83d\\ude00"}',
    "surrogate pairs in json": lambda: '{"a":"' + "\\ud83d\\ude00" * 80_000 + '"}',
    "comments": lambda: "#\n" * (MIB // 2),
    "blank lines": lambda: "\n" * MIB,
    "nothing but spaces": lambda: " " * MIB,
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_soon(name: str) -> None:
    source = BOMBS[name]()[:MIB]
    limit = SOON_SECONDS if name.startswith(("deep", "a number", "billion")) else LARGE_SECONDS
    # The best of ten, by what this thread alone has used: what is measured is the reader, not what else
    # this process and the machine do.
    taken = []
    for _ in range(10):
        start = time.thread_time()
        assert isinstance(read(source), Invalid)
        taken.append(time.thread_time() - start)
        if taken[-1] < limit:
            break
    assert min(taken) < limit
