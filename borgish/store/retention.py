"""Which checkpoints are kept, by rule: the latest, one for each hour and each day, and those with a name."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal

import msgspec

from borgish.configuration import NumberKept
from borgish.store.base import CheckpointInfo

ALL: Literal["all"] = "all"
HOUR_SECONDS, DAY_SECONDS = 3600, 86400


class Keep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many are kept. One that any of these keeps stays; the newest stays in any case.

    ``hourly`` is the newest of each of the last so many hours (of UTC) that have one, ``daily`` likewise.
    """

    latest: NumberKept = 6
    hourly: NumberKept = 24
    daily: NumberKept = 7
    named: NumberKept | Literal["all"] = ALL


def over(kept: Iterable[CheckpointInfo], keep: Keep, journal_begins: int) -> list[CheckpointInfo]:
    """Return those that may go, of all that are kept.

    The journal is not always whole: the one from which it can be replayed where it begins stays as well,
    or else its first entries would tell nothing.
    """
    newest_first = sorted(kept, key=lambda info: info.position, reverse=True)
    named = [info for info in newest_first if info.name]
    unnamed = [info for info in newest_first if not info.name]
    stay = {
        *newest_first[:1],
        *(named if keep.named == ALL else named[: keep.named]),
        *unnamed[: keep.latest],
        *_one_each(unnamed, HOUR_SECONDS, keep.hourly),
        *_one_each(unnamed, DAY_SECONDS, keep.daily),
        *_base(newest_first, journal_begins),
    }
    return [info for info in newest_first if info not in stay]


def _one_each(newest_first: Sequence[CheckpointInfo], seconds: int, periods: int) -> Iterable[CheckpointInfo]:
    """Return the newest in each of the last so many periods that have one."""
    by_period: dict[int, CheckpointInfo] = {}
    for info in newest_first:
        by_period.setdefault(int(info.at // seconds), info)
    return islice(by_period.values(), periods)


def _base(newest_first: Sequence[CheckpointInfo], journal_begins: int) -> Sequence[CheckpointInfo]:
    """Return the first from which a journal that was pruned goes on; none for one that is whole."""
    if journal_begins <= 1:
        return ()
    return [info for info in newest_first if info.position >= journal_begins - 1][-1:]
