"""Reconstruction: golden figures, bounds above attacks, blind guesses exact."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.accounting.reconstruction import (
    DiffuseTarget,
    SparseTarget,
    breach_probability,
    excluded_cosine,
    largest_epsilon,
    smallest_dimension,
)
from beam_ldp.accounting.reconstruction_audit import (
    CHANCES,
    AuditRow,
    _cells,
    _heights,
    at_least,
    attacked_epsilon,
    audit_messages,
    direction_attack,
    feature_attack,
    worst_attack,
)
from beam_ldp.randomizers.mean import L2Mean, PrivUnit, ScalarMean, SeparatedMean

# Diffuse priors -----------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    ("dimension", "cosine", "epsilon"),
    [
        (64, 0.5, 6.81), (64, 0.7, 19.27), (64, 0.9, 50.61), (784, 0.3, 35.39), (784, 0.5, 111.59),
        (784, 0.7, 262.91), (784, 0.9, 649.73), (16, 0.5, -0.73),
    ],
)  # fmt: skip
def test_largest_epsilon(dimension, cosine, epsilon):
    target = DiffuseTarget(dimension, cosine)
    assert largest_epsilon(target, 0.01) == pytest.approx(epsilon, abs=0.005)
    if epsilon > 0:
        assert breach_probability(target, largest_epsilon(target, 0.01)) == pytest.approx(0.01)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("direction", "dimensions"),
    [
        (50, (1301, 428, 184, 76)), (100, (2355, 773, 332, 136)), (500, (10822, 3549, 1517, 616)),
        (1000, (21418, 7023, 3002, 1218)), (5000, (106227, 34826, 14880, 6034)),
        (10000, (212252, 69584, 29730, 12055)),
    ],
)  # fmt: skip
def test_the_papers_own_budgets(direction, dimensions):
    """Smallest protected k where 10 more go to the length, with 1 %."""
    found = [smallest_dimension(direction + 10, a, 0.01) for a in (0.3, 0.5, 0.7, 0.9)]
    assert found == list(dimensions)
    k, a = dimensions[0], 0.3
    chances = [breach_probability(DiffuseTarget(n, a), direction + 10) for n in (k - 1, k)]
    assert chances[0] > 0.01 >= chances[1]


@pytest.mark.exact
def test_cosines_that_one_image_is_protected_from():
    found = [excluded_cosine(e + 10, 784, 0.01) for e in (50, 100, 250, 500)]
    assert found == pytest.approx([0.381, 0.497, 0.697, 0.854], abs=5e-4)
    assert excluded_cosine(1e6, 10, 0.01) == 1.0


@pytest.mark.exact
def test_an_excess_of_the_prior_counts_in_full():
    assert DiffuseTarget(784, 0.5, 3.0).log_prior - DiffuseTarget(784, 0.5).log_prior == 3.0


@pytest.mark.exact
def test_sharp_bound_is_attained_by_priv_unit_and_below_lemma_2_2():
    mechanism = PrivUnit(128, 8.0, inputs="sphere")
    target = DiffuseTarget(128, mechanism.cap.threshold)
    attack = direction_attack(mechanism, mechanism.cap.threshold)
    assert attack == pytest.approx(breach_probability(target, 8.0), abs=1e-9)
    assert attack == pytest.approx(0.9039, abs=5e-5)
    for epsilon in (0.0, 1.0, 8.0, 20.0, 500.0):
        sharp, paper = (breach_probability(target, epsilon, b) for b in ("sharp", "paper"))
        assert sharp <= paper * (1 + 1e-12)
    assert breach_probability(target, 0.0) == pytest.approx(math.exp(target.log_prior))


@pytest.mark.exact
def test_a_coin_of_known_bias_meets_the_bound_with_equality():
    """Randomized response over k values: the posterior of a uniform value, by Bayes' rule."""

    class Uniform:
        log_prior = -math.log(5)

    ratio = math.exp(2.0)
    assert breach_probability(Uniform(), 2.0) == pytest.approx(ratio / (ratio + 4))


# Attacks ------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("dimension", [3, 10, 784])
@pytest.mark.parametrize("epsilon", [0.5, 8.0, 60.0])
def test_heights_are_those_of_the_mechanism(dimension, epsilon):
    """The quadrature integrates to the closed forms of the mean and of the chance of any cap."""
    mechanism = PrivUnit(dimension, epsilon, inputs="sphere")
    heights, weights = _heights(mechanism)
    assert heights @ weights == pytest.approx(mechanism.marginal, rel=1e-8)
    above = weights[heights >= mechanism.cap.threshold].sum()
    assert above == pytest.approx(mechanism.coin.probability, abs=1e-8)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("epsilon", "worst", "bound"), [(20.0, 0.338, 0.971), (50.0, 0.989, 1.0), (100.0, 0.995, 1.0)]
)
def test_attack_on_an_eighth_of_the_wavelets(epsilon, worst, bound):
    mechanism = PrivUnit(784, epsilon, inputs="sphere")
    found = feature_attack(mechanism, 98, 0.5, num_samples=1000)
    assert found.worst == pytest.approx(worst, abs=5e-4)
    assert breach_probability(DiffuseTarget(98, 0.5), epsilon) == pytest.approx(bound, abs=5e-4)


@pytest.mark.statistical
@pytest.mark.parametrize("dimension", [2, 8, 29, 30])
def test_attacks_against_simulated_messages(dimension):
    """Both attacks in 30 dimensions within 5 standard errors; false alarms below 1e-5 each."""
    d, count, cosine = 30, 40_000, 0.6
    mechanism = PrivUnit(d, 12.0, inputs="sphere")
    rng = np.random.default_rng(7)
    u = rng.standard_normal((count, d))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    v = mechanism.randomize(u, rng=rng).astype(float)
    found = feature_attack(mechanism, dimension, cosine)
    a, b = u[:, :dimension], v[:, :dimension]
    cosines = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert abs(np.mean(cosines >= cosine) - found.typical) < 5 * 0.5 / math.sqrt(count)
    assert abs(cosines.mean() - found.mean_cosine) < 5 * cosines.std() / math.sqrt(count)
    assert found.typical <= found.worst * (1 + 1e-12)
    assert found.worst <= breach_probability(DiffuseTarget(dimension, cosine), 12.0)
    # Worst: V itself among the features; turn it onto the first axis.
    heights, weights = _heights(mechanism)
    t = np.interp(rng.random(count) * weights.sum(), np.cumsum(weights), heights)
    w = rng.standard_normal((count, d - 1))
    w *= np.sqrt(1 - t**2)[:, None] / np.linalg.norm(w, axis=1, keepdims=True)
    w = w[:, : dimension - 1]
    hits = t >= cosine * np.sqrt(t**2 + (w**2).sum(axis=1))
    assert abs(hits.mean() - found.worst) < 5 * 0.5 / math.sqrt(count)


@pytest.mark.exact
def test_direction_attack_on_both_sides_of_the_threshold():
    mechanism = PrivUnit(20, 5.0, inputs="sphere")
    heights, weights = _heights(mechanism)
    for cosine in (0.1, mechanism.cap.threshold, 0.5, 0.8):
        direct = direction_attack(mechanism, cosine)
        by_heights = np.interp(cosine, heights, 1 - np.cumsum(weights) + weights / 2)
        assert direct == pytest.approx(by_heights, abs=2e-3)
        assert direct <= breach_probability(DiffuseTarget(20, cosine), 5.0) * (1 + 1e-9)


# Sparse data --------------------------------------------------------------------------------


def brute_force(target):
    """Every guess against every set of words."""
    chances = np.minimum(target.items / np.arange(1, target.domain + 1), 1.0)
    sets = np.array(list(itertools.product([0, 1], repeat=target.domain)))
    law = np.where(sets, chances, 1 - chances).prod(axis=1)
    best = 0.0
    for guess in sets[1:]:
        shared = sets @ guess
        precise = shared >= target.precision * guess.sum() - 1e-9
        recalled = shared >= target.recall * sets.sum(axis=1) - 1e-9
        best = max(best, float(law[precise & recalled].sum()))
    return best


@pytest.mark.exact
@pytest.mark.parametrize("precision", [0.3, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("recall", [0.3, 0.7, 1.0])
def test_the_best_guess_of_all_is_the_one_found(precision, recall):
    for items, domain in [(1, 8), (3, 9)]:
        target = SparseTarget(items, domain, precision, recall)
        assert math.exp(target.log_prior) == pytest.approx(brute_force(target), rel=1e-12)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("setting", "prior", "size"),
    [
        ((20, 2000, 0.5, 0.5), 0.21797486633563942, 108),
        ((50, 5000, 0.5, 0.5), 0.1526182473332406, 274),
        ((100, 10000, 0.5, 0.5), 0.09730207828330852, 552),
        ((100, 10000, 0.5, 0.3), 1.0, None),
        ((100, 10000, 0.8, 0.3), 0.7862, 215),
    ],
)
def test_blind_guesses_of_words(setting, prior, size):
    """Larger than in tables that look at some lengths only: even lengths are better by 2 %."""
    target = SparseTarget(*setting)
    assert math.exp(target.log_prior) == pytest.approx(prior, rel=1e-4)
    assert size in (None, target.best_guess)


@pytest.mark.statistical
def test_blind_guess_against_simulated_people():
    """Of 20,000 people, within 5 standard errors; false alarms below 1e-6."""
    target = SparseTarget(20, 2000, 0.5, 0.5)
    words = np.random.default_rng(1).random((20_000, 2000)) < target.chances
    shared, used = words[:, : target.best_guess].sum(axis=1), words.sum(axis=1)
    share = np.mean((shared >= 0.5 * target.best_guess) & (shared >= 0.5 * used))
    assert abs(share - math.exp(target.log_prior)) < 5 * math.sqrt(0.25 / 20_000)
    assert used.mean() == pytest.approx(target.expected_items, rel=0.01)


@pytest.mark.exact
def test_when_collecting_more_words_helps():
    """Root of p g = 1 + log g: 1.70 at 0.9, 5.36 at 0.5; then the chance falls as m grows."""
    for p, root in ((0.9, 1.70), (0.7, 3.00), (0.5, 5.36), (0.3, 11.46), (0.1, 48.9)):
        recall = p * root / (1 + math.log(10_000 / 101))
        below, above = (
            SparseTarget(100, 10_000, p, min(1.0, recall * f)).collecting_helps
            for f in (0.99, 1.01)
        )
        assert not below and above
    helped = [SparseTarget(m, 100 * m, 0.5, 0.8).log_prior for m in (10, 20, 40)]
    assert helped[0] > helped[1] > helped[2]
    assert helped[2] < 2 * helped[1] * 0.9, "it falls about exponentially"
    hurt = [SparseTarget(m, 100 * m, 0.8, 0.3).log_prior for m in (20, 50, 100)]
    assert hurt[0] < hurt[1] < hurt[2]


@pytest.mark.exact
@pytest.mark.parametrize("cosine", [0.3, 0.9, 0.999])
@pytest.mark.parametrize("chance", [*CHANCES, 0.9])
def test_the_epsilon_of_an_attack_in_three_dimensions(cosine, chance):
    """Where heights are uniform: a cap from a on has the measure (1 - a)/2."""
    blind = (1 - cosine) / 2
    epsilon = attacked_epsilon(3, cosine, chance)
    if blind >= chance:
        assert epsilon == 0.0
        return
    mechanism = PrivUnit(3, epsilon, inputs="sphere")
    g, p = mechanism.cap.threshold, mechanism.coin.probability
    inside = p * min(1.0, (1 - cosine) / (1 - g))
    assert inside + (1 - p) * max(0.0, g - cosine) / (1 + g) == pytest.approx(chance, rel=1e-8)
    assert epsilon >= largest_epsilon(DiffuseTarget(3, cosine), chance) * (1 - 1e-9)


@pytest.mark.exact
@pytest.mark.parametrize(("dimension", "features"), [(784, 98), (784, 784), (10**6, 784)])
def test_the_epsilon_of_an_attack_lies_above_that_of_the_bound(dimension, features):
    one, ten = (attacked_epsilon(dimension, 0.5, c, features=features) for c in CHANCES)
    bounds = [largest_epsilon(DiffuseTarget(features, 0.5), c) for c in CHANCES]
    assert bounds[0] < one < ten and bounds[1] < ten
    mechanism = PrivUnit(dimension, one, inputs="sphere")
    assert worst_attack(mechanism, features, 0.5) == pytest.approx(0.01, rel=1e-6)


@pytest.mark.exact
def test_large_budgets_have_a_tail_although_the_coin_rounds_to_one():
    mechanism = PrivUnit(784, 50_000.0, inputs="sphere")
    assert mechanism.coin.probability == 1.0
    assert worst_attack(mechanism, 98, 0.99) == pytest.approx(1.0, abs=1e-9)
    assert attacked_epsilon(3_000_000, 0.9999, 0.5) == math.inf


# The audit ----------------------------------------------------------------------------------


@pytest.mark.exact
def test_audit_counts_all_messages_and_the_length_too():
    mechanism = SeparatedMean(100, 20.0, magnitude_epsilon=4.0)
    targets = [DiffuseTarget(100, 0.5), DiffuseTarget(10, 0.7), SparseTarget(5, 50, 0.5, 0.9)]
    once, thrice = (audit_messages(mechanism, targets, n) for n in (1, 3))
    assert (once.local_epsilon, thrice.local_epsilon) == (20.0, 60.0)
    for target, one, three in zip(targets, once.rows, thrice.rows):
        assert one.bound == breach_probability(target, 20.0)
        assert three.bound == breach_probability(target, 60.0) > one.bound
        assert one.prior == math.exp(target.log_prior) < one.bound <= one.paper_bound
        assert three.attack == one.attack  # of one message, however many there are
        for chance, epsilon in zip(CHANCES, one.bound_reaches, strict=True):
            assert epsilon == max(0.0, largest_epsilon(target, chance))
    assert once.rows[0].attack.worst == direction_attack(mechanism.direction, 0.5)
    assert all(row.attack.worst <= row.bound for row in once.rows[:2])
    assert once.rows[2].attack is None
    assert str(once).splitlines()[0].startswith("Reconstruction: 1 message of one person, local ep")
    assert once.rows[0].attack_reaches == tuple(attacked_epsilon(100, 0.5, c) for c in CHANCES)
    assert once.rows[2].attack_reaches == () and "in one message of PrivUnit" in str(once)
    assert once.to_dict()["rows"][0]["target"] == "direction of 100 features, cosine >= 0.5"


@pytest.mark.exact
@pytest.mark.parametrize(
    "mechanism", [L2Mean(100, 4.0), PrivUnit(100, 4.0), SeparatedMean(100, 4.0, strategy="lift")]
)
def test_no_attack_is_claimed_where_it_was_not_derived(mechanism):
    (row,) = audit_messages(mechanism, [DiffuseTarget(50, 0.5)]).rows
    assert row.attack is None


@pytest.mark.exact
def test_attacks_are_on_uniform_directions_of_that_many_features():
    mechanism = PrivUnit(100, 4.0, inputs="sphere")
    rows = audit_messages(mechanism, [DiffuseTarget(50, 0.5, 1.0), DiffuseTarget(200, 0.5)]).rows
    assert [row.attack for row in rows] == [None, None]


@pytest.mark.exact
def test_printed_bounds_are_rounded_up():
    cells = _cells(AuditRow("x", 0.111, 0.1111, 0.9999))
    assert cells == ("x", "0.11", "0.12", "1", "-", "-")
    assert _cells(AuditRow("x", 0.0, 0.12, 3.01e-9))[2:4] == ("0.12", "3.1e-09")
    assert [at_least(x) for x in (0.0, 1.5, 111.59, 0.01239999)] == [
        "0",
        "1.5",
        "111.5",
        "0.01239",
    ]


@pytest.mark.exact
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DiffuseTarget(1, 0.5), "dimension must be an integer >= 2"),
        (lambda: DiffuseTarget(3, 1.0), "cosine must lie in"),
        (lambda: DiffuseTarget(3, 0.5, -1.0), "excess must be"),
        (lambda: breach_probability(DiffuseTarget(3, 0.5), -1.0), "local_epsilon must be"),
        (lambda: breach_probability(DiffuseTarget(3, 0.5), math.nan), "local_epsilon must be"),
        (lambda: breach_probability(DiffuseTarget(3, 0.5), 1.0, "loose"), "bound must be"),
        (lambda: largest_epsilon(DiffuseTarget(3, 0.5), 0.0), "probability must lie"),
        (lambda: SparseTarget(0, 10, 0.5, 0.5), "items must be"),
        (lambda: SparseTarget(10, 10, 0.5, 0.5), "domain must be"),
        (lambda: SparseTarget(1, 10, 0.0, 0.5), "precision must lie"),
        (lambda: SparseTarget(1, 10, 0.5, 1.5), "recall must lie"),
        (lambda: feature_attack(PrivUnit(5, 1.0), 6, 0.5), "dimension must lie"),
        (lambda: direction_attack(PrivUnit(5, 1.0), 1.0), "cosine must lie"),
        (lambda: attacked_epsilon(5, 0.5, 1.0), "probability must lie"),
        (lambda: attacked_epsilon(5, 0.5, 0.1, features=6), "features must lie"),
        (lambda: audit_messages(ScalarMean(1, 1.0), [], 0), "participations must be >= 1"),
    ],
)
def test_refused_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.exact
def test_prior_of_a_uniform_direction_is_the_mass_of_a_cap():
    """In three dimensions (1 - a)/2; in k by the beta law."""
    assert math.exp(DiffuseTarget(3, 0.6).log_prior) == pytest.approx(0.2)
    beta = stats.beta(0.5, 9.5).sf(0.49) / 2
    assert math.exp(DiffuseTarget(20, 0.7).log_prior) == pytest.approx(beta)
