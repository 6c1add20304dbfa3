"""Contexts: a choice may depend on what only its person knows, and still be a linear bandit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_ldp.decisions.bandits.client import TIE
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Kind = Literal["finite", "sampled"]

_REFUSED = {
    "unknown": "nobody can say what a policy is worth without their law; without one, regret of "
    "order sqrt(T)/epsilon (central) and T^(3/4)/epsilon (local) is the best that is known, by "
    "other algorithms that see contexts",
    "adversarial": "a policy has no expected reward where each context may be chosen after what "
    "was shown before",
}
_BLOCK = 4_000_000  # scores at a time


@dataclass(frozen=True, eq=False)
class ContextLaw:
    """The public law of contexts, of which every person's is an independent draw.

    Attributes:
        features: (C, A, d) of each context and choice, each of length 1 at most. A context with
            fewer choices repeats its first one, which is then never chosen twice.
        chances: (C,) probabilities of the contexts; equal where they are draws.
        kind: "finite": these are all contexts, with their probabilities. "sampled": they are
            independent draws from a law, of public data. Contexts whose law is "unknown", or which
            are "adversarial", are refused.

    Source: specification of linear bandits, section 9.
    """

    features: Floats
    chances: Floats
    kind: Kind

    def __post_init__(self) -> None:
        if self.kind in _REFUSED:
            raise ValueError(f'contexts whose law is "{self.kind}" are not served: '
                             f"{_REFUSED[self.kind]}")  # fmt: skip
        if self.kind not in get_args(Kind):
            allowed = ", ".join(get_args(Kind))
            raise ValueError(f"kind must be one of {allowed}, got {self.kind!r}")
        features = np.asarray(self.features, dtype=np.float64)
        chances = np.asarray(self.chances, dtype=np.float64)
        if features.ndim != 3 or 0 in features.shape or not np.isfinite(features).all():
            raise ValueError(
                f"features must be finite, (contexts, choices, d), got {features.shape}"
            )
        if np.linalg.norm(features, axis=2).max() > 1 + 1e-9:
            raise ValueError("features must be of length 1 at most: divide all by the largest")
        if chances.shape != (len(features),) or not (chances >= 0).all():
            raise ValueError("chances must be a probability for each context")
        if not abs(float(chances.sum()) - 1) <= 1e-9:
            raise ValueError(f"chances must sum to 1, got {float(chances.sum())!r}")
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "chances", chances)

    @classmethod
    def finite(cls, features: ArrayLike, chances: ArrayLike) -> ContextLaw:
        """Contexts with their probabilities."""
        return cls(np.asarray(features), np.asarray(chances), "finite")

    @classmethod
    def sampled(cls, features: ArrayLike) -> ContextLaw:
        """Public draws of contexts."""
        found = np.asarray(features)
        return cls(found, np.full(len(found), 1 / max(1, len(found))), "sampled")

    @classmethod
    def drawn(
        cls, sampler: Callable[[np.random.Generator, int], ArrayLike], draws: int, seed: int = 0
    ) -> ContextLaw:
        """From a sampler of the law, which returns that many contexts' features.

        >>> law = ContextLaw.drawn(lambda rng, n: rng.uniform(-0.5, 0.5, (n, 3, 2)), draws=100)
        >>> law.features.shape, law.kind
        ((100, 3, 2), 'sampled')
        """
        count = check_integer("draws", draws, 2)
        return cls.sampled(sampler(np.random.default_rng(seed), count))

    @property
    def dimension(self) -> int:
        return int(self.features.shape[2])

    def split(self, first: int, seed: int) -> tuple[ContextLaw, ContextLaw]:
        """Two parts of independent draws, in random order; the law itself, twice, if it is known.

        What is chosen by one part is measured without bias by the other.

        Args:
            first: draws of the first part; half of all at most.
            seed: of the order, since files are often sorted.
        """
        if self.kind == "finite":
            return self, self
        if len(self.features) < 2:
            raise ValueError("draws of contexts must be two at least")
        order = np.random.default_rng(seed).permutation(len(self.features))
        size = min(first, len(order) // 2)
        return self.sampled(self.features[order[:size]]), self.sampled(self.features[order[size:]])

    def choices(self, thetas: Floats) -> Indices:
        """(K, C) what a person in each context chooses by each theta: the first of equal scores."""
        return choices(self.features, thetas)

    def rows(self, thetas: Floats) -> Floats:
        """(K, d) expected features of the choices by each theta, with equal or given chances.

        Complexity: O(K C A d).
        """
        rows = np.zeros((len(thetas), self.dimension))
        step = max(1, _BLOCK // self.features[..., 0].size)
        for begin in range(0, len(thetas), step):
            part = slice(begin, begin + step)
            picked = self.choices(thetas[part])
            for choice in range(self.features.shape[1]):
                rows[part] += ((picked == choice) * self.chances) @ self.features[:, choice]
        return rows

    def row_error(self, num_rows: int, failure: float) -> float:
        """How far each of `num_rows` rows may be from the true expectation; 0 of a known law.

        All are within it but for a probability of `failure`, where thetas do not depend on these
        draws: the distance of a mean of M independent vectors of length 1 at most is 1/sqrt(M) at
        most in expectation, and one draw moves it by 2/M at most (McDiarmid).
        """
        check_fraction("failure", failure, "()")
        if self.kind == "finite":
            return 0.0
        rooms = math.sqrt(2 * math.log(num_rows / failure))
        return (1 + rooms) / math.sqrt(len(self.features))


def choices(features: Floats, thetas: Floats) -> Indices:
    """(K, C) as `client.choose`, of (C, A, d) features and (K, d) thetas at once."""
    scores = np.moveaxis(features @ thetas.T, -1, 0)  # (K, C, A)
    best = scores.max(axis=2, keepdims=True)
    return np.argmax(scores >= best - TIE * np.maximum(1.0, np.abs(best)), axis=2)


# Policies -----------------------------------------------------------------------------------------


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
