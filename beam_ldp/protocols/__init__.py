"""Protocols of several rounds, free of Beam: what to ask next, given the answers so far."""

from beam_ldp.protocols.spaces import Ball, Box, Space
from beam_ldp.protocols.user_mean_plan import (
    RoundPrice,
    UserMeanPrice,
    plan_user_mean,
    user_mean_price,
)
from beam_ldp.protocols.user_mean_rounds import Found, RoundOne, RoundTwo
from beam_ldp.protocols.user_means import UserMean, run_user_mean

__all__ = [
    "Ball",
    "Box",
    "Found",
    "RoundOne",
    "RoundPrice",
    "RoundTwo",
    "Space",
    "UserMean",
    "UserMeanPrice",
    "plan_user_mean",
    "run_user_mean",
    "user_mean_price",
]
