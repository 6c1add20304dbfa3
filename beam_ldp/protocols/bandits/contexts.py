"""Contexts: a choice may depend on what only its person knows, and still be a linear bandit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_ldp.randomizers.checks import check_integer

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

_TIE = 1e-12


def choices(features: Floats, theta: Floats) -> Indices:
    """(C,) the choice of a person in each context who is told theta: the first of equal scores.

    Args:
        features: (C, A, d) of each context and choice.
        theta: (d,).
    """
    scores = features @ theta
    best = scores.max(axis=1, keepdims=True)
    return np.argmax(scores >= best - _TIE * np.maximum(1.0, np.abs(best)), axis=1)


@dataclass(frozen=True, eq=False)
class ContextualActions:
    """Policies as the actions of a linear bandit.

    A person is told one theta. She makes the choice that is best by it in her own context, and her
    clipped reward alone goes further, never the context nor the choice. Her mean reward is
    <theta*, row>, where the row is the expected feature vector of the choices that theta makes.
    The law of contexts is public and every person's context is a draw from it, independent of
    others'; for contexts that are chosen, or whose law is unknown, none of this holds.

    Attributes:
        thetas: (K, d) one for each policy; what people are told.
        rows: (K, d) expected features: the actions of the bandit.
        policies: (K, C) choice in each context; different rows.

    Source: specification of linear bandits, section 9.
    """

    thetas: Floats
    rows: Floats
    policies: Indices

    @classmethod
    def of_law(
        cls, features: ArrayLike, law: ArrayLike, candidates: int = 4000, seed: int = 0
    ) -> ContextualActions:
        """From a public law of finitely many contexts, exactly.

        Args:
            features: (C, A, d) of each context and choice, each of length 1 at most.
            law: (C,) probabilities of the contexts.
            candidates: thetas that are drawn on the sphere; of those that make the same choices in
                all contexts the first is kept.
            seed: of the candidates; public.

        Complexity: O(candidates C A d).

        >>> features = np.array([[[1.0, 0], [0, 1.0]], [[0, 1.0], [-1.0, 0]]])
        >>> found = ContextualActions.of_law(features, [0.5, 0.5], candidates=100)
        >>> sorted(map(tuple, found.policies.tolist()))
        [(0, 0), (0, 1), (1, 0), (1, 1)]
        """
        given, chances = _checked(features, law)
        check_integer("candidates", candidates, 1)
        normals = np.random.default_rng(seed).normal(size=(candidates, given.shape[2]))
        thetas = normals / np.linalg.norm(normals, axis=1, keepdims=True)
        policies = np.array([choices(given, theta) for theta in thetas])
        first = np.sort(np.unique(policies, axis=0, return_index=True)[1])
        kept = policies[first]
        rows = np.einsum("c,kcd->kd", chances, given[np.arange(len(given)), kept])
        return cls(thetas[first], np.asarray(rows), kept)

    def net_gap(self, features: ArrayLike, law: ArrayLike, theta: ArrayLike) -> float:
        """What the best of these policies loses against the best of all, if theta is the truth."""
        given, chances = _checked(features, law)
        truth = np.asarray(theta, dtype=np.float64)
        best = float(chances @ (given @ truth).max(axis=1))
        return best - float((self.rows @ truth).max())


def _checked(features: ArrayLike, law: ArrayLike) -> tuple[Floats, Floats]:
    given = np.asarray(features, dtype=np.float64)
    chances = np.asarray(law, dtype=np.float64)
    if given.ndim != 3 or 0 in given.shape or not np.isfinite(given).all():
        raise ValueError(f"features must be finite, (contexts, choices, d), got {given.shape}")
    if np.linalg.norm(given, axis=2).max() > 1 + 1e-9:
        raise ValueError("features must be of length 1 at most: divide all by the largest")
    if chances.shape != (len(given),) or not (chances >= 0).all():
        raise ValueError("law must be a probability for each context")
    if not abs(float(chances.sum()) - 1) <= 1e-9:
        raise ValueError(f"law must sum to 1, got {float(chances.sum())!r}")
    return given, chances
