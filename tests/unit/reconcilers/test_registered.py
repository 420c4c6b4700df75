"""A reconciler that is not registered would never run, and nobody would miss it."""

import importlib
import pkgutil

from borgish import reconcilers
from borgish.reconcilers import RECONCILERS


def test_every_reconciler_is_registered_under_its_name() -> None:
    names = [module.name for module in pkgutil.iter_modules(reconcilers.__path__)]
    modules = {name: importlib.import_module(f"{reconcilers.__name__}.{name}") for name in names}
    there = {name: found.reconcile for name, found in modules.items() if hasattr(found, "reconcile")}
    assert {each.name: each.at_resync for each in RECONCILERS} == there
