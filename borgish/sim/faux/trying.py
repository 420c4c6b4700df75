"""Changes the copy by the real master: what follows is placed, evicted or refused as it would be."""

import argparse
from collections.abc import Callable, Sequence

import msgspec

from borgish.cell.events import Entry
from borgish.errors import Invalid, NotFound
from borgish.sim.faux.changes import Change
from borgish.sim.faux.copied import ACTOR, Copy
from borgish.sim.faux.names import find_tasks
from borgish.sim.faux.past import where
from borgish.sim.faux.session import Session
from borgish.sim.faux.words import Answer, cut, outcomes, refusal_data, refused, viewed

Parser = argparse.ArgumentParser
Parsed = argparse.Namespace

RUN_SECONDS_MAX = 30 * 86400.0


def changer(change: Change) -> Callable[[Session, Parsed], Answer]:
    """Return the verb that makes a change, and lets the cell settle."""

    def make(session: Session, words: Parsed) -> Answer:
        command = change.command(words, session.here)
        copy = session.trial() if session.went_its_own_way is None else session.went_its_own_way
        copy.settle()
        before = len(copy.entries)
        accepted = copy.ask(command, ACTOR)
        session.went_its_own_way = copy  # it was accepted: from here on there is something to see
        return _settled(copy, before, [accepted.text, *accepted.notes])

    return make


def schedule(session: Session, _words: Parsed) -> Answer:
    """Let the scheduler place what waits."""
    copy = session.copy()
    before = 0 if not copy.entries else len(copy.entries)
    return _settled(copy, before, [])


def _settled(copy: Copy, before: int, answered: Sequence[str]) -> Answer:
    seconds = copy.settle()
    entries = copy.entries[before:]
    told = outcomes(_decided(entries)) or ["nothing else follows" if answered else "nothing is to be done"]
    lines = [*answered, *(f"  {line}" for line in cut(told))]
    lines += [f"  {line}" for line in cut(refused(copy.core.refusals))]
    lines += [f"  warning: the master failed at {failure.what}" for failure in copy.failures]
    data = {
        "answer": list(answered),
        "entries": [viewed(entry) for entry in entries],
        "waiting": refusal_data(copy.core.refusals),
        "seconds": round(seconds, 1),
    }
    return Answer(tuple(lines), data)


def _decided(entries: Sequence[Entry]) -> list[Entry]:
    """Leave out what was asked for, which the answer has told."""
    return [entry for entry in entries if entry.actor != ACTOR]


def run_words(parser: Parser) -> None:
    """How long."""
    parser.add_argument("seconds", type=float, metavar="SECONDS")


def run(session: Session, words: Parsed) -> Answer:
    """Let time pass on the copy."""
    if not 0 < words.seconds <= RUN_SECONDS_MAX:
        most = f"{RUN_SECONDS_MAX:.0f}, which is 30 days"
        raise Invalid(f"{words.seconds:g} seconds cannot pass", f"Give more than 0 and at most {most}")
    copy = session.copy()
    before = len(copy.entries)
    copy.run(words.seconds)
    entries = copy.entries[before:]
    lines = cut(outcomes(entries)) or ["nothing happened"]
    return Answer(tuple(lines), {"entries": [viewed(entry) for entry in entries]})


def why_words(parser: Parser) -> None:
    """Of which job, or task."""
    parser.add_argument("job", nargs="?", default="", metavar="[JOB[/INDEX]]")


def why(session: Session, words: Parsed) -> Answer:
    """Say why tasks wait: the scheduler tries them on the copy."""
    copy = session.copy()
    copy.settle()
    key, indexes = find_tasks(copy.cell, words.job) if words.job else ("", None)
    if indexes and indexes[0] >= len(tasks := copy.cell.jobs[key].tasks):
        raise NotFound(f"{key} has no task {indexes[0]}", f"It has {len(tasks)}, counted from 0")
    waiting = {job: those for job, those in copy.core.refusals.items() if key in ("", job)}
    if indexes:
        mine = (each for each in waiting.get(key, ()) if indexes[0] in each.indexes)
        waiting = {key: tuple(msgspec.structs.replace(each, indexes=indexes) for each in mine)}
    nobody = f"{words.job} does not wait" if indexes else "nothing waits"
    return Answer(tuple(refused(waiting)) or (nobody,), refusal_data(waiting))


def back(session: Session, _words: Parsed) -> Answer:
    """Let go of the copy."""
    session.back()
    return Answer((where(session),), {"position": session.cell.position})
