"""Batched arm elimination: one loop for servers that are trusted, shuffled to, told noise only.

What forged reports can do to a batch: whoever answers may answer anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from beam_ldp.decisions.bandits.designs import (
    CoreDesign,
    Width,
    g_optimal,
    printed_width,
    safe_width,
    tight_width,
    uniform,
)
from beam_ldp.decisions.bandits.noise import Accountant, Counts, RewardNoise, batch_epsilon
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive

Rounding = Literal["real", "floor", "ceil"]


@dataclass(frozen=True)
class BatchSchedule:
    """Batches of about `growth**i` people for i = 1, ..., `batches`, among `horizon` people.

    The batches together may ask for more people than there are. The learner then stops exploring
    before the first batch that does not fit (`fits`), and all others get the best action so far.

    Attributes:
        horizon: people in all, each asked once.
        growth: ratio of the sizes of successive batches.
        batches: most batches.

    Source: specification of linear bandits, section 3.1.

    >>> plan = BatchSchedule.of(1_000_000)
    >>> plan.batches, f"{plan.growth:.4f}", f"{plan.size(12):,.0f}"
    (12, '2.8581', '297,170')
    """

    horizon: int
    growth: float
    batches: int

    @classmethod
    def of(cls, horizon: int, rounding: Rounding = "real") -> BatchSchedule:
        """The schedule of a horizon; the natural logarithm of it, L, is rounded in three ways.

        Args:
            horizon: people in all, at least 16.
            rounding: "real" takes growth (2T)^(1/L) and floor(L) - 1 batches; "floor" and "ceil"
                round L first, and take L - 1 batches.
        """
        if rounding not in get_args(Rounding):
            allowed = ", ".join(get_args(Rounding))
            raise ValueError(f"rounding must be one of {allowed}, got {rounding!r}")
        horizon = check_integer("horizon", horizon, 16, 10**15)
        length = math.log(horizon)
        if rounding == "floor":
            length = math.floor(length)
        elif rounding == "ceil":
            length = math.ceil(length)
        return cls(horizon, (2 * horizon) ** (1 / length), math.floor(length) - 1)

    def size(self, batch: int) -> float:
        """People of a batch before counts are rounded up for each action, from batch 1."""
        return self.growth ** check_integer("batch", batch, 1, self.batches)

    @property
    def share(self) -> float:
        """All batches' people, of the horizon; above 1 the last batch does not fit."""
        return math.fsum(self.size(i + 1) for i in range(self.batches)) / self.horizon

    def fits(self, people: int, asked: int) -> bool:
        """Whether a batch of that many people fits after those who were asked."""
        return asked + people <= self.horizon


# How batches grow ---------------------------------------------------------------------------------


Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

Model = Literal["central", "local", "shuffled", "none"]
Report = Literal["bit", "laplace"]


@dataclass(frozen=True, eq=False)
class Batch:
    """What is public of one batch before anybody is asked.

    Attributes:
        number: from 1.
        active: (K,) indices of the actions that may still be best.
        design: of those actions.
        counts: (c,) people of each action of the design's support.
        noise: of their rewards.
        width: half-width of all K estimated rewards; but for a probability of 1/T over all batches
            of a horizon of T people, all are within theirs.
    """

    number: int
    active: Indices
    design: CoreDesign
    counts: Counts
    noise: RewardNoise
    width: float

    @property
    def people(self) -> int:
        return int(self.counts.sum())

    @property
    def played(self) -> Indices:
        """(c,) indices of the actions that people get."""
        return self.active[self.design.support]

    def estimates(self, sums: Floats) -> Floats:
        """(K,) mean rewards of the active actions, by least squares from (c,) sums."""
        return _estimator(self.design, self.counts) @ sums

    def survivors(self, estimates: Floats) -> Indices:
        """The actions that may still be best: none is dropped whose reward may be the largest."""
        return self.active[estimates >= estimates.max() - 2 * self.width]


def _estimator(design: CoreDesign, counts: Counts) -> Floats:
    played = design.rows[design.support]
    gram = (played.T * counts) @ played
    return np.asarray(np.linalg.solve(gram, design.rows.T).T @ played.T)


@dataclass(frozen=True, eq=False)
class Run:
    """What one run did.

    Attributes:
        plays: (K,) people that had each action; sums to the horizon.
        batches: that were asked.
        estimates: of each batch.
        winner: index of the action that all others got.
    """

    plays: Counts
    batches: tuple[Batch, ...]
    estimates: tuple[Floats, ...]
    winner: int

    def regret(self, means: Floats) -> float:
        """Reward that was lost against the best action for everybody, in expectation."""
        return float(self.plays @ (means.max() - means))


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearBandit:
    """Which of K actions is best, where rewards are linear in known features of the actions.

    Each person has one action once and returns a reward of [-1, 1] whose mean is <theta, action>;
    theta is unknown, |theta| <= 1. Batches ask about a few actions that tell most of all, and drop
    those that cannot be best; when a batch no longer fits, or one action is left, all others get
    the best. Their rewards are never read.

    Rewards are protected, as one person's outcomes are replaced by others; who takes part is not.
    Everything after the noisy sums is a function of them, and nobody is in two batches, so that the
    whole run costs what one batch costs. Actions are public but in a shuffled batch that is
    amplified as a whole.

    Attributes:
        actions: (K, d) finite; rows of length 1 at most.
        horizon: T, people in all.
        model: who must be trusted: "central", the server, which adds noise to sums; "local",
            nobody; "shuffled", whoever permutes the reports; "none", no privacy.
        epsilon: central epsilon; local epsilon of the model "local".
        delta: of the model "shuffled"; 0 of others.
        report: what people send: "bit" (default; always less noise) or "laplace".
        accountant: of shuffled batches; "bit" for bits and "clones" for Laplace by default.
        amplify_over: "action": people of one action hide among each other, which holds where the
            server logs who saw what; "batch": all people of a batch, which needs a secret
            assignment of people to actions.
        max_local_epsilon: of any report.
        rounding: of the schedule.
        width: "tight" (default), "safe" in closed form, or "printed", the text's, whose noise is
            half of what its epsilon needs: for comparison.
        core_set: whether few actions are played that tell of all (default), or all equally often.
        row_error: distance at most of every row from the true features of its action, where those
            are measured; see `ContextualActions`.
        skipped: batches at the beginning of the schedule that are left out, which are so small that
            they drop next to nothing.

    Source: specification of linear bandits, sections 2, 5, 6 and 7.
    """

    actions: Floats
    horizon: int
    model: Model = "shuffled"
    epsilon: float = 1.0
    delta: float = 1e-6
    report: Report = "bit"
    accountant: Accountant | None = None
    amplify_over: Literal["action", "batch"] = "action"
    max_local_epsilon: float = 8.0
    rounding: Rounding = "real"
    width: Width = "tight"
    core_set: bool = True
    row_error: float = 0.0
    skipped: int = 0

    def __post_init__(self) -> None:
        actions = np.asarray(self.actions, dtype=np.float64)
        if actions.ndim != 2 or 0 in actions.shape or not np.isfinite(actions).all():
            raise ValueError(f"actions must be a finite matrix with rows, got {actions.shape}")
        if np.linalg.norm(actions, axis=1).max() > 1 + 1e-9:
            raise ValueError("actions must be rows of length 1 at most: divide all by the largest")
        object.__setattr__(self, "actions", actions)
        for name, allowed in (("model", Model), ("report", Report), ("width", Width)):
            if getattr(self, name) not in get_args(allowed):
                choices = ", ".join(get_args(allowed))
                raise ValueError(f"{name} must be one of {choices}, got {getattr(self, name)!r}")
        if self.amplify_over not in ("action", "batch"):
            raise ValueError(f"amplify_over must be action or batch, got {self.amplify_over!r}")
        if self.accountant == "bit" and self.report != "bit":
            raise ValueError('accountant "bit" is of reports "bit"')
        check_positive("epsilon", self.epsilon)
        check_positive("max_local_epsilon", self.max_local_epsilon)
        check_fraction("delta", self.delta, "[)")
        check_fraction("row_error", self.row_error, "[)")
        check_integer("skipped", self.skipped, 0)
        if self.model == "local" and self.epsilon > self.max_local_epsilon:
            raise ValueError(
                f"epsilon must be at most max_local_epsilon ({self.max_local_epsilon:g}) where it "
                f"is that of reports, got {self.epsilon!r}"
            )
        _ = self.schedule

    @cached_property
    def schedule(self) -> BatchSchedule:
        return BatchSchedule.of(self.horizon, self.rounding)

    # One batch -----------------------------------------------------------------------------------

    def batch(self, number: int, active: Indices, asked: int = 0) -> Batch | None:
        """The batch of that number; None where it is not asked: nothing to tell, or too few people.

        Args:
            number: from 1.
            active: increasing indices of actions.
            asked: people asked before.
        """
        rows = self.actions[active]
        place = number + self.skipped
        if place > self.schedule.batches or len(active) == 1 or not rows.any():
            return None
        design = g_optimal(rows) if self.core_set else uniform(rows)
        counts = design.counts(self.schedule.size(place))
        if not self.schedule.fits(int(counts.sum()), asked):
            return None
        noise = self.noise(counts)
        width = self._width(number, design, counts, noise)
        return Batch(number, active, design, counts, noise, width)

    def counted(self, batch: Batch, counts: Counts) -> Batch:
        """The batch as it came: with the noise that was told and at least the people asked.

        Raises:
            ValueError: if an action has fewer people than were asked: their reports would hide each
                other less than was promised.
        """
        if counts.shape != batch.counts.shape or (counts < batch.counts).any():
            raise ValueError("counts must be at least those that the batch asks for")
        width = self._width(batch.number, batch.design, counts, batch.noise)
        return replace(batch, counts=counts, width=width)

    def noise(self, counts: Counts) -> RewardNoise:
        """What is added to rewards in a batch with so many people for each action."""
        sensitivity = 1.0 if self.width == "printed" else 2.0
        if self.model == "none":
            return RewardNoise("none")
        if self.model == "central":
            return RewardNoise("sum", self.epsilon, sensitivity)
        epsilon = self.epsilon
        if self.model == "shuffled" and epsilon < self.max_local_epsilon:
            accountant = self.accountant or ("bit" if self.report == "bit" else "clones")
            people = counts.sum() if self.amplify_over == "batch" else counts.min()
            crowd = _rounded_down(int(people))  # so that prices are computed once
            epsilon = batch_epsilon(self.epsilon, self.delta, crowd, accountant)
        return RewardNoise(self.report, min(epsilon, self.max_local_epsilon), sensitivity)

    def misfit(self, design: CoreDesign, counts: Counts) -> float:
        """The part of a width that is there because rows may be off by `row_error`.

        A sum of the n_b rewards of row b has a mean that is off by n_b row_error at most, and
        enters an estimate with its weight; the estimate is of the row that is known.
        """
        weights = np.abs(_estimator(design, counts)) @ counts
        return self.row_error * (1 + float(weights.max()))

    def _width(self, number: int, design: CoreDesign, counts: Counts, noise: RewardNoise) -> float:
        return self._luck(number, design, counts, noise) + self.misfit(design, counts)

    def _luck(self, number: int, design: CoreDesign, counts: Counts, noise: RewardNoise) -> float:
        actions, estimator = len(design.rows), _estimator(design, counts)
        if self.width == "tight":
            log_failure = math.log(2 * actions * self.horizon * self.schedule.batches)
            return tight_width(estimator, counts, noise, log_failure)
        log_failure = math.log(4 * actions * self.horizon**2)
        if self.width == "safe":
            return safe_width(estimator, counts, noise, log_failure)
        kind: Literal["none", "central", "report"] = "report"
        if self.model in ("none", "central"):
            kind = "none" if self.model == "none" else "central"
        return printed_width(
            kind, self.schedule.size(number + self.skipped), int(counts.sum()), len(counts),
            self.actions.shape[1], noise.epsilon or math.inf, log_failure,
        )  # fmt: skip

    # A whole run ---------------------------------------------------------------------------------

    def run(self, sums_of: Callable[[Batch], Floats]) -> Run:
        """All batches, with the (c,) noisy sums that `sums_of` collects for each."""
        active, asked, winner = np.arange(len(self.actions)), 0, 0
        plays = np.zeros(len(self.actions), dtype=np.int64)
        batches: list[Batch] = []
        found: list[Floats] = []
        while (batch := self.batch(len(batches) + 1, active, asked)) is not None:
            estimates = batch.estimates(sums_of(batch))
            plays[batch.played] += batch.counts
            asked += batch.people
            winner = int(active[np.argmax(estimates)])
            active = batch.survivors(estimates)
            batches.append(batch)
            found.append(estimates)
        plays[winner] += self.horizon - asked
        return Run(plays, tuple(batches), tuple(found), winner)


def _rounded_down(people: int) -> int:
    """By 2 % at most, to few different crowds; a smaller crowd is never priced lower."""
    return min(people, int(1.02 ** math.floor(math.log(people) / math.log(1.02))))


# What forged reports do ---------------------------------------------------------------------------


def influence(batch: Batch) -> float:
    """How far one forged report in place of an honest one moves any estimate, at most.

    A bit is one of two numbers, whoever sends it. A Laplace report may be any number: infinite.
    Behind a trusted server a reward is clipped, so that it moves a sum by 2 at most.

    >>> from beam_ldp.decisions.bandits.elimination import LinearBandit
    >>> bandit = LinearBandit(actions=np.eye(2), horizon=100_000, model="local")
    >>> batch = bandit.batch(8, np.arange(2))
    >>> round(influence(batch), 5), batch.counts.tolist()
    (0.00179, [2413, 2413])
    """
    return _step(batch) * float(np.abs(_weights(batch)).max())


def forgers_to_drop(batch: Batch) -> float:
    """Forged reports without which no action is dropped that has the largest estimate otherwise.

    To drop it, another estimate must rise above its own by twice the width, and each forged report
    moves such a difference by a bounded step. Infinite where all people of the batch would not do;
    1 for Laplace reports.
    """
    weights = _weights(batch)
    apart = np.abs(weights[:, None, :] - weights[None, :, :]).max(axis=(0, 1))  # (c,)
    step, needed = _step(batch), 2 * batch.width
    if math.isinf(step):
        return 1.0
    forged = 0
    for place in np.argsort(-apart):  # the plays that move most first
        most, each = int(batch.counts[place]), step * float(apart[place])
        if most * each >= needed:
            return float(forged + math.ceil(needed / each))
        forged, needed = forged + most, needed - most * each
    return math.inf


def _step(batch: Batch) -> float:
    """Of one report, in a sum."""
    return math.inf if batch.noise.kind == "laplace" else 2 * batch.noise.bound


def _weights(batch: Batch) -> np.ndarray:
    """(K, c) of sums in estimates."""
    return batch.estimates(np.eye(len(batch.counts)))
