"""``borgctl cell init`` and ``rotate-authority``: a cell whose machines are hosts of their own.

What ``init`` makes it makes in this order: the cell's file, its authority, the master's certificate, the
secrets, and last what clients on this host read. Each file is whole or not there, so that after a death it
is run again and makes the rest.
"""

import re
import time
import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from borgish.cli.commands.cell import app
from borgish.cli.session import DirOption, session_of
from borgish.errors import Conflict, Invalid
from borgish.vocabulary import NAME_PATTERN

NAME = "main"
LISTEN = "127.0.0.1:7400"
LOOK_SECONDS = 0.5


class CellFile(msgspec.Struct, frozen=True):
    """What of ``cell.toml`` matters here."""

    name: str = ""
    listen: str = LISTEN
    state: str = "."
    advertise: str = ""
    tls: dict[str, str] | None = None


@app.command()
def init(
    context: typer.Context,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help=f"The cell's name. Default: {NAME}.")
    ] = "",
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help=f"Where its master listens, as 0.0.0.0:7400 for all addresses. Default: {LISTEN}.",
        ),
    ] = "",
    folder: DirOption = None,
) -> None:
    """Make a cell's folder: its file, its authority, the admin's token.

    The authority signs the certificates of masters and machines; nothing of it is needed from elsewhere.
    Run again after it was cut off it makes what is missing, and otherwise says what there is.
    """
    from borgish.cli.local_cell import alone
    from borgish.cli.screen import print_err, print_out

    session = session_of(context)
    session.use(folder)
    where = session.cell_folder
    if name and not re.fullmatch(NAME_PATTERN, name):
        hint = "Write lower-case letters, digits and '-', at most 63"
        raise Invalid(f"--name '{name}' is not the name of a cell", hint)
    if listen and not is_address(listen):
        raise Invalid(f"--listen '{listen}' is not HOST:PORT", "Write it like 0.0.0.0:7400")
    _refuse_foreign(where)
    with alone(where, make=True):
        made, authority = make(where, name, listen)
    file, what = _read(where), f"was given {', '.join(made)}" if made else "is complete"
    if "cell.toml" in made:
        what = "is made"
    print_out(f"cell {file.name} in {where} {what}; it listens on {file.listen}")
    print_out(f"authority: {authority}")
    print_out(f"admin token: {where / 'tokens' / 'admin.token'}")
    say_admin_token_end(where)
    print_err(f"Next: borgmaster --config {where / 'cell.toml'}")


@app.command("rotate-authority")
def rotate_authority(
    context: typer.Context,
    seconds: Annotated[
        float,
        typer.Option("--timeout", min=0.0, help="How long to wait for machines that have not followed."),
    ] = 60.0,
    folder: DirOption = None,
) -> None:
    """Replace the cell's authority; no task is touched.

    The new one is trusted first, then it signs, then the old one is trusted no more. Between these steps
    every machine follows, within seconds; one that is down has to come back, or to be removed. Ended early,
    it is run again and goes on. Invitations that were made before name the old one: make new ones.
    """
    from borgish.cli.changes import Deadline
    from borgish.cli.errors import FAILED, print_error, print_hint
    from borgish.cli.screen import print_err, print_out
    from borgish.text import safe
    from borgish.wire.api_certificates import RotationView

    session = session_of(context)
    session.use(folder)
    client, deadline = session.client(), Deadline(seconds)
    while True:
        view = client.post("/v1/authority/rotate", None, RotationView)
        if view.moved:
            print_out(_STAGES[view.stage])
            deadline = Deadline(seconds)
        if view.moved and view.stage == "none":
            print_out(f"authority: {view.authority}")
            if len(client.each_master()) > 1:
                print_err(
                    f"Next: `borgctl cell seal` on the host of {client.url}, which has the new authority; on "
                    "those of the others `borgctl cell unseal`, and start their borgmasters anew"
                )
            return
        if view.behind and not view.moved:
            if not deadline.left:
                shown = ", ".join(view.behind[:5]) + (" ..." if len(view.behind) > 5 else "")
                print_error(f"{len(view.behind)} machines have not followed: {safe(shown)}")
                print_hint("Bring them up or remove them, and run this again; until then both are trusted")
                raise typer.Exit(FAILED)
            time.sleep(LOOK_SECONDS)


_STAGES = {
    "begun": "the new authority is trusted, the old one signs",
    "switched": "the new authority signs, the old one is trusted",
    "none": "the old authority is trusted no more",
}


def is_address(listen: str) -> bool:
    """Return whether a master can listen there: HOST:PORT."""
    host, _, port = listen.rpartition(":")
    return bool(re.fullmatch(r"[\w.:\[\]-]+", host)) and port.isdecimal() and 0 < int(port) <= 65535


def make(folder: Path, name: str, listen: str) -> tuple[list[str], str]:
    """Make what is missing of a cell; return the names of files that were made, and the authority's hash.

    Raises Conflict where there is a cell with another name or address.
    """
    from borgish.clock import SystemClock
    from borgish.credentials import (
        admin_token_digest,
        drop_drafts,
        make_credentials,
        write_client_file,
        write_private,
    )
    from borgish.tls.files import AUTHORITY_FILE, MASTER_FILE
    from borgish.tls.folder import hosts_of_master, make_authority, master_validity, renew_master

    folder.chmod(0o700)
    wanted = ("cell.toml", AUTHORITY_FILE, MASTER_FILE, "client.json")
    missing = [file for file in wanted if not (folder / file).exists()]
    for draft_of in (*wanted, "authority"):
        drop_drafts(folder / draft_of)
    if "cell.toml" in missing:
        text = f'name = "{name or NAME}"\nlisten = "{listen or LISTEN}"\nstate = "."\n'
        write_private(folder / "cell.toml", text)
    file = _read(folder)
    _expect(folder, file, name, listen)
    now = SystemClock().now().wall
    authority = make_authority(folder, file.name, now)
    host = _host(file)
    if master_validity(folder) is None:
        renew_master(folder, file.name, hosts_of_master(host, file.advertise), now)
    make_credentials(folder)
    admin_token_digest(folder)
    if "client.json" in missing:
        write_client_file(folder, f"https://{_reached(file.listen)}", AUTHORITY_FILE)
    return missing, authority.sha256


def _expect(folder: Path, file: CellFile, name: str, listen: str) -> None:
    """Raise Conflict where what is there is another cell than what is asked for."""
    path = folder / "cell.toml"
    for option, asked, there in (("--name", name, file.name), ("--listen", listen, file.listen)):
        if asked and asked != there:
            key = option.removeprefix("--")
            raise Conflict(
                f"{path} has {key} = '{there}', not '{asked}'",
                f"Leave {option} out to keep it. A cell keeps its name; `listen` is changed in that file",
            )
    if file.tls is not None:
        raise Conflict(
            f"{path} has [tls]: its certificates come from elsewhere",
            "`borgctl cell adopt --config` carries such a cell over, with no task touched",
        )
    if (folder / file.state).resolve() != folder.resolve():
        raise Conflict(
            f"{path} keeps its state in {file.state}, and the authority belongs there",
            "`borgctl cell adopt --config` makes one for a cell that there is",
        )


def _read(folder: Path) -> CellFile:
    return read_cell_file(folder / "cell.toml")


def read_cell_file(path: Path) -> CellFile:
    """Return what matters of a cell's file. Raises Invalid, and OSError."""
    try:
        file = msgspec.convert(tomllib.loads(path.read_text("utf-8")), CellFile)
    except ValueError as error:  # not UTF-8, not TOML, or not as it should be
        raise Invalid(f"{path}: {error}", "Correct it; configs/cell.toml shows every key") from None
    if not re.fullmatch(NAME_PATTERN, file.name) or not is_address(file.listen):
        raise Invalid(f"{path} has no usable name or listen", "Correct it; configs/cell.toml shows every key")
    return file


def cell_name(folder: Path) -> str:
    """Return the name of the cell whose file a folder has; "" without one. Raises Invalid."""
    return _read(folder).name if (folder / "cell.toml").exists() else ""


def _host(file: CellFile) -> str:
    return file.listen.rpartition(":")[0].strip("[]")


def say_admin_token_end(folder: Path) -> None:
    """Say when the admin token in a folder ends, if it does by what its cell.toml says."""
    from borgish.cli.screen import print_err
    from borgish.credentials import admin_token_ends
    from borgish.text import instant

    host = _host(_read(folder)) if (folder / "cell.toml").exists() else ""
    if ends := admin_token_ends(folder, host):
        unknown = "" if host else ", if the cell listens beyond loopback"
        print_err(
            f"This admin token ends at {instant(ends)}{unknown}. "
            "`borgctl token create --role admin --user YOU --for 90d` makes one to keep, "
            "`borgctl cell recover` another first one"
        )


def _reached(listen: str) -> str:
    """Return where clients on this host reach who listens there."""
    host, _, port = listen.rpartition(":")
    return {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host) + f":{port}"  # noqa: S104 - not listened on


def _refuse_foreign(folder: Path) -> None:
    """Raise Conflict for a folder with a cell of another kind, or with other things."""
    from borgish.cli.local_cell import exists, is_ours

    if (folder / "machines").exists():
        raise Conflict(
            f"{folder} has a cell that `borgctl up` made, of machines on this host only",
            "Name another folder with --dir",
        )
    if (folder / "secret").exists() and not exists(folder):  # which is written first
        raise Conflict(
            f"{folder} is the state folder of a cell whose file is elsewhere",
            "`borgctl cell adopt --config FILE` makes its authority; for another cell name another --dir",
        )
    if folder.is_dir() and not exists(folder) and not is_ours(folder):
        raise Conflict(f"{folder} is neither a cell nor empty", "Name an empty or a new folder with --dir")
