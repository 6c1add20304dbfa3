"""`beam-ldp user-mean`: the mean of people's numbers, where each person has many of them.

The same program as `python -m beam_ldp.pipelines.user_mean`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from rich.console import Console

from beam_ldp.accounting.reports import hidden_users
from beam_ldp.pipelines import run
from beam_ldp.pipelines.flags import Arguments, UsageError
from beam_ldp.pipelines.mean import Mean
from beam_ldp.pipelines.means.answer import MeanAnswer
from beam_ldp.pipelines.means.user_means import UserMeanRecord, UserMeanSettings, check_user_mean
from beam_ldp.pipelines.means.view import mean_view
from beam_ldp.pipelines.question import Choice, Rows
from beam_ldp.pipelines.records.gates import Price
from beam_ldp.pipelines.records.statement import number
from beam_ldp.pipelines.usage.user_mean import USAGE
from beam_ldp.protocols import (
    Ball,
    Box,
    Space,
    UserMean,
    UserMeanPrice,
    plan_user_mean,
    user_mean_price,
)
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.user_means import PrivateUserMean

_BALL_SHARE = 0.1  # of the failure probability: that a rotated coordinate is cut off


@dataclass(frozen=True)
class UserMeanChoice(Choice):
    """The plan of both rounds stands in the place of the randomizer.

    Attributes:
        round_prices: expected, round by round; None in a simulation.
    """

    round_prices: UserMeanPrice | None


class UserLevelMean(Mean):
    """What is the mean of people's means?"""

    usage = USAGE
    settings: UserMeanSettings  # type: ignore[assignment]

    @property
    def record_type(self) -> type[UserMeanRecord]:
        return UserMeanRecord

    @classmethod
    def check(cls, given: Arguments) -> UserMeanSettings:  # type: ignore[override]
        return check_user_mean(given)

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
        """The plan of both rounds. Raises UsageError."""
        settings = self.settings
        try:
            found = plan_user_mean(
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
                honest_fraction=settings.privacy.honest_fraction,
            )
        except ValueError as error:
            raise UsageError(str(error)) from None
        limit = settings.privacy.max_local_epsilon
        if limit is not None and found.local_epsilon > limit:
            raise UsageError(
                f"--max-local-epsilon {limit:g}: the plan for --epsilon needs a local epsilon of "
                f"{number(found.local_epsilon)}; give --local-epsilon {limit:g} instead"
            )
        return found

    def choose(self) -> UserMeanChoice:  # type: ignore[override]
        people = self.settings.planned_reports
        crowds = self.protocol.min_reports(people)
        prices = None if self.settings.noise.seed is not None else self._prices(crowds)
        return UserMeanChoice(
            randomizer=self.protocol,  # type: ignore[arg-type]
            num_reports=people,
            price=None if prices is None else self._total(prices, crowds),
            predicted_error=float(self.protocol.predicted.standard_error.max()),
            round_prices=prices,
        )

    def _prices(self, crowds: Sequence[int]) -> UserMeanPrice:
        first, second = map(self._honest, crowds)
        return user_mean_price(self.protocol, first, second, self.settings.privacy.delta)

    def _total(self, prices: UserMeanPrice, crowds: Sequence[int]) -> Price:
        first, second = map(self._honest, crowds)
        return Price(prices.total, second, self.protocol.event(first, second))

    def worst_price(self, choice: Choice) -> Price | None:
        if choice.price is None:
            return None
        crowds = self.protocol.min_reports(self.settings.min_reports)
        return self._total(self._prices(crowds), crowds)

    def _honest(self, people: int) -> int:
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

    def expectation(self, choice: Choice) -> str:
        which = "the mean" if self.dimension == 1 else "a coordinate of the mean, at worst,"
        return f"{self._rounds_said}; {which} will be off by about {number(choice.predicted_error)}"

    def expected(self, choice: Choice) -> Rows:
        found: Rows = [("error of a coordinate", f"{number(choice.predicted_error)} at worst")]
        found.append(("rounds", self._rounds_said))
        if self.protocol.failure_probability:
            said = f"{self.protocol.failure_probability:.2g}, taken out of the intervals' level"
            found.append(("round one fails", said))
        return found

    def expected_as_json(self, choice: Choice) -> dict[str, Any]:
        assert isinstance(choice, UserMeanChoice)
        return {
            "dimension": self.dimension,
            "split": self.protocol.split,
            "failure_probability": self.protocol.failure_probability,
            "rounds": self._rounds(
                self.protocol.min_reports(choice.num_reports), choice.round_prices
            ),
        }

    def composite(self, choice: Choice) -> Any:
        how: Any = self.how
        return PrivateUserMean(
            self.protocol,
            columns=self.columns,
            bad_rows=self.bad_rows,
            question=self.about,
            **how,
        )

    def price(self, release: Release) -> Price:
        if release.simulated:
            return Price(None, self._honest(release.smallest_batch))
        crowds = _crowds(release)
        return self._total(self._prices(crowds), crowds)

    def facts(self, choice: Choice, release: Release) -> dict[str, Any]:
        protocol, settings, estimate = self.protocol, self.settings, release.estimate
        prices = None if release.simulated else self._prices(_crowds(release))
        return dict(
            model=settings.privacy.model,
            dimension=self.dimension,
            messages_per_user=protocol.messages_per_user,
            values=self.bounds,
            in_ranges=self.ranges is not None,
            mean_squared_error=estimate.mean_squared_error,  # type: ignore[attr-defined]
            bias_bound=estimate.bias_bound,  # type: ignore[attr-defined]
            split=protocol.split,
            rounds=tuple(self._rounds(_crowds(release), prices)),
            rows_per_user=settings.question.rows_per_user,
            sigma=settings.question.sigma,
            user_sigma=settings.question.user_sigma,
            outliers=settings.question.outliers,
            failure_probability=estimate.failure_probability,  # type: ignore[attr-defined]
        )

    def _rounds(self, crowds: Sequence[int], prices: UserMeanPrice | None) -> list[dict[str, Any]]:
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

    def answer(self, release: Release, choice: Choice, truth: np.ndarray | None) -> MeanAnswer:
        view = mean_view(release.estimate, self.labels, truth, self.ranges, self.shape)
        return MeanAnswer(release, view, self.settings.output.top, "")


def _crowds(release: Release) -> tuple[int, int]:
    """People among whom a report hides, in round one (0 without it) and in round two."""
    first, second = ([0] + release.mechanism["crowds"])[-2:]
    return first, second


def run_given(given: Arguments, console: Console) -> int:
    """The program as it was told, by flags or a job file."""
    return run.run_and_show(UserLevelMean, given, console)


def main(argv: Sequence[str] | None = None) -> int:
    """The program; the exit codes are in `--help`."""
    return run.main(UserLevelMean, argv)


if __name__ == "__main__":
    # The module that runs is called __main__; what workers unpickle must have its real name.
    from beam_ldp.pipelines.user_mean import main as program

    sys.exit(program())
