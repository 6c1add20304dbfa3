"""The chapter-3 family: exact laws of small cases, exact errors, the printed parameters."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from beam_ldp.randomizers import LocalRandomizer, UserRandomness
from beam_ldp.randomizers.mean import BinaryVectorMean, L1Mean, L2Mean, LInfMean
from beam_ldp.randomizers.mean.allocation import printed_local
from beam_ldp.randomizers.mean.base import clip_to_ball
from beam_ldp.randomizers.mean.two_response import bit_means
from tests.identities import identity

MECHANISMS = [
    BinaryVectorMean(10, 3.0),
    BinaryVectorMean(10, 3.7, preset="thesis"),
    LInfMean(1, 6.0),
    LInfMean(10, 3.0, radius=2.0),
    LInfMean(10, 4.0, preset="thesis"),
    LInfMean(3, 20.0, radius=0.5),
    LInfMean(2, 4.0, messages=(4,), message_epsilons=(1.0,)),
    LInfMean(5, 4.0, messages=(3, 2), message_epsilons=(1.0, 0.5), preset="thesis"),
    L1Mean(10, 3.0),
    L1Mean(5, 9.0, radius=3.0),
    L2Mean(10, 3.0, cutoff=math.inf),
    L2Mean(13, 8.0, radius=2.0, cutoff=math.inf),
    L2Mean(8, 8.0, cutoff=math.inf, messages=(8, 8), message_epsilons=(0.6, 0.4)),
    L2Mean(6, 2.0, preset="thesis"),
]


def name(mechanism):
    return f"{type(mechanism).__name__}-{mechanism.dimension}-{mechanism.messages}"


def vectors_for(mechanism, count, seed=0):
    rng = np.random.default_rng(seed)
    d, r = mechanism.dimension, mechanism.radius
    if mechanism.norm == "binary":
        return (rng.random((count, d)) < np.linspace(0.1, 0.9, d)).astype(float)
    raw = rng.normal(size=(count, d)) * np.linspace(0.2, 2.0, d)
    if mechanism.norm == "linf":
        return r * np.tanh(raw)
    order = 1 if mechanism.norm == "l1" else 2
    return r * raw / np.linalg.norm(raw, ord=order, axis=1, keepdims=True)


def row_law(mechanism, vector):
    """Exact expectation and second moments of one user's share, by enumeration of every message."""
    layout = mechanism.layout
    c = layout.columns
    unit = mechanism._encode(np.atleast_2d(vector))
    mean = np.zeros(mechanism.dimension)
    zero = np.zeros(mechanism.statistic_shape, dtype=np.int64)
    offset = mechanism._mean(zero, 1)
    square = np.zeros(mechanism.dimension)
    for t in range(layout.num_messages):
        size = int(c.size[t])
        law = layout.law(int(c.level[t]), size)
        q = bit_means(unit, int(c.level[t]), layout.num_levels)[0]
        first, second = np.zeros(mechanism.dimension), np.zeros(mechanism.dimension)
        for place in range(size):
            held = c.start[t] + place < layout.num_coordinates
            chance = law.flip_probability
            if held:
                chance += law.contrast * q[c.start[t] + place]
            for bit, probability in ((1, chance), (0, 1 - chance)):
                one = zero.copy()
                if held:
                    one[c.level[t], c.start[t] + place, bit] = 1
                share = mechanism._mean(one, 1) - offset
                first += probability / size * share
                second += probability / size * share**2
        mean += first
        square += second - first**2
    return mean + offset, square


@pytest.mark.exact
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=name)
def test_unbiased_with_exactly_the_stated_variance(mechanism):
    """Every message of one user enumerated: columns are independent, so variances add."""
    for vector in vectors_for(mechanism, 3):
        mean, variance = row_law(mechanism, vector)
        assert np.allclose(mean, vector, atol=1e-12 * mechanism.radius)
        assert np.allclose(mechanism.variance(1, vector), variance, rtol=1e-9)
        assert np.all(variance <= mechanism.variance(1) * (1 + 1e-9))
    several = vectors_for(mechanism, 5)
    each = [mechanism.variance(1, vector) for vector in several]
    assert np.allclose(mechanism.variance(7, several), np.mean(each, axis=0) / 7)


@pytest.mark.exact
def test_enumeration_of_the_binary_mechanism():
    """d = 4, s = 2, budget 1.7: exactly 1.7; the printed p spends 1.6526 of it."""
    exact = BinaryVectorMean(4, 1.7, messages=(2,), message_epsilons=(0.85,))
    printed = BinaryVectorMean(4, 1.7, preset="thesis")
    assert printed.messages == (2,)
    for mechanism, budget in ((exact, 1.7), (printed, 1.6526)):
        channel = mechanism.channel()
        assert channel.shape == (16, 16)
        assert np.allclose(channel.sum(axis=0), 1)
        ratio = np.log(channel.max(axis=1) / channel.min(axis=1)).max()
        assert ratio == pytest.approx(budget, abs=5e-5 if budget != 1.7 else 1e-10)
        assert mechanism.log_ratio_max() == pytest.approx(ratio, abs=1e-12)


@pytest.mark.exact
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=name)
def test_budget_is_spent_and_never_exceeded(mechanism):
    assert mechanism.log_ratio_max() <= mechanism.local_epsilon
    if mechanism.preset is None:
        assigned = sum(s * e for s, e in zip(mechanism.messages, mechanism.message_epsilons))
        assert mechanism.log_ratio_max() >= assigned - 1e-8


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=name)
def test_sampled_reports_have_that_mean_and_error(mechanism):
    """60 runs of 2000 users: chi-square and mean within 5 sigma; false alarms < 2e-5 in all."""
    rng = np.random.default_rng(5)
    pool = vectors_for(mechanism, 20)
    users = np.repeat(pool, 100, axis=0)
    runs, n = 60, len(users)
    errors = np.empty((runs, mechanism.dimension))
    for run in range(runs):
        statistic = mechanism.accumulate(mechanism.randomize(users, rng))
        errors[run] = mechanism.estimate(statistic, n).value - pool.mean(axis=0)
    deviation = np.sqrt(mechanism.variance(n, pool))
    assert np.abs(errors.mean(axis=0) / deviation).max() * math.sqrt(runs) < 5
    scaled = (errors / deviation) ** 2
    # Components may be correlated: compare with the spread over runs.
    total = scaled.mean(axis=1)
    assert abs(total.mean() - 1) < 5 * total.std() / math.sqrt(runs) + 1e-9


@pytest.mark.exact
def test_printed_errors_and_the_fault_of_padding():
    """Formula (3.10) holds where s divides d; else only with d replaced by s ceil(d/s)."""
    d, budget = 12, 3.0
    mechanism = BinaryVectorMean(d, budget, preset="thesis")
    (s,), v = mechanism.messages, budget
    assert s == 3
    ones = np.ones(d)
    expected = d * (d / s) * s**2 / v**2 + (d / s - 1) * d
    assert mechanism.mean_squared_error(1, ones) == pytest.approx(expected, rel=1e-9)
    assert expected == pytest.approx(d**2 * (1 / s - 1 / d + s / v**2))
    padded = BinaryVectorMean(10, 4.0, preset="thesis")
    assert padded.messages == (4,)
    printed = 10**2 * (1 / 4 - 1 / 10 + 4 / 16)
    assert padded.mean_squared_error(1, np.ones(10)) > 1.05 * printed


@pytest.mark.exact
def test_balanced_blocks_instead_of_dummies():
    """Sums of squared sizes at d = 300: 500 against 600 with 200 messages, 400 with 250."""
    for count, squares in ((200, 500), (250, 400)):
        layout = LInfMean(300, 1000.0, messages=(count,), message_epsilons=(1.0,)).layout
        assert (layout.blocks(0)[1] ** 2).sum() == squares


@pytest.mark.exact
def test_centring_never_costs_and_divides_sampling_by_four():
    kwargs = {"messages": (2,), "message_epsilons": (1.5,)}
    centred, text = (
        BinaryVectorMean(10, 3.0, **kwargs),
        BinaryVectorMean(10, 3.0, preset="thesis", **kwargs),
    )
    v = 1 / (4 * math.sinh(0.75) ** 2)
    assert text.mean_squared_error(1) == pytest.approx(10 * 5 * v + 10 * 4, rel=1e-9)
    assert centred.mean_squared_error(1) == pytest.approx(10 * 5 * (v + 0.25) - 2.5, rel=1e-9)


@pytest.mark.exact
def test_l1_error_and_law():
    """MSE = (r^2 d c^2 - |x|^2)/n with c = coth(eps/2), k = 1 (Algorithm 3.4.1)."""
    mechanism = L1Mean(8, 1.0, radius=2.0)
    x = np.array([1.0, -0.5, 0.0, 0.0, 0.25, 0.0, 0.0, 0.25])
    c = 1 / math.tanh(0.5)
    expected = 4 * 8 * c**2 - float(x @ x)
    assert mechanism.mean_squared_error(1, x) == pytest.approx(expected, rel=1e-9)
    assert mechanism.bits_per_report == math.log2(8) + 1
    assert c**2 < 4.69


@pytest.mark.exact
def test_figure_3_2a():
    """One user, one coordinate, radius 0.5; printed parameters with 1 to 4 levels."""
    table = {
        1: (1.25, 2.06, 2.90, 3.56),
        2: (0.500, 0.563, 0.737, 0.894),
        4: (0.313, 0.188, 0.196, 0.226),
        6: (0.278, 0.118, 0.096, 0.103),
        8: (0.266, 0.094, 0.061, 0.060),
    }
    for budget, row in table.items():
        for levels, expected in enumerate(row, start=1):
            messages, epsilons = printed_local(1, budget, levels)
            mechanism = LInfMean(
                1, budget, 0.5, messages=messages, message_epsilons=epsilons, preset="thesis"
            )
            assert mechanism.mean_squared_error(1) == pytest.approx(expected, rel=0.02)
    best = [LInfMean(1, e, 0.5).mean_squared_error(1) for e in (1, 8)]
    assert best == pytest.approx([1.17, 0.0397], rel=0.005)


@pytest.mark.exact
def test_optimized_local_errors():
    """Worst-case MSE n/(4 r^2): the table of optima, and the printed rule beside it."""
    optimum = {
        1: (4.17, 1.17, 0.431, 0.153, 0.0397, 0.0060, 0.00054),
        10: (417, 117, 43.1, 20.9, 9.99, 4.66, 1.97),
        100: (41680, 11710, 4310, 2156, 1078, 531, 261),
    }
    budgets = (0.5, 1, 2, 4, 8, 16, 32)
    for d, row in optimum.items():
        for budget, expected in zip(budgets, row):
            mine = LInfMean(d, budget).mean_squared_error(1) / 4
            assert mine <= expected * 1.003
    printed = {0.5: 49900, 1: 19900, 2: 9900, 4: 4900}
    for budget, expected in printed.items():
        text = LInfMean(100, budget, preset="thesis").mean_squared_error(1) / 4
        assert text == pytest.approx(expected, rel=0.01)


@pytest.mark.exact
def test_zero_padding_costs_nothing_because_its_noise_is_dropped():
    """The error of d = 300 (padded to 512) is 300/256 of that of d = 256, no more."""
    kwargs = {"cutoff": 4.0, "messages": (2,), "message_epsilons": (2.0,)}
    padded, full = L2Mean(300, 4.0, **kwargs), L2Mean(256, 4.0, **kwargs)
    ratio = padded.mean_squared_error(1) / full.mean_squared_error(1)
    assert ratio == pytest.approx(300 / 256, rel=1e-6)


@pytest.mark.exact
def test_default_cutoff_keeps_the_bias_below_the_noise():
    for users in (1000, 10**6, 10**9):
        mechanism = L2Mean(784, 4.0, expected_users=users)
        noise = math.sqrt(mechanism.variance(users).max())
        assert 0 < mechanism.bias_bound <= 0.1001 * noise
        assert mechanism.cutoff < 10 * math.sqrt(math.log(1024 * users / 0.01)) / 3
    exact = L2Mean(16, 4.0)
    if exact.cutoff == 4.0:
        assert exact.bias_bound == 0.0


@pytest.mark.exact
def test_printed_radius_truncates_nothing_at_512_dimensions():
    """The constant 10 makes the radius exceed the length of the vector for d <= 1906."""
    mechanism = L2Mean(512, 1.0, preset="thesis", expected_users=1000)
    assert mechanism.cutoff == math.sqrt(512) and mechanism.bias_bound == 0.0
    better = L2Mean(512, 1.0, expected_users=1000)
    gain = mechanism.mean_squared_error(1000) / better.mean_squared_error(1000)
    assert gain > 40


@pytest.mark.exact
def test_truncation_bias_is_within_its_bound():
    """Average over 200 public rotations of one coordinate vector and of a flat one."""
    for vector in (np.eye(1, 64)[0], np.full(64, 1 / 8)):
        biases = []
        for seed in range(200):
            mechanism = L2Mean(64, 4.0, cutoff=2.0, rotation_seed=seed)
            biases.append(row_mean(mechanism, vector) - vector)
        biases = np.array(biases)
        assert np.abs(biases).mean(axis=0).max() <= mechanism.bias_bound
        assert math.sqrt((biases**2).sum(axis=1).mean()) <= mechanism.bias_norm_bound


def row_mean(mechanism, vector):
    unit = mechanism._encode(vector[None])[0]
    return mechanism._decode(unit - 0.5)


@pytest.mark.exact
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=name)
def test_config_and_wire_round_trips(mechanism):
    config = json.loads(json.dumps(mechanism.to_config()))
    copy = LocalRandomizer.from_config(config)
    assert copy == mechanism and copy.config_digest() == mechanism.config_digest()
    reports = mechanism.randomize(vectors_for(mechanism, 11), np.random.default_rng(1))
    assert reports.dtype == mechanism.report_dtype
    assert reports.shape == (11, mechanism.messages_per_user)
    data = mechanism.pack(reports)
    assert len(data) == math.ceil(11 * mechanism.bits_per_report / 8)
    assert np.array_equal(mechanism.unpack(data, 11), reports)


@pytest.mark.exact
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=name)
def test_statistics_add_and_do_not_depend_on_order(mechanism):
    rng = np.random.default_rng(2)
    reports = mechanism.randomize(vectors_for(mechanism, 50), rng)
    whole = mechanism.accumulate(reports)
    assert whole.dtype == np.int64 and whole.shape == mechanism.statistic_shape
    parts = mechanism.accumulate(reports[:17]) + mechanism.accumulate(reports[17:])
    assert np.array_equal(whole, parts)
    columns = reports.copy()
    for t in range(columns.shape[1]):
        rng.shuffle(columns[:, t])
    assert np.array_equal(mechanism.accumulate(columns), whole)
    assert not mechanism.accumulate(reports[:0]).any()


@pytest.mark.exact
def test_memoized_and_batch_independent():
    mechanism = L2Mean(20, 6.0)
    values = vectors_for(mechanism, 30)
    key = bytes(range(32))

    def reports(part):
        ids = np.arange(30)[part]
        return mechanism.randomize(values[part], UserRandomness(key, ids, identity("r1")))

    whole = reports(slice(0, 30))
    assert np.array_equal(whole[7:9], reports(slice(7, 9)))
    assert np.array_equal(np.concatenate([reports(slice(0, 13)), reports(slice(13, 30))]), whole)
    other = mechanism.randomize(values, UserRandomness(key, np.arange(30), identity("r2")))
    assert not np.array_equal(whole, other)


@pytest.mark.exact
def test_inputs_of_every_numeric_kind():
    mechanism = LInfMean(1, 2.0)
    rng = np.random.default_rng
    as_row = mechanism.randomize(np.zeros((5, 1)), rng(0))
    for values in (np.zeros(5), np.zeros(5, np.float32), np.zeros(5, int), np.zeros(5, bool)):
        assert np.array_equal(mechanism.randomize(values, rng(0)), as_row)
    assert mechanism.randomize(np.zeros((0, 1))).shape == (0, 1)


@pytest.mark.exact
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=name)
def test_values_that_are_no_vectors_are_refused(mechanism, bad):
    values = np.zeros((3, mechanism.dimension))
    values[1, 0] = bad
    with pytest.raises(ValueError, match="values"):
        mechanism.randomize(values)
    with pytest.raises(ValueError, match="shape"):
        mechanism.randomize(np.zeros((3, mechanism.dimension + 1)))
    with pytest.raises(ValueError, match="dtype"):
        mechanism.randomize(np.full((3, mechanism.dimension), "a"))


@pytest.mark.exact
@pytest.mark.parametrize("cls", [LInfMean, L1Mean, L2Mean])
def test_vectors_outside_the_ball(cls):
    outside = np.array([[3.0, 4.0]])
    with pytest.raises(ValueError, match="ball"):
        cls(2, 1.0, clipping="raise").randomize(outside)
    assert cls(2, 1.0).randomize(outside).shape == (1, cls(2, 1.0).messages_per_user)


@pytest.mark.exact
def test_reports_that_cannot_have_been_sent_are_refused():
    mechanism = LInfMean(5, 6.0, messages=(2,), message_epsilons=(3.0,))  # blocks of 3 and 2
    good = np.array([[5, 3]], dtype=np.uint8)
    assert mechanism.accumulate(good).sum() == 2
    with pytest.raises(ValueError, match="blocks"):
        mechanism.accumulate(np.array([[6, 0]], dtype=np.uint8))
    with pytest.raises(ValueError, match="shape"):
        mechanism.accumulate(good[:, :1])
    with pytest.raises(ValueError, match="unsigned"):
        mechanism.accumulate(good.astype(int))
    with pytest.raises(ValueError, match="blocks"):
        mechanism.unpack(b"\xf8", 1)  # 111 11: place 3 of the first block


@pytest.mark.exact
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LInfMean(0, 1.0), "dimension"),
        (lambda: LInfMean(True, 1.0), "dimension"),
        (lambda: LInfMean(2, 0.0), "local_epsilon"),
        (lambda: LInfMean(2, math.nan), "local_epsilon"),
        (lambda: LInfMean(2, 1.0, radius=-1.0), "radius"),
        (lambda: LInfMean(2, 1.0, clipping="drop"), "clipping"),
        (lambda: LInfMean(2, 1.0, preset="paper"), "preset"),
        (lambda: LInfMean(2, 1.0, messages=(1,)), "together"),
        (lambda: LInfMean(2, 1.0, messages=(3,), message_epsilons=(0.1,)), "messages"),
        (lambda: LInfMean(2, 1.0, messages=(2,), message_epsilons=(0.6,)), "message_epsilons"),
        (lambda: BinaryVectorMean(2, 1.0, radius=2.0), "radius"),
        (
            lambda: BinaryVectorMean(2, 1.0, messages=(1, 1), message_epsilons=(0.1, 0.1)),
            "levels",
        ),
        (lambda: L2Mean(2, 1.0, cutoff=-1.0), "cutoff"),
        (lambda: L2Mean(2, 1.0, rotation_seed=-1), "rotation_seed"),
        (lambda: L2Mean(2, 1.0, expected_users=0), "expected_users"),
    ],
)
def test_bad_parameters_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.exact
def test_no_users_one_user_and_the_error_bar():
    mechanism = LInfMean(3, 1.0)
    nobody = mechanism.estimate(np.zeros(mechanism.statistic_shape, int), 0)
    assert np.isnan(nobody.value).all() and np.isinf(nobody.standard_error).all()
    one = mechanism.estimate(mechanism.accumulate(mechanism.randomize(np.zeros((1, 3)))), 1)
    assert np.isfinite(one.value).all()
    assert one.mean_squared_error == pytest.approx(mechanism.mean_squared_error(1))
    assert np.allclose(one.standard_error**2, mechanism.variance(1))
    five = mechanism.accumulate(mechanism.randomize(np.zeros((5, 3))))
    iid = mechanism.estimate(five, 5, sampling="iid")
    assert np.allclose(iid.standard_error**2 * 5, mechanism.variance(1) + 1.0)
    with pytest.raises(ValueError, match="num_users"):
        mechanism.estimate(np.zeros(mechanism.statistic_shape, int), -1)
    with pytest.raises(ValueError, match="statistic"):
        mechanism.estimate(np.zeros(3, int), 1)


@pytest.mark.exact
def test_message_pairs_describe_every_column():
    mechanism = LInfMean(5, 8.0, messages=(5, 2), message_epsilons=(1.0, 0.5))
    pairs = mechanism.message_pairs()
    assert sum(count for count, _ in pairs) == 7
    for _, pair in pairs:
        assert pair.proof_status == "proved"
        assert pair.blanket_mass == pytest.approx(
            2 / (1 + math.exp(1.0)), rel=1e-6
        ) or pair.blanket_mass == pytest.approx(2 / (1 + math.exp(0.5)), rel=1e-6)
    assert LInfMean(1, 1.0).dominating_pair().blanket_mass == pytest.approx(2 / (1 + math.e))
    assert mechanism.dominating_pair().blanket_mass == pytest.approx(math.exp(-8.0))


@pytest.mark.exact
@pytest.mark.parametrize("mechanism", [m for m in MECHANISMS if m.preset is None], ids=name)
def test_lost_or_doubled_messages_are_noticed(mechanism):
    statistic = mechanism.accumulate(mechanism.randomize(vectors_for(mechanism, 20)))
    mechanism.estimate(statistic, 20)
    for users in (19, 21):
        with pytest.raises(ValueError, match="every message"):
            mechanism.estimate(statistic, users)
    moved = statistic.copy()
    level, coordinate, bit = np.argwhere(moved > 0)[0]
    moved[level, coordinate, bit] -= 1
    with pytest.raises(ValueError, match="every message"):
        mechanism.estimate(moved, 20)


@pytest.mark.exact
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=name)
def test_one_liar_moves_the_estimate_by_what_is_stated(mechanism):
    """Every bit of every column flipped, one at a time."""
    n = 4
    reports = mechanism.randomize(vectors_for(mechanism, n), np.random.default_rng(3))
    before = mechanism._mean(mechanism.accumulate(reports), n)
    largest = 0.0
    for t in range(mechanism.messages_per_user):
        for place in range(int(mechanism.layout.columns.size[t])):
            values = []
            for bit in (0, 1):
                lied = reports.copy()
                lied[0, t] = 2 * place + bit
                values.append(mechanism._mean(mechanism.accumulate(lied), n))
            largest = max(largest, float(np.linalg.norm(values[1] - values[0])))
    assert largest <= mechanism.influence(n) * (1 + 1e-9)
    if mechanism.num_coordinates == mechanism.dimension:
        assert largest == pytest.approx(mechanism.influence(n), rel=1e-9)
    assert np.isfinite(before).all()


@pytest.mark.statistical
@pytest.mark.parametrize("cls", [LInfMean, L2Mean])
def test_intervals_cover(cls):
    """300 estimates of 4 components, nominal 95 %, worst-case errors: coverage at least 92.5 %.

    1200 trials: a true coverage of 95 % falls below that with probability 1e-4; the seed is fixed.
    """
    rng = np.random.default_rng(8)
    mechanism = cls(4, 3.0)
    vectors = vectors_for(mechanism, 400, seed=3) * 0.3
    inside = 0
    for _ in range(300):
        statistic = mechanism.accumulate(mechanism.randomize(vectors, rng))
        low, high = mechanism.estimate(statistic, 400).confidence_interval()
        inside += int(((low <= vectors.mean(axis=0)) & (vectors.mean(axis=0) <= high)).sum())
    assert inside >= 0.925 * 1200


@pytest.mark.exact
def test_a_negative_zero_is_a_zero_and_huge_vectors_are_clipped_not_overflowed():
    for cls in (LInfMean, L1Mean, L2Mean):
        mechanism = cls(3, 2.0)
        rng = np.random.default_rng
        plus = mechanism.randomize(np.zeros((9, 3)), rng(1))
        assert np.array_equal(plus, mechanism.randomize(-np.zeros((9, 3)), rng(1)))
        huge = mechanism.randomize(np.full((9, 3), 1e308), rng(1))
        edge = clip_to_ball(np.ones((9, 3)), mechanism.norm, 1e-9, "clip") * 1e9
        assert np.array_equal(huge, mechanism.randomize(edge, rng(1)))


@pytest.mark.exact
def test_clipping_is_what_the_ball_says_not_what_the_batch_says():
    """A vector outside the ball changes nobody else's report."""
    mechanism = L2Mean(6, 3.0)
    vectors = vectors_for(mechanism, 10) * 0.9
    whole = mechanism.randomize(vectors, np.random.default_rng(2))
    vectors[4] *= 100
    changed = mechanism.randomize(vectors, np.random.default_rng(2))
    others = np.arange(10) != 4
    assert np.array_equal(whole[others], changed[others])


@pytest.mark.exact
@pytest.mark.parametrize(
    "mechanism",
    [
        LInfMean(5, 20.0, messages=(5,), message_epsilons=(4.0,)),
        BinaryVectorMean(4, 24.0, messages=(12,), message_epsilons=(2.0,)),
        L2Mean(7, 32.0, messages=(16,), message_epsilons=(2.0,), cutoff=0.3),
    ],
)
def test_messages_about_every_coordinate_take_a_fast_way_to_the_same_bits(mechanism, monkeypatch):
    """Values in the middle, at both ends, and beyond the cutoff; every count the same."""
    vectors = np.random.default_rng(1).integers(0, 2, (300, mechanism.dimension)).astype(float)
    if mechanism.norm != "binary":
        vectors *= np.linspace(-1.0, 1.0, 300)[:, None]
    assert mechanism.layout.covers
    fast = mechanism.randomize(vectors, np.random.default_rng(2))
    counts = mechanism.accumulate(fast)
    wrong = fast.copy()
    wrong[150, -1] = 2
    with pytest.raises(ValueError, match="inside their blocks"):
        mechanism.accumulate(wrong)
    monkeypatch.setattr(type(mechanism.layout), "covers", False)
    assert np.array_equal(mechanism.randomize(vectors, np.random.default_rng(2)), fast)
    assert np.array_equal(mechanism.accumulate(fast), counts)
    with pytest.raises(ValueError, match="inside their blocks"):
        mechanism.accumulate(wrong)


@pytest.mark.exact
def test_sampled_coordinates_and_several_levels_do_not_cover():
    for messages, epsilons in (((2,), (1.0,)), ((4, 4), (1.0, 0.5))):
        mechanism = LInfMean(4, 20.0, messages=messages, message_epsilons=epsilons)
        assert not mechanism.layout.covers
