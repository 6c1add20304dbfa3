"""Which frequency oracle runs, and what is expected of it before any data is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from beam_ldp.accounting import local_epsilon_for
from beam_ldp.accounting.reports import hidden_users
from beam_ldp.pipelines.flags import UsageError
from beam_ldp.pipelines.mechanisms import mechanism_of
from beam_ldp.pipelines.question import Choice
from beam_ldp.pipelines.records.gates import expected_price
from beam_ldp.pipelines.settings import Settings
from beam_ldp.planning import Plan, plan_frequencies
from beam_ldp.randomizers.base import FrequencyOracle

AS_GOOD_AS = 1.01  # errors within 1 % count as equal: then fewer bits win


def choose(settings: Settings[Any], domain_size: int) -> Choice:
    """The mechanism for these flags.

    Args:
        settings: checked flags.
        domain_size: values of the public list, `other` included.

    Raises:
        UsageError: if the mechanism's name is unknown, or none fits.
    """
    num_reports = settings.planned_reports
    randomizer = oracle_for(settings, domain_size, num_reports)
    price = None
    if settings.noise.seed is None:
        price = expected_price(
            randomizer, num_reports, settings.privacy.delta, settings.privacy.honest_fraction
        )
    return Choice(randomizer, num_reports, price, rare_error(randomizer, num_reports))


def rare_error(randomizer: FrequencyOracle, num_reports: int) -> float:
    """Standard error of the frequency of a value that hardly anybody holds, worst value."""
    truth = np.zeros(randomizer.domain_size)
    truth[-1] = 1.0
    return float(np.sqrt(randomizer.variance(num_reports, truth)[:-1].max()))


def oracle_for(settings: Settings[Any], domain_size: int, num_reports: int) -> FrequencyOracle:
    """The mechanism alone; a delta of zero asks for the local promise and nothing else."""
    target, local = settings.privacy.epsilon, settings.privacy.local_epsilon
    if settings.mechanism.name != "auto":
        builds = _named(settings.mechanism.name, domain_size)
        found = [_tuned(build, settings, num_reports) for build in builds]
        short = [
            one for one in found if one.bits_per_report <= (settings.mechanism.max_bits or math.inf)
        ]
        return _short_enough((short or found)[0], settings)
    plans = _plans(settings, domain_size, num_reports, target, local)
    cap = settings.privacy.max_local_epsilon
    if cap is not None and target is not None:
        capped = _plans(settings, domain_size, num_reports, None, cap)
        within = [plan for plan in plans if plan.local_epsilon <= cap]
        within += [plan for plan in capped if plan.epsilon is not None and plan.epsilon <= target]
        least = min((plan.rms_error for plan in within), default=0.0)
        equal = [plan for plan in within if plan.rms_error <= AS_GOOD_AS * least]
        plans = sorted(equal, key=lambda plan: plan.bits_per_report)
    if not plans:
        raise UsageError("no mechanism fits these flags (see `beam-ldp plan frequency`)")
    randomizer = plans[0].randomizer
    assert randomizer is not None
    return randomizer


def _plans(
    settings: Settings[Any],
    domain_size: int,
    num_users: int,
    epsilon: float | None,
    local_epsilon: float | None,
) -> list[Plan]:
    """Mechanisms that may be used, best first."""
    plans = plan_frequencies(
        num_users,
        domain_size,
        epsilon=epsilon,
        local_epsilon=local_epsilon,
        delta=settings.privacy.delta or None,
        max_bits=settings.mechanism.max_bits,
        honest_fraction=settings.privacy.honest_fraction,
    )
    return [plan for plan in plans if not plan.excluded]


def _tuned(
    build: Callable[[float], FrequencyOracle], settings: Settings[Any], num_reports: int
) -> FrequencyOracle:
    """The mechanism with the local budget that the flags leave it."""
    local = settings.privacy.local_epsilon
    if local is None:
        assert settings.privacy.epsilon is not None
        hidden_among = hidden_users(num_reports, settings.privacy.honest_fraction)
        local = local_epsilon_for(
            settings.privacy.epsilon, settings.privacy.delta, hidden_among, build
        )
    return build(min(local, settings.privacy.max_local_epsilon or math.inf))


def _named(name: str, domain_size: int) -> list[Callable[[float], FrequencyOracle]]:
    """What makes the variants of that mechanism. Raises UsageError."""
    try:
        kind: type[FrequencyOracle] = mechanism_of(name, "frequency", auto=True)
    except ValueError as error:
        raise UsageError(str(error)) from None

    def build(local_epsilon: float, **options: Any) -> FrequencyOracle:
        try:
            return kind(domain_size, local_epsilon, **options)
        except (TypeError, ValueError) as error:
            raise UsageError(f"--mechanism {name}: {error}") from None

    return [partial(build, **options) for options in kind.variants(domain_size)]


def _short_enough(randomizer: FrequencyOracle, settings: Settings[Any]) -> FrequencyOracle:
    if (
        settings.mechanism.max_bits is not None
        and randomizer.bits_per_report > settings.mechanism.max_bits
    ):
        raise UsageError(
            f"--mechanism {settings.mechanism.name} sends {randomizer.bits_per_report} bits, "
            f"--max-bits is {settings.mechanism.max_bits}"
        )
    return randomizer
