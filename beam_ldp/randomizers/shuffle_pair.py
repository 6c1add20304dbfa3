"""What a randomizer tells the accountant: how well it hides inside a crowd.

A shuffled batch shows which reports arrived, not who sent them. What that is worth depends on the
randomizer only through a small table, and this module is that table.

**Dominating pair** (`dominating_pair()`; gives upper bounds). Every user's report law contains a
common part, the *blanket*: `R_z >= blanket_mass * w` for every value `z`, with one law `w` on the
reports. So each of the other `n - 1` people independently sends a draw from `w` with probability
`blanket_mass` (what they send otherwise is given away to the reader), and the victim hides among
those draws. For the worst pair of values `(x, x')`, a draw `y ~ w` has
`(R_x(y) / w(y), R_x'(y) / w(y)) = ratios[i]` with probability `probabilities[i]`. The best choice
is `w` proportional to `min_z R_z`; anything below it is valid and only costs tightness.

**Witness pairs** (`witness_pairs()`, optional; gives lower bounds). A concrete pair of data sets:
all other people hold one value `z`, the victim holds `x` or `x'`. That is the same table with
`w = R_z` and `blanket_mass = 1.0`. A randomizer returns a tuple of such pairs, one for each
interesting `(x, x', z)`: usually one with `z = x'` and one where `z` is a third value. The
accountant tries each in both directions, so `(x, x')` and `(x', x)` need not both be listed.

Two-level randomizers (each value has a set of reports that it favours, at one common probability
ratio) say their `TwoLevels`, of which both are built; small dense channels build them with
`ShufflePair.from_channel` and `witness_from_channel`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_ldp.randomizers.checks import check_fraction, check_positive

ProofStatus = Literal["proved", "conjectured"]

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class ShufflePair:
    """A blanket and the likelihood ratios of one pair of values against it.

    Attributes:
        blanket_mass: Probability, in (0, 1], with which another person's report is a draw from the
            blanket law. Exactly 1.0 marks a witness (the blanket is what everybody else sends).
        ratios: The distinct values of `(R_x(y) / w(y), R_x'(y) / w(y))`.
        probabilities: The probability of each of them under `y ~ w`.
        proof_status: `"proved"` if the pair dominates every pair of values of the mechanism it is
            given for, `"conjectured"` if no counterexample is known. The accountant ignores
            conjectured pairs unless asked for them.
        source: Where the pair comes from, in a few words; printed as the method.
        mixed: Where the others have randomizers of other budgets above the same blanket, for how
            many of them the mass stands; it may then be more than the victim's report holds. Else
            0: it is that of everybody.

    Raises:
        ValueError: If the table is not that of two probability laws above a common blanket.

    >>> pair = ShufflePair.clones(1.0)
    >>> round(pair.blanket_mass, 4), len(pair.ratios)
    (0.3679, 2)
    """

    blanket_mass: float
    ratios: tuple[tuple[float, float], ...]
    probabilities: tuple[float, ...]
    proof_status: ProofStatus = "proved"
    source: str = ""
    mixed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "blanket_mass", float(self.blanket_mass))
        ratios = tuple((float(first), float(second)) for first, second in self.ratios)
        probabilities = tuple(float(p) for p in self.probabilities)
        object.__setattr__(self, "ratios", ratios)
        object.__setattr__(self, "probabilities", probabilities)
        check_fraction("blanket_mass", self.blanket_mass, "(]")
        if not ratios or len(ratios) != len(probabilities):
            raise ValueError(
                "ratios and probabilities must be non-empty and of equal length, "
                f"got {len(ratios)} and {len(probabilities)}"
            )
        if not all(p >= 0.0 for p in probabilities):
            raise ValueError("probabilities must be >= 0")
        if not abs(math.fsum(probabilities) - 1.0) <= _TOLERANCE:
            raise ValueError(f"probabilities must sum to 1, got {math.fsum(probabilities)!r}")
        if not all(0.0 <= r < math.inf for both in ratios for r in both):
            raise ValueError("ratios must be finite and >= 0")
        for side in (0, 1):
            mean = math.fsum(p * r[side] for p, r in zip(probabilities, ratios, strict=True))
            if not abs(mean - 1.0) <= _TOLERANCE:
                raise ValueError(
                    f"ratios must have mean 1 under the blanket law on both sides, got {mean!r}"
                )
        least = min(min(both) for p, both in zip(probabilities, ratios, strict=True) if p > 0.0)
        if not (self.is_witness or self.mixed) and least < self.blanket_mass * (1.0 - _TOLERANCE):
            raise ValueError(
                "ratios must be >= blanket_mass (a report law contains the blanket), "
                f"got {least!r} < {self.blanket_mass!r}"
            )
        if self.proof_status not in ("proved", "conjectured"):
            raise ValueError(
                f"proof_status must be 'proved' or 'conjectured', got {self.proof_status!r}"
            )

    @property
    def is_witness(self) -> bool:
        """Whether the blanket is the whole report law of everybody else."""
        return self.blanket_mass == 1.0

    @property
    def log_ratio_max(self) -> float:
        """What a report tells of the two values before any shuffle: log of their largest ratio."""
        told = [both for both, p in zip(self.ratios, self.probabilities, strict=True) if p > 0.0]
        if any((first == 0.0) != (second == 0.0) for first, second in told):
            return math.inf
        return max(
            (abs(math.log(first) - math.log(second)) for first, second in told if first > 0.0),
            default=0.0,
        )

    def check_local_epsilon(self, local_epsilon: float) -> None:
        """Refuse a budget that this pair exceeds, up to the rounding of its table.

        Raises:
            ValueError: if a report tells more of the two values than `local_epsilon`.
        """
        if not self.log_ratio_max <= local_epsilon + _TOLERANCE * max(1.0, local_epsilon):
            raise ValueError(
                f"local_epsilon must be at least {self.log_ratio_max:.9g}, what one report tells "
                f"by its pair ({self.source or 'no source'}), got {local_epsilon!r}"
            )

    def swapped(self) -> ShufflePair:
        """The same table with the two values exchanged (the other direction of the divergence)."""
        return ShufflePair(
            self.blanket_mass,
            tuple((second, first) for first, second in self.ratios),
            self.probabilities,
            self.proof_status,
            self.source,
            self.mixed,
        )

    @classmethod
    def clones(cls, local_epsilon: float, strong: bool = False) -> ShufflePair:
        """The pair that holds for every local randomizer with this `local_epsilon`.

        With `strong=False` others blend in with probability `exp(-local_epsilon)` (Feldman,
        McMillan and Talwar, 2021): proved for every local randomizer. With `strong=True` it is
        `2 / (exp(local_epsilon) + 1)`, which is proved for some mechanisms only and here labelled
        conjectured; a mechanism for which it is proved gives its own pair (`two_level` with
        disjoint supports of one half each is that pair).
        """
        check_positive("local_epsilon", local_epsilon)
        low = 2.0 / (math.exp(local_epsilon) + 1.0)
        high = 2.0 / (math.exp(-local_epsilon) + 1.0)
        return cls(
            blanket_mass=low if strong else math.exp(-local_epsilon),
            ratios=((high, low), (low, high)),
            probabilities=(0.5, 0.5),
            proof_status="conjectured" if strong else "proved",
            source="strong clones" if strong else "clones",
        )

    @classmethod
    def two_level(
        cls,
        likelihood_ratio: float,
        support: float,
        overlap: float,
        source: str,
        proof_status: ProofStatus = "proved",
    ) -> ShufflePair:
        """The dominating pair of a randomizer with two probability levels.

        Every value `x` favours a set `S_x` of reports: a report in `S_x` is `likelihood_ratio`
        times as probable as one outside. All sets are of one size. The blanket is the uniform law.

        Args:
            likelihood_ratio: Probability inside over probability outside, as implemented; > 1.
            support: `|S_x|` over the number of reports, in (0, 1).
            overlap: The least `|S_x & S_x'|` over the number of reports, over pairs of values (the
                less two sets share, the better two values can be told apart).
            source: The method's name.
            proof_status: Leave it unless the sets are not what is said above.

        >>> from math import exp
        >>> krr = ShufflePair.two_level(exp(4.0), 1 / 1000, 0.0, "k-RR's own blanket")
        >>> round(krr.blanket_mass, 6)
        0.949128
        """
        _check_two_level(likelihood_ratio, support, overlap)
        low = 1.0 / (1.0 + (likelihood_ratio - 1.0) * support)
        high = likelihood_ratio * low
        rest = max(0.0, 1.0 - 2.0 * support + overlap)
        only = support - overlap
        table = (
            ((high, low), only),
            ((low, high), only),
            ((low, low), rest),
            ((high, high), overlap),
        )
        return cls(
            low,
            tuple(both for both, p in table if p > 0.0),
            tuple(p for _, p in table if p > 0.0),
            proof_status,
            source,
        )

    @classmethod
    def from_channel(
        cls,
        channel: ArrayLike,
        first: int,
        second: int,
        source: str,
        proof_status: ProofStatus = "proved",
    ) -> ShufflePair:
        """The pair of two columns of a channel against its best blanket, `min_z R_z`.

        Args:
            channel: `P(report | value)`, shape (reports, values), float64; columns sum to 1.
            first: Column of `x`.
            second: Column of `x'`. The caller answers for this pair being the worst one (any pair
                will do for a channel that is symmetric under permutations of the values).
            source: The method's name.
            proof_status: `"conjectured"` where the worst pair is not known.
        """
        table = _check_channel(channel)
        blanket = table.min(axis=1)
        mass = float(blanket.sum())
        if mass <= 0.0:
            raise ValueError("channel must give some report to every value (a finite epsilon)")
        law = blanket / mass
        return cls(min(mass, 1.0), *_merge(table, law, first, second), proof_status, source)


class TwoLevels(NamedTuple):
    """A law of two levels above a uniform blanket, in the terms of `ShufflePair.two_level`.

    Attributes:
        ratio: the most that the implemented levels differ by.
        support: share of the reports that a value favours.
        overlap: share that two values favour at once, at least.
        source: the method's name.
        attained: what the levels differ by at least, for lower bounds; None: `ratio`.
    """

    ratio: float
    support: float
    overlap: float
    source: str
    attained: float | None = None


def two_level_witnesses(
    likelihood_ratio: float,
    support: float,
    overlap: float,
    triple_overlaps: Iterable[float] = (),
) -> tuple[ShufflePair, ...]:
    """Concrete pairs of data sets for a two-level randomizer (see `ShufflePair.two_level`).

    Args:
        likelihood_ratio: As in `ShufflePair.two_level`.
        support: As there.
        overlap: `|S_x & S_x'|` over the number of reports; for the third value also
            `|S_x & S_z|` and `|S_x' & S_z|`, all three equal.
        triple_overlaps: `|S_x & S_x' & S_z|` over the number of reports, one for each kind of third
            value that exists (0.0 for k-ary randomized response with k >= 3; leave it empty where
            there is no third value).

    Returns:
        One witness where the others hold `x'`, then one per triple overlap.

    >>> two, three = two_level_witnesses(3.0, 1 / 3, 0.0, (0.0,))
    >>> [round(first, 3) for first, _ in two.ratios], [round(p, 3) for p in two.probabilities]
    ([3.0, 0.333, 1.0], [0.2, 0.6, 0.2])
    """
    _check_two_level(likelihood_ratio, support, overlap)
    ratio = likelihood_ratio
    low = 1.0 / (1.0 + (ratio - 1.0) * support)
    high = ratio * low
    only = support - overlap
    same = max(0.0, 1.0 - 2.0 * support + overlap) * low + overlap * high
    two = _witness(
        [((ratio, 1.0), only * low), ((1.0 / ratio, 1.0), only * high), ((1.0, 1.0), same)],
        "others hold one of the two values",
    )
    third = (_third_value(ratio, low, support, overlap, triple) for triple in triple_overlaps)
    return (two, *third)


def _third_value(
    ratio: float, low: float, support: float, overlap: float, triple: float
) -> ShufflePair:
    """The witness where all others hold a third value, which overlaps the two by `triple`."""
    pairwise = overlap - triple
    single = support - 2.0 * overlap + triple
    none = 1.0 - 3.0 * support + 3.0 * overlap - triple
    if min(pairwise, single, none) < -_TOLERANCE or triple < 0.0:
        raise ValueError(f"triple_overlaps must fit support and overlap, got {triple!r}")
    up, down, high = ratio, 1.0 / ratio, ratio * low
    return _witness(
        [
            ((1.0, 1.0), none * low),
            ((up, 1.0), single * low),
            ((1.0, up), single * low),
            ((up, up), pairwise * low),
            ((down, down), single * high),
            ((1.0, down), pairwise * high),
            ((down, 1.0), pairwise * high),
            ((1.0, 1.0), triple * high),
        ],
        "others hold a third value",
    )


def witness_from_channel(channel: ArrayLike, first: int, second: int, others: int) -> ShufflePair:
    """The concrete pair of data sets where all others hold the value of column `others`.

    Args:
        channel: `P(report | value)`, shape (reports, values), float64; columns sum to 1.
        first: Column of the victim's value.
        second: Column of the value it is exchanged for.
        others: Column of everybody else's value; may equal `first` or `second`.
    """
    table = _check_channel(channel)
    law = table[:, others]
    if np.any((law <= 0.0) & (table[:, first] + table[:, second] > 0.0)):
        raise ValueError("channel must give every report of the pair to the others' value too")
    return ShufflePair(
        1.0,
        *_merge(table, law, first, second),
        "proved",
        "others hold one of the two values"
        if others in (first, second)
        else "others hold a third value",
    )


def _witness(table: list[tuple[tuple[float, float], float]], source: str) -> ShufflePair:
    merged: dict[tuple[float, float], float] = {}
    for both, probability in table:
        if probability > 0.0:
            merged[both] = merged.get(both, 0.0) + probability
    return ShufflePair(1.0, tuple(merged), tuple(merged.values()), "proved", source)


def _check_two_level(likelihood_ratio: float, support: float, overlap: float) -> None:
    if not (math.isfinite(likelihood_ratio) and likelihood_ratio > 1.0):
        raise ValueError(f"likelihood_ratio must be finite and > 1, got {likelihood_ratio!r}")
    check_fraction("support", support)
    least = max(0.0, 2.0 * support - 1.0)
    if not least - _TOLERANCE <= overlap <= support:
        raise ValueError(f"overlap must be in [{least!r}, {support!r}], got {overlap!r}")


def _check_channel(channel: ArrayLike) -> NDArray[np.float64]:
    table = np.asarray(channel, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < 2:
        raise ValueError(f"channel must have shape (reports, values >= 2), got shape {table.shape}")
    if not np.all(table >= 0.0) or not np.allclose(table.sum(axis=0), 1.0, atol=_TOLERANCE):
        raise ValueError("channel must have non-negative columns that sum to 1")
    return table


def _merge(
    table: NDArray[np.float64], law: NDArray[np.float64], first: int, second: int
) -> tuple[tuple[tuple[float, float], ...], tuple[float, ...]]:
    """Group the reports whose ratios agree to 12 digits (rounding noise of one level)."""
    kept = law > 0.0
    ratios = table[kept][:, [first, second]] / law[kept, None]
    with np.errstate(divide="ignore"):
        keys = np.where(ratios > 0.0, np.round(np.log(ratios), 12), -np.inf)
    _, where = np.unique(keys, axis=0, return_inverse=True)
    where = where.reshape(-1)
    mass = np.bincount(where, weights=law[kept])
    means = [np.bincount(where, weights=law[kept] * ratios[:, side]) / mass for side in (0, 1)]
    pairs = zip(means[0].tolist(), means[1].tolist(), strict=True)
    return tuple(pairs), tuple(mass.tolist())
