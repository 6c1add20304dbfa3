"""`make_plan`: the plan of a training's flags, which it refuses where they do not fit the data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from beam_ldp.accounting import ShuffleAccountant
from beam_ldp.randomizers.mean import (
    BinaryVectorMean,
    L1Mean,
    L2Mean,
    LInfMean,
    PrivUnit,
    PrivUnitGaussian,
    SeparatedMean,
    compact_mean,
)
from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.randomizers.mean.block_mean import BlockMean
from beam_ldp.release.gates import NothingReleasedError
from beam_ldp.settings import SettingError
from beam_ldp.settings.sections import MOST_PROMISED
from beam_ldp.training.facts import DataFacts, count_parameters, model_of
from beam_ldp.training.plan import TrainingPlan
from beam_ldp.training.report_plan import ReportPlan
from beam_ldp.training.server_plans import AdapedPlan, LocalCentralPlan
from beam_ldp.training.settings import TrainSettings
from beam_ldp.training.usage import ADAPED, LOCAL_CENTRAL, SHUFFLED_EPOCHS
from beam_ldp.wording import number

_SHARE_OF_BIT = 0.1  # of the local epsilon, for the bit that an adaptive clip asks for

_OF_NORM: dict[str, tuple[type[MeanRandomizer], ...]] = {
    "l2": (PrivUnit, PrivUnitGaussian, SeparatedMean, L2Mean),
    "linf": (LInfMean,),
    "l1": (L1Mean,),
}


def make_plan(settings: TrainSettings, data: DataFacts) -> TrainingPlan:
    """The plan of these flags, with as many rounds as the target allows.

    Raises:
        SettingError: if the flags do not fit the data.
        NothingReleasedError: if the target does not allow a single round.
    """
    _check_fits(settings, data)
    model = model_of(settings.question.model, data.shape)
    about = settings, data, model, count_parameters(model, data.shape, data.num_classes), 0
    try:
        plan = _cut_to_target(_plan(settings, about))
        plan.epsilon_of(1)  # what has no price is refused here
    except ValueError as error:
        raise error if isinstance(error, SettingError) else SettingError(str(error)) from None
    _check_local(plan)
    _check_least(plan)
    return plan


def _plan(
    settings: TrainSettings, about: tuple[TrainSettings, DataFacts, str, int, int]
) -> TrainingPlan:
    dimension = about[3]
    if settings.question.algorithm == ADAPED:
        return AdapedPlan(*about)
    if settings.question.algorithm == LOCAL_CENTRAL:
        mechanism = SeparatedMean(dimension, settings.local_epsilon, radius=settings.clip)
        return LocalCentralPlan(*about, mechanism)
    bit = _bit_for(_SHARE_OF_BIT * settings.local_epsilon) if settings.adaptive_clip else None
    return ReportPlan(*about, mechanism_for(settings, dimension), bit)


def mechanism_for(settings: TrainSettings, dimension: int) -> MeanRandomizer:
    """The mechanism of one report, with as many messages as it was asked for.

    By default a vector of `linf` goes in one message; of the other norms the mechanism chooses.

    Raises:
        SettingError: if the name is none of its norm, or the parameters do not fit.
    """
    epsilon, radius, norm = settings.local_epsilon, settings.clip, settings.question.norm
    if settings.adaptive_clip:  # the norm of a round scales it
        epsilon, radius = epsilon - _SHARE_OF_BIT * epsilon, 1.0
    by_name = {kind.__name__: kind for kind in _OF_NORM[norm]}
    name = next(iter(by_name)) if settings.mechanism.name == "auto" else settings.mechanism.name
    if name not in by_name:
        raise SettingError(
            f"--mechanism must be auto or one of {', '.join(by_name)} with --norm {norm}, "
            f"got {name}"
        )
    kind, count = by_name[name], settings.mechanism.messages
    own: dict[str, Any] = {}
    if count is not None and not issubclass(kind, BlockMean):
        raise SettingError(f"--messages is for LInfMean, L1Mean and L2Mean, not for {name}")
    if count is not None or norm == "linf":
        count = count or 1
        if count > dimension:
            raise SettingError(
                f"--messages must be at most {dimension:,}, the parameters of the model, "
                f"got {count:,}"
            )
        own = {"messages": (count,), "message_epsilons": (epsilon / count,)}
    try:
        return compact_mean(kind, dimension, local_epsilon=epsilon, radius=radius, **own)
    except ValueError as error:
        raise SettingError(f"--mechanism {name}: {error}") from None


def _bit_for(local_epsilon: float) -> BinaryVectorMean:
    """What randomizes a client's bit about its norm, with an adaptive clip of that budget."""
    return BinaryVectorMean(1, local_epsilon, messages=(1,), message_epsilons=(local_epsilon,))


def _cut_to_target(plan: TrainingPlan) -> TrainingPlan:
    """The plan with as many rounds as the target allows; else a NothingReleasedError."""
    plan = replace(plan, rounds=plan.planned_rounds)
    target = plan.settings.privacy.epsilon
    if target is not None:
        plan = replace(plan, rounds=_rounds_within(plan, target))
    if plan.rounds == 0:
        raise NothingReleasedError(
            f"--epsilon {target:g} does not allow one round, which costs "
            f"{number(plan.epsilon_of(1))}: nothing was trained"
        )
    return plan


def _rounds_within(plan: TrainingPlan, target: float) -> int:
    """The most rounds, of those planned, whose price does not exceed the target."""
    accountant = ShuffleAccountant()

    def exceeds(rounds: int) -> bool:
        return accountant.would_exceed(
            plan.event, plan.events_of(rounds), epsilon=target, delta=plan.settings.privacy.delta
        )

    most = plan.planned_rounds
    if not exceeds(most):
        return most
    fits, least = 0, most
    while least - fits > 1:
        middle = (fits + least) // 2
        fits, least = (fits, middle) if exceeds(middle) else (middle, least)
    return fits


def _check_fits(settings: TrainSettings, data: DataFacts) -> None:
    """A SettingError where flags do not fit the data."""
    if (settings.question.clients_per_round or 1) > data.num_clients:
        raise SettingError(f"--clients-per-round must be at most {data.num_clients:,}, the clients")
    if (settings.question.least_clients or 1) > data.num_clients:
        raise SettingError(f"--least-clients must be at most {data.num_clients:,}, the clients")
    sampling = settings.question.sampling
    if (
        sampling in ("self", SHUFFLED_EPOCHS)
        and settings.question.clients_per_round == data.num_clients
    ):
        raise SettingError(
            f"--sampling {sampling} needs fewer --clients-per-round than there are clients"
        )
    if settings.question.points_per_client > data.points_per_client:
        raise SettingError(f"--points-per-client must be at most {data.points_per_client:,}")


def _check_local(plan: TrainingPlan) -> None:
    """A SettingError where a client loses more in one round than the settings allow."""
    local, privacy = plan.local_epsilon_of(1), plan.settings.privacy
    if local is not None and local > privacy.local_limit * (1 + 1e-9):
        flag = "--max-local-epsilon" if local <= MOST_PROMISED else "--trust-shuffler"
        raise SettingError(
            f"a client's reports of one round have a local epsilon of {number(local)} together, "
            f"above the limit of {privacy.local_limit:g}: choose less, or allow it with {flag}"
        )


def _check_least(plan: TrainingPlan) -> None:
    """A SettingError where one report that is left out would end the training."""
    may_lose = plan.question.sampling == "self" or plan.least_clients < plan.clients_per_round
    if plan.check is not None and not may_lose:
        raise SettingError(
            "--drop-colluders needs --least-clients below the clients of a round: whoever is left "
            "out hides nobody, so rounds are priced as those of so few"
        )
