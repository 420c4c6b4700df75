"""``/v1/quotas``: list, show, set, delete; and ``/v1/bands``, which say where bands begin in this cell."""

import re
from collections.abc import Mapping

from litestar import get, post

from borgish.api.auth import POLICY, Policy
from borgish.api.moments import AT, LEADER_ONLY, moment_ahead
from borgish.api.openapi import CONSUMES
from borgish.api.parameters import LIMIT_MAX, After, BandName, Limit, Owner, UserFilter, checked_name, cut
from borgish.api.preconditions import ETAG, IF_MATCH
from borgish.api.request import ApiRequest
from borgish.api.services import Reading
from borgish.bands import Bands
from borgish.cell.commands import (
    RemoveQuota,
    SetQuota,
)
from borgish.cell.limits.admission import limits_of
from borgish.cell.limits.quotas import quota_key, split_quota_key
from borgish.cell.model import Cell
from borgish.errors import Invalid, NotFound
from borgish.resources import QUOTA_MAX, Resources
from borgish.spec.file.mistakes import nearest
from borgish.text import instant_or_none
from borgish.vocabulary import NAME_PATTERN, Band
from borgish.wire.api import Accepted, QuotaList, QuotaRequest, QuotaView

NAMES_MAX = 64

_NAME = re.compile(NAME_PATTERN)


@get("/v1/bands", opt={POLICY: Policy.READ, LEADER_ONLY: "bands are as who leads was started with"})
async def show_bands(request: ApiRequest) -> Bands:
    """Show where the bands begin in this cell, and by which other names they go."""
    return request.services.bands()


@get("/v1/quotas", opt={POLICY: Policy.READ, AT: True})
async def list_quotas(
    request: ApiRequest, user: UserFilter = "", limit: Limit = LIMIT_MAX, after: After = ""
) -> QuotaList:
    """List quotas by user and band, and what is asked for without one. The free band has none."""

    def view(reading: Reading) -> QuotaList:
        cell, wall = reading.cell, reading.now.wall
        names = ((key, split_quota_key(key)) for key in sorted(quota_keys(cell, user)) if key > after)
        chosen, page = cut(names, limit)
        return QuotaList(tuple(quota_view(cell, whose, Band(band), wall) for whose, band in chosen), page)

    return await request.read(view)


@get("/v1/quotas/{user:str}/{band:str}", opt={POLICY: Policy.READ, AT: True, ETAG: True})
async def show_quota(request: ApiRequest, user: Owner, band: BandName) -> QuotaView:
    """Show what a user may ask for, and asks for, in a band."""

    def view(reading: Reading) -> QuotaView:
        found = _band(reading.cell.rules.bands, band)
        shown = quota_view(reading.cell, user, found, reading.now.wall)
        request.tag(shown.generation)
        return shown

    return await request.read(view)


@post(
    "/v1/quotas/{user:str}/{band:str}",
    opt={POLICY: Policy.ADMIN, CONSUMES: QuotaRequest, IF_MATCH: True},
    status_code=200,
)
async def set_quota(request: ApiRequest, user: Owner, band: BandName) -> Accepted:
    """Set a user's quota in a band, whether or not there is one."""
    asked = await request.json_as(QuotaRequest)
    checked_name(user, "user")
    limits = _limits(asked)
    now = await request.read(lambda reading: reading.now.wall)
    until = moment_ahead(asked.until, "until", now) or 0.0
    found = _band(request.services.bands(), band)
    return await request.command(SetQuota(user, found, limits, until, asked.beyond_cell))


@post("/v1/quotas/{user:str}/{band:str}/delete", opt={POLICY: Policy.ADMIN, IF_MATCH: True}, status_code=200)
async def delete_quota(request: ApiRequest, user: Owner, band: BandName) -> Accepted:
    """Let a user have no quota of their own in a band."""
    return await request.command(RemoveQuota(user, _band(request.services.bands(), band)))


def _band(bands: Bands, word: str) -> Band:
    found = bands.named(word)
    if found is None:
        close = nearest(word, bands.words)
        hint = f"Did you mean {close}?" if close else f"There are {', '.join(bands.words)}"
        raise NotFound(f"there is no band {word[:63]!r} in this cell", hint)
    return found


def _limits(asked: QuotaRequest) -> Resources:
    """Return the amounts of a request. Raises Invalid for what cannot be one."""
    _check_amounts(
        {"cpu_millis": asked.cpu_millis, "ram_bytes": asked.ram_bytes, "disk_bytes": asked.disk_bytes}
    )
    for field, amounts in (("devices", asked.devices), ("named", asked.named)):
        if len(amounts) > NAMES_MAX:
            raise Invalid(f"{field}: {len(amounts)} names are too many", f"Give at most {NAMES_MAX}")
        for name in amounts:
            if not _NAME.fullmatch(name):
                raise Invalid(f"{field}: invalid name {name[:63]!r}", "Use a-z, 0-9 and -")
        _check_amounts({f"{field}.{name}": amount for name, amount in amounts.items()})
    return Resources(asked.cpu_millis, asked.ram_bytes, asked.disk_bytes, asked.named, asked.devices)


def _check_amounts(amounts: Mapping[str, int]) -> None:
    for field, amount in amounts.items():
        if not 0 <= amount <= QUOTA_MAX:
            raise Invalid(f"{field}: {amount} is outside 0 to {QUOTA_MAX}", "Use 0 for none")


def quota_keys(cell: Cell, user: str) -> list[str]:
    """Return the keys of quotas, and of what is asked for without one; of one user when named."""
    keys = cell.quotas.keys() | cell.demand.totals.keys()
    return [key for key in keys if not key.endswith(f"/{Band.FREE}") and key.startswith(user and f"{user}/")]


def quota_view(cell: Cell, user: str, band: Band, wall: float) -> QuotaView:
    """Return what a user may ask for, and asks for; ``wall`` is now, in seconds since 1970."""
    key = quota_key(user, band)
    quota, used = cell.quotas.get(key), cell.demand.of(key)
    limits = limits_of(cell, user, band, wall)
    return QuotaView(
        user=user,
        band=band,
        limits=limits,
        used=used,
        free=None if limits is None else limits.plus(used, -1),
        until=instant_or_none(quota.until) if quota else None,
        set=quota is not None,
        generation=quota.generation if quota else 0,
    )


QUOTAS = (show_bands, list_quotas, show_quota, set_quota, delete_quota)
