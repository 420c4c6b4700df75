"""``/v1/users``, ``/v1/groups``, ``/v1/tokens``, ``/v1/invitations``: who may do what.

Secrets never come here: whoever makes a token or an invitation draws it, and sends its SHA-256. So a request
that is sent again gives the same answer, and no log or memory of the master has a token before it is used.
"""

from collections.abc import Mapping
from typing import TypeVar

from litestar import get, post

from borgish.api.auth import POLICY, Policy
from borgish.api.moments import AT_LEAST
from borgish.api.openapi import CONSUMES
from borgish.api.parameters import LIMIT_MAX, After, Limit, Owner, SecretId, checked_name, cut
from borgish.api.request import ApiRequest
from borgish.api.services import Reading
from borgish.bands import Bands
from borgish.cell.access.commands import (
    AddGroup,
    AddUser,
    ChangeGrants,
    ChangeMembers,
    CreateToken,
    InviteMachine,
    RemoveGroup,
    RemoveUser,
    RevokeInvitation,
    RevokeToken,
)
from borgish.cell.access.model import BAND_GRANT, Access, Invitation, Principal, Role, Token
from borgish.errors import NotFound
from borgish.text import instant
from borgish.vocabulary import Band
from borgish.wire.api import Accepted, Page
from borgish.wire.api_access import (
    GrantsRequest,
    GroupList,
    GroupView,
    InvitationList,
    InvitationRequest,
    InvitationView,
    MembersRequest,
    TokenList,
    TokenRequest,
    TokenView,
    UserList,
    UserView,
)

DAY_SECONDS = 86400.0
USUAL_SECONDS = {Role.ADMIN: DAY_SECONDS}
"""How long a token lives that is made for no certain time, by role; other roles have 90 days."""
USUAL_SECONDS_ELSE = 90 * DAY_SECONDS

T = TypeVar("T")


def _page(things: Mapping[str, T], after: str, limit: int) -> tuple[list[T], Page]:
    return cut(((name, things[name]) for name in sorted(things) if name > after), limit)


# Users and groups


@get("/v1/users", opt={POLICY: Policy.ADMIN, AT_LEAST: True})
async def list_users(request: ApiRequest, limit: Limit = LIMIT_MAX, after: After = "") -> UserList:
    """List who may have jobs."""

    def view(reading: Reading) -> UserList:
        access = reading.cell.access
        tokens = [token.user for token in access.tokens.values()]
        chosen, page = _page(access.users, after, limit)
        items = (
            UserView(
                user.name,
                instant(user.at),
                _shown(user.grants),
                tuple(sorted(access.groups_of(user.name))),
                tokens.count(user.name),
            )
            for user in chosen
        )
        return UserList(tuple(items), page)

    return await request.read(view)


@post("/v1/users/{user:str}", opt={POLICY: Policy.ADMIN}, status_code=200)
async def add_user(request: ApiRequest, user: Owner) -> Accepted:
    """Let somebody have jobs."""
    return await request.command(AddUser(checked_name(user, "user")))


@post("/v1/users/{user:str}/remove", opt={POLICY: Policy.ADMIN}, status_code=200)
async def remove_user(request: ApiRequest, user: Owner) -> Accepted:
    """Forget a user, with the tokens; the jobs go on."""
    return await request.command(RemoveUser(user))


@post(
    "/v1/users/{user:str}/grants",
    opt={POLICY: Policy.ADMIN, CONSUMES: GrantsRequest},
    status_code=200,
)
async def change_grants(request: ApiRequest, user: Owner) -> Accepted:
    """Grant a user or a group what goes beyond the defaults, or take it back."""
    asked = await request.json_as(GrantsRequest)
    bands = request.services.bands()
    add, remove = (tuple(_grant(bands, word) for word in words) for words in (asked.add, asked.remove))
    return await request.command(ChangeGrants(user, add, remove))


@get("/v1/groups", opt={POLICY: Policy.ADMIN, AT_LEAST: True})
async def list_groups(request: ApiRequest, limit: Limit = LIMIT_MAX, after: After = "") -> GroupList:
    """List the groups of users."""

    def view(reading: Reading) -> GroupList:
        chosen, page = _page(reading.cell.access.groups, after, limit)
        items = (
            GroupView(group.name, instant(group.at), group.members, _shown(group.grants)) for group in chosen
        )
        return GroupList(tuple(items), page)

    return await request.read(view)


@post("/v1/groups/{group:str}", opt={POLICY: Policy.ADMIN}, status_code=200)
async def add_group(request: ApiRequest, group: Owner) -> Accepted:
    """Let users have jobs together."""
    return await request.command(AddGroup(checked_name(group, "group")))


@post("/v1/groups/{group:str}/remove", opt={POLICY: Policy.ADMIN}, status_code=200)
async def remove_group(request: ApiRequest, group: Owner) -> Accepted:
    """Forget a group; its jobs go on."""
    return await request.command(RemoveGroup(group))


@post(
    "/v1/groups/{group:str}/members",
    opt={POLICY: Policy.ADMIN, CONSUMES: MembersRequest},
    status_code=200,
)
async def change_members(request: ApiRequest, group: Owner) -> Accepted:
    """Put users into a group, and take others out of it."""
    asked = await request.json_as(MembersRequest)
    return await request.command(ChangeMembers(group, asked.add, asked.remove))


def _grant(bands: Bands, word: str) -> str:
    """Return the name of a grant: the word may be the name of a band."""
    band = bands.named(word)
    return f"{BAND_GRANT}{band}" if band is not None else word


def _shown(grants: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(grant.removeprefix(BAND_GRANT) for grant in grants)


# Tokens


@get("/v1/tokens", opt={POLICY: Policy.SELF, AT_LEAST: True})
async def list_tokens(request: ApiRequest, limit: Limit = LIMIT_MAX, after: After = "") -> TokenList:
    """List the tokens of the cell; whoever is no admin sees the own ones of the same role."""
    who = request.user

    def view(reading: Reading) -> TokenList:
        access = reading.cell.access
        seen = {token.id: token for token in access.tokens.values() if _is_own(who, token)}
        chosen, page = _page(seen, after, limit)
        return TokenList(tuple(_token_view(access, token) for token in chosen), page)

    return await request.read(view)


def _is_own(who: Principal, token: Token) -> bool:
    """Whether somebody may see and revoke a token. Not one of another role: a reader's that leaked must end
    nobody's work."""
    return who.role == Role.ADMIN or (token.user, token.role) == (who.name, who.role)


def _token_view(access: Access, token: Token) -> TokenView:
    used = access.used.get(token.sha256)
    return TokenView(
        id=token.id,
        user=token.user,
        role=token.role,
        bands=tuple(map(str, token.bands)),
        created_at=instant(token.at),
        created_by=token.by,
        expires_at=instant(token.expires_at) if token.expires_at else "",
        used_at=instant(used) if used else "",
        note=token.note,
    )


@post("/v1/tokens", opt={POLICY: Policy.ADMIN, CONSUMES: TokenRequest}, status_code=200)
async def create_token(request: ApiRequest) -> Accepted:
    """Let a token stand for somebody, from now on."""
    asked = await request.json_as(TokenRequest)
    bands = request.services.bands()
    wall = await request.read(lambda reading: reading.now.wall)
    role = Role(asked.role)
    seconds = asked.for_seconds
    if seconds is None:
        seconds = USUAL_SECONDS.get(role, USUAL_SECONDS_ELSE)
    token = Token(
        asked.sha256,
        asked.user,
        role,
        tuple(_band(bands, word) for word in asked.bands),
        wall,
        request.user.name,
        wall + seconds if seconds else 0.0,
        asked.note,
    )
    return await request.command(CreateToken(token))


def _band(bands: Bands, word: str) -> Band:
    found = bands.named(word)
    if found is None:
        raise NotFound(f"there is no band '{word}'", f"Known are {', '.join(bands.words)}")
    return found


@post("/v1/tokens/{token:str}/revoke", opt={POLICY: Policy.SELF}, status_code=200)
async def revoke_token(request: ApiRequest, token: SecretId) -> Accepted:
    """Let a token stand for nobody, at once; one's own of the same role, or for admins any."""
    who = request.user

    def check_own(reading: Reading) -> None:
        found = [it for it in reading.cell.access.tokens.values() if it.sha256.startswith(token)]
        if not all(_is_own(who, it) for it in found):  # as if it were not there: ids are nobody's business
            raise NotFound(
                f"there is no token {token} of yours", "`borgctl token list` shows those there are"
            )

    await request.read(check_own)
    return await request.command(RevokeToken(token))


# Invitations of machines


@get("/v1/invitations", opt={POLICY: Policy.ADMIN, AT_LEAST: True})
async def list_invitations(
    request: ApiRequest, limit: Limit = LIMIT_MAX, after: After = ""
) -> InvitationList:
    """List the invitations by which machines can still join."""

    def view(reading: Reading) -> InvitationList:
        left = {
            it.id: it
            for it in reading.cell.access.invitations.values()
            if it.uses > 0 and not it.is_over(reading.now.wall)
        }
        chosen, page = _page(left, after, limit)
        items = (
            InvitationView(it.id, it.machine, it.uses, instant(it.at), it.by, instant(it.expires_at))
            for it in chosen
        )
        return InvitationList(tuple(items), page)

    return await request.read(view)


@post("/v1/invitations", opt={POLICY: Policy.ADMIN, CONSUMES: InvitationRequest}, status_code=200)
async def invite(request: ApiRequest) -> Accepted:
    """Let machines join by a secret."""
    asked = await request.json_as(InvitationRequest)
    if asked.machine:
        checked_name(asked.machine, "machine")
    wall = await request.read(lambda reading: reading.now.wall)
    over = wall + asked.for_seconds
    made = Invitation(asked.sha256, asked.machine, asked.uses, wall, request.user.name, over)
    return await request.command(InviteMachine(made))


@post("/v1/invitations/{invitation:str}/revoke", opt={POLICY: Policy.ADMIN}, status_code=200)
async def revoke_invitation(request: ApiRequest, invitation: SecretId) -> Accepted:
    """Let nobody in by an invitation any more."""
    return await request.command(RevokeInvitation(invitation))


ACCESS = (
    *(list_users, add_user, remove_user, change_grants),
    *(list_groups, add_group, remove_group, change_members),
    *(list_tokens, create_token, revoke_token),
    *(list_invitations, invite, revoke_invitation),
)
