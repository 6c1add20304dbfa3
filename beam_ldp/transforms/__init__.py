"""The Beam stages: randomize, shuffle, aggregate, estimate, and the composites made of them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from beam_ldp.questions.columns import IntegerDomain
from beam_ldp.questions.frequencies import Frequencies
from beam_ldp.questions.means import Means
from beam_ldp.transforms.budgeted import ChargeTo
from beam_ldp.transforms.collector.panes import SlidingSums
from beam_ldp.transforms.collector.release_rows import (
    FrequencyRow,
    MeanRow,
    ReleaseToRows,
    arrow_schema,
    as_record,
    bigquery_schema,
    rows_of,
    sql_table,
)
from beam_ldp.transforms.collector.side import (
    Aggregate,
    CollectorSide,
    EstimateFrequencies,
    EstimateMean,
    Releases,
)
from beam_ldp.transforms.composite import PrivateEstimate, PrivateFrequencies, PrivateMean
from beam_ldp.transforms.device.bounding import BoundContributions
from beam_ldp.transforms.device.encode import EncodeRows, EncodeVectors, EncodeWords
from beam_ldp.transforms.device.side import DeviceSide, Randomize, Reports
from beam_ldp.transforms.elements.blocks import (
    BadRow,
    BadRowBlock,
    LeveledBlock,
    Release,
    ReportBlock,
    ShuffledBlock,
    ShuffledSum,
    StatisticBlock,
    TableBlock,
    ValueBlock,
    WithheldRelease,
)
from beam_ldp.transforms.elements.stages import StageError
from beam_ldp.transforms.elements.windows import WindowRules
from beam_ldp.transforms.levels import AtLevel, RandomizeForLevels
from beam_ldp.transforms.shuffler.shuffle import Shuffle
from beam_ldp.transforms.shuffler.sums import MismatchError
from beam_ldp.transforms.wire import ReadReports, WriteMemoizedReports, WriteReports
from beam_ldp.transforms.wire.write_reports import WriteShuffledReports, read_shuffled_reports

if TYPE_CHECKING:
    from beam_ldp.transforms.heavy_hitters import PrivateHeavyHitters
    from beam_ldp.transforms.odometer import PerPersonFilter
    from beam_ldp.transforms.questions import (
        BinQuestion,
        EncodeQuestions,
        LevelsQuestion,
        ListQuestion,
        PrivateQuestions,
    )
    from beam_ldp.transforms.user_means import PrivateUserMean

_LATER = {  # by name, the module that is loaded on first use
    "BinQuestion": "questions",
    "EncodeQuestions": "questions",
    "LevelsQuestion": "questions",
    "ListQuestion": "questions",
    "PerPersonFilter": "odometer",
    "PrivateHeavyHitters": "heavy_hitters",
    "PrivateQuestions": "questions",
    "PrivateUserMean": "user_means",
    "Survey": "questions",
}

__all__ = [
    "Aggregate",
    "AtLevel",
    "BadRow",
    "BadRowBlock",
    "BinQuestion",
    "BoundContributions",
    "ChargeTo",
    "CollectorSide",
    "DeviceSide",
    "EncodeQuestions",
    "EncodeRows",
    "EncodeVectors",
    "EncodeWords",
    "EstimateFrequencies",
    "EstimateMean",
    "Frequencies",
    "FrequencyRow",
    "IntegerDomain",
    "LeveledBlock",
    "LevelsQuestion",
    "ListQuestion",
    "Means",
    "MeanRow",
    "MismatchError",
    "PerPersonFilter",
    "PrivateEstimate",
    "PrivateFrequencies",
    "PrivateHeavyHitters",
    "PrivateMean",
    "PrivateQuestions",
    "PrivateUserMean",
    "Randomize",
    "RandomizeForLevels",
    "ReadReports",
    "Release",
    "ReleaseToRows",
    "Releases",
    "ReportBlock",
    "Reports",
    "Survey",
    "Shuffle",
    "ShuffledBlock",
    "ShuffledSum",
    "SlidingSums",
    "StageError",
    "StatisticBlock",
    "TableBlock",
    "ValueBlock",
    "WindowRules",
    "WithheldRelease",
    "WriteMemoizedReports",
    "WriteReports",
    "WriteShuffledReports",
    "arrow_schema",
    "as_record",
    "bigquery_schema",
    "read_shuffled_reports",
    "rows_of",
    "sql_table",
]


def __getattr__(name: str) -> Any:
    """Loaded on first use: planning two rounds needs every mean mechanism."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
