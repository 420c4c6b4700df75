"""The bands of one cell: at which priority each begins, and by which other names people call them.

Which four bands there are, and what follows from being in one, is fixed (``vocabulary.Band``); where they
begin is the cell's own (``[bands]`` in ``cell.toml``; Kubernetes has priority classes), and what a cell has
decided is in its journal.
"""

import re

import msgspec

from borgish.vocabulary import NAME_PATTERN, Band

PRIORITY_MAX = 9999
"""No cell has priorities above this."""

_NAME = re.compile(rf"(?=[a-z]){NAME_PATTERN}")


class Bands(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lowest priority of each band, the highest of all, and more names for bands.

    A band ends where the next one begins. See ``wrong_with`` for what must hold.
    """

    monitoring: int = 300
    production: int = 200
    batch: int = 100
    free: int = 0
    highest: int = 399
    names: dict[str, Band] = {}

    def of(self, priority: int) -> Band:
        """Return the band that a priority lies in."""
        if priority >= self.production:
            return Band.MONITORING if priority >= self.monitoring else Band.PRODUCTION
        return Band.BATCH if priority >= self.batch else Band.FREE

    def is_prod(self, priority: int) -> bool:
        """Return whether a priority is in one of the two upper bands, whose tasks are never preempted."""
        return priority >= self.production

    def floor(self, band: Band) -> int:
        """Return the lowest priority of a band."""
        match band:
            case Band.MONITORING:
                return self.monitoring
            case Band.PRODUCTION:
                return self.production
            case Band.BATCH:
                return self.batch
            case Band.FREE:
                return self.free

    def named(self, word: str) -> Band | None:
        """Return the band that people call so, None when there is none."""
        known = self.names.get(word)
        return Band(word) if known is None and word in set(Band) else known

    @property
    def words(self) -> tuple[str, ...]:
        """All names of bands."""
        return (*Band, *sorted(self.names))


DEFAULT_BANDS = Bands()


def wrong_with(bands: Bands) -> tuple[str, str]:
    """Return what is wrong with a cell's bands and the way out, ("", "") when nothing is."""
    if bands.free != 0:
        return "free begins at another priority than 0", "write free = 0, or leave it out"
    if not bands.free < bands.batch < bands.production < bands.monitoring <= bands.highest:
        return (
            "they are not in ascending order",
            "write 0 = free < batch < production < monitoring <= highest",
        )
    if bands.highest > PRIORITY_MAX:
        return f"highest is more than {PRIORITY_MAX}", f"write at most {PRIORITY_MAX}"
    for name in bands.names:
        if name in set(Band):
            return f"names: {name} is a band's own name", "choose another, or remove it"
        if not _NAME.fullmatch(name):
            return (
                f"names: invalid name {name!r}",
                "write a letter, then letters, digits and '-' in lower case",
            )
    return "", ""
