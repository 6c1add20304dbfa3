"""Reports that point one way are left out of a round as NumPy leaves them out."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from beam_ldp.federated import FixedSizeSampling, SelfSampling, planned_event, privacy_events
from beam_ldp.federated.collusion import CollusionCheck
from beam_ldp.randomizers.mean import LInfMean, PrivUnit, compact_mean
from tests.federated.test_collusion import forged
from tff_adapters import (
    AdaptiveClip,
    EpsilonBudget,
    LocallyPrivateMeanFactory,
    kernel_for,
    train,
)
from tff_adapters.collusion import examine
from tff_adapters.compat import language
from tff_adapters.kernels.directions import PrivUnitKernel
from tff_adapters.transport import ShuffledMessages

SHORT = compact_mean(PrivUnit, 400, local_epsilon=6.0)
VALUE = tff.TensorType(np.float32, (400,))


class InOrder:
    """Halves as the reports come."""

    def permutation(self, left):
        return left


def reports_of(honest, liars, careful, seed):
    rng = np.random.default_rng(seed)
    parts = [
        SHORT.randomize(np.zeros((honest, 400)), rng),
        forged(SHORT, rng.normal(size=400), liars),
        forged(SHORT, rng.normal(size=400), careful, 0.4, rng),
    ]
    return rng.permutation(np.concatenate(parts))


@pytest.mark.exact
@pytest.mark.parametrize("counts", [(0, 0, 0), (1, 0, 0), (3, 2, 0), (41, 0, 0), (90, 9, 8)])
def test_the_graph_does_as_numpy_does(counts):
    """Whoever is left out, and how far the others agree; of odd numbers, and of none."""
    check = CollusionCheck(SHORT)
    for seed in range(3):
        reports = reports_of(*counts, seed)
        expected = check.examine(reports, InOrder())
        kept, agreement = tf.function(lambda r: examine(check, r, tf.identity))(
            tf.constant(reports)
        )
        np.testing.assert_array_equal(kept, expected.kept)
        assert float(agreement) == pytest.approx(expected.agreement, rel=1e-4)
    assert counts[1] < 9 or not expected.kept.all()


def collected(messages):
    """What the server has of a round whose clients send whatever they like."""
    way = ShuffledMessages([kernel_for(SHORT)], 1, check=CollusionCheck(SHORT))
    sent = tff.to_type((tff.TensorType(np.uint8, (None, way.kernels[0].message_bytes)),))

    @language.federated_computation(language.FederatedType(sent, language.CLIENTS))
    def collect(messages):
        nothing = language.federated_value((), language.SERVER)
        _, came, measured = way.collect(nothing, messages)
        return language.federated_zip((came, measured["shuffle"]))

    return collect([(row[None],) for row in SHORT.pack_each(messages)])


@pytest.mark.statistical
def test_a_round_is_what_the_others_sent():
    """Five of 100 point one way, one is too long: the sum is that of the other 94 (1e-8)."""
    rng = np.random.default_rng(2)
    honest = SHORT.randomize(np.zeros((94, 400)), rng)
    long = np.full((1, 400), 127, np.int8)
    reports = np.concatenate([honest, forged(SHORT, rng.normal(size=400), 5), long])
    ((total,), clients, dropped), measured = collected(reports)
    np.testing.assert_array_equal(total, honest.sum(axis=0, dtype=np.int64))
    assert (clients, dropped) == (94, 6)
    assert (measured["impossible"], measured["colluding"]) == (1, 5)
    agreement = np.linalg.norm(honest * SHORT.fixed_point.step, ord=2)
    assert measured["agreement"] == pytest.approx(agreement, rel=1e-4)


@pytest.mark.exact
def test_an_honest_round_is_the_same_with_the_check():
    """With a seed: the same mean, the same price, and the measurements that go with it."""
    values = [np.full(400, 0.01 * i, np.float32) for i in range(6)]
    sampling = FixedSizeSampling(60, 6).declared()
    outputs = []
    for drop in (False, True):
        factory = LocallyPrivateMeanFactory(SHORT, sampling=sampling, drop_colluders=drop, seed=7)
        process = factory.create(VALUE)
        outputs.append(process.next(process.initialize(), values))
    plain, checked = outputs
    np.testing.assert_allclose(plain.result, checked.result, rtol=1e-6)
    assert plain.state.privacy.rounds.tolist() == checked.state.privacy.rounds.tolist() == [[6, 1]]
    assert set(checked.measurements["shuffle"]) == {"impossible", "colluding", "agreement"}
    assert checked.measurements["shuffle"]["colluding"] == 0
    assert privacy_events(checked.state) is None


@pytest.mark.statistical
def test_a_training_goes_on_without_the_colluders(monkeypatch):
    """Seven of 40 clients send one direction, as long as reports are: both rounds are without them.

    Each is priced as what was declared to come at least, which 33 are more than; without the check
    the mean lies 22 standard errors along that direction, with it within 5 (false alarms: 1e-6,
    and 4e-6 where all seven are in one half, three times on end).
    """
    direction = one_way(monkeypatch)
    sampling = FixedSizeSampling(200, 40, least_received=30).declared()
    unit = direction / np.linalg.norm(direction)
    error = np.sqrt(SHORT.variance(40, np.zeros((1, 400)))).min()
    for drop, along, kept in ((False, 15, 40), (True, 0, 33)):
        process = LocallyPrivateMeanFactory(SHORT, sampling=sampling, drop_colluders=drop).create(
            VALUE
        )
        means = []
        process_next = Spied(process, means)
        budget = EpsilonBudget(None, 1e-5)
        done = train(process_next, lambda _: SEVEN_OF_40_LIE, 2, budget)
        assert done.rounds == 2 and done.state.privacy.rounds.tolist() == [[kept, 2]]
        for mean in means:
            pulled = mean @ unit / error
            assert pulled > along if along else abs(pulled) < 5


HONEST, LIAR = np.zeros(400, np.float32), np.eye(400, dtype=np.float32)[0]
SEVEN_OF_40_LIE = [HONEST] * 33 + [LIAR] * 7


def one_way(monkeypatch):
    """The direction that liars send from now on, as long as reports are."""
    direction = np.random.default_rng(3).normal(size=400)
    one = forged(SHORT, direction, 1)
    respond = PrivUnitKernel.respond

    def lying(kernel, vectors, generator):
        return tf.where(vectors[:, :1] > 0.5, one, respond(kernel, vectors, generator))

    monkeypatch.setattr(PrivUnitKernel, "respond", lying)
    return direction


@pytest.mark.statistical
@pytest.mark.parametrize(
    "sampling",
    [FixedSizeSampling(200, 40, least_received=34), SelfSampling(10_000, 100)],
    ids=["drawn", "coins"],
)
def test_a_round_of_which_too_few_are_left_gives_zeros_at_the_price_of_the_least(
    monkeypatch, sampling
):
    """33 of 40 are left, 34 at least must be, or 38 of coins that give 100 on average: nothing is
    released of them, and what the record says costs no less (false alarms as above)."""
    one_way(monkeypatch)
    declared = sampling.declared()
    least = declared.allowed[0]
    assert 33 < least <= 40
    means, budget = [], EpsilonBudget(None, 1e-5)
    process = LocallyPrivateMeanFactory(SHORT, sampling=declared, drop_colluders=True).create(VALUE)
    shown = []
    done = train(Spied(process, means), lambda _: SEVEN_OF_40_LIE, 2, budget, on_round=shown.append)
    assert (done.rounds, done.withheld) == (0, 2) and not np.any(means)
    assert done.state.privacy.rounds.tolist() == [[33, 2]]
    told = shown[-1].metrics
    assert (told["mean"]["result"], told["mean"]["reports"], told["shuffle"]["colluding"]) == (
        0, 33, 7,
    )  # fmt: skip
    assert told["mean"]["predicted_error"] == np.inf and told["mean"]["failing"] == 0
    ((event, times),) = privacy_events(done.state)
    assert times == 2 and event == planned_event(process.initialize(), least)
    anew = EpsilonBudget(None, 1e-5, state=done.state).spent.epsilon
    assert 0 < anew <= budget.spent.epsilon


class Spied:
    """A process whose results are kept."""

    def __init__(self, process, results):
        self.process, self.results = process, results
        self.initialize = process.initialize
        self.computation = process.next

    def next(self, state, clients):
        output = self.process.next(state, clients)
        self.results.append(output.result)
        return output


@pytest.mark.exact
def test_what_the_check_is_not_for_is_refused():
    with pytest.raises(ValueError, match="as PrivUnit does: LInfMean"):
        LocallyPrivateMeanFactory(LInfMean(400, 4.0), drop_colluders=True).create(VALUE)
    for options in (
        {"sum_factory": tff.aggregators.SumFactory()},
        {"values_per_client": 2},
        {"adaptive_clip": AdaptiveClip(1.0)},
    ):
        with pytest.raises(ValueError, match="drop_colluders must go without"):
            LocallyPrivateMeanFactory(SHORT, drop_colluders=True, **options)
