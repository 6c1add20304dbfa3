"""Rotations: the transform, the public signs, the bounds on what truncation costs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, linalg, stats

from beam_ldp.randomizers import walsh_hadamard as rotation
from beam_ldp.randomizers.mean import L2Mean, LInfMean, ProjectedPrivUnit
from tests.identities import identity

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 8, 13, 32, 64, 100])
def test_transform_is_sylvesters_matrix(d):
    size = rotation.padded_size(d)
    vectors = np.random.default_rng(d).normal(size=(6, d))
    signs = rotation.public_signs(d, 3)
    matrix = linalg.hadamard(size)[:, :d] / math.sqrt(size)
    assert np.allclose(rotation.hadamard(vectors), vectors @ matrix.T, atol=1e-13)
    rotated = rotation.hadamard(vectors, signs)
    assert np.allclose(rotated, (vectors * signs) @ matrix.T, atol=1e-13)
    assert np.allclose(np.linalg.norm(rotated, axis=1), np.linalg.norm(vectors, axis=1))
    for row, vector in zip(rotated, vectors):
        assert np.allclose(rotation.hadamard_back(row, d, signs), vector, atol=1e-13)
    anything = np.random.default_rng(9).normal(size=size)
    assert np.allclose(rotation.hadamard_back(anything, d), anything @ matrix, atol=1e-13)


@pytest.mark.parametrize("d", [1024, 3000, 16_384])
def test_large_transforms_keep_length_and_invert_to_1e_12(d):
    vector = np.random.default_rng(0).normal(size=(1, d))
    vector /= np.linalg.norm(vector)
    rotated = rotation.hadamard(vector, rotation.public_signs(d, 0))
    assert abs(np.linalg.norm(rotated) - 1) < 1e-12
    back = rotation.hadamard_back(rotated[0], d, rotation.public_signs(d, 0))
    assert np.abs(back - vector[0]).max() < 1e-12


def test_rows_do_not_depend_on_their_batch():
    vectors = np.random.default_rng(1).normal(size=(50, 37))
    whole = rotation.hadamard(vectors)
    for i in (0, 13, 49):
        assert np.array_equal(rotation.hadamard(vectors[i : i + 1])[0], whole[i])


def test_signs_are_pinned_and_balanced():
    """They are part of the wire format: a change would break devices in the field."""
    first = rotation.public_signs(16, 0)
    assert np.array_equal(first, rotation.public_signs(40, 0)[:16])
    assert (first < 0).astype(int).tolist() == PINNED_SIGNS
    many = rotation.public_signs(100_000, 7)
    assert set(np.unique(many)) == {-1.0, 1.0}
    assert abs(many.mean()) < 5 / math.sqrt(100_000)
    assert not np.array_equal(rotation.public_signs(100, 1), rotation.public_signs(100, 2))


PINNED_SIGNS = [1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1, 0, 0, 1, 0]


def test_truncation_bounds_are_the_integrals_of_the_tail():
    for cutoff in (0.5, 1.0, 2.0, 3.0, 4.0):
        norm, component = rotation.truncation_bias(cutoff)
        squared = integrate.quad(
            lambda t, c=cutoff: 2 * (t - c) * 2 * math.exp(-(t**2) / 2), cutoff, np.inf
        )[0]
        absolute = integrate.quad(lambda t: 2 * math.exp(-(t**2) / 2), cutoff, np.inf)[0]
        assert norm**2 == pytest.approx(squared, rel=1e-6)
        assert component == pytest.approx(absolute, rel=1e-6)
    squares = [rotation.truncation_bias(c)[0] ** 2 for c in (2, 3, 4, 5)]
    assert squares == pytest.approx([8.5e-2, 3.8e-3, 7.2e-5, 5.4e-7], rel=0.02)


def test_truncation_bounds_hold_for_gaussian_coordinates():
    for cutoff, truth in ((2.0, 1.2e-2), (3.0, 4.1e-4), (4.0, 6.2e-6)):
        excess = integrate.quad(
            lambda t, c=cutoff: 2 * (t - c) ** 2 * stats.norm.pdf(t), cutoff, np.inf
        )[0]
        assert excess == pytest.approx(truth, rel=0.05)
        assert excess <= rotation.truncation_bias(cutoff)[0] ** 2


def test_union_cutoff_against_exact_sign_sums():
    """P(|sum of 12 signs|/sqrt(12) > C) <= 2 exp(-C^2/2), coordinate by coordinate."""
    sums = 2 * np.arange(13) - 12
    law = stats.binom(12, 0.5).pmf(np.arange(13))
    for failure in (0.5, 0.1, 0.01):
        cutoff = rotation.union_cutoff(1, failure)
        assert law[np.abs(sums) / math.sqrt(12) > cutoff].sum() <= failure
    assert rotation.union_cutoff(512 * 1000, 0.01) == pytest.approx(6.07, abs=0.01)


def test_the_seed_of_a_release_follows_from_its_question():
    one = identity("week-47", "visits", columns=("steps",), mechanism="ab")
    seed = rotation.rotation_seed_of(one)
    assert 0 <= seed < 2**48
    for same in ({"mechanism": "cd"}, {"part": "round 3"}, {"key": "00"}, {"group": "red"}):
        assert rotation.rotation_seed_of(replace(one, **same)) == seed
    others = [
        identity("week-48", "visits", columns=("steps",)),
        identity("week-47", "sales", columns=("steps",)),
        identity("week-47", "visits", columns=("pulse",)),
    ]
    assert len({seed, *map(rotation.rotation_seed_of, others)}) == 4
    mechanism = L2Mean(8, 4.0, rotation_seed=seed)
    assert mechanism.to_config()["rotation_seed"] == seed


def test_a_mechanism_takes_the_seed_of_its_release_unless_it_was_given_one():
    one = identity("week-47", "visits", columns=("steps",))
    seed = rotation.rotation_seed_of(one)
    asked = L2Mean(8, 4.0)
    assert asked.rotation_seed is None and np.array_equal(asked.signs, rotation.public_signs(8, 0))
    own = asked.for_release(one)
    assert own.rotation_seed == seed and np.array_equal(own.signs, rotation.public_signs(8, seed))
    assert own.for_release(replace(one, release_id="week-48")) is own
    given = L2Mean(8, 4.0, rotation_seed=0)
    assert given.for_release(one) is given
    assert L2Mean.from_config(own.to_config()) == own
    assert asked.config_digest() != own.config_digest() != given.config_digest()
    projected = ProjectedPrivUnit(64, 4.0, projected=8).for_release(one)
    assert projected.sign_seed == seed % 2**32
    assert ProjectedPrivUnit(64, 4.0, projected=8, sign_seed=3).for_release(one).sign_seed == 3
    own_signs = ProjectedPrivUnit(64, 4.0, projected=8, projection="own")
    assert own_signs.for_release(one) is own_signs
    assert LInfMean(2, 1.0).for_release(one) == LInfMean(2, 1.0)


def test_the_bias_for_one_choice_of_signs_has_a_failure_probability():
    """Over 2,000 choices of signs, for one vector: beyond the bound not more often than stated."""
    vector = np.eye(16)[:1] + 1e-3
    bound = L2Mean(16, 4.0, cutoff=1.2, radius=float(np.linalg.norm(vector)))
    beyond = {0.5: 0, 0.05: 0}
    for seed in range(2000):
        mechanism = replace(bound, rotation_seed=seed)
        biased = mechanism._decode(mechanism._encode(vector)[0] - 0.5)
        bias = np.abs(biased - vector[0])
        for chance in beyond:
            beyond[chance] += float((bias > mechanism.bias_bound / chance).mean())
    assert all(found <= 2000 * chance for chance, found in beyond.items())
