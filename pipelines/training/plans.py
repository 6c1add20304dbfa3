"""The plan of a training's flags, whatever its algorithm."""

from __future__ import annotations

from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.training.central_plan import AdapedPlan, LocalCentralPlan
from beam_ldp.pipelines.training.facts import DataFacts, count_parameters, model_of
from beam_ldp.pipelines.training.flags import ADAPED, LOCAL_CENTRAL
from beam_ldp.pipelines.training.plan import TrainingPlan, check_fits, cut_to_target
from beam_ldp.pipelines.training.report_plan import (
    SHARE_OF_BIT,
    ReportPlan,
    bit_for,
    mechanism_for,
)
from beam_ldp.pipelines.training.settings import TrainSettings
from beam_ldp.randomizers.mean import SeparatedMean


def make_plan(settings: TrainSettings, data: DataFacts) -> TrainingPlan:
    """The plan of these flags, with as many rounds as the target allows.

    Raises:
        UsageError: if the flags do not fit the data.
        NothingReleasedError: if the target does not allow a single round.
    """
    check_fits(settings, data)
    model = model_of(settings.model, data.shape)
    about = settings, data, model, count_parameters(model, data.shape, data.num_classes), 0
    try:
        plan = cut_to_target(_plan(settings, about))
        plan.epsilon_of(1)  # what has no price is refused here
        return plan
    except ValueError as error:
        raise error if isinstance(error, UsageError) else UsageError(str(error)) from None


def _plan(
    settings: TrainSettings, about: tuple[TrainSettings, DataFacts, str, int, int]
) -> TrainingPlan:
    dimension = about[3]
    if settings.algorithm == ADAPED:
        return AdapedPlan(*about)
    if settings.algorithm == LOCAL_CENTRAL:
        mechanism = SeparatedMean(dimension, settings.local_epsilon, radius=settings.clip)
        return LocalCentralPlan(*about, mechanism)
    bit = bit_for(SHARE_OF_BIT * settings.local_epsilon) if settings.adaptive_clip else None
    return ReportPlan(*about, mechanism_for(settings, dimension), bit)
