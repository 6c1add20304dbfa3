"""Trainings that fail on all clients end, and arrays that are no parameters are refused."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from beam_ldp.federated import EpsilonBudget
from beam_ldp.randomizers.mean import PrivUnit
from flower_adapters import LocallyPrivateFedAvg, LocallyPrivateMod
from flower_adapters.strategy import check_arrays
from tests.flower_adapters.network import Network, failing, model, nodes_of, unreachable

MECHANISM = PrivUnit(3, local_epsilon=8.0, radius=0.5)
UPDATE = (0.1, -0.2, 0.3)


def broken(_):
    raise ModuleNotFoundError("torchvision")


def run(tmp_path, updates, rounds=6, checkpoint=None, reader="local", nodes=None, budget=None):
    budget = budget or EpsilonBudget(None, 1e-6)
    strategy = LocallyPrivateFedAvg(
        MECHANISM, budget, training="digits", min_reports=20, checkpoint=checkpoint, reader=reader
    )
    mod = LocallyPrivateMod(MECHANISM, local_epsilon_limit=1e3)
    nodes = nodes or nodes_of(mod, updates, tmp_path)
    return strategy.start(Network(nodes), model(), num_rounds=rounds)


@pytest.mark.exact
def test_a_package_that_no_client_has_ends_the_training(tmp_path, caplog):
    """They once looked healthy until the budget was gone. A false verdict: 1e-12 or less."""
    ended = run(tmp_path, [broken] * 20)
    assert (ended.rounds, ended.stopped_by, ended.spent.num_charges) == (3, "failures", 3)


@pytest.mark.exact
@pytest.mark.parametrize(("reader", "answer"), [("local", failing), ("shuffled", unreachable)])
def test_a_training_whose_clients_are_silent_ends(tmp_path, reader, answer):
    nodes = {100 + i: answer for i in range(20)}
    ended = run(tmp_path, [], nodes=nodes, reader=reader)
    assert (ended.stopped_by, ended.spent.num_charges) == ("failures", 3)


@pytest.mark.exact
def test_a_training_that_fails_twice_and_then_works_goes_on(tmp_path):
    """A verdict in the third round: below 1e-6; the names of the training fix the vectors."""
    calls = {"rounds": 0}

    def late(arrays):
        calls["rounds"] += 1
        if calls["rounds"] <= 2 * 30:
            raise OSError("data are not there yet")
        return arrays

    ended = run(tmp_path, [late] * 30)
    assert (ended.rounds, ended.stopped_by) == (6, "rounds")


@pytest.mark.exact
def test_a_training_that_ended_so_goes_on_from_its_checkpoint(tmp_path):
    """Failed, mended, run again: the rounds that failed stay charged and are not run again."""
    kept = {"checkpoint": tmp_path / "model.npz", "budget": EpsilonBudget(None, 1e-6), "rounds": 5}
    assert run(tmp_path, [broken] * 20, **kept).stopped_by == "failures"
    ended = run(tmp_path, [UPDATE] * 20, **kept)
    assert (ended.rounds, ended.stopped_by, ended.spent.num_charges) == (2, "rounds", 5)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("name", "dtype", "refused"),
    [
        ("w", "float32", None), ("w", "float64", None), ("w", "float16", None),
        ("w", "int64", "'w' (int64)"), ("w", "uint8", "'w' (uint8)"), ("w", "bool", "'w' (bool)"),
        ("0", "int32", "'0' (int32)"), ("w", "complex64", "'w' (complex64)"),
        ("1.num_batches_tracked", "int64", "'1.num_batches_tracked' (int64)"),
        ("1.running_mean", "float32", "'1.running_mean' (a running statistic"),
        ("1.running_var", "float32", "'1.running_var' (a running statistic"),
        ("bn/moving_variance", "float32", "'bn/moving_variance' (a running statistic"),
        ("declared.running_mean", "float32", None),
    ],
)  # fmt: skip
def test_arrays_that_are_no_parameters_are_refused_by_name(name, dtype, refused):
    """Integers once moved toward zero every round, and running statistics took the clip."""
    arrays = ArrayRecord(
        {"first": Array(np.zeros(2, np.float32)), name: Array(np.zeros(3, np.dtype(dtype)))}
    )
    if refused is None:
        check_arrays(arrays, ["declared.running_mean"])
        return
    strategy = LocallyPrivateFedAvg(
        PrivUnit(5, 4.0), EpsilonBudget(None, 1e-6), training="t", min_reports=2
    )
    with pytest.raises(ValueError) as error:
        strategy.start(Network({}), arrays, num_rounds=1)
    assert refused in str(error.value) and "'first'" not in str(error.value)
