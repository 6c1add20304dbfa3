"""Rows in, private frequencies out: all stages in one transform."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.bins import Bins
from beam_ldp.randomizers.domain import Domain
from beam_ldp.transforms.budgeted import ChargeTo
from beam_ldp.transforms.columns import MAX_VALUE_BYTES
from beam_ldp.transforms.composite import PrivateEstimate
from beam_ldp.transforms.encode import EncodeRows
from beam_ldp.transforms.estimate import EstimateFrequencies
from beam_ldp.transforms.portable import IntegerDomain, PortableDomain
from beam_ldp.transforms.windows import DEFAULT_RULES, WindowRules


class PrivateFrequencies(PrivateEstimate):
    """How often each value of a public list occurs among people, under local privacy.

    Protects each person's value with the randomizer's local epsilon against everybody who sees the
    reports, and with the smaller epsilon of the release's `event` against whoever sees only what
    this transform puts out. Which people take part is not hidden. Without user ids every row is
    counted as a person.

    In: rows, scalars or blocks as `EncodeRows` takes them. Out: one `Release` per window; with
    `groups` one `(group, Release)` per group and window. Attributes of the result: `bad_rows`, a
    collection of `BadRowBlock`, and `withheld`, a collection of `WithheldRelease`.

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
        memoize_key_file, seed: as in `Noise`; they govern the draw of a person's row too.
        dataset, release_id: declared names of the people's data and of this release, where noise is
            memoized or a budget charged: with the question they make the release's identity.
        question: name of what is asked, for the record.
        privacy_unit: what one person's contribution is called; that of the budget, if there is one.
        budget: whose budget this release is charged to; a simulation is never charged.
        windows: for unbounded data: when windows close, and what becomes of late rows.
        permanent: memoized responses that stay the same from window to window, as in `Randomize`.
            The release is then priced with the local epsilon: later windows of the same people
            undo the shuffle. Budgets per user refuse it: a value that changes has no bound.

    Raises:
        BudgetExceededError: when it is built into a pipeline, if the worst case does not fit.
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
        domain: Domain | IntegerDomain | Bins | PortableDomain | str | Path | None = None,
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
        privacy_unit: str = "user",
        budget: ChargeTo | None = None,
        windows: WindowRules = DEFAULT_RULES,
        permanent: bool = False,
    ) -> None:
        if not isinstance(randomizer, FrequencyOracle):
            raise TypeError(
                f"randomizer must be a FrequencyOracle, got {type(randomizer).__name__}"
            )
        listed = IntegerDomain(randomizer.domain_size) if domain is None else domain
        carried = listed if isinstance(listed, PortableDomain) else PortableDomain(listed)
        super().__init__(
            randomizer,
            columns=[name for name in (column or question,) if name],
            values_digest=lambda: carried.digest,
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
            privacy_unit=privacy_unit,
            budget=budget,
            windows=windows,
            permanent=permanent,
        )
        self._encoder = EncodeRows(
            carried,
            column,
            user_id_column=user_id_column,
            groups=groups,
            group_column=group_column,
            bad_rows=bad_rows,
            max_value_bytes=max_value_bytes,
            domain_size=randomizer.domain_size,
        )
        self._estimator = EstimateFrequencies(
            randomizer,
            min_reports=self._min_reports,
            sampling=self.sampling,
            question=question,
        )
