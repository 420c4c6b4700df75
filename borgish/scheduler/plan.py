"""What results from one pass of the scheduler."""

from collections.abc import Iterator, Mapping

import msgspec


class Placement(msgspec.Struct, frozen=True):
    """Tasks of one job and where they go, in parallel tuples. ``ports`` is empty when the job has none."""

    job: str
    indexes: tuple[int, ...]
    machines: tuple[str, ...]
    ports: tuple[tuple[int, ...], ...] = ()
    devices: tuple[tuple[str, ...], ...] = ()  # empty when the job has none
    allocs: tuple[int, ...] = ()  # empty when the job is in no alloc set


class Preemption(msgspec.Struct, frozen=True):
    """Tasks of one job that have to leave for the task named ``preemptor``."""

    job: str
    indexes: tuple[int, ...]
    preemptor: str
    reason: str
    notice_seconds: float = -1.0  # below 0: their own grace


class Promise(msgspec.Struct, frozen=True):
    """Places kept for waiting tasks while those preempted for them leave; "" takes one back."""

    job: str
    indexes: tuple[int, ...]
    machines: tuple[str, ...]


class Refusal(msgspec.Struct, frozen=True):
    """Why some tasks of one job were not placed: per reason, how many machines it rules out.

    A machine is counted under every reason that holds for it. ``text`` is one line for people and
    ``hint`` what change would make a task fit, when one is known. ``impossible``: it can never fit on the
    machines of the cell, not even on empty ones. ``waits_for``: what would let it fit if it came about.
    """

    job: str
    indexes: tuple[int, ...]
    machines: int  # in the cell, in all
    reasons: dict[str, int]
    text: str
    hint: str = ""
    impossible: bool = False
    waits_for: str = ""


class RefusalsByJob(Mapping[str, tuple[Refusal, ...]]):
    """Several mappings as one; of a job what the first of them has. (``collections.ChainMap`` goes through
    all keys before it yields one, and who looks at a cell wants a few of many.)"""

    def __init__(self, *layers: Mapping[str, tuple[Refusal, ...]]) -> None:
        self._layers = layers

    def __getitem__(self, job: str) -> tuple[Refusal, ...]:
        for layer in self._layers:
            if job in layer:
                return layer[job]
        raise KeyError(job)

    def __contains__(self, job: object) -> bool:
        return any(job in layer for layer in self._layers)

    def __iter__(self) -> Iterator[str]:
        for number, layer in enumerate(self._layers):
            for job in layer:
                if not any(job in other for other in self._layers[:number]):
                    yield job

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))


class Plan(msgspec.Struct, frozen=True):
    """Placements in the order they were decided; refusals by job, complete for what is still waiting."""

    placements: tuple[Placement, ...] = ()
    refusals: Mapping[str, tuple[Refusal, ...]] = {}
    preemptions: tuple[Preemption, ...] = ()
    promises: tuple[Promise, ...] = ()
    more: bool = False  # there is more to do: call again


def merged(plan: Plan, *few: Plan) -> Plan:
    """Return one plan of several that are about different jobs; but for the first about few of them."""
    plans = plan, *few
    refusals = {job: each.refusals[job] for each in few for job in each.refusals}
    return Plan(
        tuple(placement for each in plans for placement in each.placements),
        RefusalsByJob(refusals, plan.refusals),
        tuple(preemption for each in plans for preemption in each.preemptions),
        tuple(promise for each in plans for promise in each.promises),
        more=any(each.more for each in plans),
    )
