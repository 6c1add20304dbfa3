"""Mechanisms that name a random direction: exact laws, known errors, the wire, the sum."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean.codebooks import HeightNodes, RandomCodebookMean, fill_candidate
from beam_ldp.randomizers.mean.minimal_random_coding import MinimalRandomCoding, best_coded_cap
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.normals import spare_words
from beam_ldp.randomizers.randomness import UserRandomness
from beam_ldp.randomizers.spherical_caps import SphericalCap
from beam_ldp.randomizers.words import WORD_VALUES, exp_lower, kernel
from tests.identities import identity
from tests.randomizers.mean.golden_errors import golden
from tests.randomizers.published import rotated_simplex_marginal

BOTH = [RandomCodebookMean, MinimalRandomCoding]


def optimum(d, epsilon):
    return PrivUnit(d, epsilon, inputs="sphere").mean_squared_error(1)


@kernel
def _candidates(seed, count, d, num_words):
    words = np.empty(num_words, dtype=np.uint64)
    scratch = np.empty(d + 1, dtype=np.int64)
    out = np.empty((count, d))
    for k in range(count):
        fill_candidate(seed, k, words, out[k], scratch)
    return out


@pytest.mark.exact
@pytest.mark.parametrize("bits", [8, 14])
def test_codebook_error_has_the_known_figures(bits):
    for d, epsilon, figure, half_digit in golden(f"uniform {bits}"):
        mechanism = RandomCodebookMean(d, epsilon, index_bits=bits, inputs="sphere")
        error = 1 / mechanism.marginal**2 - 1
        assert error / optimum(d, epsilon) == pytest.approx(figure, abs=half_digit)
        assert mechanism.mean_squared_error(1) == pytest.approx(error, rel=1e-6)


@pytest.mark.exact
@pytest.mark.parametrize("bits", [5, 7, 10])
def test_rotated_simplex_error_has_the_known_figures(bits):
    for d, epsilon, figure, half_digit in golden(f"simplex {bits}"):
        error = 1 / rotated_simplex_marginal(d, epsilon, bits) ** 2 - 1
        assert error / optimum(d, epsilon) == pytest.approx(figure, abs=half_digit)
    with pytest.raises(ValueError, match="index_bits"):
        rotated_simplex_marginal(16, 1.0, 5)


@pytest.mark.exact
@pytest.mark.parametrize("bits", [8, 14, 22])
def test_coding_error_has_the_known_figures_or_a_little_less(bits):
    """The optimum over caps has kinks: ours may be better by up to two units of the last digit."""
    for d, epsilon, figure, half_digit in golden(f"mmrc {bits}"):
        error = 1 / best_coded_cap(d, float(epsilon), 1 << bits).marginal ** 2 - 1
        ratio = error / optimum(d, epsilon)
        assert figure - 5 * half_digit < ratio < figure + half_digit


@pytest.mark.exact
def test_few_bits_come_close_to_the_optimum():
    """At most 64 bits and 5 % above the optimum for eps <= 8."""
    for epsilon in (1, 2, 4, 8):
        mechanism = RandomCodebookMean(1024, epsilon, index_bits=12, inputs="sphere")
        assert mechanism.bits_per_report <= 64
        assert mechanism.mean_squared_error(1) < 1.05 * optimum(1024, epsilon)


@pytest.mark.exact
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 6.0])
def test_budget_of_the_codebook_by_enumeration(epsilon):
    mechanism = RandomCodebookMean(5, epsilon, index_bits=4)
    p, q = mechanism._law.favoured_probability, mechanism._law.other_probability
    k, m = mechanism.favoured, mechanism.num_candidates
    assert k * p + (m - k) * q == pytest.approx(1)
    assert math.log(p / q) == pytest.approx(epsilon, abs=1e-8)
    assert epsilon - 1e-8 < mechanism.log_ratio_max() <= epsilon
    assert mechanism.exactness == "exact"


@pytest.mark.exact
@pytest.mark.parametrize("bits", [1, 4, 9])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 10.0, 16.0])
def test_words_of_coding_by_enumeration(bits, epsilon):
    """Counts the pairs of words that name a candidate, for every number of candidates in the cap.

    The ratio of any two counts is at most e^eps, as a fraction of integers.
    """
    mechanism = MinimalRandomCoding(20, epsilon, index_bits=bits)
    coded, n = mechanism.coded_cap, 1 << bits
    c1, c2 = coded.levels
    assert math.log(c1 / c2) == pytest.approx(epsilon, abs=1e-10)
    law = stats.binom(n, coded.cap.measure)
    total, counts = 0.0, []
    for count in range(n + 1):
        outside = int(coded.thresholds[count - 1]) if count else WORD_VALUES
        total += (1 - outside / WORD_VALUES) * law.pmf(count)
        for words, places in ((WORD_VALUES - outside, count), (outside, n - count)):
            if places:
                counts += [words * (WORD_VALUES // places), words * -(-WORD_VALUES // places)]
            else:
                assert words == 0
    assert Fraction(max(counts), min(counts)) <= exp_lower(epsilon)
    spent = math.log(Fraction(max(counts), min(counts)))
    assert spent <= mechanism.log_ratio_max() <= epsilon
    if bits > 1:  # with two candidates, a lone one in the cap cannot get all that it might
        assert epsilon - 1e-6 < spent  # the best cap may lie just beside a whole number of them
    assert coded.expected_inside == pytest.approx(total, rel=1e-9)
    assert mechanism.exactness == "exact"


@pytest.mark.exact
def test_plain_weights_of_coding_would_exceed_the_budget():
    """Normalizing PrivUnit's density over the candidates is 2 eps-private only; not used."""
    epsilon, n = 2.0, 16
    c1, c2 = MinimalRandomCoding(20, epsilon, index_bits=4).coded_cap.levels
    plain = [
        weight / (count * c1 + (n - count) * c2)
        for count in range(n + 1)
        for weight in ([c1] if count else []) + ([c2] if count < n else [])
    ]
    assert epsilon * 1.3 < math.log(max(plain) / min(plain)) < 2 * epsilon


@pytest.mark.exact
@pytest.mark.parametrize("d", [2, 3, 50])
def test_nodes_integrate_known_moments(d):
    nodes = HeightNodes(d)
    assert nodes.weight.sum() == pytest.approx(1, abs=1e-6)
    assert nodes.top_sum(4, 4, 2) == pytest.approx(4 / d, rel=1e-5)  # all of them
    half = math.exp(SphericalCap(d, 0.0).log_first_moment) * 2
    heights = np.sort(
        np.random.default_rng(0).choice(nodes.x, (200_000, 2), p=nodes.weight / nodes.weight.sum())
    )
    assert nodes.top_sum(1, 2) == pytest.approx(heights[:, 1].mean(), abs=0.01 * half)


@pytest.mark.statistical
def test_candidates_are_independent_normals():
    """Kolmogorov-Smirnov at 1e-6; correlations of neighbours within 5 s.e."""
    x = _candidates(np.uint64(12345), 2000, 50, spare_words(50))
    y = _candidates(np.uint64(12346), 2000, 50, spare_words(50))
    assert stats.kstest(x.ravel(), "norm").pvalue > 1e-6
    for a, b in ((x[1:], x[:-1]), (x[:, 1:], x[:, :-1]), (x, y)):
        assert abs(np.mean(a * b)) < 5 / math.sqrt(a.size)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize(
    ("d", "epsilon", "bits", "length"), [(2, 1.0, 3, 1.2), (5, 2.0, 4, 0.0), (9, 6.0, 6, 2.0)]
)
def test_bias_and_variance(kind, d, epsilon, bits, length):
    """60,000 reports of one vector: mean within 5 s.e., variance within 15 %."""
    n = 60_000
    mechanism = kind(d, epsilon, radius=2.0, index_bits=bits)
    vector = length * np.arange(1, d + 1) / np.linalg.norm(np.arange(1, d + 1))
    reports = mechanism.randomize(np.broadcast_to(vector, (n, d)), np.random.default_rng(d))
    estimate = mechanism.estimate(mechanism.accumulate(reports), n)
    exact = mechanism.variance(1, vector)
    assert (np.abs(estimate.value - vector) < 5 * np.sqrt(exact / n)).all()
    parts = np.array([mechanism.accumulate(reports[i : i + 1])[0] for i in range(3000)])
    assert np.allclose((parts * mechanism.fixed_point.step).var(axis=0), exact, rtol=0.15)


@pytest.mark.exact
@pytest.mark.parametrize("kind", BOTH)
def test_reports_travel_and_add_up(kind):
    mechanism = kind(12, 3.0, index_bits=5, seed_bits=40)
    values, ids = np.eye(12), np.arange(12)
    reports = mechanism.randomize(values, UserRandomness(b"k" * 32, ids, identity("r")))
    again = mechanism.randomize(values[6:], UserRandomness(b"k" * 32, ids[6:], identity("r")))
    assert np.array_equal(reports[6:], again)
    data = mechanism.pack(reports)
    assert len(data) == -(-12 * 45 // 8)
    assert np.array_equal(mechanism.unpack(data, 12), reports)
    whole = mechanism.accumulate(reports)
    parts = mechanism.accumulate(reports[::2]) + mechanism.accumulate(reports[1::2])
    assert np.array_equal(whole, parts)
    for bad in (reports.astype(float), reports[:, None], np.array([1 << 45], dtype=np.uint64)):
        with pytest.raises(ValueError, match="reports must"):
            mechanism.accumulate(bad)
    assert LocalRandomizer.from_config(mechanism.to_config()) == mechanism
    assert mechanism.dominating_pair().blanket_mass > 0


@pytest.mark.statistical
def test_favoured_candidates_are_named_as_often_as_stated():
    """40,000 reports: the share of each rank within 5 s.e."""
    mechanism, n = RandomCodebookMean(3, 2.0, index_bits=3, inputs="sphere", closest=3), 40_000
    vector = np.array([0.0, 0.6, 0.8])
    reports = mechanism.randomize(np.broadcast_to(vector, (n, 3)), np.random.default_rng(1))
    ranks = np.zeros(8)
    for report in reports:
        x = _candidates(report >> np.uint64(3), 8, 3, spare_words(3))
        heights = (x @ vector) / np.linalg.norm(x, axis=1)
        ranks[np.count_nonzero(heights > heights[int(report) & 7])] += 1
    p, q = mechanism._law.favoured_probability, mechanism._law.other_probability
    law = np.where(np.arange(8) < 3, p, q)
    assert (np.abs(ranks / n - law) < 5 * np.sqrt(law / n)).all()
    assert mechanism.witness_pairs()[0].is_witness


REFUSED = [
    ({"index_bits": 0}, "index_bits must lie"),
    ({"seed_bits": 60}, "seed_bits must lie"),
    ({"closest": 256}, "closest must lie"),
]


@pytest.mark.exact
@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_parameters_that_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RandomCodebookMean(**{"dimension": 10, "local_epsilon": 1.0, **options})


@pytest.mark.statistical
def test_coding_names_the_cap_and_its_places_as_often_as_stated():
    """40,000 reports: the share of every rank, averaged over lists, within 5 s.e."""
    mechanism, n = MinimalRandomCoding(3, 2.0, index_bits=3, inputs="sphere"), 40_000
    vector = np.array([0.0, 0.6, 0.8])
    reports = mechanism.randomize(np.broadcast_to(vector, (n, 3)), np.random.default_rng(2))
    coded, expected, named = mechanism.coded_cap, np.zeros(8), np.zeros(8)
    for report in reports:
        x = _candidates(report >> np.uint64(3), 8, 3, spare_words(3))
        heights = (x @ vector) / np.linalg.norm(x, axis=1)
        count = np.count_nonzero(heights >= coded.cap.threshold)
        outside = coded.thresholds[count - 1] / WORD_VALUES if count else 1.0
        expected += np.where(
            np.arange(8) < count, (1 - outside) / max(count, 1), outside / max(8 - count, 1)
        )
        named[np.count_nonzero(heights > heights[int(report) & 7])] += 1
    assert (np.abs(named - expected) < 5 * np.sqrt(expected)).all()


@pytest.mark.statistical
def test_time_does_not_tell_the_truth_from_a_lie():
    """The area under the curve of a reader of times: one half, and 0.94 before the work was the
    same for both. 400 reports of each kind by turns; 0.6 is 4.9 standard deviations, 1e-6."""
    mechanism = RandomCodebookMean(50, 4.0, index_bits=6)
    vector = np.eye(50)[:1]
    words = np.random.default_rng(9).integers(0, 1 << 63, (1, 3), dtype=np.uint64)
    law, size = mechanism._law, mechanism.num_candidates
    word = {"truth": 1, "lie": ((1 << 64) - 1) // size}
    assert word["truth"] * size % 2**64 < law.threshold <= word["lie"] * size % 2**64
    reports = np.zeros(1, dtype=np.uint64)
    found = {kind: [] for kind in word}
    for turn in range(-50, 400):
        for kind in word if turn % 2 else reversed(word):
            words[0, 1] = word[kind]
            began = time.perf_counter_ns()
            mechanism._randomize_block(vector, words, None, reports)
            if turn >= 0:
                found[kind].append(time.perf_counter_ns() - began)
    truth, lie = np.array(found["truth"])[:, None], np.array(found["lie"])[None, :]
    area = np.mean(truth > lie) + np.mean(truth == lie) / 2
    assert 0.4 < area < 0.6


@pytest.mark.statistical
@pytest.mark.parametrize("cls", [RandomCodebookMean, MinimalRandomCoding])
def test_short_seeds_shift_a_mean_as_if_so_many_more_people_had_reported(cls):
    """Six vectors of 16 coordinates, eight people on each of 2^16 lists: squared errors nine times
    the noise alone. 96 squares scatter by sqrt(2/96) = 14 %: 0.35 to 1.65 is 4.5 standard
    deviations, 1e-5; without the shift the sum is 0.11 of what is stated."""
    n, total = 1 << 19, 0.0
    mechanism = cls(16, 3.0, index_bits=2, seed_bits=16, inputs="sphere")
    rng = np.random.default_rng(31)
    for vector in rng.normal(size=(6, 16)):
        vector = vector / np.linalg.norm(vector)
        reports = mechanism.randomize(np.broadcast_to(vector, (n, 16)), rng)
        found = mechanism.estimate(mechanism.accumulate(reports), n)
        total += float(((found.value - vector) ** 2).sum())
        assert np.abs(found.value - vector).max() < mechanism.bias_bound + 5 * math.sqrt(
            mechanism.mean_squared_error(n) / 16
        )
    stated = 6 * (mechanism.mean_squared_error(n) + mechanism.shift_bound**2)
    assert 0.35 * stated < total < 1.65 * stated


@pytest.mark.exact
def test_the_shift_falls_with_the_bits_of_a_seed_and_intervals_allow_for_it():
    short, long = (RandomCodebookMean(16, 3.0, seed_bits=bits) for bits in (24, 48))
    assert short.shift_bound == pytest.approx(2.0**12 * long.shift_bound)
    assert long.bias_bound < short.bias_bound / 4000 < short.bias_bound < 6 * short.shift_bound
    one = short.mean_squared_error(1) / 2.0**24
    assert short.shift_bound**2 == pytest.approx(one)
    reports = short.randomize(np.zeros((2000, 16)), np.random.default_rng(1))
    found = short.estimate(short.accumulate(reports), 2000)
    low, high = found.confidence_interval(0.95)
    assert found.expected_bias == short.bias_bound and found.bias_bound == 0.0
    assert (high - low > 2 * 1.959 * found.standard_error).all()
