"""Intervals of frequencies: coverage by enumeration of every count, widths, and how they travel."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from beam_ldp.randomizers import Estimate, intervals
from beam_ldp.randomizers.contrasts import difference_of
from beam_ldp.randomizers.frequency import (
    BinaryHadamard,
    HadamardResponse,
    KRandomizedResponse,
    LimitedHadamard,
    LocalHashing,
    PairwiseIndependentRappor,
    ProjectiveGeometryResponse,
    Rappor,
    RecursiveHadamardResponse,
    SubsetSelection,
    UnaryEncoding,
)
from beam_ldp.randomizers.frequency_oracle import FrequencyOracle
from beam_ldp.randomizers.intervals import NORMAL, SupportRule, chance_of_more, pooled
from beam_ldp.randomizers.questions import OneQuestion

BUDGETS = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
ORACLES: dict[str, Callable[[float], FrequencyOracle]] = {
    "k-ary, 2": lambda e: KRandomizedResponse(2, e),
    "k-ary, 20": lambda e: KRandomizedResponse(20, e),
    "unary": lambda e: UnaryEncoding(20, e),
    "symmetric unary": lambda e: UnaryEncoding(20, e, optimized=False),
    "hashing": lambda e: LocalHashing(20, e),
    "pairwise": lambda e: PairwiseIndependentRappor(20, e),
    "subset": lambda e: SubsetSelection(20, e),
    "geometry": lambda e: ProjectiveGeometryResponse(20, e),
    "binary Hadamard": lambda e: BinaryHadamard(20, e),
}
SOME = [
    ORACLES[name](e) for name in ("k-ary, 2", "k-ary, 20", "unary") for e in (0.5, 2.0, 4.0, 8.0)
]


def laws(p: float, q: float, people: int, holders: range) -> np.ndarray:
    """How likely each number of supports is, for each number of people who hold the value."""
    turned = np.exp(-2j * np.pi * np.arange(people + 1) / (people + 1))
    held = np.asarray(holders)[:, None]
    spectrum = (1 - p + p * turned) ** held * (1 - q + q * turned) ** (people - held)
    return np.asarray(np.fft.ifft(spectrum, axis=1).real)


def covered(law: np.ndarray, truth: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """How often the interval of each outcome holds each truth."""
    holds = (low <= truth[:, None] + 1e-12) & (truth[:, None] <= high + 1e-12)
    return np.asarray((law * holds).sum(axis=1))


def plug_in(value: np.ndarray, people: int, p: float, q: float) -> tuple[np.ndarray, np.ndarray]:
    """What the normal approximation at the estimate says, within [0, 1]."""
    at = np.clip(value, 0, 1)
    error = np.sqrt((at * p * (1 - p) + (1 - at) * q * (1 - q)) / people) / (p - q)
    low, high = NORMAL.interval(value, error, 0.05)
    return np.clip(low, 0, 1), np.clip(high, 0, 1)


def enumerated(sizes: tuple[int, ...]) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    """Coverage at 95 % and widths over those of `plug_in` where that covers, for every count; and
    how many counts the normal approximation fails."""
    for make in ORACLES.values():
        for epsilon in BUDGETS:
            p, q = make(epsilon).support_probabilities
            for people in sizes:
                law, truth = laws(p, q, people, range(people + 1)), np.arange(people + 1) / people
                value = (truth - q) / (p - q)
                rule = SupportRule(people, people, (p, 0.0), (q, 0.0))
                low, high = rule.interval(value, value, 0.05)
                before = plug_in(value, people, p, q)
                cover = covered(law, truth, *before)
                wider = np.zeros(0)
                if cover.min() >= 0.94:
                    wider = (law @ (high - low)) / (law @ (before[1] - before[0]))
                yield covered(law, truth, low, high), wider, truth, int((cover < 0.94).sum())


def check(sizes: tuple[int, ...], cases: int, failed_before: int, least: float) -> None:
    found = list(enumerated(sizes))
    cover = np.concatenate([one for one, _, _, _ in found])
    assert len(cover) == cases
    assert sum(before for _, _, _, before in found) == failed_before
    assert cover.min() == pytest.approx(least, abs=2e-5) and cover.min() >= 0.94
    assert max(one.max(initial=0.0) for _, one, _, _ in found) <= 1.1125


@pytest.mark.exact
def test_every_count_of_few_people_is_covered():
    """Nine oracles, seven budgets, every count of 20, 30 and 50 people."""
    check((20, 30, 50), 6_489, 2_510, 0.94911)


@pytest.mark.exact
@pytest.mark.slow
def test_every_count_is_covered():
    """The same to 500 people: the 57,078 cases of which the normal approximation fails 8,198."""
    check((20, 30, 50, 100, 200, 500), 57_078, 8_198, 0.94497)


@pytest.mark.exact
@pytest.mark.slow
@pytest.mark.parametrize("people", [1000, 2000])
def test_every_count_of_more_people_is_covered(people):
    for cover, _, _, _ in enumerated((people,)):
        assert cover.min() >= 0.949


@pytest.mark.exact
@pytest.mark.parametrize("level", [0.9, 0.95, 0.99, 0.9999])
def test_other_levels_and_what_answers_are_a_draw_of(level):
    """Above 95 % coverage is the level at least: of these people, of a draw, of a population."""
    least = {0.9: 0.899, 0.95: 0.944}.get(level, level)
    for oracle in SOME:
        p, q = oracle.support_probabilities
        for answers in (20, 50) if level < 0.99 else (20,):
            law = laws(p, q, answers, range(answers + 1))
            value = (np.arange(answers + 1) / answers - q) / (p - q)
            for people in (answers, 60, None):
                rule = SupportRule(answers, people, (p, 0.0), (q, 0.0))
                ends = rule.interval(value, value, 1 - level)
                if people is None:
                    truth = np.append(np.linspace(0, 1, 21), [1e-3, 1e-2])
                    counts = np.arange(answers + 1)
                    of_truth = stats.binom.pmf(counts, answers, q + truth[:, None] * (p - q))
                else:
                    held = np.arange(people + 1)[:, None]
                    drawn = stats.hypergeom.pmf(np.arange(answers + 1), people, held, answers)
                    truth, of_truth = held[:, 0] / people, drawn @ law
                assert covered(of_truth, truth, *ends).min() >= least, (oracle, people)


@pytest.mark.exact
def test_tails_are_those_of_sums_of_binomials():
    for people, holders, p, q in (
        (1, 1, 0.5, 0.1), (3, 1, 0.99, 1e-4), (50, 2, 0.73, 0.27), (400, 40, 0.999, 0.01),
        (1000, 999, 0.5, 0.1),
    ):  # fmt: skip
        law = laws(p, q, people, range(holders, holders + 1))[0]
        exact = law[::-1].cumsum()[::-1]
        found = chance_of_more(
            np.arange(people + 1), [(holders, (p, 0.0)), (people - holders, (q, 0.0))]
        )
        told = (exact < 0.1) & (exact > 1e-8)
        np.testing.assert_allclose(found[told], exact[told], rtol=5e-6)
    # Of reports that all count +1 or -1 the sum is even or odd.
    found = chance_of_more(2 * np.arange(60, 80) - 100, [(40, (0.6, 0.4)), (60, (0.5, 0.5))])
    law = laws(0.6, 0.5, 100, range(40, 41))[0]
    np.testing.assert_allclose(found, law[::-1].cumsum()[::-1][60:80], rtol=5e-6)
    # Any number of reports, by `stats.binom.sf` of today's SciPy; the oldest errs by 2e-5 there.
    for people, tail in ((10**9, 2.869578094780851e-07), (10**12, 2.866611344060703e-07)):
        count = int(0.3 * people + 5 * np.sqrt(0.21 * people))
        found = chance_of_more(np.array([count]), [(people, (0.3, 0.0))])
        assert found[0] == pytest.approx(tail, rel=1e-8)


@pytest.mark.exact
@pytest.mark.parametrize("people", [10**6, 3 * 10**6, None])
def test_ends_between_those_that_were_solved_for(people, monkeypatch):
    """Many different counts: ends differ from exact ones by one person at most, never inward."""
    answers, (p, q) = 10**6, UnaryEncoding(20, 4.0).support_probabilities
    rng = np.random.default_rng(1)
    held = np.concatenate([np.zeros(3000, int), (rng.random(1000) ** 6 * answers).astype(int)])
    counts = rng.binomial(held, p) + rng.binomial(answers - held, q)
    value = (counts / answers - q) / (p - q)
    rule = SupportRule(answers, people, (p, 0.0), (q, 0.0))
    low, high = rule.interval(value, value, 1e-6)
    some = rng.integers(0, 4000, 100)
    assert len(np.unique(counts)) > 1000
    exact = rule.interval(value[some], value[some], 1e-6)
    one, width = 1 / (people or answers), (exact[1] - exact[0]).max()
    assert (np.abs(low[some] - exact[0]) < 1.01 * one + 1e-3 * width).all()
    assert (np.abs(high[some] - exact[1]) < 1.01 * one + 1e-3 * width).all()
    assert (low[some] <= exact[0] + 1e-3 * width).all()


@pytest.mark.statistical
@pytest.mark.parametrize("kind", [HadamardResponse, RecursiveHadamardResponse])
def test_blocks_of_hadamard_responses(kind):
    """10,000 draws of 64 settings; below 94 % by chance, of 94.5 %, once in 50 runs of all: 93.5 %
    is 4 deviations away, and the normal approximation falls to 76 %. At 99 % within 98.3 %."""
    rng, before = np.random.default_rng(3), 1.0
    for epsilon in (0.5, 4.0):
        oracle = kind(20, epsilon)
        rule = oracle._interval_rule(np.zeros(oracle.num_symbols, int), 20, "fixed")
        (u, down), (q, _) = rule.own, rule.others
        for people in (20, 200):
            for held in (0, 1, people // 2, people - 1):
                for of_block in (0.0, 0.5):
                    rest = int((people - held) * of_block)
                    groups = (
                        (held, u, down), (rest, (u + down) / 2, (u + down) / 2),
                        (people - held - rest, q, q),
                    )  # fmt: skip
                    count, seen = np.zeros(10_000, int), np.zeros(10_000, int)
                    for size, up, below in groups:
                        none = max(0.0, 1 - up - below)
                        whole = up + below + none
                        drawn = rng.multinomial(
                            size, [up / whole, below / whole, none / whole], 10_000
                        )
                        count += drawn[:, 0] - drawn[:, 1]
                        seen += drawn[:, 0] + drawn[:, 1]
                    value, truth = count / (people * (u - down)), held / people
                    found = replace(rule, answers=people, people=people, on_block=seen)
                    for miss, least in ((0.05, 0.935), (0.01, 0.983)):
                        low, high = found.interval(value, value, miss)
                        inside = (low <= truth + 1e-12) & (truth <= high + 1e-12)
                        assert inside.mean() > least, (epsilon, people, held, of_block, miss)
                    square = seen / people / (u - down) ** 2 - np.clip(value, 0, 1)
                    error = np.sqrt(np.maximum(square, 0) / people)
                    before = min(before, (np.abs(value - truth) <= 1.96 * error).mean())
    assert before < 0.8


@pytest.mark.exact
def test_differences_of_two_crowds():
    """Every outcome of two crowds, at rare, common and middling values."""
    for oracle in SOME:
        p, q = oracle.support_probabilities
        crowds = []
        for people in (20, 50):
            counts = np.arange(people + 1)
            value = (counts / people - q) / (p - q)
            crowds.append((people, laws(p, q, people, range(people + 1)), value))
        (n, law, value), (m, other_law, other) = crowds
        first, second = (one.ravel() for one in np.meshgrid(value, other, indexing="ij"))
        rules = [SupportRule(size, size, (p, 0.0), (q, 0.0)) for size in (n, m)]
        errors = np.ones(first.size)
        apart = difference_of(
            Estimate(first, errors, n, rule=rules[0]), Estimate(second, errors, m, rule=rules[1])
        )
        low, high = apart.confidence_interval()
        for c in (0, 1, 5, n // 2, n):
            for d in (0, 1, 5, m // 2, m):
                truth = np.array([c / n - d / m])
                both = np.outer(law[c], other_law[d]).reshape(1, -1)
                assert covered(both, truth, low, high)[0] >= 0.95
    counts = apart.to_counts()
    np.testing.assert_allclose(counts.confidence_interval()[0], 20 * low)


# What an estimate does with them -----------------------------------------------------------


@pytest.mark.exact
def test_estimates_carry_their_rule():
    """Frequencies of a list, in [0, 1] and at whole people, through every step and scale."""
    oracle = SubsetSelection(4, 3.0)
    estimate = oracle.estimate(np.array([26, 18, 5, 2]), 50)
    low, high = estimate.confidence_interval()
    assert (low >= 0).all() and (high <= 1).all() and low[3] == 0
    for ends in (low, high):
        np.testing.assert_allclose(50 * ends, np.rint(50 * ends), atol=1e-9)
    for shown in (
        estimate.postprocess("norm-sub"),
        estimate.clip(),
        pickle.loads(pickle.dumps(estimate)),
    ):
        np.testing.assert_array_equal(shown.confidence_interval(), (low, high))
        np.testing.assert_allclose(shown.to_counts().confidence_interval(), (50 * low, 50 * high))
    wide = estimate.confidence_interval(simultaneous=True)
    assert (wide[0] <= low).all() and (wide[1] >= high).all()
    population = oracle.estimate(np.array([26, 18, 5, 2]), 50, sampling="iid").confidence_interval()
    assert population[1][0] - population[0][0] > high[0] - low[0]


@pytest.mark.exact
@pytest.mark.parametrize(
    "oracle", [LimitedHadamard(4, 2.0), Rappor(4, 2.0, num_bits=8, num_hashes=1, num_cohorts=2)]
)
def test_other_oracles_keep_the_normal_approximation(oracle):
    statistic = oracle.accumulate(oracle.randomize(np.arange(4), np.random.default_rng(0)))
    estimate = oracle.estimate(statistic, 4)
    low, high = estimate.confidence_interval()
    np.testing.assert_allclose((low + high) / 2, estimate.value, atol=1e-12)


@pytest.mark.exact
def test_estimates_of_earlier_versions_have_the_normal_rule():
    state = dict(vars(SubsetSelection(4, 2.0).estimate(np.array([3, 2, 1, 0]), 5)))
    del state["rule"]
    old = Estimate.__new__(Estimate)
    old.__dict__.update(state)
    low, high = old.confidence_interval()
    np.testing.assert_allclose((low + high) / 2, old.value)
    assert old.to_counts().rule is NORMAL and replace(old, num_users=6).rule is NORMAL


@pytest.mark.exact
def test_a_question_of_several_is_about_everybody():
    survey = OneQuestion((SubsetSelection(4, 8.0), HadamardResponse(4, 8.0)))
    values = np.repeat([[0, 1], [2, 3]], [40, 20], axis=0)
    statistic = survey.accumulate(survey.randomize(values, np.random.default_rng(2)))
    whole, parts = survey.estimate(statistic, 60), survey.estimates(statistic, 60)
    ends = np.concatenate([part.confidence_interval() for part in parts], axis=1)
    np.testing.assert_array_equal(whole.confidence_interval(), ends)
    np.testing.assert_allclose(whole.to_counts().confidence_interval(), 60 * ends)
    np.testing.assert_allclose(60 * ends, np.rint(60 * ends), atol=1e-9)
    answers = survey.answers(statistic)
    for part, split, count in zip(parts, survey.split(whole), answers):
        np.testing.assert_array_equal(split.confidence_interval(), part.confidence_interval())
        assert (part.rule.answers, part.rule.people) == (count, 60)  # type: ignore[attr-defined]


@pytest.mark.exact
@pytest.mark.parametrize("oracle", [SubsetSelection(4, 3.0), HadamardResponse(4, 3.0)])
def test_pooled_crowds_are_one(oracle):
    rng = np.random.default_rng(4)
    sums = [oracle.accumulate(oracle.randomize(np.arange(n) % 4, rng)) for n in (30, 50)]
    one, two = (oracle.estimate(s, n) for s, n in zip(sums, (30, 50)))
    both = oracle.estimate(sum(sums), 80)
    rule = pooled([one.rule, two.rule], [30, 50])
    found = rule.interval(both.value, both.standard_error, 0.05)
    np.testing.assert_array_equal(found, both.confidence_interval())
    assert pooled([one.rule, two.rule], [30, 60]) is NORMAL  # parts weigh more than answers
    assert pooled([one.rule, NORMAL], [30, 50]) is NORMAL


@pytest.mark.exact
def test_intervals_of_long_lists_are_made_in_pieces(monkeypatch):
    oracle = HadamardResponse(200, 2.0)
    statistic = oracle.accumulate(oracle.randomize(np.arange(2000) % 200, np.random.default_rng(5)))
    estimate = oracle.estimate(statistic, 2000)
    whole = estimate.confidence_interval()
    monkeypatch.setattr(intervals, "_CHUNK", 64)
    np.testing.assert_array_equal(estimate.confidence_interval(), whole)
