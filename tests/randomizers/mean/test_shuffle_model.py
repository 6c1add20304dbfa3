"""The family in the multi-message shuffle model: targets met, published errors reproduced."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.accounting.shuffle import multi_message
from beam_ldp.accounting.shuffle import multi_message as mm
from beam_ldp.randomizers import LocalRandomizer
from beam_ldp.randomizers.mean import BinaryVectorMean, L1Mean, L2Mean, LInfMean
from beam_ldp.randomizers.mean.lower_bounds import gaussian_reference


@pytest.mark.exact
@pytest.mark.parametrize("cls", [BinaryVectorMean, L1Mean, L2Mean, LInfMean])
@pytest.mark.parametrize("method", ["blanket", "clones_rdp"])
def test_the_target_is_met_and_nearly_spent(cls, method):
    mechanism = cls.for_shuffle(12, 1.0, 1e-6, 3000, method=method)
    price = mm.multi_message_epsilon(mm.messages_of(mechanism), 3000, 1e-6, method)
    assert 0.999 < price <= 1.0
    assert mechanism.log_ratio_max() <= mechanism.local_epsilon
    assert mm.multi_message_epsilon(mm.messages_of(mechanism), 2700, 1e-6, method) > 1.0
    assert LocalRandomizer.from_config(mechanism.to_config()) == mechanism


@pytest.mark.exact
def test_figure_3_2b():
    """One coordinate, radius 0.5, n = 1000, delta = 1e-5, six levels shaped as 4^(-k/4)."""
    table = {0.5: 8.32e-5, 1.0: 2.66e-5, 2.5: 7.10e-6}
    single_message_laplace = {0.5: 4.64e-4, 1.0: 2.34e-4, 2.5: 1.39e-4}
    for epsilon, expected in table.items():
        mechanism = LInfMean.for_shuffle(1, epsilon, 1e-5, 1000, radius=0.5, levels=6)
        error = mechanism.mean_squared_error(1000)
        assert error == pytest.approx(expected, rel=0.02)
        assert error < single_message_laplace[epsilon] / 5
    ours = LInfMean.for_shuffle(1, 0.5, 1e-5, 1000, radius=0.5)
    assert ours.mean_squared_error(1000) == pytest.approx(table[0.5], rel=0.02)


@pytest.mark.exact
def test_closed_form_of_the_text_loses_to_one_laplace_report():
    """Theorem 3.5.2's parameters are far behind the figure that is meant to illustrate it."""
    text = LInfMean.for_shuffle(1, 0.5, 1e-5, 1000, radius=0.5, levels=4, preset="thesis")
    assert text.mean_squared_error(1000) > 15 * 4.64e-4


@pytest.mark.exact
def test_error_tends_to_that_of_the_central_gaussian():
    """Many small messages: 1.2 times the Gaussian mechanism at n = 1000, d = 300."""
    mechanism = LInfMean.for_shuffle(300, 1.0, 1e-5, 1000)
    reference = gaussian_reference(300, multi_message.gaussian_mu(1.0, 1e-5), 1000, math.inf)
    assert reference < mechanism.mean_squared_error(1000) < 1.3 * reference


@pytest.mark.exact
def test_fewer_messages_trade_bits_for_error():
    errors, bits = [], []
    for count in (4, 32, 256):
        mechanism = LInfMean.for_shuffle(256, 1.0, 1e-6, 10_000, messages=count, levels=1)
        errors.append(mechanism.mean_squared_error(10_000))
        bits.append(mechanism.bits_per_report)
    assert errors == sorted(errors, reverse=True) and bits == sorted(bits)
    assert bits == [4 * 7, 32 * 4, 256]


@pytest.mark.statistical
@pytest.mark.parametrize("cls", [BinaryVectorMean, L1Mean, L2Mean, LInfMean])
def test_sampled_error_is_the_predicted_one(cls):
    """40 shuffled runs of 500 users at fixed seed: mean squared error within 5 sigma (< 1e-5)."""
    n, d, runs = 500, 6, 40
    mechanism = cls.for_shuffle(d, 2.0, 1e-5, n)
    rng = np.random.default_rng(11)
    vectors = rng.uniform(-1, 1, (n, d)) / d
    if cls is BinaryVectorMean:
        vectors = (vectors > 0).astype(float)
    errors = []
    for _ in range(runs):
        reports = mechanism.randomize(vectors, rng)
        for t in range(reports.shape[1]):
            rng.shuffle(reports[:, t])
        estimate = mechanism.estimate(mechanism.accumulate(reports), n)
        errors.append(((estimate.value - vectors.mean(axis=0)) ** 2).sum())
    expected = mechanism.mean_squared_error(n, vectors)
    assert abs(np.mean(errors) - expected) < 5 * np.std(errors) / math.sqrt(runs)
    assert expected <= estimate.mean_squared_error * (1 + 1e-9)


@pytest.mark.exact
def test_impossible_targets_are_refused():
    with pytest.raises(ValueError, match="epsilon"):
        LInfMean.for_shuffle(2, -1.0, 1e-6, 1000)
    with pytest.raises(ValueError, match="method"):
        LInfMean.for_shuffle(2, 1.0, 1e-6, 1000, method="magic")
    with pytest.raises(ValueError, match="levels"):
        BinaryVectorMean.for_shuffle(2, 1.0, 1e-6, 1000, messages=(1, 1))
