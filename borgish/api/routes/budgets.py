"""``/v1/budgets``: list, show, set, delete; ``/v1/freeze`` and ``/v1/unfreeze``."""

from itertools import islice

from litestar import get, post

from borgish.api.auth import POLICY, Policy
from borgish.api.moments import AT
from borgish.api.openapi import CONSUMES
from borgish.api.parameters import LIMIT_MAX, After, BudgetName, Limit, checked_name, checked_reason, cut
from borgish.api.preconditions import ETAG, IF_MATCH
from borgish.api.request import ApiRequest
from borgish.api.services import Reading
from borgish.cell.commands import (
    FreezeCell,
    RemoveBudget,
    SetBudget,
    UnfreezeCell,
)
from borgish.cell.limits.availability import count_of, live_tasks
from borgish.cell.limits.budgets import Budget
from borgish.cell.limits.disruption import Gate
from borgish.errors import Invalid, NotFound
from borgish.spec.constraints import EXAMPLES, parse_constraint
from borgish.spec.job import Constraint
from borgish.spec.shares import Share, parse_share
from borgish.wire.api import Accepted, BudgetList, BudgetRequest, BudgetView, FreezeRequest

CONDITIONS_MAX = 16
JOBS_SHOWN = USERS_SHOWN = 100


@get("/v1/budgets", opt={POLICY: Policy.READ, AT: True})
async def list_budgets(request: ApiRequest, limit: Limit = LIMIT_MAX, after: After = "") -> BudgetList:
    """List the disruption budgets across jobs, by name."""

    def view(reading: Reading) -> BudgetList:
        budgets = reading.cell.budgets
        names = ((name, budgets[name]) for name in sorted(budgets) if name > after)
        chosen, page = cut(names, limit)
        return BudgetList(tuple(budget_view(reading, budget) for budget in chosen), page)

    return await request.read(view)


@get("/v1/budgets/{budget:str}", opt={POLICY: Policy.READ, AT: True, ETAG: True})
async def show_budget(request: ApiRequest, budget: BudgetName) -> BudgetView:
    """Show a budget: which jobs it is about, how many of their tasks are down, and which."""

    def view(reading: Reading) -> BudgetView:
        found = reading.cell.budgets.get(budget)
        if found is None:
            raise NotFound(f"there is no budget {budget[:63]}", "`borgctl budget list` shows those there are")
        request.tag(found.generation)
        return budget_view(reading, found)

    return await request.read(view)


@post(
    "/v1/budgets/{budget:str}",
    opt={POLICY: Policy.ADMIN, CONSUMES: BudgetRequest, IF_MATCH: True},
    status_code=200,
)
async def set_budget(request: ApiRequest, budget: BudgetName) -> Accepted:
    """Set a budget, whether or not there is one of that name."""
    asked = await request.json_as(BudgetRequest)
    checked_name(budget, "budget")
    if len(asked.where) > CONDITIONS_MAX:
        raise Invalid(f"where: {len(asked.where)} conditions are too many", f"Give at most {CONDITIONS_MAX}")
    where = tuple(_condition(text) for text in asked.where)
    return await request.command(SetBudget(Budget(budget, where, _share(asked.max_unavailable))))


@post("/v1/budgets/{budget:str}/delete", opt={POLICY: Policy.ADMIN, IF_MATCH: True}, status_code=200)
async def delete_budget(request: ApiRequest, budget: BudgetName) -> Accepted:
    """Delete a budget. Those of the jobs themselves hold on."""
    return await request.command(RemoveBudget(budget))


@post("/v1/freeze", opt={POLICY: Policy.OPERATE, CONSUMES: FreezeRequest}, status_code=200)
async def freeze(request: ApiRequest) -> Accepted:
    """Take no task down on purpose any more. Preemption by production goes on."""
    asked = await request.json_as(FreezeRequest)
    return await request.command(FreezeCell(checked_reason(asked.reason)))


@post("/v1/unfreeze", opt={POLICY: Policy.OPERATE}, status_code=200)
async def unfreeze(request: ApiRequest) -> Accepted:
    """Let tasks be taken down on purpose again, within the budgets."""
    return await request.command(UnfreezeCell())


def _condition(text: str) -> Constraint:
    try:
        return parse_constraint(text)
    except ValueError as error:
        raise Invalid(f"where: {text[:100]!r} {error}", f"Write it like {EXAMPLES}") from None


def _share(text: str) -> Share:
    try:
        return parse_share(text)
    except ValueError as error:
        raise Invalid(f"max_unavailable: {text[:20]!r} {error}", "Write it like 1 or 10%") from None


def budget_view(reading: Reading, budget: Budget) -> BudgetView:
    """Return a budget, and who uses it where that is known."""
    cell, observed = reading.cell, reading.observed
    members = sorted(cell.members.of(budget.name))
    live = sum(live_tasks(cell.jobs[key]) for key in members)
    users = Gate(cell, observed, reading.now).users(budget.name) if observed.known else ()
    return BudgetView(
        name=budget.name,
        where=tuple(map(str, budget.where)),
        max_unavailable=str(budget.max_unavailable),
        allowed=budget.max_unavailable.of(live),
        tasks=live,
        down=count_of(cell, observed, budget.name).down if observed.known else None,
        job_count=len(members),
        generation=budget.generation,
        jobs=tuple(members[:JOBS_SHOWN]),
        users=tuple(islice(users, USERS_SHOWN)),
    )


BUDGETS = (list_budgets, show_budget, set_budget, delete_budget, freeze, unfreeze)
