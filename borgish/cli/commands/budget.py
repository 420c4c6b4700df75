"""``borgctl budget``: set, list, show, delete."""

from typing import TYPE_CHECKING, Annotated

import typer

from borgish.cli import complete
from borgish.cli.at_option import AtOption, client_at
from borgish.cli.confirm import YesOption, confirm
from borgish.cli.listing import LimitOption, Listing, WatchOption, columns_option, sort_option
from borgish.cli.render import Column, Form, FormOption, fields, show_one
from borgish.cli.session import IfGeneration, noun, session_of
from borgish.text import safe
from borgish.wire.api import Accepted, BudgetRequest, BudgetView

if TYPE_CHECKING:
    from borgish.client import Client

app = noun("Limits on tasks that may be down on purpose, across jobs.")

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the budget.", autocompletion=complete.budgets)
]
_SHOWN_MAX = 10


def _down(budget: BudgetView) -> str:
    return "" if budget.down is None else str(budget.down)


def _is_used_up(budget: BudgetView) -> str:
    """Return the style of a budget: nothing more may be taken down."""
    return "yellow" if budget.down is not None and budget.down >= budget.allowed else ""


BUDGET_COLUMNS: tuple[Column[BudgetView], ...] = (
    Column("NAME", lambda budget: budget.name),
    Column("WHERE", lambda budget: ", ".join(budget.where)),
    Column("MAX", lambda budget: budget.max_unavailable, right=True),
    Column("ALLOWED", lambda budget: str(budget.allowed), right=True),
    Column("DOWN", _down, _is_used_up, right=True),
    Column("TASKS", lambda budget: str(budget.tasks), right=True),
    Column("JOBS", lambda budget: str(budget.job_count), right=True),
)


@app.command("set")
def set_(
    context: typer.Context,
    name: Name,
    where: Annotated[
        list[str],
        typer.Option("--where", metavar="CONDITION", help="Labels of jobs: 'app == web'; can be repeated."),
    ],
    max_unavailable: Annotated[
        str, typer.Option("--max-unavailable", metavar="N|P%", help="So many tasks may be down: 1 or 10%.")
    ],
    if_generation: IfGeneration = None,
) -> None:
    """Set how many tasks of the jobs with these labels may be down before none is taken down on purpose.

    It holds beside the jobs' own `disruption`. What is down for any reason counts.
    """
    _change(context, name, "", BudgetRequest(tuple(where), max_unavailable), if_generation)


@app.command("list")
def list_(
    context: typer.Context,
    sort: Annotated[str, sort_option(lambda: BUDGET_COLUMNS)] = "",
    columns: Annotated[str, columns_option(lambda: BUDGET_COLUMNS)] = "",
    limit: LimitOption = None,
    watch: WatchOption = False,
    at: AtOption = "",
    output: FormOption = Form.TABLE,
) -> None:
    """List the budgets, and what is used of them."""
    from borgish.cli.lookup import every_budget

    client = client_at(context, at, output)
    Listing(
        items=lambda: every_budget(client),
        columns=BUDGET_COLUMNS,
        form=output,
        name=lambda budget: budget.name,
        none="no budgets across jobs; `borgctl budget set NAME` makes one",
        chosen=columns,
        sort=sort,
        limit=limit,
        client=client,
    ).show(watch=watch)


@app.command()
def show(context: typer.Context, name: Name, at: AtOption = "", output: FormOption = Form.TABLE) -> None:
    """Show which jobs a budget is about, how many of their tasks are down, and which."""
    view = client_at(context, at, output).get(_path(name), None, BudgetView)
    show_one(view, output, view.name, lambda it, wide: budget_in_full(it, wide=wide))


@app.command()
def delete(
    context: typer.Context, name: Name, if_generation: IfGeneration = None, yes: YesOption = False
) -> None:
    """Delete a budget. Those of the jobs themselves hold on."""
    confirm(f"This deletes the budget {safe(name)}: more tasks may be down on purpose then.", yes=yes)
    _change(context, name, "/delete", None, if_generation)


def budget_in_full(budget: BudgetView, *, wide: bool = False) -> str:
    """Return one budget as people read it."""
    most = max(len(budget.jobs), len(budget.users)) if wide else _SHOWN_MAX
    return fields(
        [
            ("budget", budget.name),
            ("where", ", ".join(budget.where)),
            ("max", f"{budget.max_unavailable}: {budget.allowed} of {budget.tasks} tasks may be down"),
            ("down", _down(budget)),
            *(("", f"  {user}") for user in _cut(budget.users, len(budget.users), most)),
            ("generation", str(budget.generation)),
            ("jobs", str(budget.job_count)),
            *(("", f"  {job}") for job in _cut(budget.jobs, budget.job_count, most)),
        ]
    )


def _cut(items: tuple[str, ...], count: int, most: int) -> list[str]:
    more = count - len(items[:most])
    return [*items[:most], *([f"and {more} more"] if more else [])]


def _change(
    context: typer.Context, name: str, verb: str, body: BudgetRequest | None, expected: int | None
) -> None:
    from borgish.cli.commands.job import say_accepted

    client: Client = session_of(context).client()
    say_accepted(client.post(_path(name) + verb, body, Accepted, expected=expected))


def _path(name: str) -> str:
    from borgish.client import quoted

    return quoted("budgets", name)
