"""Several documents read together: what becomes of each, and every mistake of all of them at once."""

import json
import re
from typing import Any

import pytest

from borgish.errors import Invalid, Mistake
from borgish.spec.app import AppSpec
from borgish.spec.file import documents as reading
from borgish.spec.file.documents import Documents, Source, check_documents, read_documents
from borgish.spec.file.mistakes import MISTAKES_MAX, show_mistakes
from borgish.spec.file.read import read_job

APP = "kind: app\nname: shop\nlabels: {app: shop, tier: any}\n"
WEB = "name: web\ntasks: 3\nrun: [serve]\nlabels: {tier: front}\nenv: {A: b}\n"
DB = "name: db\nrun: [keep]\n"


def read(*texts: str, user: str = "ann", **variables: str) -> Documents:
    return read_documents(
        [Source(f"{n}.yaml", text) for n, text in enumerate(texts)], user, variables=variables
    )


def wrong(*texts: str, **variables: str) -> tuple[Mistake, ...]:
    with pytest.raises(Invalid) as caught:
        read(*texts, **variables)
    return caught.value.mistakes


def places(*texts: str, **variables: str) -> list[tuple[str, int, str]]:
    return [(it.source, it.line, it.message) for it in wrong(*texts, **variables)]


def test_an_application_with_its_jobs() -> None:
    found = read(f"{APP}---\n{WEB}---\n{DB}---\n")
    assert found.app == AppSpec("shop", "ann", {"app": "shop", "tier": "any"})
    assert [(job.spec.key, job.source, job.line) for job in found.jobs] == [
        ("ann/web", "0.yaml", 5),
        ("ann/db", "0.yaml", 11),
    ]
    web, db = found.jobs
    assert web.spec.labels == {"app": "shop", "tier": "front"}
    assert db.spec.labels == {"app": "shop", "tier": "any"}
    assert web.document.named == ("env.A", "labels.app", "labels.tier", "name", "run", "tasks")
    assert db.document.named == ("labels.app", "labels.tier", "name", "run")


def test_the_application_may_stand_anywhere() -> None:
    together = read(f"{APP}---\n{WEB}---\n{DB}")
    apart = read(DB, WEB, APP)
    assert apart.app == together.app
    assert [job.spec for job in apart.jobs] == [job.spec for job in reversed(together.jobs)]


def test_documents_as_a_list() -> None:
    jobs: list[Any] = [{"kind": "app", "name": "shop"}, None, {"name": "web", "run": ["serve"]}]
    found = read(json.dumps(jobs, indent=1))
    assert [job.spec.key for job in found.jobs] == ["ann/web"]
    jobs.append({"name": "db", "run": ["keep"], "resources": {"cpu": "1x"}})
    (mistake,) = wrong(json.dumps(jobs, indent=1))
    assert mistake.path == "[3].resources.cpu"
    assert mistake.message.startswith("[3].resources.cpu: '1x'")


def test_every_mistake_of_every_document_at_once() -> None:
    first = "name: web\nrun: [x]\ntasks: 0\n---\nname: b\nrun: 'x\n---\nname: web\nrun: [x]\nspeed: 1\n"
    second = "kind: app\nname: y\n---\nname: c\nrun: [x]\ntasks: many\n"
    assert places(first, second, "# nothing\n") == [
        ("0.yaml", 3, "tasks: 0 is outside 1 to 10000"),
        ("0.yaml", 6, "a quote that is never closed"),
        ("0.yaml", 8, "name: the job 'web' is there twice; the first is in 0.yaml:1"),
        ("0.yaml", 10, "'speed' is not a field of the job"),
        ("1.yaml", 6, "tasks: 'many' is not a whole number"),
        ("2.yaml", 1, "the file is empty"),
    ]


def test_what_has_a_mistake_is_not_among_the_documents() -> None:
    texts = [
        "kind: app\nname: shop\nspeed: 1\n",
        DB,
        DB,
        f"{WEB}user: eve\n",
        "name: x\nrun: [x]\nlabels: &a {}\n",
    ]
    found, mistakes = check_documents([Source(str(n), text) for n, text in enumerate(texts)], "ann")
    assert found.app is None
    assert [(job.spec.name, job.source) for job in found.jobs] == [("db", "1")]
    assert [mistake.source for mistake in mistakes] == ["0", "2", "3", "4"]


def test_the_error_names_the_first_mistake_and_its_file() -> None:
    with pytest.raises(Invalid) as caught:
        read(WEB, "name: b\nrun: [x]\ntasks: 0\n")
    assert caught.value.message == "1.yaml has a mistake; line 3: tasks: 0 is outside 1 to 10000"
    shown = show_mistakes(caught.value.mistakes, "unused")
    assert shown.startswith("1.yaml:3:8: tasks: 0 is outside 1 to 10000\n  tasks: 0\n         ^\n")
    with pytest.raises(Invalid, match=re.escape("2 mistakes in 2 files; 0.yaml:3: tasks: 0")):
        read("name: a\nrun: [x]\ntasks: 0\n", "name: b\nrun: [x]\ntasks: 0\n")


@pytest.mark.parametrize("broken", ["'x", '"x', "[x", "{x", "x: y: z", "@", "]", "&a *a", "\t- x"])
def test_a_document_that_is_not_yaml_hides_no_other(broken: str) -> None:
    found, mistakes = check_documents([Source("a", f"{DB}---\nname: x\nrun: {broken}\n---\n{WEB}")], "ann")
    assert [job.spec.name for job in found.jobs] == ["db", "web"]
    assert {mistake.line for mistake in mistakes} <= {4, 5, 6}
    assert mistakes


def test_what_is_wrong_with_the_divider_itself_is_told_once() -> None:
    assert [line for _, line, _ in places(f"{DB}--- ]\n---\n{WEB}")] == [3]


def test_one_name_twice_across_files() -> None:
    assert places(f"{APP}---\n{DB}", DB) == [
        ("1.yaml", 1, "name: the job 'db' is there twice; the first is in 0.yaml:5")
    ]
    assert read("kind: app\nname: db\n", DB).app is not None  # an application and a job are no namesakes
    alloc_set = "kind: alloc_set\nname: db\nresources: {cpu: 1}\n"
    assert len(wrong(DB, alloc_set)) == 1


def test_two_applications() -> None:
    assert places(APP, "kind: app\nname: b\n") == [
        ("1.yaml", 1, "a second application (kind: app); the first is in 0.yaml:1")
    ]


def test_a_second_application_hides_no_variables_of_its_jobs() -> None:
    other = "kind: app\nname: b\nvars: {release: x}\n---\nname: web\nrun: ['{{var.release}}']\n"
    (mistake,) = wrong(APP, other)
    assert mistake.message.startswith("a second application")


def test_all_belong_to_one_user() -> None:
    assert read(f"{DB}user: bob\n", f"{WEB}user: bob\n").user == "bob"
    assert read(f"{APP}user: bob\n", DB).jobs[0].spec.key == "bob/db"
    (mistake,) = wrong(f"{DB}user: bob\n", WEB)
    assert mistake.message == "user: 'bob' is another user than ann, whose the others are"
    (mistake,) = wrong(f"{APP}user: eve\n", f"{DB}user: bob\n")
    assert "'bob' is another user than eve" in mistake.message


def test_kinds() -> None:
    (mistake,) = wrong("kind: jbo\nname: x\nrun: [x]")
    assert mistake.message.startswith("kind: 'jbo' is not one of app, job, alloc_set")
    assert mistake.hint == "did you mean job?"


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "DOCUMENTS_MAX", 2)
    (mistake,) = wrong("---\n".join(f"name: w{n}\nrun: [x]\n" for n in range(3)))
    assert mistake.message == "3 documents; at most 2 are read together"
    monkeypatch.setattr(reading, "DOCUMENTS_BYTES_MAX", 40)
    (mistake,) = wrong(DB, WEB)
    assert "8 MiB" in mistake.message
    assert "1 MiB" in wrong("#" * (1024 * 1024 + 1))[0].message or "8 MiB" in mistake.message
    assert wrong()[0].message == "there is no file to read"


def test_more_mistakes_than_are_told() -> None:
    texts = ["\n".join(f"a{n}: 1" for n in range(MISTAKES_MAX + 5)), "name: a\nrun: [x]\nspeed: 1\n"]
    mistakes = wrong(*texts)
    assert len(mistakes) == MISTAKES_MAX + 1
    assert mistakes[-1].message == f"more than {MISTAKES_MAX} mistakes; the rest was not checked"


def test_the_labels_of_an_application_reach_the_runs_of_its_crons() -> None:
    nightly = "kind: cron\nname: nightly\nschedule: '@daily'\nrun: [clean]\nlabels: {tier: back}\n"
    staged = "kind: cron\nname: hourly\nschedule: '@hourly'\napp: shop\n"
    own, stages = read(APP, nightly, staged).crons
    assert own.job.labels == {"app": "shop", "tier": "back"}
    assert stages.job.labels == {}, "its stages have theirs"


def test_labels_of_both_are_bounded() -> None:
    many = ", ".join(f"l{n}: x" for n in range(64))
    assert (
        "65 labels" in wrong("kind: app\nname: a\nlabels: {own: x}\n", f"{DB}labels: {{{many}}}\n")[0].message
    )


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (f"{DB}---\n{WEB}", "a second document (after ---)", "borgctl apply"),
        (APP, "this is an application (kind: app), not a job", "borgctl apply"),
        ("kind: cron\nname: x\n", "this is a cron job (kind: cron), not a job", "borgctl apply"),
        ("[{name: a, run: [x]}]", "this is a list of documents, not a job", "borgctl apply"),
    ],
)
def test_what_is_not_submitted_as_one_job(text: str, message: str, hint: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_job(text, "ann")
    assert caught.value.mistakes[0].message == message
    assert hint in caught.value.mistakes[0].hint


def test_empty_documents_are_left_out() -> None:
    assert read_job(f"---\n{DB}---\n# the end\n", "ann").name == "db"
    assert len(read(f"---\n---\n{DB}---\n---\n").jobs) == 1
