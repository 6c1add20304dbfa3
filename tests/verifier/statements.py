"""Statements of many kinds of releases, made without running them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from beam_ldp.accounting import event_epsilon, shuffled_event
from beam_ldp.accounting.certificates import certificate_for
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.accounting.reports import LocalReports
from beam_ldp.randomizers.frequency import (
    BinaryHadamard,
    KRandomizedResponse,
    PairwiseIndependentRappor,
    SubsetSelection,
    UnaryEncoding,
)
from beam_ldp.randomizers.mean import BinaryVectorMean, ScalarMean
from beam_ldp.randomizers.shuffle_pair import ShufflePair

KINDS: tuple[tuple[Any, bool], ...] = (  # and whether it has a domain
    (KRandomizedResponse, True),
    (SubsetSelection, True),
    (UnaryEncoding, True),
    (partial(ScalarMean, 1.0), False),
    (BinaryHadamard, True),
    (PairwiseIndependentRappor, True),
)
LOPSIDED = ShufflePair(0.5, ((3, 0.5), (0.5, 2.5), (0.5, 2 / 3)), (0.2, 0.2, 0.6))
IDENTITY = "5e" * 32


def statement(event: Any, delta: float, identity: str = IDENTITY) -> dict[str, Any]:
    """What a record says of a release, with its certificate."""
    stated = {
        "epsilon": float(event_epsilon(event, delta)),
        "delta": delta,
        "proof_status": "proved",
        "event": event_to_json(event),
        "identity_digest": identity,
        "num_reports": getattr(event, "num_reports", None),
    }
    return {**stated, "certificate": certificate_for(stated)}


def events(count: int, seed: int = 0) -> Iterator[tuple[Any, float]]:
    """Releases of every kind of pair, with a delta: any randomizer's, two levels, bits, groups."""
    draw = np.random.default_rng(seed)
    for at in range(count):
        budget = float(np.round(draw.uniform(0.3, 4.0), 3))
        reports = int(10 ** draw.uniform(3.5, 7.0))
        size = int(draw.integers(2, 300))
        delta = float(f"{10 ** -draw.uniform(4, 9):.2g}")
        if at % 5 == 0:
            fakes = int(reports * draw.uniform(0, 0.3))
            yield attr_evolve(LocalReports(budget).shuffled(reports), fakes), delta
            continue
        if at % 5 == 1:  # one that is not its own mirror image
            yield LocalReports(1.8, LOPSIDED).shuffled(reports), delta
            continue
        kind, domain = KINDS[at % len(KINDS)]
        yield shuffled_event(kind(size, budget) if domain else kind(budget), reports), delta


def attr_evolve(event: Any, num_fakes: int) -> Any:
    """The same release, of which so many reports may be fake."""
    return type(event)(event.local_event, event.num_reports, num_fakes)


def several_messages() -> Any:
    """A release of several messages per person, which no certificate is defined for."""
    return shuffled_event(BinaryVectorMean(8, 4.0), 50_000)
