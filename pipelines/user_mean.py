"""`beam-ldp user-mean`: the mean of people's numbers, where each person has many of them.

The same program as `python -m beam_ldp.pipelines.user_mean`.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from beam_ldp.accounting.prices import Price
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.commands import start
from beam_ldp.pipelines.mean import VectorQuestion
from beam_ldp.pipelines.means.answer import MeanAnswer, mean_view
from beam_ldp.pipelines.means.user_choice import (
    UserMeanPlanner,
    UserMeanRecord,
    UserMeanSettings,
    check_user_mean,
)
from beam_ldp.pipelines.usage.user_mean import USAGE
from beam_ldp.release.planner import Choice
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms.device.encode import EncodeVectors
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.user_means import PrivateUserMean


class UserLevelMean(UserMeanPlanner, VectorQuestion[UserMeanSettings]):
    """What is the mean of people's means?"""

    usage = USAGE

    @property
    def record_type(self) -> type[UserMeanRecord]:
        return UserMeanRecord

    @classmethod
    def check(cls, given: Arguments) -> UserMeanSettings:
        return check_user_mean(given)

    def composite(self, choice: Choice[Any]) -> Any:
        how: Any = self.how
        return PrivateUserMean(
            self.protocol,
            columns=self.columns,
            bad_rows=self.bad_rows,
            question=self.about,
            **how,
        )

    def encoder(self, mechanism: Any) -> Any:
        return EncodeVectors(self.columns, self.dimension, people=self.settings.people)

    def price(self, release: Release) -> Price:
        if release.simulated:
            return Price(None, self.honest(release.smallest_batch))
        crowds = _crowds(release)
        return self.total(crowds)

    def facts(self, choice: Choice[Any], release: Release) -> dict[str, Any]:
        protocol, settings, estimate = self.protocol, self.settings, release.estimate
        prices = None if release.simulated else self.prices(_crowds(release))
        return dict(
            model=settings.privacy.model,
            dimension=self.dimension,
            messages_per_user=protocol.messages_per_user,
            values=self.bounds,
            in_ranges=self.ranges is not None,
            mean_squared_error=estimate.mean_squared_error,  # type: ignore[attr-defined]
            bias_bound=estimate.bias_bound,  # type: ignore[attr-defined]
            error_bars=estimate.error_bars,  # type: ignore[attr-defined]
            split=protocol.split,
            rounds=tuple(self.rounds(_crowds(release), prices)),
            rows_per_user=settings.question.rows_per_user,
            sigma=settings.question.sigma,
            user_sigma=settings.question.user_sigma,
            outliers=settings.question.outliers,
            failure_probability=estimate.failure_probability,  # type: ignore[attr-defined]
        )

    def answer(self, release: Release, choice: Choice[Any], truth: np.ndarray | None) -> MeanAnswer:
        view = mean_view(release.estimate, self.labels, truth, self.ranges, self.shape)
        return MeanAnswer(release, view, self.settings.output.top, "")


def _crowds(release: Release) -> tuple[int, int]:
    """People among whom a report hides, in round one (0 without it) and in round two."""
    first, second = ([0] + release.mechanism["crowds"])[-2:]
    return first, second


PROGRAM = programs.program_of(UserLevelMean)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(USAGE))
