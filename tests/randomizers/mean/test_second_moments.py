"""How reports of directions scatter: the closed form against the errors, and against draws."""

from __future__ import annotations

import numpy as np
import pytest

from beam_ldp.randomizers.mean import L2Mean, PrivUnit, SeparatedMean
from beam_ldp.randomizers.mean.priv_unit_gaussian import PrivUnitGaussian
from beam_ldp.randomizers.mean.separated_mean import second_moment

D = 5
VECTORS = np.array(
    [[0.9, 0, 0, 0, 0], [0.1, -0.2, 0, 0, 0], [0, 0.3, 0.3, -0.3, 0.1], [0, 0, 0, 0, 0.04]]
)
MECHANISMS = [
    PrivUnit(D, 3.0),
    PrivUnit(D, 9.0, preset="theory"),
    PrivUnitGaussian(D, 3.0),
    SeparatedMean(D, 6.0, strategy="product"),
    SeparatedMean(D, 6.0, strategy="product", magnitude_epsilon=2.0, magnitude_cells=3),
    SeparatedMean(D, 6.0, strategy="sign_flip"),
    SeparatedMean(D, 6.0, strategy="lift"),
    SeparatedMean(D, 6.0, 2.0, strategy="product"),
    SeparatedMean(D, 6.0, rounding="random", coordinate_bits=6),
]


@pytest.mark.exact
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_the_diagonal_is_the_error_of_the_mechanism(mechanism):
    spread = np.diag(second_moment(mechanism, VECTORS))
    own = mechanism.variance(1, VECTORS) + np.mean(VECTORS**2, axis=0)
    np.testing.assert_allclose(spread, own, rtol=1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_draws_scatter_so(mechanism):
    """Every entry within 5 standard errors: false alarms below 1e-4 in all."""
    count = 40_000
    values = np.tile(VECTORS, (count // len(VECTORS), 1))
    drawn = mechanism.randomize(values, rng=np.random.default_rng(11))
    z = mechanism.fixed_point.decode(drawn)
    products = z[:, :, None] * z[:, None, :]
    off = products.mean(axis=0) - second_moment(mechanism, VECTORS)
    assert (np.abs(off) < 5 * products.std(axis=0) / np.sqrt(count)).all()


@pytest.mark.exact
def test_the_best_threshold_has_the_same_noise_in_all_directions():
    """Cov(Z | u) = (D/d) I, so a population's moment grows by (D/d) (tr S) I and no more."""
    mechanism = PrivUnit(D, 3.0, inputs="sphere")
    u = np.array([[0.6, 0.8, 0, 0, 0]])
    noise = second_moment(mechanism, u) - u.T @ u
    error = mechanism.mean_squared_error(1, u)
    np.testing.assert_allclose(noise, error / D * np.eye(D), atol=1e-7 * error)
    worse = second_moment(PrivUnit(D, 3.0, inputs="sphere", preset="experiments"), u) - u.T @ u
    assert np.ptp(np.linalg.eigvalsh(worse)) > 0.5  # not so for the paper's own split


@pytest.mark.exact
def test_the_length_adds_its_variance_along_the_direction():
    mechanism = SeparatedMean(D, 6.0, strategy="product", magnitude_epsilon=2.0, magnitude_cells=3)
    isotropic, along = mechanism.direction._second_moment
    length = np.linalg.norm(VECTORS, axis=1)
    moment = length**2 + mechanism.magnitude.response.variance(length)
    expected = np.zeros((D, D))
    for w, r, s in zip(VECTORS, length, moment):
        expected += s * (isotropic * np.eye(D) + along * np.outer(w, w) / r**2) / len(VECTORS)
    np.testing.assert_allclose(second_moment(mechanism, VECTORS), expected, atol=1e-12)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("mechanism", "vectors", "error", "message"),
    [
        (L2Mean(D, 3.0), VECTORS, TypeError, "got L2Mean"),
        (MECHANISMS[0], VECTORS[:, :4], ValueError, r"shape \(k, 5\)"),
        (MECHANISMS[0], VECTORS[:0], ValueError, r"shape \(k, 5\)"),
        (MECHANISMS[0], 0 * VECTORS, ValueError, "none of them zero"),
        (MECHANISMS[0], np.nan * VECTORS, ValueError, "must be finite"),
        (MECHANISMS[0], 2 * VECTORS, ValueError, "no longer than the radius, 1"),
        (PrivUnit(D, 3.0, inputs="sphere"), VECTORS, ValueError, "have the length 1 for inputs"),
    ],
)  # fmt: skip
def test_what_has_no_such_moment_is_refused(mechanism, vectors, error, message):
    with pytest.raises(error, match=message):
        second_moment(mechanism, vectors)
