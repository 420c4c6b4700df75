"""How the scheduler of a cell works: its policy, its failure domains, and what makes it fast."""

import msgspec


class SchedulerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The policy of packing, by its name in ``policies.POLICIES``, the attributes of machines over which
    replicas of services are spread (see ``domains``), and a switch for each of the techniques of section
    3.4 of the Borg paper.
    """

    policy: str = "hybrid"
    failure_domains: tuple[str, ...] = ("rack", "zone")
    score_cache: bool = True
    equivalence_classes: bool = True
    relaxed_randomisation: bool = True
