"""Rewards of a bandit's batch to a server that is trusted: sums by play, with noise once each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.typehints import typehints

from beam_ldp.decisions.bandits.central import CentralSums
from beam_ldp.decisions.stages.rewards import EncodeRewards, RewardQuery
from beam_ldp.randomizers.mean.base import MeanEstimate
from beam_ldp.settings import Noise, People
from beam_ldp.transforms.composite import bounding_of, release_identity
from beam_ldp.transforms.device.bounding import BoundContributions
from beam_ldp.transforms.elements.blocks import Release, ValueBlock, WithheldRelease
from beam_ldp.transforms.elements.portable import PortableDomain
from beam_ldp.transforms.elements.stages import TOO_FEW, counter, is_global, typed_outputs

_Partial = tuple[int, int]  # people, and the sum of their rewards in cells


class PrivateSums(beam.PTransform):
    """The mean reward of each play, by a server that is trusted with every reward.

    Protects one person's reward, replaced by any other, against everybody who sees only what this
    transform puts out, with the epsilon of `sums` and delta 0; the workers see rewards as they are.
    How many people had which play is not hidden. Sums meet their noise inside one worker, once: a
    checkpoint follows, so that whoever repeats a later step shows the same noise again. Where a
    play has too few people, no noise is drawn of any: all plays come out, or none.

    In: rows, as `EncodeRewards` takes them, bounded and in one window. Out: one `Release` for each
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
        question: RewardQuery,
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
        self._encode = EncodeRewards(*question.columns, people=people)
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
