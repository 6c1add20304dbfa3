"""The pipeline suite that every engine must pass: all of it in one job.

Each part adds branches to one pipeline and later checks what they gave. What is memoized must be
the same to the last bit on every engine, for any block size: `same_everywhere` of two runs.

    found = run_suite(engine.options, tmp_path, block_size=190)
    for part in SUITE:
        part.verify(found[part.name])

Results travel through files, because most engines run their workers elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions

from beam_ldp.decisions.bandits.elimination import LinearBandit
from beam_ldp.decisions.bandits.noise import CentralSums, bit_randomizer
from beam_ldp.decisions.bandits.progress import BanditProgress, BatchTerms, ServiceTerms
from beam_ldp.decisions.rewards import Rewards
from beam_ldp.decisions.stages import PrivateSums
from beam_ldp.ledger import BudgetLedger, audit
from beam_ldp.protocols import Box, FoundWords, plan_user_mean
from beam_ldp.protocols.heavy_hitters_plan import plan_heavy_hitters
from beam_ldp.randomizers import frequency
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.level_keys import LevelKey, hidden, level_chain, refined
from beam_ldp.randomizers.mean import CoordinateRanges, L2Mean, LInfMean, MeanRandomizer, PrivUnit
from beam_ldp.randomizers.randomness import UserRandomness, report_ids
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.settings import Noise, People, Shuffling
from beam_ldp.transforms import (
    Aggregate,
    AtLevel,
    BadRowBlock,
    BoundContributions,
    ChargeTo,
    EstimateFrequencies,
    PrivateEstimate,
    PrivateFrequencies,
    PrivateHeavyHitters,
    PrivateMean,
    PrivateUserMean,
    Randomize,
    RandomizeForLevels,
    Release,
    ReleaseToRows,
    Shuffle,
    ShuffledBlock,
    ValueBlock,
)
from beam_ldp.transforms.device.keyed import NoiseSource
from beam_ldp.transforms.elements.blocks import TableBlock
from tests.engines.fixtures import run_within
from tests.identities import identity

USERS = 1200
ROWS_EACH = 2  # of every person, where persons have several
KEY = bytes(range(32, 64))
ORACLE = KRandomizedResponse(4, 2.0)
WORDS = plan_heavy_hitters(USERS, 8.0, max_bytes=8, num_bits=44)
WIDE = KRandomizedResponse(2**16, 0.1)
NAMES = Domain(("red", "green", "blue"))
GROUPS = Domain(("de", "fr"))
RANGES = CoordinateRanges((0.0, -5.0, 10.0), (1.0, 5.0, 30.0))
TRUTH = np.array([0.4, 0.3, 0.2, 0.1])
SECONDS = 400
FORMS = (("statistic", "batch"), ("reports", "batch"), ("reports", "global"))

Outputs = dict[str, beam.PCollection]
Found = dict[str, list[Any]]  # what each output held


class Source:
    """What the parts read: blocks made by the workers, of a size that changes nothing."""

    def __init__(self, pipeline: beam.Pipeline, folder: Path, block_size: int) -> None:
        self.pipeline = pipeline
        self.folder = folder
        rows = USERS * ROWS_EACH
        starts = [(at, min(at + block_size, rows)) for at in range(0, rows, block_size)]
        self._starts = pipeline | "Starts" >> beam.Create(starts) | "Spread" >> beam.Reshuffle()
        (folder / "key").write_bytes(KEY)
        (folder / "key").chmod(0o600)
        self.noise = Noise(dataset="visits", id="r", key_file=str(folder / "key"))

    def blocks(self, make: Callable[..., ValueBlock], *how: Any) -> beam.PCollection:
        """The blocks of `make(start, stop, *how)`, of two rows of each person."""
        label = f"Make {make.__name__} {' '.join(map(str, how))}"
        if label not in self.__dict__:
            made = self._starts | label >> beam.Map(made_by, make, how).with_output_types(
                ValueBlock
            )
            self.__dict__[label] = made
        return self.__dict__[label]


def made_by(
    bounds: tuple[int, int], make: Callable[..., ValueBlock], how: tuple[Any, ...]
) -> ValueBlock:
    return make(*bounds, *how)


def values(start: int, stop: int, users: int = USERS * ROWS_EACH) -> ValueBlock:
    """Rows start to stop with values 0, 1, 2, 3 in shares of .4, .3, .2, .1, each of a person."""
    rows = np.arange(start, min(stop, users))
    return ValueBlock(np.searchsorted([4, 7, 9], rows % 10, "right"), rows, None, "made", rows)


def persons_rows(start: int, stop: int, grouped: bool) -> ValueBlock:
    """The same with two rows of each person, the second one with the next value; two groups."""
    rows = np.arange(start, stop)
    people, later = rows % USERS, rows // USERS
    held = (np.searchsorted([4, 7, 9], people % 10, "right") + later) % 4
    return ValueBlock(held, people, people % 2 if grouped else None, "made", rows)


def vectors(start: int, stop: int, dimension: int) -> ValueBlock:
    """Vectors of the first `USERS`: the same whoever makes them, some of them outside the ball."""
    people = np.arange(start, max(start, min(stop, USERS)))
    held = np.sin(people[:, None] * 0.37 + np.arange(dimension)) / dimension**0.5 * 1.2
    return ValueBlock(held, people, None, "made", people)


def minutes(start: int, stop: int) -> ValueBlock:
    rows = np.arange(start, stop)
    held = 700 + 30 * np.sin(rows % USERS) + 5 * np.cos(rows * 1.7)
    return ValueBlock(held[:, None], rows % USERS, None, "made", rows)


class Part:
    """Some branches of the job, and what must be true of their outputs."""

    memoized = False  # the outputs are a function of data and key alone

    @property
    def name(self) -> str:
        return type(self).__name__

    def build(self, source: Source) -> Outputs:
        raise NotImplementedError

    def verify(self, found: Found, folder: Path) -> None:
        raise NotImplementedError


class EveryFormOfOutput(Part):
    """Frequencies as sums, batches and globally permuted reports; too few release nothing."""

    def build(self, source: Source) -> Outputs:
        outputs: Outputs = {}
        people = source.blocks(values)
        for output, scope in FORMS:
            for least in (2000, USERS * ROWS_EACH + 1):
                label = f"{output} {scope} {least}"
                stage = PrivateFrequencies(
                    ORACLE, min_reports=least, shuffle=Shuffling(output=output, scope=scope)
                )
                outputs[label] = people | label >> stage
                outputs[f"{label} withheld"] = outputs[label].withheld
        return outputs

    def verify(self, found: Found, folder: Path) -> None:
        everybody = USERS * ROWS_EACH
        for output, scope in FORMS:
            (release,) = found[f"{output} {scope} 2000"]
            check_estimate(release, everybody)
            assert release["crowd"] == everybody
            assert not found[f"{output} {scope} 2000 withheld"]
            assert not found[f"{output} {scope} {everybody + 1}"]
            (notice,) = found[f"{output} {scope} {everybody + 1} withheld"]
            assert (notice["num_reports"], notice["min_reports"]) == (everybody, everybody + 1)


class OneRowPerPerson(Part):
    """Of each person's rows one is drawn: everybody once, the same row on every engine."""

    memoized = True

    def build(self, source: Source) -> Outputs:
        rows = source.blocks(persons_rows, False)
        drawn = rows | "Bound" >> BoundContributions(
            noise=NoiseSource(identity("r", "visits"), source.noise.key_file)
        )
        stage = PrivateFrequencies(
            ORACLE, min_reports=100, people=People(id="user id"), noise=source.noise
        )
        return {"drawn": drawn, "estimate": rows | "One each" >> stage}

    def verify(self, found: Found, folder: Path) -> None:
        pairs = [pair for ids, held in found["drawn"] for pair in zip(ids, held)]
        found["drawn"] = sorted(pairs)  # in which blocks they lie may differ
        assert [person for person, _ in sorted(pairs)] == list(range(USERS))
        seconds = sum(held != values(p, p + 1).values[0] for p, held in pairs)
        assert abs(seconds - USERS / 2) < 5 * (USERS / 4) ** 0.5  # false alarms below 1e-6
        assert found["estimate"][0]["num"] == USERS


class EveryOracle(Part):
    """Memoized frequencies of all oracles: as without Beam, to the last bit."""

    memoized = True
    oracles: dict[str, FrequencyOracle] = {
        name: getattr(frequency, name)(6, 2.0) for name in frequency.__all__
    }

    def build(self, source: Source) -> Outputs:
        people = source.blocks(values, USERS)
        stages = {
            name: PrivateFrequencies(
                oracle,
                min_reports=1000,
                shuffle=Shuffling(output=output, scope=scope),
                noise=source.noise,
            )
            for (name, oracle), (output, scope) in zip(self.oracles.items(), cycle(FORMS))
        }
        self.identities = {name: stage.identity for name, stage in stages.items()}
        return {name: people | name >> stage for name, stage in stages.items()}

    def verify(self, found: Found, folder: Path) -> None:
        block = values(0, USERS)
        for name, oracle in self.oracles.items():
            reports = oracle.randomize(
                block.values, UserRandomness(KEY, block.user_ids, self.identities[name])
            )
            direct = oracle.estimate(oracle.accumulate(reports), USERS)
            (release,) = found[name]
            assert release["value"] == direct.value.tolist(), name
            assert release["error"] == direct.standard_error.tolist(), name
            assert (release["num"], release["crowd"]) == (USERS, USERS)


class ReportsOfLevels(Part):
    """The same public reports, read with the key of each level and without: as without Beam."""

    memoized = True
    oracle = frequency.RefinableResponse.of_levels(6, (3.0, 1.0, 0.5))
    identity = identity("r", "visits", mechanism=oracle.config_digest().hex()).committed(KEY)
    terms = ReleaseTerms(oracle, identity)

    def build(self, source: Source) -> Outputs:
        secret = str(source.noise.key_file)
        public = source.blocks(values, USERS) | "For levels" >> RandomizeForLevels(
            self.terms, secret, noise=NoiseSource(self.identity, secret)
        )
        outputs: Outputs = {}
        for level in self.oracle.all_levels:
            key = None
            if level != self.oracle.local_epsilon:
                key = f"{source.folder}/{level}.key"
                content = LevelKey.derived(KEY, self.identity, self.oracle, level).to_bytes()
                Path(key).write_bytes(content)
                Path(key).chmod(0o600)
            read = AtLevel(self.terms, key)
            outputs[str(level)] = (
                public
                | f"At {level}" >> read
                | f"Shuffle at {level}" >> Shuffle(read.mechanism, 1000)
                | f"Aggregate at {level}" >> Aggregate(read.mechanism)
                | f"Estimate at {level}" >> EstimateFrequencies(read.mechanism)
            )
        return outputs

    def verify(self, found: Found, folder: Path) -> None:
        block, first = values(0, USERS), self.oracle.at_level(self.oracle.all_levels[0])
        assert block.user_ids is not None
        reports = first.randomize(block.values, UserRandomness(KEY, block.user_ids, self.identity))
        ids = report_ids(KEY, block.user_ids, block.values, self.identity)
        shown = hidden(self.oracle, level_chain(KEY, self.identity, self.oracle), reports, ids)
        for level in self.oracle.all_levels:
            read, seen = self.oracle.at_level(level), shown
            if level != self.oracle.local_epsilon:
                key = LevelKey.derived(KEY, self.identity, self.oracle, level)
                seen = refined(self.oracle, key, shown, ids)
            direct = read.estimate(read.accumulate(seen), USERS)
            (release,) = found[str(level)]
            assert release["value"] == direct.value.tolist(), level
            assert release["error"] == direct.standard_error.tolist(), level


class FrequencyOfEachGroup(Part):
    memoized = True

    def build(self, source: Source) -> Outputs:
        stage = PrivateFrequencies(
            ORACLE, min_reports=500, people=People(id="user id", groups=GROUPS), noise=source.noise
        )
        return {"groups": source.blocks(persons_rows, True) | "By group" >> stage}

    def verify(self, found: Found, folder: Path) -> None:
        found["groups"] = sorted(found["groups"], key=lambda pair: pair[0])
        assert [name for name, _ in found["groups"]] == ["de", "fr"]
        assert [release["num"] for _, release in found["groups"]] == [USERS / 2, USERS / 2]


class EveryMean(Part):
    """Two-response bits of the cube (with ranges) and of the ball, and PrivUnit's coordinates."""

    memoized = True
    mechanisms: dict[str, tuple[MeanRandomizer, dict[str, Any]]] = {
        "linf": (LInfMean(3, 8.0), {"ranges": RANGES}),
        "l2": (L2Mean(20, 6.0), {"shuffle": Shuffling(output="reports")}),
        "PrivUnit": (PrivUnit(20, 4.0), {}),
    }

    def build(self, source: Source) -> Outputs:
        stages = {
            name: PrivateMean(mechanism, min_reports=1000, noise=source.noise, **how)
            for name, (mechanism, how) in self.mechanisms.items()
        }
        self.identities = {name: stage.identity for name, stage in stages.items()}
        return {
            name: source.blocks(vectors, self.mechanisms[name][0].dimension) | name >> stage
            for name, stage in stages.items()
        }

    def verify(self, found: Found, folder: Path) -> None:
        for name, (mechanism, how) in self.mechanisms.items():
            block = vectors(0, USERS, mechanism.dimension)
            ranges = how.get("ranges")
            inside = block.values if ranges is None else ranges.encode(block.values)
            identity = self.identities[name]
            bound = mechanism.for_release(identity)  # its public rotation follows from that
            reports = bound.randomize(inside, UserRandomness(KEY, block.user_ids, identity))
            direct = bound.estimate(bound.accumulate(reports), USERS)
            direct = direct if ranges is None else ranges.decode(direct)
            (release,) = found[name]
            assert release["value"] == direct.value.tolist(), name
            assert release["error"] == direct.standard_error.tolist(), name
            assert (release["num"], release["crowd"]) == (USERS, USERS)


class MeanOfPersonsMeans(Part):
    """Two rounds; what the first one found is one thing wherever the second one reads it."""

    memoized = True

    def build(self, source: Source) -> Outputs:
        protocol = plan_user_mean(
            USERS, ROWS_EACH, Box(CoordinateRanges(0, 1440)), local_epsilon=6.0, sigma=30
        )
        stage = PrivateUserMean(protocol, min_reports=1000, noise=source.noise)
        return {"mean": source.blocks(minutes) | "Mean of means" >> stage}

    def verify(self, found: Found, folder: Path) -> None:
        """Within 5 standard errors: false alarms below 1e-6."""
        (release,) = found["mean"]
        truth = minutes(0, USERS * ROWS_EACH).values.mean()
        assert abs(release["value"][0] - truth) < 5 * release["error"][0]


class WordsThatNobodyListed(Part):
    """Levels that follow from one another, each read where the one before it is known."""

    memoized = True

    def build(self, source: Source) -> Outputs:
        stage = PrivateHeavyHitters(
            WORDS, min_reports=1000, noise=source.noise, people=People(id="uid")
        )
        return {"words": source.blocks(words) | "Words" >> stage}

    def verify(self, found: Found, folder: Path) -> None:
        """Half of the people hold one word: misses below 1e-6."""
        (release,) = found["words"]
        assert (release["num"], release["crowd"] > 0) == (USERS, True)
        assert release["texts"][0] == "heavy"
        assert abs(release["value"][0] - 0.5) < 5 * release["error"][0]


def words(start: int, stop: int) -> ValueBlock:
    """Rows of the bits of words: half of the people hold one of them, the others one each."""
    rows = np.arange(start, stop)
    held = [b"heavy" if i % USERS % 2 else b"%d" % (i % USERS) for i in rows.tolist()]
    return ValueBlock(WORDS.code.encode(held).bits, rows % USERS, None, "made", rows)


class ChargedToABudget(Part):
    """A release settles its charge once; what is withheld gives the central price back."""

    memoized = True
    budget = 10.0

    def build(self, source: Source) -> Outputs:
        url = self.url(source.folder)
        ledger = BudgetLedger.create(url)
        ledger.set_budget("visits", epsilon=self.budget, delta=1e-6, local_epsilon=10.0)
        outputs: Outputs = {}
        for name, least in (("settled", 1000), ("abandoned", USERS + 1)):
            stage = PrivateFrequencies(
                ORACLE,
                min_reports=least,
                budget=ChargeTo("visits", url, run_id=name),
                people=People(one_row=True),
                noise=replace(source.noise, id=name),
            )
            outputs[name] = source.blocks(values, USERS) | f"Charge {name}" >> stage
        return outputs

    def url(self, folder: Path) -> str:
        return f"sqlite:///{folder / 'privacy.db'}"

    def verify(self, found: Found, folder: Path) -> None:
        ledger = BudgetLedger(self.url(folder))
        charges = ledger.state.populations["visits"].charges
        assert {name: charge.status for name, charge in charges.items()} == {
            name: name for name in ("settled", "abandoned")
        }
        assert charges["settled"].settled["event"]["num_reports"] == USERS
        assert audit(ledger.rows()).clean
        assert [len(found[name]) for name in ("settled", "abandoned")] == [1, 0]


class NoDrawIsShared(Part):
    """Equal values in every block: two equal blocks of 16-bit reports would be a shared draw."""

    def build(self, source: Source) -> Outputs:
        reports = source.blocks(values) | "Wide" >> Randomize(WIDE)
        return {"reports": reports | "Shuffle wide" >> Shuffle(WIDE, 1, scope="batch")}

    def verify(self, found: Found, folder: Path) -> None:
        reports = np.array([report for block in found["reports"] for report in block])
        assert len(reports) == USERS * ROWS_EACH
        pairs = len(reports) ** 2 / 2 / 2**16  # equal ones, expected; shared draws give far more
        counts = np.bincount(reports)
        assert abs(int((counts * (counts - 1) // 2).sum()) - pairs) < 6 * pairs**0.5 + 20


class RowsGroupsAndDeadLetters(Part):
    def build(self, source: Source) -> Outputs:
        (source.folder / "names.txt").write_text("\n".join(NAMES.values))
        stage = PrivateFrequencies(
            ORACLE,
            domain=str(source.folder / "names.txt"),
            column="colour",
            people=People(id="id", groups=GROUPS, group_by="land"),
            min_reports=900,
        )
        made = (
            source.pipeline
            | "Numbers" >> beam.Create(list(range(20)))
            | "Spread numbers" >> beam.Reshuffle()
            | "Rows" >> beam.FlatMap(rows)
        )
        released = made | "From rows" >> stage
        return {"releases": released, "bad_rows": released.bad_rows}

    def verify(self, found: Found, folder: Path) -> None:
        releases = dict(found["releases"])
        assert {name: release["num"] for name, release in releases.items()} == {
            "de": 1000,
            "fr": 1000,
        }
        for name, truth in (("de", [0.5, 0, 0.5, 0]), ("fr", [0, 0.5, 0, 0.5])):
            error = np.array(releases[name]["error"])
            assert (np.abs(np.array(releases[name]["value"]) - truth) < 5 * error).all()
        reasons = [reason for block in found["bad_rows"] for reason in block]
        assert sorted(reasons) == ["no user id"] * 20 + ["null"] * 20


def rows(number: int) -> list[dict[str, Any]]:
    """A hundred good rows and two bad ones."""
    good = [
        {"colour": ("red", "green", "blue", "mauve")[i % 4], "land": ("de", "fr")[i % 2], "id": i}
        for i in range(number * 100, number * 100 + 100)
    ]
    nothing = {"colour": None, "land": "de", "id": 5000 + number}
    return [*good, nothing, {"colour": "red", "land": "de"}]


class RewardsOfABatch(Part):
    """A bandit's batch from rows: the same decision everywhere, and what is refused."""

    memoized = True
    bandit = LinearBandit(actions=np.array([[1.0, 0.0], [0.0, 1.0]]), horizon=3000, skipped=5)
    asked = ServiceTerms("visits", "banners", ("blue", "red"), bandit).asks(BanditProgress(bandit))

    def build(self, source: Source) -> Outputs:
        assert self.asked is not None
        stage = PrivateEstimate(
            bit_randomizer(self.asked.local_epsilon),
            Rewards("reward", name="reward", batch=self.asked.digest),
            people=People(id="uid", group_by="play", groups=Domain(self.asked.plays)),
            noise=replace(source.noise, id=self.asked.release_id),
            min_reports=self.asked.least,
        )
        released = self.visits(source) | "Rewards" >> stage
        return {"plays": released, "refused": released.bad_rows}

    def visits(self, source: Source) -> beam.PCollection:
        assert self.asked is not None
        starts = list(range(0, sum(self.asked.counts) + 2, 50))
        return (
            source.pipeline
            | f"Visits of {self.name}" >> beam.Create(starts)
            | f"Spread visits of {self.name}" >> beam.Reshuffle()
            | f"Rows of {self.name}" >> beam.Map(visits, self.asked).with_output_types(TableBlock)
        )

    def verify(self, found: Found, folder: Path) -> None:
        """Within 6 standard errors of a bit, as all blue people gave -1 and all red ones 1."""
        asked = self.asked
        assert asked is not None
        found["plays"] = sorted(found["plays"])
        found["refused"] = sorted(reason for reasons in found["refused"] for reason in reasons)
        assert found["refused"] == ["group that is not listed", "outside of [-1, 1]"]
        told = {play: (one["num"], one["value"][0] * one["num"]) for play, one in found["plays"]}
        heard = asked.heard(told)
        assert heard.counts == asked.counts
        assert BanditProgress(self.bandit).after(heard).active.tolist() == [1]
        for (_, one), mean in zip(found["plays"], (-1.0, 1.0)):
            assert abs(one["value"][0] - mean) < 6 * one["error"][0]


class RewardsToATrustedServer(RewardsOfABatch):
    """The same with noise on each sum, once: what decides is what comes out."""

    memoized = False

    def build(self, source: Source) -> Outputs:
        assert self.asked is not None
        sums = PrivateSums(
            CentralSums(8.0),
            Rewards("reward", name="reward", batch=self.asked.digest),
            self.asked.counts,
            people=People(id="uid", group_by="play", groups=Domain(self.asked.plays)),
            noise=Noise(dataset="visits", id=self.asked.release_id),
        )
        released = self.visits(source) | "Sums" >> sums
        plays = released | "Plays" >> beam.WithKeys(lambda release: release.group)
        return {"plays": plays, "refused": released.bad_rows}


def visits(start: int, asked: BatchTerms) -> TableBlock:
    """Fifty rows: whoever has blue gave -1, red 1; the last two cannot be used."""
    plays = [*np.repeat(asked.plays, asked.counts).tolist(), "9:blue", asked.plays[0]]
    rewards = [*np.repeat([-1.0, 1.0], asked.counts).tolist(), 1.0, 2.0]
    stop = min(start + 50, len(plays))
    columns = {
        "uid": list(range(start, stop)), "play": plays[start:stop], "reward": rewards[start:stop]
    }  # fmt: skip
    return TableBlock("visits", start, pa.RecordBatch.from_pydict(columns))


class WindowsAndRows(Part):
    def build(self, source: Source) -> Outputs:
        found = (
            source.blocks(values)
            | "Time" >> beam.FlatMap(in_time).with_output_types(ValueBlock)
            | "Minutes" >> beam.WindowInto(beam.window.FixedWindows(60))
            | "In windows" >> PrivateFrequencies(ORACLE, min_reports=1000)
            | ReleaseToRows(NAMES)
            | "All time" >> beam.WindowInto(beam.window.GlobalWindows())
        )
        return {"rows": found}

    def verify(self, found: Found, folder: Path) -> None:
        assert len(found["rows"]) == 2 * 4
        assert {(row[2], row[3]) for row in found["rows"]} == {
            ("Timestamp(0)", "Timestamp(60)"),
            ("Timestamp(60)", "Timestamp(120)"),
        }
        assert {row[4] for row in found["rows"]} == {"red", "green", "blue", "other"}


def in_time(block: ValueBlock) -> list[beam.window.TimestampedValue]:
    """The first half of the rows in the first minute, the others in the second one."""
    assert block.positions is not None
    cut = int(np.searchsorted(block.positions, USERS * ROWS_EACH / 2))
    parts = ((0, block.rows(0, cut)), (60, block.rows(cut, len(block))))
    return [beam.window.TimestampedValue(part, 30 + at) for at, part in parts if len(part)]


SUITE: tuple[Part, ...] = (
    EveryFormOfOutput(),
    OneRowPerPerson(),
    EveryOracle(),
    ReportsOfLevels(),
    FrequencyOfEachGroup(),
    EveryMean(),
    MeanOfPersonsMeans(),
    WordsThatNobodyListed(),
    ChargedToABudget(),
    NoDrawIsShared(),
    RowsGroupsAndDeadLetters(),
    RewardsOfABatch(),
    RewardsToATrustedServer(),
    WindowsAndRows(),
)


def check_estimate(release: dict[str, Any], num: int) -> None:
    """Within 5 of its own standard errors: fails by chance less than once in 10**5 runs."""
    assert release["num"] == num
    assert (np.abs(np.array(release["value"]) - TRUTH) < 5 * np.array(release["error"])).all()


def run_suite(
    options: list[str], folder: Path, block_size: int, parts: tuple[Part, ...] = SUITE
) -> dict[str, Found]:
    """Run the parts as one job; what each output held, by the names of part and output."""
    pipeline = beam.Pipeline(options=PipelineOptions(options))
    source = Source(pipeline, folder, block_size)
    found: dict[str, Found] = {}
    written = []
    for part in parts:
        found[part.name] = {}
        for label, pcoll in part.build(source).items():
            found[part.name][label] = []
            place = f"{part.name} {label}"
            # Some engines keep the windows of the parts apart where one collection is made of all.
            written.append(
                pcoll
                | f"Text of {place}"
                >> beam.Map(as_text, part.name, label).with_output_types(tuple[int, str])
                | f"All time of {place}" >> beam.WindowInto(beam.window.GlobalWindows())
            )
    out = folder / "found"
    _ = (
        written
        | "All texts" >> beam.Flatten()
        | "One file" >> beam.GroupByKey()
        | "Write" >> beam.Map(write, str(out))
    )
    run_within(pipeline, SECONDS)
    for part_name, label, element in json.loads(out.read_text()):
        found[part_name][label].append(element)
    return found


def write(pair: tuple[int, Any], path: str) -> None:
    Path(path).write_text("[" + ",".join(pair[1]) + "]")


def as_text(element: Any, part: str, label: str) -> tuple[int, str]:
    return 0, json.dumps([part, label, as_plain(element)])


def as_plain(element: Any) -> Any:
    """What JSON holds of an element."""
    if isinstance(element, tuple) and not hasattr(element, "_fields"):
        return [element[0], as_plain(element[1])]
    if isinstance(element, Release) and isinstance(element.estimate, FoundWords):
        return {
            "texts": [text.decode() for text in element.estimate.texts],
            "value": element.estimate.frequency.tolist(),
            "error": element.estimate.standard_error.tolist(),
            "num": element.num_reports,
            "crowd": element.smallest_batch,
        }
    if isinstance(element, Release):
        return {
            "value": element.estimate.value.tolist(),
            "error": element.estimate.standard_error.tolist(),
            "num": element.num_reports,
            "crowd": None if element.event is None else crowd(element.event),
        }
    if isinstance(element, BadRowBlock):
        return [row.reason for row in element]
    if isinstance(element, ShuffledBlock):
        return element.reports.tolist()
    if isinstance(element, ValueBlock):
        assert element.user_ids is not None
        return [element.user_ids.tolist(), element.values.tolist()]
    if hasattr(element, "_fields"):
        return [str(field) for field in element]
    return vars(element)


def crowd(event: Any) -> int | None:
    """Reports that a report hides among; None where rounds have crowds of their own."""
    return getattr(event, "num_reports", None)
