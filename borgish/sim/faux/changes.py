"""What can be done on the copy: changes, which become the commands that people's clients would send, to let
time pass, and to ask why tasks wait. The real master decides; what follows is placed, evicted or refused."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from borgish.cell.command import Command
from borgish.cell.commands import (
    CordonMachine,
    DrainMachines,
    KillTasks,
    RemoveQuota,
    RestartTasks,
    ScaleJob,
    SetQuota,
    SubmitJob,
    TaintMachine,
    UncordonMachine,
    UndrainMachines,
    UntaintMachine,
)
from borgish.cell.events import Entry
from borgish.cell.model import Cell
from borgish.errors import Invalid, NotFound
from borgish.resources import Resources, parse_bytes, parse_quota_millis
from borgish.sim.faux.copied import ACTOR, Copy
from borgish.sim.faux.names import find_job, find_machine, find_tasks
from borgish.sim.faux.output import Answer, cut, outcomes, refusal_data, refused, viewed
from borgish.sim.faux.past import where
from borgish.sim.faux.session import Session
from borgish.spec.file.mistakes import show_mistakes
from borgish.spec.file.read import read_job
from borgish.spec.job import JobSpec
from borgish.vocabulary import Band, TaintEffect

USER = "fauxmaster"
ALL = 10**9
"""Running tasks that a trial may stop: nobody is hurt."""
"""Whose a job is that names no user."""


class Change(msgspec.Struct, frozen=True):
    """The arguments of a change, and what it asks of the cell."""

    arguments: Callable[[ArgumentParser], None]
    command: Callable[[Namespace, Cell], Command]


class InvalidJobFile(Invalid):
    """A job file with mistakes, shown where they are."""


def job_in(file: str, cell: Cell, user: str = USER) -> JobSpec:
    """Return the job in a file. Raises NotFound and Invalid, with all mistakes."""
    try:
        text = Path(file).read_bytes()
    except OSError as error:
        raise NotFound(
            f"{file}: {error.strerror}", "Name a job file, such as configs/jobs/web.yaml"
        ) from None
    try:
        return read_job(text, user, cell.rules.bands)
    except Invalid as error:
        raise InvalidJobFile(show_mistakes(error.mistakes, file), "", error.mistakes) from None


def file_arguments(parser: ArgumentParser) -> None:
    """Which job file."""
    parser.add_argument("job", metavar="FILE", help="a job file")
    parser.add_argument("--user", default=USER, help="whose it is when the file does not say")


def _machine(parser: ArgumentParser) -> None:
    parser.add_argument("machine", metavar="MACHINE", help="its name, or a beginning that is unique")


def _task(parser: ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB[/INDEX]", help="user/job, or job where one user has it")


def _scale(parser: ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB")
    parser.add_argument("tasks", type=int, metavar="N")


def _taint(parser: ArgumentParser) -> None:
    _machine(parser)
    parser.add_argument("taint", metavar="KEY[=VALUE][:EFFECT]", help="effects: avoid, refuse, evict")
    parser.add_argument("--effect", default="", help="the same; refuse if none is given")


def _untaint(parser: ArgumentParser) -> None:
    _machine(parser)
    parser.add_argument("key", metavar="KEY")


def _quota(parser: ArgumentParser) -> None:
    parser.add_argument("user", metavar="USER")
    parser.add_argument("band", metavar="BAND", help=", ".join(Band))
    parser.add_argument("--cpu", default="", help="cores: 20 or 500m")
    parser.add_argument("--ram", default="", help="64GiB")
    parser.add_argument("--disk", default="", help="1TiB")
    parser.add_argument("--remove", action="store_true", help="have none of their own")


def _taint_command(args: Namespace, cell: Cell) -> Command:
    mark, colon, effect = args.taint.partition(":")
    key, _, value = mark.partition("=")
    effect = effect if colon else args.effect or TaintEffect.REFUSE
    if not key or effect not in list(TaintEffect) or args.effect not in ("", effect):
        with_option = f" --effect {args.effect}" if args.effect else ""
        raise Invalid(
            f"invalid taint '{args.taint}{with_option}'",
            f"Write KEY=VALUE:EFFECT, or KEY=VALUE --effect EFFECT; effects: {', '.join(TaintEffect)}",
        )
    return TaintMachine(find_machine(cell, args.machine), key, value, TaintEffect(effect), ALL)


def _quota_command(args: Namespace, _cell: Cell) -> Command:
    if args.band not in list(Band):
        raise Invalid(f"there is no band '{args.band}'", f"Bands are {', '.join(Band)}")
    if args.remove:
        return RemoveQuota(args.user, Band(args.band))
    if not (args.cpu or args.ram or args.disk):
        raise Invalid(
            "a quota without an amount would allow nothing",
            "Write --cpu 20 --ram 64GiB; --cpu 0 if nothing is meant, --remove to have none of their own",
        )
    try:
        cpu = parse_quota_millis(args.cpu or "0")
        ram, disk = parse_bytes(args.ram or "0"), parse_bytes(args.disk or "0")
    except ValueError as error:
        raise Invalid(f"an amount {error}", "Write --cpu 20 --ram 64GiB") from None
    return SetQuota(args.user, Band(args.band), Resources(cpu, ram, disk))


CHANGES = {
    "submit": Change(file_arguments, lambda a, cell: SubmitJob(job_in(a.job, cell, a.user))),
    "kill": Change(_task, lambda a, cell: KillTasks(*find_tasks(cell, a.job), ALL)),
    "restart": Change(_task, lambda a, cell: RestartTasks(*find_tasks(cell, a.job))),
    "scale": Change(_scale, lambda a, cell: ScaleJob(find_job(cell, a.job), a.tasks)),
    "drain": Change(
        _machine,
        lambda a, cell: DrainMachines((find_machine(cell, a.machine),), deadline_seconds=0.0),
    ),
    "undrain": Change(_machine, lambda a, cell: UndrainMachines((find_machine(cell, a.machine),))),
    "cordon": Change(_machine, lambda a, cell: CordonMachine(find_machine(cell, a.machine), "by fauxmaster")),
    "uncordon": Change(_machine, lambda a, cell: UncordonMachine(find_machine(cell, a.machine))),
    "taint": Change(_taint, _taint_command),
    "untaint": Change(_untaint, lambda a, cell: UntaintMachine(find_machine(cell, a.machine), a.key)),
    "quota": Change(_quota, _quota_command),
}

RUN_SECONDS_MAX = 30 * 86400.0


def run_change(change: Change) -> Callable[[Session, Namespace], Answer]:
    """Return the verb that makes a change, and lets the cell settle."""

    def make(session: Session, args: Namespace) -> Answer:
        command = change.command(args, session.here)
        copy = session.trial() if session.changed_copy is None else session.changed_copy
        copy.settle()
        before = len(copy.entries)
        accepted = copy.ask(command, ACTOR)
        session.changed_copy = copy  # it was accepted: from here on there is something to see
        return _settled(copy, before, [accepted.text, *accepted.notes])

    return make


def schedule(session: Session, _args: Namespace) -> Answer:
    """Let the scheduler place what waits."""
    copy = session.copy()
    before = 0 if not copy.entries else len(copy.entries)
    return _settled(copy, before, [])


def _settled(copy: Copy, before: int, answered: Sequence[str]) -> Answer:
    seconds = copy.settle()
    entries = copy.entries[before:]
    texts = outcomes(_decided(entries)) or ["nothing else follows" if answered else "nothing is to be done"]
    lines = [*answered, *(f"  {line}" for line in cut(texts))]
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
    """Leave out what was asked for, which the answer has already."""
    return [entry for entry in entries if entry.actor != ACTOR]


def run_arguments(parser: ArgumentParser) -> None:
    """How long."""
    parser.add_argument("seconds", type=float, metavar="SECONDS")


def run(session: Session, args: Namespace) -> Answer:
    """Let time pass on the copy."""
    if not 0 < args.seconds <= RUN_SECONDS_MAX:
        most = f"{RUN_SECONDS_MAX:.0f}, which is 30 days"
        raise Invalid(f"{args.seconds:g} seconds cannot pass", f"Give more than 0 and at most {most}")
    copy = session.copy()
    before = len(copy.entries)
    copy.run(args.seconds)
    entries = copy.entries[before:]
    lines = cut(outcomes(entries)) or ["nothing happened"]
    return Answer(tuple(lines), {"entries": [viewed(entry) for entry in entries]})


def why_arguments(parser: ArgumentParser) -> None:
    """Of which job, or task."""
    parser.add_argument("job", nargs="?", default="", metavar="[JOB[/INDEX]]")


def why(session: Session, args: Namespace) -> Answer:
    """Say why tasks wait: the scheduler tries them on the copy."""
    copy = session.copy()
    copy.settle()
    key, indexes = find_tasks(copy.cell, args.job) if args.job else ("", None)
    if indexes and indexes[0] >= len(tasks := copy.cell.jobs[key].tasks):
        raise NotFound(f"{key} has no task {indexes[0]}", f"It has {len(tasks)}, counted from 0")
    waiting = {job: those for job, those in copy.core.refusals.items() if key in ("", job)}
    if indexes:
        mine = (each for each in waiting.get(key, ()) if indexes[0] in each.indexes)
        waiting = {key: tuple(msgspec.structs.replace(each, indexes=indexes) for each in mine)}
    nobody = f"{args.job} does not wait" if indexes else "nothing waits"
    return Answer(tuple(refused(waiting)) or (nobody,), refusal_data(waiting))


def back(session: Session, _args: Namespace) -> Answer:
    """Let go of the copy."""
    session.back()
    return Answer((where(session),), {"position": session.cell.position})


COMMANDS = {
    **{name: (change.arguments, run_change(change)) for name, change in CHANGES.items()},
    "schedule": (None, schedule),
    "run": (run_arguments, run),
    "why": (why_arguments, why),
    "back": (None, back),
}
