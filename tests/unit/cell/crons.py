"""Crons for tests."""

from typing import Any

from borgish.spec.cron import CronSpec
from borgish.spec.job import Restart
from borgish.vocabulary import RestartPolicy
from tests.unit.cell.test_decide import spec

TO_COMPLETION = Restart(RestartPolicy.NEVER)


def cron(name: str = "nightly", schedule: str = "0 2 * * *", tasks: int = 1, **rest: Any) -> CronSpec:
    """Return a cron that is due at two, whose runs run to completion."""
    return CronSpec(schedule, spec(name, tasks=tasks, restart=TO_COMPLETION), **rest)
