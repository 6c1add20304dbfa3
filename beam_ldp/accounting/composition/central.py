"""Mechanisms at a curator, as dp-accounting's own events, priced under replace-one.

dp-accounting defines the noise multiplier of additive noise by the length C of one person's value:
noise of standard deviation (Laplace: scale) z C is `GaussianDpEvent(z)`. Replacing one person moves
the sum by up to 2 C, so under replace-one it costs what noise z/2 costs where somebody is added or
removed. Version 0.6 follows that in its accountant of privacy losses and not in that of Rényi
orders, whose figures are too small by a factor of about two; here both do.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal

import attr
import dp_accounting
import numpy as np
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.pld_pmf import PLDPmf
from dp_accounting.rdp import RdpAccountant

from beam_ldp.accounting.composition.sampled_gaussian import SampledGaussian
from beam_ldp.accounting.divergences.curve_losses import NEGLIGIBLE, loss_knots
from beam_ldp.accounting.divergences.loss_grid import LossGrid
from beam_ldp.accounting.reports import POISSON, WITHOUT_REPLACEMENT

_REPLACE = NeighboringRelation.REPLACE_ONE
_LARGEST_GRID = 1 << 20
_GROWTH = 1.005  # of distances between losses that are asked about: this curve is cheap
_LARGEST_LOSS = 700.0  # whose exponential fits a double
_SENSITIVITY = 2.0  # of a sum, in units of the length of one value


def central_gaussian(
    standard_deviation: float,
    clipping_norm: float,
    *,
    num_users: int | None = None,
    num_sampled: float | None = None,
    sampling: Literal["without_replacement", "poisson"] = "without_replacement",
) -> dp_accounting.DpEvent:
    """The event of Gaussian noise added by a curator to a sum of vectors of bounded length.

    Protects one person's vector (replace-one) against whoever sees the noisy sum. Sampling is
    credited against readers who cannot see who was in it; for one who can, the event without
    sampling counts, once for every sum that the person was in. The two ways to sample do not cost
    the same: what is proved for coins is false for a sample of a fixed size, and much smaller.

    Args:
        standard_deviation: Of the noise of every coordinate of the sum.
        clipping_norm: Largest Euclidean length of one person's vector.
        num_users: With `num_sampled`: people to draw from.
        num_sampled: People in the sum, unseen; with coins their mean number; None if everybody
            takes part.
        sampling: "without_replacement", exactly so many; or "poisson", everybody by a coin of
            their own. How many came must be neither shown nor divided by: only their mean number.

    >>> central_gaussian(30.0, 1.5)
    GaussianDpEvent(noise_multiplier=20.0)
    >>> central_gaussian(30.0, 1.5, num_users=1000, num_sampled=2, sampling="poisson")
    PoissonSampledDpEvent(sampling_probability=0.002, event=GaussianDpEvent(noise_multiplier=20.0))
    """
    if not (standard_deviation > 0 and clipping_norm > 0):
        raise ValueError("standard_deviation and clipping_norm must be numbers > 0")
    if sampling not in (WITHOUT_REPLACEMENT, POISSON):
        raise ValueError(f"sampling must be {WITHOUT_REPLACEMENT!r} or {POISSON!r}")
    gaussian = dp_accounting.GaussianDpEvent(standard_deviation / clipping_norm)
    if num_sampled is None:
        return gaussian
    coins = sampling == POISSON
    if num_users is None or not (0 if coins else 1) <= num_sampled <= num_users or not num_sampled:
        raise ValueError(
            f"num_sampled must be {'> 0' if coins else 'from 1'} and at most num_users"
        )
    if coins:
        return dp_accounting.PoissonSampledDpEvent(num_sampled / num_users, gaussian)
    if num_sampled != int(num_sampled):
        raise ValueError(f"num_sampled must be whole with {WITHOUT_REPLACEMENT!r}")
    return dp_accounting.SampledWithoutReplacementDpEvent(num_users, int(num_sampled), gaussian)


def canonical(event: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
    """The same event, hashable: lists become tuples, Gaussians under one sampling one Gaussian."""
    if isinstance(event, _SAMPLES):
        noise = _noise(event.event)
        return event if noise is None else attr.evolve(event, event=noise)
    changed = {
        field.name: tuple(map(canonical, value)) if isinstance(value, list) else canonical(value)
        for field in attr.fields(type(event))
        for value in [getattr(event, field.name)]
        if isinstance(value, dp_accounting.DpEvent)
        or (isinstance(value, list) and all(isinstance(v, dp_accounting.DpEvent) for v in value))
    }
    return attr.evolve(event, **changed) if changed else event


def refusal(event: dp_accounting.DpEvent) -> str | None:
    """Why an event has no price here, or None if it has one."""
    if isinstance(event, _SAMPLES):
        if sampled(event) is not None:
            return None
        return "under replace-one only a Gaussian mechanism can be sampled, at a rate in (0, 1]"
    if _orders(np.array([2.0])).supports(event) or isinstance(event, _BY_LOSSES):
        return None
    return f"{type(event).__name__} has no finite privacy cost under replace-one"


def divergences(event: dp_accounting.DpEvent, orders: np.ndarray) -> np.ndarray:
    """Rényi divergence at each order; infinite where none is known."""
    gaussian = sampled(event)
    if gaussian is not None:
        return gaussian.divergences(orders)
    accountant = _orders(orders)
    if isinstance(event, dp_event.DiscreteLaplaceDpEvent):
        return np.minimum(largest_loss(event), orders * largest_loss(event) ** 2 / 2)
    if not accountant.supports(event):
        return np.full(len(orders), np.inf)
    return np.array(accountant.compose(_by_sensitivity(event)).rdp)


def largest_loss(event: dp_accounting.DpEvent) -> float:
    """Pure epsilon of one release; infinite where there is none."""
    if isinstance(event, dp_accounting.LaplaceDpEvent):
        return _ratio(_SENSITIVITY, event.noise_multiplier)
    if isinstance(event, dp_event.DiscreteLaplaceDpEvent):
        return float(_SENSITIVITY * event.sensitivity * event.noise_parameter)
    if isinstance(event, dp_accounting.RandomizedResponseDpEvent):
        if event.num_buckets == 1 or event.noise_parameter == 1:
            return 0.0
        return math.log1p(
            event.num_buckets * _ratio(1 - event.noise_parameter, event.noise_parameter)
        )
    if isinstance(event, dp_accounting.ZCDpEvent) and event.rho == 0:
        return float(event.xi)
    return math.inf


def deviation(event: dp_accounting.DpEvent) -> float | None:
    """Standard deviation of the loss of one release, roughly; None where losses are not known."""
    gaussian = sampled(event) or _truncated(event)
    known = largest_loss(event) if gaussian is None else gaussian.deviation
    plain = isinstance(event, dp_accounting.ZCDpEvent) or not (0 < known < _LARGEST_LOSS)
    return None if plain else known


def sampled(event: dp_accounting.DpEvent) -> SampledGaussian | None:
    """Gaussian noise, whether everybody is in the sum or a sample of either kind; else None."""
    rate, noise, coins = 1.0, event, True
    if isinstance(event, dp_accounting.SampledWithoutReplacementDpEvent):
        rate, noise, coins = event.sample_size / event.source_dataset_size, event.event, False
    elif isinstance(event, dp_accounting.PoissonSampledDpEvent):
        rate, noise = event.sampling_probability, event.event
    if not (isinstance(noise, dp_accounting.GaussianDpEvent) and 0 < rate <= 1):
        return None
    return SampledGaussian(rate, _ratio(_SENSITIVITY, noise.noise_multiplier), coins)


def _truncated(event: dp_accounting.DpEvent) -> SampledGaussian | None:
    """Coins without the limit of a batch: what fits the spread of its losses."""
    if not isinstance(event, dp_event.TruncatedSubsampledGaussianDpEvent):
        return None
    return SampledGaussian(
        event.sampling_probability, _ratio(_SENSITIVITY, event.noise_multiplier), True
    )


@lru_cache(maxsize=64)
def loss_grid(event: dp_accounting.DpEvent, step: float) -> LossGrid:
    """The losses of one release; where a grid of that step would be long, on a coarser one."""
    gaussian = sampled(event)
    if gaussian is not None:
        return _gaussian(gaussian, step)
    truncated = _truncated(event)
    if truncated is not None:
        step = max(step, truncated.largest_loss / _LARGEST_GRID)
    if isinstance(event, dp_accounting.RandomizedResponseDpEvent):
        return _randomized_response(event, step)
    found = _distribution(event, step)
    forth = _grid(found._pmf_remove)
    if found._symmetric:
        return forth
    back = _grid(found._pmf_add)
    knots = np.arange(max(1, round(max(forth.highest, back.highest) / step)) + 1)
    heights = np.maximum(forth.deltas(knots * step), back.deltas(knots * step))
    return LossGrid.connecting(step, knots, heights)


def _distribution(event: dp_accounting.DpEvent, step: float) -> pld.PrivacyLossDistribution:
    """That of dp-accounting: pessimistic, on a grid of `step`."""
    grid: dict[str, Any] = {"value_discretization_interval": step}
    if isinstance(event, dp_accounting.LaplaceDpEvent):
        return pld.from_laplace_mechanism(event.noise_multiplier, sensitivity=_SENSITIVITY, **grid)
    if isinstance(event, dp_event.DiscreteLaplaceDpEvent):
        moves = int(_SENSITIVITY * event.sensitivity)
        return pld.from_discrete_laplace_mechanism(
            event.noise_parameter, moves, use_connect_dots=True, **grid
        )
    return pld.from_truncated_subsampled_gaussian_mechanism(
        dataset_size=event.dataset_size,
        sampling_probability=event.sampling_probability,
        truncated_batch_size=event.truncated_batch_size,
        noise_multiplier=event.noise_multiplier,
        neighboring_relation=_REPLACE,
        **grid,
    )


def _gaussian(noise: SampledGaussian, step: float) -> LossGrid:
    step = max(step, noise.largest_loss / _LARGEST_GRID)
    last = math.ceil(noise.largest_loss / step)
    knots = loss_knots(step, noise.deviation, last, _GROWTH)
    sticks = noise.sticks(knots * step)
    kept = 1 + np.count_nonzero(sticks >= NEGLIGIBLE)
    return LossGrid.connecting(step, knots[:kept], sticks[:kept])


def _randomized_response(event: dp_accounting.RandomizedResponseDpEvent, step: float) -> LossGrid:
    """On a grid that ends at the largest loss: dp-accounting rounds every loss up instead."""
    other = event.noise_parameter / event.num_buckets
    knots = np.arange(max(1, math.ceil(largest_loss(event) / step - 1e-9)) + 1)
    sticks = np.maximum(1 - event.noise_parameter + other - np.exp(knots * step) * other, 0.0)
    sticks[-1] = 0.0
    return LossGrid.connecting(step, knots, sticks)


def _grid(pmf: PLDPmf) -> LossGrid:
    dense = pmf.to_dense_pmf()
    return LossGrid(dense._discretization, dense._lower_loss, dense._probs, dense._infinity_mass)


def _orders(orders: np.ndarray) -> RdpAccountant:
    return RdpAccountant(orders, _REPLACE)


def _by_sensitivity(event: dp_accounting.DpEvent) -> dp_accounting.DpEvent:
    """The event whose multiplier counts from how far replacing one person moves the sum."""
    if isinstance(event, (dp_accounting.GaussianDpEvent, dp_accounting.LaplaceDpEvent)):
        return attr.evolve(event, noise_multiplier=event.noise_multiplier / _SENSITIVITY)
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return dp_accounting.ComposedDpEvent(list(map(_by_sensitivity, event.events)))
    inner = getattr(event, "event", None)
    return event if inner is None else attr.evolve(event, event=_by_sensitivity(inner))


def _noise(event: dp_accounting.DpEvent) -> dp_accounting.GaussianDpEvent | None:
    """One Gaussian mechanism that is equivalent to a composition of some, or None."""
    if isinstance(event, dp_accounting.GaussianDpEvent):
        return event
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        parts, times = [_noise(event.event)], event.count
    elif isinstance(event, dp_accounting.ComposedDpEvent):
        parts, times = list(map(_noise, event.events)), 1
    else:
        return None
    precision = times * sum(
        math.inf if part is None else _ratio(1.0, part.noise_multiplier**2) for part in parts
    )
    if any(part is None for part in parts) or precision == 0:
        return None
    return dp_accounting.GaussianDpEvent(precision**-0.5)


def _ratio(above: float, below: float) -> float:
    return above / below if below > 0 else math.inf


_SAMPLES = (
    dp_accounting.PoissonSampledDpEvent,
    dp_accounting.SampledWithoutReplacementDpEvent,
)
_BY_LOSSES = (
    dp_event.DiscreteLaplaceDpEvent,
    dp_event.TruncatedSubsampledGaussianDpEvent,
)
