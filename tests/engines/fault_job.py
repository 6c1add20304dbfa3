"""A job that is worth killing: every stage with state or randomness, and a witness at the shuffler.

`DoorWitness` stands between `Randomize` and `Shuffle` and writes down every report that passes,
in attempts that were thrown away too, before it lets the report through.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions

from beam_ldp.ledger import BudgetLedger, audit
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.identity import length_prefixed
from beam_ldp.randomizers.randomness import UserRandomness, contribution_ranks
from beam_ldp.release.worker_results import WorkerResults, WriteBadRows, WriteResults, read_all
from beam_ldp.settings import People
from beam_ldp.transforms import (
    Aggregate,
    BoundContributions,
    ChargeTo,
    EncodeRows,
    EstimateFrequencies,
    Randomize,
    Release,
    ReportBlock,
    Shuffle,
    TableBlock,
    WithheldRelease,
)
from beam_ldp.transforms.budgeted import charge
from beam_ldp.transforms.collector.side import Releases
from beam_ldp.transforms.device.bounding import NUM_SHARDS
from beam_ldp.transforms.device.keyed import FRESH, NoiseSource
from tests.identities import identity

COLOURS = Domain(("red", "green", "blue"))
ORACLE = KRandomizedResponse(COLOURS.size, 1.0)
KEY = bytes(range(32))
IDENTITY = identity("fault", "visits", columns=("colour",))
LEAST = 100


@dataclass(frozen=True)
class Door:
    """What passed from the randomizer to the shuffler, attempts that were thrown away included.

    Attributes:
        people: who sent a report.
        crossed_again: people of whom a report passed more than once.
        most_draws: reports of one person, at most.
        most_distinct: different ones among these, at most. Two draws may be the same value.
    """

    people: int
    crossed_again: int
    most_draws: int
    most_distinct: int


@dataclass(frozen=True)
class FaultJob:
    """What runs, and where it leaves its traces.

    Attributes:
        folder: for results, ledger and witnesses.
        memoized: or fresh randomness.
        output, scope: of the shuffle.
        blocks, rows: how many of which size; every person has two rows, a tenth of the rows is bad.
        pause: seconds that a block takes before it is randomized, and a part of the users after.
        slow_worker: a process that makes blocks, and one at the door, take this many times longer.
        poison: a block that no attempt can process.
    """

    folder: Path
    memoized: bool = True
    output: str = "reports"
    scope: str = "global"
    blocks: int = 12
    rows: int = 300
    pause: float = 0.1
    slow_worker: int = 1
    poison: bool = False

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'privacy.db'}"

    @property
    def doors(self) -> Path:
        return self.folder / "doors"

    @property
    def made(self) -> Path:
        return self.folder / "made"

    @property
    def progress(self) -> float:
        """How much was done so far, from 0 to 1 at the end of the last pause."""
        done = sum(1 for folder in (self.made, self.doors) for _ in folder.iterdir())
        return min(1.0, done / (self.blocks + NUM_SHARDS))

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def prepare(self) -> None:
        """The key, the ledger with its budget, and empty folders."""
        self.doors.mkdir(parents=True)
        self.made.mkdir()
        self.results.mkdir()
        (self.folder / "key").write_bytes(KEY)
        ledger = BudgetLedger.create(self.url)
        ledger.set_budget("visits", epsilon=10.0, delta=1e-6, local_epsilon=10.0)

    def build(self, options: list[str]) -> beam.Pipeline:
        """The pipeline; building it reserves its worst case."""
        noise = NoiseSource(IDENTITY, str(self.folder / "key")) if self.memoized else FRESH
        pipeline = beam.Pipeline(options=PipelineOptions(options))
        tables = (
            pipeline
            | "Numbers" >> beam.Create(list(range(self.blocks)))
            | "Spread" >> beam.Reshuffle()
            | "Make" >> beam.Map(make_table, self).with_output_types(TableBlock)
        )
        encoded = tables | "Encode" >> EncodeRows(COLOURS, "colour", people=People(id="id"))
        budget = ChargeTo("visits", self.url, run_id="run")
        identity = IDENTITY.committed(KEY) if self.memoized else IDENTITY
        begun = budget.begin(tables, identity)
        persons = (
            encoded
            | "Bound" >> BoundContributions(noise=noise)
            | "Pause"
            >> beam.Map(pause_over, self.pause / 4).with_output_types(encoded.element_type)
        )
        reports = (
            begun.then(persons)
            | "Randomize" >> Randomize(ORACLE, noise=noise)
            | "Door" >> beam.ParDo(DoorWitness(self)).with_output_types(ReportBlock)
        )
        shuffled = reports | "Shuffle" >> Shuffle(ORACLE, LEAST, self.output, self.scope)  # type: ignore[arg-type]
        releases = (
            shuffled
            | "Aggregate" >> Aggregate(ORACLE)
            | "Estimate" >> EstimateFrequencies(ORACLE, min_reports=LEAST, sampling="iid")
        )
        withheld = (shuffled.withheld, releases.withheld) | "Withheld" >> beam.Flatten()
        found = charge(
            begun,
            budget.worst_event(ORACLE, LEAST),
            tables,
            Releases(releases, withheld),
            identity=identity,
        )
        out = str(self.results)
        found.releases | "Write releases" >> WriteResults(out, "releases", Release)
        found.withheld | "Write withheld" >> WriteResults(out, "withheld", WithheldRelease)
        encoded.bad_rows | "Write bad rows" >> WriteBadRows(out)
        return pipeline

    # --- what must be true afterwards -----------------------------------------------------------

    @property
    def users(self) -> int:
        return self.blocks * self.rows // 2

    def expected_bad_rows(self) -> list[tuple[str, int, str]]:
        return sorted(
            (f"table {number}", position, "null")
            for number in range(self.blocks)
            for position in range(0, self.rows, 10)
        )

    def assert_whole(self) -> Release:
        """Every person once, all dead letters, one output, the ledger settled once."""
        found = read_all(str(self.results))
        assert not found.withheld
        (release,) = found.releases  # of retries with other noise there would be several
        assert release.num_reports == self.people_with_a_good_row()
        assert bad_rows_of(found) == self.expected_bad_rows()
        ledger = BudgetLedger(self.url)
        settled = ledger.state.charge("run")
        assert settled.status == "settled" and settled.settled is not None
        assert settled.settled["event"]["num_reports"] == release.num_reports
        assert audit(ledger.rows()).clean
        if self.memoized:
            assert release.estimate.value.tolist() == self.expected_estimate().tolist()
        return release

    def assert_absent(self) -> None:
        """A job that failed gave nothing of its charge back; what it left, a launcher ignores."""
        ledger = BudgetLedger(self.url)
        assert ledger.state.charge("run").status in ("reserved", "settled")
        assert audit(ledger.rows()).clean

    def people_with_a_good_row(self) -> int:
        return len(
            set(np.concatenate([good_rows(n, self)[1] for n in range(self.blocks)]).tolist())
        )

    def expected_estimate(self) -> np.ndarray:
        """The estimate, without Beam: of every person's row of least rank."""
        held: dict[int, tuple[int, int]] = {}
        for number in range(self.blocks):
            values, people, positions = good_rows(number, self)
            source = length_prefixed(f"table {number}".encode())
            places = (source + int(p).to_bytes(8, "little", signed=True) for p in positions)
            ranks = contribution_ranks(KEY, people, places, IDENTITY)
            for rank, value, person in zip(ranks.tolist(), values.tolist(), people.tolist()):
                held[person] = min(held.get(person, (2**64, 0)), (rank, value))
        ids = np.array(sorted(held))
        drawn = np.array([held[person][1] for person in ids.tolist()])
        reports = ORACLE.randomize(drawn, UserRandomness(KEY, ids, IDENTITY))
        return ORACLE.estimate(ORACLE.accumulate(reports), len(ids)).value

    def at_the_door(self) -> Door:
        """What passed the witness, in all attempts."""
        passed: dict[tuple[str, int], list[int]] = defaultdict(list)
        for path in self.doors.iterdir():
            for line in path.read_text().splitlines():
                origin, reports = json.loads(line)
                for place, report in enumerate(reports):
                    passed[origin, place].append(report)
        return Door(
            people=len(passed),
            crossed_again=sum(len(reports) > 1 for reports in passed.values()),
            most_draws=max(map(len, passed.values()), default=0),
            most_distinct=max((len(set(reports)) for reports in passed.values()), default=0),
        )


def make_table(number: int, job: FaultJob) -> TableBlock:
    """Block `number`: every tenth row has no value; the second half repeats the persons."""
    if job.pause:
        pause_over(None, job.pause)
        (job.made / f"{number}-{os.urandom(4).hex()}").touch()
    dawdle("make", job)
    if job.poison and number == job.blocks // 2:
        raise RuntimeError("poison")
    colours: list[str | None] = ["red", "green", "blue", "mauve", "red", "green", "red"]
    held = [colours[(number + i) % 7] if i % 10 else None for i in range(job.rows)]
    columns = {"colour": pa.array(held, pa.string()), "id": people_of(number, job)}
    batch = pa.RecordBatch.from_pydict(columns)
    return TableBlock(f"table {number}", 0, batch)


def people_of(number: int, job: FaultJob) -> np.ndarray:
    return (np.arange(job.rows) + number * job.rows) % job.users


def good_rows(number: int, job: FaultJob) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, persons and positions of the rows that can be used."""
    table = make_table(number, FaultJob(job.folder, blocks=job.blocks, rows=job.rows, pause=0))
    positions = np.array([i for i in range(job.rows) if i % 10])
    index = {name: place for place, name in enumerate(COLOURS.labels)}
    words = table.batch.column(0).to_pylist()
    values = np.array([index.get(words[i], COLOURS.size - 1) for i in positions])
    return values, people_of(number, job)[positions], positions


def pause_over(element: Any, seconds: float) -> Any:
    time.sleep(seconds)
    return element


def dawdle(stage: str, job: FaultJob) -> None:
    """Take long, in the first process that came to this stage."""
    if job.slow_worker == 1:
        return
    here, chosen = str(os.getpid()), job.folder / f"slow-{stage}"
    try:
        with chosen.open("x") as file:
            file.write(here)
    except FileExistsError:
        if chosen.read_text() != here:
            return
    time.sleep(job.pause * (job.slow_worker - 1))


class DoorWitness(beam.DoFn):
    """Writes down, per process, the origin and all reports of each block, then lets it pass."""

    def __init__(self, job: FaultJob) -> None:
        self._job = job

    def process(self, block: ReportBlock) -> Iterator[ReportBlock]:
        assert block.origin, "a block without an origin cannot be known again"
        line = json.dumps([block.origin.hex(), block.reports.tolist()]) + "\n"
        path = self._job.doors / f"{os.getpid()}-{os.urandom(4).hex()}"
        with path.open("x", encoding="ascii") as file:
            file.write(line)
        dawdle("door", self._job)  # its reports have crossed, and may be made a second time
        yield block


def bad_rows_of(found: WorkerResults) -> list[tuple[str, int, str]]:
    rows = (json.loads(line) for line in found.bad_rows.splitlines())
    return sorted((row["source"], row["position"], row["reason"]) for row in rows)
