"""Rows in, private frequencies out: all stages in one transform."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam

from beam_ldp.randomizers.base import FrequencyOracle, Sampling
from beam_ldp.randomizers.domain import Domain
from beam_ldp.transforms.aggregate import Aggregate
from beam_ldp.transforms.blocks import Withheld
from beam_ldp.transforms.bounding import BoundContributions
from beam_ldp.transforms.carried import CarriedDomain, IntegerDomain, check_min_reports
from beam_ldp.transforms.columns import MAX_VALUE_BYTES
from beam_ldp.transforms.encode import EncodeRows
from beam_ldp.transforms.estimate import EstimateFrequencies
from beam_ldp.transforms.randomize import Randomize, check_randomness
from beam_ldp.transforms.shuffle import Shuffle, ShuffleInParts

EXPECTED_SHARE = 0.9  # of the expected users: the least number of reports, unless it is given


class PrivateFrequencies(beam.PTransform):
    """How often each value of a public list occurs among people, under local privacy.

    Protects each person's value with the randomizer's local epsilon against everybody who sees the
    reports, and with the smaller epsilon of the release's `event` against whoever sees only what
    this transform puts out. Which people take part is not hidden. Without user ids each row is
    taken for a person.

    In: rows, scalars or blocks as `EncodeRows` takes them. Out: one `Release` per window; with
    `groups` one `(group, Release)` per group and window. Attributes of the result: `bad_rows`, a
    collection of `BadRow`, and `withheld`, a collection of `Withheld`.

    Args:
        randomizer: the frequency oracle; its domain_size counts `other`.
        domain: the public list of values, as `EncodeRows` takes it; None for values that are
            indices.
        column, user_id_column, groups, group_column, bad_rows, max_value_bytes: as in `EncodeRows`.
        min_reports: least number of reports to release; default 0.9 of `expected_users`.
        expected_users: how many people are expected to take part.
        one_report_per: "user" draws one row of each person, over all groups; "row" sends one report
            per row. Default: "user" where there is a user id column.
        output, scope: as in `Shuffle`.
        memoize_key_file, release_id, dataset, seed: as in `Randomize`; they govern the draw of a
            person's row too.
        question: name of what is asked, for the record.

    Raises:
        ValueError: for arguments that do not fit together.

    >>> import apache_beam as beam
    >>> from beam_ldp.randomizers.domain import Domain
    >>> from beam_ldp.randomizers.frequency.k_randomized_response import KRandomizedResponse
    >>> colours = Domain(("red", "green"))
    >>> oracle = KRandomizedResponse(domain_size=colours.size, local_epsilon=2.0)
    >>> with beam.Pipeline(runner="FnApiRunner") as pipeline:
    ...     releases = (
    ...         pipeline
    ...         | beam.Create(["red"] * 60 + ["green"] * 40)
    ...         | PrivateFrequencies(oracle, domain=colours, min_reports=90, output="statistic")
    ...     )
    ...     _ = releases | beam.Map(lambda release: print(release.num_reports))
    100
    """

    def __init__(
        self,
        randomizer: FrequencyOracle,
        *,
        domain: Domain | IntegerDomain | CarriedDomain | str | Path | None = None,
        column: str | None = None,
        user_id_column: str | None = None,
        groups: Domain | str | Path | None = None,
        group_column: str | None = None,
        min_reports: int | None = None,
        expected_users: float | None = None,
        one_report_per: Literal["user", "row"] | None = None,
        output: Literal["reports", "statistic"] = "statistic",
        scope: Literal["batch", "global"] = "batch",
        bad_rows: Literal["dead_letter", "other"] = "dead_letter",
        max_value_bytes: int = MAX_VALUE_BYTES,
        memoize_key_file: str | None = None,
        release_id: str | None = None,
        dataset: str = "",
        seed: int | None = None,
        question: str = "",
    ) -> None:
        super().__init__()
        if not isinstance(randomizer, FrequencyOracle):
            raise TypeError(
                f"randomizer must be a FrequencyOracle, got {type(randomizer).__name__}"
            )
        check_randomness(memoize_key_file, release_id, seed)
        self._randomizer = randomizer
        self._min_reports = _min_reports(min_reports, expected_users)
        if one_report_per not in (None, "user", "row"):
            raise ValueError(f'one_report_per must be "user" or "row", got {one_report_per!r}')
        if one_report_per is None:
            one_report_per = "row" if user_id_column is None else "user"
        self._per_user = one_report_per == "user"
        self._question = question
        self._groups = groups
        self._encode = EncodeRows(
            IntegerDomain(randomizer.domain_size) if domain is None else domain,
            column,
            user_id_column=user_id_column,
            groups=groups,
            group_column=group_column,
            bad_rows=bad_rows,
            max_value_bytes=max_value_bytes,
            domain_size=randomizer.domain_size,
        )
        self._randomness: dict[str, Any] = {
            "memoize_key_file": memoize_key_file,
            "release_id": release_id,
            "dataset": dataset,
            "seed": seed,
        }
        self._shuffle = Shuffle(randomizer, self._min_reports, output, scope, groups=groups)

    @property
    def sampling(self) -> Sampling:
        """Which errors the estimates have: with drawn rows they speak of the mean share."""
        return "iid" if self._per_user else "fixed"

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        values = encoded = pcoll | "Encode" >> self._encode
        if self._per_user:
            values = values | "Bound" >> BoundContributions(**self._randomness)
        shuffled = (
            values | "Randomize" >> Randomize(self._randomizer, **self._randomness)
        ) | "Shuffle" >> ShuffleInParts(self._shuffle)
        releases = (
            shuffled
            | "Aggregate" >> Aggregate(self._randomizer)
            | "Estimate"
            >> EstimateFrequencies(
                self._randomizer,
                min_reports=self._min_reports,
                sampling=self.sampling,
                question=self._question,
            )
        )
        withheld = (shuffled[0].withheld, releases.withheld) | "Withheld" >> beam.Flatten()
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


def _min_reports(min_reports: int | None, expected_users: float | None) -> int:
    if min_reports is None:
        if expected_users is None:
            raise ValueError("min_reports or expected_users must be given")
        min_reports = max(1, round(EXPECTED_SHARE * expected_users))
    return check_min_reports(min_reports)


def _with_question(withheld: Withheld, question: str) -> Withheld:

    return replace(withheld, question=question)
