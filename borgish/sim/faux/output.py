"""What fauxmaster prints: lines for people, and the same as data."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from borgish.api.views.history import HistoryFilter, history_view
from borgish.cell.events import Entry
from borgish.scheduler.plan import Refusal
from borgish.text import instant, safe, show_indexes
from borgish.wire.api_past import HistoryView

SHOWN_MAX = 40
_ALL = HistoryFilter()


class Answer(msgspec.Struct, frozen=True):
    """What a command found. ``data`` is what ``--json`` prints; ``code`` is the exit code of it alone."""

    lines: tuple[str, ...]
    data: object
    code: int = 0

    def text(self) -> str:
        """Return the lines, fit for a terminal."""
        return "".join(f"{safe(line)}\n" for line in self.lines)


def when(at: float) -> str:
    """Return a moment in the zone of who asks: ``2026-01-31 14:03:21``."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S") if at else "the beginning"


def viewed(entry: Entry) -> HistoryView:
    """Return an entry as the API shows it."""
    view = history_view(entry, _ALL)
    assert view is not None  # nothing is left out
    return view


def happened(entries: Iterable[Entry]) -> list[str]:
    """Return what happened: position, time, who, what was asked, and what came of it."""
    rows: list[tuple[str, ...]] = []
    for entry in entries:
        view = viewed(entry)
        asked = (str(entry.position), when(entry.at), view.actor, view.asked)
        texts = [event.text for event in view.events] or [view.text]
        rows += [(*(asked if not number else ("", "", "", "")), text) for number, text in enumerate(texts)]
    return table(rows)


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows as lines, the columns below each other."""
    if not rows:
        return []
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def cut(lines: Sequence[str], shown_max: int = SHOWN_MAX) -> list[str]:
    """Return the first lines, and how many more there are."""
    left = len(lines) - shown_max
    return [*lines[:shown_max], *([f"and {left} more"] if left > 0 else [])]


def outcomes(entries: Iterable[Entry]) -> list[str]:
    """Return what came of a change, a line each, without who decided it."""
    return [event.text for entry in entries for event in viewed(entry).events]


def refused(refusals: Mapping[str, tuple[Refusal, ...]]) -> list[str]:
    """Return why tasks wait, and what would help."""
    lines = []
    for job, those in sorted(refusals.items()):
        for refusal in those:
            lines.append(f"{job}/{show_indexes(refusal.indexes)} waits: {refusal.text}")
            if refusal.hint:
                lines.append(f"  hint: {refusal.hint}")
    return lines


def refusal_data(refusals: Mapping[str, tuple[Refusal, ...]]) -> list[dict[str, object]]:
    """Return the same as data."""
    return [
        {
            "job": job,
            "indexes": show_indexes(refusal.indexes),
            "tasks": len(refusal.indexes),
            "text": refusal.text,
            "hint": refusal.hint,
            "reasons": refusal.reasons,
        }
        for job, those in sorted(refusals.items())
        for refusal in those
    ]


def at_data(position: int, at: float, timeline: int) -> dict[str, object]:
    """Return a moment as data."""
    return {"position": position, "at": instant(at) if at else "", "timeline": timeline}
