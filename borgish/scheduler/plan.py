"""What one pass of the scheduler comes to."""

import msgspec


class Placement(msgspec.Struct, frozen=True):
    """Tasks of one job and where they go, in parallel tuples. ``ports`` is empty when the job has none."""

    job: str
    indexes: tuple[int, ...]
    machines: tuple[str, ...]
    ports: tuple[tuple[int, ...], ...] = ()


class Refusal(msgspec.Struct, frozen=True):
    """Why some tasks of one job were not placed: per reason, how many machines it rules out.

    A machine is counted under every reason that holds for it. ``text`` is one line for people and
    ``hint`` what change would make a task fit, when one is known.
    """

    job: str
    indexes: tuple[int, ...]
    machines: int  # in the cell, all told
    reasons: dict[str, int]
    text: str
    hint: str = ""


class Plan(msgspec.Struct, frozen=True):
    """Placements in the order they were decided; refusals by job, complete for what is still waiting."""

    placements: tuple[Placement, ...] = ()
    refusals: dict[str, tuple[Refusal, ...]] = {}
    more: bool = False  # the budget ran out: call again
