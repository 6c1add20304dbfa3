"""PrivUnit: its budget, its error, its law, and its reports."""

from __future__ import annotations

import math
import time

import mpmath
import numpy as np
import pytest

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean.priv_unit import CapCoin, PrivUnit
from beam_ldp.randomizers.randomness import UserRandomness
from tests.identities import identity
from tests.randomizers.mean.golden_errors import golden

PRESETS = {
    "optimum": {},
    "paper .99": {"preset": "experiments", "cap_condition": "paper"},
    "paper 13/14": {"preset": "simulation", "cap_condition": "paper"},
    "exact .99": {"preset": "experiments"},
    "exact 1/2": {"preset": "theory"},
}


PAPER_TABLE = [  # dimension, epsilon, threshold, coin probability
    (3274634, 500, 0.01729, 0.9933),
    (3274634, 250, 0.01217, 0.924),
    (3274634, 100, 0.00760, 0.731),
    (3274634, 50, 0.00527, 0.622),
    (1068298, 5000, 0.09598, 1.0),
    (1068298, 1000, 0.04291, 1.0),
    (1068298, 500, 0.03027, 0.993),
    (1068298, 100, 0.01331, 0.731),
]
RULE_COSTS = {
    1: 1.05,
    2: 1.18,
    4: 1.53,
    8: 2.11,
    16: 2.52,
    32: 2.53,
    64: 2.15,
    128: 1.58,
    256: 1.15,
}
CAP_SHARES = {1: 0.64, 4: 0.667, 8: 0.724, 16: 0.805, 32: 0.876, 64: 0.926, 100: 0.948, 500: 0.986}
REFUSED = [
    ({"dimension": 1}, "dimension must be >= 2"),
    ({"local_epsilon": 0.0}, "local_epsilon must be"),
    ({"preset": "best"}, "preset must be one of"),
    ({"cap_condition": "loose"}, "cap_condition must"),
    ({"cap_condition": "paper"}, "needs one of the paper's presets"),
    ({"inputs": "cube"}, "inputs must be"),
    ({"coordinate_bits": 33}, "coordinate_bits must lie"),
    ({"dimension": 10**4, "coordinate_bits": 4}, "too few"),
]


def sphere_error(d, epsilon, **options):
    mechanism = PrivUnit(d, epsilon, inputs="sphere", **options)
    return mechanism.mean_squared_error(1)


def units(n, d, seed=0):
    x = np.random.default_rng(seed).standard_normal((n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


# Budget ------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("d", [2, 3, 128, 10**6])
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 8.0, 64.0])
@pytest.mark.parametrize("preset", ["optimal", "experiments", "simulation", "theory"])
def test_budget_is_spent_and_not_exceeded(d, epsilon, preset):
    spent = PrivUnit(d, epsilon, preset=preset).log_ratio_max()
    assert spent <= epsilon
    if PrivUnit(d, epsilon, preset=preset).cap.threshold > 1 - 1e-9:
        return  # a cap of one point cannot take the whole budget
    # In two or three dimensions a huge budget goes to the coin, which resolves 2^-64.
    assert spent == pytest.approx(epsilon, abs=1e-10 if d > 3 or epsilon < 20 else 1e-3)


@pytest.mark.exact
@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 3, 10, 100])
def test_the_papers_condition_wastes_budget_but_never_exceeds_it(epsilon):
    for preset in ("experiments", "simulation", "theory"):
        spent = PrivUnit(1000, epsilon, preset=preset, cap_condition="paper").log_ratio_max()
        assert epsilon - 1.1 < spent < epsilon


@pytest.mark.exact
@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1.0, 30.0, 50.0, 100.0])
def test_coin_rounds_toward_more_privacy(epsilon):
    coin = CapCoin.spending(epsilon)
    assert coin.log_odds <= epsilon + 1e-15
    assert coin.threshold < 2**64
    if epsilon <= 30:
        assert coin.log_odds == pytest.approx(epsilon, abs=1e-5)


@pytest.mark.statistical
def test_histogram_ratio_in_three_dimensions():
    """1e6 reports of each of two opposite vectors in 40 cells; 4.5 s.e., false alarm 3e-4 in all.

    Heights of uniform points are uniform in three dimensions, so cells have equal reference mass.
    """
    mechanism, n = PrivUnit(3, 1.0), 1_000_000
    counts = []
    for seed, sign in ((1, 1.0), (2, -1.0)):
        vectors = np.broadcast_to([0.0, 0.0, sign], (n, 3))
        reports = mechanism.randomize(vectors, np.random.default_rng(seed))
        height = reports[:, 2] / mechanism.fixed_point.largest
        counts.append(np.histogram(height, bins=40, range=(-1, 1))[0])
    ratio = np.log(counts[0] / counts[1])
    error = np.sqrt(1 / counts[0] + 1 / counts[1])
    assert (np.abs(ratio) <= 1.0 + 4.5 * error).all()
    assert (np.abs(ratio) >= 1.0 - 4.5 * error).sum() >= 20  # and the budget is used


@pytest.mark.exact
def test_dominating_pair_is_the_two_level_blanket():
    mechanism = PrivUnit(50, 2.0)
    pair = mechanism.dominating_pair()
    tau = mechanism.cap.measure
    assert pair.blanket_mass == pytest.approx(1 / (1 + (math.exp(2) - 1) * tau), rel=1e-9)
    assert pair.probabilities == pytest.approx((tau, tau, 1 - 2 * tau), rel=1e-9)
    assert pair.ratios[0][0] / pair.ratios[0][1] == pytest.approx(math.exp(2), rel=1e-9)
    assert mechanism.witness_pairs()[0].is_witness
    with pytest.raises(ValueError, match="local_epsilon must be at most"):
        PrivUnit(1000, 1000.0).dominating_pair()


@pytest.mark.exact
@pytest.mark.parametrize("d", [2, 1000, 10**6])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-2, 700.0, 1e4])
def test_extreme_budgets_give_finite_parameters(d, epsilon):
    mechanism = PrivUnit(d, epsilon, inputs="sphere")
    assert 0 < mechanism.marginal <= 1
    assert math.isfinite(mechanism.mean_squared_error(1))
    assert 0 < mechanism.log_ratio_max() <= epsilon
    assert np.isfinite(mechanism.fixed_point.decode(mechanism.randomize(units(1, d)))).all()


@pytest.mark.bench
def test_parameters_and_draws_are_fast_in_a_million_dimensions():
    """Parameters within 5 ms, one draw within 0.2 s (best of three)."""
    vector, parameters, draws = units(1, 10**6), [], []
    for epsilon in (3.0, 8.0, 500.0):
        begin = time.perf_counter()
        mechanism = PrivUnit(10**6, epsilon)
        _ = mechanism.marginal
        parameters.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        mechanism.randomize(vector)
        draws.append(time.perf_counter() - begin)
    assert min(parameters) < 0.005
    assert min(draws) < 0.2


# Error -------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("row", PRESETS)
def test_error_has_the_known_figures(row):
    for d, epsilon, figure, half_digit in golden(row):
        best = 1.0 if row == "optimum" else sphere_error(d, epsilon)
        assert sphere_error(d, epsilon, **PRESETS[row]) / best == pytest.approx(
            figure, abs=half_digit
        )


@pytest.mark.exact
@pytest.mark.parametrize(("epsilon", "ratio"), RULE_COSTS.items())
def test_cost_of_the_99_percent_rule(epsilon, ratio):
    found = sphere_error(10**4, epsilon, preset="experiments") / sphere_error(10**4, epsilon)
    assert found == pytest.approx(ratio, abs=0.0051)


@pytest.mark.exact
@pytest.mark.parametrize(("d", "epsilon", "threshold", "coin"), PAPER_TABLE)
def test_the_papers_table_of_parameters(d, epsilon, threshold, coin):
    mechanism = PrivUnit(d, epsilon, preset="experiments", cap_condition="paper")
    assert mechanism.cap.threshold == pytest.approx(threshold, abs=5.1e-6)
    assert mechanism.coin.probability == pytest.approx(coin, abs=5.1e-4)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("epsilon", "constant"),
    [(1, 6.330), (2, 3.233), (4, 1.741), (8, 1.063), (12, 0.863), (16, 0.769), (20, 0.715),
     (32, 0.636), (64, 0.572), (100, 0.548)],
)  # fmt: skip
def test_constant_in_high_dimension(epsilon, constant):
    assert sphere_error(10**7, epsilon) * epsilon / 10**7 == pytest.approx(constant, abs=6e-4)


@pytest.mark.exact
@pytest.mark.parametrize(("epsilon", "share"), CAP_SHARES.items())
def test_share_of_the_budget_that_the_cap_gets(epsilon, share):
    assert PrivUnit(10**6, epsilon).cap.log_odds_outside / epsilon == pytest.approx(
        share, abs=1.3e-3
    )


@pytest.mark.exact
def test_upper_bound_constant():
    """E|Z-u|^2 <= 12.6 max(d/eps, d/(E-1)^2) at the optimum."""
    for d in (3, 30, 1000, 10**6):
        for epsilon in np.geomspace(0.01, min(d, 300), 12):
            bound = 12.6 * max(d / epsilon, d / math.expm1(epsilon) ** 2)
            assert sphere_error(d, float(epsilon)) <= bound


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("d", "epsilon", "inputs", "length"),
    [(2, 1.0, "ball", 1.2), (3, 4.0, "ball", 0.0), (20, 2.0, "ball", 2.0), (20, 8.0, "sphere", 0.3),
     (130, 30.0, "ball", 1.9)],
)  # fmt: skip
def test_bias_variance_and_error(d, epsilon, inputs, length):
    """100,000 reports of one vector: mean within 4 s.e. per coordinate, error within 4 s.e."""
    n, rng = 100_000, np.random.default_rng(d)
    mechanism = PrivUnit(d, epsilon, radius=2.0, inputs=inputs)
    vector = length * units(1, d)[0]
    target = vector if inputs == "ball" else 2.0 * vector / length
    reports = mechanism.randomize(np.broadcast_to(vector, (n, d)), rng)
    estimate = mechanism.estimate(mechanism.accumulate(reports), n)
    exact = mechanism.variance(n, vector)
    assert (np.abs(estimate.value - target) < 4 * np.sqrt(exact)).all()
    worst = mechanism.estimate(mechanism.accumulate(reports)[0], n)
    assert np.array_equal(worst.value, estimate.value)
    assert (exact <= worst.standard_error**2 * (1 + 1e-12)).all()
    assert (estimate.standard_error <= worst.standard_error).all()
    assert np.allclose(estimate.standard_error**2, exact, rtol=0.05)
    errors = ((mechanism.fixed_point.decode(reports) - target) ** 2).sum(axis=1)
    predicted = mechanism.mean_squared_error(1, vector)
    assert abs(errors.mean() - predicted) < 4 * errors.std() / math.sqrt(n)
    assert predicted <= mechanism.mean_squared_error(1) * (1 + 1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("preset", ["optimal", "theory"])
def test_covariance_form(preset):
    """E[ZZ'] = A I + B uu' at d = 20: along u and across it, within 4 s.e."""
    d, n = 20, 100_000
    mechanism = PrivUnit(d, 4.0, preset=preset)
    u = units(1, d, seed=7)[0]
    z = mechanism.fixed_point.decode(
        mechanism.randomize(np.broadcast_to(u, (n, d)), np.random.default_rng(8))
    )
    isotropic, along = mechanism._second_moment
    across = np.eye(d)[0] - u[0] * u
    across /= np.linalg.norm(across)
    for direction, expected in ((u, isotropic + along), (across, isotropic)):
        square = (z @ direction) ** 2
        assert abs(square.mean() - expected) < 4 * square.std() / math.sqrt(n)
    if preset == "optimal":
        assert along == pytest.approx(1.0, rel=1e-9)


@pytest.mark.exact
def test_iid_sampling_adds_the_spread_of_the_inputs():
    mechanism = PrivUnit(4, 2.0)
    truth = np.array([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]])
    added = mechanism.variance(1, truth, "iid") - mechanism.variance(1, truth)
    assert added == pytest.approx([1, 0, 0, 0])
    with pytest.raises(ValueError, match="sampling must be"):
        mechanism.mean_squared_error(1, sampling="poisson")


# Reports -----------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("d", [2, 3, 100, 16384])
def test_reports_have_one_length(d):
    mechanism = PrivUnit(d, 3.0)
    reports = mechanism.randomize(units(20, d)).astype(float)
    length = np.linalg.norm(reports, axis=1) / mechanism.fixed_point.largest
    assert np.abs(length - 1).max() < math.sqrt(d) / mechanism.fixed_point.largest + 1e-12


@pytest.mark.exact
def test_reports_and_sums_do_not_depend_on_batches_or_order():
    mechanism = PrivUnit(33, 2.0)
    vectors, ids = units(200, 33), np.arange(200)
    whole = mechanism.randomize(vectors, UserRandomness(b"k" * 32, ids, identity("r")))
    order = np.random.default_rng(0).permutation(200)
    parts = [
        mechanism.randomize(vectors[part], UserRandomness(b"k" * 32, ids[part], identity("r")))
        for part in np.array_split(order, 7)
    ]
    assert np.array_equal(np.concatenate(parts), whole[order])
    total = sum(mechanism.accumulate(part) for part in parts)
    assert total.dtype == np.int64
    assert np.array_equal(total, mechanism.accumulate(whole))


@pytest.mark.exact
def test_inputs_of_any_scale():
    mechanism = PrivUnit(3, 60.0, inputs="sphere")
    vectors = np.array([[1e308, 1e308, 0], [3e-310, 0, 0], [0, -5.0, 0]])
    direction = mechanism.randomize(vectors) / mechanism.fixed_point.largest
    expected = np.array([[math.sqrt(0.5), math.sqrt(0.5), 0], [1, 0, 0], [0, -1, 0]])
    assert (np.sum(direction * expected, axis=1) > 0.99).all()


@pytest.mark.exact
@pytest.mark.parametrize("bits", [12, 16, 32])
def test_wire_format_is_exactly_as_long_as_stated(bits):
    mechanism = PrivUnit(21, 2.0, coordinate_bits=bits)
    reports = mechanism.randomize(units(5, 21))
    data = mechanism.pack(reports)
    assert len(data) == -(-5 * mechanism.bits_per_report // 8)
    assert np.array_equal(mechanism.unpack(data, 5), reports)
    assert mechanism.unpack(data, 5).dtype == mechanism.report_dtype
    with pytest.raises(ValueError, match="data must hold"):
        mechanism.unpack(data + b"\0", 5)


@pytest.mark.exact
def test_malformed_reports_are_refused_before_they_count():
    mechanism = PrivUnit(5, 2.0)
    good = mechanism.randomize(units(3, 5))
    longer = good.copy()
    longer[1] //= 2
    for bad in (longer, good[:, :4], good.astype(float), np.full((1, 5), -(2**31), dtype=np.int32)):
        with pytest.raises(ValueError, match="reports must"):
            mechanism.accumulate(bad)


@pytest.mark.exact
def test_values_that_are_refused():
    mechanism = PrivUnit(3, 1.0, clipping="raise")
    for bad in (
        [[np.nan, 0, 0]],
        [[np.inf, 0, 0]],
        [[0.7, 0.8, 0.1234]],
        [[1.0, 0.0]],
        [1.0, 0, 0],
        [["a"] * 3],
    ):
        with pytest.raises(ValueError, match="values must") as caught:
            mechanism.randomize(np.array(bad))
        assert "1234" not in str(caught.value)
    with pytest.raises(ValueError, match="length 1"):
        PrivUnit(3, 1.0, clipping="raise", inputs="sphere").randomize(np.array([[0.5, 0, 0]]))


@pytest.mark.exact
@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_parameters_that_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PrivUnit(**{"dimension": 10, "local_epsilon": 1.0, **options})


@pytest.mark.exact
def test_config_travels():
    mechanism = PrivUnit(10, 2.0, radius=3.0, preset="theory", inputs="sphere", coordinate_bits=16)
    assert LocalRandomizer.from_config(mechanism.to_config()) == mechanism
    assert mechanism.exactness == "real-arithmetic"


@pytest.mark.exact
def test_zero_users_give_no_estimate():
    mechanism = PrivUnit(4, 1.0)
    estimate = mechanism.estimate(mechanism.accumulate(np.empty((0, 4), np.int32)), 0)
    assert np.isnan(estimate.value).all()
    assert np.isinf(estimate.standard_error).all()


def log_odds_outside(d, g):
    """log((1 - P)/P) of a cap, to 30 digits."""
    with mpmath.workdps(40):
        half, rest = mpmath.mpf(d - 1) / 2, 1 - mpmath.mpf(g) ** 2
        series = mpmath.hyp2f1(half, 0.5, half + 1, rest)
        measure = rest**half * series / (2 * half * mpmath.beta(half, 0.5))
        return mpmath.log((1 - measure) / measure)


@pytest.mark.exact
@pytest.mark.parametrize("d", [2, 3, 10, 1000, 10**4, 10**5, 10**6, 10**7])
def test_the_budget_holds_beyond_what_floating_point_knows_of_caps(d):
    """The loss recomputed with 40 digits: at most what is stated, which is at most the budget.

    At d = 1e5 and epsilon 8 it was 1.1e-12 above both.
    """
    for epsilon in (0.3, 2.0, 5.0, 8.0, 12.7, 64.0):
        mechanism = PrivUnit(d, epsilon)
        with mpmath.workdps(40):
            heads = mpmath.mpf(mechanism.coin.threshold)
            lost = mpmath.log(heads / (2**64 - heads))
            lost += log_odds_outside(d, mechanism.cap.threshold)
            slack = 2e-15 * max(1.0, epsilon)  # of the logarithm of the coin's odds
            assert lost <= mechanism.log_ratio_max() + slack
            assert lost <= epsilon
        assert mechanism.log_ratio_max() <= epsilon
        assert epsilon - mechanism.log_ratio_max() < 1e-8 or d <= 3


def reports_with(mechanism, vector, words):
    """Reports about one vector with given first words (a coin, a choice, a height)."""
    count = len(words)
    rng = np.random.default_rng(8)
    block = rng.integers(0, 1 << 63, (count, mechanism.words_per_user), dtype=np.uint64)
    block[:, : words.shape[1]] = words

    def extra(rows, positions):
        return rng.integers(0, 1 << 63, len(rows), dtype=np.uint64)

    reports = np.zeros((count, mechanism.dimension), mechanism.report_dtype)
    mechanism._randomize_block(np.tile(vector, (count, 1)), block, extra, reports)
    return reports


@pytest.mark.exact
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_in_the_plane_every_cell_next_to_the_axis_can_be_reached(side):
    """Directions a step of the grid away from the own one: with s = sqrt(1 - t^2) of a rounded
    height t the first 31 of 2^31 cells, and many after them, had no report at all."""
    mechanism = PrivUnit(2, 8.0)
    g = mechanism.cap.threshold
    across = mechanism.fixed_point.largest * math.sqrt(1 - g * g)
    cells = np.arange(1, 400)
    numbers = np.rint(cells / across * 2.0**52).astype(np.uint64)  # uniforms that lead there
    first = np.zeros((len(cells), 4), dtype=np.uint64)
    first[:, 0] = 0 if side > 0 else (1 << 64) - 1  # the sign that stands for the length
    first[:, 2] = numbers << np.uint64(12)
    half = np.array([0.0, 0.0]) if side < 0 else np.array([1.0, 0.0])
    reports = reports_with(mechanism, half, first)
    assert np.abs(reports[:, 1]).tolist() == cells.tolist()
    assert (reports[:, 0] * side > 0).all()


@pytest.mark.exact
def test_normals_along_the_vector_leave_a_direction_of_full_length():
    """Normals that differ from the vector's direction by little, or by nothing at all."""
    for d in (2, 3, 11):
        mechanism = PrivUnit(d, 3.0)
        for power in range(0, 52, 3):
            words = np.zeros((2, mechanism.words_per_user), dtype=np.uint64)
            words[:, 2:] = 1 << 62
            words[1, 3:] += np.uint64(1 << (11 + power))
            # The height takes a few words; what follows are normals that are nearly all alike.
            for vector in (np.full(d, 1 / math.sqrt(d)), np.eye(d)[0], np.zeros(d)):
                reports = reports_with(mechanism, vector, words)
                lengths = np.linalg.norm(reports.astype(float), axis=1)
                off = np.abs(lengths - mechanism.fixed_point.largest)
                assert off.max() <= 0.5 * math.sqrt(d) + 1e-9 * mechanism.fixed_point.largest
                assert mechanism.possible(reports).all()
