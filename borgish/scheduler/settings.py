"""How the scheduler of a cell works: its policy, its failure domains, and what makes it fast."""

import msgspec

FAILURE_DOMAINS = ("rack", "zone")


class SchedulerTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The policy of packing, by its name in ``policies.POLICIES``, and a switch for each of the techniques of
    section 3.4 of the Borg paper.
    """

    policy: str = "hybrid"
    score_cache: bool = True
    equivalence_classes: bool = True
    relaxed_randomisation: bool = True


class SchedulerSettings(SchedulerTable, frozen=True, forbid_unknown_fields=True):
    """The same, and the attributes of machines over which replicas of services go (see ``domains``)."""

    failure_domains: tuple[str, ...] = FAILURE_DOMAINS
