"""Quotas as the API shows them: what users may ask for, and what they ask for."""

from borgish.api.views.instants import instant_or_none
from borgish.cell.admission import limits_of
from borgish.cell.model import quota_key
from borgish.cell.state import Cell
from borgish.vocabulary import Band
from borgish.wire.api import QuotaView


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
    )
