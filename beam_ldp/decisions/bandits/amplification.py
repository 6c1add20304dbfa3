"""Which local epsilon a shuffled batch may use, for a central target."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, get_args

from scipy.optimize import brentq

from beam_ldp.accounting.schedule_prices import feldman_2021_epsilon
from beam_ldp.accounting.shuffle.one_release import check_delta, check_epsilon
from beam_ldp.accounting.shuffle.solving import local_epsilon_for
from beam_ldp.decisions.bandits.noise import bit_randomizer
from beam_ldp.randomizers.checks import check_integer

Accountant = Literal["bit", "clones", "closed-form"]


@lru_cache(maxsize=4096)
def batch_epsilon(epsilon: float, delta: float, people: int, accountant: Accountant) -> float:
    """The largest local epsilon of reports of which `people` are shuffled; at least `epsilon`.

    Reports of a local epsilon cost no more than that once they are shuffled, so that small batches
    need no smaller one: the text's inverse alone asks for 0.46 where 1 does.

    People get their actions by a secret assignment, or have the same action. For bits, the pair of
    one bit holds over a batch of several actions too: given which reports are not of the blanket,
    the outcomes of one person at a uniform place change the density of the rest by a sum that is
    linear in them, with independent fair signs, so that the hockey-stick divergence is largest at
    outcomes of 1 against -1 whatever the signs. For other reports clones hold (each place may have
    a randomizer of its own).

    Args:
        epsilon: central target, > 0.
        delta: of it.
        people: reports that are shuffled with one another.
        accountant: "bit" for one-bit reports; "clones" for any; "closed-form" is the text's.

    Source: specification of linear bandits, sections 7.2 and 7.3.

    >>> [round(batch_epsilon(1.0, 1e-6, 1000, a), 3) for a in ("bit", "clones", "closed-form")]
    [3.271, 2.724, 1.414]
    """
    check_epsilon(epsilon)
    check_delta(delta)
    check_integer("people", people, 1)
    if accountant not in get_args(Accountant):
        allowed = ", ".join(get_args(Accountant))
        raise ValueError(f"accountant must be one of {allowed}, got {accountant!r}")
    if accountant == "closed-form":
        return _closed_form(epsilon, delta, people)
    return local_epsilon_for(
        epsilon, delta, people, bit_randomizer if accountant == "bit" else None
    )


def _closed_form(epsilon: float, delta: float, people: int) -> float:
    """Within the theorem's hypothesis, eps0 <= log(n / (16 log(4/delta))), which the text omits."""
    if delta == 0.0 or people <= 16 * math.log(4 / delta):
        return epsilon
    largest = math.log(people / (16 * math.log(4 / delta)))

    def excess(local_epsilon: float) -> float:
        return feldman_2021_epsilon(local_epsilon, people, delta) - epsilon

    if largest <= epsilon or excess(largest) <= 0:
        return max(epsilon, largest)
    return max(epsilon, float(brentq(excess, 1e-12, largest, xtol=1e-12)) * (1 - 1e-9))
