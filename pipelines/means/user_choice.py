"""What a mean of people's means is: its flags, both rounds and their cost, and its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from beam_ldp.accounting.prices import Price
from beam_ldp.accounting.reports import hidden_users
from beam_ldp.pipelines.means.choice import (
    VectorPlanner,
    checked_means,
    needed_of_privacy,
    radius_of,
    with_columns,
)
from beam_ldp.pipelines.usage.user_mean import USAGE, UserMeanQuestion
from beam_ldp.protocols import (
    Ball,
    Box,
    Space,
    UserMean,
    UserMeanPrice,
    plan_user_mean,
    user_mean_price,
)
from beam_ldp.release.job import Settings, need, section_from, settings_from
from beam_ldp.release.planner import Choice, Rows
from beam_ldp.release.record import LEVEL, MeanRecord
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import Arguments, Usage
from beam_ldp.wording import number

UserMeanSettings = Settings[UserMeanQuestion]

_BALL_SHARE = 0.1  # of the failure probability: that a rotated coordinate is cut off


def check_user_mean(given: Arguments) -> UserMeanSettings:
    """The settings, with every rule checked. Raises SettingError."""
    need(USAGE, given, "source.paths", "output.folder", "people.id", *needed_of_privacy(given))
    return with_columns(checked_user_mean(given, USAGE))


def checked_user_mean(given: Arguments, usage: Usage) -> UserMeanSettings:
    """The settings, with every rule checked that needs no files. Raises SettingError."""
    question = _with_space(section_from(given, usage, "question", UserMeanQuestion))
    if question.rows_per_user < 1:
        raise SettingError("--rows-per-user must be >= 1")
    left = round(1 - LEVEL, 12)
    if not 0 < question.failure_probability < left:
        raise SettingError(
            f"--failure-probability must lie in (0, {left:g}): intervals at level {LEVEL:.0%} "
            f"leave no more, got {question.failure_probability}"
        )
    return checked_means(settings_from(given, usage, question, UserMeanSettings))


def _with_space(question: UserMeanQuestion) -> UserMeanQuestion:
    """The question with its norm and radius filled in: ranges are the cube."""
    given = [name for name in ("range", "ranges", "radius") if getattr(question, name)]
    if len(given) != 1:
        raise SettingError(
            "give one of --range LOW HIGH, --ranges FILE and --radius R: the public bounds of rows"
        )
    if not question.radius:
        return replace(question, norm="linf", radius=1.0)
    return replace(question, norm="l2", radius=radius_of(question.radius))


@dataclass(frozen=True)
class UserMeanChoice(Choice[UserMean]):
    """The plan of both rounds, with its expected cost and error.

    Attributes:
        round_prices: expected, round by round; None in a simulation.
    """

    round_prices: UserMeanPrice | None


class UserMeanPlanner(VectorPlanner[UserMeanSettings]):
    """What is the mean of people's means? Before the data."""

    @property
    def space(self) -> Space:
        """Where rows lie."""
        if self.ranges is not None:
            return Box(self.ranges, self.dimension)
        settings = self.settings
        failure = _BALL_SHARE * settings.question.failure_probability
        return Ball.for_users(
            self.dimension, settings.question.radius, settings.planned_reports, failure
        )

    @cached_property
    def protocol(self) -> UserMean:
        """The plan of both rounds. Raises SettingError."""
        settings = self.settings
        try:
            return plan_user_mean(
                settings.planned_reports,
                settings.question.rows_per_user,
                self.space,
                epsilon=settings.privacy.epsilon,
                local_epsilon=settings.privacy.local_epsilon,
                delta=settings.privacy.delta or None,
                model=settings.privacy.model,
                sigma=settings.question.sigma,
                user_sigma=settings.question.user_sigma,
                outliers=settings.question.outliers,
                failure_probability=settings.question.failure_probability,
                split=settings.question.split,
                honest_fraction=settings.hiding_share,
                max_local_epsilon=settings.privacy.local_limit,
            )
        except ValueError as error:
            raise SettingError(str(error)) from None

    def choose(self) -> UserMeanChoice:
        people = self.settings.planned_reports
        crowds = self.protocol.min_reports(people)
        prices = None if self.settings.noise.seed is not None else self.prices(crowds)
        return UserMeanChoice(
            mechanism=self.protocol,
            num_reports=people,
            price=None if prices is None else self._total(prices, crowds),
            predicted_error=float(self.protocol.predicted.standard_error.max()),
            round_prices=prices,
        )

    def prices(self, crowds: Sequence[int]) -> UserMeanPrice:
        """Round by round, given how many people answer each."""
        first, second = map(self.honest, crowds)
        return user_mean_price(self.protocol, first, second, self.settings.privacy.delta)

    def _total(self, prices: UserMeanPrice, crowds: Sequence[int]) -> Price:
        first, second = map(self.honest, crowds)
        crowd = second if self.protocol.search is None else min(first, second)
        return Price(prices.total, crowd, self.protocol.reports(first, second))

    def price_among(self, choice: Choice[Any], num_reports: int) -> Price | None:
        return None if choice.price is None else self.total(self.protocol.min_reports(num_reports))

    def total(self, crowds: Sequence[int]) -> Price:
        """What both rounds cost together, given how many people answer each."""
        return self._total(self.prices(crowds), crowds)

    def honest(self, people: int) -> int:
        """Of so many people, those whose reports hide somebody."""
        return hidden_users(people, self.settings.privacy.honest_fraction)

    @property
    def _rounds_said(self) -> str:
        protocol = self.protocol
        if protocol.search is None:
            return "one round over the whole range (see --rows-per-user and --sigma)"
        who = "everybody answers both"
        if protocol.split == "users":
            who = f"{protocol.search_share:.1%} of the people answer the first, the rest the second"
        part = min(1.0, protocol.search.half_width)
        return f"two rounds, the second about {part:.0%} of the range; {who}"

    def expectation(self, choice: Choice[Any]) -> str:
        which = "the mean" if self.dimension == 1 else "a coordinate of the mean, at worst,"
        return f"{self._rounds_said}; {which} will be off by about {number(choice.predicted_error)}"

    def expected(self, choice: Choice[Any]) -> Rows:
        found: Rows = [("error of a coordinate", f"{number(choice.predicted_error)} at worst")]
        found.append(("rounds", self._rounds_said))
        if self.protocol.failure_probability:
            said = f"{self.protocol.failure_probability:.2g}, taken out of the intervals' level"
            found.append(("round one fails", said))
        return found

    def expected_as_json(self, choice: Choice[Any]) -> dict[str, Any]:
        assert isinstance(choice, UserMeanChoice)
        return {
            "dimension": self.dimension,
            "split": self.protocol.split,
            "failure_probability": self.protocol.failure_probability,
            "rounds": self.rounds(
                self.protocol.min_reports(choice.num_reports), choice.round_prices
            ),
        }

    def rounds(self, crowds: Sequence[int], prices: UserMeanPrice | None) -> list[dict[str, Any]]:
        """Of each round what the record says."""
        protocol = self.protocol
        asked: list[tuple[str, Any, int]] = [("the mean itself", protocol.final, crowds[1])]
        if protocol.search is not None:
            bins = f"which of {protocol.search.bins.count:,} bins holds the mean"
            asked = [
                (bins, protocol.search.oracle, crowds[0]),
                ("the mean, clipped to the interval found", protocol.final, crowds[1]),
            ]
        return [
            {
                "round": i + 1,
                "asks": asks,
                "mechanism": type(mechanism).__name__,
                "local_epsilon": None if prices is None else mechanism.local_epsilon,
                "people": people,
                "epsilon": None if prices is None else float(prices.rounds[i].epsilon),
                "delta": None if prices is None else prices.rounds[i].delta,
            }
            for i, (asks, mechanism, people) in enumerate(asked)
        ]


# What its record and its statement say differently ------------------------------------------------


@dataclass(frozen=True)
class UserMeanRecord(MeanRecord):
    """The record of a mean of people's means.

    Attributes:
        split: "none" (one round), "budget" (everybody answers both) or "users" (each person one).
        rounds: of each round: its number, what it asks, its mechanism and local budget, how many
            people hide each other in it, and its price (epsilon at delta).
        rows_per_user, sigma, user_sigma, outliers: what was supposed, for accuracy alone.
        failure_probability: that the rounds failed people who are as supposed.
    """

    kind = "user_mean"

    statistic: str = "user_mean"
    split: str = "none"
    rounds: tuple[dict[str, Any], ...] = ()
    rows_per_user: int = 1
    sigma: tuple[float, ...] | None = None
    user_sigma: tuple[float, ...] = (0.0,)
    outliers: float = 0.0
    failure_probability: float = 0.0
