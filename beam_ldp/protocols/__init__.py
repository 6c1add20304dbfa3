"""Protocols of several rounds, free of Beam: what to ask next, given the answers so far."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beam_ldp.protocols.found_words import FoundWords
    from beam_ldp.protocols.frequent_values import FrequentValues
    from beam_ldp.protocols.heavy_hitters import (
        HeavyHitters,
        Level,
        fano_threshold,
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
    from beam_ldp.protocols.user_means import Found, RoundOne, RoundTwo, UserMean

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
    "user_mean_price",
]

# A worker that leaves a log of who was asked knows records alone; protocols bring the accountant.
_HOMES = {
    "Ball": "spaces", "Box": "spaces", "Space": "spaces",
    "Found": "user_means", "RoundOne": "user_means", "RoundTwo": "user_means",
    "FoundWords": "found_words", "FrequentValues": "frequent_values", "StringCode": "string_code",
    "HeavyHitters": "heavy_hitters", "Level": "heavy_hitters", "fano_threshold": "heavy_hitters",
    "frequency_found": "heavy_hitters_plan", "plan_heavy_hitters": "heavy_hitters_plan",
    "RoundPrice": "user_mean_plan", "UserMeanPrice": "user_mean_plan",
    "plan_user_mean": "user_mean_plan", "user_mean_price": "user_mean_plan",
    "UserMean": "user_means",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
