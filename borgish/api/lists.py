"""Lists that are filtered and sorted here, of which many records are looked at and a page is shown.

A record's place in a list is found without making its view. Whoever asks holds the loop for a few
milliseconds at a time, and turns and all other requests go on in between; so each record is judged as it was
when it was looked at, and those on the page once more when that is made.

``page.next`` of a list by name is the name of the last record. Of every other it is a *continuation*: by what
it was sorted, with which values the last record stood there, and its name. The next page has what stands
after that. Nothing is kept between two pages, so that a continuation never expires (Kubernetes' 410 Gone).

By name, whatever else comes, goes and changes: no record is on two pages, and one that the list is about all
the while is on exactly one, since a name is for ever. Otherwise a record whose own value changes between two
pages may be on both, or on neither. Pages of one position are those of a moment: ``at``, with its position.
"""

import heapq
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from itertools import count
from typing import Generic, Protocol, TypeVar

import msgspec

from borgish.api.request import ApiRequest
from borgish.api.services import Reading
from borgish.clock import SystemClock
from borgish.errors import Invalid
from borgish.wire.api import Page

P = TypeVar("P")
"""How a record is named: ``ann/web``, or ("ann/web", 3) of a task, so that 10 comes after 9."""
T = TypeVar("T")
Rank = tuple[float, ...]
"""By what a record is sorted, the least first; none of it for its name."""

NAME = "name"
SLICE_SECONDS = 0.005
LOOKED_AT = 16
"""After so many records it is asked whether there is time for more."""
_KEPT = 4_000
"""So many more of the records that may be on the page are kept before those that cannot be are let go."""
_CLOCK = SystemClock()


class Records(Protocol[P]):
    """What a list is of, in one reading of the cell."""

    def after(self, place: P | None) -> Iterator[P]:
        """Yield the records above a place, or all of them, by name. It may be broken off anywhere, and what
        is yielded need not be there."""
        ...

    def rank(self, place: P) -> Rank | None:
        """Return by what a record is sorted; None for one that the list does not show."""
        ...


class Order(Generic[P]):
    """In which order a list is, and where in it a page begins."""

    def __init__(
        self,
        sort: str,
        after: str,
        keys: tuple[str, ...],
        write: Callable[[P], str],
        read: Callable[[str], P],
    ) -> None:
        """``sort`` is one of the ``keys``, reversed by a - before it; by name where it is empty. ``after`` is
        what the page before this one gave as ``next``. ``write`` returns the name of a record, and ``read``,
        which raises ValueError, a record by its name. Raises Invalid."""
        key = sort.removeprefix("-")
        if sort and key not in keys:
            hint = f"Use one of {', '.join(keys)}, with a - before it for the reverse"
            raise Invalid(f"sort: there is no order {sort[:63]!r}", hint)
        self.key, self.is_reversed = key or NAME, sort.startswith("-")
        self._sort, self._write, self._read_name = sort or NAME, write, read
        self.after: tuple[Rank, P] | None = self._read(after) if after else None

    def continuation(self, rank: Rank, place: P) -> str:
        """Return what stands for a record, as ``page.next``."""
        name = self._write(place)
        if self.key == NAME:
            return name
        return (
            urlsafe_b64encode(msgspec.json.encode((self._sort, tuple(map(float, rank)), name)))
            .decode()
            .rstrip("=")
        )

    def precedes(self, one: tuple[Rank, P], other: tuple[Rank, P]) -> bool:
        """Return whether one record comes before another."""
        return one > other if self.is_reversed else one < other

    def _read(self, after: str) -> tuple[Rank, P]:
        try:
            if self.key == NAME:
                return (), self._read_name(after)
            text = urlsafe_b64decode(after.encode("ascii") + b"=" * (-len(after) % 4))
            sort, rank, name = msgspec.json.decode(text, type=tuple[str, tuple[float, ...], str])
            if sort != self._sort:
                raise ValueError
            return rank, self._read_name(name)
        except (ValueError, msgspec.MsgspecError):
            what = "the name of a record" if self.key == NAME else f"of a list by {self._sort}"
            raise Invalid(
                f"after: {after[:63]!r} is not {what}",
                "Pass page.next of the previous page, and the same sort",
            ) from None


class Scan(Generic[P]):
    """Looks for the records of one page."""

    def __init__(
        self, records: Callable[[Reading], Records[P]], order: Order[P], limit: int, *, whole: bool = False
    ) -> None:
        """``records`` are those of a reading. ``whole``: all of them are looked at, whatever the page has."""
        self._records, self._order, self._limit = records, order, limit
        # By name the page is there when it is full.
        self._ends_when_full = order.key == NAME and not order.is_reversed and not whole
        self._last: P | None = order.after[1] if self._ends_when_full and order.after else None
        self._bound: tuple[Rank, P] | None = None  # no record from there on is on the page
        self._found: list[tuple[Rank, P]] = []
        self._slices, self._is_over = 0, False

    def look(self, reading: Reading) -> bool:
        """Look at some more records; return whether that is all, and there is time left to make the page."""
        if self._is_over:
            return True
        self._slices += 1
        records, until = self._records(reading), _CLOCK.now().mono + SLICE_SECONDS
        for looked_at, place in zip(count(1), records.after(self._last)):
            self._last = place
            rank = records.rank(place)
            if rank is not None:
                self._take((rank, place))
                if self._ends_when_full and len(self._found) > self._limit:
                    break
            if looked_at % LOOKED_AT == 0 and _CLOCK.now().mono > until:
                return False
        self._let_go()
        self._is_over = True
        return self._slices == 1

    def page(self, reading: Reading) -> tuple[list[P], Page]:
        """Return the records of the page that are still to be shown, and where the list goes on."""
        shown, following = self._found[: self._limit], ""
        if len(self._found) > self._limit:
            following = self._order.continuation(*shown[-1])
        records = self._records(reading)
        return [place for _, place in shown if records.rank(place) is not None], Page(following)

    def _take(self, found: tuple[Rank, P]) -> None:
        after, bound = self._order.after, self._bound
        if after is not None and not self._order.precedes(after, found):
            return
        if bound is not None and not self._order.precedes(found, bound):
            return
        self._found.append(found)
        if len(self._found) > self._limit + _KEPT:
            self._let_go()
            self._bound = self._found[-1]

    def _let_go(self) -> None:
        first = heapq.nlargest if self._order.is_reversed else heapq.nsmallest
        self._found = first(self._limit + 1, self._found)


async def listed(request: ApiRequest, scan: Scan[P], view: Callable[[Reading, list[P], Page], T]) -> T:
    """Return what ``view`` makes of a page, when its records are found."""

    def look(reading: Reading) -> T | None:
        return view(reading, *scan.page(reading)) if scan.look(reading) else None

    while (answer := await request.read(look)) is None:
        await request.parser.pause()
    return answer


def has_text(wanted: str, *texts: str) -> bool:
    """Return whether one of the texts has what is wanted in it, whatever its case; ``wanted`` is in lower
    case."""
    return any(wanted in text.lower() for text in texts)
