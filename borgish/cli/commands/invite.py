"""``borgctl machine invite``, ``invitations`` and ``revoke``: which machines are let in, and out."""

from typing import TYPE_CHECKING, Annotated

import typer

import borgish.cli.commands.drain  # noqa: F401 - its commands are of the same noun
from borgish.cli.at_option import client_at
from borgish.cli.commands.machine import MachineName, app
from borgish.cli.confirm import YesOption, confirm
from borgish.cli.listing import LimitOption, Listing, columns_option, sort_option
from borgish.cli.render import Column, Form, FormOption, age_column
from borgish.cli.session import session_of
from borgish.join_token import JoinToken, digest_of
from borgish.text import day_and_time, safe, wall_time
from borgish.vocabulary import NAME_HINT, NAME_PATTERN
from borgish.wire.api import Accepted
from borgish.wire.api_access import InvitationList, InvitationRequest, InvitationView

if TYPE_CHECKING:
    from borgish.client import Client

SECONDS_MAX = 24 * 3600.0

COLUMNS: tuple[Column[InvitationView], ...] = (
    Column("ID", lambda it: it.id),
    Column("MACHINE", lambda it: it.machine or "any"),
    Column("LEFT", lambda it: str(it.uses), right=True),
    age_column("AGE", lambda it: it.created_at),
    Column("BY", lambda it: it.created_by),
    Column("ENDS", lambda it: day_and_time(it.expires_at), by=lambda it: wall_time(it.expires_at)),
)


@app.command()
def invite(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Only for a machine of this name. Default: any new one.")
    ] = "",
    time: Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 24h at most.")] = "30m",
    count: Annotated[int, typer.Option("--count", min=1, help="How many machines may join by it.")] = 1,
) -> None:
    """Let a machine join, and print the line to run there.

    A name that is in the cell is taken over by nothing but an invitation for it.
    """
    import re
    import secrets

    from borgish.cli.commands.job import seconds_of
    from borgish.cli.screen import print_err, print_out
    from borgish.errors import Invalid

    if name and not re.fullmatch(NAME_PATTERN, name):
        raise Invalid(f"invalid machine name {name[:63]!r}", NAME_HINT)
    client, secret = session_of(context).client(), secrets.token_urlsafe(32)
    digest = digest_of(secret)
    seconds = seconds_of(time, "--for")
    if not 0 < seconds <= SECONDS_MAX:
        raise typer.BadParameter(
            "an invitation holds for more than nothing and 24h at most", param_hint="--for"
        )
    asked = InvitationRequest(digest, name, count, seconds)
    accepted = client.post("/v1/invitations", asked, Accepted)
    print_err(accepted.text)
    for note in accepted.notes:
        print_err(f"note: {note}")
    urls, token = urls_for_others(client), JoinToken(authority_of(client), secret)
    if not token.authority and urls.startswith("https:"):
        print_err(
            "note: this cell has an operator's certificates, which `borglet join` does not know. Write the "
            "token into a file that `join_token_file` of a borglet.toml with [tls] names, or make the cell "
            "an authority of its own: `borgctl cell adopt`"
        )
    print_out(f"borglet join {urls} {token}" + (f" --name {name}" if name else ""))


def url_for_others(client: "Client") -> str:
    """Return where other hosts reach the master: not by loopback, where it listens elsewhere, too."""
    from urllib.parse import urlsplit

    from borgish.addresses import is_loopback
    from borgish.wire.api import HealthView

    if not is_loopback(urlsplit(client.url).hostname or ""):
        return client.url
    return client.get("/v1/health", None, HealthView).address or client.url


def urls_for_others(client: "Client") -> str:
    """Return where other hosts reach the masters that are known here, that of ``url_for_others`` first: a
    machine that knows one alone could not join again when that host is lost."""
    from urllib.parse import urlsplit

    from borgish.addresses import is_loopback

    def is_local(url: str) -> bool:
        return is_loopback(urlsplit(url).hostname or "")

    first = url_for_others(client)
    known = (each.url for each in client.each_master())
    return ",".join(dict.fromkeys((first, *(url for url in known if is_local(url) == is_local(first)))))


def authority_of(client: "Client") -> str:
    """Return the hash of the cell's authority; "" where it has none."""
    from borgish.errors import NotFound
    from borgish.tls.bundle import authorities_in, authority_hash

    try:
        return authority_hash(authorities_in(client.raw("GET", "/v1/authority"))[0])
    except NotFound:
        return ""


@app.command()
def invitations(
    context: typer.Context,
    revoke: Annotated[
        str, typer.Option("--revoke", metavar="ID", help="Let nobody in by this one any more.")
    ] = "",
    sort: Annotated[str, sort_option(lambda: COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: COLUMNS)] = "",
    limit: LimitOption = None,
    output: FormOption = Form.TABLE,
) -> None:
    """List the invitations by which machines can still join."""
    from borgish.cli.commands.job import say_accepted
    from borgish.cli.lookup import every
    from borgish.client import quoted

    if revoke:
        client = session_of(context).client()
        say_accepted(client.post(quoted("invitations", revoke) + "/revoke", None, Accepted))
        return
    client = client_at(context, "", output)
    Listing(
        items=lambda: every(client, "/v1/invitations", {}, InvitationList),
        columns=COLUMNS,
        form=output,
        name=lambda it: it.id,
        none="no invitations; `borgctl machine invite` makes one",
        chosen=columns,
        sort=sort,
        limit=limit,
    ).show()


@app.command()
def revoke(context: typer.Context, machine: MachineName, yes: YesOption = False) -> None:
    """Have a machine out of the cell at once: for one that is stolen, or not to be trusted.

    What it holds runs elsewhere. Nothing tells it to stop what runs there: switch it off. It comes back by
    `machine invite` with its name.
    """
    from borgish.cli.commands.job import say_accepted
    from borgish.cli.lookup import find_machine
    from borgish.cli.screen import print_err
    from borgish.client import quoted

    client = session_of(context).client()
    name = find_machine(client, machine)
    confirm(f"This has machine {safe(name)} out of the cell at once: what it holds runs elsewhere.", yes=yes)
    accepted = client.post(quoted("machines", name, "revoke"), None, Accepted)
    say_accepted(accepted)
    for note in accepted.notes:
        print_err(f"note: {note}")
