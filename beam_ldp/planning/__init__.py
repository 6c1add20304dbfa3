"""Which mechanism, at which local budget, with what error: decided before any data is read."""

from beam_ldp.planning.frequencies import Plan, plan_frequencies, recommend

__all__ = ["Plan", "plan_frequencies", "recommend"]
