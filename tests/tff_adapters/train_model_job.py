"""`tff.learning.programs.train_model` with file state managers, killed where it is told to be.

python -m tests.tff_adapters.train_model_job FOLDER LEDGER ROUNDS MOMENT ROUND
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from beam_ldp.federated.record import rounds_run
from beam_ldp.randomizers.mean import LInfMean
from mlflow_ldp import PrivacyTracker
from tff_adapters import ChargedProcess, LocallyPrivateMeanFactory, no_client_metrics
from tff_adapters.models import model_fn_for

CLIENTS, LOCAL_EPSILON, DELTA = 20, 2.0, 1e-5
MOMENTS = ("before", "charged", "ran", "saved", "released")


def dataset():
    rows = np.ones((2, 2), np.float32), np.zeros(2, np.int32)
    return tf.data.Dataset.from_tensor_slices(rows).batch(2)


class Draws(tff.program.FederatedDataSourceIterator):
    """The same clients in every round; datasets cannot be copied, and are made when asked for."""

    @property
    def federated_type(self):
        element = tff.SequenceType(tff.types.tensorflow_to_type(dataset().element_spec))
        return tff.FederatedType(element, tff.CLIENTS)

    def select(self, k=None):
        return [dataset() for _ in range(k)]

    def to_bytes(self):
        return b"all"

    @classmethod
    def from_bytes(cls, buffer):
        return cls()


class Everybody(tff.program.FederatedDataSource):
    federated_type = Draws.federated_type

    def iterator(self):
        return Draws()


def main(folder: Path, url: str, rounds: int, moment: str, fatal: int) -> None:
    def at(name: str, number: int) -> None:
        if (name, number) == (moment, fatal):
            os.kill(os.getpid(), signal.SIGKILL)

    class Process(ChargedProcess):
        def _charged(self, state, clients):
            at("before", rounds_run(state) + 1)
            return super()._charged(state, clients)

    def round_of(state, clients):
        number = rounds_run(state) + 1
        at("charged", number)
        with (folder / "asked").open("a") as file:  # clients hear of the round
            file.write(f"{number}\n")
            file.flush()
            os.fsync(file.fileno())
        return computation(state, clients)

    class Saves(tff.program.FileProgramStateManager):
        async def save(self, program_state, version):
            at("ran", version)
            await super().save(program_state, version)
            at("saved", version)

    class Shows(tff.program.ReleaseManager):
        async def release(self, value, key):  # metrics by round, models by names
            at("released", key)

    cluster = tff.backends.native.create_async_local_cpp_execution_context()
    tff.framework.set_default_context(tff.program.NativeFederatedContext(cluster))
    model_fn = model_fn_for("logistic", (2,), 2, 1)
    weights = 6  # of two features and two classes
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        model_fn,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
        model_aggregator=LocallyPrivateMeanFactory(
            LInfMean(weights, LOCAL_EPSILON, messages=(1,), message_epsilons=(LOCAL_EPSILON,))
        ),
        metrics_aggregator=no_client_metrics,
    )
    with PrivacyTracker("people", DELTA, ledger=url, tracking_uri=f"sqlite:///{folder}/m.db") as to:
        charged = Process(process, to)
        computation, charged._round = charged._round, round_of
        asyncio.run(
            tff.learning.programs.train_model(
                train_process=charged,
                train_data_source=Everybody(),
                train_per_round_clients=CLIENTS,
                train_total_rounds=rounds,
                program_state_manager=Saves(folder / "states"),
                model_output_manager=Shows(),
                train_metrics_manager=Shows(),
                evaluation_manager=None,
                evaluation_periodicity=1,
            )
        )


if __name__ == "__main__":
    folder, url, rounds, moment, fatal = sys.argv[1:]
    main(Path(folder), url, int(rounds), moment, int(fatal))
