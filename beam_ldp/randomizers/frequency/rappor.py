"""RAPPOR: a permanent noisy code word, and a fresh noisy copy of it for every release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers.base import ExtraWords, FrequencyOracle, Rng, Sampling
from beam_ldp.randomizers.checks import check_fraction, check_integer
from beam_ldp.randomizers.entropy import binary_entropy
from beam_ldp.randomizers.frequency import packed_bits
from beam_ldp.randomizers.frequency.packed_bits import bit_dominating_pair, one_hot_witnesses
from beam_ldp.randomizers.frequency.rappor_parts import (
    MAX_ENTRIES,
    BloomCode,
    LongitudinalRandomness,
    RapporLaw,
)
from beam_ldp.randomizers.randomness import UserRandomness
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.words import MAX_WASTE, WORD_BITS, WORD_VALUES, bits_for

_MAX_CHANNEL_BITS = 12
_MAX_COHORTS = 1 << 16


@dataclass(frozen=True)
class Rappor(packed_bits.BitRows, FrequencyOracle):
    """Longitudinal RAPPOR: two stages of noise, so that many reports cost little more than one.

    The value becomes a code word: one bit per category (the basic design), or a Bloom filter of
    `num_bits` bits in one of `num_cohorts` cohorts. Its *permanent response* keeps every bit but
    flips it with probability f/2; each release sends an *instantaneous response*, a fresh copy in
    which a permanent zero shows as one with probability `rates[0]`, a permanent one with
    probability `rates[1]`.

    Two budgets: one report protects the value with `local_epsilon`. All reports that a person ever
    sends about one unchanged value protect it with `longitudinal_epsilon`, provided that the
    permanent response is really kept: give `randomize` a `UserRandomness` with one key for all
    releases, kept on the device. Without it every call draws a new permanent response, and calls
    add up at `local_epsilon` each. A value that *changes* gets a new permanent response: the change
    shows, and no finite budget covers it.

    Reports are rows of uint8, Bloom bits first, then the number of the cohort, which is drawn for
    each permanent response and travels in the report. The statistic counts the ones of each
    category, or of each bit in each cohort next to the cohort's reports: `(cohorts, bits + 1)`.

    Decoding is unbiased. The basic design counts support. With Bloom filters the expected counts
    are linear in the frequencies, and least squares inverts them: unbiased for every truth, with
    exact variances, which is why parameters that leave two mixtures of values alike are refused.
    (The lasso of the original decodes more values than bits, at the price of a bias that nobody
    can state.) Memory O(k * cohorts * bits).

    Source: Erlingsson, Pihur and Korolova 2014; the rates are optimised for one release here, the
    originals are `Rappor.from_rates`.

    Args:
        domain_size: number of categories k, at least 2.
        local_epsilon: budget of one report, > 0.
        longitudinal_epsilon: budget of all reports about one value, > local_epsilon; by default
            twice `local_epsilon`, the least at which one report is as accurate as optimized unary
            encoding.
        num_hashes: h, ones per code word.
        num_bits: bits of a Bloom filter; None for the basic design (needs h = 1, one cohort).
        num_cohorts: Bloom filters, a power of two.
        report_probabilities: rates of the instantaneous response, None for the best ones.

    Raises:
        ValueError: if a parameter is out of range or beyond the resolution of 64-bit words, or if
            the filters cannot be decoded without bias.

    >>> oracle = Rappor(domain_size=100, local_epsilon=1.0)
    >>> oracle.longitudinal_epsilon, oracle.bits_per_report
    (2.0, 100)
    >>> original = Rappor.from_rates(100, num_hashes=2, num_bits=128, num_cohorts=8)
    >>> round(original.local_epsilon, 4), round(original.longitudinal_epsilon, 4)
    (1.0743, 4.3944)
    """

    domain_size: int
    local_epsilon: float
    longitudinal_epsilon: float | None = None
    num_hashes: int = 1
    num_bits: int | None = None
    num_cohorts: int = 1
    report_probabilities: tuple[float, float] | None = None

    also_known_as: ClassVar[str] = "RAPPOR"
    decoding: ClassVar[str] = "O(k) sums, but O(n k) bits to add up"

    def __post_init__(self) -> None:
        super().__post_init__()
        total = 2 * self.local_epsilon
        if self.longitudinal_epsilon is not None:
            total = float(self.longitudinal_epsilon)
        if not (math.isfinite(total) and total > self.local_epsilon):
            raise ValueError(
                "longitudinal_epsilon must be a finite number > "
                f"local_epsilon={self.local_epsilon:g}, got {total}"
            )
        object.__setattr__(self, "longitudinal_epsilon", total)
        for name in ("num_hashes", "num_cohorts", "num_bits"):
            count = getattr(self, name)
            if count is not None or name != "num_bits":
                object.__setattr__(self, name, check_integer(name, count, 1, MAX_ENTRIES))
        if self.report_probabilities is not None:
            zero, one = (float(rate) for rate in self.report_probabilities)
            if not 0 <= zero < one <= 1:
                raise ValueError(
                    "report_probabilities must be two increasing numbers in [0, 1], "
                    f"got {(zero, one)}"
                )
            object.__setattr__(self, "report_probabilities", (zero, one))
        self._check_code()
        self._check_budget()

    def _check_code(self) -> None:
        if self.num_bits is None:
            if self.num_hashes != 1 or self.num_cohorts != 1:
                raise ValueError("num_bits must be given where num_hashes or num_cohorts is not 1")
            return
        if not self.num_hashes < self.num_bits:
            raise ValueError(f"num_hashes must be < num_bits, got {self.num_hashes}")
        if self.num_cohorts & (self.num_cohorts - 1) or self.num_cohorts > _MAX_COHORTS:
            raise ValueError(
                f"num_cohorts must be a power of two <= {_MAX_COHORTS}, got {self.num_cohorts}"
            )
        if self.domain_size * self.num_cohorts * self.num_bits > MAX_ENTRIES:
            raise ValueError(
                "domain_size * num_cohorts * num_bits must be at most "
                f"{MAX_ENTRIES}; other oracles decode larger domains"
            )
        self._code.decoder()  # refuses filters that do not tell the values apart

    def _check_budget(self) -> None:
        implemented = self.log_ratio_max()
        if implemented > self.local_epsilon:
            raise ValueError(
                f"local_epsilon must be >= {implemented}, the budget of these "
                f"report_probabilities, got {self.local_epsilon:g}"
            )
        exact = self.report_probabilities is None
        waste = max(
            self.local_epsilon - implemented if exact else 0.0,
            self._total_epsilon - self.longitudinal_log_ratio_max(),
        )
        if not (implemented > 0 and waste <= MAX_WASTE):
            raise ValueError(
                f"local_epsilon={self.local_epsilon:g} with longitudinal_epsilon="
                f"{self._total_epsilon:g} is beyond the resolution of 64-bit words"
            )

    @classmethod
    def from_rates(
        cls,
        domain_size: int,
        permanent_noise: float = 0.5,
        zero_rate: float = 0.5,
        one_rate: float = 0.75,
        num_hashes: int = 1,
        num_bits: int | None = None,
        num_cohorts: int = 1,
    ) -> Rappor:
        """The mechanism of the original's f, p and q (defaults: the original's), priced.

        Raises:
            ValueError: as the constructor, and if `permanent_noise` is not in (0, 1).
        """
        check_fraction("permanent_noise", permanent_noise)
        if not 0 <= zero_rate < one_rate <= 1:
            raise ValueError(f"zero_rate < one_rate must lie in [0, 1], got {zero_rate, one_rate}")
        flip = permanent_noise / 2
        one = flip * zero_rate + (1 - flip) * one_rate
        zero = (1 - flip) * zero_rate + flip * one_rate
        once = num_hashes * math.log(one * (1 - zero) / (zero * (1 - one)))
        return cls(
            domain_size,
            once * (1 + 1e-12),
            2 * num_hashes * math.log((1 - flip) / flip),
            num_hashes,
            num_bits,
            num_cohorts,
            (zero_rate, one_rate),
        )

    # The two laws ------------------------------------------------------------------------

    @property
    def _total_epsilon(self) -> float:
        assert self.longitudinal_epsilon is not None
        return self.longitudinal_epsilon

    @property
    def _code_bits(self) -> int:
        return self.domain_size if self.num_bits is None else self.num_bits

    @property
    def _code(self) -> BloomCode:
        return BloomCode(self.domain_size, self.num_cohorts, self._code_bits, self.num_hashes)

    @cached_property
    def _law(self) -> RapporLaw:
        return RapporLaw(
            self.local_epsilon, self._total_epsilon, self.num_hashes, self.report_probabilities
        )

    @property
    def rates(self) -> tuple[float, float]:
        """Probability that a permanent zero, and a permanent one, is reported as one."""
        zero, one = self._law.rates
        return zero / WORD_VALUES, one / WORD_VALUES

    @property
    def _bit_law(self) -> tuple[float, float]:
        """Probability of reporting one for a one of the code word, and for a zero."""
        one, zero = self._law.bits
        return float(one), float(zero)

    def log_ratio_max(self) -> float:
        """The implemented budget of one report: two code words differ in at most 2 h bits."""
        return self._law.report_log_ratio()

    def longitudinal_log_ratio_max(self) -> float:
        """The implemented budget of the permanent response, hence of all reports about a value."""
        return self._law.permanent_log_ratio()

    # The report --------------------------------------------------------------------------

    @property
    def cond_entropy_bits(self) -> float:
        """Of one report, its permanent response drawn with it."""
        if self.num_bits is not None:
            return super().cond_entropy_bits
        one, zero = map(binary_entropy, self._bit_law)
        return one + (self.domain_size - 1) * zero

    @property
    def _cohort_bits(self) -> int:
        return 0 if self.num_cohorts == 1 else bits_for(self.num_cohorts)

    @property
    def bits_per_report(self) -> int:
        return self._code_bits + self._cohort_bits

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        if self.num_bits is None:
            return (self.domain_size,)
        return (self.num_cohorts, self.num_bits + 1)

    @property
    def _permanent_words(self) -> int:
        return packed_bits.random_words_for(self._code_bits) + 1

    @property
    def words_per_user(self) -> int:
        return self._permanent_words + packed_bits.random_words_for(self._code_bits)

    def randomize(self, values: np.ndarray, rng: Rng = None) -> np.ndarray:
        """One report per value; with `UserRandomness` the permanent responses are kept.

        The permanent response is a function of key, user, value and question (data set, columns,
        list), the instantaneous one of the whole identity of the release: another release id gives
        a fresh noisy copy of the same response.
        """
        if isinstance(rng, UserRandomness):
            ids = rng.user_ids
            rng = LongitudinalRandomness(
                rng.key,
                ids if isinstance(ids, np.ndarray) else list(ids),
                rng.identity,
                self._permanent_words,
                self.words_per_user + self._code_bits,
            )
        return super().randomize(values, rng)

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        bits, split, first_extra = self._code_bits, self._permanent_words, self.words_per_user
        cohorts = np.zeros(len(values), dtype=np.int64)
        if self._cohort_bits:
            cohorts = (words[:, split - 1] >> np.uint64(WORD_BITS - self._cohort_bits)).astype(int)
        if self.num_bits is None:
            rows = packed_bits.one_hot_rows(values, bits)
        else:
            rows = np.zeros((len(values), packed_bits.words_for(bits)), dtype=np.uint64)
            for positions in self._code.words()[cohorts, values].T:
                rows |= packed_bits.one_hot_rows(positions, bits)
        permanent = (self._law.flip, WORD_VALUES - self._law.flip)
        rows = packed_bits.noisy_rows(
            rows, bits, permanent, words[:, : split - 1], extra, first_extra
        )
        rows = packed_bits.noisy_rows(
            rows, bits, self._law.rates, words[:, split:], extra, first_extra + bits
        )
        for i in range(self._cohort_bits):
            set_bits = packed_bits.one_hot_rows(np.array([bits + i]), self.bits_per_report)
            if rows.shape[1] < set_bits.shape[1]:
                rows = np.pad(rows, ((0, 0), (0, 1)))
            rows |= set_bits * ((cohorts >> i) & 1).astype(np.uint64)[:, None]
        packed_bits.write_rows(rows, reports)

    def _cohorts(self, reports: np.ndarray) -> np.ndarray:
        """The cohort of each report."""
        cohorts = np.zeros(len(reports), dtype=np.int64)
        for i in range(self._cohort_bits):
            position = self._code_bits + i
            bit = (reports[:, position >> 3] >> (position & 7)) & 1
            cohorts |= bit.astype(np.int64) << i
        return cohorts

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        if self.num_bits is None:
            return packed_bits.column_sums(reports, self.domain_size)
        statistic = np.zeros(self.statistic_shape, dtype=np.int64)
        cohorts = self._cohorts(reports)
        order = np.argsort(cohorts, kind="stable")
        statistic[:, -1] = np.bincount(cohorts, minlength=self.num_cohorts)
        stops = np.cumsum(statistic[:, -1])
        for cohort, (stop, size) in enumerate(zip(stops, statistic[:, -1])):
            part = reports[order[stop - size : stop]]
            statistic[cohort, :-1] = packed_bits.column_sums(part, self.num_bits)
        return statistic

    # Reading it back ---------------------------------------------------------------------

    @property
    def support_probabilities(self) -> tuple[float, float]:
        if self.num_bits is not None:
            raise NotImplementedError("Rappor with Bloom filters is not a pure oracle")
        return self._bit_law

    @property
    def reach(self) -> float:
        """With Bloom filters: of the best bits of the best cohort, for or against a value."""
        if self.num_bits is None:
            return super().reach
        one, zero = self._bit_law
        by_cohort = self._code.decoder().reshape(self.domain_size, self.num_cohorts, -1)
        ends = np.stack([by_cohort * (1 - zero), by_cohort * -zero]) / (one - zero)
        most, least = ends.max(axis=0).sum(axis=-1).max(), ends.min(axis=0).sum(axis=-1).min()
        return float(max(most, 1 - least))

    def frequencies(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        if self.num_bits is None:
            return super().frequencies(statistic, num_users)
        one, zero = self._bit_law
        ones, users = statistic[:, :-1], statistic[:, -1:]
        signal = (ones - zero * users) / ((one - zero) * num_users)
        return self._code.decoder() @ signal.ravel()

    def variance(
        self, num_users: int, truth: np.ndarray | None = None, sampling: Sampling = "fixed"
    ) -> np.ndarray:
        """Exact variance per component; with Bloom filters `truth` is scaled to sum one."""
        if self.num_bits is None:
            return super().variance(num_users, truth, sampling)
        one, zero = self._bit_law
        scale = (one - zero) ** 2
        noise = (zero * (1 - zero) / scale, one * (1 - one) / scale)
        truth = None if truth is None else self._check_truth(truth)
        return self._code.variance(*noise, truth, sampling) / num_users

    # What it costs -----------------------------------------------------------------------

    def channel(self) -> np.ndarray:
        """P(report | value) of one report, for up to 12 code bits; row r has the bits of r."""
        bits, cohorts = self._code_bits, self.num_cohorts
        if bits > _MAX_CHANNEL_BITS or cohorts * self.domain_size > 1 << 10:
            return super().channel()
        one, zero = self._bit_law
        if self.num_bits is None:
            code = np.eye(self.domain_size)[:, None, :]
        else:
            code = self._code.ones().reshape(self.domain_size, cohorts, bits)
        rate = np.where(code == 1, one, zero)  # (values, cohorts, bits)
        shown = packed_bits.all_rows(bits)[:, None, None, :] == 1
        table = np.where(shown, rate, 1 - rate).prod(axis=-1) / cohorts
        return table.transpose(2, 0, 1).reshape(-1, self.domain_size)

    def dominating_pair(self) -> ShufflePair:
        """Of one report: the own blanket, all bits zero-biased in a uniform cohort; two code words
        that share no bit dominate all others (see `bit_dominating_pair`)."""
        one, zero = self._bit_law
        return bit_dominating_pair(one, zero, self.num_hashes, "RAPPOR's own blanket")

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        one, zero = self._bit_law
        if self.num_bits is None:
            return one_hot_witnesses(one, zero, self.domain_size)
        return (self._code.witness(one, zero),)
