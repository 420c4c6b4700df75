"""What must hold of a cell after every step, whatever happened. For the simulator and for tests.

Among it: no machine is overcommitted. Each check yields one sentence for each thing wrong; a sound cell
yields none.
"""

from collections.abc import Iterator

from borgish.cell.apps.links import Links
from borgish.cell.crons.model import Due, runs_of
from borgish.cell.limits.footprint import Footprint
from borgish.cell.limits.quotas import Demand
from borgish.cell.model import Cell, Job, Task
from borgish.cell.swept import Swept
from borgish.cell.tasks.allocs import is_alloc_set
from borgish.cell.tasks.failing import AVOIDED_MAX
from borgish.resources import DEVICE_MILLIS, Resources
from borgish.vocabulary import FAILURES, Ending, State, task_name


def violations(cell: Cell) -> list[str]:
    """Return everything that is wrong with a cell, in words."""
    return [text for check in CHECKS for text in check(cell)]


def tasks_fill_their_jobs(cell: Cell) -> Iterator[str]:
    """Each job has exactly its tasks, and its counts are those of its tasks."""
    for key, job in cell.jobs.items():
        if [task.index for task in job.tasks] != list(range(job.spec.tasks)):
            yield f"{key} wants {job.spec.tasks} tasks and has {len(job.tasks)}"
        counts = (job.pending, job.running, job.dead, job.finished, job.failed)
        if counts != (true := _counts(job)):
            yield f"{key} counts {counts}, not {true}"
    if vars(cell.swept) != vars(Swept(cell.jobs)):
        yield "the index of jobs that reconcilers look at does not follow from the jobs"


def _counts(job: Job) -> tuple[int, int, int, int, int]:
    states = [task.state for task in job.tasks]
    endings = [task.ending for task in job.tasks if task.state is State.DEAD]
    finished, failed = endings.count(Ending.FINISH), sum(ending in FAILURES for ending in endings)
    return states.count(State.PENDING), states.count(State.RUNNING), len(endings), finished, failed


def indexes_follow_records(cell: Cell) -> Iterator[str]:
    """What is placed and what waits follows from the tasks."""
    placed: dict[str, set[tuple[str, int]]] = {name: set() for name in cell.machines}
    waiting: dict[str, set[int]] = {}
    deferred: dict[str, set[int]] = {}
    for key, job in cell.jobs.items():
        for task in job.tasks:
            if task.state is State.RUNNING:
                placed.setdefault(task.machine, set()).add((key, task.index))
            elif task.state is State.PENDING:
                (deferred if _is_deferred(job, task) else waiting).setdefault(key, set()).add(task.index)
    arriving: dict[str, set[tuple[str, int]]] = {}
    for key, handovers in cell.handovers.items():
        for index, handover in handovers.items():
            if handover.attempt:
                arriving.setdefault(handover.machine, set()).add((key, index))
            else:
                waiting.setdefault(key, set()).add(index)
    if arriving != cell.arriving:
        yield "the index of incoming attempts does not follow from the handovers"
    if placed != cell.placed:
        yield "the index of placed tasks does not follow from the tasks"
    if (waiting, deferred) != (cell.waiting, cell.deferred):
        yield "the index of waiting tasks does not follow from the tasks"
    if cell.rolling != {key for key, job in cell.jobs.items() if job.rollout is not None}:
        yield "the index of jobs that lag behind a rollback does not follow from the jobs"


def _is_deferred(job: Job, task: Task) -> bool:
    return job.waits is not None and job.waits.covers(task.index)


def jobs_wait_as_they_are_linked(cell: Cell) -> Iterator[str]:
    """A job that waits names the jobs that it waits for, has tasks that do, and is found by those; one of an
    application is found by it."""
    links = Links(cell.jobs)
    if (links.followers, links.children) != (cell.links.followers, cell.links.children):
        yield "the index of jobs that wait for others, or end with them, does not follow from the jobs"
    if links.of_app != cell.links.of_app:
        yield "the index of the jobs of applications does not follow from the jobs"
    if links.deadlines != cell.links.deadlines:
        yield "the index of deadlines does not follow from the jobs"
    for key, job in cell.jobs.items():
        if job.waits is None:
            continue
        if not job.spec.after or not cell.deferred.get(key):
            yield f"{key} waits for other jobs, and names none or has no task that does"
        for task in job.tasks:
            if task.state is State.RUNNING and job.waits.covers(task.index):
                yield f"{key}/{task.index} runs and waits for other jobs"
            if task.promised and task.index in cell.deferred.get(key, ()):
                yield f"{key}/{task.index} waits for other jobs and has a place promised"


def demand_follows_records(cell: Cell) -> Iterator[str]:
    """The sums of what users ask for, and of what they take up, are those of their records."""
    if Demand(cell.jobs, cell.rules.bands).totals != cell.demand.totals:
        yield "the sums of what users ask for do not follow from the jobs"
    if Footprint(cell.jobs, cell.apps, cell.crons).totals != cell.footprint.totals:
        yield "the sums of what users' records take up do not follow from these"


def running_tasks_have_a_place(cell: Cell) -> Iterator[str]:
    """A running task has an attempt the journal knows, a machine of the cell, and its ports."""
    for key, job, task in _running(cell):
        name = f"{key}/{task.index}"
        if task.attempt <= 0 or cell.is_unknown(task.attempt):
            yield f"{name} runs as attempt {task.attempt}, which journal position {cell.position} has not"
        if task.machine not in cell.machines:
            yield f"{name} runs on {task.machine}, which is not in the cell"
        if len(task.ports) != len(job.spec_of(task).ports):
            yield f"{name} has {len(task.ports)} ports and needs {len(job.spec_of(task).ports)}"


def handovers_are_of_running_services(cell: Cell) -> Iterator[str]:
    """Only what runs of a job that wants it is to be replaced, by an attempt that is later than its own."""
    for key, handovers in cell.handovers.items():
        job = cell.jobs.get(key)
        if job is None or not handovers:
            yield f"{key} has handovers {handovers}"
            continue
        for index, handover in handovers.items():
            name = f"{key}/{index}"
            task = job.tasks[index] if index < len(job.tasks) else None
            if task is None or task.state is not State.RUNNING:
                yield f"{name} is to be replaced and is {task.state if task else 'gone'}"
            elif handover.attempt and handover.attempt <= task.attempt:
                yield f"{name} runs as attempt {task.attempt} and is to be replaced by {handover.attempt}"
            if not job.spec.update.handover or job.spec.exclusive or not job.spec.is_service:
                yield f"{name} is to be replaced, and its job does not want that"


def exclusive_tasks_have_leases(cell: Cell) -> Iterator[str]:
    """What runs of an exclusive job has a lease, so that nothing is placed beside it later."""
    for key, job, task in _running(cell):
        there = cell.leases.get(key, {}).get(task.index, ()) if job.spec.exclusive else None
        if there is not None and all(lease.attempt != task.attempt for lease in there):
            yield f"{key}/{task.index} runs as attempt {task.attempt} and is exclusive, without a lease"


def machines_are_not_overfull(cell: Cell) -> Iterator[str]:
    """The limits of the tasks placed on a machine fit its capacity. What is in an alloc is in its limits."""
    for name, machine in cell.machines.items():
        held = _held(cell, name)
        if not _fits(held, machine.capacity):
            yield f"{name} holds {held}, more than its {machine.capacity}"


def is_overfull(cell: Cell, machine: str) -> bool:
    """Return whether the limits of what is placed on one machine are more than it has."""
    return not _fits(_held(cell, machine), cell.machines[machine].capacity)


def _held(cell: Cell, machine: str) -> Resources:
    held = Resources()
    for key, index in sorted(cell.placed.get(machine, ())):
        job = cell.jobs[key]
        task = job.tasks[index]
        if task.alloc < 0:
            held = held.plus(job.spec_of(task).needs(index))
    for key, index in sorted(cell.arriving.get(machine, ())):
        held = held.plus(cell.jobs[key].spec.needs(index))
    return held


def _fits(held: Resources, capacity: Resources) -> bool:
    return (
        held.cpu_millis <= capacity.cpu_millis
        and held.ram_bytes <= capacity.ram_bytes
        and held.disk_bytes <= capacity.disk_bytes
        and all(amount <= capacity.named.get(name, 0) for name, amount in held.named.items())
        and all(millis <= capacity.devices.get(kind, 0) for kind, millis in held.devices.items())
    )


def tasks_are_where_their_allocs_are(cell: Cell) -> Iterator[str]:
    """What is to run in an alloc set runs in an alloc of it that came first, on its machine."""
    for key, job, task in _running(cell):
        name, inside = f"{key}/{task.index}", job.spec_of(task).inside
        if not inside or task.alloc < 0:
            if inside or task.alloc >= 0:
                yield f"{name} is to run in '{inside}' and is in alloc {task.alloc}"
            continue
        alloc = cell.task(task_name(inside, task.alloc))
        if alloc is None or not is_alloc_set(cell.jobs[inside]):
            yield f"{name} runs in {inside}/{task.alloc}, which is no alloc"
        elif alloc.state is not State.RUNNING or alloc.machine != task.machine:
            yield f"{name} runs on {task.machine} and its alloc is {alloc.state} on {alloc.machine}"
        elif alloc.attempt >= task.attempt:
            yield f"{name} runs as attempt {task.attempt} in an alloc of attempt {alloc.attempt}"


def allocs_are_not_overfull(cell: Cell) -> Iterator[str]:
    """The limits of the tasks in an alloc fit what it reserves."""
    held: dict[tuple[str, int], Resources] = {}
    for _key, job, task in _running(cell):
        if task.alloc >= 0:
            alloc = (job.spec_of(task).inside, task.alloc)
            held[alloc] = held.get(alloc, Resources()).plus(job.spec_of(task).needs(task.index))
    for (key, index), amounts in held.items():
        reserving = cell.task(task_name(key, index))
        reserved = cell.jobs[key].spec_of(reserving).needs(index) if reserving else Resources()
        if not _fits(amounts, reserved):
            yield f"{task_name(key, index)} holds {amounts}, more than its {reserved}"


def devices_are_held_once(cell: Cell) -> Iterator[str]:
    """No device is given away beyond the whole of it; in an alloc, beyond what the alloc has of it."""
    used: dict[tuple[str, str], int] = {}  # by machine or alloc, and device
    there: dict[tuple[str, str], int] = {}
    for key, job, task in _running(cell):
        place = task_name(job.spec_of(task).inside, task.alloc) if task.alloc >= 0 else task.machine
        for device, millis in _devices(job, task):
            used[place, device] = used.get((place, device), 0) + millis
            there.setdefault((task.machine, device), DEVICE_MILLIS)
            if is_alloc_set(job):
                there[task_name(key, task.index), device] = millis
    for (place, device), millis in used.items():
        most = there.get((place, device), 0)
        if millis > most:
            yield f"{millis} thousandths of {device} of {place} are allocated, and it has {most}"


def tasks_have_their_devices(cell: Cell) -> Iterator[str]:
    """A running task has as many devices as it needs: one for a part, else so many whole ones."""
    for key, job, task in _running(cell):
        needs = job.spec_of(task).needs(task.index).devices
        wanted = [kind for kind, millis in needs.items() for _ in range(-(-millis // DEVICE_MILLIS))]
        if sorted(device.partition(":")[0] for device in task.devices) != sorted(wanted):
            yield f"{key}/{task.index} has the devices {task.devices} and needs {needs}"


def _devices(job: Job, task: Task) -> Iterator[tuple[str, int]]:
    """Yield the devices of a task, and how much of each it has."""
    needs = job.spec_of(task).needs(task.index).devices
    for device in task.devices:
        yield device, min(DEVICE_MILLIS, needs.get(device.partition(":")[0], 0))


def promises_are_of_those_who_wait(cell: Cell) -> Iterator[str]:
    """Places are kept for pending tasks only, on machines of the cell, and not in allocs."""
    promised: dict[str, set[tuple[str, int]]] = {}
    for key, job in cell.jobs.items():
        for task in job.tasks:
            if task.promised:
                promised.setdefault(task.promised, set()).add((key, task.index))
                if task.state is not State.PENDING or job.spec.inside or task.promised not in cell.machines:
                    yield f"{key}/{task.index} is {task.state} with a place on {task.promised}"
    if promised != cell.promised:
        yield "the index of promised places does not follow from the tasks"


def ports_are_held_once(cell: Cell) -> Iterator[str]:
    """No port of a machine is given to two running tasks."""
    holders: dict[tuple[str, int], str] = {}
    for key, _job, task in _running(cell):
        name = f"{key}/{task.index}"
        for port in task.ports:
            other = holders.setdefault((task.machine, port), name)
            if other != name:
                yield f"port {port} of {task.machine} is held by {other} and by {name}"


def lost_attempts_are_of_live_tasks(cell: Cell) -> Iterator[str]:
    """Only what runs to completion waits for late results, and only until it has one."""
    for key, job in cell.jobs.items():
        for task in job.tasks:
            if task.lost and (task.state is State.DEAD or job.spec.is_service):
                yield f"{key}/{task.index} is {task.state} and waits for {task.lost}"


def drains_are_kept_once(cell: Cell) -> Iterator[str]:
    """A machine is drained by people for one reason, and has each window once, in order, a person's first."""
    for name, machine in cell.machines.items():
        windows = [drain.window for drain in machine.drains if drain.window is not None]
        kept = [drain.window for drain in machine.drains]
        if kept != [None] * (len(kept) - len(windows)) + sorted(set(windows)) or len(kept) > len(windows) + 1:
            yield f"{name} is drained for {kept}"
        if any(window.ends <= window.begins for window in windows):
            yield f"{name} has a maintenance window that ends before it begins"


def failures_are_of_live_services(cell: Cell) -> Iterator[str]:
    """What is remembered of failures is of live tasks, bounded, and indexed; only jobs of such are held."""
    failing = {key: {task.index for task in job.tasks if task.failed} for key, job in cell.jobs.items()}
    if {key: indexes for key, indexes in failing.items() if indexes} != cell.failing:
        yield "the index of tasks that failed does not follow from the tasks"
    for key, indexes in failing.items():
        job = cell.jobs[key]
        if job.held is not None and not indexes:
            yield f"{key} is held, and none of its tasks failed"
        for task in (job.tasks[index] for index in indexes):
            machines = [each.machine for each in task.failed]
            if task.state is State.DEAD or len(set(machines)) != len(machines) or len(machines) > AVOIDED_MAX:
                yield f"{key}/{task.index} is {task.state} and failed on {machines}"


def crons_follow_records(cell: Cell) -> Iterator[str]:
    """What is due, and whose run a job is, follows from crons and jobs; nothing dealt with is due."""
    runs = runs_of((key, job.cron) for key, job in cell.jobs.items())
    if Due(cell.crons) != cell.due:
        yield "the index of crons that are due does not follow from the crons"
    if runs != cell.runs:
        yield "the index of runs does not follow from the jobs"
    if cell.crowded != {key for key in runs if cell.is_crowded(key)}:
        yield "the index of crons with more runs than they keep does not follow from the jobs"
    for key, cron in cell.crons.items():
        if key != cron.spec.key or (cron.next and (cron.paused or cron.next <= cron.last)):
            yield f"{key} is {cron.state}, was due at {cron.last} and is due at {cron.next}"


def _running(cell: Cell) -> Iterator[tuple[str, Job, Task]]:
    """Yield all that should run: of incoming attempts the tasks as they will be."""
    for key, job in cell.jobs.items():
        for task in job.tasks:
            if task.state is State.RUNNING:
                yield key, job, task
    for key, handovers in cell.handovers.items():
        for index, handover in handovers.items():
            if handover.attempt:
                yield key, cell.jobs[key], handover.task(index)


def jobs_belong_to_applications(cell: Cell) -> Iterator[str]:
    """The application of a job is there, and of the same user."""
    for key, job in cell.jobs.items():
        if job.app and (job.app not in cell.apps or job.app.partition("/")[0] != job.spec.user):
            yield f"{key} belongs to {job.app}, which is not there, or another user's"
    for key, cron in cell.crons.items():
        if cron.app and (cron.app not in cell.apps or cron.app.partition("/")[0] != cron.spec.user):
            yield f"the cron {key} belongs to {cron.app}, which is not there, or another user's"
    for key, app in cell.apps.items():
        if app.key != key or app.spec.key != key or max(app.earlier, default=0) >= app.version:
            yield f"the application {key} is {app.spec.key}, version {app.version} after {[*app.earlier]}"


CHECKS = (
    tasks_fill_their_jobs,
    indexes_follow_records,
    jobs_wait_as_they_are_linked,
    demand_follows_records,
    running_tasks_have_a_place,
    machines_are_not_overfull,
    tasks_are_where_their_allocs_are,
    allocs_are_not_overfull,
    devices_are_held_once,
    tasks_have_their_devices,
    promises_are_of_those_who_wait,
    ports_are_held_once,
    lost_attempts_are_of_live_tasks,
    exclusive_tasks_have_leases,
    handovers_are_of_running_services,
    drains_are_kept_once,
    jobs_belong_to_applications,
    failures_are_of_live_services,
    crons_follow_records,
)
