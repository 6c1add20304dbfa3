"""People who take part by a coin of their own.

Whoever stays away is like somebody who reports that they were absent: the batch of those who came
is a full shuffle of everybody, of a randomizer that says "absent" with the coin's probability. How
many came is visible, depends on nobody's value, and needs no failure probability beside delta (as
in thesis, Theorem 4.4.1): the price is exactly the average over the number of participants.
"""

from __future__ import annotations

from beam_ldp.randomizers.shuffle_pair import ShufflePair


def thinned(pair: ShufflePair, join: float) -> ShufflePair:
    """The pair of a randomizer whose report arrives with probability `join`, and else is absent.

    Being absent belongs to the blanket, whole: it is equally likely for every value. Of a witness
    it makes a witness.

    Args:
        pair: Dominating pair or witness of the randomizer itself.
        join: In (0, 1].

    >>> half = thinned(ShufflePair.clones(1.0), 0.5)
    >>> round(half.blanket_mass, 4), [(round(a, 3), round(b, 3)) for a, b in half.ratios]
    (0.6839, [(2.718, 1.0), (1.0, 2.718), (0.684, 0.684)])
    """
    if not 0.0 < join <= 1.0:
        raise ValueError(f"join must be in (0, 1], got {join!r}")
    if join == 1.0:
        return pair
    blended = join * pair.blanket_mass
    mass = 1.0 if pair.is_witness else blended + (1.0 - join)
    scale = mass / pair.blanket_mass
    return ShufflePair(
        mass,
        (*((scale * first, scale * second) for first, second in pair.ratios), (mass, mass)),
        (*(p * blended / mass for p in pair.probabilities), (1.0 - join) / mass),
        pair.proof_status,
        pair.source,
    )
