"""Methods side by side, the default price, and a mechanism of one's own."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from beam_ldp.accounting import ShuffleAccountant, shuffle_epsilon
from beam_ldp.accounting.schedule import Schedule
from beam_ldp.accounting.schedule_prices import schedule_epsilon
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.frequency import KRandomizedResponse, SubsetSelection
from beam_ldp.randomizers.shuffle_pair import ShufflePair, two_level_witnesses
from beam_ldp.research.published.methods import compare, solve_schedule

pytestmark = pytest.mark.exact

SAMPLED = Schedule(1.0, 5_000, 500, 40)


def test_order_of_the_lines():
    prices = compare(SAMPLED, 1e-6, conjectured=True)
    ranks = [
        "refused" if p.epsilon is None else p.kind if p.kind != "upper" else p.status
        for p in prices
    ]
    groups = list(dict.fromkeys(ranks))
    assert groups == ["proved", "conjectured", "lower", "approximation", "refused"]
    for group in groups[:4]:
        values = [p.epsilon for p, rank in zip(prices, ranks, strict=True) if rank == group]
        assert values == sorted(values, reverse=group == "lower")
    assert all(p.refused.startswith("needs ") for p in prices if p.epsilon is None)


def test_beside_every_sampled_figure_stands_the_one_for_who_sees_who_took_part():
    unsampled = {p.method: p.epsilon for p in compare(SAMPLED.seen, 1e-6)}
    for price in compare(SAMPLED, 1e-6):
        assert price.reader == "readers who cannot see who took part"
        if price.kind == "upper" and price.epsilon is not None:
            assert price.seen_epsilon is not None and price.seen_epsilon > 0
            if price.method in unsampled and unsampled[price.method] is not None:
                assert price.seen_epsilon == unsampled[price.method]


def test_every_method_is_announced():
    said: list[str] = []
    prices = compare(SAMPLED, 1e-6, say=said.append)
    assert sorted(said) == sorted(price.method for price in prices)


def test_default_price_is_the_smallest_proved_one():
    for schedule in (SAMPLED, Schedule(4.0, 20, 20, 2), Schedule(2.0, 10**5, 10**5, 1)):
        bound = schedule_epsilon(schedule, 1e-6)
        proved = [p.epsilon for p in compare(schedule, 1e-6) if p.kind == "upper" and p.epsilon]
        assert bound == pytest.approx(min(proved), rel=1e-6)
        assert 0 < bound.class_lower <= bound


def test_default_price_of_one_shuffle_is_that_of_the_library():
    oracle = KRandomizedResponse(1000, 4.0)
    bound = schedule_epsilon(Schedule(4.0, 10**5, 10**5, 1, randomizer=oracle), 1e-6)
    direct = shuffle_epsilon(oracle, 10**5, 1e-6)
    assert (bound, bound.lower, bound.class_lower) == pytest.approx(
        (direct, direct.lower, direct.class_lower), rel=1e-9
    )


def test_default_price_agrees_with_the_accountant():
    accountant = ShuffleAccountant().compose(SAMPLED.event(), SAMPLED.rounds)
    assert schedule_epsilon(SAMPLED, 1e-6) == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-3)


@pytest.mark.parametrize("sampling", ["self", "poisson"])
def test_coins_cost_what_samples_of_that_size_cost(sampling):
    coins = Schedule(1.0, 5_000, 500, 40, sampling=sampling)
    found, fixed = schedule_epsilon(coins, 1e-6), schedule_epsilon(SAMPLED, 1e-6)
    assert found == pytest.approx(fixed, rel=1e-4)
    assert found.class_lower == pytest.approx(fixed.class_lower, rel=2e-2)


def test_solver_returns_the_end_that_fits_whole():
    assert solve_schedule(5.0, 1e-6, lambda e: Schedule(e, 10**6, 10**6, 1), 0.1, 2.0) == 2.0
    with pytest.raises(ValueError, match=r"is exceeded even at 0\.1"):
        solve_schedule(0.01, 1e-6, lambda e: Schedule(e, 5, 5, 1), 0.1, 2.0)


# A mechanism of one's own -------------------------------------------------------------------


@dataclass(frozen=True)
class YesNo(FrequencyOracle):
    """Answers 0 or 1 and lies with the probability that its budget asks for; no more is said."""

    bits_per_report, report_dtype, statistic_shape = 1, np.dtype(np.uint8), (2,)

    @property
    def support_probabilities(self) -> tuple[float, float]:
        lie = math.ceil(2.0**64 / (1 + math.exp(self.local_epsilon))) / 2**64
        return 1 - lie, lie

    def log_ratio_max(self) -> float:
        truth, lie = self.support_probabilities
        return math.log(truth / lie)

    def _randomize_block(self, values, words, extra, reports):
        threshold = np.uint64(math.ceil(self.support_probabilities[1] * 2**64))
        reports[:] = values ^ (words[:, 0] < threshold)

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        return np.bincount(reports, minlength=2)


class OfUnknownOutputs(KRandomizedResponse):
    """Binary response that does not say that a report is a bit, which would be priced as one."""

    sends_bits = False


class Described(YesNo):
    """The same with the pair that its author proved, and two data sets."""

    def dominating_pair(self) -> ShufflePair:
        return ShufflePair.two_level(math.exp(self.log_ratio_max()), 1 / 2, 0.0, "two answers")

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        return two_level_witnesses(math.exp(self.log_ratio_max()), 1 / 2, 0.0)


class Hoped(YesNo):
    """The same with a pair that its author only believes in."""

    def dominating_pair(self) -> ShufflePair:
        ratio = math.exp(self.log_ratio_max())
        return ShufflePair.two_level(ratio, 1 / 2, 0.0, "hoped", proof_status="conjectured")


def test_without_a_pair_of_its_own_it_is_priced_by_its_epsilon():
    plain = schedule_epsilon(SAMPLED, 1e-6)
    for own in (YesNo(2, 1.0), Hoped(2, 1.0)):
        assert schedule_epsilon(replace(SAMPLED, randomizer=own), 1e-6) == plain
    refused = next(
        p
        for p in compare(replace(SAMPLED, randomizer=Hoped(2, 1.0)), 1e-6)
        if p.method == "own pair, privacy losses"
    )
    assert refused.epsilon is None and refused.refused == "needs a pair that is proved"


@pytest.mark.parametrize(("drawn", "rounds"), [(5_000, 1), (500, 40)])
def test_with_a_proved_pair_every_own_method_applies(drawn, rounds):
    schedule = Schedule(1.0, 5_000, drawn, rounds, randomizer=Described(2, 1.0))
    mine = schedule_epsilon(schedule, 1e-6)
    known = schedule_epsilon(replace(schedule, randomizer=OfUnknownOutputs(2, 1.0)), 1e-6)
    assert mine == pytest.approx(known, rel=1e-6) and mine.method == "own pair, privacy losses"
    assert 0 < mine.lower == pytest.approx(known.lower, rel=1e-6)
    prices = {p.method: p.epsilon for p in compare(schedule, 1e-6)}
    for name in ("own pair, Rényi orders", "own data sets", "Gaussian limit of this mechanism"):
        assert prices[name] is not None
    assert prices["strong clone pair, privacy losses"] == pytest.approx(mine, rel=1e-6)


def test_own_methods_lie_below_those_of_the_class():
    oracle = SubsetSelection(100, 2.0)
    prices = {p.method: p.epsilon for p in compare(
        Schedule(2.0, 10**4, 10**3, 50, randomizer=oracle), 1e-6)}  # fmt: skip
    assert prices["own pair, privacy losses"] < prices["own pair, Rényi orders"]
    assert prices["own pair, Rényi orders"] < prices["clone pair, Rényi orders"]
    assert prices["Gaussian limit of this mechanism"] < prices["own pair, privacy losses"]
