"""What the public Python libraries take: run by `oracles.py` in an environment of their own.

Needs multi-freq-ldpy, and pure-ldp with what it imports without declaring it (scikit-learn,
statsmodels); nothing of this repository. Prints one JSON list.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import numpy as np

REPORTS = 2000
Client = Callable[[int], object]


def clients() -> Iterator[tuple[str, str, str, int, float, Callable[[], Client]]]:
    """Library, oracle, the name of ours, k, epsilon, and how to make a function of one value."""
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client
    from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Client
    from multi_freq_ldpy.pure_frequency_oracles.SS import SS_Client
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client
    from pure_ldp.frequency_oracles.direct_encoding import DEClient
    from pure_ldp.frequency_oracles.hadamard_mechanism import HadamardMechClient
    from pure_ldp.frequency_oracles.hadamard_response import (
        HadamardResponseClient,
        HadamardResponseServer,
    )
    from pure_ldp.frequency_oracles.local_hashing import LHClient
    from pure_ldp.frequency_oracles.unary_encoding import UEClient

    def hadamard_response() -> Client:
        server = HadamardResponseServer(1.0, 1000)
        return one_by_one(HadamardResponseClient(1.0, 1000, server.get_hash_funcs()))

    pure, multi, krr = "pure-ldp", "multi-freq-ldpy", "KRandomizedResponse"
    yield pure, "DE", krr, 1000, 3.0, lambda: one_by_one(DEClient(3.0, 1000))
    yield multi, "GRR", krr, 1000, 3.0, lambda: lambda x: GRR_Client(x, 1000, 3.0)
    yield pure, "HadamardResponse", "HadamardResponse", 1000, 1.0, hadamard_response
    yield (
        *(pure, "HadamardMech", "BinaryHadamard", 1000, 1.0),
        lambda: one_by_one(HadamardMechClient(1.0, 1000, 1)),
    )
    yield (
        *(pure, "UE (optimized)", "UnaryEncoding", 1024, 1.0),
        lambda: one_by_one(UEClient(1.0, 1024, use_oue=True)),
    )
    yield (
        *(multi, "UE (optimized)", "UnaryEncoding", 1024, 1.0),
        lambda: lambda x: UE_Client(x, 1024, 1.0),
    )
    yield (
        *(pure, "LH (optimal)", "LocalHashing", 1000, 3.0),
        lambda: one_by_one(LHClient(3.0, 1000, use_olh=True)),
    )
    yield (
        *(multi, "LH (optimal)", "LocalHashing", 1000, 3.0),
        lambda: lambda x: LH_Client(x, 1000, 3.0),
    )
    yield multi, "SS", "SubsetSelection", 1024, 5.0, lambda: lambda x: SS_Client(x, 1024, 5.0)


def one_by_one(client: Any) -> Client:
    """A client of pure-ldp, whose values start from one."""
    return lambda value: client.privatise(value + 1)


def main() -> None:
    """Time each client on values drawn before."""
    rows = []
    for library, name, ours, size, epsilon, make in clients():
        row = {"library": f"{library} {version(library)}", "oracle": name, "ours": ours}
        row |= {"domain_size": size, "local_epsilon": epsilon}
        values = np.random.default_rng(0).integers(0, size, REPORTS).tolist()
        try:
            client = make()
            client(values[0])  # some compile on the first call
            begin = time.perf_counter()
            for value in values:
                client(value)
            row["randomize_ns"] = (time.perf_counter() - begin) / REPORTS * 1e9
        except Exception as error:  # noqa: BLE001 - a peer that does not run is a finding
            row["error"] = f"{type(error).__name__}: {error}"
        rows.append(row)
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main()
