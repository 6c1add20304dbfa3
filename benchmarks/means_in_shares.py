"""Means in shares of noise, run through Beam: how far they are off, beside a trusted curator.

    python -m benchmarks.means_in_shares [--size 16,10000,40 ...] [--output benchmarks/results]

A size is dimension, people, releases. Everybody holds a unit vector around a common direction; four
fifths are honest and arrive, and all of them do. Every release goes through `PrivateMean` on Beam's
local runner, by sums, with secure noise, in one process. The squared error is that of all releases
together, over that of a curator's Gaussian noise at the epsilon that is proved for the release; the
last column is its standard deviation, which a chi-squared law has. What no machine here runs,
`--law` draws from the law of the sum: all people hold one vector. Processor seconds are those of
one release, with Beam's. Each row is written when it is there, in the place of an older one. Takes
two minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from beam_ldp.accounting import event_epsilon, shuffled_event
from beam_ldp.randomizers.discrete_noise import DiscreteGaussian
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean import SplitAndMixMean
from beam_ldp.randomizers.walsh_hadamard import hadamard

EPSILON, DELTA, HONEST = 1.0, 1e-6, 0.8
SIZES = ("16,10000,20", "128,10000,8", "784,10000,2", "16,100000,10", "128,100000,8",
         "784,100000,3")  # fmt: skip
IN_LAW = ("16384,1000000,4",)
_AT_ONCE = 1 << 14  # vectors of one element


def vectors(dimension: int, people: int) -> np.ndarray:
    """Unit vectors around a common direction, `(people, dimension)` float32."""
    rng = np.random.default_rng(1)
    found = rng.standard_normal((people, dimension), dtype=np.float32)
    found += rng.standard_normal(dimension, dtype=np.float32)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found


def mechanism_for(dimension: int, people: int) -> SplitAndMixMean:
    """Sized for the honest ones."""
    return SplitAndMixMean.for_shuffle(dimension, EPSILON, DELTA, people, honest_fraction=HONEST)


def released(files: list[str], mechanism: SplitAndMixMean, people: int) -> np.ndarray:
    """The mean of one release through Beam."""
    import apache_beam as beam

    from beam_ldp.settings import Privacy
    from beam_ldp.transforms import PrivateMean

    told = Privacy(expected_users=people, trust_shuffler=True)
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/mean"
        with beam.Pipeline("FnApiRunner") as pipeline:
            loading = beam.Map(np.load).with_output_types(np.ndarray)
            blocks = pipeline | beam.Create(files) | beam.Reshuffle() | loading
            releases = blocks | PrivateMean(mechanism, privacy=told, min_reports=people)
            releases | beam.Map(lambda release: np.save(place, release.estimate.value))
        return np.asarray(np.load(f"{place}.npy"))


def statistic_in_law(
    mechanism: SplitAndMixMean, vector: np.ndarray, people: int, rng: np.random.Generator
) -> np.ndarray:
    """The sum of so many people who all hold one vector, without drawing their messages.

    Rounded coordinates add up to binomials, but for 2^-40; shares of noise add up to one discrete
    Gaussian, but for 1e-16 in log probability (`sum_log_ratio`).
    """
    exact = hadamard(vector[None], mechanism._signs)[0] / mechanism.cell
    lower = np.floor(exact)
    sums = people * lower.astype(np.int64) + rng.binomial(people, exact - lower)
    words = rng.integers(0, 2**64, (1, len(exact)), dtype=np.uint64, endpoint=False)
    noise = DiscreteGaussian(mechanism.noise_deviation * math.sqrt(people))
    return np.asarray((sums + noise.draw(words, lambda rows, _: rows)[0]) % mechanism.modulus)


def errors_through_beam(
    mechanism: SplitAndMixMean, people: int, releases: int
) -> tuple[list[float], float]:
    """Squared error of each release, and the processor seconds of one, workers included."""
    truth = np.zeros(mechanism.dimension)
    found, spent = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        files, values = [], vectors(mechanism.dimension, people)
        for i, start in enumerate(range(0, people, _AT_ONCE)):
            part = values[start : start + _AT_ONCE]
            truth += part.sum(axis=0, dtype=np.float64) / people
            files.append(f"{folder}/{i}.npy")
            np.save(files[-1], part)
        del values
        for _ in range(releases):
            before = sum(os.times()[:4])
            value = released(files, mechanism, people)
            spent += sum(os.times()[:4]) - before
            found.append(float(np.square(value - truth).sum()))
    return found, spent / releases


def errors_in_law(mechanism: SplitAndMixMean, people: int, releases: int) -> list[float]:
    """The same of the law of the sum."""
    vector, rng = vectors(mechanism.dimension, 1)[0].astype(float), np.random.default_rng(people)
    found = []
    for i in range(releases):
        turned = mechanism.for_release(ReleaseIdentity("benchmark", str(i)))
        statistic = statistic_in_law(turned, vector, people, rng)
        found.append(float(np.square(turned.estimate(statistic, people).value - vector).sum()))
    return found


def row(size: str, in_law: bool) -> dict[str, Any]:
    """What one size comes to."""
    dimension, people, releases = (int(float(part)) for part in size.split(","))
    mechanism = mechanism_for(dimension, people)
    event = shuffled_event(mechanism, math.floor(HONEST * people))
    epsilon = float(event_epsilon(event, DELTA))
    seconds = None
    if in_law:
        errors = errors_in_law(mechanism, people, releases)
    else:
        errors, seconds = errors_through_beam(mechanism, people, releases)
    curator = dimension * mechanism.curator_variance(epsilon, DELTA, people)
    return {
        "dimension": dimension,
        "people": people,
        "releases": releases,
        "how": "law of the sum" if in_law else "Beam",
        "epsilon": epsilon,
        "shares": mechanism.shares,
        "modulus_bits": mechanism.modulus_bits,
        "bits": mechanism.bits_per_report,
        "measured": float(np.mean(errors)) / curator,
        "predicted": mechanism.mean_squared_error(people) / curator,
        "deviation": math.sqrt(2 / (dimension * releases)) * float(np.mean(errors)) / curator,
        "seconds": seconds,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The figures as a Markdown table."""
    lines = [
        f"Squared error over a curator's Gaussian noise at the proved epsilon, delta = {DELTA:g}; "
        f"{HONEST:.0%} honest and arriving.\n",
        "| d | people | how | releases | epsilon | shares x bits | bits a person | "
        "predicted | measured | CPU s a release | ns a message |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        messages = one["people"] * one["bits"] / one["modulus_bits"]
        seconds = one["seconds"]
        times = (
            ("", "") if seconds is None else (f"{seconds:.1f}", f"{1e9 * seconds / messages:.0f}")
        )
        lines.append(
            f"| {one['dimension']:,} | {one['people']:,} | {one['how']} | {one['releases']} | "
            f"{one['epsilon']:.4f} | {one['shares']} x {one['modulus_bits']} | {one['bits']:,} | "
            f"{one['predicted']:.3f} | {one['measured']:.3f} ± {one['deviation']:.3f} | "
            f"{times[0]} | {times[1]} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> list[dict[str, Any]]:
    """Parse the options, run, and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", nargs="*", default=list(SIZES))
    parser.add_argument("--law", nargs="*", default=list(IN_LAW))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    made = []
    for size, in_law in [(s, False) for s in options.size] + [(s, True) for s in options.law]:
        made.append(row(size, in_law))
        print(table(made).splitlines()[-1], flush=True)
        write(options.output, made[-1])
    return made


def write(folder: Path, new: dict[str, Any]) -> None:
    """The pages with one more row, in the place of an older one of that size."""
    page = folder / "means_in_shares.json"
    rows = json.loads(page.read_text()) if page.exists() else []
    names = ("how", "people", "dimension")
    rows = [one for one in rows if any(one[name] != new[name] for name in names)] + [new]
    rows.sort(key=lambda one: tuple(one[name] for name in names))
    page.write_text(json.dumps(rows, indent=1) + "\n")
    (folder / "means_in_shares.md").write_text(table(rows))


if __name__ == "__main__":
    main()
