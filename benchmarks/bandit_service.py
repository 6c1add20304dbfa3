"""A million people served batch by batch, each reward through Beam; all batches in one process.

    python -m benchmarks.bandit_service --horizon 1e6

Prints the seconds of each batch and of all. Rewards are made before, and not timed.
"""

from __future__ import annotations

import tempfile
import time

import apache_beam as beam
import click
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from beam_ldp.pipelines.flags import whole
from beam_ldp.pipelines.jobs.results import RELEASES, WriteResults, read_all
from beam_ldp.protocols.bandits.elimination import LinearBandit
from beam_ldp.protocols.bandits.noise import bit_randomizer
from beam_ldp.protocols.bandits.progress import Heard, Progress
from beam_ldp.protocols.bandits.simulating import directions
from beam_ldp.protocols.bandits.terms import BatchTerms, ServiceTerms
from beam_ldp.randomizers.domain import Domain
from beam_ldp.settings import People
from beam_ldp.transforms import PrivateEstimate
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.rewards import RewardQuery

_ROWS = 1 << 16


def rows_of(asked: BatchTerms, means: np.ndarray, rng: np.random.Generator) -> list[pa.RecordBatch]:
    """Rewards of -1 and 1 of everybody in a batch, in random order."""
    place = rng.permutation(np.repeat(np.arange(len(asked.plays)), asked.counts))
    rewards = np.where(rng.random(len(place)) < (1 + means[asked.batch.played][place]) / 2, 1.0, -1)
    plays = np.array(asked.plays, dtype=object)[place]
    return [
        pa.RecordBatch.from_pydict(
            {"play": plays[i : i + _ROWS], "reward": rewards[i : i + _ROWS]},
            schema=pa.schema([("play", pa.string()), ("reward", pa.float64())]),
        )
        for i in range(0, len(place), _ROWS)
    ]


def released(asked: BatchTerms, rows: list[pa.RecordBatch]) -> Heard:
    """The sums of a batch, of reports that were drawn one for each person."""
    people = People(group_by="play", groups=Domain(asked.plays), one_row=True)
    query = RewardQuery("reward", batch=asked.digest)
    with tempfile.TemporaryDirectory() as folder:
        with beam.Pipeline(runner="FnApiRunner") as pipeline:
            _ = (
                pipeline
                | beam.Create(rows, reshuffle=False)
                | PrivateEstimate(
                    bit_randomizer(asked.local_epsilon), query, people=people,
                    min_reports=asked.least,
                )
                | beam.Values().with_output_types(Release)
                | WriteResults(folder, RELEASES, Release)
            )  # fmt: skip
        found = read_all(folder).releases
    told = {
        one.group: (one.num_reports, float(one.estimate.value[0]) * one.num_reports)
        for one in found
        if one.group is not None
    }
    return asked.heard(told)


@click.command(help=__doc__)
@click.option("--horizon", type=whole, default=1_000_000, show_default=True)
@click.option("--actions", type=click.IntRange(2), default=10, show_default=True)
@click.option("--epsilon", type=float, default=1.0, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
def main(horizon: int, actions: int, epsilon: float, seed: int) -> None:
    """All batches of one run."""
    rng = np.random.default_rng(seed)
    rows, theta = directions(rng, actions, 2), directions(rng, 1, 2)[0]
    bandit = LinearBandit(actions=rows, horizon=horizon, epsilon=epsilon)
    terms = ServiceTerms("people", "benchmark", tuple(map(str, range(actions))), bandit)
    table = Table("batch", "people", "local epsilon", "seconds", "may be best")
    progress, total = Progress(bandit), 0.0
    while True:
        begun = time.perf_counter()
        asked = terms.asks(progress)
        if asked is None:
            break
        planned = time.perf_counter() - begun
        made = rows_of(asked, rows @ theta, rng)
        begun = time.perf_counter()
        progress = progress.after(released(asked, made))
        seconds = planned + time.perf_counter() - begun
        total += seconds
        table.add_row(
            str(asked.number), f"{asked.batch.people:,}", f"{asked.local_epsilon:.3f}",
            f"{seconds:.2f}", str(len(progress.active)),
        )  # fmt: skip
    console = Console()
    console.print(table)
    right = "the best" if progress.best == int(np.argmax(rows @ theta)) else "not the best"
    console.print(f"{progress.asked:,} people of {horizon:,} were asked, in {total:.1f} s; {right}")


if __name__ == "__main__":
    main()
