"""What would follow from a job, as ``/v1/plan`` says it."""

import msgspec

from borgish.wire.api import RefusalView


class PlannedPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where one task would go."""

    index: int
    machine: str
    devices: tuple[str, ...] = ()
    alloc: int = -1  # the index of the alloc it would run in; -1: in none
    kept: bool = False  # its place would be kept there until victims, its own or its gang's, have left
    victims: tuple[str, ...] = ()  # tasks of lower priority that would be preempted for it


class PlanView(msgspec.Struct, frozen=True, omit_defaults=True):
    """What would follow if a job were submitted now. Submitted with the ``token``, just that follows, or
    it is refused because the cell changed."""

    job: str
    text: str  # one sentence
    position: int  # of the journal, when it was made
    timeline: int
    tasks: int
    token: str = ""  # "": nothing would be done
    places: tuple[PlannedPlace, ...] = ()  # by index; no more than one for each task
    refusals: tuple[RefusalView, ...] = ()  # why the other tasks would wait
    changes: tuple[str, ...] = ()  # against the job of that name that is there
    notes: tuple[str, ...] = ()  # what is doubtful
    waits: str = ""  # it would not start before: "after ann/db (up)"; "" where it would at once
    updates: dict[str, str] = {}  # of a job that runs: what becomes of which tasks, by their indexes
