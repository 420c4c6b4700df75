"""Whatever the texts: documents or Invalid; and read together they say what each says alone."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from borgish.errors import Invalid
from borgish.spec.file.documents import Documents, Source, check_documents, read_documents
from borgish.spec.file.mistakes import lines_of, show_mistakes
from borgish.spec.file.read import read_job

PARTS = st.sampled_from(
    [
        *"-:?[]{},&*!|>'\"%@`#~ \n\t",
        *("\n---\n", "--- ", "\n...\n", "- ", "name: a\n", "run: [x]\n", "kind: app\n", "vars: {n: 1}\n"),
        *("'{{var.n}}'", "{{var.n}}", "tasks: ", "labels: {a: b}\n", "user: eve\n", "services: {a: {}}\n"),
        *(
            "apiVersion: v1\n",
            "kind: List\n",
            "items: [{}]\n",
            "[{kind: app, name: b}, 3]",
            "\r",
            "\x00",
            "\ud800",
        ),
    ]
)
TEXTS = st.lists(PARTS, max_size=30).map("".join)


def read(texts: list[str], variables: dict[str, str]) -> Documents | Invalid:
    sources = [Source(f"{number}.yaml", text) for number, text in enumerate(texts)]
    try:
        return read_documents(sources, "ann", variables=variables)
    except Invalid as error:
        found = error
    assert found.mistakes
    shown = show_mistakes(found.mistakes, "f")
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert {mistake.source for mistake in found.mistakes} <= {*(each.name for each in sources), "--var", ""}
    if len(texts) == 1:
        assert all(mistake.line <= len(lines_of(texts[0])) for mistake in found.mistakes)
    return found


@given(
    st.lists(st.text(alphabet=st.characters(categories=None), max_size=60) | TEXTS, max_size=4),
    st.dictionaries(st.sampled_from(["n", "m", "", "\udc00"]), st.sampled_from(["1", "x", "\ud800", "~"])),
)
@example(["- [", "kind: app\nname: [\n"], {})
@example(["name: a\nrun: [x]\n--- 'b\n--- ]\n---\n- "], {})
def test_any_texts(texts: list[str], variables: dict[str, str]) -> None:
    read(texts, variables)


LARGE_SECONDS = 1.0
NAMES = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True)
MORE = st.sampled_from(
    [
        "tasks: 3\n",
        "labels: {app: x}\n",
        "resources: {cpu: 2}\n",
        "ports: [http]\n",
        "vars: {v: 4}\ntasks: '{{var.v}}'\n",
    ]
)
BROKEN = st.sampled_from(["tasks: 0\n", "speed: 1\n", "tasks: 'x\n", "labels: [\n", "env: {A: &b c}\n"])


@st.composite
def jobs(draw: st.DrawFn, more: st.SearchStrategy[str]) -> list[str]:
    return [f"name: {name}\nrun: [{name}]\n{draw(more)}" for name in draw(NAMES)]


@given(jobs(MORE), st.integers(0, 6))
def test_together_and_one_by_one_they_say_the_same(texts: list[str], divided: int) -> None:
    alone = [read_job(text, "ann") for text in texts]
    files = ["---\n".join(texts[:divided]), "---\n".join(texts[divided:])]
    together = read_documents([Source(str(n), text) for n, text in enumerate(files) if text], "ann")
    assert [job.spec for job in together.jobs] == alone
    lines = "".join(f"{file}\n" for file in files if file).splitlines()
    assert [job.spec.name for job in together.jobs] == [
        line.removeprefix("name: ") for line in lines if line.startswith("name: ")
    ]


@given(jobs(MORE | BROKEN))
def test_those_with_mistakes_hide_no_others(texts: list[str]) -> None:
    def alone(text: str) -> object:
        try:
            return read_job(text, "ann")
        except Invalid:
            return None

    right = [spec for text in texts if (spec := alone(text)) is not None]
    documents, mistakes = check_documents([Source("f", "---\n".join(texts))], "ann")
    assert [job.spec for job in documents.jobs] == right
    assert bool(mistakes) is (len(right) < len(texts))


@pytest.mark.parametrize(
    "text",
    [
        "---\n]\n" * 98 + "\n" * 1_000_000,
        "\n" * 1_000_000 + "---\n]\n" * 98,
        "---\n'\n" * 150_000,
        "--- a\n" * 150_000,
    ],
    ids=["before", "behind", "all", "many"],
)
def test_a_text_full_of_broken_documents_is_read_soon(text: str) -> None:
    start = time.process_time()
    check_documents([Source("f", text)], "ann")
    assert time.process_time() - start < LARGE_SECONDS
