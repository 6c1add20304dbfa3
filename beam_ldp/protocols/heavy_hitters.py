"""Frequent words that nobody listed: prefixes of their codes, longer from level to level.

    device:     word ─▶ coded bits ─▶ its prefix at one level, drawn ─▶ frequency oracle ─▶ report
    collector:  reports of a level ─▶ prefixes that are frequent ─▶ the candidates of the next level
                reports of the last level, whose people are its own ─▶ words, with honest intervals

Each person answers one level, drawn by randomness that the collector does not know (of a device: a
pseudo-random function of its secret), and whatever the word is: people whose word begins with no
candidate, or has no code, answer `(none)`. What a level is asked depends on the levels before it,
yet a report protects its word with `local_epsilon` whatever was asked, and one person's report
hides among those of all others: see `HeavyHitters.reports`.

`HeavyHitters` is the plan, made before any data are seen by `plan_heavy_hitters`; candidates are
plain arrays of prefixes, `(c, num_words)` uint64 in rising order, the bits behind a prefix zero:

    candidates = protocol.root
    for level in range(len(protocol.levels) - 1):
        estimate = ...  # of the level's oracle, of protocol.encode(bits, level, candidates)
        candidates = protocol.extend(level, estimate, candidates)
    found = protocol.finish(last_estimate, candidates, num_users)

Source: releases-and-participation, section 5; Bassily, Nissim, Stemmer and Thakurta 2017 and Wang,
Li and Jha 2018 (PEM) for searching by prefixes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from beam_ldp.accounting.reports import LocalReports, ShuffledReports, hidden_users
from beam_ldp.protocols.found_words import FoundWords, Share
from beam_ldp.protocols.rounds import NOBODY, History, Outcome, Received, Round, RoundsPlan
from beam_ldp.protocols.string_code import StringCode, child_of, children_of
from beam_ldp.protocols.user_means import fewest
from beam_ldp.randomizers import special
from beam_ldp.randomizers.base import FrequencyOracle, LocalRandomizer
from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.contrasts import combine
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.identity import AnyIds, digest_of
from beam_ldp.randomizers.question_set import draw_error
from beam_ldp.randomizers.words import bits_for

Assignment = Literal["secret", "visible"]
ASSIGNMENTS: tuple[Assignment, ...] = ("secret", "visible")
SHARES = 1 << 32  # levels' weights add up to it


@dataclass(frozen=True)
class Level:
    """What the people of one level are asked.

    Attributes:
        prefix_bits: bits of the prefix.
        new_bits: how many of them are new: each candidate has 2**new_bits children.
        candidates: prefixes of the level before that are asked about, at most.
        weight: how many of 2**32 people are of this level.
        false_prefixes: children that nobody holds which may survive, on average.
        oracle: for `candidates * 2**new_bits + 1` values, the last of which is `(none)`.
    """

    prefix_bits: int
    new_bits: int
    candidates: int
    weight: int
    false_prefixes: float
    oracle: FrequencyOracle

    @property
    def share(self) -> float:
        """Share of the people."""
        return self.weight / SHARES

    @property
    def fan_out(self) -> int:
        """Children of a candidate."""
        return 1 << self.new_bits

    @property
    def none(self) -> int:
        """What people answer whose word begins with no candidate."""
        return self.candidates * self.fan_out

    def least_support(self, answers: int, children: int, odds: float | None = None) -> int:
        """Reports that must support a child for it to survive: exact, a binomial quantile.

        Args:
            answers: people who answered.
            children: how many might survive by mistake.
            odds: of each to survive by mistake; None for `false_prefixes` of all of them.
        """
        odds = self.false_prefixes / max(1, children) if odds is None else odds
        if odds >= 1:
            return 0
        q = self.oracle.support_probabilities[1]
        low, high = 0, answers + 1  # P(X >= low) > odds >= P(X >= high)
        while high - low > 1:
            middle = (low + high) // 2
            if special.betainc(middle, answers - middle + 1, q) > odds:
                low = middle
            else:
                high = middle
        return high

    def detected(self, answers: int, children: int, miss: float) -> float:
        """The frequency of a prefix that survives but with probability `miss`; infinite if none."""
        least = self.least_support(answers, children)
        if least > answers:
            return math.inf
        return float(self._frequency(support_at(least, answers, 1 - miss)))

    def interval(self, supports: Any, answers: int, tail: float) -> tuple[Any, Any]:
        """Frequencies among all people, of which those of the level are a draw, that fit so many
        supports: each end is wrong with probability `tail` at most (Clopper and Pearson; a draw
        without replacement varies less than the binomial law that they suppose)."""
        low = self._frequency(support_at(supports, answers, tail))
        high = self._frequency(support_at(supports + 1, answers, 1 - tail))
        return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)

    def _frequency(self, support: Any) -> Any:
        """The frequency at which a report supports a value with this probability."""
        p, q = self.oracle.support_probabilities
        return (support - q) / (p - q)


def support_at(supports: Any, answers: int, level: float) -> Any:
    """The success probability at which at least so many of `answers` trials succeed with
    probability `level`; 0 for no successes."""
    counts = np.asarray(supports)
    found = special.betaincinv(np.maximum(counts, 1), np.maximum(answers - counts + 1, 1), level)
    return np.where(counts < 1, 0.0, np.where(counts > answers, 1.0, found))


@dataclass(frozen=True)
class LevelRound(Round):
    """One level, asked about the candidates that the one before it found."""

    protocol: HeavyHitters
    number: int

    @property
    def randomizer(self) -> FrequencyOracle:
        return self.protocol.levels[self.number].oracle

    def part(self, state: NDArray[np.uint64]) -> str:
        """Of the candidates too: asked about others, a person draws noise that is independent."""
        return f"level {self.number} of {digest_of(state.tobytes()).hex()}"

    def values(self, held: np.ndarray, cell: np.ndarray, state: NDArray[np.uint64]) -> np.ndarray:
        return self.protocol.encode(held, self.number, state)

    def advance(
        self,
        state: NDArray[np.uint64],
        sums: Sequence[np.ndarray],
        received: Sequence[Received],
        before: History,
    ) -> NDArray[np.uint64] | FoundWords:
        (came,) = received
        estimate = self.randomizer.estimate(sums[0], came.num_reports)
        if self.number < len(self.protocol.levels) - 1:
            return self.protocol.extend(self.number, estimate, state)
        people = came.num_reports + sum(cell.num_reports for (cell,) in before)
        return self.protocol.finish(estimate, state, people)


@dataclass(frozen=True)
class HeavyHitters(RoundsPlan):
    """The plan of a release: all levels, decided before any data are seen.

    Make it with `plan_heavy_hitters`.

    Attributes:
        levels: the last one asks about whole words, the survivors of the one before.
        code: the public code of strings.
        num_users: people expected.
        local_epsilon: of one person's report, whatever the level.
        miss: probability that a word of frequency `threshold` is not found (beta).
        false_words: found words that nobody holds, on average, at most (K0).
        assignment: "secret" where the level travels inside the report, unknown to whoever reads the
            shuffled reports' origin; "visible" where readers may know who was asked what.
    """

    levels: tuple[Level, ...]
    code: StringCode
    num_users: int
    local_epsilon: float
    miss: float = 0.05
    false_words: float = 10.0
    assignment: Assignment = "secret"
    secret = True  # to draw one's level; `assignment` says whether readers learn it

    def __post_init__(self) -> None:
        if len(self.levels) < 2 or self.levels[-1].new_bits:
            raise ValueError("levels must be at least two, the last of which has no new bits")
        if sum(level.weight for level in self.levels) != SHARES:
            raise ValueError(f"levels must have weights that add up to {SHARES}")
        bits = 0
        for level in self.levels:
            bits += level.new_bits
            sizes = level.prefix_bits, level.oracle.domain_size
            if sizes != (bits, level.none + 1) or level.oracle.local_epsilon != self.local_epsilon:
                raise ValueError("levels must follow each other, and have oracles of their sizes")
        if bits != self.code.num_bits:
            raise ValueError(f"levels must end at the {self.code.num_bits} bits of the code")
        if self.assignment not in ASSIGNMENTS:
            raise ValueError(f"assignment must be one of {', '.join(ASSIGNMENTS)}")

    # The rounds ---------------------------------------------------------------------------

    @property
    def rounds(self) -> tuple[Round, ...]:
        return tuple(LevelRound(self, number) for number in range(len(self.levels)))

    @property
    def start(self) -> NDArray[np.uint64]:
        return self.root

    @property
    def roles(self) -> tuple[tuple[int, ...], ...]:
        """Each person answers one level."""
        numbers = range(len(self.levels))
        return tuple(tuple(0 if i == own else NOBODY for i in numbers) for own in numbers)

    def roles_of(self, words: np.ndarray | None, user_ids: AnyIds | None) -> np.ndarray:
        assert words is not None
        return self.assign(words)

    def outcome(self, received: History) -> Outcome:
        counts = [cell.num_reports for (cell,) in received]
        config = {"mechanism": "HeavyHitters", **self.to_config(), "received": counts}
        return Outcome(sum(counts), self.reports(counts), self.crowd(counts), config)

    def worst(self, least: Sequence[int], honest_fraction: float = 1.0) -> Any:
        return self.reports(least, honest_fraction)

    # What a person is asked and answers ---------------------------------------------------

    @property
    def root(self) -> NDArray[np.uint64]:
        """The candidate of the first level: the empty prefix."""
        return np.zeros((1, self.code.num_words), dtype=np.uint64)

    def assign(self, draws: NDArray[np.uint64]) -> NDArray[np.uint8]:
        """The level of each person, from a uniform word of each.

        The words must be the person's own, the same on every retry, independent of the value and
        unknown to whoever reads reports: a function of a secret key, never a public id's hash.
        """
        ends = np.cumsum([level.weight for level in self.levels[:-1]], dtype=np.uint64)
        return np.searchsorted(ends << np.uint64(32), draws, side="right").astype(np.uint8)

    def encode(
        self, bits: NDArray[np.uint64], level: int, candidates: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        """What each person of a level answers truthfully: the index of a child, or `(none)`.

        Args:
            bits: `(n, num_words)` of `StringCode.encode`; rows of ones have no code.
            level: from 0.
            candidates: of this level.

        Returns:
            `(n,)`: place of the candidate times the fan-out, plus the new bits; `level.none` else.
        """
        asked = self.levels[level]
        if len(candidates) > asked.candidates:
            raise ValueError(f"candidates must be at most {asked.candidates}")
        before = asked.prefix_bits - asked.new_bits
        return children_of(bits, candidates, before, asked.new_bits, asked.none)

    def min_reports(self, least: int) -> tuple[int, ...]:
        """Gates of the levels, for at least so many people.

        Levels that are drawn vary: each may be five standard deviations smaller than its share.
        """
        return tuple(fewest(least, level.share) for level in self.levels)

    def least(self, people: int) -> tuple[int, ...]:
        return self.min_reports(people)

    @property
    def messages_per_user(self) -> int:
        """Messages that one person sends."""
        return 1

    @property
    def exactness(self) -> str:
        """Whether the implemented laws keep the budget, or those of ideal real numbers do."""
        kept = {level.oracle.exactness for level in self.levels}
        return "exact" if kept == {"exact"} else max(kept - {"exact"})

    @property
    def bits_per_report(self) -> int:
        """Bits of everything that one person sends: the level, and the longest report."""
        most = max(level.oracle.bits_per_report for level in self.levels)
        return bits_for(len(self.levels)) + most

    # What the collector makes of it -------------------------------------------------------

    def extend(
        self, level: int, estimate: Estimate, candidates: NDArray[np.uint64]
    ) -> NDArray[np.uint64]:
        """The candidates of the next level: children that enough reports support.

        Those that no string's code begins with are left out; of too many, the most frequent stay.

        Args:
            level: from 0; not the last one.
            estimate: of this level's oracle.
            candidates: of this level.
        """
        asked, following = self.levels[level], self.levels[level + 1]
        before = asked.prefix_bits - asked.new_bits
        closed = sum(self.code.decode(row, before).complete for row in candidates)
        children = closed + (len(candidates) - closed) * asked.fan_out
        least = asked.least_support(estimate.num_users, children)
        counts = _supports(asked.oracle, estimate)[: len(candidates) * asked.fan_out]
        strong = np.flatnonzero(counts >= least)
        strong = strong[np.argsort(-counts[strong], kind="stable")]
        kept: list[NDArray[np.uint64]] = []
        for child in strong.tolist():
            place, new = divmod(child, asked.fan_out)
            row = child_of(candidates[place], before, asked.new_bits, new)
            if self._is_prefix(row, asked.prefix_bits):
                kept.append(row)
            if len(kept) == following.candidates:
                break
        found = np.array(kept, dtype=np.uint64).reshape(-1, self.code.num_words)
        order = np.lexsort(found.T[::-1])
        return np.ascontiguousarray(found[order])

    def _is_prefix(self, row: NDArray[np.uint64], bits: int) -> bool:
        """Whether a string's code begins so; at full length, whether it is one."""
        told = self.code.decode(row, bits)
        if not told.complete:
            return told.possible and bits < self.code.num_bits
        return bool((self.code.encode([told.text]).bits[0] == row).all())

    def finish(
        self,
        estimate: Estimate,
        candidates: NDArray[np.uint64],
        num_users: int,
        coverage: float = 0.95,
    ) -> FoundWords:
        """The words of the last level, with intervals.

        Args:
            estimate: of the last level's oracle.
            candidates: of the last level.
            num_users: people whose reports were received, of all levels.
            coverage: of all intervals of the result at once.
        """
        check_fraction("coverage", coverage)
        last = self.levels[-1]
        tested, answers = len(candidates), estimate.num_users
        asked = np.append(np.arange(tested), last.none)  # words, and people with none of them
        counts = _supports(last.oracle, estimate)[asked]
        value = estimate.value[asked]
        error = np.hypot(estimate.standard_error[asked], draw_error(value, answers, num_users))
        tail = (1 - coverage) / (2 * len(asked))
        low, high = last.interval(counts, answers, tail)

        least = last.least_support(answers, tested) if tested else 0
        found = np.flatnonzero(counts[:-1] >= least)
        found = found[np.argsort(-value[found], kind="stable")]
        dropped = np.setdiff1d(np.arange(len(asked)), found)
        weights = np.isin(np.arange(last.oracle.domain_size), asked[found])
        left = 1.0 - float(value[found].sum())
        # Both hold where all intervals do: what the words leave over, and the sum of the others.
        ends = np.clip([
            left, max(1.0 - high[found].sum(), np.maximum(low[dropped], 0.0).sum()),
            min(1.0 - np.maximum(low[found], 0.0).sum(), high[dropped].sum()),
        ], 0.0, 1.0)  # fmt: skip
        rest = Share(left, self._sum_error(weights, estimate, num_users), *np.sort(ends)[[0, 2]])
        return FoundWords(
            tuple(self.code.decode(candidates[i]).text for i in found.tolist()),
            value[found], error[found], low[found], high[found],
            rest, tested, num_users, answers, coverage, *self._thresholds_of(answers),
        )  # fmt: skip

    def _sum_error(self, weights: np.ndarray, estimate: Estimate, num_users: int) -> float:
        """Standard error of a sum of frequencies of the last level, its people's draw included."""
        if not estimate.num_users:
            return math.inf
        found = combine(estimate, self.levels[-1].oracle, weights.astype(float))
        drawn = draw_error(found.value, estimate.num_users, num_users)
        return float(np.hypot(found.standard_error, drawn)[0])

    # What it finds ------------------------------------------------------------------------

    @cached_property
    def threshold(self) -> float:
        """f*: a word of this frequency is found with probability 1 - `miss`, with as many people
        as planned; a union bound over the levels, exact binomials."""
        return self._threshold(self.num_users, self.miss)

    def _threshold(self, people: float, miss: float) -> float:
        miss /= len(self.levels)
        answers = (math.floor(people * one.share) for one in self.levels)
        return max(one.detected(count, one.none, miss) for one, count in zip(self.levels, answers))

    def _thresholds_of(self, last_answers: int) -> tuple[float, float]:
        """`threshold` for the people that came, told from how many the last level has; and the
        frequency from which no word is missed: at most 1 / threshold words have so much."""
        people = last_answers / self.levels[-1].share
        one = self._threshold(people, self.miss)
        return one, self._threshold(people, self.miss * min(1.0, one))

    @property
    def fano(self) -> float:
        """A frequency below which no protocol of this local epsilon can find a word among all that
        have a code, with probability 1 - `miss` (Fano's inequality, a spread background)."""
        return fano_threshold(self.num_users, self.local_epsilon, self.code.num_bits, self.miss)

    # What it costs ------------------------------------------------------------------------

    def crowd(self, received: Sequence[int], honest_fraction: float = 1.0) -> int:
        """Reports among which one hides, for the reports received of each level.

        Levels are secret: a person's report is one of any level, with the levels' shares, so it
        hides among min over levels of received / share. (Given how many came of each level, the
        clones of level l count pi_l / n_l each; were all n_l = pi_l n, that is one shuffle of n.)
        Visible: among the fewest of any level.
        """
        if len(received) != len(self.levels):
            raise ValueError(f"received must hold {len(self.levels)} counts, one for each level")
        if self.assignment == "visible":
            crowd = min(received)
        else:
            crowd = min(count * SHARES // one.weight for one, count in zip(self.levels, received))
            crowd = min(crowd, sum(received))
        return hidden_users(crowd, honest_fraction) if crowd else 0

    def reports(self, received: Sequence[int], honest_fraction: float = 1.0) -> Any:
        """What a person takes part in (`beam_ldp.accounting.reports`), for its price.

        One shuffle of the crowd prices the whole transcript, although later levels ask what
        earlier answers suggest: each report is, with the same probability whatever was asked, a
        clone that speaks for either value. So it is priced by the clone pair of the local epsilon,
        which every oracle has; not by the oracles' own. Where a level has no honest report, the
        local epsilon.
        """
        crowd = self.crowd(received, honest_fraction)
        local = LocalReports(self.local_epsilon)
        return ShuffledReports(local, crowd) if crowd >= 1 else local

    def price(
        self, delta: float, received: Sequence[int] | None = None, honest_fraction: float = 1.0
    ) -> Any:
        """Central epsilon at `delta` of the release: a `PrivacyBound`.

        Args:
            delta: in (0, 1).
            received: reports of each level; None for as many as planned.
            honest_fraction: share of the reports that are certainly not fake.
        """
        from beam_ldp.accounting.prices import event_epsilon

        if received is None:
            received = [math.floor(self.num_users * one.share) for one in self.levels]
        return event_epsilon(self.reports(received, honest_fraction), delta)

    # As values ----------------------------------------------------------------------------

    def to_config(self) -> dict[str, Any]:
        """The plan as JSON-able values; it travels with the reports and into the ledger."""
        return {
            "protocol": "HeavyHitters",
            "version": 1,
            "code": self.code.to_config(),
            "levels": [
                {
                    "prefix_bits": one.prefix_bits,
                    "new_bits": one.new_bits,
                    "candidates": one.candidates,
                    "weight": one.weight,
                    "false_prefixes": one.false_prefixes,
                    "oracle": one.oracle.to_config(),
                }
                for one in self.levels
            ],
            "num_users": self.num_users,
            "local_epsilon": self.local_epsilon,
            "miss": self.miss,
            "false_words": self.false_words,
            "assignment": self.assignment,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> HeavyHitters:
        """Inverse of `to_config`.

        Raises:
            ValueError: if it is of another protocol or version, or something does not fit.
        """
        told = dict(config)
        if (told.pop("protocol", None), told.pop("version", None)) != ("HeavyHitters", 1):
            raise ValueError("config must be of version 1 of HeavyHitters")
        try:
            levels = tuple(
                Level(**{**one, "oracle": LocalRandomizer.from_config(one["oracle"])})
                for one in told.pop("levels")
            )
            return cls(levels=levels, code=StringCode(**told.pop("code")), **told)
        except (TypeError, KeyError):
            raise ValueError("config does not fit HeavyHitters") from None

    def config_digest(self) -> bytes:
        """16 bytes that identify the plan and all its parameters."""
        return digest_of(json.dumps(self.to_config(), sort_keys=True).encode())


def fano_threshold(num_users: int, local_epsilon: float, bits: float, miss: float) -> float:
    """Fano's bound: below it none of 2**bits values can be found but with probability `miss`."""
    variance = 1.0 / math.sinh(local_epsilon / 2) ** 2  # 4 E / (E - 1)**2
    return math.sqrt(variance * ((1 - miss) * bits * math.log(2) - math.log(2)) / num_users)


def _supports(oracle: FrequencyOracle, estimate: Estimate) -> NDArray[np.int64]:
    """Of each value, how many reports support it."""
    p, q = oracle.support_probabilities
    counts = (estimate.raw.value * (p - q) + q) * estimate.num_users
    return np.rint(np.nan_to_num(counts)).astype(np.int64)
