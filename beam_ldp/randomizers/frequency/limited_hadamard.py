"""Binary Hadamard mechanism for devices that have few random bits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from beam_ldp.randomizers.base import ExtraWords, FrequencyOracle, Sampling, check_sampling
from beam_ldp.randomizers.entropy import (
    binary_entropy,
    critical_bits,
    entropy_bits,
    inverse_binary_entropy,
    largest_within,
)
from beam_ldp.randomizers.frequency.symbol_oracle import histogram
from beam_ldp.randomizers.report_format import NumberedReports
from beam_ldp.randomizers.shuffle_pair import ShufflePair, witness_from_channel
from beam_ldp.randomizers.walsh_hadamard import hadamard_matrix, walsh_hadamard
from beam_ldp.randomizers.words import (
    MAX_WASTE,
    WORD_BITS,
    WORD_VALUES,
    exp_lower,
    multiply_high,
    odd_parity,
    short_kernel,
)

Mode = Literal["binary", "ternary", "timeshare", "uniform_key"]
MODES: tuple[Mode, ...] = ("binary", "ternary", "timeshare", "uniform_key")
_ONE = np.uint64(1)
_MAX_CHANNEL_ENTRIES = 1 << 22
_MAX_KEY_BITS = 53
_MIN_TRUTHS = 1 << 53  # of the words: fewer do not resolve a chance


class _Law(NamedTuple):
    """Of the words of the noise: how many claim that the value is in the set, and how many speak.

    And the words of the public coin that let somebody answer at all.
    """

    inside: int  # claim "in the set", where it is
    outside: int  # claim so, where it is not
    answers: int = WORD_VALUES  # say anything; the rest is silent, of the device's own noise
    asked: int = WORD_VALUES  # of the public coin's words: who answers

    @property
    def likelihood_ratio(self) -> Fraction:
        """The largest of any answer."""
        no = Fraction(self.answers - self.outside, self.answers - self.inside)
        return max(Fraction(self.inside, self.outside), no)


@dataclass(frozen=True)
class LimitedHadamard(NumberedReports, FrequencyOracle):
    """The binary Hadamard mechanism with at most `random_bits` bits of noise per report.

    As in `BinaryHadamard`, a report is about a random set of half of the values, a row of the
    Hadamard matrix of order K, the least power of two that is at least k. Randomized response about
    it takes R0 = H2(1 / (E + 1)) bits, E = e**local_epsilon and H2 the entropy of a coin: 0.84 at
    a local epsilon of 1. What a smaller budget R buys depends on the `mode`; n times the variance
    grows by the factor in brackets (local epsilon 1, R = R0 / 2):

    * "timeshare": a public coin asks a share R / R0 of the people, who answer as if R were enough;
      all others say so and nothing else. R is what a person takes *on average*. Take this one
      wherever that is what is limited: the factor is R0 / R (2.0), and no other mode comes near.
    * "ternary": every device keeps silent with a chance of its own choosing: R per report (14.5).
    * "binary": the mechanism of the text: "in the set" is claimed with chance q where it is true,
      q / E where it is not, H2(q) = R. No report is silent; most say "not in the set" (16.2). The
      set is a row's or its complement, each with chance 1/2, so that no value is in all sets.
    * "uniform_key": R is a whole number of fair bits, which make one key; the device lies if the
      key is among the last ones. The chance to lie is a multiple of 2**-R, so the local epsilon
      achieved is below the one asked for, and becomes the mechanism's (0.5108 of 1 at 3 bits).

    With R of R0 or more the first three are `BinaryHadamard`. It protects the value against
    everybody who sees the report, row included.

    What counts as noise is what must be secret: `random_bits` is the entropy of a report of which
    the row, and for "timeshare" the coin, are known. Where these come from says `row`:

    * "public": a collector assigns them, or a hash of the user's id does; they cost the device
      nothing. Only users of one row hide each other in a shuffled batch.
    * "sent": the device draws them, and all reports of a batch hide each other. They need not be
      secret for the local epsilon, but `cond_entropy_bits` counts them.

    The software itself takes two 64-bit words per report, one for row and coin, one for the noise,
    and draws each law exactly; a device that has to save bits makes the same noise from fewer
    (`key_entropy_bits` of them, by arithmetic decoding).

    Reports are `(n,)` unsigned integers: 2 * set + ("not in it"), or the last one for silence. The
    statistic is their histogram. To estimate takes O(K log K) time and O(K) memory.

    Source: thesis, section 7.3, whose bounds for R below R0 are wrong (docs/errata.md); "ternary"
    and "timeshare" are our own.

    Args:
        domain_size: number of categories k, at least 2.
        local_epsilon: local budget, > 0.
        random_bits: R, > 0: bits of noise per report; a whole number for "uniform_key".
        mode: "binary", "ternary", "timeshare" or "uniform_key".
        row: "sent" or "public".

    Raises:
        ValueError: if a parameter is out of range, beyond the resolution of 64-bit words, or a key
            of so many bits protects nothing or everything (the error says how many it takes).

    >>> oracle = LimitedHadamard(1000, 1.0, random_bits=0.42, mode="timeshare", row="public")
    >>> full = LimitedHadamard(1000, 1.0, row="public")
    >>> round(oracle.cond_entropy_bits, 3), round(full.cond_entropy_bits, 3)
    (0.42, 0.84)
    >>> print(round(oracle.variance(1)[0] / full.variance(1)[0], 3))
    2.0
    >>> round(LimitedHadamard(1000, 1.0, 3, "uniform_key").local_epsilon, 4)
    0.5108
    """

    random_bits: float = 1.0
    mode: Mode = "binary"
    row: Literal["sent", "public"] = "sent"

    decoding: ClassVar[str] = "O(k log k), Walsh-Hadamard"

    @classmethod
    def variants(cls, domain_size: int) -> Iterable[dict[str, Any]]:
        """None: a plan without a budget of bits has no use for it."""
        return ()

    @classmethod
    def variants_within(cls, domain_size: int, random_bits: float) -> Iterable[dict[str, Any]]:
        rest = {"random_bits": random_bits, "row": "public"}
        return tuple({"mode": mode, **rest} for mode in ("timeshare", "ternary", "binary"))

    def __post_init__(self) -> None:
        super().__post_init__()
        bits = self.random_bits
        real = isinstance(bits, Real) and not isinstance(bits, bool)
        if not (real and math.isfinite(bits) and bits > 0):
            raise ValueError(f"random_bits must be a finite number > 0, got {bits!r}")
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if self.row not in ("sent", "public"):
            raise ValueError(f'row must be "sent" or "public", got {self.row!r}')
        object.__setattr__(self, "random_bits", float(bits))
        if self.mode == "uniform_key":
            bits = _whole_key(self.random_bits)
            object.__setattr__(self, "local_epsilon", key_epsilon(self.local_epsilon, bits))
        law = self._law
        if (
            not law.outside
            or min(law.inside, law.answers, law.asked) < _MIN_TRUTHS
            or (self.local_epsilon - self.log_ratio_max() > MAX_WASTE)
        ):
            raise ValueError(
                f"local_epsilon={self.local_epsilon:g} with random_bits={self.random_bits:g} is "
                "beyond the resolution of 64-bit words"
            )

    @cached_property
    def _law(self) -> _Law:
        ratio = exp_lower(self.local_epsilon)
        truth, needed = ratio / (ratio + 1), critical_bits(self.local_epsilon)
        bits = self.random_bits
        if self.mode == "uniform_key":
            lies = _lying_keys(ratio, int(bits)) << (WORD_BITS - int(bits))
            return _Law(WORD_VALUES - lies, lies)
        if bits >= needed:
            inside = math.floor(truth * WORD_VALUES)
            return _Law(inside, WORD_VALUES - inside)
        if self.mode == "binary":
            inside = math.floor(inverse_binary_entropy(bits) * WORD_VALUES)
            return _Law(inside, math.ceil(inside / ratio))
        if self.mode == "timeshare":
            full = math.floor(truth * WORD_VALUES)
            return _Law(full, WORD_VALUES - full, asked=math.floor(bits / needed * WORD_VALUES))
        share = largest_within(bits, lambda p: binary_entropy(p) + p * needed, 0.5)
        answers = math.floor(share * WORD_VALUES)
        inside = math.floor(truth * answers)
        return _Law(inside, answers - inside, answers)

    def log_ratio_max(self) -> float:
        # The ratio is at most e**local_epsilon in rational numbers; its logarithm is rounded.
        return min(self.local_epsilon, math.log1p(float(self._law.likelihood_ratio - 1)))

    # Sets, and the symbols that stand for what is said of them -----------------------------

    @property
    def _order(self) -> int:
        return 1 << (self.domain_size - 1).bit_length()

    @property
    def num_rows(self) -> int:
        """K - 1: the constant row says nothing, and is not used."""
        return self._order - 1

    @property
    def _sides(self) -> int:
        """2 where a row's set and its complement are answered with different noise."""
        return 1 if self._law.inside + self._law.outside == self._law.answers else 2

    @property
    def num_sets(self) -> int:
        return self._sides * self.num_rows

    @property
    def can_be_silent(self) -> bool:
        return min(self._law.answers, self._law.asked) < WORD_VALUES

    @property
    def num_symbols(self) -> int:
        return 2 * self.num_sets + self.can_be_silent

    @property
    def _num_reports(self) -> int:
        return self.num_symbols

    @property
    def words_per_user(self) -> int:
        """One for row and public coin, one for the noise."""
        return 2

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        # One key for both laws: of a single set each word speaks the truth, lies, or is silent; of
        # two sides as many words as can claim "in the set" of both.
        law = self._law
        _respond(
            values,
            words,
            np.uint64(self.num_sets),
            np.uint64(self._sides - 1),
            np.array([law.inside if self._sides == 1 else 0, 0], dtype=np.uint64),
            np.array([law.outside, law.inside], dtype=np.uint64),
            np.array([law.answers - 1, law.asked - 1], dtype=np.uint64),
            reports,
        )

    # How it is read ------------------------------------------------------------------------

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (self.num_symbols,)

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        return histogram(reports, self.num_symbols)

    @property
    def _chances(self) -> tuple[float, float, float, float]:
        """To claim "in the set": where it is, where it is not; to speak; to be asked."""
        inside, outside, answers, asked = (count / WORD_VALUES for count in self._law)
        return inside, outside, answers, asked

    @property
    def _scores(self) -> tuple[float, float]:
        """What "in the set" and "not in the set" count for the set: +1 where it is, else -1."""
        inside, outside, answers, asked = self._chances
        apart = 2 / (inside - outside)
        no = (1 - inside * apart) / answers
        return (no + apart) / asked, no / asked

    @property
    def _square(self) -> float:
        """Expected square of a score, whatever the value."""
        inside, outside, answers, asked = self._chances
        yes, no = self._scores
        said = (inside + outside) / 2  # over a set and its complement; else they are alike
        return asked * (said * yes**2 + (answers - said) * no**2)

    @property
    def reach(self) -> float:
        """A report counts (1 +- (K - 1) score) / K, or 1/K where it is silent."""
        told = self.num_rows * max(map(abs, self._scores))
        return max(1 + told, self._order - 1 + told) / self._order

    def frequencies(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        """The first row, which nobody is asked about, would say 1 for everybody."""
        yes, no = self._scores
        table = statistic[: 2 * self.num_sets].reshape(self.num_rows, self._sides, 2)
        by_set = table[:, :, 0] * yes + table[:, :, 1] * no
        signed = np.zeros(self._order)
        signed[1:] = by_set[:, 0] - by_set[:, 1] if self._sides == 2 else by_set[:, 0]
        told = walsh_hadamard(signed)[: self.domain_size] * (self.num_rows / num_users)
        return np.asarray((1 + told) / self._order)

    def variance(
        self, num_users: int, truth: np.ndarray | None = None, sampling: Sampling = "fixed"
    ) -> np.ndarray:
        """Exact: a report counts (1 + (K - 1) H[x, row] score) / K for the value x."""
        check_sampling(sampling)
        order = self._order
        nobody = (self.num_rows**2 * self._square - 1) / order**2
        if sampling == "fixed":
            share = np.zeros(self.domain_size) if truth is None else self._check_truth(truth)
            return np.asarray((nobody - share * (1 - 2 / order)) / num_users)
        share = np.full(self.domain_size, 1 / order) if truth is None else self._check_truth(truth)
        return np.asarray((nobody + share * (2 / order - share)) / num_users)

    # What it takes of a generator ------------------------------------------------------------

    @property
    def cond_entropy_bits(self) -> float:
        """H(report | value), the largest of any value; of public rows, given row and coin."""
        inside, outside, answers, asked = self._chances
        noise = [entropy_bits((yes, answers - yes, 1 - answers)) for yes in (inside, outside)]
        if self.row == "public":
            return asked * max(noise)
        return self._drawn_bits + asked * sum(noise) / 2

    @property
    def key_entropy_bits(self) -> float:
        """H(U) of one key that does not depend on the value: report = g(value, U).

        It tells for every set what would be said if the value were in it, and if not: of "binary"
        that is one of three things, and takes more than the report's own entropy.
        """
        inside, outside, answers, asked = self._chances
        if self.mode == "uniform_key":
            noise = self.random_bits
        elif self._sides == 2:
            noise = entropy_bits((outside, inside - outside, 1 - inside))
        else:
            noise = entropy_bits((inside, outside, 1 - answers))
        return (0.0 if self.row == "public" else self._drawn_bits) + asked * noise

    @property
    def _drawn_bits(self) -> float:
        """Of the sets and the public coin, where the device draws them; silence needs no set."""
        _, _, answers, asked = self._chances
        return binary_entropy(asked) + asked * answers * math.log2(self.num_sets)

    # What it costs ---------------------------------------------------------------------------

    def channel(self) -> np.ndarray:
        """P(report | value), `(num_symbols, domain_size)`, up to four million entries."""
        if self.num_symbols * self.domain_size > _MAX_CHANNEL_ENTRIES:
            return super().channel()
        rows = hadamard_matrix(self._order)[1:, : self.domain_size]
        sets = np.stack([rows, -rows][: self._sides], axis=1).reshape(self.num_sets, -1)
        return self._said_of(sets > 0, np.full(self.num_sets, 1 / self.num_sets))

    def _said_of(self, members: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The channel of sets of those weights: bool `(sets, values)` to `(symbols, values)`."""
        inside, outside, answers, asked = self._chances
        yes = np.where(members, inside, outside)
        said = np.stack([yes, answers - yes], axis=1) * (asked * weights)[:, None, None]
        told = said.reshape(-1, members.shape[1])
        silence = np.full((int(self.can_be_silent), members.shape[1]), 1 - asked * answers)
        return np.concatenate([told, silence])

    def _sorted_sets(self, values: int) -> np.ndarray:
        """The channel of two or three values, sets that treat them alike taken together.

        The last column stands for people of whom every set has some that the others are not like:
        any row that is not constant has both signs among the first powers of two and 0.
        """
        signs = np.array(np.meshgrid(*[[1, -1]] * values, indexing="ij")).reshape(values, -1).T
        agreeing = np.abs(signs.sum(axis=1)) == values
        each = self._order / (1 << values)
        weights = (each - agreeing / 2) / self.num_rows
        members = np.concatenate([signs, -signs[:, :1]], axis=1) > 0
        return self._said_of(members, weights)

    def dominating_pair(self) -> ShufflePair:
        """The own blanket. Any two values are in, in one of, and in none of equally many sets.

        Of public rows, users of one row form a crowd of their own, of which those who answer are
        counted: who is silent, is so whatever the value.
        """
        source = f"own blanket of {type(self).__name__}"
        if self.row == "sent":
            return ShufflePair.from_channel(self._sorted_sets(2), 0, 1, source)
        inside, outside, answers, _ = self._chances
        said = np.array([[inside, outside], [answers - inside, answers - outside]]) / answers
        return ShufflePair.from_channel(said, 0, 1, f"{source}, within a row")

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        if self.row == "public":
            inside, outside, answers, _ = self._chances
            said = np.array([[inside, outside], [answers - inside, answers - outside]]) / answers
            return (witness_from_channel(said, 0, 1, 1),)
        two = witness_from_channel(self._sorted_sets(2), 0, 1, 1)
        if self.domain_size == 2:
            return (two,)
        return two, witness_from_channel(self._sorted_sets(3), 0, 1, 2)

    @property
    def public_groups(self) -> int:
        """Rows, where it is public who has which, and as many more as silence takes."""
        if self.row == "sent":
            return 1
        return math.ceil(self.num_sets / self._answering)

    @property
    def telling_groups(self) -> int:
        """As many as have two values on either side, K/2 of K - 1 rows, times who answers."""
        if self.row == "sent":
            return 1
        told = Fraction(self._order // 2, self._order - 1) * self._answering
        return min(self.public_groups, math.ceil(self.public_groups * told))

    @property
    def _answering(self) -> Fraction:
        """How likely somebody answers, whatever the value."""
        law = self._law
        return Fraction(law.answers * law.asked, WORD_VALUES**2)


def key_epsilon(local_epsilon: float, key_bits: int) -> float:
    """The local epsilon that a key of so many fair bits achieves, at most `local_epsilon`.

    The device lies if its key is among the last `lies` of 2**key_bits, and the local epsilon is
    ln((2**key_bits - lies) / lies).

    Raises:
        ValueError: if no key, or as many as speak the truth, would have to lie: it says how many
            bits it takes.

    >>> [round(key_epsilon(1.0, bits), 4) for bits in (3, 4, 8, 16)]
    [0.5108, 0.7885, 0.997, 0.9999]
    """
    ratio = exp_lower(local_epsilon)
    lies = _lying_keys(ratio, key_bits)
    if 2 * lies >= 1 << key_bits:
        enough = (b for b in range(1, _MAX_KEY_BITS + 1) if 2 * _lying_keys(ratio, b) < 1 << b)
        needed = next(enough, None)
        said = f"it takes {needed}" if needed else f"{_MAX_KEY_BITS} are not enough"
        raise ValueError(
            f"random_bits={key_bits} fair bits tell nothing at local_epsilon={local_epsilon:g}: "
            f"{said}"
        )
    achieved = Fraction((1 << key_bits) - lies, lies)
    found = math.log1p(float(achieved - 1))
    while exp_lower(found) >= achieved:
        found = math.nextafter(found, 0.0)
    while exp_lower(found) < achieved:
        found = math.nextafter(found, math.inf)
    return found


def _lying_keys(ratio: Fraction, key_bits: int) -> int:
    """Keys of 2**key_bits that lie: the fewest for which the truth is at most `ratio` likelier."""
    return math.ceil((1 << key_bits) / (ratio + 1))


def _whole_key(random_bits: float) -> int:
    if random_bits != int(random_bits) or not 1 <= random_bits <= _MAX_KEY_BITS:
        raise ValueError(
            f"random_bits must be a whole number from 1 to {_MAX_KEY_BITS} in mode uniform_key, "
            f"got {random_bits!r}"
        )
    return int(random_bits)


@short_kernel
def _respond(  # type: ignore[no-untyped-def]
    values, words, num_sets, two_sided, start, claims, last, reports
):
    for i in range(values.size):
        drawn, noise = words[i, 0], words[i, 1]
        number = multiply_high(drawn, num_sets)
        row = (number >> two_sided) + _ONE
        flipped = np.bool_(number & two_sided)
        member = np.int64(odd_parity(row & np.uint64(values[i])) == flipped)
        silent = noise > last[0] or drawn * num_sets > last[1]
        lacks = noise - start[member] >= claims[member]
        reports[i] = num_sets << _ONE if silent else np.uint64(number) << _ONE | np.uint64(lacks)
