"""Lists of jobs, tasks and machines: what is asked of the master, in which form it is shown, and how it goes
on."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from borgish.cli.commands.cell import CellRow
from borgish.cli.commands.drain import WindowRow
from borgish.cli.commands.task import folded
from borgish.cli.doctor.diagnosis import Finding
from borgish.cli.forms import Template, fields_of
from borgish.errors import Invalid
from borgish.spec.file.read import read_job
from borgish.text import safe_lines
from borgish.vocabulary import Outcome, State
from borgish.wire.api import (
    AsOf,
    BudgetView,
    CheckpointView,
    EventView,
    JobDetail,
    JobList,
    JobView,
    MachineList,
    MachineView,
    Page,
    Problem,
    QuotaView,
    TaskList,
    TaskView,
    VersionView,
)
from borgish.wire.api_access import AuditView, GroupView, InvitationView, SecretView, TokenView, UserView
from borgish.wire.api_apps import AppView
from borgish.wire.api_crons import CronView
from borgish.wire.api_past import HistoryView
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import Asked, FakeMaster, job, machine, spec, task

Out = pytest.CaptureFixture[str]


def dead(index: int, **changes: object) -> TaskView:
    made = {"state": State.DEAD, "outcome": Outcome.FINISHED, "exit_code": 0, "phase": None} | changes
    return task(name=f"ann/array/{index}", job="ann/array", index=index, **made)


def asked_for(master: FakeMaster, path: str) -> dict[str, str]:
    return next(each.query for each in reversed(master.asked) if each.path == path)


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        (("job", "list"), {"recent": "true"}),
        (("job", "list", "--all"), {}),
        (("job", "list", "--state", "dead"), {"state": "dead"}),
        (("job", "list", "-a", "-l", "app=web,!old"), {"label": "app=web,!old"}),
        (
            ("job", "list", "--user", "ann", "--machine", "m"),
            {"user": "ann", "machine": "m1", "recent": "true"},
        ),
        (("job", "list", "-a", "--sort", "-up", "--limit", "3"), {"sort": "-up", "limit": "3"}),
        (("task", "list", "-l", "app", "--user", "ann"), {"label": "app", "user": "ann"}),
        (("task", "list", "web", "--sort", "cpu"), {"job": "ann/web"}),
        (("task", "list", "--sort", "cpu", "--limit", "1000"), {"sort": "cpu", "limit": "1000"}),
        (
            ("machine", "list", "-l", "rack=r1", "--state", "drained"),
            {"label": "rack=r1", "state": "drained"},
        ),
        (("machine", "list", "--sort", "trouble"), {}),
    ],
)
def test_what_is_asked_of_the_master(
    master: FakeMaster, run: Run, arguments: tuple[str, ...], query: dict[str, str]
) -> None:
    master.has(job()).answers["GET /v1/tasks"] = TaskList((task(),))
    master.answers["GET /v1/machines"] = MachineList((machine(),))
    assert run(*arguments, "-o", "name") == 0
    path = f"/v1/{arguments[0]}s"
    first = next(
        each.query for each in master.asked if each.path == path and each.query.items() >= query.items()
    )
    assert first == query


def test_jobs_that_ended_before_are_counted_on_stderr(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.answers["GET /v1/jobs"] = JobList((job(),), left_out=3)
    assert run("job", "list") == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("NAME ")
    assert shown.err == "not shown: 3 jobs that ended earlier; `borgctl job list --all` has all\n"
    assert run("job", "list", "-o", "name") == 0
    assert capsys.readouterr() == (
        "ann/web\n",
        "not shown: 3 jobs that ended earlier; `borgctl job list --all` has all\n",
    )
    assert run("job", "list", "--all") == 0
    assert capsys.readouterr().err == ""


def test_no_more_than_the_limit_is_fetched(master: FakeMaster, run: Run, capsys: Out) -> None:
    def page(asked: Asked) -> TaskList:
        begin = int(asked.query.get("after", 0))
        count = int(asked.query["limit"])
        return TaskList(tuple(dead(begin + index) for index in range(count)), Page(str(begin + count)))

    master.answers["GET /v1/tasks"] = page
    assert run("task", "list", "--limit", "1500", "-o", "name") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1500
    assert [each.query["limit"] for each in master.asked] == ["1000", "1000"]


@pytest.mark.parametrize(
    ("options", "indexes"),
    [
        ((), [1, 0, 2]),
        (("--limit", "1001"), [1, 0, 2]),
        (("--sort", "-restarts"), [2, 0, 1]),
        (("--sort", "name"), [0, 1, 2]),
        (("--sort", "-name"), [2, 1, 0]),
    ],
)
def test_a_long_list_comes_by_name_and_is_sorted_here(
    master: FakeMaster, run: Run, capsys: Out, options: tuple[str, ...], indexes: list[int]
) -> None:
    """So that what moves in the order between two pages is on one of them all the same."""
    restarts = (3, 7, 0)

    def page(asked: Asked) -> TaskList:
        index = int(asked.query.get("after", "0"))
        item = task(name=f"ann/web/{index}", index=index, restarts=restarts[index])
        return TaskList((item,), Page(str(index + 1) if index < 2 else ""))

    master.answers["GET /v1/tasks"] = page
    assert run("task", "list", "--sort", "restarts", *options, "-o", "name") == 0
    assert capsys.readouterr().out.splitlines() == [f"ann/web/{index}" for index in indexes]
    assert len(master.asked) == 3
    assert not any("sort" in each.query for each in master.asked)


def test_an_order_that_there_is_not_is_refused(master: FakeMaster, run: Run, capsys: Out) -> None:
    assert run("machine", "list", "--sort", "up") == 2
    assert capsys.readouterr().err == (
        "error: sort: there is no order 'up'\n"
        "hint: Use one of name, trouble, tasks, cpu, ram, with a - before it for the reverse\n"
    )
    assert master.asked == []


def test_columns_are_chosen_by_their_titles(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.answers["GET /v1/tasks"] = TaskList((task(address={"http": "10.0.0.7:20001"}),))
    assert run("task", "list", "--columns", "address, Name,pid") == 0
    assert capsys.readouterr().out == (
        "ADDRESS              NAME        PID\nhttp=10.0.0.7:20001  ann/web/0  4242\n"
    )
    assert run("task", "list", "--columns", "naem") == 2
    assert (
        "there is no column 'naem'; there are name, state, phase, machine, ports" in capsys.readouterr().err
    )
    assert run("task", "list", "--columns", "name", "-o", "json") == 2
    assert "goes with the tables and with csv" in capsys.readouterr().err


def test_addresses_are_in_the_wide_table_and_where_one_is_shown(
    master: FakeMaster, run: Run, capsys: Out
) -> None:
    at = task(address={"http": "10.0.0.7:20001"})
    master.has(job()).answers["GET /v1/tasks"] = TaskList((at,))
    master.answers["GET /v1/tasks/ann/web/0"] = at
    for arguments in (("task", "list", "-o", "wide"), ("task", "show", "web/0"), ("job", "show", "web")):
        assert run(*arguments) == 0
        assert "http=10.0.0.7:20001" in capsys.readouterr().out
    assert run("task", "list") == 0
    assert "10.0.0.7" not in capsys.readouterr().out


def test_finished_and_failed_are_told_apart(master: FakeMaster, run: Run, capsys: Out) -> None:
    ended = [job(name="a/f", state=State.DEAD, outcome=each) for each in (Outcome.FINISHED, Outcome.FAILED)]
    master.answers["GET /v1/jobs"] = JobList(tuple(ended))
    assert run("job", "list", "-o", "template={state} {outcome}") == 0
    assert capsys.readouterr().out == "dead finished\ndead failed\n"
    assert run("job", "list", "--columns", "state") == 0
    assert capsys.readouterr().out == "STATE\ndead (finished)\ndead (failed)\n"


# Dead tasks that are alike


def names(tasks: list[TaskView]) -> list[str]:
    return [each.name.removeprefix("ann/array/") for each in folded(tasks)]


def test_dead_tasks_that_came_out_alike_are_one_line() -> None:
    array = [dead(index) for index in range(10_000)]
    assert names(array) == ["0-9999"]
    array[17] = dead(17, outcome=Outcome.FAILED, exit_code=1)
    assert names(array) == ["0-16", "17", "18-9999"]
    array[20] = dead(20, state=State.RUNNING)
    assert names(array)[2:] == ["18", "19", "20", "21-9999"]


def test_few_stay_by_themselves_and_so_do_those_that_do_not_follow() -> None:
    assert names([dead(index) for index in range(3)]) == ["0", "1", "2"]
    assert names([dead(index) for index in (0, 2, 4, 6, 8)]) == ["0", "2", "4", "6", "8"]
    several = [dead(index, reason="oom" if index < 2 else "x", exit_code=1) for index in range(6)]
    (one,) = folded(several)
    assert (one.reason, one.exit_code) == ("", 1)
    other = [msgspec.structs.replace(each, job="ann/b", name=f"ann/b/{each.index}") for each in several]
    assert [each.name for each in folded([*several, *other])] == ["ann/array/0-5", "ann/b/0-5"]


def test_only_the_table_sums_them_up_and_all_writes_them(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.answers["GET /v1/tasks"] = TaskList(tuple(dead(index) for index in range(50)))
    assert run("task", "list") == 0
    _, line = capsys.readouterr().out.splitlines()
    assert line.startswith("ann/array/0-49  dead (finished)")
    for other in (("-o", "wide"), ("-o", "name"), ("-o", "jsonl"), ("--all",), ("-o", "csv")):
        assert run("task", "list", *other) == 0
        assert len(capsys.readouterr().out.splitlines()) >= 50, other


# Forms


def test_a_line_for_each_item(master: FakeMaster, run: Run, capsys: Out) -> None:
    items = (job(), job(name="bob/b", reason="\x1b[2J\u202e"))
    master.answers["GET /v1/jobs"] = JobList(items)
    assert run("job", "list", "-o", "jsonl") == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert tuple(msgspec.json.decode(line, type=JobView) for line in shown.splitlines()) == items


def test_csv_has_a_column_for_each_field(master: FakeMaster, run: Run, capsys: Out) -> None:
    first, second = task(ports={"http": 1}), task(name="ann/web/1", usage=None, reason='a "b",\nc\x1b')
    master.answers["GET /v1/tasks"] = TaskList((first, second))
    assert run("task", "list", "-o", "csv") == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    one, other = csv.DictReader(io.StringIO(shown))
    assert (one["name"], one["resources.cpu_millis"], one["usage.cpu_millis"]) == ("ann/web/0", "500", "12")
    assert json.loads(one["ports"]) == {"http": 1}
    assert (other["usage.cpu_millis"], other["pid"], other["reason"]) == ("", "4242", 'a "b",\\x0ac\\x1b')
    assert tuple(one) == fields_of(TaskView)
    assert run("task", "list", "-o", "csv", "--columns", "name,resources.ram_bytes") == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["name,resources.ram_bytes", "ann/web/0,268435456"]
    assert run("task", "list", "-o", "csv", "--columns", "nam") == 2
    assert "there is no field 'nam'" in capsys.readouterr().err


def test_every_command_has_the_forms(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.has(job()).answers["GET /v1/tasks/ann/web/0"] = task()
    assert run("task", "show", "web/0", "-o", "template={name} on {machine}") == 0
    assert run("task", "show", "web/0", "-o", "csv") == 0
    assert run("job", "show", "web", "-o", "jsonl") == 0
    template, header, row, line = capsys.readouterr().out.splitlines()
    assert template == "ann/web/0 on m1"
    assert len(next(csv.reader([header]))) == len(next(csv.reader([row])))
    assert msgspec.json.decode(line, type=JobDetail).job == job()


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{name}", "ann/web/0"),
        ("{name:<12}|{attempt:>4}|", "ann/web/0   |  17|"),
        ("{resources.cpu_millis}m", "500m"),
        ("{ports.http}{ports.admin}", "20001"),
        ("{usage.cpu_millis},{outcome}", "12,"),
        ("{ports}", '{"http":20001}'),
        ("{{x}}\t{index}", "{x}\t0"),
        ("{reason}\x1b[2J", "\\x1b[2J\\x1b[2J"),
    ],
)
def test_a_template_is_filled(template: str, text: str) -> None:
    assert Template(template).filled(task(reason="\x1b[2J")) == text


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{nmae}", "there is no field 'nmae'. Did you mean name"),
        ("{resources.cpu}", "there is no field 'resources.cpu'. Did you mean resources.cpu_millis"),
        ("{name.x}", "there is no field 'name.x'"),
        ("{zzzzzzzz}", "There are name, job, user, index"),
        ("{name:d}", "name: Unknown format code 'd'"),
        ("{}", "each field has a name"),
        ("{name!r}", "no conversion"),
        ("{name", "expected '}'"),
        ("", "template: it is empty"),
    ],
)
def test_what_is_no_template_is_said(template: str, words: str) -> None:
    with pytest.raises(Invalid) as refused:
        Template(template).filled(task())
    assert words in str(refused.value)


def test_a_wrong_form_names_those_there_are(run: Run, capsys: Out) -> None:
    assert run("job", "list", "-o", "xml") == 2
    assert "is not one of table, wide, json, yaml, jsonl, csv, name, template=" in capsys.readouterr().err
    assert run("job", "list", "-o", "file") == 2
    assert run("job", "list", "-o", "template={name") == 2
    capsys.readouterr()
    assert run("job", "list", "-o", "template=") == 2
    assert "template: it is empty. Write it like '{name} {resources.cpu_millis}'" in capsys.readouterr().err


# Files


def test_a_job_is_shown_as_its_file(master: FakeMaster, run: Run, capsys: Out) -> None:
    made = spec(labels={"app": "web"}, env={"A": "b\u202e\x1b[2J"})
    master.has(job()).answers["GET /v1/jobs/ann/web"] = JobDetail(job(), made, ())
    assert run("job", "show", "web", "-o", "file") == 0
    shown = capsys.readouterr().out
    assert read_job(shown, "bob") == made
    assert shown == safe_lines(shown)


def test_a_file_without_its_values_is_refused(master: FakeMaster, run: Run, capsys: Out) -> None:
    hidden = JobDetail(job(), spec(env={"A": "***"}), ())
    master.has(job()).answers["GET /v1/jobs/ann/web"] = hidden
    assert run("job", "show", "web", "-o", "file") == 4
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "are shown to its user and to admins only" in shown.err


# Watching


class Clockwork:
    """In place of ``Changes``: tells of news at once, and is interrupted in the end."""

    looks = 0

    def __init__(self, *_: object) -> None:
        pass

    def wait(self, _: float) -> bool:
        Clockwork.looks -= 1
        if not Clockwork.looks:
            raise KeyboardInterrupt
        return True


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("borgish.cli.changes.Changes", Clockwork)
    monkeypatch.setattr("borgish.cli.listing.WATCH_SECONDS_MIN", 0.0)
    Clockwork.looks = 3
    yield
    Clockwork.looks = 0


def changing(*states: tuple[JobView, ...]) -> Iterator[JobList]:
    for jobs in states:
        yield JobList(jobs)


@pytest.mark.usefixtures("looks")
def test_into_a_pipe_each_change_is_a_line(master: FakeMaster, run: Run, capsys: Out) -> None:
    pages = changing((job(), job(name="a/b")), (job(up=2), job(name="a/b")), (job(up=2),))
    master.answers["GET /v1/jobs"] = lambda _: next(pages)
    assert run("job", "list", "--watch", "--columns", "name,up") == 0
    shown = capsys.readouterr()
    assert shown.out == "NAME      UP\nann/web  3/3\na/b      3/3\nann/web  2/3\n"
    assert shown.err == "a/b is not in the list any more\n"


@pytest.mark.usefixtures("looks")
def test_what_is_watched_as_json_is_an_object_on_a_line(master: FakeMaster, run: Run, capsys: Out) -> None:
    pages = changing((job(),), (job(),), (job(reason="now"),))
    master.answers["GET /v1/jobs"] = lambda _: next(pages)
    assert run("job", "list", "-w", "-o", "json") == 0
    assert [json.loads(line)["reason"] for line in capsys.readouterr().out.splitlines()] == ["", "now"]


@pytest.mark.usefixtures("looks")
def test_on_a_terminal_it_is_drawn_anew(
    master: FakeMaster, run: Run, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("borgish.cli.listing.is_terminal", lambda _: True)
    monkeypatch.setenv("LINES", "8")
    many = tuple(job(name=f"ann/j{number}") for number in range(20))
    pages = changing((job(),), (), many)
    master.answers["GET /v1/jobs"] = lambda _: next(pages)
    assert run("job", "list", "--watch") == 0
    first, second, third = capsys.readouterr().out.split("\x1b[H\x1b[2J")[1:]
    assert "ann/web" in first
    assert "no jobs" in second
    assert "and 15 more; --limit, or a filter, shows less" in third
    assert len(third.splitlines()) == 8


@pytest.mark.usefixtures("looks")
def test_a_master_that_is_away_is_waited_for(master: FakeMaster, run: Run, capsys: Out) -> None:
    away = Problem("", 503, "the master is away")
    answers = iter([JobList((job(),)), away, JobList((job(up=1),))])
    master.answers["GET /v1/jobs"] = lambda _: next(answers)
    assert run("job", "list", "-w", "--columns", "up") == 0
    shown = capsys.readouterr()
    assert shown.out == " UP\n3/3\n1/3\n"
    assert shown.err == "the master is away; waiting for it\n"


def test_what_has_no_end_is_not_watched(master: FakeMaster, run: Run, capsys: Out) -> None:
    master.has(job())
    assert run("job", "list", "--watch", "-o", "yaml") == 2
    assert "a list in yaml has no end" in capsys.readouterr().err
    master.answers["GET /v1/moment"] = AsOf(3, "2026-01-02T03:04:05Z")
    assert run("job", "list", "--watch", "--at", "3") == 2
    assert "only the present changes" in capsys.readouterr().err


@pytest.mark.parametrize(
    "kind",
    [
        *(JobView, TaskView, MachineView, EventView, QuotaView, BudgetView, CheckpointView, VersionView),
        *(UserView, GroupView, TokenView, SecretView, InvitationView, AuditView),
        *(AppView, CronView, HistoryView, Finding, CellRow, WindowRow),
    ],
)
def test_every_list_has_columns_for_csv(kind: type[msgspec.Struct]) -> None:
    names = fields_of(kind)
    assert len(set(names)) == len(names)
    assert {name.partition(".")[0] for name in names} == {
        it.encode_name for it in msgspec.structs.fields(kind)
    }


def test_files_that_are_checked_are_no_csv(run: Run, capsys: Out, tmp_path: Path) -> None:
    file = tmp_path / "web.yaml"
    file.write_text("name: web\nrun: [sleep, '1']\n")
    assert run("job", "check", file, "-o", "csv") == 2
    assert "files are shown as yaml, json or jsonl" in capsys.readouterr().err
    assert run("job", "check", file, "-o", "jsonl") == 0
    assert json.loads(capsys.readouterr().out)["name"] == "web"
