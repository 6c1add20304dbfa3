"""Reports on the wire: the same when they arrive, and as short as they can be."""

from __future__ import annotations

import numpy as np
import pytest

from beam_ldp.randomizers.frequency import (
    HadamardResponse,
    KRandomizedResponse,
    LocalHashing,
    SubsetSelection,
    UnaryEncoding,
)
from beam_ldp.transforms.elements.block_coder import BlockCoder
from beam_ldp.transforms.elements.portable import report_bytes
from beam_ldp.transforms.shuffler.exchange import PieceFormat, ReportPiece
from tests.transforms.mean_mechanisms import MECHANISMS, vectors_for

pytestmark = pytest.mark.exact

ORACLES = (
    KRandomizedResponse(266, 4.0),
    KRandomizedResponse(256, 4.0),
    HadamardResponse(1000, 1.0),
    UnaryEncoding(20, 1.0),
    SubsetSelection(50, 1.0),
    LocalHashing(1000, 3.0),
)


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda o: f"{type(o).__name__}{o.domain_size}")
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_reports_of_oracles_arrive_as_they_were(oracle, count):
    reports = oracle.randomize(np.arange(count) % oracle.domain_size)
    check(oracle, reports)


@pytest.mark.parametrize("name", MECHANISMS)
def test_reports_of_means_arrive_as_they_were(name):
    mechanism = MECHANISMS[name]
    check(mechanism, mechanism.randomize(vectors_for(mechanism, 50)))


def check(randomizer, reports):
    form, coder = PieceFormat(randomizer), BlockCoder(ReportPiece)
    piece = coder.decode(coder.encode(form.write(reports, True)))
    found = form.read(piece)
    assert found.dtype == reports.dtype
    assert found.shape == reports.shape
    assert np.array_equal(found, reports)
    assert piece.simulated
    assert len(piece) == len(reports)
    assert len(piece.data) == -(-form.bits_per_report * len(reports) // 8)
    assert form.bits_per_report <= 8 * report_bytes(randomizer)


def test_what_is_dense_already_is_not_packed():
    assert PieceFormat(KRandomizedResponse(266, 4.0)).bits_per_report == 9
    assert not PieceFormat(KRandomizedResponse(256, 4.0)).packed
    assert not PieceFormat(MECHANISMS["privunit"]).packed
