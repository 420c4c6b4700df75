"""What a frame shows, at any size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from borgish.dashboard import lists
from borgish.dashboard.columns import Line, Role
from borgish.dashboard.frame import Shown, frame, shares
from borgish.vocabulary import Outcome, State
from borgish.wire.api import AppSummary, SummaryView
from tests.unit.dashboard import summaries

VIEWS = {
    "busy": summaries.busy(),
    "empty": summaries.empty(),
    "full": summaries.full(),
    "hostile": summaries.hostile(),
}
SIZES = [(1, 1), (5, 30), (20, 3), (40, 10), (79, 23), (80, 24), (139, 50), (140, 8), (200, 60), (500, 120)]


def text(row: Line) -> str:
    return "".join(piece.text for piece in row)


def texts(view: SummaryView, width: int = 80, height: int = 24, banner: str = "") -> list[str]:
    return [text(row) for row in frame(Shown(view, banner=banner), width, height).lines]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", VIEWS)
@pytest.mark.parametrize("banner", ["", "not reachable since 3 s: \x1b[31mno"])
def test_a_frame_fills_its_screen_and_never_more(kind: str, size: tuple[int, int], banner: str) -> None:
    rows = texts(VIEWS[kind], *size, banner=banner)
    assert len(rows) == size[1]
    assert {cell_len(row) for row in rows} == {size[0]}
    assert all(row.isprintable() for row in rows)


def test_without_filling_a_frame_ends_after_its_last_row() -> None:
    shown = frame(Shown(summaries.empty(), keys=False), 80, 40, filled=False)
    assert [text(row).split(" ")[0] for row in shown.lines[5:]] == [
        *("MACHINES", "None", "JOBS", "None.", "PENDING", "Nothing:", "EVENTS", "None", "━")
    ]


def test_the_banner_is_the_first_line() -> None:
    first = frame(Shown(summaries.busy(), banner="not reachable since 12 s: gone"), 80, 24).lines[0]
    assert text(first).startswith("not reachable since 12 s: gone")
    assert first[0].role is Role.BANNER


def test_what_is_refused_is_a_line_of_its_own() -> None:
    refusing = ("new work is refused: the database's disk has 300MiB free, less than 512MiB",)
    view = SummaryView(summaries.status(refusing=refusing), (), (), (), ())
    rows = frame(Shown(view), 80, 24).lines
    assert text(rows[0]).rstrip() == refusing[0]
    assert rows[0][0].role is Role.BANNER
    assert text(rows[1]).startswith("cell local")


def test_uptime_grows_while_nothing_is_told() -> None:
    assert "master up 3h" in text(frame(Shown(summaries.empty()), 80, 24).lines[0])
    assert "master up 5h" in text(frame(Shown(summaries.empty(), elapsed_seconds=7200), 80, 24).lines[0])


def test_every_part_is_there_on_a_small_screen() -> None:
    shown = "\n".join(texts(summaries.busy()))
    for part in ("cell local", "MACHINES 4", "JOBS 4/6", "PENDING 5", "EVENTS", "hint: Ask for at most 1GiB"):
        assert part in shown


def test_the_latest_event_is_the_last() -> None:
    assert "ann/web/12 placed" in texts(summaries.busy())[-2]


def test_a_title_says_how_much_is_not_shown() -> None:
    rows = texts(summaries.full(), 200, 60)
    assert any(row.startswith("MACHINES 31/10000 ") for row in rows)
    assert any("JOBS 31/2000 " in row for row in rows)


def test_pending_that_the_scheduler_has_not_seen_is_not_called_nothing() -> None:
    view = SummaryView(summaries.status(pending=3), (), (), (), ())
    assert any(row.startswith("The scheduler has not evaluated them yet.") for row in texts(view))


def test_without_quotas_it_is_said_that_nothing_is_asked_for_that_one_could_limit() -> None:
    rows = lists.quota_list(()).draw(80, 9)
    assert "Nobody asks for anything that a quota could limit." in [
        "".join(piece.text for piece in row).rstrip() for row in rows
    ]


def test_only_the_rows_shown_are_made() -> None:
    """What is drawn of 100 machines does not depend on the 90 that are not shown."""
    view = summaries.full()
    broken = SummaryView(view.status, (*view.machines[:10], *[None] * 90), (), (), ())  # type: ignore[arg-type] # would fail when looked at
    assert len(lists.machines(broken).draw(80, 10)) == 11


@pytest.mark.parametrize(
    ("changes", "role"),
    [
        ({}, Role.GOOD),
        ({"up": 2}, Role.WARN),
        ({"up": 2, "failed": 1, "dead": 1}, Role.BAD),
        ({"state": State.DEAD, "up": 0, "running": 0, "dead": 3, "finished": 3}, Role.DIM),
    ],
)
def test_the_colour_of_a_job(changes: dict[str, object], role: Role) -> None:
    view = SummaryView(summaries.status(jobs=1), (), (summaries.job(**changes),), (), ())
    row = lists.jobs(view).draw(80, 1)[1]
    assert row[1].role is role


def test_an_application_that_is_well_is_one_line() -> None:
    jobs = tuple(summaries.job(name=f"ann/{name}", app="ann/shop") for name in ("db", "web"))
    app = AppSummary("ann/shop", 4, 2, 6, 6)
    view = SummaryView(summaries.status(jobs=3), (), (*jobs, summaries.job(name="bob/x")), (), (), (app,))
    rows = ["".join(piece.text for piece in row) for row in lists.jobs(view).draw(80, 9)]
    assert [row.split()[0] for row in rows[1:]] == ["ann/shop", "bob/x"]
    assert "v4" in rows[1]
    assert "6/6" in rows[1]


def test_an_application_is_shown_with_its_crons_and_without_jobs_too() -> None:
    apps = AppSummary("ann/shop", 4, 1, 3, 3, crons=2), AppSummary("ann/tidy", 1, 0, 0, 0, crons=1)
    job = summaries.job(name="ann/db", app="ann/shop")
    view = SummaryView(summaries.status(jobs=1), (), (job,), (), (), apps)
    rows = ["".join(piece.text for piece in row).rstrip() for row in lists.jobs(view).draw(80, 9)]
    assert [row.split()[0] for row in rows[1:]] == ["ann/shop", "ann/tidy"]
    assert rows[1].endswith(" 1 job, 2 crons")
    assert rows[2].endswith(" 1 cron")


def test_of_an_application_with_trouble_the_jobs_that_have_it_are_below() -> None:
    sick = summaries.job(name="ann/web", app="ann/shop", up=1, reason="its probe failed")
    jobs = (sick, summaries.job(name="bob/x"), summaries.job(name="ann/db", app="ann/shop"))
    app = AppSummary("ann/shop", 4, 2, 6, 4)
    view = SummaryView(summaries.status(jobs=3), (), jobs, (), (), (app,))
    rows = lists.jobs(view).draw(80, 9)[1:]
    assert [row[0].text.rstrip() for row in rows] == ["ann/shop", "  web", "bob/x"]
    assert rows[0][1].role is Role.WARN


@pytest.mark.parametrize("outcome", [Outcome.FINISHED, Outcome.FAILED, Outcome.KILLED])
def test_a_dead_job_is_shown_by_its_outcome(outcome: Outcome) -> None:
    ended = summaries.job(state=State.DEAD, up=0, running=0, dead=3, outcome=outcome)
    view = SummaryView(summaries.status(jobs=1), (), (ended,), (), ())
    assert lists.jobs(view).draw(80, 1)[1][1].text.rstrip() == outcome


def test_dead_tasks_are_counted_by_their_outcome() -> None:
    counts = summaries.status(dead=6, finished=3, failed=2, killed=1)
    line = next(row for row in texts(SummaryView(counts, (), (), (), ())) if "tasks" in row)
    assert line.rstrip().endswith("2 failed  3 finished  1 killed")


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5), st.integers(-3, 120))
def test_rows_are_shared_out_fairly(wanted: list[int], rows: int) -> None:
    given_rows = shares(wanted, [1] * len(wanted), rows)
    assert sum(given_rows) == min(sum(wanted), max(0, rows))
    assert all(got <= want for got, want in zip(given_rows, wanted, strict=True))
    least = min((got for got, want in zip(given_rows, wanted, strict=True) if got < want), default=None)
    assert least is None or max(given_rows) <= least + 1


def test_rows_go_by_weight() -> None:
    assert shares([100, 100], [3, 2], 50) == [30, 20]
    assert shares([5, 100], [3, 2], 50) == [5, 45]
