"""How much one turn takes on, so that nobody waits long for it."""

from borgish.scheduler.schedule import TASKS_MAX

TAKE_SECONDS = 0.0125
"""For what has arrived; the command that is begun within that is decided."""
PASS_SECONDS = 0.0125
TASKS_MIN = 500
"""A pass costs some milliseconds whatever it tries: with less than this, most of it would be that."""
TASKS_AT_START = 1_000
GROWTH_MAX = 2.0


class Pace:
    """``tasks`` is how many tasks the next pass is to try, by how long the last ones took.

    The scheduler is not asked to look at a clock: a pass is decided by the cell and by this number, so that
    what a turn does can be done again. Where a clock stands still meanwhile, as in the simulator, the number
    stays what it is.
    """

    def __init__(self, tasks: int = TASKS_AT_START) -> None:
        self.tasks = tasks

    def took(self, seconds: float, *, was_full: bool) -> None:
        """Note how long a pass took; ``was_full``: there was more to try."""
        fit = self.tasks * PASS_SECONDS / seconds if seconds > 0.0 else float(TASKS_MAX)
        if seconds > PASS_SECONDS or was_full:
            self.tasks = int(max(TASKS_MIN, min(TASKS_MAX, fit, self.tasks * GROWTH_MAX)))
