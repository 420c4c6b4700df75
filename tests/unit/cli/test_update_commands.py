"""``borgctl job update``, ``job undo`` and ``job restart --now``: what is asked, and how it reads."""

import json
from typing import Any

import msgspec
import pytest

from borgish.cli.rollouts import last_words, rollout_line, status_in_full, versions_words
from borgish.vocabulary import Hold, RolloutKind
from borgish.wire.api import Accepted, JobDetail, LastRolloutView, Problem, RolloutView
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import NOW, FakeMaster, decoded, job, spec

Out = pytest.CaptureFixture[str]
WAYS = (
    "`borgctl job update resume ann/web` tries on",
    "`borgctl job update undo ann/web` goes back to version 2",
)
UPDATE = RolloutView(RolloutKind.UPDATE, "updated to version 3", NOW, 13, 7, 2, ways_out=WAYS)


def detail(rollout: RolloutView | None = UPDATE, **changes: Any) -> JobDetail:
    made = JobDetail(job(tasks=20, version=3), spec(), (), rollout=rollout, versions={2: 13, 3: 7})
    return msgspec.structs.replace(made, **changes)


def rolling(**changes: Any) -> RolloutView:
    return msgspec.structs.replace(UPDATE, **changes)


@pytest.mark.parametrize(
    ("rollout", "line"),
    [
        (rolling(), "ann/web: version 3: 7 of 20 tasks changed"),
        (
            rolling(waits="task 7 has only just come up on m2"),
            "ann/web: version 3: 7 of 20 tasks changed; waits: task 7 has only just come up on m2",
        ),
        (
            rolling(waits="task 7 failed \x1b", hold=Hold.FAILED),
            "ann/web: version 3: 7 of 20 tasks changed; paused: task 7 failed \\x1b",
        ),
        (
            rolling(waits="paused by ann", hold=Hold.PAUSED),
            "ann/web: version 3: 7 of 20 tasks changed; paused by ann",
        ),
        (
            rolling(waits="1 task is well", hold=Hold.CANARY),
            "ann/web: version 3: 7 of 20 tasks changed; waits to be promoted: 1 task is well",
        ),
        (
            rolling(kind=RolloutKind.RESTART, left=0, changed=1),
            "ann/web: restart: 1 of 1 task restarted",
        ),
        (rolling(kind=RolloutKind.ROLLBACK), "ann/web: rollback: 7 of 20 tasks reached"),
    ],
)
def test_how_far_it_is_is_one_line(rollout: RolloutView, line: str) -> None:
    assert rollout_line(detail(rollout), rollout) == line


def test_versions_are_told_where_they_differ() -> None:
    assert versions_words(detail()) == "3 (running: 13 tasks of version 2, 7 tasks of version 3)"
    assert versions_words(detail(versions={3: 20})) == "3"
    assert versions_words(detail(versions={})) == "3"


def test_how_the_last_one_came_out_names_what_was_skipped() -> None:
    last = LastRolloutView(RolloutKind.UPDATE, 3, "complete but for 2 tasks", NOW, "3-4", "updated")
    assert last_words(detail(), last) == (
        "ann/web: version 3: complete but for 2 tasks; left as they were: 3-4"
    )
    lines = status_in_full(detail(None, last_rollout=last, versions={3: 20})).splitlines()
    assert [line.split("  ")[0] for line in lines] == ["job", "version", "last update", "skipped"]
    assert "updated: complete but for 2 tasks, " in lines[2]
    assert lines[3].endswith("3-4, left as they were: `borgctl job restart ann/web 3-4` changes them")


def test_the_status_says_what_it_waits_for_and_what_to_type(
    master: FakeMaster, run: Run, capsys: Out
) -> None:
    held = rolling(waits="task 7 failed", hold=Hold.FAILED)
    master.has(job()).answers["GET /v1/jobs/ann/web"] = detail(held)
    assert run("job", "update", "status", "web") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "job      ann/web"
    assert lines[3] == "so far   7 of 20 tasks changed, 2 at a time"
    assert lines[4] == "now      paused: task 7 failed"
    assert lines[5:] == [f"to type  {WAYS[0]}", f"         {WAYS[1]}"]


def test_the_status_of_a_job_that_was_never_changed(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.has(job())
    assert run("job", "update", "status", "web") == 0
    assert (
        capsys.readouterr().out
        == "job      ann/web\nversion  1\nno update is under way, and none has come to its end yet\n"
    )


def test_the_status_for_programs(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.has(job()).answers["GET /v1/jobs/ann/web"] = detail()
    assert run("job", "update", "status", "web", "-o", "json") == 0
    shown: Any = decoded(capsys.readouterr().out)
    assert (shown["job"], shown["version"], shown["versions"]) == ("ann/web", 3, {"2": 13, "3": 7})
    assert (shown["rollout"]["left"], shown["rollout"]["kind"]) == (13, "update")
    assert run("job", "update", "status", "web", "-o", "name") == 0
    assert capsys.readouterr().out == "ann/web\n"


@pytest.mark.parametrize(
    ("arguments", "verb", "body"),
    [
        (("update", "pause", "web"), "pause", None),
        (("update", "resume", "web"), "resume", None),
        (("update", "promote", "web"), "promote", None),
        (("update", "undo", "web"), "undo", {"version": 0}),
        (("update", "undo", "web", "--to", "2"), "undo", {"version": 2}),
        (("undo", "web"), "undo", {"version": 0}),
        (("undo", "web", "--to", "2"), "undo", {"version": 2}),
        (("restart", "web", "0-1"), "restart", {"indexes": [0, 1], "now": False, "max_affected": None}),
        (
            ("restart", "web", "--now", "--max-affected", "3"),
            "restart",
            {"indexes": None, "now": True, "max_affected": 3},
        ),
    ],
)
def test_what_is_asked(
    master: FakeMaster, run: Run, capsys: Out, arguments: tuple[str, ...], verb: str, body: object
) -> None:
    master.has(job()).answers[f"POST /v1/jobs/ann/web/{verb}"] = Accepted(9, "ann/web", "done \x1b")
    assert run("job", *arguments, "--if-generation", "7") == 0
    shown = capsys.readouterr()
    assert shown.out == "done \\x1b\n"
    follows = verb != "pause" and "--now" not in arguments
    assert shown.err == "hint: `borgctl job wait ann/web` follows it\n" * follows
    asked = master.asked[-1]
    assert asked.headers["If-Match"] == '"7"'
    assert (json.loads(asked.body) if asked.body else None) == body


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("update", "undo", "web", "--to", "0"), "--to"),
        (("undo", "web", "--to", "x"), "--to"),
        (("undo",), "Missing argument"),
        (("update", "nonsense", "web"), "No such command 'nonsense'"),
        (("rollout", "web"), "Did you mean 'borgctl job update web'?"),
        (("restart", "web", "--max-affected", "3"), "is for --now"),
        (("restart", "web", "1-"), "INDEXES"),
    ],
)
def test_what_is_wrong_is_not_asked(
    master: FakeMaster, run: Run, capsys: Out, arguments: tuple[str, ...], words: str
) -> None:
    master.has(job())
    assert run("job", *arguments) == 2
    assert words in capsys.readouterr().err
    assert not any(call.startswith("POST") for call in master.calls)


def test_a_refusal_says_what_to_do(master: FakeMaster, run: Run, capsys: Out) -> None:
    hint = "`borgctl job update status ann/web` shows how the last one came out"
    problem = Problem("Conflict", 409, "no update of ann/web is under way", hint=hint)
    master.has(job()).answers["POST /v1/jobs/ann/web/promote"] = problem
    assert run("job", "update", "promote", "web") == 1
    assert capsys.readouterr().err == f"error: no update of ann/web is under way\nhint: {hint}\n"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("rollout web", "job update status web"),
        ("rollout pause web", "job update pause web"),
        ("undo web", "job undo web"),
    ],
)
def test_what_others_call_it(run: Run, capsys: Out, typed: str, meant: str) -> None:
    assert run(*typed.split()) == 2
    assert f"Did you mean 'borgctl {meant}'?" in capsys.readouterr().err
