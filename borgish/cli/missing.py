"""Says exactly what a job lacks: for what is not placed the refusal and the way out, for what does not
stay up how it ended and where to look."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from borgish.cli.pages import every_task
from borgish.cli.screen import say
from borgish.cli.text import plural, state_text
from borgish.text import safe, show_indexes
from borgish.vocabulary import Outcome, Phase, State
from borgish.wire.api import JobDetail, RefusalView, TaskView

if TYPE_CHECKING:
    from borgish.client import Client

_GROUPS_MAX = 5


def say_missing(client: "Client", detail: JobDetail) -> None:
    """Say, to stderr, what keeps the job from being up."""
    for line in missing_lines(detail.refusals, every_task(client, job=detail.job.name)):
        say(line)


def missing_lines(refusals: Sequence[RefusalView], tasks: Sequence[TaskView]) -> list[str]:
    """Return what is missing, in lines: groups of tasks with one reason, each with a hint."""
    lines = [line for refusal in refusals for line in refusal_lines(refusal)]
    pending = [task for task in tasks if task.state is State.PENDING]
    if pending and not refusals:
        lines += _group_lines(pending[0].reason or "waits to be placed", pending, None)
    return lines + _trouble_lines([task for task in tasks if is_trouble(task)])


def refusal_lines(refusal: RefusalView) -> list[str]:
    """Return why some tasks are not placed, and the way out."""
    who = f"{refusal.job}/{refusal.indexes}" if refusal.indexes else refusal.job
    lines = [f"  {safe(who)} ({plural(refusal.tasks, 'task')}) pending: {safe(refusal.text)}"]
    if refusal.waits_for and refusal.waits_for not in refusal.hint:
        lines.append(f"    waits for {safe(refusal.waits_for)}")
    return [*lines, f"    hint: {safe(refusal.hint)}"] if refusal.hint else lines


def is_trouble(task: TaskView) -> bool:
    """Whether a task is placed and yet not up, or dead without having finished."""
    if task.state is State.DEAD:
        return task.outcome is not Outcome.FINISHED
    return task.state is State.RUNNING and task.phase not in (Phase.UP, Phase.HEALTHY)


def last_exit(task: TaskView) -> str:
    """Return how the task's program last ended, in words; empty when it never has."""
    if task.signal is not None:
        return f"signal {task.signal}"
    return f"exit {task.exit_code}" if task.exit_code is not None else ""


def _trouble_lines(tasks: Sequence[TaskView]) -> list[str]:
    groups: dict[str, list[TaskView]] = {}
    for task in tasks:
        groups.setdefault(_trouble(task), []).append(task)
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))
    lines = [line for why, group in largest[:_GROUPS_MAX] for line in _group_lines(why, group, group[0])]
    rest = sum(len(group) for _, group in largest[_GROUPS_MAX:])
    return [*lines, f"  and {plural(rest, 'task')} more"] if rest else lines


def _trouble(task: TaskView) -> str:
    """Return what is wrong with a task: where it is, how it ended, and the reason if that says more."""
    words = [task.phase or state_text(task.state, task.outcome), last_exit(task)]
    words = [word for word in words if word and word not in task.reason]
    return ", ".join([*words, task.reason] if task.reason else words)


def _group_lines(why: str, tasks: Iterable[TaskView], example: TaskView | None) -> list[str]:
    some = list(tasks)
    who = f"{some[0].job}/{show_indexes(task.index for task in some)}"
    lines = [f"  {safe(who)} ({plural(len(some), 'task')}): {safe(why)}"]
    if example is None:
        return lines
    return [*lines, f"    hint: borgctl {_where_to_look(example)}"]


def _where_to_look(task: TaskView) -> str:
    if task.pid is None and not last_exit(task):
        return f"why {safe(task.name)}"  # it never ran, so it wrote nothing
    return f"task logs {safe(task.name)}" + (" --previous" if task.pid is None and task.restarts else "")
