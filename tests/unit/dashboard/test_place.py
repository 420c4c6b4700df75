"""Where each key leads."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from borgish.dashboard import actions
from borgish.dashboard.keys import Click, Key, Paste, Pressed
from borgish.dashboard.place import (
    TABS,
    TEXTS,
    Action,
    Place,
    Screen,
    Target,
    View,
    Walk,
    go,
    press,
    settled,
)

JOB, TASK, MACHINE = Target(View.JOB, "ann/web"), Target(View.TASK, "ann/web/3"), Target(View.MACHINE, "m1")


def screen(*targets: Target | None, **changes: object) -> Screen:
    made = Screen(rows=len(targets), target=lambda row: targets[row], page_rows=10)
    return msgspec.structs.replace(made, **changes)


def at(view: View, subject: str = "", **changes: object) -> Walk:
    place = msgspec.structs.replace(Place(view, subject), **changes)
    return Walk((Place(View.OVERVIEW), place)) if view is not View.OVERVIEW else Walk((place,))


@pytest.mark.parametrize(
    ("walk", "key", "row", "view", "subject"),
    [
        (at(View.OVERVIEW), Key.ENTER, JOB, View.JOB, "ann/web"),
        (at(View.OVERVIEW), Key.RIGHT, MACHINE, View.MACHINE, "m1"),
        (at(View.JOB, "ann/web"), Key.ENTER, TASK, View.TASK, "ann/web/3"),
        (at(View.TASK, "ann/web/3"), Key.ENTER, None, View.LOG, "ann/web/3"),
        (at(View.TASKS), "l", TASK, View.LOG, "ann/web/3"),
        (at(View.TASKS), "w", TASK, View.WHY, "ann/web/3"),
        (at(View.TASKS), "e", TASK, View.EVENTS, "ann/web/3"),
        (at(View.LOG, "ann/web/3"), "e", None, View.EVENTS, "ann/web/3"),
        (at(View.JOBS), "e", JOB, View.EVENTS, "ann/web"),
        (at(View.MACHINES), "e", MACHINE, View.EVENTS, ""),
        (at(View.TASKS), "a", TASK, View.ACTIONS, "ann/web/3"),
        (at(View.JOBS), "l", JOB, View.JOBS, ""),  # a job has no log of its own
        (at(View.JOBS), "w", JOB, View.WHY, "ann/web"),
        (at(View.MACHINES), "w", MACHINE, View.MACHINES, ""),
        (at(View.MACHINES), "a", MACHINE, View.ACTIONS, "m1"),
        (at(View.JOB, "ann/web"), "w", None, View.WHY, "ann/web"),  # of no row: what the place is of
        (at(View.LOG, "ann/web/3"), "w", None, View.WHY, "ann/web/3"),
        (at(View.LOG, "ann/web/3"), "a", None, View.ACTIONS, "ann/web/3"),
        (at(View.PENDING), "w", Target(View.WHY, "ann/web"), View.WHY, "ann/web"),
        (at(View.LOG, "ann/web/3"), Key.ESCAPE, None, View.OVERVIEW, ""),
        (at(View.JOBS), "h", JOB, View.OVERVIEW, ""),
        (at(View.OVERVIEW), Key.ESCAPE, JOB, View.OVERVIEW, ""),
        (at(View.JOBS), "?", JOB, View.HELP, ""),
        (at(View.HELP), "?", None, View.HELP, ""),
        (at(View.JOB, "ann/web"), "t", TASK, View.TIME, ""),
        *((at(View.JOB, "ann/web"), str(i + 1), TASK, view, "") for i, view in enumerate(TABS)),
        (at(View.JOB, "ann/web"), "0", TASK, View.OVERVIEW, ""),
        (at(View.JOB, "ann/web"), "9", TASK, View.JOB, "ann/web"),
        *((at(view), Key.TAB, JOB, after, "") for view, after in pairwise((View.OVERVIEW, *TABS))),
        *((at(after), Key.BACK_TAB, JOB, view, "") for view, after in pairwise((View.OVERVIEW, *TABS))),
        (at(TABS[-1]), Key.TAB, JOB, View.OVERVIEW, ""),
        (at(View.OVERVIEW), Key.BACK_TAB, JOB, TABS[-1], ""),
        (at(View.JOB, "ann/web"), Key.TAB, TASK, View.JOBS, ""),  # it was come to from the cell
        (go(at(View.TASKS), TASK), Key.TAB, None, View.MACHINES, ""),
        (go(at(View.TASKS), TASK), Key.BACK_TAB, None, View.JOBS, ""),
    ],
)
def test_where_a_key_leads(walk: Walk, key: Pressed, row: Target | None, view: View, subject: str) -> None:
    found = press(walk, key, screen(row) if row else screen())
    assert (found.place.view, found.place.subject) == (view, subject)


def test_escape_leads_back_to_the_row_that_it_came_from() -> None:
    there = screen(*(Target(View.JOB, f"ann/{i}") for i in range(30)))
    walk = at(View.JOBS)
    for _ in range(7):
        walk = press(walk, Key.DOWN, there)
    back = press(press(walk, Key.ENTER, there), Key.ESCAPE, screen(TASK))
    assert back.place == walk.place
    assert back.place.chosen == Target(View.JOB, "ann/7")


def test_a_view_is_on_top_of_the_cell_wherever_one_was() -> None:
    walk = go(go(at(View.JOB, "ann/web"), TASK), Target(View.LOG, "ann/web/3"))
    assert [each.view for each in press(walk, "3", screen()).places] == [View.OVERVIEW, View.MACHINES]


@pytest.mark.parametrize(
    ("key", "row"),
    [
        (Key.DOWN, 6),
        ("j", 6),
        (Key.UP, 4),
        ("k", 4),
        (Key.PAGE_DOWN, 15),
        (Key.PAGE_UP, 0),
        (" ", 15),
        ("G", 29),
        (Key.END, 29),
        ("g", 0),
        (Key.HOME, 0),
        (Key.WHEEL_DOWN, 8),
        (Key.WHEEL_UP, 2),
    ],
)
def test_keys_that_move(key: Pressed, row: int) -> None:
    there = screen(*(Target(View.JOB, f"ann/{i}") for i in range(30)))
    found = press(at(View.JOBS, at=5), key, there).place
    assert found.at == row
    assert found.chosen == Target(View.JOB, f"ann/{row}")


def test_a_long_list_goes_on_on_further_pages() -> None:
    there = screen(JOB, JOB, next_page="ann/x")
    walk = press(at(View.JOBS, at=1), Key.DOWN, there)
    assert (walk.place.page, walk.place.pages, walk.place.at) == ("ann/x", ("",), 0)
    again = press(walk, Key.UP, screen(JOB, JOB))
    assert (again.place.page, again.place.pages) == ("", ())
    assert settled(again.place, screen(JOB, MACHINE)).at == 1  # at the end of the page before


@given(
    rows=st.lists(st.integers(0, 30), unique=True, max_size=25),
    later=st.lists(st.integers(0, 30), unique=True, max_size=25),
    keys=st.lists(st.sampled_from(["j", "k", "G", "g", Key.PAGE_DOWN, Key.PAGE_UP]), max_size=10),
    page_rows=st.integers(1, 8),
)
def test_the_cursor_keeps_to_its_row_and_in_sight(
    rows: list[int], later: list[int], keys: list[Pressed], page_rows: int
) -> None:
    def of(numbers: list[int]) -> Screen:
        return screen(*(Target(View.JOB, str(number)) for number in numbers), page_rows=page_rows)

    walk = at(View.JOBS)
    for key in keys:
        walk = press(walk, key, of(rows))
    place = settled(walk.place, of(rows))
    moved = settled(place, of(later))
    if rows and rows[place.at] in later:
        assert later[moved.at] == rows[place.at]
    for each, numbers in ((place, rows), (moved, later)):
        assert 0 <= each.top <= each.at <= max(0, len(numbers) - 1)
        assert each.at < each.top + page_rows


@pytest.mark.parametrize("view", sorted(TEXTS))
def test_a_text_is_scrolled_and_follows_its_end_when_that_is_seen(view: View) -> None:
    lines = Screen(rows=50, page_rows=10)
    walk = go(at(View.JOBS), Target(view, "ann/web/3"))
    grows = view in (View.LOG, View.TASK, View.OUTPUT)
    place = settled(walk.place, lines)
    assert place.top == (40 if grows else 0)
    back = press(Walk((place,)), Key.PAGE_UP, lines).place
    assert settled(back, Screen(rows=90, page_rows=10)).top == max(0, place.top - 10)
    end = press(Walk((back,)), "G", lines).place
    assert settled(end, Screen(rows=90, page_rows=10)).top == (80 if grows else 40)


def typed(walk: Walk, text: str, there: Screen) -> Walk:
    for key in text:
        walk = press(walk, key, there)
    return walk


def test_a_filter_is_typed_applied_and_taken_away() -> None:
    there = screen(JOB)
    walk = typed(at(View.JOBS, page="x", pages=("",), at=3), "/qwex", there)
    assert walk.prompt is not None
    assert not walk.is_over  # q is a letter here
    walk = press(press(walk, Key.BACKSPACE, there), Key.ENTER, there)
    assert (walk.place.filter, walk.place.page, walk.place.pages) == ("qwe", "", ())
    assert press(walk, Key.ESCAPE, there).place.filter == ""
    assert press(walk, Key.ESCAPE, there).place.view is View.JOBS
    assert press(typed(walk, "/more", there), Key.ESCAPE, there).place.filter == "qwe"


def log_of(*lines: str, page_rows: int = 10, search: str) -> Screen:
    """Return the screen of a log in which something is searched for."""
    matches = tuple((i, line.find(search)) for i, line in enumerate(lines) if search in line)
    return Screen(rows=len(lines), page_rows=page_rows, columns=80, matches=matches)


LINES = tuple("an error" if i in (3, 20, 40, 47) else f"line {i}" for i in range(50))


def searched(walk: Walk, text: str, there: Screen) -> Walk:
    walk = press(typed(walk, f"/{text}", there), Key.ENTER, there)
    return Walk((*walk.places[:-1], settled(walk.place, there)))


def test_a_search_in_a_log_looks_at_the_last_match_and_follows_no_more() -> None:
    there = log_of(*LINES, search="error")
    walk = searched(at(View.LOG, "ann/web/3", follows=True, top=40), "error", there)
    assert (walk.place.match, walk.place.top, walk.place.follows) == (47, 40, False)
    assert press(walk, "G", there).place.follows
    assert press(walk, "G", there).place.match == -1


def test_a_search_from_within_a_log_looks_at_the_next_match() -> None:
    there = log_of(*LINES, search="error")
    walk = searched(at(View.LOG, "ann/web/3", top=7), "error", there)
    assert walk.place.match == 20
    assert walk.place.top <= 20 < walk.place.top + 10
    assert searched(at(View.LOG, "ann/web/3", top=48), "error", there).place.match == 47


def test_matches_are_gone_through_both_ways_and_round() -> None:
    there = log_of(*LINES, search="error")
    walk = searched(at(View.LOG, "ann/web/3", follows=True, top=40), "error", there)
    seen = []
    for key in ("N", "N", "N", "N", "n", "n"):
        walk = press(walk, key, there)
        seen.append((walk.place.match, walk.place.wrapped))
        assert walk.place.top <= walk.place.match < walk.place.top + 10
    again = [(47, "from the end again"), (3, "from the top again"), (20, "")]
    assert seen == [(40, ""), (20, ""), (3, ""), *again]
    assert press(typed(walk, "/", there), Key.ENTER, there).place.match == 40  # as n


def test_from_a_match_out_of_sight_it_goes_on_with_what_is_in_sight() -> None:
    there = log_of(*LINES, search="error")
    walk = at(View.LOG, "ann/web/3", search="error", match=3, top=15)
    assert press(walk, "n", there).place.match == 20
    assert press(walk, "N", there).place.match == 20


def test_what_is_searched_for_and_not_there_leaves_everything_as_it_is() -> None:
    there = log_of(*LINES, search="nowhere")
    walk = searched(at(View.LOG, "ann/web/3", follows=True), "nowhere", there)
    assert walk.place.follows
    assert press(walk, "n", there) == walk


def test_escape_ends_a_search_then_a_filter_then_leaves_and_q_leaves_at_once() -> None:
    there = log_of(*LINES, search="error")
    walk = press(typed(at(View.LOG, "ann/web/3"), "&line", there), Key.ENTER, there)
    assert (walk.place.filter, walk.place.search) == ("line", "")
    walk = searched(walk, "error", there)
    assert press(walk, "q", there).place.view is View.OVERVIEW
    for key in ("filter", "view"):
        walk = press(walk, Key.ESCAPE, there)
        assert walk.place.search == ""
        assert walk.place.match == -1
        assert (walk.place.filter, walk.place.view) == ("line" if key == "filter" else "", View.LOG)
    assert press(walk, Key.ESCAPE, there).place.view is View.OVERVIEW


def test_a_match_far_to_the_right_is_brought_into_sight() -> None:
    there = log_of("x" * 300 + " error", "error", search="error")
    walk = searched(at(View.LOG, "ann/web/3", follows=True), "error", there)
    assert (walk.place.match, walk.place.left) == (1, 0)
    walk = press(walk, "N", there)
    assert walk.place.left <= 301 <= walk.place.left + 75
    assert press(walk, "n", there).place.left == 0


@pytest.mark.parametrize("view", [*TABS, View.OVERVIEW, View.JOB, View.HELP, View.WHY])
def test_the_keys_of_a_search_do_nothing_where_none_can_be(view: View) -> None:
    for key in ("n", "N"):
        assert press(at(view, "ann/web"), key, screen(JOB)) == at(view, "ann/web")


def test_sorting_goes_round_and_begins_at_the_first_page() -> None:
    walk, keys = at(View.MACHINES, page="x", pages=("",)), []
    for _ in range(6):
        walk = press(walk, "s", screen(MACHINE))
        keys.append(walk.place.sort_key)
    assert keys == ["name", "cpu", "ram", "tasks", "trouble", "name"]
    assert walk.place.page == ""


def chosen(walk: Walk, key: Pressed, there: Screen) -> Walk:
    walk = press(
        press(walk, "a", there),
        Key.ENTER,
        msgspec.structs.replace(there, actions=actions.actions(View.JOB, "ann/web", "admin")),
    )
    return press(walk, key, there)


def test_a_command_is_run_after_yes_alone() -> None:
    there = screen(JOB)
    for key in ("n", Key.ENTER, Key.ESCAPE, "Y", Click(1, 1), "q"):
        walk = chosen(at(View.JOBS), key, there)
        assert walk.commands == ()
        assert not walk.is_over
    walk = chosen(at(View.JOBS), "y", there)
    assert walk.commands == (("job", "restart", "ann/web"),)
    assert (walk.place.view, walk.place.subject) == (View.OUTPUT, "0")
    assert press(walk, Key.ESCAPE, there).place.view is View.JOBS


def test_what_a_command_needs_is_typed_before_it_is_asked_about() -> None:
    scale = Action(("job", "scale", "ann/web"), "", "number of tasks")
    there = screen(JOB, actions=(scale,))
    walk = typed(press(press(at(View.JOBS), "a", there), Key.ENTER, there), "12", there)
    assert walk.asked is None
    walk = press(walk, Key.ENTER, there)
    assert walk.asked is not None
    assert press(walk, "y", there).commands == (("job", "scale", "ann/web", "12"),)
    nothing = press(press(press(at(View.JOBS), "a", there), Key.ENTER, there), Key.ENTER, there)
    assert nothing.asked is None


def entries(first: int, last: int) -> Screen:
    positions = tuple(range(first, last + 1))
    targets = [Target(View.OVERVIEW, str(position)) for position in positions]
    return screen(*targets, positions=positions, earliest=1, head=1000, slider=(5, 10, 100))


@pytest.mark.parametrize(
    ("row", "key", "page", "chosen"),
    [
        (5, Key.LEFT, "", "604"),
        (5, Key.RIGHT, "", "606"),
        (0, Key.LEFT, "599", "599"),  # what is not there is asked for
        (99, Key.RIGHT, "700", "700"),
        (60, "[", "", "611"),
        (5, "[", "556", "556"),
        (60, "]", "709", "709"),
        (5, Click(10, 5), "1", "1"),
        (5, Click(109, 5), "1000", "1000"),
        (5, Click(73, 5), "", "637"),
    ],
)
def test_in_time(row: int, key: Pressed, page: str, chosen: str) -> None:
    place = press(at(View.TIME, at=row), key, entries(600, 699)).place
    assert place.chosen == Target(View.OVERVIEW, chosen)
    assert place.page == page


def test_time_does_not_go_beyond_its_ends() -> None:
    there = entries(1, 1000)
    assert press(at(View.TIME, at=0), Key.LEFT, there).place.page == ""
    assert press(at(View.TIME, at=999), Key.RIGHT, there).place.page == ""
    assert press(at(View.TIME, at=2), "[", there).place.chosen == Target(View.OVERVIEW, "1")


def test_the_cell_of_an_entry_is_walked_through_as_it_was() -> None:
    walk = press(at(View.TIME, at=7), Key.ENTER, entries(600, 699))
    assert (walk.place.view, walk.place.moment) == (View.OVERVIEW, 607)
    deeper = press(press(walk, Key.ENTER, screen(JOB)), Key.ENTER, screen(TASK))
    assert (deeper.place.view, deeper.place.moment) == (View.TASK, 607)
    other = press(press(deeper, "2", screen(TASK)), "1", screen(TASK))
    assert (other.place.view, other.place.moment) == (View.JOBS, 607)
    for view in (View.OVERVIEW, View.TIME, View.OVERVIEW):
        other = press(other, Key.ESCAPE, screen(JOB))
        assert other.place.view is view
    assert other.place.moment is None
    assert press(walk, Key.ESCAPE, screen(JOB)).place.view is View.TIME
    assert press(deeper, "t", screen(TASK)).place.page == "607"


def test_what_can_be_done_about_the_past_is_to_go_back_to_it() -> None:
    walk = press(at(View.JOBS, moment=4000), "a", screen(JOB))
    assert (walk.place.view, walk.place.subject, walk.place.filter) == (View.ACTIONS, "4000", View.TIME)
    assert {each.command[0] for each in actions.actions(View.TIME, "4000", "admin")} == {"rollback"}


def test_a_difference_is_that_from_the_mark() -> None:
    there = entries(600, 699)
    walk = press(at(View.TIME, at=7), "m", there)
    assert walk.mark == 607
    walk = press(press(walk, Key.RIGHT, there), "d", there)
    assert (walk.place.view, walk.place.subject) == (View.DIFF, "607..608")
    assert press(press(at(View.TIME, at=7), "m", there), "m", there).mark is None


def test_a_moment_is_typed() -> None:
    there = entries(600, 699)
    walk = press(typed(at(View.TIME), ":5m ago", there), Key.ENTER, there)
    assert walk.place.page == "5m ago"
    live = press(press(at(View.JOBS), "d", screen(JOB)), Key.ENTER, screen(JOB))
    assert (live.place.view, live.place.subject) == (View.DIFF, "5m ago..now")


@given(st.lists(st.sampled_from([*Key, *"qpjkhlwestad/&nN?:mG[]0123456789y", Click(3, 3)]), max_size=30))
def test_no_keys_lead_nowhere(keys: list[Pressed]) -> None:
    walk = at(View.OVERVIEW)
    there = screen(
        JOB, TASK, MACHINE, actions=actions.actions(View.JOB, "ann/web", "admin"), positions=(4, 5, 6), head=9
    )
    for key in keys:
        walk = press(walk, key, there)
        assert walk.places
        assert walk.places[0].view is View.OVERVIEW
        settled(walk.place, there)


@pytest.mark.parametrize(
    ("role", "view", "nouns"),
    [
        ("admin", View.JOB, {"job"}),
        ("user", View.TASK, {"job", "task"}),
        ("user", View.MACHINE, set()),
        ("operator", View.MACHINE, {"machine"}),
        ("operator", View.JOB, set()),
        ("operator", None, {"freeze", "unfreeze"}),
        ("user", View.TIME, set()),
        ("reader", View.JOB, set()),
    ],
)
def test_a_role_is_offered_what_it_may_do(role: str, view: View | None, nouns: set[str]) -> None:
    subject = {View.TASK: "ann/web/3", View.TIME: "4000"}.get(view, "ann/web") if view else ""
    assert {each.command[0] for each in actions.actions(view, subject, role)} == nouns


@pytest.mark.parametrize("view", sorted(TEXTS))
def test_q_leaves_a_text_and_from_elsewhere_the_dashboard(view: View) -> None:
    left = press(at(view, "ann/web/3"), "q", screen())
    assert not left.is_over
    assert left.place.view is View.OVERVIEW
    assert press(left, "q", screen(JOB)).is_over


def test_what_is_pasted_is_no_keys() -> None:
    there = screen(JOB)
    walk = press(at(View.JOBS), Paste("a\ny"), there)
    assert walk == at(View.JOBS)
    typing = press(press(at(View.JOBS), "/", there), Paste("web q"), there)
    assert typing.prompt is not None
    assert typing.prompt.typed == "web q"
    cleared = press(typing, Key.PAGE_UP, there)
    assert cleared.prompt is not None
    assert cleared.prompt.typed == ""


def test_the_log_of_the_run_before() -> None:
    walk = press(at(View.LOG, "ann/web/3", follows=False), "o", Screen(rows=9))
    assert walk.place.previous
    assert walk.place.follows
    assert not press(walk, "o", Screen(rows=9)).place.previous
    assert press(at(View.JOBS), "o", screen(JOB)) == at(View.JOBS)


def test_a_tab_is_no_text() -> None:
    there = screen(JOB)
    walk = press(typed(at(View.JOBS), "/we", there), Key.TAB, there)
    assert walk.prompt is not None
    assert walk.prompt.typed == "we"


def test_a_difference_reads_forward_in_time() -> None:
    there = entries(600, 699)
    walk = press(at(View.TIME, at=9), "m", there)
    for _ in range(4):
        walk = press(walk, Key.LEFT, there)
    assert press(walk, "d", there).place.subject == "605..609"
