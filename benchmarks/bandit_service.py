"""A million people served batch by batch, each reward through Beam; all batches in one process."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import apache_beam as beam
import click
import numpy as np
import pyarrow as pa

from beam_ldp.decisions.bandits.elimination import LinearBandit, Model
from beam_ldp.decisions.bandits.noise import CentralSums, bit_randomizer
from beam_ldp.decisions.bandits.progress import BanditProgress, BatchTerms, Heard, ServiceTerms
from beam_ldp.decisions.bandits.simulating import directions
from beam_ldp.decisions.rewards import Rewards
from beam_ldp.decisions.stages import PrivateSums
from beam_ldp.pipelines.flags import whole
from beam_ldp.randomizers.domain import Domain
from beam_ldp.release.worker_results import RELEASES, WriteResults, read_all
from beam_ldp.settings import People
from beam_ldp.transforms import PrivateEstimate
from beam_ldp.transforms.elements.blocks import Release

RESULTS = Path(__file__).parent / "results"
MODELS: tuple[Model, ...] = ("shuffled", "local", "central")
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
    """The sums of a batch: of reports that were drawn one for each person, or with the server's
    noise."""
    people = People(group_by="play", groups=Domain(asked.plays), one_row=True)
    query = Rewards("reward", batch=asked.digest)
    bandit = asked.terms.bandit
    sums: beam.PTransform
    if asked.terms.trusts_the_server:
        noise = CentralSums(bandit.epsilon)
        sums = PrivateSums(noise, query, asked.counts, people=people) | beam.WithKeys(None)
    else:
        bit = bit_randomizer(asked.local_epsilon)
        sums = PrivateEstimate(bit, query, people=people, min_reports=asked.least)
    with tempfile.TemporaryDirectory() as folder:
        with beam.Pipeline(runner="FnApiRunner") as pipeline:
            _ = (
                pipeline
                | beam.Create(rows, reshuffle=False)
                | sums
                | beam.Values().with_output_types(Release)
                | WriteResults(folder, RELEASES, Release)
            )
        found = read_all(folder).releases
    told = {
        one.group: (one.num_reports, float(one.estimate.value[0]) * one.num_reports)
        for one in found
        if one.group is not None
    }
    return asked.heard(told)


def served(model: Model, horizon: int = 10**6, actions: int = 10, seed: int = 0) -> dict[str, Any]:
    """All batches of one run: people, and CPU seconds of this process."""
    rng = np.random.default_rng(seed)
    rows = directions(rng, actions, 2)
    bandit = LinearBandit(actions=rows, horizon=horizon, model=model)
    terms = ServiceTerms("people", "benchmark", tuple(map(str, range(actions))), bandit)
    progress, batches = BanditProgress(bandit), list[dict[str, float]]()
    while True:
        begun = time.process_time()
        asked = terms.asks(progress)
        seconds = time.process_time() - begun
        if asked is None:
            break
        made = rows_of(asked, np.zeros(actions), rng)
        begun = time.process_time()
        progress = progress.after(released(asked, made))
        seconds += time.process_time() - begun
        batches.append({"people": asked.batch.people, "seconds": seconds})
    return {"horizon": horizon, "asked": progress.asked, "batches": batches}


def page(found: dict[str, Any]) -> str:
    """Tables as a Markdown page."""
    horizon = found[MODELS[0]]["horizon"]
    lines = [
        "# A bandit's rewards through Beam, person by person",
        "",
        f"`python -m benchmarks.bandit_service` writes this page. {horizon:,} people, ten actions "
        "of the plane that are all alike, so that none is dropped and every batch is asked, which "
        "is the most that a run can take; epsilon 1. All batches in one process, on the local "
        "runner: each reward becomes a report, reports are summed by play, and the sums decide. "
        "Everybody after the last batch sends nothing. CPU seconds; making the rewards is not "
        "among them.",
        "",
        "| people of a batch | " + " | ".join(MODELS) + " |",
        "|---|" + "---|" * len(MODELS),
    ]
    for number, batch in enumerate(found[MODELS[0]]["batches"]):
        cells = [f"{found[model]['batches'][number]['seconds']:.2f}" for model in MODELS]
        lines.append(f"| {batch['people']:,} | {' | '.join(cells)} |")
    totals = [f"{total(found[model]):.1f}" for model in MODELS]
    lines.append(f"| {found[MODELS[0]]['asked']:,} in all | {' | '.join(totals)} |")
    return "\n".join(lines) + "\n"


def total(run: dict[str, Any]) -> float:
    """CPU seconds of all batches."""
    return float(sum(batch["seconds"] for batch in run["batches"]))


@click.command(help=__doc__)
@click.option("--horizon", type=whole, default=10**6, show_default=True)
def main(horizon: int) -> None:
    """One run of each model."""
    found = {model: served(model, horizon) for model in MODELS}
    (RESULTS / "bandit_service.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "bandit_service.md").write_text(page(found))
    print(page(found))


if __name__ == "__main__":
    main()
