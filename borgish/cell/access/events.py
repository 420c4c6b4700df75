"""The part of the journal's alphabet that is about who may do what; see ``cell/events.py``."""

from borgish.cell.access.model import Group, Invitation, Secret, Token, User
from borgish.cell.event import Event


class MachineRevoked(Event, frozen=True, tag=True):
    """A machine is out of the cell until it is invited anew; what it holds is given up."""

    machine: str
    at: float  # seconds since 1970


class UserSet(Event, frozen=True, tag=True):
    """There is a user, with these grants."""

    user: User


class UserRemoved(Event, frozen=True, tag=True):
    """A user is gone, and out of all groups."""

    user: str


class GroupSet(Event, frozen=True, tag=True):
    """There is a group, with these members and grants."""

    group: Group


class GroupRemoved(Event, frozen=True, tag=True):
    """A group is gone."""

    group: str


class TokenCreated(Event, frozen=True, tag=True):
    """A token stands for somebody."""

    token: Token


class TokenRevoked(Event, frozen=True, tag=True):
    """A token stands for nobody any more; ``user`` is who had it."""

    sha256: str
    user: str
    why: str = ""


class TokensUsed(Event, frozen=True, tag=True):
    """When tokens were last used, by digest, in seconds since 1970."""

    used: dict[str, float]


class MachineInvited(Event, frozen=True, tag=True):
    """An invitation lets machines in."""

    invitation: Invitation


class InvitationUsed(Event, frozen=True, tag=True):
    """A machine has joined by an invitation."""

    sha256: str
    machine: str


class InvitationRevoked(Event, frozen=True, tag=True):
    """An invitation lets nobody in any more."""

    sha256: str


class SecretSet(Event, frozen=True, tag=True):
    """A secret has a value, which the next start of each program that uses it gets."""

    secret: Secret


class SecretRemoved(Event, frozen=True, tag=True):
    """A secret is gone."""

    secret: str  # its key


class CertificateEnds(Event, frozen=True, tag=True):
    """A certificate is near its end, and was not renewed. ``machine`` is "" where it is no machine's."""

    role: str  # authority, master or machine
    ends_at: float  # seconds since 1970
    machine: str = ""


AccessEvent = (
    MachineRevoked
    | UserSet
    | UserRemoved
    | GroupSet
    | GroupRemoved
    | TokenCreated
    | TokenRevoked
    | TokensUsed
    | MachineInvited
    | InvitationUsed
    | InvitationRevoked
    | SecretSet
    | SecretRemoved
    | CertificateEnds
)
