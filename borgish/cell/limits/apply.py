"""Changes a cell by events about quotas, budgets and freezes; see ``cell/apply.py``."""

from collections.abc import Callable
from typing import Any

import msgspec

from borgish.cell.events import (
    AnyEvent,
    BudgetRemoved,
    BudgetSet,
    CellFrozen,
    CellUnfrozen,
    Entry,
    QuotaRemoved,
    QuotaSet,
)
from borgish.cell.limits.budgets import Budget, Freeze
from borgish.cell.limits.quotas import Quota
from borgish.cell.model import Cell


def set_quota(cell: Cell, quota: Quota, entry: Entry) -> None:
    """Let a quota be this."""
    cell.quotas[quota.key] = msgspec.structs.replace(quota, generation=entry.position)
    cell.touched.quotas.add(quota.key)


def remove_quota(cell: Cell, key: str) -> None:
    """Let there be no such quota."""
    del cell.quotas[key]
    cell.touched.quotas.add(key)


def set_budget(cell: Cell, budget: Budget, entry: Entry) -> None:
    """Let a budget be this."""
    cell.budgets[budget.name] = msgspec.structs.replace(budget, generation=entry.position)
    cell.members.change(budget.name, budget, cell.jobs)
    cell.touched.budgets.add(budget.name)


def remove_budget(cell: Cell, name: str) -> None:
    """Let there be no such budget."""
    del cell.budgets[name]
    cell.members.change(name, None, cell.jobs)
    cell.touched.budgets.add(name)


def _quota_set(cell: Cell, event: QuotaSet, entry: Entry) -> None:
    set_quota(cell, event.quota, entry)


def _quota_removed(cell: Cell, event: QuotaRemoved, _entry: Entry) -> None:
    remove_quota(cell, event.key)


def _budget_set(cell: Cell, event: BudgetSet, entry: Entry) -> None:
    set_budget(cell, event.budget, entry)


def _budget_removed(cell: Cell, event: BudgetRemoved, _entry: Entry) -> None:
    remove_budget(cell, event.name)


def _cell_frozen(cell: Cell, event: CellFrozen, entry: Entry) -> None:
    cell.freeze = Freeze(entry.actor, entry.at, event.reason)


def _cell_unfrozen(cell: Cell, _event: CellUnfrozen, _entry: Entry) -> None:
    cell.freeze = None


APPLY: dict[type[AnyEvent], Callable[[Cell, Any, Entry], None]] = {
    QuotaSet: _quota_set,
    QuotaRemoved: _quota_removed,
    BudgetSet: _budget_set,
    BudgetRemoved: _budget_removed,
    CellFrozen: _cell_frozen,
    CellUnfrozen: _cell_unfrozen,
}
