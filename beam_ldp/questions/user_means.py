"""Means of people's own means, where each person has many rows: one round or two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from beam_ldp.questions.base import Choice, Look, Rows
from beam_ldp.questions.means import (
    MeanQuestion,
    Vectors,
    check_vectors,
    radius_of,
)
from beam_ldp.settings import SettingError
from beam_ldp.settings.fields import NUMBER, WHOLE, Kind, setting
from beam_ldp.settings.usage import Arguments
from beam_ldp.wording import number

if TYPE_CHECKING:  # what help need not wait for
    from beam_ldp.accounting.prices import Price
    from beam_ldp.planning import Plan
    from beam_ldp.protocols import Space, UserMean, UserMeanPrice
    from beam_ldp.questions.encoders import VectorEncoder
    from beam_ldp.settings import Privacy
    from beam_ldp.settings.job import Job

LEVEL = 0.95  # of every interval
_BALL_SHARE = 0.1  # of the failure probability: that a rotated coordinate is cut off


def _numbers(value: Any) -> tuple[float, ...]:
    """`60`, `60,800` or a list."""
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    return tuple(float(part) for part in parts)


NUMBERS = Kind(
    "a number, or one per column, separated by commas", _numbers,
    {"anyOf": [{"type": "number"}, {"type": "string"},
               {"type": "array", "items": {"type": "number"}}]},
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class UserMeanQuestion(MeanQuestion):
    """The mean of people's own means, where each person has many rows."""

    rows_per_user: int = setting(
        1,
        "smallest number of rows per person (default 1); people with fewer count as "
        "{question.outliers}. The more rows, the closer people's means lie together, "
        "and the less noise is needed",
        WHOLE, flag="rows-per-user", metavar="M", basic=True,
    )  # fmt: skip
    sigma: tuple[float, ...] | None = setting(
        None,
        "how far rows lie from their person's own mean: a sub-Gaussian parameter in the"
        " units of the data, or one per column, separated by commas (default: what the "
        "range implies)",
        NUMBERS, flag="sigma", metavar="S", basic=True,
    )  # fmt: skip
    user_sigma: tuple[float, ...] = setting(
        (0.0,),
        "how far people's own means lie from each other, likewise (default 0: all rows "
        "of all people come from one population)",
        NUMBERS, flag="user-sigma", metavar="S",
    )  # fmt: skip
    outliers: float = setting(
        0.0,
        "share of people about whom nothing is assumed, in [0, 1/3) (default 0); the "
        "bias that clipping them can cause is included in every interval",
        NUMBER, flag="outliers", metavar="SHARE",
    )  # fmt: skip
    failure_probability: float = setting(
        0.01,
        "probability that round one fails people who are as assumed (default 0.01); it "
        "is deducted from the level of the intervals",
        NUMBER, flag="failure-probability", metavar="P",
    )  # fmt: skip
    split: Literal["auto", "budget", "users"] = setting(
        "auto",
        "with {privacy.local_epsilon}: everybody answers both rounds, each with part of"
        " the budget, or each person answers one round with all of it; auto takes the "
        "more accurate one. The fewer people of the first round hide each other less: "
        "compare the privacy cost of both rounds",
        flag="split", choices=("auto", "budget", "users"),
    )  # fmt: skip

    refuses = {
        "stream": "all rows of a person become one value first, and in a stream further rows may "
        "always come",
        "publish": "its second round asks in ranges that the first one found: devices would have "
        "to be asked twice under one charge, which no program does yet",
        "yaml": "Beam YAML has transforms of one round, and means of many rows take two",
    }

    @classmethod
    def needed(cls, given: Arguments) -> tuple[str, ...]:
        return ("people.id", *super().needed(given))

    def settled(self, given: Arguments) -> UserMeanQuestion:
        """With norm and radius filled in: ranges are the cube."""
        named = [name for name in ("range", "ranges", "radius") if getattr(self, name)]
        if len(named) != 1:
            raise SettingError(
                "give one of --range LOW HIGH, --ranges FILE and --radius R: the public bounds of "
                "rows"
            )
        if not self.radius:
            return replace(self, norm="linf", radius=1.0)
        return replace(self, norm="l2", radius=radius_of(self.radius))

    def filled(self, job: Job) -> Job:
        return job

    def rules(self, job: Job) -> None:
        if self.rows_per_user < 1:
            raise SettingError("--rows-per-user must be >= 1")
        if not 0 <= self.outliers < 1 / 3:
            raise SettingError(f"--outliers must lie in [0, 1/3), got {self.outliers:g}")
        for flag, told, fits in (
            ("--sigma", self.sigma or (), "> 0"), ("--user-sigma", self.user_sigma, ">= 0")
        ):  # fmt: skip
            for one in told:
                if not math.isfinite(one) or one < 0 or one == 0 and fits == "> 0":
                    raise SettingError(f"{flag} must be a finite number {fits}, got {one:g}")
        left = round(1 - LEVEL, 12)
        if not 0 < self.failure_probability < left:
            raise SettingError(
                f"--failure-probability must lie in (0, {left:g}): intervals at level {LEVEL:.0%} "
                f"leave no more, got {self.failure_probability}"
            )
        check_vectors(self)

    def bind(self, job: Job, look: Look) -> UserMeans:
        found = self.bound_as(UserMeans, job, look)
        assert isinstance(found, UserMeans)
        return found


@dataclass(frozen=True, eq=False)
class UserMeans(Vectors):
    """What the mean of people's means is. Attributes: as in `Vectors`."""

    reduces = True

    def digest(self, mechanism: Any) -> bytes:
        ranges = mechanism.space.ranges
        return b"" if ranges is None else bytes(ranges.digest)

    def check(self, mechanism: Any) -> None:
        from beam_ldp.protocols import UserMean

        if not isinstance(mechanism, UserMean):
            raise TypeError(f"protocol must be a UserMean, got {type(mechanism).__name__}")

    def mechanism(self, privacy: Privacy) -> Any:
        raise ValueError("protocol must be given: plan_user_mean makes it")

    def encoder(self, mechanism: Any) -> VectorEncoder:
        from beam_ldp.questions.encoders import VectorEncoder

        space = mechanism.space
        return VectorEncoder.of(self.column_names, space.dimension, space.ranges, False)

    # Before the data --------------------------------------------------------------------------

    @property
    def asked(self) -> UserMeanQuestion:
        assert isinstance(self.declared, UserMeanQuestion)
        return self.declared

    def space(self, job: Job) -> Space:
        """Where rows lie."""
        from beam_ldp.protocols import Ball, Box

        if self.ranges is not None:
            return Box(self.ranges, self.dimension)
        failure = _BALL_SHARE * self.asked.failure_probability
        return Ball.for_users(self.dimension, self.asked.radius, job.planned_reports, failure)

    def best(self, job: Job) -> Plan:
        from beam_ldp.planning import Plan
        from beam_ldp.protocols import plan_user_mean

        asked, people = self.asked, job.planned_reports
        try:
            protocol = plan_user_mean(
                people,
                asked.rows_per_user,
                self.space(job),
                epsilon=job.privacy.epsilon,
                local_epsilon=job.privacy.local_epsilon,
                delta=job.privacy.delta or None,
                model=job.privacy.model,
                sigma=asked.sigma,
                user_sigma=asked.user_sigma,
                outliers=asked.outliers,
                failure_probability=asked.failure_probability,
                split=asked.split,
                honest_fraction=job.hiding_share,
                max_local_epsilon=job.privacy.local_limit,
            )
        except ValueError as error:
            raise SettingError(str(error)) from None
        return Plan("UserMean", protocol)

    def chosen(self, job: Job, mechanism: UserMean) -> Choice:
        people, price = job.planned_reports, None
        if not job.noise.simulated:
            price = self._total(job, mechanism, mechanism.min_reports(people))
        return Choice(mechanism, people, price, float(mechanism.predicted.standard_error.max()))

    def price_among(self, job: Job, choice: Choice, num_reports: int) -> Price | None:
        if choice.price is None:
            return None
        protocol = choice.mechanism
        return self._total(job, protocol, protocol.min_reports(num_reports))

    def _prices(self, job: Job, protocol: UserMean, crowds: Sequence[int]) -> UserMeanPrice:
        """Round by round, given how many people answer each."""
        from beam_ldp.protocols import user_mean_price

        first, second = (_honest(job, people) for people in crowds)
        return user_mean_price(protocol, first, second, job.privacy.delta)

    def _total(self, job: Job, protocol: UserMean, crowds: Sequence[int]) -> Price:
        """What both rounds cost together."""
        from beam_ldp.accounting.prices import Price

        first, second = (_honest(job, people) for people in crowds)
        crowd = second if protocol.search is None else min(first, second)
        total = self._prices(job, protocol, crowds).total
        return Price(total, crowd, protocol.reports(first, second))

    def expectation(self, job: Job, choice: Choice) -> str:
        which = "the mean" if self.dimension == 1 else "a coordinate of the mean, at worst,"
        off = f"{which} will be off by about {number(choice.predicted_error)}"
        return f"{_rounds_said(choice.mechanism)}; {off}"

    def expected(self, job: Job, choice: Choice) -> Rows:
        protocol = choice.mechanism
        found: Rows = [("error of a coordinate", f"{number(choice.predicted_error)} at worst")]
        found.append(("rounds", _rounds_said(protocol)))
        if protocol.failure_probability:
            said = f"{protocol.failure_probability:.2g}, taken out of the intervals' level"
            found.append(("round one fails", said))
        return found

    def expected_as_json(self, job: Job, choice: Choice) -> dict[str, Any]:
        protocol = choice.mechanism
        crowds = protocol.min_reports(choice.num_reports)
        return {
            "dimension": self.dimension,
            "split": protocol.split,
            "failure_probability": protocol.failure_probability,
            "rounds": self.rounds(job, protocol, crowds, choice.price is not None),
        }

    def rounds(
        self, job: Job, protocol: UserMean, crowds: Sequence[int], priced: bool
    ) -> list[dict[str, Any]]:
        """Of each round what the record says: its number, what it asks, its mechanism and local
        budget, how many people hide each other in it, and its price (epsilon at delta)."""
        prices = self._prices(job, protocol, crowds) if priced else None
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

    # After the data ---------------------------------------------------------------------------

    def price(self, job: Job, choice: Choice, release: Any) -> Price:
        from beam_ldp.accounting.prices import Price

        if release.simulated:
            return Price(None, _honest(job, release.smallest_batch))
        return self._total(job, choice.mechanism, _crowds(release))

    def facts(self, job: Job, choice: Choice, release: Any) -> dict[str, Any]:
        protocol, asked = choice.mechanism, self.asked
        rounds = self.rounds(job, protocol, _crowds(release), not release.simulated)
        return super().facts(job, choice, release) | {
            "kind": "user_mean",
            "statistic": "user_mean",
            "split": protocol.split,
            "rounds": tuple(rounds),
            "rows_per_user": asked.rows_per_user,
            "sigma": asked.sigma,
            "user_sigma": asked.user_sigma,
            "outliers": asked.outliers,
            "failure_probability": release.estimate.failure_probability,
        }


def _honest(job: Job, people: int) -> int:
    """Of so many people, those whose reports hide somebody."""
    from beam_ldp.accounting.reports import hidden_users

    return hidden_users(people, job.privacy.honest_fraction)


def _crowds(release: Any) -> tuple[int, int]:
    """People among whom a report hides, in round one (0 without it) and in round two."""
    first, second = ([0] + release.mechanism["crowds"])[-2:]
    return first, second


def _rounds_said(protocol: UserMean) -> str:
    if protocol.search is None:
        return "one round over the whole range (see --rows-per-user and --sigma)"
    who = "everybody answers both"
    if protocol.split == "users":
        who = f"{protocol.search_share:.1%} of the people answer the first, the rest the second"
    part = min(1.0, protocol.search.half_width)
    return f"two rounds, the second about {part:.0%} of the range; {who}"
