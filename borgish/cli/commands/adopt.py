"""``borgctl cell adopt``: an authority for a cell that has an operator's files under ``[tls]``, or nothing.

The cell runs on, and so do its tasks. While ``[tls]`` is in the cell's file the master is known by both, and
knows machines by both; they are carried over one by one, each by an invitation for its name. ``--finish``
takes ``[tls]`` out when none is left.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import borgish.cli.commands.seal  # noqa: F401 - its commands are of the same noun
from borgish.cli.commands.cell import app
from borgish.cli.commands.init import read_cell_file
from borgish.cli.session import Session, session_of
from borgish.errors import BorgishError, Conflict, NotFound

if TYPE_CHECKING:
    from borgish.wire.api import StatusView

SECONDS_MAX = 5.0


@app.command()
def adopt(
    context: typer.Context,
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The cell's file.")],
    *,
    finish: Annotated[
        bool, typer.Option("--finish", help="Take [tls] out of it: every machine has been carried over.")
    ] = False,
) -> None:
    """Make an authority for a cell that runs without one, on the host of its borgmaster; no task is touched.

    Restart the borgmaster then, and let each machine join by an invitation for its name. Run again it says
    which are left.
    """
    from borgish.cli.local_cell import alone

    file = read_cell_file(config)
    folder = (config.resolve().parent / file.state).resolve()
    if not (folder / "secret").exists():
        raise NotFound(
            f"{folder}, the state folder of {config}, has no cell yet",
            "`borgctl cell init` makes a cell with an authority from the beginning",
        )
    if (folder / "machines").exists():
        raise Conflict(
            f"{folder} has a cell that `borgctl up` made, of machines on this host only",
            "It listens on loopback, and needs no certificates",
        )
    if folder.stat().st_uid != os.geteuid():
        raise Conflict(f"{folder} belongs to another user", "Run this as the user of the borgmaster")
    session = session_of(context)
    session.use(folder)
    with alone(folder, make=False):
        _finish(session, config, folder) if finish else _make(session, config, folder)


def _make(session: Session, config: Path, folder: Path) -> None:
    from borgish.cli.screen import print_err, print_out
    from borgish.clock import SystemClock
    from borgish.credentials import drop_drafts
    from borgish.tls.files import AUTHORITY_FILE, MASTER_FILE
    from borgish.tls.folder import hosts_of_master, make_authority, master_validity, renew_master

    file, now = read_cell_file(config), SystemClock().now().wall
    is_new = not (folder / AUTHORITY_FILE).exists()
    for name in ("authority", AUTHORITY_FILE, MASTER_FILE):
        drop_drafts(folder / name)
    authority = make_authority(folder, file.name, now)
    if master_validity(folder) is None:
        host = file.listen.rpartition(":")[0].strip("[]")
        renew_master(folder, file.name, hosts_of_master(host, file.advertise), now)
    print_out(f"cell {file.name} has {'' if not is_new else 'now '}an authority of its own in {folder}")
    print_out(f"authority: {authority.sha256}")
    view = None if is_new else _status(session, authority.sha256)
    if view is None:
        print_err(f"Next: restart the borgmaster (borgmaster --config {config}), and run this again")
    elif view.machines_uncertified:
        print_out(f"to be carried over: {_left(view)}")
        print_err(
            "Next, for each: `borgctl machine invite NAME`; on the machine stop the borglet, and run the"
        )
        print_err("`borglet join` that is printed, with the --dir of its borglet.toml. Its tasks run on")
    elif file.tls is not None:
        print_err(f"Next: every machine is carried over; borgctl cell adopt --config {config} --finish")
    else:
        print_out("every machine is carried over")


def _finish(session: Session, config: Path, folder: Path) -> None:
    from borgish.cli.screen import print_err, print_out
    from borgish.configuration import without_table
    from borgish.credentials import write_private
    from borgish.tls.bundle import authority_hash
    from borgish.tls.folder import read_bundle

    if read_cell_file(config).tls is None:
        print_out(f"{config} has no [tls]: nothing is left to do")
        return
    view = _status(session, authority_hash(read_bundle(folder)[0]))
    if view is None:
        raise Conflict(
            "the borgmaster does not answer by the cell's own authority",
            "Run this without --finish first, and restart the borgmaster",
        )
    if view.machines_uncertified:
        raise Conflict(
            f"not carried over yet: {_left(view)}", "Invite them by their names, or remove them from the cell"
        )
    text = without_table(config, "tls")
    write_private(config.with_name(config.name + ".before"), config.read_text("utf-8"))
    write_private(config, text)
    print_out(f"{config} has no [tls] any more; as it was it is in {config.name}.before")
    print_err("Next: restart the borgmaster. Clients log in anew, by `borgctl login URL --authority HASH`")


def _status(session: Session, authority: str) -> "StatusView | None":
    """Return how the cell is; None where its borgmaster does not show this authority."""
    from borgish.cli.commands.invite import authority_of
    from borgish.wire.api import StatusView

    try:
        client = session.client(SECONDS_MAX)
        return client.get("/v1/status", None, StatusView) if authority_of(client) == authority else None
    except BorgishError:
        return None


def _left(view: "StatusView") -> str:
    more = view.machines_uncertified - len(view.uncertified)
    return ", ".join(view.uncertified) + (f" and {more} more" if more else "")
