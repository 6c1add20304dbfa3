"""A mean in shares with a witness at the shuffler, and a worker that dies once in front of it."""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

from beam_ldp.randomizers.mean import SplitAndMixMean
from beam_ldp.transforms import Aggregate, EstimateMean, Randomize, Release, ReportBlock, Shuffle
from beam_ldp.transforms.device.keyed import FRESH, NoiseSource
from beam_ldp.transforms.device.side import RandomizeBlocks
from beam_ldp.transforms.elements.blocks import ShuffledSum, ValueBlock
from beam_ldp.transforms.elements.portable import PortableRandomizer

DIMENSION, BLOCKS, ROWS = 256, 8, 60
PEOPLE = BLOCKS * ROWS
MECHANISM = SplitAndMixMean.for_shuffle(DIMENSION, 1.0, 1e-6, PEOPLE, honest_fraction=0.9)
VECTOR = np.linspace(-0.08, 0.08, DIMENSION)  # everybody's


def block_of(number: int) -> ValueBlock:
    """The vectors of some people, with their places."""
    values = np.tile(VECTOR, (ROWS, 1))
    positions = np.arange(number * ROWS, (number + 1) * ROWS)
    return ValueBlock(values, source="people", positions=positions)


@dataclass(frozen=True)
class ShareJob:
    """What runs, and where it leaves its traces.

    Attributes:
        folder: for the release and what the witness wrote.
        seed: of a simulation, or fresh noise.
        dies: whether the process dies that first has made the shares of a block in the middle.
    """

    folder: Path
    seed: int | None = None
    dies: bool = False

    def build(self, options: list[str]) -> beam.Pipeline:
        """The pipeline."""
        (self.folder / "seen").mkdir(parents=True)
        noise = FRESH if self.seed is None else NoiseSource(seed=self.seed)
        pipeline = beam.Pipeline(options=PipelineOptions(options))
        reports = (
            pipeline
            | "Numbers" >> beam.Create(list(range(BLOCKS)))
            | "Spread" >> beam.Reshuffle()
            | "People" >> beam.Map(block_of).with_output_types(ValueBlock)
            | "Randomize" >> Randomize(MECHANISM, noise=noise)
            | "Seen" >> beam.ParDo(Witness(self)).with_output_types(ReportBlock)
        )
        sums = reports | "Shuffle" >> Shuffle(MECHANISM, PEOPLE, output="statistic")
        sums | "Sum" >> beam.Map(write_sum, self.folder)
        added = sums | "Aggregate" >> Aggregate(MECHANISM)
        releases = added | "Estimate" >> EstimateMean(MECHANISM)
        releases | "Release" >> beam.Map(write_release, self.folder)
        return pipeline

    # What must be true afterwards ---------------------------------------------------------------

    @property
    def attempts(self) -> dict[str, list[list[int]]]:
        """Of every block the sums of the shares of each attempt that reached the shuffler."""
        found = defaultdict(list)
        for path in (self.folder / "seen").iterdir():
            told = json.loads(path.read_text())
            found[told["origin"]].append(told["sum"])
        return dict(found)

    @property
    def sums(self) -> list[list[int]]:
        """The different sums that left the shuffler."""
        return [json.loads(text) for text in self._written("sum")]

    def _written(self, kind: str) -> set[str]:
        return {path.read_text() for path in self.folder.glob(f"{kind}-*")}

    def assert_law(self) -> None:
        """One release, whose 256 errors have the law that it states: each within 6 of its standard
        errors (5e-7), their mean square within 5 standard deviations of one (6e-7). Half an
        envelope, or a second share set of one person, would be a random number in each."""
        (text,) = self._written("release")  # whatever is repeated writes the same
        told = json.loads(text)
        assert told["num_reports"] == PEOPLE
        errors = (np.array(told["value"]) - VECTOR) / np.array(told["error"])
        assert np.abs(errors).max() < 6
        assert abs((errors**2).mean() - 1) < 5 * np.sqrt(2 / DIMENSION)

    def assert_one_attempt_each(self) -> int:
        """What left the shuffler is the sum of one attempt of each block, modulo the modulus, and
        of no part of another one; the number of blocks that were attempted again."""
        (released,) = self.sums
        attempts, left = self.attempts, np.array(released)
        for sums in attempts.values():
            if len(sums) == 1:
                left = left - np.array(sums[0])
        several = [sums for sums in attempts.values() if len(sums) > 1]
        assert len(attempts) == BLOCKS
        wanted = {tuple((left % MECHANISM.modulus).tolist())}
        found = {tuple([0] * MECHANISM.num_coordinates)}
        for sums in several:
            assert len({tuple(each) for each in sums}) == len(sums), "noise is fresh"
            found = {
                tuple(((np.array(one) + np.array(each)) % MECHANISM.modulus).tolist())
                for one in found
                for each in sums
            }
        assert wanted <= found
        return len(several)


def expected_sum(seed: int) -> np.ndarray:
    """What the shuffler lets out in a simulation, without Beam."""
    doer = RandomizeBlocks(PortableRandomizer(MECHANISM), NoiseSource(seed=seed), False)
    doer.setup()
    window = beam.transforms.window.GlobalWindow()
    blocks = [report for n in range(BLOCKS) for report in doer._emit(None, block_of(n), window)]
    return np.asarray(MECHANISM.accumulate(np.concatenate([block.reports for block in blocks])))


class Witness(beam.DoFn):
    """Writes down the sum of each block's shares, then lets them pass, or dies."""

    def __init__(self, job: ShareJob) -> None:
        self._job = job

    def process(self, block: ReportBlock) -> Iterator[ReportBlock]:
        total = MECHANISM.accumulate(block.reports)
        told = {"origin": block.origin.hex(), "sum": total.tolist()}
        (self._job.folder / "seen" / os.urandom(8).hex()).write_text(json.dumps(told))
        yield block
        self._die()

    def _die(self) -> None:
        """Once, with some blocks behind it and some before."""
        folder = self._job.folder
        if not self._job.dies or len(list((folder / "seen").iterdir())) < BLOCKS // 2:
            return
        try:
            (folder / "died").touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def write_sum(total: ShuffledSum, folder: Path) -> None:
    modular = (np.asarray(total.statistic) % MECHANISM.modulus).tolist()
    (folder / f"sum-{os.urandom(4).hex()}").write_text(json.dumps(modular))


def write_release(release: Release, folder: Path) -> None:
    found = release.estimate
    told = {
        "num_reports": release.num_reports,
        "value": found.value.tolist(),
        "error": found.standard_error.tolist(),
    }
    (folder / f"release-{os.urandom(4).hex()}").write_text(json.dumps(told))
