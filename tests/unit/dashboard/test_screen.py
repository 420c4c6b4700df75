"""Whole screens of each place: exactly their size, whatever others wrote, and with a way on."""

import time

import msgspec
import pytest
from rich.cells import cell_len

from borgish.dashboard.asks import Answer, asks
from borgish.dashboard.bodies import Known, Output
from borgish.dashboard.columns import Piece, Role, line, marked
from borgish.dashboard.help import help_lines
from borgish.dashboard.keys import Key
from borgish.dashboard.place import Action, Place, Prompt, View, Walk, press
from borgish.dashboard.screen import Drawn, draw
from borgish.errors import NotFound, TooManyRequests
from borgish.vocabulary import State
from borgish.wire.api import AsOf, MachineList, SummaryView, TaskList
from borgish.wire.api_certificates import CertificatesView
from tests.unit.dashboard import answers, summaries

SIZES = [(1, 1), (3, 9), (20, 3), (40, 10), (79, 23), (80, 24), (139, 50), (140, 8), (200, 60)]


def rows(drawn: Drawn) -> list[str]:
    return ["".join(piece.text for piece in line) for line in drawn.frame.lines]


def shown(at: Place, width: int = 80, height: int = 24, known: Known | None = None) -> Drawn:
    return draw(answers.walk(at), known or answers.known(at), width, height)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("view", View)
@pytest.mark.parametrize("kind", ["good", "evil", "waiting", "refused"])
def test_a_screen_has_its_size_and_acts_on_nothing(view: View, size: tuple[int, int], kind: str) -> None:
    at = answers.place(view)
    known = answers.known(at)
    if kind == "evil":
        answer = msgspec.structs.replace(known.answer, views=answers.evil(known.answer.views))
        known = msgspec.structs.replace(
            known, answer=answer, log=summaries.HOSTILE, summary=summaries.hostile()
        )
    elif kind == "waiting":
        known = msgspec.structs.replace(known, answer=Answer(asks(at)), log=(), outputs=())
    elif kind == "refused":
        error = NotFound("no job is \x1b[31mred", "\x1b]0;owned\x07")
        known = msgspec.structs.replace(known, answer=Answer(asks(at), (), error))
    made = rows(shown(at, *size, known=known))
    assert len(made) == size[1]
    assert {cell_len(row) for row in made} == {size[0]}
    assert all(row.isprintable() for row in made)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_help_is_read_whole_on_a_narrow_screen(width: int) -> None:
    assert max(len(text) for text, _ in help_lines(width)) <= width
    whole = " ".join(" ".join(text for text, _ in help_lines(200)).split())
    assert " ".join(" ".join(text for text, _ in help_lines(width)).split()) == whole


@pytest.mark.parametrize(("width", "tabs"), [(60, "5 events …"), (79, "7 usage")])
def test_lines_of_the_head_that_have_no_room_are_cut_with_a_mark(width: int, tabs: str) -> None:
    """What people take for the end of a line is its end."""
    made = rows(shown(answers.place(View.OVERVIEW), width))
    assert made[1].endswith("…")
    assert made[4].rstrip().endswith(tabs)


@pytest.mark.parametrize("job_count", [1, 2])
def test_one_task_is_called_so(job_count: int) -> None:
    at = answers.place(View.JOB)
    job = msgspec.structs.replace(answers.job_detail().job, tasks=job_count, up=0)
    detail = msgspec.structs.replace(answers.job_detail(), job=job)
    views = (detail, *answers.known(at).answer.views[1:])
    made = rows(shown(at, known=answers.known(at, answer=Answer(asks(at), views))))
    assert f": {['1 task', '2 tasks'][job_count - 1]}, " in "\n".join(made)


def test_jobs_are_counted_and_not_their_rows() -> None:
    """Machines in trouble are no jobs, and the line of those that ended stands for each of them."""
    ended = [
        summaries.job(name=f"ann/over{i}", state=State.DEAD, up=0, running=0, dead=3, finished=3)
        for i in range(2)
    ]
    going = [summaries.job(name=f"ann/on{i}") for i in range(4)]
    summary = SummaryView(summaries.status(jobs=6), summaries.busy().machines, (*going, *ended), (), ())
    at = answers.place(View.OVERVIEW)
    known = answers.known(at, summary)
    assert any(row.startswith("JOBS 6 ") for row in rows(shown(at, known=known)))
    titles = [
        next(row.split("STATE")[0].strip() for row in rows(shown(at, 80, height, known)) if "JOBS" in row)
        for height in range(8, 13)
    ]
    assert titles == ["JOBS 1/6", "JOBS 2/6", "JOBS 3/6", "JOBS 4/6", "JOBS 6"]


@pytest.mark.parametrize("view", View)
def test_each_place_says_how_to_get_help_and_back(view: View) -> None:
    foot = rows(shown(answers.place(view)))[-1]
    assert foot.startswith("? help")
    assert ("esc back" in foot) is (view is not View.OVERVIEW)


@pytest.mark.parametrize("view", View)
def test_the_foot_has_whole_words_alone(view: View) -> None:
    whole = {each.strip() for each in rows(shown(answers.place(view), 400, 24))[-1].split("  ")}
    for width in range(6, 120, 7):
        foot = rows(shown(answers.place(view), width, 24))[-1]
        assert {each.strip() for each in foot.split("  ")} <= whole | {""}


def test_what_needs_somebody_comes_first_and_what_ended_well_is_folded() -> None:
    listed = [row.split()[0] for row in rows(shown(answers.place(View.OVERVIEW)))[6:15]]
    assert listed == [
        *("m3", "m2", "m1", "ann/web", "bob/train", "carl/import", "ops/probe"),
        "ann/cache-…for-a-job",
        "1",
    ]
    assert "1 more that ended: 1 lists all" in "\n".join(rows(shown(answers.place(View.OVERVIEW))))


def beside(summary: SummaryView, height: int = 60) -> list[str]:
    at = answers.place(View.OVERVIEW)
    made = rows(shown(at, 200, height, answers.known(at, summary)))
    return [row.partition(" │ ")[2].rstrip() for row in made if " │ " in row]


def test_beside_the_jobs_of_a_small_cell_stands_what_somebody_on_call_needs() -> None:
    summary = summaries.busy()
    status = msgspec.structs.replace(
        summary.status,
        rollbacks_paused=("ann/web: its budget is used up",),
        draining=("m2: new disk; 3 tasks left",),
        certificates=(
            CertificatesView("master", "2026-01-09T00:00:00Z", 9.0, near=1),
            CertificatesView("machine", "2026-02-09T00:00:00Z", 9e9),
        ),
        to_change=7,
        store_free_bytes=3 * summaries.GIB,
    )
    made = beside(msgspec.structs.replace(summary, status=status))
    whole = " ".join(" ".join(made).split())
    assert "0 of 4 machines fit: 3 have too little ram free, 1 is down hint: Ask for" in whole
    assert "UPKEEP ann/web: its budget is used up m2: new disk; 3 tasks left" in whole
    assert "certificate of master ends 2026-01-09" in whole
    assert "7 running tasks yet to be changed store sqlite, 3GiB free on its disk" in whole
    assert "certificate of machine" not in whole
    of_m1 = made[next(i for i, row in enumerate(made) if row.startswith("m1")) + 1]
    assert "▁" in of_m1
    assert "▅" in of_m1


@pytest.mark.parametrize("height", [20, 24, 40, 60])
def test_blocks_beside_the_jobs_share_the_height_by_what_there_is(height: int) -> None:
    full = beside(summaries.full(), height)
    counts = {"PENDING": 0, "MACHINES": 0, "EVENTS": 0}
    title = ""
    for row in full:
        title = next((each for each in counts if row.startswith(each)), "" if row == "UPKEEP" else title)
        if title:
            counts[title] += 1
    assert all(counts.values())
    assert max(counts.values()) - min(counts.values()) <= 1  # there is more of each than has room
    assert full[-1]
    few = msgspec.structs.replace(summaries.full(), pending=(), events=summaries.full().events[:2])
    assert beside(few, height).count("") == 0  # what others do not need the machines have


def test_the_row_under_the_cursor_is_marked() -> None:
    drawn = shown(answers.place(View.JOBS, at=2))
    marked = [row for row in drawn.frame.lines if row[0].chosen]
    assert [row[0].text.split()[0] for row in marked] == ["carl/import"]
    assert drawn.walk.place.chosen is not None
    assert drawn.walk.place.chosen.subject == "carl/import"


def test_a_click_means_the_row_that_is_drawn_there() -> None:
    for size in ((80, 24), (200, 60)):
        for view in (View.OVERVIEW, View.TASKS, View.JOB, View.MACHINE, View.TIME):
            drawn = shown(answers.place(view), *size)
            screen, place = drawn.screen, drawn.walk.place
            for i in range(min(screen.page_rows, screen.rows - place.top)):
                target = screen.target(place.top + i)
                assert target is not None
                row = rows(drawn)[screen.first_row_line + i]
                assert target.subject.split("/")[0] in row or "more that ended" in row


def test_views_are_named_where_they_can_be_clicked_at() -> None:
    drawn = shown(answers.place(View.OVERVIEW))
    line = rows(drawn)[drawn.screen.tabs_line]
    for first, last, view in drawn.screen.tabs:
        assert ("cell" if view is View.OVERVIEW else view.value) in line[first:last]


def test_an_answer_that_is_an_error_is_said_with_the_way_out() -> None:
    at = answers.place(View.JOB)
    error = NotFound("no job is called ann/web", "`borgctl job list` shows them")
    made = "\n".join(rows(shown(at, known=answers.known(at, answer=Answer(asks(at), (), error)))))
    assert "no job is called ann/web" in made
    assert "hint: `borgctl job list` shows them" in made


@pytest.mark.parametrize("view", [View.JOBS, View.TASK, View.TIME])
def test_an_error_is_seen_wherever_somebody_had_scrolled_to(view: View) -> None:
    at = answers.place(view, at=10**9, top=500, page="nonsense")
    error = NotFound("invalid moment 'nonsense'")
    made = rows(shown(at, known=answers.known(at, answer=Answer(asks(at), (), error))))
    assert any("invalid moment 'nonsense'" in row for row in made)


def test_what_was_answered_is_shown_and_said_to_be_old_while_nobody_answers() -> None:
    at = answers.place(View.JOB)
    views = answers.known(at).answer.views
    made = rows(shown(at, known=answers.known(at, answer=Answer(asks(at), views, TooManyRequests("later")))))
    assert made[0].startswith("not read again: later")
    assert any("ann/web/3" in row for row in made)


def test_a_log_says_that_it_stands_still() -> None:
    at = answers.place(View.LOG)
    assert not any("stands still" in row for row in rows(shown(at)))
    drawn = shown(at)
    back = press(drawn.walk, "k", drawn.screen).place
    assert "LOG OF ann/web/3: stands still, G goes on" in "\n".join(rows(shown(back)))
    short = answers.known(at, log=("one line",))
    drawn = draw(answers.walk(at), short, 80, 24)
    assert press(drawn.walk, "k", drawn.screen).place.follows  # there is nothing to scroll back to


def test_matches_are_marked_and_counted_and_new_lines_move_nothing() -> None:
    lines = tuple(f"{i} an Error" if i % 9 == 0 else f"{i} fine" for i in range(60))
    at = answers.place(View.LOG, search="error", seeks=True)
    drawn = shown(at, known=answers.known(at, log=lines))
    assert rows(drawn)[-1].startswith("'error': match 7 of 7")
    assert "stands still, G goes on" in "\n".join(rows(drawn))
    looked_at = [row for row in drawn.frame.lines if row[0].chosen]
    assert ["".join(piece.text for piece in row).strip() for row in looked_at] == ["54 an Error"]
    marks = [piece.text for row in drawn.frame.lines for piece in row if piece.role is Role.FOUND]
    assert marks == ["Error"] * 2  # those in sight
    more = answers.known(at, log=(*lines, *lines))
    again = draw(drawn.walk, more, 80, 24)
    assert rows(again)[:-1] == rows(drawn)[:-1]
    assert rows(again)[-1].startswith("'error': match 7 of 14")


def test_what_is_not_found_is_said() -> None:
    at = answers.place(View.LOG, search="nowhere", seeks=True)
    assert rows(shown(at))[-1].startswith("'nowhere': no matches")
    at = answers.place(View.LOG, search="/59 ", seeks=True, follows=False)
    assert rows(shown(at))[-1].startswith("'/59 ': match 1 of 1")


def test_the_part_of_a_long_line_that_matches_is_shown() -> None:
    at = answers.place(View.LOG, search="reason", seeks=True)
    drawn = shown(at, known=answers.known(at, log=("x" * 200 + "the reason",)))
    assert "the reason" in "\n".join(rows(drawn))


def test_a_text_is_marked_wherever_it_is_and_as_it_is() -> None:
    found = marked(line([Piece("[a] [A]", Role.BAD)], 12, "x[a"), "[a]")
    assert [(piece.text, piece.role is Role.FOUND) for piece in found] == [
        *(("[a]", True), (" ", False), ("[A]", True), ("x[a  ", False))
    ]


def test_the_command_is_shown_before_it_is_run() -> None:
    at = answers.place(View.ACTIONS)
    walk = msgspec.structs.replace(answers.walk(at), asked=Action(("job", "kill", "ann/my job"), "End it."))
    foot = draw(walk, answers.known(at), 100, 24).frame.lines[-1]
    assert "".join(p.text for p in foot).startswith("Run `borgctl job kill 'ann/my job'`? y runs it")
    assert foot[0].role is Role.BANNER


def test_who_may_only_look_is_offered_nothing() -> None:
    at = answers.place(View.ACTIONS)
    drawn = shown(at, known=answers.known(at, role=""))
    assert "This dashboard only looks" in "\n".join(rows(drawn))
    assert drawn.screen.actions == ()
    walk = press(drawn.walk, Key.ENTER, drawn.screen)
    assert walk.asked is None


def test_what_is_typed_stands_in_the_last_line() -> None:
    at = answers.place(View.JOBS)
    walk = msgspec.structs.replace(answers.walk(at), prompt=Prompt("filter", "we"))
    assert rows(draw(walk, answers.known(at), 80, 24))[-1].startswith("filter:  we")


def test_the_past_is_called_so() -> None:
    at = answers.place(View.OVERVIEW, moment=4000)
    summary = msgspec.structs.replace(summaries.busy(), as_of=answers.PAST)
    made = rows(shown(at, known=answers.known(at, answer=Answer(asks(at), (summary,)))))
    assert made[0].startswith("The cell at position 4000 of 2026-01-02")
    assert "Esc leads back to the present" in made[0]


def test_entries_are_walked_through_without_asking_again() -> None:
    at = answers.place(View.TIME, at=29)
    known = answers.known(at)
    walk = answers.walk(at)
    seen = []
    for _ in range(30):
        drawn = draw(walk, known, 200, 60)
        seen.append(next(row for row in rows(drawn) if "AFTER" in row).split("AFTER ")[1].split(":")[0])
        before = asks(drawn.walk.place)
        walk = press(drawn.walk, Key.LEFT, drawn.screen)
        if len(seen) < 30:
            assert asks(walk.place) == before
    assert seen == [str(4030 - i) for i in range(30)]
    assert walk.place.page == "4000"  # beyond the window lies another


def test_what_an_entry_changed_stands_out() -> None:
    drawn = shown(answers.place(View.TIME, at=3), 200, 60)
    new = [piece.text.strip() for row in drawn.frame.lines for piece in row if piece.role is Role.NEW]
    assert new == ["ann/web"]


def test_a_walk_through_the_cell_ends_at_a_log() -> None:
    """Enter, four times, from the cell to what a task writes."""
    walk = Walk()
    for view in (View.OVERVIEW, View.JOB, View.TASK, View.LOG):
        at = walk.place
        assert at.view is view
        drawn = draw(walk, answers.known(at), 80, 24)
        if view is View.OVERVIEW:
            for _ in range(3):  # past the machines in trouble
                drawn = draw(press(drawn.walk, "j", drawn.screen), answers.known(at), 80, 24)
        walk = press(drawn.walk, Key.ENTER, drawn.screen)


def test_time_begins_at_the_moment_that_was_asked_for() -> None:
    window = msgspec.structs.replace(answers.window(), position=4007)
    at = answers.place(View.TIME, page="5m ago", at=10**9)
    drawn = shown(at, known=answers.known(at, answer=Answer(asks(at), (window,))))
    assert any("AFTER 4007:" in row for row in rows(drawn))
    assert drawn.walk.place.at == 6


LONG = "0 of 4 machines fit: " + ", ".join(f"{i} have too little of thing {i}" for i in range(6))


def test_what_is_in_the_way_is_read_to_its_last_word() -> None:
    job = answers.job_detail()
    refusal = msgspec.structs.replace(job.refusals[0], text=LONG, hint=f"hint of it: {LONG}")
    stuck = msgspec.structs.replace(job, refusals=(refusal,))
    event = msgspec.structs.replace(answers.why().events[0], text=LONG)
    explained = msgspec.structs.replace(answers.why(), events=(event,))
    change = msgspec.structs.replace(next(iter(answers.diff().changes.values()))[0], lines=(LONG,))
    for view, first in (
        (View.JOB, stuck),
        (View.TASK, answers.task(reason=LONG)),
        (View.WHY, explained),
        (View.DIFF, msgspec.structs.replace(answers.diff(), changes={"jobs": (change,)})),
    ):
        at = answers.place(view)
        views = (first, *answers.known(at).answer.views[1:])
        made = " ".join(rows(shown(at, 80, 30, answers.known(at, answer=Answer(asks(at), views)))))
        assert LONG in " ".join(made.split())


def test_instants_in_what_the_master_says_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "since 2026-01-02T23:30:00.250Z"
    event = msgspec.structs.replace(answers.why().events[0], text=text)
    why = msgspec.structs.replace(answers.why(), text=text, events=(event,))
    at = answers.place(View.WHY)
    busy = summaries.busy()
    frozen = msgspec.structs.replace(busy, status=msgspec.structs.replace(busy.status, frozen=text))
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "IST-05:30")
        time.tzset()
        made = "\n".join(rows(shown(at, 80, 30, answers.known(at, frozen, answer=Answer(asks(at), (why,))))))
    time.tzset()
    assert made.count("since 2026-01-03 05:00:00") == 3
    assert "Z" not in made


def test_errors_and_what_a_command_said_are_read_to_their_last_word() -> None:
    at = answers.place(View.JOB)
    refused = Answer(asks(at), (), NotFound(LONG, f"hint of it: {LONG}"))
    said = (Output("borgctl rollback 12", [LONG], 0),)
    for known in (answers.known(at, answer=refused), answers.known(answers.place(View.OUTPUT), outputs=said)):
        place = at if known.answer is refused else answers.place(View.OUTPUT)
        assert LONG in " ".join(" ".join(rows(shown(place, known=known))).split())


def test_of_a_long_way_the_place_itself_is_seen() -> None:
    walk = Walk((Place(View.OVERVIEW), *(Place(View.JOB, f"ann/{'web' * 9}{i}") for i in range(4))))
    known = answers.known(answers.place(View.JOB))
    assert "\u2026 > job ann/webwebwebwebwebwebwebwebweb3" in "\n".join(rows(draw(walk, known, 60, 24)))
    long = Walk((Place(View.OVERVIEW), Place(View.LOG, f"ann/{'web' * 30}/12")))
    assert "log ann/web" in rows(draw(long, known, 60, 24))[1]
    assert rows(draw(long, known, 60, 24))[1].rstrip().endswith("web/12")


@pytest.mark.parametrize("view", [View.TASK, View.LOG])
def test_a_task_of_the_past_has_no_log(view: View) -> None:
    at = answers.place(view, moment=4000)
    made = "\n".join(rows(shown(at)))
    assert "GET /" not in made
    assert "Nothing yet" not in made
    assert "the present has what is left." in made


def test_why_something_was_pending_then_is_not_the_scheduler_being_slow() -> None:
    at = answers.place(View.PENDING, moment=4000)
    then = msgspec.structs.replace(summaries.busy(), as_of=answers.PAST, pending=())
    made = "\n".join(rows(shown(at, known=answers.known(at, answer=Answer(asks(at), (then,))))))
    assert "was not journalled" in made
    assert "not evaluated" not in made


def test_a_long_line_of_a_log_is_read_to_its_end() -> None:
    at = answers.place(View.LOG)
    known = answers.known(at, log=("x" * 79 + "y" * 60 + "the reason",))
    drawn = draw(answers.walk(at), known, 80, 24)
    assert "the reason" not in "\n".join(rows(drawn))
    for _ in range(2):
        drawn = draw(press(drawn.walk, ">", drawn.screen), known, 80, 24)
    assert "the reason" in "\n".join(rows(drawn))
    assert "from character 81" in "\n".join(rows(drawn))
    for _ in range(3):
        drawn = draw(press(drawn.walk, "<", drawn.screen), known, 80, 24)
    assert drawn.walk.place.left == 0


def test_in_the_past_ages_and_counts_are_those_of_then() -> None:
    at = answers.place(View.TASKS, moment=4000)
    began = "2026-01-02T02:00:00.000Z"
    then = AsOf(4000, "2026-01-02T02:00:42.000Z")
    found = TaskList((answers.task(since=began),), as_of=then)
    made = rows(shown(at, known=answers.known(at, answer=Answer(asks(at), (found,)))))
    assert any("ann/web/0" in row and " 42s" in row for row in made)
    assert "4 pending" in "".join(made)
    assert f"4 pending {summaries.busy().status.pending}" not in "".join(made)
    at = answers.place(View.MACHINES, moment=4000)
    some = MachineList((answers.machine(),), as_of=then)
    made = rows(shown(at, known=answers.known(at, answer=Answer(asks(at), (some, answers.racks())))))
    assert any(row.startswith("MACHINES 1 ") for row in made)
