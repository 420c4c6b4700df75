"""The secrets in a cell's folder: made once, read after that, 0600 and nowhere else, in no core dump either.

``secret`` is what poll tokens, and the key of the audit log, derive from. ``tokens/admin.token`` is a bearer
token as its holder keeps it; the cell keeps the SHA-256 of each. ``tokens.toml`` is a letter box: what
whoever administers the host puts there the leader takes over into the cell. ``client.json`` tells clients on
this host where the cell is and which token to take.
"""

import ctypes
import getpass
import hmac
import json
import os
import resource
import secrets
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from borgish.addresses import is_loopback
from borgish.durable import NO_ROOM, sync
from borgish.errors import UnsafeConfiguration
from borgish.failpoints import reach
from borgish.ids import new_token
from borgish.join_token import digest_of

LETTER_BOX = "tokens.toml"
ADMIN_TOKEN_SECONDS = 24 * 3600.0
MEMBER = "bgm_"
"""What begins the token by which a machine of the cell proves itself: its name, a dot, its poll token."""


class Credentials(msgspec.Struct, frozen=True):
    """What the master itself needs of them."""

    secret: str

    def __repr__(self) -> str:
        return "Credentials(***)"


def poll_token(secret: str, machine: str, admission: int = 0) -> str:
    """Return the token by which a machine knows its master, and the master the machine.

    It is derived, so that no database, journal or checkpoint holds one, and one machine's token opens no
    other. With each ``admission`` by an invitation it is another one: who has an older one is out.
    """
    about = f"poll:{machine}:{admission}" if admission else f"poll:{machine}"
    return "bgp_" + hmac.digest(secret.encode(), about.encode(), "sha256").hex()


def read_credentials(folder: Path) -> Credentials:
    """Read what a master of the cell has made in a folder, or somebody has copied there from another one's.

    Raises UnsafeConfiguration when it is not there: other secrets than the cell's would be of no use.
    """
    if not (folder / "secret").exists():
        raise UnsafeConfiguration(
            f"{folder} has no secret, and another borgmaster leads the cell",
            "Bring it from the host of another one: `borgctl cell seal` there, `borgctl cell unseal` here",
        )
    return _usable(folder, read_private(folder / "secret"))


def make_credentials(folder: Path) -> Credentials:
    """Make what is missing in a cell's folder, and read the secret. Raises UnsafeConfiguration."""
    try:
        secret = _made(folder / "secret", lambda: secrets.token_hex(32))
    except OSError as error:
        raise _not_ours(folder, error) from None
    return _usable(folder, secret)


def admin_token_digest(folder: Path) -> str:
    """Return the SHA-256 of the token in ``tokens/admin.token``, which is made when it is missing.

    Raises UnsafeConfiguration.
    """
    try:
        tokens = folder / "tokens"
        tokens.mkdir(mode=0o700, exist_ok=True)
        return digest_of(_made(tokens / "admin.token", new_token))
    except OSError as error:
        raise _not_ours(folder, error) from None


def admin_token_ends(folder: Path, host: str) -> float:
    """Return when the token in ``tokens/admin.token`` ends, in seconds since 1970, of a cell that listens on
    ``host``: a day after it was made, so that no start of a master gives it another day. On loopback it is 0,
    for never. Raises OSError."""
    if is_loopback(host):
        return 0.0
    return (folder / "tokens" / "admin.token").stat().st_mtime + ADMIN_TOKEN_SECONDS


def replace_admin_token(folder: Path) -> Path:
    """Make another admin token and have the leader take it over; return its file. Raises
    UnsafeConfiguration."""
    path = folder / "tokens" / "admin.token"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        token = new_token()
        write_private(path, token + "\n")  # first: by the file it is known when the token ends
        post_token(folder, token, admin_name(), "admin")
    except OSError as error:
        raise _not_ours(folder, error) from None
    return path


def post_token(folder: Path, token: str, name: str, role: str, machine: str = "") -> None:
    """Put a token into the letter box, from which the leader takes it over at its start or at SIGHUP. With a
    machine, and the role join, it is an invitation for it. Raises OSError."""
    path = folder / LETTER_BOX
    there = path.read_text("utf-8") if path.exists() else ""
    rows = [f"[{digest_of(token)}]", f'name = "{name}"', f'role = "{role}"']
    if machine:
        rows.append(f'machine = "{machine}"')
    write_private(path, there + "\n".join(rows) + "\n\n")


def write_client_file(folder: Path, url: str, ca: str = "", masters: Sequence[str] = ()) -> None:
    """Write where clients on this host find the cell, unless that is what they are told already.

    ``url`` is asked first; ``masters`` are the addresses of all masters, if there are several. Nobody else
    writes it at the moment. Raises UnsafeConfiguration.
    """
    client = {"url": url, "token_file": "tokens/admin.token", "ca": ca, "masters": list(masters)}
    path, text = folder / "client.json", json.dumps(client, indent=2) + "\n"
    try:
        drop_drafts(path)
        if not path.exists() or path.read_bytes() != text.encode():
            write_private(path, text)
    except OSError as error:
        raise _not_ours(folder, error) from None


def client_url(folder: Path) -> str:
    """Return the address that clients on this host ask first, "" while they are told none."""
    try:
        client_file = msgspec.json.decode((folder / "client.json").read_bytes(), type=dict[str, object])
    except (OSError, msgspec.MsgspecError):  # not there yet, or damaged: it is written anew
        return ""
    return str(client_file.get("url", ""))


def _not_ours(folder: Path, error: OSError) -> UnsafeConfiguration:
    hint = (
        f"make room on the disk of {folder}"
        if error.errno in NO_ROOM
        else "the state folder must be writable"
    )
    return UnsafeConfiguration(f"{error.filename or folder}: {error.strerror}", hint)


def _usable(folder: Path, secret: str) -> Credentials:
    if len(secret) < 32:
        raise UnsafeConfiguration(
            f"{folder / 'secret'} is too short to be a secret",
            "restore it from a backup; with another one, each borglet has to be given an empty state folder",
        )
    return Credentials(secret)


def _made(path: Path, make: Callable[[], str]) -> str:
    drop_drafts(path)
    if not path.exists():
        write_private(path, make() + "\n")
    return read_private(path)


def read_private(path: Path) -> str:
    """Return what is in a file that only we can read. Raises UnsafeConfiguration where others can."""
    _expect_closed(path, path.stat())
    return path.read_text().strip()


def expect_private(folder: Path, *secrets: str) -> None:
    """Raise UnsafeConfiguration where a daemon's folder, or one of its ``secrets``, which are patterns, is
    open to others or belongs to another than its user or root."""
    for path in (folder, *(found for name in secrets for found in sorted(folder.glob(name)))):
        found, mine = path.stat(), os.geteuid()
        _expect_closed(path, found)
        if found.st_uid not in (0, mine):
            raise UnsafeConfiguration(
                f"{path} belongs to uid {found.st_uid}, and this runs as {mine}",
                f"run `chown {mine} {path}`; see who could change it until now",
            )


def _expect_closed(path: Path, found: os.stat_result) -> None:
    if found.st_mode & 0o077:
        mode = 700 if stat.S_ISDIR(found.st_mode) else 600
        raise UnsafeConfiguration(
            f"{path} is open to others (its mode is {found.st_mode & 0o777:04o})",
            f"run `chmod {mode} {path}`; what others could read counts as known to them",
        )


def drop_drafts(path: Path) -> None:
    """Remove what is left of writes that a death cut off: of a file, and of those whose names begin with its
    name and a dot. Whoever starts here is alone."""
    for draft in path.parent.glob(f".{path.name}.*"):
        draft.unlink(missing_ok=True)


def write_private(path: Path, text: str) -> None:
    """Write a file that only we can read, all of it or nothing; it is durable when this returns."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)  # a secret that a power cut empties cannot be made again
        reach("credentials.drafted")
        draft.replace(path)
    except OSError as error:
        error.filename = str(path)  # what is written to a descriptor has no name
        raise
    finally:
        draft.unlink(missing_ok=True)
    sync(path.parent)
    reach("credentials.written")


_PR_SET_DUMPABLE = 4


def keep_off_disk() -> None:
    """Have no core dump of this process be written, and no other program of its user look into its memory.

    The hard limit stays, for what a borglet starts has its own; a program that is started may be looked into
    again.
    """
    _soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def admin_name() -> str:
    """Return whose the admin token is: the login name of whoever made the cell, as a name of jobs."""
    try:
        login = getpass.getuser().lower()
    except (OSError, KeyError):  # no environment and no line in /etc/passwd
        return "admin"
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in login)
    return name.strip("-")[:63] or "admin"
