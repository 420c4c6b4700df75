"""What names can follow, for the shells: jobs, tasks, machines, checkpoints, users, moments.

Whoever presses Tab waits for it, and a word about what is wrong would stand in the middle of what was typed.
So all of it ends within ``SECONDS_MAX``, says nothing of errors, and offers ``NAMES_MAX`` names at the most.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from borgish.cli.session import LOCAL, Session, logged_in

if TYPE_CHECKING:
    from borgish.client import Client, Params

SECONDS_MAX = 0.5
NAMES_MAX = 100
_SCANNED_MAX = 1000  # a page of the API
_AGES = ("5m", "30m", "1h", "1d")


def among(*words: str) -> Callable[[str], list[str]]:
    """Return what completes one of these words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def with_commas(incomplete: str, words: Iterable[str]) -> list[str]:
    """Return what completes the last of several words with commas."""
    before, comma, begun = incomplete.rpartition(",")
    return [f"{before}{comma}{word}" for word in words if word.startswith(begun)]


def cells(incomplete: str) -> list[str]:
    """Return the cells that somebody is logged in to, and the words that stand for others."""
    return with_commas(incomplete, ("all", LOCAL, *logged_in()))


def jobs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs whose names begin so, with their users or without."""
    return _found(
        context, incomplete, lambda client: (name for name, _ in _jobs(client, incomplete, incomplete))
    )


def tasks(context: typer.Context, incomplete: str) -> list[str]:
    """Return the tasks whose names begin so."""
    return _found(context, incomplete, lambda client: _tasks(client, incomplete))


def jobs_and_tasks(context: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs whose names begin so; behind the name of one, its tasks."""

    def ask(client: "Client") -> Iterator[str]:
        found = [name for name, _ in _jobs(client, incomplete, incomplete)]
        yield from found or _tasks(client, incomplete)

    return _found(context, incomplete, ask)


def machines(context: typer.Context, incomplete: str) -> list[str]:
    """Return the machines whose names begin so."""
    return _listed(context, incomplete, "/v1/machines")


def users(context: typer.Context, incomplete: str) -> list[str]:
    """Return the users whose names begin so."""
    return _listed(context, incomplete, "/v1/users")


def groups(context: typer.Context, incomplete: str) -> list[str]:
    """Return the groups whose names begin so."""
    return _listed(context, incomplete, "/v1/groups")


def owners(context: typer.Context, incomplete: str) -> list[str]:
    """Return the users and the groups whose names begin so."""
    return [*users(context, incomplete), *groups(context, incomplete)][:NAMES_MAX]


def apps(context: typer.Context, incomplete: str) -> list[str]:
    """Return the applications whose names begin so."""
    return _listed(context, incomplete, "/v1/apps")


def crons(context: typer.Context, incomplete: str) -> list[str]:
    """Return the crons whose names begin so."""
    return _listed(context, incomplete, "/v1/crons")


def budgets(context: typer.Context, incomplete: str) -> list[str]:
    """Return the budgets whose names begin so."""
    return _listed(context, incomplete, "/v1/budgets")


def checkpoints(context: typer.Context, incomplete: str) -> list[str]:
    """Return the checkpoints, by name, or else by position."""
    return _found(context, incomplete, _checkpoints)


def moments(context: typer.Context, incomplete: str) -> list[str]:
    """Return moments of the past: checkpoints, and how long ago."""
    return _found(context, incomplete, lambda client: (*_checkpoints(client), *_AGES))


def _listed(context: typer.Context, incomplete: str, path: str) -> list[str]:
    def ask(client: "Client") -> Iterator[str]:
        yield from _short(name for name, _ in _items(client, path, {"limit": _SCANNED_MAX}))

    return _found(context, incomplete, ask)


def _found(context: typer.Context, incomplete: str, ask: Callable[["Client"], Iterable[str]]) -> list[str]:
    """Return what begins so of what ``ask`` returns, if that comes in time and without an error."""
    import threading

    names: list[str] = []

    def work() -> None:
        try:
            client = _session(context).client(SECONDS_MAX)
            found = (name for name in ask(client) if name.startswith(incomplete) and name.isprintable())
            names.extend(sorted(dict.fromkeys(found), key=lambda name: (name.count("/"), len(name), name)))
        except Exception:  # noqa: S110 - whatever it is, nobody is to read of it here
            pass

    worker = threading.Thread(target=work, name="completion", daemon=True)
    worker.start()
    worker.join(SECONDS_MAX)
    return list(names[:NAMES_MAX])


def _session(context: typer.Context) -> Session:
    """Return the session of the options that stand before the command: its callback has not run."""
    given = context.find_root().params
    folder, token_file = given.get("folder"), given.get("token_file")
    return Session(
        Path(folder) if folder else None, given.get("url") or "", Path(token_file) if token_file else None
    )


def _jobs(client: "Client", full: str, short: str) -> list[tuple[str, int]]:
    """Return jobs with their numbers of tasks: by their full names those that begin with ``full``, and where
    only one user has it, by their short names those that begin with ``short``."""
    # Names are asked for from just before the beginning, so that a large cell sends no more than is shown.
    before = f"{full[:-1]}{chr(ord(full[-1]) - 1)}~" if full and full.isascii() else ""
    listed = _items(client, "/v1/jobs", {"limit": NAMES_MAX, "after": before})
    found = [(name, tasks) for name, tasks in listed if name.startswith(full)]
    if "/" in short:
        return found
    every = [(_last(name), tasks) for name, tasks in _items(client, "/v1/jobs", {"limit": _SCANNED_MAX})]
    times = Counter(name for name, _ in every)
    return found + [(name, tasks) for name, tasks in every if times[name] == 1 and name.startswith(short)]


def _tasks(client: "Client", text: str) -> list[str]:
    head, _, index = text.rpartition("/")
    beginnings = [(text, text), (head, head)] if head and (not index or index.isdecimal()) else [(text, text)]
    found = [each for full, short in beginnings for each in _jobs(client, full, short)]
    names = (f"{job}/{number}" for job, count in found for number in range(min(count, 10 * NAMES_MAX)))
    return [name for name in names if name.startswith(text)][:NAMES_MAX]


def _checkpoints(client: "Client") -> list[str]:
    import msgspec

    class Checkpoint(msgspec.Struct):
        position: int
        name: str = ""

    class Checkpoints(msgspec.Struct):
        items: tuple[Checkpoint, ...]

    return [it.name or str(it.position) for it in client.get("/v1/checkpoints", None, Checkpoints).items]


def _items(client: "Client", path: str, params: "Params") -> list[tuple[str, int]]:
    """Return the first page of a list: names, and how many tasks each has. Nothing else of it is read, and
    nothing made for that where nobody asks: every command imports this module."""
    import msgspec

    class Item(msgspec.Struct):
        name: str
        tasks: int = 0

    class Items(msgspec.Struct):
        items: tuple[Item, ...]

    return [(item.name, item.tasks) for item in client.get(path, params, Items).items]


def _short(names: Iterable[str]) -> Iterator[str]:
    """Yield names, and where they have a user in front and only one has it, without that as well."""
    every = list(names)
    yield from every
    times = Counter(_last(name) for name in every)
    yield from (_last(name) for name in every if times[_last(name)] == 1)


def _last(name: str) -> str:
    return name.partition("/")[2] or name
