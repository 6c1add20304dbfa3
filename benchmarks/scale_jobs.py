"""The jobs of `benchmarks.scale`: each one Beam pipeline of the product's own stages.

    python -m benchmarks.scale_jobs '{"job": "file", ...}' [Beam's flags]

Prints one line of JSON: the number of reports, and how far the estimates are from the truth in
their own standard errors, so that a fast run that is wrong shows. Inputs that are not files are
drawn inside the workers, which is part of the time.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

from beam_ldp.randomizers import frequency
from beam_ldp.release.inputs.sources import ROWS, ReadTable
from beam_ldp.transforms import (
    Aggregate,
    BoundContributions,
    EncodeRows,
    EstimateFrequencies,
    EstimateMean,
    IntegerDomain,
    Randomize,
    Shuffle,
    ValueBlock,
    WriteShuffledReports,
)
from beam_ldp.transforms.shuffler.shuffle import ShuffleInParts
from benchmarks.scale_input import NUM_VALUES, probabilities

BLOCK = 1 << 19


def oracle_named(spec: dict[str, Any]) -> Any:
    """The oracle of a job."""
    return getattr(frequency, spec["mechanism"])(spec["domain_size"], spec["local_epsilon"])


class Draw(beam.DoFn):
    """Blocks of uniform values, drawn where they are used; element: the number of the block."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec

    def process(self, number: int) -> Iterator[ValueBlock]:
        spec = self._spec
        size = spec["block"]
        start = number * size
        count = min(size, spec["records"] - start)
        generator = np.random.default_rng([7, number])
        positions = np.arange(start, start + count)
        if "dimension" in spec:
            values = generator.standard_normal((count, spec["dimension"]), dtype=np.float32) + 1
            if spec["norm"] == "l2":
                values /= np.linalg.norm(values, axis=1, keepdims=True)
            yield ValueBlock(values, source="drawn", positions=positions)
            return
        dtype = np.min_scalar_type(spec["domain_size"] - 1)
        values = generator.integers(0, spec["domain_size"], count, dtype=dtype)
        groups = users = None
        if "groups" in spec:
            groups = (positions % spec["groups"]).astype(np.int32)
            if spec.get("hot"):  # half of all records are those of one group
                groups[positions % 2 == 0] = 0
        if "one_user" in spec:  # the first rows are all of one person
            users = np.maximum(positions - spec["one_user"] + 1, 0)
        yield ValueBlock(values, users, groups, "drawn", positions)


def drawn(pipeline: beam.Pipeline, spec: dict[str, Any]) -> beam.PCollection:
    """The input of a job without files."""
    blocks = math.ceil(spec["records"] / spec["block"])
    return (
        pipeline
        | "Numbers" >> beam.Create(range(blocks))
        | "Spread" >> beam.Reshuffle()
        | "Draw" >> beam.ParDo(Draw(spec)).with_output_types(ValueBlock)
    )


def frequencies(values: beam.PCollection, spec: dict[str, Any], groups: str | None) -> Any:
    """The stages from values to releases; permuted reports are written where `out` is given."""
    oracle = oracle_named(spec)
    shuffle = Shuffle(
        oracle, spec["min_reports"], spec["output"], spec.get("scope", "batch"), groups=groups
    )
    shuffled = values | Randomize(oracle) | "Shuffle" >> ShuffleInParts(shuffle)
    if spec.get("out"):
        shuffled | WriteShuffledReports(spec["out"], oracle)
    return shuffled | Aggregate(oracle) | EstimateFrequencies(oracle)


def summary(release: Any, truth: np.ndarray | None) -> dict[str, Any]:
    """What is said of a release: reports, and the largest error in standard errors."""
    estimate = release.estimate
    if truth is None:
        truth = np.full(estimate.value.shape, 1 / estimate.value.size)
    error = np.abs(estimate.value - truth) / estimate.standard_error
    return {
        "num_reports": release.num_reports,
        "smallest_batch": release.smallest_batch,
        "largest_error": float(error.max()),
        "values": int(estimate.value.size),
    }


def file_job(pipeline: beam.Pipeline, spec: dict[str, Any]) -> beam.PCollection:
    """From Parquet files to an estimate."""
    table = pipeline | "Read" >> ReadTable([f"{spec['data']}/*.parquet"], "parquet", "value")
    values = table[ROWS] | EncodeRows(IntegerDomain(NUM_VALUES), "value")
    truth = probabilities()
    return frequencies(values, spec, None) | beam.Map(lambda r: summary(r, truth))


def domain_job(pipeline: beam.Pipeline, spec: dict[str, Any]) -> beam.PCollection:
    """One release over a list of any length."""
    return frequencies(drawn(pipeline, spec), spec, None) | beam.Map(lambda r: summary(r, None))


def group_job(pipeline: beam.Pipeline, spec: dict[str, Any]) -> beam.PCollection:
    """One release per group."""
    releases = frequencies(drawn(pipeline, spec), spec, spec["group_file"])
    return releases | beam.Values() | beam.Map(lambda r: summary(r, None))


def user_job(pipeline: beam.Pipeline, spec: dict[str, Any]) -> beam.PCollection:
    """One row of each person, where one of them has very many."""
    values = drawn(pipeline, spec) | BoundContributions()
    return frequencies(values, spec, None) | beam.Map(lambda r: summary(r, None))


def vector_job(pipeline: beam.Pipeline, spec: dict[str, Any]) -> beam.PCollection:
    """The mean of vectors."""
    from beam_ldp.randomizers import mean

    mechanism = getattr(mean, spec["mechanism"])(spec["dimension"], spec["local_epsilon"])
    values = drawn(pipeline, spec)
    statistic = (
        values
        | Randomize(mechanism)
        | Shuffle(mechanism, spec["min_reports"], "statistic")
        | Aggregate(mechanism)
    )
    return statistic | EstimateMean(mechanism) | beam.Map(_mean_summary)


def _mean_summary(release: Any) -> dict[str, Any]:
    """Unit vectors around (1, ..., 1) / sqrt(2 d): their mean is near a constant."""
    value = release.estimate.value
    return {
        "num_reports": release.num_reports,
        "values": int(value.size),
        "mean": float(value.mean()),
        "spread": float(value.std()),
        "standard_error": float(np.mean(release.estimate.standard_error)),
    }


JOBS = {
    "file": file_job,
    "domain": domain_job,
    "groups": group_job,
    "user": user_job,
    "vectors": vector_job,
}


class Append(beam.DoFn):
    """Writes what comes out into one file that the launcher reads."""

    def __init__(self, path: str) -> None:
        self._path = path

    def process(self, found: dict[str, Any]) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(found) + "\n")


def run(spec: dict[str, Any], flags: list[str]) -> dict[str, Any]:
    """Run a job; sums and extremes over its releases."""
    with tempfile.TemporaryDirectory() as folder:
        if "groups" in spec:
            names = Path(folder) / "groups.txt"
            names.write_text("".join(f"g{i}\n" for i in range(spec["groups"] - 1)))
            spec = {**spec, "group_file": str(names)}
        answers = Path(folder) / "answers"
        pipeline = beam.Pipeline(options=PipelineOptions(flags))
        JOBS[spec["job"]](pipeline, spec) | "Answer" >> beam.ParDo(Append(str(answers)))
        pipeline.run().wait_until_finish()
        lines = [json.loads(line) for line in answers.read_text().splitlines()]
    together = dict(lines[0])
    together["releases"] = len(lines)
    together["num_reports"] = sum(line["num_reports"] for line in lines)
    for name in ("largest_error", "smallest_batch"):
        if name in together:
            pick = max if name == "largest_error" else min
            together[name] = pick(line[name] for line in lines)
    return together


def main() -> None:
    """One job, described by the first argument; the others are Beam's flags."""
    # What workers unpickle must have this module's real name, which here is __main__.
    from benchmarks import scale_jobs

    print(json.dumps(scale_jobs.run(json.loads(sys.argv[1]), sys.argv[2:])), flush=True)


if __name__ == "__main__":
    main()
