"""All policies of packing by their names in the cell's configuration. The first is the default."""

from borgish.scheduler.policies.classic import BestFit, DotProduct, Random, WorstFit
from borgish.scheduler.policies.fragmentation import Fgd
from borgish.scheduler.policies.hybrid import Hybrid
from borgish.scheduler.policies.policy import Demand, Policy

__all__ = ["POLICIES", "Demand", "Policy"]

POLICIES: dict[str, type[Policy]] = {
    "hybrid": Hybrid,
    "best_fit": BestFit,
    "worst_fit": WorstFit,
    "fgd": Fgd,
    "dot_product": DotProduct,  # this and the next only for comparison
    "random": Random,
}
