"""Error bars of means: of the reports that came, where these tell, and else the worst ones."""

import numpy as np
import pytest

from beam_ldp.randomizers.mean import (
    BinaryVectorMean,
    KashinMean,
    L1Mean,
    L2Mean,
    LInfMean,
    MinimalRandomCoding,
    PrivUnit,
    PrivUnitGaussian,
    PrivUnitInf,
    ProjectedPrivUnit,
    RandomCodebookMean,
    RotatedSimplexMean,
    ScalarMean,
    SeedCompressedMean,
    SeparatedMean,
    SplitAndMixMean,
)
from beam_ldp.randomizers.mean.base import LEAST_MEASURED
from benchmarks.error_bars import coverage

SQUARES = [
    PrivUnit(4, 3.0),
    PrivUnit(4, 3.0, coordinate_bits=8),
    PrivUnit(4, 3.0, inputs="sphere", coordinate_bits=20),
    PrivUnitGaussian(4, 3.0),
    RandomCodebookMean(4, 3.0, index_bits=4),
    RotatedSimplexMean(4, 3.0, index_bits=2),
    MinimalRandomCoding(4, 3.0, index_bits=4),
    SeedCompressedMean(4, 2.0),
    SeparatedMean(4, 6.0),
    SeparatedMean(4, 6.0, strategy="lift"),
    SeparatedMean(4, 6.0, rounding="random", coordinate_bits=6),
    ProjectedPrivUnit(12, 3.0, radius=2.0, projected=6),
    ProjectedPrivUnit(12, 3.0, projected=6, projection="own", coordinate_bits=12),
    ProjectedPrivUnit(12, 3.0, projected=6, projection="haar"),
    ProjectedPrivUnit(12, 3.0, projected=6, coordinate_bits=6, rounding="random"),
]
COUNTS = [
    ScalarMean(1, 3.0), PrivUnitInf(5, 3.0), LInfMean(3, 4.0), BinaryVectorMean(3, 4.0),
    L1Mean(5, 3.0), L2Mean(6, 3.0), L2Mean(6, 9.0),
]  # fmt: skip
SILENT = [KashinMean(130, 3.0), SplitAndMixMean(5)]


def kinds(mechanisms):
    return pytest.mark.parametrize("mechanism", mechanisms, ids=lambda m: type(m).__name__)


def values(mechanism, n, seed=0):
    rng = np.random.default_rng(seed)
    if mechanism.norm == "binary":
        return (rng.random((n, mechanism.dimension)) < 0.3).astype(float)
    return np.abs(rng.uniform(0, 1, (n, mechanism.dimension))) / mechanism.dimension


def one_by_one(mechanism, reports):
    """What each report is decoded to, by itself: `(n, dimension)`."""
    return np.array([mechanism._mean(mechanism.accumulate(r[None]), 1) for r in reports])


@pytest.mark.exact
@kinds([*SQUARES, COUNTS[0]])
def test_the_measured_variance_is_the_sample_variance_of_decoded_reports(mechanism):
    """With n - 1, and never below the least that any data give."""
    n = LEAST_MEASURED
    drawn = mechanism.randomize(values(mechanism, n), np.random.default_rng(1))
    decoded = one_by_one(mechanism, drawn)
    found = mechanism._measured_variance(mechanism.accumulate(drawn), n, "iid")
    sample = np.maximum(decoded.var(axis=0, ddof=1), getattr(mechanism, "_least_variance", 0.0))
    assert found == pytest.approx(sample, rel=1e-6)
    estimate = mechanism.estimate(mechanism.accumulate(drawn), n)
    worst = mechanism.variance(n)
    assert estimate.error_bars == "measured"
    assert estimate.standard_error**2 == pytest.approx(np.minimum(found / n, worst), rel=1e-12)


@pytest.mark.exact
@kinds([*SQUARES, *COUNTS])
def test_no_data_make_bars_wider_than_the_worst_or_narrower_than_the_least(mechanism):
    """Statistics as no honest crowd gives them: all reports alike, and all opposite."""
    n = 2 * LEAST_MEASURED
    one = mechanism.randomize(values(mechanism, 1), np.random.default_rng(2))
    for sampling in ("fixed", "iid"):
        worst = mechanism.variance(n, None, sampling)
        alike = n * mechanism.accumulate(one)
        found = mechanism.estimate(alike, n, sampling=sampling)
        assert (found.standard_error > 0).all()
        assert (found.standard_error**2 <= worst * (1 + 1e-12)).all()
        if isinstance(mechanism, (PrivUnit, ScalarMean)):
            least = getattr(mechanism, "_least_variance", None)
            least = mechanism.response.point_variance.min() if least is None else least
            assert found.standard_error**2 * n == pytest.approx(least)


@pytest.mark.exact
@kinds([m for m in SQUARES if isinstance(m, (PrivUnit, SeparatedMean))])
def test_the_least_variance_is_that_of_some_vectors_or_below(mechanism):
    """Over vectors of all lengths along an axis, and of two coordinates that are alike."""
    axis = np.zeros((50, 4))
    axis[:, 0] = np.linspace(0, 1, 50)
    even = np.repeat(axis[:, :1] / 2, 4, axis=1)
    vectors = np.concatenate([axis, even])
    if mechanism.inputs == "sphere":
        vectors = vectors[[49, 99]]
    found = [float(mechanism.variance(1, v).min()) for v in vectors]
    assert min(found) >= mechanism._least_variance * (1 - 1e-9)
    assert mechanism._least_variance >= 0


@pytest.mark.exact
@kinds([*SQUARES, *COUNTS])
def test_few_reports_have_the_bars_of_the_worst_data(mechanism):
    n = LEAST_MEASURED - 1
    drawn = mechanism.randomize(values(mechanism, n), np.random.default_rng(3))
    found = mechanism.estimate(mechanism.accumulate(drawn), n)
    assert found.error_bars == "worst case"
    assert np.array_equal(found.standard_error, np.sqrt(mechanism.variance(n)))


@pytest.mark.exact
@kinds(SILENT)
def test_statistics_that_tell_nothing_have_the_bars_of_the_worst_data(mechanism):
    n = LEAST_MEASURED
    drawn = mechanism.randomize(values(mechanism, n), np.random.default_rng(4))
    found = mechanism.estimate(mechanism.accumulate(drawn), n)
    assert found.error_bars == "worst case"
    assert np.array_equal(found.standard_error, np.sqrt(mechanism.variance(n)))


@pytest.mark.exact
@kinds(SQUARES)
def test_sums_alone_are_read_as_secure_sums_and_earlier_versions_give_them(mechanism):
    n = LEAST_MEASURED
    drawn = mechanism.randomize(values(mechanism, n), np.random.default_rng(5))
    both = mechanism.accumulate(drawn)
    whole, alone = mechanism.estimate(both, n), mechanism.estimate(both[0], n)
    assert np.array_equal(whole.value, alone.value)
    assert (whole.error_bars, alone.error_bars) == ("measured", "worst case")
    with pytest.raises(ValueError, match="statistic must have shape"):
        mechanism.estimate(both[:1], n)


@pytest.mark.exact
def test_sums_and_squares_of_the_largest_reports_stay_within_64_bits():
    for bits in (4, 8, 16, 17, 24, 32):
        grid = PrivUnit(4, 3.0, coordinate_bits=bits).fixed_point
        square = (grid.largest**2 + (1 << grid.square_shift >> 1)) >> grid.square_shift
        assert square * ((2**63 - 1) // grid.largest - 1 if bits == 32 else 1 << 32) < 2**63
        assert grid.decode_squares(np.array(square)) == pytest.approx(grid.limit**2, rel=1e-4)


@pytest.mark.exact
@kinds(COUNTS)
@pytest.mark.parametrize("messages", [1, 2])
def test_bars_from_counts_are_the_variance_with_the_means_in_their_place(mechanism, messages):
    """People who all hold the same: nothing is added for how they differ, for "fixed"."""
    if isinstance(mechanism, LInfMean) and messages > 1:
        mechanism = LInfMean(3, 6.0, messages=(6,), message_epsilons=(1.0,))
    n = 4_000_000
    vector = values(mechanism, 1)
    exact = mechanism.variance(1, vector)
    rng = np.random.default_rng(6)
    drawn = mechanism.randomize(np.repeat(vector, 20_000, axis=0), rng)
    statistic = 200 * mechanism.accumulate(drawn)
    found = mechanism.estimate(statistic, n).standard_error ** 2 * n
    assert found == pytest.approx(exact, rel=0.05)
    wide = mechanism.estimate(statistic, n, sampling="iid").standard_error ** 2 * n
    assert (wide >= found * (1 - 1e-12)).all()


@pytest.mark.statistical
@pytest.mark.parametrize(("dimension", "runs"), [(3, 4000), (30, 400), (300, 40), (3000, 4)])
def test_intervals_hold_as_often_as_they_say(dimension, runs):
    """PrivUnit at eps0 = 5, 1,000 people: 12,000 intervals of 95 % for each dimension.

    Not below 95 % by more than 4.5 standard errors, 0.9 % (chance 3e-6 for a right one), nor above
    97 %: bars too narrow by 5 %, or those of the worst data (99.9 %), are found out. (A bar is
    never below the least that any data give, which makes it wider by a hundredth.) People are the
    same vector, so that bars count noise and nothing besides.
    """
    found = coverage(PrivUnit(dimension, 5.0), "one vector", 1000, runs, seed=dimension)
    spread = np.sqrt(0.95 * 0.05 / found.intervals)
    assert 0.95 - 4.5 * spread < found.measured < 0.97
    assert found.worst_case > 0.99
    assert found.too_wide_before > 1.9 and abs(found.too_wide - 1) < 0.03


@pytest.mark.statistical
@pytest.mark.parametrize("data", ["one axis", "spread", "short"])
@pytest.mark.parametrize("mechanism", [PrivUnit(3, 8.0), LInfMean(3, 8.0), PrivUnitInf(3, 8.0)])
def test_intervals_of_other_data_never_hold_less_often_than_they_say(mechanism, data):
    """As few reports and as rare surprises as there are: 1,000 reports at eps0 = 8.

    6,000 intervals; not below 95 % by more than 4.5 standard errors (chance 3e-6). Where people
    differ bars count that too, and more intervals hold.
    """
    found = coverage(mechanism, data, 1000, 2000, seed=8)
    assert found.measured > 0.95 - 4.5 * np.sqrt(0.95 * 0.05 / found.intervals)
