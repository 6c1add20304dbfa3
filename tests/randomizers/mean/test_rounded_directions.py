"""PrivUnit in few bits a coordinate: what rounding at random costs, exactly, and what it keeps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean import L2Mean, PrivUnit, PrivUnitGaussian, compact_mean
from beam_ldp.randomizers.mean.rounded_directions import RARELY
from beam_ldp.randomizers.randomness import UserRandomness
from tests.identities import identity

KINDS = [PrivUnit, PrivUnitGaussian]
FEW = {"coordinate_bits": 8, "rounding": "random"}


def units(n, d, seed=0):
    x = np.random.default_rng(seed).standard_normal((n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def along_an_axis(mechanism, rounded):
    """E[z], E[rounded(z)] and E[rounded(z)^2] - E[z^2] of PrivUnit's first coordinate z, of e_1.

    By quadrature between all places where the density or the rounding has an edge, in unit radius.

    Args:
        mechanism: of the law.
        rounded: from z in steps to the expectation, and the second moment, of what is sent.
    """
    d, g, p = mechanism.dimension, mechanism.cap.threshold, mechanism.coin.probability
    constant = special.gammaln(d / 2) - special.gammaln((d - 1) / 2) - math.log(math.pi) / 2
    step = mechanism._unit_step * mechanism.marginal
    levels = ((-1.0, g, (1 - p) / (1 - mechanism.cap.measure)), (g, 1.0, p / mechanism.cap.measure))
    x, w = np.polynomial.legendre.leggauss(10)
    sums = np.zeros(4)
    for low, high, level in levels:
        edges = np.arange(math.floor(low / step), math.ceil(high / step) + 1) * step
        cuts = np.unique(np.clip(np.concatenate([edges, edges + step / 2, [low, high]]), low, high))
        half = np.diff(cuts)[:, None] / 2
        t = cuts[:-1, None] + half * (1 + x)
        weight = half * w * level * np.exp(constant + (d - 3) / 2 * np.log1p(-t * t))
        mean, square = rounded(t / step)
        for i, value in enumerate((1.0, t, mean * step, square * step**2 - t**2)):
            sums[i] += (weight * value).sum()
    assert sums[0] == pytest.approx(1, abs=1e-9)
    m = mechanism.marginal
    return sums[1] / m, sums[2] / m, sums[3] / m**2


def at_random(z):
    low = np.floor(z)
    up = z - low
    return low + up, (1 - up) * low**2 + up * (low + 1) ** 2


def to_nearest(z):
    return np.rint(z), np.rint(z) ** 2


# What it costs -----------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [20, 128, 784, 13_706, 10**6])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 8.0])
def test_eight_bits_cost_at_most_a_thousandth_and_seven_less_than_a_hundredth(kind, d, epsilon):
    exact = kind(d, epsilon).mean_squared_error(1)
    for bits, most in ((8, 0.0014), (7, 0.0055)):
        short = kind(d, epsilon, coordinate_bits=bits, rounding="random")
        assert 0 < short.mean_squared_error(1) / exact - 1 < most
        assert short.bits_per_report == bits * d
        assert short.compression == 32 / bits


@pytest.mark.exact
@pytest.mark.parametrize("d", [20, 128, 784])
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_the_mean_is_kept_where_rounding_to_nearest_shifts_it(d, epsilon):
    """A vector along an axis, exactly: its coordinate's law has an edge. The declared variance, of
    a sixth of a squared step, is that of the whole vector to 1e-5."""
    short = PrivUnit(d, epsilon, **FEW)
    truth, mean, more = along_an_axis(short, at_random)
    assert truth == pytest.approx(1, abs=1e-9)
    assert mean == pytest.approx(truth, abs=1e-12)
    declared = short._rounding_variance
    assert 0 <= more <= 1.5 * declared  # at most a quarter of a squared step
    whole = PrivUnit(d, epsilon).mean_squared_error(1)
    assert abs(more - declared) < 1e-5 * whole
    _, nearest, _ = along_an_axis(PrivUnit(d, epsilon, coordinate_bits=8), to_nearest)
    assert 1e-6 < abs(nearest - 1) < 0.003


@pytest.mark.exact
def test_the_shift_of_rounding_to_nearest_is_what_its_docstring_says():
    for bits, low, high in ((8, 1.9e-3, 2.1e-3), (16, 0, 4e-8)):
        _, nearest, _ = along_an_axis(PrivUnit(784, 8.0, coordinate_bits=bits), to_nearest)
        assert low < abs(nearest - 1) < high


@pytest.mark.statistical
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("d", "bits"), [(20, 5), (784, 6)])
def test_bias_and_variance_of_reports_on_a_coarse_grid(kind, d, bits):
    """20,000 (2,000 long) reports of a vector along an axis and of another: each coordinate within
    4.5 standard errors of the declared variance, the squared error within 4.5 of its own. Seed
    fixed; false alarms below 6e-3 in all. Without a coin the declared variance is 8 % above that of
    784 coordinates in 6 bits: 40 standard errors.
    """
    mechanism = kind(d, 6.0, radius=2.0, coordinate_bits=bits, rounding="random")
    n = 20_000 if d < 100 else 2_000
    for vector in (1.4 * np.eye(d)[3], 1.4 * units(1, d)[0]):
        reports = mechanism.randomize(np.broadcast_to(vector, (n, d)), np.random.default_rng(d))
        decoded = mechanism.fixed_point.decode(reports)
        off = np.abs(decoded.mean(axis=0) - vector)
        assert (off < 4.5 * np.sqrt(mechanism.variance(n, vector))).all()
        errors = ((decoded - vector) ** 2).sum(axis=1)
        expected = mechanism.mean_squared_error(1, vector)
        assert abs(errors.mean() - expected) < 4.5 * errors.std() / math.sqrt(n)


@pytest.mark.statistical
def test_coins_keep_the_mean_of_the_report_itself():
    """The same words, rounded finely and coarsely: the difference has mean zero, 4.5 sigma over
    a million coordinates, and a sixth of a squared step of variance to 1 %. Seed fixed; false
    alarm 1e-5.
    """
    fine = PrivUnit(500, 4.0, coordinate_bits=32, rounding="random")
    short = PrivUnit(500, 4.0, coordinate_bits=6, rounding="random")
    vectors = units(2_000, 500)
    sent = [m.randomize(vectors, np.random.default_rng(3)) for m in (fine, short)]
    off = short.fixed_point.decode(sent[1]) - fine.fixed_point.decode(sent[0])
    step = short.fixed_point.step
    assert abs(off.mean()) < 4.5 * off.std() / math.sqrt(off.size)
    assert (np.abs(off) <= step).all()
    assert off.var() == pytest.approx(step**2 / 6, rel=0.01)
    corr = np.corrcoef(off[:, ::2].ravel(), off[:, 1::2].ravel())[0, 1]  # both halves of a word
    assert abs(corr) < 4.5 / math.sqrt(off.size / 2)


@pytest.mark.exact
@pytest.mark.parametrize("kind", KINDS)
def test_coins_are_words_that_the_report_has_no_use_for(kind):
    """Else rounding would tell more than the report: where its words end is looked for, and from
    there on half a word is the coin of each coordinate, which the report is rounded by. (A last
    word that only says yes may be overlooked: in two or three of thirty reports.)"""
    fine, short = kind(9, 4.0), kind(9, 4.0, coordinate_bits=5, rounding="random")
    vectors, rng = units(30, 9), np.random.default_rng(8)
    words = rng.integers(2**64, size=(30, short.words_per_user), dtype=np.uint64)

    def report(mechanism, vector, row):
        out = np.empty((1, 9), mechanism.report_dtype)
        mechanism._randomize_block(vector[None], row[None, : mechanism.words_per_user], None, out)
        return mechanism.fixed_point.decode(out)[0]

    exact = 0
    for vector, row in zip(vectors, words):
        told, others = report(fine, vector, row), rng.integers(2**64, size=len(row), dtype="u8")
        used, unused = 0, fine.words_per_user
        while unused - used > 1:
            middle = (used + unused) // 2
            changed = np.concatenate([row[:middle], others[middle:]])
            same = np.array_equal(report(fine, vector, changed), told)
            used, unused = (used, middle) if same else (middle, unused)
        halves = np.stack([row[unused:] & 0xFFFFFFFF, row[unused:] >> 32], axis=1).ravel()
        coins = (halves[:9].astype(float) + 0.5) / 2**32
        step, largest = short.fixed_point.step, short.fixed_point.largest
        rounded = np.floor(np.clip(told / step, -largest, largest) + coins) * step
        exact += bool(np.allclose(rounded, report(short, vector, row), rtol=0, atol=step / 2))
    assert exact >= 25


# What it keeps -----------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("kind", KINDS)
def test_privacy_is_that_of_the_report_before_it_is_rounded(kind):
    plain, short = kind(300, 4.0), kind(300, 4.0, **FEW)
    assert short.log_ratio_max() == plain.log_ratio_max()
    assert short.dominating_pair() == plain.dominating_pair()


@pytest.mark.exact
@pytest.mark.parametrize("kind", KINDS)
def test_the_grid_reaches_as_far_as_coordinates_do(kind):
    """By the law of the coordinate along an axis, which reaches farthest: the chance that any of
    a report's is cut is at most 1e-18."""
    for d, epsilon in ((2, 1.0), (20, 8.0), (784, 8.0), (10**5, 1.0), (13_706, 500.0)):
        bits = 16 if d == 2 else 9
        short = kind(d, epsilon, coordinate_bits=bits, rounding="random")
        far = short._largest_coordinate
        assert far <= short._longest_coordinate
        if far < short._longest_coordinate:
            log_chance = math.log(d) + short._log_tail(far) + short._log_density
            assert log_chance == pytest.approx(math.log(RARELY), abs=1e-3)


@pytest.mark.exact
def test_configurations_from_before_there_was_a_choice_are_what_they_were():
    config = PrivUnit(10, 2.0).to_config()
    assert "rounding" not in config
    assert LocalRandomizer.from_config(config).rounding == "nearest"
    short = PrivUnit(10, 2.0, **FEW)
    assert short.to_config()["rounding"] == "random"
    assert LocalRandomizer.from_config(short.to_config()) == short
    assert short.config_digest() != PrivUnit(10, 2.0, coordinate_bits=8).config_digest()


@pytest.mark.exact
@pytest.mark.parametrize("bits", [5, 7, 8, 11])
def test_the_wire_takes_as_many_bits_as_stated(bits):
    mechanism = PrivUnit(33, 6.0, coordinate_bits=bits, rounding="random")
    reports = mechanism.randomize(units(9, 33))
    data = mechanism.pack(reports)
    assert len(data) == -(-9 * 33 * bits // 8)
    assert np.array_equal(mechanism.unpack(data, 9), reports)
    assert np.abs(reports.astype(int)).max() <= mechanism.fixed_point.largest


@pytest.mark.exact
def test_reports_do_not_depend_on_batches():
    mechanism = PrivUnit(33, 2.0, **FEW)
    vectors, ids = units(200, 33), np.arange(200)
    whole, parts = (
        [mechanism.randomize(vectors[part], UserRandomness(b"k" * 32, ids[part], identity("r")))
         for part in np.array_split(ids, count)] for count in (1, 7)
    )  # fmt: skip
    assert np.array_equal(np.concatenate(parts), whole[0])


# Lengths -----------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_lengths_of_honest_reports_are_well_within_what_is_taken_for_sent():
    """5,000 reports, farthest at most 0.75 of the way to either end, which 1e-18 reach. Seed fixed;
    by the bounds themselves a false alarm has a chance of 5e-6."""
    for d, epsilon, bits in ((20, 6.0, 5), (784, 8.0, 8), (784, 8.0, 6)):
        mechanism = PrivUnit(d, epsilon, coordinate_bits=bits, rounding="random")
        reports = mechanism.randomize(units(5_000, d), np.random.default_rng(1)).astype(float)
        (middle,), (slack,) = mechanism._lengths_sent
        off = np.abs(np.linalg.norm(reports, axis=1) - middle)
        assert off.max() < 0.75 * slack
        assert slack < (0.2 if bits == 8 else 0.6) * middle


@pytest.mark.exact
def test_a_forged_report_pulls_no_farther_than_rounding_lengthens_an_honest_one():
    mechanism, plain = PrivUnit(13_706, 8.0, **FEW), PrivUnit(13_706, 8.0)
    assert mechanism.reach / plain.reach < 1.005
    honest = mechanism.randomize(units(1, 13_706)).astype(int)
    for factor in (0.98, 1.02, -1.02):
        forged = np.rint(honest * factor).astype(np.int8)
        assert not mechanism.possible(forged).any()
    spike = np.zeros_like(honest)
    spike[0, :1300] = 127
    assert not mechanism.possible(spike.astype(np.int8)).any()
    assert mechanism.possible(honest.astype(np.int8)).all()


# Choosing ----------------------------------------------------------------------------------------


@pytest.mark.exact
def test_the_fewest_bits_that_an_error_allows():
    for least, extra, bits in ((4, 0.01, 7), (8, 0.01, 8), (4, 0.02, 6), (4, 1e-4, 10)):
        short = compact_mean(PrivUnit, 13_706, local_epsilon=8.0, extra=extra, least=least)
        assert short.coordinate_bits == bits and short.extra_error <= extra
    assert compact_mean(PrivUnit, 13_706, local_epsilon=500.0).coordinate_bits == 9
    assert compact_mean(L2Mean, 100, local_epsilon=2.0) == L2Mean(100, 2.0)
    for bad in ({"extra": 0.0}, {"least": 3}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            compact_mean(PrivUnit, 100, local_epsilon=2.0, **bad)


@pytest.mark.exact
def test_what_is_refused():
    with pytest.raises(ValueError, match="rounding must be"):
        PrivUnit(100, 2.0, rounding="up")
    with pytest.raises(ValueError, match="coarser than the noise"):
        PrivUnit(784, 8.0, coordinate_bits=4, rounding="random")
