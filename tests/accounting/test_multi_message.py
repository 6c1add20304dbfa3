"""The price of shuffled two-response messages: brute force, limits and published figures."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from beam_ldp.accounting.divergences.hockey_stick import hockey_stick
from beam_ldp.accounting.divergences.loss_grid import hockey_sticks
from beam_ldp.accounting.divergences.moments import rdp_to_delta, rdp_to_epsilon
from beam_ldp.accounting.divergences.shuffle_rdp import thesis_upper_1
from beam_ldp.accounting.lower import two_response_atoms
from beam_ldp.accounting.shuffle import multi_message
from beam_ldp.accounting.shuffle import multi_message as mm
from beam_ldp.randomizers.mean.two_response import message_pair
from tests.accounting import rdp_curves
from tests.accounting.rdp_curves import clone_rdp

pytestmark = pytest.mark.exact


def printed_square(num_reports, epsilon, delta):
    """Sum of x^2 that the text allows (its constant 144)."""
    return num_reports * min(epsilon**2, epsilon) / (144 * math.log(1 / delta))


# Squares that each method proves, over the printed ones: n, columns, epsilon; delta = 1e-5.
GOLDEN = [
    (1000, 1, 1.0, {"clones_rdp": 22, "blanket_rdp": 40, "blanket": 51}),
    (1000, 4, 1.0, {"clones_rdp": 33, "blanket_rdp": 55, "blanket": 64}),
    (1000, 300, 1.0, {"clones_rdp": 72, "blanket_rdp": 84, "blanket": 98}),
    (1000, 300, 0.5, {"clones_rdp": 92, "blanket_rdp": 101, "blanket": 119}),
    (1000, 300, 2.0, {"clones_rdp": 105, "blanket_rdp": 133, "blanket": 152}),
    (10_000, 1000, 1.0, {"clones_rdp": 61, "blanket_rdp": 77, "blanket": 88}),
]


@pytest.mark.parametrize(("n", "columns", "epsilon", "expected"), GOLDEN)
def test_calibration_reproduces_the_table(n, columns, epsilon, expected):
    for method, gain in expected.items():
        (budget,) = multi_message.calibrate_messages([columns], [1.0], epsilon, 1e-5, n, method)
        square = columns * 4 * math.sinh(budget / 2) ** 2
        # The last blanket figure was found with losses rounded up, which ours are not.
        assert square / printed_square(n, epsilon, 1e-5) == pytest.approx(gain, rel=0.02)
        price = mm.multi_message_epsilon([(columns, budget)], n, 1e-5, method)
        assert 0.9995 * epsilon < price <= epsilon


# The other rows of the table: routes that nobody should take, and where no route can lead.
ROUTES = {
    "printed, mended (432)": (0.33, 0.33, 0.33, 0.33, 0.67, 0.33),
    "mended by rho + 2 sqrt(rho L)": (0.72, 0.72, 0.72, 0.73, 1.38, 0.72),
    "Theorem 5.3.1": (6.2, 8.0, 27, 34, 41, 27),
    "central Gaussian": (119, 119, 119, 134, 209, 119),
}


def square_of_route(route, n, columns, epsilon, delta):
    """Sum of x^2 that a route allows."""
    log_delta = math.log(1 / delta)
    if route.startswith("printed"):
        return n * min(epsilon**2, 3 * epsilon) / (432 * log_delta)
    if route.startswith("mended"):
        return n * (math.sqrt(log_delta + epsilon) - math.sqrt(log_delta)) ** 2 / 48
    if route == "central Gaussian":
        return n * multi_message.gaussian_mu(epsilon, delta) ** 2
    orders = np.unique(np.rint(np.geomspace(2, 400, 60))).astype(int)

    def excess(log_budget):
        rdp = [columns * thesis_upper_1(int(a), math.exp(log_budget), n) for a in orders]
        return math.log(rdp_to_epsilon(orders, rdp, delta)[0] / epsilon)

    budget = math.exp(optimize.brentq(excess, math.log(1e-3), math.log(8.0), xtol=1e-4))
    return columns * 4 * math.sinh(budget / 2) ** 2


@pytest.mark.parametrize("route", ROUTES)
def test_other_rows_of_the_table(route):
    for (n, columns, epsilon, ours), expected in zip(GOLDEN, ROUTES[route]):
        gain = square_of_route(route, n, columns, epsilon, 1e-5) / printed_square(n, epsilon, 1e-5)
        assert gain == pytest.approx(expected, rel=0.02, abs=0.006)
        assert (gain > ours["blanket"]) == (route == "central Gaussian")


def test_no_accountant_can_go_far_beyond_ours():
    """One concrete pair of data sets: ours spends at most 1.4 times less than what is possible."""
    for n, columns, epsilon, _ in GOLDEN:
        if columns == 1:
            continue  # one message of a large budget: the blanket gives most away there
        (budget,) = multi_message.calibrate_messages([columns], [1.0], epsilon, 1e-5, n)
        flip = 1 / (1 + math.exp(budget))
        low = mm.witness_epsilon(((columns, 1 - flip, flip),), n, 1e-5)
        assert 0.7 * epsilon < low <= epsilon


@pytest.mark.parametrize("budget", [0.1, 0.5, 1.0])
def test_exact_divergence_tends_to_the_gaussian_one(budget):
    """Two-response bits of 10,000 people who agree: a x^2/(2n) to 1 %."""
    x = 2 * math.sinh(budget / 2)
    for order in (2.0, 8.0):
        exact = two_response_atoms(budget, 10_000).worst_renyi(order)
        assert exact == pytest.approx(order * x**2 / 20_000, rel=0.01)


def test_accuracy_floor_of_300_messages():
    for method, least in (("blanket_rdp", 0.411), ("blanket", 0.443)):
        (budget,) = multi_message.calibrate_messages([300], [1.0], 1.0, 1e-5, 1000, method)
        assert 2 * math.sinh(budget / 2) >= least


def real_law(bits, flip, size):
    """Law of the shuffled multiset of (place, bit) messages of users with these blocks of bits."""
    law = {(0,) * (2 * size): 1.0}
    for block in bits:
        new: dict[tuple[int, ...], float] = {}
        for counts, mass in law.items():
            for place, bit in itertools.product(range(size), (0, 1)):
                probability = (1 - flip if bit == block[place] else flip) / size
                where = counts[: 2 * place + bit] + (counts[2 * place + bit] + 1,)
                key = where + counts[2 * place + bit + 1 :]
                new[key] = new.get(key, 0.0) + mass * probability
        law = new
    return law


@pytest.mark.parametrize(("n", "size"), [(1, 1), (2, 1), (4, 1), (5, 1), (2, 2), (3, 2), (2, 3)])
@pytest.mark.parametrize("budget", [0.3, 1.0, 2.5])
def test_no_dataset_of_the_real_mechanism_exceeds_the_blanket(n, size, budget):
    """All data of the others, all pairs of the victim's blocks; divergences and hockey sticks."""
    flip = 1 / (1 + math.exp(budget))
    atoms = mm.message_atoms(budget, n)
    blocks = list(itertools.product((0, 1), repeat=size))
    thresholds = np.array([0.0, 0.2 * budget, 0.7 * budget])
    sticks = hockey_sticks(atoms, thresholds)
    for others in itertools.combinations_with_replacement(blocks, n - 1):
        laws = [real_law((*others, block), flip, size) for block in blocks]
        for first, second in itertools.permutations(laws, 2):
            p = np.array(list(first.values()))
            q = np.array([second[key] for key in first])
            for order in (1.5, 2.0, 8.0):
                truth = math.log(np.sum(p**order * q ** (1 - order))) / (order - 1)
                assert truth <= atoms.renyi(order) * (1 + 1e-9)
            for stick, threshold in zip(sticks, thresholds):
                assert np.maximum(p - math.exp(threshold) * q, 0).sum() <= stick + 1e-12


@pytest.mark.parametrize("budget", [0.1, 0.5, 1.0])
def test_many_reports_cost_what_a_gaussian_of_the_same_mu_costs(budget):
    x = 2 * math.sinh(budget / 2)
    exact = 2 * x**2 / (2 * 10_000)
    # The blanket gives away who is noise: at most a factor 2(1 - p) above the limit.
    factor = 2 / (1 + math.exp(-budget))
    value = mm.message_atoms(budget, 10_000).renyi(2.0)
    assert exact <= value <= 1.01 * factor * exact


@pytest.mark.parametrize("budget", [0.5, 1.0, 2.0])
def test_exact_below_blanket_below_clones_below_the_thesis_bound(budget):
    for order in (2, 4, 8, 16):
        blanket = mm.message_atoms(budget, 1000).renyi(order)
        clones = mm.message_atoms(budget, 1000, True).renyi(order)
        exact = two_response_atoms(budget, 1000).worst_renyi(order)
        assert exact < blanket < clones < thesis_upper_1(order, budget, 1000)
        assert clones == pytest.approx(clone_rdp(order, budget, 1000), rel=2e-3)


@pytest.mark.parametrize(("n", "budget"), [(50, 0.5), (1000, 2.0), (100_000, 4.0)])
def test_one_column_costs_what_the_pair_costs(n, budget):
    """Two independent routes to one number: merged atoms, and inversion of the transform."""
    pair = message_pair(budget)
    atoms = mm.message_atoms(budget, n)
    scale = 2 * math.sinh(budget / 2) / math.sqrt(n)
    for epsilon in (0.5 * scale, 2 * scale):
        found = float(hockey_sticks(atoms, np.array([epsilon]))[0])
        known = hockey_stick(pair, n, epsilon)
        assert known.lower * (1 - 1e-6) <= found <= known.upper * 1.004


def test_delta_and_epsilon_are_inverse_and_composition_counts():
    columns = [(40, 0.7), (40, 0.5)]
    for method in ("blanket", "clones"):
        epsilon = mm.multi_message_epsilon(columns, 2000, 1e-6, method)
        assert rdp_curves.multi_message_delta(columns, 2000, epsilon, method) <= 1e-6 * 1.001
        assert rdp_curves.multi_message_delta(columns, 2000, 0.98 * epsilon, method) > 1e-6
    split = [(20, 0.7), (20, 0.7), (40, 0.5)]
    together, apart = (mm.multi_message_epsilon(c, 2000, 1e-6) for c in (columns, split))
    assert apart == pytest.approx(together, rel=1e-4)
    orders = np.array([2.0, 5.0, 20.0])
    one = mm.multi_message_rdp([(1, 0.7)], 2000, orders)
    assert np.allclose(mm.multi_message_rdp([(7, 0.7)], 2000, orders), 7 * one, rtol=1e-12)


def test_monotone_in_reports_budget_columns_and_delta():
    base = mm.multi_message_epsilon([(10, 0.5)], 1000, 1e-6)
    assert mm.multi_message_epsilon([(10, 0.5)], 900, 1e-6) > base
    assert mm.multi_message_epsilon([(10, 0.55)], 1000, 1e-6) > base
    assert mm.multi_message_epsilon([(11, 0.5)], 1000, 1e-6) > base
    assert mm.multi_message_epsilon([(10, 0.5)], 1000, 1e-7) > base


def test_one_report_costs_the_local_budget_at_most():
    for method in ("blanket", "blanket_rdp", "clones"):
        price = mm.multi_message_epsilon([(3, 0.5)], 1, 1e-9, method)
        assert 1.45 < price <= 1.5


def test_the_constant_144_of_the_text_is_not_certified_and_432_is():
    """Faults of Theorems 3.3.2, 3.5.2 and 3.6.2: sqrt(3) epsilon by their own lemma."""
    n, columns, epsilon, delta = 10**6, 300, 0.1, 1e-8
    log_delta = math.log(1 / delta)

    def price(constant, numerator):
        square = n * numerator / (constant * log_delta)
        rho = 48 * square / n
        return max(rho * log_delta, math.sqrt(rho * log_delta)) * 3, square

    printed, _ = price(144, min(epsilon**2, epsilon))
    assert printed == pytest.approx(math.sqrt(3) * epsilon)
    mended, square = price(432, min(epsilon**2, 3 * epsilon))
    assert mended == pytest.approx(epsilon)
    budget = 2 * math.asinh(math.sqrt(square / columns) / 2)
    assert mm.multi_message_epsilon([(columns, budget)], n, delta, "thesis") <= epsilon
    (best,) = multi_message.calibrate_messages([columns], [1.0], epsilon, delta, n, "thesis")
    assert best > budget  # the form rho + 2 sqrt(rho log(1/delta)) proves more than the maximum


def test_thesis_method_refuses_where_its_lemma_does_not_reach():
    """No theorem of chapter 3 checks the order: with one message and a million users it fails."""
    with pytest.raises(ValueError, match="not proved here"):
        multi_message.calibrate_messages([1], [1.0], 1.0, 1e-5, 10**6, "thesis")


def test_gaussian_golden_and_conversions():
    assert multi_message.gaussian_mu(1.0, 1e-5) == pytest.approx(0.26805, rel=1e-4)
    orders = np.geomspace(1.5, 400, 4000)
    rdp = orders * 0.26805**2 / 2
    epsilon = rdp_to_epsilon(orders, rdp, 1e-5)[0]
    assert epsilon == pytest.approx(1.092, abs=5e-4)
    assert rdp_to_delta(orders, rdp, epsilon)[0] == pytest.approx(1e-5, rel=1e-9)
    first, second = stats.norm.cdf([0.26805 / 2 - 1 / 0.26805, -0.26805 / 2 - 1 / 0.26805])
    assert first - math.e * second == pytest.approx(1e-5, rel=1e-3)


def test_printed_amplification_of_one_message_is_not_a_guarantee():
    """Theorem 3.4.2 sets eps0 = eps sqrt(n/log(1/delta)); one dataset costs over 5 % more."""
    n, delta, local = 1000, 1e-8, 0.5
    claimed = local * math.sqrt(math.log(1 / delta) / n)
    flip = 1 / (1 + math.exp(local))
    others = stats.binom(n - 1, flip).pmf(np.arange(n))
    with_one = np.append(others, 0) * flip + np.append(0, others) * (1 - flip)
    with_zero = np.append(others, 0) * (1 - flip) + np.append(0, others) * flip
    gap = np.maximum(with_zero - math.exp(1.05 * claimed) * with_one, 0).sum()
    other = np.maximum(with_one - math.exp(1.05 * claimed) * with_zero, 0).sum()
    assert max(gap, other) > delta
    assert mm.multi_message_epsilon([(1, local)], n, delta) > 1.09 * claimed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], 10, 1e-5), "messages"),
        (([(0, 1.0)], 10, 1e-5), "messages"),
        (([(1, -1.0)], 10, 1e-5), "messages"),
        (([(1, math.nan)], 10, 1e-5), "messages"),
        (([(1, 1.0)], 0, 1e-5), "num_reports"),
        (([(1, 1.0)], 2.5, 1e-5), "num_reports"),
        (([(1, 1.0)], 10, 0.0), "delta"),
        (([(1, 1.0)], 10, 1e-5, "magic"), "method"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        mm.multi_message_epsilon(*arguments)


def test_calibration_refuses_bad_targets():
    with pytest.raises(ValueError, match="epsilon"):
        multi_message.calibrate_messages([1], [1.0], -1.0, 1e-5, 100)
    with pytest.raises(ValueError, match="shape"):
        multi_message.calibrate_messages([1, 2], [1.0], 1.0, 1e-5, 100)
    with pytest.raises(ValueError, match="epsilon"):
        multi_message.calibrate_messages([1], [1.0], 40.0, 1e-5, 100)
    with pytest.raises(ValueError, match="two-response"):
        mm.messages_of(object())
