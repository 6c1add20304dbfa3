"""What can have been sent: everything that `randomize` gives, and nothing that pulls further."""

from __future__ import annotations

import numpy as np
import pytest

from beam_ldp.randomizers import FrequencyOracle, LocalRandomizer
from beam_ldp.randomizers.every_question import EveryQuestion
from beam_ldp.randomizers.frequency import (
    BinaryHadamard,
    HadamardResponse,
    KRandomizedResponse,
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
    ScalarMean,
    SeedCompressedMean,
    SeparatedMean,
)
from beam_ldp.randomizers.one_question import OneQuestion

# None of whose sizes fills its bits: something is left that is impossible.
MECHANISMS: dict[str, LocalRandomizer] = {
    "k-ary": KRandomizedResponse(11, 2.0),
    "unary": UnaryEncoding(11, 2.0),
    "hashing": LocalHashing(11, 2.0),
    "hadamard": HadamardResponse(11, 2.0),
    "binary": BinaryHadamard(11, 2.0),
    "recursive": RecursiveHadamardResponse(11, 2.0),
    "subset list": SubsetSelection(1000, 5.0),
    "subset bits": SubsetSelection(11, 2.0),
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
    "gaussian": PrivUnitGaussian(11, 3.0, radius=2.0),
    "gaussian, long": PrivUnitGaussian(1000, 3.0),
    "corners": PrivUnitInf(11, 3.0, radius=2.0),
    "product": SeparatedMean(11, 6.0, radius=2.0),
    "product, 13 bits": SeparatedMean(100, 6.0, coordinate_bits=13),
    "lift": SeparatedMean(11, 6.0, strategy="lift"),
    "sign flip": SeparatedMean(11, 6.0, strategy="sign_flip", coordinate_bits=16),
    "shared": ProjectedPrivUnit(11, 3.0, projected=7),
    "shared, 12 bits": ProjectedPrivUnit(11, 3.0, projected=7, coordinate_bits=12),
    "haar": ProjectedPrivUnit(11, 3.0, projected=7, projection="haar"),
    "codebook": RandomCodebookMean(11, 3.0, index_bits=5),
    "random coding": MinimalRandomCoding(11, 3.0, index_bits=5),
    "seed": SeedCompressedMean(11, 3.0),
    "one question": OneQuestion((KRandomizedResponse(300, 2.0), UnaryEncoding(11, 2.0))),
    "every question": EveryQuestion((KRandomizedResponse(300, 2.0), SubsetSelection(11, 2.0))),
}
each = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


def reports_of(mechanism: LocalRandomizer, count: int = 200) -> np.ndarray:
    """Reports of many values of the whole domain."""
    rng = np.random.default_rng(3)
    if isinstance(mechanism, FrequencyOracle):
        values = rng.integers(0, mechanism.domain_size, count)
    elif isinstance(mechanism, OneQuestion | EveryQuestion):
        values = np.stack([rng.integers(0, size, count) for size in mechanism.domain_sizes], 1)
    else:
        values = mechanism.radius * rng.normal(size=(count, mechanism.dimension)) / 4
        values[0], values[1] = 0.0, mechanism.radius
        values = (values > 0) * 1.0 if mechanism.norm == "binary" else values
    return mechanism.randomize(values, rng)


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
