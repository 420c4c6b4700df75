"""How the scheduler of a cell works: its policy, and the techniques that make it fast."""

import msgspec


class SchedulerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The policy of packing, by its name in ``policies.POLICIES``, and a switch for each of the techniques of
    section 3.4 of the Borg paper.
    """

    policy: str = "hybrid"
    score_cache: bool = True
    equivalence_classes: bool = True
    relaxed_randomisation: bool = True
