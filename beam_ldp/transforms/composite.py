"""Rows in, private estimates out: what the composites of all questions share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam

from beam_ldp.randomizers.base import LocalRandomizer, Sampling
from beam_ldp.randomizers.domain import Domain
from beam_ldp.transforms.absent_groups import with_absent_groups
from beam_ldp.transforms.aggregate import Aggregate
from beam_ldp.transforms.blocks import Withheld
from beam_ldp.transforms.bounding import BoundContributions
from beam_ldp.transforms.budgeted import ChargeTo, charge
from beam_ldp.transforms.carried import CarriedDomain, check_min_reports
from beam_ldp.transforms.permanent import PriceAsPermanent, check_permanent
from beam_ldp.transforms.randomize import Randomize, check_randomness
from beam_ldp.transforms.shuffle import Shuffle, ShuffleInParts
from beam_ldp.transforms.windows import DEFAULT_RULES, WindowRules

EXPECTED_SHARE = 0.9  # of the expected users: the least number of reports, unless it is given


class PrivateEstimate(beam.PTransform):
    """All stages in one transform; subclasses make the first one and the last.

    Args: as in `PrivateFrequencies`.
    """

    _encoder: beam.PTransform  # rows to blocks of values
    _estimator: beam.PTransform  # sums to releases

    def __init__(
        self,
        randomizer: LocalRandomizer,
        *,
        user_id_column: str | None,
        groups: Domain | str | Path | None,
        min_reports: int | None,
        expected_users: float | None,
        one_report_per: Literal["user", "row"] | None,
        output: Literal["reports", "statistic"],
        scope: Literal["batch", "global"],
        memoize_key_file: str | None,
        release_id: str | None,
        dataset: str,
        seed: int | None,
        question: str,
        one_row_each: bool = False,
        budget: ChargeTo | None = None,
        windows: WindowRules = DEFAULT_RULES,
        permanent: bool = False,
    ) -> None:
        super().__init__()
        check_randomness(memoize_key_file, release_id, seed, permanent)
        check_permanent(permanent, budget)
        self._windows = windows
        self._permanent = permanent
        self._budget = None if seed is not None else budget  # a simulation is never charged
        self._groups = None if groups is None else CarriedDomain(groups)
        self._randomizer = randomizer
        self._min_reports = least_reports(min_reports, expected_users)
        if one_report_per not in (None, "user", "row"):
            raise ValueError(f'one_report_per must be "user" or "row", got {one_report_per!r}')
        if one_report_per is None:
            one_report_per = "row" if user_id_column is None else "user"
        self._per_user = one_report_per == "user"
        self._drawn = self._per_user and not one_row_each
        self._question = question
        self._randomness: dict[str, Any] = {
            "memoize_key_file": memoize_key_file,
            "release_id": release_id,
            "dataset": dataset,
            "seed": seed,
            "permanent": permanent,
        }
        self._shuffle = Shuffle(
            randomizer, self._min_reports, output, scope, groups=groups, windows=windows
        )

    @property
    def sampling(self) -> Sampling:
        """Which errors the estimates have: with drawn rows they speak of the mean over persons."""
        return "iid" if self._drawn else "fixed"

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        values = encoded = pcoll | "Encode" >> self._encoder
        if self._per_user:
            bound = BoundContributions(**self._randomness, windows=self._windows)
            values = values | "Bound" >> bound
        shuffled = (
            values | "Randomize" >> Randomize(self._randomizer, **self._randomness)
        ) | "Shuffle" >> ShuffleInParts(self._shuffle)
        summed = shuffled | "Aggregate" >> Aggregate(self._randomizer)
        releases = summed = summed | "Estimate" >> self._estimator
        if self._permanent:
            releases = releases | "Price" >> PriceAsPermanent(self._randomizer)
        late = [values.late] if hasattr(values, "late") else []
        withheld = [shuffled[0].withheld, summed.withheld, *late] | "Withheld" >> beam.Flatten()
        if self._groups is not None:
            withheld = with_absent_groups(releases, withheld, self._groups, self._min_reports)
        if self._budget is not None:
            releases, withheld = charge(
                self._budget,
                self._budget.worst_event(self._randomizer, self._min_reports),
                pcoll,
                releases,
                withheld,
                values if self._per_user else None,
                local_epsilon=self._randomizer.local_epsilon,
                grouped=self._groups is not None,
                memoized=self._randomness["memoize_key_file"] is not None,
                question=self._question,
            )
        releases.persons = values if self._per_user else None
        releases.bad_rows = encoded.bad_rows
        releases.withheld = withheld | "Name" >> beam.Map(
            _with_question, self._question
        ).with_output_types(Withheld)
        return releases

    def display_data(self) -> dict[str, Any]:
        return {
            "mechanism": type(self._randomizer).__name__,
            "local_epsilon": self._randomizer.local_epsilon,
            "min_reports": self._min_reports,
            "one_report_per": "user" if self._per_user else "row",
            "question": self._question,
        }


def least_reports(min_reports: int | None, expected_users: float | None) -> int:
    """How many reports a release needs at least."""
    if min_reports is None:
        if expected_users is None:
            raise ValueError("min_reports or expected_users must be given")
        min_reports = max(1, round(EXPECTED_SHARE * expected_users))
    return check_min_reports(min_reports)


def _with_question(withheld: Withheld, question: str) -> Withheld:
    return replace(withheld, question=question)
