"""Gaussian and Laplace priors of own models: steps against NumPy, and what they are good for."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize

from tests.tff_adapters.test_adaped_process import (
    CLASSES,
    FEATURES,
    RATES,
    SETTINGS,
    close,
    dataset,
    equal_weights,
    linear,
    linear_model,
    rows,
    softmax,
)
from tff_adapters.adaped import build_dp_adaped
from tff_adapters.adaped_steps import SCALES, Classifier, Local, Rates, prior_step

PRIORS = ["gaussian", "laplace"]
POINTS = 12


@pytest.fixture(scope="module")
def model():
    return linear_model()


def numpy_step(theta, mu, psi, x, y, prior, points=POINTS):
    """By minimising, not by the closed form: each weight alone."""
    own, shared, scale = RATES.values()
    truth = np.eye(CLASSES)[y]
    gradient = linear(x, softmax(theta, x) - truth)
    moved, ahead_of = [], []
    for w, g, m in zip(theta, gradient, mu):
        ahead = w - own * g
        ahead_of.append(ahead)
        best = np.empty_like(ahead)
        for at in np.ndindex(ahead.shape):

            def cost(t, goal=ahead[at], centre=m[at]):
                away = t - centre
                log = away**2 / (2 * psi) if prior == "gaussian" else abs(away) / psi
                return (t - goal) ** 2 / (2 * own) + log / points

            span = abs(ahead[at] - m[at]) + 1e-9
            low, high = min(ahead[at], m[at]) - 1e-9, max(ahead[at], m[at]) + 1e-9
            found = optimize.minimize_scalar(
                cost, bounds=(low, high), method="bounded", options={"xatol": 1e-12 * span}
            ).x
            best[at] = m[at] if cost(m[at]) <= cost(found) else found
        moved.append(best)
    away = [t - m for t, m in zip(moved, mu)]
    flat = np.concatenate([a.ravel() for a in away])
    if prior == "gaussian":
        steps, spread = away, np.mean(flat**2)
    else:
        steps = [psi * np.sign(ahead - m) for ahead, m in zip(ahead_of, mu)]
        spread = np.mean(np.abs(flat))
    mu = [m + shared * s for m, s in zip(mu, steps)]
    return moved, mu, float(np.clip(psi + scale * (spread - psi), *SCALES[prior][1]))


@pytest.mark.exact
@pytest.mark.parametrize("psi", [0.05, 1.0])
@pytest.mark.parametrize("prior", PRIORS)
def test_one_step_is_that_of_the_text(model, prior, psi):
    theta, mu, (x, y) = equal_weights(1), equal_weights(2), rows(3)
    mu = [0.7 * w + 0.3 * m for w, m in zip(theta, mu)]  # near: some weights are tied by Laplace
    rates = Rates(*RATES.values(), SCALES[prior][1])
    classifier = Classifier(model)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tensors = [[tf.constant(w, tf.float32) for w in weights] for weights in (theta, mu)]
        local = Local(*tensors, tf.constant(psi))
        after = session.run(prior_step(classifier, local, (x, y), rates, prior, POINTS))
    wanted = numpy_step(theta, mu, psi, x, y, prior)
    close(after.theta, wanted[0])
    close(after.mu, wanted[1])
    assert float(after.psi) == pytest.approx(wanted[2], rel=1e-4)
    if prior == "laplace" and psi == 0.05:
        tied = [np.asarray(t) == np.float32(m) for t, m in zip(after.theta, mu)]
        assert any(part.any() for part in tied)


@pytest.mark.exact
@pytest.mark.parametrize("prior", PRIORS)
def test_two_rounds_are_those_of_the_reference(model, prior):
    process = build_dp_adaped(model, prior=prior, points=POINTS, **SETTINGS)
    data = [dataset(seed) for seed in range(3)]
    state, personal = process.initialize(), [process.personal] * 3
    psi = SCALES[prior][0]
    mu = [w.astype(float) for w in state.mu]
    own = [list(mu)] * 3
    assert state.psi == pytest.approx(psi)
    for _ in range(2):
        output = process.next(state, personal, data)
        state, personal = output.state, output.personal
        done = []
        for i in range(3):
            batches, held = list(data[i].as_numpy_iterator()), (own[i], mu, psi)
            for step in range(SETTINGS["local_steps"]):
                held = numpy_step(*held, *batches[step % len(batches)], prior)
            done.append(held)
        own = [d[0] for d in done]
        mu = [np.mean(parts, axis=0) for parts in zip(*(d[1] for d in done))]
        psi = float(np.mean([d[2] for d in done]))
        for found, wanted in zip(personal, own):
            close(found, wanted, atol=1e-4)
        close(state.mu, mu, atol=1e-4)
        assert state.psi == pytest.approx(psi, rel=1e-3)


@pytest.mark.exact
def test_the_likelihood_of_models_and_scale_together_has_no_maximum():
    """(4.14): n d log(2 pi s^2) / 2, the squares over 2 s^2, and losses, bounded near mu."""
    rng = np.random.default_rng(2)
    theta, costs = rng.standard_normal((5, 8)), []
    for s in 10.0 ** -np.arange(1, 8):
        near = theta * s  # all models meet, as fast as the scale falls
        squares = (near**2).sum() / (2 * s**2)
        costs.append(40 / 2 * np.log(2 * np.pi * s**2) + squares + np.abs(near - 1).sum())
    assert all(b < a - 40 for a, b in zip(costs, costs[1:]))


@pytest.mark.exact
@pytest.mark.parametrize("prior", PRIORS)
def test_bad_numbers_of_a_client_reach_nobody(model, prior):
    process = build_dp_adaped(model, prior=prior, **SETTINGS)
    x, y = rows(0)
    x[3] = np.nan
    broken = tf.data.Dataset.from_tensors((x, y))
    state = process.next(process.initialize(), [process.personal] * 3, [broken] * 3).state
    close(state.mu, process.initialize().mu, atol=1e-6)
    assert state.psi == pytest.approx(SCALES[prior][0], abs=1e-6)


@pytest.mark.exact
def test_the_price_does_not_depend_on_the_prior(model):
    built = [build_dp_adaped(model, prior=prior, **SETTINGS) for prior in ("distillation", *PRIORS)]
    assert len({(one.event, one.reader) for one in built}) == 1


@pytest.mark.exact
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": "cauchy"}, "prior must be one of distillation, gaussian, laplace"),
        ({"prior": "laplace", "variant": "printed"}, 'prior must be "distillation"'),
        ({"prior": "gaussian", "points": 0}, "points must"),
        ({"prior": "gaussian", "psi": 30.0}, "psi must lie in psi_range"),
    ],
)
def test_what_is_refused(model, options, message):
    with pytest.raises(ValueError, match=message):
        build_dp_adaped(model, **{**SETTINGS, **options})


@pytest.mark.statistical
@pytest.mark.parametrize("prior", PRIORS)
def test_own_models_near_a_shared_one_learn_from_each_other(model, prior):
    """Twelve clients, twelve points each, whose rules scatter about one: tied models are right on
    unseen points more often than those of clients alone, by more than 4 standard errors of 12
    differences (3e-5, if they were normal). Fixed seeds, hardly any noise."""
    rng, count = np.random.default_rng(5), 12
    centre = equal_weights(77)[0]
    told, unseen = [], []
    for _ in range(count):
        rule = centre + 0.3 * rng.standard_normal(centre.shape)
        x = rng.standard_normal((POINTS + 400, FEATURES)).astype("f")
        y = np.argmax(x @ rule, axis=1).astype(np.int32)
        told.append(tf.data.Dataset.from_tensor_slices((x[:POINTS], y[:POINTS])).batch(4))
        unseen.append((x[POINTS:], y[POINTS:]))
    settings = {**SETTINGS, "num_clients": count, "clients_per_round": count}
    right = {}
    for name in (prior, "alone"):
        how = {"variant": "local-only"} if name == "alone" else {"prior": prior, "points": POINTS}
        process = build_dp_adaped(model, **settings, **how)
        state, personal = process.initialize(), [process.personal] * count
        for _ in range(12):
            output = process.next(state, personal, told)
            state, personal = output.state, output.personal
        right[name] = np.array(
            [
                np.mean(np.argmax(x @ np.asarray(w[0]) + np.asarray(w[1]), axis=1) == y)
                for w, (x, y) in zip(personal, unseen)
            ]
        )
    better = right[prior] - right["alone"]
    assert better.mean() > 4 * better.std() / np.sqrt(count)
