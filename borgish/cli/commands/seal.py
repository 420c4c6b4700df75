"""``borgctl cell seal`` and ``unseal``: carry what the masters of a cell share to another master's host.

That is the authority with its key, and ``secret``, of which the tokens of machines, the key of the audit log
and that of secrets are made. What a master has for itself, as its certificate, is made on its own host.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from borgish.cli.commands.cell import app
from borgish.cli.commands.init import cell_name
from borgish.cli.session import DirOption, Session, session_of
from borgish.errors import BorgishError, Conflict, Invalid, NotFound

SECRET = "secret"  # noqa: S105 - the name of a file
SECONDS_MAX = 5.0

PassphraseFile = Annotated[
    Path | None,
    typer.Option("--passphrase-file", metavar="FILE", help="The passphrase, in its first line."),
]


@app.command()
def seal(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, readable by you only.")],
    passphrase_file: PassphraseFile = None,
    folder: DirOption = None,
) -> None:
    """Write what the masters of this cell share to a file, sealed, on the host of one of them.

    The passphrase is drawn and printed once, unless one is given. Carry both to the other host by different
    ways, and run `cell unseal` there. It is also what a backup of the cell needs beside its database.
    """
    from borgish.cli.commands.checkpoint import expect_usable, write_exported
    from borgish.cli.screen import print_err, print_out
    from borgish.text import safe
    from borgish.tls.sealed import draw_passphrase
    from borgish.tls.sealed import seal as sealed

    session = session_of(context)
    session.use(folder)
    where = session.local_folder
    files, cell = shared_files(where), _cell_of(session, where)
    expect_usable(file, force=False)
    passphrase = _first_line(passphrase_file) if passphrase_file else draw_passphrase()
    content = sealed(cell, files, passphrase)
    _tell_master(session)
    write_exported(file, content, force=False)
    print_out(f"wrote {', '.join(files)} of cell {cell}, sealed, to {safe(str(file))}")
    if not any(name.endswith(".key") for name in files) and len(files) > 1:
        print_err("note: the authority's key is kept elsewhere, and is not in it")
    if passphrase_file is None:
        print_out(f"passphrase: {passphrase}")
    print_err(f"Next, on the other host: borgctl cell unseal {file.name} --dir STATE-FOLDER")


@app.command()
def unseal(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `cell seal` wrote.")],
    passphrase_file: PassphraseFile = None,
    folder: DirOption = None,
) -> None:
    """Take over what `cell seal` wrote on another master's host, into the state folder of a master here.

    Nothing of another cell is overwritten; a newer authority of the same cell takes the place of the older
    one. Cut off, it is run again. The passphrase is asked for, or read from a pipe or a file.
    """
    from borgish.cli.local_cell import alone
    from borgish.cli.screen import print_err, print_out
    from borgish.tls.sealed import FILE_BYTES_MAX
    from borgish.tls.sealed import unseal as unsealed

    session = session_of(context)
    session.use(folder)
    where = session.local_folder
    with file.open("rb") as opened:
        content = opened.read(FILE_BYTES_MAX)
    cell, files = unsealed(content, _first_line(passphrase_file) if passphrase_file else _ask())
    with alone(where, make=True):
        taken = take_over(where, cell, files)
    what = f"took over {', '.join(taken)}" if taken else "has all of it already"
    print_out(f"{where} {what}, of cell {cell}")
    print_err(
        "Next: start the borgmaster here, anew where it runs; the certificate for this host it makes itself"
    )


def shared_files(folder: Path) -> dict[str, str]:
    """Return what masters share of a state folder, by the names of the files. Raises NotFound, and
    UnsafeConfiguration."""
    from borgish.credentials import read_private
    from borgish.tls.files import AUTHORITY_FILE, AUTHORITY_KEYS, ENDORSEMENT_FILE

    if not (folder / SECRET).exists():
        raise NotFound(
            f"{folder} is not the state folder of a borgmaster",
            "Name it with --dir; `state` in its cell.toml says which it is",
        )
    paths = [folder / SECRET, *sorted(folder.glob(AUTHORITY_KEYS))]
    paths += [path for name in (ENDORSEMENT_FILE, AUTHORITY_FILE) if (path := folder / name).exists()]
    return {path.name: read_private(path) for path in paths}


def take_over(folder: Path, cell: str, files: dict[str, str]) -> list[str]:
    """Write what is missing or older of a cell's files into a folder; return their names.

    The secret is first: by it the folder is the cell's, so that what a death cuts off is gone on with. Raises
    Conflict where the folder is another cell's, or has a newer authority; and UnsafeConfiguration.
    """
    from borgish.credentials import drop_drafts, read_private, write_private
    from borgish.tls.files import AUTHORITY_FILE, ENDORSEMENT_FILE

    _expect_safe(files)
    _expect_same(folder, cell, files)
    folder.chmod(0o700)
    taken = []
    keys = sorted(name for name in files if name.endswith(".key"))
    # A key is there before the certificate that names it.
    for name in (SECRET, *keys, ENDORSEMENT_FILE, AUTHORITY_FILE):
        if name not in files:
            continue
        path = folder / name
        drop_drafts(path)
        if not path.exists() or read_private(path) != files[name]:
            write_private(path, files[name] + "\n")
            taken.append(name)
    return taken


def _expect_safe(files: dict[str, str]) -> None:
    """Raise Invalid for names that no cell has: whoever knew the passphrase would write where they like."""
    import re

    for name in files:
        if not re.fullmatch(r"secret|authority\.pem|authority\.endorsed|authority\.[0-9a-f]{16}\.key", name):
            raise Invalid(f"the sealed file holds {name!r}, which is no cell's")
    if not files.get(SECRET):
        raise Invalid("the sealed file holds no secret of a cell")


def _expect_same(folder: Path, cell: str, files: dict[str, str]) -> None:
    from borgish.credentials import read_private
    from borgish.tls.authority import validity_of
    from borgish.tls.bundle import authorities_in
    from borgish.tls.files import AUTHORITY_FILE

    hint = "Name the state folder of a master of that cell, or a new one, with --dir"
    if (named := cell_name(folder)) and named != cell:
        raise Conflict(f"{folder} is of cell {named}, and the file is of cell {cell}", hint)
    there, secret = folder / AUTHORITY_FILE, folder / SECRET
    if secret.exists():
        if read_private(secret) != files[SECRET]:
            raise Conflict(f"{secret} is another cell's than the sealed one: nothing was changed", hint)
    elif there.exists() and there.read_text().strip() != files.get(AUTHORITY_FILE, ""):
        raise Conflict(f"{there} is another cell's than the sealed one: nothing was changed", hint)
    if there.exists() and AUTHORITY_FILE in files:
        held, sealed = (authorities_in(it) for it in (there.read_bytes(), files[AUTHORITY_FILE].encode()))
        newest_held, newest_sealed = (max(validity_of(pem).begins for pem in it) for it in (held, sealed))
        if newest_held > newest_sealed:
            raise Conflict(
                f"{there} is newer than what was sealed: the authority was replaced since",
                "Seal it anew on the host of a master that has the newest",
            )


def _cell_of(session: Session, folder: Path) -> str:
    """Return the name of the cell whose state folder this is. Raises NotFound where nothing says it."""
    from borgish.tls.authority import cell_of_authority
    from borgish.tls.files import AUTHORITY_FILE
    from borgish.wire.api import HealthView

    if (folder / AUTHORITY_FILE).exists():
        return cell_of_authority((folder / AUTHORITY_FILE).read_bytes())
    if named := cell_name(folder):
        return named
    try:
        return session.client(SECONDS_MAX).get("/v1/health", None, HealthView).cell
    except BorgishError:
        raise NotFound(
            f"nothing in {folder} says which cell it is of, and its borgmaster does not answer",
            "Start it, and run this again",
        ) from None


def _tell_master(session: Session) -> None:
    """Have the audit log say that the secrets are copied, where the master can be told."""
    from borgish.cli.screen import print_err
    from borgish.wire.api import Accepted

    try:
        session.client(SECONDS_MAX).post("/v1/authority/sealed", None, Accepted)
    except BorgishError as error:
        print_err(f"note: the audit log does not have this: {error.message}")


def _ask() -> str:
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass("Passphrase: ").strip()
    return sys.stdin.readline().strip()


def _first_line(path: Path) -> str:
    try:
        return path.read_text("utf-8").split("\n", 1)[0].strip()
    except UnicodeDecodeError:
        raise Invalid(f"the passphrase in {path} is no text") from None
