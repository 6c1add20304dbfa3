"""What a release costs, for the reports that arrived and the share of them that is honest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from beam_ldp.accounting import PrivacyBound, event_epsilon
from beam_ldp.accounting.reports import crowd_of, hidden_users, with_crowd
from beam_ldp.accounting.shuffle.randomizer_events import shuffled_reports
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.transforms.blocks import Release


@dataclass(frozen=True)
class Price:
    """The central price of one release.

    Attributes:
        bound: proven upper value, with lower values and method; None in a simulation.
        priced_reports: honest reports of the smallest crowd: those that the price counts.
        ran: what was priced: a record of `beam_ldp.accounting.reports`, or a privacy event; None in
            a simulation.
    """

    bound: PrivacyBound | None
    priced_reports: int
    ran: Any = None

    @property
    def event(self) -> Any:
        """What was priced, as a `dp_accounting.DpEvent`, for ledgers."""
        from beam_ldp.accounting.events import as_event  # loads dp_accounting, a second

        return as_event(self.ran)


def price_of(release: Release, delta: float, honest_fraction: float) -> Price:
    """The price of what was received, not of what was expected."""
    if release.simulated or release.ran is None:
        return Price(None, hidden_users(release.smallest_batch, honest_fraction))
    return _price(release.ran, delta, honest_fraction)


def expected_price(
    randomizer: LocalRandomizer, num_reports: int, delta: float, honest_fraction: float
) -> Price:
    """The price if `num_reports` arrive."""
    return _price(shuffled_reports(randomizer, num_reports), delta, honest_fraction)


def _price(ran: Any, delta: float, honest_fraction: float) -> Price:
    crowd = hidden_users(crowd_of(ran), honest_fraction)
    priced = with_crowd(ran, crowd)
    return Price(event_epsilon(priced, delta), crowd, priced)


def price_as_json(price: Price) -> dict[str, Any]:
    """The price of one of several releases, for the record; null in a simulation."""
    bound = price.bound
    known = None if bound is None or not math.isfinite(bound) else float(bound)
    lower = None if bound is None or not bound.lower > 0 else float(bound.lower)
    return {"epsilon": known, "epsilon_lower": lower, "priced_reports": price.priced_reports}


def of_all_publications(
    facts: dict[str, Any], price: Price, local_epsilon: float, publication: int
) -> dict[str, Any]:
    """What a record says of parts: published before, each costs at most what all together cost.

    Which question a person of a cell answered is not counted, so a reader who knows it may see the
    report alone.
    """
    if publication == 1 or "parts" not in facts:
        return facts
    parts = tuple({**part, **price_as_json(price)} for part in facts["parts"])
    known = {} if facts.get("epsilon_if_known") is None else {"epsilon_if_known": local_epsilon}
    return {**facts, "parts": parts, **known}
