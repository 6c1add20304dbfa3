"""Smoke test of the full environment: everything imports together and TFF computes.

Run by `make tff` in an environment of its own.
"""

from __future__ import annotations

import importlib.metadata
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import apache_beam  # noqa: E402
import mlflow  # noqa: E402
import numpy  # noqa: E402
import psutil  # noqa: E402
import tensorflow  # noqa: E402
import tensorflow_federated  # noqa: E402

import beam_ldp  # noqa: E402


def main() -> None:
    """Sum three clients' numbers in TFF's local runtime, then end its worker."""
    tff = tensorflow_federated
    clients = tff.FederatedType(numpy.int32, tff.CLIENTS)

    @tff.federated_computation(clients)
    def total(values: object) -> object:
        return tff.federated_sum(values)

    answer = int(total([1, 2, 39]))
    if answer != 42:
        raise SystemExit(f"TFF summed 1, 2 and 39 to {answer}")
    print(
        f"beam-ldp {beam_ldp.__version__}, Beam {apache_beam.__version__}, "
        f"MLflow {mlflow.__version__}, NumPy {numpy.__version__}, "
        f"TensorFlow {tensorflow.__version__}, "
        f"TFF {importlib.metadata.version('tensorflow-federated')}: import and compute together"
    )


if __name__ == "__main__":
    try:
        main()
    finally:
        # TFF's worker outlives this process and keeps its stdout open.
        for child in psutil.Process().children(recursive=True):
            child.kill()
