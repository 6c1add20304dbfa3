"""How close a convex training can come to its optimum at a given privacy, before it runs.

In each of T rounds, k of n clients report s of their m gradients, randomized (thesis, Algorithm
4.3.1). More rounds come closer; but at one central epsilon they also leave less local epsilon to
each report, and so more noise. Both are known beforehand: the price by the accountant, the
distance by Theorem 4.3.1 (3) of the thesis, which Theorem 5.4.3 repeats with another price
(Shamir and Zhang 2013). The bound is one for every convex problem: a training of real data often
comes much closer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive

if TYPE_CHECKING:
    import dp_accounting
    import numpy as np
    from numpy.typing import NDArray

Norm = Literal["l1", "l2", "linf"]
MECHANISMS = {"l1": "L1Mean", "l2": "PrivUnit", "linf": "LInfMean"}
SAMPLINGS = ("fixed", "self")
ROUNDS = tuple(round(10 ** (half / 2)) for half in range(11))  # 1, 3, 10, 32 ... 100,000
LARGEST_LOCAL_EPSILON = 8.0
_DIGITS = 1e-3  # of the local epsilon, relative
_LARGE = 62  # bits of a message from which (s + 2^b - 1) over s is 2^(s b) / s! to a double


def second_moment(
    norm: str, dimension: int, lipschitz: float, squared_error: float, reports: float
) -> float:
    """G^2 = max(d^(1 - 2/p), 1) L^2 + MSE / reports: bounds E ||gbar||^2 of one round.

    Args:
        norm: p of the ball: "l1", "l2" or "linf".
        dimension: d.
        lipschitz: L, bound of every example's gradient in that norm.
        squared_error: of one report, worst case (`mechanism.mean_squared_error(1)`).
        reports: k s, reports per round.

    The thesis prints it without the factor of the dimension (Lemma 4.3.2), which is wrong for
    "linf": a gradient with ||g||_inf <= L can have ||g||_2^2 = d L^2.

    >>> round(second_moment("linf", 100, 0.1, 5.0, 50), 6)
    1.1
    """
    factor = float(dimension) if norm == "linf" else 1.0
    return factor * lipschitz**2 + squared_error / reports


def gap_bound(diameter: float, gradient_bound: float, rounds: float) -> float:
    """2 Dm G (2 + log T) / sqrt(T): the expected gap of the last iterate, at most.

    Of steps Dm / (G sqrt(t)) on a set of diameter Dm, with G^2 the `second_moment`.

    >>> round(gap_bound(2.0, 1.5, 10_000), 3)
    0.673
    """
    return 2 * diameter * gradient_bound * (2 + math.log(rounds)) / math.sqrt(rounds)


def mean_gap(problem: ConvexProblem, gradient_bound: float, cohorts: Cohorts, rounds: int) -> float:
    """The same on average over how many rounds have any reports; without any the point stays.

    A round of nobody takes no step. (The bound of the mean number would be too low: it is convex.)
    """
    counts, chances = cohorts.rounds_with_reports(rounds)
    likely = chances > 0
    each = [
        gap_bound(problem.diameter, gradient_bound, count) if count else problem.any_gap
        for count in counts[likely].tolist()
    ]
    return float(chances[likely] @ each)


def multiset_bits(messages: int, bits: int) -> float:
    """log2 of the number of multisets of so many messages of so many bits each.

    A shuffler forgets the order, so a client need not send it: the bits that a client's messages
    of one round take, counted as a histogram (thesis, section 4.3.3).

    >>> multiset_bits(1, 15), round(multiset_bits(100, 4), 1)  # 400 bits one by one
    (15.0, 61.1)
    """
    check_integer("messages", messages, 1)
    check_integer("bits", bits, 0)
    if bits < _LARGE:
        return math.log2(math.comb(messages + (1 << bits) - 1, messages))
    return messages * bits - math.lgamma(messages + 1) / math.log(2)


def reciprocal_of_reports(clients: int, rate: float) -> float:
    """E[1/K | K >= 1] of a number K of clients who join by independent coins. O(clients).

    >>> round(reciprocal_of_reports(2, 0.5), 4)  # K = 1 in two of three cases
    0.8333
    """
    import numpy as np
    from scipy import stats

    counts = np.arange(1, clients + 1)
    chances = stats.binom.pmf(counts, clients, rate)
    return float(np.sum(chances / counts) / np.sum(chances))


@dataclass(frozen=True)
class ConvexProblem:
    """What is minimised: the mean of convex losses over a convex set.

    Attributes:
        dimension: number of parameters, >= 2.
        norm: in which the gradient of every loss has at most the length `lipschitz`.
        lipschitz: L, > 0.
        diameter: Dm, the Euclidean diameter of the set that is projected on, > 0.

    Raises:
        ValueError: if a parameter is out of range.
    """

    dimension: int
    norm: Norm = "l2"
    lipschitz: float = 1.0
    diameter: float = 2.0

    def __post_init__(self) -> None:
        check_integer("dimension", self.dimension, 2)
        if self.norm not in MECHANISMS:
            raise ValueError(f"norm must be one of {', '.join(MECHANISMS)}, got {self.norm!r}")
        check_positive("lipschitz", self.lipschitz)
        check_positive("diameter", self.diameter)

    @property
    def any_gap(self) -> float:
        """What no point of the set exceeds: a larger bound says nothing."""
        slope = self.lipschitz * (math.sqrt(self.dimension) if self.norm == "linf" else 1.0)
        return slope * self.diameter


@dataclass(frozen=True)
class Cohorts:
    """Who reports in a round.

    Attributes:
        clients: n.
        clients_per_round: k; with `sampling="self"` on average.
        points: m, of each client.
        points_sampled: s, of them reported by each client of a round.
        sampling: "fixed" (k of n without replacement; all of them if k = n) or "self" (by
            independent coins of the clients).

    Raises:
        ValueError: if a number is out of range.
    """

    clients: int
    clients_per_round: int
    points: int = 1
    points_sampled: int = 1
    sampling: Literal["fixed", "self"] = "fixed"

    def __post_init__(self) -> None:
        check_integer("clients", self.clients, 1)
        check_integer("clients_per_round", self.clients_per_round, 1, self.clients)
        check_integer("points", self.points, 1)
        check_integer("points_sampled", self.points_sampled, 1, self.points)
        if self.sampling not in SAMPLINGS:
            raise ValueError(f"sampling must be one of {', '.join(SAMPLINGS)}")
        if self.sampling == "self" and self.clients_per_round == self.clients:
            raise ValueError("clients_per_round must be below clients if clients toss coins")

    @cached_property
    def reports(self) -> float:
        """Reports that noise averages over: of random numbers, the harmonic mean."""
        if self.sampling == "fixed":
            return float(self.clients_per_round * self.points_sampled)
        rate = self.clients_per_round / self.clients
        return self.points_sampled / reciprocal_of_reports(self.clients, rate)

    def rounds_with_reports(self, rounds: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """How many of so many may have any, and how likely each number is. O(rounds)."""
        import numpy as np
        from scipy import stats

        if self.sampling == "fixed":
            return np.array([rounds]), np.ones(1)
        nobody = math.exp(self.clients * math.log1p(-self.clients_per_round / self.clients))
        counts = np.arange(rounds + 1)
        return counts, stats.binom.pmf(counts, rounds, 1 - nobody)

    def event(self, mechanism: Any) -> dp_accounting.DpEvent:
        """What one round of reports of that mechanism releases."""
        from beam_ldp.accounting import SubsampledShuffledDpEvent, local_event, shuffled_event

        n, k = self.clients, self.clients_per_round
        if k == n and self.points == self.points_sampled == 1:
            return shuffled_event(mechanism, n)
        return SubsampledShuffledDpEvent(
            local_event(mechanism),
            n,
            k,
            points_per_client=self.points,
            points_sampled=self.points_sampled,
            sampling="self" if self.sampling == "self" else "without_replacement",
        )


@dataclass(frozen=True)
class Convergence:
    """One way to spend a budget.

    Attributes:
        rounds: T.
        local_epsilon: of one report, against everybody.
        epsilon: central price of all rounds, proved.
        gradient_bound: G, root of the `second_moment`.
        first_step: Dm / G; the step of round t is this over sqrt(t).
        gap: E F(theta_T) - F* is at most this.
        noise_share: of G^2, what is noise.
        bits_per_round: of a client that reports, at most.
        bits: that a client sends in all rounds, on average.
    """

    rounds: int
    local_epsilon: float
    epsilon: float
    gradient_bound: float
    first_step: float
    gap: float
    noise_share: float
    bits_per_round: float
    bits: float


def convergence(
    problem: ConvexProblem, cohorts: Cohorts, rounds: int, local_epsilon: float, delta: float
) -> Convergence:
    """What a training with this local epsilon costs, and how close it comes. O(rounds).

    Protects one data point of one client: against whoever sees a report by `local_epsilon`,
    against whoever sees all shuffled reports of all rounds by `epsilon` at `delta`.

    Raises:
        ValueError: if an argument is out of range.

    >>> found = convergence(ConvexProblem(100), Cohorts(60_000, 2_000), 1_000, 2.0, 1e-6)
    >>> round(found.epsilon, 3), round(found.gap, 2), round(found.first_step, 2)
    (0.247, 1.17, 1.92)
    """
    from beam_ldp.accounting import ShuffleAccountant

    check_integer("rounds", rounds, 1)
    check_positive("local_epsilon", local_epsilon)
    check_fraction("delta", delta)
    mechanism = _mechanism(problem, local_epsilon)
    event = cohorts.event(mechanism)
    price = float(ShuffleAccountant().compose(event, rounds).get_epsilon(delta))
    squared_error = float(mechanism.mean_squared_error(1))
    total = second_moment(
        problem.norm, problem.dimension, problem.lipschitz, squared_error, cohorts.reports
    )
    bound = math.sqrt(total)
    messages = cohorts.points_sampled * mechanism.messages_per_user
    one_by_one = messages * mechanism.bits_per_report
    a_round = min(one_by_one, multiset_bits(messages, mechanism.bits_per_report))
    return Convergence(
        rounds=rounds,
        local_epsilon=local_epsilon,
        epsilon=price,
        gradient_bound=bound,
        first_step=problem.diameter / bound,
        gap=mean_gap(problem, bound, cohorts, rounds),
        noise_share=squared_error / cohorts.reports / total,
        bits_per_round=a_round,
        bits=rounds * cohorts.clients_per_round / cohorts.clients * a_round,
    )


def plan_convergence(
    problem: ConvexProblem,
    cohorts: Cohorts,
    epsilon: float,
    delta: float,
    rounds: Sequence[int] = ROUNDS,
    max_local_epsilon: float = LARGEST_LOCAL_EPSILON,
) -> list[Convergence]:
    """For each number of rounds, the training that uses up a central epsilon.

    Args:
        problem: what is minimised.
        cohorts: who reports.
        epsilon: central target of all rounds together, > 0.
        delta: in (0, 1).
        rounds: numbers of them to compare.
        max_local_epsilon: largest one to use, even where the target would allow a larger one.

    Returns:
        In the order of `rounds`; local epsilons to three digits, on the safe side.

    Raises:
        ValueError: if an argument is out of range.
    """
    check_positive("epsilon", epsilon)
    check_fraction("delta", delta)
    check_positive("max_local_epsilon", max_local_epsilon)
    if not rounds:
        raise ValueError("rounds must have at least one number")
    found: list[Convergence] = []
    above = max_local_epsilon
    for number in sorted(set(rounds)):
        found.append(_within(problem, cohorts, number, epsilon, delta, above))
        above = found[-1].local_epsilon  # of more rounds no larger one
    by_rounds = {one.rounds: one for one in found}
    return [by_rounds[number] for number in rounds]


def best(found: Sequence[Convergence]) -> Convergence:
    """The one that comes closest; of equals the one of fewest rounds."""
    return min(found, key=lambda one: (one.gap, one.rounds))


def _within(
    problem: ConvexProblem,
    cohorts: Cohorts,
    rounds: int,
    epsilon: float,
    delta: float,
    above: float,
) -> Convergence:
    """The largest local epsilon up to `above` whose price is within the target.

    A price is about a power of the local epsilon: the next guess lies on the line through the
    last two, in logarithms, inside what is known to hold the root.
    """

    def at(local: float) -> Convergence:
        return convergence(problem, cohorts, rounds, local, delta)

    high = at(above)
    if high.epsilon <= epsilon:
        return high
    low = at(min(epsilon, above))  # added up, one report of each round costs more: not yet within
    while low.epsilon > epsilon:
        high, low = low, at(low.local_epsilon / 4)
    while high.local_epsilon > low.local_epsilon * (1 + _DIGITS):
        near, far = math.log(low.local_epsilon), math.log(high.local_epsilon)
        guess = (near + far) / 2  # where delta allows all of it, a price is 0 and no power
        if low.epsilon > 0:
            slope = (math.log(high.epsilon) - math.log(low.epsilon)) / (far - near)
            guess = near + (math.log(epsilon) - math.log(low.epsilon)) / slope - _DIGITS / 3
        margin = min(_DIGITS / 3, (far - near) / 3)
        middle = at(math.exp(min(max(guess, near + margin), far - margin)))
        low, high = (middle, high) if middle.epsilon <= epsilon else (low, middle)
        if low is middle and epsilon - low.epsilon <= _DIGITS * epsilon:
            break
    return low


def _mechanism(problem: ConvexProblem, local_epsilon: float) -> Any:
    from beam_ldp.randomizers import mean

    kind = getattr(mean, MECHANISMS[problem.norm])
    return kind(problem.dimension, local_epsilon, radius=problem.lipschitz)
