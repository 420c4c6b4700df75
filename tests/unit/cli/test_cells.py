"""Lists of several cells: which cells are meant, what is asked of each, and what is shown of all."""

import csv
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from borgish.api.parameters import JOB_SORTS, MACHINE_SORTS, TASK_SORTS
from borgish.cli import cells
from borgish.cli.complete import cells as completed
from borgish.cli.merging import RANKS, merged
from borgish.resources import Resources
from borgish.vocabulary import Outcome, State
from borgish.wire.api import JobList, MachineList, Problem, TaskList, WhoamiView
from tests.ports import free_port
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import FakeMaster, job, machine, status, task
from tests.unit.cli.several import keep, logged_in

Out = pytest.CaptureFixture[str]
Masters = dict[str, FakeMaster]


@pytest.fixture
def run(at_home: Run) -> Run:
    return at_home


@pytest.fixture
def masters(run: Run, tmp_path: Path) -> Iterator[Masters]:
    """Two cells with a job each, and one that both have."""
    with logged_in(tmp_path / "config", "east", "west") as made:
        made["east"].has(job(name="ann/both"), job(name="ann/web"))
        made["west"].has(job(name="ann/both", priority=300), job(name="ann/db", priority=100))
        yield made


def away(home: Path, name: str = "north") -> str:
    """Be logged in to a cell that nobody answers for; return where it would be."""
    url = f"http://127.0.0.1:{free_port()}"
    keep(home / "config", name, url)
    return url


def names_of(out: str) -> list[str]:
    return out.splitlines()


@pytest.mark.parametrize("asked", ["all", "east,west", "west, east,west"])
def test_a_list_of_several_cells_is_one_list(asked: str, masters: Masters, run: Run, capsys: Out) -> None:
    assert run("job", "list", "--cells", asked, "--columns", "cell,name,up") == 0
    assert capsys.readouterr().out == (
        "CELL  NAME       UP\n"
        "east  ann/both  3/3\n"
        "west  ann/both  3/3\n"
        "west  ann/db    3/3\n"
        "east  ann/web   3/3\n"
    )


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--sort", "priority"), ["west ann/both", "east ann/both", "east ann/web", "west ann/db"]),
        (("--sort=-name",), ["east ann/web", "west ann/db", "west ann/both", "east ann/both"]),
        (("--sort", "priority", "--limit", "2"), ["west ann/both", "east ann/both"]),
        (("--limit", "3"), ["east ann/both", "west ann/both", "west ann/db"]),
    ],
)
def test_order_and_limit_are_of_the_whole(
    options: tuple[str, ...], names: list[str], masters: Masters, run: Run, capsys: Out
) -> None:
    """Each master sorts its own, as these here have when they are asked."""
    if "priority" in options:
        masters["east"].has(job(name="ann/both"), job(name="ann/web"))
    if "--sort=-name" in options:
        masters["east"].has(job(name="ann/web"), job(name="ann/both"))
        masters["west"].has(job(name="ann/db"), job(name="ann/both"))
    assert run("job", "list", "--all", "--cells", "all", *options, "-o", "name") == 0
    assert names_of(capsys.readouterr().out) == names
    for master in masters.values():
        assert (
            next(each.query for each in master.asked if each.path == "/v1/jobs").items()
            >= {
                **({"limit": options[-1]} if "--limit" in options else {}),
            }.items()
        )


def test_the_forms_of_programs_have_the_cell_first(masters: Masters, run: Run, capsys: Out) -> None:
    arguments = ("task", "list", "--cells", "all", "-o")
    for name, master in masters.items():
        master.answers["GET /v1/tasks"] = TaskList((task(machine=f"m-{name}"),))
    assert run(*arguments, "json") == 0
    items = json.loads(capsys.readouterr().out)
    assert [list(item)[:2] for item in items] == [["cell", "name"]] * 2
    assert [(item["cell"], item["machine"]) for item in items] == [("east", "m-east"), ("west", "m-west")]
    assert "as_of" not in items[0]  # as in the list of one cell, which leaves out what is as usual
    assert run(*arguments, "jsonl") == run(*arguments, "yaml") == 0
    assert '{"cell":"east","name":"ann/web/0",' in (said := capsys.readouterr().out)
    assert "- cell: east\n  name: ann/web/0\n" in said
    assert run(*arguments, "csv") == 0
    assert [row["cell"] for row in csv.DictReader(capsys.readouterr().out.splitlines())] == ["east", "west"]
    assert run(*arguments, "template={cell}:{name} {resources.cpu_millis}") == 0
    assert capsys.readouterr().out == "east:ann/web/0 500\nwest:ann/web/0 500\n"


def test_a_cell_that_is_away_or_refuses_is_left_out(
    masters: Masters, run: Run, capsys: Out, tmp_path: Path
) -> None:
    url = away(tmp_path)
    masters["west"].answers["GET /v1/whoami"] = Problem("Unauthorized", 401, "the token is not known")
    masters["east"].answers["GET /v1/machines"] = MachineList((machine(),))
    assert run("machine", "list", "--cells", "all", "-o", "name") == 4
    said = capsys.readouterr()
    assert said.out == "east m1\n"
    north, west = said.err.splitlines()
    assert north.startswith(f"error: north: {url} cannot be reached: connection refused. Does a borgmaster")
    assert west == "error: west: the token is not known. `borgctl login URL --name west` keeps another token"


def test_a_cell_that_says_nothing_holds_up_nobody(
    masters: Masters, run: Run, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "PATIENCE_SECONDS", 0.2)
    over = threading.Event()
    masters["west"].answers["GET /v1/whoami"] = lambda _: over.wait(60)
    try:
        assert run("job", "list", "--cells", "all", "-o", "name") == 4
    finally:
        over.set()
    said = capsys.readouterr()
    assert names_of(said.out) == ["east ann/both", "east ann/web"]
    assert said.err.startswith("error: west: ")


def test_all_cells_are_asked_at_the_same_time(masters: Masters, run: Run) -> None:
    together = threading.Barrier(2, timeout=30)

    def answered(_: object) -> JobList:
        together.wait()
        return JobList(())

    for master in masters.values():
        master.answers["GET /v1/jobs"] = answered
    assert run("job", "list", "--all", "--cells", "all") == 0


def test_what_only_some_cells_know_is_listed_there(masters: Masters, run: Run, capsys: Out) -> None:
    for master in masters.values():
        master.answers["GET /v1/tasks"] = TaskList((task(),))
        master.answers["GET /v1/apps"] = master.answers["GET /v1/crons"] = {"items": ()}
    assert run("task", "list", "web", "--cells", "all", "-o", "name") == 0
    assert capsys.readouterr() == ("east ann/web/0\n", "")
    assert run("task", "list", "wbe", "--cells", "all") == 1
    east, west = capsys.readouterr().err.splitlines()
    assert east.startswith("error: east: there is no job 'wbe'. Did you mean ann/web")
    assert west.startswith("error: west: there is no job 'wbe'")


def test_what_is_wrong_with_the_question_is_said_once(masters: Masters, run: Run, capsys: Out) -> None:
    for master in masters.values():
        master.answers["GET /v1/jobs"] = Problem("Bad Request", 400, "'app=' is not a condition")
    assert run("job", "list", "--cells", "all", "-l", "app=") == 2
    assert capsys.readouterr().err == "error: 'app=' is not a condition\n"


def test_jobs_that_are_left_out_are_counted_over_all_cells(masters: Masters, run: Run, capsys: Out) -> None:
    for master in masters.values():
        master.answers["GET /v1/jobs"] = JobList((job(),), left_out=2)
    assert run("job", "list", "--cells", "all") == 0
    assert capsys.readouterr().err.startswith("not shown: 4 jobs that ended earlier")


def test_dead_tasks_are_one_line_for_each_cell(masters: Masters, run: Run, capsys: Out) -> None:
    over = {"state": State.DEAD, "outcome": Outcome.FINISHED, "exit_code": 0, "phase": None, "job": "ann/a"}
    tasks = tuple(task(name=f"ann/a/{index}", index=index, **over) for index in range(5))
    for master in masters.values():
        master.answers["GET /v1/tasks"] = TaskList(tasks)
    assert run("task", "list", "--cells", "all", "--columns", "cell,name") == 0
    assert capsys.readouterr().out == "CELL  NAME\neast  ann/a/0-4\nwest  ann/a/0-4\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("job", "list", "--cells", ""), 2, "names no cell"),
        (("job", "list", "--cells", "all", "--watch"), 2, "a watch is of one cell"),
        (("job", "list", "--cells", "all", "--at", "1h"), 2, "a moment is of one cell"),
        (("--url", "http://127.0.0.1:1", "task", "list", "--cells", "all"), 2, "--url: cannot be used"),
        (("--token-file", "x", "task", "list", "--cells", "all"), 2, "--token-file: cannot be used"),
        (("--read-from", "standby", "task", "list", "--cells", "all"), 2, "--read-from: cannot be used"),
        (("--dir", "x", "task", "list", "--cells", "all"), 2, "goes with --cells where local is among"),
        (("job", "list", "--cells", "east,est"), 1, "not logged in to a cell 'est'\nhint: Known are east, w"),
        (("job", "list", "--cells", "../east"), 1, "not logged in to a cell '../east'"),
        (("cell", "status", "--cells", "est"), 1, "not logged in to a cell 'est'"),
    ],
)
def test_what_does_not_go_together(
    arguments: tuple[str, ...], code: int, words: str, masters: Masters, run: Run, capsys: Out
) -> None:
    assert run(*arguments) == code
    assert words in capsys.readouterr().err
    assert [master.asked for master in masters.values()] == [[], []]


def test_what_the_environment_says_is_for_one_cell(
    masters: Masters, run: Run, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BORGISH_MASTER", "http://127.0.0.1:1")
    monkeypatch.setenv("BORGISH_TOKEN_FILE", "x")
    assert run("job", "list", "--cells", "east", "-o", "name") == 0
    assert masters["east"].asked[0].headers["Authorization"] == "Bearer bgt_east"


def test_without_a_login_there_are_no_cells(run: Run, capsys: Out) -> None:
    assert run("job", "list", "--cells", "all") == 1
    assert "not logged in to any cell\nhint: `borgctl login URL`" in capsys.readouterr().err
    assert run("job", "list", "--cells", "local") == 4
    assert "error: local: there is no cell in" in capsys.readouterr().err


def test_the_nearest_cell_needs_no_login(masters: Masters, run: Run, capsys: Out, tmp_path: Path) -> None:
    """Also one that ``--dir`` names."""
    kept = tmp_path / "config" / "borgish" / "cells" / "west"
    kept.rename(tmp_path / "here")
    assert run("--dir", tmp_path / "here", "job", "list", "--cells", "all,local", "-o", "name") == 0
    assert names_of(capsys.readouterr().out)[:2] == ["east ann/both", "local ann/both"]


@pytest.mark.parametrize("name", ["local", "all"])
def test_a_word_for_other_cells_is_no_cell_s_name(name: str, masters: Masters, run: Run, capsys: Out) -> None:
    (Path.home() / "token").write_text("bgt_x\n")
    url = masters["east"].url
    assert run("login", url, "--name", name, "--token-file", Path.home() / "token") == 2
    assert f"'{name}' means" in capsys.readouterr().err


def test_a_login_keeps_all_masters_that_are_named(
    masters: Masters, run: Run, capsys: Out, tmp_path: Path
) -> None:
    (Path.home() / "token").write_text("bgt_x\n")
    gone, there = f"http://127.0.0.1:{free_port()}", masters["east"].url
    masters["east"].answers["GET /v1/whoami"] = WhoamiView("ann", "user")
    named = f"{gone},{there}"
    assert run("login", named, "--name", "pair", "--token-file", Path.home() / "token") == 0
    kept = json.loads((tmp_path / "config" / "borgish" / "cells" / "pair" / "client.json").read_bytes())
    assert (kept["url"], kept["masters"]) == (gone, [gone, there])
    capsys.readouterr()
    assert run("job", "list", "-o", "name") == 0
    assert names_of(capsys.readouterr().out) == ["ann/both", "ann/web"]


def test_names_of_cells_are_completed(masters: Masters) -> None:
    assert completed("") == ["all", "local", "east", "west"]
    assert completed("east,w") == ["east,west"]


def test_the_status_of_all_cells(masters: Masters, run: Run, capsys: Out, tmp_path: Path) -> None:
    away(tmp_path)
    masters["east"].answers["GET /v1/status"] = status()
    full = msgspec.structs.replace(status(), refusing=("the disk is full",), pending=2)
    masters["west"].answers["GET /v1/status"] = full
    assert run("cell", "status") == 4
    assert capsys.readouterr().out == (
        "NAME   STATE            MACHINES  RUNNING  PENDING  CPU         RAM\n"
        "east   ok                    2/3        3        0  4/8  4GiB/16GiB\n"
        "north  unreachable             -        -        -    -           -\n"
        "west   refuses changes       2/3        3        2  4/8  4GiB/16GiB\n"
    )
    assert run("cell", "status", "--cells", "west", "-o", "json") == 0
    (item,) = json.loads(capsys.readouterr().out)
    assert (item["name"], item["reason"], item["machines_up"]) == ("west", "the disk is full", 2)
    masters["west"].answers["GET /v1/status"] = Problem("Forbidden", 403, "not for you")
    assert run("cell", "status", "--cells", "west", "-o", "template={state}: {reason}") == 4
    assert capsys.readouterr().out == "not allowed: not for you\n"


def test_each_order_of_a_master_is_known_here() -> None:
    of_masters = {"job": JOB_SORTS, "task": TASK_SORTS, "machine": MACHINE_SORTS}
    assert {noun: set(ranks) - {""} for noun, ranks in RANKS.items()} == {
        noun: set(keys) for noun, keys in of_masters.items()
    }


def test_what_a_master_sorted_stays_in_its_order() -> None:
    """Also where its views do not tell why: a task that is up and has a probe that has not answered."""
    odd = [machine("m9", committed=Resources(1, 1)), machine("m1", committed=Resources(9, 1))]
    found = list(merged({"east": odd, "west": [machine("m5", committed=Resources(5, 1))]}, "machine", "cpu"))
    assert [(item.cell, item.name) for item in found] == [("west", "m5"), ("east", "m9"), ("east", "m1")]
