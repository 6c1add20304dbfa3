"""Contexts: a choice may depend on what only its person knows, and still be a linear bandit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_ldp.decisions.bandits.laws import ContextLaw
from beam_ldp.randomizers.checks import check_integer, check_positive

Floats = NDArray[np.float64]

_PROBES = 4000  # thetas of a round
_SEARCHED = 2000  # draws of contexts by which policies are told apart


@dataclass(frozen=True, eq=False)
class ContextualActions:
    """Policies as the actions of a linear bandit.

    A person is told one theta. She makes the choice that is best by it in her own context
    (`client.choose`), and her clipped reward alone goes further (`client.answer`), never the
    context nor the choice. Her mean reward is <theta*, row>, where the row is the expected feature
    vector of the choices that theta makes.

    All that others see of a run depends on her context and her outcomes by that one number, which
    the bandit's model of trust protects: joint differential privacy, where her own choice, which
    she knows, is not counted.

    Attributes:
        law: of contexts.
        thetas: (K, d) one for each policy; what people are told. The map from thetas to rows has no
            inverse, so that both are kept together.
        rows: (K, d) expected features: the actions of the bandit.
        row_error: distance at most of every row from its true expectation; 0 of a known law. A
            `LinearBandit` needs it (`row_error`).
        net_gap: the largest loss that was measured of the best of these policies against the best
            of all, if theta is the truth, over 4000 random directions that did not choose them.
            Regret grows by it times the horizon at most, for as many thetas.

    Source: specification of linear bandits, section 9.
    """

    law: ContextLaw
    thetas: Floats
    rows: Floats
    row_error: float
    net_gap: float

    @classmethod
    def of_law(
        cls, law: ContextLaw, net_gap: float, *, most: int = 5000, failure: float = 1e-6,
        seed: int = 0,
    ) -> ContextualActions:  # fmt: skip
        """Policies of which one is within `net_gap` of the best, whatever the truth is.

        Rounds of random thetas: the one that loses most by the policies so far joins them, until
        none of a new round loses more than `net_gap`. Policies that make the same choices are never
        both there. A net gap of 1/sqrt(T) costs sqrt(T) regret at most.

        Args:
            law: public. Of draws, some tell policies apart, and others measure their rows.
            net_gap: > 0. Larger gaps remain where `most` policies do not suffice: the attribute
                says.
            most: policies.
            failure: probability at most that a row of draws is farther than `row_error`.
            seed: of the thetas; public.

        Complexity: O(rounds 4000 C A d), few rounds but in high dimension.

        >>> features = np.array([[[1.0, 0], [0, 1.0]], [[0, 1.0], [-1.0, 0]]])
        >>> law = ContextLaw.finite(features, [0.5, 0.5])
        >>> found = ContextualActions.of_law(law, 1e-9)
        >>> sorted(map(tuple, law.choices(found.thetas).tolist()))
        [(0, 0), (0, 1), (1, 0), (1, 1)]
        """
        if not isinstance(law, ContextLaw):
            raise TypeError("law must be a ContextLaw, which says what is known of contexts")
        check_positive("net_gap", net_gap)
        check_integer("most", most, 1)
        searched, measured = law.split(_SEARCHED, seed)
        rng = np.random.default_rng(seed)
        thetas, probes, largest = _net(searched, net_gap, most, rng)
        rows = measured.rows(thetas)
        if law.kind == "sampled":  # what chose the policies says too little of what they lose
            some = ContextLaw.sampled(measured.features[:_SEARCHED])
            largest = float(_losses(some, some.rows(thetas), probes).max())
        return cls(law, thetas, rows, measured.row_error(len(rows), failure), largest)

    def loss(self, theta: ArrayLike) -> float:
        """What the best of these policies loses against the best of all, if theta is the truth."""
        truth = np.asarray(theta, dtype=np.float64)
        return float(_losses(self.law, self.law.rows(self.thetas), truth[None])[0])


def _losses(law: ContextLaw, rows: Floats, thetas: Floats) -> Floats:
    """(n,) of the best row against the best policy of all, which is that of theta itself."""
    best = (law.rows(thetas) * thetas).sum(axis=1)
    return np.asarray(best - (thetas @ rows.T).max(axis=1))


def _net(
    law: ContextLaw, net_gap: float, most: int, rng: np.random.Generator
) -> tuple[Floats, Floats, float]:
    """Thetas of the policies, the thetas of the last round, and the largest loss of those."""
    kept = rows = np.zeros((0, law.dimension))
    while True:
        probes = _directions(rng, _PROBES, law.dimension)
        found = law.rows(probes)
        best = (found * probes).sum(axis=1)
        reached = (probes @ rows.T).max(axis=1) if len(rows) else np.full(_PROBES, -np.inf)
        largest = float((best - reached).max())
        if largest <= net_gap or len(rows) >= most:
            return kept, probes, largest
        added: list[int] = []
        while (best - reached).max() > net_gap and len(rows) + len(added) < most:
            added.append(int(np.argmax(best - reached)))
            reached = np.maximum(reached, probes @ found[added[-1]])
        kept, rows = np.concatenate([kept, probes[added]]), np.concatenate([rows, found[added]])


def _directions(rng: np.random.Generator, count: int, dimension: int) -> Floats:
    normals = rng.normal(size=(count, dimension))
    return np.asarray(normals / np.linalg.norm(normals, axis=1, keepdims=True))
