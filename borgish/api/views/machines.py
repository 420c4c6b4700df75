"""One machine as the API shows it."""

from collections.abc import Iterator

from borgish.api.views.tally import Tally
from borgish.cell.model import Cell, Machine
from borgish.cell.observed import Observed, SeenMachine
from borgish.clock import Now
from borgish.text import instant, span
from borgish.vocabulary import Phase
from borgish.wire.api import MachineView, TaintView, UsageView

_NEVER_HEARD = SeenMachine()


def machine_view(cell: Cell, observed: Observed, tally: Tally, machine: Machine, now: Now) -> MachineView:
    """Return one machine, complete."""
    seen = observed.machines.get(machine.name, _NEVER_HEARD)
    return MachineView(
        name=machine.name,
        state=machine_state(machine),
        address=_address(machine),
        capacity=machine.capacity,
        committed=tally.machine(cell, observed, machine.name).committed,
        usage=_usage(seen) if observed.known else None,
        tasks=len(cell.placed.get(machine.name, ())),
        attributes=machine.attributes,
        runtimes=tuple(machine.runtimes),
        conditions=(*seen.conditions, *_unkillable(seen)),
        heard_seconds_ago=round(max(0.0, now.mono - seen.heard), 3) if seen.heard else None,
        joined_at=instant(machine.joined_at),
        reason=_reason(machine, seen, now),
        orphans=tuple(f"{task}@{attempt}" for task, attempt in sorted(seen.orphans)),
        taints=tuple(
            TaintView(taint.key, taint.effect, instant(taint.since), taint.value) for taint in machine.taints
        ),
        answering=seen.is_answering,
        generation=machine.generation,
    )


def machine_state(machine: Machine) -> str:
    """Return ``down``, ``cordoned``, ``quarantined`` or ``up``."""
    if not machine.up:
        return "down"
    if machine.cordoned:
        return "cordoned"
    return "quarantined" if machine.quarantined_until else "up"


def has_trouble(machine: Machine, observed: Observed) -> bool:
    """Return whether a person should look at this machine."""
    seen = observed.machines.get(machine.name, _NEVER_HEARD)
    is_odd = seen.has_unkillable or bool(seen.conditions or seen.orphans)
    return machine_state(machine) != "up" or not seen.is_answering or is_odd


def is_answering(machine: Machine, observed: Observed) -> bool:
    """Return whether a machine answered one of its last polls, or was not polled yet."""
    return observed.machines.get(machine.name, _NEVER_HEARD).is_answering


def _unkillable(seen: SeenMachine) -> Iterator[str]:
    """Yield a condition for each program that cannot be killed. Nothing new is placed beside one."""
    for (task, attempt), each in sorted(seen.attempts.items()) if seen.has_unkillable else ():
        if each.phase is Phase.UNKILLABLE and each.ended is None:
            yield f"unkillable: {task}@{attempt}: {each.reason}"


def _reason(machine: Machine, seen: SeenMachine, now: Now) -> str:
    """Return why it is down, cordoned or quarantined, and what is wrong with its answers before it counts as
    down."""
    reasons = [machine.reason] * bool(machine.reason)
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
