"""Regret of simulated runs, in law: what each model of trust would cost. Protects nobody."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_ldp.decisions.bandits.elimination import Batch, LinearBandit, Run
from beam_ldp.randomizers.checks import check_integer

Floats = NDArray[np.float64]
Actions = Callable[[np.random.Generator], Floats]

_PLACES = 41  # numbers of people, ten a decade

# Models of trust and reports that are compared, as changes of a bandit.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "none": {"model": "none"},
    "central": {"model": "central"},
    "central-all-actions": {"model": "central", "core_set": False},
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


def regret_after(run: Run, means: Floats, people: NDArray[np.int64]) -> Floats:
    """(P,) expected regret once so many people had their action; those of a batch in random order.

    >>> bandit = LinearBandit(actions=np.eye(2), horizon=100_000, model="none")
    >>> means = np.array([0.9, -0.3])  # of the actions are the entries of theta
    >>> run = run_in_law(bandit, means, np.random.default_rng(0))
    >>> regret_after(run, means, np.array([0, 10, 100_000])).round(), round(run.regret(means))
    (array([  0.,   6., 535.]), 535)
    """
    gaps = means.max() - means
    asked = np.cumsum([0, *(batch.people for batch in run.batches)])
    lost = np.cumsum([0.0, *(batch.counts @ gaps[batch.played] for batch in run.batches)])
    rest = np.maximum(people - asked[-1], 0) * gaps[run.winner]
    return np.asarray(np.interp(people, asked, lost) + rest)


@dataclass(frozen=True, eq=False)
class RegretCurve:
    """Regrets of one variant.

    Attributes:
        variant: its name in `VARIANTS`.
        epsilons: (E,) central; local of the local model; one, for no privacy.
        people: (P,) numbers of people, the last of which is the horizon.
        paths: (E, repeats, P) regret of each run once so many people had their action.
        missed: runs in which an estimate was outside of its width.
    """

    variant: str
    epsilons: tuple[float, ...]
    people: NDArray[np.int64]
    paths: Floats
    missed: int

    @property
    def regrets(self) -> Floats:
        """(E, repeats) of each run."""
        return np.asarray(self.paths[:, :, -1])

    @property
    def mean(self) -> Floats:
        """(E,) regret."""
        return np.asarray(self.over_people[0][:, -1])

    @property
    def standard_error(self) -> Floats:
        """(E,) of the mean."""
        return np.asarray(self.over_people[1][:, -1])

    @cached_property
    def over_people(self) -> tuple[Floats, Floats]:
        """(E, P) mean regret once so many people had their action, and its standard error."""
        spread = self.paths.std(axis=1, ddof=1) / np.sqrt(self.paths.shape[1])
        return np.asarray(self.paths.mean(axis=1)), np.asarray(spread)


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
    variants: Iterable[str] | Mapping[str, Mapping[str, Any]] = tuple(VARIANTS),
    *,
    actions: Actions | None = None,
    repeat: int = 30,
    seed: int = 0,
) -> list[RegretCurve]:
    """Regret of each variant at each epsilon, over the same random instances.

    Args:
        bandit: what the variants have in common.
        epsilons: central, or local of the local model; those that a report may not have are left
            out.
        variants: names in `VARIANTS`, or changes of the bandit by name, the model among them.
        actions: draws the actions of each run; the bandit's own by default. Theta is uniform on
            the unit sphere.
        repeat: runs of each, at least 2.
        seed: of the instances, and with its name of each variant's noise.

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
    if not isinstance(variants, Mapping):
        variants = {name: _named(name) for name in variants}
    changed = {name: {"accountant": None, **changes} for name, changes in variants.items()}
    return [_curve(bandit, name, changed[name], asked, instances, seed) for name in changed]


def _named(variant: str) -> Mapping[str, Any]:
    if variant not in VARIANTS:
        allowed = ", ".join(VARIANTS)
        raise ValueError(f"variants must be of {allowed}, got {variant!r}")
    return VARIANTS[variant]


def _curve(
    bandit: LinearBandit, name: str, changes: Mapping[str, Any], asked: tuple[float, ...],
    instances: list[tuple[Floats, Floats]], seed: int,
) -> RegretCurve:  # fmt: skip
    """Of one variant, on all instances at all epsilons that it may have."""
    used = asked[:1] if changes["model"] == "none" else asked
    if changes["model"] == "local":
        used = tuple(e for e in used if e <= bandit.max_local_epsilon)
    first = max(1.0, bandit.horizon / 1e4)
    people = np.unique(np.geomspace(first, bandit.horizon, _PLACES).round().astype(np.int64))
    paths, bad = np.zeros((len(used), len(instances), len(people))), 0
    for place in np.ndindex(paths.shape[:2]):
        rows, theta = instances[place[1]]
        one = replace(bandit, actions=rows, epsilon=used[place[0]], **changes)
        noise = np.random.default_rng([seed, 1, zlib.crc32(name.encode()), *place])
        run = run_in_law(one, theta, noise)
        paths[place] = regret_after(run, rows @ theta, people)
        bad += missed(one, theta, run)
    return RegretCurve(name, used, people, paths, bad)
