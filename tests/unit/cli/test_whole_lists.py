"""Lists that come whole: each is sorted, cut and shown by columns, and filtered by what its items have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from borgish.api.parameters import JOB_SORTS, MACHINE_SORTS, TASK_SORTS
from borgish.cli.commands import job as job_commands
from borgish.cli.commands import machine as machine_commands
from borgish.cli.commands import task as task_commands
from borgish.cli.listing import choose, order_by
from borgish.cli.render import Column, Form, age_column
from borgish.errors import Invalid
from borgish.resources import Resources
from borgish.vocabulary import Band, State
from borgish.wire.api import BudgetView, CheckpointView, QuotaView, VersionView
from borgish.wire.api_access import AuditView, GroupView, InvitationView, SecretView, TokenView, UserView
from borgish.wire.api_apps import AppDetail, AppVersionView
from borgish.wire.api_crons import CronView
from borgish.wire.api_past import HistoryView
from tests.unit.cli.commands import commands
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import APP, NOW, FakeMaster, event, job, machine

Out = pytest.CaptureFixture[str]
EARLIER, LATER, NEVER = "2025-01-01T00:00:00Z", "2026-06-01T00:00:00Z", "2199-01-01T00:00:00Z"

OTHER_APP = msgspec.structs.replace(
    APP, name="bob/api", user="bob", state=State.RUNNING, labels={"tier": "front"}, applied_at=EARLIER
)
CRON = CronView("ann/nightly", "ann", "0 2 * * *", "UTC", NOW, EARLIER, None, 3, 1, 5)
OTHER_CRON = msgspec.structs.replace(CRON, name="bob/hourly", user="bob", next=None, paused="bob")
TOKEN = TokenView("3f9c", "ann", "user", (), EARLIER, "root", NEVER, "", "")
OTHER_TOKEN = TokenView("0aa1", "bob", "user", (), NOW, "root", EARLIER, EARLIER, "")
CHECKPOINT = CheckpointView(40, NOW, "periodic", 3_000_000, "ab" * 32)
OTHER_CHECKPOINT = CheckpointView(9, EARLIER, "periodic", 2048, "cd" * 32, "noon", "it is damaged")


def quota(user: str, cpu_millis: int | None) -> QuotaView:
    limits = None if cpu_millis is None else Resources(cpu_millis)
    return QuotaView(user, Band.BATCH, limits, Resources(10), limits, None, True)


def secret(user: str, name: str) -> SecretView:
    return SecretView(user, name, 12, NOW, "ann", (), ())


def audit(number: int) -> AuditView:
    return AuditView(number, NOW, "ann", "admin", "", "", "submit", "ann/web", "done", 1, 3, "ab" * 32)


class Listed(msgspec.Struct):
    """What a master has of a list; ``names`` are what ``-o name`` shows of it, sorted."""

    items: tuple[object, ...]
    names: list[str]
    words: tuple[str, ...] = ()  # what the command needs
    answers: dict[str, object] = {}


LISTS = {
    "app list": Listed((OTHER_APP, APP), ["ann/shop", "bob/api"]),
    "app history": Listed(
        (AppVersionView(1, EARLIER, "ann", 1, False), AppVersionView(2, NOW, "ann", 1, True)),
        ["2", "1"],
        ("ann/shop",),
        {"GET /v1/apps/ann/shop": AppDetail(APP, ())},
    ),
    "job history": Listed(
        (VersionView(1, EARLIER, "ann", 0), VersionView(2, NOW, "ann", 3, True)),
        ["ann/web@2", "ann/web@1"],
        ("web",),
        {"GET /v1/jobs": {"items": [job()]}},
    ),
    "cron list": Listed((OTHER_CRON, CRON), ["ann/nightly", "bob/hourly"]),
    "machine invitations": Listed(
        (InvitationView("b", "", 1, NOW, "ann", LATER), InvitationView("a", "m1", 1, NOW, "ann", NEVER)),
        ["a", "b"],
    ),
    "quota list": Listed((quota("bob", 100), quota("ann", None)), ["ann/batch", "bob/batch"]),
    "user list": Listed(
        (UserView("bob", NOW, (), (), 1), UserView("ann", EARLIER, (), (), 0)), ["ann", "bob"]
    ),
    "group list": Listed((GroupView("b", NOW, (), ()), GroupView("a", NOW, ("ann",), ())), ["a", "b"]),
    "token list": Listed((TOKEN, OTHER_TOKEN), ["0aa1", "3f9c"]),
    "secret list": Listed((secret("ann", "tls"), secret("ann", "db")), ["ann/db", "ann/tls"]),
    "cell list": Listed((), ["lab", "main"]),
    "audit": Listed((audit(9), audit(10)), ["10", "9"]),
    "budget list": Listed(
        (BudgetView("web", (), "10%", 1, 10, 0, 2), BudgetView("db", (), "1", 1, 3, 1, 1)), ["db", "web"]
    ),
    "events": Listed((event(9), event(10)), ["10", "9"]),
    "history": Listed(
        (HistoryView(9, NOW, 1, 1, "ann", "submit"), HistoryView(10, NOW, 1, 1, "bob", "kill")), ["10", "9"]
    ),
    "checkpoint list": Listed((CHECKPOINT, OTHER_CHECKPOINT), ["40", "9"]),
}
BY_ANOTHER_KEY = {"job history": "version", "checkpoint list": "position"}
BY_THE_MASTER = ("job list", "task list", "machine list")
CUT_BY_THE_MASTER = ("audit", "events", "history")
PATHS = {
    "app history": "/v1/apps/ann/shop/versions",
    "job history": "/v1/jobs/ann/web/versions",
    "machine invitations": "/v1/invitations",
    **{name: f"/v1/{name}" for name in CUT_BY_THE_MASTER},
}
IS_LIST = ("list", "history", "invitations", "events", "audit")


def path_of(name: str) -> str:
    return PATHS.get(name, f"/v1/{name.partition(' ')[0]}s")


@pytest.fixture
def show(master: FakeMaster, run: Run, capsys: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the lines that a list writes with some options."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("main", "lab"):
        folder = tmp_path / "borgish" / "cells" / name
        folder.mkdir(parents=True)
        (folder / "client.json").write_text('{"url": "http://127.0.0.1:1"}')

    def shown(name: str, *options: str, code: int = 0) -> list[str]:
        listed = LISTS[name]
        page = {"items": listed.items, "page": {"next": ""}}
        master.answers |= {f"GET {path_of(name)}": page, **listed.answers}
        assert run(*name.split(), *listed.words, *options) == code, capsys.readouterr()
        said = capsys.readouterr()
        return (said.err if code else said.out).splitlines()

    return shown


Show = Callable[..., list[str]]


def test_every_list_takes_the_same_options() -> None:
    lists = {" ".join(path): command for path, command in commands() if path[-1] in IS_LIST}
    assert lists.keys() == {*LISTS, *BY_THE_MASTER}
    for name, command in lists.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert options >= {"--sort", "--columns", "--limit", "--output"}, name


@pytest.mark.parametrize("name", LISTS)
def test_it_is_sorted_by_name(name: str, show: Show) -> None:
    key, names = BY_ANOTHER_KEY.get(name, "name"), LISTS[name].names
    assert show(name, "--sort", key, "-o", "name") == names
    assert show(name, f"--sort=-{key}", "-o", "name") == names[::-1]


@pytest.mark.parametrize("name", LISTS)
def test_it_is_cut(name: str, show: Show, master: FakeMaster) -> None:
    whole = show(name, "-o", "name")
    cut = show(name, "--limit", "1", "-o", "name")
    if name in CUT_BY_THE_MASTER:
        assert master.asked[-1].query["limit"] == "1"
    else:
        assert cut == (whole[-1:] if name.endswith("history") else whole[:1])
    assert show(name, "--limit", "0", code=2)


@pytest.mark.parametrize("name", LISTS)
def test_its_columns_are_chosen(name: str, show: Show) -> None:
    titles = show(name)[0].split("  ")
    title = titles[-1].strip()
    header, *rows = show(name, "--columns", title.lower())
    assert header.strip() == title
    assert len(rows) == len(LISTS[name].names)
    said = "".join(show(name, "--columns", "nmae", code=2))
    assert "there is no column 'nmae'; there are " in said
    assert title.lower() in said
    assert "goes with the tables and with csv" in "".join(
        show(name, "--columns", title, "-o", "json", code=2)
    )


@pytest.mark.parametrize("name", LISTS)
def test_an_order_that_there_is_not_is_refused_before_anything_is_listed(
    name: str, show: Show, master: FakeMaster
) -> None:
    said = show(name, "--sort", "nmae", code=2)
    assert said[0] == "error: sort: there is no order 'nmae'"
    assert said[1].startswith("hint: Use one of name, ")
    assert path_of(name) not in [asked.path for asked in master.asked]


# By what it is sorted


ORDERS = [
    ("app list", "applied", ["ann/shop", "bob/api"]),
    ("app list", "-applied", ["bob/api", "ann/shop"]),
    ("cron list", "next", ["ann/nightly", "bob/hourly"]),
    ("quota list", "limit", ["ann/batch", "bob/batch"]),
    ("token list", "ends", ["3f9c", "0aa1"]),
    ("token list", "used", ["0aa1", "3f9c"]),
    ("checkpoint list", "-size", ["9", "40"]),
    ("checkpoint list", "name", ["9", "40"]),
    ("machine invitations", "ends", ["a", "b"]),
    ("history", "who", ["9", "10"]),
]


@pytest.mark.parametrize(("name", "key", "names"), ORDERS)
def test_moments_and_amounts_are_sorted_as_such(name: str, key: str, names: list[str], show: Show) -> None:
    assert show(name, f"--sort={key}", "-o", "name") == names


Row = tuple[str, str]
COLUMNS: tuple[Column[Row], ...] = (
    Column("TEXT", lambda row: row[0]),
    Column("NUMBER", lambda row: row[1], right=True),
    age_column("AGE", lambda row: LATER if row[0] == "a" else EARLIER),
)


@pytest.mark.parametrize(
    ("key", "order"),
    [
        ("", "cab"),
        ("text", "abc"),
        ("-TEXT", "cba"),
        ("number", "bca"),  # 10, 9, and then what is none
        ("-number", "acb"),
        ("age", "acb"),
        ("name", "bca"),
    ],
)
def test_text_is_put_in_order_and_the_largest_number_first(key: str, order: str) -> None:
    rows = [("c", "9"), ("a", "-"), ("b", "10")]
    ordered = order_by(key, COLUMNS, lambda row: row[1])(rows)
    assert "".join(text for text, _ in ordered) == order


def test_no_other_order() -> None:
    with pytest.raises(Invalid, match="there is no order 'x'") as refused:
        order_by("x", COLUMNS, lambda row: row[0])
    assert refused.value.hint == "Use one of name, text, number, age, with a - before it for the reverse"


def test_a_chosen_column_is_shown_in_any_table() -> None:
    wide = (Column[Row]("A", str, wide=True), Column[Row]("B", str, rare=True))
    (chosen, _), fields = choose("b, a,b", wide, Form.TABLE)[0], choose("x", wide, Form.CSV)[1]
    assert (chosen.title, chosen.rare, list(fields)) == ("B", False, ["x"])


def test_what_completes_is_what_the_master_sorts_by() -> None:
    assert job_commands.JOB_SORTS == JOB_SORTS
    assert task_commands.TASK_SORTS == TASK_SORTS
    assert machine_commands.MACHINE_SORTS == MACHINE_SORTS


# Filters


FILTERS = [
    ("app list", ("--user", "bob"), ["bob/api"]),
    ("app list", ("--state", "pending"), ["ann/shop"]),
    ("app list", ("-l", "tier in (front, back)"), ["bob/api"]),
    ("app list", ("-l", "!tier", "--user", "bob"), []),
    ("cron list", ("--user", "ann"), ["ann/nightly"]),
    ("cron list", ("--state", "paused"), ["bob/hourly"]),
    ("cron list", ("--state", "active"), ["ann/nightly"]),
    ("token list", ("--user", "bob"), ["0aa1"]),
    ("token list", ("--state", "valid"), ["3f9c"]),
    ("token list", ("--state", "ended"), ["0aa1"]),
    ("checkpoint list", ("--state", "bad"), ["9"]),
    ("checkpoint list", ("--state", "good"), ["40"]),
]


@pytest.mark.parametrize(("name", "options", "names"), FILTERS)
def test_only_what_is_asked_for_is_listed(
    name: str, options: tuple[str, ...], names: list[str], show: Show
) -> None:
    assert show(name, *options, "-o", "name") == names


@pytest.mark.parametrize(
    ("name", "options", "query"),
    [
        ("quota list", ("--user", "ann"), {"user": "ann"}),
        ("secret list", ("--user", "ann"), {"user": "ann"}),
        ("audit", ("--user", "ann"), {"user": "ann"}),
        ("history", ("--machine", "m"), {"machine": "m1"}),
        ("history", ("--machine", "gone"), {"machine": "gone"}),
        ("cron list", ("--columns", "name,then"), {"times": "true"}),
    ],
)
def test_the_master_is_asked_for_it(
    name: str, options: tuple[str, ...], query: dict[str, str], show: Show, master: FakeMaster
) -> None:
    master.answers["GET /v1/machines"] = {"items": [machine("m1")]}
    show(name, *options)
    assert master.asked[-1].path == path_of(name)
    assert master.asked[-1].query.items() >= query.items()


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("app list", ("--state", "well"), "'well' is not one of 'pending', 'running', 'dead'"),
        ("cron list", ("--state", "dead"), "'dead' is not one of 'active', 'paused'"),
        ("token list", ("--state", "over"), "'over' is not one of 'valid', 'ended'"),
        ("checkpoint list", ("--state", "ok"), "'ok' is not one of 'good', 'bad'"),
        ("app list", ("-l", "a=b=c"), "error: label: 'a=b=c' is not a condition"),
        ("history", ("m1", "--machine", "m1"), "cannot be combined with a name"),
        ("history", ("--cell", "--machine", "m1"), "cannot be combined with --machine"),
        ("events", ("-f", "--sort", "at"), "cannot be combined with --sort"),
    ],
)
def test_a_filter_that_is_none_is_refused(
    name: str, options: tuple[str, ...], words: str, show: Show
) -> None:
    assert words in " ".join(show(name, *options, code=2))


# Watching


@pytest.fixture
def two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a watch end with its second look."""
    waits = iter((True,))

    class Changes:
        def __init__(self, *_: object) -> None:
            pass

        def wait(self, _: float) -> bool:
            if next(waits, None) is None:
                raise KeyboardInterrupt
            return True

    monkeypatch.setattr("borgish.cli.changes.Changes", Changes)
    monkeypatch.setattr("borgish.cli.listing.WATCH_SECONDS_MIN", 0.0)


@pytest.mark.usefixtures("two_looks")
@pytest.mark.parametrize("name", ["app list", "cron list", "quota list", "budget list", "checkpoint list"])
def test_what_did_not_change_is_not_written_again(name: str, show: Show, master: FakeMaster) -> None:
    lines = show(name, "--watch", "-o", "name", "--sort", "name")
    assert sorted(lines) == sorted(LISTS[name].names)
    assert [asked.path for asked in master.asked] == [path_of(name)] * 2


@pytest.mark.parametrize(
    ("name", "count", "nouns"),
    [("events", 50, "events"), ("audit", 100, "entries"), ("history", 100, "entries")],
)
@pytest.mark.parametrize("form", ["table", "jsonl", "csv"])
def test_the_latest_say_that_there_are_earlier_ones(
    name: str, count: int, nouns: str, form: str, master: FakeMaster, run: Run, capsys: Out
) -> None:
    first: Any = LISTS[name].items[0]
    key = "number" if name == "audit" else "position"
    there = [msgspec.structs.replace(first, **{key: at}) for at in range(1, count + 2)]
    sorted_by = ("--sort", f"-{key}")
    master.answers[f"GET /v1/{name}"] = {"items": there, "page": {"next": ""}}
    assert run(name, *sorted_by, "-o", form) == 0
    said = capsys.readouterr()
    assert said.err == f"not shown: {nouns} before the latest {count}; `--limit N` shows more\n"
    assert len(said.out.splitlines()) == count + (form != "jsonl")
    assert master.asked[-1].query["limit"] == str(count + 1)
    master.answers[f"GET /v1/{name}"] = {"items": there[1:], "page": {"next": ""}}
    assert run(name, *sorted_by, "-o", form) == 0
    assert capsys.readouterr().err == ""


def test_without_quotas_it_is_said_that_nothing_is_asked_for_that_one_could_limit(
    master: FakeMaster, run: Run, capsys: Out
) -> None:
    master.answers["GET /v1/quotas"] = {"items": [], "page": {"next": ""}}
    assert run("quota", "list") == 0
    said = "no quotas, and nothing is asked for that one could limit; `borgctl quota set USER` makes one\n"
    assert capsys.readouterr() == ("", said)


def test_events_that_are_followed_have_the_columns_that_are_chosen(
    show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("borgish.cli.changes.Changes.wait", interrupted)
    assert show("events", "-f", "--columns", "position") == ["POSITION", "       9", "      10"]
