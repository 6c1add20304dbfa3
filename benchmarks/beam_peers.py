"""What other libraries take for a count per value: `benchmarks.product` runs it where they are.

PipelineDP counts centrally (its curator sees every value) on the same Beam runner and the same
values; OpenDP randomizes values one by one. Needs nothing of this repository. Prints one JSON list.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

VALUES = 266


def pipeline_dp_seconds(records: int) -> float:
    """A count per value with Laplace noise, on Beam's local runner."""
    import apache_beam as beam
    import pipeline_dp

    drawn = np.random.default_rng(0).integers(0, VALUES, records).tolist()
    rows = list(enumerate(drawn))
    begin = time.perf_counter()
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        backend = pipeline_dp.BeamBackend()
        accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-8)
        engine = pipeline_dp.DPEngine(accountant, backend)
        parameters = pipeline_dp.AggregateParams(
            metrics=[pipeline_dp.Metrics.COUNT],
            noise_kind=pipeline_dp.NoiseKind.LAPLACE,
            max_partitions_contributed=1,
            max_contributions_per_partition=1,
        )
        extractors = pipeline_dp.DataExtractors(
            privacy_id_extractor=lambda row: row[0],
            partition_extractor=lambda row: row[1],
            value_extractor=lambda row: 1,
        )
        found = engine.aggregate(
            pipeline | beam.Create(rows), parameters, extractors, list(range(VALUES))
        )
        accountant.compute_budgets()
        found | beam.Map(lambda row: row)
    return time.perf_counter() - begin


def opendp_seconds(records: int) -> float:
    """Randomized response over the values, one call each."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    measurement = dp.m.make_randomized_response(list(range(VALUES)), prob=0.2)
    drawn = np.random.default_rng(0).integers(0, VALUES, records).tolist()
    begin = time.perf_counter()
    for value in drawn:
        measurement(value)
    return time.perf_counter() - begin


def main() -> None:
    """Each peer on `records` values; a peer that does not run is a finding."""
    records = int(sys.argv[1])
    found: list[dict[str, Any]] = []
    for library, seconds, count in (
        ("pipeline-dp 0.3.1, central count on Beam", pipeline_dp_seconds, records),
        ("opendp 0.16.0, randomized response", opendp_seconds, min(records, 20_000)),
    ):
        try:
            took: Any = {"ns_per_record": seconds(count) / count * 1e9}
        except Exception as error:  # noqa: BLE001
            took = {"error": f"{type(error).__name__}: {error}"}
        found.append({"library": library, "records": count, **took})
    print(json.dumps(found))


if __name__ == "__main__":
    main()
