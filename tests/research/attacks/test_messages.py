"""Attacks on one message: exact chances against enumeration, attacks against bounds and chances."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from beam_ldp.accounting.reconstruction import (
    DiffuseTarget,
    ListedTarget,
    SparseTarget,
    breach_probability,
    largest_epsilon,
)
from beam_ldp.accounting.reconstruction_audit import attacked_epsilon
from beam_ldp.randomizers.base import FrequencyOracle
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
from beam_ldp.randomizers.mean import (
    L2Mean,
    MeanRandomizer,
    PrivUnit,
    PrivUnitGaussian,
    SeparatedMean,
)
from beam_ldp.research.attacks.messages import (
    LinearAttack,
    Share,
    best_codeword,
    codeword_chance,
    cosines,
    direction_chance,
    epsilon_reaching,
    guess_words,
    likeliest_value,
    noise_per_coordinate,
    read_messages,
    value_chance,
    words_found,
)

EPSILONS = (0.1, 1.0, 4.0, 12.0)


def directions(count: int, dimension: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((count, dimension))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


# Exact chances --------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("dimension", [2, 3, 40])
def test_a_gaussian_message_points_near_its_vector_as_often_as_its_law_says(dimension, epsilon):
    """Integrated the other way round: over the length across, with the normal's own tails."""
    mechanism, cosine = PrivUnitGaussian(dimension, epsilon, inputs="sphere"), 0.4
    t, p = mechanism.tail.threshold, mechanism.coin.probability
    slope = cosine / math.sqrt(1 - cosine**2)
    across = stats.chi(dimension - 1)

    def beyond(length: float) -> float:
        """Pr[X >= length * slope] of the height X."""
        least, q = length * slope, stats.norm.sf(t)
        inside = p * stats.norm.sf(max(least, t)) / q
        return inside + (1 - p) * max(0.0, stats.norm.cdf(t) - stats.norm.cdf(least)) / (1 - q)

    expected = integrate.quad(
        lambda x: across.pdf(x) * beyond(x), 0, dimension + 40, points=[t / slope], limit=400
    )[0]
    assert direction_chance(mechanism, cosine) == pytest.approx(expected, rel=1e-8)


@pytest.mark.exact
def test_the_chance_of_a_direction_is_known_where_the_law_is_and_below_the_bound():
    for epsilon in EPSILONS:
        target = DiffuseTarget(20, 0.5)
        for kind in (PrivUnit, PrivUnitGaussian):
            found = direction_chance(kind(20, epsilon, inputs="sphere"), 0.5)
            assert math.exp(target.log_prior) < found <= breach_probability(target, epsilon)
    assert direction_chance(SeparatedMean(20, 4.0), 0.5) is None
    assert codeword_chance(PrivUnitGaussian(20, 4.0), 5) is None


@pytest.mark.exact
@pytest.mark.parametrize("candidates", [1, 2, 7, 100])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_naming_one_of_several_directions_sums_over_who_else_is_in_the_cap(candidates, epsilon):
    mechanism = PrivUnit(12, epsilon, inputs="sphere")
    p, measure = mechanism.coin.probability, mechanism.cap.measure
    others = stats.binom(candidates - 1, measure).pmf(np.arange(candidates))
    expected = p * (others / np.arange(1, candidates + 1)).sum() + (1 - p) * others[0] / candidates
    found = codeword_chance(mechanism, candidates)
    assert found == pytest.approx(expected, rel=1e-9)
    if candidates > 1:
        assert found <= breach_probability(ListedTarget(candidates), epsilon) * (1 + 1e-12)


@pytest.mark.exact
def test_caps_of_no_measure_hold_nobody_else():
    mechanism = PrivUnit(100_000, 8_000.0, inputs="sphere")
    assert mechanism.cap.measure == 0.0
    assert codeword_chance(mechanism, 1000) == pytest.approx(mechanism.coin.probability)


ORACLES = [
    KRandomizedResponse(6, 1.5),
    SubsetSelection(6, 1.5),
    UnaryEncoding(5, 1.5),
    HadamardResponse(6, 1.5),
    BinaryHadamard(6, 1.5),
    ProjectiveGeometryResponse(6, 1.5),
    LocalHashing(4, 1.5),
    LimitedHadamard(6, 1.5, 0.4),
    RecursiveHadamardResponse(6, 1.5),
    PairwiseIndependentRappor(5, 1.5),
    Rappor(5, 1.5),
]


@pytest.mark.exact
@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: type(oracle).__name__)
def test_the_named_value_is_the_likeliest_of_every_report(oracle: FrequencyOracle) -> None:
    """Every report of the channel: naming succeeds as often as the best decision can."""
    size = oracle.domain_size
    named = likeliest_value(oracle, oracle.channel_reports())
    channel = oracle.channel()
    best = value_chance(oracle)
    assert channel[np.arange(len(channel)), named].sum() / size == pytest.approx(best, rel=1e-9)
    assert 1 / size < best <= breach_probability(ListedTarget(size), oracle.local_epsilon)


@pytest.mark.exact
def test_who_knows_what_is_common_names_it_more_often():
    """By every decision rule of a small channel, and never above the bound."""
    oracle, law = KRandomizedResponse(3, 0.5), np.array([0.6, 0.3, 0.1])
    rules = itertools.product(range(3), repeat=3)
    joint = oracle.channel() * law
    best = max(sum(joint[y, v] for y, v in enumerate(rule)) for rule in rules)
    assert value_chance(oracle, law) == pytest.approx(best)
    assert 0.6 < best + 1e-12 <= breach_probability(ListedTarget(3, 0.6), 0.5)


@pytest.mark.exact
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_randomized_response_is_named_as_often_as_any_message_can_be(epsilon):
    found = value_chance(KRandomizedResponse(30, epsilon))
    assert found == pytest.approx(breach_probability(ListedTarget(30), epsilon), rel=1e-9)


@pytest.mark.exact
def test_a_prior_is_a_law():
    for prior in (np.ones(6), np.full(5, 0.2), np.array([1.5, -0.5, 0, 0, 0, 0])):
        with pytest.raises(ValueError, match="prior must hold 6 probabilities"):
            value_chance(KRandomizedResponse(6, 1.0), prior)


@pytest.mark.exact
def test_a_list_of_candidates_has_the_chance_of_its_likeliest():
    assert math.exp(ListedTarget(8).log_prior) == pytest.approx(1 / 8)
    assert breach_probability(ListedTarget(8, 0.5), math.log(3)) == pytest.approx(0.75)
    assert largest_epsilon(ListedTarget(100), 0.5) == pytest.approx(math.log(99))
    assert str(ListedTarget(8)) == "which of 8"
    for likeliest in (0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="likeliest"):
            ListedTarget(8, likeliest)
    with pytest.raises(ValueError, match="candidates"):
        ListedTarget(1)


@pytest.mark.exact
def test_budgets_from_which_an_attack_succeeds():
    """Those of directions, found another way; those of randomized response, in closed form."""
    found = epsilon_reaching(lambda e: direction_chance(PrivUnit(50, e, inputs="sphere"), 0.5), 0.1)
    assert found == pytest.approx(attacked_epsilon(50, 0.5, 0.1), rel=1e-7)
    named = epsilon_reaching(lambda e: value_chance(KRandomizedResponse(12, e)), 0.9)
    assert named == pytest.approx(largest_epsilon(ListedTarget(12), 0.9), rel=1e-7)
    assert epsilon_reaching(lambda e: 0.2, 0.1) == 0.0
    assert epsilon_reaching(lambda e: 0.2, 0.3) is None


# Attacks --------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(("succeeded", "trials"), [(0, 20), (3, 20), (20, 20), (900, 1000)])
def test_intervals_of_shares_are_clopper_and_pearsons(succeeded, trials):
    share = Share(succeeded, trials)
    expected = stats.binomtest(succeeded, trials).proportion_ci(0.95, "exact")
    assert share.interval == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert share.value == succeeded / trials


@pytest.mark.exact
def test_the_linear_attack_is_the_posterior_mean_of_normal_vectors():
    examples = np.random.default_rng(1).standard_normal((30, 4)) @ np.diag([3.0, 1.0, 0.5, 0.0])
    covariance, readings = examples.T @ examples / 30, directions(5, 4)
    expected = readings @ np.linalg.inv(covariance + 0.7 * np.eye(4)) @ covariance
    assert LinearAttack.knowing(examples).guess(readings, 0.7) == pytest.approx(expected)
    still = LinearAttack.knowing(np.zeros((3, 2))).guess(np.ones((1, 2)), 0.0)
    assert still.tolist() == [[0.0, 0.0]]


@pytest.mark.exact
def test_cosines_of_nothing_are_zero():
    found = cosines(np.array([[2.0, 0.0], [0.0, 0.0], [1.0, 1.0]]), np.array([[1.0, 0.0]] * 3))
    assert found == pytest.approx([1.0, 0.0, math.sqrt(0.5)])


@pytest.mark.exact
def test_words_without_a_message_are_the_commonest_and_without_noise_the_own():
    target = SparseTarget(items=10, domain=300, precision=0.5, recall=0.5)
    words = np.random.default_rng(2).random((6, 300)) < target.chances
    blind = guess_words(target, words.astype(float), noise=1e12)
    sizes = blind.sum(axis=1)
    assert (np.diff(blind.astype(int), axis=1) <= 0).all()  # the commonest, and no gap
    assert set(sizes.tolist()) == {round(target.expected_items)}
    clear = guess_words(target, words.astype(float), noise=1e-3)
    assert (clear == words).all()
    assert words_found(target, clear, words).all()


@pytest.mark.exact
def test_words_are_found_from_the_least_precision_and_recall_on():
    target = SparseTarget(items=2, domain=8, precision=0.5, recall=0.75)
    words = np.arange(8) < 4
    rows = [np.arange(8) < size for size in (2, 3, 4, 6, 8)]
    found = words_found(target, np.array(rows), np.array([words] * 5))
    assert found.tolist() == [False, True, True, True, True]
    assert not words_found(target, np.array([np.arange(8) >= 1]), words[None]).any()  # 3 of 7


@pytest.mark.statistical
@pytest.mark.parametrize("kind", [PrivUnit, PrivUnitGaussian])
def test_directions_are_found_and_named_as_often_as_computed(kind: type[MeanRandomizer]) -> None:
    """3,000 messages each, within 5 standard errors; false alarms below 1e-5. A chance that is off
    by 0.05 is caught."""
    mechanism = kind(24, 10.0, inputs="sphere")
    truth = directions(3000, 24, seed=4)
    rng = np.random.default_rng(5)
    readings = read_messages(mechanism, mechanism.randomize(truth, rng=rng))
    shares = [(np.mean(cosines(readings, truth) >= 0.5), direction_chance(mechanism, 0.5))]
    if kind is PrivUnit:
        lists = zip(readings.reshape(-1, 20, 24), truth.reshape(-1, 20, 24))
        named = [best_codeword(read, listed) == np.arange(20) for read, listed in lists]
        shares.append((np.mean(named), codeword_chance(mechanism, 20)))
    for share, chance in shares:
        assert abs(share - chance) < 5 * math.sqrt(chance * (1 - chance) / 3000)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", [PrivUnit, SeparatedMean, L2Mean])
def test_words_are_found_less_often_than_proved(kind: type[MeanRandomizer]) -> None:
    """More with more budget, never above the bound; false alarms below 1e-6 (200 people)."""
    target = SparseTarget(items=5, domain=60, precision=0.8, recall=0.6)
    words = np.random.default_rng(6).random((200, 60)) < target.chances
    centred = words - target.chances
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    sphere = {"inputs": "sphere"} if kind is PrivUnit else {}
    shares = []
    for epsilon in (1.0, 400.0):
        mechanism = kind(60, epsilon, **sphere)
        sent = mechanism.randomize(centred / lengths, rng=np.random.default_rng(7))
        readings = read_messages(mechanism, sent) * lengths.mean() + target.chances
        noise = noise_per_coordinate(mechanism) * float(np.mean(lengths**2))
        guesses = guess_words(target, readings, noise)
        shares.append(Share(int(words_found(target, guesses, words).sum()), 200))
        assert shares[-1].interval[0] <= breach_probability(target, epsilon)
    assert shares[1].interval[0] > shares[0].interval[1]
