"""A whole screen: the head, where somebody is, what the place shows, and the keys. Pure.

Lines out are of exactly the size that comes in, and with them what decides where the next key leads.
"""

import msgspec

from borgish.dashboard import past
from borgish.dashboard.actions import shown
from borgish.dashboard.bodies import Known, as_of, body, columns
from borgish.dashboard.columns import CUT_MARK, Line, Piece, Role, line, name, width_of, words
from borgish.dashboard.frame import Frame, head
from borgish.dashboard.place import (
    FILTERED,
    GROWING,
    SORTS,
    TABS,
    TEXTS,
    Place,
    Screen,
    View,
    Walk,
    settled,
    with_place,
)
from borgish.text import day_and_time, local_times
from borgish.wire.api import StatusView

HEAD_LINES_MIN = 20
"""On lower screens the head is one line."""
_GUTTER = Piece(" │ ", Role.DIM)


class Drawn(msgspec.Struct, frozen=True):
    """What is on the screen: the walk with its cursor among the rows that are there now."""

    frame: Frame
    walk: Walk
    screen: Screen


def draw(walk: Walk, known: Known, width: int, height: int) -> Drawn:
    """Return the screen of a walk in so many columns and lines."""
    width, height = max(1, width), max(1, height)
    top = [*_banners(walk, known, width), *_head(walk.place, known, width, height)]
    tabs, spans = _where(walk, known.summary.status, width)
    top.append(tabs)
    room = max(1, height - len(top) - 1)
    found = body(known, walk.place, width, room)
    listed, beside = columns(width, beside=bool(found.side))
    list_rows = max(0, room - len(found.above) - len(found.below) - 1)
    screen = Screen(
        rows=found.listing.rows,
        is_whole=found.is_whole,
        target=found.listing.target,
        page_rows=max(1, list_rows),
        columns=listed,
        matches=found.matches,
        first_row_line=len(top) + len(found.above) + 1,
        tabs=spans,
        tabs_line=len(top) - 1 if spans else -1,
        next_page=found.next_page,
        actions=found.actions,
    )
    if (window := found.window) is not None:
        _, _, column, count = past.slider_columns(window, listed)
        screen = msgspec.structs.replace(
            screen,
            positions=tuple(step.entry.position for step in window.steps),
            begins_at=max(0, sum(step.entry.position <= window.position for step in window.steps) - 1),
            earliest=window.earliest,
            head=window.head,
            slider=(len(top), column, count),
        )
    place = settled(walk.place, screen)
    is_other_entry = place.view is View.TIME and place.at != walk.place.at
    if is_other_entry or (place.left, place.follows) != (walk.place.left, walk.place.follows):
        # What stands beside the entries is of the one that is chosen, and a match may be far to the right.
        found = body(known, place, width, room)
    cursor = place.match if place.view in TEXTS else place.at
    first = place.top if found.is_whole else 0  # what stands there meanwhile is short, wherever the rows were
    lines = [*found.above, *found.listing.draw(listed, list_rows, first, cursor)]
    lines += [line([], listed)] * (room - len(found.below) - len(lines))
    lines += found.below
    if found.side:
        side = [*found.side, *[line([], beside)] * (room - len(found.side))]
        lines = [(*line(ours, listed), _GUTTER, *theirs) for ours, theirs in zip(lines, side, strict=False)]
    walk = with_place(walk, place)
    rows = [*top, *lines[:room]]
    rows += [line([], width)] * (height - 1 - len(rows))
    foot = _foot(walk, screen, width)
    frame = Frame(width, height, tuple([*rows[: height - 1], foot][:height]))
    return Drawn(frame, walk, screen)


def _banners(walk: Walk, known: Known, width: int) -> list[Line]:
    status = known.summary.status
    answer = known.answer
    stale = f"not read again: {answer.error}" if answer.error and answer.views and not known.banner else ""
    texts = [known.banner, stale, *status.refusing, *status.busy]
    if status.frozen:
        texts.append(f"The cell is {local_times(status.frozen)}")
    found = [line([], width, text, Role.BANNER) for text in texts if text]
    if walk.place.moment is not None:
        when = as_of(known.answer.views)
        at = f" of {day_and_time(when.at)}" if when and when.at else ""
        text = f"The cell at position {walk.place.moment}{at}. Esc leads back to the present"
        found.append(line([], width, text, Role.BANNER))
    return found


def _head(place: Place, known: Known, width: int, height: int) -> list[Line]:
    status, elapsed = known.summary.status, known.elapsed_seconds
    if place.moment is not None:
        then = known.answer.views[0] if known.answer.views else None
        past_status = getattr(then, "status", None)
        if not isinstance(past_status, StatusView):
            return []
        status, elapsed = past_status, 0.0
    made = head(status, elapsed, width)
    if height < HEAD_LINES_MIN or place.view in TEXTS:
        return made[:1]
    return made if height >= 2 * HEAD_LINES_MIN else made[:4]


def _where(walk: Walk, status: StatusView, width: int) -> tuple[Line, tuple[tuple[int, int, View], ...]]:
    """Return the line with the views, and the columns of each; or the way that led to the place."""
    place = walk.place
    if place.view is not View.OVERVIEW and (place.view not in TABS or place.subject):
        return line([], width, _way([_name(each) for each in walk.places[1:]], width), Role.TITLE), ()
    counts = {View.PENDING: status.pending} if place.moment is None else {}
    pieces, spans, column = [], [], 0
    for number, view in enumerate((View.OVERVIEW, *TABS)):
        count = counts.get(view, 0)
        text = f"{number} {view}{f' {count}' if count else ''}" if number else "0 cell"
        piece = words(text, Role.TITLE if view is place.view else Role.DIM)
        pieces.append(Piece(piece.text, piece.role, view is place.view))
        spans.append((column, column + width_of(piece.text), view))
        column += width_of(piece.text)
    return line(pieces, width), tuple(spans)


def _way(names: list[str], width: int) -> str:
    """Return the way to a place, its end at least: of what is too long, the beginning is left out."""
    way = " > ".join(names)
    while len(names) > 1 and width_of(way) >= width:
        names = names[1:]
        way = f"{CUT_MARK} > {' > '.join(names)}"
    return name(way, width - 1).text.rstrip()


def _name(place: Place) -> str:
    if place.view is View.OVERVIEW and place.moment is not None:
        return f"cell at {place.moment}"
    return f"{place.view} {place.subject}".strip()


def _foot(walk: Walk, screen: Screen, width: int) -> Line:
    if walk.asked is not None:
        return line([], width, f"Run `{shown(walk.asked)}`? y runs it, any other key does not", Role.BANNER)
    if walk.prompt is not None:
        prompt = walk.prompt
        return line([words(f"{prompt.what}:", Role.TITLE)], width, f"{prompt.typed}▏")
    place = walk.place
    told = []
    if place.search:
        told.append(_found(place, screen))
    if place.filter and place.view in FILTERED:
        told.append(f"only with '{place.filter}': esc shows all")
    if place.pages or screen.next_page:
        told.append(f"page {len(place.pages) + 1}")
    if walk.mark is not None:
        told.append(f"marked {walk.mark}")
    pieces = [words(each, Role.WARN) for each in told]
    room = width - sum(width_of(each.text) for each in pieces)
    for key, does in _keys(place):
        room -= width_of(key) + len(does) + 1
        if room < 0:
            break  # half a word helps nobody, and ? has them all
        pieces += [Piece(key, Role.KEY), Piece(f" {does}", Role.DIM), Piece("  ")]
        room -= 2
    return line(pieces, width)


def _found(place: Place, screen: Screen) -> str:
    """Return what of a search there is, and which of it somebody looks at."""
    rows = [row for row, _ in screen.matches]
    of = "1 match" if len(rows) == 1 else f"{len(rows) or 'no'} matches"
    if place.match in rows:
        of = f"match {rows.index(place.match) + 1} of {len(rows)}"
    return f"'{place.search}': {', '.join(filter(None, (of, place.wrapped)))}"


def _keys(place: Place) -> list[tuple[str, str]]:
    """Return the keys that are of use in a place, those that are needed most first."""
    if place.view is View.TIME:
        return [
            *(("?", "help"), ("esc", "back"), ("←→", "entry"), ("[ ]", "far"), (":", "moment")),
            *(("enter", "walk there"), ("a", "roll back"), ("m", "mark"), ("d", "difference")),
        ]
    keys = [("?", "help")]
    if place.view is not View.OVERVIEW:
        keys.append(("esc", "clear" if place.search else "back"))
    if place.view not in TEXTS:
        keys.append(("enter", "in"))
    if place.search:
        keys += [("n N", "next, before"), ("G", "follow")]
    if place.view in GROWING:
        keys.append(("/", "search"))
    if place.view in FILTERED:
        keys.append(("&" if place.view in GROWING else "/", "filter"))
    if place.view is View.LOG:
        keys += [("< >", "aside"), ("o", "this run" if place.previous else "run before")]
    if place.view in SORTS:
        keys.append(("s", f"by {place.sort_key}"))
    if place.view in (View.JOB, View.TASK, View.TASKS, View.MACHINE, View.USAGE):
        keys.append(("l", "log"))
    if place.view is not View.HELP:
        keys += [("w", "why"), ("a", "actions"), ("t", "time"), ("e", "events")]
    return keys if place.view in TEXTS else [*keys, ("q", "quit")]
