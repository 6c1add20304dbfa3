"""Beam stages: rows of an experiment or of a bandit's batch become counts, sums, or kept files."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import typehints

from beam_ldp.decisions.bandits.noise import CentralSums
from beam_ldp.decisions.outcomes import Outcomes, counts_of, decision_id, least_reports
from beam_ldp.decisions.rewards import Rewards
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.mean.base import MeanEstimate
from beam_ldp.settings import Noise, People
from beam_ldp.transforms.composite import (
    HowReleased,
    PrivateEstimate,
    bounding_of,
    release_identity,
)
from beam_ldp.transforms.device.bounding import BoundContributions
from beam_ldp.transforms.elements.blocks import Release, ValueBlock, WithheldRelease
from beam_ldp.transforms.elements.portable import PortableDomain
from beam_ldp.transforms.elements.stages import TOO_FEW, counter, is_global, typed_outputs
from beam_ldp.transforms.queries import encode

if TYPE_CHECKING:  # which workers need not load
    from typing_extensions import Unpack

    from beam_ldp.decisions.experiments.arms import ArmCounts
    from beam_ldp.decisions.experiments.plan import ExperimentPlan
    from beam_ldp.decisions.experiments.verdict import ExperimentVerdict

# Outcomes of an experiment ----------------------------------------------------------------------


class PrivateExperiment(PrivateEstimate):
    """How many people of each arm of an experiment have the outcome, under local privacy.

    Whom it protects, and what comes out: as in `PrivateEstimate`; which arm a person is in is not
    protected. In: rows. Out: a `(arm, Release)` for each arm and window, or a `Release` where there
    is one sample. `decide_releases` says what they decide; each window is a look.

    Args:
        plan: of the experiment, whose looks are as many as there will be windows.
        column: with the outcome: 0 or 1, or true or false. Other rows are bad ones.
        look: which look this is, where each is a pipeline of its own.
        question: name of what is asked, for the record.
        how: as in `PrivateEstimate`. `people` names the column of arms (`group_by`), whose list is
            the plan's; the least number of reports of an arm is 0.9 of the planned one, if it is
            not given; `noise` without an id is named after the plan.

    Raises:
        BudgetExceededError: when it is built into a pipeline, if the worst case does not fit.
        ValueError: for arguments that do not fit together.

    >>> import apache_beam as beam
    >>> from beam_ldp.decisions import design_experiment
    >>> plan = design_experiment(local_epsilon=2, null=0.2, effect=0.5, alpha=0.05, power=0.8)
    >>> people = People(group_by="arm", one_row=True)
    >>> rows = [{"arm": arm, "bought": i % 10 < 2} for i in range(60)
    ...         for arm in ("control", "variant")]
    >>> with beam.Pipeline(runner="FnApiRunner") as pipeline:
    ...     counted = (
    ...         pipeline
    ...         | beam.Create(rows)
    ...         | PrivateExperiment(plan, column="bought", people=people)
    ...     )
    ...     _ = counted | beam.MapTuple(lambda arm, release: release.num_reports) | beam.Map(print)
    60
    60
    """

    def __init__(
        self,
        plan: ExperimentPlan,
        *,
        column: str,
        look: int = 1,
        question: str = "",
        **how: Unpack[HowReleased],
    ) -> None:
        people, noise = how.get("people", People()), how.get("noise", Noise())
        if (plan.kind == "arms") != (people.group_by is not None):
            raise ValueError("people must name the column of arms (group_by) exactly if there are")
        if people.groups is not None:
            raise ValueError("people: groups must be left out: the plan lists the arms")
        if plan.kind == "arms":
            how["people"] = replace(people, groups=Domain(plan.arms))
        if noise.dataset and noise.id is None:
            how["noise"] = replace(noise, id=decision_id(plan, look))
        if how.get("min_reports") is None and "shuffle" not in how:
            how["min_reports"] = least_reports(plan)
        super().__init__(plan.randomizer(), Outcomes(plan, column, look, question), **how)


def decide_releases(
    plan: ExperimentPlan, releases: Iterable[Release]
) -> tuple[ExperimentVerdict, ...]:
    """What an experiment decides whose looks are windows of a stream: a verdict for each look.

    Looks are taken in the order of their windows, up to the first that shows an effect: what comes
    later decides nothing.

    Args:
        plan: of the experiment.
        releases: of `PrivateExperiment`, in any order.

    Raises:
        ValueError: for a window without one of the arms, or with one twice (rows that came late
            were released), and for more windows than looks. Complexity: that of the plan's rule.
    """
    from beam_ldp.decisions.experiments.verdict import decide

    looks: dict[tuple[int, int], dict[str, ArmCounts]] = defaultdict(dict)
    for release in releases:
        arm, found = release.group or plan.arms[0], looks[release.window or (0, 0)]
        if arm in found:
            raise ValueError(f"releases must hold each arm once a window, {arm!r} is there twice")
        found[arm] = counts_of(plan, release)
    verdicts: list[ExperimentVerdict] = []
    for number in range(1, len(looks) + 1):
        verdicts.append(decide(plan, *(looks[window] for window in sorted(looks)[:number])))
        if verdicts[-1].decision == "effect":
            break
    return tuple(verdicts)


# Rewards to a server that is trusted: sums by play, with noise once each --------------------------

_Partial = tuple[int, int]  # people, and the sum of their rewards in cells


class PrivateSums(beam.PTransform):
    """The mean reward of each play, by a server that is trusted with every reward.

    Protects one person's reward, replaced by any other, against everybody who sees only what this
    transform puts out, with the epsilon of `sums` and delta 0; the workers see rewards as they are.
    How many people had which play is not hidden. Sums meet their noise inside one worker, once: a
    checkpoint follows, so that whoever repeats a later step shows the same noise again. Where a
    play has too few people, no noise is drawn of any: all plays come out, or none.

    In: rows, as `RewardEncoder` takes them, bounded and in one window. Out: one `Release` for each
    play, with attributes `withheld`, a collection of `WithheldRelease`; `bad_rows`, one of
    `BadRowBlock`; `persons`, blocks of values with every person once (None where each row is a
    person); `traces`, None.

    Args:
        sums: what is released of rewards.
        question: what is asked.
        counts: how many people each play needs, in the order of the list.
        people: whose rows they are, and the public list of plays. `id`: one row of each person is
            drawn, over all plays.
        noise: declared names of the people's data and of this release. A secret key, a seed and a
            log are refused: nothing that one person sends is randomized.
        privacy_unit: what one person's contribution is called.

    Raises:
        ValueError: for arguments that do not fit together; when it is built into a pipeline, for
            unbounded data and for windows.
    """

    def __init__(
        self,
        sums: CentralSums,
        question: Rewards,
        counts: Sequence[int],
        *,
        people: People,
        noise: Noise = Noise(),
        privacy_unit: str = "user",
    ) -> None:
        super().__init__()
        if people.groups is None:
            raise ValueError("people.groups must be given: the public list of plays")
        if noise.memoized or noise.simulated or noise.log is not None:
            raise ValueError("noise must hold names alone: sums get fresh noise, and people none")
        self.identity = release_identity(
            sums.config_digest(),
            columns=question.columns,
            values_digest=lambda: question.digest(sums),
            people=people,
            noise=noise,
            bounding=bounding_of(people, privacy_unit),
            privacy_unit=privacy_unit,
        )
        self._encode = encode(question, sums, people)
        self._bound = None if people.id is None else BoundContributions()
        self._sums = sums
        plays = PortableDomain(people.groups)
        if not counts or min(counts) < 1 or len(counts) != plays.load().size - 1:
            raise ValueError("counts must hold a number >= 1 for each play")
        self._release = _Released(sums, plays, tuple(counts), question.name)

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        if not (is_global(rows) and rows.is_bounded):
            raise ValueError("PrivateSums takes bounded data in one window: a sum is released once")
        encoded = rows | "Encode" >> self._encode
        values = encoded if self._bound is None else encoded | "Bound" >> self._bound
        keyed = typehints.Tuple[int, typehints.Tuple[int, int]]
        partial = beam.FlatMap(_partial_sums, self._sums).with_output_types(keyed)
        sums = (
            values
            | "Partial sums" >> partial
            | "Add sums" >> beam.CombinePerKey(_added).with_output_types(keyed)
        )
        people = sums | "People" >> beam.Map(_people).with_output_types(typehints.Tuple[int, int])
        noise = beam.ParDo(self._release, beam.pvalue.AsDict(people))
        released, withheld = typed_outputs(sums, "Noise", noise, Release, withheld=WithheldRelease)
        fixed = released | "Fix noise" >> beam.Reshuffle().with_output_types(Release)
        fixed.withheld, fixed.bad_rows = withheld, encoded.bad_rows
        fixed.persons, fixed.traces = None if self._bound is None else values, None
        return fixed

    def display_data(self) -> dict[str, Any]:
        return {"mechanism": type(self._sums).__name__, "epsilon": self._sums.epsilon}


def _partial_sums(block: ValueBlock, sums: CentralSums) -> Iterator[tuple[int, _Partial]]:
    """People and rewards of each play of a block."""
    assert block.groups is not None
    rewards = sums.integers(np.asarray(block.values, dtype=np.float64)[:, 0])
    for play in np.unique(block.groups).tolist():
        own = rewards[block.groups == play]
        yield play, (len(own), int(own.sum()))


def _added(partial: Iterable[_Partial]) -> _Partial:
    people = total = 0
    for count, rewards in partial:
        people, total = people + count, total + rewards
    return people, total


def _people(element: tuple[int, _Partial]) -> tuple[int, int]:
    play, (count, _) = element
    return play, count


@dataclass(eq=False)
class _Released(beam.DoFn):
    """Adds noise to the sum of a play, where all plays have their people."""

    sums: CentralSums
    plays: PortableDomain
    counts: tuple[int, ...]
    question: str

    def setup(self) -> None:
        self._names = self.plays.load().labels
        self._released = counter("releases")
        self._withheld = counter("estimates_withheld")

    def process(self, element: tuple[int, _Partial], people: Mapping[int, int]) -> Iterator[Any]:
        play, (count, total) = element
        if any(people.get(place, 0) < least for place, least in enumerate(self.counts)):
            self._withheld.inc()
            least, name = self.counts[play], self._names[play]
            notice = WithheldRelease(count, least, TOO_FEW, self.question, name)
            yield beam.pvalue.TaggedOutput("withheld", notice)
            return
        mean, error = self.sums.release([total]) / count, self.sums.standard_error(count)
        estimate = MeanEstimate(mean, np.array([error]), count, mean_squared_error=error**2)
        self._released.inc()
        yield Release(
            estimate=estimate,
            num_reports=count,
            ran=self.sums.event,
            question=self.question,
            group=self._names[play],
            mechanism=self.sums.to_config(),
            smallest_batch=count,
        )


# Rewards of a queue, kept until their batch is decided --------------------------------------------


class KeepRewards(beam.PTransform):
    """Keeps rewards of a stream in a folder until their batch is decided.

    Protects nobody yet: rewards are kept as they are, in files for their owner alone (0600). Empty
    the folder of a batch's files once it is decided.

    Event times, windows and lateness play no part, for plays say which batch a row is of: nothing
    is dropped as late. (Beam's own file sink gives what is late in a window the name of the file
    that came in time.) A file appears whole, under a name that its rows give it, so that a bundle
    that is repeated writes it again; rows that come twice in different files count once where
    `--user-id` says whose they are.

    In: mappings with the columns, in any windows. Out: the paths of the files.

    Args:
        folder: local, or mounted by all workers; made if it is missing.
        columns: that are kept of each row: play, reward, and whose it is.
        rows: most of one file.
        seconds: the longest that a row waits for others.

    >>> import tempfile, apache_beam as beam
    >>> rows = [{"play": "1:blue", "reward": 1, "uid": 7, "name": "left out"}]
    >>> with tempfile.TemporaryDirectory() as inbox:
    ...     with beam.Pipeline(runner="FnApiRunner") as pipeline:
    ...         _ = pipeline | beam.Create(rows) | KeepRewards(inbox)
    ...     [file] = Path(inbox).iterdir()
    ...     print(file.suffix, file.read_text().strip())
    .jsonl {"play": "1:blue", "reward": 1, "uid": 7}
    """

    def __init__(
        self,
        folder: str,
        *,
        columns: Sequence[str] = ("play", "reward", "uid"),
        rows: int = 10_000,
        seconds: float = 10.0,
    ) -> None:
        super().__init__()
        self._write = _Write(folder, tuple(columns))
        self._rows, self._seconds = rows, seconds

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        return (
            rows
            | "Whenever they come" >> beam.WindowInto(GlobalWindows())
            | "Lines" >> beam.Map(self._write.line).with_output_types(tuple[str, str])
            | "Files" >> beam.GroupIntoBatches(self._rows, self._seconds)
            | "Write" >> beam.ParDo(self._write).with_output_types(str)
        )


class _Write(beam.DoFn):
    def __init__(self, folder: str, columns: tuple[str, ...]) -> None:
        self._folder, self._columns = folder, columns

    def line(self, row: Mapping[str, Any]) -> tuple[str, str]:
        return "", json.dumps({name: row.get(name) for name in self._columns}, default=str)

    def process(self, element: tuple[str, Iterable[str]]) -> Iterator[str]:
        content = ("\n".join(element[1]) + "\n").encode()
        folder = Path(self._folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = folder / f"{hashlib.sha256(content).hexdigest()[:32]}.jsonl"
        aside = folder / f".{uuid.uuid4().hex}"
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(place)
        yield str(place)
