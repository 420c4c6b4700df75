"""Changes a cell by events about users, groups, tokens, invitations and secrets; see ``cell/apply.py``."""

from collections.abc import Callable
from typing import Any

import msgspec

from borgish.cell.access.events import (
    CertificateEnds,
    GroupRemoved,
    GroupSet,
    InvitationRevoked,
    InvitationUsed,
    MachineInvited,
    SecretRemoved,
    SecretSet,
    TokenCreated,
    TokenRevoked,
    TokensUsed,
    UserRemoved,
    UserSet,
)
from borgish.cell.access.secrets import apply_set
from borgish.cell.events import AnyEvent, Entry
from borgish.cell.model import Cell


def _user_set(cell: Cell, event: UserSet, _entry: Entry) -> None:
    cell.access.users[event.user.name] = event.user
    cell.access.version += 1


def _user_removed(cell: Cell, event: UserRemoved, _entry: Entry) -> None:
    cell.access.users.pop(event.user, None)
    for name, group in cell.access.groups.items():
        if event.user in group.members:
            left = tuple(member for member in group.members if member != event.user)
            cell.access.groups[name] = msgspec.structs.replace(group, members=left)
    cell.access.version += 1


def _group_set(cell: Cell, event: GroupSet, _entry: Entry) -> None:
    cell.access.groups[event.group.name] = event.group
    cell.access.version += 1


def _group_removed(cell: Cell, event: GroupRemoved, _entry: Entry) -> None:
    cell.access.groups.pop(event.group, None)
    cell.access.version += 1


def _token_created(cell: Cell, event: TokenCreated, _entry: Entry) -> None:
    cell.access.tokens[event.token.sha256] = event.token
    cell.access.version += 1


def _token_revoked(cell: Cell, event: TokenRevoked, _entry: Entry) -> None:
    cell.access.tokens.pop(event.sha256, None)
    cell.access.used.pop(event.sha256, None)
    cell.access.version += 1


def _tokens_used(cell: Cell, event: TokensUsed, _entry: Entry) -> None:
    there = cell.access.tokens
    cell.access.used.update({digest: at for digest, at in event.used.items() if digest in there})


def _machine_invited(cell: Cell, event: MachineInvited, _entry: Entry) -> None:
    cell.access.invitations[event.invitation.sha256] = event.invitation


def _invitation_used(cell: Cell, event: InvitationUsed, _entry: Entry) -> None:
    found = cell.access.invitations[event.sha256]
    cell.access.invitations[event.sha256] = msgspec.structs.replace(found, uses=found.uses - 1)


def _invitation_revoked(cell: Cell, event: InvitationRevoked, _entry: Entry) -> None:
    cell.access.invitations.pop(event.sha256, None)
    cell.access.version += 1


def _secret_set(cell: Cell, event: SecretSet, entry: Entry) -> None:
    apply_set(cell, event.secret, entry.position)


def _secret_removed(cell: Cell, event: SecretRemoved, _entry: Entry) -> None:
    cell.access.secrets.pop(event.secret, None)


def _certificate_ends(_cell: Cell, _event: CertificateEnds, _entry: Entry) -> None:
    """Change nothing: that it was said is known by the request id of its entry."""


APPLY: dict[type[AnyEvent], Callable[[Cell, Any, Entry], None]] = {
    UserSet: _user_set,
    UserRemoved: _user_removed,
    GroupSet: _group_set,
    GroupRemoved: _group_removed,
    TokenCreated: _token_created,
    TokenRevoked: _token_revoked,
    TokensUsed: _tokens_used,
    MachineInvited: _machine_invited,
    InvitationUsed: _invitation_used,
    InvitationRevoked: _invitation_revoked,
    SecretSet: _secret_set,
    SecretRemoved: _secret_removed,
    CertificateEnds: _certificate_ends,
}
