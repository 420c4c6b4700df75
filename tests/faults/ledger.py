"""What people asked of a cell and what they were told, written down by themselves.

Nobody asks the master what it thinks: the journal on disk is judged by this. Each client has things of
its own, a job, an application or a machine, and does one thing after the other, so that all of it is known
but the outcome of the one request that was cut off.
"""

import json
import random
from typing import Any, Generic, TypeVar

import msgspec

from borgish.ids import new_request_id

TASKS_MAX = 6
MEMBER_TASKS_MAX = 3  # of a job of an application
JOB = """\
name: {name}
tasks: {tasks}
runtime: fake
run: [serve]
resources: {{cpu: 10m, ram: 8MiB, disk: 1MiB}}
"""
MEMBER = JOB + 'env: {{RELEASE: "{release}"}}\nupdate: {{settle: 0s, at_a_time: 3}}\n'
CRON = """\
kind: cron
name: {name}
schedule: "{schedule}"
runtime: fake
run: [serve]
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


class Member(msgspec.Struct, frozen=True):
    """A job of an application as it is. ``app`` is whose it is."""

    app: str
    tasks: int  # that are alive
    release: str


class AppState(msgspec.Struct, frozen=True):
    """What there is of an application: its jobs by their names in it, and when its cron is due; "": none."""

    version: int = 0  # 0: it is not there
    jobs: dict[str, Member] = {}
    schedule: str = ""


class AppOwner(_Owner[AppState]):
    """Applies an application of its own again and again, and knows what has to be there of it.

    Its first job is another each time. Of the others, which start after it, some are as well, and some are
    left out: those end where it prunes. Now and then one of the jobs is refused, and nothing may change.
    """

    JOBS = ("first", "second", "third")
    REFUSED_EACH = 4

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.key = f"ann/{name}"
        self.cron = f"{self.key}-tick"
        self.jobs = {job: f"{self.key}-{job}" for job in self.JOBS}
        self.wanted: dict[str, AppState] = {}  # by request id: what each apply leads to; none where refused
        super().__init__(AppState())
        self._chance = chance

    def next_request(self) -> Request:
        """Return what is asked next; it goes by what the last answer left behind."""
        self.before, number, chance = self.after, len(self.asked) + 1, self._chance
        named = {job: self._member(job, number) for job in ("first", *self._some_others())}
        schedule = f"{number % 60} 4 1 1 *" if chance.random() < 0.6 else ""
        prune, is_refused = chance.random() < 0.4, number % self.REFUSED_EACH == 0
        request = Request("/v1/apply", self._body(named, schedule, prune=prune, is_refused=is_refused))
        if not is_refused:
            kept = AppState() if prune else self.before
            self.after = AppState(self.before.version + 1, kept.jobs | named, schedule or kept.schedule)
            self.wanted[request.request_id] = self.after
        self.asked.append(request)
        return request

    def _some_others(self) -> list[str]:
        return self._chance.sample(self.JOBS[1:], self._chance.randint(1, len(self.JOBS) - 1))

    def _member(self, job: str, number: int) -> Member:
        before = self.before.jobs.get(job)
        if before is not None and job != "first" and self._chance.random() < 0.5:
            return before
        return Member(self.key, self._chance.randint(1, MEMBER_TASKS_MAX), str(number))

    def _body(self, named: dict[str, Member], schedule: str, *, prune: bool, is_refused: bool) -> bytes:
        texts = [CRON.format(name=f"{self.name}-tick", schedule=schedule)] if schedule else []
        for job, member in named.items():
            text = MEMBER.format(name=f"{self.name}-{job}", tasks=member.tasks, release=member.release)
            after = f"after: [{{job: {self.name}-first, until: up}}]\n" if job != "first" else ""
            texts.append(text + after)
        texts[-1] += "in: nowhere\n" * is_refused
        return json.dumps(
            {
                "sources": [{"name": "app.yaml", "text": "---\n".join(texts)}],
                "app": self.name,
                "user": "ann",
                "prune": prune,
                "max_affected": MEMBER_TASKS_MAX * len(self.JOBS),
            }
        ).encode()


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


Owner = JobOwner | AppOwner | MachineOwner | Keeper
