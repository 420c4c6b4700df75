"""``borgctl history`` against a small master: names, times, pages, and the table."""

import json
import time
from collections.abc import Iterator

import msgspec
import pytest

from borgish.api.views.history import COMMAND_WORDS
from borgish.cli.commands.history import OF_APPLICATIONS
from borgish.wire.api import EventView, Page
from borgish.wire.api_past import HistoryList, HistoryView
from tests.unit.cli.conftest import Run
from tests.unit.cli.samples import NOW, Asked, FakeMaster, event, job, machine

Out = pytest.CaptureFixture[str]
GOLDEN = """\
AT                   POSITION  WHO        ASKED   WHAT
2026-01-02 05:04:05         3  ann        submit  ann submitted ann/web: 3 tasks
2026-01-02 05:04:05        12  scheduler  place   ann/web tasks 0-1 placed on m1
2026-01-02 05:04:05        12  scheduler  place   ann/web/2 placed on \\x1b[2Jm2
2026-01-02 05:04:05       100  ann        kill    nothing to kill: all of it is dead already
"""
WIDE = "AT                   POSITION  EPOCH  WHO        ASKED   ABOUT    WHAT"


@pytest.fixture(autouse=True)
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be in a zone two hours before UTC."""
    monkeypatch.setenv("TZ", "EAST-02:00")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def entry(position: int, *events: EventView, **changes: object) -> HistoryView:
    view = HistoryView(position, NOW, 1, 2, "ann", "submit", "ann/web", "the answer", events)
    return msgspec.structs.replace(view, **changes)


ENTRIES = (
    entry(3, event(3, "ann submitted ann/web: 3 tasks")),
    entry(
        12,
        event(12, "ann/web tasks 0-1 placed on m1"),
        event(12, "ann/web/2 placed on \x1b[2Jm2"),
        actor="scheduler",
        asked="place",
        subject="",
    ),
    entry(100, asked="kill", text="nothing to kill: all of it is dead already"),
)


@pytest.fixture
def there(master: FakeMaster) -> FakeMaster:
    master.has(job(), job(name="ann/m1"), job(name="ann/m2-web"))
    master.answers["GET /v1/machines"] = {"items": [machine("m1"), machine("m2")]}
    master.answers["GET /v1/history"] = HistoryList(ENTRIES, Page(), 100, NOW)
    return master


def test_the_table(there: FakeMaster, run: Run, capsys: Out) -> None:
    assert run("history") == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (GOLDEN, "")
    assert there.asked[-1].query == {"limit": "101"}
    assert run("history", "--cell", "-o", "wide") == 0
    wide = capsys.readouterr().out.splitlines()
    assert wide[0] == WIDE
    assert "1.2" in wide[1]


def test_other_forms_are_of_entries(there: FakeMaster, run: Run, capsys: Out) -> None:
    assert run("history", "-o", "name") == 0
    assert capsys.readouterr().out == "3\n12\n100\n"
    assert run("history", "-o", "json") == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=tuple[HistoryView, ...]) == ENTRIES
    assert run("history", "-o", "yaml") == 0
    assert "nothing to kill" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("web", {"job": "ann/web"}),
        ("ann/web", {"job": "ann/web"}),
        ("web/7", {"task": "ann/web/7"}),
        ("ann/web/0", {"task": "ann/web/0"}),
        ("m1", {"machine": "m1"}),
        ("ann/m1", {"job": "ann/m1"}),
        ("m2-web", {"job": "ann/m2-web"}),
        ("bob/forgotten", {"job": "bob/forgotten"}),
        ("bob/forgotten/3", {"task": "bob/forgotten/3"}),
    ],
)
def test_names_can_be_shortened(there: FakeMaster, run: Run, name: str, query: dict[str, str]) -> None:
    assert run("history", name) == 0
    assert there.asked[-1].query == query | {"limit": "101"}


def test_a_machine_by_its_beginning(there: FakeMaster, run: Run, capsys: Out) -> None:
    there.answers["GET /v1/machines"] = {"items": [machine("rack-1"), machine("other")]}
    assert run("history", "rack") == 0
    assert there.asked[-1].query["machine"] == "rack-1"
    assert run("history", "wob") == 1
    assert "there is no job, task or machine 'wob'" in (said := capsys.readouterr().err)
    assert "Did you mean ann/web?" in said
    assert run("history", "zzz") == 1
    assert "named in full: ann/web" in capsys.readouterr().err


def test_times_get_the_zone_of_who_asks(there: FakeMaster, run: Run) -> None:
    assert run("history", "--since", "2026-01-31T12:00", "--until", "2026-01-31T12:00:00Z") == 0
    query = there.asked[-1].query
    assert query["since"] == "2026-01-31T12:00:00+02:00"
    assert query["until"] == "2026-01-31T12:00:00+00:00"
    assert run("history", "--since", "2h", "--until", "nonsense") == 0  # the master says what is wrong
    assert (there.asked[-1].query["since"], there.asked[-1].query["until"]) == ("2h", "nonsense")


def test_pages_are_asked_for_until_there_is_enough(there: FakeMaster, run: Run, capsys: Out) -> None:
    def pages(asked: Asked) -> HistoryList:
        end = int(asked.query.get("before") or 3001)
        start = end - min(700, int(asked.query["limit"]))
        return HistoryList(tuple(entry(p) for p in range(start, end)), Page(str(start)))

    there.answers["GET /v1/history"] = pages
    assert run("history", "-n", "1500", "-o", "name") == 0
    assert capsys.readouterr().out.split() == [str(p) for p in range(1501, 3001)]
    assert [asked.query["limit"] for asked in there.asked] == ["1000", "800", "100"]


@pytest.mark.parametrize("form", ["table", "jsonl", "csv", "name"])
def test_that_there_are_earlier_ones_is_said(there: FakeMaster, run: Run, capsys: Out, form: str) -> None:
    def the_last(asked: Asked) -> HistoryList:
        start = 3001 - int(asked.query["limit"])
        return HistoryList(tuple(entry(p) for p in range(start, 3001)), Page(str(start)))

    there.answers["GET /v1/history"] = the_last
    assert run("history", "--since", "1h", "-o", form) == 0
    shown = capsys.readouterr()
    assert shown.err == "not shown: entries before the latest 100; `--limit N` shows more\n"
    assert len(shown.out.splitlines()) == 100 + (form in {"table", "csv"})
    assert run("history", "-n", "7", "-o", form) == 0  # just what was asked for
    assert capsys.readouterr().err == ""
    assert there.asked[-1].query == {"limit": "7"}


def test_what_was_not_looked_at_is_said(there: FakeMaster, run: Run, capsys: Out) -> None:
    there.answers["GET /v1/history"] = HistoryList((), Page("7"), 200_000, NOW, cut_short=True)
    assert run("history", "web", "--since", "100d", "-o", "json") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == []
    assert "only the 200000 entries back to 2026-01-02 05:04:05 were scanned" in shown.err
    assert f"hint: `--until {NOW}` continues from there" in shown.err
    assert len([asked for asked in there.asked if asked.path == "/v1/history"]) == 1


def test_nothing_found_is_said(there: FakeMaster, run: Run, capsys: Out) -> None:
    there.answers["GET /v1/history"] = HistoryList(())
    assert run("history", "web") == 0
    assert capsys.readouterr().err == "the journal has no entries about web\n"
    assert run("history", "--since", "1h") == 0
    assert capsys.readouterr().err == "the journal has no entries at that time\n"


@pytest.mark.parametrize("arguments", [("web", "--cell"), ("-n", "0"), ("-n", "10001"), ("web", "m1")])
def test_misuse(there: FakeMaster, run: Run, arguments: tuple[str, ...]) -> None:
    assert run("history", *arguments) == 2
    assert there.asked == []


def test_an_application_is_one_line_unless_more_is_asked_for(
    there: FakeMaster, run: Run, capsys: Out
) -> None:
    both = event(7, "ann submitted ann/web: 3 tasks"), event(7, "ann submitted ann/db: 1 task")
    text = "ann/shop applied, version 1: 2 created; ann/web: it starts after ann/db (up)"
    applied = entry(7, *both, asked="apply", subject="ann/shop", text=text)
    there.answers["GET /v1/history"] = HistoryList((applied,), Page(), 1, NOW)
    assert run("history") == 0
    _, line = capsys.readouterr().out.splitlines()
    assert line.endswith("ann/shop applied, version 1: 2 created")
    for more in (("-o", "wide"), ("web",)):
        assert run("history", *more) == 0
        assert len(capsys.readouterr().out.splitlines()) == 3


def test_what_is_asked_of_applications_is_called_as_the_master_calls_it() -> None:
    assert set(COMMAND_WORDS.values()) >= OF_APPLICATIONS
