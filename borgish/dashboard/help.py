"""The keys of the dashboard, in words. Pure."""

from collections.abc import Iterator

from borgish.dashboard.columns import Role, wrapped

_KEYS = (
    ("GOING ABOUT", ()),
    ("arrows, j k", "move; PgUp PgDn, Home End, g G, the wheel: further"),
    ("Enter, right", "go into what the cursor is on: cell, job, task, its log"),
    ("Esc, left", "go back; first take the search, then the filter away"),
    ("0", "the cell at one glance"),
    ("1 to 7", "jobs, tasks, machines, pending, events, users, usage"),
    ("Tab", "the next of these views; Shift-Tab the one before"),
    ("/", "only what has a text in it; an empty one takes that away"),
    ("/, in a log", "search; n and N: the next match and the one before; G follows"),
    ("&", "of a log, too, only what has a text in it"),
    ("s", "sort by the next of what there is; the master sorts"),
    ("p", "pause, so that what is shown stays"),
    ("< >", "the other part of a log's long lines"),
    ("Ctrl-L", "draw the screen anew"),
    ("q", "leave a text; elsewhere, quit"),
    ("", ""),
    ("ABOUT WHAT THE CURSOR IS ON", ()),
    ("l", "the log of a task, live; o there: that of the run before"),
    ("w", "why a job or a task is as it is, and the way out"),
    ("e", "what happened to it"),
    ("a", "what can be done: commands of borgctl, each asked about first"),
    ("d", "what differs between a moment and now"),
    ("", ""),
    ("t, BACK IN TIME", ()),
    ("left, right", "one entry of the journal back or on; PgUp PgDn: a page"),
    ("[ ]", "a twentieth of the journal back or on; or click on its line"),
    (":", "a moment: 5m ago, 12:00, a position, a checkpoint's name"),
    ("Enter", "walk through the cell as it was then; Esc leads back"),
    ("m, then d", "mark an entry, and see what differs between it and another"),
    ("a", "what a rollback to that moment would change, and the rollback"),
)

_KEY_COLUMNS = 17


def help_lines(width: int) -> Iterator[tuple[str, Role]]:
    """Yield the keys, what each does in so many lines as it needs."""
    for key, does in _KEYS:
        if does == ():
            yield key, Role.TITLE
            continue
        first, *more = wrapped(does, width - _KEY_COLUMNS)
        yield f"  {key:14} {first}", Role.PLAIN
        yield from ((" " * _KEY_COLUMNS + each, Role.PLAIN) for each in more)
