"""Questions about the cell that leave no trace: each is tried on a copy of its own, by the real master."""

import argparse

import msgspec

from borgish.cell.commands import Command
from borgish.errors import Invalid
from borgish.scheduler.policies import POLICIES
from borgish.scheduler.schedule import SchedulerSettings
from borgish.sim.compact import TRIALS
from borgish.sim.faux.changes import CHANGES, job_in
from borgish.sim.faux.evicted import Evicted, try_change
from borgish.sim.faux.fitting import fit
from borgish.sim.faux.losing import Loss, lose_machines, machines_with
from borgish.sim.faux.names import nearest
from borgish.sim.faux.session import Session
from borgish.sim.faux.words import Answer, cut, plural, refusal_data, refused
from borgish.sim.pack_command import show_compacted
from borgish.sim.packed_cell import compact_cell, left_out
from borgish.text import show_indexes

Parser = argparse.ArgumentParser
Parsed = argparse.Namespace

SOMEBODY = 3
"""The exit code when somebody is evicted, or left waiting."""
TRIALS_MAX = 1000


def fits(session: Session, words: Parsed) -> Answer:
    """Say how many more tasks of a job would find room now, and what stops the next one."""
    spec = job_in(words.job, session.here, words.user)
    found = fit(session.here, session.now, spec)
    where = ", ".join(cut([f"{name}: {count}" for name, count in found.machines.items()], 20))
    lines = [f"{found.tasks} more tasks of {spec.name} fit{f' ({where})' if where else ''}"]
    if found.preempting:
        gone = plural(found.evicted, "task")
        lines.append(f"{found.preempting} of one job, if {gone} of lower priority leave for them")
    if found.refusal:
        lines.append(f"the next one: {found.refusal}")
        lines += [f"hint: {found.hint}"] if found.hint else []
    else:
        lines.append("nothing stops the next one: so many were tried")
    return Answer(tuple(lines), {"job": spec.key, "tasks": found.tasks} | msgspec.to_builtins(found))


def evicts_words(parser: Parser) -> None:
    """Which change."""
    help_ = f"a change, as on the copy: {', '.join(CHANGES)}; or a job file to submit"
    parser.add_argument("change", nargs=argparse.REMAINDER, metavar="CHANGE...", help=help_)


def evicts(session: Session, words: Parsed) -> Answer:
    """Say whom a change would evict, and what would become of them."""
    command = change_in(session, words.change)
    found = try_change(session.trial(), command)
    lines = [*found.answer, *_evicted_lines(found)]
    lines += [f"  {line}" for line in cut(refused(found.waiting))]
    data = {
        "answer": found.answer,
        "evicted": [
            {"job": e.job, "indexes": show_indexes(e.indexes), "cause": e.cause, "why": e.why, "now": e.now}
            for e in found.evicted
        ],
        "waiting": refusal_data(found.waiting),
    }
    return Answer(tuple(lines), data, SOMEBODY if found.evicted or found.waiting else 0)


def _evicted_lines(found: Evicted) -> list[str]:
    if not found.evicted:
        return ["nobody is evicted"]
    count = sum(len(each.indexes) for each in found.evicted)
    lines = [f"{plural(count, 'task')} evicted:"]
    told = [f"  {e.job}/{show_indexes(e.indexes)}: {e.why}; then {e.now}" for e in found.evicted]
    return [*lines, *cut(told)]


def change_in(session: Session, words: list[str]) -> Command:
    """Return the command that a change in words is. Raises Invalid and NotFound."""
    if not words:
        raise Invalid("evicts: which change?", f"Name one of {', '.join(CHANGES)}, or a job file")
    name = words[0]
    if name not in CHANGES and ("." in name or "/" in name):
        name, words = "submit", ["submit", *words]
    if name not in CHANGES:
        raise Invalid(f"there is no change '{name}'", nearest(name, CHANGES, "changes"))
    return CHANGES[name].command(_parser(name).parse_args(words[1:]), session.here)


def _parser(name: str) -> Parser:
    from borgish.sim.faux.verbs import VERBS, parser_of

    return parser_of(VERBS[name])


def lose_words(parser: Parser) -> None:
    """Which machines."""
    parser.add_argument(
        "what", nargs="+", metavar="ATTRIBUTE=VALUE", help="rack=r2, machine=m1; several: all of them"
    )


def lose(session: Session, words: Parsed) -> Answer:
    """Say what follows when machines die at once: what is lost, where it goes, and how long that takes."""
    names = machines_with(session.here, words.what)
    found = lose_machines(session.trial(), names)
    return Answer(tuple(_loss_lines(found)), found.data(), SOMEBODY if found.waiting else 0)


def _loss_lines(found: Loss) -> list[str]:
    lines = [f"{plural(len(found.machines), 'machine')} lost: {', '.join(cut(found.machines, 12))}"]
    if not found.lost:
        return [*lines, "nothing ran there"]
    count = sum(len(indexes) for indexes in found.lost.values())
    lines.append(f"{plural(count, 'task')} lost:")
    lines += cut(
        [f"  {job}/{show_indexes(those)}: {found.fate_of(job)}" for job, those in found.lost.items()]
    )
    if found.others:
        lines.append(f"{plural(sum(len(e.indexes) for e in found.others), 'other task')} evicted for them:")
        lines += cut([f"  {e.job}/{show_indexes(e.indexes)}: {e.why}; then {e.now}" for e in found.others])
    lines += cut(refused(found.waiting))
    return [*lines, *found.times()]


def compact_words(parser: Parser) -> None:
    """By which policy, and how often."""
    usual = SchedulerSettings().policy
    parser.add_argument(
        "--policy", default=usual, metavar="P", help=f"{', '.join(POLICIES)}; {usual} if not given"
    )
    parser.add_argument("--trials", type=int, default=TRIALS, metavar="N", help=f"{TRIALS} if not given")
    parser.add_argument("--seed", type=int, default=0, metavar="N")


def compact(session: Session, words: Parsed) -> Answer:
    """Say how few of its machines would do for what runs now."""
    if words.policy not in POLICIES:
        raise Invalid(f"there is no policy '{words.policy}'", nearest(words.policy, POLICIES, "policies"))
    if not 1 <= words.trials <= TRIALS_MAX:
        raise Invalid(f"{words.trials} is outside 1 to {TRIALS_MAX} trials")
    found = compact_cell(session.here, words.policy, words.seed, words.trials)
    data = {"machines": found.machines, "tasks": found.tasks, "result": found.result, "needed": found.needed}
    out = left_out(session.here)
    lines = [*show_compacted(found).split("\n"), *([f"left out: {', '.join(cut(out, 12))}"] if out else [])]
    return Answer(tuple(lines), data | {"left_out": out})
