"""What the best guess achieves against PrivUnit: the attack beside the bound.

Of a uniform direction u and a message V, u is uniform in the cap around V with the coin's
probability and uniform off it otherwise. Guessing V itself is the best attack on all of u; for k
features A u it is A V, and how well that works depends on how much of V the features hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from beam_ldp.accounting.reconstruction import (
    DiffuseTarget,
    Target,
    breach_probability,
    largest_epsilon,
)
from beam_ldp.randomizers import special
from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.separated_mean import SeparatedMean
from beam_ldp.randomizers.spherical_caps import SphericalCap, log1mexp, log_density_constant

_NODES = 64  # of the quadrature, in each of the panels on each side of the threshold
_PANELS = 32
_REACH = 60.0  # nats of density beyond which heights are ignored
_SAMPLES = 1_000_000

CHANCES = (0.01, 0.1)  # of a successful guess, for which the local epsilon is told
_MOST_LOG_EPSILON = 14.0  # that is looked at


@dataclass(frozen=True)
class Attack:
    """Chances of guessing k features within an angle, for a uniform direction.

    Attributes:
        worst: for the message that tells most about these features.
        typical: on average over messages; simulated with 1e6 samples unless k = d.
        mean_cosine: between guess and truth, on average.
    """

    worst: float
    typical: float
    mean_cosine: float


def direction_attack(mechanism: PrivUnit, cosine: float) -> float:
    """Chance that V lies within the angle of the direction that it was drawn for. Exact.

    >>> round(direction_attack(PrivUnit(128, 8.0, inputs="sphere"), 0.2393717), 4)
    0.9039
    """
    check_fraction("cosine", cosine)
    near, cap = SphericalCap(mechanism.dimension, cosine), mechanism.cap
    p = mechanism.coin.probability
    if cosine >= cap.threshold:
        return p * math.exp(near.log_measure - cap.log_measure)
    return p + (1 - p) * (near.measure - cap.measure) / (1 - cap.measure)


def feature_attack(
    mechanism: PrivUnit, dimension: int, cosine: float, *, num_samples: int = _SAMPLES
) -> Attack:
    """The same for the direction of k = `dimension` features out of the mechanism's d.

    Args:
        mechanism: whose messages are attacked; one message, of a uniform direction.
        dimension: k, from 2 to d.
        cosine: of the angle, in (0, 1).
        num_samples: of the simulation behind `typical`; its seed is fixed.

    Raises:
        ValueError: if k or the cosine is out of range.
    """
    d, k = mechanism.dimension, dimension
    if not 2 <= k <= d:
        raise ValueError(f"dimension must lie in [2, {d}], got {k}")
    heights, weights = _heights(mechanism)
    worst = worst_attack(mechanism, dimension, cosine)
    if k == d:
        return Attack(worst, worst, float(heights @ weights))
    found = _typical_cosines(d, k, heights, weights, num_samples)
    return Attack(worst, float(np.mean(found >= cosine)), float(found.mean()))


def worst_attack(mechanism: PrivUnit, dimension: int, cosine: float) -> float:
    """`Attack.worst`, by quadrature alone. Arguments as for `feature_attack`."""
    d, k = mechanism.dimension, dimension
    if k == d:
        return direction_attack(mechanism, cosine)
    heights, weights = _heights(mechanism)
    # The share of the rest of u that may lie among the features.
    room = heights**2 * (1 - cosine**2) / cosine**2
    reach = np.where(room < 1 - heights**2, room / np.maximum(1 - heights**2, 1e-300), 1.0)
    inside = special.betainc((k - 1) / 2, (d - k) / 2, reach)
    return float(weights @ np.where(heights > 0, inside, 0.0))


def attacked_epsilon(
    dimension: int, cosine: float, probability: float, *, features: int | None = None
) -> float:
    """The local epsilon from which guessing a message of PrivUnit succeeds with this probability.

    For a uniform direction, and one message that is worst for these features. Below it, no attack
    does better against this mechanism where all features are asked for; other mechanisms of this
    budget may tell more, up to `largest_epsilon`.

    Args:
        dimension: d of the mechanism, at least 2.
        cosine: of the angle within which a guess counts, in (0, 1).
        probability: of a successful guess, in (0, 1).
        features: k from 2 to d whose direction is guessed; default: all.

    Returns:
        The budget, to 10 digits; 0 where a guess without any message succeeds that often, and
        infinite where a million does not suffice.

    Raises:
        ValueError: if a number is out of range.

    >>> round(attacked_epsilon(784, 0.5, 0.01), 2)
    117.12
    """
    check_fraction("probability", probability)
    k = dimension if features is None else features
    if not 2 <= k <= dimension:
        raise ValueError(f"features must lie in [2, {dimension}], got {features}")
    if DiffuseTarget(k, cosine).log_prior >= math.log(probability):
        return 0.0

    def success(log_epsilon: float) -> float:
        mechanism = PrivUnit(dimension, math.exp(log_epsilon), inputs="sphere")
        return worst_attack(mechanism, k, cosine) - probability

    low = high = math.log(largest_epsilon(DiffuseTarget(k, cosine), probability))
    if success(low) >= 0:  # attained, but for rounding
        return math.exp(low)
    while success(high) < 0:
        if high > _MOST_LOG_EPSILON:
            return math.inf
        high += 0.1
    return math.exp(special.brentq(success, low, high, xtol=1e-10))


def _typical_cosines(
    d: int, k: int, heights: np.ndarray, weights: np.ndarray, count: int
) -> np.ndarray:
    """Samples of the cosine of A u and A V, for V uniform and u drawn as its law is.

    By symmetry V = sqrt(b) e + sqrt(1 - b) f with e a feature and f none, b of a beta law, and
    u = t V + sqrt(1 - t^2) w for w uniform across V: four normals' worth of randomness matters.
    """
    rng = np.random.default_rng(20180612)
    total = np.cumsum(weights)
    t = np.interp(rng.random(count) * total[-1], total, heights)
    b = rng.beta(k / 2, (d - k) / 2, count)
    z, other = rng.standard_normal((2, count))
    features = rng.chisquare(k - 1, count)
    rest = rng.chisquare(d - k - 1, count) if d - k > 1 else np.zeros(count)
    along = np.sqrt(b) * z + np.sqrt(1 - b) * other
    length = np.sqrt(z**2 + other**2 + features + rest - along**2)
    across = np.sqrt(1 - t**2) / length
    first = t * np.sqrt(b) + across * (z - along * np.sqrt(b))
    return first / np.sqrt(first**2 + across**2 * features)


def _heights(mechanism: PrivUnit) -> tuple[np.ndarray, np.ndarray]:
    """Values of <V, u> and their probabilities, as a quadrature."""
    d, g, p = mechanism.dimension, mechanism.cap.threshold, mechanism.coin.probability
    spread = min(1.0, math.sqrt(2 * _REACH / d))
    top = math.sqrt(min(1.0, g * g + (1 - g * g) * -math.expm1(-2 * _REACH / (d - 1))))
    above = _side(d, g, top, math.log(p) - mechanism.cap.log_measure)
    tails = -math.log1p(math.exp(mechanism.coin.log_odds))  # log(1 - p), whose p may round to 1
    below = _side(d, -spread, g, tails - log1mexp(mechanism.cap.log_measure))
    heights, weights = np.concatenate([below, above], axis=1)
    return heights, weights / weights.sum()


def _side(d: int, low: float, high: float, log_scale: float) -> np.ndarray:
    at, weights = quadrature(low, high)
    density = log_density_constant(d) + special.xlog1py((d - 3) / 2, -(at**2)) + log_scale
    return np.array([at, weights * np.exp(density)])


def quadrature(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Points of a range and their weights: Gauss's, in each of many panels."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    width = (high - low) / _PANELS
    starts = low + width * np.arange(_PANELS)[:, None]
    return (starts + width * (nodes + 1) / 2).ravel(), np.tile(weights, _PANELS) * width / 2


# One page about a message: how likely it is that somebody rebuilds what it was made from.


_COLUMNS = (
    "reconstructed if",
    "blind guess",
    "at most",
    "paper's bound",
    "one message, worst",
    "typical",
)


@dataclass(frozen=True)
class AuditRow:
    """One target: chances of a successful guess.

    Attributes:
        target: what counts as rebuilt, in words.
        prior: of the best guess without any message.
        bound: given any messages of this person: proved, for every attack.
        paper_bound: the same by Lemma 2.2 of the paper.
        attack: what guessing one message achieves, where that is known: PrivUnit, a uniform
            direction.
        bound_reaches: local epsilon of all messages from which the bound exceeds each of
            `CHANCES`; 0 where the blind guess does.
        attack_reaches: local epsilon of one message's direction from which guessing it succeeds
            more often, by `attacked_epsilon`; None where that is unknown or infinite.
    """

    target: str
    prior: float
    bound: float
    paper_bound: float
    attack: Attack | None = None
    bound_reaches: tuple[float, ...] = ()
    attack_reaches: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class ReconstructionAudit:
    """What protects one person's messages from being rebuilt, against whoever sees them all.

    Attributes:
        local_epsilon: of all messages of one person together.
        participations: how many there are.
        rows: one per target.
    """

    local_epsilon: float
    participations: int
    rows: tuple[AuditRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = _aligned([_COLUMNS, *map(_cells, self.rows)])
        plural = "" if self.participations == 1 else "s"
        head = (
            f"Reconstruction: {self.participations} message{plural} of one person, local epsilon "
            f"{self.local_epsilon:g} in all, seen with the sender's name"
        )
        return "\n".join([head, *lines, "", *self._reached()])

    def _reached(self) -> list[str]:
        """From which local epsilons a guess may succeed, and does, with the chances."""
        told = [("local epsilon from which the chance exceeds", *(f"{c:.0%}" for c in CHANCES))]
        for row in self.rows:
            told.append(
                (f"{row.target}: of all messages, at least", *map(at_least, row.bound_reaches))
            )
            if row.attack is not None:
                own = ("-" if found is None else f"{found:.4g}" for found in row.attack_reaches)
                told.append(("  of the direction in one message of PrivUnit", *own))
        return _aligned(told)


def audit_messages(
    mechanism: MeanRandomizer, targets: Iterable[Target], participations: int = 1
) -> ReconstructionAudit:
    """Chances of rebuilding each target from `participations` messages of one person.

    Budgets of messages add. Where a target concerns the direction only, the budget of the length
    is counted all the same: length and direction may be related.

    Args:
        mechanism: what every message was made with.
        targets: `DiffuseTarget` and `SparseTarget`.
        participations: most messages of any one person, >= 1.

    Raises:
        ValueError: if `participations` is below 1.

    >>> print(audit_messages(PrivUnit(784, 60.0, inputs="sphere"), [DiffuseTarget(784, 0.5)]))
    Reconstruction: 1 message of one person, local epsilon 60 in all, seen with the sender's name
    reconstructed if                          blind guess  at most  paper's bound  one message, worst  typical
    direction of 784 features, cosine >= 0.5  3.5e-51      4e-25    4e-25          3.5e-27             3.5e-27
    <BLANKLINE>
    local epsilon from which the chance exceeds                          1%     10%
    direction of 784 features, cosine >= 0.5: of all messages, at least  111.5  113.9
      of the direction in one message of PrivUnit                        117.1  119.4
    """  # noqa: E501
    if participations < 1:
        raise ValueError(f"participations must be >= 1, got {participations}")
    total = participations * mechanism.local_epsilon
    rows = tuple(_row(mechanism, target, total) for target in targets)
    return ReconstructionAudit(total, participations, rows)


def _row(mechanism: MeanRandomizer, target: Target, total: float) -> AuditRow:
    attack: Attack | None = None
    own: list[float] = []
    direction = mechanism
    if isinstance(mechanism, SeparatedMean) and mechanism.strategy == "product":
        direction = mechanism.direction
    if (
        isinstance(direction, PrivUnit)
        and direction.inputs == "sphere"
        and isinstance(target, DiffuseTarget)
        and target.excess == 0
        and target.dimension <= direction.dimension
    ):
        d, k, cosine = direction.dimension, target.dimension, target.cosine
        attack = feature_attack(direction, k, cosine)
        own = [attacked_epsilon(d, cosine, chance, features=k) for chance in CHANCES]
    return AuditRow(
        target=str(target),
        prior=math.exp(target.log_prior),
        bound=breach_probability(target, total),
        paper_bound=breach_probability(target, total, "paper"),
        attack=attack,
        bound_reaches=tuple(max(0.0, largest_epsilon(target, chance)) for chance in CHANCES),
        attack_reaches=tuple(e if math.isfinite(e) else None for e in own),
    )


def _cells(row: AuditRow) -> tuple[str, ...]:
    attack = ["-", "-"]
    if row.attack is not None:
        attack = [f"{row.attack.worst:.2g}", f"{row.attack.typical:.2g}"]
    return (
        row.target,
        f"{row.prior:.2g}",
        at_most(row.bound),
        at_most(row.paper_bound),
        *attack,
    )


def _aligned(cells: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines of a table."""
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip() for row in cells]


def at_least(epsilon: float) -> str:
    """Four digits, rounded down: what lies below it stays safe."""
    if epsilon <= 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 3)
    return f"{math.floor(epsilon / unit * (1 + 1e-12)) * unit:.4g}"


def at_most(bound: float) -> str:
    """Two digits, rounded up: a bound stays one."""
    if not 0 < bound < 1:
        return f"{bound:g}"
    unit = 10.0 ** (math.floor(math.log10(bound)) - 1)
    return f"{min(1.0, math.ceil(bound / unit * (1 - 1e-12)) * unit):.2g}"
