"""The best two rounds for a target: where to search, with what budget, asked of whom.

* Bins: every width that leaves a majority near the centre is tried; narrow ones shorten the
  interval of round two and make round one harder.
* Local budget: users are split where that is better, and it nearly always is. A share r of the
  people, answering with the whole budget, is enough for round one; the same certainty out of
  everybody's budget takes about a share 2 sqrt(r) of that.
* Central target: everybody answers both rounds. Among n people, the small budget that round one
  needs is all but free once it is shuffled, while a part of the people is lost in full.
* No search at all, where the interval would be no shorter than the range.

>>> from beam_ldp.protocols import Box, plan_user_mean
>>> from beam_ldp.randomizers.mean.ranges import CoordinateRanges
>>> minutes = Box(CoordinateRanges(0, 1440))
>>> plan = plan_user_mean(100_000, 30, minutes, local_epsilon=1.0, sigma=60)
>>> plan.split, plan.search.bins.count, round(float(plan.predicted.standard_error[0]), 2)
('users', 32, 0.77)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from beam_ldp.accounting import PrivacyBound, event_epsilon, shuffle_epsilons
from beam_ldp.accounting.reports import hidden_users
from beam_ldp.accounting.shuffle.multi_message import gaussian_mu
from beam_ldp.protocols.range_search import (
    MAX_BINS,
    Oracle,
    RangeSearch,
    SearchBins,
    least_epsilon,
    least_users,
    oracle_for,
)
from beam_ldp.protocols.spaces import Ball, Concentration, Radii, RotatedMeans, Space, SubGaussian
from beam_ldp.protocols.user_means import Model, UserMean, fewest
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.randomizers.mean import LInfMean, PrivUnitInf, ScalarMean
from beam_ldp.randomizers.mean.base import MeanRandomizer

# What a release of two rounds costs, from the prices of its rounds ------------------------
#
# Prices of rounds that everybody answers add up, whatever the second learned from the first:
# (epsilon1, delta1) and (epsilon2, delta2) compose to their sums. A person who answers one round
# pays for that one.


SEARCH_DELTA = 0.01  # share of delta that pays for round one, where everybody answers both
_LOCAL = "no credit for shuffling"


class RoundPrice(NamedTuple):
    """What one round costs to a person who takes part in it: epsilon at delta."""

    epsilon: PrivacyBound
    delta: float


class UserMeanPrice(NamedTuple):
    """The price of a release, and of its rounds in their order.

    Attributes:
        total: of the dearest person, at the whole delta.
        rounds: one entry, or two.
    """

    total: PrivacyBound
    rounds: tuple[RoundPrice, ...]


def user_mean_price(
    protocol: UserMean, search_crowd: int, final_reports: int, delta: float
) -> UserMeanPrice:
    """A proved upper bound for the price of both rounds.

    Protects all rows of one person (replace-one) against whoever sees everything that left the
    shuffler in both rounds; in the local model, whoever sees the reports.

    Args:
        protocol: the plan.
        search_crowd: people among whom a report of round one hides: the fewest of any coordinate.
        final_reports: people among whom one of round two hides.
        delta: in (0, 1); not used in the local model.
    """
    if protocol.model == "local":
        return _local(protocol)
    first, second = protocol.round_reports(search_crowd, final_reports)
    if first is None:
        only = RoundPrice(event_epsilon(second, delta), delta)
        return UserMeanPrice(only.epsilon, (only,))
    together = protocol.split == "budget"
    shares = (SEARCH_DELTA * delta, delta - SEARCH_DELTA * delta) if together else (delta, delta)
    rounds = tuple(
        RoundPrice(event_epsilon(reports, share), share)
        for reports, share in zip((first, second), shares)
    )
    if not together:
        return UserMeanPrice(max(one.epsilon for one in rounds), rounds)
    total = PrivacyBound(
        min(sum(one.epsilon for one in rounds), protocol.local_epsilon),
        lower=event_epsilon(second, delta).lower,
        method="costs of both rounds added up",
        proof_status=_weakest(rounds),
        lower_method="round two alone",
    )
    return UserMeanPrice(total, rounds)


def _local(protocol: UserMean) -> UserMeanPrice:
    searching = [] if protocol.search is None else [protocol.search.local_epsilon]
    budgets = [*searching, protocol.final.local_epsilon]
    rounds = tuple(RoundPrice(_promise(budget), 0.0) for budget in budgets)
    return UserMeanPrice(_promise(protocol.local_epsilon), rounds)


def _promise(local_epsilon: float) -> PrivacyBound:
    return PrivacyBound(local_epsilon, method=_LOCAL, lower_method=_LOCAL)


def _weakest(rounds: tuple[RoundPrice, ...]) -> str:
    proved = all(one.epsilon.proof_status == "proved" for one in rounds)
    return "proved" if proved else "conjectured"


_MAX_USERS = 10**12
_MAX_ROWS = 1 << 40
_MOST_SEARCHED = 0.5  # of the people, where they are split
_SPLITS = ("none", "budget", "users")
_HALVINGS = 8  # of the range of local budgets, in proportion


def plan_user_mean(
    num_users: float,
    rows_per_user: float,
    space: Space,
    *,
    epsilon: float | None = None,
    local_epsilon: float | None = None,
    delta: float | None = None,
    model: Model = "shuffle",
    sigma: float | Sequence[float] | None = None,
    user_sigma: float | Sequence[float] = 0.0,
    outliers: float = 0.0,
    failure_probability: float = 0.01,
    split: Literal["auto", "budget", "users"] = "auto",
    honest_fraction: float = 1.0,
    preset: Literal["thesis"] | None = None,
    salt: str = "",
    max_local_epsilon: float = math.inf,
) -> UserMean:
    """The two rounds with the least error for a target, from public numbers alone.

    A person is protected with all rows, and with their number; the assumptions below steer only
    the error.

    Args:
        num_users: people expected.
        rows_per_user: rows that a person has at least; of whoever has fewer, `outliers` speaks.
        space: where rows lie: `Box` or `Ball`.
        epsilon: central target with `delta`, over both rounds together; in the local model, the
            local budget.
        local_epsilon: budget of all that one person sends; exactly one of the two.
        delta: of the central target, in (0, 1).
        model: "shuffle", or "local" where nobody shuffles.
        sigma: sub-Gaussian parameter of one row about its person's own mean, in the unit of the
            data; for a box, one or one per column. Default: by Hoeffding's lemma, of the space.
        user_sigma: that of the persons' means about their centre; 0 as the thesis supposes, where
            all rows come from one population.
        outliers: share of people about whom nothing is assumed, in [0, 1/3), as those with fewer
            rows. What clipping them can shift is in every interval.
        failure_probability: that the rounds fail people who fit; taken out of the intervals' level.
        split: "budget", "users", or the better one.
        honest_fraction: share of the reports in (0, 1] that are not fake; only those hide a person.
        preset: "thesis" for the printed algorithm: equal halves of a local budget, bins as wide
            as everybody's spread, one Hadamard bit.
        salt: public; of the hash that assigns people to parts.
        max_local_epsilon: most that all rounds together may promise a person under `epsilon`.

    Raises:
        ValueError: for arguments out of range or that do not fit together.
    """
    users = check_integer("num_users", num_users, 1, _MAX_USERS)
    rows = check_integer("rows_per_user", rows_per_user, 1, _MAX_ROWS)
    _check_target(epsilon, local_epsilon, delta, model)
    _check_shares(outliers, failure_probability)
    hidden_users(users, honest_fraction)
    found = _concentration(space, rows, sigma, user_sigma)
    task = _Task(users, rows, space, found, outliers, failure_probability, model, salt)
    return task.best(
        epsilon, local_epsilon, delta, split, honest_fraction, preset, max_local_epsilon
    )


@dataclass(frozen=True)
class _Task:
    """What is asked, with the assumptions in coordinates."""

    num_users: int
    rows: int
    space: Space
    concentration: Concentration
    outliers: float
    failure: float
    model: Model
    salt: str

    def best(
        self,
        epsilon: float | None,
        local_epsilon: float | None,
        delta: float | None,
        split: str,
        honest_fraction: float,
        preset: str | None,
        limit: float,
    ) -> UserMean:
        """The best rounds for a central target, or for a local budget. See `plan_user_mean`."""
        if split not in ("auto", "budget", "users"):
            raise ValueError(f'split must be "auto", "budget" or "users", got {split!r}')
        if epsilon is not None and self.model == "shuffle":
            if split == "users" or preset:
                raise ValueError('split="users" and presets need a local budget')
            assert delta is not None
            return self.central(epsilon, delta, honest_fraction, limit)
        budget = epsilon if local_epsilon is None else local_epsilon
        assert budget is not None
        return self.printed(budget) if preset else self.local(budget, split)

    @property
    def size(self) -> int:
        return self.space.num_coordinates

    @property
    def _half_failure(self) -> float:
        """For people outside, and for wrong bins of all coordinates: half of what is left each."""
        known = self.space.failure_probability(self.num_users)
        if not known < self.failure:
            raise ValueError(
                f"failure_probability must exceed {known:.2g}, that of the ball's cutoff, got "
                f"{self.failure!r}"
            )
        return (self.failure - known) / 2

    def _radii(self) -> Iterator[Radii]:
        """Those that make the interval shorter than the range."""
        for radii in self.concentration.radii(self.num_users, self.size, self._half_failure):
            if 2 * radii.near + radii.far < 1 and radii.near >= 1 / MAX_BINS:
                yield radii

    def plan(
        self,
        final: MeanRandomizer,
        search: RangeSearch | None = None,
        split: Literal["none", "budget", "users"] = "none",
        share: float = 1.0,
    ) -> UserMean:
        return UserMean(
            self.space, self.concentration, final, search, split, self.num_users, self.rows, share,
            self.outliers, self.model, self.salt,
        )  # fmt: skip

    # A local budget --------------------------------------------------------------------------

    def local(self, budget: float, split: str) -> UserMean:
        """The best plan that spends this much on everything that a person sends."""
        plans = [self.plan(best_local(self.size, budget))]
        for radii in self._radii():
            if split != "users":
                plans += self._budget_split(radii, budget)
            if split != "budget":
                plans += self._user_split(radii, budget)
        return min(plans, key=_width)

    def _budget_split(self, radii: Radii, budget: float) -> Iterator[UserMean]:
        oracle = oracle_for(SearchBins(radii.near).count)
        each = self._half_failure / self.size
        asked = self.num_users / self.size
        first = least_epsilon(radii, oracle, asked, each, self.outliers, 0.99 * budget)
        if first is not None:
            final = best_local(self.size, budget - first)
            yield self.plan(final, RangeSearch(radii, first, oracle, self.outliers), "budget")

    def _user_split(self, radii: Radii, budget: float) -> Iterator[UserMean]:
        oracle = oracle_for(SearchBins(radii.near).count)
        search = RangeSearch(radii, budget, oracle, self.outliers)
        most = _MOST_SEARCHED * self.num_users / self.size
        each = least_users(search, self._half_failure / self.size, most)
        if each is not None:
            share = each * self.size / self.num_users
            yield self.plan(best_local(self.size, budget), search, "users", share)

    def printed(self, budget: float) -> UserMean:
        """Algorithm 3.7.3: two halves, near = far, one Hadamard bit; the best mean mechanism."""
        radii = [r for r in self._radii() if math.isclose(r.near, r.far)]
        if not radii:
            return self.plan(best_local(self.size, budget))
        search = RangeSearch(radii[0], budget / 2, "binary_hadamard", self.outliers)
        return self.plan(best_local(self.size, budget / 2), search, "budget")

    # A central target -----------------------------------------------------------------------

    def central(
        self, epsilon: float, delta: float, honest_fraction: float, limit: float
    ) -> UserMean:
        """The best plan whose shuffled rounds cost (epsilon, delta) together, within the limit on
        what a person may lose before the shuffle."""
        best = self._of_many_messages(epsilon, delta, honest_fraction)
        if best.local_epsilon <= limit:
            return best
        plans = [self._of_few(split, epsilon, delta, honest_fraction, limit) for split in _SPLITS]
        return min(plans, key=_width)

    def _of_few(
        self, split: str, epsilon: float, delta: float, honest_fraction: float, limit: float
    ) -> UserMean:
        """As for a local budget: the largest one within the limit that meets the target."""

        def planned(budget: float) -> UserMean:
            if split == "none":
                return self.plan(best_local(self.size, budget))
            return self.local(budget, split)

        def meets(budget: float) -> bool:
            found = planned(budget)
            first, second = (
                hidden_users(max(1, crowd), honest_fraction)
                for crowd in found.min_reports(self.num_users)
            )
            return float(user_mean_price(found, first, second, delta).total) <= epsilon

        low, high = min(epsilon, limit), limit  # a local budget of epsilon costs no more
        if meets(high):
            return planned(high)
        for _ in range(_HALVINGS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if meets(middle) else (low, middle)
        return planned(low)

    def _of_many_messages(self, epsilon: float, delta: float, honest_fraction: float) -> UserMean:
        """The best plan whose messages are shuffled apart, which only the shuffler protects.

        Prices of the rounds add up: (epsilon1, delta1) and (epsilon2, delta2) compose to their
        sums whatever the second round learned from the first.
        """
        first_delta = SEARCH_DELTA * delta
        crowd = hidden_users(fewest(self.num_users, 1 / self.size), honest_fraction)
        hidden = hidden_users(self.num_users, honest_fraction)
        best = self._noise(epsilon, delta, hidden), None, epsilon, delta
        searches = list(self._searches())
        prices = shuffle_epsilons([search.oracle for search in searches], crowd, first_delta)
        for search, price in zip(searches, prices.tolist(), strict=True):
            if price >= epsilon:
                continue
            left, rest = epsilon - price, delta - first_delta
            moved = 2 * self.outliers * (1 - min(1.0, search.half_width / 2))
            width = search.half_width * self._noise(left, rest, hidden) + moved
            if width < best[0]:
                best = width, search, left, rest  # type: ignore[assignment]
        _, chosen, left, rest = best
        final = LInfMean.for_shuffle(self.size, left, rest, hidden)
        return self.plan(final, chosen, "none" if chosen is None else "budget")

    def _searches(self) -> Iterator[RangeSearch]:
        asked, each = self.num_users / self.size, self._half_failure / self.size
        for radii in self._radii():
            oracle: Oracle = oracle_for(SearchBins(radii.near).count)
            first = least_epsilon(radii, oracle, asked, each, self.outliers, math.inf)
            if first is not None:
                yield RangeSearch(radii, first, oracle, self.outliers)

    def _noise(self, epsilon: float, delta: float, hidden: int) -> float:
        """Width of an interval of [-1, 1]: that of a trusted curator, which messages come near."""
        mu = gaussian_mu(epsilon, delta)
        return 2 * 2 * math.sqrt(self.size / (self.num_users * hidden)) / mu


def _width(plan: UserMean) -> float:
    """Half of a 95 % interval, about: what plans are compared by."""
    predicted = plan.predicted
    return float(2 * predicted.standard_error.max() + predicted.bias_bound)


@lru_cache(maxsize=256)
def best_local(dimension: int, local_epsilon: float) -> MeanRandomizer:
    """The mechanism for [-1, 1]^dimension with the least worst-case error at this local budget."""
    if dimension == 1:
        return ScalarMean(1, local_epsilon, signed=True)
    found: list[MeanRandomizer] = [LInfMean(dimension, local_epsilon)]
    with suppress(ValueError):  # beyond its range of budgets
        found.append(PrivUnitInf(dimension, local_epsilon))
    return min(found, key=lambda mechanism: mechanism.mean_squared_error(1))


def _concentration(
    space: Space,
    rows: int,
    sigma: float | Sequence[float] | None,
    user_sigma: float | Sequence[float],
) -> Concentration:
    own = _per_column("user_sigma", user_sigma, space)
    if not (own >= 0).all():
        raise ValueError(f"user_sigma must be a finite number >= 0, got {user_sigma!r}")
    if isinstance(space, Ball) and sigma is None and not own.any():
        return RotatedMeans(rows, space)
    # Of a row, in any direction, whatever the rows are.
    one_row = np.array(1 / space.half if isinstance(space, Ball) else 1.0)
    if sigma is not None:
        stated = _per_column("sigma", sigma, space)
        if not (stated > 0).all():
            raise ValueError(f"sigma must be a finite number > 0, got {sigma!r}")
        one_row = np.minimum(one_row, stated * space.scale)
    return SubGaussian(float(np.max((own * space.scale) ** 2 + one_row**2 / rows)))


def _per_column(name: str, given: float | Sequence[float], space: Space) -> np.ndarray:
    numbers = np.atleast_1d(np.asarray(given, dtype=float))
    most = 1 if isinstance(space, Ball) else space.dimension
    if numbers.ndim != 1 or len(numbers) not in (1, most):
        raise ValueError(f"{name} must be one number, or one per column, got {len(numbers)}")
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be a finite number, got {given!r}")
    return numbers


def _check_target(
    epsilon: float | None, local_epsilon: float | None, delta: float | None, model: str
) -> None:
    if model not in ("local", "shuffle"):
        raise ValueError(f'model must be "local" or "shuffle", got {model!r}')
    if (epsilon is None) == (local_epsilon is None):
        raise ValueError("exactly one of epsilon and local_epsilon must be given")
    for name, value in (("epsilon", epsilon), ("local_epsilon", local_epsilon)):
        if value is not None:
            check_positive(name, value)
    if epsilon is not None and model == "shuffle" and delta is None:
        raise ValueError("delta must be given with epsilon in the shuffle model")
    if delta is not None:
        check_fraction("delta", delta)


def _check_shares(outliers: float, failure_probability: float) -> None:
    if not 0 <= outliers < 1 / 3:
        raise ValueError(f"outliers must lie in [0, 1/3), got {outliers!r}")
    check_fraction("failure_probability", failure_probability)
