"""All policies of packing (bin packing, and its opposite) by their names in the cell's configuration. The
first is the default."""

from borgish.scheduler.policies.fragmentation import Fgd, Hybrid
from borgish.scheduler.policies.policy import BestFit, Demand, DotProduct, Policy, Random, WorstFit

__all__ = ["POLICIES", "Demand", "Policy"]

POLICIES: dict[str, type[Policy]] = {
    "hybrid": Hybrid,
    "best_fit": BestFit,
    "worst_fit": WorstFit,
    "fgd": Fgd,
    "dot_product": DotProduct,  # this and the next only for comparison
    "random": Random,
}
