"""What may be asked about who may do what, and about secrets; see ``cell/commands.py``."""

from borgish.cell.access.model import Invitation, Token
from borgish.cell.command import Command


class AddUser(Command, frozen=True, tag=True):
    """Let somebody have jobs."""

    user: str


class RemoveUser(Command, frozen=True, tag=True):
    """Forget a user, with the tokens; the jobs go on."""

    user: str


class AddGroup(Command, frozen=True, tag=True):
    """Let users have jobs together."""

    group: str


class RemoveGroup(Command, frozen=True, tag=True):
    """Forget a group; its jobs go on."""

    group: str


class ChangeMembers(Command, frozen=True, tag=True):
    """Put users into a group, and take others out of it."""

    group: str
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


class ChangeGrants(Command, frozen=True, tag=True):
    """Grant something to a user or a group beyond the defaults, and take other grants back."""

    owner: str
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


class CreateToken(Command, frozen=True, tag=True):
    """Let a token stand for somebody; the cell is given its digest alone."""

    token: Token


class RevokeToken(Command, frozen=True, tag=True):
    """Let a token stand for nobody, by its id."""

    token: str


class AdmitTokens(Command, frozen=True, tag=True):
    """Take over tokens and invitations from a file on the master's host, where only its administrators can
    write."""

    tokens: tuple[Token, ...]
    invitations: tuple[Invitation, ...] = ()


class NoteTokenUse(Command, frozen=True, tag=True):
    """Note when tokens were last used, by digest, in seconds since 1970."""

    used: dict[str, float]


class InviteMachine(Command, frozen=True, tag=True):
    """Let machines join by a secret of which the cell is given the digest."""

    invitation: Invitation


class RevokeInvitation(Command, frozen=True, tag=True):
    """Let nobody in by an invitation any more, by its id."""

    invitation: str


class SetSecret(Command, frozen=True, tag=True):
    """Give a secret of a user or a group a value, which is sealed."""

    owner: str
    name: str
    sealed: bytes
    size_bytes: int


class RemoveSecret(Command, frozen=True, tag=True):
    owner: str
    name: str


class NoteCertificate(Command, frozen=True, tag=True):
    """Note that a certificate is near its end. ``machine`` is "" for the master's and the authority's."""

    role: str
    ends_at: float  # seconds since 1970
    machine: str = ""
