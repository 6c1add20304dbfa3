"""The law of kernels, sampled: against NumPy's reports, exact laws and golden errors.

All at fixed seeds. A p-value below 1e-6 or a deviation beyond 5 standard errors fails: per check,
a right kernel would do so for about one seed in a million.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from beam_ldp.randomizers.mean import (
    BinaryVectorMean,
    L1Mean,
    L2Mean,
    LInfMean,
    PrivUnit,
    PrivUnitGaussian,
    ScalarMean,
    SeparatedMean,
)
from tests.randomizers.mean.golden_errors import golden
from tests.tff_adapters.test_kernels import (
    ALL,
    BLOCK,
    DIRECTIONS,
    SCALARS,
    everything,
    reports_of,
    vector_for,
)
from tff_adapters.kernels import kernel_for

FALSE_ALARM = 1e-6
SIGMAS = 5.0
PEOPLE = 20_000


def ours_and_numpys(mechanism, vector, people=PEOPLE):
    vectors = np.tile(vector, (people, 1))
    ours = reports_of(kernel_for(mechanism), vectors)
    return ours, mechanism.randomize(vectors, np.random.default_rng(2))


def same_frequencies(first, second):
    """p-value of the chi-squared test of two samples of small integers."""
    size = int(max(first.max(), second.max())) + 1
    table = np.stack([np.bincount(first, minlength=size), np.bincount(second, minlength=size)])
    table = table[:, table.sum(axis=0) > 0]
    return stats.chi2_contingency(table).pvalue if table.shape[1] > 1 else 1.0


@pytest.mark.statistical
@everything(BLOCK + SCALARS)
def test_finite_reports_have_numpy_s_frequencies(mechanism):
    """Two samples, column by column; false alarms: one seed in a million per column."""
    ours, numpys = ours_and_numpys(mechanism, vector_for(mechanism))
    for first, second in zip(ours.reshape(PEOPLE, -1).T, numpys.reshape(PEOPLE, -1).T):
        assert same_frequencies(first.astype(int), second.astype(int)) > FALSE_ALARM


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", [BLOCK[1], BLOCK[3]], ids=["places", "bits"])
def test_messages_of_a_person_are_independent(mechanism):
    """Two columns together against NumPy's; false alarms: one seed in a million."""
    ours, numpys = ours_and_numpys(mechanism, vector_for(mechanism))
    pairs = [r[:, 0].astype(int) * 32 + r[:, 1].astype(int) for r in (ours, numpys)]
    assert same_frequencies(*pairs) > FALSE_ALARM


@pytest.mark.statistical
@everything(DIRECTIONS)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_directions_have_numpy_s_law(mechanism, share):
    """Kolmogorov-Smirnov of the height, the length, and two coordinates across.

    False alarms: one seed in a million for each of the four.
    """
    vector = vector_for(mechanism) * share / 0.8
    axis = vector / np.linalg.norm(vector) if share else np.eye(mechanism.dimension)[0]
    across = np.random.default_rng(3).normal(size=mechanism.dimension)
    across -= (across @ axis) * axis
    ours, numpys = ours_and_numpys(mechanism, vector)
    for read in (
        lambda r: r @ axis,
        lambda r: np.linalg.norm(r, axis=1),
        lambda r: r @ across,
        lambda r: r[:, -1],
    ):
        first, second = read(ours.astype(float)), read(numpys.astype(float))
        # Lengths that differ by the rounding of coordinates only are one length.
        unit = 1e-3 * np.abs(second).max()
        first, second = np.rint(first / unit), np.rint(second / unit)
        assert stats.ks_2samp(first, second).pvalue > FALSE_ALARM


@pytest.mark.statistical
@pytest.mark.parametrize("dimension, epsilon", [(2, 3.0), (5, 0.3), (50, 8.0), (2000, 40.0)])
def test_heights_of_priv_unit_have_the_two_level_law(dimension, epsilon):
    """Against the exact distribution: uniform on the sphere, reweighted by cap and rest."""
    mechanism = PrivUnit(dimension, epsilon, inputs="sphere")
    generator = tf.random.Generator.from_seed(4)
    heights = kernel_for(mechanism).heights(PEOPLE, generator).numpy()
    uniform = stats.beta((dimension - 1) / 2, (dimension - 1) / 2)
    g, p = mechanism.cap.threshold, mechanism.coin.probability
    outside = uniform.cdf((1 + g) / 2)

    def law(t):
        below = uniform.cdf((1 + np.minimum(t, g)) / 2) / outside
        above = uniform.sf((1 + np.maximum(t, g)) / 2) / uniform.sf((1 + g) / 2)
        return (1 - p) * below + p * (1 - above)

    assert stats.kstest(heights, law).pvalue > FALSE_ALARM


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.2, 2.0, 16.0])
def test_heights_of_priv_unit_gaussian_have_the_two_level_law(epsilon):
    """Against the exact distribution: normal, reweighted by tail and rest."""
    mechanism = PrivUnitGaussian(1000, epsilon, inputs="sphere")
    heights = kernel_for(mechanism).heights(PEOPLE, tf.random.Generator.from_seed(4)).numpy()
    t, p = mechanism.tail.threshold, mechanism.coin.probability

    def law(x):
        below = stats.norm.cdf(np.minimum(x, t)) / stats.norm.cdf(t)
        above = stats.norm.sf(np.maximum(x, t)) / stats.norm.sf(t)
        return (1 - p) * below + p * (1 - above)

    assert stats.kstest(heights, law).pvalue > FALSE_ALARM


@pytest.mark.statistical
@everything(ALL)
def test_estimates_are_unbiased_with_the_promised_error(mechanism):
    """Mean within 5 of the mechanism's standard errors (plus its own bias bound)."""
    vector = vector_for(mechanism)
    kernel = kernel_for(mechanism)
    reports = reports_of(kernel, np.tile(vector, (PEOPLE, 1)), seed=7)
    mean = kernel.decode(kernel.accumulate(reports), PEOPLE).numpy()
    truth = mechanism._as_truth(vector)[0]
    allowed = SIGMAS * np.sqrt(mechanism.variance(PEOPLE, vector)) + mechanism.bias_bound
    assert (np.abs(mean - truth) < allowed).all()


# Golden errors ----------------------------------------------------------------------------------


def errors_of(mechanism, vector, people):
    """Squared errors of single decoded reports."""
    kernel = kernel_for(mechanism)
    reports = reports_of(kernel, np.tile(vector, (people, 1)), seed=11)
    decoded = reports.astype(float) * mechanism.fixed_point.step
    return ((decoded - vector) ** 2).sum(axis=1)


def assert_mean(errors, figure, slack):
    error = errors.std() / math.sqrt(len(errors))
    assert abs(errors.mean() - figure) < SIGMAS * error + slack


@pytest.mark.statistical
@pytest.mark.parametrize("d, epsilon, figure, half", [g for g in golden("optimum") if g[0] == 128])
def test_golden_error_of_priv_unit(d, epsilon, figure, half):
    """Squared errors of 4000 reports; 5 standard errors."""
    vector = np.eye(d)[3]
    assert_mean(errors_of(PrivUnit(d, epsilon, inputs="sphere"), vector, 4000), figure, half)


@pytest.mark.statistical
@pytest.mark.parametrize("d, epsilon, ratio, half", [g for g in golden("gaussian") if g[0] == 128])
def test_golden_error_of_priv_unit_gaussian(d, epsilon, ratio, half):
    """Squared errors of 4000 reports; 5 standard errors."""
    best = next(g[2] for g in golden("optimum") if g[:2] == (d, epsilon))
    vector = np.eye(d)[3]
    errors = errors_of(PrivUnitGaussian(d, epsilon, inputs="sphere"), vector, 4000)
    assert_mean(errors, ratio * best, half * best + 1e-3 * best)


@pytest.mark.statistical
def test_golden_error_of_direction_and_length():
    """Spec of the separated mechanism: at d = 1024, eps = 16, r = 0.2 the error is 4.12 (5 s.e.).

    The budget of the length and its cells are the printed ones, 4.75 and 5.
    """
    mechanism = SeparatedMean(1024, 16.0, magnitude_epsilon=4.75, magnitude_cells=5)
    assert_mean(errors_of(mechanism, 0.2 * np.eye(1024)[0], 4000), 4.12, 0.005)


@pytest.mark.statistical
def test_golden_error_of_a_scalar():
    """At eps = 10 with 29 cells the worst variance is 7.37e-4 of the squared range (5 s.e.)."""
    mechanism = ScalarMean(1, 10.0, cells=29)
    worst = mechanism.response.worst_value()
    reports = reports_of(kernel_for(mechanism), np.full((100_000, 1), worst))
    errors = (mechanism.response.decoded[reports] - worst) ** 2
    assert_mean(errors, 7.37e-4, 0.005e-4)


@pytest.mark.exact
@pytest.mark.parametrize("local_epsilon", [1.5, 2.0])
@pytest.mark.parametrize("kind, power", [(LInfMean, 2), (L1Mean, 1), (L2Mean, 1)])
def test_golden_error_of_one_bit(kind, power, local_epsilon):
    """The centred decoder's second moment, d^2 or d times ((E+1)/(E-1))^2, is every report's.

    d = 64: LInfMean C^2 d^2, L1Mean C^2 d, L2Mean cutoff^2 C^2 d. No randomness is left in it.
    """
    options = {"cutoff": 3.0} if kind is L2Mean else {}
    mechanism = kind(64, local_epsilon, radius=0.5, messages=(1,),
                     message_epsilons=(local_epsilon,), **options)  # fmt: skip
    kernel = kernel_for(mechanism)
    figure = 0.25 * 64.0**power / math.tanh(local_epsilon / 2) ** 2
    if kind is L2Mean:
        figure *= 9.0
    for report in reports_of(kernel, np.tile(vector_for(mechanism), (20, 1))):
        decoded = kernel.decode(kernel.accumulate(report[None]), 1).numpy()
        assert (decoded**2).sum() == pytest.approx(figure, rel=1e-9)


@pytest.mark.statistical
def test_golden_error_of_a_binary_vector():
    """One bit of one coordinate: variance E/(E-1)^2 (5 standard errors)."""
    e = math.exp(1.7)
    kernel = kernel_for(BinaryVectorMean(1, 1.7))
    ones = reports_of(kernel, np.ones((200_000, 1)))[:, 0]
    decoded = np.array([float(kernel.decode([[s]], 1)[0]) for s in (-1, 1)])
    assert_mean((decoded[ones.astype(int)] - 1) ** 2, e / (e - 1) ** 2, 0.0)
