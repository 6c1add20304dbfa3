"""Asking nobody more than was promised: an odometer for each person, before the shuffle."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.typehints import typehints

from beam_ldp.protocols.interaction import NANO, asks_that_fit, check_kernel, hash_people, nano_of
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.transforms.device.keyed import FRESH, NoiseSource
from beam_ldp.transforms.device.side import RandomizeBlocks
from beam_ldp.transforms.elements.blocks import ReportBlock, ValueBlock
from beam_ldp.transforms.elements.portable import PortableRandomizer
from beam_ldp.transforms.elements.stages import (
    StageError,
    counter,
    expect,
    expect_unshuffled,
    typed_outputs,
)

_SHARDS = 64
_KEPT = typehints.Tuple[int, typehints.Any]


@dataclass(eq=False, repr=False)
class PerPersonFilter(beam.PTransform):
    """Asks a question of those people whose budget it still fits, and randomizes their answers.

    It stands in the place of `Randomize` where the same people are asked again, and keeps an
    odometer for each of them. There are two:

    *By sums*: a person's answers cost at most the sum of the local epsilons of the questions, also
    where a question depends on earlier answers. Costs alone decide who is left out.

    *By likelihoods*, where `data` is given: it keeps how likely the person's own answers are for
    each datum, and asks if no answer could move the range of those log-likelihoods above `epsilon`.
    Every transcript that can be reached then tells at most `epsilon`, whatever the epsilons sum to.
    That is so for one datum that answers all questions and never changes, so of a person with
    several rows in a question one is asked. Own answers decide who is left out, which costs nothing
    more, for they are public to whom local privacy holds against; but those who remain are no
    random sample of everybody. It promises the local epsilon, nothing about reports in a crowd.

    In: `ValueBlock`s with user ids. Out: `ReportBlock`s. Attribute of the result: `spent`, the
    odometers after this question, which the next question about the same people takes as `before`.
    People are told apart by 64-bit hashes of their ids; two who share one share a budget.

    It needs to know who is who, so it runs on the device or at the trusted edge: what comes out of
    a shuffler is refused. An engine that repeats work repeats answers and odometers together.
    O(people * data * reports of the channel) by likelihoods; 1/64 of all people are in memory.

    Args:
        epsilon: what everybody was promised for all questions together.
        randomizer: that the question is asked with.
        data: by likelihoods: for each datum of a domain that all questions share, the value that it
            answers this question with, `(data,)` indices of the randomizer's domain.
        before: `spent` of the question before; None for the first.
        noise: where noise comes from, and where records are left, as for `Randomize`.

    Raises:
        StageError: for what has gone through a `Shuffle`, and for what is no `ValueBlock`.
        ValueError: for no epsilon; by likelihoods for memoized noise, for a randomizer without a
            small finite channel of positive probabilities, and for data that are no values of it;
            at run time for blocks without user ids, and for odometers of another kind.

    Source: specification of interactivity, section 2, items 1 and 4.

    >>> import apache_beam as beam
    >>> import numpy as np
    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> oracle = KRandomizedResponse(4, local_epsilon=1.0)
    >>> block = ValueBlock(np.arange(3), user_ids=np.array([7, 8, 8]))
    >>> with beam.Pipeline(runner="FnApiRunner") as pipeline:
    ...     values = pipeline | beam.Create([block]).with_output_types(ValueBlock)
    ...     first = values | "Once" >> PerPersonFilter(2.0, oracle)
    ...     again = values | "Again" >> PerPersonFilter(2.0, oracle, before=first.spent)
    ...     _ = again | beam.Map(lambda asked: print(len(asked)))
    1
    """

    epsilon: float
    randomizer: LocalRandomizer
    _: KW_ONLY
    data: Sequence[int] | np.ndarray | None = None
    before: beam.PCollection | None = None
    noise: NoiseSource = FRESH

    def __post_init__(self) -> None:
        if self.data is not None and self.noise.memoized:
            raise ValueError(
                "noise must be fresh where data is given: an answer that is sent again would move "
                "likelihoods again"
            )
        nano_of(self.epsilon)
        self._doer = _Ask(
            PortableRandomizer(self.randomizer), self.noise, False, self.epsilon,
            None if self.data is None else np.asarray(self.data),
        )  # fmt: skip
        self._doer.odometer()

    def expand(self, values: beam.PCollection) -> beam.PCollection:
        expect_unshuffled("PerPersonFilter", values)
        if expect("PerPersonFilter", values, ValueBlock).keyed:
            raise StageError("PerPersonFilter takes ValueBlock without keys")
        parted = values | "Part" >> beam.FlatMap(_by_person).with_output_types(_KEPT)
        together = (parted,) if self.before is None else (parted, self.before)
        people = (
            together
            | "With before" >> beam.Flatten()
            | "Bring people together" >> beam.GroupByKey()
        )
        asked, spent = typed_outputs(
            people, "Ask", beam.ParDo(self._doer), ReportBlock, spent=_KEPT
        )
        asked.spent = spent
        return asked

    def display_data(self) -> dict[str, Any]:
        return {
            "mechanism": type(self.randomizer).__name__,
            "local_epsilon": self.randomizer.local_epsilon,
            "budget": self.epsilon,
            "by": "sums" if self.data is None else "likelihoods",
        }


def _by_person(block: ValueBlock) -> Iterator[tuple[int, ValueBlock]]:
    if block.user_ids is None:
        raise ValueError("PerPersonFilter needs user ids: name the user id column")
    shard = (hash_people(block.user_ids) % np.uint64(_SHARDS)).astype(np.int64)
    for number in np.unique(shard).tolist():
        yield number, block.where(shard == number)


# What an odometer reads ---------------------------------------------------------------------------
#
# Its state of a person is a row of numbers, 0 before the first question.


@dataclass(frozen=True)
class BySums:
    """The sum of epsilons, in units of 1e-9, each rounded up.

    Attributes:
        budget, cost: of everything, and of this question.
    """

    budget: int
    cost: int
    kind = "sums"
    dtype = np.dtype("<i8")
    width = 1

    def fits(self, states: np.ndarray, own: np.ndarray, asked: np.ndarray) -> np.ndarray:
        """Which rows are asked: bool, in the order of `own`, the places of their people.

        `asked` says who has answered this question already.
        """
        return np.asarray(states[own, 0] + _turns(own) * self.cost <= self.budget)

    def note(self, states: np.ndarray, own: np.ndarray, reports: np.ndarray) -> None:
        """These rows were asked, and their people answered with these reports."""
        np.add.at(states[:, 0], own, self.cost)


@dataclass(frozen=True, eq=False)
class ByLikelihoods:
    """The log-likelihood of all own answers, for each datum.

    Attributes:
        budget: most that their range may come to.
        randomizer, logs: of this question; `(data, reports)` logarithms of its probabilities.
    """

    budget: float
    randomizer: LocalRandomizer
    logs: np.ndarray
    dtype = np.dtype("<f8")

    @classmethod
    def of(cls, budget: float, randomizer: LocalRandomizer, data: np.ndarray) -> ByLikelihoods:
        """Raises ValueError for randomizers and data that it cannot count with."""
        try:
            channel = randomizer.channel()
        except NotImplementedError as error:
            raise ValueError(f"randomizer must have a small channel: {error}") from None
        whole = data.ndim == 1 and data.size and data.dtype.kind in "iu"
        if not whole or data.min() < 0 or data.max() >= channel.shape[1]:
            raise ValueError(f"data must be values of the randomizer, 0 to {channel.shape[1] - 1}")
        kernel = check_kernel(channel[:, data].T, "channel of the randomizer")
        return cls(budget, randomizer, np.log(kernel))

    @property
    def width(self) -> int:
        """Numbers of a state."""
        return len(self.logs)

    @property
    def kind(self) -> str:
        """By which an odometer of other data is told."""
        return f"likelihoods of {self.width} data"

    def fits(self, states: np.ndarray, own: np.ndarray, asked: np.ndarray) -> np.ndarray:
        """Which rows are asked: one of each person at most."""
        first = (_turns(own) == 1) & ~asked[own]
        return first & asks_that_fit(states[own], self.logs, self.budget)

    def note(self, states: np.ndarray, own: np.ndarray, reports: np.ndarray) -> None:
        """As for sums."""
        listed = self.randomizer.pack_each(self.randomizer.channel_reports())
        places = {packed.tobytes(): place for place, packed in enumerate(listed)}
        answers = [places[packed.tobytes()] for packed in self.randomizer.pack_each(reports)]
        states[own] += self.logs.T[answers]


def _turns(own: np.ndarray) -> np.ndarray:
    """Of each row the how-manieth it is of its person, from 1."""
    order = np.argsort(own, kind="stable")
    turn = np.empty(len(own), dtype=np.int64)
    turn[order] = np.arange(len(own)) - np.searchsorted(own[order], own[order]) + 1
    return turn


@dataclass(eq=False)
class _Ask(RandomizeBlocks):
    """The answers of those people of a shard whom the question fits, and everybody's odometer."""

    epsilon: float
    data: np.ndarray | None

    def odometer(self) -> BySums | ByLikelihoods:
        """Of this question. Raises ValueError as `ByLikelihoods.of`."""
        randomizer = self.carried.randomizer
        if self.data is not None:
            return ByLikelihoods.of(self.epsilon, randomizer, self.data)
        return BySums(nano_of(self.epsilon), math.ceil(randomizer.local_epsilon * NANO))

    def setup(self) -> None:
        super().setup()
        self._odometer = self.odometer()
        kept = [("person", "<u8"), ("state", self._odometer.dtype, (self._odometer.width,))]
        self._kept = np.dtype(kept)
        self._left_out = counter("asks_left_out")

    def process(
        self, element: tuple[int, Iterable[Any]], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[Any]:
        shard, held = element
        blocks, kept = [], [np.empty(0, dtype=self._kept)]
        for one in held:
            if isinstance(one, ValueBlock):
                assert one.user_ids is not None
                blocks.append((one, hash_people(one.user_ids)))
            else:
                kept.append(self._read(*one))
        spent = np.concatenate(kept)
        people = np.unique(np.concatenate([spent["person"], *(words for _, words in blocks)]))
        states = np.zeros((len(people), self._odometer.width), dtype=self._odometer.dtype)
        states[np.searchsorted(people, spent["person"])] = spent["state"]
        before = np.zeros(len(people), dtype=bool)
        for block, words in sorted(blocks, key=_place):
            own = np.searchsorted(people, words)
            fits = self._odometer.fits(states, own, before)
            self._left_out.inc(int((~fits).sum()))
            if fits.any():
                asked = list(self._emit(None, block.where(fits), window))
                reports = np.concatenate([one.reports for one in asked])
                self._odometer.note(states, own[fits], reports)
                before[own[fits]] = True
                yield from asked
        spent = np.empty(len(people), dtype=self._kept)
        spent["person"], spent["state"] = people, states
        yield beam.pvalue.TaggedOutput("spent", (shard, (self._odometer.kind, spent.tobytes())))

    def _read(self, kind: str, spent: bytes) -> np.ndarray:
        if kind != self._odometer.kind:
            raise ValueError(f"before counts {kind}, and this question {self._odometer.kind}")
        return np.frombuffer(spent, dtype=self._kept)


def _place(one: tuple[ValueBlock, np.ndarray]) -> tuple[str, int]:
    block, _ = one
    first = 0 if block.positions is None else int(block.positions[0])
    return block.source, first
