"""What leaves a client is read from the computation, wherever it hides, and priced or refused."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from beam_ldp.ledger import BudgetLedger
from beam_ldp.randomizers.mean import LInfMean, PrivUnit
from mlflow_ldp import PrivacyTracker
from tff_adapters import (
    AdaptiveClip,
    EpsilonBudget,
    LocallyPrivateMeanFactory,
    PrivacyReleaseManager,
    UnpricedFlowError,
    build_cldp_sgd,
    build_dp_adaped,
    build_local_central,
    flows_of,
    no_client_metrics,
    train,
)
from tff_adapters.compat import language
from tff_adapters.flows import mark
from tff_adapters.models import model_fn_for
from tff_adapters.training import PersonalRounds

learning = tff.learning
DELTA = 1e-5
FLOAT = language.TensorType(np.float32)
MECHANISM = LInfMean(10, 4.0, messages=(1,), message_epsilons=(4.0,))
SLOW, FAST = learning.optimizers.build_sgdm(0.1), learning.optimizers.build_sgdm(0.1, momentum=0.9)
METRICS = "federated_sum of loss, num_batches, num_examples"
SHOWN = "only the sum arrives: whether a client sent what it may cannot be checked"


def model_fn():
    return model_fn_for("logistic", (4,), 2, 1)()


def private():
    return LocallyPrivateMeanFactory(MECHANISM)


def fed_avg(**options):
    return learning.algorithms.build_unweighted_fed_avg(
        model_fn, SLOW, model_aggregator=private(), **options
    )


def dataset(seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(4, 4)).astype(np.float32), rng.integers(0, 2, 4).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices(rows).batch(4)


def clients(_number):
    return [dataset(i) for i in range(3)]


def told(flows):
    return [(flow.name, flow.verdict) for flow in flows]


class Of:
    """A process around one computation."""

    def __init__(self, computation):
        self.next = computation


@pytest.mark.exact
def test_the_exact_mean_gradient_of_mime_is_refused_by_name():
    """Its updates are randomized; what its state is made of is the clients' exact gradient."""
    process = learning.algorithms.build_unweighted_mime_lite(
        model_fn, FAST, model_aggregator=private(), metrics_aggregator=no_client_metrics
    )
    assert told(flows_of(process)) == [
        ("federated_sum of client_data", "unpriced"),
        ("federated_sum of nothing of a client", "count"),
        ("federated_aggregate of protected values", "ours"),
    ]
    budget = EpsilonBudget(None, DELTA)
    with pytest.raises(UnpricedFlowError, match=r"federated_sum of client_data, of type <float32"):
        train(process, clients, 1, budget)
    assert budget.spent.num_charges == 0


@pytest.mark.exact
def test_all_of_mime_passes_where_its_gradient_is_randomized_too():
    process = learning.algorithms.build_unweighted_mime_lite(
        model_fn,
        FAST,
        model_aggregator=private(),
        full_gradient_aggregator=private(),
        metrics_aggregator=no_client_metrics,
    )
    assert [verdict for _, verdict in told(flows_of(process))] == ["ours", "ours"]


@pytest.mark.e2e
def test_metrics_of_clients_are_refused_or_declared(tmp_path):
    """Loss and number of examples went to the tracker; now not before somebody says why."""
    process = fed_avg()
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path}/ledger.db")
    ledger.set_budget("people", epsilon=1e6, delta=DELTA)
    with PrivacyTracker(
        "people", DELTA, ledger=ledger, tracking_uri=f"sqlite:///{tmp_path}/mlflow.db"
    ) as tracker:
        with pytest.raises(UnpricedFlowError, match=METRICS):
            train(process, clients, 1, tracker)
        with pytest.raises(UnpricedFlowError, match=METRICS):
            PrivacyReleaseManager(tracker, process.initialize(), process=process)
        assert tracker.spent.num_charges == 0
        why = {METRICS: "the clients' data is public"}
        training = train(process, clients, 1, tracker, public_flows=why)
        assert tracker.spent.num_charges == 1
    assert training.rounds == 1
    flows = {flow.name: flow for flow in training.flows}
    assert flows[METRICS].verdict == "public"
    assert flows[METRICS].protection == "the clients' data is public"
    assert "num_examples" in flows[METRICS].type
    manager = PrivacyReleaseManager(
        object(), process.initialize(), process=process, public_flows=why
    )
    assert manager.flows == training.flows


@pytest.mark.exact
def test_weights_of_clients_are_found():
    """Weighted averaging tells how many examples a client has, twice."""
    process = learning.algorithms.build_weighted_fed_avg(
        model_fn, SLOW, metrics_aggregator=no_client_metrics
    )
    assert told(flows_of(process)) == [
        ("federated_sum of update, update_weight", "unpriced"),
        ("federated_sum of update_weight", "unpriced"),
    ]


def adaped(**options):
    spec = tf.TensorSpec([None, 4], tf.float32), tf.TensorSpec([None], tf.int32)
    keras = tf.keras.Sequential([tf.keras.layers.InputLayer((4,)), tf.keras.layers.Dense(2)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return build_dp_adaped(
        learning.models.functional_model_from_keras(keras, loss, spec),
        num_clients=3, clients_per_round=2, personal_learning_rate=0.1, shared_learning_rate=0.1,
        psi_learning_rate=0.1, clip=1.0, psi_clip=1.0, noise_multiplier=1.0, **options,
    )  # fmt: skip


def local_central():
    return build_local_central(
        model_fn, num_clients=10, clients_per_round=5, radius=1.0, local_epsilon=20.0,
        projection=1.0, noise_multiplier=1.0, client_optimizer=SLOW,
    ).process  # fmt: skip


SEND = "federated_aggregate of protected values"
OURS = {
    "fedavg": (lambda: fed_avg(metrics_aggregator=no_client_metrics), [(SEND, "ours")]),
    "cldp-sgd": (
        lambda: build_cldp_sgd(
            model_fn, norm="l2", clip=0.1, local_epsilon=2.0, learning_rate=0.1,
            points_per_client=4, points_sampled=2,
        ),
        [(SEND, "ours")],
    ),
    "local-central": (local_central, [(SEND, "ours")]),
    "adaped": (
        adaped,
        [
            ("federated_sum of protected values", "ours"),
            ("federated_sum of nothing of a client", "count"),
            ("result at clients of protected values", "ours"),
        ],
    ),
    "sums": (
        lambda: LocallyPrivateMeanFactory(PrivUnit(4, 2.0), tff.aggregators.SumFactory()).create(
            tff.TensorType(np.float32, (4,))
        ),
        [
            ("federated_sum of protected values", "ours"),
            ("federated_sum of nothing of a client", "count"),
        ],
    ),
    "adaptive": (
        lambda: LocallyPrivateMeanFactory(PrivUnit(4, 2.0), adaptive_clip=AdaptiveClip(0.5)).create(
            tff.TensorType(np.float32, (4,))
        ),
        [(SEND, "ours")],
    ),
}  # fmt: skip


@pytest.mark.exact
@pytest.mark.parametrize("name", OURS)
def test_what_is_built_here_passes(name):
    build, expected = OURS[name]
    flows = flows_of(build())
    assert told(flows) == expected
    assert all((SHOWN in f.protection) == ("sum of protected" in f.name) for f in flows)


@pytest.mark.exact
def test_the_table_says_what_was_done():
    (flow,) = flows_of(OURS["adaptive"][0]())
    assert flow.protection == (
        "PrivUnit, local epsilon = 2 and BinaryVectorMean, local epsilon = 0.5"
    )
    (seeded,) = flows_of(LocallyPrivateMeanFactory(MECHANISM, seed=1).create(
        tff.TensorType(np.float32, (10,))
    ))  # fmt: skip
    assert "protects nobody" in seeded.protection
    assert flow.to_json()["verdict"] == "ours"
    own = [f.protection for f in flows_of(adaped()) if f.name.startswith("result at clients")]
    assert own == ["a client's own model, given back to that client alone"]
    rounds = PersonalRounds(adaped(), [None] * 3)
    assert told(flows_of(rounds)) == OURS["adaped"][1]


@pytest.mark.exact
def test_secure_sums_are_read_to_their_last_bit_of_a_norm():
    """An adaptive clipping norm tells, beside the sum, whose norm was below it."""
    process = learning.algorithms.build_unweighted_fed_avg(
        model_fn, SLOW, model_aggregator=learning.secure_aggregator(weighted=False),
        metrics_aggregator=no_client_metrics,
    )  # fmt: skip
    found = [f for f in flows_of(process) if f.verdict == "unpriced"]
    assert len(found) > 3 and len({f.name for f in found}) == len(found)
    assert {f.aggregation for f in found} == {"federated_secure_sum_bitwidth"}


# Computations made by hand ----------------------------------------------------------------------


@tff.tensorflow.computation(FLOAT)
def doubled(x):
    return 2 * x


@tff.tensorflow.computation(FLOAT)
def noised(x):
    return x + tf.random.normal([])


mark(noised, "a test's noise")
AT_CLIENTS = language.FederatedType(FLOAT, language.CLIENTS)
AT_SERVER = language.FederatedType(FLOAT, language.SERVER)


def process_of(body):
    """A process whose `next` does this with the clients' values."""

    @language.federated_computation(AT_SERVER, AT_CLIENTS)
    def advance(state, secret):
        return OrderedDict(state=state, result=body(state, secret))

    return Of(advance)


@pytest.mark.exact
def test_what_hides_inside_nested_computations_is_found():
    @language.federated_computation(AT_CLIENTS)
    def inner(values):
        return language.federated_max(language.federated_map(doubled, values))

    @language.federated_computation(AT_CLIENTS)
    def outer(values):
        protected = language.federated_map(noised, values)
        return language.federated_zip((language.federated_sum(protected), inner(values)))

    found = flows_of(process_of(lambda state, secret: outer(secret)))
    assert told(found) == [
        ("federated_sum of protected values", "ours"),
        ("federated_max of secret", "unpriced"),
    ]


@pytest.mark.exact
@pytest.mark.parametrize("name", ["federated_sum", "federated_min", "federated_mean"])
def test_every_aggregation_is_a_flow(name):
    found = flows_of(process_of(lambda _, secret: getattr(language, name)(secret)))
    assert told(found) == [(f"{name} of secret", "unpriced")]


@pytest.mark.exact
def test_a_weight_counts_as_much_as_a_value():
    def body(_, secret):
        return language.federated_mean(language.federated_map(noised, secret), weight=secret)

    ((name, verdict),) = told(flows_of(process_of(body)))
    assert (name, verdict) == ("federated_weighted_mean of secret", "unpriced")


@pytest.mark.exact
def test_keys_of_a_selection_are_a_flow():
    """Who asks the server for a part of a model shows which part it trains on."""

    @tff.tensorflow.computation(FLOAT)
    def keys(x):
        return tf.cast(x, tf.int32)[None] % 3

    @tff.tensorflow.computation(FLOAT, np.int32)
    def part(state, key):
        return state * tf.cast(key, tf.float32)

    def body(state, secret):
        asked = language.federated_map(keys, secret)
        most = language.federated_value(3, language.SERVER)
        parts = language.federated_select(asked, most, state, part)

        @tff.tensorflow.computation(parts.type_signature.member)
        def nothing(_):
            return 0.0

        return language.federated_sum(language.federated_map(nothing, parts))

    assert told(flows_of(process_of(body)))[0] == ("federated_select of secret", "unpriced")


@pytest.mark.exact
def test_noise_beside_the_data_protects_nothing():
    """A mark covers what went through it; the sum of both is data again."""

    @tff.tensorflow.computation(FLOAT, FLOAT)
    def added(x, y):
        return x + y

    def body(_, secret):
        both = language.federated_zip((language.federated_map(noised, secret), secret))
        return language.federated_sum(language.federated_map(added, both))

    ((_, verdict),) = told(flows_of(process_of(body)))
    assert verdict == "unpriced"


@pytest.mark.exact
def test_what_is_made_of_protected_values_is_protected():
    def body(state, secret):
        protected = language.federated_map(doubled, language.federated_map(noised, secret))
        return language.federated_sum(protected)

    ((name, verdict),) = told(flows_of(process_of(body)))
    assert (name, verdict) == ("federated_sum of protected values", "ours")


@pytest.mark.exact
def test_one_part_of_what_a_client_makes_is_not_another():
    @tff.tensorflow.computation(FLOAT)
    def work(x):
        return OrderedDict(update=x, weight=x, loss=x)

    def body(_, secret):
        done = language.federated_map(work, secret)
        own = language.federated_computation(lambda parts: parts.loss, done.type_signature.member)
        return language.federated_sum(language.federated_map(own, done))

    assert told(flows_of(process_of(body))) == [("federated_sum of loss", "unpriced")]


@pytest.mark.exact
def test_results_that_stay_at_clients_are_results():
    """Whoever runs a computation gets what it gives, wherever it is placed."""

    @language.federated_computation(AT_CLIENTS)
    def echo(secret):
        return language.federated_map(doubled, secret)

    assert told(flows_of(Of(echo))) == [("result at clients of value", "unpriced")]


@pytest.mark.exact
def test_a_function_that_nobody_is_seen_to_call_is_told_too():
    """What is not followed is not taken for harmless."""
    blocks = tff.framework

    @language.federated_computation(AT_CLIENTS)
    def hidden(values):
        return language.federated_sum(values)

    class Computation:
        def to_building_block(self):
            state = blocks.Reference("state", AT_SERVER)
            kept = blocks.Block([("unused", hidden.to_building_block())], state)
            return blocks.Lambda("state", AT_SERVER, kept)

    assert told(flows_of(Of(Computation()))) == [("federated_sum of unknown", "unpriced")]


@pytest.mark.exact
def test_flows_of_one_name_are_counted():
    def body(_, secret):
        return language.federated_zip((language.federated_sum(secret),) * 1
                                      + (language.federated_sum(secret),))  # fmt: skip

    process = process_of(body)
    names = [name for name, _ in told(flows_of(process))]
    assert names == ["federated_sum of secret", "federated_sum of secret #2"]
    only = flows_of(process, {names[1]: "a reason"})
    assert [flow.verdict for flow in only] == ["unpriced", "public"]


@pytest.mark.exact
@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"federated_sum of loss": "x"}, r"must name flows of the process \(federated_sum of secr"),
        ({"federated_sum of secret": " "}, "must give the reason"),
        ({"federated_sum of secret": None}, "must give the reason"),
    ],
)
def test_declarations_that_say_nothing_are_refused(declared, message):
    process = process_of(lambda _, secret: language.federated_sum(secret))
    with pytest.raises(ValueError, match=message):
        flows_of(process, declared)


@pytest.mark.exact
def test_what_cannot_be_read_is_refused():
    class Opaque:
        def next(self, state, values):
            return state

    with pytest.raises(ValueError, match="process must have a federated computation as `next`"):
        train(Opaque(), clients, 1, EpsilonBudget(None, DELTA))


@pytest.mark.exact
def test_only_graphs_can_be_marked():
    with pytest.raises(ValueError, match="computation must be one of TensorFlow"):
        mark(language.federated_computation(lambda x: x, FLOAT), "nothing")
