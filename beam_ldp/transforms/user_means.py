"""Rows of people in, the private mean of people's means out: two rounds in one transform."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import apache_beam as beam
from apache_beam.typehints import typehints

from beam_ldp.protocols import UserMean
from beam_ldp.randomizers.domain import Domain
from beam_ldp.transforms.aggregate import Aggregate
from beam_ldp.transforms.blocks import Release, StatisticBlock, ValueBlock, WithheldRelease
from beam_ldp.transforms.budgeted import ChargeTo, charge
from beam_ldp.transforms.composite import least_reports, release_identity
from beam_ldp.transforms.noise import Noise
from beam_ldp.transforms.person_means import MeanPerPerson
from beam_ldp.transforms.randomize import Randomize
from beam_ldp.transforms.shuffle import Shuffle, ShuffleInParts
from beam_ldp.transforms.user_mean_stages import Decide, EncodeBins, EncodeMeans, Finish
from beam_ldp.transforms.vectors import EncodeVectors

_ONLY = "0"  # name of the coordinate where there is one


class PrivateUserMean(beam.PTransform):
    """The mean over people of each person's mean, each person protected with all rows.

    Rows become one mean per person inside the trusted edge; what leaves it are the reports of two
    rounds, of which the second asks about the interval that the first one found. Protects all
    rows of a person, and how many they are, with the protocol's local epsilon against everybody
    who sees the reports, and at the smaller price of the release's `event` against whoever sees
    only what this transform puts out. Which people have any row is not hidden.

    In: rows as `EncodeVectors` takes them, or `ValueBlock`s of vectors with user ids. Out: one
    `Release` per window, whose estimate is a `MeanEstimate` in the unit of the data, about these
    people. A round with too few reports releases nothing. Attributes of the result: `bad_rows`,
    and `withheld`, a collection of `WithheldRelease`.

    Args:
        protocol: the plan of both rounds, from `plan_user_mean`.
        columns: names of the columns of numbers (or of one column of lists).
        user_id_column: name of the column with the person's id.
        min_reports: least number of people; default 0.9 of those the protocol expects. Where a
            round asks a part of the people, its gate is that part less five standard deviations.
        output, scope: as in `Shuffle`.
        bad_rows: as in `EncodeVectors`.
        memoize_key_file, release_id, dataset, seed: as in `PrivateFrequencies`, for both rounds.
        question: name of what is asked, for the record.
        privacy_unit: what one person's contribution is called; that of the budget, if there is one.
        budget: whose budget this release is charged to; a simulation is never charged.

    Raises:
        BudgetExceededError: when it is built into a pipeline, if the worst case does not fit.
        ValueError: for arguments that do not fit together.

    >>> import numpy as np
    >>> from beam_ldp.protocols import Box, plan_user_mean
    >>> from beam_ldp.randomizers.mean.ranges import CoordinateRanges
    >>> minutes = Box(CoordinateRanges(0, 1440))
    >>> protocol = plan_user_mean(1000, 20, minutes, local_epsilon=4.0, sigma=30)
    >>> rows = [{"uid": i % 1000, "minutes": 60.0 + i % 7} for i in range(20_000)]
    >>> with beam.Pipeline(runner="FnApiRunner") as pipeline:
    ...     releases = (
    ...         pipeline
    ...         | beam.Create(rows)
    ...         | PrivateUserMean(protocol, columns="minutes", user_id_column="uid")
    ...     )
    ...     _ = releases | beam.Map(lambda release: print(release.num_reports))
    1000
    """

    def __init__(
        self,
        protocol: UserMean,
        *,
        columns: str | tuple[str, ...] | None = None,
        user_id_column: str | None = None,
        min_reports: int | None = None,
        output: Literal["reports", "statistic"] = "statistic",
        scope: Literal["batch", "global"] = "batch",
        bad_rows: Literal["dead_letter", "zero"] = "dead_letter",
        memoize_key_file: str | None = None,
        release_id: str | None = None,
        dataset: str = "",
        seed: int | None = None,
        question: str = "",
        privacy_unit: str = "user",
        budget: ChargeTo | None = None,
    ) -> None:
        super().__init__()
        self._budget = None if seed is not None else budget  # a simulation is never charged
        if not isinstance(protocol, UserMean):
            raise TypeError(f"protocol must be a UserMean, got {type(protocol).__name__}")
        if columns is not None and user_id_column is None:
            raise ValueError("user_id_column must name the column that says whose row it is")
        self._protocol = protocol
        self._least = protocol.min_reports(least_reports(min_reports, protocol.num_users))
        self._encode = EncodeVectors(
            columns,
            protocol.space.dimension,
            user_id_column=user_id_column,
            ranges=protocol.space.ranges,
            bad_rows=bad_rows,
        )
        self._shuffling: dict[str, Any] = {"output": output, "scope": scope}
        names = (columns,) if isinstance(columns, str) else tuple(columns or ())
        ranges = protocol.space.ranges
        self.identity = release_identity(
            protocol.config_digest(),
            dataset=dataset,
            release_id=release_id,
            budget=self._budget,
            memoize_key_file=memoize_key_file,
            columns=names or [name for name in (question,) if name],
            values_digest=lambda: b"" if ranges is None else ranges.digest,
            groups=None,
            group_column=None,
            bounding=f"all rows of each {user_id_column or 'user id'}",
            privacy_unit=privacy_unit,
        )
        if self.identity is not None:
            self._protocol = protocol.for_release(self.identity)
        self._memoize_key_file, self._seed = memoize_key_file, seed
        self._question = question

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        encoded = pcoll | "Encode" >> self._encode
        persons = encoded | "Mean per person" >> MeanPerPerson(self._protocol.space)
        withheld: list[beam.PCollection] = []
        traces: list[beam.PCollection] = []
        answered: dict[str, Any] = {}
        if self._protocol.search is not None:
            found = self._round_one(persons, withheld, traces)
            answered["answered"] = beam.pvalue.AsList(found)
        places = persons | "Encode means" >> beam.ParDo(
            EncodeMeans(self._protocol), **answered
        ).with_output_types(ValueBlock)
        sums = self._ask(
            places, "Round two", self._protocol.final, self._least[1], withheld, traces
        )
        doer = Finish(self._protocol, self._question)
        releases = sums | "Finish" >> beam.ParDo(doer, **answered).with_output_types(Release)
        notices = (
            withheld
            | "Withheld" >> beam.Flatten()
            | "Name" >> beam.Map(_named, self._question).with_output_types(WithheldRelease)
        )
        if self._budget is not None:
            releases, notices = charge(
                self._budget,
                self._protocol.event(*(self._budget.honest(crowd) for crowd in self._least)),
                pcoll,
                releases,
                notices,
                persons,
                identity=self.identity,
                question=self._question,
            )
        releases.persons = persons
        releases.traces = traces | "All traces" >> beam.Flatten() if traces else None
        releases.bad_rows = encoded.bad_rows
        releases.withheld = notices
        return releases

    def _round_one(
        self,
        persons: beam.PCollection,
        withheld: list[beam.PCollection],
        traces: list[beam.PCollection],
    ) -> beam.PCollection:
        """What it found: one element, or none where it failed."""
        protocol = self._protocol
        assert protocol.search is not None
        bins = persons | "Encode bins" >> beam.ParDo(EncodeBins(protocol)).with_output_types(
            ValueBlock
        )
        least = self._least[0]
        sums = self._ask(bins, "Round one", protocol.search.oracle, least, withheld, traces)
        out = (
            sums
            | "Bring coordinates together"
            >> beam.Map(_together).with_output_types(
                typehints.Tuple[int, typehints.Tuple[str, StatisticBlock]]
            )
            | "All coordinates" >> beam.GroupByKey()
            | "Decide"
            >> beam.ParDo(Decide(protocol, least)).with_outputs("withheld", main="answered")
        )
        out.withheld.element_type = WithheldRelease
        withheld.append(out.withheld)
        return out.answered

    def _ask(
        self,
        values: beam.PCollection,
        label: str,
        randomizer: Any,
        least: int,
        withheld: list[beam.PCollection],
        traces: list[beam.PCollection],
    ) -> beam.PCollection:
        """Randomize, shuffle and add up the answers of one round."""
        grouped = (
            randomizer is not self._protocol.final and self._protocol.space.num_coordinates > 1
        )
        names = Domain(tuple(map(str, range(self._protocol.space.num_coordinates))))
        shuffle = Shuffle(randomizer, least, groups=names if grouped else None, **self._shuffling)
        number = int(randomizer is self._protocol.final)
        identity = None if self.identity is None else self.identity.of_round(number)
        noise = Noise(identity, self._memoize_key_file, self._seed)
        reports = values | f"{label}: randomize" >> Randomize(randomizer, noise=noise)
        if noise.memoized:
            traces.append(reports.traces)
        shuffled = reports | f"{label}: shuffle" >> ShuffleInParts(shuffle)
        withheld.append(shuffled[0].withheld)
        return shuffled | f"{label}: aggregate" >> Aggregate(randomizer)

    def display_data(self) -> dict[str, Any]:
        return {
            "mechanism": "UserMean",
            "local_epsilon": self._protocol.local_epsilon,
            "split": self._protocol.split,
            "min_reports_round_one": self._least[0],
            "min_reports_round_two": self._least[1],
            "question": self._question,
        }


def _together(element: Any) -> tuple[int, tuple[str, StatisticBlock]]:
    return 0, element if isinstance(element, tuple) else (_ONLY, element)


def _named(withheld: WithheldRelease, question: str) -> WithheldRelease:
    return replace(withheld, question=question)
