"""Where somebody is in the dashboard, and where each key leads: a state machine, pure.

A place is one view of one thing; places lie on each other, and Escape takes the uppermost off. A cursor keeps
to what it is on while rows move. What is asked for and shown there is in ``asks`` and ``screen``.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from enum import StrEnum

import msgspec

from borgish.dashboard.keys import Click, Key, Paste, Pressed


class View(StrEnum):
    """What a place shows."""

    OVERVIEW = "overview"
    JOBS = "jobs"
    TASKS = "tasks"
    MACHINES = "machines"
    PENDING = "pending"
    EVENTS = "events"
    USERS = "users"
    USAGE = "usage"
    JOB = "job"
    TASK = "task"
    MACHINE = "machine"
    LOG = "log"
    WHY = "why"
    DIFF = "diff"
    TIME = "time"
    HELP = "help"
    ACTIONS = "actions"
    OUTPUT = "output"


TABS = (View.JOBS, View.TASKS, View.MACHINES, View.PENDING, View.EVENTS, View.USERS, View.USAGE)
"""The views that keys 1 to 7 lead to."""

TEXTS = frozenset({View.TASK, View.LOG, View.WHY, View.DIFF, View.HELP, View.OUTPUT})
"""Views that are scrolled, and have no cursor."""

GROWING = frozenset({View.TASK, View.LOG, View.OUTPUT})
"""Texts to which more comes: their end is shown until somebody scrolls back. They are searched as in less."""

SORTS = {
    View.JOBS: ("trouble", "name", "since", "tasks"),
    View.TASKS: ("trouble", "name", "since", "cpu", "ram", "restarts"),
    View.MACHINES: ("trouble", "name", "cpu", "ram", "tasks"),
    View.JOB: ("trouble", "name", "since", "cpu", "ram", "restarts"),
    View.MACHINE: ("trouble", "name", "since", "cpu", "ram", "restarts"),
    View.USAGE: ("cpu", "ram"),
}
"""By what their rows can be sorted; the master does it."""

FILTERED = frozenset({*TABS, View.JOB, View.MACHINE, View.TASK, View.LOG, View.WHY, View.DIFF})


class Target(msgspec.Struct, frozen=True):
    """A place to go to: of a job, a task, a machine or a user, rows that have a text."""

    view: View
    subject: str = ""
    filter: str = ""


class Place(msgspec.Struct, frozen=True):
    """One view of one thing, and where in it somebody looks."""

    view: View
    subject: str = ""
    filter: str = ""  # only rows that have this in them
    sort: int = 0  # which of the view's
    at: int = 0  # the row under the cursor
    chosen: Target | None = None  # what that row is about
    top: int = 0  # the first row that is shown
    left: int = 0  # of a text with long lines: the characters that are left out on the left
    previous: bool = False  # of a log: that of the run before
    follows: bool = False  # of a text: its end is shown, also when more comes
    search: str = ""  # what is marked in a text
    seeks: bool = False  # the nearest match is to be found among the lines that are there
    match: int = -1  # the line that has the match somebody looks at; -1: none
    wrapped: str = ""  # from where the search for it went on
    page: str = ""  # where in the whole list the rows begin
    pages: tuple[str, ...] = ()  # and those before it
    moment: int | None = None  # the position of the journal of which the cell is shown; None: the present

    @property
    def sort_key(self) -> str:
        """By what rows are sorted; "" where there is no choice."""
        keys = SORTS.get(self.view, ("",))
        return keys[self.sort % len(keys)]


class Action(msgspec.Struct, frozen=True):
    """Something to do: a command of borgctl. ``asks`` is what of it somebody has to type, its last word."""

    command: tuple[str, ...]
    words: str
    asks: str = ""


class Prompt(msgspec.Struct, frozen=True):
    """What somebody is typing, and what for."""

    what: str  # filter, search, moment, diff, or what an action asks for
    typed: str = ""
    action: Action | None = None


class Screen(msgspec.Struct, frozen=True):
    """What of the last frame decides what a key means."""

    rows: int = 0
    is_whole: bool = True  # the rows are those of the place, and not what stands there until it is answered
    target: Callable[[int], Target | None] = lambda _row: None
    page_rows: int = 1
    columns: int = 0
    matches: tuple[tuple[int, int], ...] = ()  # rows with what is searched for, and where it begins
    first_row_line: int = 0  # the line of the terminal with the first row that is shown
    tabs: tuple[tuple[int, int, View], ...] = ()  # columns from and to, on ``tabs_line``
    tabs_line: int = -1
    next_page: str = ""
    actions: tuple[Action, ...] = ()
    positions: tuple[int, ...] = ()  # of the rows, where they are entries of the journal
    begins_at: int | None = None  # the row that the cursor is on to begin with
    earliest: int = 0  # positions of the journal that can be shown
    head: int = 0
    slider: tuple[int, int, int] = (-1, 0, 0)  # its line, its first column and how many


class Walk(msgspec.Struct, frozen=True):
    """All that keys have led to."""

    places: tuple[Place, ...] = (Place(View.OVERVIEW),)
    prompt: Prompt | None = None
    asked: Action | None = None  # which is to be confirmed
    commands: tuple[tuple[str, ...], ...] = ()  # that were confirmed, to be run in order
    is_paused: bool = False
    is_over: bool = False
    mark: int | None = None  # the position that differences are against

    @property
    def place(self) -> Place:
        """Where somebody is."""
        return self.places[-1]


MOMENT_DEFAULT = "5m ago"
_ASIDE_CHARACTERS = 40  # half of a narrow screen: what is read stays in sight
_TYPED_MAX = 100


def press(walk: Walk, key: Pressed, screen: Screen) -> Walk:
    """Return where a key leads, from what is on the screen."""
    if walk.asked is not None:
        return _answer(walk, walk.asked, key)
    if walk.prompt is not None:
        return _type(walk, walk.prompt, key, screen)
    if isinstance(key, Click):
        return _click(walk, key, screen)
    if (step := _step(key, walk.place, screen)) is not None:
        return with_place(walk, _moved(walk.place, step, screen))
    if walk.place.view is View.TIME and (led := _in_time(walk, key, screen)) is not None:
        return led
    return _lead(walk, key, screen)


def with_place(walk: Walk, place: Place) -> Walk:
    """Return the walk with another uppermost place."""
    return msgspec.structs.replace(walk, places=(*walk.places[:-1], place))


def settled(place: Place, screen: Screen) -> Place:
    """Return the place with its cursor on what it was on, and in sight, among rows that may be others now."""
    rows, page = screen.rows, max(1, screen.page_rows)
    if not screen.is_whole:
        return place
    if place.view in TEXTS:
        if place.seeks:
            place = _nearest_match(place, screen)
        last = max(0, rows - page)
        top = last if place.follows else min(place.top, last)
        return msgspec.structs.replace(place, top=top)
    at = min(place.at, max(0, rows - 1))
    if place.chosen is None and screen.begins_at is not None:
        at = screen.begins_at
    if place.chosen is not None:
        same = (i for i in range(rows) if screen.target(i) == place.chosen)
        at = min(same, key=lambda i: abs(i - at), default=at)
    top = min(max(place.top, at - page + 1), at, max(0, rows - page))
    chosen = screen.target(at) if rows else place.chosen
    return msgspec.structs.replace(place, at=at, top=top, chosen=chosen)


# Moving


_ALL = 10**9
_STEPS: dict[Pressed, int] = {
    Key.UP: -1,
    "k": -1,
    Key.DOWN: 1,
    "j": 1,
    Key.WHEEL_UP: -3,
    Key.WHEEL_DOWN: 3,
    Key.HOME: -_ALL,
    "g": -_ALL,
    Key.END: _ALL,
    "G": _ALL,
}


def _step(key: Pressed, place: Place, screen: Screen) -> int | None:
    """Return how many rows a key moves by; None for one that does not."""
    if key in (Key.PAGE_UP, Key.PAGE_DOWN, " "):
        return -screen.page_rows if key is Key.PAGE_UP else screen.page_rows
    if place.view is View.TIME and key in (Key.LEFT, Key.RIGHT):
        return -1 if key is Key.LEFT else 1
    return _STEPS.get(key)


def _moved(place: Place, step: int, screen: Screen) -> Place:
    if place.view in TEXTS:
        last = max(0, screen.rows - screen.page_rows)
        top = min(max(0, place.top + step), last)
        if place.view in GROWING and top == last:
            return _following(place)
        return msgspec.structs.replace(place, top=top, follows=False)
    last = max(0, screen.rows - 1)
    if step > 0 and place.at == last and screen.next_page:
        return _on_page(place, screen.next_page, (*place.pages, place.page))
    if step < 0 and place.at == 0 and place.pages:
        return _on_page(place, place.pages[-1], place.pages[:-1], at=_ALL)
    if place.view is View.TIME and step in (-1, 1) and place.at == (last if step > 0 else 0):
        return _beyond(place, step, screen)
    if not screen.rows:
        return place
    at = min(max(0, place.at + step), last)
    return msgspec.structs.replace(place, at=at, chosen=screen.target(at))


def _following(place: Place) -> Place:
    """Return a text with its end shown, and nothing else looked at in it."""
    return msgspec.structs.replace(place, follows=True, match=-1, wrapped="")


def _on_page(place: Place, page: str, pages: tuple[str, ...], at: int = 0) -> Place:
    return msgspec.structs.replace(place, page=page, pages=pages, at=at, top=0, chosen=None)


def _beyond(place: Place, step: int, screen: Screen) -> Place:
    """Return the place in the window of the journal that lies next."""
    if not screen.positions:
        return place
    position = screen.positions[-1 if step > 0 else 0] + step
    if not screen.earliest <= position <= screen.head:
        return place
    return msgspec.structs.replace(place, page=str(position), chosen=Target(View.OVERVIEW, str(position)))


def _click(walk: Walk, click: Click, screen: Screen) -> Walk:
    """A click on a view's name leads there; on a row, the cursor, and once more, into it."""
    if click.row == screen.tabs_line:
        for first, last, view in screen.tabs:
            if first <= click.column < last:
                return _view(walk, view)
        return walk
    line, column, columns = screen.slider
    if click.row == line and 0 <= click.column - column < columns:
        return _at_moment(walk, _slid(click.column - column, columns, screen), screen)
    place = walk.place
    row = place.top + click.row - screen.first_row_line
    if (
        place.view in TEXTS
        or not 0 <= click.row - screen.first_row_line < screen.page_rows
        or row >= screen.rows
    ):
        return walk
    if row == place.at:
        return _enter(walk, screen)
    return with_place(walk, msgspec.structs.replace(place, at=row, chosen=screen.target(row)))


def _slid(column: int, columns: int, screen: Screen) -> int:
    share = column / max(1, columns - 1)
    return round(screen.earliest + share * (screen.head - screen.earliest))


# Searching


def _nearest_match(place: Place, screen: Screen) -> Place:
    """Return the place with the last match in sight where its end is shown; else with the first one from
    where somebody looks, or the last one before."""
    place = msgspec.structs.replace(place, seeks=False, match=-1, wrapped="")
    if not screen.matches:
        return place
    rows = [row for row, _ in screen.matches]
    at = len(rows) if place.follows else bisect_left(rows, place.top)
    return _looking_at(place, min(at, len(rows) - 1), screen)


def _next_match(walk: Walk, way: int, screen: Screen) -> Walk:
    """Look at the match after (1) or before (-1) the one that is in sight; beyond the last one begins again
    with the first."""
    place, rows = walk.place, [row for row, _ in screen.matches]
    if not rows:
        return walk
    end = place.top + screen.page_rows
    if place.top <= place.match < end:
        at = bisect_right(rows, place.match) if way > 0 else bisect_left(rows, place.match) - 1
    else:
        at = bisect_left(rows, place.top) if way > 0 else bisect_left(rows, end) - 1
    wrapped = "" if 0 <= at < len(rows) else "from the top again" if way > 0 else "from the end again"
    place = msgspec.structs.replace(place, wrapped=wrapped)
    return with_place(walk, _looking_at(place, at % len(rows), screen))


def _looking_at(place: Place, which: int, screen: Screen) -> Place:
    """Return the place with a match in sight: on its line, and of a long line the part that has it."""
    row, column = screen.matches[which]
    page = max(1, screen.page_rows)
    top = place.top if place.top <= row < place.top + page else max(0, row - page // 2)
    left = place.left
    if not left <= column <= left + screen.columns - len(place.search):
        left = max(0, column - screen.columns // 2)
    return msgspec.structs.replace(place, match=row, top=top, left=left, follows=False)


# Going somewhere


def go(walk: Walk, target: Target) -> Walk:
    """Return the walk at another place, on top of where it was."""
    old = walk.place
    place = Place(
        target.view, target.subject, target.filter, follows=target.view in GROWING, moment=old.moment
    )
    if (place.view, place.subject) == (old.view, old.subject):
        return walk
    return msgspec.structs.replace(walk, places=(*walk.places, place))


def _view(walk: Walk, view: View) -> Walk:
    """Go to a view of the cell that one is in; where it is that of a moment, Escape still leads out of it."""
    cell = max(i for i, place in enumerate(walk.places) if place.view is View.OVERVIEW)
    base = msgspec.structs.replace(walk, places=walk.places[: cell + 1])
    return base if view is View.OVERVIEW else go(base, Target(view))


def _beside(walk: Walk, way: int) -> Walk:
    """Go to the view after (1) or before (-1) the one that somebody is in, or from which they came."""
    views = list(_TAB_KEYS.values())
    shown = next(each.view for each in reversed(walk.places) if each.view in views)
    return _view(walk, views[(views.index(shown) + way) % len(views)])


def _enter(walk: Walk, screen: Screen) -> Walk:
    place = walk.place
    if place.view is View.ACTIONS:
        return _choose(walk, screen.actions[place.at]) if place.at < len(screen.actions) else walk
    if place.view is View.TIME:
        if not screen.positions:
            return walk
        moment = screen.positions[min(place.at, len(screen.positions) - 1)]
        return msgspec.structs.replace(walk, places=(*walk.places, Place(View.OVERVIEW, moment=moment)))
    if place.view is View.TASK:
        return go(walk, Target(View.LOG, place.subject))
    target = screen.target(place.at) if screen.rows and place.view not in TEXTS else None
    return go(walk, target) if target else walk


def about(walk: Walk, screen: Screen) -> Target | None:
    """Return what keys like ``l`` and ``w`` are about: the job, task or machine under the cursor, or the one
    that the place is of."""
    place = walk.place
    things = (View.JOB, View.TASK, View.MACHINE)
    if place.view not in TEXTS and screen.rows:
        target = screen.target(min(place.at, screen.rows - 1))
        if target is not None and target.view in things:
            return target
        if target is not None and target.view is View.WHY:
            return Target(View.JOB, target.subject)
    if place.view in things:
        return Target(place.view, place.subject)
    if place.view in (View.LOG, View.WHY, View.EVENTS) and place.subject:
        return Target(View.TASK if place.subject.count("/") == 2 else View.JOB, place.subject)
    return None


def _lead(walk: Walk, key: Pressed, screen: Screen) -> Walk:
    if key in (Key.ENTER, Key.RIGHT):
        return _enter(walk, screen)
    if isinstance(key, str) and key in _TAB_KEYS:
        return _view(walk, _TAB_KEYS[key])
    if key in (Key.TAB, Key.BACK_TAB):
        return _beside(walk, 1 if key is Key.TAB else -1)
    if key in ("n", "N") and walk.place.search:
        return _next_match(walk, 1 if key == "n" else -1, screen)
    does = _KEYS.get(key)
    return does(walk, about(walk, screen)) if does else walk


_TAB_KEYS = {str(number): view for number, view in enumerate((View.OVERVIEW, *TABS))}


def _quit(walk: Walk, _thing: Target | None) -> Walk:
    """Leave a text as in less, and the dashboard from everywhere else."""
    return _left(walk) if walk.place.view in TEXTS else msgspec.structs.replace(walk, is_over=True)


def _pause(walk: Walk, _thing: Target | None) -> Walk:
    return msgspec.structs.replace(walk, is_paused=not walk.is_paused)


def _up(walk: Walk, _thing: Target | None) -> Walk:
    """Take off, first, what is searched for in the place, then what narrows it, then the place."""
    place = walk.place
    if place.search:
        return with_place(walk, msgspec.structs.replace(place, search="", match=-1, wrapped=""))
    if place.filter and place.view in FILTERED:
        return with_place(walk, _on_page(msgspec.structs.replace(place, filter=""), "", ()))
    return _left(walk)


def _left(walk: Walk) -> Walk:
    """Take off the uppermost place, but for the first one."""
    return msgspec.structs.replace(walk, places=walk.places[:-1] or walk.places)


def _aside(walk: Walk, characters: int) -> Walk:
    place = walk.place
    if place.view not in GROWING:
        return walk
    return with_place(walk, msgspec.structs.replace(place, left=max(0, place.left + characters)))


def _help(walk: Walk, _thing: Target | None) -> Walk:
    return go(walk, Target(View.HELP))


def _filter(walk: Walk, _thing: Target | None) -> Walk:
    if walk.place.view not in FILTERED:
        return walk
    return msgspec.structs.replace(walk, prompt=Prompt("filter", walk.place.filter))


def _search(walk: Walk, thing: Target | None) -> Walk:
    """Search in a text that is read line by line; of all else show only what has a text in it."""
    if walk.place.view not in GROWING:
        return _filter(walk, thing)
    return msgspec.structs.replace(walk, prompt=Prompt("search"))


def _sort(walk: Walk, _thing: Target | None) -> Walk:
    place = walk.place
    if place.view not in SORTS:
        return walk
    sort = (place.sort + 1) % len(SORTS[place.view])
    return with_place(walk, _on_page(msgspec.structs.replace(place, sort=sort), "", ()))


def _time(walk: Walk, _thing: Target | None) -> Walk:
    start = "" if walk.place.moment is None else str(walk.place.moment)
    time = go(walk, Target(View.TIME))
    return with_place(time, msgspec.structs.replace(time.place, page=start, at=_ALL, moment=None))


def _difference(walk: Walk, _thing: Target | None) -> Walk:
    since = MOMENT_DEFAULT if walk.mark is None else str(walk.mark)
    return msgspec.structs.replace(walk, prompt=Prompt("diff", since))


def _other_run(walk: Walk, _thing: Target | None) -> Walk:
    """Show what the run before wrote, or the present one again."""
    place = walk.place
    if place.view not in (View.TASK, View.LOG):
        return walk
    return with_place(walk, _following(msgspec.structs.replace(place, previous=not place.previous)))


def _log(walk: Walk, thing: Target | None) -> Walk:
    return go(walk, Target(View.LOG, thing.subject)) if thing and thing.view is View.TASK else walk


def _why(walk: Walk, thing: Target | None) -> Walk:
    is_explained = thing is not None and thing.view in (View.JOB, View.TASK)
    return go(walk, Target(View.WHY, thing.subject)) if thing and is_explained else walk


def _events(walk: Walk, thing: Target | None) -> Walk:
    subject = thing.subject if thing is not None and thing.view in (View.JOB, View.TASK) else ""
    return go(walk, Target(View.EVENTS, subject))


def _actions(walk: Walk, thing: Target | None) -> Walk:
    if (moment := walk.place.moment) is not None:  # what is done is done now: of the past, to go back to it
        return go(walk, Target(View.ACTIONS, str(moment), View.TIME))
    return go(walk, Target(View.ACTIONS, thing.subject, thing.view) if thing else Target(View.ACTIONS))


_KEYS: dict[Pressed, Callable[[Walk, Target | None], Walk]] = {
    "q": _quit,
    "p": _pause,
    Key.ESCAPE: _up,
    Key.BACKSPACE: _up,
    Key.LEFT: _up,
    "h": _up,
    "?": _help,
    "/": _search,
    "&": _filter,
    "s": _sort,
    "t": _time,
    "d": _difference,
    "<": lambda walk, _thing: _aside(walk, -_ASIDE_CHARACTERS),
    ">": lambda walk, _thing: _aside(walk, _ASIDE_CHARACTERS),
    "l": _log,
    "o": _other_run,
    "w": _why,
    "e": _events,
    "a": _actions,
}


# Time


def _in_time(walk: Walk, key: Pressed, screen: Screen) -> Walk | None:
    """Return where a key leads among the entries of the journal; None where it leads as elsewhere."""
    if key == ":":
        return msgspec.structs.replace(walk, prompt=Prompt("moment"))
    if not screen.positions:
        return walk if key in _TIME_KEYS else None
    position = screen.positions[min(walk.place.at, len(screen.positions) - 1)]
    if key == "m":
        return msgspec.structs.replace(walk, mark=None if walk.mark == position else position)
    if key == "d":
        first, last = sorted((walk.mark or position, position))
        since = MOMENT_DEFAULT if walk.mark is None else str(first)
        return go(walk, Target(View.DIFF, f"{since}..{last}"))
    if key == "a":
        return go(walk, Target(View.ACTIONS, str(position), View.TIME))
    if key in ("[", "]"):
        far = max(1, (screen.head - screen.earliest) // 20)
        return _at_moment(walk, position + (far if key == "]" else -far), screen)
    return None


_TIME_KEYS = ("m", "d", "a", "[", "]")


def _at_moment(walk: Walk, position: int, screen: Screen) -> Walk:
    """Go to an entry, if it is not among those that are there with another window of the journal."""
    position = min(max(screen.earliest, position), screen.head)
    place = msgspec.structs.replace(walk.place, chosen=Target(View.OVERVIEW, str(position)))
    if position in screen.positions:
        at = screen.positions.index(position)
        return with_place(walk, msgspec.structs.replace(place, at=at))
    return with_place(walk, msgspec.structs.replace(place, page=str(position)))


# Typing and doing


def _type(walk: Walk, prompt: Prompt, key: Pressed, screen: Screen) -> Walk:
    if key is Key.ENTER:
        return _typed(msgspec.structs.replace(walk, prompt=None), prompt, screen)
    if key is Key.ESCAPE:
        return msgspec.structs.replace(walk, prompt=None)
    if key is Key.BACKSPACE:
        typed = prompt.typed[:-1]
    elif key is Key.PAGE_UP:  # Ctrl-U, as in shells
        typed = ""
    elif isinstance(key, Paste):
        typed = (prompt.typed + key.text)[:_TYPED_MAX]
    elif isinstance(key, str) and not isinstance(key, Key):
        typed = (prompt.typed + key)[:_TYPED_MAX]
    else:
        return walk
    return msgspec.structs.replace(walk, prompt=msgspec.structs.replace(prompt, typed=typed))


def _typed(walk: Walk, prompt: Prompt, screen: Screen) -> Walk:
    typed, place = prompt.typed.strip(), walk.place
    if prompt.action is not None:
        action = prompt.action
        asked = msgspec.structs.replace(action, command=(*action.command, typed), asks="")
        return msgspec.structs.replace(walk, asked=asked) if typed else walk
    if prompt.what == "filter":
        narrowed = msgspec.structs.replace(place, filter=typed, seeks=place.match >= 0)
        return with_place(walk, _on_page(narrowed, "", ()))
    if not typed:  # a search goes on, as in less
        return _next_match(walk, 1, screen) if prompt.what == "search" else walk
    if prompt.what == "search":
        return with_place(walk, msgspec.structs.replace(place, search=prompt.typed, seeks=True))
    if prompt.what == "moment":
        return with_place(walk, msgspec.structs.replace(place, page=typed, at=_ALL, chosen=None))
    end = "now" if place.moment is None else str(place.moment)
    return go(walk, Target(View.DIFF, f"{typed}..{end}"))


def _choose(walk: Walk, action: Action) -> Walk:
    if action.asks:
        return msgspec.structs.replace(walk, prompt=Prompt(action.asks, action=action))
    return msgspec.structs.replace(walk, asked=action)


def _answer(walk: Walk, action: Action, key: Pressed) -> Walk:
    """``y`` runs the command that is asked about; any other key does nothing."""
    walk = msgspec.structs.replace(walk, asked=None)
    if key != "y":
        return walk
    commands = (*walk.commands, action.command)
    if walk.place.view is View.ACTIONS:
        walk = msgspec.structs.replace(walk, places=walk.places[:-1])
    return go(msgspec.structs.replace(walk, commands=commands), Target(View.OUTPUT, str(len(commands) - 1)))
