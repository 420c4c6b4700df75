"""One machine as the API shows it."""

from collections.abc import Iterator
from itertools import islice

from borgish.api.views.tally import Tally
from borgish.cell.machines.drains import Drains, drain_words, ending, is_drained
from borgish.cell.model import Cell, Drain, Machine, task_count
from borgish.cell.observed import Observed, SeenMachine
from borgish.clock import Now
from borgish.text import instant, show_indexes, span
from borgish.vocabulary import MachineState, Phase
from borgish.wire.api import DrainView, MachineView, TaintView, UsageView
from borgish.wire.api_figures import RackView

STAYING_SHOWN = 10
_NEVER_HEARD = SeenMachine()


def machine_view(
    cell: Cell, observed: Observed, tally: Tally, machine: Machine, now: Now, drains: Drains | None = None
) -> MachineView:
    """Return one machine, complete. ``drains``: one for all machines of a list."""
    seen = observed.machines.get(machine.name, _NEVER_HEARD)
    return MachineView(
        name=machine.name,
        state=shown_state(cell, observed, machine),
        address=_address(machine),
        capacity=machine.capacity,
        committed=tally.committed(cell, machine.name),
        usage=_usage(seen) if observed.known else None,
        tasks=len(cell.placed.get(machine.name, ())),
        attributes=machine.attributes,
        runtimes=tuple(machine.runtimes),
        conditions=_conditions(seen),
        heard_seconds_ago=round(max(0.0, now.mono - seen.heard), 3) if seen.heard else None,
        joined_at=instant(machine.joined_at),
        reason=_reason(cell, machine, seen, now),
        orphans=tuple(f"{task}@{attempt}" for task, attempt in sorted(seen.orphans)),
        taints=tuple(
            TaintView(taint.key, taint.effect, instant(taint.since), taint.value) for taint in machine.taints
        ),
        answering=seen.is_answering and not machine.revoked_at,
        generation=machine.generation,
        drains=tuple(map(_drain, machine.drains)),
        staying=tuple(_staying(cell, observed, machine, drains or Drains(cell, observed, now))),
        ending=ending(cell, observed, machine) if machine.is_draining else 0,
        incoming=len(cell.arriving.get(machine.name, ())),
        confinement=seen.confinement,
    )


def shown_state(cell: Cell, observed: Observed, machine: Machine) -> MachineState:
    """Return the state of a machine, and whether one that is drained is empty by now."""
    state = machine_state(machine)
    if state is MachineState.DRAINING and is_drained(cell, observed, machine):
        return MachineState.DRAINED
    return state


def machine_state(machine: Machine) -> MachineState:
    """Return the state of a machine, as far as it is journalled."""
    if machine.revoked_at:
        return MachineState.REVOKED
    if not machine.up:
        return MachineState.DOWN
    if machine.is_draining:
        return MachineState.DRAINING
    if machine.cordoned:
        return MachineState.CORDONED
    return MachineState.QUARANTINED if machine.quarantined_until else MachineState.UP


def machine_texts(cell: Cell, observed: Observed, machine: Machine, now: Now) -> tuple[str, ...]:
    """Return the name of a machine and what is shown of why it is as it is."""
    seen = observed.machines.get(machine.name, _NEVER_HEARD)
    return machine.name, _reason(cell, machine, seen, now), *_conditions(seen)


def machine_rank(observed: Observed, tally: Tally, machine: Machine) -> tuple[bool, float]:
    """Return where a machine stands: those that need a look are first, of both the fullest."""
    return not has_trouble(machine, observed), -tally.fullness(machine.name)


def rack_views(cell: Cell, observed: Observed, tally: Tally) -> tuple[RackView, ...]:
    """Return all machines by their rack, both by name. 10,000 of them take some 15 ms."""
    tally.fill(cell, observed)
    racks: dict[str, list[Machine]] = {}
    for name in sorted(cell.machines):
        machine = cell.machines[name]
        racks.setdefault(machine.attributes.get("rack", ""), []).append(machine)
    quiet = set(silent(observed))
    return tuple(
        RackView(
            rack,
            tuple(machine.name for machine in machines),
            tuple(
                "silent" if machine.up and machine.name in quiet else machine_state(machine)
                for machine in machines
            ),
            tuple(round(100 * tally.fullness(machine.name)) for machine in machines),
        )
        for rack, machines in sorted(racks.items())
    )


def has_trouble(machine: Machine, observed: Observed) -> bool:
    """Return whether a person should look at this machine."""
    seen = observed.machines.get(machine.name, _NEVER_HEARD)
    is_odd = seen.has_unkillable or bool(seen.conditions or seen.orphans)
    return machine_state(machine) is not MachineState.UP or not seen.is_answering or is_odd


def silent(observed: Observed) -> Iterator[str]:
    """Yield the machines that answered none of their last polls."""
    # By what costs least first: it is asked of each machine, and few miss any.
    return (name for name, seen in observed.machines.items() if seen.misses and not seen.is_answering)


def _conditions(seen: SeenMachine) -> tuple[str, ...]:
    return (*seen.conditions, *_unkillable(seen))


def _unkillable(seen: SeenMachine) -> Iterator[str]:
    """Yield a condition for each program that cannot be killed. Nothing new is placed beside one."""
    for (task, attempt), each in sorted(seen.attempts.items()) if seen.has_unkillable else ():
        if each.phase is Phase.UNKILLABLE and each.ended is None:
            yield f"unkillable: {task}@{attempt}: {each.reason}"


def drained_text(cell: Cell, machine: Machine) -> str:
    """Return why a machine is drained, and what is left; "" for one that is not."""
    begun = [drain_words(drain) for drain in machine.drains if drain.begun]
    placed = len(cell.placed[machine.name])
    return "; ".join([*begun, f"{task_count(placed)} left" if placed else "nothing left"] if begun else [])


def _drain(drain: Drain) -> DrainView:
    window = drain.window
    return DrainView(
        text=drain_words(drain),
        by=drain.by,
        at=instant(drain.at),
        deadline=instant(drain.deadline),
        begun=drain.begun,
        reason=drain.reason,
        force=drain.force,
        begins=instant(window.begins) if window else "",
        ends=instant(window.ends) if window else "",
    )


def _staying(cell: Cell, observed: Observed, machine: Machine, drains: Drains) -> Iterator[str]:
    """Yield which tasks do not leave yet, and why; those that stay alike together."""
    if not (machine.is_draining and observed.known):
        return
    if not machine.up:
        if cell.placed[machine.name]:
            yield "the machine is down: what it holds moves when it is given up"
        return
    alike: dict[tuple[str, str], list[int]] = {}
    for each in drains.leaving(machine):
        if each.why:
            alike.setdefault((each.job, each.why), []).append(each.index)
    for (job, why), indexes in islice(alike.items(), STAYING_SHOWN):
        yield f"{job}/{show_indexes(indexes)}: {why}"
    if len(alike) > STAYING_SHOWN:
        yield f"and {len(alike) - STAYING_SHOWN} more"


def _reason(cell: Cell, machine: Machine, seen: SeenMachine, now: Now) -> str:
    """Return why it is down, drained, cordoned or quarantined, and what is wrong with its answers before it
    counts as down."""
    reasons = [text for text in (machine.reason, drained_text(cell, machine)) if text]
    if machine.quarantined_until:
        until = instant(machine.quarantined_until)
        reasons.append(f"it went down again and again: nothing new until {until}")
    if not machine.up or seen.is_answering:
        return "; ".join(reasons) or seen.trouble
    return "; ".join([*reasons, f"not answering for {span(now.mono - seen.answered)} ({seen.trouble})"])


def _address(machine: Machine) -> str:
    host = f"[{machine.host}]" if ":" in machine.host else machine.host
    return f"{'https' if machine.tls else 'http'}://{host}:{machine.port}"


def _usage(seen: SeenMachine) -> UsageView:
    return UsageView(sum(cpu for cpu, _ in seen.usage.values()), sum(ram for _, ram in seen.usage.values()))
