"""Asking everybody at most once: the same transcripts, privacy of fresh people, their number."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from beam_ldp.research.interactivity.descents import level_kernel
from beam_ldp.research.interactivity.kernels import kernel_epsilon
from beam_ldp.research.interactivity.sequential import (
    Ask,
    Mode,
    NotEnoughUsersError,
    Protocol,
    SequentialPrice,
    acceptance,
    convert,
    decompose,
    follow_up,
    keeping,
    largest_purifiable_delta,
    protocol_epsilon,
    simulate_sequential,
    walk,
    wave_size,
)

from .test_kernels import random_kernel

MODES: tuple[Mode, ...] = ("paper", "tight", "plain")
UNEVEN = np.array([0.3, 0.7])


def response(epsilon: float) -> np.ndarray:
    told = 1 / (1 + math.exp(-epsilon))
    return np.array([[told, 1 - told], [1 - told, told]])


def three_times(answers: tuple[int, ...]) -> Ask | None:
    return Ask("one", response(0.5)) if len(answers) < 3 else None


def random_protocol(seed: int) -> Protocol:
    """Three virtual people and four rounds: who is asked what depends on all answers so far."""

    def protocol(answers: tuple[int, ...]) -> Ask | None:
        if len(answers) == 4:
            return None
        random = np.random.default_rng([seed, len(answers), *answers])
        return Ask(int(random.integers(3)), random_kernel(random, 3, 2, spread=0.7))

    return protocol


def median_search(answers: tuple[int, ...]) -> Ask | None:
    """Three people look for a median of 0..3 by two thresholds; who answered is asked again."""
    if len(answers) == 6:
        return None
    above = sum(answers[:3]) >= 2
    threshold = 2 if len(answers) < 3 else (3 if above else 1)
    told = response(0.5)
    return Ask(len(answers) % 3, np.stack([told[int(value >= threshold)] for value in range(4)]))


def descent(answers: tuple[int, ...]) -> Ask | None:
    """Two people go down three levels; each knows a bit of one of them."""
    if len(answers) == 6:
        return None
    return Ask(len(answers) % 2, level_kernel(3, len(answers) // 2, 1.0))


PROTOCOLS = [random_protocol(seed) for seed in range(12)] + [median_search, descent, three_times]


@pytest.fixture(scope="module")
def epsilons() -> list[float]:
    return [protocol_epsilon(protocol) for protocol in PROTOCOLS]


@pytest.mark.parametrize("mode", MODES)
def test_every_next_answer_has_the_law_of_the_protocol_and_fresh_people_their_epsilon(
    mode: Mode, epsilons: list[float]
) -> None:
    again = 0
    for protocol, epsilon in zip(PROTOCOLS, epsilons, strict=True):
        promised = epsilon
        for step in walk(protocol):
            if step.question is None or step.question.user not in step.logs:
                continue
            again += 1
            kernel, logs = step.question.kernel, step.logs[step.question.user]
            distribution = np.random.default_rng(len(logs)).dirichlet(np.ones(len(logs)))
            asked = follow_up(logs, kernel, epsilon, mode)
            posterior = distribution * np.exp(logs)
            assert asked.law(distribution) == pytest.approx(
                posterior / posterior.sum() @ kernel, abs=1e-12
            )
            assert asked.kernel.sum(axis=1) == pytest.approx(np.ones(len(kernel)), abs=1e-12)
            if asked.parts.weight < 1:
                # section 5.1: by the whole kernel around one input, by the least column otherwise
                columns = np.log(kernel.max(axis=0) / kernel.min(axis=0))
                promised = max(
                    promised, 2 * epsilon - (columns.max() if mode == "paper" else columns.min())
                )
        uniform = np.full(len(kernel), 1 / len(kernel))
        realised = convert(protocol, uniform, epsilon, mode).epsilon
        assert realised <= promised + 1e-9
        assert realised <= SequentialPrice(1, 1, 1.0, epsilon).declared_epsilon(mode) + 1e-9
    assert again > 100


def test_three_answers_of_one_person() -> None:
    """Golden numbers of the specification, and 2.5 = epsilon + rest - 0.5 attained."""
    assert protocol_epsilon(three_times) == pytest.approx(1.5, abs=1e-12)
    found = {mode: convert(three_times, UNEVEN, 1.5, mode) for mode in MODES}
    assert [round(found[mode].people, 4) for mode in MODES] == [3.5221, 2.1743, 4.0454]
    assert found["plain"].epsilon == pytest.approx(1.5, abs=1e-12)
    assert found["tight"].epsilon == pytest.approx(2.5, abs=1e-12)


def uneven_question(answers: tuple[int, ...]) -> Ask | None:
    """Asked again only after a 0; the second kernel has columns of 0.1 and 0.5."""
    if not answers:
        return Ask("one", response(0.9))
    rare = math.expm1(0.5) / math.expm1(0.6)
    often = rare * math.exp(0.1)
    return Ask("one", np.array([[often, 1 - often], [rare, 1 - rare]])) if answers == (0,) else None


def test_the_least_weight_costs_by_the_least_column() -> None:
    assert protocol_epsilon(uneven_question) == pytest.approx(1.0, abs=1e-12)
    assert convert(uneven_question, UNEVEN, 1.0, "tight").epsilon == pytest.approx(1.9, abs=1e-12)
    # the paper's form, around one input
    assert convert(uneven_question, UNEVEN, 1.0, "paper").epsilon < 1.5
    assert convert(uneven_question, UNEVEN, 1.0, "plain").epsilon <= 1.0 + 1e-12


def later_tells_more(answers: tuple[int, ...]) -> Ask | None:
    rows = [[0.4550542339, 0.5449457661], [0.1015363241, 0.8984636759]]
    if not answers:
        return Ask("one", response(0.5))
    return Ask("one", np.array(rows)) if answers == (1,) else None


def test_a_later_question_may_cost_more_than_the_protocol() -> None:
    """The paper's "epsilon_t <= epsilon" is false: its weight is then 1.229, no probability."""
    follow = later_tells_more((1,))
    assert follow is not None
    assert protocol_epsilon(later_tells_more) == pytest.approx(1.0, abs=1e-9)
    assert kernel_epsilon(follow.kernel) == pytest.approx(1.5, abs=1e-9)
    first = later_tells_more(())
    assert first is not None  # k, the sum over the epsilon of the protocol, is 2
    spent = kernel_epsilon(first.kernel) + kernel_epsilon(follow.kernel)
    assert spent == pytest.approx(2.0, abs=1e-9)
    assert -math.expm1(-1.5) / -math.expm1(-1) == pytest.approx(1.229, abs=5e-4)
    with pytest.raises(ValueError, match="epsilon must be at least the kernel's own, 1.5, got 1"):
        decompose(follow.kernel, 1.0, least=False)
    for mode in MODES:
        assert convert(later_tells_more, UNEVEN, 1.0, mode).epsilon <= 1.0 + 1e-9


def test_a_larger_rest_takes_fewer_people_and_costs_more() -> None:
    found = [convert(three_times, UNEVEN, 1.5, "tight", rest) for rest in (0.45, 0.6, 1.5, 3.0)]
    # below the kernel's own epsilon nothing is split off
    assert found[0] == convert(three_times, UNEVEN, 1.5, "plain")
    assert [one.epsilon for one in found[1:]] == pytest.approx([1.6, 2.5, 4.0], abs=1e-9)
    assert found[0].people > found[1].people > found[2].people > found[3].people


def test_wrong_epsilon_of_the_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match="epsilon of 0.8 is below what the answers tell"):
        convert(three_times, UNEVEN, 0.8)


@pytest.mark.parametrize("least", [True, False])
def test_mixtures_are_the_kernel_and_keep_their_epsilon(least: bool) -> None:
    random = np.random.default_rng(1)
    for _ in range(300):
        kernel = random_kernel(random, 4, 3, spread=random.uniform(0.01, 1.5))
        rest = kernel_epsilon(kernel) * random.uniform(1, 3)
        parts = decompose(kernel, rest, least=least)
        assert parts.weight * parts.told + (1 - parts.weight) * parts.public == pytest.approx(
            kernel, abs=1e-12
        )
        assert 0 < parts.weight <= 1 and parts.public.min() >= 0
        assert kernel_epsilon(parts.told) <= rest + 1e-9
        assert parts.told.min() > 0
        if least:
            assert parts.weight <= decompose(kernel, rest, least=False).weight + 1e-12


def test_answers_of_a_density_that_are_kept_have_the_law_of_the_told_part() -> None:
    """Laplace noise on data in [0, 1], by integrals between the kinks; the share is 0.5065."""
    own, epsilon = 0.5, 1.5
    weight = math.expm1(-own) / math.expm1(-epsilon)
    assert weight == pytest.approx(0.5065, abs=5e-5)

    def density(y: np.ndarray, datum: float) -> np.ndarray:
        return np.asarray(own / 2 * np.exp(-own * np.abs(y - datum)))

    def kept(y: np.ndarray, datum: float) -> np.ndarray:
        law = density(y, datum)
        return law * keeping(density(y, 0.0) / law, own, epsilon)

    grid = np.linspace(-3, 4, 141)
    told = [kept(grid, datum) / weight for datum in (0.0, 0.3, 1.0)]
    for datum, law in zip((0.0, 0.3, 1.0), told, strict=True):
        ends = [-80.0, 0.0, *([datum] if datum else []), 80.0]
        share = sum(
            integrate.quad(kept, low, high, args=(datum,))[0]
            for low, high in itertools.pairwise(ends)
        )
        assert share == pytest.approx(weight, abs=1e-9)
        np.testing.assert_allclose(
            weight * law + (1 - weight) * density(grid, 0.0), density(grid, datum), atol=1e-15
        )
    ratios = [np.log(a / b).max() for a in told for b in told]
    assert max(ratios) == pytest.approx(epsilon, abs=1e-9)  # attained, at answers below 0


def test_keeping_is_the_papers_mixture_of_a_finite_kernel() -> None:
    kernel = random_kernel(np.random.default_rng(4), 4, 3)
    own = kernel_epsilon(kernel)
    parts = decompose(kernel, 2 * own, least=False)
    kept = kernel * keeping(kernel[0] / kernel, own, 2 * own)
    assert kept / parts.weight == pytest.approx(parts.told, abs=1e-12)
    assert keeping(kernel[0] / kernel, own, own) == pytest.approx(np.ones((4, 3)), abs=1e-12)
    with pytest.raises(ValueError, match="relative must lie"):
        keeping(np.array([2.0]), 0.5, 1.0)
    with pytest.raises(ValueError, match="epsilon must be at least own"):
        keeping(np.array([1.0]), 0.5, 0.4)


def test_weights_of_the_specification() -> None:
    kernel = np.array([[0.5, 0.3, 0.2], [0.4, 0.35, 0.25], [0.45, 0.25, 0.3]])
    assert kernel_epsilon(kernel) == pytest.approx(0.405465, abs=5e-7)
    assert decompose(kernel, 1.0, least=False).weight == pytest.approx(0.527326, abs=5e-7)
    assert decompose(kernel, 1.0).weight == pytest.approx(0.324593, abs=5e-7)
    assert decompose(response(0.25), 1.0).weight == pytest.approx(
        math.tanh(0.125) / math.tanh(0.5), abs=1e-12
    )
    assert decompose(response(0.25), 1.0, least=False).weight == pytest.approx(0.34993, abs=5e-6)
    # who tells nothing is never asked
    assert decompose(np.full((2, 2), 0.5), 1.0).weight == 0


def test_no_larger_acceptance_keeps_the_epsilon() -> None:
    """At the most probability the answer no costs exactly epsilon; above it, more."""
    for epsilon in (0.1, 1.0, 3.0):
        best = acceptance(epsilon, "plain")
        refusals = [1 - best * math.exp(-epsilon), 1 - best]
        assert math.log(refusals[0] / refusals[1]) == pytest.approx(epsilon, abs=1e-12)


def test_multipliers_of_the_specification() -> None:
    table = {0.1: (2.32, 2.21), 0.5: (4.19, 3.37), 1: (8.60, 5.88), 2: (34.2, 19.4), 4: (445, 227)}
    for epsilon, (paper, tight) in table.items():
        price = SequentialPrice(1, 1, 1.0, epsilon)
        assert price.expected("paper") - 1 == pytest.approx(paper, rel=2e-3)
        assert price.expected("tight") - 1 == pytest.approx(tight, rel=2.5e-3)


def test_expected_people_are_not_above_the_closed_bound(epsilons: list[float]) -> None:
    for protocol, epsilon in zip(PROTOCOLS, epsilons, strict=True):
        ends = [step for step in walk(protocol) if step.question is None]
        inputs = len(next(iter(ends[0].logs.values())))
        rounds = max(len(step.answers) for step in ends)
        spent = max(
            sum(
                kernel_epsilon(question.kernel)
                for t in range(len(end.answers))
                if (question := protocol(end.answers[:t]))
            )
            for end in ends
        )
        people = max(len(end.logs) for end in ends)
        fewest = min(len(end.logs) for end in ends)
        price = SequentialPrice(people, rounds, spent / epsilon / people, epsilon)
        for mode in MODES:
            exact = convert(protocol, np.full(inputs, 1 / inputs), epsilon, mode).people
            bound = (
                price.expected(mode)
                if mode != "plain"
                else fewest + (1 + math.exp(epsilon)) * (rounds - fewest)
            )
            assert fewest <= exact <= bound + 1e-9


def test_number_of_people_that_is_rarely_exceeded() -> None:
    price = SequentialPrice(1000, 10_000, 1.0, 1.0)
    # the bound of the paper, 20349, is about twice the mean, 9601
    assert price.at_most("paper", 1e-3) == 11330
    assert price.expected("tight") < price.at_most("tight", 1e-3) < price.at_most("paper", 1e-3)
    assert price.expected("plain") < price.at_most("plain", 1e-3) < price.at_most("plain", 1e-6)
    assert SequentialPrice(10, 10, 1.0, 1.0).at_most("plain", 0.05) == 10
    with pytest.raises(ValueError, match="beta must be at least"):
        SequentialPrice(1, 2, 1.0, 1.0).at_most("tight", 1e-6)


def test_exact_tail_of_the_worst_case_is_within_the_bound() -> None:
    """All follow-ups are needed and all people accept with the least probability."""
    price = SequentialPrice(3, 8, 1.0, 1.0)
    bound = price.at_most("plain", 0.05)
    least = acceptance(1.0, "plain") * math.exp(-1)
    # more than `bound` people: fewer than 5 acceptances among the first bound - 3 fresh ones
    assert stats.binom.cdf(4, bound - 3, least) <= 0.05 < stats.binom.cdf(4, bound - 4, least)


@pytest.mark.parametrize("mode", MODES)
def test_simulated_runs_have_the_law_and_the_number_of_people(mode: Mode) -> None:
    random = np.random.default_rng(7)
    data = iter(lambda: int(random.random() < UNEVEN[1]), -1)
    runs = [simulate_sequential(three_times, data, 1.5, mode, random=random) for _ in range(3000)]
    transcripts = list(itertools.product(range(2), repeat=3))
    expected = [
        sum(UNEVEN[x] * math.prod(response(0.5)[x, answer] for answer in answers) for x in range(2))
        for answers in transcripts
    ]
    observed = [sum(answers == run for run, _ in runs) for answers in transcripts]
    assert stats.chisquare(observed, np.array(expected) * len(runs)).pvalue > 0.001
    people = np.array([asked for _, asked in runs])
    exact = convert(three_times, UNEVEN, 1.5, mode).people
    assert abs(people.mean() - exact) < 3 * people.std() / math.sqrt(len(runs))


def test_people_who_run_out_are_told_with_the_answers_so_far() -> None:
    with pytest.raises(NotEnoughUsersError, match="people ran out after 1 answers") as caught:
        simulate_sequential(three_times, iter([0]), 1.5, random=np.random.default_rng(0))
    assert len(caught.value.answers) == 1


def test_waves_of_the_specification() -> None:
    assert (wave_size(0.5, 1e-3), wave_size(0.5, 1e-3, "paper")) == (15, 20)
    assert (wave_size(1.0, 1e-6), wave_size(1.0, 1e-6, "paper")) == (45, 68)


def test_refusals_name_what_is_allowed() -> None:
    with pytest.raises(ValueError, match="mode must be one of paper, tight, plain, got 'fast'"):
        convert(three_times, UNEVEN, 1.5, "fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at most 5 transcripts"):
        list(walk(three_times, most=5))
    with pytest.raises(ValueError, match="probabilities above 0"):
        list(walk(lambda answers: Ask(0, np.eye(2))))
    with pytest.raises(ValueError, match="rounds"):
        SequentialPrice(10, 5, 1.0, 1.0)


# Below which delta a protocol is as good as a pure one.


def test_both_parts_of_the_condition_bind_somewhere() -> None:
    """Of the lemma: the first for a small epsilon, the second for a large one."""
    small = 1e-3 * 0.01 / (48 * 1000 * math.log(2000 / 0.01))
    large = 0.01 / (64 * 1000 * math.log(1000 / 0.01) * math.exp(14))
    assert largest_purifiable_delta(1000, 1e-3, 0.01) == pytest.approx(small, rel=1e-12)
    assert largest_purifiable_delta(1000, 2.0, 0.01) == pytest.approx(large, rel=1e-12)


def test_usual_deltas_are_far_too_large() -> None:
    for people in (100, 10**4, 10**6):
        assert largest_purifiable_delta(people, 1.0, 0.05) < 1 / people**1.5
        assert largest_purifiable_delta(people, 1.0, 0.05) > largest_purifiable_delta(
            10 * people, 1.0, 0.05
        )


def test_refusals_of_a_delta() -> None:
    for bad in ((0, 1.0, 0.1), (10, 0.0, 0.1), (10, 1.0, 1.0)):
        with pytest.raises(ValueError, match="people|epsilon|beta"):
            largest_purifiable_delta(*bad)
