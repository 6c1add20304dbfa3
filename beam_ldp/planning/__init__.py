"""Which mechanism, at which local budget, with what error: decided before any data is read."""

from beam_ldp.planning.frequencies import Plan, plan_frequencies, recommend
from beam_ldp.planning.means import MeanPlan, plan_means, recommend_mean

__all__ = [
    "MeanPlan",
    "Plan",
    "plan_frequencies",
    "plan_means",
    "recommend",
    "recommend_mean",
]
