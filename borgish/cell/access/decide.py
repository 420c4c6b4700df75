"""What is decided about users, groups, grants, tokens, invitations and secrets."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from borgish.cell.access.authorization import crons_beyond
from borgish.cell.access.commands import (
    AddGroup,
    AddUser,
    AdmitTokens,
    ChangeGrants,
    ChangeMembers,
    CreateToken,
    InviteMachine,
    NoteCertificate,
    NoteTokenUse,
    RemoveGroup,
    RemoveSecret,
    RemoveUser,
    RevokeInvitation,
    RevokeToken,
    SetSecret,
)
from borgish.cell.access.events import (
    CertificateEnds,
    GroupRemoved,
    GroupSet,
    InvitationRevoked,
    MachineInvited,
    TokenCreated,
    TokenRevoked,
    TokensUsed,
    UserRemoved,
    UserSet,
)
from borgish.cell.access.model import (
    BAND_GRANT,
    GRANTABLE_BANDS,
    ROLES_OF_PEOPLE,
    Access,
    Group,
    Role,
    Token,
    User,
)
from borgish.cell.access.secrets import remove_secret, set_secret
from borgish.cell.command import Command
from borgish.cell.commands import Decision
from borgish.cell.crons.model import Cron
from borgish.cell.events import AnyEvent, CronPaused
from borgish.cell.model import Cell
from borgish.cell.observed import Observed
from borgish.clock import Now
from borgish.errors import Conflict, Invalid, NotFound
from borgish.spec.privileges import is_privilege
from borgish.text import span
from borgish.vocabulary import Band, State

INVITATION_SECONDS_MAX = 24 * 3600.0
INVITATION_USES_MAX = 10_000

# Users and groups: the names of both are names of owners, so one name is one of them


def add_user(cell: Cell, _o: Observed, command: AddUser, _actor: str, now: Now) -> Decision:
    """Let somebody have jobs. Raises Conflict for the name of a group."""
    name = command.user
    if name in cell.access.users:
        return Decision((), name, f"{name} is a user already")
    if name in cell.access.groups:
        raise Conflict(f"{name} is a group", "give the user another name")
    text = f"{name} may have jobs, in the bands batch and free"
    hint = f"`borgctl token create --user {name}` makes a token"
    return Decision((UserSet(User(name, now.wall)),), name, text, (hint,))


def remove_user(cell: Cell, _o: Observed, command: RemoveUser, _actor: str, now: Now) -> Decision:
    """Forget a user and the tokens. Raises NotFound, and Conflict for the last token of an admin."""
    name, access = command.user, cell.access
    tokens = [token for token in access.tokens.values() if token.user == name]
    if name not in access.users:
        raise NotFound(f"there is no user {name}", "`borgctl user list` shows those there are")
    _check_admin_left(access, tokens, now.wall)
    revoked = tuple(TokenRevoked(token.sha256, name, "its user was removed") for token in tokens)
    live = [job.key for job in cell.jobs.values() if job.spec.user == name and job.state is not State.DEAD]
    notes = (f"{len(live)} of the jobs of {name} go on, like {live[0]}",) if live else ()
    with_tokens = f", and {len(tokens)} of its tokens are no good any more" if tokens else ""
    paused, of_crons = _pause(each for each in cell.crons.values() if each.spec.user == name)
    text = f"{name} is no user any more{with_tokens}"
    notes = (*notes, *of_crons, *_secrets_left(access, name))
    return Decision((*revoked, UserRemoved(name), *paused), name, text, notes)


def _secrets_left(access: Access, owner: str) -> Iterator[str]:
    if left := sorted(each.name for each in access.secrets.values() if each.owner == owner):
        yield (
            f"the secrets of {owner} stay, and are those of whoever gets that name again: {', '.join(left)}; "
            f"`borgctl secret remove --user {owner} NAME` when no job uses them any more"
        )


def _pause(crons: Iterable[Cron]) -> tuple[tuple[AnyEvent, ...], tuple[str, ...]]:
    """Return the events that pause crons, and what is noted of it."""
    going = sorted(cron.key for cron in crons if not cron.paused)
    if not going:
        return (), ()
    note = f"no run of {' and '.join(going)} begins until `borgctl cron resume` by somebody who may"
    return tuple(CronPaused(key) for key in going), (note,)


def add_group(cell: Cell, _o: Observed, command: AddGroup, _actor: str, now: Now) -> Decision:
    """Let users have jobs together. Raises Conflict for the name of a user."""
    name = command.group
    if name in cell.access.groups:
        return Decision((), name, f"{name} is a group already")
    if name in cell.access.users:
        raise Conflict(f"{name} is a user", "give the group another name")
    hint = f"`borgctl group members {name} --add USER` puts somebody into it"
    return Decision((GroupSet(Group(name, (), now.wall)),), name, f"{name} is a group", (hint,))


def remove_group(cell: Cell, _o: Observed, command: RemoveGroup, _actor: str, _now: Now) -> Decision:
    """Forget a group; its jobs go on, for admins to act on. Raises NotFound."""
    group = _find_group(cell.access, command.group)
    live = sum(job.spec.user == group.name and job.state is not State.DEAD for job in cell.jobs.values())
    notes = (f"{live} of the jobs of {group.name} go on; only admins act on them now",) if live else ()
    paused, of_crons = _pause(each for each in cell.crons.values() if each.spec.user == group.name)
    text = f"{group.name} is no group any more"
    notes = (*notes, *of_crons, *_secrets_left(cell.access, group.name))
    return Decision((GroupRemoved(group.name), *paused), group.name, text, notes)


def change_members(cell: Cell, _o: Observed, command: ChangeMembers, _actor: str, _now: Now) -> Decision:
    """Put users into a group and take others out. Raises NotFound."""
    group = _find_group(cell.access, command.group)
    for user in command.add:
        if user not in cell.access.users:
            raise NotFound(f"there is no user {user}", f"add it first: `borgctl user add {user}`")
    for user in command.remove:
        if user not in group.members:
            raise NotFound(f"{user} is not in {group.name}", f"in it are {_named(group.members)}")
    members = tuple(sorted({*group.members, *command.add} - {*command.remove}))
    events = (GroupSet(msgspec.structs.replace(group, members=members)),) * (members != group.members)
    return Decision(events, group.name, f"members of {group.name}: {_named(members)}")


def change_grants(cell: Cell, _o: Observed, command: ChangeGrants, _actor: str, _now: Now) -> Decision:
    """Grant something to a user or a group, or take it back. Raises NotFound and Invalid."""
    access, name = cell.access, command.owner
    owner = access.users.get(name) or access.groups.get(name)
    if owner is None:
        raise NotFound(f"there is no user and no group {name}", f"add it first: `borgctl user add {name}`")
    for grant in command.add:
        _check_grant(grant)
    for grant in command.remove:
        if grant not in owner.grants:
            raise NotFound(
                f"{name} was not granted {grant_words(grant)}", f"granted: {_granted(owner.grants)}"
            )
    grants = tuple(sorted({*owner.grants, *command.add} - {*command.remove}))
    changed: AnyEvent
    if isinstance(owner, User):
        changed = UserSet(msgspec.structs.replace(owner, grants=grants))
    else:
        changed = GroupSet(msgspec.structs.replace(owner, grants=grants))
    lost = sorted(set(owner.grants) - set(grants))
    notes = ("what runs already goes on; nothing more of it is admitted",) if lost else ()
    paused, of_crons = _pause(crons_beyond(cell, name, lost))
    events = (changed, *paused) if grants != owner.grants else ()
    return Decision(events, name, f"{name} is granted {_granted(grants)}", (*notes, *of_crons))


def _check_grant(grant: str) -> None:
    if grant.startswith(BAND_GRANT):
        band = grant.removeprefix(BAND_GRANT)
        if band not in {str(each) for each in GRANTABLE_BANDS}:
            raise Invalid(
                f"{band} cannot be granted",
                f"monitoring is for admins; granted can be {', '.join(sorted(GRANTABLE_BANDS))}",
            )
    elif not is_privilege(grant):
        raise Invalid(
            f"there is nothing called '{grant}' that could be granted",
            "a band, like production; container-root, capability:NET_ADMIN, mount:/srv, mount-write:/srv, "
            "host-root:/srv/root, the folders as the job writes them",
        )


def grant_words(grant: str) -> str:
    """Return what is granted, as people write it."""
    return grant.removeprefix(BAND_GRANT)


def _granted(grants: tuple[str, ...]) -> str:
    return ", ".join(map(grant_words, grants)) or "nothing beyond the defaults"


def _find_group(access: Access, name: str) -> Group:
    group = access.groups.get(name)
    if group is None:
        raise NotFound(f"there is no group {name}", "`borgctl group list` shows those there are")
    return group


def _named(members: tuple[str, ...]) -> str:
    return ", ".join(members) or "none"


# Tokens


def create_token(cell: Cell, _o: Observed, command: CreateToken, _actor: str, now: Now) -> Decision:
    """Let a token stand for somebody. Raises NotFound and Invalid."""
    token, access = command.token, cell.access
    if token.role not in ROLES_OF_PEOPLE:
        raise Invalid(f"no token has the role {token.role}", "machines join by `borgctl machine invite`")
    if token.role is Role.USER and token.user not in access.users:
        raise NotFound(
            f"there is no user {token.user}",
            f"add it first: `borgctl user add {token.user}`; only a token of the role user needs one",
        )
    if token.user in access.groups:
        raise Invalid(f"{token.user} is a group", "make a token for each of its members")
    if token.bands and token.role is not Role.USER:
        raise Invalid(
            f"a token of role {token.role} cannot be held to bands",
            "leave out --bands: readers and operators have no jobs, and admins could make themselves another",
        )
    if token.is_over(now.wall):
        raise Invalid("the token would be over at once", "give a longer time with --for")
    if too_much := sorted(set(token.bands) - _bands_within(access, token)):
        raise Invalid(
            f"{token.user} may not submit to {', '.join(too_much)}",
            f"grant it first: `borgctl user grant {token.user} {too_much[0]}`",
        )
    expires = f", for {span(token.expires_at - token.at)}" if token.expires_at else ", without an end"
    bands = f", in {' and '.join(token.bands)} alone" if token.bands else ""
    text = f"token {token.id} stands for {token.user} as {token.role}{bands}{expires}"
    return Decision((TokenCreated(token),), token.id, text)


def _bands_within(access: Access, token: Token) -> set[str]:
    granted = {grant_words(g) for g in access.grants_of(token.user) if g.startswith(BAND_GRANT)}
    return {Band.BATCH, Band.FREE} | granted


def revoke_token(cell: Cell, _o: Observed, command: RevokeToken, _actor: str, now: Now) -> Decision:
    """Let a token stand for nobody. Raises NotFound, and Conflict for the last one of an admin (S25)."""
    found = [token for token in cell.access.tokens.values() if token.sha256.startswith(command.token)]
    if len(command.token) < 4 or not found:
        raise NotFound(f"there is no token {command.token}", "`borgctl token list` shows those there are")
    if len(found) > 1:
        raise Invalid(f"{command.token} may be one of {len(found)} tokens", "write more of it")
    token = found[0]
    _check_admin_left(cell.access, [token], now.wall)
    text = f"token {token.id} of {token.user} is no good any more"
    return Decision((TokenRevoked(token.sha256, token.user),), token.id, text)


def _check_admin_left(access: Access, going: list[Token], at: float) -> None:
    """Raise Conflict where no token of an admin would be left."""
    gone = {token.sha256 for token in going if token.role is Role.ADMIN}
    left = any(
        token.role is Role.ADMIN and not token.is_over(at) and token.sha256 not in gone
        for token in access.tokens.values()
    )
    if gone and not left:
        raise Conflict(
            "it is the last token of an admin, and nobody could make another one",
            "create another one first: `borgctl token create --role admin`",
        )


def admit_tokens(cell: Cell, _o: Observed, command: AdmitTokens, _actor: str, now: Now) -> Decision:
    """Take over tokens from the master's host, and make users of those that have jobs."""
    access = cell.access
    new = [token for token in command.tokens if token.sha256 not in access.tokens]
    users = {token.user for token in new if token.role is Role.USER} - access.users.keys()
    events: list[AnyEvent] = [UserSet(User(name, now.wall)) for name in sorted(users - access.groups.keys())]
    events.extend(TokenCreated(token) for token in new)
    invited = [each for each in command.invitations if each.sha256 not in access.invitations]
    events.extend(MachineInvited(each) for each in invited)
    events.extend(_over(access, now.wall))
    words = [f"{token.user} ({token.role})" for token in new] + [f"machine {it.machine}" for it in invited]
    return Decision(tuple(events), cell.name, f"tokens taken over: {', '.join(words) or 'none that is new'}")


def note_token_use(cell: Cell, _o: Observed, command: NoteTokenUse, _actor: str, _now: Now) -> Decision:
    """Note when tokens were last used."""
    there = cell.access.tokens
    used = {digest: at for digest, at in command.used.items() if digest in there}
    return Decision((TokensUsed(used),) * bool(used), cell.name, "the last use of tokens is noted")


def note_certificate(cell: Cell, _o: Observed, command: NoteCertificate, _actor: str, now: Now) -> Decision:
    """Note that a certificate is near its end."""
    whose = command.machine or command.role
    if command.machine and command.machine not in cell.machines:
        return Decision((), whose, f"{whose} is not in the cell any more")
    left = command.ends_at - now.wall
    text = (
        f"the certificate of {whose} ends in {span(left)}"
        if left > 0
        else f"the certificate of {whose} is over"
    )
    return Decision((CertificateEnds(command.role, command.ends_at, command.machine),), whose, text)


# Invitations


def invite(cell: Cell, _o: Observed, command: InviteMachine, _actor: str, now: Now) -> Decision:
    """Let machines join by a secret. Raises Invalid and Conflict. Drops those whose time is over."""
    invitation = command.invitation
    left = invitation.expires_at - now.wall
    if not 0 < left <= INVITATION_SECONDS_MAX + 60:
        raise Invalid("an invitation holds for 24 h at most", "give a shorter time with --for, like 30m")
    if not 1 <= invitation.uses <= INVITATION_USES_MAX:
        raise Invalid(
            f"count: {invitation.uses} is outside 1 to {INVITATION_USES_MAX}", "give it with --count"
        )
    if invitation.machine and invitation.uses > 1:
        raise Invalid("a name is for one machine", "leave out the name, or --count")
    there = cell.machines.get(invitation.machine)
    notes: tuple[str, ...] = ()
    if there is not None:
        up = " and answers" if there.up else ""
        notes = (f"{there.name} is in the cell{up}: whoever joins by this takes its place",)
    events = (*_over(cell.access, now.wall), MachineInvited(invitation))
    whom = invitation.machine or (f"{invitation.uses} machines" if invitation.uses > 1 else "one machine")
    text = f"invitation {invitation.id} is for {whom}, for {span(invitation.expires_at - invitation.at)}"
    return Decision(events, invitation.id, text, notes)


def _over(access: Access, at: float) -> tuple[AnyEvent, ...]:
    """Return the ends of invitations whose time is over."""
    return tuple(InvitationRevoked(old.sha256) for old in access.invitations.values() if old.is_over(at))


def revoke_invitation(
    cell: Cell, _o: Observed, command: RevokeInvitation, _actor: str, _now: Now
) -> Decision:
    """Let nobody in by an invitation any more. Raises NotFound."""
    found = [it for it in cell.access.invitations.values() if it.sha256.startswith(command.invitation)]
    if len(command.invitation) < 4 or len(found) != 1:
        raise NotFound(
            f"there is no invitation {command.invitation}",
            "`borgctl machine invitations` shows those there are",
        )
    text = f"invitation {found[0].id} lets nobody in any more"
    return Decision((InvitationRevoked(found[0].sha256),), found[0].id, text)


DECIDE: dict[type[Command], Callable[[Cell, Observed, Any, str, Now], Decision]] = {
    AddUser: add_user,
    RemoveUser: remove_user,
    AddGroup: add_group,
    RemoveGroup: remove_group,
    ChangeMembers: change_members,
    ChangeGrants: change_grants,
    CreateToken: create_token,
    RevokeToken: revoke_token,
    AdmitTokens: admit_tokens,
    NoteTokenUse: note_token_use,
    NoteCertificate: note_certificate,
    InviteMachine: invite,
    RevokeInvitation: revoke_invitation,
    SetSecret: set_secret,
    RemoveSecret: remove_secret,
}
