"""Rows of people in, the private mean of people's means out, in one round or two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_ldp.protocols import UserMean
from beam_ldp.questions.user_means import UserMeans
from beam_ldp.settings import People
from beam_ldp.transforms.composite import BadNumbers, HowReleased, PrivateEstimate

if TYPE_CHECKING:
    from typing_extensions import Unpack


class PrivateUserMean(PrivateEstimate):
    """The mean over people of each person's mean, each person protected with all rows.

    Rows become one mean per person inside the trusted edge; what leaves it are the reports of two
    rounds, of which the second asks about the interval that the first one found. Protects all
    rows of a person, and how many they are, with the protocol's local epsilon against everybody
    who sees the reports, and at the smaller price of the release's `event` against whoever sees
    only what this transform puts out. Which people have any row is not hidden.

    In: rows as `EncodeVectors` takes them, or `ValueBlock`s of vectors with user ids. Out: as in
    `PrivateEstimate`; estimates are `MeanEstimate`s in the unit of the data, about these people.

    Args:
        protocol: the plan of both rounds, from `plan_user_mean`.
        columns: names of the columns of numbers (or of one column of lists).
        bad_rows: as in `EncodeVectors`.
        question: name of what is asked, for the record.
        how: `people` (a person is in the group of most of the own rows: which, is public, and a
            change of it is not protected), `shuffle`, `noise`,
            `privacy`, `min_reports`, `privacy_unit`, `budget`, as in `PrivateEstimate`. Where a
            round asks a part of the people, its gate is that part less five standard deviations.

    Raises:
        BudgetExceededError: when it is built into a pipeline, if the worst case does not fit.
        ValueError: for arguments that do not fit together.

    >>> import apache_beam as beam
    >>> from beam_ldp.protocols import Box, plan_user_mean
    >>> from beam_ldp.randomizers.mean.ranges import CoordinateRanges
    >>> from beam_ldp.settings import People
    >>> minutes = Box(CoordinateRanges(0, 1440))
    >>> protocol = plan_user_mean(1000, 20, minutes, local_epsilon=4.0, sigma=30)
    >>> rows = [{"uid": i % 1000, "minutes": 60.0 + i % 7} for i in range(20_000)]
    >>> with beam.Pipeline(runner="FnApiRunner") as pipeline:
    ...     releases = (
    ...         pipeline
    ...         | beam.Create(rows)
    ...         | PrivateUserMean(protocol, columns="minutes", people=People(id="uid"))
    ...     )
    ...     _ = releases | beam.Map(lambda release: print(release.num_reports))
    1000
    """

    def __init__(
        self,
        protocol: UserMean,
        *,
        columns: str | tuple[str, ...] | None = None,
        bad_rows: BadNumbers = "dead_letter",
        question: str = "",
        **how: Unpack[HowReleased],
    ) -> None:
        if columns is not None and how.get("people", People()).id is None:
            raise ValueError("people.id must name the column that says whose row it is")
        super().__init__(protocol, UserMeans(columns, None, question, bad_rows), **how)
