"""Says exactly what a job lacks: for what is not placed the refusal and the way out, for what does not
stay up how it ended, what it wrote last and where to look."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from borgish.cli.lookup import every_task
from borgish.cli.render import cut, safe_output, state_text
from borgish.cli.screen import print_err
from borgish.client import quoted
from borgish.errors import BorgishError
from borgish.text import local_times, plural, safe, show_indexes
from borgish.vocabulary import HELD_BACK, Hold, Outcome, Phase, State
from borgish.wire.api import JobDetail, RefusalView, TaskView

if TYPE_CHECKING:
    from borgish.client import Client


_GROUPS_MAX = 5
_TAIL_LINES = 10
_TAIL_BYTES_MAX = 64 * 1024
_TAIL_WIDTH = 200


def print_problems(client: "Client", detail: JobDetail, died: Sequence[TaskView] = ()) -> None:
    """Say, to stderr, what keeps the job from being up; of those that ``died`` as they were seen then."""
    seen = {task.index: task for task in died}
    is_failed = detail.rollout is not None and detail.rollout.hold is Hold.FAILED
    every = every_task(client, job=detail.job.name)
    tasks = [_as_incoming(task) if is_failed else seen.get(task.index, task) for task in every]
    trouble = [
        task for task in tasks if is_trouble(task) or task.index in seen or _fails_update(detail, task)
    ]
    for line in problem_lines(detail.refusals, tasks, trouble, lambda task: log_tail(client, task)):
        print_err(line)


def _as_incoming(task: TaskView) -> TaskView:
    """Return a task as its incoming attempt is: of an update with handover that is what fails."""
    incoming = task.incoming
    if incoming is None or not incoming.attempt:
        return task
    return msgspec.structs.replace(
        task,
        phase=incoming.phase,
        machine=incoming.machine,
        attempt=incoming.attempt,
        restarts=incoming.restarts,
        reason=incoming.reason or incoming.text,
        exit_code=incoming.exit_code,
        signal=incoming.signal,
        version=incoming.version,
        pid=None,
    )


def _is_incoming(task: TaskView) -> bool:
    return task.incoming is not None and task.attempt == task.incoming.attempt


def _fails_update(detail: JobDetail, task: TaskView) -> bool:
    """Whether an update is held for a task that was restarted; it may be up for a moment between two ends."""
    is_failed = detail.rollout is not None and detail.rollout.hold is Hold.FAILED
    return is_failed and task.restarts > 0 and task.version == detail.job.version


def problem_lines(
    refusals: Sequence[RefusalView],
    tasks: Sequence[TaskView],
    trouble: Sequence[TaskView],
    tail: Callable[[TaskView], Sequence[str]],
) -> list[str]:
    """Return what is missing, in lines: groups of tasks with one reason, each with the ``tail`` of the
    output of one of them, and a hint."""
    lines = [line for refusal in refusals for line in refusal_lines(refusal)]
    pending = [task for task in tasks if task.state is State.PENDING]
    if pending and not refusals:
        lines += _group_lines(pending[0].reason or "waits to be placed", pending)
    return lines + _trouble_lines(trouble, tail)


def refusal_lines(refusal: RefusalView) -> list[str]:
    """Return why some tasks are not placed, and the way out."""
    who = f"{refusal.job}/{refusal.indexes}" if refusal.indexes else refusal.job
    word = "waiting" if refusal.in_order else "pending"
    lines = [f"  {safe(who)} ({plural(refusal.tasks, 'task')}) {word}: {safe(local_times(refusal.text))}"]
    if refusal.waits_for and refusal.waits_for not in refusal.hint:
        lines.append(f"    waits for {safe(refusal.waits_for)}")
    return [*lines, f"    hint: {safe(refusal.hint)}"] if refusal.hint else lines


def is_trouble(task: TaskView) -> bool:
    """Whether a task is placed and yet not up, or dead without having finished."""
    if task.state is State.DEAD:
        return task.outcome is not Outcome.FINISHED
    return task.state is State.RUNNING and task.phase not in (Phase.UP, Phase.HEALTHY)


def died(task: TaskView) -> bool:
    """Whether back-off holds a task back whose program ended, rather than could not be started."""
    return task.phase in HELD_BACK and not task.reason.startswith("cannot start")


def last_exit(task: TaskView) -> str:
    """Return how the task's program last ended, in words; empty when it never has."""
    if task.signal is not None:
        return f"signal {task.signal}"
    return f"exit {task.exit_code}" if task.exit_code is not None else ""


def log_tail(client: "Client", task: TaskView) -> list[str]:
    """Return the last lines that the program which ended wrote; none where they cannot be had."""
    runs_again = _runs_again(task)
    found = _log_tail(client, task, previous=runs_again)
    if not found and not runs_again and task.restarts:
        # It may have been started again since it was seen, and that run have written nothing yet.
        found = _log_tail(client, task, previous=True)
    return found


def _log_tail(client: "Client", task: TaskView, *, previous: bool) -> list[str]:
    params = {"tail": _TAIL_LINES, "previous": int(previous)}
    if _is_incoming(task):
        params["incoming"] = 1
    output = b""
    try:
        for piece in client.stream(f"{quoted('tasks', *task.name.split('/'))}/logs", params):
            output += piece
            if len(output) > _TAIL_BYTES_MAX:
                break
    except BorgishError:
        return []
    lines = "".join(safe_output([output])).splitlines()
    return [cut(line, _TAIL_WIDTH) for line in lines[-_TAIL_LINES:]]


def _trouble_lines(tasks: Sequence[TaskView], tail: Callable[[TaskView], Sequence[str]]) -> list[str]:
    groups: dict[str, list[TaskView]] = {}
    for task in tasks:
        groups.setdefault(_trouble(task), []).append(task)
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))
    lines: list[str] = []
    for why, group in largest[:_GROUPS_MAX]:
        lines += [*_group_lines(why, group), *_where_to_look(group[0], tail)]
    rest = sum(len(group) for _, group in largest[_GROUPS_MAX:])
    return [*lines, f"  and {plural(rest, 'task')} more"] if rest else lines


def _trouble(task: TaskView) -> str:
    """Return what is wrong with a task: where it is, how it ended, and the reason if that says more."""
    where = task.phase or state_text(task.state, task.outcome)
    if not is_trouble(task):
        where = f"{where} again after {plural(task.restarts, 'restart')}"
    ended = "" if f"exit code {task.exit_code}" in task.reason else last_exit(task)
    words = [word for word in (where, ended) if word and word not in task.reason]
    return ", ".join([*words, task.reason] if task.reason else words)


def _group_lines(why: str, tasks: Sequence[TaskView]) -> list[str]:
    who = f"{tasks[0].job}/{show_indexes(task.index for task in tasks)}"
    return [f"  {safe(who)} ({plural(len(tasks), 'task')}): {safe(why)}"]


def _where_to_look(task: TaskView, tail: Callable[[TaskView], Sequence[str]]) -> list[str]:
    if task.pid is None and not last_exit(task):
        return [f"    hint: borgctl why {safe(task.name)}"]  # it never ran, so it wrote nothing
    output = [f"    | {line}" for line in tail(task)] if last_exit(task) else []
    options = " --incoming" * _is_incoming(task) + " --previous" * _runs_again(task)
    return [*output, f"    hint: borgctl task logs {safe(task.name)}{options}"]


def _runs_again(task: TaskView) -> bool:
    """Whether a program of the task began, or is about to, since the one that ended."""
    return task.restarts > 0 and task.phase in (Phase.STARTING, Phase.UP, Phase.HEALTHY)
