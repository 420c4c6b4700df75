"""``borgctl audit``: what people did, and whether the log of it is as it was written."""

from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli.commands.history import Params
from borgish.cli.listing import Listing, UserFilterOption, columns_option, one_more, sort_option
from borgish.cli.render import Column, Form, FormOption
from borgish.cli.session import noun, session_of
from borgish.text import day_and_time, wall_time, zoned
from borgish.wire.api_access import AuditList, AuditVerdict, AuditVerifyRequest, AuditView

if TYPE_CHECKING:
    from borgish.client import Client

app = noun("What people did, and whether its log is as it was written.")
app.info.invoke_without_command = True
app.info.no_args_is_help = False

LIMIT_MAX = 10_000
_AT_ONCE_MAX = 1000


def _who(entry: AuditView) -> str:
    return entry.user or "-"


def _what(entry: AuditView) -> str:
    return entry.outcome if entry.count == 1 else f"{entry.outcome} ({entry.count} times)"


COLUMNS: tuple[Column[AuditView], ...] = (
    Column("NUMBER", lambda entry: str(entry.number), right=True),
    Column("AT", lambda entry: day_and_time(entry.at), by=lambda entry: wall_time(entry.at)),
    Column("WHO", _who),
    Column("ROLE", lambda entry: entry.role or "-"),
    Column("TOKEN", lambda entry: entry.token or "-", wide=True),
    Column("FROM", lambda entry: entry.source or "-"),
    Column("ASKED", lambda entry: entry.action),
    Column("ABOUT", lambda entry: entry.object or "-"),
    Column("POSITION", lambda entry: str(entry.position or "-"), right=True, wide=True),
    Column("WHAT", _what),
)


@app.callback()
def audit(
    context: typer.Context,
    user: UserFilterOption = "",
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Not before: 2026-01-31T12:00, or 2h ago.")
    ] = "",
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=LIMIT_MAX, help="The latest N entries.")
    ] = 100,
    sort: Annotated[str, sort_option(lambda: COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: COLUMNS)] = "",
    output: FormOption = Form.TABLE,
) -> None:
    """Show what people did, the latest last; `audit verify` checks the log."""
    if context.invoked_subcommand is not None:
        return
    client, since = session_of(context).client(), zoned(since)
    Listing(
        items=lambda: _latest(client, user, since, one_more(context, limit)),
        columns=COLUMNS,
        form=output,
        name=lambda entry: str(entry.number),
        none="the audit log has no entries",
        chosen=columns,
        sort=sort,
        latest=limit,
        nouns="entries",
    ).show()


def _latest(client: "Client", user: str, since: str, limit: int) -> list[AuditView]:
    """Return the latest entries, in order, asked for in pages from the end."""
    found: list[AuditView] = []
    before = 0
    while len(found) < limit:
        asked: Params = {
            "user": user,
            "since": since,
            "before": before,
            "limit": min(limit, _AT_ONCE_MAX),
        }
        page = client.get("/v1/audit", asked, AuditList)
        found[:0] = page.items
        before = int(page.page.next or 0)
        if not before:
            break
    return found[-limit:]


@app.command()
def verify(
    context: typer.Context,
    known: Annotated[
        str,
        typer.Option(
            "--known", metavar="ENTRY", help="It is to have this entry, as an earlier check named it."
        ),
    ] = "",
) -> None:
    """Say whether each entry follows from the one before, by the key that the masters of the cell have.

    The latest entry is named. Keep that elsewhere: given with --known, it shows whether the end of the log
    was cut off since.
    """
    import re

    from borgish.cli.errors import FAILED, print_error, print_hint
    from borgish.cli.screen import print_out

    if known and not re.fullmatch("[1-9][0-9]{0,17}:[0-9a-f]{64}", known):
        raise typer.BadParameter("write it as `audit verify` named it: NUMBER:DIGEST", param_hint="--known")
    verdict = session_of(context).client().post("/v1/audit/verify", AuditVerifyRequest(known), AuditVerdict)
    if not verdict.holds:
        print_error(f"the audit log is not as it was written: {verdict.trouble}")
        print_hint(f"the {verdict.entries} entries before are; compare the rest with a copy kept elsewhere")
        raise typer.Exit(FAILED)
    times = f", from {verdict.first_at} to {verdict.last_at}" if verdict.entries else ""
    print_out(f"the audit log holds: {verdict.entries} entries{times}")
    if verdict.last:
        print_out(f"the latest is {verdict.last}")
