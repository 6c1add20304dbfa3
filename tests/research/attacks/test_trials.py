"""Chances, bounds and simulated attacks side by side: consistent, and the same in every call."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.accounting.reconstruction import SparseTarget, largest_epsilon
from beam_ldp.accounting.reconstruction_audit import attacked_epsilon
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.frequency import BinaryHadamard, KRandomizedResponse, SubsetSelection
from beam_ldp.randomizers.mean import (
    BinaryVectorMean,
    KashinMean,
    L1Mean,
    L2Mean,
    LInfMean,
    MeanRandomizer,
    MinimalRandomCoding,
    PrivUnit,
    PrivUnitGaussian,
    PrivUnitInf,
    ProjectedPrivUnit,
    RandomCodebookMean,
    SeparatedMean,
)
from beam_ldp.research.attacks.messages import Share
from beam_ldp.research.attacks.trials import (
    BLIND,
    LINEAR,
    MESSAGE,
    NEAREST,
    VALUE,
    WORDS,
    Trials,
    centred,
    direction_trials,
    fitted,
    image_trials,
    uniform_directions,
    value_trials,
    word_trials,
)

EPSILONS = (1.0, 6.0)
DIRECTIONS = [
    KashinMean, L1Mean, L2Mean, LInfMean, MinimalRandomCoding, PrivUnit, PrivUnitGaussian,
    PrivUnitInf, ProjectedPrivUnit, RandomCodebookMean, SeparatedMean,
]  # fmt: skip


def consistent(found: Trials) -> None:
    """No share above its bound, exact chances below it and inside the shares' intervals.

    At 5 standard errors, where that is wider than the interval: false alarms below 1e-5 each.
    """
    for trial in found.trials:
        for name, share in trial.shares.items():
            low, high = spread(share)
            if trial.bound is not None:
                assert low <= trial.bound
            if trial.exact is not None and name in (MESSAGE, NEAREST, VALUE) and trial.bound:
                assert low <= trial.exact <= high
        if None not in (trial.bound, trial.exact):
            assert trial.exact <= trial.bound * (1 + 1e-9)


def spread(share: Share) -> tuple[float, float]:
    error = 5 * math.sqrt(share.value * (1 - share.value) / share.trials)
    low, high = share.interval
    return min(low, share.value - error), max(high, share.value + error, 25 / share.trials)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", DIRECTIONS)
def test_uniform_directions_are_found_no_more_often_than_proved(kind: type[MeanRandomizer]) -> None:
    size = 128 if kind is KashinMean else 16  # it takes no less
    found = direction_trials(
        kind, size, EPSILONS, cosines_asked=(0.3, 0.6), candidates=10, people=400
    )
    consistent(found)
    assert len(found.trials) == 2 * 3 and len(found.reached) == 3 * 2
    more, less = found.mean_cosine[6.0][MESSAGE], found.mean_cosine[1.0][MESSAGE]
    assert more > less > -0.1


@pytest.mark.exact
def test_budgets_are_those_of_the_formulas() -> None:
    found = direction_trials(PrivUnit, 50, (8.0,), cosines_asked=(0.5,), people=20)
    one, ten, *named = found.reached
    assert (one.chance, ten.chance) == (0.01, 0.1)
    target = one.question.target
    assert target is not None and one.bound == largest_epsilon(target, 0.01)
    assert one.exact == pytest.approx(attacked_epsilon(50, 0.5, 0.01), rel=1e-4)
    for reached in named:
        assert 0 < reached.bound < reached.exact
    again = direction_trials(PrivUnit, 50, (8.0,), cosines_asked=(0.5,), people=20)
    assert [trial.shares for trial in again.trials] == [trial.shares for trial in found.trials]


@pytest.mark.exact
def test_mechanisms_are_fitted_to_vectors_of_length_one() -> None:
    vectors = uniform_directions(5, 8)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0)
    assert fitted(PrivUnit, 8, vectors)(2.0) == PrivUnit(8, 2.0, inputs="sphere")
    assert fitted(ProjectedPrivUnit, 8, vectors)(2.0).projected <= 8
    most = np.abs(vectors).max()
    assert fitted(LInfMean, 8, vectors)(2.0) == LInfMean(8, 2.0, float(most))
    with pytest.raises(ValueError, match="BinaryVectorMean takes no directions"):
        fitted(BinaryVectorMean, 8, vectors)


def strokes(count: int, seed: int) -> np.ndarray:
    """Images of 6 x 6 that scatter in few directions: one bright row and one bright column."""
    rng = np.random.default_rng(seed)
    images = np.zeros((count, 6, 6))
    images[np.arange(count), rng.integers(6, size=count)] += 1.0
    images[np.arange(count), :, rng.integers(6, size=count)] += 1.0
    return images.reshape(count, 36)


@pytest.mark.statistical
def test_whoever_knows_how_images_look_finds_more_of_them() -> None:
    """150 images; false alarms below 1e-6."""
    images, public = strokes(150, 1), strokes(300, 2)
    found = image_trials(PrivUnit, images, public, (4.0, 300.0), cosines_asked=(0.5,))
    shares = {(t.local_epsilon, t.question.text): t for t in found.trials}
    near, named = shares[4.0, "cosine >= 0.5"], shares[4.0, "which of 150"]
    assert near.bound is None and near.blind is None and named.blind == pytest.approx(1 / 150)
    low, high = spread(near.shares[MESSAGE])
    assert low <= near.exact <= high
    assert near.shares[LINEAR].interval[0] > near.shares[MESSAGE].interval[1]
    assert shares[300.0, "cosine >= 0.5"].shares[LINEAR].value == 1.0
    assert found.mean_cosine[4.0][LINEAR] > found.mean_cosine[4.0][MESSAGE] + 0.1
    assert found.mean_cosine[300.0][MESSAGE] > 0.97
    assert found.recovered[4.0][NEAREST].shape == (150, 36)
    one, ten, *_ = found.reached
    assert one.bound is None and one.exact is not None and ten.simulated in (0.0, 4.0)


@pytest.mark.exact
def test_a_blind_guess_is_one_image_for_all() -> None:
    """Where all images are one, it is right without any message."""
    public = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
    images = np.array([[2.0, 2.0], [3.0, 3.0]])
    found = image_trials(PrivUnit, images, public, (0.1,), cosines_asked=(0.9,))
    assert found.trials[0].shares[BLIND] == Share(2, 2)
    with pytest.raises(ValueError, match="differ from the mean"):
        centred(public.mean(axis=0)[None], public)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", [PrivUnit, L2Mean, BinaryVectorMean])
def test_words_are_found_more_often_with_more_budget(kind: type[MeanRandomizer]) -> None:
    """Without budget as often as blindly, by 5 standard errors; false alarms below 1e-5."""
    target = SparseTarget(items=5, domain=40, precision=0.8, recall=0.6)
    found = word_trials(kind, target, (1e-3, 300.0), people=300)
    consistent(found)
    blind, much = (trial.shares[WORDS] for trial in found.trials)
    assert spread(blind)[0] <= math.exp(target.log_prior)
    assert much.interval[0] > blind.interval[1]
    assert {one.bound for one in found.reached} == {one.simulated for one in found.reached} == {0.0}


@pytest.mark.statistical
@pytest.mark.parametrize("kind", [KRandomizedResponse, SubsetSelection, BinaryHadamard])
def test_values_are_named_as_often_as_computed(kind: type[FrequencyOracle]) -> None:
    found = value_trials(lambda epsilon: kind(10, epsilon), (0.5, 3.0), people=2000)
    consistent(found)
    assert all(trial.exact is not None for trial in found.trials)
    large = value_trials(lambda epsilon: kind(60, epsilon), (3.0,), people=50)
    assert (large.trials[0].exact is None) == (kind is SubsetSelection)
