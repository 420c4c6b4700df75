"""``borgctl user``, ``group`` and ``token``: who may do what in a cell."""

import os
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli import complete
from borgish.cli.at_option import client_at
from borgish.cli.confirm import YesOption, confirm
from borgish.cli.listing import LimitOption, Listing, UserFilterOption, columns_option, of_user, sort_option
from borgish.cli.render import Column, Form, FormOption, age_column
from borgish.cli.session import noun, session_of
from borgish.join_token import digest_of
from borgish.text import age, day_and_time, safe, seconds_since, wall_time
from borgish.wire.api import Accepted
from borgish.wire.api_access import (
    GrantsRequest,
    GroupList,
    GroupView,
    MembersRequest,
    TokenList,
    TokenRequest,
    TokenView,
    UserList,
    UserView,
)

if TYPE_CHECKING:
    from borgish.client import Client

user_app = noun("Users: who may have jobs, and what they are granted.")
group_app = noun("Groups: users who have jobs together.")
token_app = noun("Tokens: by which people and programs prove who they are.")

NEVER = "never"
ROLES = ("reader", "user", "operator", "admin")

User = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.", autocompletion=complete.users)]
Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="Name of the group.", autocompletion=complete.groups)
]
Owner = Annotated[
    str,
    typer.Argument(
        metavar="USER|GROUP", help="Name of the user or the group.", autocompletion=complete.owners
    ),
]
Grants = Annotated[
    list[str],
    typer.Argument(metavar="GRANT...", help="A band, like production, or a privilege, like container-root."),
]


def _joined(names: tuple[str, ...]) -> str:
    return ",".join(names) or "-"


def _ends(moment: str) -> str:
    if not moment:
        return "never"
    return f"{day_and_time(moment)}{' (over)' * _is_over(moment)}"


def _is_over(moment: str) -> bool:
    return bool(moment) and seconds_since(moment) >= 0


USER_COLUMNS: tuple[Column[UserView], ...] = (
    Column("NAME", lambda user: user.name),
    Column("GRANTED", lambda user: _joined(user.grants)),
    Column("GROUPS", lambda user: _joined(user.groups)),
    Column("TOKENS", lambda user: str(user.tokens), right=True),
    age_column("AGE", lambda user: user.since),
)
GROUP_COLUMNS: tuple[Column[GroupView], ...] = (
    Column("NAME", lambda group: group.name),
    Column("MEMBERS", lambda group: _joined(group.members)),
    Column("GRANTED", lambda group: _joined(group.grants)),
    age_column("AGE", lambda group: group.since),
)
TOKEN_COLUMNS: tuple[Column[TokenView], ...] = (
    Column("ID", lambda token: token.id),
    Column("USER", lambda token: token.user),
    Column("ROLE", lambda token: token.role),
    Column("BANDS", lambda token: _joined(token.bands)),
    age_column("AGE", lambda token: token.created_at),
    Column("BY", lambda token: token.created_by, wide=True),
    Column(
        "ENDS",
        lambda token: _ends(token.expires_at),
        by=lambda token: wall_time(token.expires_at) if token.expires_at else inf,
    ),
    Column(
        "USED",
        lambda token: f"{age(token.used_at)} ago" if token.used_at else "never",
        by=lambda token: wall_time(token.used_at) if token.used_at else None,
    ),
    Column("NOTE", lambda token: token.note or "-"),
)


# Users


@user_app.command("add")
def add_user(context: typer.Context, user: User) -> None:
    """Let somebody have jobs, in the bands batch and free."""
    say(_client(context).post(_path("users", user), None, Accepted))


@user_app.command("list")
def list_users(
    context: typer.Context,
    sort: Annotated[str, sort_option(lambda: USER_COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: USER_COLUMNS)] = "",
    limit: LimitOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """List the users, and what they are granted.

    Whom a token of another role than user stands for is not among them, unless added.
    """
    from borgish.cli.lookup import every

    client = client_at(context, "", output)
    Listing(
        items=lambda: every(client, "/v1/users", {}, UserList),
        columns=USER_COLUMNS,
        form=output,
        name=lambda user: user.name,
        none="no users, whom only tokens of the role user need; `borgctl user add NAME` adds one",
        chosen=columns,
        sort=sort,
        limit=limit,
    ).show()


@user_app.command("grant")
def grant(context: typer.Context, owner: Owner, grants: Grants) -> None:
    """Grant a user or a group what goes beyond the defaults."""
    _change_grants(context, owner, GrantsRequest(add=tuple(grants)))


@user_app.command("ungrant")
def ungrant(context: typer.Context, owner: Owner, grants: Grants) -> None:
    """Take back what was granted. What runs already goes on."""
    _change_grants(context, owner, GrantsRequest(remove=tuple(grants)))


def _change_grants(context: typer.Context, owner: str, asked: GrantsRequest) -> None:
    say(_client(context).post(_path("users", owner) + "/grants", asked, Accepted))


@user_app.command("remove")
def remove_user(context: typer.Context, user: User, yes: YesOption = False) -> None:
    """Forget a user, with the tokens. The jobs go on."""
    confirm(f"This forgets the user {safe(user)}, with all tokens and grants.", yes=yes)
    say(_client(context).post(_path("users", user) + "/remove", None, Accepted))


# Groups


@group_app.command("add")
def add_group(
    context: typer.Context,
    group: Group,
    member: Annotated[
        list[str] | None, typer.Option("--member", metavar="USER", help="Put this user into it; repeatable.")
    ] = None,
) -> None:
    """Let users have jobs together: those whose `user` is the group."""
    client = _client(context)
    say(client.post(_path("groups", group), None, Accepted))
    if member:
        say(client.post(_path("groups", group) + "/members", MembersRequest(add=tuple(member)), Accepted))


@group_app.command("list")
def list_groups(
    context: typer.Context,
    sort: Annotated[str, sort_option(lambda: GROUP_COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: GROUP_COLUMNS)] = "",
    limit: LimitOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """List the groups, and who is in them."""
    from borgish.cli.lookup import every

    client = client_at(context, "", output)
    Listing(
        items=lambda: every(client, "/v1/groups", {}, GroupList),
        columns=GROUP_COLUMNS,
        form=output,
        name=lambda group: group.name,
        none="no groups; `borgctl group add NAME` adds one",
        chosen=columns,
        sort=sort,
        limit=limit,
    ).show()


@group_app.command("members")
def members(
    context: typer.Context,
    group: Group,
    add: Annotated[
        list[str] | None, typer.Option("--add", metavar="USER", help="Put this user into it; repeatable.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="USER", help="Take this user out; repeatable.")
    ] = None,
) -> None:
    """Put users into a group, and take others out of it; without options, show who is in it."""
    asked = MembersRequest(tuple(add or ()), tuple(remove or ()))
    say(_client(context).post(_path("groups", group) + "/members", asked, Accepted))


@group_app.command("remove")
def remove_group(context: typer.Context, group: Group, yes: YesOption = False) -> None:
    """Forget a group. Its jobs go on."""
    confirm(f"This forgets the group {safe(group)}, with its grants and who is in it.", yes=yes)
    say(_client(context).post(_path("groups", group) + "/remove", None, Accepted))


# Tokens


@token_app.command("create")
def create_token(
    context: typer.Context,
    user: Annotated[str, typer.Option("--user", help="Whom it stands for. Default: who asks.")] = "",
    role: Annotated[
        str, typer.Option("--role", help="reader, user, operator or admin.", metavar="ROLE")
    ] = "user",
    bands: Annotated[
        str | None, typer.Option("--bands", metavar="BAND,...", help="Only for jobs in these bands.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="How long it holds: 90d, 12h, never.")
    ] = None,
    note: Annotated[str, typer.Option("--note", help="What it is for, shown in the list.")] = "",
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="Write it to a new file (0600), not here."),
    ] = None,
) -> None:
    """Make a token, and show it this once. The cell is told its SHA-256 alone.

    It holds 90 days, that of an admin one day, unless `--for` says otherwise.
    """
    from borgish.cli.commands.invite import authority_of, urls_for_others
    from borgish.cli.screen import print_err, print_out
    from borgish.credentials import write_private
    from borgish.ids import new_token

    if role not in ROLES:
        raise typer.BadParameter(f"'{role}' is none of {', '.join(ROLES)}", param_hint="--role")
    client, token = _client(context), new_token()
    asked = TokenRequest(
        digest_of(token),
        user or session_of(context).who_asks(),
        role,
        _bands(bands),
        _seconds(time),
        note,
    )
    if to is not None and to.exists():
        raise typer.BadParameter(f"{to} is there already", param_hint="--to")
    if to is not None and not os.access(to.parent, os.W_OK):
        raise typer.BadParameter(f"{to.parent} is no folder that can be written to", param_hint="--to")
    accepted = client.post("/v1/tokens", asked, Accepted)
    if to is not None:
        write_private(to, token + "\n")
        say(accepted)
    else:
        print_err(accepted.text)
        print_out(token)
    if authority := authority_of(client):
        print_err(f"to use it elsewhere: borgctl login {urls_for_others(client)} --authority {authority}")


def _bands(text: str | None) -> tuple[str, ...]:
    """Return the bands that are named. A token without bands is not limited to any, so an empty text, as from
    an unset variable, is refused rather than taken for that."""
    if text is None:
        return ()
    words = tuple(word for each in text.split(",") if (word := each.strip()))
    if not words:
        raise typer.BadParameter(
            "names no band; leave it out for all that the user has", param_hint="--bands"
        )
    return words


def _seconds(text: str | None) -> float | None:
    from borgish.cli.commands.job import seconds_of

    if text is None:
        return None
    if text == NEVER:
        return 0.0
    seconds = seconds_of(text, "--for")
    if not seconds:
        raise typer.BadParameter(f"the token would be over at once; '{NEVER}' has no end", param_hint="--for")
    return seconds


class TokenState(StrEnum):
    """Whether a token stands for anybody. One that was revoked is in no list."""

    VALID = "valid"
    ENDED = "ended"


def _state(token: TokenView) -> TokenState:
    return TokenState.ENDED if _is_over(token.expires_at) else TokenState.VALID


@token_app.command("list")
def list_tokens(
    context: typer.Context,
    user: UserFilterOption = "",
    state: Annotated[TokenState | None, typer.Option("--state", help="Only tokens in this state.")] = None,
    sort: Annotated[str, sort_option(lambda: TOKEN_COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: TOKEN_COLUMNS)] = "",
    limit: LimitOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """List the tokens by their ids; whoever is no admin sees the own ones.

    Whom a token of another role than user stands for need not be in `user list`.
    """
    from borgish.cli.lookup import every

    client = client_at(context, "", output)
    Listing(
        items=lambda: (
            token
            for token in of_user(every(client, "/v1/tokens", {}, TokenList), user)
            if state in (None, _state(token))
        ),
        columns=TOKEN_COLUMNS,
        form=output,
        name=lambda token: token.id,
        none="no such tokens" if user or state else "no tokens",
        chosen=columns,
        sort=sort,
        limit=limit,
    ).show()


@token_app.command("revoke")
def revoke_token(
    context: typer.Context,
    token: Annotated[str, typer.Argument(metavar="ID", help="Its id, or a beginning that is unique.")],
) -> None:
    """Let a token stand for nobody, at once: what it has open ends, too."""
    from borgish.client import quoted

    if token.startswith("bgt_"):  # somebody pastes the token itself, to be rid of it
        token = digest_of(token)
    say(_client(context).post(quoted("tokens", token) + "/revoke", None, Accepted))


def _client(context: typer.Context) -> "Client":
    return session_of(context).client()


def _path(noun: str, name: str) -> str:
    from borgish.client import quoted

    return quoted(noun, name)


def say(accepted: Accepted) -> None:
    """Say what was done, and the warnings that came with it."""
    from borgish.cli.commands.job import say_accepted
    from borgish.cli.screen import print_err

    say_accepted(accepted)
    for note in accepted.notes:
        print_err(f"note: {note}")
