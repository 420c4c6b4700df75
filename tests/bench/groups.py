"""The groups of figures, and what each is about."""

import importlib
from collections.abc import Callable, Iterator

from tests.bench.figure import Figure
from tests.bench.sizes import Sizes

GROUPS = {
    "restart": "a task is killed: how soon its replacement runs",
    "submit": "submit to all up, with real programs and containers",
    "short": "tasks that live for milliseconds, submit to all ended",
    "simulator": "virtual seconds a cpu second",
    "control": "submit to running, durable, on simulated machines",
    "cli": "borgctl's wall time and borgmaster's memory",
    "dashboard": "first frame, keys, cpu and memory on the largest summary of a cell",
    "schedule": "passes of the scheduler over large cells",
    "pack": "how full cells get on public traces, by policy",
    "store": "appends, checkpoints and loads",
    "time": "start, checkpoints, rollback and reads of the past, of a large cell",
    "journal": "a journal of ten million entries: to start, to look back, to prune, to give space back",
    "beyond": "a cell ten times as large as one is made for: what gives way first",
    "kills": "kill -9 of the master at random moments, and what was lost",
    "change": "updates and drains: decisions, time, and failed requests",
    "apps": "an application of many jobs; jobs that wait, and crons: cost at rest, and how late they begin",
    "doors": "what TLS, confinement and wrong tokens cost",
    "scale": "small jobs over real HTTP and polls, beside others who ask or watch, and among many at rest",
    "polls": "machines at rest: the master's cpu for polls; and for letting thousands in",
    "bad_days": "clients, users and machines at their worst: what others wait for, and what is kept",
    "failover": "kill -9 of the leader: how soon a standby commits a write",
}
"""Each is a module here with ``figures(sizes)``; its docstring says what is measured from where, and what is
left out."""


def group(name: str) -> Callable[[Sizes], Iterator[Figure]]:
    """Return what measures a group; only then is imported what it needs."""
    figures: Callable[[Sizes], Iterator[Figure]] = importlib.import_module(f"tests.bench.{name}").figures
    return figures
