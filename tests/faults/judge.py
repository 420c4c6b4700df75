"""Judges a store by what people were told: nothing lost, nothing twice, nothing by half.

It reads the database of a master that is dead, the clients' own ledgers, and what the machines did.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from borgish.cell.apply import apply_entry
from borgish.cell.events import Entry, TasksPlaced
from borgish.cell.invariants import violations
from borgish.cell.model import Cell, Job, Snapshot
from borgish.errors import BorgishError
from borgish.store.checkpoints import verified_snapshot
from borgish.store.codec import encode_snapshot
from borgish.store.open import open_store
from borgish.store.sql import SqlStore
from borgish.store.tables import differences
from borgish.vocabulary import State, task_name
from tests.faults.ledger import AppOwner, AppState, JobOwner, Keeper, MachineOwner, Member, Owner, Request
from tests.faults.machines import Machines

CELL = "besieged"


def problems_of(url: str, owners: Iterable[Owner], machines: Machines | None = None) -> list[str]:
    """Return all that is wrong with the store of a cell whose master is dead."""
    store = open_store(url, CELL)
    try:
        return list(_problems(store, list(owners), machines))
    finally:
        store.close()


def _problems(store: SqlStore, owners: list[Owner], machines: Machines | None) -> Iterator[str]:
    cell = store.load()
    entries = list(store.entries(0))
    yield from store.warnings
    yield from violations(cell)
    yield from differences(cell, store.table_rows)
    yield from _journal(entries)
    yield from _replay(store, cell, entries, owners)
    yield from _requests(owners, entries)
    for owner in owners:
        yield from _owned(owner, cell, store)
    if machines is not None:
        yield from _starts(machines, entries)


def _journal(entries: list[Entry]) -> Iterator[str]:
    """Positions have no gap, and no epoch writes after the next one has begun."""
    for earlier, later in pairwise(entries):
        if later.position != earlier.position + 1:
            yield f"entry {later.position} comes after {earlier.position}"
    epochs = [entry.epoch for entry in entries]
    if epochs != sorted(epochs):
        yield "an epoch wrote after a later one had begun"


def _replay(store: SqlStore, cell: Cell, entries: list[Entry], owners: list[Owner]) -> Iterator[str]:
    """The journal from its beginning gives each checkpoint, and the cell, bit for bit. Between any two of its
    entries there is all of an apply, or nothing."""
    kept = {info.position: info for info in store.checkpoints()}
    replayed = Cell(_base(store, entries))
    states = {owner: app_state(replayed, owner) for owner in owners if isinstance(owner, AppOwner)}
    for entry in entries[max(0, replayed.position - entries[0].position + 1) :] if entries else ():
        apply_entry(replayed, entry)
        yield from _applied(states, replayed, entry)
        info = kept.get(entry.position)
        if info is not None:
            try:
                found = verified_snapshot(CELL, *store.checkpoint_body(info.position))
            except BorgishError as error:
                yield f"the checkpoint at {info.position}: {error.message}"
                continue
            if encode_snapshot(found) != _body(replayed):
                yield f"the checkpoint at {info.position} is not what the journal gives"
    if _body(replayed) != _body(cell):
        yield "the journal replayed is not the cell that was loaded"


def _base(store: SqlStore, entries: list[Entry]) -> Snapshot:
    """Return what the journal begins with: nothing, or the checkpoint up to which it was pruned."""
    begins = entries[0].position if entries else 1
    bases = [info.position for info in store.checkpoints() if info.position >= begins - 1]
    return verified_snapshot(CELL, *store.checkpoint_body(bases[-1])) if begins > 1 else Snapshot(CELL)


def _body(cell: Cell) -> bytearray:
    return encode_snapshot(cell.snapshot())


def _applied(states: dict[AppOwner, AppState], cell: Cell, entry: Entry) -> Iterator[str]:
    """An apply leads to all that it is to lead to, and nothing else changes an application."""
    for owner, before in states.items():
        wanted, found = owner.wanted.get(entry.request_id, before), app_state(cell, owner)
        states[owner] = found
        if found != wanted:
            yield f"{owner.key} at {entry.position} ({entry.cause}) is {found} and should be {wanted}"


def _requests(owners: list[Owner], entries: list[Entry]) -> Iterator[str]:
    """Each request is in the journal once at most, and where it was said to be if it was acknowledged."""
    count = Counter(entry.request_id for entry in entries if entry.request_id)
    positions = {entry.request_id: entry.position for entry in entries}
    yield from (f"{rid} is in the journal {times} times" for rid, times in count.items() if times > 1)
    begins = entries[0].position if entries else 1
    for request in _with_ids(owners):
        if request.is_done and request.position < begins:
            continue  # pruned by rule
        found = positions.get(request.request_id, 0)
        if request.is_done and found != request.position:
            yield f"{request.path} was acknowledged at {request.position} and is at {found}"
        if request.status and not request.is_done and found:
            yield f"{request.path} was refused with {request.status} and is at {found}"


def _with_ids(owners: list[Owner]) -> Iterator[Request]:
    """Those whose request id the master remembers: all but those about checkpoints."""
    for owner in owners:
        if not isinstance(owner, Keeper):
            yield from owner.asked


def _owned(owner: Owner, cell: Cell, store: SqlStore) -> Iterator[str]:
    match owner:
        case JobOwner():
            found = job_state(cell, owner.key)
            if found not in owner.possible and not (found is None and _may_be_forgotten(owner)):
                yield f"{owner.key} is {found} and should be one of {owner.possible}"
        case AppOwner():
            state = app_state(cell, owner)
            if state not in owner.possible:
                yield f"{owner.key} is {state} and should be one of {owner.possible}"
            yield from _refused(owner)
        case MachineOwner():
            machine = cell.machines.get(owner.machine)
            if (machine is not None and machine.cordoned) not in owner.possible:
                yield f"{owner.machine} is cordoned or not, other than one of {owner.possible}"
        case Keeper():
            yield from _named(owner.named, store)


def job_state(cell: Cell, key: str) -> dict[int, bool] | None:
    """Return which tasks of a job are alive; None when there is no such job."""
    job = cell.jobs.get(key)
    return None if job is None else {task.index: task.state is not State.DEAD for task in job.tasks}


def app_state(cell: Cell, owner: AppOwner) -> AppState:
    """Return what there is of an application, and of jobs that it should have left."""
    app, cron = cell.apps.get(owner.key), cell.crons.get(owner.cron)
    found = ((name, cell.jobs.get(key)) for name, key in owner.jobs.items())
    jobs = {name: _member(job) for name, job in found if job and (job.app or job.state is not State.DEAD)}
    return AppState(app.version if app else 0, jobs, cron.spec.schedule if cron else "")


def _member(job: Job) -> Member:
    alive = sum(task.state is not State.DEAD for task in job.tasks[: job.tasks_wanted])
    return Member(job.app, alive, job.spec.env.get("RELEASE", ""))


def _refused(owner: AppOwner) -> Iterator[str]:
    """Those applies were refused that have a job which is, and no others."""
    for request in list(owner.asked):
        if request.status and request.is_done != (request.request_id in owner.wanted):
            yield f"an apply of {owner.key} was answered {request.status}: {request.body!r}"


def _may_be_forgotten(owner: JobOwner) -> bool:
    """Whether all of its tasks may be dead: such a job is not kept for ever."""
    return any(state and not any(state.values()) for state in owner.possible)


def _named(named: Mapping[int, str], store: SqlStore) -> Iterator[str]:
    kept = {info.position: info.name for info in store.checkpoints()}
    for position, name in dict(named).items():  # its client may take in a last answer meanwhile
        if kept.get(position) != name:
            yield f"the checkpoint '{name}' at {position} is gone, or is {kept.get(position)!r}"


def _starts(machines: Machines, entries: list[Entry]) -> Iterator[str]:
    """What was started was placed there, durably, and was started once."""
    placed = {place for entry in entries for place in _placed(entry)}
    begins = entries[0].position if entries else 1
    for name, borglet in machines.borglets.items():
        for (task, attempt), times in list(borglet.starts.items()):
            if attempt >= begins and (name, task, attempt) not in placed:
                yield f"{task}@{attempt} was started on {name} and never placed there"
            if times != 1:
                yield f"{task}@{attempt} was started {times} times on {name}"


def _placed(entry: Entry) -> Iterator[tuple[str, str, int]]:
    for event in entry.events:
        if isinstance(event, TasksPlaced):
            for index, machine in zip(event.indexes, event.machines, strict=True):
                yield machine, task_name(event.job, index), entry.position


def wrongly_running(url: str, machines: Machines) -> list[str]:
    """Return where what runs is not what should run, at rest: no attempt too few, none too many."""
    store = open_store(url, CELL)
    try:
        cell = store.load()
    finally:
        store.close()
    running = machines.running()
    found = []
    for name, placed in cell.placed.items():
        wanted = {(task_name(key, index), cell.jobs[key].tasks[index].attempt) for key, index in placed}
        if wanted != running[name]:
            found.append(f"{name} runs {sorted(running[name])} and should run {sorted(wanted)}")
    return found
