"""What must hold, judged by what truly happened: the disk, the programs, and the answers clients got.

Nothing here asks the master what it thinks.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set

from borgish.cell.apps.order import waits_for_update
from borgish.cell.events import (
    AnyEvent,
    Entry,
    MachineDrained,
    MachineJoined,
    RolledBack,
    TasksEvicted,
    TasksHandedOver,
    TasksPlaced,
)
from borgish.cell.limits.availability import live_tasks
from borgish.cell.model import Cell, Drain, Job, Task
from borgish.cell.tasks.allocs import inside, is_alloc_set
from borgish.cell.updates.handover import may_take_over
from borgish.sim.loop import VirtualLoop
from borgish.sim.machines import Machine
from borgish.sim.masters import MasterHost
from borgish.sim.runtime import Watcher
from borgish.sim.store import SimStore
from borgish.sim.workload import Call
from borgish.spec.job import JobSpec
from borgish.spec.substitute import render
from borgish.store.memory import MemoryStore
from borgish.vocabulary import Ending, Eviction, RestartPolicy, State, task_name
from borgish.wire.link import AttemptSpec, attempt_key, main_key, split_attempt_key

GOOD_RUN_SECONDS, BACKOFF_SECONDS_MAX = 600.0, 300.0
REACHABLE_SECONDS = 10.0
"""A machine that could be reached for so long, has lost nothing."""
STOPPED_SECONDS = 15.0
"""What is stopped has ended so long after its grace."""


class Checker(Watcher):
    """Checks every start and stop as it is done, and what is declared lost."""

    def __init__(self, clock: VirtualLoop) -> None:
        self._clock = clock
        self.problems: list[str] = []
        self.starts = 0
        self.stops = 0
        self.store: SimStore | None = None
        self.master: Callable[[], MasterHost]  # that leads, or did
        self.machines: Mapping[str, Machine] = {}
        self._on: dict[str, str] = {}  # tasks on the disk, and the machines they were last placed on
        self._incoming: dict[str, str] = {}  # tasks, and the machines of their last incoming attempts
        self._placed: dict[str, str] = {}  # attempts on the disk, and their machines
        self._drains: dict[str, tuple[Drain, ...]] = {}  # of machines on the disk
        self._read = 0
        self._ends: dict[str, int] = {}  # in a row, of each attempt's main program
        self._stopping: set[tuple[str, int, str]] = set()  # runs that were asked to end, by which borglet

    def starting(self, machine: str, spec: AttemptSpec) -> None:
        """A start is of an attempt that is on the disk, placed on this machine; none of its programs is left
        from before when its main one begins."""
        self.starts += 1
        self._read_on()
        if self._placed.get(main_key(spec.key)) != machine:
            self.problems.append(f"{spec.key} is started on {machine} and was never placed there")
        if spec.key in self.machines[machine].programs.forgotten:
            self.problems.append(f"{spec.key} is started again on {machine}, which had let go of it")
        if spec.lease_seconds:
            self._judge_exclusive(machine, spec)
        beside = [] if spec.program else self._alive_of(machine, spec.key)
        if beside and spec.key not in beside:  # else it runs already, and this start changes nothing
            self.problems.append(f"{spec.key} is started beside {beside} of its run before")
        if not spec.program:  # others start with their main one
            self._judge_backoff(machine, spec)

    def _judge_exclusive(self, machine: str, spec: AttemptSpec) -> None:
        """Of an exclusive task nothing else runs anywhere, at any moment: no program of another attempt."""
        main = main_key(spec.key)
        for other in self.machines.values():
            for key in other.programs.alive():
                who = split_attempt_key(key)
                if who is not None and who[0] == spec.task and (main_key(key), other.name) != (main, machine):
                    self.problems.append(
                        f"{spec.key} is started on {machine}, and {key} runs on {other.name}: it is exclusive"
                    )

    def _judge_backoff(self, machine: str, spec: AttemptSpec) -> None:
        """After each of its ends in a row a program waits twice as long as before, and a service not at all
        after the first. Starts that failed make it
        wait longer, and are not counted here. Runs are measured by wall clocks: where one was set on
        or back meanwhile, counting begins anew."""
        before = self.machines[machine].programs.by_key.get(spec.key)
        ended = before.state.exit if before else None
        if before is None or ended is None or before.is_signalled or not before.has_true_times:
            self._ends.pop(spec.key, None)
            return
        is_good = before.ended - before.began >= GOOD_RUN_SECONDS
        ends = self._ends[spec.key] = 1 if is_good else self._ends.get(spec.key, 0) + 1
        waits = ends - (spec.restart.policy is RestartPolicy.ALWAYS)
        least = min(spec.restart.backoff_seconds * 2.0 ** (waits - 1), BACKOFF_SECONDS_MAX) if waits else 0.0
        # It counts by its machine's clock.
        waited = (self.master().now().mono - before.ended) * self.machines[machine].clock_rate
        if waited < least - 0.01:
            self.problems.append(f"{spec.key} is started {waited:.2f} s after end {ends} in a row")

    def _alive_of(self, machine: str, main: str) -> list[str]:
        return [key for key in self.machines[machine].programs.alive() if main_key(key) == main]

    def stopping(self, machine: str, key: str) -> None:
        """A stop is of an attempt that should not run any more, or of a program whose main one is gone."""
        self.stops += 1
        self._await_end(self.machines[machine], key)
        core = self.master().core
        main = main_key(key)
        if main != key and main not in self._alive_of(machine, main):
            return
        who = split_attempt_key(key)
        if core is not None and who is not None and core.cell.is_wanted(machine, who[0], who[1]):
            self.problems.append(f"{key} is stopped on {machine} and should run there")

    def _await_end(self, machine: Machine, key: str) -> None:
        """What is asked to end has ended soon after its grace, unless its borglet died or hung meanwhile."""
        program, instance = machine.programs.by_key.get(key), machine.instance
        if program is None or not program.is_alive:
            return
        run = (key, program.state.run, instance)
        if run in self._stopping:
            return
        self._stopping.add(run)
        stops, grace_seconds = len(machine.stopped), program.spec.stop.grace_seconds + STOPPED_SECONDS

        def judge() -> None:
            is_same = (machine.instance, len(machine.stopped)) == (instance, stops)
            is_same = is_same and machine.is_up and not machine.programs.is_hung
            if is_same and machine.programs.by_key.get(key) is program and program.is_alive:
                self.problems.append(f"{key} was asked to end and runs after {grace_seconds:g} s")

        self._clock.after(grace_seconds, judge)

    def _read_on(self) -> None:
        assert self.store is not None
        entries = self.store.reopen().entries(self._read)
        for entry in entries:
            self._read = entry.position
            for event in entry.events:
                self._take_drains(event)
                if isinstance(event, TasksPlaced):
                    self._take_placed(event, entry.position)
                elif isinstance(event, TasksEvicted) and event.cause is Eviction.MACHINE_LOST:
                    self._judge_lost(event, entry)
                self._take_over(event)

    def _take_drains(self, event: AnyEvent) -> None:
        match event:
            case MachineDrained(name, drains):
                self._drains[name] = drains
            case MachineJoined(machine):
                self._drains[machine.name] = machine.drains
            case RolledBack():
                self._drains |= {restored.machine: restored.drains for restored in event.machines}

    def _take_placed(self, event: TasksPlaced, position: int) -> None:
        for index, machine in zip(event.indexes, event.machines, strict=True):
            name = task_name(event.job, index)
            self._placed[attempt_key(name, position)] = machine
            (self._incoming if index in event.incoming else self._on)[name] = machine
            if any(drain.begun for drain in self._drains.get(machine, ())):
                self.problems.append(f"{name} is placed on {machine}, which is drained")

    def _take_over(self, event: AnyEvent) -> None:
        match event:
            case TasksHandedOver(job, indexes) | TasksEvicted(job=job, taken_over=indexes):
                for index in indexes:
                    self._on[task_name(job, index)] = self._incoming[task_name(job, index)]

    def _judge_lost(self, event: TasksEvicted, entry: Entry) -> None:
        """What is lost is on a machine that could not be reached."""
        assert self.store is not None
        at = self.store.sim_disk.decided_at[entry.position]
        for index in event.indexes:
            name = task_name(event.job, index)
            machine = self.machines[self._on[name]]
            if machine.was_reachable(at - REACHABLE_SECONDS, at):
                self.problems.append(f"{name} was declared lost, and {machine.name} could be reached")


def settled_problems(cell: Cell, machines: Mapping[str, Machine]) -> list[str]:
    """Return what is wrong once faults are off and time has passed: is = should be, exactly."""
    wanted = {
        attempt_key(task_name(job.key, task.index), task.attempt, program): task.machine
        for job in cell.jobs.values()
        for task in (*job.tasks, *_incoming(cell, job))
        if task.state is State.RUNNING and not is_alloc_set(job)
        for program in ("", *(each.name for each in job.spec.group))
    }
    true = {key: name for name, machine in sorted(machines.items()) for key in machine.programs.alive()}
    problems = [f"{key} should run on {on} and does not" for key, on in wanted.items() if true.get(key) != on]
    problems += [f"{key} runs on {on} and should not" for key, on in true.items() if key not in wanted]
    problems += [f"{name} is not up" for name, m in cell.machines.items() if not m.up]
    paused = {key for key in cell.rolling if _is_rightly_paused(cell, cell.jobs[key])}
    problems += [f"{job} still lags behind a rollback" for job in sorted(cell.rolling - paused)]
    return [
        *problems,
        *_waiting(cell),
        *_wrong_programs(cell, machines, paused),
        *_wrong_ends(cell, machines),
        *_not_ended(cell),
    ]


def _incoming(cell: Cell, job: Job) -> Iterator[Task]:
    """Yield tasks of a job as they will be when their incoming attempts take over."""
    handovers = cell.handovers.get(job.key, {})
    yield from (handover.task(index) for index, handover in handovers.items() if handover.attempt)


def _is_rightly_paused(cell: Cell, job: Job) -> bool:
    """Return whether a rollout is held for somebody to decide, or people have to decide what goes on: since
    no alloc has room for a task, which uses the budget up, or since an alloc has more in it than the budgets
    of that let go."""
    rollout = job.rollout
    if rollout is not None and (rollout.hold is not None or (rollout.paused and is_alloc_set(job))):
        return True
    if rollout is not None and job.spec.inside and not _has_room(cell, job.spec):
        return True
    if job.key in cell.deferred or waits_for_update(cell, job):
        return True  # what starts after other jobs is down until then
    return rollout is not None and any(_is_used_up(cell, each) for each in cell.members.budgets_of(job.key))


def _is_used_up(cell: Cell, budget: str) -> bool:
    """Return whether tasks for which no alloc has room use a budget up, until somebody does something."""
    jobs = [cell.jobs[key] for key in cell.members.of(budget)]
    waiting = sum(job.pending for job in jobs if job.spec.inside and not _has_room(cell, job.spec))
    waiting += sum(len(cell.deferred.get(job.key, ())) for job in jobs)
    return waiting >= cell.budgets[budget].max_unavailable.of(sum(map(live_tasks, jobs)))


def _waiting(cell: Cell) -> Iterator[str]:
    for job, waiting in sorted(cell.waiting.items()):
        # Where an incoming attempt failed on each machine, another is tried when the time of one is over; of
        # an update that has failed somebody is to decide first.
        handovers = {
            index: handover
            for index, handover in cell.handovers.get(job, {}).items()
            if handover.failed or not may_take_over(cell.jobs[job], handover)
        }
        indexes = [index for index in waiting if index not in handovers]
        spec = cell.jobs[job].spec
        if not indexes:
            continue
        if not spec.inside or _has_room(cell, spec):
            yield f"{job} still waits with {len(indexes)} tasks that would fit"


def _has_room(cell: Cell, spec: JobSpec) -> bool:
    """Return whether some alloc has room for a task of a job that runs inside."""
    allocs = cell.jobs.get(spec.inside)
    if allocs is None or not is_alloc_set(allocs):
        return False
    running = [task.index for task in allocs.tasks if task.state is State.RUNNING]
    return any(
        sum(job.spec_of(task).resources.cpu_millis for job, task in inside(cell, allocs, index))
        <= allocs.spec.resources.cpu_millis - spec.resources.cpu_millis
        for index in running
    )


def _wrong_programs(cell: Cell, machines: Mapping[str, Machine], paused: Set[str]) -> Iterator[str]:
    """What runs was started as its job now specifies; or specified, where a rollback of the job is paused."""
    for job in cell.jobs.values():
        for task in job.tasks:
            if task.state is not State.RUNNING:
                continue
            key = attempt_key(task_name(job.key, task.index), task.attempt)
            program = machines[task.machine].programs.by_key.get(key)
            spec = job.spec_of(task) if job.key in paused else job.spec
            if program and not _is_as_specified(cell, spec, task, program.spec):
                yield f"{key} runs something else than its job specifies"


def _is_as_specified(cell: Cell, spec: JobSpec, task: Task, runs: AttemptSpec) -> bool:
    if (tuple(runs.ports), runs.resources) != (spec.ports, spec.needs(task.index)):
        return False
    made = render(spec, task.index, cell.name, task.machine, task.attempt, runs.ports, runs.devices)
    return runs.run == made.run


def _wrong_ends(cell: Cell, machines: Mapping[str, Machine]) -> Iterator[str]:
    """The exit code that users see is the one the program had, where it can still be asked."""
    for job in cell.jobs.values():
        for task in job.tasks:
            if task.ending not in (Ending.FINISH, Ending.FAIL) or task.machine not in machines:
                continue
            key = attempt_key(task_name(job.key, task.index), task.attempt)
            program = machines[task.machine].programs.by_key.get(key)
            true = program.state.exit if program else None
            if true is not None and true.code != task.exit_code:
                yield f"{key} ended with {true.code} and is recorded to have ended with {task.exit_code}"
            ruled = job.spec.on_exit and _OF_RULES.get(task.exit_code)
            if ruled and task.ending is not ruled:
                yield f"{key} ended with {task.exit_code}, and counts as {task.ending}"


_OF_RULES: dict[int | None, Ending] = {0: Ending.FINISH, 3: Ending.FINISH, 42: Ending.FAIL}
"""What becomes of a task by the rules of ``workload``."""


def _not_ended(cell: Cell) -> Iterator[str]:
    """No job goes on of which more tasks failed than it allows."""
    for job in cell.jobs.values():
        limit, failed = job.spec.max_failures, [task.ending for task in job.tasks].count(Ending.FAIL)
        if limit is not None and failed > limit.of(job.spec.tasks) and job.state is not State.DEAD:
            yield f"{job.key} goes on although {failed} of its {job.spec.tasks} tasks failed: {limit}"


def request_problems(store: MemoryStore, calls: Iterable[Call]) -> list[str]:
    """Return what is wrong with commands by their request ids: each at most once on the disk, and there
    if it was acknowledged, at the position that its client was given.

    The journal is the order in which commands took effect. That it is an order that clients can have seen, so
    that the history is linearizable, takes one thing more: what was asked after something else had been
    answered comes after it.
    """
    positions: dict[str, list[int]] = {}
    for entry in store.reopen().entries(0):
        if entry.request_id:
            positions.setdefault(entry.request_id, []).append(entry.position)
    problems = [f"{rid} is in the journal {len(at)} times" for rid, at in positions.items() if len(at) > 1]
    for call in calls:
        found = positions.get(call.request_id)
        if found is None:
            problems.append(f"{call.request_id} was acknowledged and is not in the journal")
        elif call.position not in found:
            problems.append(f"{call.request_id} is at {found[0]} and was acknowledged at {call.position}")
    return problems + list(_out_of_order(calls))


def _out_of_order(calls: Iterable[Call]) -> Iterator[str]:
    """Yield the commands that took effect before one that had been answered when they were asked."""
    by_answer = deque(sorted(calls, key=lambda call: call.answered_at))
    latest: Call | None = None  # in the journal, of those answered before the next one was asked
    for call in sorted(calls, key=lambda call: call.asked_at):
        while by_answer and by_answer[0].answered_at < call.asked_at:
            before = by_answer.popleft()
            latest = before if latest is None or before.position > latest.position else latest
        if latest is not None and call.position < latest.position:
            yield f"{call.request_id} was asked after {latest.request_id} was answered, and comes before it"
