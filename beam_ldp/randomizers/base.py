"""What every mechanism knows: how to randomize, sum, estimate, price and pack.

One mechanism is one frozen dataclass. It knows nothing of Beam, TensorFlow or MLflow.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np

from beam_ldp.randomizers import registry
from beam_ldp.randomizers.bits import (
    join_rows,
    pack_uints,
    padding_is_zero,
    split_rows,
    unpack_uints,
)
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.entropy import entropy_bits
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.randomness import UserRandomness, word_source
from beam_ldp.randomizers.shuffle_pair import ShufflePair, smallest_group

if TYPE_CHECKING:
    from typing import Self

Sampling = Literal["fixed", "iid"]
Rng = np.random.Generator | UserRandomness | None
# What a block kernel calls for the rare draw beyond its words: (rows of the block, positions).
ExtraWords = Callable[[np.ndarray, np.ndarray], np.ndarray]

CONFIG_VERSION = 1
MIN_LOCAL_EPSILON = 1e-9  # below, float64 no longer tells e**local_epsilon from one
MAX_DOMAIN_SIZE = 1 << 31
MAX_USERS = 1 << 62
_CHUNK_WORDS = 1 << 16  # half a MiB of words: stays in the second-level cache


class LocalRandomizer(ABC):
    """A local randomizer and the reading of its reports.

    `local_epsilon` protects one person's value against everybody who sees that person's report,
    the collector included, whatever else they know (replace-one; that the person takes part is
    not hidden). It is the budget of everything that one user sends in one release.

    Attributes:
        local_epsilon: declared local budget, in nats; infinite where `protects_alone` is False.
        exactness: "exact" where the implemented law of finitely many outputs satisfies the stated
            epsilon to the last bit; "real-arithmetic" where it does so for ideal real numbers;
            "computational" where it does so against readers who cannot break AES.
        messages_per_user: reports that one user sends.
        protects_alone: whether reports protect whoever sends them, and not only the shuffler or
            the sum that they go through. Plans offer a mechanism where it is False only to those
            who declare that the shuffler is trusted.
        task: what its reports are for, "frequency" or "mean"; plans of that task consider it.
        decoding: what it takes to turn n reports into the estimate, in words.
        also_known_as: what the literature calls it; a subclass does not inherit it.
    """

    local_epsilon: float  # a field of every subclass; not one here, so that sizes come before it

    exactness: ClassVar[str] = "exact"
    messages_per_user: ClassVar[int] = 1
    protects_alone: ClassVar[bool] = True
    task: ClassVar[registry.Task] = "frequency"
    decoding: ClassVar[str] = ""
    also_known_as: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        registry.register(cls)

    def __post_init__(self) -> None:
        epsilon = self.local_epsilon
        if not self.protects_alone:
            if epsilon != math.inf:
                raise ValueError(f"local_epsilon must be infinite, got {epsilon!r}")
            return
        real = isinstance(epsilon, Real) and not isinstance(epsilon, bool)
        if not (real and math.isfinite(epsilon) and epsilon > 0):
            raise ValueError(f"local_epsilon must be a finite number > 0, got {epsilon!r}")
        if epsilon < MIN_LOCAL_EPSILON:
            raise ValueError(f"local_epsilon must be at least {MIN_LOCAL_EPSILON}, got {epsilon!r}")
        object.__setattr__(self, "local_epsilon", float(epsilon))

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: cached tables are large, and are rebuilt where they are used."""
        return {f.name: getattr(self, f.name) for f in fields(cast(Any, self))}

    def for_release(self, identity: ReleaseIdentity) -> Self:
        """The mechanism of one release: a public seed that nobody gave follows from the identity.

        Devices, workers and the collector of a release thereby agree on it; the programs and the
        composites ask for it wherever a release has a name.
        """
        return self

    # What one user sends ------------------------------------------------------------------

    @property
    @abstractmethod
    def bits_per_report(self) -> int:
        """Bits of everything sent, public rows, seeds and tags included."""

    @property
    @abstractmethod
    def report_dtype(self) -> np.dtype[Any]:
        """Dtype of a report in memory: the smallest that holds it."""

    @property
    def report_shape(self) -> tuple[int, ...]:
        """Shape of one report in memory."""
        return ()

    @property
    def words_per_user(self) -> int:
        """Random words that a block kernel receives per user."""
        return 1

    @abstractmethod
    def log_ratio_max(self) -> float:
        """The implemented budget: at most `local_epsilon`, and within 1e-8 of it."""

    def randomize(self, values: np.ndarray, rng: Rng = None) -> np.ndarray:
        """One report per value.

        Args:
            values: `(n,)` or `(n, ...)` array in the mechanism's input domain.
            rng: None draws fresh secure words; `UserRandomness` memoizes; a NumPy generator
                simulates and protects nobody.

        Returns:
            `(n,) + report_shape` array of `report_dtype`.

        Raises:
            ValueError: if a value lies outside the input domain (values are never quoted).
        """
        values = self._check_values(np.asarray(values))
        words = word_source(rng, self.config_digest(), values)
        reports = np.empty((len(values), *self.report_shape), dtype=self.report_dtype)
        step = max(1, _CHUNK_WORDS // self.words_per_user)
        for start in range(0, len(values), step):
            stop = min(start + step, len(values))

            def extra(rows: np.ndarray, positions: np.ndarray, start: int = start) -> np.ndarray:
                return words.extra(rows + start, positions)

            block = words.words(start, stop, self.words_per_user)
            self._randomize_block(values[start:stop], block, extra, reports[start:stop])
        return reports

    def example_values(self, count: int) -> np.ndarray:
        """So many values that a device may hold, to time the mechanism with."""
        raise NotImplementedError(f"{type(self).__name__} has no example values")

    @abstractmethod
    def _check_values(self, values: np.ndarray) -> np.ndarray:
        """The values in the form that `_randomize_block` takes, or a ValueError."""

    @abstractmethod
    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        """Fill `reports` from `values` and `words` of shape `(n, words_per_user)`."""

    # What the collector does with it -----------------------------------------------------

    @property
    @abstractmethod
    def statistic_shape(self) -> tuple[int, ...]:
        """Shape of the linear statistic."""

    @property
    def statistic_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int64)

    @abstractmethod
    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        """The linear statistic of these reports: statistics of disjoint sets of reports add."""

    @abstractmethod
    def estimate(
        self, statistic: np.ndarray, num_users: int, *, sampling: Sampling = "fixed"
    ) -> Estimate:
        """Unbiased estimate with its standard error (NaN and infinite for zero users).

        Args:
            statistic: sum of `accumulate` over all reports.
            num_users: users whose reports were received.
            sampling: "fixed" for the error about these users' own values; "iid" for the error
                about the population that they were drawn from.
        """

    @abstractmethod
    def variance(
        self, num_users: int, truth: np.ndarray | None = None, sampling: Sampling = "fixed"
    ) -> np.ndarray:
        """Exact variance of each component of `Estimate.value`; the worst truth if None."""

    @property
    def reach(self) -> float:
        """How far one person who forges her reports moves `num_users` times the estimate.

        The farthest that anything she can send is read from a value of the domain, hers or not; an
        honest person's reports are read as her value on average. So F forgers among n people move
        the estimate by at most F/n times this, and a report that no device sends moves nothing: it
        is refused (`possible`). Frequencies: of one value's count, in people. Means: Euclidean
        length, in the unit of the data.

        Against forgers nothing is promised but this: the local epsilon says how little a report
        tells, and for the same reason each counts for more than one. (Cheu, Smith and Ullman 2021
        prove that no mechanism does much better.)

        Raises:
            NotImplementedError: if the mechanism does not say.

        >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
        >>> round(KRandomizedResponse(266, 4.0).reach, 2)
        5.94
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how far a report reaches")

    # What it costs -----------------------------------------------------------------------

    def channel(self) -> np.ndarray:
        """P(report | value): rows are reports, columns values, where finite and small."""
        raise NotImplementedError(f"{type(self).__name__} has no small finite channel")

    def channel_reports(self) -> np.ndarray:
        """The reports that the rows of `channel` stand for."""
        return np.arange(len(self.channel()), dtype=self.report_dtype)

    def dominating_pair(self) -> ShufflePair:
        """What shuffling hides one report in: the clone pair, unless a mechanism knows better."""
        return ShufflePair.clones(self.local_epsilon)

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        """Concrete pairs of datasets for lower bounds of the shuffled price; none unless known."""
        return ()

    @property
    def public_groups(self) -> int:
        """Groups that split a crowd: everybody is in one of them, at random, for all to see.

        More than 1 where a report carries something public that is tied to the user.
        """
        return 1

    def crowd_size(self, num_reports: int, statistic: np.ndarray | None = None) -> int:
        """Reports among which one report hides once shuffled.

        All of them, unless reports carry something public that is tied to the user: then the
        smallest of the `public_groups` that share it, as counted in `statistic` or else a number
        that all groups reach but with chance 1e-12.

        A mechanism that can count its groups says so in `counted_group`. Overriding this method
        instead makes a rule of its own (`own_crowd_rule`): what it says of a number of reports must
        hold for certain, and the event of one report, a sample or fakes have no price.
        """
        counted = None
        if statistic is not None and num_reports and self.public_groups > 1:
            counted = self.counted_group(statistic)
        if counted is not None:
            return min(num_reports, counted)
        return smallest_group(num_reports, self.public_groups)

    def counted_group(self, statistic: np.ndarray) -> int | None:
        """Reports of the smallest public group that has any, in a batch of this statistic.

        None where it cannot be counted, or nobody is in it.
        """
        return None

    def dp_event(self) -> Any:
        """One report of one person as a privacy event: `accounting.local_event`."""
        return accounting("shuffle.one_release").local_event(self)

    # How it travels ----------------------------------------------------------------------

    def pack(self, reports: np.ndarray) -> bytes:
        """The reports as a bit stream of `bits_per_report` bits each, zero-padded to a byte.

        Each report's own bits stand together: a stream is nothing but its reports, end to end.
        """
        return pack_uints(reports, self.bits_per_report)

    def unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        """Inverse of `pack`.

        Raises:
            ValueError: if the length does not fit or a report is not one that the mechanism sends.
        """
        return self._check_reports(self._unpack(data, num_reports))

    def unpack_possible(self, data: bytes, num_reports: int) -> tuple[np.ndarray, np.ndarray]:
        """As `unpack`, with what cannot have been sent marked instead of refused.

        Returns:
            The reports and `possible(reports)`; of an impossible one only that it is one is known.

        Raises:
            ValueError: if the length does not fit or the padding is not zero.
        """
        reports = self._unpack(data, num_reports)
        return reports, self._possible(reports)

    def pack_each(self, reports: np.ndarray) -> np.ndarray:
        """Each report in whole bytes of its own, zero-padded: uint8 `(n, ceil(bits / 8))`.

        Row i is `pack` of report i alone.
        """
        bits = self.bits_per_report
        return split_rows(self.pack(reports), bits, len(reports), little=self._low_bits_first)

    def unpack_each(self, payload: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inverse of `pack_each`.

        Args:
            payload: uint8 `(n, ceil(bits / 8))`.

        Returns:
            The reports, and which of them a device that follows the mechanism can have sent, the
            zeros of their padding included: bool `(n,)`.

        Raises:
            ValueError: if the payload has another shape or dtype.
        """
        bits, little = self.bits_per_report, self._low_bits_first
        width = -(-bits // 8)
        if payload.ndim != 2 or payload.shape[1] != width or payload.dtype != np.uint8:
            raise ValueError(f"payload must be uint8 of shape (n, {width})")
        stream = join_rows(payload, bits, little=little)
        reports, possible = self.unpack_possible(stream, len(payload))
        return reports, possible & padding_is_zero(payload, bits, little=little)

    @property
    def _low_bits_first(self) -> bool:
        """Whether the bit stream begins with the least significant bit of each byte."""
        return False

    def _unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        """What `pack` was given, as far as the length and the padding tell."""
        return unpack_uints(data, self.bits_per_report, num_reports).astype(self.report_dtype)

    # What can have been sent -------------------------------------------------------------

    def possible(self, reports: np.ndarray) -> np.ndarray:
        """Which reports a device that follows the mechanism can have sent: bool `(n,)`.

        Whoever can send can send any of them, whatever their own value; what is refused here is
        what could move an estimate further than a liar's report can. Real-valued reports are
        judged up to the rounding of their coordinates; the docstrings of the mechanisms say how
        far one report can pull an estimate.

        Args:
            reports: integers, `(n,) + report_shape`.

        Raises:
            ValueError: if the array has another shape, or does not hold integers.
        """
        reports = np.asarray(reports)
        if reports.shape[1:] != self.report_shape or not reports.ndim:
            shape = ", ".join(["n", *map(str, self.report_shape)])
            raise ValueError(f"reports must have shape ({shape}), got {reports.shape}")
        if reports.dtype.kind not in "iu":
            raise ValueError(f"reports must be integers, got {reports.dtype}")
        if reports.dtype == self.report_dtype:
            return self._possible(reports)
        limits = np.iinfo(self.report_dtype)
        fits = (reports >= limits.min) & (reports <= limits.max)
        whole = fits.all(axis=tuple(range(1, fits.ndim)))
        return np.asarray(whole & self._possible(reports.astype(self.report_dtype)))

    def _possible(self, reports: np.ndarray) -> np.ndarray:
        """`possible`, for reports of the right shape and dtype: here, one number each that fits the
        declared bits. What a mechanism leaves out of those, or arranges otherwise, it says."""
        if self.report_shape:
            raise NotImplementedError(f"{type(self).__name__} does not say what it can send")
        return below(reports, 1 << self.bits_per_report)

    @property
    def _possible_reports(self) -> str:
        """What reports must be, to stand in an error."""
        return f"be such as {type(self).__name__} can send"

    def _check_reports(self, reports: np.ndarray) -> np.ndarray:
        """The reports in their own dtype; a ValueError where one of them cannot have been sent."""
        if not self.possible(reports).all():
            raise ValueError(f"reports must {self._possible_reports}")
        return np.asarray(reports).astype(self.report_dtype, copy=False)

    def to_config(self) -> dict[str, Any]:
        """Parameters as JSON-able values; they travel with the reports and into the ledger."""
        name = registry.name_of(type(self))
        config: dict[str, Any] = {"mechanism": name, "version": CONFIG_VERSION}
        config.update({f.name: getattr(self, f.name) for f in fields(cast(Any, self)) if f.init})
        return config

    @staticmethod
    def from_config(config: dict[str, Any]) -> LocalRandomizer:
        """The randomizer that `to_config` described.

        Nothing is imported because a configuration names it: it may come from anybody. Found are
        this package's mechanisms, installed ones (`registry.ENTRY_POINTS`), and those that the
        program has imported itself.

        Raises:
            ValueError: on an unknown mechanism, version or parameter.
        """
        parameters = dict(config)
        name, version = parameters.pop("mechanism", None), parameters.pop("version", None)
        kind = registry.find(name)
        if kind is None:
            raise ValueError(
                f"mechanism must be the name of a randomizer that is known here, got {name!r} "
                "(one from elsewhere is installed, or named with --mechanism package:Class)"
            )
        if version != CONFIG_VERSION:
            raise ValueError(f"version must be {CONFIG_VERSION}, got {version!r}")
        try:
            return cast(LocalRandomizer, kind(**parameters))
        except TypeError as error:
            raise ValueError(f"config does not fit {name}: {error}") from None

    def config_digest(self) -> bytes:
        """16 bytes that identify the mechanism and all its parameters."""
        canonical = json.dumps(self.to_config(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).digest()[:16]


def accounting(module: str) -> Any:
    """A module of `beam_ldp.accounting`.

    The one look upward, when it is called: randomizers run without the accountant (a device has
    no use for it), and know that it exists for those who calibrate or price where it is installed.
    """
    return importlib.import_module(f"beam_ldp.accounting.{module}")


def own_crowd_rule(mechanism: Any) -> bool:
    """Whether a mechanism splits crowds by a rule of its own, of which `public_groups` is not all.

    Told from whose `crowd_size` it is: no rule can be told from what it says of a few numbers.
    """
    rule = getattr(mechanism, "crowd_size", None)
    return rule is not None and getattr(rule, "__func__", None) is not LocalRandomizer.crowd_size


def check_sampling(sampling: str) -> None:
    """A ValueError unless `sampling` is one that error formulas know."""
    if sampling not in ("fixed", "iid"):
        raise ValueError(f'sampling must be "fixed" or "iid", got {sampling!r}')


def below(reports: np.ndarray, num_outputs: int) -> np.ndarray:
    """Which unsigned reports are among the `num_outputs` first ones: bool, same shape."""
    if num_outputs > np.iinfo(reports.dtype).max:
        return np.ones(reports.shape, dtype=np.bool_)
    return np.asarray(reports < reports.dtype.type(num_outputs))


def check_below(reports: np.ndarray, num_outputs: int) -> np.ndarray:
    """The reports, or a ValueError where one is not among the `num_outputs` possible ones."""
    if reports.size and reports.max() >= num_outputs:
        raise ValueError(f"reports must lie in [0, {num_outputs})")
    return reports


@dataclass(frozen=True)
class FrequencyOracle(LocalRandomizer):
    """A randomizer for one of `domain_size` categories, read back as a frequency vector.

    Values are integers in [0, domain_size); `Domain` maps names to them. The estimate is
    a fraction of users per category.

    Most oracles are *pure*: each report supports a set of values, a user's own value with
    probability p and any other with probability q, and the estimate is (support/n - q)/(p - q).
    Those define `support_probabilities` and `support_counts`; the others override `estimate` and
    `variance`.

    Attributes:
        domain_size: categories.
        mixes: whether the blanket of `dominating_pair` may be mixed with those of other oracles:
            see `OneQuestion.dominating_pair` for what that takes.
    """

    domain_size: int
    local_epsilon: float

    mixes: ClassVar[bool] = False

    @classmethod
    def variants(cls, domain_size: int) -> Iterable[dict[str, Any]]:
        """Choices of the constructor that a plan tries, the usual one first."""
        return ({},)

    @classmethod
    def variants_within(cls, domain_size: int, random_bits: float) -> Iterable[dict[str, Any]]:
        """The same where a device has so many random bits for a report, on average."""
        return cls.variants(domain_size)

    def __post_init__(self) -> None:
        super().__post_init__()
        size = check_integer("domain_size", self.domain_size, 2, MAX_DOMAIN_SIZE)
        object.__setattr__(self, "domain_size", size)

    def example_values(self, count: int) -> np.ndarray:
        return np.arange(count) % self.domain_size

    def _check_values(self, values: np.ndarray) -> np.ndarray:
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise ValueError(
                f"values must be a one-dimensional integer array, got {values.ndim} dimensions "
                f"of dtype {values.dtype}"
            )
        if len(values) and (values.min() < 0 or values.max() >= self.domain_size):
            raise ValueError(f"values must lie in [0, {self.domain_size})")
        return values

    @property
    def support_probabilities(self) -> tuple[float, float]:
        """(p, q) as implemented: a report supports its user's value, and any other value."""
        raise NotImplementedError(f"{type(self).__name__} is not a pure oracle")

    @property
    def pair_support(self) -> tuple[float, float] | None:
        """How likely a report supports two values at once: the own and another, and two others.

        None where that depends on which values, or nobody said. Oracles that say it, and mix, can
        be planned for several questions and for ranges.
        """
        return None

    def squared_support(self, weights: np.ndarray) -> np.ndarray | None:
        """Expected square of the sum of the weights of the values that a report supports.

        Args:
            weights: `(sums, domain_size)`.

        Returns:
            For each sum, and each value that the person may hold: `(sums, domain_size)`. None where
            it is not known: then errors of sums of estimates are enumerated, which takes a small
            channel.
        """
        if self.pair_support is None:
            return None
        own, others = self.pair_support
        p, q = self.support_probabilities
        rest = weights.sum(axis=1, keepdims=True) - weights
        alone = (weights**2).sum(axis=1, keepdims=True) - weights**2
        found: np.ndarray = p * weights**2 + q * alone
        found += 2 * own * weights * rest + others * (rest**2 - alone)
        return found

    @property
    def cond_entropy_bits(self) -> float:
        """H(report | value) in bits, the largest of any value: the least that a report takes.

        So many fair bits a device cannot do without, on average and whatever it computes; what is
        public of a report (a row that somebody assigns) costs it none.

        Raises:
            NotImplementedError: if the law is neither small nor known in closed form.
        """
        return max(entropy_bits(column) for column in self.channel().T.tolist())

    def lacks_random_bits(self, random_bits: float) -> str:
        """Why a device that has so many random bits for a report cannot make one; empty if it can.

        >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
        >>> KRandomizedResponse(1000, 1.0).lacks_random_bits(0.5)
        'a report takes 9.9643 random bits, random_bits is 0.5'
        """
        try:
            needed = self.cond_entropy_bits
        except NotImplementedError:
            return "does not say how many random bits a report takes"
        if needed <= random_bits * (1 + 1e-9):
            return ""
        return f"a report takes {needed:.5g} random bits, random_bits is {random_bits:g}"

    def support_counts(self, statistic: np.ndarray) -> np.ndarray:
        """Reports that support each value: `(domain_size,)`."""
        return statistic

    @property
    def reach(self) -> float:
        p, q = self.support_probabilities
        return max(1 - q, p) / (p - q)

    def frequencies(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        """The unbiased frequencies alone."""
        p, q = self.support_probabilities
        return (self.support_counts(statistic) / num_users - q) / (p - q)

    def estimate(
        self, statistic: np.ndarray, num_users: int, *, sampling: Sampling = "fixed"
    ) -> Estimate:
        statistic = np.asarray(statistic)
        if statistic.shape != self.statistic_shape:
            raise ValueError(
                f"statistic must have shape {self.statistic_shape}, got {statistic.shape}"
            )
        num_users = check_integer("num_users", num_users, 0, MAX_USERS)
        if num_users == 0:
            nothing = np.full(self.domain_size, np.nan)
            return Estimate(nothing, np.full(self.domain_size, np.inf), 0)
        value = self.frequencies(statistic, num_users)
        variance = self._estimated_variance(statistic, value, num_users, sampling)
        return Estimate(value, np.sqrt(variance), num_users)

    def _estimated_variance(
        self, statistic: np.ndarray, value: np.ndarray, num_users: int, sampling: Sampling
    ) -> np.ndarray:
        """The variance with what is known of the truth put in its place."""
        return self.variance(num_users, np.clip(value, 0.0, 1.0), sampling)

    def variance(
        self, num_users: int, truth: np.ndarray | None = None, sampling: Sampling = "fixed"
    ) -> np.ndarray:
        """Exact variance per component, for fixed inputs or for inputs drawn i.i.d. from `truth`.

        Without `truth`, the largest variance that any truth gives the component.
        """
        check_sampling(sampling)
        p, q = self.support_probabilities
        scale = num_users * (p - q) ** 2
        if sampling == "fixed":
            own, other = p * (1 - p), q * (1 - q)
            if truth is None:
                return np.full(self.domain_size, max(own, other) / scale)
            truth = self._check_truth(truth)
            return (truth * own + (1 - truth) * other) / scale
        if truth is None:
            most_even = min(max(0.5, q), p)
            return np.full(self.domain_size, most_even * (1 - most_even) / scale)
        support = q + self._check_truth(truth) * (p - q)
        return support * (1 - support) / scale

    def _check_truth(self, truth: np.ndarray) -> np.ndarray:
        """The truth as floats, or a ValueError: one frequency per category."""
        truth = np.asarray(truth, dtype=float)
        if truth.shape != (self.domain_size,) or not ((truth >= 0) & (truth <= 1)).all():
            raise ValueError(f"truth must hold {self.domain_size} frequencies in [0, 1]")
        return truth
