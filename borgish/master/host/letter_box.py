"""What whoever administers the master's host puts into its folder for the cell: tokens, and invitations.

``tokens.toml`` has a table for each, named by the SHA-256 of its secret, with ``name`` and ``role``. The
leader takes it over at its start and at SIGHUP, and the file is renamed: from then on the cell knows the
tokens, shows them and can revoke them. So comes the first token, and another one where all were lost.
"""

import logging
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from borgish.cell.access.model import HOST, Invitation, Role, Token
from borgish.credentials import LETTER_BOX, admin_name, admin_token_digest, admin_token_ends
from borgish.errors import UnsafeConfiguration
from borgish.join_token import digest_of

TAKEN = "tokens.taken.toml"
INVITATION_SECONDS = 24 * 3600.0

log = logging.getLogger("borgmaster")


class Letter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table. With a ``machine``, which needs the role join, it is an invitation for it."""

    name: str
    role: Role
    machine: str = ""


class Letters(msgspec.Struct, frozen=True):
    """All that is in the file."""

    tokens: tuple[Token, ...] = ()
    invitations: tuple[Invitation, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tokens or self.invitations)


def read_letters(folder: Path, host: str, wall: float) -> Letters:
    """Return what is in the letter box of a folder, as of now, in seconds since 1970. ``host`` is where the
    cell listens, by which the admin token of the folder has an end.

    Raises UnsafeConfiguration for a file that cannot be read or understood.
    """
    path = folder / LETTER_BOX
    try:
        if not path.exists():
            return Letters()
        tables = tomllib.loads(path.read_text("utf-8"))
        letters = {_checked(key): msgspec.convert(table, Letter) for key, table in tables.items()}
        ends = {admin: admin_token_ends(folder, host) for admin in _admin_token(folder)}
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise UnsafeConfiguration(
            f"the tokens in {path} cannot be read: {error}",
            'Write a table for each: [<sha256 of the token>], name = "ann", role = "user"',
        ) from error
    tokens, invitations = [], []
    for digest, letter in letters.items():
        if letter.machine:
            over = wall + INVITATION_SECONDS
            invitations.append(Invitation(digest, letter.machine, 1, wall, HOST, over))
        else:
            tokens.append(Token(digest, letter.name, letter.role, (), wall, HOST, ends.get(digest, 0.0)))
    return Letters(tuple(tokens), tuple(invitations))


def letters_to_lead(folder: Path, host: str, known: Iterable[Token], wall: float) -> Letters:
    """Return what a master that begins to lead lets in: what is in the letter box, and the admin token of the
    folder, unless it is over, where no other token of an admin is good. Raises UnsafeConfiguration."""
    letters = read_letters(folder, host, wall)
    if any(it.role is Role.ADMIN and not it.is_over(wall) for it in (*known, *letters.tokens)):
        return letters
    digest = admin_token_digest(folder)
    admin = Token(digest, admin_name(), Role.ADMIN, (), wall, HOST, admin_token_ends(folder, host))
    if admin.is_over(wall):
        log.warning("no token of an admin is good any more; `borgctl cell recover` makes another")
        return letters
    return msgspec.structs.replace(letters, tokens=(*letters.tokens, admin))


def _admin_token(folder: Path) -> list[str]:
    """Return the SHA-256 of the admin token in a folder, if there is one."""
    path = folder / "tokens" / "admin.token"
    return [digest_of(path.read_text("utf-8").strip())] if path.exists() else []


def put_away(folder: Path) -> None:
    """Rename the file whose tokens were taken over. Raises OSError."""
    (folder / LETTER_BOX).rename(folder / TAKEN)


def _checked(key: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", key):
        raise ValueError(f"'{key[:8]}...' is not a SHA-256 digest in hex")
    return key.lower()
