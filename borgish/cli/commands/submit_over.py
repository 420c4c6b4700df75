"""``borgctl job submit --cells``: a job goes to the one of several cells that has room for it.

Each cell plans the job as for ``borgctl plan``, and the choice among the plans is made here: no cell knows
of another, and nothing is moved later.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import typer

from borgish.cli.cells import Named, ask_each, asked_of, cells_named, say_failed
from borgish.cli.commands.submit import (
    JobFile,
    ask_for_plan,
    checked_file,
    follow_all,
    planned,
    submit_file,
    worst,
)
from borgish.cli.errors import DONE, NOT_PLACED, USAGE, print_error, print_hint, print_note
from borgish.cli.screen import print_err, print_out
from borgish.cli.session import session_of
from borgish.client import quoted
from borgish.errors import Conflict, Invalid, NotFound, Refused, Unauthenticated
from borgish.spec.job import JobSpec
from borgish.text import plural, safe
from borgish.vocabulary import State
from borgish.wire.api import JobDetail, StatusView
from borgish.wire.api_plans import PlanView

if TYPE_CHECKING:
    from borgish.client import Client

T = TypeVar("T")

CHOICES_MAX = 3
"""So often a cell is chosen, where the one that was chosen changed before the job was there."""


class Offer(msgspec.Struct, frozen=True):
    """What one cell says of a job that it does not have."""

    cell: str
    tasks: int
    placed: int  # of the tasks, those that would have a place
    preempted: int = 0  # tasks that would have to leave for it
    fullest: float = 0.0  # of cpu and ram the larger share that is asked for, with the job
    resource: str = "cpu"  # which of the two that is
    reason: str = ""  # why not all of it has a place

    @property
    def has_room(self) -> bool:
        """Whether all of the job would have its place."""
        return self.placed >= self.tasks and not self.reason


def choose(offers: Sequence[Offer]) -> Offer | None:
    """Return the best of the cells that have room for all of a job: where nobody has to leave for it, then
    the least full one, then by name. None where no cell has room."""
    room = (offer for offer in offers if offer.has_room)
    return min(room, key=lambda it: (it.preempted > 0, it.fullest, it.cell), default=None)


def offer_of(cell: str, spec: JobSpec, plan: PlanView, status: StatusView) -> Offer:
    """Return what a cell's plan of a job comes to. What runs in allocs is asked for by these already."""
    needs = [] if spec.inside else [spec.needs(index) for index in range(spec.tasks)]
    asked, capacity = asked_of(status), status.capacity
    shares = {
        "cpu": _share(asked.cpu_millis + sum(it.cpu_millis for it in needs), capacity.cpu_millis),
        "ram": _share(asked.ram_bytes + sum(it.ram_bytes for it in needs), capacity.ram_bytes),
    }
    resource = max(shares, key=lambda name: shares[name])
    reasons = [refusal.text for refusal in plan.refusals] or list(plan.notes)
    placed = len(plan.places)
    reason = (reasons or ["the rest would wait"])[0] if placed < plan.tasks or plan.refusals else ""
    victims = {name for place in plan.places for name in place.victims}
    return Offer(cell, plan.tasks, placed, len(victims), shares[resource], resource, reason)


def _share(asked: int, capacity: int) -> float:
    return asked / capacity if capacity else inf


class _Found(msgspec.Struct, frozen=True):
    """What was found in a cell: the job itself, or what the cell makes of it."""

    lives: bool = False  # one that is dead does not: it holds nothing there, and its name is free
    offer: Offer | None = None
    plan: PlanView | None = None  # None: it refused to make one


def submit_over(
    context: typer.Context,
    text: str,
    path: Path,
    user: str,
    timeout_seconds: float | None,
    settle_seconds: float | None,
    variables: Mapping[str, str],
    *,
    detach: bool,
    dry_run: bool,
) -> int:
    """Submit a file to the one of the cells that has room, of those that ``text`` names, and follow the job;
    return the exit code."""
    named = {cell.name: cell for cell in cells_named(context, text)}
    cells = list(named.values())
    user = user or _who_asks(cells)
    file = checked_file(cells[0].session, path, user, variables)
    if file is None:
        return USAGE
    if file.cron is not None:
        # Its runs begin in the one cell, and where room is by then nobody knows.
        hint = "choose its cell, as by `borgctl cell use`, and leave out --cells"
        raise Invalid(f"{file.spec.key} is a cron: it has runs later, and no place now", hint)
    for left in reversed(range(CHOICES_MAX)):
        found = _ask(cells, partial(_look, file, user))
        name = _chosen(file.spec.key, found)
        if not name:
            return NOT_PLACED
        client, plan = named[name].session.client(), found[name].plan
        if dry_run:
            view = plan or ask_for_plan(client, file, user)
            print_out(planned(view, file.source, token=False))
            return NOT_PLACED if view.refusals else DONE
        # With the plan's token, so that what was chosen by is what follows: a cell in which the job would go
        # elsewhere by now refuses, and all are asked again. What waits for other jobs has no token.
        token = plan.token if plan else ""
        try:
            submit_file(client, file, user, token)
            break
        except Conflict as error:
            if not token:
                raise
            if not left:
                message = f"{name} changes faster than it can be chosen: {error.message}"
                raise Conflict(message, "Nothing was submitted: submit it again") from error
            print_note(f"{name}: {error.message}; the cells are asked again")
    if named[name].session.cell_folder != session_of(context).cell_folder:
        print_hint(f"`borgctl cell use {name}` makes other commands go there")
    return DONE if detach else worst(follow_all(client, [file.spec.key], timeout_seconds, settle_seconds))


def _ask(cells: Sequence[Named], question: Callable[[Named, "Client"], T]) -> dict[str, T]:
    """Return what all cells say. Ends with what is wrong where one cannot be asked."""
    answers = ask_each(cells, question)
    if code := say_failed(answers.failed):
        rest = ",".join(answers.said)
        print_error("nothing was submitted: a cell that cannot be asked might have the job")
        print_hint(f"Name the others: --cells {rest}" if rest else "`borgctl cell list` shows all there are")
        raise typer.Exit(code)
    return answers.said


def _who_asks(cells: Sequence[Named]) -> str:
    """Return whose the job is where its file does not say."""
    users = _ask(cells, lambda cell, _: cell.session.who_asks())
    if len(set(users.values())) > 1:
        who = ", ".join(f"{user} in {cell}" for cell, user in users.items())
        raise Invalid(f"you are {who}, and a job has one user", "--user USER says whose it is")
    return users[cells[0].name]


def _look(file: JobFile, user: str, cell: Named, client: "Client") -> _Found:
    """Ask a cell for the job, or else for its plan of it."""
    spec = file.spec
    with suppress(NotFound):
        detail = client.get(quoted("jobs", spec.user, spec.name), None, JobDetail)
        if detail.job.state is not State.DEAD:
            return _Found(lives=True)
    try:
        plan = ask_for_plan(client, file, user)
    except Unauthenticated:
        raise
    except Refused as error:  # no quota, no grant, or what this cell does not know
        message = error.message or "; ".join(it.message for it in getattr(error, "mistakes", ()))
        return _Found(offer=Offer(cell.name, spec.tasks, 0, reason=message))
    return _Found(
        offer=offer_of(cell.name, spec, plan, client.get("/v1/status", None, StatusView)), plan=plan
    )


def _chosen(key: str, found: Mapping[str, _Found]) -> str:
    """Return the cell that a job goes to, and say why; "" where none has room, which is said as well."""
    living = [name for name, each in found.items() if each.lives]
    if len(living) > 1:
        message = f"{key} is in several of these cells: {', '.join(living)}; nothing was submitted"
        raise Conflict(message, f"Name the one that is meant: --cells {living[0]}")
    if living:
        print_out(f"{key} goes to {living[0]}, where it is already")
        return living[0]
    offers = [each.offer for each in found.values() if each.offer]
    best = choose(offers)
    if best is None:
        print_error(f"no cell has room for all of {key}; nothing was submitted")
        for offer in offers:
            print_err(safe(f"  {offer.cell}: {_words(offer)}: {offer.reason}"))
        return ""
    others = "".join(f"; {offer.cell}: {_words(offer)}" for offer in offers if offer is not best)
    print_out(safe(f"{key} goes to {best.cell}, which has room for all of it: {_words(best)}{others}"))
    return best.cell


def _words(offer: Offer) -> str:
    if not offer.has_room:
        return f"{offer.placed} of {plural(offer.tasks, 'task')} would be placed"
    leaves = f"{plural(offer.preempted, 'other task')} preempted, " if offer.preempted else ""
    return f"{leaves}{offer.fullest:.0%} of the {offer.resource} would be asked for"
