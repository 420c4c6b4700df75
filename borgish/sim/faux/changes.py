"""The changes that can be tried: from words to the command that people's clients would send."""

import argparse
from collections.abc import Callable
from pathlib import Path

import msgspec

from borgish.cell.commands import (
    Command,
    CordonMachine,
    KillTasks,
    RemoveQuota,
    RestartTasks,
    ScaleJob,
    SetQuota,
    SubmitJob,
    TaintMachine,
    UncordonMachine,
    UntaintMachine,
)
from borgish.cell.state import Cell
from borgish.errors import Invalid, NotFound
from borgish.resources import Resources, parse_bytes, parse_quota_millis
from borgish.sim.faux.names import find_job, find_machine, find_tasks
from borgish.spec.job import JobSpec
from borgish.spec.mistakes import show_mistakes
from borgish.spec.read import read_job
from borgish.vocabulary import Band, TaintEffect

Parser = argparse.ArgumentParser
Parsed = argparse.Namespace

USER = "fauxmaster"
"""Whose a job is that names no user."""
DRAIN = TaintMachine("", "drain", "by-fauxmaster", TaintEffect.EVICT)


class Change(msgspec.Struct, frozen=True):
    """A change by its name: its words, and what it asks of the cell."""

    name: str
    words: Callable[[Parser], None]
    command: Callable[[Parsed, Cell], Command]


class Mistaken(Invalid):
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
        raise Mistaken(show_mistakes(error.mistakes, file), "", error.mistakes) from None


def file_words(parser: Parser) -> None:
    """Which job file."""
    parser.add_argument("job", metavar="FILE", help="a job file")
    parser.add_argument("--user", default=USER, help="whose it is when the file does not say")


def _machine(parser: Parser) -> None:
    parser.add_argument("machine", metavar="MACHINE", help="its name, or a beginning that is unique")


def _task(parser: Parser) -> None:
    parser.add_argument("job", metavar="JOB[/INDEX]", help="user/job, or job where one user has it")


def _scale(parser: Parser) -> None:
    parser.add_argument("job", metavar="JOB")
    parser.add_argument("tasks", type=int, metavar="N")


def _taint(parser: Parser) -> None:
    _machine(parser)
    parser.add_argument("taint", metavar="KEY[=VALUE][:EFFECT]", help="effects: avoid, refuse, evict")
    parser.add_argument("--effect", default="", help="the same; refuse if none is given")


def _untaint(parser: Parser) -> None:
    _machine(parser)
    parser.add_argument("key", metavar="KEY")


def _quota(parser: Parser) -> None:
    parser.add_argument("user", metavar="USER")
    parser.add_argument("band", metavar="BAND", help=", ".join(Band))
    parser.add_argument("--cpu", default="", help="cores: 20 or 500m")
    parser.add_argument("--ram", default="", help="64GiB")
    parser.add_argument("--disk", default="", help="1TiB")
    parser.add_argument("--remove", action="store_true", help="have none of their own")


def _taint_command(words: Parsed, cell: Cell) -> Command:
    mark, colon, effect = words.taint.partition(":")
    key, _, value = mark.partition("=")
    effect = effect if colon else words.effect or TaintEffect.REFUSE
    if not key or effect not in list(TaintEffect) or words.effect not in ("", effect):
        with_option = f" --effect {words.effect}" if words.effect else ""
        raise Invalid(
            f"'{words.taint}{with_option}' is no taint",
            f"Write KEY=VALUE:EFFECT, or KEY=VALUE --effect EFFECT; effects: {', '.join(TaintEffect)}",
        )
    return TaintMachine(find_machine(cell, words.machine), key, value, TaintEffect(effect))


def _quota_command(words: Parsed, _cell: Cell) -> Command:
    if words.band not in list(Band):
        raise Invalid(f"there is no band '{words.band}'", f"Bands are {', '.join(Band)}")
    if words.remove:
        return RemoveQuota(words.user, Band(words.band))
    if not (words.cpu or words.ram or words.disk):
        raise Invalid(
            "a quota without an amount would allow nothing",
            "Write --cpu 20 --ram 64GiB; --cpu 0 if nothing is meant, --remove to have none of their own",
        )
    try:
        cpu = parse_quota_millis(words.cpu or "0")
        ram, disk = parse_bytes(words.ram or "0"), parse_bytes(words.disk or "0")
    except ValueError as error:
        raise Invalid(f"an amount {error}", "Write --cpu 20 --ram 64GiB") from None
    return SetQuota(words.user, Band(words.band), Resources(cpu, ram, disk))


CHANGES: dict[str, Change] = {
    change.name: change
    for change in (
        Change("submit", file_words, lambda w, cell: SubmitJob(job_in(w.job, cell, w.user))),
        Change("kill", _task, lambda w, c: KillTasks(*find_tasks(c, w.job))),
        Change(
            "restart",
            _task,
            lambda w, cell: RestartTasks(*find_tasks(cell, w.job)),
        ),
        Change("scale", _scale, lambda w, c: ScaleJob(find_job(c, w.job), w.tasks)),
        Change(
            "drain",
            _machine,
            lambda w, cell: msgspec.structs.replace(DRAIN, machine=find_machine(cell, w.machine)),
        ),
        Change(
            "cordon",
            _machine,
            lambda w, cell: CordonMachine(find_machine(cell, w.machine), "by fauxmaster"),
        ),
        Change(
            "uncordon",
            _machine,
            lambda w, cell: UncordonMachine(find_machine(cell, w.machine)),
        ),
        Change("taint", _taint, _taint_command),
        Change(
            "untaint",
            _untaint,
            lambda w, cell: UntaintMachine(find_machine(cell, w.machine), w.key),
        ),
        Change("quota", _quota, _quota_command),
    )
}
