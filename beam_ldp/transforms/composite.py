"""Rows in, private estimates out: what the composites of all questions share."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam

from beam_ldp.randomizers.base import LocalRandomizer, Sampling
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.identity import (
    ONE_ROW_DECLARED,
    ROW,
    ReleaseIdentity,
    digest_of,
    one_row_of,
)
from beam_ldp.transforms.absent_groups import with_absent_groups
from beam_ldp.transforms.aggregate import Aggregate
from beam_ldp.transforms.blocks import WithheldRelease
from beam_ldp.transforms.bounding import BoundContributions
from beam_ldp.transforms.budgeted import ChargeTo, charge
from beam_ldp.transforms.keys import read_key
from beam_ldp.transforms.noise import Noise
from beam_ldp.transforms.permanent import PriceAsPermanent, check_permanent
from beam_ldp.transforms.portable import PortableDomain, check_min_reports
from beam_ldp.transforms.randomize import Randomize
from beam_ldp.transforms.shuffle import Shuffle, ShuffleInParts
from beam_ldp.transforms.windows import DEFAULT_RULES, WindowRules

EXPECTED_SHARE = 0.9  # of the expected users: the least number of reports, unless it is given


class PrivateEstimate(beam.PTransform):
    """All stages in one transform; subclasses make the first one and the last.

    Args: as in `PrivateFrequencies`, and

        columns: what is asked for.
        values_digest: gives the digest of what reports are about; asked only where the release
            needs an identity, for it may read a file.
    """

    _encoder: beam.PTransform  # rows to blocks of values
    _estimator: beam.PTransform  # sums to releases

    def __init__(
        self,
        randomizer: LocalRandomizer,
        *,
        columns: Sequence[str],
        values_digest: Callable[[], bytes],
        group_column: str | None,
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
        privacy_unit: str = "user",
        budget: ChargeTo | None = None,
        windows: WindowRules = DEFAULT_RULES,
        permanent: bool = False,
    ) -> None:
        super().__init__()
        check_permanent(permanent, budget)
        self._windows = windows
        self._permanent = permanent
        self._budget = None if seed is not None else budget  # a simulation is never charged
        self._groups = None if groups is None else PortableDomain(groups)
        self._min_reports = least_reports(min_reports, expected_users)
        if one_report_per not in (None, "user", "row"):
            raise ValueError(f'one_report_per must be "user" or "row", got {one_report_per!r}')
        unit = privacy_unit if self._budget is None else self._budget.privacy_unit
        declared = one_report_per == "row" and user_id_column is None and unit == "user"
        if one_report_per is None:
            _check_people(self._budget, user_id_column)
            one_report_per = "row" if user_id_column is None else "user"
        self._per_user = one_report_per == "user"
        self._drawn = self._per_user and not one_row_each
        self._question = question
        self._randomizer: LocalRandomizer
        self.identity = release_identity(
            randomizer.config_digest(),
            dataset=dataset,
            release_id=release_id,
            budget=self._budget,
            memoize_key_file=memoize_key_file,
            columns=columns,
            values_digest=values_digest,
            groups=self._groups,
            group_column=group_column,
            bounding=bounding_of(self._drawn or one_row_each, user_id_column, declared),
            privacy_unit=privacy_unit,
        )
        self._randomizer, self.identity = of_release(randomizer, self.identity)
        self._noise = Noise(self.identity, memoize_key_file, seed, permanent)
        self._shuffle = Shuffle(
            self._randomizer, self._min_reports, output, scope, groups=groups, windows=windows
        )

    @property
    def sampling(self) -> Sampling:
        """Which errors the estimates have: with drawn rows they speak of the mean over persons."""
        return "iid" if self._drawn else "fixed"

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        values = encoded = pcoll | "Encode" >> self._encoder
        if self._per_user:
            bound = BoundContributions(noise=self._noise, windows=self._windows)
            values = values | "Bound" >> bound
        reports = values | "Randomize" >> Randomize(self._randomizer, noise=self._noise)
        shuffled = reports | "Shuffle" >> ShuffleInParts(self._shuffle)
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
                identity=self.identity,
                grouped=self._groups is not None,
                question=self._question,
            )
        releases.persons = values if self._per_user else None
        releases.traces = getattr(reports, "traces", None)
        releases.bad_rows = encoded.bad_rows
        releases.withheld = withheld | "Name" >> beam.Map(
            _with_question, self._question
        ).with_output_types(WithheldRelease)
        return releases

    def display_data(self) -> dict[str, Any]:
        return {
            "mechanism": type(self._randomizer).__name__,
            "local_epsilon": self._randomizer.local_epsilon,
            "min_reports": self._min_reports,
            "one_report_per": "user" if self._per_user else "row",
            "question": self._question,
        }


def _check_people(budget: ChargeTo | None, user_id_column: str | None) -> None:
    """A ValueError where a budget of people would be charged for rows without anybody's word."""
    if budget is not None and budget.privacy_unit == "user" and user_id_column is None:
        raise ValueError(
            "budget: a person with ten rows would report ten times and be charged once: name "
            'user_id_column, or declare with one_report_per="row" that nobody has two rows'
        )


def bounding_of(one_row: bool, user_id_column: str | None, declared: bool) -> str:
    """The rule that bounds what one person contributes, as identities name it.

    Args:
        one_row: whether one row of each id of that column is reported.
        user_id_column: that says whose row it is.
        declared: whether somebody declared, without a column, that nobody has two rows.
    """
    if one_row:
        return one_row_of(user_id_column or "user id")
    return ONE_ROW_DECLARED if declared else ROW


def release_identity(
    mechanism: bytes,
    *,
    dataset: str,
    release_id: str | None,
    budget: ChargeTo | None,
    memoize_key_file: str | None,
    columns: Sequence[str],
    values_digest: Callable[[], bytes],
    groups: PortableDomain | None,
    group_column: str | None,
    bounding: str,
    privacy_unit: str = "user",
) -> ReleaseIdentity | None:
    """What a composite releases; None where nobody named it, and so nothing can go by its name.

    It is committed to the secret key where that can be read here, and must be where a budget is
    charged: the ledger keeps the commitment.

    Raises:
        ValueError: if noise is memoized and no data set or release is named.
    """
    memoized = memoize_key_file is not None
    if budget is not None:
        if dataset not in ("", budget.dataset):
            raise ValueError("dataset must be that of the budget, or be left out")
        dataset, privacy_unit = budget.dataset, budget.privacy_unit
        if not memoized:  # noise is fresh, so a run is a release of its own
            release_id = release_id or budget.run_id or uuid.uuid4().hex
    for name, value in (("dataset", dataset), ("release_id", release_id)):
        if memoized and not value:
            raise ValueError(f"{name} must be a declared name where memoize_key_file is given")
    if not (dataset and release_id):
        return None
    identity = ReleaseIdentity(
        dataset,
        release_id,
        mechanism.hex(),
        tuple(columns),
        values_digest().hex(),
        groups_digest(groups, group_column).hex(),
        bounding,
        privacy_unit=privacy_unit,
    )
    if memoize_key_file is None:
        return identity
    try:
        return identity.committed(read_key(memoize_key_file))
    except ValueError:
        if budget is not None:
            raise
        return identity  # the key is where the workers are; they check it


def of_release(
    randomizer: LocalRandomizer, identity: ReleaseIdentity | None
) -> tuple[LocalRandomizer, ReleaseIdentity | None]:
    """The mechanism with the public seeds of its release, and the identity with its digest.

    A release that nobody named has no seeds of its own.
    """
    if identity is None:
        return randomizer, None
    own = randomizer.for_release(identity)
    return own, replace(identity, mechanism=own.config_digest().hex())


def groups_digest(groups: PortableDomain | None, group_column: str | None) -> bytes:
    """16 bytes for the public list of groups and the column that holds a person's; none without."""
    if groups is None:
        return b""
    return digest_of((group_column or "").encode(), groups.digest)


def least_reports(min_reports: int | None, expected_users: float | None) -> int:
    """How many reports a release needs at least."""
    if min_reports is None:
        if expected_users is None:
            raise ValueError("min_reports or expected_users must be given")
        min_reports = max(1, round(EXPECTED_SHARE * expected_users))
    return check_min_reports(min_reports)


def _with_question(withheld: WithheldRelease, question: str) -> WithheldRelease:
    return replace(withheld, question=question)
