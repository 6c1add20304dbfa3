"""How far the average of private stochastic gradient steps is off: its limit law and its regions.

One person a step sends an unbiased private gradient Z, and the model moves by -eta_t Z with steps
eta_t of the order t^-beta, 1/2 < beta < 1. The average of the models after N steps is then normal
about the minimum in the limit, with the covariance H^-1 S H^-1 / N: H the Hessian of the risk
there, S = E[Z Z^T] the second moment of a private gradient. S is known exactly for directions sent
by PrivUnit, so what privacy costs is known before anybody is asked, and a trained model comes with
a confidence region. Everything is about the limit: at few steps regions are too small
(`benchmarks/averaged_sgd.py` measures by how much).

Source: Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018, Corollaries 3.1 and 3.2, Lemma 4.5 and
Theorem 3; Polyak and Juditsky 1992. Faults of the text: docs/errata.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.priv_unit_gaussian import PrivUnitGaussian
from beam_ldp.randomizers.mean.separated_mean import SeparatedMean, second_moment

_SYMMETRIC = 1e-8  # relative


@dataclass(frozen=True, eq=False)
class AveragedSgd:
    """The law of the average model about the minimum, in the limit of many steps.

    Attributes:
        covariance: `(d, d)`, of the average itself, not of sqrt(N) times it.
    """

    covariance: np.ndarray

    @property
    def standard_error(self) -> np.ndarray:
        """Of every coordinate of the average, `(d,)`."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def mean_squared_error(self) -> float:
        """Expected squared distance to the minimum."""
        return float(np.trace(self.covariance))

    def confidence_interval(
        self, average: np.ndarray, level: float = 0.95
    ) -> tuple[np.ndarray, np.ndarray]:
        """`(low, high)`, `(d,)` each: a coordinate lies in its own with this probability.

        Args:
            average: of the models, `(d,)`.
            level: in (0, 1), of one coordinate.
        """
        check_fraction("level", level)
        half = float(special.ndtri((1 + level) / 2)) * self.standard_error
        return average - half, average + half

    def distance(self, average: np.ndarray, model: np.ndarray) -> np.ndarray:
        """How far a model is from the average, in standard deviations of the law.

        Args:
            average, model: `(d,)`, or `(n, d)` for many at once.

        Returns:
            The Mahalanobis distance, `()` or `(n,)`.
        """
        off = np.asarray(average, dtype=np.float64) - model
        solved = np.linalg.solve(self.covariance, off.T).T
        return np.asarray(np.sqrt((off * solved).sum(axis=-1)))

    def region_radius(self, level: float = 0.95) -> float:
        """The confidence region is every model within this `distance` of the average."""
        check_fraction("level", level)
        return math.sqrt(float(special.chdtri(len(self.covariance), 1 - level)))

    def region_axes(self, level: float = 0.95) -> np.ndarray:
        """Half axes of that ellipsoid as rows, the longest first: `(d, d)`."""
        squares, directions = np.linalg.eigh(self.covariance)
        axes = directions * np.sqrt(np.maximum(squares, 0.0)) * self.region_radius(level)
        return np.ascontiguousarray(axes.T[::-1])


def averaged_sgd(hessian: np.ndarray, gradient_moment: np.ndarray, num_steps: int) -> AveragedSgd:
    """Corollary 3.1: the law for gradients of any second moment, private or not.

    Args:
        hessian: H of the risk at the minimum, `(d, d)`, positive definite.
        gradient_moment: E[g g^T] of what a step uses, there, `(d, d)`.
        num_steps: N >= 1.

    Raises:
        ValueError: for matrices that are not symmetric, not positive or of other shapes.

    >>> law = averaged_sgd(2 * np.eye(2), np.eye(2), num_steps=100)
    >>> law.standard_error.tolist()
    [0.05, 0.05]
    """
    check_integer("num_steps", num_steps, 1)
    h, s = _symmetric("hessian", hessian), _symmetric("gradient_moment", gradient_moment)
    if h.shape != s.shape:
        raise ValueError(f"gradient_moment must have shape {h.shape}, got {s.shape}")
    if np.linalg.eigvalsh(h).min() <= 0:
        raise ValueError("hessian must be positive definite")
    half = np.linalg.solve(h, s)
    covariance = np.linalg.solve(h, half.T) / num_steps
    return AveragedSgd((covariance + covariance.T) / 2)


def private_averaged_sgd(
    hessian: np.ndarray,
    gradients: np.ndarray,
    mechanism: PrivUnit | PrivUnitGaussian | SeparatedMean,
    num_steps: int,
) -> AveragedSgd:
    """Corollary 3.2 and Theorem 3: the law where each step uses one private gradient, exactly.

    Every message protects its person with the mechanism's local epsilon; one person a step. The law
    itself is computed from `hessian` and `gradients`, which must be public, simulated, or protected
    otherwise: it is a plan, or a region of a model whose data may be shown.

    Args:
        hessian: of the risk at the minimum, `(d, d)`.
        gradients: of people at the minimum, in equal shares, `(k, d)`, as `second_moment` takes
            them: none zero, none longer than the mechanism's radius.
        mechanism: of one gradient.
        num_steps: N, people who were asked.

    Raises:
        TypeError, ValueError: as of `second_moment` and `averaged_sgd`.

    >>> gradients = np.array([[0.6, 0.0], [-0.6, 0.0], [0.0, 0.8], [0.0, -0.8]])
    >>> law = private_averaged_sgd(np.eye(2), gradients, SeparatedMean(2, 8.0), num_steps=10_000)
    >>> average = np.array([0.31, -0.12])
    >>> low, high = law.confidence_interval(average)
    >>> [f"{a:.3f} to {b:.3f}" for a, b in zip(low, high)]
    ['0.299 to 0.321', '-0.133 to -0.107']
    >>> bool(law.distance(average, np.array([0.3, -0.1])) <= law.region_radius(0.95))
    False
    """
    return averaged_sgd(hessian, second_moment(mechanism, gradients), num_steps)


# What the text proves instead, to compare with --------------------------------------------------


def lemma_4_5(
    gradients: np.ndarray, direction_epsilon: float, length_epsilon: float, radius: float
) -> np.ndarray:
    """The bound of E[Z Z^T] of Lemma 4.5 with the constant C = 1; mended.

    The moments are second moments, not covariances: with the covariance of directions, as printed,
    no constant makes it true.

    Args:
        gradients: `(k, d)`, none zero.
        direction_epsilon, length_epsilon: eps_1 and eps_2 of the two parts of a message.
        radius: r_max.
    """
    check_positive("direction_epsilon", direction_epsilon)
    check_positive("length_epsilon", length_epsilon)
    w = np.asarray(gradients, dtype=np.float64)
    d = w.shape[1]
    unit = w / np.linalg.norm(w, axis=1, keepdims=True)
    rate = d / min(direction_epsilon, direction_epsilon**2)
    of_length = radius**2 * math.exp(-2 * length_epsilon / 3) * _widened(unit.T @ unit / len(w))
    return rate * (of_length + _widened(w.T @ w / len(w)))


def lemma_4_5_constant(moment: np.ndarray, bound: np.ndarray) -> float:
    """The least C with E[Z Z^T] at most C times the bound, as matrices."""
    root = np.linalg.inv(np.linalg.cholesky(_symmetric("bound", bound)))
    return float(np.linalg.eigvalsh(root @ _symmetric("moment", moment) @ root.T).max())


def length_epsilon_needed(
    dimension: int, direction_epsilon: float, least_eigenvalue: float, radius: float
) -> float:
    """From which eps_2 on Theorem 3 lets the length's noise go: 1.5 log(d r^2/(eps_1 lambda)).

    Printed without r^2, so that the unit of the gradients decided.

    Args:
        dimension: d.
        direction_epsilon: eps_1.
        least_eigenvalue: lambda, of the gradients' second moment.
        radius: r of the mechanism, in the same unit.

    >>> round(length_epsilon_needed(500, 100.0, 0.002, 1.0), 3)
    11.736
    """
    check_integer("dimension", dimension, 1)
    for name, value in (
        ("direction_epsilon", direction_epsilon),
        ("least_eigenvalue", least_eigenvalue),
        ("radius", radius),
    ):
        check_positive(name, value)
    ratio = dimension * radius**2 / (direction_epsilon * least_eigenvalue)
    return max(0.0, 1.5 * math.log(ratio))


def _widened(moment: np.ndarray) -> np.ndarray:
    """A moment, with its mean eigenvalue in every direction."""
    d = len(moment)
    return np.asarray(moment + np.trace(moment) / d * np.eye(d))


def _symmetric(name: str, matrix: np.ndarray) -> np.ndarray:
    found = np.asarray(matrix, dtype=np.float64)
    if found.ndim != 2 or found.shape[0] != found.shape[1] or not np.isfinite(found).all():
        raise ValueError(f"{name} must be a square matrix of finite numbers")
    if np.abs(found - found.T).max() > _SYMMETRIC * max(1e-300, float(np.abs(found).max())):
        raise ValueError(f"{name} must be symmetric")
    return found
