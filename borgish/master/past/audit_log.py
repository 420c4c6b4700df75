"""Reads the audit log of a running master's store, checks it, and adds who was refused, a line a minute."""

from collections import Counter
from functools import partial

from borgish.api.services import Audit
from borgish.audit import AuditEntry, AuditNote, first_wrong
from borgish.errors import BorgishError
from borgish.master.inbox import Inbox
from borgish.master.turn import Turn
from borgish.store.base import Store
from borgish.text import instant
from borgish.wire.api_access import AuditVerdict

PAGE_ENTRIES = 1000
SOURCES_MAX = 500
"""So many kinds of refusals are told apart in a minute; an attacker with many addresses fills no disk."""
REFUSED = "refused"


def is_of_another_secret(store: Store, secret: str) -> bool:
    """Return whether the audit log both begins and ends by another secret than this. Where only one of them
    does, somebody changed it, or the cell was led on by a new secret."""
    last = store.last_audit()
    ends = (0, last.number - 2) if last is not None else ()
    return bool(ends) and all(first_wrong(secret, store.audit(max(0, after), 2), None) for after in ends)


class AuditLog(Audit):
    """Lends the store's one thread for a page at a time."""

    def __init__(self, secret: str, turn: Turn, store: Store) -> None:
        self._secret, self._turn, self._store = secret, turn, store

    async def latest(self, user: str, since: float, before: int, limit: int) -> list[AuditEntry]:
        return await self._turn.in_store(lambda: self._store.latest_audit(user, since, before, limit))

    async def verify(self, known: str) -> AuditVerdict:
        last: AuditEntry | None = None
        first, count, is_missing = "", 0, bool(known)
        while True:
            after = last.number if last else 0
            page = await self._turn.in_store(partial(self._store.audit, after, PAGE_ENTRIES))
            if not page:
                break
            first = first or instant(page[0].note.at)
            if wrong := first_wrong(self._secret, page, last):
                return AuditVerdict(count, False, wrong, first, instant(page[-1].note.at))
            is_missing = is_missing and known not in map(_named, page)
            last, count = page[-1], count + len(page)
        ends, name = (instant(last.note.at), _named(last)) if last else ("", "")
        # A truncated chain verifies: only a known entry shows that its end is gone.
        wrong = f"entry {known.partition(':')[0]}, which was there, is not" if is_missing else ""
        return AuditVerdict(count, not wrong, wrong, first, ends, name)


def _named(entry: AuditEntry) -> str:
    return f"{entry.number}:{entry.digest}"


class Refusals:
    """Counts requests that were refused, until they are noted."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str, str, str]] = Counter()

    def add(self, user: str, role: str, token: str, source: str, why: str) -> None:
        """Count one."""
        key = (user, role, token, source, why)
        if key not in self._counts and len(self._counts) >= SOURCES_MAX:
            key = ("", "", "", "others", why)
        self._counts[key] += 1

    async def note(self, inbox: Inbox) -> None:
        """Have the audit log say how many there were, of each kind."""
        counts, self._counts = self._counts, Counter()
        for (user, role, token, source, why), count in sorted(counts.items()):
            note = AuditNote(0.0, user, role, token, source, REFUSED, "", why, count)
            try:
                await inbox.note(note)
            except BorgishError:  # the disk is full: they are counted on
                self._counts[(user, role, token, source, why)] += count
