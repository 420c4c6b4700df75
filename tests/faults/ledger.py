"""What people asked of a cell and what they were told, written down by themselves.

Nobody asks the master what it thinks: the journal on disk is judged by this. Each client has things of
its own, a job or a machine, and does one thing after the other, so that all of it is known but the
outcome of the one request that was cut off.
"""

import json
import random
from typing import Any, Generic, TypeVar

import msgspec

from borgish.ids import new_request_id

TASKS_MAX = 6
JOB = """\
name: {name}
tasks: {tasks}
runtime: fake
run: [serve]
resources: {{cpu: 10m, ram: 8MiB, disk: 1MiB}}
"""

State = dict[int, bool] | None
"""Of a job: by index, whether the task is alive. None: there is no such job."""

Held = TypeVar("Held")


class Request(msgspec.Struct):
    """One thing asked. ``position`` is where it was acknowledged, ``status`` the answer's; 0: not yet."""

    path: str
    body: bytes
    request_id: str = msgspec.field(default_factory=new_request_id)
    status: int = 0
    position: int = 0

    @property
    def is_done(self) -> bool:
        """Whether it was said to be done."""
        return 200 <= self.status < 300


class _Owner(Generic[Held]):
    """Knows how its thing was before the last request, and how it is when that was done."""

    def __init__(self, held: Held) -> None:
        self.asked: list[Request] = []
        self.before = self.after = held

    def answered(self, request: Request) -> None:
        """Take in that a request was answered for good."""
        if request.is_done:
            self.before = self.after
        else:
            self.after = self.before

    @property
    def possible(self) -> list[Held]:
        """How the thing may be: there are two ways while nobody has answered."""
        return [self.before, self.after]


class JobOwner(_Owner[State]):
    """Does one thing after the other to a job of its own, and knows how it must be."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.key = f"ann/{name}"
        super().__init__(None)
        self._chance = chance

    def next_request(self) -> Request:
        """Return what is asked next; it goes by the state that the last answer left behind."""
        self.before = self.after
        path, body, self.after = self._choose()
        request = Request(path, body)
        self.asked.append(request)
        return request

    def _choose(self) -> tuple[str, bytes, State]:
        alive = self.before
        if not alive or not any(alive.values()):
            tasks = self._chance.randint(1, TASKS_MAX)
            text = JOB.format(name=self.name, tasks=tasks)
            return "/v1/jobs?user=ann", text.encode(), dict.fromkeys(range(tasks), True)
        do = self._chance.choice((self._scale, self._scale, self._kill, self._kill_all, self._restart))
        verb, body, state = do(alive)
        return f"/v1/jobs/{self.key}/{verb}", json.dumps(body).encode(), state

    def _scale(self, alive: dict[int, bool]) -> tuple[str, dict[str, Any], State]:
        tasks = self._chance.randint(1, TASKS_MAX)
        return "scale", {"tasks": tasks}, {index: alive.get(index, True) for index in range(tasks)}

    def _kill(self, alive: dict[int, bool]) -> tuple[str, dict[str, Any], State]:
        index = self._chance.randrange(len(alive))
        return "kill", {"indexes": [index]}, alive | {index: False}

    def _kill_all(self, alive: dict[int, bool]) -> tuple[str, dict[str, Any], State]:
        return "kill", {}, dict.fromkeys(alive, False)

    def _restart(self, alive: dict[int, bool]) -> tuple[str, dict[str, Any], State]:
        index = self._chance.randrange(len(alive))
        return "restart", {"indexes": [index]}, alive | {index: True}


class MachineOwner(_Owner[bool]):
    """Cordons a machine of its own and lets it work again: what it knows is whether it is cordoned."""

    def __init__(self, machine: str) -> None:
        super().__init__(held=False)
        self.machine = machine

    def next_request(self) -> Request:
        """Return what is asked next."""
        self.before, self.after = self.after, not self.after
        verb = "cordon" if self.after else "uncordon"
        request = Request(f"/v1/machines/{self.machine}/{verb}", b"{}")
        self.asked.append(request)
        return request


class Keeper:
    """Makes checkpoints, two of three under a name, and deletes the oldest of its named ones."""

    NAMED_MAX = 3

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.named: dict[int, str] = {}  # by position: those that must be there
        self._names = iter(f"n{number}" for number in range(10**6))

    def next_request(self) -> Request:
        """Return what is asked next. Not to be asked again: it has no request id that is remembered."""
        if len(self.named) >= self.NAMED_MAX:
            oldest = min(self.named)
            del self.named[oldest]  # may be there or not, from now on
            request = Request(f"/v1/checkpoints/{oldest}/delete", b"{}")
        else:
            name = "" if len(self.asked) % 3 == 0 else next(self._names)
            request = Request("/v1/checkpoints", json.dumps({"name": name}).encode())
        self.asked.append(request)
        return request

    def answered(self, request: Request) -> None:
        """Take in that a request was answered."""
        name = json.loads(request.body).get("name", "")
        if request.is_done and name:
            self.named[request.position] = name


Owner = JobOwner | MachineOwner | Keeper
