"""``borgctl quota``: set, list, show, remove."""

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from borgish.cli import complete
from borgish.cli.at_option import AtOption, client_at
from borgish.cli.confirm import YesOption
from borgish.cli.listing import (
    LimitOption,
    Listing,
    UserFilterOption,
    WatchOption,
    columns_option,
    sort_option,
)
from borgish.cli.render import Column, Form, FormOption, fields, show_one
from borgish.cli.session import IfGeneration, noun, session_of
from borgish.resources import QUOTA_MAX, Resources, parse_bytes, parse_quota_millis, show_amounts
from borgish.text import wall_time
from borgish.vocabulary import Band
from borgish.wire.api import Accepted, QuotaRequest, QuotaView

if TYPE_CHECKING:
    from borgish.client import Client

T = TypeVar("T")

app = noun("Limits on what users may ask for at a time, by band.")


User = Annotated[
    str, typer.Argument(metavar="USER", help="Owner of the quota.", autocompletion=complete.owners)
]
# A cell may have more names for them.
_BANDS = complete.among(*(str(band) for band in Band if band is not Band.FREE))
BandOption = Annotated[
    str,
    typer.Option("--band", metavar="BAND", help="monitoring, production or batch.", autocompletion=_BANDS),
]


def _limit(quota: QuotaView) -> str:
    return "no limit" if quota.limits is None else show_amounts(quota.limits)


def _free(quota: QuotaView) -> str:
    return "no limit" if quota.free is None else show_amounts(quota.free)


def _until(quota: QuotaView) -> str:
    return f"{quota.until[:16].replace('T', ' ')} UTC" if quota.until else ""


def _is_over(quota: QuotaView) -> str:
    """Return the style of a quota: more is asked for than it allows, or nothing is left of it."""
    return "yellow" if quota.free == Resources() and quota.used != Resources() else ""


def _cpu(amounts: Resources | None) -> float:
    """Return by which of several amounts quotas are sorted; what is not limited is the most."""
    return inf if amounts is None else amounts.cpu_millis


QUOTA_COLUMNS: tuple[Column[QuotaView], ...] = (
    Column("USER", lambda quota: quota.user),
    Column("BAND", lambda quota: quota.band),
    Column("LIMIT", _limit, by=lambda quota: _cpu(quota.limits)),
    Column("USED", lambda quota: show_amounts(quota.used), _is_over, by=lambda quota: _cpu(quota.used)),
    Column("FREE", _free, by=lambda quota: _cpu(quota.free)),
    Column("UNTIL", _until, by=lambda quota: quota.until and wall_time(quota.until)),
)


@app.command("set")
def set_(
    context: typer.Context,
    user: User,
    band: BandOption,
    cpu: Annotated[str, typer.Option("--cpu", help="Cores: 20, 0.5 or 500m.")],
    ram: Annotated[str, typer.Option("--ram", help="Memory: 64GiB.")],
    disk: Annotated[str, typer.Option("--disk", help="Disk: 1TiB.")] = "0",
    device: Annotated[
        list[str] | None, typer.Option("--device", metavar="KIND=N", help="Devices: gpu=4 or gpu=0.5.")
    ] = None,
    named: Annotated[
        list[str] | None, typer.Option("--named", metavar="NAME=N", help="A named resource: licence=3.")
    ] = None,
    until: Annotated[
        str, typer.Option("--until", metavar="DATE", help="When it ends: 2026-12-31, or 30d from now.")
    ] = "",
    beyond_cell: Annotated[
        bool, typer.Option("--beyond-cell", help="Allow production more than the capacity of the cell.")
    ] = False,
    if_generation: IfGeneration = None,
) -> None:
    """Set how much a user's jobs in a band may ask for at a time.

    This is the whole of it: what is not named is nothing. What runs already goes on in any case.
    """
    request = QuotaRequest(
        _amount("--cpu", cpu, parse_quota_millis),
        _amount("--ram", ram, _bytes),
        _amount("--disk", disk, _bytes),
        _amounts("--device", device or (), parse_quota_millis),
        _amounts("--named", named or (), _whole),
        until,
        beyond_cell,
    )
    _change(context, user, band, "", request, if_generation)


@app.command("list")
def list_(
    context: typer.Context,
    user: Annotated[
        str, typer.Argument(metavar="[USER]", help="Only of this user.", autocompletion=complete.owners)
    ] = "",
    of_user: UserFilterOption = "",
    sort: Annotated[str, sort_option(lambda: QUOTA_COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: QUOTA_COLUMNS)] = "",
    limit: LimitOption = None,
    watch: WatchOption = False,
    at: AtOption = "",
    output: FormOption = Form.TABLE,
) -> None:
    """List the quotas, what is used of them, and what users ask for without one. Free is never limited."""
    from borgish.cli.lookup import every_quota

    client = client_at(context, at, output)
    Listing(
        items=lambda: every_quota(client, user or of_user),
        columns=QUOTA_COLUMNS,
        form=output,
        name=_name,
        none="no quotas, and nothing is asked for that one could limit; `borgctl quota set USER` makes one",
        chosen=columns,
        sort=sort,
        limit=limit,
        client=client,
    ).show(watch=watch)


@app.command()
def show(
    context: typer.Context,
    user: User,
    band: BandOption,
    at: AtOption = "",
    output: FormOption = Form.TABLE,
) -> None:
    """Show what a user may ask for in a band, and asks for."""
    client = client_at(context, at, output)
    view = client.get(_path(user, band), None, QuotaView)
    show_one(view, output, _name(view), lambda it, _: quota_in_full(it))


@app.command()
def remove(
    context: typer.Context,
    user: User,
    band: BandOption,
    if_generation: IfGeneration = None,
    yes: YesOption = False,
) -> None:
    """Remove a user's quota in a band. What runs goes on."""
    from borgish.cli.confirm import confirm
    from borgish.text import safe

    confirm(f"This removes the quota of {safe(user)} in the band {safe(band)}.", yes=yes)
    _change(context, user, band, "/delete", None, if_generation)


def quota_in_full(quota: QuotaView) -> str:
    """Return one quota as people read it."""
    return fields(
        [
            ("user", quota.user),
            ("band", quota.band),
            ("quota", "" if quota.set else "none of its own"),
            ("limit", _limit(quota)),
            ("used", show_amounts(quota.used)),
            ("free", _free(quota)),
            ("until", _until(quota)),
            ("generation", str(quota.generation)),
        ]
    )


def _name(quota: QuotaView) -> str:
    return f"{quota.user}/{quota.band}"


def _amount(option: str, text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"'{text}' {error}", param_hint=option) from None


def _amounts(option: str, texts: Sequence[str], parse: Callable[[str], int]) -> dict[str, int]:
    """Read ``gpu=4`` and the like. Raises BadParameter, also for a name given twice."""
    amounts: dict[str, int] = {}
    for text in texts:
        name, sign, number = text.partition("=")
        if not (name and sign):
            raise typer.BadParameter(f"'{text}' is not NAME=N", param_hint=option)
        if name in amounts:
            raise typer.BadParameter(f"'{name}' is given twice", param_hint=option)
        amounts[name] = _amount(option, number, parse)
    return amounts


def _bytes(text: str) -> int:
    return parse_bytes(text, 0, QUOTA_MAX)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 17):
        raise ValueError("is not a whole number")
    return int(text)


def _change(
    context: typer.Context,
    user: str,
    band: str,
    verb: str,
    body: QuotaRequest | None,
    expected: int | None,
) -> None:
    from borgish.cli.commands.job import say_accepted

    client: Client = session_of(context).client()
    say_accepted(client.post(_path(user, band) + verb, body, Accepted, expected=expected))


def _path(user: str, band: str) -> str:
    from borgish.client import quoted

    return quoted("quotas", user, band)
