"""What every frequency oracle promises, checked in one place for all of them."""

from __future__ import annotations

import functools
import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from beam_ldp.randomizers import FrequencyOracle, LocalRandomizer, ShufflePair, frequency, registry
from beam_ldp.randomizers.entropy import entropy_bits
from tests.examples import examples
from tests.randomizers.frequency import exact_checks as checks
from tests.randomizers.frequency.all_oracles import BUDGETS, SIZES, cases, oracles_of

CLASSES = [getattr(frequency, name) for name in frequency.__all__]
MIXED = np.array([0.5, 0.25, 0.125, 0.0625, 0.0625])


def test_every_class_is_here():
    assert set(CLASSES) == set(registry.offered("frequency")) and all(k.decoding for k in CLASSES)
    assert {type(oracle) for _, oracle in oracles_of(5, 1.0)} == set(CLASSES)


# Exact: the channel alone decides ---------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("oracle", cases())
def test_channel_privacy_unbiasedness_and_variance(oracle):
    checks.check_channel(oracle)


@pytest.mark.exact
@pytest.mark.parametrize("oracle", cases((2, 5, 12), (0.1, 3.0)))
def test_entropy_is_that_of_the_channel(oracle):
    """Of a public row, what is left of it: rows are uniform, and so is who is asked."""
    columns = [entropy_bits(column) for column in oracle.channel().T]
    if getattr(oracle, "row", "sent") == "public":
        columns = [oracle.cond_entropy_bits]
        assert oracle.cond_entropy_bits <= 1
    assert oracle.cond_entropy_bits == pytest.approx(max(columns), rel=1e-9)


@pytest.mark.exact
def test_golden_entropies():
    """Random bits of a report, k = 1000 and a local epsilon of 1."""
    golden = {
        "KRandomizedResponse": 9.9643, "UnaryEncoding": 840.10, "SubsetSelection": 834.72,
        "HadamardResponse": 9.8298, "ProjectiveGeometryResponse": 9.9162,
    }  # fmt: skip
    for name, bits in golden.items():
        oracle = getattr(frequency, name)(1000, 1.0)
        assert oracle.cond_entropy_bits == pytest.approx(bits, rel=2e-3), name
    symmetric = frequency.UnaryEncoding(1000, 1.0, optimized=False)
    assert symmetric.cond_entropy_bits == pytest.approx(956.29, abs=5e-3)
    compact = frequency.PairwiseIndependentRappor(1000, 1.0, compact=True)
    assert compact.cond_entropy_bits == pytest.approx(12.502, abs=1e-3)
    public = frequency.BinaryHadamard(1000, 1.0, row="public")
    assert public.cond_entropy_bits == pytest.approx(0.83994, abs=5e-6)


def law_of_multiset(channel: np.ndarray, values: tuple[int, ...]) -> np.ndarray:
    """Chances of all tuples of reports, each the average over the orders of its reports."""
    ordered = functools.reduce(np.multiply.outer, [channel[:, value] for value in values])
    orders = list(itertools.permutations(range(len(values))))
    return sum(ordered.transpose(order) for order in orders) / len(orders)


def exact_divergence(channel: np.ndarray, first: int, second: int, others: tuple[int, ...], t):
    """Hockey stick between the multisets of reports of two data sets that differ in one value."""
    one, other = (law_of_multiset(channel, (value, *others)) for value in (first, second))
    return float(np.maximum(0.0, one - t * other).sum())


def pair_divergence(pair: ShufflePair, num_users: int, t: float) -> float:
    """What the accountant makes of a pair: M = 1 + Bin(n - 1, blanket mass) draws, averaged."""
    total, mass, n = 0.0, pair.blanket_mass, num_users
    gaps = np.array(pair.ratios) @ np.array([1.0, -t])
    for draws in range(1, n + 1):
        weight = math.comb(n - 1, draws - 1) * mass ** (draws - 1) * (1 - mass) ** (n - draws)
        chance = functools.reduce(np.multiply.outer, [np.array(pair.probabilities)] * draws)
        gap = functools.reduce(np.add.outer, [gaps] * draws) / draws
        total += weight * float((chance * np.maximum(0.0, gap)).sum())
    return total


@pytest.mark.exact
@pytest.mark.parametrize(
    "oracle",
    [
        case
        for case in cases((2, 3, 5), (0.1, 1.0, 3.0))
        # A public row is a crowd of its own: tests of BinaryHadamard.
        if len(case.values[0].channel()) <= 32 and getattr(case.values[0], "row", "sent") == "sent"
    ],
)
@pytest.mark.parametrize("slack", [0.0, 0.3, 0.8])
def test_dominating_pair_bounds_every_pair_of_data_sets(oracle, slack):
    """By brute force: two reports, every pair of values, every value of the other person."""
    channel, t = oracle.channel(), math.exp(slack * oracle.local_epsilon)
    pair = oracle.dominating_pair()
    assert pair.proof_status == "proved"
    values = range(oracle.domain_size)
    true = {
        (x, other): exact_divergence(channel, x, y, (other,), t)
        for x, y in itertools.permutations(values, 2)
        for other in values
    }
    worst = max(true.values())
    bounds = [pair_divergence(p, 2, t) for p in (pair, pair.swapped())]
    assert worst <= max(bounds) + 1e-12
    for witness in oracle.witness_pairs():
        for direction in (witness, witness.swapped()):
            assert pair_divergence(direction, 2, t) <= worst + 1e-9


@pytest.mark.exact
@pytest.mark.parametrize("oracle", cases((2, 3), (1.0,), ("k-ary", "hadamard", "geometry")))
def test_dominating_pair_bounds_three_reports(oracle):
    channel, t = oracle.channel(), math.exp(0.4)
    values = range(oracle.domain_size)
    worst = max(
        exact_divergence(channel, x, y, others, t)
        for x, y in itertools.permutations(values, 2)
        for others in itertools.combinations_with_replacement(values, 2)
    )
    assert worst <= pair_divergence(oracle.dominating_pair(), 3, t) + 1e-12
    best = max(pair_divergence(w, 3, t) for w in oracle.witness_pairs())
    assert 0 < best <= worst + 1e-12


@pytest.mark.exact
@pytest.mark.parametrize("oracle", cases((2, 5, 12), (1.0,)))
def test_merge_law_wire_config_memoization_and_emptiness(oracle):
    checks.check_everything_but_the_channel(oracle)


@pytest.mark.exact
@pytest.mark.parametrize("oracle", cases((3, 12), (0.1, 6.0)))
def test_statistics_of_parts_add_up_in_any_order(oracle):
    rng = np.random.default_rng(3)
    reports = oracle.randomize(rng.integers(0, oracle.domain_size, 1000), rng)
    whole = oracle.accumulate(reports)
    assert whole.shape == oracle.statistic_shape and whole.dtype == np.int64
    order = rng.permutation(1000)
    parts = [
        oracle.accumulate(reports[order[a:b]]) for a, b in ((0, 1), (1, 1), (1, 700), (700, 1000))
    ]
    np.testing.assert_array_equal(sum(parts), whole)


@pytest.mark.exact
@pytest.mark.parametrize("oracle", cases((5,), (1.0,)))
def test_possible_reports_survive_the_wire_and_no_other(oracle):
    """All reports of the channel pass; streams of that width decode to those or are refused."""
    possible = oracle.channel_reports()
    np.testing.assert_array_equal(oracle.unpack(oracle.pack(possible), len(possible)), possible)
    rng = np.random.default_rng(1)
    bits = oracle.bits_per_report
    allowed = {report.tobytes() for report in possible}
    refused = 0
    for _ in range(300):
        number = int.from_bytes(rng.bytes(8), "big") % (1 << bits)
        data = (number << (-bits % 8)).to_bytes(-(-bits // 8), "big")
        if type(oracle).__name__ in ("UnaryEncoding", "SubsetSelection", "Rappor"):
            data = number.to_bytes(-(-bits // 8), "little")
        try:
            assert oracle.unpack(data, 1)[0].tobytes() in allowed
        except ValueError:
            refused += 1
    assert (refused > 0) == (len(possible) < 1 << bits)


@pytest.mark.exact
@pytest.mark.parametrize("oracle", cases((12,), (3.0,)))
def test_pickles_small_and_equal(oracle):
    """A mechanism travels inside a job graph: its fields do, its tables do not."""
    oracle.randomize(np.arange(12), np.random.default_rng(0))
    oracle.channel()
    data = pickle.dumps(oracle)
    assert len(data) < 1000
    again = pickle.loads(data)
    assert again == oracle and again.config_digest() == oracle.config_digest()
    values = np.arange(12)
    np.testing.assert_array_equal(
        again.randomize(values, np.random.default_rng(1)),
        oracle.randomize(values, np.random.default_rng(1)),
    )


@pytest.mark.exact
@pytest.mark.parametrize("cls", CLASSES)
def test_errors_name_the_argument(cls):
    for size in (0, 1, -3, 2.5, True, None, "4", 1 << 40):
        with pytest.raises(ValueError, match="domain_size must"):
            cls(size, 1.0)
    for epsilon in (0, -1.0, math.nan, math.inf, None, "1", True):
        with pytest.raises(ValueError, match="local_epsilon must"):
            cls(4, epsilon)
    for epsilon in (60.0, 1e4, 1e-10, 1e-300):
        with pytest.raises(ValueError, match="local_epsilon"):
            cls(4, epsilon)
    oracle = cls(4, 1.0)
    for values in (np.array([0.5]), np.array([[1]]), np.array(["a"]), np.array([True])):
        with pytest.raises(ValueError, match="values must be a one-dimensional integer array"):
            oracle.randomize(values)
    for values in (np.array([-1]), np.array([4]), np.array([3, 987654321])):
        with pytest.raises(ValueError, match=r"values must lie in \[0, 4\)") as caught:
            oracle.randomize(values)
        assert "987654321" not in str(caught.value)
    good = np.zeros(oracle.statistic_shape, dtype=np.int64)
    with pytest.raises(ValueError, match="statistic must have shape"):
        oracle.estimate(np.zeros((3, 3, 3)), 5)
    for users in (-1, 1.5):
        with pytest.raises(ValueError, match="num_users must"):
            oracle.estimate(good, users)
    with pytest.raises(ValueError, match="sampling must"):
        oracle.variance(5, sampling="other")
    with pytest.raises(ValueError, match="truth must"):
        oracle.variance(5, truth=np.array([0.5, 0.5]))


@pytest.mark.exact
@pytest.mark.parametrize("cls", CLASSES)
@examples(50)
@given(size=st.integers(-5, 300), epsilon=st.floats(-1, 40))
def test_constructors_work_or_say_why(cls, size, epsilon):
    try:
        oracle = cls(size, epsilon)
    except ValueError as error:
        assert size < 2 or epsilon <= 0 or epsilon > 12 or epsilon < 1e-6, error
        assert "domain_size" in str(error) or "local_epsilon" in str(error)
        return
    assert size >= 2 and epsilon > 0
    assert 0 < oracle.log_ratio_max() <= epsilon
    assert oracle.bits_per_report >= 1
    assert LocalRandomizer.from_config(oracle.to_config()) == oracle
    reports = oracle.randomize(np.array([0, size - 1]), np.random.default_rng(0))
    np.testing.assert_array_equal(oracle.unpack(oracle.pack(reports), 2), reports)
    assert np.isfinite(oracle.estimate(oracle.accumulate(reports), 2).value).all()
    assert (oracle.variance(2) > 0).all()


# Statistical: the real secure path --------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("oracle", cases((3, 5), (1.0,)))
def test_reports_follow_the_channel(oracle):
    """Chi-square on 40,000 draws per value; false alarm below 1e-6 per value (see the helper)."""
    checks.check_sampling(oracle, 40_000, seed=20)


@pytest.mark.statistical
@pytest.mark.parametrize("oracle", cases((8,), (0.1, 3.0)))
def test_estimates_hit_the_truth(oracle):
    """6 sigma per component; false alarm below 1e-7 for each oracle (see the helper)."""
    checks.check_estimates(oracle, 30_000, seed=30)


def audited_epsilon(oracle: FrequencyOracle, num_draws: int, miss: float) -> float:
    """A lower bound on epsilon from draws alone, of the values 0 and 1.

    Half of the fresh secure draws choose an event (the reports seen relatively most often for
    value 0), the other half test it: Clopper-Pearson, each side at `miss`. Nothing that the
    oracle claims about itself is used.
    """
    codes = {report.tobytes(): i for i, report in enumerate(oracle.channel_reports())}
    counts = np.zeros((2, 2, len(codes)), dtype=np.int64)
    for value in (0, 1):
        for half in (0, 1):
            reports = oracle.randomize(np.full(num_draws // 2, value))
            distinct, seen = np.unique(reports, axis=0, return_counts=True)
            where = [codes[np.ascontiguousarray(report).tobytes()] for report in distinct]
            counts[half, value, where] = seen
    order = np.argsort(-(counts[0, 0] + 1) / (counts[0, 1] + 1), kind="stable")
    cumulated = counts[:, :, order].cumsum(axis=2)
    bounds = lower_bounds(cumulated[0, 0], cumulated[0, 1], num_draws // 2, miss)
    best = int(np.argmax(bounds))
    return float(lower_bounds(cumulated[1, 0], cumulated[1, 1], num_draws // 2, miss)[best])


def lower_bounds(first: np.ndarray, second: np.ndarray, draws: int, miss: float) -> np.ndarray:
    low = stats.beta.ppf(miss, np.maximum(first, 1), draws - first + 1)
    high = stats.beta.isf(miss, second + 1, np.maximum(draws - second, 1))
    with np.errstate(invalid="ignore"):
        return np.where(first > 0, np.log(low) - np.log(high), -np.inf)


@pytest.mark.statistical
@pytest.mark.parametrize("oracle", cases((5,), (1.0,)))
def test_audit_finds_no_more_than_declared_and_more_than_half_of_it(oracle):
    """A million fresh secure draws; false alarm of the upper side 2e-9 per oracle.

    Every oracle here is tight (some reports are e**local_epsilon times as likely). The lower side
    fails with negligible chance: half of epsilon is tens of standard deviations below it.
    """
    found = audited_epsilon(oracle, 500_000, miss=1e-9)
    assert oracle.local_epsilon / 2 < found <= oracle.local_epsilon


def test_audit_catches_an_oracle_that_overspends():
    """The audit is not blind: reports of a budget of 1.5 are no reports of a budget of 1."""
    strong = frequency.KRandomizedResponse(5, 1.5)
    assert audited_epsilon(strong, 500_000, miss=1e-9) > 1.0


# Golden -----------------------------------------------------------------------------------

GOLDEN_BUDGETS = (math.log(2), 1.0, 2.0, 3.0, 4.0, 5.0)
# n times the variance of a value that nobody holds, k = 1000. (Subset selection: of the size of
# subset with the least total error.)
GOLDEN_NOISE = {
    "KRandomizedResponse": (1000.0, 338.94, 24.630, 2.795, 0.36641, 0.052756),
    "UnaryEncoding": (8.0, 3.6827, 0.72406, 0.22056, 0.076022, 0.027319),
    "LocalHashing": (8.0, 3.6917, 0.72459, 0.22057, 0.076023, 0.027319),
    "SubsetSelection": (7.982, 3.6733, 0.72061, 0.21812, 0.073872, 0.025324),
    "ProjectiveGeometryResponse": (7.9835, 3.7611, 0.73076, 0.22082, 0.075332, 0.027227),
}


@pytest.mark.exact
@pytest.mark.parametrize("name", sorted(GOLDEN_NOISE))
def test_golden_noise(name):
    nobody = np.zeros(1000)
    for epsilon, noise in zip(GOLDEN_BUDGETS, GOLDEN_NOISE[name]):
        oracle = getattr(frequency, name)(1000, epsilon)
        assert oracle.variance(1, nobody)[0] == pytest.approx(noise, rel=2e-4), epsilon


@pytest.mark.exact
def test_projective_geometry_reaches_optimized_unary_noise_in_few_bits():
    for size, epsilon in itertools.product((300, 1000, 22_000), (2.0, 3.0, 4.0, 5.0)):
        geometry = frequency.ProjectiveGeometryResponse(size, epsilon)
        unary = frequency.UnaryEncoding(size, epsilon)
        nobody = np.zeros(size)
        assert geometry.variance(1, nobody)[0] < 1.06 * unary.variance(1, nobody)[0]
        assert geometry.bits_per_report <= math.ceil(math.log2(size)) + 5


@pytest.mark.exact
def test_sizes_and_budgets_are_those_promised():
    assert SIZES == (2, 3, 5, 8, 12) and BUDGETS == (0.1, 1.0, 3.0, 6.0)
