"""Waves: the law of the protocol, exactly; nobody twice; what is refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_ldp.research.interactivity.kernels import IntegerKernel, kernel_epsilon
from beam_ldp.research.interactivity.sequential import (
    Ask,
    Mode,
    follow_up,
    protocol_epsilon,
    walk,
    wave_size,
)
from beam_ldp.research.interactivity.waves import (
    Answers,
    Progress,
    Wave,
    WavePlan,
    one_by_one,
    places_of,
)

from .test_kernels import random_kernel
from .test_sequential import MODES, UNEVEN, response


def two_people(answers: Answers) -> list[Ask]:
    """Both answer a bit; then one of them, as both bits say, is asked again, and somebody new."""
    if not answers:
        return [Ask("ada", response(0.5)), Ask("bob", response(0.7))]
    if len(answers) == 1:
        again = "ada" if sum(answers[0]) == 1 else "bob"
        return [Ask(again, response(0.4)), Ask("eve", response(0.9))]
    return []


def random_rounds(seed: int) -> Any:
    """Three people, three waves of two questions, which depend on all answers so far."""

    def rounds(answers: Answers) -> list[Ask]:
        if len(answers) == 3:
            return []
        random = np.random.default_rng([seed, *itertools.chain(*answers)])
        asked = random.permutation(3)[:2].tolist()
        return [Ask(user, random_kernel(random, 2, 2, spread=0.6)) for user in asked]

    return rounds


class KnownCoins(WavePlan):
    """Public coins that a test sets, whatever the seed: by wave and question."""

    coins: dict[int, list[tuple[float, float]]]

    def _coins(self, wave: int, questions: int) -> np.ndarray:
        return np.array(self.coins.get(wave, [(0.0, 0.0)] * questions))


# The law ----------------------------------------------------------------------------------


def law_of_run(wave: Wave, question: int, distribution: np.ndarray) -> dict[int | None, float]:
    """Of a question's answer in one run, by enumeration of all that its people may say."""
    ranks, kernel = np.flatnonzero(wave.asked == question), wave.kernels[wave.which[question]]
    edges = np.hstack(
        [np.zeros((kernel.inputs, 1)), kernel.thresholds / 2.0**64, np.ones((kernel.inputs, 1))]
    )
    says = distribution @ np.diff(edges, axis=1)
    law: dict[int | None, float] = {}
    for reports in itertools.product(range(len(says)), repeat=len(ranks)):
        told = wave.first_accepted(ranks, np.array(reports))
        answer = told[question][1] if question in told else None
        law[answer] = law.get(answer, 0.0) + math.prod(says[list(reports)])
    return law


def transcripts(
    plan: KnownCoins, progress: Progress, law: np.ndarray
) -> Iterator[tuple[Any, float]]:
    """Every transcript of the waves with its probability; who does not accept is asked again."""
    questions = plan.rounds(progress.finished)
    if not questions:
        yield progress.finished, 1.0
        return
    for coins, of_coins in coin_cases(plan, progress, questions):
        plan.coins[len(progress.finished)] = coins
        wave = plan.wave(progress)
        assert wave is not None
        laws = [told_law(wave, number, law) for number in range(len(questions))]
        for answers in itertools.product(*laws):
            chance = math.prod(one[answer] for one, answer in zip(laws, answers, strict=True))
            after = plan.after(progress, wave, dict(enumerate(answers)), people=1, last=0)
            assert after.finished[-1] == answers
            for transcript, rest in transcripts(plan, replace(after, last=-1), law):
                yield transcript, of_coins * chance * rest


def told_law(wave: Wave, number: int, law: np.ndarray) -> dict[int, float]:
    """Of the answer that comes in the end, where runs are repeated until somebody accepts."""
    if number in wave.drawn:
        return {wave.drawn[number]: 1.0}
    found = law_of_run(wave, number, law)
    accepted = 1 - found.pop(None, 0.0)
    return {answer: chance / accepted for answer, chance in found.items() if answer is not None}


def coin_cases(plan: KnownCoins, progress: Progress, questions: Any) -> Iterator[tuple[Any, float]]:
    """Coins that stand for all: of each question that people are asked, or each public answer."""
    logs = plan._logs(progress.finished)
    cases = []
    for question in questions:
        own = [((0.0, 0.0), 1.0)]
        if question.user in logs:
            parts = follow_up(logs[question.user], question.kernel, plan.epsilon, plan.mode).parts
            own = [((parts.weight / 2, 0.0), parts.weight)]
            ends = np.cumsum(parts.public)
            if parts.weight < 1:
                own += [
                    (((1 + parts.weight) / 2, end - chance / 2), (1 - parts.weight) * chance)
                    for end, chance in zip(ends, parts.public, strict=True)
                ]
        cases.append(own)
    for chosen in itertools.product(*cases):
        yield [coins for coins, _ in chosen], math.prod(chance for _, chance in chosen)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rounds", [two_people, random_rounds(1), random_rounds(2)])
def test_waves_have_the_transcripts_of_the_protocol(mode: Mode, rounds: Any) -> None:
    """Enumerated: people, what they say, who is first to accept, coins and repeated runs."""
    protocol = one_by_one(rounds)
    plan = KnownCoins(rounds, protocol_epsilon(protocol), mode, beta=0.4)
    object.__setattr__(plan, "coins", {})
    found: dict[Any, float] = {}
    for transcript, chance in transcripts(plan, Progress(), UNEVEN):
        found[transcript] = found.get(transcript, 0.0) + chance
    expected = {
        step.answers: step.probability(UNEVEN) for step in walk(protocol) if step.question is None
    }
    assert {tuple(itertools.chain(*waves)) for waves in found} == set(expected)
    for waves, chance in found.items():
        # integer thresholds move probabilities by 2^-35
        assert chance == pytest.approx(expected[tuple(itertools.chain(*waves))], abs=1e-9)


def in_memory(plan: WavePlan, data: np.ndarray, random: np.random.Generator) -> Progress:
    """A whole run, of people 0, 1, ... in that order."""
    progress, start = Progress(), 0
    while (wave := plan.wave(progress)) is not None:
        ranks = np.arange(wave.people)
        words = random.integers(0, 2**64, wave.people, dtype=np.uint64)
        reports = wave.reports(ranks, data[start : start + wave.people], words)
        told = wave.first_accepted(ranks, reports)
        start += wave.people
        accepted = {question: answer for question, (_, answer) in told.items()}
        progress = plan.after(progress, wave, accepted, wave.people, start)
    return progress


@pytest.mark.parametrize("mode", MODES)
def test_simulated_waves_have_the_law(mode: Mode) -> None:
    """500 runs with real draws and coins; false alarms: 1 in 10,000 a mode."""
    random, runs = np.random.default_rng(3), 500
    protocol = one_by_one(two_people)
    epsilon = protocol_epsilon(protocol)
    ends = [step for step in walk(protocol) if step.question is None]
    counts = dict.fromkeys((step.answers for step in ends), 0)
    for seed in range(runs):
        data = (random.random(400) < UNEVEN[1]).astype(np.int64)
        plan = WavePlan(two_people, epsilon, mode, beta=0.2, seed=seed)
        counts[tuple(itertools.chain(*in_memory(plan, data, random).finished))] += 1
    expected = [runs * step.probability(UNEVEN) for step in ends]
    assert stats.chisquare(list(counts.values()), expected).pvalue > 1e-4


@pytest.mark.parametrize("mode", MODES)
def test_what_people_say_costs_no_more_than_the_promise(mode: Mode) -> None:
    """In integers, over all waves that can be reached."""
    for rounds in (two_people, random_rounds(5)):
        protocol = one_by_one(rounds)
        plan = KnownCoins(rounds, protocol_epsilon(protocol), mode, beta=0.3)
        object.__setattr__(plan, "coins", {})  # people are asked wherever that may happen
        reached, again = [Progress()], False
        while reached:
            progress = reached.pop()
            wave = plan.wave(progress)
            if wave is None:
                continue
            again = again or any(wave.accepts)
            assert all(kernel.epsilon <= plan.promise for kernel in wave.kernels)
            left = [n for n in range(len(wave.which)) if n not in wave.drawn]
            for answers in itertools.product(range(2), repeat=len(left)):
                told = dict(zip(left, answers, strict=True))
                reached.append(plan.after(progress, wave, told))
        assert again
    assert plan.promise == (plan.epsilon if mode == "plain" else 2 * plan.epsilon)


# Who is asked what ------------------------------------------------------------------------


def sizes_of(wave: Wave) -> list[int]:
    """People to each question."""
    return np.bincount(wave.asked, minlength=len(wave.which)).tolist()


def test_waves_ask_disjoint_people_in_the_public_order() -> None:
    plan = WavePlan(random_rounds(7), protocol_epsilon(one_by_one(random_rounds(7))), beta=0.5)
    places = np.sort(places_of(np.arange(2000), seed=0))
    random, progress, seen = np.random.default_rng(1), Progress(), 0
    while (wave := plan.wave(progress)) is not None:
        called = np.sort(wave.called(places))[: wave.people]
        assert called[0] == places[seen]  # nobody is left out, nobody asked twice
        seen += wave.people
        ranks = np.arange(wave.people)
        sizes = [1 if not more else wave_size(plan.epsilon, 0.5) for more in wave.accepts]
        open_now = set(range(2)) - {n for n, a in enumerate(progress.current) if a is not None}
        assert sizes_of(wave) == [size if n in open_now else 0 for n, size in enumerate(sizes)]
        words = random.integers(0, 2**64, wave.people, dtype=np.uint64)
        told = wave.first_accepted(ranks, wave.reports(ranks, ranks % 2, words))
        accepted = {question: answer for question, (_, answer) in told.items()}
        progress = plan.after(progress, wave, accepted, wave.people, int(called[-1]))
    assert progress.people == seen and progress.last == places[seen - 1]


def test_a_question_that_nobody_accepts_is_put_to_others() -> None:
    plan = WavePlan(two_people, epsilon=1.3, beta=0.2)
    first = plan.wave(Progress())
    assert first is not None and sizes_of(first) == [1, 1] and first.accepts == (False, False)
    after = plan.after(Progress(), first, {0: 0, 1: 0}, 2, 40)
    second = plan.wave(after)
    assert second is not None and second.accepts == (True, False)
    fresh, one = sizes_of(second)
    assert fresh == wave_size(1.3, 0.2) and one == 1
    nobody = second.first_accepted(np.arange(second.people), np.array([0] * fresh + [1]))
    assert nobody == {1: (fresh, 1)}
    opened = plan.after(after, second, {1: 1}, second.people, 70)
    assert opened.current == (None, 1) and opened.finished == after.finished
    third = plan.wave(opened)
    assert third is not None and sizes_of(third) == [fresh, 0]
    assert third.number == 2 and third.after == 70 and third.digest != second.digest
    ended = plan.after(opened, third, {0: 1}, third.people, 99)
    assert ended.finished == ((0, 0), (1, 1)) and plan.wave(ended) is None


def test_the_first_in_the_order_who_accepts_gives_the_answer() -> None:
    plan = WavePlan(two_people, epsilon=1.3, beta=0.05)
    wave = plan.wave(plan.after(Progress(), plan.wave(Progress()), {0: 1, 1: 1}))  # type: ignore[arg-type]
    assert wave is not None
    ranks = np.array([3, 1, 2, 0])  # of the first question, in the order of a block
    assert wave.first_accepted(ranks, np.array([1, 2, 1, 0])) == {0: (1, 1)}
    assert wave.first_accepted(ranks, np.zeros(4, dtype=np.int64)) == {}


def test_places_are_a_function_of_the_id_and_the_seed() -> None:
    ids = np.arange(5000)
    assert np.array_equal(places_of(ids, 1)[::-1], places_of(ids[::-1], 1))
    assert places_of(["7"], 1) == places_of([7], 1)  # one person, however the id is written
    orders = [np.argsort(places_of(ids, seed)) for seed in (0, 1, 2)]
    alike = np.asarray(np.corrcoef(orders))
    assert np.abs(alike[np.triu_indices(3, 1)]).max() < 4.5 / math.sqrt(len(ids))
    assert len(set(places_of(ids, 0).tolist())) == len(ids)


# The same people again ----------------------------------------------------------------------


def test_the_same_people_are_asked_again_where_that_is_planned() -> None:
    """Enumerated: who answers is a function of the protocol's names, and so is the law."""
    protocol = one_by_one(two_people)
    plan = WavePlan(two_people, protocol_epsilon(protocol), again=True)
    first = plan.wave(Progress())
    assert first is not None and first.asked.tolist() == [0, 1] and first.after == -1
    for answers, asked in (((1, 0), [0, -1, 1]), ((1, 1), [-1, 0, 1])):
        after = plan.after(Progress(), first, dict(enumerate(answers)), 2, 50)
        second = plan.wave(after)
        assert second is not None and second.asked.tolist() == asked and second.after == -1
        # what is drawn are the protocol's own kernels
        for number, question in enumerate(two_people(after.finished)):
            thresholds = second.kernels[second.which[number]].thresholds / 2.0**64
            assert thresholds[:, 0] == pytest.approx(question.kernel[:, 0], abs=2.0**-35)
        ended = plan.after(after, second, {0: 1, 1: 1}, 3, 90)
        assert ended.people == 3 and plan.wave(ended) is None


def test_what_would_tell_more_than_the_budget_is_not_asked_again() -> None:
    plan = WavePlan(two_people, 1.0, again=True)  # both answers of one person: 1.1
    first = plan.wave(Progress())
    assert first is not None
    with pytest.raises(ValueError, match="epsilon of 1 is below what the protocol tells"):
        plan.wave(plan.after(Progress(), first, {0: 1, 1: 1}))
    with pytest.raises(ValueError, match="mode must be plain"):
        WavePlan(two_people, 1.0, "tight", again=True)


# Refusals ---------------------------------------------------------------------------------


def test_refusals() -> None:
    with pytest.raises(ValueError, match="mode must be one of"):
        WavePlan(two_people, 1.0, "fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="beta"):
        WavePlan(two_people, 1.0, beta=0.0)
    with pytest.raises(ValueError, match="seed"):
        WavePlan(two_people, 1.0, seed=-1)
    with pytest.raises(ValueError, match="a wave must ask nobody twice"):
        WavePlan(lambda _: [Ask("ada", response(0.5))] * 2, 1.0).wave(Progress())
    uneven = [Ask("ada", response(0.5)), Ask("bob", np.full((3, 2), 0.5))]
    with pytest.raises(ValueError, match="the same number of data"):
        WavePlan(lambda _: uneven, 1.0).wave(Progress())
    with pytest.raises(ValueError, match="probabilities above 0"):
        WavePlan(lambda _: [Ask("ada", np.eye(2))], 1.0).wave(Progress())


def test_an_epsilon_below_what_the_protocol_tells_is_refused_before_anybody_is_asked() -> None:
    with pytest.raises(ValueError, match="kernel has epsilon 0.7, more than the promise of 0.6"):
        WavePlan(two_people, 0.6).wave(Progress())
    # both answers of one person: 1.1
    plan = WavePlan(two_people, 1.0)
    first = plan.wave(Progress())
    assert first is not None
    with pytest.raises(ValueError, match="more than the promise of 1"):
        plan.wave(plan.after(Progress(), first, {0: 1, 1: 1}))


# Integers ---------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(2, 5), st.floats(0.02, 6))
def test_integers_keep_the_promise_and_are_the_kernel(
    seed: int, inputs: int, outputs: int, spread: float
) -> None:
    kernel = random_kernel(np.random.default_rng(seed), inputs, outputs, spread)
    promise = max(kernel_epsilon(kernel), 1e-3)
    drawn = IntegerKernel.of(kernel, promise)
    counts = [
        [high - low for low, high in itertools.pairwise([0, *row, 2**64])]
        for row in drawn.thresholds.tolist()
    ]
    for column in zip(*counts, strict=True):
        assert math.log(max(column) / min(column)) <= promise
        assert drawn.epsilon >= math.log(max(column) / min(column)) - 1e-12
    assert np.array(counts, dtype=float) / 2.0**64 == pytest.approx(kernel, abs=2.0**-35)
    assert drawn.epsilon >= kernel_epsilon(kernel) - 1e-8


def test_words_become_answers_by_their_thresholds() -> None:
    drawn = IntegerKernel.of([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]], epsilon=1.0)
    edges = drawn.thresholds[1].tolist()
    words = [0, edges[0] - 1, edges[0], edges[1] - 1, edges[1], 2**64 - 1]
    found = drawn.draw(np.ones(6, dtype=np.int64), np.array(words, dtype=np.uint64))
    assert found.tolist() == [0, 0, 1, 1, 2, 2]
    with pytest.raises(ValueError, match=r"data must lie in 0 \.\. 1"):
        drawn.draw(np.array([2]), np.zeros(1, dtype=np.uint64))


def test_kernels_that_integers_cannot_keep_are_refused() -> None:
    with pytest.raises(ValueError, match="more than the promise of 0.5"):
        IntegerKernel.of(response(0.6), 0.5)
    with pytest.raises(ValueError, match="too rare for 64-bit words"):
        IntegerKernel.of([[1e-20, 1.0]], 1.0)
    with pytest.raises(ValueError, match="two answers or more"):
        IntegerKernel.of([[1.0], [1.0]], 1.0)
