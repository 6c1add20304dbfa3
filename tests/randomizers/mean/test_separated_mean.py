"""Direction times length: budgets add, errors are exact, and the split is the best."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean import compact_mean
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.rounded_directions import RARELY, two_coins
from beam_ldp.randomizers.mean.separated_mean import SeparatedMean, best_split

# typical length, budget of the length, cells, error, error of "lift": dimension 1024, epsilon 16
KNOWN = [
    (0.05, 8.5, 20, 0.566, 48.7),
    (0.2, 4.75, 5, 4.12, 48.7),
    (0.5, 3.25, 2, 18.3, 48.7),
    (1.0, 2.5, 1, 67.8, 48.7),
]


def report_digest(mechanism):
    """Of reports as they travel, and of their statistic."""
    spread = mechanism.radius / math.sqrt(mechanism.dimension)
    vectors = spread * np.random.default_rng(1).normal(size=(50, mechanism.dimension))
    reports = mechanism.randomize(vectors, np.random.default_rng(2))
    told = mechanism.pack(reports) + mechanism.accumulate(reports).tobytes()
    return hashlib.sha256(told).hexdigest()[:16]


def at_length(d, length):
    vector = np.zeros(d)
    vector[0] = length
    return vector


@pytest.mark.exact
@pytest.mark.parametrize(("length", "magnitude", "cells", "separate", "lifted"), KNOWN)
def test_errors_have_the_known_figures(length, magnitude, cells, separate, lifted):
    truth = at_length(1024, length)
    known = SeparatedMean(1024, 16.0, magnitude_epsilon=magnitude, magnitude_cells=cells)
    lift = SeparatedMean(1024, 16.0, strategy="lift")
    found = SeparatedMean(1024, 16.0, typical_length=length)
    error = known.mean_squared_error(1, truth)
    assert error == pytest.approx(separate, rel=1.5e-3)
    assert lift.mean_squared_error(1, truth) == pytest.approx(lifted, rel=2e-3)
    assert 0.97 * error < found.mean_squared_error(1, truth) <= error * (1 + 1e-9)
    assert best_split(1024, 16.0, length)[1] == cells


@pytest.mark.exact
def test_error_is_the_product_formula():
    mechanism = SeparatedMean(50, 10.0, radius=3.0, magnitude_epsilon=4.0)
    d = PrivUnit(50, 6.0, inputs="sphere").mean_squared_error(1)
    for length in (0.0, 0.4, 2.9):
        v = mechanism.magnitude.variance(1, np.array([length]))[0]
        expected = d * length**2 + (1 + d) * v
        assert mechanism.mean_squared_error(1, at_length(50, length)) == pytest.approx(expected)


@pytest.mark.exact
def test_sign_flip_is_priv_unit():
    flip, plain = SeparatedMean(20, 4.0, strategy="sign_flip"), PrivUnit(20, 4.0)
    truth = at_length(20, 0.3)
    expected = plain.mean_squared_error(1, truth)
    assert flip.mean_squared_error(1, truth) == pytest.approx(expected)
    sphere = PrivUnit(20, 4.0, inputs="sphere").mean_squared_error(1)
    assert expected == pytest.approx(1 + sphere - 0.3**2)
    assert flip.dominating_pair().blanket_mass == plain.dominating_pair().blanket_mass


@pytest.mark.exact
@pytest.mark.parametrize("strategy", ["product", "lift", "sign_flip"])
@pytest.mark.parametrize("epsilon", [0.5, 4.0, 30.0])
def test_budget_is_spent_and_not_exceeded(strategy, epsilon):
    spent = SeparatedMean(100, epsilon, strategy=strategy).log_ratio_max()
    assert epsilon - 1e-8 < spent <= epsilon


@pytest.mark.exact
@pytest.mark.parametrize("strategy", ["product", "lift", "sign_flip"])
def test_worst_case_bounds_every_truth(strategy):
    mechanism = SeparatedMean(6, 6.0, radius=2.0, strategy=strategy)
    worst = mechanism.variance(1)
    total = mechanism.mean_squared_error(1)
    for length in np.linspace(0, 2, 201):
        for truth in (at_length(6, length), np.full(6, length / math.sqrt(6))):
            assert (mechanism.variance(1, truth) <= worst * (1 + 1e-9)).all()
            assert mechanism.mean_squared_error(1, truth) <= total * (1 + 1e-9)
    assert mechanism.mean_squared_error(1, sampling="iid") >= total
    with pytest.raises(ValueError, match="sampling"):
        mechanism.mean_squared_error(1, sampling="all")


@pytest.mark.statistical
@pytest.mark.parametrize("strategy", ["product", "lift", "sign_flip"])
@pytest.mark.parametrize("length", [0.0, 0.7, 2.0, 5.0])
def test_bias_and_error(strategy, length):
    """50,000 reports of one vector: mean within 4 s.e. per coordinate, error within 4 s.e."""
    n, d = 50_000, 7
    mechanism = SeparatedMean(d, 6.0, radius=2.0, strategy=strategy)
    direction = np.arange(1.0, d + 1) / math.sqrt(sum(i * i for i in range(1, d + 1)))
    target = min(length, 2.0) * direction
    values = np.broadcast_to(length * direction, (n, d))
    reports = mechanism.randomize(values, np.random.default_rng(int(10 * length)))
    estimate = mechanism.estimate(mechanism.accumulate(reports), n)
    exact = mechanism.variance(n, target)
    assert (np.abs(estimate.value - target) < 4 * np.sqrt(exact)).all()
    errors = ((mechanism.fixed_point.decode(reports) - target) ** 2).sum(axis=1)
    predicted = mechanism.mean_squared_error(1, target)
    assert abs(errors.mean() - predicted) < 4 * errors.std() / math.sqrt(n)


@pytest.mark.exact
def test_paper_parameters_and_config():
    mechanism = SeparatedMean(
        100, 60.0, magnitude_epsilon=10.0, magnitude_cells=29, preset="experiments"
    )
    assert mechanism.magnitude.points.size == 30
    assert mechanism.direction.local_epsilon == pytest.approx(50.0)
    assert LocalRandomizer.from_config(mechanism.to_config()) == mechanism
    reports = mechanism.randomize(np.zeros((3, 100)))
    assert np.array_equal(mechanism.unpack(mechanism.pack(reports), 3), reports)


REFUSED = [
    ({"strategy": "sum"}, "strategy must be"),
    ({"typical_length": 0.0}, "typical_length must lie"),
    ({"magnitude_epsilon": 1.0}, "magnitude_epsilon must lie"),
    ({"inputs": "sphere"}, "inputs must be"),
]


@pytest.mark.exact
@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_parameters_that_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SeparatedMean(**{"dimension": 10, "local_epsilon": 1.0, **options})


# Few bits a coordinate ---------------------------------------------------------------------------

STRATEGIES = ["product", "lift", "sign_flip"]
FEW = {"coordinate_bits": 8, "rounding": "random"}


@pytest.mark.exact
@pytest.mark.parametrize("x", [-0.5, 0.0, 0.01, 0.25, 0.5, 0.77, 3.0])
def test_two_coins_keep_the_mean_and_add_a_quarter_of_a_squared_step_to_any_number(x):
    """Halves of words on a fine grid stand for all: indicators are integrated to 1/1024. One coin
    adds nothing to a whole number."""
    halves = ((np.arange(1024) + 0.5) * 2**22).astype(np.uint64)
    sent = np.rint(x + two_coins(halves[:, None] | halves << np.uint64(32)))
    assert sent.mean() == pytest.approx(x, abs=2e-3)
    assert sent.var() == pytest.approx(0.25, abs=4e-3)
    assert np.abs(sent - x).max() <= 1.5


@pytest.mark.exact
@pytest.mark.parametrize("d", [128, 784])
@pytest.mark.parametrize("epsilon", [2.0, 4.0, 8.0])
def test_eight_bits_cost_a_fifth_of_a_percent_of_the_worst_error_and_more_of_the_least(d, epsilon):
    exact, short = SeparatedMean(d, epsilon), SeparatedMean(d, epsilon, **FEW)
    assert short.bits_per_report == 8 * d and short.compression == 4
    assert 0 < short.mean_squared_error(1) / exact.mean_squared_error(1) - 1 < 0.0022
    shares, rounding = [], d * short.fixed_point.step**2 / 4
    for truth in (at_length(d, r) for r in np.linspace(0, 1, 41)):
        before = exact.mean_squared_error(1, truth)
        assert short.mean_squared_error(1, truth) - before == pytest.approx(rounding, rel=1e-6)
        shares.append(rounding / before)
    assert 0.9 * short.extra_error < max(shares) <= short.extra_error < 0.028
    found = compact_mean(SeparatedMean, d, local_epsilon=epsilon)
    assert found.coordinate_bits == (9 if epsilon == 8 else 8) and found.extra_error < 0.01


@pytest.mark.exact
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_grid_holds_the_longest_lengths_and_room_for_the_coins(strategy):
    mechanism = SeparatedMean(300, 6.0, radius=3.0, strategy=strategy, **FEW)
    step = mechanism._unit_step
    far = (127 - 0.5) * step  # rounds to 127, with whatever coins
    log_chance = math.log(300) + mechanism._log_tail(far) + mechanism._log_density
    assert log_chance == pytest.approx(math.log(RARELY), abs=1e-3)
    longest = np.abs(mechanism.magnitude.response.decoded).max() if strategy == "product" else 3.0
    assert mechanism._length * mechanism.fixed_point.step == pytest.approx(
        longest / mechanism.direction.marginal
    )
    assert mechanism.reach / SeparatedMean(300, 6.0, radius=3.0, strategy=strategy).reach < 1.05


@pytest.mark.exact
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_few_bits_are_those_of_the_report_before_and_of_words_that_it_has_no_use_for(strategy):
    """Post-processing: the report in 32 bits, plus coins from words of their own, rounded."""
    fine = SeparatedMean(9, 6.0, radius=2.0, strategy=strategy)
    short = SeparatedMean(9, 6.0, radius=2.0, strategy=strategy, coordinate_bits=6,
                          rounding="random")  # fmt: skip
    words = np.random.default_rng(4).integers(2**64, size=(80, short.words_per_user), dtype="u8")
    vectors = np.random.default_rng(5).normal(size=(80, 9)) / 2
    coins, used = words[:, 2:11], np.delete(words, np.s_[2:11], axis=1)
    assert short.words_per_user == fine.words_per_user + 9

    def reports(mechanism, words):
        extra = np.random.default_rng(6)
        out = np.empty((80, 9), mechanism.report_dtype)
        mechanism._randomize_block(
            vectors, words, lambda rows, _: extra.integers(2**64, size=len(rows), dtype="u8"), out
        )
        return out

    told = fine.fixed_point.decode(reports(fine, used)) / short.fixed_point.step
    assert np.array_equal(reports(short, words), np.rint(told + two_coins(coins)))
    assert short.log_ratio_max() == fine.log_ratio_max()
    assert short.dominating_pair() == fine.dominating_pair()


@pytest.mark.statistical
@pytest.mark.parametrize(("strategy", "bits"), [("product", 6), ("lift", 5), ("sign_flip", 5)])
@pytest.mark.parametrize("length", [0.0, 0.6, 2.0])
def test_bias_and_error_in_few_bits(strategy, bits, length):
    """20,000 reports of a vector in the middle and of one along an axis: the mean within 4.5 s.e.
    of each coordinate, the squared error within 4.5 of its own (false alarms: 3e-3 in all). One
    coin less makes errors smaller by 6 to 16 s.e.; of "product", whose lengths scatter more, by 1:
    its coins are looked at exactly above.
    """
    n, d = 20_000, 20
    mechanism = SeparatedMean(
        d, 6.0, radius=2.0, strategy=strategy, coordinate_bits=bits, rounding="random"
    )
    for vector in (length * np.arange(1, d + 1) / math.sqrt(2870), length * np.eye(d)[3]):
        reports = mechanism.randomize(np.broadcast_to(vector, (n, d)), np.random.default_rng(d))
        estimate = mechanism.estimate(mechanism.accumulate(reports), n)
        exact = mechanism.variance(n, vector)
        assert (np.abs(estimate.value - vector) < 4.5 * np.sqrt(exact)).all()
        errors = ((mechanism.fixed_point.decode(reports) - vector) ** 2).sum(axis=1)
        predicted = mechanism.mean_squared_error(1, vector)
        assert abs(errors.mean() - predicted) < 4.5 * errors.std() / math.sqrt(n)


@pytest.mark.statistical
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_lengths_of_honest_reports_in_few_bits_and_of_forged_ones(strategy):
    """5,000 reports are possible, the longest at most 0.8 of the way from its length to what 1e-18
    exceed (by the bounds themselves a false alarm has a chance of 1e-6); longer ones are refused.
    """
    mechanism = SeparatedMean(500, 6.0, strategy=strategy, coordinate_bits=7, rounding="random")
    vectors = np.random.default_rng(1).normal(size=(5_000, 500)) / 30
    reports = mechanism.randomize(vectors, np.random.default_rng(2))
    assert mechanism.possible(reports).all()
    longest, most = mechanism._length, mechanism._longest_read / mechanism.fixed_point.step
    assert np.linalg.norm(reports.astype(float), axis=1).max() < longest + 0.8 * (most - longest)
    forged = np.random.default_rng(3).normal(size=(100, 500))
    forged *= 1.02 * most / np.linalg.norm(forged, axis=1, keepdims=True)
    assert not mechanism.possible(np.rint(forged).astype(np.int8)).any()


@pytest.mark.exact
def test_configurations_and_reports_from_before_there_was_a_choice_are_what_they_were():
    before = {
        "7a8e7717ae30e31210405ca41fe41699": SeparatedMean(7, 6.0),
        "49764ed0db08bf475a8dbecb17c8bdb0": SeparatedMean(
            40, 6.0, 2.0, strategy="lift", coordinate_bits=13
        ),
        "431ecf7318bf83495cdad58ea7c86e31": SeparatedMean(40, 6.0, strategy="sign_flip"),
    }
    reports = ["c9e7d95ec4bdf1ce", "d756d78b3863cb3a", "c3d4ea44374b350e"]
    for (digest, mechanism), sent in zip(before.items(), reports, strict=True):
        assert mechanism.config_digest().hex() == digest
        assert report_digest(mechanism) == sent
    short = SeparatedMean(7, 6.0, **FEW)
    assert short.to_config()["rounding"] == "random"
    assert LocalRandomizer.from_config(short.to_config()) == short
    assert short.unrounded == before["7a8e7717ae30e31210405ca41fe41699"]


@pytest.mark.exact
@pytest.mark.parametrize("bits", [6, 7, 8, 11])
def test_the_wire_takes_as_many_bits_as_stated(bits):
    mechanism = SeparatedMean(33, 6.0, coordinate_bits=bits, rounding="random")
    reports = mechanism.randomize(np.full((9, 33), 0.05))
    data = mechanism.pack(reports)
    assert len(data) == -(-9 * 33 * bits // 8)
    assert np.array_equal(mechanism.unpack(data, 9), reports)
    assert np.abs(reports.astype(int)).max() <= mechanism.fixed_point.largest
