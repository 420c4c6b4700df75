"""The client for scripts: ``from borgish import Client``.

    from borgish import Client

    with Client() as cell:  # the cell that borgctl would mean here
        cell.submit(open("web.yaml").read(), user="ann")
        cell.wait("ann/web")
        for task in cell.tasks("ann/web"):
            print(task.name, task.machine, task.ports)

Names are full names: user/job and user/job/index. What methods return are the shapes of the API, of
``borgish.wire.api``: structs, with the fields that ``borgctl ... -o json`` shows. What goes wrong is an error
of ``borgish.errors``, each with a ``message`` and a ``hint``: Unreachable where nobody answers in time,
NotFound, Conflict, Invalid with its mistakes, Unauthenticated, Forbidden, TooManyRequests. A client is for
one thread at a time; ``watch`` and ``logs`` have connections of their own, so other calls may be made while
they are read.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from borgish import client as http
from borgish.client import Message, Params
from borgish.scripting import calls
from borgish.scripting.calls import Call, Course
from borgish.wire.api import Accepted, EventView, JobDetail, JobView, MachineView, StatusView, TaskView

T = TypeVar("T")

TIMEOUT_SECONDS = 30.0


def found_client(
    url: str, token: str, ca: str, folder: str | os.PathLike[str] | None, timeout_seconds: float
) -> http.Client:
    """Return the HTTP client of the cell that is meant; see ``Client``."""
    from borgish.cli.session import Session

    if url and token:
        return http.Client(url, token, ca, timeout_seconds)
    named = url or (
        os.environ.get("BORGISH_MASTER") or os.environ.get("BORGISH_URL", "") if not folder else ""
    )
    token_file = os.environ.get("BORGISH_TOKEN_FILE") if not folder else None
    found = Session(Path(folder) if folder else None, named, Path(token_file) if token_file else None)
    client = found.client(timeout_seconds)
    return client.with_token(token, "what was given") if token else client


class Client:
    """A cell, for a script that waits for each answer."""

    def __init__(
        self,
        url: str = "",
        token: str = "",
        ca: str = "",
        *,
        folder: str | os.PathLike[str] | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        """``url`` is the borgmaster's, or several with commas, ``ca`` the file of the authority that signs
        it. Without it the cell is that in ``folder``, else the one that borgctl means: BORGISH_MASTER with
        BORGISH_TOKEN_FILE, BORGISH_DIR, the one that was logged in to, the nearest .borgish. Raises
        Unreachable where there is none."""
        self.http = found_client(url, token, ca, folder, timeout_seconds)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection that is kept. The next call makes a new one."""
        self.http.close()

    def status(self) -> StatusView:
        """Return the cell at one glance."""
        return self._do(calls.status())

    def jobs(self) -> list[JobView]:
        """Return all jobs, by name."""
        return self._do(calls.jobs())

    def job(self, name: str) -> JobDetail:
        """Return one job: its view, its specification, what is in its way. Raises NotFound."""
        return self._do(calls.job(name))

    def tasks(self, job: str = "", *, machine: str = "", state: str = "") -> list[TaskView]:
        """Return all tasks, or those of a job, on a machine, in a state: pending, running or dead."""
        return self._do(calls.tasks(job, machine, state))

    def task(self, name: str) -> TaskView:
        """Return one task. Raises NotFound."""
        return self._do(calls.task(name))

    def machines(self) -> list[MachineView]:
        """Return all machines, by name."""
        return self._do(calls.machines())

    def events(self, job: str = "", *, task: str = "", after: int = 0, limit: int = 100) -> list[EventView]:
        """Return the latest events, at most ``limit`` (1 to 1000), the latest last: of a job or of a task,
        and of those above a position of the journal."""
        return self._do(calls.events(job, task, after, limit))

    def submit(self, text: str | bytes, *, user: str = "") -> Accepted:
        """Submit a job file, YAML or JSON, and return as soon as it is accepted. ``user`` is whose it is
        where the file does not say. Raises Invalid with all mistakes."""
        return self._do(calls.submit(text, user))

    def kill(
        self, job: str, indexes: tuple[int, ...] | None = None, *, max_affected: int | None = None
    ) -> Accepted:
        """End tasks of a job for good, all of them where ``indexes`` is None. ``max_affected`` allows so many
        running ones to be stopped by it; without it few are."""
        return self._do(calls.kill(job, indexes, max_affected))

    def restart(self, job: str, indexes: tuple[int, ...] | None = None) -> Accepted:
        """Give tasks a fresh attempt, a few at a time within the budgets of the job."""
        return self._do(calls.restart(job, indexes))

    def scale(self, job: str, tasks: int, *, max_affected: int | None = None) -> Accepted:
        """Give a job so many tasks. Those too many, the last ones, are stopped and gone."""
        return self._do(calls.scale(job, tasks, max_affected))

    def wait(self, job: str, until: str = "up", *, timeout_seconds: float = 60.0) -> JobDetail:
        """Return a job once it is ``up``, ``dead`` or ``finished``. Raises TimeoutError, and BorgishError
        where it cannot become so any more."""
        return self._do(calls.wait(job, until, timeout_seconds))

    def watch(self, kinds: str = "event", *, job: str = "", last_id: str = "") -> Iterator[Message]:
        """Yield what happens as it happens: ``event``, ``tasks``, ``summary``, or several with commas. The
        ``id`` of a message resumes after it; ``data`` is JSON. Ends when the master does. Raises Gone."""
        return self.http.watch({"kinds": kinds, "job": job}, last_id)

    def logs(
        self, task: str, *, follow: bool = False, tail: int = 0, previous: bool = False, program: str = ""
    ) -> Iterator[bytes]:
        """Yield what a task wrote in pieces, not lines; with ``tail`` from its last lines on. With ``follow``
        until the program ends."""
        params = log_params(follow=follow, tail=tail, previous=previous, program=program)
        return self.http.stream(f"{calls.task_path(task)}/logs", params)

    def _do(self, course: Course[T]) -> T:
        answer: object = None
        while True:
            try:
                step = course.send(answer)
            except StopIteration as done:
                value: T = done.value
                return value
            if isinstance(step, Call):
                answer = self._ask(step)
            else:
                time.sleep(step.seconds)
                answer = None

    def _ask(self, call: Call) -> object:
        if call.method == "GET":
            return self.http.get(call.path, call.params, call.answer)
        return self.http.post(
            call.path, call.body, call.answer, params=call.params, content_type=call.content_type
        )


def log_params(*, follow: bool, tail: int, previous: bool, program: str) -> Params:
    """Return how the API is asked for output."""
    return {"follow": follow, "tail": tail, "previous": previous, "program": program}
