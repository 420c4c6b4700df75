"""How the scheduler of a cell works: its policy, and the techniques that make it fast."""

import msgspec


class SchedulerSettings(msgspec.Struct, frozen=True):
    """The policy of packing, and the techniques of section 3.4 of the Borg paper, each with a switch."""

    policy: str = "hybrid"
    score_cache: bool = True
    equivalence_classes: bool = True
    relaxed_randomisation: bool = False
