"""Error bars of means: of the reports that came, where these tell, and else the worst ones."""

import math

import numpy as np
import pytest
from scipy import stats

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
from beam_ldp.randomizers.mean.base import LEAST_MEASURED, quantile
from benchmarks.error_bars import cells, coverage

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
            if isinstance(mechanism, ScalarMean):
                inside = np.clip(found.value, 0.0, mechanism.radius)
                least = mechanism.response.least_variance(inside)
            else:
                least = mechanism._least_variance
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


@pytest.mark.exact
def test_intervals_are_of_students_t_and_of_the_normal_law_where_the_error_is_known():
    for degrees in (29, 99, 10**6):
        for miss in (0.05, 1e-6):
            expected = stats.t.ppf(1 - miss / 2, degrees)
            assert quantile(miss, degrees) == pytest.approx(expected, rel=1e-9)
    assert quantile(0.05, math.inf) == pytest.approx(1.959963984540054)
    assert quantile(0.05, math.inf, 1.0) == pytest.approx(1.96 + 0.4736, abs=1e-3)  # half a report
    mechanism, n = PrivUnit(4, 3.0), LEAST_MEASURED
    reports = mechanism.randomize(values(mechanism, n), np.random.default_rng(7))
    found = mechanism.estimate(mechanism.accumulate(reports), n)
    low, high = found.confidence_interval(0.95)
    assert (high - low) / 2 == pytest.approx(2.045229642132704 * found.standard_error)
    low, high = found.confidence_interval(0.95, simultaneous=True)
    expected = stats.t.ppf(1 - 0.05 / 8, n - 1) * found.standard_error
    assert (high - low) / 2 == pytest.approx(expected)


def law_of_difference(parts):
    """Of ones less zeros about one coordinate, `[-n, n]`: `(people, of a one, of a zero)` each."""
    n = sum(people for people, _, _ in parts)
    size = 1 << (2 * n + 2).bit_length()
    spectrum = np.ones(size, dtype=complex)
    for people, one, zero in parts:
        step = np.zeros(size)
        step[[0, 1, -1]] = 1 - one - zero, one, zero
        spectrum *= np.fft.fft(step) ** people
    return np.roll(np.fft.ifft(spectrum).real, n)[: 2 * n + 1]


@pytest.mark.exact
@pytest.mark.parametrize("n", [30, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dimension", [1, 2, 4, 16, 256])
def test_few_reports_about_a_coordinate_are_allowed_for(dimension, n):
    """Every outcome with its probability, of people of whom none, a quarter or half hold 1.

    At 95 % at least .944, at 99 % .988; without the term for skewness .828 (256 coordinates).
    """
    for epsilon in (0.5, 2.0, 8.0):
        mechanism = LInfMean(dimension, epsilon, messages=(1,), message_epsilons=(epsilon,))
        gain, ends = mechanism.layout.coordinate_laws(0)[1][0], []
        for ones in range(-n, n + 1, 1 if dimension > 1 else 2):
            statistic = np.zeros(mechanism.statistic_shape, dtype=np.int64)
            statistic[0, 0] = (max(-ones, 0), max(ones, 0))
            if dimension > 1:
                statistic[0, 1, 0] = n - abs(ones)
            else:
                statistic[0, 0] = (n - ones) // 2, (n + ones) // 2
            estimate = mechanism.estimate(statistic, n)
            each = [estimate.confidence_interval(level) for level in (0.95, 0.99)]
            ends.append([[low[0], high[0]] for low, high in each])
        low, high = np.array(ends).transpose(2, 1, 0)
        for holding in (0, n // 4, n // 2):
            for others in (0.0, -1.0):
                parts = [
                    (people, (1 + gain * x) / (2 * dimension), (1 - gain * x) / (2 * dimension))
                    for people, x in ((holding, 1.0), (n - holding, others))
                ]
                law = law_of_difference(parts)[:: 1 if dimension > 1 else 2]
                truth = (holding + others * (n - holding)) / n
                held = ((low <= truth) & (truth <= high)) @ law
                assert held[0] > 0.943 and held[1] > 0.987, (epsilon, holding, others)


@pytest.mark.statistical
@pytest.mark.parametrize(("n", "epsilon"), [(300, 8.0), (100, 6.0)])
def test_one_value_that_all_hold_is_not_missed_where_surprises_are_rare(n, epsilon):
    """2,000 statistics by their law; before, .76 and .80. Five sigma below .935: chance 3e-7."""
    mechanism, rng, held = ScalarMean(1, epsilon), np.random.default_rng(9), 0
    law = mechanism.channel()[:, 0]
    for counts in rng.multinomial(n, law / law.sum(), size=2000):
        low, high = mechanism.estimate(counts, n).confidence_interval()
        held += bool(low[0] <= 0 <= high[0])
    assert held / 2000 > 0.935 - 5 * math.sqrt(0.935 * 0.065 / 2000)


def check(found):
    """Of all cells: held .935 of the time, less five sigma of a cell's intervals (3e-7).

    Where neither surprises are rare nor people differ by more than noise: no wider than 1.15 of the
    exact error's, and held .945 to .97 of the time on average. `ScalarMean`, whose reports do not
    tell how far people differ from how noisy they are, may be wider by the former.
    """
    usual = []
    for cell in found:
        for data, one in cell.found.items():
            slack = 5 * math.sqrt(0.935 * 0.065 / one.intervals)
            assert one.held > 0.935 - slack, (cell[:4], data, one)
            if not one.rare and one.held < 0.99:
                usual.append(one.held)
                more = 1 + one.apart if cell.name == "ScalarMean" else 1
                assert one.width < 1.15 * math.sqrt(more), (cell[:4], data, one)
    assert len(usual) < 8 or 0.945 < np.mean(usual) < 0.97


@pytest.mark.statistical
@pytest.mark.parametrize(("dimension", "epsilon"), [(1, 2.0), (16, 8.0)])
def test_intervals_of_all_mechanisms_hold_as_often_as_they_say(dimension, epsilon):
    """Of 300 intervals or more for each mechanism and kind of data, at 30 and 300 reports."""
    check(list(cells((30, 300), intervals=300, epsilons=(epsilon,), dimensions=(dimension,))))


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("reports", [30, 100, 1000, 10_000])
@pytest.mark.parametrize("dimension", [1, 16, 300])
def test_the_table_of_intervals_holds(dimension, reports):
    """`python -m benchmarks.error_bars`, with half as many intervals."""
    check(list(cells((reports,), intervals=2000, dimensions=(dimension,))))


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("dimension", [1, 16])
def test_intervals_of_a_million_reports_hold(dimension):
    """100 intervals or so of each kind: two mechanisms of each dimension."""
    only = frozenset({"ScalarMean", "PrivUnitInf", "LInfMean"})
    check(list(cells((1_000_000,), only, dimensions=(dimension,), most=100_000_000)))


@pytest.mark.statistical
@pytest.mark.parametrize(
    "mechanism",
    [
        PrivUnit(8, 6.0), ScalarMean(1, 6.0), LInfMean(8, 6.0), PrivUnitInf(8, 6.0),
        L2Mean(8, 6.0, messages=(1,), message_epsilons=(6.0,), cutoff=math.inf),
        L2Mean(8, 4000.0, messages=(800,), message_epsilons=(5.0,), cutoff=math.inf),
        SplitAndMixMean.for_shuffle(8, 6.0, 1e-6, 300),
    ],
    ids=["direction", "scalar", "linf", "corners", "one message", "all coordinates", "shares"],
)  # fmt: skip
def test_people_drawn_from_a_population_are_in_the_bar(mechanism):
    """A row drawn of each person, or one each: "iid". 300 runs of 300 people, whose coordinates
    differ; at least .95 less five sigma for 300 intervals (.063) if they were all alike. Where
    messages tell what people differ by, bars are no wider than 1.15 of the exact ones."""
    n, runs, d = 300, 300, mechanism.dimension
    rng = np.random.default_rng(10)
    population = rng.choice([0.0, 0.2, 0.9], (1000, d)) * mechanism.radius
    if mechanism.norm == "l2":
        population /= math.sqrt(d)
    exact = np.sqrt(mechanism.variance(n, population, "iid"))
    truth, held, width = population.mean(axis=0), 0.0, 0.0
    for _ in range(runs):
        drawn = population[rng.integers(0, 1000, n)]
        statistic = mechanism.accumulate(mechanism.randomize(drawn, rng))
        found = mechanism.estimate(statistic, n, sampling="iid")
        low, high = found.confidence_interval()
        held += float(((low <= truth) & (truth <= high)).mean()) / runs
        width += float(((high - low) / 2 / 1.96 / exact).mean()) / runs
    assert found.error_bars == "measured" and held > 0.95 - 0.063
    if mechanism.messages_per_user == 1:
        assert width < 1.15


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
    assert 0.95 - 4.5 * spread < found.held < 0.97
    assert found.worst_case > 0.99
    assert found.worst_width > 1.9 and abs(found.width - 1) < 0.03


@pytest.mark.statistical
@pytest.mark.parametrize("data", ["one axis", "spread", "short"])
@pytest.mark.parametrize("mechanism", [PrivUnit(3, 8.0), LInfMean(3, 8.0), PrivUnitInf(3, 8.0)])
def test_intervals_of_other_data_never_hold_less_often_than_they_say(mechanism, data):
    """As few reports and as rare surprises as there are: 1,000 reports at eps0 = 8.

    6,000 intervals; not below 95 % by more than 4.5 standard errors (chance 3e-6). Where people
    differ bars count that too, and more intervals hold.
    """
    found = coverage(mechanism, data, 1000, 2000, seed=8)
    assert found.held > 0.95 - 4.5 * np.sqrt(0.95 * 0.05 / found.intervals)
