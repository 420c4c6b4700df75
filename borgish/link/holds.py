"""How machines are polled, and for how long they hold polls by the size of the cell. Pure.

A poll costs a master the same in every cell, so their number in a second is what grows with it. In a large
cell they are held longer, and nothing is heard later for that, since a machine that has something to say
answers at once. What takes longer is to find out that one is silent. So no hold is longer than lets a machine
that missed its poll be asked once more before it counts as down.
"""

import msgspec

RETRY_SECONDS = 1.0
"""Between a poll that was missed and the next one."""
RETRY_JITTER = 0.1
POLLS_PER_SECOND_MAX = 2_000
"""So many take a master an eighth of a core, or a quarter over TLS."""
SPREAD = 0.1
"""Long holds are shortened by up to this share, by chance: polls that began together, as after a stall of the
master, would else end together each time."""


class PollSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``hold_seconds`` is how long a borglet may keep a poll in a small cell, ``hold_seconds_max`` in a large
    one, ``timeout_seconds`` what it gets on top; a machine may be silent for ``down_after_seconds``.
    ``authorities`` is the hash of those that the cell trusts, "" where it has none."""

    hold_seconds: float = 2.0
    timeout_seconds: float = 2.0
    authorities: str = ""
    hold_seconds_max: float = 4.5
    down_after_seconds: float = 10.0

    def hold_of(self, machines: int) -> float:
        """Return for how long a poll may be held in a cell of so many machines."""
        longest = min(self.hold_seconds_max, self.down_after_seconds - self._missed_seconds)
        return max(self.hold_seconds, min(machines / POLLS_PER_SECOND_MAX, longest))

    @property
    def _missed_seconds(self) -> float:
        """From the end of a hold without an answer until the next poll, which is not held, is missed, too."""
        return self.timeout_seconds + RETRY_SECONDS * (1 + RETRY_JITTER) + self.timeout_seconds
