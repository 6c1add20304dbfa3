"""The Beam stages: randomize, shuffle, aggregate, estimate, and the composites made of them."""

from __future__ import annotations

from beam_ldp.transforms.blocks import (
    BadRow,
    Release,
    ReportBlock,
    ShuffledBlock,
    ShuffledSum,
    StatisticBlock,
    TableBlock,
    ValueBlock,
    Withheld,
)

__all__ = [
    "BadRow",
    "Release",
    "ReportBlock",
    "ShuffledBlock",
    "ShuffledSum",
    "StatisticBlock",
    "TableBlock",
    "ValueBlock",
    "Withheld",
]
