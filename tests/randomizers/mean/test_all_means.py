"""What every mean mechanism owes, whichever it is: the mean, the error, refusals, the wire."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.randomizers import LocalRandomizer, UserRandomness, registry
from beam_ldp.randomizers.mean import (
    BinaryVectorMean,
    KashinMean,
    L1Mean,
    L2Mean,
    LInfMean,
    MinimalRandomCoding,
    PrivUnit,
    PrivUnitGaussian,
    PrivUnitInf,
    ProjectedPrivUnit,
    RandomCodebookMean,
    RotatedSimplexMean,
    ScalarMean,
    SeedCompressedMean,
    SeparatedMean,
)
from beam_ldp.randomizers.mean.block_mean import BlockMean
from tests.identities import identity

# Dimensions that are no powers of two.
MECHANISMS = [
    BinaryVectorMean(5, 3.0),
    LInfMean(5, 3.0, radius=2.0),
    L1Mean(5, 3.0, radius=2.0),
    L2Mean(5, 3.0, radius=2.0, cutoff=math.inf),
    KashinMean(5, 3.0, radius=2.0, level=4.0),
    PrivUnit(5, 3.0, radius=2.0),
    PrivUnitGaussian(5, 3.0, radius=2.0),
    PrivUnitInf(5, 3.0, radius=2.0),
    ScalarMean(1, 3.0, radius=2.0, signed=True),
    SeparatedMean(5, 3.0, radius=2.0),
    SeparatedMean(5, 3.0, radius=2.0, rounding="random", coordinate_bits=6),
    ProjectedPrivUnit(5, 3.0, radius=2.0, projected=5, projection="haar"),
    ProjectedPrivUnit(5, 3.0, radius=2.0, projected=8, projection="own"),
    ProjectedPrivUnit(5, 3.0, radius=2.0, projected=8),
    ProjectedPrivUnit(5, 3.0, radius=2.0, projected=8, rounding="random", coordinate_bits=6),
    RandomCodebookMean(5, 3.0, radius=2.0, index_bits=4),
    RotatedSimplexMean(5, 3.0, radius=2.0, index_bits=2),
    MinimalRandomCoding(5, 3.0, radius=2.0, index_bits=4),
    SeedCompressedMean(5, 3.0, radius=2.0),
]


def name(mechanism):
    return f"{type(mechanism).__name__}-{getattr(mechanism, 'projection', '')}".rstrip("-")


each = pytest.mark.parametrize("mechanism", MECHANISMS, ids=name)


def vector_for(mechanism):
    """One vector inside the ball, its coordinates of different sizes."""
    d = mechanism.dimension
    if mechanism.norm == "binary":
        return (np.arange(d) % 2).astype(float)
    raw = np.linspace(-1.0, 1.5, d) if d > 1 else np.array([0.6])
    order = {"l1": 1, "l2": 2, "linf": np.inf}[mechanism.norm]
    return 0.7 * mechanism.radius * raw / np.linalg.norm(raw, ord=order)


def outside(mechanism):
    return np.full((3, mechanism.dimension), 2.345678 * mechanism.radius)


@pytest.mark.exact
def test_the_list_is_complete():
    kinds = set(registry.offered("mean"))
    assert {type(m) for m in MECHANISMS} == kinds and all(kind.decoding for kind in kinds)


@pytest.mark.statistical
@each
def test_the_mean_and_its_error_are_as_stated(mechanism):
    """3,000 users hold one vector: the mean within 4 standard errors per coordinate, the squared
    error of 1,000 single reports within 4 of its own. Seed fixed; false alarms 4e-4 each.
    """
    n, vector = 3_000, vector_for(mechanism)
    users = np.broadcast_to(vector, (n, mechanism.dimension))
    reports = mechanism.randomize(users, np.random.default_rng(11))
    estimate = mechanism.estimate(mechanism.accumulate(reports), n)
    exact = mechanism.variance(n, vector)
    assert (np.abs(estimate.value - vector) < 4 * np.sqrt(exact)).all()
    single = [
        mechanism.estimate(mechanism.accumulate(reports[i : i + 1]), 1).value for i in range(1000)
    ]
    errors = ((np.array(single) - vector) ** 2).sum(axis=1)
    predicted = mechanism.mean_squared_error(1, vector)
    slack = 4 * errors.std() / math.sqrt(1000) + 1e-9 * predicted  # constant errors have no spread
    assert abs(errors.mean() - predicted) < slack
    assert exact.sum() == pytest.approx(predicted / n, rel=1e-6)


@pytest.mark.exact
@each
def test_stated_worst_errors_bound_those_of_any_truth(mechanism):
    vector = vector_for(mechanism)
    for truth in (vector, 0 * vector, np.stack([vector, vector[::-1]])):
        worst = mechanism.variance(7)
        assert (mechanism.variance(7, truth) <= worst * (1 + 1e-9)).all()
        assert mechanism.mean_squared_error(7, truth) <= mechanism.mean_squared_error(7) * (
            1 + 1e-9
        )
    iid = mechanism.variance(7, np.stack([vector, vector[::-1]]), "iid")
    assert (iid >= mechanism.variance(7, np.stack([vector, vector[::-1]])) - 1e-15).all()


@pytest.mark.exact
@each
def test_the_budget_is_not_exceeded(mechanism):
    assert 0.9 * mechanism.local_epsilon < mechanism.log_ratio_max() <= mechanism.local_epsilon
    assert mechanism.exactness in ("exact", "real-arithmetic", "computational")
    assert 0 < mechanism.dominating_pair().blanket_mass <= 1


@pytest.mark.exact
@each
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_refused(mechanism, bad):
    for place in (0, -1):
        values = np.tile(vector_for(mechanism), (3, 1))
        values[1, place] = bad
        with pytest.raises(ValueError, match="values must"):
            mechanism.randomize(values)


@pytest.mark.exact
@each
def test_values_of_another_shape_or_kind_are_refused(mechanism):
    d = mechanism.dimension
    for values in (np.zeros((3, d + 1)), np.zeros((2, 3, d)), np.zeros((3, d), complex)):
        with pytest.raises(ValueError, match="values must"):
            mechanism.randomize(values)
    with pytest.raises(ValueError, match="values must"):
        mechanism.randomize(np.full((3, d), "a"))


@pytest.mark.exact
@each
def test_vectors_outside_the_ball_are_clipped_on_the_device_or_refused_unquoted(mechanism):
    config = mechanism.to_config()
    strict = LocalRandomizer.from_config({**config, "clipping": "raise"})
    with pytest.raises(ValueError, match="values must") as refusal:
        strict.randomize(outside(mechanism))
    assert "345678" not in str(refusal.value)
    if mechanism.norm == "binary":
        return
    key, ids = b"k" * 32, np.arange(3)
    sent = mechanism.randomize(outside(mechanism), np.random.default_rng(1))
    order = {"l1": 1, "l2": 2, "linf": np.inf}[mechanism.norm]
    edge = outside(mechanism)
    edge *= mechanism.radius / np.linalg.norm(edge, ord=order, axis=1, keepdims=True)
    again = mechanism.randomize(edge, np.random.default_rng(1))
    differences = np.abs(sent.astype(float) - again.astype(float))
    assert differences.max() <= 2  # of a fixed point's last digits
    memoized = mechanism.randomize(edge, UserRandomness(key, ids, identity("r")))
    assert np.array_equal(
        memoized, mechanism.randomize(edge, UserRandomness(key, ids, identity("r")))
    )


@pytest.mark.exact
@each
def test_reports_that_cannot_have_been_sent_are_refused_before_they_count(mechanism):
    good = mechanism.randomize(np.tile(vector_for(mechanism), (4, 1)), np.random.default_rng(2))
    wrong_kind = good.astype(np.float64)
    beyond = np.full_like(good, np.iinfo(good.dtype).max)
    malformed = [beyond] if mechanism.bits_per_report < 8 * good.dtype.itemsize else []
    if good.ndim > 1:
        malformed += [good[:, :-1], good[0]]
    else:
        malformed += [good[:, None]]
    for reports in [wrong_kind, *malformed]:
        with pytest.raises((ValueError, TypeError)):
            mechanism.accumulate(reports)


@pytest.mark.exact
@each
def test_reports_travel_in_the_bits_that_are_stated_and_sums_do_not_depend_on_order(mechanism):
    users = np.tile(vector_for(mechanism), (9, 1))
    reports = mechanism.randomize(users, np.random.default_rng(3))
    assert reports.dtype == mechanism.report_dtype
    assert reports.shape == (9, *mechanism.report_shape)
    data = mechanism.pack(reports)
    assert len(data) == -(-9 * mechanism.bits_per_report // 8)
    assert np.array_equal(mechanism.unpack(data, 9), reports)
    with pytest.raises(ValueError, match="data"):
        mechanism.unpack(data + b"\0", 9)
    whole = mechanism.accumulate(reports)
    assert whole.dtype == np.int64
    assert whole.shape == mechanism.statistic_shape
    shuffled = reports[np.random.default_rng(0).permutation(9)]
    assert np.array_equal(mechanism.accumulate(shuffled), whole)
    parts = mechanism.accumulate(reports[:4]) + mechanism.accumulate(reports[4:])
    assert np.array_equal(parts, whole)
    assert LocalRandomizer.from_config(mechanism.to_config()) == mechanism


@pytest.mark.exact
@each
def test_with_fewer_reports_than_expected_the_error_is_that_of_those_received(mechanism):
    """Missing users widen the interval; messages that are missing or doubled are refused."""
    users = np.tile(vector_for(mechanism), (10, 1))
    reports = mechanism.randomize(users, np.random.default_rng(6))
    few = mechanism.estimate(mechanism.accumulate(reports[:4]), 4)
    all_of_them = mechanism.estimate(mechanism.accumulate(reports), 10)
    assert np.allclose(few.standard_error, all_of_them.standard_error * math.sqrt(10 / 4))
    assert few.num_users == 4
    if isinstance(mechanism, BlockMean):
        with pytest.raises(ValueError, match="once"):
            mechanism.estimate(mechanism.accumulate(reports[:9]), 10)


@pytest.mark.exact
@each
def test_inputs_of_any_number_type_and_nobody_at_all(mechanism):
    vector = np.round(vector_for(mechanism) * 4) / 4  # exact in float32
    users = np.tile(vector, (5, 1))
    wide = mechanism.randomize(users, np.random.default_rng(4))
    narrow = mechanism.randomize(users.astype(np.float32), np.random.default_rng(4))
    assert np.array_equal(wide, narrow)
    nobody = mechanism.randomize(users[:0], np.random.default_rng(4))
    assert nobody.shape == (0, *mechanism.report_shape)
    nothing = mechanism.estimate(mechanism.accumulate(nobody), 0)
    assert np.isnan(nothing.value).all() and np.isinf(nothing.standard_error).all()
    with pytest.raises(ValueError, match="statistic must"):
        mechanism.estimate(np.zeros(3, dtype=np.int64), 5)
    with pytest.raises(ValueError, match="num_users must"):
        mechanism.estimate(np.zeros(mechanism.statistic_shape, dtype=np.int64), -1)
