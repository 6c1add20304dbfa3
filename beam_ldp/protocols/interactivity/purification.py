"""Below which delta an approximate protocol could be a pure one: a calculator, and no conversion.

Asking everybody once, and the compositionality k, are about pure epsilon. A published lemma says
that a sequentially interactive protocol with a tiny delta is as good as a pure one of ten times the
epsilon. Nothing here runs that protocol, and the lemma's constants are taken from the text.

Source: Joseph, Mao, Neel and Roth, Lemma 5.2, imported there from Bun, Nelson and Stemmer and from
Cheu et al.; specification of interactivity, section 2.3.
"""

from __future__ import annotations

import math

from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive


def largest_purifiable_delta(people: int, epsilon: float, beta: float) -> float:
    """The delta below which a pure protocol of local epsilon 10 epsilon does the same.

    The transcripts of both are within a total variation of `beta`.

    Args:
        people: of the protocol, each of whom is asked once.
        epsilon: local epsilon beside delta.
        beta: total variation that is allowed, below 1.

    >>> print(f"{largest_purifiable_delta(10_000, 1.0, 0.01):.2g}")
    1e-12
    """
    check_integer("people", people, 1)
    check_positive("epsilon", epsilon)
    check_fraction("beta", beta)
    return min(
        epsilon * beta / (48 * people * math.log(2 * people / beta)),
        beta / (64 * people * math.log(people / beta) * math.exp(7 * epsilon)),
    )
