"""Experiments on randomized outcomes: how many people, what is decided, and how sure that is."""

from beam_ldp.experiments.arms import ArmCounts, arms_design, chi_square_p_value, holm
from beam_ldp.experiments.bits import randomize_scores
from beam_ldp.experiments.channel import BitChannel
from beam_ldp.experiments.compound import NotSeparable, Separation, separate_hulls, separate_sets
from beam_ldp.experiments.designing import design_compound, design_experiment
from beam_ldp.experiments.lower_bounds import LeastPeople, least_people
from beam_ldp.experiments.plan import ExperimentPlan
from beam_ldp.experiments.simple import SimpleDesign, simple_design
from beam_ldp.experiments.verdict import Comparison, Verdict

__all__ = [
    "ArmCounts",
    "BitChannel",
    "Comparison",
    "ExperimentPlan",
    "LeastPeople",
    "NotSeparable",
    "Separation",
    "SimpleDesign",
    "Verdict",
    "arms_design",
    "chi_square_p_value",
    "design_compound",
    "design_experiment",
    "holm",
    "least_people",
    "randomize_scores",
    "separate_hulls",
    "separate_sets",
    "simple_design",
]
