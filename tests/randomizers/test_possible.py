"""What can have been sent: everything that `randomize` gives, and nothing that pulls further."""

from __future__ import annotations

import numpy as np
import pytest

from beam_ldp.randomizers import FrequencyOracle, LocalRandomizer
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
from beam_ldp.randomizers.mean.directions import DirectionMean
from beam_ldp.randomizers.questions import EveryQuestion, OneQuestion

# None of whose sizes fills its bits: something is left that is impossible.
MECHANISMS: dict[str, LocalRandomizer] = {
    "k-ary": KRandomizedResponse(11, 2.0),
    "unary": UnaryEncoding(11, 2.0),
    "hashing": LocalHashing(11, 2.0),
    "hadamard": HadamardResponse(11, 2.0),
    "binary": BinaryHadamard(11, 2.0),
    "limited": LimitedHadamard(11, 2.0, 0.3),
    "limited timeshare": LimitedHadamard(11, 2.0, 0.3, "timeshare"),
    "recursive": RecursiveHadamardResponse(11, 2.0),
    "subset list": SubsetSelection(1000, 5.0),
    "subset bits": SubsetSelection(11, 2.0, 4),
    "pairwise": PairwiseIndependentRappor(11, 2.0),
    "geometry": ProjectiveGeometryResponse(11, 2.0),
    "rappor": Rappor(11, 2.0),
    "rappor bloom": Rappor.from_rates(5, num_hashes=2, num_bits=9, num_cohorts=4),
    "scalar": ScalarMean(1, 4.0, radius=2.0),
    "binary vector": BinaryVectorMean(11, 3.0),
    "binary vector, thesis": BinaryVectorMean(11, 3.0, preset="thesis"),
    "linf": LInfMean(11, 3.0, radius=2.0),
    "l1": L1Mean(11, 3.0, radius=2.0),
    "l2": L2Mean(11, 3.0, radius=2.0),
    "l2 covering": L2Mean(8, 9.0, messages=(8,), message_epsilons=(1.0,)),
    "kashin": KashinMean(11, 3.0, radius=2.0),
    "priv unit": PrivUnit(11, 3.0, radius=2.0),
    "priv unit, 12 bits": PrivUnit(11, 3.0, coordinate_bits=12),
    "priv unit, plane": PrivUnit(2, 3.0),
    "priv unit, long": PrivUnit(1000, 3.0),
    "priv unit, few bits": PrivUnit(100, 3.0, coordinate_bits=7, rounding="random"),
    "priv unit, long, few bits": PrivUnit(1000, 8.0, coordinate_bits=8, rounding="random"),
    "gaussian, few bits": PrivUnitGaussian(100, 3.0, coordinate_bits=7, rounding="random"),
    "gaussian": PrivUnitGaussian(11, 3.0, radius=2.0),
    "gaussian, long": PrivUnitGaussian(1000, 3.0),
    "corners": PrivUnitInf(11, 3.0, radius=2.0),
    "product": SeparatedMean(11, 6.0, radius=2.0),
    "product, 13 bits": SeparatedMean(100, 6.0, coordinate_bits=13),
    "product, few bits": SeparatedMean(100, 4.0, coordinate_bits=7, rounding="random"),
    "lift": SeparatedMean(11, 6.0, strategy="lift"),
    "sign flip": SeparatedMean(11, 6.0, strategy="sign_flip", coordinate_bits=16),
    "shared": ProjectedPrivUnit(11, 3.0, projected=7),
    "shared, 12 bits": ProjectedPrivUnit(11, 3.0, projected=7, coordinate_bits=12),
    "shared, few bits": ProjectedPrivUnit(
        300, 3.0, projected=100, coordinate_bits=7, rounding="random"
    ),
    "haar": ProjectedPrivUnit(11, 3.0, projected=7, projection="haar"),
    "codebook": RandomCodebookMean(11, 3.0, index_bits=5),
    "simplex": RotatedSimplexMean(11, 3.0, index_bits=3),
    "random coding": MinimalRandomCoding(11, 3.0, index_bits=5),
    "seed": SeedCompressedMean(11, 3.0),
    "one question": OneQuestion((KRandomizedResponse(300, 2.0), UnaryEncoding(11, 2.0))),
    "every question": EveryQuestion((KRandomizedResponse(300, 2.0), SubsetSelection(11, 2.0, 4))),
}
each = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


def values_for(mechanism: LocalRandomizer, count: int) -> np.ndarray:
    """Values of the whole domain."""
    rng = np.random.default_rng(3)
    if isinstance(mechanism, FrequencyOracle):
        return rng.integers(0, mechanism.domain_size, count)
    if isinstance(mechanism, OneQuestion | EveryQuestion):
        return np.stack([rng.integers(0, size, count) for size in mechanism.domain_sizes], 1)
    values = mechanism.radius * rng.normal(size=(count, mechanism.dimension)) / 4
    values[0], values[1] = 0.0, mechanism.radius
    return (values > 0) * 1.0 if mechanism.norm == "binary" else values


def reports_of(mechanism: LocalRandomizer, count: int = 200) -> np.ndarray:
    """Reports of many values."""
    return mechanism.randomize(values_for(mechanism, count), np.random.default_rng(3))


def rows_of_one(mechanism: LocalRandomizer, reports: np.ndarray) -> np.ndarray:
    """`pack` of each report alone."""
    packed = [mechanism.pack(reports[i : i + 1]) for i in range(len(reports))]
    return np.frombuffer(b"".join(packed), dtype=np.uint8).reshape(len(reports), -1)


@pytest.mark.exact
@each
def test_each_report_in_bytes_of_its_own_is_what_a_device_packs(mechanism):
    reports = reports_of(mechanism)
    rows = mechanism.pack_each(reports)
    np.testing.assert_array_equal(rows, rows_of_one(mechanism, reports))
    again, possible = mechanism.unpack_each(rows)
    assert again.dtype == mechanism.report_dtype and possible.all()
    np.testing.assert_array_equal(again, reports)
    nobody, none = mechanism.unpack_each(rows[:0])
    assert nobody.shape == (0, *mechanism.report_shape) and none.shape == (0,)
    for bad in (rows[:, :-1], rows.astype(int), rows[0]):
        with pytest.raises(ValueError, match="payload must be uint8"):
            mechanism.unpack_each(bad)


@pytest.mark.exact
@each
def test_padding_of_a_report_is_zero(mechanism):
    padding = -mechanism.bits_per_report % 8
    if not padding:
        return
    rows = mechanism.pack_each(reports_of(mechanism, 20))
    first = 1 << (8 - padding) if mechanism._low_bits_first else 1
    for bit in range(padding):
        spoiled = rows.copy()
        spoiled[7, -1] |= first << bit
        reports, possible = mechanism.unpack_each(spoiled)
        assert np.flatnonzero(~possible).tolist() == [7]
        np.testing.assert_array_equal(reports, mechanism.unpack_each(rows)[0])


@pytest.mark.exact
@each
def test_what_is_sent_is_possible_in_any_integer_dtype(mechanism):
    reports = reports_of(mechanism, 2000)
    assert mechanism.possible(reports).all()
    wide = reports.astype(np.int64)
    if (wide.astype(reports.dtype) == reports).all() and (wide >= 0).all():
        assert mechanism.possible(wide).all()
        assert not mechanism.possible(-1 - wide).all()
    for bad in (reports.astype(float), reports[0], reports[..., None]):
        with pytest.raises(ValueError, match="reports must"):
            mechanism.possible(bad)


# Nothing that can have been sent is refused ---------------------------------------------------


# Coins of one value for all coordinates lengthen a report beyond what one honest one in 1e18 has.
NEVER_REFUSED = {
    name: one for name, one in MECHANISMS.items() if getattr(one, "rounding", "") != "random"
}


def extreme_words(shape: tuple[int, int]) -> np.ndarray:
    """Words of zeros, of ones, and mixtures of them with words between: `shape`."""
    rng = np.random.default_rng(4)
    last = np.uint64((1 << 64) - 1)
    words = rng.integers(0, last, shape, dtype=np.uint64, endpoint=True)
    kinds = rng.random(shape)
    words[kinds < 0.3] = 0
    words[kinds > 0.7] = last
    words[0], words[1] = 0, last
    words[2, 1:], words[3, 1:] = 0, last
    words[4, ::2], words[5, 1::2] = last, last
    return words


@pytest.mark.exact
@pytest.mark.parametrize("mechanism", NEVER_REFUSED.values(), ids=NEVER_REFUSED)
def test_the_most_extreme_words_give_possible_reports(mechanism):
    count = 60
    values = values_for(mechanism, count)
    words = extreme_words((count, mechanism.words_per_user))
    rng = np.random.default_rng(5)

    def extra(rows, positions):
        return rng.integers(0, (1 << 64) - 1, len(rows), dtype=np.uint64, endpoint=True)

    reports = np.zeros((count, *mechanism.report_shape), dtype=mechanism.report_dtype)
    mechanism._randomize_block(mechanism._check_values(values), words, extra, reports)
    assert mechanism.possible(reports).all()


# What cannot have been sent is refused --------------------------------------------------------


def impossible(mechanism: LocalRandomizer) -> list[np.ndarray]:
    """Reports, one each, that fit the array and yet cannot have been sent."""
    one = reports_of(mechanism, 2)[1:]
    largest = np.iinfo(mechanism.report_dtype).max
    if isinstance(mechanism, UnaryEncoding | PrivUnitInf | Rappor):
        beyond = one.copy()
        beyond[0, -1] |= 0x80
        return [beyond]
    if isinstance(mechanism, SubsetSelection) and mechanism.report_dtype == np.uint8:
        return [one | np.array([[0, 0x80]], np.uint8), 0 * one, one | 0x7, one & 0x3]
    if isinstance(mechanism, SubsetSelection):
        twice, outside = one.copy(), one.copy()
        twice[0, 1] = twice[0, 0]
        outside[0, -1] = mechanism.domain_size
        return [one[:, ::-1], twice, outside, 0 * one]
    if isinstance(mechanism, BlockMean):
        sizes = mechanism.layout.columns.size.astype(np.int64)
        beyond = [one.copy() for _ in sizes]
        for column, size in enumerate(sizes.tolist()):
            beyond[column][0, column] = 2 * size
        return beyond
    if isinstance(mechanism, ProjectedPrivUnit):
        outer = one.copy()
        outer[0, 0] = -(1 << 31)  # overflows an absolute value of 32 bits
        parts = impossible(mechanism.base)
        return [outer, *(np.append(part, [[7]], axis=1).astype(np.int32) for part in parts)]
    if isinstance(mechanism, SeedCompressedMean):
        return [np.array([[1, 2, 1 << mechanism.nonce_bits]], dtype=np.uint64)]
    if isinstance(mechanism, DirectionMean) and one.ndim == 2:
        return too_long(mechanism, one)
    if isinstance(mechanism, OneQuestion):
        second = np.array([[2, 0, 0]], np.uint8)  # no such question
        beyond = np.array([[0, 300 & 255, 300 >> 8], [1, 0, 0x08]], np.uint8)
        return [second, beyond[:1], beyond[1:]]
    if isinstance(mechanism, EveryQuestion):
        beyond = one.copy()
        beyond[0, 0] = [300 & 255, 300 >> 8]
        padded, empty = one.copy(), one.copy()
        empty[0, 1] = 0
        return [beyond, empty, padded | np.array([[[0, 0], [0, 0x80]]], np.uint8)]
    symbols = (
        getattr(mechanism, "num_symbols", None)
        or {
            "hashing": lambda: mechanism._num_reports,
            "pairwise": lambda: mechanism._num_reports,
            "scalar": lambda: len(mechanism.points),
        }.get(name_of(mechanism), lambda: 1 << mechanism.bits_per_report)()
    )
    return [np.array([bad], dtype=mechanism.report_dtype) for bad in (symbols, largest)]


def too_long(mechanism: DirectionMean, one: np.ndarray) -> list[np.ndarray]:
    """Vectors of other lengths: a little, the most that the grid holds, and where lengths are
    one or a few, shorter and zero."""
    largest = mechanism.fixed_point.largest
    corner = np.full_like(one, largest)
    lengths, slack = mechanism._lengths_sent
    axis = np.zeros_like(one, dtype=np.float64)
    axis[0, :4] = 0.5 if mechanism.dimension > 3 else np.sqrt(0.5)
    axis /= np.linalg.norm(axis)
    longest = float((lengths + slack).max())
    factors = [1.02] if slack.max() > longest / 50 else [1.002]
    bad = [factor * longest * axis for factor in factors]
    if lengths.min() > slack.max():
        bad += [0 * axis, 0.97 * float((lengths - slack).min()) * axis]
    bad = [np.rint(each).astype(one.dtype) for each in bad if np.abs(each).max() <= largest]
    return [corner, *bad] if mechanism.dimension > 2 or not bad else bad


def name_of(mechanism: LocalRandomizer) -> str:
    return next(name for name, found in MECHANISMS.items() if found is mechanism)


@pytest.mark.exact
@each
def test_what_cannot_have_been_sent_is_marked_refused_and_never_counted(mechanism):
    good = reports_of(mechanism, 6)
    crafted = impossible(mechanism)
    assert crafted
    for bad in crafted:
        assert bad.dtype == mechanism.report_dtype
        both = np.concatenate([good[:3], bad, good[3:]])
        assert np.flatnonzero(~mechanism.possible(both)).tolist() == [3]
        rows = try_to_pack(mechanism, bad)
        if rows is None:
            continue
        payload = np.concatenate([mechanism.pack_each(good[:3]), rows])
        reports, possible = mechanism.unpack_each(payload)
        assert possible.tolist() == [True] * 3 + [False]
        np.testing.assert_array_equal(reports[:3], good[:3])
        with pytest.raises(ValueError, match="reports must"):
            mechanism.unpack(rows.tobytes(), 1)


def try_to_pack(mechanism: LocalRandomizer, bad: np.ndarray) -> np.ndarray | None:
    """The bits of an impossible report, where bits there are for it."""
    try:
        rows = mechanism.pack_each(bad)
    except ValueError:
        return None
    back = mechanism._unpack(rows.tobytes(), 1)
    return rows if np.array_equal(back, bad) else None


# How far one liar pulls -----------------------------------------------------------------------


def pull_bound(mechanism: LocalRandomizer) -> float:
    """The largest pull of one report on the estimate of one user, in closed form.

    Of a frequency, in any one category; of a mean, in Euclidean length. One of n reports pulls by
    an n-th of it.
    """
    if isinstance(mechanism, FrequencyOracle):
        return frequency_pull_bound(mechanism)
    if isinstance(mechanism, BlockMean):
        return mechanism.messages_per_user * mechanism.influence(1)
    if isinstance(mechanism, ScalarMean):
        return float(np.abs(mechanism.response.decoded).max())
    if isinstance(mechanism, KashinMean):
        frame = np.sqrt(mechanism.coefficients)
        return mechanism.level * mechanism.radius * frame / mechanism._gain
    if isinstance(mechanism, PrivUnitInf):
        return mechanism.radius * np.sqrt(mechanism.dimension) / mechanism.marginal
    if isinstance(mechanism, PrivUnitGaussian):
        along, across = mechanism.tail.threshold + 12, np.sqrt(mechanism.dimension - 1) + 12
        return mechanism.radius * np.hypot(along, across) / mechanism.marginal
    if isinstance(mechanism, SeparatedMean):
        longest = mechanism.radius
        if mechanism.strategy == "product":
            longest = float(np.abs(mechanism.magnitude.response.decoded).max())
        return longest / mechanism.direction.marginal
    if isinstance(mechanism, ProjectedPrivUnit):
        return mechanism.radius * mechanism.expansion / mechanism.base.marginal
    return mechanism.radius / mechanism.marginal


def frequency_pull_bound(mechanism: FrequencyOracle) -> float:
    """The same of a frequency."""
    if isinstance(mechanism, HadamardResponse | RecursiveHadamardResponse):
        return mechanism._scale
    if isinstance(mechanism, LimitedHadamard):
        score = max(map(abs, mechanism._scores))
        return (1 + mechanism.num_rows * score) / mechanism._order
    if isinstance(mechanism, Rappor) and mechanism.num_bits is not None:
        one, zero = mechanism._bit_law
        weights = np.abs(mechanism._code.decoder()).reshape(5, mechanism.num_cohorts, -1)
        return float(weights.sum(axis=2).max() * max(zero, 1 - zero) / (one - zero))
    p, q = mechanism.support_probabilities
    return max(q, 1 - q) / (p - q)


def pull(mechanism: LocalRandomizer, report: np.ndarray) -> float:
    """How far this report pulls the estimate of one user."""
    statistic = mechanism.accumulate(report[None])
    if isinstance(mechanism, FrequencyOracle):
        return float(np.abs(mechanism.estimate(statistic, 1).value).max())
    found = mechanism._mean(statistic, 1)
    if isinstance(mechanism, BlockMean):  # whose estimate begins in the middle of the range
        found -= mechanism._mean(np.zeros_like(statistic), 1)
    return float(np.linalg.norm(found))


def candidates(mechanism: LocalRandomizer) -> np.ndarray:
    """Reports of honest people, and what a liar would try that can have been sent."""
    crafted = list(reports_of(mechanism, 50))
    if not mechanism.report_shape and mechanism.bits_per_report <= 12:
        crafted += list(np.arange(1 << mechanism.bits_per_report).astype(mechanism.report_dtype))
    elif mechanism.report_dtype == np.uint8:
        crafted += [np.full_like(crafted[0], fill) for fill in (0, 1, 0xFF)]
        crafted += [np.array([0xFF, 0x7], np.uint8)] if mechanism.report_shape == (2,) else []
    elif isinstance(mechanism, DirectionMean) and len(mechanism.report_shape) == 1:
        crafted += vectors_of_all_lengths(mechanism, crafted[0].size)
    reports = np.array(crafted, dtype=mechanism.report_dtype)
    accepted = reports[mechanism.possible(reports)]
    if len(accepted) > 100 and accepted.ndim > 1 and mechanism.exactness == "real-arithmetic":
        accepted = accepted[np.argsort(np.linalg.norm(accepted.astype(float), axis=1))[-50:]]
    return accepted


def vectors_of_all_lengths(mechanism: DirectionMean, size: int) -> list[np.ndarray]:
    """Vectors along an axis, a corner and between, of all lengths that the grid holds."""
    rng, largest = np.random.default_rng(6), mechanism.fixed_point.largest
    found = []
    for direction in (np.eye(size)[0], np.ones(size), *rng.normal(size=(5, size))):
        unit = direction / np.linalg.norm(direction)
        for factor in np.geomspace(0.01, 30, 3000):
            if np.abs(factor * unit).max() <= 1:
                found.append(np.rint(factor * largest * unit))
    return found


ONE_ESTIMATE = {n: m for n, m in MECHANISMS.items() if "question" not in n}


@pytest.mark.exact
@pytest.mark.parametrize("mechanism", ONE_ESTIMATE.values(), ids=ONE_ESTIMATE)
def test_no_report_that_is_accepted_pulls_further_than_stated(mechanism):
    """The bound holds for whatever is accepted, and where it is no sum over messages, is reached:
    an honest report pulls as far, so nothing is gained by lying about the mechanism's own law."""
    accepted = candidates(mechanism)
    pulls = [pull(mechanism, report) for report in accepted]
    bound = pull_bound(mechanism)
    rounding = 1e-6
    if isinstance(mechanism, DirectionMean) and mechanism.coordinate_bits < 20:
        rounding = 2 * np.sqrt(mechanism.dimension) / mechanism.fixed_point.largest
    assert max(pulls) <= bound * (1 + rounding)
    if not isinstance(mechanism, BlockMean | KashinMean):
        assert max(pulls) >= 0.5 * bound


@pytest.mark.exact
def test_the_liars_of_before_are_refused():
    """Every coordinate at the end of the grid: sqrt(d) times, and 25 times, too long."""
    for mechanism, factor in ((SeparatedMean(1000, 4.0), 31), (PrivUnitGaussian(1000, 4.0), 20)):
        corner = np.full((1, 1000), mechanism.fixed_point.largest, mechanism.report_dtype)
        honest = reports_of(mechanism, 50)
        lengths = np.linalg.norm(honest.astype(float), axis=1)
        assert np.linalg.norm(corner.astype(float)) > factor * np.median(lengths)
        assert not mechanism.possible(corner).any() and mechanism.possible(honest).all()
        with pytest.raises(ValueError, match="vectors of a length that the mechanism sends"):
            mechanism.unpack(mechanism.pack(corner), 1)
        with pytest.raises(ValueError, match="vectors of a length that the mechanism sends"):
            mechanism.accumulate(corner)
