"""How the reports of directions scatter, and in which directions: E[Z Z^T], exactly.

A report Z of a vector w of direction u = w/|w| is unbiased for w. Its second moment is a multiple
of the identity plus a multiple of u u^T; over a population it decides what averages of functions of
reports are worth, private stochastic gradients among them (`beam_ldp.federated.averaged_sgd`).
"""

from __future__ import annotations

import numpy as np

from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.priv_unit_gaussian import PrivUnitGaussian
from beam_ldp.randomizers.mean.separated_mean import SeparatedMean


def second_moment(
    mechanism: PrivUnit | PrivUnitGaussian | SeparatedMean, vectors: np.ndarray
) -> np.ndarray:
    """E[Z Z^T] of one report, on average over vectors that people hold in equal shares.

    With R = |w|, V(R) the variance of the reported length and (A, B) the mechanism's constants, a
    report in two parts has E[(R^2 + V(R)) (A I + B u u^T)]; for the best PrivUnit B = 1, A = D/d,
    D being its squared error of a unit vector. So its price beyond the gradients' own moment is the
    length's variance along u and an isotropic term: nothing that is proportional to d/epsilon times
    the gradients' moment, which Lemma 4.5 of the paper has.

    Args:
        mechanism: whose reports; of inputs "ball", or "sphere" for vectors of its radius.
        vectors: `(k, d)`, no longer than the radius, none zero: without a direction there is no u
            (the theorems suppose that no gradient is zero).

    Returns:
        `(d, d)`, in squared units of the data, with the rounding of reports.

    Raises:
        TypeError: for a mechanism whose second moment has another form.
        ValueError: for vectors that are zero, too long, or of another shape.

    Source: Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018, Lemma 4.5, made exact.

    >>> spread = second_moment(PrivUnit(3, 2.0), np.array([[1.0, 0.0, 0.0]]))
    >>> round(float(spread[0, 0] - spread[1, 1]), 6)  # the direction itself, and it alone
    1.0
    """
    if not isinstance(mechanism, (PrivUnit, PrivUnitGaussian, SeparatedMean)):
        raise TypeError(
            "mechanism must be a PrivUnit, PrivUnitGaussian or SeparatedMean, got "
            f"{type(mechanism).__name__}"
        )
    w, radius = _checked(mechanism, vectors), mechanism.radius
    length = np.linalg.norm(w, axis=1)
    unit = w / length[:, None]
    square = np.full(len(w), radius**2)  # of the reported length
    if isinstance(mechanism, SeparatedMean):
        isotropic, along = mechanism.direction._second_moment
        if mechanism.strategy == "product":
            square = length**2 + mechanism.magnitude.response.variance(length)
        elif mechanism.strategy == "lift":
            unit = w / radius
    else:
        isotropic, along = mechanism._second_moment
    rounding = mechanism._rounding_variance * radius**2
    identity = np.eye(mechanism.dimension)
    weighted: np.ndarray = (unit * square[:, None]).T @ unit / len(w)
    return (isotropic * square.mean() + rounding) * identity + along * weighted


def _checked(
    mechanism: PrivUnit | PrivUnitGaussian | SeparatedMean, vectors: np.ndarray
) -> np.ndarray:
    w = np.asarray(vectors, dtype=np.float64)
    if w.ndim != 2 or w.shape[1] != mechanism.dimension or not len(w):
        raise ValueError(f"vectors must have shape (k, {mechanism.dimension}), got {w.shape}")
    length = np.linalg.norm(w, axis=1)
    if not (np.isfinite(length).all() and (length > 0).all()):
        raise ValueError("vectors must be finite, and none of them zero")
    if length.max() > mechanism.radius * (1 + 1e-9):
        raise ValueError(f"vectors must be no longer than the radius, {mechanism.radius:g}")
    if mechanism.inputs == "sphere" and length.min() < mechanism.radius * (1 - 1e-9):
        raise ValueError(f'vectors must have the length {mechanism.radius:g} for inputs="sphere"')
    return w
