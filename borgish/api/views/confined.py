"""What does not hold of what is to keep programs from their machines, as each machine reports it."""

from collections.abc import Iterable

from borgish.cell.observed import Observed
from borgish.spec.job import JobSpec
from borgish.vocabulary import HELD, PROGRAM_MEASURES, Runtime


def not_held(observed: Observed, spec: JobSpec, machine: str) -> tuple[str, ...]:
    """Return each measure that does not hold for a job's programs on a machine, with the reason. None is told
    of containers, which their engine confines, nor of a machine that was not heard yet."""
    seen = observed.machines.get(machine)
    if seen is None or spec.runtime is not Runtime.PROCESS:
        return ()
    told = seen.confinement
    return tuple(f"{name}: {told[name]}" for name in PROGRAM_MEASURES if told.get(name, HELD) != HELD)


def not_held_on(observed: Observed, spec: JobSpec, machines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the same for several machines by name, where there is something to tell."""
    found = {name: not_held(observed, spec, name) for name in sorted(set(machines))}
    return {name: lines for name, lines in found.items() if lines}
