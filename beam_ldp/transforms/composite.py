"""Rows in, private estimates out: both halves of a release in one transform, under its identity."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import apache_beam as beam

from beam_ldp.protocols.rounds import RoundsPlan
from beam_ldp.questions.base import Asked
from beam_ldp.questions.columns import MAX_VALUE_BYTES, IntegerDomain
from beam_ldp.questions.frequencies import Frequencies
from beam_ldp.questions.means import Means
from beam_ldp.randomizers.base import FrequencyOracle, LocalRandomizer, Sampling
from beam_ldp.randomizers.domain import Bins, Domain
from beam_ldp.randomizers.identity import (
    ONE_ROW_DECLARED,
    ROW,
    ReleaseIdentity,
    digest_of,
    one_row_of,
)
from beam_ldp.randomizers.mean.split_and_mix import MEMOIZED_SHARES
from beam_ldp.settings import Noise, People, Privacy, Shuffling
from beam_ldp.transforms.budgeted import ChargeTo, charge
from beam_ldp.transforms.collector.side import CollectorSide, Releases, named
from beam_ldp.transforms.device.keyed import NoiseSource, read_key
from beam_ldp.transforms.device.side import DeviceSide, Reports, Waiting
from beam_ldp.transforms.elements.portable import PortableDomain, check_min_reports
from beam_ldp.transforms.elements.windows import DEFAULT_RULES, WindowRules
from beam_ldp.transforms.queries import encode, estimator, reduce, split
from beam_ldp.transforms.rounds import AskRounds

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from beam_ldp.randomizers.mean.base import MeanRandomizer
    from beam_ldp.randomizers.mean.ranges import CoordinateRanges
    from beam_ldp.transforms.budgeted import ChargeTo


AUTO: Literal["auto"] = "auto"
BadLists = Literal["dead_letter", "other"]
BadNumbers = Literal["dead_letter", "zero"]


class HowReleased(TypedDict, total=False):
    """What every question's release is told: the arguments of `PrivateEstimate`."""

    people: People
    shuffle: Shuffling
    noise: Noise
    privacy: Privacy | None
    min_reports: int | None
    expected_users: float | None
    budget: ChargeTo | None
    privacy_unit: str
    windows: WindowRules
    permanent: bool
    one_row_each: bool


@dataclass(frozen=True, eq=False)
class AskOnce:
    """Both halves of a release in one round."""

    device: DeviceSide
    collector: CollectorSide
    wait: Waiting | None = None

    def worst(self, budget: ChargeTo) -> Any:
        """The event of the dearest release that can happen."""
        return budget.worst_event(self.collector.randomizer, self.collector.shuffle.least(None))

    def ask(self, rows: beam.PCollection) -> tuple[Reports, Releases]:
        """What leaves devices, and what is made of it."""
        made: Reports = rows | "Device" >> replace(self.device, wait=self.wait)
        found: Releases = made.reports | "Collector" >> self.collector
        if made.late is not None:
            withheld = (found.withheld, made.late) | "With late rows" >> beam.Flatten()
            found = Releases(found.releases, withheld)
        return made, found


class PrivateEstimate(beam.PTransform):
    """The answer to a question, under local privacy: `DeviceSide`, `CollectorSide` and the charge.

    Protects each person's value with the randomizer's local epsilon against everybody who sees the
    reports, and with the smaller epsilon of the release's `event` against whoever sees only what
    this transform puts out. Which people take part is not hidden.

    In: rows, as the question's encoder takes them. Out: one `Release` per window; with groups one
    `(group, Release)` per group and window. It is a collection, so that stages can follow it, with
    attributes: `whole`, the same before releases are parted by question; `withheld`, a collection
    of `WithheldRelease`; `bad_rows`, one of `BadRowBlock`;
    `persons`, blocks of values with every person once (None where each row is a person); `traces`,
    where noise is memoized, `Trace`s of who sent which report.

    Args:
        randomizer: the mechanism, or a plan of several rounds; "auto" plans for the most accurate
            mechanism under `privacy`. Which it is, is the attribute `randomizer`; which errors its
            estimates have, `sampling`.
        question: what is asked.
        people: whose rows they are. `id`: one row of each person is drawn, over all groups; where
            elements are `ValueBlock`s with ids, it is the public name of those. `one_row` declares
            that no person has two. `groups`: a release for each.
        shuffle: least number of reports, and what leaves the shuffler.
        noise: declared names of the people's data and of this release, needed where noise is
            memoized or a budget charged; the secret key of memoized noise, or a seed. With the
            question they make the attribute `identity`.
        privacy: what "auto" plans for; for any mechanism `expected_users`, and what a local epsilon
            above 8 needs, as in plans: `Privacy(max_local_epsilon=...)`, above 12
            `Privacy(trust_shuffler=True)`. Simulations need neither.
        min_reports, expected_users: the same as in `shuffle` and `privacy`, for short.
        budget: whose budget this release is charged to; a simulation is never charged.
        privacy_unit: what one person's contribution is called; that of the budget, if there is one.
        windows: for unbounded data: when windows close, and what becomes of late rows.
        permanent: memoized responses that stay the same from window to window, as in `Randomize`.
            The release is then priced with the local epsilon: later windows of the same people
            undo the shuffle. Budgets per user refuse it: a value that changes has no bound.
        one_row_each: every person has one row (more would be copies of it), so errors need not
            allow for the draw of a row. A statement about the data; one report per person is sent
            in any case.

    Raises:
        BudgetExceededError: when it is built into a pipeline, if the worst case does not fit.
        TypeError: for a mechanism that does not answer the question.
        ValueError: for arguments that do not fit together, or are given twice, and for a local
            epsilon above the limit.
    """

    def __init__(
        self,
        randomizer: LocalRandomizer | RoundsPlan | Literal["auto"],
        question: Asked,
        *,
        people: People = People(),
        shuffle: Shuffling = Shuffling(),
        noise: Noise = Noise(),
        privacy: Privacy | None = None,
        min_reports: int | None = None,
        expected_users: float | None = None,
        budget: ChargeTo | None = None,
        privacy_unit: str = "user",
        windows: WindowRules = DEFAULT_RULES,
        permanent: bool = False,
        one_row_each: bool = False,
    ) -> None:
        super().__init__()
        _check_budget(permanent, budget, one_row_each, people)
        self._budget = paying(budget, noise, privacy)
        expected = expected_users if privacy is None else privacy.expected_users or expected_users
        if randomizer != AUTO:
            question.check(randomizer)
        if isinstance(randomizer, RoundsPlan):
            _check_rounds(windows, permanent, one_row_each)
            expected = expected or randomizer.num_users
        gate = with_least(shuffle, min_reports, expected)
        self._min_reports = gate.least(None)
        chosen = chosen_for(question, randomizer, privacy, expected_users, self._min_reports)
        check_promise("randomizer", chosen.local_epsilon, noise, privacy)
        reduced = reduce(question, chosen)
        if self._budget is not None and reduced is None:
            _check_people(self._budget, people)
        unit = unit_of(privacy_unit, self._budget)
        identity = release_identity(
            chosen.config_digest(),
            columns=question.columns,
            values_digest=lambda: question.digest(chosen),
            people=people,
            noise=noise,
            bounding=bounding_of(people, unit) if reduced is None else all_rows_of(people),
            privacy_unit=unit,
            budget=self._budget,
        )
        self._question, self._people = question, people
        drawn = people.id is not None
        self.sampling: Sampling = "iid" if drawn and not one_row_each else "fixed"
        self.randomizer: LocalRandomizer | RoundsPlan
        self._halves: AskOnce | AskRounds
        if isinstance(chosen, RoundsPlan):
            self.identity = identity
            self.randomizer = chosen if identity is None else chosen.for_release(identity)
            self._halves = AskRounds(
                self.randomizer,
                encode(question, chosen, people),
                reduced,
                people=people,
                noise=noise,
                shuffle=gate,
                identity=identity,
                question=question.name,
            )
            return
        if not chosen.protects_alone and (noise.memoized or permanent):
            raise ValueError(f"noise must not be memoized: {MEMOIZED_SHARES}")
        if not chosen.protects_alone and noise.log is not None:
            raise ValueError("noise must keep no log: shares have no local epsilon to add up")
        own, self.identity = of_release(chosen, identity)
        self.randomizer = own
        device = DeviceSide(
            encode(question, own, people),
            own,
            noise=NoiseSource.told(noise, self.identity, permanent=permanent),
            one_each=drawn,
            windows=windows,
        )
        estimate = estimator(
            question, own, self._min_reports, sampling=self.sampling, permanent=permanent
        )
        collector = CollectorSide(
            own, estimate, shuffle=gate, groups=people.groups, windows=windows
        )
        self._halves = AskOnce(device, collector)

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        begun = None if self._budget is None else self._budget.begin(rows, self.identity)
        halves = self._halves if begun is None else replace(self._halves, wait=begun.then)
        made, found = halves.ask(rows)
        if self._budget is not None and begun is not None:
            found = charge(
                begun,
                self._halves.worst(self._budget),
                rows,
                found,
                made.persons,
                identity=self.identity,
                grouped=self._people.groups is not None,
                question=self._question.name,
            )
        releases = split(self._question, self.randomizer, found.releases)
        releases.whole = found.releases
        releases.withheld = named(found.withheld, self._question.name)
        releases.bad_rows = made.bad_rows
        releases.persons, releases.traces = made.persons, made.traces
        return releases

    def display_data(self) -> dict[str, Any]:
        return {
            "mechanism": type(self.randomizer).__name__,
            "local_epsilon": self.randomizer.local_epsilon,
            "min_reports": self._min_reports,
            "one_report_per": "row" if self._people.id is None else "user",
            "question": self._question.name,
        }


class PrivateFrequencies(PrivateEstimate):
    """How often each value of a public list occurs among people, under local privacy.

    Whom it protects, and what comes out: as in `PrivateEstimate`. Without `people` each row is
    taken for a person. In: rows, scalars or blocks as `EncodeRows` takes them.

    Args:
        randomizer: the frequency oracle; its domain_size counts `other`. "auto" plans for the most
            accurate one: `privacy=Privacy(epsilon=1, delta=1e-8, expected_users=1e6)`.
        domain: the public list of values, as `EncodeRows` takes it; None for values that are
            indices.
        column, bad_rows, max_value_bytes: as in `EncodeRows`.
        question: name of what is asked, for the record.
        how: `people`, `shuffle`, `noise`, `privacy`, `min_reports`, `expected_users`, `budget`,
            `privacy_unit`, `windows`, `permanent`, as in `PrivateEstimate`.

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
    ...         | PrivateFrequencies(oracle, domain=colours, min_reports=90)
    ...     )
    ...     _ = releases | beam.Map(lambda release: print(release.num_reports))
    100
    """

    def __init__(
        self,
        randomizer: FrequencyOracle | Literal["auto"],
        *,
        domain: Domain | IntegerDomain | Bins | PortableDomain | str | Path | None = None,
        column: str | None = None,
        question: str = "",
        bad_rows: BadLists = "dead_letter",
        max_value_bytes: int = MAX_VALUE_BYTES,
        **how: Unpack[HowReleased],
    ) -> None:
        listed = None if domain is None else PortableDomain.of(domain)
        asked = Frequencies(listed, column, question, bad_rows, max_value_bytes)
        super().__init__(randomizer, asked, **how)


class PrivateMean(PrivateEstimate):
    """The mean of people's vectors, under local privacy.

    Whom it protects, and what comes out: as in `PrivateEstimate`; the `estimate` of a release is a
    `MeanEstimate` in the unit of the data. Without `people` each row is taken for a person. In:
    rows, vectors or blocks as `EncodeVectors` takes them.

    A vector outside the randomizer's ball is clipped on the device, or stops the run: as the
    randomizer's `clipping` says. Clipping is counted nowhere, and its bias is in no error. A number
    that is neither 0 nor 1 makes a bad row where the randomizer's values are binary.

    Args:
        randomizer: the mean mechanism; "auto" plans for the most accurate one under `privacy`, with
            `ranges`.
        columns, bad_rows: as in `EncodeVectors`.
        ranges: public ranges of the coordinates, for mechanisms of norm "linf" and radius 1.
        question: name of what is asked, for the record.
        how: `people`, `shuffle`, `noise`, `privacy`, `min_reports`, `expected_users`, `budget`,
            `privacy_unit`, `windows`, `permanent`, `one_row_each`, as in `PrivateEstimate`.

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
        randomizer: MeanRandomizer | Literal["auto"],
        *,
        columns: str | Sequence[str] | None = None,
        ranges: CoordinateRanges | None = None,
        question: str = "",
        bad_rows: BadNumbers = "dead_letter",
        **how: Unpack[HowReleased],
    ) -> None:
        super().__init__(randomizer, Means(columns, ranges, question, bad_rows), **how)


def check_promise(name: str, promised: float, noise: Noise, privacy: Privacy | None) -> None:
    """A SettingError if people would be promised too little by what the argument holds."""
    if not noise.simulated:
        told = privacy or Privacy()
        told.check_promise(f"the local epsilon of {name}", promised)


def check_limits(privacy: Privacy | None, *allowed: str) -> None:
    """A ValueError for a field of `privacy` that a given mechanism does not read."""
    given, allowed = privacy or Privacy(), (*allowed, "max_local_epsilon", "trust_shuffler")
    for field in fields(Privacy):
        if field.name not in allowed and getattr(given, field.name) != field.default:
            raise ValueError(
                f'privacy: {field.name} must be left out: it tells "auto" what to plan for, and '
                "the mechanism is given (a budget takes ChargeTo(honest_fraction=...))"
            )


def paying(budget: ChargeTo | None, noise: Noise, privacy: Privacy | None) -> ChargeTo | None:
    """The budget that is charged, which keeps what was declared; none for a simulation."""
    if budget is None or noise.simulated:
        return None
    if privacy is None:
        return budget
    return replace(
        budget,
        trust_shuffler=budget.trust_shuffler or privacy.trust_shuffler,
        honest_fraction=min(budget.honest_fraction, privacy.honest_fraction),
    )


def unit_of(privacy_unit: str, budget: ChargeTo | None) -> str:
    """What one person's contribution is called. A ValueError if the budget calls it otherwise."""
    if budget is None:
        return privacy_unit
    if privacy_unit not in ("user", budget.privacy_unit):
        raise ValueError("privacy_unit must be the one of the budget, or be left out")
    return budget.privacy_unit


def chosen_for(
    question: Asked,
    randomizer: LocalRandomizer | RoundsPlan | Literal["auto"],
    privacy: Privacy | None,
    expected_users: float | None,
    least: int,
) -> Any:
    """The mechanism that is given, or the one that "auto" stands for: its target is met by the
    `least` reports that are released.

    Raises:
        ValueError: if there is none, or both a mechanism and a target, or a setting of programs.
    """
    if privacy is not None and expected_users is not None:
        raise ValueError("expected_users must not be given with privacy, which says it")
    if randomizer != AUTO:
        check_limits(privacy, "expected_users")
        return randomizer
    if privacy is None or privacy.expected_users is None:
        raise ValueError(
            'privacy must say with "auto" what is asked: Privacy(epsilon=..., delta=..., '
            "expected_users=...)"
        )
    if privacy.allow_over_target and privacy.epsilon is None:
        raise ValueError("privacy: allow_over_target needs epsilon, the target to exceed")
    share = privacy.hiding_share(privacy.expected_users, least)
    return question.mechanism(replace(privacy, honest_fraction=share))


def with_least(
    shuffle: Shuffling, min_reports: int | None, expected_users: float | None
) -> Shuffling:
    """The shuffler's settings with the least number of reports that a release needs.

    Raises:
        ValueError: if it is given twice, or not at all.
    """
    if shuffle.min_reports is not None and min_reports is not None:
        raise ValueError("min_reports must not be given twice, in shuffle and beside it")
    if shuffle.min_reports is None and min_reports is None and expected_users is None:
        raise ValueError("min_reports or expected_users must be given")
    if min_reports is not None:
        shuffle = replace(shuffle, min_reports=check_min_reports(min_reports))
    return replace(shuffle, min_reports=check_min_reports(shuffle.least(expected_users)))


def _check_budget(
    permanent: bool, budget: ChargeTo | None, one_row_each: bool, people: People
) -> None:
    if permanent and budget is not None:
        raise ValueError(
            "budget must be None where permanent is set: a person whose value changes sends a "
            "response that shows the change, and no finite epsilon holds for that. Leave permanent "
            "out (each window then draws new noise and is charged), or freeze each device's first "
            "value and charge one release"
        )
    if one_row_each and people.id is None:
        raise ValueError("people.id must name whose row it is where one_row_each is set")


def _check_rounds(windows: WindowRules, permanent: bool, one_row_each: bool) -> None:
    """A ValueError for what says something of a single round alone."""
    for name, given in (
        ("windows", windows != DEFAULT_RULES),
        ("permanent", permanent),
        ("one_row_each", one_row_each),
    ):
        if given:
            raise ValueError(f"{name} must be left out: it is for questions of a single round")


def _check_people(budget: ChargeTo, people: People) -> None:
    """A ValueError where a budget of people would be charged for rows without anybody's word."""
    if budget.privacy_unit == "user" and not people.counted:
        raise ValueError(
            "budget: a person with ten rows would report ten times and be charged once: name the "
            "column with People(id=...), or declare with People(one_row=True) that nobody has two "
            "rows"
        )


# What is released: the identity under which noise is drawn and a budget is charged ---------


def all_rows_of(people: People) -> str:
    """The rule where all rows of a person become one value."""
    return f"all rows of each {people.id or 'user id'}"


def bounding_of(people: People, privacy_unit: str = "user") -> str:
    """The rule that bounds what one person contributes, as identities name it."""
    if people.id is not None:
        return one_row_of(people.id)
    return ONE_ROW_DECLARED if people.one_row and privacy_unit == "user" else ROW


def release_identity(
    mechanism: bytes,
    *,
    columns: Sequence[str],
    values_digest: Callable[[], bytes],
    people: People,
    noise: Noise,
    bounding: str,
    privacy_unit: str = "user",
    budget: ChargeTo | None = None,
) -> ReleaseIdentity | None:
    """What is released; None where nobody named it, and so nothing can go by its name.

    It is committed to the secret key where that can be read here, and must be where a budget is
    charged: the ledger keeps the commitment.

    Args:
        mechanism: digest of its configuration.
        columns: what is asked for.
        values_digest: gives the digest of what reports are about; asked only where it is needed,
            for it may read a file.
        people, noise: as for the composites.
        bounding: the rule that bounds contributions.
        privacy_unit, budget: as for the composites; a budget says the data set and the unit.

    Raises:
        ValueError: if noise is memoized and no data set or release is named, and for frozen values.
    """
    dataset, release_id = noise.dataset, noise.id
    if noise.frozen_values:
        raise ValueError(
            "noise: frozen_values must be left out: a pipeline publishes a release once "
            "(`beam-ldp frequency` and `mean` publish again)"
        )
    if budget is not None:
        if dataset not in ("", budget.dataset):
            raise ValueError("dataset must be the one of the budget, or be left out")
        dataset, privacy_unit = budget.dataset, unit_of(privacy_unit, budget)
        if not noise.memoized:  # so a run is a release of its own
            release_id = release_id or budget.run_id or uuid.uuid4().hex
    for name, value in (("dataset", dataset), ("release_id", release_id)):
        if noise.memoized and not value:
            raise ValueError(f"{name} must be a declared name where noise is memoized")
    if not (dataset and release_id):
        return None
    identity = ReleaseIdentity(
        dataset,
        release_id,
        mechanism.hex(),
        tuple(columns),
        values_digest().hex(),
        groups_digest(people).hex(),
        bounding,
        privacy_unit=privacy_unit,
    )
    if noise.key_file is None:
        return identity
    try:
        return identity.committed(read_key(noise.key_file))
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


def groups_digest(people: People) -> bytes:
    """16 bytes for the public list of groups and the column that holds a person's; none without."""
    if people.groups is None:
        return b""
    return digest_of((people.group_by or "").encode(), PortableDomain(people.groups).digest)
