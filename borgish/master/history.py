"""The latest events in words, kept in memory for whoever asks what happened."""

from collections import deque
from collections.abc import Iterable

from borgish.api.views.events import event_views
from borgish.cell.events import Entry
from borgish.wire.api import EventView

EVENTS_KEPT = 10_000


class History:
    """A bounded list of events, oldest first."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._events: deque[EventView] = deque(maxlen=EVENTS_KEPT)
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> list[EventView]:
        """Take in a journal entry; return what it says."""
        fresh = event_views(entry)
        self._events.extend(fresh)
        return fresh

    def latest(self, job: str, after: int, limit: int) -> list[EventView]:
        """Return the last ``limit`` events above position ``after`` (of one job, when named), in order."""
        found: list[EventView] = []
        for event in reversed(self._events):
            if event.position <= after or len(found) == limit:
                break
            if not job or event.job == job:
                found.append(event)
        return found[::-1]
