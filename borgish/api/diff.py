"""``/v1/diff``: what differs between two moments of the cell, now included."""

from litestar import get

from borgish.api.asked import Asked
from borgish.api.auth import POLICY, Policy
from borgish.api.moments import NOW, read_moment
from borgish.api.parameters import FromMoment, ToMoment
from borgish.cell.diff import Change, difference
from borgish.cell.state import Cell
from borgish.text import show_indexes
from borgish.wire.api import AsOf
from borgish.wire.api_past import ChangeView, DiffView


@get("/v1/diff", opt={POLICY: Policy.READ})
async def show_diff(request: Asked, from_moment: FromMoment = "", to_moment: ToMoment = NOW) -> DiffView:
    """Compare the cell at two moments; values of environments are not shown."""
    now = await request.read(lambda reading: reading.now.wall)
    moments = request.services.moments
    old, new = [await moments.find(read_moment(text, now)) for text in (from_moment, to_moment)]
    return await moments.read_both(old, new, lambda before, after: _diff(old, before, new, after))


def _diff(old: AsOf, before: Cell, new: AsOf, after: Cell) -> DiffView:
    found = difference(before, after)
    return DiffView(old, new, {name: tuple(map(_change, changes)) for name, changes in found.items()})


def _change(change: Change) -> ChangeView:
    indexes = change.indexes
    return ChangeView(change.kind, change.name, change.lines, show_indexes(indexes), len(indexes))


DIFF = (show_diff,)
