"""Few random bits: the factor that each mode costs, and the bits that it takes of a generator."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from beam_ldp.accounting import shuffle_epsilon
from beam_ldp.randomizers.entropy import (
    binary_entropy,
    critical_bits,
    entropy_bits,
    inverse_binary_entropy,
)
from beam_ldp.randomizers.frequency import BinaryHadamard, LimitedHadamard
from beam_ldp.randomizers.frequency.limited_hadamard import MODES, Mode, key_epsilon
from tests.randomizers.frequency import exact_checks as checks


@pytest.mark.exact
def test_entropies():
    inverse = {
        0.1: 0.0129868620555, 0.5: 0.110027864438, 0.6: 0.146102403412, 0.7: 0.189297705371,
        0.9: 0.316019346324,
    }  # fmt: skip
    for bits, chance in inverse.items():
        assert inverse_binary_entropy(bits) == pytest.approx(chance, rel=1e-11)
        assert binary_entropy(inverse_binary_entropy(bits)) <= bits
    assert [inverse_binary_entropy(bits) for bits in (0.0, 1.0, 7.0)] == [0.0, 0.5, 0.5]
    critical = {0.1: 0.998198883, 0.5: 0.956286539, 1.0: 0.839941538, 2.0: 0.527065341}
    for epsilon, bits in critical.items():
        assert critical_bits(epsilon) == pytest.approx(bits, abs=5e-10)
    assert entropy_bits([1.0, 0.0]) == 0.0


def variance_factor(epsilon: float, share: float, mode: Mode, row: str = "sent") -> float:
    """n times the variance of a large domain over that of enough bits, C squared."""
    oracle = LimitedHadamard(1 << 20, epsilon, share * critical_bits(epsilon), mode, row)
    return float(oracle.variance(1)[0]) * math.tanh(epsilon / 2) ** 2


@pytest.mark.exact
@pytest.mark.parametrize(
    "epsilon, share, binary, ternary, timeshare",
    [
        (0.5, 0.99, 2.41, 4.73, 1.01),
        (1, 0.99, 4.56, 5.55, 1.01),
        (1, 0.5, 16.2, 14.5, 2.0),
        (2, 0.5, 38.4, 25.0, 2.0),
        (1, 0.05, 320, 243, 20.0),
    ],
)
def test_golden_factors(epsilon, share, binary, ternary, timeshare):
    for mode, factor in (("binary", binary), ("ternary", ternary), ("timeshare", timeshare)):
        assert variance_factor(epsilon, share, mode) == pytest.approx(factor, rel=3e-3), mode


@pytest.mark.exact
@pytest.mark.parametrize("epsilon, share, factor", [(0.5, 0.99, 4.91), (1, 0.5, 20.7)])
def test_one_key_for_the_two_laws_of_binary_takes_more_bits(epsilon, share, factor):
    """Golden: the budget on H(U) instead of H(report | value)."""
    budget = share * critical_bits(epsilon)

    def key_bits(bits: float) -> float:
        return LimitedHadamard(8, epsilon, bits, "binary", "public").key_entropy_bits

    low, high = 1e-3, budget
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if key_bits(middle) <= budget else (low, middle)
    q = inverse_binary_entropy(low)
    law = binary_entropy(q) + q * binary_entropy(math.exp(-epsilon))
    assert key_bits(low) == pytest.approx(law, rel=1e-9)
    assert variance_factor(epsilon, low / critical_bits(epsilon), "binary") == pytest.approx(
        factor, rel=3e-3
    )


@pytest.mark.exact
def test_the_text_s_risk_is_that_of_balanced_rows():
    """Spec 3.3, for people spread evenly: every set is claimed with the mean of both chances."""
    oracle = LimitedHadamard(64, 1.0, 0.42, "binary")
    q = inverse_binary_entropy(0.42)
    s, apart = q * (1 + math.exp(-1.0)) / 2, q * (1 - math.exp(-1.0))
    each = 4 * s * (1 - s) / apart**2
    nobody = np.zeros(64)
    expected = each * (63 / 64) ** 2 - 1 / 64**2
    assert oracle.variance(1, nobody)[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.exact
@pytest.mark.parametrize("mode", ["binary", "ternary", "timeshare"])
def test_enough_bits_are_binary_hadamard(mode):
    full = BinaryHadamard(12, 1.0)
    for bits in (critical_bits(1.0), 1.0, 64.0):
        oracle = LimitedHadamard(12, 1.0, bits, mode)
        np.testing.assert_allclose(oracle.channel(), full.channel(), rtol=1e-12)
        assert oracle.bits_per_report == full.bits_per_report
    assert LimitedHadamard(12, 1.0).variance(7) == pytest.approx(full.variance(7), rel=1e-12)


@pytest.mark.exact
@pytest.mark.parametrize("row", ["sent", "public"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [2, 5, 8])
def test_every_mode_and_row_by_its_channel(mode, row, size):
    oracle = LimitedHadamard(size, 1.5, 5 if mode == "uniform_key" else 0.3, mode, row)
    checks.check_channel(oracle)
    if row == "sent":
        checks.check_witnesses(oracle)
        channel = oracle.channel()
        checks.check_blanket(oracle, channel.min(axis=1) / channel.min(axis=1).sum())


@pytest.mark.exact
@pytest.mark.parametrize("mode", MODES)
def test_a_budget_is_kept_and_used(mode):
    for epsilon, bits in ((0.5, 0.3), (1.0, 0.05), (3.0, 0.2), (1.0, 0.8)):
        bits = 6.0 if mode == "uniform_key" else bits
        oracle = LimitedHadamard(100, epsilon, bits, mode, "public")
        assert oracle.cond_entropy_bits <= min(bits, oracle.key_entropy_bits) * (1 + 1e-12)
        if mode != "uniform_key":
            assert oracle.cond_entropy_bits == pytest.approx(bits, rel=1e-9)
        column = LimitedHadamard(8, epsilon, bits, mode).channel()[:, 3]
        sent = LimitedHadamard(8, epsilon, bits, mode)
        assert sent.cond_entropy_bits == pytest.approx(entropy_bits(column), abs=1e-9)


# What a generator that counts its bits gives away -----------------------------------------


class CountingBits:
    """Fair bits, counted, made into symbols of a law: what one symbol leaves serves the next.

    The state is uniform in [0, size), whatever was said so far.
    """

    UNIT, FULL = 1 << 24, 1 << 56

    def __init__(self, seed: int) -> None:
        self._rng, self.drawn = np.random.default_rng(seed), 0
        self._state, self._size = 0, 1

    def symbol(self, ends: Sequence[int]) -> int:
        """Symbol i with chance (ends[i + 1] - ends[i]) / UNIT."""
        while True:
            while self._size < self.FULL:
                self._state = 2 * self._state + int(self._rng.integers(2))
                self._size *= 2
                self.drawn += 1
            whole = self._size // self.UNIT
            if self._state < whole * self.UNIT:
                break
            self._state, self._size = self._state - whole * self.UNIT, self._size % self.UNIT
        rest, place = divmod(self._state, self.UNIT)
        found = next(i for i in range(len(ends) - 1) if place < ends[i + 1])
        weight = ends[found + 1] - ends[found]
        self._state, self._size = rest * weight + place - ends[found], whole * weight
        return found


def noise_key(oracle: LimitedHadamard) -> list[int]:
    """Where the words of the noise do something else: 0, ..., 2**64."""
    law = oracle._law
    cuts = {law.inside, law.answers} | ({law.outside} if oracle._sides == 2 else set())
    if oracle.mode == "uniform_key":
        return [key << (64 - int(oracle.random_bits)) for key in range(1 << 5)] + [1 << 64]
    return sorted(cuts | {0, 1 << 64})


@pytest.mark.statistical
@pytest.mark.parametrize("mode, bits", [*((mode, 0.4) for mode in MODES[:3]), ("uniform_key", 5)])
def test_a_counting_generator_gives_away_as_many_bits(mode, bits):
    """What is drawn runs through the mechanism itself, and its reports follow the channel.

    40,000 reports of one value. What a report tells of the key (minus the logarithm of its chance)
    has a standard deviation below 1.1 bits: 0.025 are 4.5 sigma of the mean, false alarm below
    1e-5. A binary device that took the entropy of its report instead of its key's is caught.
    """
    oracle = LimitedHadamard(4, 1.0, bits, mode, "public")
    key = noise_key(oracle)
    ends = [round(cut / (1 << 64) * CountingBits.UNIT) for cut in key]
    source, count = CountingBits(seed=4), 40_000
    rng = np.random.default_rng(5)
    words = rng.integers(0, 2**64, (count, 2), dtype=np.uint64, endpoint=False)  # public ones
    asked = words[:, 0] * np.uint64(oracle.num_sets) <= np.uint64(oracle._law.asked - 1)
    for i in np.flatnonzero(asked):  # whoever the public coin leaves out draws nothing
        words[i, 1] = key[source.symbol(ends)]
    reports = np.empty(count, dtype=oracle.report_dtype)
    oracle._randomize_block(np.full(count, 3), words, lambda *_: words, reports)
    seen = oracle.accumulate(reports)
    expected = oracle.channel()[:, 3] * count
    assert (np.abs(seen - expected) < 5 * np.sqrt(expected)).all()
    drawn = source.drawn / count
    assert drawn == pytest.approx(oracle.key_entropy_bits, abs=0.025)
    if mode in ("ternary", "timeshare"):  # the key is what its report tells of the own set
        assert oracle.cond_entropy_bits == pytest.approx(oracle.key_entropy_bits, rel=1e-12)
    else:
        assert oracle.cond_entropy_bits < oracle.key_entropy_bits - 0.05


# Keys of fair bits ------------------------------------------------------------------------


@pytest.mark.exact
def test_golden_keys():
    found = {3: 0.5108, 4: 0.7885, 8: 0.9970, 16: 0.9999}
    for bits, achieved in found.items():
        assert key_epsilon(1.0, bits) == pytest.approx(achieved, abs=6e-5)
        oracle = LimitedHadamard(10, 1.0, bits, "uniform_key")
        assert oracle.local_epsilon == key_epsilon(1.0, bits) <= 1.0
        again = LimitedHadamard(10, oracle.local_epsilon, bits, "uniform_key")
        assert again == oracle and again._law == oracle._law
        checks.check_channel(oracle)  # unbiased with what is achieved, not with what was asked for
    assert key_epsilon(0.1, 8) == pytest.approx(0.0938, abs=5e-5)


@pytest.mark.exact
@pytest.mark.parametrize("epsilon, too_few, enough", [(1.0, 2, 3), (1.0, 1, 3), (0.1, 5, 6)])
def test_a_device_with_too_few_bits_is_told_how_many_it_takes(epsilon, too_few, enough):
    with pytest.raises(ValueError, match=f"random_bits={too_few} fair bits .* it takes {enough}"):
        LimitedHadamard(4, epsilon, too_few, "uniform_key")
    assert LimitedHadamard(4, epsilon, enough, "uniform_key").local_epsilon > 0


# Prices -----------------------------------------------------------------------------------


@pytest.mark.exact
def test_prices_of_a_shuffled_batch():
    """Silence hides its own sender and nobody else; a public row splits the crowd."""
    n, delta = 100_000, 1e-8
    full = shuffle_epsilon(LimitedHadamard(16, 2.0), n, delta)
    for mode in ("binary", "ternary", "timeshare"):
        few = LimitedHadamard(16, 2.0, 0.2, mode)
        price = shuffle_epsilon(few, n, delta)
        assert 0 < price.lower <= price
        assert price < 2.0
        public = LimitedHadamard(16, 2.0, 0.2, mode, "public")
        assert price < shuffle_epsilon(public, n, delta)
    # Of many people one in `share` answers: their reports are a batch of that many, and the victim
    # is among them with that chance only.
    few = LimitedHadamard(16, 2.0, critical_bits(2.0) / 4, "timeshare")
    assert shuffle_epsilon(few, n, delta) <= shuffle_epsilon(
        LimitedHadamard(16, 2.0), n // 4, delta
    )
    assert full < shuffle_epsilon(BinaryHadamard(16, 2.0), n, delta) * (1 + 1e-6)


@pytest.mark.exact
def test_the_crowd_of_a_public_row_is_who_answers_about_it():
    oracle = LimitedHadamard(8, 1.0, critical_bits(1.0) / 4, "timeshare", "public")
    assert oracle.public_groups == 28 and oracle.can_be_silent
    assert oracle.telling_groups == 4  # a quarter answers, about 4 rows of 7
    two_sides = LimitedHadamard(8, 1.0, 0.4, "binary", "public")
    assert (two_sides.public_groups, two_sides.num_sets, two_sides.can_be_silent) == (14, 14, False)
    assert two_sides.telling_groups == 8


@pytest.mark.exact
@pytest.mark.parametrize("mode", ["binary", "ternary", "timeshare"])
def test_as_many_groups_tell_as_reports_that_differ(mode):
    """A silent person's report is no group's: groups and telling ones are rounded for safety."""
    oracle = LimitedHadamard(7, 1.5, critical_bits(1.5) / 3, mode, "public")
    said = oracle.channel()[: 2 * oracle.num_sets].reshape(oracle.num_sets, 2, 7)
    about = said.sum(axis=1).max(axis=1)  # that a person answers about each set
    differ = (np.abs(said[..., :1] - said[..., 1:]) > 1e-12).any(axis=1)
    told = (about @ differ).max()
    assert told <= oracle.telling_groups / oracle.public_groups < told + 1 / oracle.public_groups
    assert about.max() >= 1 / oracle.public_groups


@pytest.mark.exact
def test_errors():
    for bits in (0, -1, math.nan, math.inf, "1", None):
        with pytest.raises(ValueError, match="random_bits must"):
            LimitedHadamard(4, 1.0, bits)
    for bits in (0.5, 2.5, 54):
        with pytest.raises(ValueError, match="random_bits must be a whole number from 1 to 53"):
            LimitedHadamard(4, 1.0, bits, "uniform_key")
    with pytest.raises(ValueError, match="mode must be one of binary"):
        LimitedHadamard(4, 1.0, 0.5, "other")
    with pytest.raises(ValueError, match="row must"):
        LimitedHadamard(4, 1.0, 0.5, row="other")
    with pytest.raises(ValueError, match="random_bits=1e-09 is beyond the resolution"):
        LimitedHadamard(4, 1.0, 1e-9)
