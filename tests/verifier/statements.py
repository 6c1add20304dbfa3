"""Statements of many kinds of releases, made without running them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import dp_accounting
import numpy as np

from beam_ldp.accounting import event_epsilon, shuffled_event
from beam_ldp.accounting.certificates import certified
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.accounting.events import CommittedDpEvent, as_event
from beam_ldp.accounting.reports import LocalReports, SampledReports, ShuffledMessages
from beam_ldp.accounting.shuffle.heterogeneous import mixed_shuffled_event
from beam_ldp.accounting.shuffle.one_release import local_event
from beam_ldp.randomizers.frequency import (
    BinaryHadamard,
    KRandomizedResponse,
    PairwiseIndependentRappor,
    SubsetSelection,
    UnaryEncoding,
)
from beam_ldp.randomizers.mean import BinaryVectorMean, L1Mean, ScalarMean
from beam_ldp.randomizers.shuffle_pair import ShufflePair

KINDS: tuple[tuple[Any, bool], ...] = (  # and whether it has a domain
    (KRandomizedResponse, True),
    (SubsetSelection, True),
    (UnaryEncoding, True),
    (partial(ScalarMean, 1.0), False),
    (BinaryHadamard, True),
    (PairwiseIndependentRappor, True),
)
LOPSIDED_EPSILON = math.log(6)
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
    return certified(stated)


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
            yield LocalReports(LOPSIDED_EPSILON, LOPSIDED).shuffled(reports), delta
            continue
        kind, domain = KINDS[at % len(KINDS)]
        yield shuffled_event(kind(size, budget) if domain else kind(budget), reports), delta


def attr_evolve(event: Any, num_fakes: int) -> Any:
    """The same release, of which so many reports may be fake."""
    return type(event)(event.local_event, event.num_reports, num_fakes)


def compositions(seed: int = 0) -> Iterator[tuple[str, Any, float]]:
    """Releases of several kinds together, by what people call them, with a delta; the cheap first.

    Seeds above 0 vary how many people there are.
    """
    more = np.random.default_rng(seed).uniform(1.0, 3.0) if seed else 1.0
    any_of = LocalReports(2.0)

    def people(count: int) -> int:
        return int(count * more)

    def rounds(event: Any, count: int) -> Any:
        return dp_accounting.SelfComposedDpEvent(as_event(event), count)

    yield "a server's noise", rounds(dp_accounting.GaussianDpEvent(20.0 * more), 10), 1e-6
    yield "rounds of everybody", rounds(any_of.shuffled(people(1_000_000)), 100), 1e-8
    yield "a vector", shuffled_event(BinaryVectorMean(8, 4.0), people(400_000)), 1e-6
    rated = SampledReports(any_of, people(600_000), people(20_000))
    yield "rounds of a sample", rounds(rated, 600), 1e-5
    coins = SampledReports(any_of, people(600_000), people(20_000), sampling="self")
    yield "rounds of coins", rounds(coins, 600), 1e-5
    lopsided = LocalReports(LOPSIDED_EPSILON, LOPSIDED).shuffled(people(300_000))
    yield "lopsided rounds", rounds(lopsided, 20), 1e-6
    asked = [shuffled_event(KRandomizedResponse(k, 1.0), people(300_000)) for k in (3, 4)]
    yield "two questions", dp_accounting.ComposedDpEvent(asked), 1e-6
    levels = shuffled_event(L1Mean(40, 6.0), people(200_000))
    yield "levels of blocks", levels, 1e-6
    noisy = [rounds(any_of.shuffled(people(200_000)), 3), dp_accounting.GaussianDpEvent(40.0)]
    mixed = dp_accounting.ComposedDpEvent([*noisy, as_event(LocalReports(0.02)), levels])
    yield "all of them", mixed, 1e-6


def samples() -> Iterator[tuple[str, Any, float]]:
    """Releases of samples, of noise, and of reports that no crowd hides, by what people call them.

    Their events, but for a few, are so many equal rounds.
    """
    any_of, sampled = LocalReports(2.0), partial(SampledReports, LocalReports(2.0), 60_000, 2_000)

    def rounds(event: Any, count: int) -> Any:
        return dp_accounting.SelfComposedDpEvent(as_event(event), count)

    yield "local reports", rounds(LocalReports(0.1), 100), 1e-6
    yield "few local reports", rounds(LocalReports(1.0), 3), 1e-2
    answers = rounds(local_event(KRandomizedResponse(10, 1.0)), 30)
    yield "local answers", answers, 1e-6
    yield "a committed schedule", CommittedDpEvent(rounds(any_of.shuffled(300_000), 50), 1e-9), 1e-6
    yield "fakes in a sample", rounds(sampled(num_received=1_800, num_fakes=3_000), 600), 1e-5
    yield "a point of several", rounds(sampled(points_per_client=4), 600), 1e-5
    coins = sampled(points_per_client=4, sampling="poisson", num_fakes=100)
    yield "points by coins", rounds(coins, 600), 1e-5
    yield "epochs", rounds(sampled(sampling="shuffled_epochs"), 200), 1e-5
    lost = sampled(sampling="shuffled_epochs", num_received=1_900, num_fakes=50)
    yield "epochs that lost people", rounds(lost, 200), 1e-5
    part = sampled(sampling="shuffled_epochs", rounds=7, num_fakes=500)
    yield "parts of epochs", rounds(part, 20), 1e-5
    mixed = [(KRandomizedResponse(10, 1.0), 60_000), (KRandomizedResponse(10, 4.0), 40_000)]
    yield "several budgets", mixed_shuffled_event(mixed), 1e-6
    noise = dp_accounting.GaussianDpEvent(3.0)
    fixed = dp_accounting.SampledWithoutReplacementDpEvent(1000, 10, noise)
    yield "noise of a sample", rounds(fixed, 200), 1e-5
    poisson = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(0.8))
    yield "noise by coins", rounds(poisson, 1000), 1e-5


def rare_noise() -> tuple[Any, float]:
    """So few rounds of so small a sample that who is in one of them once makes all of the delta."""
    noise = dp_accounting.PoissonSampledDpEvent(0.002, dp_accounting.GaussianDpEvent(1.0))
    return dp_accounting.SelfComposedDpEvent(noise, 100), 1e-9


def bounded_length() -> Any:
    """A release whose price rests on the length of vectors, for which no certificate has a step."""
    return as_event(ShuffledMessages(((400, 0.5),), 10_000, squared_change=2.0))
