"""``borgctl rollback``: the whole cell, or some of its jobs, as it was to be at a moment."""

from collections.abc import Sequence
from typing import Annotated

import typer

from borgish.cli import complete
from borgish.cli.at_option import MOMENT, MOMENTS, SECONDS_MAX
from borgish.cli.commands.diff import AgesAllowed
from borgish.cli.confirm import YesOption, confirm
from borgish.cli.render import Form, FormOption, show_one
from borgish.cli.session import MaxAffected, session_of, single
from borgish.text import day_and_time, local_times, plural, safe, zoned
from borgish.wire.api_past import IS_REMOVED, JobRollback, RollbackPlan, RollbackRequest

app = single()

_SIGNS = {"returns": "+", "changes": "~", "vanishes": "-"}
_SHOWN_MAX = 40


@app.command(cls=AgesAllowed)
def rollback(
    context: typer.Context,
    to: Annotated[
        str,
        typer.Argument(
            metavar=MOMENT, help=f"{MOMENTS[0].upper()}{MOMENTS[1:]}.", autocompletion=complete.moments
        ),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="USER/JOB", help="Only this job; can be repeated.", autocompletion=complete.jobs
        ),
    ] = None,
    at_once: Annotated[
        bool, typer.Option("--now", help="Stop tasks all at once, not a few a second.")
    ] = False,
    max_affected: MaxAffected = None,
    yes: YesOption = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Make the cell again what it was to be at a moment.

    Jobs, who is to run, applications, crons, cordons, taints, drains, quotas and budgets come back. Machines
    are those there are now, a freeze stays, runs of crons are left alone, and a task that runs what it should
    goes on untouched. It is a new event on a new timeline: nothing of the journal is lost, and a rollback can
    itself be rolled back. The cell is kept as a checkpoint first.
    """
    from borgish.wire.api import Accepted

    client = session_of(context).client(SECONDS_MAX)
    asked = RollbackRequest(zoned(to), tuple(only or ()), at_once, max_affected)
    if dry_run:
        plan = client.post("/v1/rollback/plan", asked, RollbackPlan)
        show_one(plan, output, str(plan.to.position), lambda it, wide: planned(it, wide=wide))
        return
    if not yes:
        plan = client.post("/v1/rollback/plan", asked, RollbackPlan)
        confirm(_loss(plan, asked.only), yes=yes)
    done = client.post("/v1/rollback", asked, Accepted)
    show_one(done, output, str(done.position), lambda it, _: _done(it.text, it.position))


def _loss(plan: RollbackPlan, only: Sequence[str]) -> str:
    what = ", ".join(map(safe, only)) or "the whole cell"
    to = plan.to
    when = f"position {to.position} ({day_and_time(to.at)})"
    return f"This takes {what} back to {when}: {_counted(plan)}. --dry-run shows all of it."


def planned(plan: RollbackPlan, *, wide: bool) -> str:
    """Return as people read it what a rollback would do."""
    to = plan.to
    lines = [f"To position {to.position} ({day_and_time(to.at)}), done now: {_counted(plan)}."]
    lines += [f"warning: {safe(warning)}" for warning in to.warnings]
    missing = (
        f"{name} was there, and is not now: it comes back when its borglet joins"
        for name in plan.machines_missing
    )
    sections = {
        "machines": [*(f"~ {words}" for words in plan.machines), *(f"! {words}" for words in missing)],
        "quotas": [*map(_marked, plan.quotas)],
        "budgets": [*map(_marked, plan.budgets)],
        "applications": [*map(_marked, plan.apps)],
        "crons": [*map(_marked, plan.crons), *([f"= {plan.runs}"] if plan.runs else [])],
        "freeze": [f"= {local_times(plan.freeze)}"] if plan.freeze else [],
        "jobs": [_job(job) for job in plan.jobs],
    }
    for section, shown in sections.items():
        lines += ["", section, *_cut(shown, len(shown) if wide else _SHOWN_MAX)] if shown else []
    lines += ["", "Nothing was changed."]
    if plan.refusal:
        lines += [f"As it was asked for it would be refused: {plan.refusal}", f"hint: {plan.hint}"]
    return "\n".join([lines[0], *map(safe, lines[1:])]) + "\n"


def _counted(plan: RollbackPlan) -> str:
    running = plan.stopped + plan.kept
    words = (
        f"{plan.stopped} of {plural(running, 'running task')} {_do(plan.stopped, 'stop')}, "
        f"{plan.started} {_do(plan.started, 'start')}, {plan.kept} {_do(plan.kept, 'continue')}"
    )
    return f"{words}, {_results(plan.results_kept)}" if plan.results_kept else words


def _do(count: int, verb: str) -> str:
    """Return the verb for so many tasks: one stops, two stop."""
    return f"{verb}s" if count == 1 else verb


def _results(count: int) -> str:
    return f"{count} {'keeps its' if count == 1 else 'keep their'} result"


def _marked(words: str) -> str:
    return f"{'-' if words.endswith(IS_REMOVED) else '~'} {words}"


def _job(job: JobRollback) -> str:
    counts = {"stop": job.stopped, "start": job.started, "continue": job.kept}
    parts = [f"{count} {_do(count, verb)}" for verb, count in counts.items() if count]
    parts += [_results(job.results_kept)] * bool(job.results_kept)
    words = {"returns": "comes back", "vanishes": "is removed"}.get(job.change, "")
    return f"{_SIGNS[job.change]} {job.name}: " + "; ".join(
        part for part in (words, *job.lines, ", ".join(parts) or "nothing stops or starts") if part
    )


def _cut(lines: list[str], shown_max: int) -> list[str]:
    left = len(lines) - shown_max
    more = [f"  and {left} more: -o wide shows them"] if left > 0 else []
    return [*(f"  {line}" for line in lines[:shown_max]), *more]


def _done(text: str, position: int) -> str:
    return f"{safe(text)}\nto undo it: borgctl rollback {position - 1}\n"
