"""Protocols of several rounds, free of Beam: what to ask next, given the answers so far."""

from beam_ldp.protocols.found_words import FoundWords
from beam_ldp.protocols.frequent_values import FrequentValues
from beam_ldp.protocols.heavy_hitters import (
    HeavyHitters,
    Level,
    fano_threshold,
    run_heavy_hitters,
)
from beam_ldp.protocols.heavy_hitters_plan import frequency_found, plan_heavy_hitters
from beam_ldp.protocols.spaces import Ball, Box, Space
from beam_ldp.protocols.string_code import StringCode
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
    "FoundWords",
    "FrequentValues",
    "HeavyHitters",
    "Level",
    "RoundOne",
    "RoundPrice",
    "RoundTwo",
    "Space",
    "StringCode",
    "UserMean",
    "UserMeanPrice",
    "fano_threshold",
    "frequency_found",
    "plan_heavy_hitters",
    "plan_user_mean",
    "run_heavy_hitters",
    "run_user_mean",
    "user_mean_price",
]
