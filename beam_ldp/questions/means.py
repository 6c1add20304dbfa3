"""Means of people's vectors of numbers, one vector a person."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from beam_ldp.questions.base import Asked, Choice, Look, Part, Question, Rows, finite
from beam_ldp.questions.published import Published, names_in
from beam_ldp.settings import SettingError
from beam_ldp.settings.fields import NUMBER, POSITIVE, SWITCH, WHOLE, Kind, setting
from beam_ldp.settings.sections import DEAD_LETTER
from beam_ldp.settings.usage import Arguments
from beam_ldp.wording import many, number

if TYPE_CHECKING:  # what help need not wait for
    from beam_ldp.accounting.prices import Price
    from beam_ldp.planning import Plan
    from beam_ldp.questions.encoders import VectorEncoder
    from beam_ldp.questions.mean_view import MeanView
    from beam_ldp.randomizers.mean import MeanRandomizer
    from beam_ldp.randomizers.mean.base import Clipping, Norm
    from beam_ldp.randomizers.mean.ranges import CoordinateRanges
    from beam_ldp.settings import Privacy
    from beam_ldp.settings.job import Job

NORMS: tuple[Norm, ...] = ("l2", "l1", "linf", "binary")


def _norm(value: Any) -> Norm | float:
    """A norm by its name, or as the p of an l_p norm."""
    for name in NORMS:
        if value == name:
            return name
    if not (power := float(value)) >= 1:
        raise ValueError
    return power


NORM = Kind(
    f"{', '.join(NORMS)} or a number >= 1", _norm,
    {"anyOf": [{"enum": list(NORMS)}, {"type": "number", "minimum": 1}]},
)  # fmt: skip


def _ranges(value: Any) -> str | dict[str, tuple[float, float]]:
    """The path of a file; or in a job file the ranges themselves, by column."""
    if isinstance(value, str):
        return value
    return {str(name): (float(low), float(high)) for name, (low, high) in value.items()}


_RANGE = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
RANGES = Kind(
    "a file, or in a job file {COLUMN: [LOW, HIGH]}", _ranges,
    {"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": _RANGE}]},
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MeanQuestion(Question):
    """The mean of one vector of numbers from each person.

    With `range` or `ranges` the norm is "linf" and the radius 1, once they are checked.
    """

    column: tuple[str, ...] = setting(
        (),
        "columns of numbers, one per coordinate: names or globs, separated by commas; "
        "may be repeated. Or a single column of lists",
        flag="column", metavar="NAMES", many=True, basic=True,
    )  # fmt: skip
    dimension: int | None = setting(
        None, "length of the lists, where the files do not say", WHOLE, flag="dimension",
        metavar="D",
    )  # fmt: skip
    norm: Norm | float = setting(
        "l2",
        "what {question.radius} bounds: Euclidean length (l2, the default), the sum of "
        "absolute values (l1), each number (linf), the l_P norm; binary: numbers 0 and "
        "1",
        NORM, flag="norm", metavar="[l2|l1|linf|binary|P]", basic=True,
    )  # fmt: skip
    radius: float = setting(
        0.0, "the bound on that norm, in the units of the data; public, never taken from the"
        " data", POSITIVE,
        flag="radius", metavar="R", basic=True,
    )  # fmt: skip
    range: tuple[float, float] | None = setting(
        None, "instead of {question.norm} and {question.radius}: every number lies in this "
        "public range", NUMBER,
        flag="range", metavar=("LOW", "HIGH"), arity=2, basic=True,
    )  # fmt: skip
    ranges: str | dict[str, tuple[float, float]] | None = setting(
        None, "instead of {question.range}: a CSV file of column,low,high with a public range"
        " for each column",
        RANGES,
        flag="ranges",
        metavar="FILE",
    )  # fmt: skip
    one_row_each: bool = setting(
        False,
        "declares that every {people.id} has one row, so that errors need not allow for"
        " drawing a row; one report per person is sent in any case",
        SWITCH, flag="one-row-each",
    )  # fmt: skip
    outside: Clipping = setting(
        "clip",
        "values outside those bounds: clipped to the bound on the device, uncounted; or"
        " stop the run",
        flag="outside", choices=("clip", "raise"),
    )  # fmt: skip
    bad_rows: str = setting(
        DEAD_LETTER,
        "what happens to rows that cannot be used: they are listed in bad_rows.jsonl, "
        "or reported as zero (the middle of the ranges) without a trace",
        flag="bad-rows", choices=(DEAD_LETTER, "zero"),
    )  # fmt: skip
    shape: str | None = setting(
        None, "the coordinates are the pixels of an image, row by row: plot the mean as an "
        "image",
        flag="shape", metavar="HxW",
    )  # fmt: skip

    @classmethod
    def needed(cls, given: Arguments) -> tuple[str, ...]:
        """Who trusts nobody but the device needs no delta."""
        return () if given["privacy"].get("model") == "local" else ("privacy.delta",)

    def settled(self, given: Arguments) -> MeanQuestion:
        """With norm and radius filled in: ranges are the cube."""
        if self.range is not None and self.ranges is not None:
            raise SettingError("--range and --ranges exclude each other")
        if self.range is not None or self.ranges is not None:
            flag = "--range" if self.ranges is None else "--ranges"
            if given["question"].get("norm", "linf") != "linf" or self.radius:
                raise SettingError(
                    f"{flag} bounds each number: it cannot be combined with --norm and --radius"
                )
            return replace(self, norm="linf", radius=1.0)
        if self.norm == "binary":
            if self.radius:
                raise SettingError(
                    "--radius cannot be combined with --norm binary, where numbers are 0 or 1"
                )
            return replace(self, radius=1.0)
        if not self.radius:
            raise SettingError(
                "--radius is missing: the public bound on the values, in their units (or --range "
                "LOW HIGH, --ranges FILE, --norm binary)"
            )
        return replace(self, radius=radius_of(self.radius))

    def filled(self, job: Job) -> Job:
        if job.privacy.model == "local" and job.privacy.expected_users is None:
            least = job.shuffle.min_reports or 1  # nobody hides in a crowd
            return replace(job, shuffle=replace(job.shuffle, min_reports=least))
        return job

    def rules(self, job: Job) -> None:
        check_vectors(self)
        if self.one_row_each and job.people.id is None and job.source.paths:
            raise SettingError(
                "--one-row-each needs --user-id: without it every row counts as a person anyway"
            )

    def bind(self, job: Job, look: Look) -> Vectors:
        return self.bound_as(Means, job, look)

    def bound_as(self, kind: type[Vectors], job: Job, look: Look) -> Vectors:
        """Means of that kind. Raises SettingError, also for a shape that does not fit."""
        named = look.columns(self.column)
        columns, dimension = look.coordinates(named, self.dimension)
        found = kind(
            tuple(columns),
            self.public_ranges(labels_of(columns, dimension), look),
            ",".join(named),
            "dead_letter" if job.bad_rows_leave_a_trace else "zero",
            declared=self,
            dimension=dimension,
            one_row_each=self.one_row_each,
        )
        found.check_shape()
        return found

    def public_ranges(self, labels: Sequence[str], look: Look) -> CoordinateRanges | None:
        """The public range of each coordinate, where that is what bounds them. Raises
        SettingError."""
        if self.range is not None:
            return _checked("--range", *self.range)
        if self.ranges is None:
            return None
        given = self.ranges
        named = f"--ranges {given}" if isinstance(given, str) else "--ranges"
        found = look.ranges(given) if isinstance(given, str) else given
        missing = [label for label in labels if label not in found]
        if missing:
            raise SettingError(f"{named}: no range for {missing[0]}")
        low, high = zip(*(found[label] for label in labels))
        return _checked(f"{named}:", low, high)

    @property
    def bounds(self) -> str:
        """In words, where the values of a person lie."""
        if self.range is not None:
            return "each number in [{:g}, {:g}]".format(*self.range)
        if self.ranges is not None:
            return "each number in the public range of its column"
        if self.norm == "binary":
            return "numbers 0 and 1"
        kinds = {"l2": "Euclidean length", "l1": "sum of absolute values", "linf": "each number"}
        kind = kinds[self.norm] if isinstance(self.norm, str) else f"l_{self.norm:g} norm"
        return f"{kind} at most {self.radius:g}"


def check_vectors(question: MeanQuestion) -> None:
    """A SettingError for a dimension or a shape that is none."""
    from beam_ldp.planning.means import MAX_DIMENSION

    dimension = question.dimension
    if dimension is not None and not 1 <= dimension <= MAX_DIMENSION:
        raise SettingError(f"--dimension must lie in [1, {MAX_DIMENSION}], got {dimension}")
    shape_of(question.shape)


def radius_of(radius: float) -> float:
    """`--radius`, checked."""
    from beam_ldp.randomizers.mean.base import check_radius

    try:
        check_radius(radius)
    except ValueError as error:
        raise SettingError(f"--{error}") from None
    return radius


def shape_of(text: str | None) -> tuple[int, int] | None:
    """`--shape`, checked. Raises SettingError."""
    if text is None:
        return None
    found = re.fullmatch(r"([1-9]\d*)[xX]([1-9]\d*)", text)
    if found is None:
        raise SettingError(f"--shape must be HEIGHTxWIDTH, such as 28x28, got {text}")
    return int(found[1]), int(found[2])


def _checked(flag: str, low: float | Sequence[float], high: float | Sequence[float]) -> Any:
    from beam_ldp.randomizers.mean.ranges import CoordinateRanges

    try:
        return CoordinateRanges(low, high)  # type: ignore[arg-type]
    except ValueError as error:
        raise SettingError(f"{flag} {error}") from None


def read_ranges(path: str, content: bytes) -> dict[str, tuple[float, float]]:
    """The file `column,low,high`, by column. Raises SettingError."""
    rows = csv.DictReader(content.decode("utf-8-sig").splitlines())
    if not {"column", "low", "high"} <= set(rows.fieldnames or ()):
        raise SettingError(f"--ranges {path}: the first line must be column,low,high")
    found: dict[str, tuple[float, float]] = {}
    for row in rows:
        name = row["column"]
        if name in found:
            raise SettingError(f"--ranges {path}: {name} is listed twice")
        try:
            found[name] = float(row["low"]), float(row["high"])
        except (TypeError, ValueError):
            raise SettingError(f"--ranges {path}: {name} needs two numbers") from None
    return found


def labels_of(columns: Sequence[str], dimension: int) -> tuple[str, ...]:
    """Of the coordinates: their columns, or numbers where one column holds all of them."""
    return tuple(columns) if len(columns) >= dimension else tuple(map(str, range(dimension)))


# What is asked --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Vectors(Asked):
    """What all means have in common.

    Attributes:
        column_names: the columns of numbers, or of one column of lists; None where elements are
            vectors.
        ranges: public ranges of the coordinates, for mechanisms of norm "linf" and radius 1.
        declared: the settings, where they come from a job.
        dimension: numbers per person, where that is known.
    """

    column_names: str | Sequence[str] | None = None
    ranges: CoordinateRanges | None = None
    name: str = ""
    bad_rows: str = "dead_letter"
    declared: MeanQuestion | None = None
    dimension: int = 0
    one_row_each: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        named = self.column_names or self.name
        return tuple(name for name in ((named,) if isinstance(named, str) else named) if name)

    def digest(self, mechanism: Any) -> bytes:
        return b"" if self.ranges is None else self.ranges.digest

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the coordinates."""
        return labels_of(self.columns, self.dimension)

    @property
    def vector_size(self) -> int:
        return self.dimension

    @property
    def asked(self) -> MeanQuestion:
        """The settings of its job."""
        assert self.declared is not None
        return self.declared

    @property
    def shape(self) -> tuple[int, int] | None:
        """Rows and columns, where the mean is a picture."""
        from beam_ldp.questions.mean_view import picture_shape

        return shape_of(self.asked.shape) or picture_shape(self.labels)

    def check_shape(self) -> None:
        """A SettingError for a picture that has not one pixel for each coordinate."""
        found = shape_of(self.asked.shape)
        if found is not None and found[0] * found[1] != self.dimension:
            raise SettingError(
                f"--shape {found[0]}x{found[1]} must have as many pixels as there are "
                f"coordinates, {self.dimension:,}"
            )

    def inputs(self, job: Job) -> Rows:
        names = self.columns if len(self.columns) <= 6 else (*self.columns[:5], "…")
        size = f"{many(self.dimension, 'number')} per person"
        columns = [("columns", f"{', '.join(names)} ({size})")] if names else [("people", size)]
        return [*columns, ("values", self.asked.bounds)]

    @property
    def plausible(self) -> tuple[Any, Any]:
        import numpy as np

        if self.ranges is not None:
            return np.array(self.ranges.low), np.array(self.ranges.high)
        radius = self.asked.radius
        return (0.0, 1.0) if self.asked.norm == "binary" else (-radius, radius)

    @property
    def longest(self) -> float | None:
        return self.asked.radius if self.ranges is None and self.asked.norm == "l2" else None

    def facts(self, job: Job, choice: Choice, release: Any) -> dict[str, Any]:
        estimate = release.estimate
        return {
            "kind": "mean",
            "statistic": "mean",
            "model": job.privacy.model,
            "dimension": self.dimension,
            "messages_per_user": choice.mechanism.messages_per_user,
            "compression": None,
            "message_epsilon": None,
            "values": self.asked.bounds,
            "in_ranges": self.ranges is not None,
            "sampling": "fixed",
            "outside": "clip",
            "mean_squared_error": estimate.mean_squared_error,
            "bias_bound": estimate.bias_bound,
            "expected_bias": 0.0,
            "error_bars": estimate.error_bars,
        }

    def view(self, job: Job, choice: Choice, release: Part, truth: Any = None) -> MeanView:
        from beam_ldp.questions.mean_view import MeanView

        compared = self.compared(choice)
        return MeanView(
            release, self.labels, job.output.top, truth, self.ranges, self.shape, compared
        )

    def compared(self, choice: Choice) -> str:
        """How far the squared error is from the best possible, in words."""
        return ""


@dataclass(frozen=True, eq=False)
class Means(Vectors):
    """What the mean of people's vectors is. Attributes: as in `Vectors`."""

    estimates = "mean"

    def check(self, mechanism: Any) -> None:
        check_mean(mechanism)

    def mechanism(self, privacy: Privacy) -> Any:
        from beam_ldp.planning import plan_means
        from beam_ldp.questions.frequencies import target_of

        names = self.column_names
        if self.ranges is None or isinstance(names, str) or not names:
            numbers = 0 if self.ranges is None else len(self.ranges)
        else:
            numbers = len(names)
        if not numbers:
            raise ValueError('ranges must be given with "auto": the mechanism depends on them')
        plans = plan_means(
            int(privacy.expected_users or 0),
            numbers,
            "linf",
            max_local_epsilon=privacy.local_limit,
            model=privacy.model,
            only=_for_ranges(),
            **target_of(privacy),
        )
        if plans[0].excluded or plans[0].randomizer is None:
            raise ValueError(f"no mechanism fits: {plans[0].excluded}")
        return plans[0].randomizer

    def encoder(self, mechanism: Any) -> VectorEncoder:
        from beam_ldp.questions.encoders import VectorEncoder

        binary = mechanism.norm == "binary"
        return VectorEncoder.of(self.column_names, mechanism.dimension, self.ranges, binary)

    def on_devices(self, job: Job, mechanism: Any) -> PublishedShares | None:
        privacy = job.privacy
        if mechanism.protects_alone:
            return None
        assert privacy.epsilon is not None  # else no mechanism of shares is offered
        least, share = job.min_reports, privacy.honest_fraction
        return PublishedShares(self.columns, privacy.epsilon, privacy.delta, least, share)

    # Before the data --------------------------------------------------------------------------

    def plans(self, job: Job, several: bool = False) -> list[Plan]:
        """All mechanisms that a job leaves, the best first; `several`: shorter ones, too, of one.

        Raises:
            SettingError: for what cannot be planned.
        """
        from beam_ldp.planning import plan_means

        name = "auto" if job.mechanism.name == "auto" else _named(job)
        only = None if self.ranges is None else _for_ranges()
        if name != "auto":
            if only is not None and name not in only:
                raise SettingError(
                    f"--mechanism {job.mechanism.name} takes no ranges; choose auto or one of "
                    f"{', '.join(only)}"
                )
            only = [name]
        try:
            return plan_means(
                job.planned_reports,
                self.dimension,
                self.asked.norm,
                radius=self.asked.radius,
                epsilon=job.privacy.epsilon,
                local_epsilon=job.privacy.local_epsilon,
                delta=job.privacy.delta or None,
                max_bits=job.mechanism.max_bits,
                max_messages=job.mechanism.messages,
                several=several,
                max_local_epsilon=job.privacy.local_limit,
                model=job.privacy.model,
                honest_fraction=job.hiding_share,
                only=only,
                trust_shuffler=_takes_shares(job),
            )
        except ValueError as error:
            raise SettingError(str(error)) from None

    def best(self, job: Job) -> Plan:
        plan = _first(self.plans(job), job, self.dimension)
        clipped = replace(plan.randomizer, clipping=self.asked.outside)
        return replace(plan, randomizer=clipped)

    def chosen(self, job: Job, mechanism: MeanRandomizer) -> Choice:
        import numpy as np

        n = job.planned_reports
        error = np.sqrt(mechanism.variance(n, None, job.sampling))
        half = np.ones(1)
        if self.ranges is not None:
            half = np.array(self.ranges.high) / 2 - np.array(self.ranges.low) / 2
        price = None if job.noise.simulated else self._expected_price(job, mechanism, n)
        return Choice(mechanism, n, price, float(np.max(error * half)))

    def _expected_price(self, job: Job, mechanism: MeanRandomizer, num_reports: int) -> Price:
        from beam_ldp.accounting.prices import expected_price

        privacy = job.privacy
        if privacy.model == "local":
            return local_price(mechanism.local_epsilon)
        return expected_price(mechanism, num_reports, privacy.delta, privacy.honest_fraction)

    def price_among(self, job: Job, choice: Choice, num_reports: int) -> Price | None:
        if job.trusts_the_shuffler:
            return super().price_among(job, choice, num_reports)
        return choice.price  # does not depend on how many report

    def relative_error(self, job: Job, choice: Choice) -> float:
        """The largest error of a coordinate, as a share of half the range, or of the radius."""
        worst = choice.mechanism.variance(choice.num_reports, None, job.sampling).max()
        half = 0.5 if choice.mechanism.norm == "binary" else choice.mechanism.radius
        return math.sqrt(worst) / float(half)

    def _error_said(self, job: Job, choice: Choice) -> str:
        ranges = self.ranges
        said = number(choice.predicted_error)
        if ranges is not None and len(set(zip(ranges.low, ranges.high))) > 1:
            said = f"{number(100 * self.relative_error(job, choice) / 2)} % of its range"
        if job.planned_reports == 1:
            said += ", divided by the square root of the number of people"
        return said

    def expectation(self, job: Job, choice: Choice) -> str:
        which = "the mean" if self.dimension == 1 else "each coordinate of the mean"
        return f"{which} will be off by about {self._error_said(job, choice)}"

    def expected(self, job: Job, choice: Choice) -> Rows:
        from beam_ldp.questions.forging import forged_rows

        best = self.compared(choice)
        unit = "" if self.ranges is None else "(half ranges, Euclidean length)"
        compared = [("against the best possible", best)] if best else []
        rests = [] if choice.mechanism.protects_alone else [("rests on", _rests_on(job))]
        said = [("error of a coordinate", self._error_said(job, choice))]
        return [*said, *compared, *rests, *forged_rows(choice.mechanism, unit=unit)]

    def expected_as_json(self, job: Job, choice: Choice) -> dict[str, Any]:
        times, name = against_the_best(choice)
        return {
            "dimension": self.dimension,
            "messages_per_user": choice.mechanism.messages_per_user,
            "predicted_relative_error": self.relative_error(job, choice),
            "times_lower_bound": finite(times),
            "lower_bound_name": name,
        }

    def compared(self, choice: Choice) -> str:
        from beam_ldp.randomizers.estimate import readable

        times, name = against_the_best(choice)
        if not (name and math.isfinite(times)):
            return ""
        return f"Squared error as planned: {readable(times)} times {name}."

    # After the data ---------------------------------------------------------------------------

    def price(self, job: Job, choice: Choice, release: Any) -> Price:
        if job.trusts_the_shuffler or release.simulated:
            return super().price(job, choice, release)
        return local_price(release.mechanism["local_epsilon"])

    def facts(self, job: Job, choice: Choice, release: Any) -> dict[str, Any]:
        randomizer, estimate = choice.mechanism, release.estimate
        budgets = getattr(randomizer, "message_epsilons", None)
        told = super().facts(job, choice, release)
        return told | {
            "kind": "mean" if randomizer.protects_alone else "shares",
            "compression": randomizer.compression,
            "message_epsilon": None if budgets is None or release.simulated else max(budgets),
            "sampling": job.sampling,
            "outside": self.asked.outside,
            "expected_bias": estimate.expected_bias,
        }


def check_mean(mechanism: Any) -> None:
    """A TypeError unless the mechanism is one for means."""
    from beam_ldp.randomizers.mean import MeanRandomizer

    if not isinstance(mechanism, MeanRandomizer):
        raise TypeError(f"randomizer must be a MeanRandomizer, got {type(mechanism).__name__}")


def against_the_best(choice: Choice) -> tuple[float, str]:
    """How many times a lower bound the squared error is, and which; NaN where not known."""
    if choice.plan is None:
        return math.nan, ""
    return choice.plan.times_lower_bound, choice.plan.lower_bound_name


LOCAL = "no credit for shuffling"


def local_price(local_epsilon: float) -> Price:
    """What a release costs where nobody but the device is trusted: the local promise."""
    from beam_ldp.accounting import PrivacyBound
    from beam_ldp.accounting.prices import Price
    from beam_ldp.accounting.reports import LocalReports

    bound = PrivacyBound(local_epsilon, method=LOCAL, lower_method=LOCAL)
    return Price(bound, 1, LocalReports(local_epsilon))


def _rests_on(job: Job) -> str:
    """How many must arrive and be honest where only the noise of the others protects people."""
    from beam_ldp.accounting.reports import hidden_users

    share = job.hiding_share
    return (
        f"the noise of {hidden_users(job.planned_reports, share):,} honest people, "
        f"{number(100 * share)} % of those expected: as many as are honest "
        f"({100 * job.privacy.honest_fraction:g} %, --honest-fraction) of the fewest "
        f"arrivals that are released ({job.min_reports:,}, --min-reports)"
    )


# Which mechanism ------------------------------------------------------------------------------


def parts_messages(job: Job) -> bool:
    """Whether the shuffler can permute the columns of several messages each on its own."""
    return not (job.shuffle.output == "reports" and job.shuffle.scope == "global")


def _first(plans: Sequence[Plan], job: Job, dimension: int) -> Plan:
    """The best that may be used, of a shuffle that can take it. Raises SettingError."""
    usable = [plan for plan in plans if not plan.excluded]
    fitting = [plan for plan in usable if plan.messages_per_user == 1 or parts_messages(job)]
    if fitting:
        return fitting[0]
    if usable:
        raise SettingError(
            "--scope global with --shuffle-output reports takes one message per person, and "
            f"{usable[0].mechanism} sends {usable[0].messages_per_user:,}: the shard of a person "
            "would link them. Use --shuffle-output statistic or --scope batch"
        )
    if job.mechanism.name == "auto":
        raise SettingError("no mechanism fits these flags (see `beam-ldp plan mean`)")
    reason = f"not for norm {job.question.norm} in dimension {dimension:,}"
    if job.privacy.trust_shuffler and job.privacy.epsilon is None:
        reason += ", or without --epsilon"
    if plans:
        reason = plans[0].excluded
    raise SettingError(f"--mechanism {job.mechanism.name}: {reason}")


def _takes_shares(job: Job) -> bool:
    """Whether people may send what nothing but the shuffler protects: never twice the same, nor
    where a log adds up what each of them lost to whoever sees it."""
    noise = job.noise
    return job.privacy.trust_shuffler and not noise.memoized and noise.log is None


def _named(job: Job) -> str:
    from beam_ldp.planning.mechanisms import mechanism_of
    from beam_ldp.randomizers.mean.split_and_mix import MEMOIZED_SHARES

    trusted = job.privacy.trust_shuffler
    try:
        kind = mechanism_of(job.mechanism.name, "mean", auto=True, behind_shuffler=trusted)
    except ValueError as error:
        raise SettingError(str(error)) from None
    if not (kind.protects_alone or _takes_shares(job)):
        if job.noise.memoized:
            raise SettingError(f"--memoize-key-file: {MEMOIZED_SHARES}")
        raise SettingError("--interaction-log: shares have no local epsilon to add up")
    return kind.__name__


def _for_ranges() -> list[str]:
    """Mechanisms whose values are the cube."""
    from beam_ldp.randomizers import registry

    return [kind.__name__ for kind in registry.offered("mean") if kind.norm == "linf"]


# What is published of shares ------------------------------------------------------------------


@dataclass(frozen=True)
class PublishedShares(Published):
    """Vectors in shares: what people are promised, of whom nothing but the collector's word and the
    noise of the others protects one.

    Protects one person's vector (replace-one) with (epsilon, delta) against readers of the mean, if
    at least `min_reports` envelopes are added up together or none, and if whoever receives them
    does not look at one alone.

    Attributes:
        columns: their names.
        epsilon, delta: what the release costs at most.
        min_reports: envelopes without which nothing is released.
        honest_fraction: share of these, at least, that were made as the protocol says.
    """

    answered_by = "beam_ldp.pipelines.devices.shares:ShareValues"
    collected_by = "beam_ldp.release.devices.collecting:collected_shares"

    columns: tuple[str, ...]
    epsilon: float
    delta: float
    min_reports: int
    honest_fraction: float = 1.0

    def __post_init__(self) -> None:
        from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive

        check_positive("epsilon", self.epsilon)
        check_fraction("delta", self.delta)
        check_integer("min_reports", self.min_reports, 1)
        check_fraction("honest_fraction", self.honest_fraction, "(]")

    def to_json(self) -> dict[str, Any]:
        names = ("delta", "epsilon", "honest_fraction", "min_reports")
        promised = {name: getattr(self, name) for name in names}
        return {"columns": list(self.columns), "promised": promised, "trusted": _TRUSTED}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> PublishedShares:
        """Inverse of `to_json`. Raises ValueError."""
        try:
            made = cls(names_in(found["columns"]), **found["promised"])
        except TypeError:
            raise ValueError("questions hold a value of the wrong type") from None
        if made.to_json() != found:
            raise ValueError("questions: shares are for whoever trusts the collector")
        return made

    @property
    def promise(self) -> str:
        """What it promises, for people."""
        return (
            f"epsilon = {number(self.epsilon)} at delta = {self.delta:g} against readers of the "
            f"mean, if {self.min_reports:,} envelopes are added up together at least, "
            f"{self.honest_fraction:.4g} of them honest"
        )

    @property
    def asked_columns(self) -> tuple[str, ...]:
        return self.columns

    @property
    def values(self) -> bytes:
        from beam_ldp.randomizers.identity import digest_of

        return digest_of(self.text.encode())

    def check_fits(self, randomizer: Any) -> None:
        """A ValueError unless the noise of the fewest keeps the promise."""
        from beam_ldp.accounting.reports import hidden_users
        from beam_ldp.accounting.shuffle.split_and_mix import split_and_mix_delta
        from beam_ldp.randomizers.mean import SplitAndMixMean

        if not isinstance(randomizer, SplitAndMixMean):
            raise ValueError("release terms contradict themselves: a mean in shares")
        honest = hidden_users(self.min_reports, self.honest_fraction)
        if not split_and_mix_delta(randomizer, self.epsilon, honest) <= self.delta:
            raise ValueError(
                "release terms contradict themselves: the noise of the fewest people who are "
                "released together does not keep epsilon and delta"
            )


_TRUSTED = "whoever collects is the shuffler, and can read each vector off its envelope"
