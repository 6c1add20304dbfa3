"""The split-and-mix mean: shares, rounding, sums, errors, and what one message can do."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from beam_ldp.accounting import local_event, shuffle_epsilon, shuffled_event
from beam_ldp.randomizers import registry
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.discrete_noise import DiscreteGaussian
from beam_ldp.randomizers.mean import ScalarMean, SplitAndMixMean
from beam_ldp.randomizers.mean.split_and_mix import _MISSED_ROUNDING
from beam_ldp.randomizers.randomness import UserRandomness
from beam_ldp.randomizers.walsh_hadamard import hadamard, hadamard_back
from tests.identities import identity

PEOPLE = 300
MECHANISM = SplitAndMixMean(5, cells=40, noise_deviation=3.0, modulus_bits=20, shares=3)


def vectors(count: int, dimension: int, rng: int = 0) -> np.ndarray:
    """Of length 1 at most, with a mean that is not 0."""
    drawn = np.random.default_rng(rng).normal(0.3, 1.0, (count, dimension))
    return drawn / np.maximum(1.0, np.linalg.norm(drawn, axis=1))[:, None]


def shuffled(reports: np.ndarray, rng: int = 1) -> np.ndarray:
    """Each column by itself."""
    return np.random.default_rng(rng).permuted(reports, axis=0)


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# Shares ---------------------------------------------------------------------------------------


@pytest.mark.exact
def test_shuffled_shares_add_up_to_the_rounded_vectors_with_everybodys_noise():
    """The same words, read by hand: the sum of all columns is that of the noisy numbers."""
    values, size = vectors(PEOPLE, 5), 8
    reports = MECHANISM.randomize(values, rng=generator(7))
    words = generator(7).integers(0, 2**64, (PEOPLE, size * 4), dtype=np.uint64, endpoint=False)
    numbers = MECHANISM.rounded(values, words[:, :size])
    numbers += DiscreteGaussian(3.0).draw(words[:, size : 2 * size], lambda r, p: r)
    assert reports.shape == (PEOPLE, 24) and reports.dtype == np.uint32
    assert (reports < 2**20).all()
    total = MECHANISM.accumulate(shuffled(reports))
    assert total.tolist() == (numbers.sum(axis=0) % 2**20).tolist()
    parts = MECHANISM.accumulate(reports[:100]) + MECHANISM.accumulate(reports[100:])
    assert (parts % 2**20).tolist() == total.tolist()
    found = [MECHANISM.estimate(s, PEOPLE).value for s in (parts, total)]
    assert np.array_equal(*found)


@pytest.mark.exact
def test_all_shares_but_the_last_are_words_and_have_nothing_to_do_with_the_vector():
    first, second = (
        MECHANISM.randomize(sign * vectors(50, 5), rng=generator(3)).reshape(50, 8, 3)
        for sign in (1, -1)
    )
    assert np.array_equal(first[:, :, :2], second[:, :, :2])
    assert (first[:, :, 2] != second[:, :, 2]).any(axis=1).all()


@pytest.mark.exact
@pytest.mark.parametrize("bits", [7, 32, 33, 40])
def test_messages_travel_in_their_bits(bits):
    mechanism = replace(MECHANISM, modulus_bits=bits, noise_deviation=1.0)
    reports = mechanism.randomize(vectors(9, 5), rng=generator(2))
    packed = mechanism.pack(reports)
    assert mechanism.bits_per_report == 8 * 3 * bits and len(packed) == 9 * 3 * bits
    assert np.array_equal(mechanism.unpack(packed, 9), reports)
    assert mechanism.unpack(packed, 9).dtype == reports.dtype == mechanism.report_dtype
    too_large = reports.astype(np.uint64)
    too_large[4, 2] = 1 << bits
    assert mechanism.possible(too_large).tolist() == [i != 4 for i in range(9)]
    with pytest.raises(ValueError, match=rf"reports must be below 2\*\*{bits}"):
        mechanism.accumulate(too_large)


@pytest.mark.exact
def test_a_retry_sends_the_same_messages():
    values = vectors(4, 5)
    words = UserRandomness(bytes(range(32)), [b"a", b"b", b"c", b"d"], identity("means"))
    again = MECHANISM.randomize(values, rng=words)
    assert np.array_equal(MECHANISM.randomize(values, rng=words), again)
    assert not np.array_equal(MECHANISM.randomize(-values, rng=words), again)
    fresh = MECHANISM.randomize(values), MECHANISM.randomize(values)
    assert not np.array_equal(*fresh)


@pytest.mark.exact
def test_a_draw_that_needs_a_second_word_gets_one_that_nothing_else_uses():
    """Noise whose word stands on a threshold: position 32 and on are free."""
    threshold = DiscreteGaussian(3.0).thresholds()[40]
    words = np.zeros((1, MECHANISM.words_per_user), dtype=np.uint64)
    words[0, 8:16] = np.uint64(1 << 62)
    words[0, 10] = np.uint64(threshold >> 64)
    asked = []

    def extra(rows, positions):
        asked.extend(positions.tolist())
        return np.zeros(len(rows), dtype=np.uint64)

    MECHANISM._randomize_block(np.zeros((1, 5)), words, extra, np.empty((1, 24), np.uint32))
    assert asked == [MECHANISM.words_per_user + 2]


# Rounding -------------------------------------------------------------------------------------


@pytest.mark.exact
def test_rounded_vectors_are_never_longer_than_the_bound():
    """Words that round every coordinate up make some too long: those are rounded towards zero."""
    mechanism = SplitAndMixMean(64, cells=60)
    turned = generator(5).uniform(0.7, 1.3, (400, 64))  # all rounded away from zero
    turned /= np.linalg.norm(turned, axis=1)[:, None]
    values = np.array([hadamard_back(row, 64, mechanism._signs) for row in turned])
    exact = hadamard(values, mechanism._signs) * 60
    up = mechanism.rounded(values, np.zeros((400, 64), dtype=np.uint64))
    too_long = (np.ceil(exact) ** 2).sum(axis=1) > mechanism.longest
    assert 0 < too_long.sum() < 400
    assert np.array_equal(up[~too_long], np.ceil(exact[~too_long]))
    assert np.array_equal(up[too_long], np.trunc(exact[too_long]))
    assert ((up**2).sum(axis=1) <= mechanism.longest).all()
    assert (np.trunc(exact) ** 2).sum(axis=1).max() <= 60**2
    opposite = mechanism.rounded(-values, np.full((400, 64), 2**64 - 1, dtype=np.uint64))
    apart = np.linalg.norm(up - opposite, axis=1).max()
    assert mechanism.sensitivity / 1.05 < apart <= mechanism.sensitivity


@pytest.mark.exact
def test_the_bound_of_the_length_is_missed_as_rarely_as_it_says():
    """By the law of the squared length, for coordinates all of which are k + 1/2.

    At chances that can be enumerated: the same inequality with 2^-4 in the place of 2^-40.
    """
    size, half = 16, 2.5
    cells = half * math.sqrt(size)
    law, low, high = np.array([1.0]), 4, 9  # squares of 2 and 3
    for _ in range(size):
        law = (np.pad(law, (0, high - low)) + np.pad(law, (high - low, 0))) / 2
    squares = size * low + np.arange(len(law))
    for chance in (2.0**-4, 2.0**-12, 2.0**-15):
        slack = math.sqrt(-2 * math.log(chance))
        bound = cells**2 + size / 4 + slack * (cells + math.sqrt(size) / 2)
        assert law[squares > bound].sum() <= chance
    slack = math.sqrt(-2 * math.log(_MISSED_ROUNDING))
    bound = SplitAndMixMean(size, cells=10).longest
    assert bound == math.ceil(cells**2 + size / 4 + slack * (cells + math.sqrt(size) / 2))
    assert law[squares > bound].sum() <= _MISSED_ROUNDING


@pytest.mark.exact
def test_rounding_is_unbiased_and_varies_as_said():
    """Words on an even grid of 4,096 stand for all words: mean and variance of every coordinate."""
    value = vectors(1, 5, rng=4)
    words = np.arange(4096, dtype=np.uint64)[:, None] << np.uint64(52)
    found = MECHANISM.rounded(np.repeat(value, 4096, axis=0), np.repeat(words, 8, axis=1))
    exact = hadamard(value, MECHANISM._signs)[0] * 40
    assert np.abs(found.mean(axis=0) - exact).max() <= 1 / 4096
    noise = MECHANISM.variance(1, value) / MECHANISM.cell**2 - 3.0**2
    assert noise == pytest.approx(np.full(5, found.var(axis=0).mean()), abs=1e-3)
    assert (MECHANISM.variance(1, value) <= MECHANISM.variance(1)).all()
    assert MECHANISM.variance(7) == pytest.approx(np.full(5, (9 + 0.25) / 40**2 / 7))


# Errors -----------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_estimates_are_unbiased_and_as_wrong_as_they_say():
    """200 rounds of the whole protocol, at 5 sigma: one false alarm in 100,000 seeds."""
    values, rounds, rng = vectors(60, 5, rng=9) * 2.0, 200, generator(12)
    mechanism = replace(MECHANISM, radius=2.0)
    found = np.array([
        mechanism.estimate(
            mechanism.accumulate(shuffled(mechanism.randomize(values, rng=rng), seed)), 60
        ).value
        for seed in range(rounds)
    ])  # fmt: skip
    errors = found - values.mean(axis=0)
    variance = mechanism.variance(60, values)
    assert (np.abs(errors.mean(axis=0)) < 5 * np.sqrt(variance / rounds)).all()
    ratio = (errors**2).sum() / rounds / variance.sum()
    assert abs(ratio - 1) < 5 * math.sqrt(2 / (5 * rounds))


def statistic_in_law(mechanism: SplitAndMixMean, vector: np.ndarray, people: int, rng):
    """The sum of so many people who all hold one vector, without drawing their messages.

    Rounded coordinates add up to binomials, but for 2^-40; shares of noise add up to one discrete
    Gaussian, but for 1e-16 in log probability (`sum_log_ratio`).
    """
    exact = hadamard(vector[None], mechanism._signs)[0] / mechanism.cell
    lower = np.floor(exact)
    sums = people * lower.astype(np.int64) + rng.binomial(people, exact - lower)
    words = rng.integers(0, 2**64, (1, len(exact)), dtype=np.uint64, endpoint=False)
    noise = DiscreteGaussian(mechanism.noise_deviation * math.sqrt(people))
    return (sums + noise.draw(words, lambda rows, _: rows)[0]) % mechanism.modulus


@pytest.mark.statistical
@pytest.mark.parametrize("dimension", [16, 128, 784])
@pytest.mark.parametrize("people", [10_000, 100_000])
def test_squared_error_is_within_1_3_of_a_curators_in_law(dimension, people):
    """With half of all people honest it would be 2.04, with four fifths it is 1.275. 4.5 sigma."""
    mechanism = SplitAndMixMean.for_shuffle(dimension, 1.0, 1e-6, people, honest_fraction=0.8)
    vector, rng = np.full(dimension, dimension**-0.5), generator(people + dimension)
    rounds = math.ceil(8000 / dimension)
    errors = [
        mechanism.estimate(statistic_in_law(mechanism, vector, people, rng), people).value - vector
        for _ in range(rounds)
    ]
    curator = dimension * mechanism.curator_variance(1.0, 1e-6, people)
    ratio = float(np.square(errors).sum()) / rounds / curator
    told = mechanism.mean_squared_error(people, vector) / curator
    assert abs(ratio / told - 1) < 4.5 * math.sqrt(2 / (rounds * dimension))
    assert told < 1.28 and ratio < 1.3 * (1 + 4.5 * math.sqrt(2 / (rounds * dimension)))


@pytest.mark.statistical
def test_a_sum_wraps_around_as_rarely_as_it_says():
    """People who all point one way, a modulus that is too small: 300 rotations."""
    mechanism = SplitAndMixMean(16, cells=53, noise_deviation=2.0, modulus_bits=13, shares=2)
    people = 100
    chance = mechanism.wrap_probability(people)
    vector, rng, wrapped = vectors(1, 16, rng=8)[0], generator(4), 0
    vector /= np.linalg.norm(vector)
    for seed in range(300):
        turned = replace(mechanism, rotation_seed=seed)
        value = turned.estimate(statistic_in_law(turned, vector, people, rng), people).value
        wrapped += np.abs(value - vector).max() > 0.2  # 2^13 cells, turned back
    assert 0 < wrapped / 300 <= chance < 0.5
    assert mechanism.wrap_probability(0) == 0.0
    assert mechanism.wrap_probability(2**12) == 1.0
    told = mechanism.estimate(np.zeros(16, dtype=np.int64), people).failure_probability
    assert told == chance


# What one message can do ------------------------------------------------------------------------


@pytest.mark.exact
def test_one_lost_share_makes_the_estimate_a_random_number():
    """A message short, in one column: the sum is off by the number lost, anywhere below 2^20."""
    values = vectors(PEOPLE, 5)
    columns = shuffled(MECHANISM.randomize(values, rng=generator(1)))
    whole = MECHANISM.estimate(MECHANISM.accumulate(columns), PEOPLE)
    assert np.abs(whole.value - values.mean(axis=0)).max() < 5 * whole.standard_error.max()
    lost = columns.copy()
    lost[17, 4] = 0  # the second share of the second coordinate
    found = MECHANISM.estimate(MECHANISM.accumulate(lost), PEOPLE)
    assert np.abs(found.value - whole.value).max() > 100 * whole.standard_error.max()
    assert found.standard_error.tolist() == whole.standard_error.tolist()  # and nothing tells


@pytest.mark.exact
def test_one_forged_envelope_moves_the_estimate_to_wherever_it_likes():
    reports = MECHANISM.randomize(vectors(PEOPLE, 5), rng=generator(1))
    before = MECHANISM.estimate(MECHANISM.accumulate(reports), PEOPLE).value
    target = np.array([5.0, -4.0, 3.0, -2.0, 1.0])  # five times longer than any vector
    push = np.rint(hadamard((target - before)[None] * PEOPLE, MECHANISM._signs)[0] * 40)
    forged = reports.astype(np.int64)
    forged[0, ::3] = (forged[0, ::3] + push.astype(np.int64)) % 2**20
    assert MECHANISM.possible(forged).all()
    after = MECHANISM.estimate(MECHANISM.accumulate(forged), PEOPLE).value
    assert np.abs(after - target).max() < 0.01
    moved = PEOPLE * float(np.linalg.norm(after - before))
    assert 2 * PEOPLE < moved <= MECHANISM.reach


# What it is called, and what it refuses ---------------------------------------------------------


@pytest.mark.exact
def test_it_protects_nobody_by_itself_and_nothing_prices_it_as_if_it_did():
    assert MECHANISM.local_epsilon == MECHANISM.log_ratio_max() == math.inf
    assert not MECHANISM.protects_alone and ScalarMean.protects_alone
    assert SplitAndMixMean not in registry.offered("mean")
    assert SplitAndMixMean in registry.offered("mean", behind_shuffler=True)
    for priced in (
        MECHANISM.dominating_pair, MECHANISM.dp_event, lambda: local_event(MECHANISM),
        lambda: shuffle_epsilon(MECHANISM, 1000, 1e-6),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="behind a trusted shuffler alone"):
            priced()
    assert shuffled_event(MECHANISM, 1000).local_epsilon == math.inf


@pytest.mark.exact
def test_only_mechanisms_that_say_so_have_no_local_epsilon():
    with pytest.raises(ValueError, match="local_epsilon must be a finite number > 0"):
        ScalarMean(1, math.inf)
    with pytest.raises(TypeError, match="local_epsilon"):
        SplitAndMixMean(4, local_epsilon=1.0)

    @dataclass(frozen=True)
    class HalfPromised(ScalarMean):
        protects_alone: ClassVar[bool] = False

    with pytest.raises(ValueError, match=r"local_epsilon must be infinite, got 2\.0"):
        HalfPromised(1, 2.0)


@pytest.mark.exact
def test_a_configuration_tells_all_of_it():
    mechanism = SplitAndMixMean.for_shuffle(12, 1.0, 1e-6, 2000, radius=3.0, rotation_seed=5)
    read = LocalRandomizer.from_config(mechanism.to_config())
    assert read == mechanism and read.config_digest() == mechanism.config_digest()
    assert "local_epsilon" not in mechanism.to_config()
    release = identity("means")
    assert mechanism.for_release(release) is mechanism
    assert replace(mechanism, rotation_seed=None).for_release(release).rotation_seed > 0


@pytest.mark.exact
@pytest.mark.parametrize("wrong, said", [
    ({"cells": 0}, "cells must be an integer from 1 to"),
    ({"shares": 1}, "shares must be an integer from 2 to 256"),
    ({"modulus_bits": 41}, "modulus_bits must be an integer from 2 to 40"),
    ({"noise_deviation": 0.1}, r"noise_deviation must lie in \[0\.5, 65536\]"),
    ({"rotation_seed": -1}, "rotation_seed must be an integer >= 0"),
])  # fmt: skip
def test_fields_are_checked(wrong, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        SplitAndMixMean(4, **wrong)


@pytest.mark.exact
@pytest.mark.parametrize("wrong, said", [
    ({"overhead": 1.0}, "overhead must be a finite number > 1"),
    ({"honest_fraction": 0.0}, r"honest_fraction must lie in \(0, 1\]"),
    ({"num_users": 10**12}, "num_users must be less than"),
])  # fmt: skip
def test_what_cannot_be_made_is_refused(wrong, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        SplitAndMixMean.for_shuffle(4, 1.0, 1e-6, **{"num_users": 100, **wrong})
