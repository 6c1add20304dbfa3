"""Regret of simulated runs, in law: what each model of trust would cost. Protects nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_ldp.protocols.bandits.elimination import Batch, LinearBandit, Run
from beam_ldp.randomizers.checks import check_integer

Floats = NDArray[np.float64]
Actions = Callable[[np.random.Generator], Floats]

# Models of trust and reports that are compared, as changes of a bandit.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "none": {"model": "none"},
    "central": {"model": "central"},
    "shuffled": {"model": "shuffled"},
    "shuffled-batch": {"model": "shuffled", "amplify_over": "batch"},
    "shuffled-laplace": {"model": "shuffled", "report": "laplace"},
    "local": {"model": "local"},
    "local-laplace": {"model": "local", "report": "laplace"},
}


def run_in_law(bandit: LinearBandit, theta: Floats, rng: np.random.Generator) -> Run:
    """One run with rewards of -1 and 1: the law of the plays, but nobody's reward is drawn.

    Complexity: O(batches K c) beside the designs, whatever the horizon.

    >>> bandit = LinearBandit(actions=np.eye(2), horizon=10**7, model="local")
    >>> run = run_in_law(bandit, np.array([0.9, -0.3]), np.random.default_rng(0))
    >>> run.winner, int(run.plays.sum())
    (0, 10000000)
    """
    means = bandit.actions @ theta
    if np.linalg.norm(theta) > 1 + 1e-9:
        raise ValueError("theta must be of length 1 at most")

    def sums(batch: Batch) -> Floats:
        return batch.noise.sums_in_law(batch.counts, means[batch.played], rng)

    return bandit.run(sums)


def missed(bandit: LinearBandit, theta: Floats, run: Run) -> bool:
    """Whether some estimate was farther from its truth than its width; rarer than 1/horizon."""
    means = bandit.actions @ theta
    return any(
        bool((np.abs(found - means[batch.active]) > batch.width).any())
        for batch, found in zip(run.batches, run.estimates, strict=True)
    )


@dataclass(frozen=True, eq=False)
class Curve:
    """Regrets of one variant.

    Attributes:
        variant: its name in `VARIANTS`.
        epsilons: (E,) central; local of the local model; one, for no privacy.
        regrets: (E, repeats) of each run.
        missed: runs in which an estimate was outside of its width.
    """

    variant: str
    epsilons: tuple[float, ...]
    regrets: Floats
    missed: int

    @property
    def mean(self) -> Floats:
        return np.asarray(self.regrets.mean(axis=1))

    @property
    def standard_error(self) -> Floats:
        return np.asarray(self.regrets.std(axis=1, ddof=1) / np.sqrt(self.regrets.shape[1]))


def circle(num_actions: int) -> Actions:
    """Draws that many actions, uniform on the unit circle: those of the text's figures."""
    check_integer("num_actions", num_actions, 2)
    return lambda rng: directions(rng, num_actions, 2)


def directions(rng: np.random.Generator, count: int, dimension: int) -> Floats:
    """(count, dimension) uniform unit vectors."""
    normals = rng.normal(size=(count, dimension))
    return np.asarray(normals / np.linalg.norm(normals, axis=1, keepdims=True))


def simulate(
    bandit: LinearBandit,
    epsilons: Iterable[float],
    variants: Iterable[str] = tuple(VARIANTS),
    *,
    actions: Actions | None = None,
    repeat: int = 30,
    seed: int = 0,
) -> list[Curve]:
    """Regret of each variant at each epsilon, over the same random instances.

    Args:
        bandit: what the variants have in common.
        epsilons: central, or local of the local model; those that a report may not have are left
            out.
        variants: names in `VARIANTS`.
        actions: draws the actions of each run; the bandit's own by default. Theta is uniform on
            the unit sphere.
        repeat: runs of each, at least 2.
        seed: of the instances and of each variant's noise.

    >>> bandit = LinearBandit(actions=np.eye(2), horizon=100_000)
    >>> curves = simulate(bandit, [0.2, 2.0], ["none", "local"], repeat=4)
    >>> [(curve.variant, curve.regrets.shape, curve.missed) for curve in curves]
    [('none', (1, 4), 0), ('local', (2, 4), 0)]
    """
    check_integer("repeat", repeat, 2)
    asked = tuple(epsilons)
    instances = []
    for number in range(repeat):
        rng = np.random.default_rng([seed, 0, number])
        rows = bandit.actions if actions is None else actions(rng)
        instances.append((rows, directions(rng, 1, rows.shape[1])[0]))
    curves = []
    for variant in variants:
        if variant not in VARIANTS:
            allowed = ", ".join(VARIANTS)
            raise ValueError(f"variants must be of {allowed}, got {variant!r}")
        changes = VARIANTS[variant]
        used = asked[:1] if variant == "none" else asked
        if changes["model"] == "local":
            used = tuple(e for e in used if e <= bandit.max_local_epsilon)
        regrets, bad = np.zeros((len(used), repeat)), 0
        for place in np.ndindex(regrets.shape):
            rows, theta = instances[place[1]]
            one = replace(bandit, actions=rows, epsilon=used[place[0]], accountant=None, **changes)
            noise = np.random.default_rng([seed, 1 + list(VARIANTS).index(variant), *place])
            run = run_in_law(one, theta, noise)
            regrets[place] = run.regret(rows @ theta)
            bad += missed(one, theta, run)
        curves.append(Curve(variant, used, regrets, bad))
    return curves
