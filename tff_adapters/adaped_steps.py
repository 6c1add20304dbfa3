"""What a client of AdaPeD computes: local steps of its own model, the shared one, and the scale.

With f the cross-entropy of the own model theta and f^KD the mean of KL(p_mu || p_theta) over a
batch (the shared model mu is the teacher), a step is, in this order:

    theta <- theta - eta1 (grad f(theta) + grad_theta f^KD(theta, mu) / (2 psi))
    mu    <- mu    - eta2 clip(grad_mu f^KD(theta, mu) / (2 psi), C1)           [+ noise, printed]
    psi   <- psi   - eta3 clip(1/(2 psi) - f^KD(theta, mu) / (2 psi^2), C2)     [+ noise, printed]

Thesis, Algorithm 4.4.1 and (4.16). The text does not define f^KD and lets psi become negative;
here psi is kept in a public range.

Two priors that need no teacher stand beside it (thesis, (4.14) and (4.15)): own models are drawn
around the shared one, each weight by N(mu, psi), or by a Laplace law of scale psi. A step is then

    theta <- the minimiser of  |t - theta'|^2 / (2 eta1) - log p(t) / points,
             theta' = theta - eta1 grad f(theta)
    mu    <- mu + eta2 (theta - mu),  or  mu + eta2 psi sign(theta' - mu)
    psi   <- psi + eta3 (spread - psi)

The first is proximal, and so never overshoots: an own model moves to the shared one by a share, or
by a length, weight by weight. Weights that a Laplace prior has tied still say where they would go:
by theta itself no tie were ever moved. Of N(mu, psi) the spread is the mean square of theta - mu,
of Laplace the mean of its absolute values: what psi is where the likelihood of own models is
greatest. That of models and psi together has no greatest value (it grows without end as all models
meet and psi falls to zero), so psi ends at the least of its range, which is the true parameter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import tensorflow as tf

from tff_adapters.kernels.base import clip_to_ball

Prior = Literal["distillation", "gaussian", "laplace"]
PRIORS: tuple[Prior, ...] = ("distillation", "gaussian", "laplace")
# psi at the start and the range that it is kept in.
SCALES: dict[Prior, tuple[float, tuple[float, float]]] = {
    "distillation": (1.0, (0.05, 20.0)),
    "gaussian": (1.0, (0.02, 10.0)),
    "laplace": (1.0, (0.03, 10.0)),
}


@dataclass(frozen=True)
class Rates:
    """Step sizes eta1 (own model), eta2 (shared model) and eta3 (psi), and psi's range."""

    personal: float
    shared: float
    psi: float
    psi_range: tuple[float, float] = (0.05, 20.0)

    def __post_init__(self) -> None:
        for name in ("personal", "shared", "psi"):
            rate = getattr(self, name)
            if not (math.isfinite(rate) and rate >= 0):
                raise ValueError(f"rates must be finite numbers >= 0, got {name}={rate}")
        low, high = self.psi_range
        if not 0 < low < high < math.inf:
            raise ValueError(f"psi_range must be 0 < low < high, got {self.psi_range}")


@dataclass(frozen=True)
class StepNoise:
    """What the printed algorithm does to every step: clip to C1 and C2, add these deviations."""

    clip: float
    deviation: float
    psi_clip: float
    psi_deviation: float


class Local(NamedTuple):
    """What a client holds during a round: own weights, its copies of mu and psi."""

    theta: Any
    mu: Any
    psi: Any


class Classifier:
    """A `tff.learning.models.FunctionalModel` that gives logits, as functions of its weights."""

    def __init__(self, model: Any) -> None:
        trainable, fixed = model.initial_weights
        if len(fixed):
            raise ValueError("model must have trainable weights only (no batch normalization)")
        self.initial = [tf.constant(w).numpy() for w in trainable]
        if not all(w.dtype.kind == "f" for w in self.initial):
            raise ValueError("model must have weights that are floats")
        self.model = model

    def logits(self, weights: Any, x: Any, training: bool = True) -> Any:
        return self.model.predict_on_batch((tuple(weights), ()), x, training)


def local_step(
    classifier: Classifier,
    local: Local,
    batch: Any,
    rates: Rates,
    noise: StepNoise | None = None,
    seeds: Any = None,
) -> Local:
    """One step as above, on one batch `(x, y)`.

    Args:
        classifier: the network.
        local: before the step.
        batch: features and integer labels.
        rates: step sizes.
        noise: of the printed algorithm; None for plain steps.
        seeds: (2, 2) int64, of this step's noise.
    """
    x, y = batch
    y = tf.reshape(y, [-1])
    theta, mu, psi = local
    teacher = classifier.logits(mu, x)
    with tf.GradientTape() as tape:
        tape.watch(theta)
        student = classifier.logits(theta, x)
        loss = cross_entropy(student, y) + distillation(student, teacher) / (2 * psi)
    theta = _moved(theta, tape.gradient(loss, theta), rates.personal)
    student = classifier.logits(theta, x)
    with tf.GradientTape() as tape:
        tape.watch(mu)
        teacher = classifier.logits(mu, x)
        loss = distillation(student, teacher) / (2 * psi)
    gradient = tape.gradient(loss, mu)
    if noise is not None:
        gradient = _noisy(gradient, noise.clip, noise.deviation, seeds[0])
    mu = _moved(mu, gradient, rates.shared)
    gap = distillation(student, classifier.logits(mu, x))
    slope = 1 / (2 * psi) - gap / (2 * psi**2)
    if noise is not None:
        (slope,) = _noisy([slope], noise.psi_clip, noise.psi_deviation, seeds[1])
    return Local(theta, mu, tf.clip_by_value(psi - rates.psi * slope, *rates.psi_range))


def prior_step(
    classifier: Classifier, local: Local, batch: Any, rates: Rates, prior: Prior, points: int
) -> Local:
    """One step as above for "gaussian" and "laplace".

    Args:
        classifier: the network.
        local: before the step.
        batch: features and integer labels.
        rates: step sizes; those of mu and psi are shares of the way, at most 1.
        prior: of own models around the shared one.
        points: that the prior is weighed against, f being a mean over them.
    """
    theta = local_only_step(classifier, local.theta, batch, rates.personal)
    away = [t - m for t, m in zip(theta, local.mu)]
    pull = rates.personal / points / local.psi
    if prior == "gaussian":
        away = moves = [a / tf.cast(1 + pull, a.dtype) for a in away]
        spread = _mean([tf.square(a) for a in away])
    else:
        moves = [tf.cast(local.psi, a.dtype) * tf.sign(a) for a in away]
        away = [tf.sign(a) * tf.nn.relu(tf.abs(a) - tf.cast(pull, a.dtype)) for a in away]
        spread = _mean([tf.abs(a) for a in away])
    theta = [m + a for m, a in zip(local.mu, away)]
    mu = [m + tf.cast(rates.shared, m.dtype) * move for m, move in zip(local.mu, moves)]
    psi = local.psi + rates.psi * (spread - local.psi)
    return Local(theta, mu, tf.clip_by_value(psi, *rates.psi_range))


def _mean(parts: list[Any]) -> Any:
    """Of all entries of all parts."""
    total = tf.add_n([tf.reduce_sum(tf.cast(part, tf.float32)) for part in parts])
    return total / sum(part.shape.num_elements() for part in parts)


def local_only_step(classifier: Classifier, theta: Any, batch: Any, rate: float) -> Any:
    """One step of a client that learns from nobody."""
    x, y = batch
    with tf.GradientTape() as tape:
        tape.watch(theta)
        loss = cross_entropy(classifier.logits(theta, x), tf.reshape(y, [-1]))
    return _moved(theta, tape.gradient(loss, theta), rate)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Mean over a batch."""
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    )


def distillation(student: Any, teacher: Any) -> Any:
    """f^KD: the mean of KL(teacher || student) over a batch, from logits."""
    p, q = tf.nn.log_softmax(teacher), tf.nn.log_softmax(student)
    return tf.reduce_mean(tf.reduce_sum(tf.exp(p) * (p - q), axis=-1))


def clipped(parts: Any, norm: float) -> list[Any]:
    """Tensors scaled so that all entries together have length `norm` at most; zeros if not finite.

    What is clipped is what floats of the parts' own type hold.
    """
    vector = tf.concat([tf.reshape(tf.cast(p, tf.float64), [-1]) for p in parts], axis=0)
    inside = clip_to_ball(vector[None, :], "l2", norm)[0]
    pieces = tf.split(inside, [p.shape.num_elements() for p in parts])
    return [tf.reshape(piece, p.shape) for piece, p in zip(pieces, parts)]


def _noisy(gradient: Any, norm: float, deviation: float, seed: Any) -> list[Any]:
    parts = clipped(gradient, norm)
    sizes = [p.shape.num_elements() for p in parts]
    drawn = tf.random.stateless_normal([sum(sizes)], seed, dtype=tf.float64) * deviation
    pieces = tf.split(drawn, sizes)
    return [
        tf.cast(p + tf.reshape(n, p.shape), g.dtype) for p, n, g in zip(parts, pieces, gradient)
    ]


def _moved(weights: Any, gradient: Any, rate: float) -> list[Any]:
    return [w - tf.cast(rate, w.dtype) * tf.cast(g, w.dtype) for w, g in zip(weights, gradient)]
