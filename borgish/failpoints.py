"""Named moments at which a test makes a real borgmaster die, as suddenly as by kill -9.

A failpoint is armed by the environment alone, ``BORGISH_FAILPOINT=append.committed:3`` for the third
time that the moment comes; there is no key of a configuration file for it. Off, passing one costs a
call and a look at one variable. Which moments there are, and what holds at each, is ``FAILPOINTS``; a
test dies at every one of them, under load and on both databases. Its judge (``tests/faults``) reads what
clients noted, the database and what machines started, and never asks the master.
"""

import os
import sys
from collections.abc import Mapping
from typing import NoReturn

from borgish.errors import UnsafeConfiguration

VARIABLE = "BORGISH_FAILPOINT"
EXIT_CODE = 9

FAILPOINTS: dict[str, str] = {
    # The store is opened.
    "open.locked": "the lock is ours, the database was not touched",
    "open.connected": "the database answers",
    "migrate.kept": "what an older version wrote is in a checkpoint, in a transaction that is not over",
    "migrate.begun": "in the transaction that brings the schema up to date, before anything",
    "migrate.revised": "one revision is in the tables, and noted nowhere else",
    "migrate.upgraded": "all revisions are, and the database is nobody's yet",
    "migrate.claimed": "the cell's name is in, the transaction is not over",
    "migrate.committed": "the schema is in place",
    "credentials.drafted": "a secret is on disk under another name",
    "credentials.written": "a secret is in its place, the next one may not be",
    # The cell is read, and led.
    "recovery.snapshot": "the newest good checkpoint is in memory",
    "recovery.entry": "one more entry of the journal was taken in",
    "recovery.loaded": "the cell is in memory, somebody else leads it",
    "lead.begin": "nothing was asked of the store yet",
    "lead.raised": "the epoch is ours in a transaction that is not over",
    "lead.committed": "the epoch is ours, and the journal does not know",
    "start.serving": "questions are answered from now on",
    # What was salvaged from a damaged store is written.
    "rebuild.copied": "a copy of the database is there, to be read",
    "rebuild.written": "all of it is in a file beside, or in a transaction that is not over",
    "rebuild.aside": "what was there has another name as well",
    "rebuild.settled": "the file beside is what is to be opened",
    "rebuild.cleared": "nothing is left of the old one under its name but the file itself",
    "rebuild.replaced": "the new one has its name",
    # A turn: inputs, a step, a commit, and what is let out.
    "turn.taken": "inputs have left the inbox",
    "turn.stepped": "the cell in memory has moved on",
    "append.begin": "rows are made, no transaction is",
    "append.begun": "a transaction has begun",
    "append.fenced": "in it, the epoch was found to be ours",
    "append.rows": "the rows of one more table are in, those of the journal first",
    "append.commit": "all is in, nothing is durable",
    "append.committed": "all is durable, the store's thread knows",
    "turn.committed": "the loop knows, nobody else",
    "release.read": "readers may see it",
    "release.published": "watchers were told",
    "release.synced": "machines that came are polled",
    "release.renewed": "machines have new assignments",
    "turn.reply": "one who asked is about to be told",
    "turn.replied": "one who asked was told, others were not",
    "turn.released": "everybody was",
    "answer.made": "the answer to a command is about to be sent",
    "answer.sent": "an answer is on its way to who asked",
    # A machine is asked.
    "poll.ask": "an assignment is durable and about to be sent",
    "poll.answered": "a machine did as it was told and said so, nothing of that is durable",
    "poll.reported": "what it said is durable, and it does not know",
    "poll.acknowledged": "it will be told",
    "join.accepted": "a machine is in the cell, and does not know",
    # A checkpoint is made, or let go.
    "checkpoint.begin": "nothing was done for it",
    "checkpoint.encoded": "the records are there as bytes",
    "checkpoint.hashed": "they are put together, compressed and hashed",
    "checkpoint.begun": "in a transaction, as the leader",
    "checkpoint.replaced": "in it, the one at this position was deleted",
    "checkpoint.inserted": "and this one is in",
    "checkpoint.pruned": "and those over the rule are out",
    "checkpoint.committed": "it is kept",
    "checkpoint.noted": "and the master knows",
    "checkpoint_delete.judged": "another good one was found",
    "checkpoint_delete.removed": "the row is gone in a transaction that is not over",
    "checkpoint_delete.committed": "the row is gone",
    # The journal is pruned.
    "journal.pruned": "its first entries are gone in a transaction that is not over",
    "journal.pruning_committed": "they are gone",
    # An orderly end.
    "shutdown.begun": "somebody asked for the end",
    "shutdown.kept": "the last checkpoint is kept, while it serves",
    "shutdown.unserved": "questions are not answered any more",
    "shutdown.unlinked": "machines are not asked any more",
    "shutdown.turned": "the last turn is durable and let out",
    "shutdown.released": "nobody leads by what the database says",
    "close.disconnected": "the database was let go, the lock was not",
    "close.released": "both were",
}
"""In the order of a life, each with what holds when a process dies there."""

_armed = ""
_left = 0  # times that the armed one is yet to be passed


def reach(name: str) -> None:
    """Die here, if this failpoint is armed and has been passed often enough."""
    if _armed and name == _armed:
        _pass(name)


def arm(environment: Mapping[str, str]) -> str:
    """Arm the failpoint that the environment names, and return its name, "" for none.

    Raises UnsafeConfiguration for a name or a number that is none.
    """
    global _armed, _left
    given = environment.get(VARIABLE, "")
    name, _, times = given.partition(":")
    if given and (name not in FAILPOINTS or not _is_count(times or "1")):
        raise UnsafeConfiguration(
            f"{VARIABLE} is {given!r}, which names no failpoint and number",
            f"Unset it; it is for tests, which write it like append.committed:3. There are {_names()}",
        )
    _armed, _left = name, int(times or "1")
    return name


def _pass(name: str) -> None:
    global _left
    _left -= 1
    if _left <= 0:
        _die(name)


def _die(name: str) -> NoReturn:
    # Unbuffered, and nothing else is let go of: no handler, no flush, no lock.
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"died at failpoint {name}\n".encode())
    os._exit(EXIT_CODE)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < 10**9


def _names() -> str:
    return ", ".join(FAILPOINTS)
