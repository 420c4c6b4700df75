"""``borgctl down``: stops a local cell and every task; its state stays, unless purged."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli.commands import single
from borgish.cli.session import DirOption, session_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from borgish.cli.cell import Daemon

app = single()

_DAEMON_SECONDS_MAX = 20.0


@app.command()
def down(
    context: typer.Context,
    purge: Annotated[bool, typer.Option("--purge", help="Remove the cell's folder, too.")] = False,
    folder: DirOption = None,
) -> None:
    """Stop the local cell and every task.

    The jobs stay in the cell's state: `borgctl up` finds them and runs them again.
    """
    from borgish.cli.cell import alone, exists, refuse_copy
    from borgish.cli.screen import data

    session = session_of(context)
    session.use(folder)
    where = session.cell_folder
    if not exists(where):
        data(f"nothing to stop: `borgctl up` made no cell in {where}")
        raise typer.Exit
    refuse_copy(where)
    with alone(where, make=False):
        code = take_down(where)
        if code == 0 and purge:
            _remove(where)
    raise typer.Exit(code)


def take_down(folder: Path) -> int:
    """Stop the master, then the borglets, then what they ran; return the exit code.

    In this order nobody starts anew what was just stopped, and the cell's state stays as it was.
    """
    from borgish.cli import cell, daemons
    from borgish.cli.screen import data

    borglets = cell.borglets_of(folder)
    stopped = daemons.stop([cell.master_of(folder)], _DAEMON_SECONDS_MAX)
    stopped += daemons.stop(borglets, _DAEMON_SECONDS_MAX)
    used = [borglet for borglet in borglets if (borglet.config.parent / "state").is_dir()]
    failed = daemons.stop_everything_run_by(used)
    if failed:
        return _say_failed(failed)
    what = f"stopped {', '.join(stopped)} and every task" if stopped else "nothing runs"
    data(f"cell in {folder}: {what}")
    return 0


def _say_failed(failed: "Sequence[tuple[Daemon, str]]") -> int:
    from borgish.cli.failing import FAILED, say_error
    from borgish.cli.screen import say

    for daemon, words in failed:
        say_error(f"not every task of {daemon.name} could be stopped:")
        say("\n".join(f"  {line}" for line in words.splitlines()))
    return FAILED


def _remove(folder: Path) -> None:
    from borgish.cli.cell import purge
    from borgish.cli.screen import data
    from borgish.text import safe

    left = purge(folder)
    data(f"removed {folder}" if not left else f"removed the cell; {folder} still has {safe(', '.join(left))}")
