"""How far a forged report moves an estimate: every report that can be sent, read by itself."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from beam_ldp.randomizers.frequency import (
    HadamardResponse,
    KRandomizedResponse,
    Rappor,
    UnaryEncoding,
)
from beam_ldp.randomizers.mean import (
    BinaryVectorMean,
    KashinMean,
    L1Mean,
    L2Mean,
    LInfMean,
    PrivUnit,
    PrivUnitGaussian,
    PrivUnitInf,
    ScalarMean,
)
from tests.randomizers.frequency.all_oracles import cases
from tests.randomizers.mean.test_all_means import MECHANISMS, name

pytestmark = pytest.mark.exact


def read(mechanism, reports):
    """What each report is read as: `(reports, components)`."""
    one_by_one = np.asarray(reports)[:, None]
    if hasattr(mechanism, "domain_size"):
        return np.array([mechanism.frequencies(mechanism.accumulate(r), 1) for r in one_by_one])
    return np.array([mechanism._mean(mechanism.accumulate(r), 1) for r in one_by_one])


@pytest.mark.parametrize("oracle", [*cases((2, 3), (3.0,)), *cases((5,), (0.5,))])
def test_no_report_is_read_farther_from_a_count_and_one_is_as_far(oracle) -> None:
    """An honest person counts 0 or 1 for a value, on average."""
    found = read(oracle, oracle.channel_reports())
    farthest = max(found.max() - 0, 1 - found.min())
    assert oracle.reach == pytest.approx(farthest, rel=1e-9)


def test_bloom_filters_are_read_by_the_best_bits_of_one_cohort() -> None:
    oracle = Rappor(3, 2.0, num_bits=5, num_hashes=1, num_cohorts=4)
    found = read(oracle, oracle.channel_reports())
    assert oracle.reach == pytest.approx(max(found.max(), 1 - found.min()), rel=1e-9)


def test_one_liar_moves_a_count_by_six() -> None:
    assert KRandomizedResponse(266, 4.0).reach == pytest.approx(5.9442, abs=1e-4)
    few, many = UnaryEncoding(1000, 1.0), HadamardResponse(1000, 1.0)
    assert 3 < few.reach < 4 and 3 < many.reach < 5  # whatever the number of values


def test_a_mechanism_that_says_nothing_says_so() -> None:
    with pytest.raises(NotImplementedError, match="LInfMean does not say how far a report"):
        _ = LInfMean(3, 2.0, preset="thesis").reach


# Means: everything a person can send, against the farthest vector of the domain -----------------


def every_report(mechanism):
    """All that one person can send in a small mechanism of blocks."""
    sizes = [range(2 * int(size)) for size in mechanism.layout.columns.size]
    return np.array(list(itertools.product(*sizes)), dtype=mechanism.report_dtype)


def corners(mechanism):
    """The vectors of the domain that can be farthest from a reading."""
    d, r = mechanism.dimension, mechanism.radius
    if mechanism.norm == "l1":
        return r * np.vstack([np.eye(d), -np.eye(d)])
    low = 0.0 if mechanism.norm == "binary" else -r
    return np.array(list(itertools.product((low, r), repeat=d)))


def farthest(mechanism, readings):
    if mechanism.norm == "l2":
        return np.linalg.norm(readings, axis=1).max() + mechanism.radius
    away = readings[:, None, :] - corners(mechanism)
    return np.linalg.norm(away, axis=2).max()


BLOCKS = [
    BinaryVectorMean(3, 2.0),
    BinaryVectorMean(5, 3.0, messages=(2,), message_epsilons=(1.0,)),
    LInfMean(1, 1.0, radius=3.0),
    LInfMean(5, 3.0, radius=2.0, messages=(2,), message_epsilons=(1.5,)),
    L2Mean(4, 3.0, radius=2.0, messages=(2,), message_epsilons=(1.0,), cutoff=math.inf),
    L2Mean(4, 1.0, messages=(1,), message_epsilons=(1.0,), cutoff=1.5),
]


@pytest.mark.parametrize("mechanism", BLOCKS, ids=lambda m: f"{type(m).__name__}{m.messages}")
def test_messages_about_blocks_reach_as_far_as_the_best_of_all_reports(mechanism) -> None:
    found = farthest(mechanism, read(mechanism, every_report(mechanism)))
    assert mechanism.reach == pytest.approx(found, rel=1e-9)


@pytest.mark.parametrize(
    "mechanism",
    [
        LInfMean(3, 5.0, messages=(1, 1), message_epsilons=(3.0, 2.0)),
        LInfMean(3, 5.0, messages=(2, 1), message_epsilons=(1.5, 2.0)),
        L1Mean(3, 2.0, radius=2.0),
        L2Mean(3, 2.0, messages=(2,), message_epsilons=(1.0,), cutoff=2.0),
    ],
    ids=lambda m: f"{type(m).__name__}{m.messages}",
)
def test_levels_and_padding_reach_no_farther_than_said(mechanism) -> None:
    found = farthest(mechanism, read(mechanism, every_report(mechanism)))
    assert 0.6 * mechanism.reach < found <= mechanism.reach * (1 + 1e-12)


def test_one_number_is_read_as_another_by_as_much_as_said() -> None:
    for mechanism in (ScalarMean(1, 2.0, radius=3.0), ScalarMean(1, 2.0, signed=True)):
        found = read(mechanism, np.arange(len(mechanism.points)))
        ends = mechanism.points[[0, -1]]
        assert mechanism.reach == pytest.approx(np.abs(found - ends).max(), rel=1e-12)


def test_corners_reach_the_opposite_one() -> None:
    mechanism = PrivUnitInf(4, 2.0, radius=2.0)
    found = farthest(mechanism, read(mechanism, np.arange(16, dtype=np.uint8)[:, None]))
    assert mechanism.reach == pytest.approx(found, rel=1e-12)


DIRECTIONS = [m for m in MECHANISMS if m.norm == "l2" and not isinstance(m, (L2Mean, KashinMean))]


@pytest.mark.parametrize("mechanism", DIRECTIONS, ids=name)
def test_directions_reach_as_far_as_their_longest_report(mechanism) -> None:
    """Of 200 that were sent; those of one length are all as long, but for projections."""
    rng = np.random.default_rng(5)
    sent = mechanism.randomize(np.tile(0.9 * np.eye(5)[0], (200, 1)), rng)
    lengths = np.linalg.norm(read(mechanism, sent), axis=1)
    assert lengths.max() + mechanism.radius <= mechanism.reach * (1 + 1e-3)
    if isinstance(mechanism, PrivUnit):
        assert lengths.min() + mechanism.radius == pytest.approx(mechanism.reach, rel=1e-3)
    if isinstance(mechanism, PrivUnitGaussian):  # one person in 1e31 sends the longest
        longest = np.zeros((2, 5), dtype=mechanism.report_dtype)
        longest[:, 0] = [mechanism._longest, 1.01 * mechanism._longest]
        assert mechanism.possible(longest).tolist() == [True, False]
    else:
        assert lengths.max() + mechanism.radius > 0.3 * mechanism.reach


def test_frames_reach_no_farther_than_one_coefficient() -> None:
    mechanism = KashinMean(5, 3.0, radius=2.0, level=4.0)
    rng = np.random.default_rng(5)
    sent = rng.integers(0, 1 << mechanism.bits_per_report, 2000, dtype=np.uint64)
    assert farthest(mechanism, read(mechanism, sent)) <= mechanism.reach * (1 + 1e-12)


def test_forgers_move_the_estimate_by_their_share_of_it() -> None:
    """Ten of a hundred: the estimate with their reports, against everybody's honest mean."""
    oracle = KRandomizedResponse(4, 1.0)
    chances = oracle.channel()
    honest = 90 * chances[:, 1] + 10 * chances[:, 2]  # expected reports of all hundred
    forged = 90 * chances[:, 1] + 10 * np.eye(4)[0]  # ten of them claim value 0
    moved = oracle.frequencies(forged, 100) - oracle.frequencies(honest, 100)
    assert moved.max() == pytest.approx(0.1 * oracle.reach, rel=1e-9)
