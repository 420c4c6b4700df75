"""``borgctl login`` and ``borgctl cell``: the cells that somebody works with, and the way back into one.

Each cell that was logged in to has a folder in ``~/.config/borgish/cells``, readable by its user only, with
what ``client.json`` says of a local one: where it is, and which token to take.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from borgish.cli.listing import LimitOption, Listing, cells_option, columns_option, sort_option
from borgish.cli.render import Column, Form, FormOption
from borgish.cli.session import (
    ALL,
    LOCAL,
    DirOption,
    cells_folder,
    chosen_cell,
    expect_logged_in,
    logged_in,
    noun,
    session_of,
    single,
)
from borgish.errors import Invalid, NotFound, Unauthenticated, Unreachable
from borgish.vocabulary import NAME_PATTERN

if TYPE_CHECKING:
    from borgish.cli.cells import CellStatus

login_app = single()
app = noun("The cells that you work with.")


class CellRow(msgspec.Struct, frozen=True):
    """A cell that was logged in to."""

    name: str
    url: str
    chosen: bool


COLUMNS: tuple[Column[CellRow], ...] = (
    Column("", lambda cell: "*" if cell.chosen else ""),
    Column("NAME", lambda cell: cell.name),
    Column("URL", lambda cell: cell.url),
)


@login_app.command()
def login(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The borgmaster, like https://host:7400; of several A,B.")
    ],
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="The token. Default: it is asked for, or read."),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="What to call it. Default: the cell's name.")] = "",
    authority: Annotated[
        str,
        typer.Option(
            "--authority", metavar="HASH", help="Of the cell's authority, as `token create` prints it."
        ),
    ] = "",
) -> None:
    """Keep a token for a cell, and work with it from now on.

    The token is read from a file, from a pipe, or asked for; never from the command line, where others of
    this host could see it. By https the authority that answers is compared with --authority before the
    token is sent. Name all masters of a cell: commands go on to the next where one does not answer.
    """
    import tempfile

    from borgish.cli.session import read_token

    token = read_token(token_file) if token_file else _ask_token()
    if not token:
        raise Unauthenticated("no token was given", "Type it, pipe it in, or name its file with --token-file")
    if "https://" in url and not authority and "BORGISH_CA" not in os.environ:
        raise Invalid(
            "nothing says by which authority the cell is known",
            "give --authority HASH, which `borgctl token create` prints, or BORGISH_CA with its file",
        )
    with tempfile.TemporaryDirectory(prefix="borgctl-") as folder:
        ca = Path(os.environ.get("BORGISH_CA", "") or Path(folder) / "authority.pem")
        if authority:
            ca = Path(folder) / "authority.pem"
            ca.write_bytes(_fetch_authority(url, authority.lower()))
        known = ca.read_text("utf-8") if ca.exists() else ""
        _log_in(url, token, name, str(ca) if known else "", known)


def _fetch_authority(urls: str, wanted: str) -> bytes:
    """Return the authority with this hash from the first of the masters that is there."""
    from borgish.addresses import several
    from borgish.tls.pinning import fetch_authority

    first, *others = several(urls) or (urls,)
    for following in others:
        try:
            return fetch_authority(first, wanted)
        except Unreachable:
            first = following
    return fetch_authority(first, wanted)


def _log_in(url: str, token: str, name: str, ca: str, authority: str) -> None:
    from borgish.cli.screen import print_out
    from borgish.client import Client
    from borgish.wire.api import HealthView, WhoamiView

    client = Client(url, token, ca, token_source="what you gave")  # noqa: S106 - words of a hint
    whoami = client.get("/v1/whoami", None, WhoamiView)
    cell = name or client.get("/v1/health", None, HealthView).cell
    _keep(_checked(cell), url, token, authority)
    _choose(cell)
    print_out(f"logged in to {cell} as {whoami.name} ({whoami.role}); commands go there from now on")


def _ask_token() -> str:
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass("Token: ").strip()
    return sys.stdin.readline().strip()


def _keep(name: str, url: str, token: str, authority: str) -> None:
    from borgish.addresses import several
    from borgish.credentials import write_private

    folder = cells_folder() / name
    for path in (folder.parent.parent, folder.parent, folder):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(folder / "token", token + "\n")
    if authority:
        write_private(folder / "authority.pem", authority)
    urls = several(url)
    client: dict[str, object] = {"url": urls[0], "token_file": "token"}
    if len(urls) > 1:
        client["masters"] = urls
    if authority:
        client |= {"ca": "authority.pem", "pinned": True}
    write_private(folder / "client.json", json.dumps(client, indent=2) + "\n")


def _choose(name: str) -> None:
    from borgish.credentials import write_private

    write_private(cells_folder() / "chosen", name + "\n")


def _checked(name: str) -> str:
    import re

    if not re.fullmatch(NAME_PATTERN, name):
        raise Invalid(f"'{name}' is not a name for a cell", "give one with --name: a-z, 0-9 and -")
    if name in (LOCAL, ALL):
        what = "the nearest cell on this host" if name == LOCAL else "every cell that you are logged in to"
        raise Invalid(f"'{name}' means {what}", "give another name with --name")
    return name


@app.command("list")
def list_(
    sort: Annotated[str, sort_option(lambda: COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: COLUMNS)] = "",
    limit: LimitOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """List the cells that you are logged in to."""
    chosen = chosen_cell()
    Listing(
        items=lambda: [CellRow(name, _url(name), name == chosen) for name in logged_in()],
        columns=COLUMNS,
        form=output,
        name=lambda cell: cell.name,
        none="no cells; `borgctl login URL` keeps a token for one",
        chosen=columns,
        sort=sort,
        limit=limit,
    ).show()


def _url(name: str) -> str:
    try:
        return str(json.loads((cells_folder() / name / "client.json").read_bytes())["url"])
    except (OSError, ValueError, KeyError):
        return "its file is damaged: log in again"


STATUS_COLUMNS: "tuple[Column[CellStatus], ...]" = (
    Column("NAME", lambda cell: cell.name),
    Column("STATE", lambda cell: cell.state, lambda cell: "green" if cell.state == "ok" else "red"),
    Column("MACHINES", lambda cell: _of_all(cell.machines_up, cell.machines), right=True),
    Column("RUNNING", lambda cell: _count(cell.running), right=True),
    Column("PENDING", lambda cell: _count(cell.pending), right=True),
    Column("CPU", lambda cell: _asked_for(cell, cpu=True), right=True),
    Column("RAM", lambda cell: _asked_for(cell, cpu=False), right=True),
    Column("REASON", lambda cell: cell.reason, wide=True),
)


def _count(count: int | None) -> str:
    return "-" if count is None else str(count)


def _of_all(part: int | None, whole: int | None) -> str:
    return "-" if whole is None else f"{part}/{whole}"


def _asked_for(cell: "CellStatus", *, cpu: bool) -> str:
    from borgish.resources import show_bytes, show_cpu

    asked, capacity = cell.asked, cell.capacity
    if asked is None or capacity is None:
        return "-"
    if cpu:
        return f"{show_cpu(asked.cpu_millis)}/{show_cpu(capacity.cpu_millis)}"
    return f"{show_bytes(asked.ram_bytes)}/{show_bytes(capacity.ram_bytes)}"


@app.command()
def status(
    context: typer.Context,
    cells: Annotated[str, cells_option("Only of these; `local` is the nearest one here.")] = "all",
    sort: Annotated[str, sort_option(lambda: STATUS_COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: STATUS_COLUMNS)] = "",
    limit: LimitOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Show how each of your cells is: what runs and waits there, and how much of it is asked for.

    CPU and RAM are what the running tasks may use, and what the machines that are up have. Exit code 4 when
    one of the cells does not answer.
    """
    from borgish.cli.cells import say_failed, statuses

    rows, failed = statuses(context, cells)
    Listing(
        items=lambda: rows,
        columns=STATUS_COLUMNS,
        form=output,
        name=lambda cell: cell.name,
        none="",
        chosen=columns,
        sort=sort,
        limit=limit,
    ).show()
    raise typer.Exit(say_failed(failed))


@app.command()
def use(
    name: Annotated[str, typer.Argument(metavar="CELL", help="Its name; `local` for the nearest one here.")],
) -> None:
    """Work with a cell from now on. `--dir`, `--url` and BORGISH_DIR count more."""
    from borgish.cli.screen import print_out

    if name == LOCAL:
        (cells_folder() / "chosen").unlink(missing_ok=True)
        print_out("commands go to the nearest cell on this host from now on")
        return
    expect_logged_in(name)
    _choose(name)
    print_out(f"commands go to {name} from now on")


@app.command()
def logout(
    name: Annotated[str, typer.Argument(metavar="CELL", help="Its name.")],
) -> None:
    """Forget the token of a cell on this host. It goes on to be good: `borgctl token revoke` ends it."""
    import shutil

    from borgish.cli.screen import print_out

    expect_logged_in(name)
    shutil.rmtree(cells_folder() / name)
    if chosen_cell() == name:
        (cells_folder() / "chosen").unlink(missing_ok=True)
    print_out(f"the token of {name} is gone from this host")


@app.command()
def recover(context: typer.Context, folder: DirOption = None) -> None:
    """Make another admin token, on the host of the borgmaster, where all of them were lost.

    The borgmaster takes it over when it starts, or at SIGHUP, where it leads; one that stands by takes it
    over when it leads. The audit log says so.
    """
    import signal

    from borgish.cli import daemons, local_cell
    from borgish.cli.commands.init import say_admin_token_end
    from borgish.cli.screen import print_out
    from borgish.credentials import replace_admin_token

    session = session_of(context)
    session.use(folder)
    where = session.local_folder
    if not (where / "secret").exists():
        raise NotFound(
            f"{where} is not the state folder of a borgmaster",
            "name it with --dir; `state` in its cell.toml says which it is",
        )
    path = replace_admin_token(where)
    pid = daemons.running_pid(local_cell.master_of(where)) if local_cell.exists(where) else 0
    if pid:
        os.kill(pid, signal.SIGHUP)
        print_out(f"another admin token is in {path}; the borgmaster was told")
    else:
        print_out(f"another admin token is in {path}; start the borgmaster, or send it SIGHUP")
    say_admin_token_end(where)
