"""``borgmaster --recover``: what a damaged store is brought back from, and every word about what is lost.

It ends when that is done, so that nobody leaves it in a unit file and loses something at each start.
"""

import logging
import shlex
from collections.abc import Iterator
from pathlib import Path

from borgish.clock import SystemClock
from borgish.errors import BorgishError, Invalid
from borgish.master.host.settings import Settings
from borgish.store.checkpoints import RestorePoint, info_of
from borgish.store.recovery import Recovered, Recovery
from borgish.store.salvage import Salvaged
from borgish.store.tables import Row
from borgish.text import instant
from borgish.wire.checkpoint_file import unpack_checkpoint

SHOWN_MAX = 20
log = logging.getLogger("borgmaster")


def recover(settings: Settings, wanted: str) -> None:
    """Bring the store back and say what was done. ``wanted`` is a position, or a checkpoint's file, or "" for
    the newest good one. Raises StoreDamaged when there is nothing to go on from.
    """
    given = _from_file(Path(wanted)) if wanted and not wanted.isdecimal() else None
    done = _recovery(settings).recover(given, int(wanted) if wanted.isdecimal() else 0)
    for line in report_lines(done):
        log.warning("%s", line)


def way_out(settings: Settings, command: list[str]) -> Iterator[str]:
    """Yield what could be saved of a damaged store, and the command that does it."""
    try:
        saved = _recovery(settings).inspect()
    except BorgishError as error:
        yield from filter(None, (error.message, error.hint))
        return
    if saved.is_sound:
        yield "Looked at again, all of it verifies: start again"
        return
    yield from findings(saved)
    again = shlex.join([*command, "--recover", *([str(saved.start)] if saved.start else [])])
    yield f"Nothing was changed. To go on from there: {again}"


def report_lines(done: Recovered) -> Iterator[str]:
    """Yield what was found and what was done about it, in words."""
    saved = done.saved
    if done.checkpoint is None:
        yield f"The store is sound, up to position {saved.cell.position}; nothing was changed"
        return
    yield from findings(saved)
    yield from (_lost_line(row, saved.head) for row in saved.lost[:SHOWN_MAX])
    if len(saved.lost) > SHOWN_MAX:
        yield f"  and {len(saved.lost) - SHOWN_MAX} more"
    if done.lost_file:
        yield f"What can be read of the lost entries is in {done.lost_file}"
    if done.aside:
        yield f"The database as it was is kept as {', '.join(map(str, done.aside))}"
    yield f"Start it again: it goes on at position {saved.cell.position}, timeline {saved.cell.timeline}"


def findings(saved: Salvaged) -> Iterator[str]:
    """Yield what is wrong with a store, and what of it is good."""
    yield from _cut([*saved.bad, *saved.unread, *saved.wrong, *filter(None, [saved.stop])])
    which = f"{saved.start}, in {saved.start_path}," if saved.start_path else str(saved.start)
    if saved.start == saved.head:
        yield f"The checkpoint at {which} is good"
    else:
        start = f"The checkpoint at {which} is good, and so is" if saved.start else "What is good is"
        yield f"{start} the journal up to {saved.head}"
    if saved.resumes_at and saved.top > saved.head:
        further = "" if saved.is_end_known else ", and whatever may have followed"
        yield f"Lost is what happened after that, up to {saved.top}{further}"
    elif saved.resumes_at:
        yield "Lost is whatever may have happened after that"


def _cut(lines: list[str]) -> Iterator[str]:
    yield from (line[:300] for line in lines[:SHOWN_MAX])
    if len(lines) > SHOWN_MAX:
        yield f"  and {len(lines) - SHOWN_MAX} more like these"


def _lost_line(row: Row, head: int) -> str:
    position, at, _, _, actor, cause, *_, subject, _, _ = row
    when = instant(at) if isinstance(at, float) and 0 <= at < 2**33 else str(at)
    what = "lost" if position > head else "in the cell, lost to history only"
    return f"  {what}: {position}  {when}  {actor}  {cause}  {subject}"


def _from_file(path: Path) -> RestorePoint:
    try:
        header, stored = unpack_checkpoint(path.read_bytes())
    except OSError as error:
        raise Invalid(
            f"{path} cannot be read: {error.strerror}",
            "Give the position of a kept checkpoint, or the file of an exported one",
        ) from error
    return RestorePoint(header.position, stored, info_of(header), str(path))


def _recovery(settings: Settings) -> Recovery:
    return Recovery(settings.db_url, settings.name, settings.folder, SystemClock().now().wall)
