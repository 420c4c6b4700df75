"""Variables of documents: declared, given, filled in; and what is wrong with them."""

import pytest

from borgish.errors import Invalid, Mistake
from borgish.spec.file import variables
from borgish.spec.file.documents import Source, read_documents
from borgish.spec.file.read import read_job
from borgish.spec.job import JobSpec
from borgish.vocabulary import VariableType


def job(text: str, **given: str) -> JobSpec:
    return read_job(f"name: web\n{text}", "ann", variables=given)


def wrong(text: str, **given: str) -> tuple[Mistake, ...]:
    with pytest.raises(Invalid) as caught:
        job(text, **given)
    return caught.value.mistakes


def test_a_whole_reference_is_the_value_and_one_inside_is_replaced() -> None:
    text = (
        'vars: {n: 3, tag: "1", on: true}\nrun: [serve, "a {{var.n}} {{ var.tag }}{{task.index}}"]\n'
        'tasks: "{{var.n}}"\ngang: "{{var.on}}"\nenv: {TAG: "{{var.tag}}", N: "{{var.n}}"}\n'
    )
    spec = job(text)
    assert (spec.tasks, spec.gang, spec.env) == (3, True, {"TAG": "1", "N": "3"})
    assert spec.run == ("serve", "a 3 1{{task.index}}")
    assert job(text, n="5").tasks == 5


@pytest.mark.parametrize("value", ["", "~", "null"])
def test_a_text_that_yaml_takes_for_nothing_is_a_value(value: str) -> None:
    text = 'vars: {tag: {type: text}}\nrun: [serve]\nenv: {TAG: "{{var.tag}}"}\n'
    assert job(text, tag=value).env == {"TAG": value}


def test_no_value_changes_the_rest_of_a_document() -> None:
    text = 'vars: {tag: x}\nrun: [serve, "{{var.tag}}", "-{{var.tag}}"]\n'
    assert job(text, tag='"]\nuser: eve').run[1] == '"]\nuser: eve'
    assert wrong(text, tag="{{var.tag}}")[0].message.endswith("is not known")  # and not filled in again


@pytest.mark.parametrize(
    ("text", "given", "message", "hint"),
    [
        ("run: ['{{var.tag}}']", {}, "run[0]: the variable 'tag' is not declared", "declare it: vars: {tag"),
        (
            "vars: {tga: a}\nrun: ['{{var.tag}}']",
            {},
            "run[0]: the variable 'tag' is not declared",
            "{{var.tga}}",
        ),
        ("vars: {tag: {type: text}}\nrun: [x]", {}, "vars.tag: the variable has no value", "--var tag=VALUE"),
        ("vars: {n: 1}\nrun: [x]", {"n": "a"}, "n: 'a' is not a whole number", "its type is int"),
        ("vars: {n: true}\nrun: [x]", {"n": "yes"}, "n: 'yes' is neither true nor false", "its type is bool"),
        (
            "vars: {n: {choices: [small, large]}}\nrun: [x]",
            {"n": "larg"},
            "n: 'larg' is not one of",
            "large?",
        ),
        ("vars: {tag: a}\nrun: [x]", {"tga": "b"}, "no document declares the variable 'tga'", "mean tag?"),
        ("run: [x]", {"tag": "b"}, "no document declares the variable 'tag'", "vars: {NAME: DEFAULT}"),
        (
            "vars: {n: {type: int, default: a}}\nrun: [x]",
            {},
            "vars.n.default: 'a' is not a whole",
            "type is int",
        ),
        (
            "vars: {n: {type: number}}\nrun: [x]",
            {},
            "vars.n.type: 'number' is not one of text, int, bool",
            "",
        ),
        ("vars: {n: {choices: [1], default: 2}}\nrun: [x]", {}, "vars.n.default: '2' is not one of '1'", ""),
        ("vars: {n: }\nrun: [x]", {}, "vars.n: there is no default", "{type: text}"),
        ("vars: {n: [1]}\nrun: [x]", {}, "vars.n: a list", "a default, or {type: text}"),
        (
            "vars: {n: '{{var.n}}'}\nrun: [x]",
            {},
            "vars.n: a variable cannot be made of others",
            "write the value",
        ),
        ("vars: {'a b': 1}\nrun: [x]", {}, "vars.a b: 'a b' cannot be used here", "letters"),
        ("vars: 3\nrun: ['{{var.n}}']", {}, "vars: a single text, where a mapping", "{replicas: 3}"),
        ("vars: {t: a}\nrun: [x]", {"t": "\udcff"}, "t: '\\udcff' is no text", "another"),
        ("vars: {t: a}\nrun: [x]", {"t": "a\0"}, "t: 'a\\x00' is no text", "another"),
        ("vars: {n: 0}\nrun: [x]\ntasks: '{{var.n}}'", {}, "tasks: 0 is outside 1 to 10000", "from 1"),
        ("vars: {n: 0}\nrun: [x]\ntasks: {{var.n}}", {}, "a substitution without quotes", '"{{var.n}}"'),
        (
            "vars: {n: 0}\nrun: [x]\nworkdir: /{{var.n}}\nimage: {{var.n}}:3",
            {},
            "a substitution without quotes",
            "",
        ),
    ],
)
def test_mistakes(text: str, given: dict[str, str], message: str, hint: str) -> None:
    found = wrong(text, **given)
    assert len(found) == 1, found
    assert found[0].message.startswith(message)
    assert hint in found[0].hint
    assert bool(found[0].line) is not (found[0].source == "--var")


def test_short_texts_do_not_become_endless_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variables, "BODY_BYTES_MAX", 100)
    uses = ", ".join(["'{{var.t}}'"] * 4)
    text = f"vars: {{t: {'x' * 30}}}\nrun: [x, {uses}]"
    assert "more than 100 bytes" in wrong(text)[0].message
    assert "more than 4096" in wrong(f"vars: {{t: {'x' * 5000}}}\nrun: [x]")[0].message


def test_those_of_the_application_are_for_all_and_a_jobs_own_count_more() -> None:
    app = "kind: app\nname: shop\nvars: {tag: app, n: 2}\nlabels: {tag: '{{var.tag}}'}\n"
    jobs = (
        "name: a\nvars: {tag: own}\nrun: ['{{var.tag}}']\ntasks: '{{var.n}}'\n"
        "---\nname: b\nrun: ['{{var.tag}}']\n"
    )
    found = read_documents([Source("jobs", jobs), Source("app", app)], "ann")
    assert [(it.spec.run, it.spec.tasks, it.spec.labels) for it in found.jobs] == [
        (("own",), 2, {"tag": "app"}),
        (("app",), 1, {"tag": "app"}),
    ]
    assert [(it.name, it.value, it.source, it.line) for it in found.variables] == [
        ("tag", "app", "app", 3),
        ("n", "2", "app", 3),
        ("tag", "own", "jobs", 2),
    ]
    assert (found.variables[1].type, found.variables[1].default) == (VariableType.INT, "2")
    with pytest.raises(Invalid, match="'n' is not declared"):
        read_documents(
            [Source("jobs", "name: a\nrun: ['{{var.n}}']\n---\nname: b\nvars: {n: 1}\nrun: [x]")], "ann"
        )


def test_nothing_follows_from_an_application_that_cannot_be_read() -> None:
    with pytest.raises(Invalid) as caught:
        read_documents(
            [Source("app", "kind: app\nname: 'a\n"), Source("b", "name: b\nrun: ['{{var.n}}']")], "ann"
        )
    assert [it.source for it in caught.value.mistakes] == ["app"]
