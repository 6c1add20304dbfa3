"""PrivUnit as a seed: the exact law of truncated rejection, the stream, bits and work."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.priv_unit_gaussian import PrivUnitGaussian
from beam_ldp.randomizers.mean.seed_compressed_mean import (
    SeedCompressedMean,
    seed_normals,
    stream_words,
)
from beam_ldp.randomizers.randomness import UserRandomness
from tests.identities import identity
from tests.randomizers.mean.golden_errors import golden

BASES = {"PrivUnit": PrivUnit, "PrivUnitGaussian": PrivUnitGaussian}


def impatient(trials, *args, **options):
    """A mechanism that gives up after so few trials that it shows."""
    mechanism = SeedCompressedMean(*args, **options)
    for derived in set(vars(mechanism)) - set(mechanism.__getstate__()):
        del vars(mechanism)[derived]
    if trials is not None:
        vars(mechanism)["most_trials"] = trials
    return mechanism


def seeds(count, rng=0):
    return np.random.default_rng(rng).integers(0, 2**64, (count, 3), dtype=np.uint64)


# The stream ----------------------------------------------------------------------------------


@pytest.mark.exact
def test_streams_are_pinned_because_devices_and_collectors_must_agree():
    """AES-128 in counter mode; the zero key's first block is in NIST's test vectors."""
    first = stream_words(np.zeros((1, 3), dtype=np.uint64), 2)[0]
    assert first.astype("<u8").tobytes().hex() == "66e94bd4ef8a2c3b884cfa59ca342b2e"
    other = np.array([[1, 2, 3]], dtype=np.uint64)
    assert stream_words(other, 1)[0, 0] == PINNED


PINNED = 4501707349382189307


@pytest.mark.exact
def test_a_stream_depends_on_its_seed_alone_and_longer_ones_start_the_same():
    many = seeds(7)
    whole = stream_words(many, 33)
    assert np.array_equal(stream_words(many[3:5], 33), whole[3:5])
    assert np.array_equal(stream_words(many, 12), whole[:, :12])
    assert np.array_equal(seed_normals(many, 20)[2], seed_normals(many[2:3], 20)[0])
    assert stream_words(many[:0], 5).shape == (0, 5)


@pytest.mark.statistical
def test_seeds_stand_for_independent_normals():
    """Kolmogorov-Smirnov at 1e-6; neighbouring seeds uncorrelated within 5 s.e."""
    count = np.zeros((2000, 3), dtype=np.uint64)
    count[:, 2] = np.arange(2000)
    x = seed_normals(count, 50)
    assert stats.kstest(x.ravel(), "norm").pvalue > 1e-6
    assert abs(np.mean(x[1:] * x[:-1])) < 5 / math.sqrt(x[1:].size)


# The law -------------------------------------------------------------------------------------


@pytest.mark.exact
def test_trials_and_bits_have_the_known_figures():
    for d, epsilon, figure, half_digit in golden("trials"):
        mechanism = SeedCompressedMean(d, epsilon)
        assert mechanism.expected_trials == pytest.approx(figure, abs=1.01 * half_digit)
        ideal = PrivUnit(d, epsilon)
        density = ideal.coin.probability / ideal.cap.measure
        assert mechanism.expected_trials == pytest.approx(density, rel=1e-9)
        assert 2.0 ** (mechanism.bits_per_report - 128) >= mechanism.expected_trials
    assert SeedCompressedMean(8192, 1.0).bits_per_report == 129
    assert SeedCompressedMean(8192, 16.0).bits_per_report == 147


@pytest.mark.exact
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0, 16.0])
@pytest.mark.parametrize("d", [2, 50, 8192])
def test_budget_is_spent_and_never_exceeded_and_the_error_is_that_of_the_base(base, epsilon, d):
    mechanism = SeedCompressedMean(d, epsilon, base=base, inputs="sphere")
    assert epsilon - 1e-8 < mechanism.log_ratio_max() <= epsilon
    assert mechanism.given_up <= 1e-13
    ideal = BASES[base](d, epsilon, inputs="sphere")
    assert mechanism.mean_squared_error(1) == pytest.approx(ideal.mean_squared_error(1), rel=1e-7)


@pytest.mark.exact
@pytest.mark.parametrize("epsilon", [1e-9, 1e-6, 1e-3])
def test_tiny_budgets_work(epsilon):
    mechanism = SeedCompressedMean(4, epsilon)
    assert 0 <= epsilon - mechanism.log_ratio_max() < 1e-8
    reports = mechanism.randomize(np.eye(4))
    assert np.array_equal(mechanism.unpack(mechanism.pack(reports), 4), reports)
    assert np.isfinite(mechanism.estimate(mechanism.accumulate(reports), 4).value).all()


@pytest.mark.exact
@pytest.mark.parametrize("trials", [1, 2, 5, 60])
def test_giving_up_costs_no_privacy_and_is_accounted_for(trials):
    """The law by summing over trials: sum_j (1-A)^(j-1) a + (1-A)^J, over a blind draw."""
    mechanism = impatient(trials, 20, 3.0)
    lenience, measure = mechanism._lenience.probability, mechanism._favoured.measure
    accepts = measure + (1 - measure) * lenience
    tried = sum((1 - accepts) ** (j - 1) for j in range(1, trials + 1))
    blind = (1 - accepts) ** trials
    high, low = tried + blind, lenience * tried + blind
    assert mechanism._levels == pytest.approx((high, low), rel=1e-12)
    assert measure * high + (1 - measure) * low == pytest.approx(1.0)
    assert mechanism.log_ratio_max() == pytest.approx(math.log(high / low))
    assert mechanism.log_ratio_max() < 3.0
    assert lenience >= math.exp(-3.0)


@pytest.mark.statistical
@pytest.mark.parametrize("trials", [1, 3, None])
@pytest.mark.parametrize("base", BASES)
def test_sampled_mean_and_error(base, trials):
    """5,000 reports of one vector: mean within 5 s.e. per coordinate, error within 5 s.e."""
    n, d = 5_000, 6
    mechanism = impatient(trials, d, 3.0, radius=2.0, base=base)
    vector = 1.4 * np.arange(1.0, d + 1) / np.linalg.norm(np.arange(1, d + 1))
    reports = mechanism.randomize(np.broadcast_to(vector, (n, d)), np.random.default_rng(5))
    estimate = mechanism.estimate(mechanism.accumulate(reports), n)
    assert (np.abs(estimate.value - vector) < 5 * np.sqrt(mechanism.variance(n, vector))).all()
    each = [mechanism.accumulate(reports[i : i + 1])[0] for i in range(1000)]
    errors = ((mechanism.fixed_point.decode(np.array(each)) - vector) ** 2).sum(axis=1)
    predicted = mechanism.mean_squared_error(1, vector)
    assert abs(errors.mean() - predicted) < 5 * errors.std() / math.sqrt(1000)


@pytest.mark.statistical
@pytest.mark.parametrize("trials", [2, 40])
def test_histogram_of_heights_in_three_dimensions(trials):
    """20,000 reports of each of two opposite vectors: both levels within 5 s.e., and their ratio.

    In three dimensions heights of uniform points are uniform: the law has two flat pieces.
    """
    n, mechanism = 20_000, impatient(trials, 3, 1.0, inputs="sphere")
    shares = []
    for seed, sign in ((1, 1.0), (2, -1.0)):
        vectors = np.broadcast_to([0.0, 0.0, sign], (n, 3))
        reports = mechanism.randomize(vectors, np.random.default_rng(seed))
        normals = seed_normals(reports, 3)
        height = normals[:, 2] / np.linalg.norm(normals, axis=1)
        shares.append(np.histogram(height, bins=20, range=(-1, 1))[0] / n)
        inside = np.mean(sign * height >= mechanism._favoured.threshold)
        assert abs(inside - mechanism._inside) < 5 * math.sqrt(0.25 / n)
    ratio = np.log(shares[0] / shares[1])
    error = np.sqrt((1 / shares[0] + 1 / shares[1]) / n)
    assert (np.abs(ratio) <= mechanism.log_ratio_max() + 4.5 * error).all()


@pytest.mark.statistical
def test_the_number_of_trials_does_not_depend_on_the_vector():
    """Geometric with mean M for different vectors: 4,000 users each, mean within 5 s.e."""
    mechanism, asked = SeedCompressedMean(5, 3.0), []
    rng = np.random.default_rng(8)

    def extra(rows, positions):
        asked[-1] += len(rows) / 4
        return rng.integers(0, 2**64, len(rows), dtype=np.uint64)

    for vector in (np.eye(5)[0], np.full(5, 0.1), np.zeros(5)):
        asked.append(4000)
        values = np.broadcast_to(vector, (4000, 5)).copy()
        words = rng.integers(0, 2**64, (4000, 5), dtype=np.uint64)
        mechanism._randomize_block(values, words, extra, np.empty((4000, 3), dtype=np.uint64))
    mean = mechanism.expected_trials
    off = np.abs(np.array(asked) / 4000 - mean).max()
    assert off < 5 * math.sqrt(mean * (mean - 1) / 4000)


# Reports -------------------------------------------------------------------------------------


@pytest.mark.exact
def test_reports_travel_add_up_and_are_memoized():
    mechanism = SeedCompressedMean(12, 3.0)
    values, ids = np.eye(12), np.arange(12)
    reports = mechanism.randomize(values, UserRandomness(b"k" * 32, ids, identity("r")))
    again = mechanism.randomize(values[6:], UserRandomness(b"k" * 32, ids[6:], identity("r")))
    assert np.array_equal(reports[6:], again)
    data = mechanism.pack(reports)
    assert len(data) == -(-12 * mechanism.bits_per_report // 8)
    assert np.array_equal(mechanism.unpack(data, 12), reports)
    parts = mechanism.accumulate(reports[::2]) + mechanism.accumulate(reports[1::2])
    assert np.array_equal(mechanism.accumulate(reports), parts)
    assert LocalRandomizer.from_config(mechanism.to_config()) == mechanism
    pair = mechanism.dominating_pair()
    assert pair.ratios[0][0] / pair.ratios[0][1] == pytest.approx(math.exp(3), rel=1e-8)
    assert mechanism.witness_pairs()[0].is_witness
    assert mechanism.exactness == "computational"


@pytest.mark.exact
def test_malformed_reports_values_and_parameters_are_refused():
    mechanism = SeedCompressedMean(12, 3.0)
    good = mechanism.randomize(np.eye(12))
    late = good.copy()
    late[0, 2] = 1 << mechanism.nonce_bits
    for bad in (good[:, :2], good.astype(np.int64), good[0], late):
        with pytest.raises(ValueError, match="reports must"):
            mechanism.accumulate(bad)
    with pytest.raises(ValueError, match="data must hold"):
        mechanism.unpack(mechanism.pack(good) + b"\0", 12)
    for values in (np.full((1, 12), np.nan), np.eye(11), np.full((1, 12), np.inf)):
        with pytest.raises(ValueError, match="values must"):
            mechanism.randomize(values)
    with pytest.raises(ValueError, match="ball of radius 1"):
        SeedCompressedMean(12, 3.0, clipping="raise").randomize(2 * np.eye(12))
    with pytest.raises(ValueError, match="base must be"):
        SeedCompressedMean(12, 3.0, base="Laplace")
    with pytest.raises(ValueError, match="trials per user"):
        SeedCompressedMean(8192, 20.0)
    with pytest.raises(ValueError, match="trials per user"):
        SeedCompressedMean(8192, 2000.0)
