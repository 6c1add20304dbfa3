"""Decisions from randomized answers: experiments (A/B tests) and bandits.

A room that hangs on by its commands and names; nothing else in the library imports it. From below:
`experiments` and `bandits` are mathematics alone, `outcomes` and `rewards` what people are asked,
`stages` the Beam stages; above them stands what `beam-ldp ab-test` and `beam-ldp bandit` run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beam_ldp.decisions.experiments.arms import (
        ArmCounts,
        SimpleDesign,
        arms_design,
        chi_square_p_value,
        holm,
        simple_design,
    )
    from beam_ldp.decisions.experiments.channel import (
        BitChannel,
        LeastPeople,
        least_people,
        randomize_scores,
    )
    from beam_ldp.decisions.experiments.compound import (
        NotSeparable,
        Separation,
        separate_hulls,
        separate_sets,
    )
    from beam_ldp.decisions.experiments.plan import (
        ExperimentPlan,
        design_compound,
        design_experiment,
    )
    from beam_ldp.decisions.experiments.verdict import ArmComparison, ExperimentVerdict, decide
    from beam_ldp.decisions.stages import PrivateExperiment, decide_releases

__all__ = [
    "ArmComparison",
    "ArmCounts",
    "BitChannel",
    "ExperimentPlan",
    "ExperimentVerdict",
    "LeastPeople",
    "NotSeparable",
    "PrivateExperiment",
    "Separation",
    "SimpleDesign",
    "arms_design",
    "chi_square_p_value",
    "decide",
    "decide_releases",
    "design_compound",
    "design_experiment",
    "holm",
    "least_people",
    "randomize_scores",
    "separate_hulls",
    "separate_sets",
    "simple_design",
]

# Help of the commands waits for no SciPy, and mathematics for no Beam.
_HOMES = {
    "experiments.arms": (
        "ArmCounts",
        "SimpleDesign",
        "arms_design",
        "chi_square_p_value",
        "holm",
        "simple_design",
    ),
    "experiments.channel": ("BitChannel", "LeastPeople", "least_people", "randomize_scores"),
    "experiments.compound": ("NotSeparable", "Separation", "separate_hulls", "separate_sets"),
    "experiments.plan": ("ExperimentPlan", "design_compound", "design_experiment"),
    "experiments.verdict": ("ArmComparison", "ExperimentVerdict", "decide"),
    "stages": ("PrivateExperiment", "decide_releases"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
