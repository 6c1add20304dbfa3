"""What a plan of means is asked for, and every way to tune a mechanism that could be the best."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from beam_ldp.accounting import local_epsilon_for
from beam_ldp.accounting.shuffle.multi_message import gaussian_mu
from beam_ldp.randomizers import registry
from beam_ldp.randomizers.checks import check_positive
from beam_ldp.randomizers.mean import MeanRandomizer, lower_bounds
from beam_ldp.randomizers.mean.allocation import MOST_BITS_EACH
from beam_ldp.randomizers.mean.base import Norm, check_numbers
from beam_ldp.randomizers.mean.block_mean import BlockMean
from beam_ldp.randomizers.mean.split_and_mix import SplitAndMixMean
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.walsh_hadamard import padded_size

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
    budget = min(earned(task, partial(build, **first)), task.max_local_epsilon)
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


def earned(task: MeanTask, build: Any) -> float:
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
