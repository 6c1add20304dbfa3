"""What a release of two rounds costs, from the prices of its rounds.

Prices of rounds that everybody answers add up, whatever the second learned from the first:
(epsilon1, delta1) and (epsilon2, delta2) compose to their sums. A person who answers one round
pays for that one.
"""

from __future__ import annotations

from typing import NamedTuple

from beam_ldp.accounting import PrivacyBound, event_epsilon
from beam_ldp.protocols.user_means import UserMean

SEARCH_DELTA = 0.01  # share of delta that pays for round one, where everybody answers both
_LOCAL = "no credit for shuffling"


class RoundPrice(NamedTuple):
    """What one round costs to a person who takes part in it: epsilon at delta."""

    epsilon: PrivacyBound
    delta: float


class UserMeanPrice(NamedTuple):
    """The price of a release, and of its rounds in their order.

    Attributes:
        total: of the dearest person, at the whole delta.
        rounds: one entry, or two.
    """

    total: PrivacyBound
    rounds: tuple[RoundPrice, ...]


def user_mean_price(
    protocol: UserMean, search_crowd: int, final_reports: int, delta: float
) -> UserMeanPrice:
    """A proved upper bound for the price of both rounds.

    Protects all rows of one person (replace-one) against whoever sees everything that left the
    shuffler in both rounds; in the local model, whoever sees the reports.

    Args:
        protocol: the plan.
        search_crowd: people among whom a report of round one hides: the fewest of any coordinate.
        final_reports: people among whom one of round two hides.
        delta: in (0, 1); not used in the local model.
    """
    if protocol.model == "local":
        return _local(protocol)
    first, second = protocol.round_events(search_crowd, final_reports)
    if first is None:
        only = RoundPrice(event_epsilon(second, delta), delta)
        return UserMeanPrice(only.epsilon, (only,))
    together = protocol.split == "budget"
    shares = (SEARCH_DELTA * delta, delta - SEARCH_DELTA * delta) if together else (delta, delta)
    rounds = tuple(
        RoundPrice(event_epsilon(event, share), share)
        for event, share in zip((first, second), shares)
    )
    if not together:
        return UserMeanPrice(max(one.epsilon for one in rounds), rounds)
    total = PrivacyBound(
        min(sum(one.epsilon for one in rounds), protocol.local_epsilon),
        lower=event_epsilon(second, delta).lower,
        method="prices of both rounds added up",
        proof_status=_weakest(rounds),
        lower_method="round two alone",
    )
    return UserMeanPrice(total, rounds)


def _local(protocol: UserMean) -> UserMeanPrice:
    searching = [] if protocol.search is None else [protocol.search.local_epsilon]
    budgets = [*searching, protocol.final.local_epsilon]
    rounds = tuple(RoundPrice(_promise(budget), 0.0) for budget in budgets)
    return UserMeanPrice(_promise(protocol.local_epsilon), rounds)


def _promise(local_epsilon: float) -> PrivacyBound:
    return PrivacyBound(local_epsilon, method=_LOCAL, lower_method=_LOCAL)


def _weakest(rounds: tuple[RoundPrice, ...]) -> str:
    proved = all(one.epsilon.proof_status == "proved" for one in rounds)
    return "proved" if proved else "conjectured"
