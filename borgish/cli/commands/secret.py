"""``borgctl secret``: values that jobs get, and nobody is shown."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from borgish.cli.at_option import client_at
from borgish.cli.confirm import YesOption, confirm
from borgish.cli.listing import LimitOption, Listing, UserFilterOption, columns_option, sort_option
from borgish.cli.render import Column, Form, FormOption
from borgish.cli.session import noun, session_of
from borgish.text import age, safe, wall_time
from borgish.wire.api import Accepted
from borgish.wire.api_access import SecretList, SecretRequest, SecretView

secret_app = noun("Secrets: values that jobs get, and nobody is shown.")

SECRET_BYTES_MAX = 32 * 1024

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the secret, like db-password.")]
Whose = Annotated[
    str, typer.Option("--user", metavar="USER|GROUP", help="Whose jobs get it. Default: who asks.")
]


def _needs(secret: SecretView) -> str:
    if not secret.revoked_machines:
        return "-"
    return f"set anew: {','.join(secret.revoked_machines)} had it"


COLUMNS: tuple[Column[SecretView], ...] = (
    Column("NAME", lambda secret: secret.name),
    Column("USER", lambda secret: secret.user),
    Column("BYTES", lambda secret: str(secret.size_bytes), right=True),
    Column(
        "SET",
        lambda secret: f"{age(secret.set_at)} ago",
        right=True,
        by=lambda secret: wall_time(secret.set_at),
    ),
    Column("BY", lambda secret: secret.set_by),
    Column("USED BY", lambda secret: ",".join(secret.jobs) or "-"),
    Column("TO DO", _needs),
)


@secret_app.command("set")
def set_secret(
    context: typer.Context,
    name: Name,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Take the value from a file; - is standard input."),
    ] = None,
    user: Whose = "",
) -> None:
    """Give a secret a value: from a file, from standard input, or asked for without being shown.

    Files of tasks that use it are replaced within seconds; an environment has it from the next start on.
    A value from a file or a pipe is taken as it is, a newline at its end included.
    """
    from borgish.cli.commands.access import say
    from borgish.client import quoted

    session = session_of(context)
    path = quoted("secrets", user or session.who_asks(), name)
    say(session.client().post(path, SecretRequest(_read(name, file)), Accepted))


def _read(name: str, file: Path | None) -> bytes:
    """Return the value. Raises BadParameter."""
    if file is None and sys.stdin.isatty():
        value = typer.prompt(f"value of {name}", hide_input=True, confirmation_prompt=True, err=True)
        return str(value).encode()
    source = "--file"
    if file is None or str(file) == "-":
        source = "standard input"
        value = sys.stdin.buffer.read(SECRET_BYTES_MAX + 1)
    else:
        try:
            with file.open("rb") as opened:
                value = opened.read(SECRET_BYTES_MAX + 1)
        except OSError as error:
            raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="--file") from None
    if not 0 < len(value) <= SECRET_BYTES_MAX:
        fault = "nothing was given" if not value else f"it is longer than {SECRET_BYTES_MAX // 1024} KiB"
        raise typer.BadParameter(f"{fault}; a secret has 1 byte to 32 KiB", param_hint=source)
    return bytes(value)


@secret_app.command("list")
def list_secrets(
    context: typer.Context,
    user: UserFilterOption = "",
    sort: Annotated[str, sort_option(lambda: COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: COLUMNS)] = "",
    limit: LimitOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """List secrets, what uses them, and which are to be set anew since a revoked machine had them."""
    from borgish.cli.lookup import every

    client = client_at(context, "", output)
    Listing(
        items=lambda: every(client, "/v1/secrets", {"user": user}, SecretList),
        columns=COLUMNS,
        form=output,
        name=lambda secret: f"{secret.user}/{secret.name}",
        none="no secrets; `borgctl secret set NAME` makes one",
        chosen=columns,
        sort=sort,
        limit=limit,
    ).show()


@secret_app.command("remove")
def remove_secret(context: typer.Context, name: Name, user: Whose = "", yes: YesOption = False) -> None:
    """Forget a secret that no live job and no cron uses."""
    from borgish.cli.commands.access import say
    from borgish.client import quoted

    session = session_of(context)
    owner = user or session.who_asks()
    path = quoted("secrets", owner, name)
    confirm(f"This forgets the secret {safe(name)} of {safe(owner)}; nobody can read its value.", yes=yes)
    say(session.client().post(f"{path}/remove", None, Accepted))
