"""How much each machine used in the last minutes, by the summaries that came. Pure."""

from collections.abc import Collection, Mapping

import msgspec

from borgish.wire.api import MachineView, UsageView

SAMPLE_SECONDS = 5.0
SAMPLES_MAX = 60
MACHINES_MAX = 64
"""Of more machines no screen has room for so much of each, and that of ten thousand takes 73 MB."""


class Trails(msgspec.Struct, frozen=True):
    """What machines used, by name, the latest last; ``at`` is the time of that, on the monotonic clock."""

    used: Mapping[str, tuple[UsageView, ...]] = {}
    at: float | None = None

    def then(self, machines: Collection[MachineView], now_mono: float) -> "Trails":
        """Return what is known with what these machines use now, where the last of it is old enough; of very
        many nothing."""
        if self.at is not None and now_mono - self.at < SAMPLE_SECONDS:
            return self
        if len(machines) > MACHINES_MAX:
            return Trails(at=now_mono)
        used = {
            each.name: (*self.used.get(each.name, ()), each.usage)[-SAMPLES_MAX:]
            for each in machines
            if each.usage is not None
        }
        return Trails(used, now_mono)
