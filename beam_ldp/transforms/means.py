"""Rows in, a private mean out: all stages in one transform."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from beam_ldp.randomizers.domain import Domain
from beam_ldp.transforms.budgeted import ChargeTo
from beam_ldp.transforms.composite import PrivateEstimate
from beam_ldp.transforms.estimate import EstimateMean
from beam_ldp.transforms.mechanisms import check_mean
from beam_ldp.transforms.vectors import EncodeVectors
from beam_ldp.transforms.windows import DEFAULT_RULES, WindowRules

if TYPE_CHECKING:
    from beam_ldp.randomizers.mean.base import MeanRandomizer
    from beam_ldp.randomizers.mean.ranges import CoordinateRanges


class PrivateMean(PrivateEstimate):
    """The mean of people's vectors, under local privacy.

    Protects each person's vector with the randomizer's local epsilon against everybody who sees the
    reports, and with the price of the release's `event` against whoever sees only what this
    transform puts out. Which people take part is not hidden. Without user ids every row is counted
    as a person.

    In: rows, vectors or blocks as `EncodeVectors` takes them. Out: one `Release` per window, whose
    `estimate` is a `MeanEstimate` in the unit of the data; with `groups` one `(group, Release)` per
    group and window. Attributes of the result: `bad_rows`, a collection of `BadRowBlock`, and
    `withheld`, a collection of `WithheldRelease`.

    A vector outside the randomizer's ball is clipped on the device, or stops the run: as the
    randomizer's `clipping` says. Clipping is counted nowhere, and its bias is in no error. A number
    that is neither 0 nor 1 makes a bad row where the randomizer's values are binary.

    Args:
        randomizer: the mean mechanism.
        columns, user_id_column, groups, group_column, bad_rows: as in `EncodeVectors`.
        ranges: public ranges of the coordinates, for mechanisms of norm "linf" and radius 1.
        min_reports: least number of reports to release; default 0.9 of `expected_users`.
        expected_users: how many people are expected to take part.
        one_report_per: "user" draws one row of each person, over all groups; "row" sends one report
            per row. Default: "user" where there is a user id column.
        output, scope: as in `Shuffle`.
        memoize_key_file, release_id, dataset, seed: as in `PrivateFrequencies`.
        question: name of what is asked, for the record.
        one_row_each: every person has one row (more would be copies of it), so errors need not
            allow for the draw of a row. A statement about the data; one report per person is sent
            in any case.
        privacy_unit: what one person's contribution is called; that of the budget, if there is one.
        budget: whose budget this release is charged to; a simulation is never charged.

    Raises:
        BudgetExceededError: when it is built into a pipeline, if the worst case does not fit.
        TypeError: if the randomizer is not one for means.
        ValueError: for arguments that do not fit together.

    >>> import apache_beam as beam
    >>> from beam_ldp.randomizers.mean import CoordinateRanges, LInfMean
    >>> ranges = CoordinateRanges(low=(0, 18), high=(1440, 98))  # minutes, years
    >>> rows = [{"minutes": 60 * (i % 5), "age": 30 + i % 20} for i in range(1000)]
    >>> with beam.Pipeline(runner="FnApiRunner") as pipeline:
    ...     releases = (
    ...         pipeline
    ...         | beam.Create(rows)
    ...         | PrivateMean(
    ...             LInfMean(2, 4.0), columns=["minutes", "age"], ranges=ranges, min_reports=900
    ...         )
    ...     )
    ...     _ = releases | beam.Map(lambda release: print(release.estimate.value.shape))
    (2,)
    """

    def __init__(
        self,
        randomizer: MeanRandomizer,
        *,
        columns: str | Sequence[str] | None = None,
        user_id_column: str | None = None,
        groups: Domain | str | Path | None = None,
        group_column: str | None = None,
        ranges: CoordinateRanges | None = None,
        min_reports: int | None = None,
        expected_users: float | None = None,
        one_report_per: Literal["user", "row"] | None = None,
        output: Literal["reports", "statistic"] = "statistic",
        scope: Literal["batch", "global"] = "batch",
        bad_rows: Literal["dead_letter", "zero"] = "dead_letter",
        memoize_key_file: str | None = None,
        release_id: str | None = None,
        dataset: str = "",
        seed: int | None = None,
        question: str = "",
        one_row_each: bool = False,
        privacy_unit: str = "user",
        budget: ChargeTo | None = None,
        windows: WindowRules = DEFAULT_RULES,
        permanent: bool = False,
    ) -> None:
        check_mean(randomizer)
        names = (columns,) if isinstance(columns, str) else tuple(columns or ())
        super().__init__(
            randomizer,
            columns=names or [name for name in (question,) if name],
            values_digest=lambda: b"" if ranges is None else ranges.digest,
            group_column=group_column,
            user_id_column=user_id_column,
            groups=groups,
            min_reports=min_reports,
            expected_users=expected_users,
            one_report_per=one_report_per,
            output=output,
            scope=scope,
            memoize_key_file=memoize_key_file,
            release_id=release_id,
            dataset=dataset,
            seed=seed,
            question=question,
            one_row_each=one_row_each,
            privacy_unit=privacy_unit,
            budget=budget,
            windows=windows,
            permanent=permanent,
        )
        self._encoder = EncodeVectors(
            columns,
            randomizer.dimension,
            user_id_column=user_id_column,
            groups=groups,
            group_column=group_column,
            ranges=ranges,
            binary=randomizer.norm == "binary",
            bad_rows=bad_rows,
        )
        self._estimator = EstimateMean(
            cast("MeanRandomizer", self._randomizer),
            min_reports=self._min_reports,
            sampling=self.sampling,
            question=question,
            ranges=ranges,
        )
