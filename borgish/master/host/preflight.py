"""What a candidate that won its store asks the machines before it leads, and may then refuse to lead.

**Split brain.** A copy of a cell, as a backup or a cloned virtual machine, has the same secrets, history and
leadership row. It wins a lock or lease of its own and would take every machine by a higher epoch, while the
master of the original goes on. Only the machines know both: they are asked who polls them (``RivalSearch``).

**An older store.** A database that was restored from a backup, or failed over to a replica that lagged, has
lost history: tasks were placed and moved that it knows nothing of. To go on from it as if nothing were would
start programs twice and end some that should run (``seen_beyond``).

Nothing is changed by asking (``GET /v1/head``), and nothing is commanded or written until somebody says so.
"""

import asyncio
import logging
from collections.abc import Sequence
from enum import Enum, IntEnum
from pathlib import Path

import msgspec

from borgish.cell.commands import Seen
from borgish.cell.decide_cell import is_older
from borgish.cell.model import Cell, Machine
from borgish.clock import Clock
from borgish.errors import InUse, StoreDamaged, StoreOlder, Unreachable, UnsafeConfiguration
from borgish.link.transport import Transport
from borgish.store.checkpoint_files import CheckpointFiles
from borgish.store.checkpoints import verified_snapshot
from borgish.wire.link import HeadReply

TAKE_OVER_FLAG = "--take-over"
OLDER_STORE_FLAG = "--take-over-from-older-store"
STALL_SECONDS = 10.0
"""A leader that holds a lock may be held up for so long, by its host or a large step, and go on. The
connections of a killed one close at once, so this delays only who follows a host that vanished."""
POLLED_SHARE = 4
"""One of so many machines that can tell has to be polled."""
POLLS_MORE = 2
"""One poll more may be the last word of a dead master, which waited at a machine that was busy."""
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.05, 0.2
ASKED_MAX = 100
"""Of more machines, so many are asked: whoever was led by a newer master has seen it."""
WAIT_SECONDS = 0.5
"""All have so long; then it is enough that half have answered, or ended without an answer."""
WAIT_SECONDS_MAX = 4.0
_NAMED_MAX = 3

_decode = msgspec.json.Decoder(HeadReply).decode

log = logging.getLogger("borgmaster")


class TakeOver(IntEnum):
    """What is led all the same, since an operator asked for it. Each includes those before it."""

    NOTHING = 0
    OLDER_STORE = 1  # machines have seen more than the store
    MACHINES = 2  # another master polls the machines


class Verdict(Enum):
    """What a look at the machines says of other masters."""

    NOBODY = "nobody"
    UNSURE = "unsure"
    RIVAL = "rival"


class RivalSearch:
    """Judges by what machines say whether somebody else leads them, until it is sure. Pure.

    Borglets keep with each term the leader's address and a *nonce* that its process drew and nothing stores,
    refuse a second nonce for one term, and say whether that leader goes on polling. It does while the
    connection of its last poll is open and the next is at most ``stall_seconds`` late.

    The kernel closes the connections of a killed process at once, so where nobody polls the first look is
    enough, and a restart costs nothing more. Where somebody seems to, the polls are counted until two more
    have come (a rival) or they end, for a host that vanished leaves its connections behind. To look twice
    each time would have cost each fail-over the longest pause between two polls of a busy leader.

    One machine cannot keep a master from its cell: at least a quarter of those that can tell must be polled.
    Not half of them, for the other leader may just then have lost its polls of some.
    """

    def __init__(self, settled_at: float, stall_seconds: float = STALL_SECONDS) -> None:
        """``settled_at``: polls before this moment may be those of the predecessor on our own store, which
        does not know yet that it no longer leads. ``stall_seconds``: for so long a leader may be held up."""
        self._settled_at = settled_at
        self._stall_seconds = stall_seconds
        self._latest: dict[str, tuple[float, HeadReply]] = {}  # what each machine answered last, and when
        self._first: dict[str, int] = {}  # polls of each machine, at the first look that counts

    def evaluate(self, heads: Sequence[HeadReply], mono: float) -> Verdict:
        """Judge by what the machines answer now; of those that do not, by what they answered last."""
        self._latest |= {head.machine: (mono, head) for head in heads}
        counts = {name: head.polls for name, (_, head) in self._latest.items() if head.polls is not None}
        polled = [name for name in counts if self._is_polled(name, mono)]
        if not polled or POLLED_SHARE * len(polled) < len(counts):
            return Verdict.NOBODY
        for machine, count in counts.items():
            first = self._first.get(machine, count)
            # Fewer than before: the borglet was started again.
            self._first[machine] = count if mono < self._settled_at else min(first, count)
        led = [machine for machine in polled if counts[machine] >= self._first[machine] + POLLS_MORE]
        return Verdict.RIVAL if POLLED_SHARE * len(led) >= len(counts) else Verdict.UNSURE

    def _is_polled(self, machine: str, mono: float) -> bool:
        # One that was polled a moment ago and does not answer any more has not told that its leader is gone.
        at, head = self._latest[machine]
        return head.polled and head.overdue_seconds + mono - at <= self._stall_seconds


async def check_machines(
    cell: Cell,
    folder: Path,
    transport: Transport,
    clock: Clock,
    stopping: "asyncio.Future[None]",
    *,
    settle_seconds: float,
    take_over: TakeOver,
    one_of_several: bool,
) -> Seen | None:
    """Return what machines have seen and the store has not; None where it is as new as they are.

    ``folder`` is where the secret is from, by which the ``transport`` asks. ``settle_seconds``: for so long
    the predecessor on this store may go on polling. Raises InUse where a master on another store polls the
    machines and StoreOlder where they have seen more, unless that is to be taken over; and
    UnsafeConfiguration for ``one_of_several`` masters that has another secret than those before: it would
    lead and be obeyed by nobody.
    """
    known = [machine for _, machine in sorted(cell.machines.items())]
    asked = [machine for machine in known if machine.up] or known
    strangers: list[str] = []
    # Who has to stop where its lease is over is not held up for longer than that.
    search = RivalSearch(clock.now().mono + settle_seconds, settle_seconds or STALL_SECONDS)
    heads = await ask_heads(asked, transport, strangers)
    pause_seconds = PAUSE_SECONDS
    while (found := search.evaluate(heads, clock.now().mono)) is Verdict.UNSURE and not stopping.done():
        if pause_seconds == PAUSE_SECONDS:
            log.info("another borgmaster may lead the machines; asking them again until that is certain")
        await asyncio.wait({stopping}, timeout=pause_seconds)
        pause_seconds = min(2 * pause_seconds, PAUSE_SECONDS_MAX)
        heads = await ask_heads(asked, transport)
    if stopping.done():
        return None  # whatever they say: it will not lead
    if len(strangers) > len(heads):
        error = UnsafeConfiguration(
            f"{len(strangers)} of {len(heads) + len(strangers)} machines that answered know another secret "
            f"than the one in {folder}, as {strangers[0]}",
            "Bring the cell's from the host of a borgmaster that led it: `borgctl cell seal` there, "
            "`borgctl cell unseal` here",
        )
        if one_of_several:
            raise error
        log.warning("%s", error)
    return decide_take_over(cell, heads, found, take_over)


def decide_take_over(
    cell: Cell, heads: Sequence[HeadReply], found: Verdict, take_over: TakeOver
) -> Seen | None:
    """Return what machines have seen and the store has not, where it is to be gone beyond; None where the
    store is as new and nobody else leads.

    Raises InUse for a rival and StoreOlder for a store that is not as new, unless told to ``take_over``.
    """
    if found is not Verdict.RIVAL:
        return seen_beyond(cell, heads, take_over=take_over >= TakeOver.OLDER_STORE)
    if take_over < TakeOver.MACHINES:
        raise refused_for(heads)
    log.warning("%s; taken over as asked for", rival_text(heads))
    return seen_of_rival(heads)


def refused_for(heads: Sequence[HeadReply]) -> InUse:
    """Return the error of one that finds a rival, with its address."""
    return InUse(
        f"{rival_text(heads)}, and it is not on this database",
        "Nothing was commanded and nothing written. One of the two databases is a copy of the other: keep "
        "the one whose history is to go on, and stop the borgmaster of the other one. If that one cannot be "
        f"stopped, start this one once with {TAKE_OVER_FLAG}: the machines then obey it, on a new timeline",
    )


def rival_text(heads: Sequence[HeadReply]) -> str:
    """Return who leads the machines, in words."""
    polled = [head for head in heads if head.polled]
    highest = max(polled, key=lambda head: (head.timeline, head.epoch))
    where = highest.leader.address or "an unknown address"
    return (
        f"Another borgmaster, at {where}, leads {len(polled)} of {len(heads)} machines that answered "
        f"(timeline {highest.timeline}, epoch {highest.epoch})"
    )


def seen_of_rival(heads: Sequence[HeadReply]) -> Seen:
    """Return what has to be gone beyond so that the machines obey this master instead."""
    highest = max(heads, key=lambda head: (head.timeline, head.epoch))
    polled = max((head for head in heads if head.polled), key=lambda head: (head.timeline, head.epoch))
    where = f" at {polled.leader.address}" if polled.leader.address else ""
    return Seen(
        highest.timeline,
        highest.epoch,
        max(head.attempt for head in heads),
        f"the machines were led by another borgmaster{where}, on another store",
    )


def seen_beyond(cell: Cell, heads: Sequence[HeadReply], *, take_over: bool) -> Seen | None:
    """Return what machines have seen and the store has not, to be taken over; None when the store is as new.

    One machine cannot keep a master from its cell: at least half of those that answered must have seen more.
    Taken over, the journal leaves out the positions that the lost history may have had (``EntriesLost``).
    Raises StoreOlder unless asked to ``take_over``.
    """
    newer = [head for head in heads if is_older(cell, _seen(head))]
    if not newer or 2 * len(newer) < len(heads):
        for head in newer:
            log.warning("%s has seen more than the store: %s", head.machine, _summary(head))
        if take_over:
            log.info("the store is not older than what the machines have seen; nothing is to be taken over")
        return None
    if not take_over:
        raise StoreOlder(_what(cell, newer, len(heads)), _WAY_OUT)
    log.warning("%s; taken over as asked for", _what(cell, newer, len(heads)))
    highest = max(newer, key=lambda head: (head.timeline, head.epoch))
    return Seen(highest.timeline, highest.epoch, max(head.attempt for head in newer))


def seen_in_files(cell: Cell, files: CheckpointFiles, seen: Seen | None, *, take_over: bool) -> Seen | None:
    """Return what machines have ``seen``, and the checkpoints in files beside the database, of a history that
    the database has not; None where it has all of it.

    Raises StoreDamaged unless such a store is to be taken over: it lost its log, or was put back.
    """
    newest = next(files.good(after=cell.position), None)
    if newest is None:
        return seen
    if not take_over:
        raise StoreDamaged(
            f"The database ends at position {cell.position}, and beside it is a checkpoint of position "
            f"{newest.position}: {newest.path}",
            "What followed is lost, or an older database was put back. To go on from the older one all the "
            f"same, start once with {OLDER_STORE_FLAG}",
        )
    log.warning("%s is of a history that the database does not have; taken over as asked for", newest.path)
    assert newest.info is not None
    kept = verified_snapshot(cell.name, newest.info, newest.stored)
    before = seen or Seen()
    timeline, epoch = max((before.timeline, before.epoch), (kept.timeline, kept.epoch))
    return Seen(timeline, epoch, max(before.attempt, kept.position))


def _seen(head: HeadReply) -> Seen:
    return Seen(head.timeline, head.epoch, head.attempt)


def _summary(head: HeadReply) -> str:
    return f"it obeys timeline {head.timeline}, epoch {head.epoch}, and knows attempt {head.attempt}"


def _what(cell: Cell, newer: Sequence[HeadReply], answered: int) -> str:
    named = "; ".join(f"{head.machine}: {_summary(head)}" for head in newer[:_NAMED_MAX])
    return (
        f"The database is older than what {len(newer)} of {answered} machines that answered have seen: "
        f"it ends at position {cell.position} of timeline {cell.timeline}, epoch {cell.epoch}. {named}"
    )


_WAY_OUT = (
    "Nothing was commanded and nothing written; tasks go on. Was a backup restored, or did the database fail "
    "over to a replica that lagged? If there is a newer copy, start on that one. To go on from this one, "
    f"start once with {OLDER_STORE_FLAG}: what was placed since by the history that is lost is then shown as "
    "orphans, and ends after 10 minutes"
)


async def ask_heads(
    machines: Sequence[Machine], transport: Transport, strangers: list[str] | None = None
) -> tuple[HeadReply, ...]:
    """Return what those machines say that answer in time. Does not raise.

    Those that do not know the token, since their master has another secret, are added to ``strangers``.
    """
    strangers = [] if strangers is None else strangers
    step = max(1, -(-len(machines) // ASKED_MAX))
    asked = [asyncio.create_task(_ask(record, transport, strangers)) for record in machines[::step]]
    if not asked:
        return ()
    await _wait(asked)
    for task in asked:
        task.cancel()
    found = await asyncio.gather(*asked, return_exceptions=True)
    return tuple(reply for reply in found if isinstance(reply, HeadReply))


async def _wait(asked: "Sequence[asyncio.Task[HeadReply | None]]") -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + WAIT_SECONDS_MAX
    _, missing = await asyncio.wait(asked, timeout=WAIT_SECONDS)
    while 2 * len(missing) > len(asked) and loop.time() < end:
        _, missing = await asyncio.wait(
            missing, timeout=end - loop.time(), return_when=asyncio.FIRST_COMPLETED
        )


async def _ask(record: Machine, transport: Transport, strangers: list[str]) -> HeadReply | None:
    """Return what one machine says; None for one that cannot, as one that is older than this question."""
    peer = transport.peer(record)
    body = b""
    try:
        async for part in peer.stream("/v1/head"):
            if part.status == 401:
                strangers.append(record.name)
            if part.status != 200:
                return None
            body += part.body
        reply = _decode(body)
        return reply if reply.machine == record.name else None
    except (Unreachable, OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    finally:
        peer.close()
