"""Which mean mechanism, at which budget, with what error: before any data is read."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from beam_ldp.accounting import (
    PrivacyBound,
    event_epsilon,
    local_epsilon_for,
    shuffle_epsilon,
)
from beam_ldp.accounting.divergences.hockey_stick import check_reports
from beam_ldp.accounting.reports import hidden_users
from beam_ldp.accounting.shuffle.multi_message import gaussian_mu
from beam_ldp.accounting.shuffle.one_release import shuffled_reports
from beam_ldp.planning.frequencies import best_first, check_target, local_limit
from beam_ldp.randomizers import registry
from beam_ldp.randomizers.checks import check_integer, check_positive
from beam_ldp.randomizers.mean import MeanRandomizer, lower_bounds
from beam_ldp.randomizers.mean.allocation import MOST_BITS_EACH
from beam_ldp.randomizers.mean.base import Norm, check_numbers
from beam_ldp.randomizers.mean.block_mean import BlockMean
from beam_ldp.randomizers.mean.split_and_mix import SplitAndMixMean
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.walsh_hadamard import padded_size
from beam_ldp.settings.sections import MAX_LOCAL_EPSILON

# What a plan of means is asked for: the ball, the target, the limits, and what to compare with.


_POWERS = {"l1": 1.0, "l2": 2.0, "linf": math.inf}


@dataclass(frozen=True)
class MeanTask:
    """Exactly one of `epsilon` (central, with `delta`) and `local_epsilon` is not None.

    Attributes:
        num_users: Users whose mean is estimated.
        hidden: Users who hide each other; 1 in the local model.
        dimension: Coordinates per vector.
        norm: Of the ball that vectors lie in, by name or as the p of an l_p norm.
        radius: Of that ball.
        epsilon: Central target.
        local_epsilon: Local budget.
        delta: Of the central target, or of the price of a local budget.
        max_bits: Most bits per user; infinite if there is no limit.
        max_local_epsilon: Largest local budget; infinite if there is no limit.
        max_messages: Most messages per user; infinite if there is no limit.
        trust_shuffler: Whether people may be protected by the shuffler alone.
    """

    num_users: int
    hidden: int
    dimension: int
    norm: Norm | float
    radius: float
    epsilon: float | None
    local_epsilon: float | None
    delta: float | None
    max_bits: float
    max_local_epsilon: float
    max_messages: float = math.inf
    trust_shuffler: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.norm, str):
            if self.norm not in (*_POWERS, "binary"):
                raise ValueError(
                    f'norm must be "l2", "l1", "linf", "binary" or a number >= 1, got {self.norm!r}'
                )
        elif not self.norm >= 1:
            raise ValueError(f"norm must be a name or a number >= 1, got {self.norm!r}")
        check_positive("radius", self.radius)
        if self.norm == "binary" and self.radius != 1.0:
            raise ValueError(f"radius must be 1 for binary vectors, got {self.radius!r}")

    @property
    def power(self) -> float:
        """The p of the norm; binary vectors are corners of a cube."""
        return _POWERS.get(self.norm, math.inf) if isinstance(self.norm, str) else float(self.norm)

    def enclosing(self) -> list[tuple[Norm, float]]:
        """Balls, with their radius, that hold the ball and have mechanisms of their own."""
        p, d, r = self.power, self.dimension, self.radius
        if self.norm == "binary":
            return [("binary", 1.0)]
        if p == 2:
            return [("l2", r)]
        if p < 2:
            return [("l1", r * d ** (1 - 1 / p)), ("l2", r)]
        return [("linf", r), ("l2", r * d ** (0.5 - 1 / p))]

    def enclosed(self) -> list[tuple[Norm, float]]:
        """Balls inside the ball whose best possible error is known."""
        p, d, r = self.power, self.dimension, self.radius
        if self.norm == "binary":
            return [("binary", 1.0)]
        return [("l1", r), ("l2", r * d ** min(0.0, 0.5 - 1 / p)), ("linf", r * d ** (-1 / p))]

    def reference(self) -> tuple[float, str]:
        """The mean squared error to compare with, and what it is.

        With a local budget a proved lower bound; with a central target the error of a trusted
        curator who adds Gaussian noise, or Laplace noise in few dimensions. That is no bound.
        """
        d, n = self.dimension, self.num_users
        if self.local_epsilon is not None:
            bounds = [
                lower_bounds.unbiased_local_bound(d, self.local_epsilon, n, norm, radius)
                for norm, radius in self.enclosed()
            ]
            value = max(bound.value for bound in bounds)
            return value, "the proved bound of unbiased local mechanisms"
        assert self.epsilon is not None and self.delta is not None
        mu = gaussian_mu(self.epsilon, self.delta)
        radius = 0.5 if self.norm == "binary" else self.radius
        value = min(
            lower_bounds.gaussian_reference(d, mu, n, self.power, radius),
            lower_bounds.laplace_reference(d, self.epsilon, n, self.power, radius),
        )
        return value, "a trusted curator's Gaussian or Laplace noise (a reference, not a bound)"


# Every way to tune a mean mechanism to a task that could be the best one ------------------


_SMALL = 1 << 18  # coordinates: beyond, no more than one message about each


def mechanisms(task: MeanTask) -> Iterator[tuple[type[MeanRandomizer], float]]:
    """The mechanisms that apply, each with the radius of a ball of its own norm.

    With a central target and a trusted shuffler those, too, that have no local epsilon.
    """
    no_limit = task.epsilon is not None and task.max_local_epsilon == math.inf
    kinds = registry.offered("mean", behind_shuffler=task.trust_shuffler and no_limit)
    balls: list[tuple[Norm, float]] = task.enclosing()
    if task.dimension == 1 and task.norm != "binary":
        balls = [("linf", task.radius)]
    for norm, radius in balls:
        yield from ((kind, radius) for kind in kinds if kind.serves(norm, task.dimension))


def variants(task: MeanTask, cls: type[MeanRandomizer], radius: float) -> Iterator[MeanRandomizer]:
    """The mechanism in the ways that could be best, tuned to the target.

    Raises:
        ValueError: where the mechanism does not exist for this task, with the reason.
    """
    if issubclass(cls, BlockMean) and task.local_epsilon is None:
        yield from _messages_apart(task, cls, radius)
        return
    if not cls.protects_alone:
        yield _behind_shuffler(task, cls, radius)
        return
    build = partial(cls, task.dimension, radius=radius)
    first, *others = cls.variants(task.dimension)
    # Variants hardly change what a mechanism earns; the first earns least.
    budget = min(_earned(task, partial(build, **first)), task.max_local_epsilon)
    randomizer = build(budget, **first)
    check_numbers(randomizer.numbers_per_report)
    yield randomizer
    for options in others:
        with contextlib.suppress(ValueError):  # such as too few bits for an unbiased mean
            yield build(budget, **options)


def _behind_shuffler(task: MeanTask, cls: type[MeanRandomizer], radius: float) -> MeanRandomizer:
    """Shares whose sum has the noise of the target, however few of the people expected hide."""
    assert task.epsilon is not None and task.delta is not None
    if not issubclass(cls, SplitAndMixMean):
        raise ValueError("it protects nobody without a shuffler, and nothing prices it with one")
    share = task.hidden / task.num_users
    return cls.for_shuffle(
        task.dimension, task.epsilon, task.delta, task.num_users, honest_fraction=share,
        radius=radius,
    )  # fmt: skip


def _earned(task: MeanTask, build: Any) -> float:
    """The local budget: as given, or what the target allows a mechanism with its own blanket."""
    if task.local_epsilon is not None:
        return task.local_epsilon
    assert task.epsilon is not None and task.delta is not None
    generic = local_epsilon_for(task.epsilon, task.delta, task.hidden)
    if build(generic).dominating_pair() == ShufflePair.clones(generic):
        return generic
    return local_epsilon_for(task.epsilon, task.delta, task.hidden, build)


def _messages_apart(
    task: MeanTask, cls: type[BlockMean], radius: float
) -> Iterator[MeanRandomizer]:
    """Many messages per user, each shuffled on its own; fewer of them where limits ask for it."""
    assert task.epsilon is not None and task.delta is not None
    size = padded_size(task.dimension) if cls.rotates else task.dimension
    build = partial(
        cls.for_shuffle, task.dimension, task.epsilon, task.delta, task.hidden, radius=radius
    )
    most = min(task.max_messages, _most_of_budget(task, size), math.inf if size <= _SMALL else size)
    if most >= 1:
        limited = task.max_local_epsilon < math.inf
        found = build(
            max_bits=None if task.max_bits == math.inf else task.max_bits,
            max_messages=None if most == math.inf else most,
            method="blanket" if limited and most < size else "auto",  # the limit decides
        )
        yield found
        if limited:
            yield _with_budget(found, task.max_local_epsilon)
    if task.max_local_epsilon < math.inf:
        yield cls(task.dimension, task.max_local_epsilon, radius)


def _with_budget(found: BlockMean, local_epsilon: float) -> BlockMean:
    """The same messages for another local budget."""
    assert found.message_epsilons is not None
    share = local_epsilon / found.local_epsilon
    budgets = tuple(share * budget for budget in found.message_epsilons)
    return replace(found, local_epsilon=local_epsilon, message_epsilons=budgets)


def _most_of_budget(task: MeanTask, size: int) -> float:
    """Most messages that meet the central target within `max_local_epsilon`.

    So many equal messages tend to a Gaussian mechanism with mu^2 = count x^2/n, x = 2 sinh(e/2).
    """
    if task.max_local_epsilon == math.inf:
        return math.inf
    assert task.epsilon is not None and task.delta is not None
    mu = gaussian_mu(task.epsilon, task.delta)
    low, high = 0, MOST_BITS_EACH * size
    while low < high:
        middle = (low + high + 1) // 2
        budget = 2 * middle * math.asinh(mu / 2 * math.sqrt(task.hidden / middle))
        low, high = (middle, high) if budget <= task.max_local_epsilon else (low, middle - 1)
    return low


# The plans, the best mechanism first --------------------------------------------------------


Model = Literal["shuffle", "local"]

MAX_DIMENSION = 1 << 20
_LADDERED = 1 << 14  # dimensions: beyond, a plan of many messages takes seconds
_ALIKE = 1.01
_MET = 1 + 1e-9


@dataclass(frozen=True)
class MeanPlan:
    """One mechanism, tuned to the target, with its price and its predicted error.

    Errors are those of the worst vectors of the ball, in the unit of the data, computed from the
    mechanism's own law (no simulation, and nothing about clipping of vectors outside the ball).

    Attributes:
        mechanism: Name of the class.
        randomizer: The mechanism itself; None if it does not exist for this task.
        local_epsilon: Budget of everything that one user sends, against whoever sees it before
            the shuffle. Mechanisms whose messages are shuffled apart have a large one.
        epsilon: Price at the requested delta, with its lower bounds; without a delta and in the
            local model the local epsilon.
        mean_squared_error: Expected squared Euclidean error of the mean, noise only.
        standard_error: Largest standard error of a coordinate, noise only.
        rms_error: Root of the expected squared Euclidean error, with the most that the mechanism
            itself (truncation after a public rotation, projections) shifts the mean by, on
            average over its public randomness.
        times_lower_bound: `rms_error` squared over the value that `lower_bound_name` names.
        lower_bound_name: With a local budget, a proved bound that no unbiased mechanism is below;
            with a central target a trusted curator's error: a reference, not a bound.
        bits_per_report: Bits of everything that one user sends.
        messages_per_user: Messages, each shuffled on its own.
        decoding: Cost of turning n reports into the mean of d coordinates.
        excluded: Why this row is not to be used; empty if it may be.
    """

    mechanism: str
    randomizer: MeanRandomizer | None
    local_epsilon: float
    epsilon: PrivacyBound | None
    mean_squared_error: float
    standard_error: float
    rms_error: float
    times_lower_bound: float
    lower_bound_name: str
    bits_per_report: int
    messages_per_user: int
    decoding: str
    excluded: str = ""

    @property
    def trusted(self) -> str:
        """Who must be trusted, lest everybody's vector be all but read: "device" alone where a
        local epsilon of at most 8 holds against everybody else, else "shuffler" too."""
        return "device" if self.local_epsilon <= MAX_LOCAL_EPSILON else "shuffler"

    @property
    def config(self) -> dict[str, Any]:
        """The mechanism's parameters, as `LocalRandomizer.from_config` takes them."""
        return {} if self.randomizer is None else self.randomizer.to_config()


def plan_means(
    num_users: int,
    dimension: int,
    norm: Norm | float = "l2",
    *,
    radius: float = 1.0,
    epsilon: float | None = None,
    local_epsilon: float | None = None,
    delta: float | None = None,
    max_bits: int | None = None,
    max_local_epsilon: float | None = None,
    model: Model = "shuffle",
    honest_fraction: float = 1.0,
    only: Collection[str] | None = None,
    max_messages: int | None = None,
    several: bool = False,
    trust_shuffler: bool = False,
) -> list[MeanPlan]:
    """Every mean mechanism for this task, best first, unusable ones last with the reason.

    Args:
        num_users: Users expected; 1 to 1e12.
        dimension: Coordinates per vector; 1 to a million (2**20).
        norm: Ball that the vectors lie in: "l2", "l1", "linf", "binary" (entries 0 and 1), or the
            p >= 1 of an l_p norm. Mechanisms of an enclosing ball are considered too.
        radius: Of the ball, in the unit of the data.
        epsilon: Central target, with `delta`; in the local model the local budget.
        local_epsilon: Local budget instead; exactly one of the two.
        delta: Central delta in (0, 1). Without it the price is the local epsilon itself.
        max_bits: Most bits that a user may send.
        max_local_epsilon: Most that a user may lose to somebody who sees the own messages before
            the shuffle; budgets are cut to it.
        model: "shuffle", or "local": nobody but the device is trusted.
        honest_fraction: Share of the reports that are certainly not fake, in (0, 1]; only those
            hide anybody.
        only: Names of the mechanisms to consider; None for all.
        max_messages: Most messages that a user may send.
        several: Whether a mechanism may have more rows than its most accurate one: every way to
            tune it that no row is better than in error, bits and local epsilon.
        trust_shuffler: Whether people may be protected by the shuffler alone: a central target
            then has `SplitAndMixMean` beside the others, whose local epsilon is infinite.

    Returns:
        One row per mechanism, or several. First those that may be used, by `rms_error`; among
        errors that are equal to 1 %, by bits.

    >>> plans = plan_means(10_000, 16, epsilon=1.0, delta=1e-6)
    >>> plans[0].mechanism, plans[0].epsilon <= 1.0, plans[0].messages_per_user > 1
    ('L2Mean', True, True)
    >>> plan_means(10_000, 16, epsilon=1.0, model="local")[0].times_lower_bound < 1.02
    True
    """
    if model not in ("shuffle", "local"):
        raise ValueError(f'model must be "shuffle" or "local", got {model!r}')
    hidden = hidden_users(check_reports(num_users), honest_fraction)
    check_target(epsilon, local_epsilon, delta, max_bits, shuffled=model == "shuffle")
    if model == "local":
        hidden, epsilon, local_epsilon, delta = 1, None, local_epsilon or epsilon, None
    size = check_integer("dimension", dimension, 1, MAX_DIMENSION)
    if max_messages is not None:
        check_integer("max_messages", max_messages, 1)
    task = MeanTask(
        num_users=int(num_users), hidden=hidden, dimension=size, norm=norm, radius=float(radius),
        epsilon=epsilon, local_epsilon=local_epsilon, delta=delta, max_bits=max_bits or math.inf,
        max_local_epsilon=local_limit(max_local_epsilon), max_messages=max_messages or math.inf,
        trust_shuffler=trust_shuffler and model == "shuffle",
    )  # fmt: skip
    usable = [(cls, o) for cls, o in mechanisms(task) if only is None or cls.__name__ in only]
    plans = best_first([_best(task, cls, outer) for cls, outer in usable])
    if not several:
        return plans
    longest = {plan.mechanism: plan.bits_per_report for plan in plans if not plan.excluded}
    more = [row for cls, outer in usable for row in _shorter(task, cls, outer, longest)]
    return best_first([*plans, *_frontier(task, plans, more)])


def recommend_mean(
    num_users: int, dimension: int, norm: Norm | float = "l2", **constraints: Any
) -> MeanPlan:
    """The first row of `plan_means`, which see for the arguments.

    Raises:
        ValueError: If no mechanism meets the constraints.

    >>> recommend_mean(10_000, 16, epsilon=1.0, delta=1e-6, max_bits=64).bits_per_report <= 64
    True
    """
    first = plan_means(num_users, dimension, norm, **constraints)[0]
    if first.excluded:
        raise ValueError(f"no mechanism meets the constraints: {first.excluded}")
    return first


def _best(task: MeanTask, cls: type[MeanRandomizer], radius: float) -> MeanPlan:
    """The best way to tune one mechanism, or one with the reason against it."""
    rows = []
    try:
        for randomizer in variants(task, cls, radius):
            rows.append(_row(task, randomizer))
    except ValueError as error:
        if not rows:
            return _absent(cls, str(error))
    ranked = best_first(rows)
    for row in ranked:
        if not row.excluded:  # prices take longer than errors: only where they matter
            priced = _priced(task, row)
            if not priced.excluded:
                return priced
    return ranked[0] if ranked[0].excluded else _priced(task, ranked[0])


_LADDER = (1 / 8, 1 / 4, 1)  # bits per coordinate, beside as many as the best takes


def _shorter(
    task: MeanTask, cls: type[MeanRandomizer], radius: float, longest: dict[str, int]
) -> list[MeanPlan]:
    """Further ways to tune a mechanism, without their prices: those of fewer bits."""
    found = []
    allowed = [task.max_bits]
    if issubclass(cls, BlockMean) and task.local_epsilon is None and task.dimension <= _LADDERED:
        size = padded_size(task.dimension)
        allowed = [each * size for each in _LADDER if each * size < longest.get(cls.__name__, 0)]
    for bits in allowed:
        with contextlib.suppress(ValueError):
            for randomizer in variants(replace(task, max_bits=bits), cls, radius):
                found.append(_row(task, randomizer))
    return found


def _frontier(
    task: MeanTask, plans: Sequence[MeanPlan], more: Sequence[MeanPlan]
) -> list[MeanPlan]:
    """Those of `more` that no row is better than in everything, priced."""
    kept = [plan for plan in plans if not plan.excluded]
    added = []
    for row in best_first([one for one in more if not one.excluded]):
        if any(_as_good(other, row) for other in kept):
            continue
        priced = _priced(task, row)
        if not priced.excluded:
            kept.append(priced)
            added.append(priced)
    return added


def _as_good(one: MeanPlan, other: MeanPlan) -> bool:
    """In error (to 1 %), bits and local epsilon."""
    return (
        one.rms_error <= _ALIKE * other.rms_error
        and one.bits_per_report <= other.bits_per_report
        and one.local_epsilon <= _ALIKE * other.local_epsilon
    )


def _row(task: MeanTask, randomizer: MeanRandomizer) -> MeanPlan:
    n, bits, budget = task.num_users, randomizer.bits_per_report, randomizer.local_epsilon
    noise = randomizer.mean_squared_error(n)
    error = noise + randomizer.shift_bound**2
    reference, name = task.reference()
    excluded = ""
    if bits > task.max_bits:
        excluded = f"{bits:,} bits per user, max_bits is {task.max_bits:,}"
    elif randomizer.messages_per_user > task.max_messages:
        sent = randomizer.messages_per_user
        excluded = f"{sent:,} messages per user, max_messages is {task.max_messages:,}"
    elif budget > task.max_local_epsilon * _MET:
        excluded = f"local epsilon {budget:.4g}, above the limit of {task.max_local_epsilon:g}"
    return MeanPlan(
        mechanism=type(randomizer).__name__,
        randomizer=randomizer,
        local_epsilon=budget,
        epsilon=None,
        mean_squared_error=noise,
        standard_error=math.sqrt(float(randomizer.variance(n).max())),
        rms_error=math.sqrt(error),
        times_lower_bound=error / reference if reference > 0 else math.inf,
        lower_bound_name=name,
        bits_per_report=bits,
        messages_per_user=randomizer.messages_per_user,
        decoding=randomizer.decoding,
        excluded=excluded,
    )


def _priced(task: MeanTask, row: MeanPlan) -> MeanPlan:
    """With its price; with a budget of its own where that of its first variant costs too much."""
    randomizer: Any = row.randomizer
    price = _price(randomizer, task.hidden, task.delta or 0.0)
    excluded = row.excluded
    if task.epsilon is not None and price > task.epsilon * _MET:
        if row.messages_per_user == 1 and not isinstance(randomizer, BlockMean):
            own = _earned(task, lambda budget: replace(randomizer, local_epsilon=budget))
            if own < randomizer.local_epsilon:
                return _priced(task, _row(task, replace(randomizer, local_epsilon=own)))
        excluded = f"central epsilon {price:.4g}, the target is {task.epsilon:g}"
    return replace(row, epsilon=price, excluded=excluded)


def _price(randomizer: Any, hidden: int, delta: float) -> PrivacyBound:
    if not randomizer.protects_alone:
        return event_epsilon(shuffled_reports(randomizer, hidden), delta)
    return shuffle_epsilon(randomizer, hidden, delta)


def _absent(cls: type[MeanRandomizer], reason: str) -> MeanPlan:
    nothing = math.inf
    return MeanPlan(
        cls.__name__, None, math.nan, None, nothing, nothing, nothing, nothing, "", 0, 0,
        cls.decoding, reason,
    )  # fmt: skip
