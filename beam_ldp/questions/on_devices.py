"""What each number of a report is about, beyond what an envelope can say: several lists, a number,
one level of a search for words, or a mean in shares and what its senders are promised. The text of
it is digested to what stands in the release's identity."""

from __future__ import annotations

import importlib
import json
import operator
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from beam_ldp.accounting.reports import hidden_users
from beam_ldp.accounting.shuffle.split_and_mix import split_and_mix_delta
from beam_ldp.protocols.heavy_hitters import HeavyHitters, Level
from beam_ldp.questions.numbers import NumberQuestion, check_number_question
from beam_ldp.questions.surveys import LevelsQuestion
from beam_ldp.randomizers.base import FrequencyOracle, LocalRandomizer
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.randomizers.domain import Bins
from beam_ldp.randomizers.hierarchy import Hierarchy
from beam_ldp.randomizers.identity import ReleaseIdentity, digest_of
from beam_ldp.randomizers.mean import SplitAndMixMean
from beam_ldp.randomizers.questions import Questions
from beam_ldp.settings import SettingError
from beam_ldp.wording import number


class DeviceQuestion(ABC):
    """What a report is about.

    Attributes:
        answered_by: "module:class" of the `DeviceValues` that answer it where it was published.
        collected_by: "module:function" that makes a release of its reports.
    """

    answered_by: ClassVar[str] = "beam_ldp.pipelines.devices.word_levels:WordValues"
    collected_by: ClassVar[str] = "beam_ldp.release.devices.collecting:collected_lists"

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """What the text holds."""

    @abstractmethod
    def check_fits(self, randomizer: LocalRandomizer) -> None:
        """A ValueError unless the mechanism answers just this."""

    @property
    def text(self) -> str:
        """As JSON."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    @abstractmethod
    def asked_columns(self) -> tuple[str, ...]:
        """The columns, as the identity of the release names them."""

    @property
    @abstractmethod
    def values(self) -> bytes:
        """The digest of lists, bins or tree, as the identity of the release has it."""

    @classmethod
    @abstractmethod
    def from_json(cls, found: dict[str, Any]) -> DeviceQuestion:
        """Inverse of `to_json`, whose keys are there. Raises ValueError."""

    @staticmethod
    def from_text(text: Any) -> DeviceQuestion:
        """Inverse of `text`. Raises ValueError."""
        found = json.loads(text) if isinstance(text, str) else None
        keys = frozenset(found) if isinstance(found, dict) else frozenset()
        kind = next((kind for all_keys, kind in _KINDS if keys == all_keys), None)
        if kind is None and {"column", "edges"} <= keys <= _OF_NUMBER:
            kind = f"{__name__}:DeviceNumberQuestion"
        if kind is None:
            raise ValueError(
                "questions must be the text of a JSON object about lists, a number, an experiment, "
                "a bandit's batch, words or shares"
            )
        made: DeviceQuestion = place(kind).from_json(found)
        return made


@dataclass(frozen=True)
class DeviceListsQuestion(DeviceQuestion):
    """A value of a public list for each question.

    Attributes:
        columns: names of the questions.
        lists: digest of each list, in hexadecimal.
    """

    columns: tuple[str, ...]
    lists: tuple[str, ...]

    def __post_init__(self) -> None:
        distinct = len(set(self.columns)) == len(self.columns) == len(self.lists)
        if not distinct or len(self.columns) < 2:
            raise ValueError("questions must be two or more, with distinct names, each with a list")

    def to_json(self) -> dict[str, Any]:
        return {"columns": list(self.columns), "lists": list(self.lists)}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> DeviceListsQuestion:
        return cls(names_in(found["columns"]), names_in(found["lists"]))

    @property
    def asked_columns(self) -> tuple[str, ...]:
        return self.columns

    @property
    def values(self) -> bytes:
        return digest_of(*map(bytes.fromhex, self.lists))

    def check_fits(self, randomizer: LocalRandomizer) -> None:
        if not isinstance(randomizer, Questions) or len(randomizer.oracles) != len(self.columns):
            raise ValueError("release terms contradict themselves: number of questions")


@dataclass(frozen=True)
class DeviceNumberQuestion(DeviceQuestion):
    """A number: in which bin it lies, or where in a tree over the bins.

    Attributes:
        column: its name.
        wanted: the bins; with a tree its fan-out, and what is to be read off it.
    """

    column: str
    wanted: NumberQuestion

    def __post_init__(self) -> None:
        if (self.wanted.fan_out is None) == self.wanted.needs_tree:
            raise ValueError("questions: fan_out must be given for a tree, and for nothing else")

    def to_json(self) -> dict[str, Any]:
        wanted = self.wanted
        found: dict[str, Any] = {"column": self.column, "edges": list(wanted.bins.edges)}
        if wanted.needs_tree:
            found |= {
                "fan_out": wanted.fan_out,
                "quantiles": list(wanted.quantiles),
                "between": [[repr(low), repr(high)] for low, high in wanted.ranges],
            }
        return found

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> DeviceNumberQuestion:
        (column,) = names_in([found["column"]])
        return cls(column, _number_question(found))

    @property
    def asked_columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def values(self) -> bytes:
        bins, fan_out = self.wanted.bins, self.wanted.fan_out
        if fan_out is None:
            return bins.digest
        return digest_of(LevelsQuestion(self.column, Hierarchy(bins, fan_out)).digest)

    def check_fits(self, randomizer: LocalRandomizer) -> None:
        found: tuple[int, ...] = ()
        bins, fan_out = self.wanted.bins, self.wanted.fan_out
        if isinstance(randomizer, Questions) and fan_out is not None:
            found = randomizer.domain_sizes
        elif isinstance(randomizer, FrequencyOracle) and fan_out is None:
            found = (randomizer.domain_size,)
        if found != ((bins.size,) if fan_out is None else Hierarchy(bins, fan_out).sizes):
            raise ValueError("release terms contradict themselves: number of bins")


@dataclass(frozen=True)
class DeviceSharesQuestion(DeviceQuestion):
    """Vectors in shares: what people are promised, of whom nothing but the collector's word and the
    noise of the others protects one.

    Protects one person's vector (replace-one) with (epsilon, delta) against readers of the mean, if
    at least `min_reports` envelopes are added up together or none, and if whoever receives them
    does not look at one alone.

    Attributes:
        columns: their names.
        epsilon, delta: what the release costs at most.
        min_reports: envelopes without which nothing is released.
        honest_fraction: share of these, at least, that were made as the protocol says.
    """

    answered_by = "beam_ldp.pipelines.devices.shares:ShareValues"
    collected_by = "beam_ldp.release.devices.collecting:collected_shares"

    columns: tuple[str, ...]
    epsilon: float
    delta: float
    min_reports: int
    honest_fraction: float = 1.0

    def __post_init__(self) -> None:
        check_positive("epsilon", self.epsilon)
        check_fraction("delta", self.delta)
        check_integer("min_reports", self.min_reports, 1)
        check_fraction("honest_fraction", self.honest_fraction, "(]")

    def to_json(self) -> dict[str, Any]:
        names = ("delta", "epsilon", "honest_fraction", "min_reports")
        promised = {name: getattr(self, name) for name in names}
        return {"columns": list(self.columns), "promised": promised, "trusted": _TRUSTED}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> DeviceSharesQuestion:
        """Inverse of `to_json`. Raises ValueError."""
        try:
            made = cls(names_in(found["columns"]), **found["promised"])
        except TypeError:
            raise ValueError("questions hold a value of the wrong type") from None
        if made.to_json() != found:
            raise ValueError("questions: shares are for whoever trusts the collector")
        return made

    @property
    def promise(self) -> str:
        """What it promises, for people."""
        return (
            f"epsilon = {number(self.epsilon)} at delta = {self.delta:g} against readers of the "
            f"mean, if {self.min_reports:,} envelopes are added up together at least, "
            f"{self.honest_fraction:.4g} of them honest"
        )

    @property
    def asked_columns(self) -> tuple[str, ...]:
        return self.columns

    @property
    def values(self) -> bytes:
        return digest_of(self.text.encode())

    def check_fits(self, randomizer: LocalRandomizer) -> None:
        """A ValueError unless the noise of the fewest keeps the promise."""
        if not isinstance(randomizer, SplitAndMixMean):
            raise ValueError("release terms contradict themselves: a mean in shares")
        honest = hidden_users(self.min_reports, self.honest_fraction)
        if not split_and_mix_delta(randomizer, self.epsilon, honest) <= self.delta:
            raise ValueError(
                "release terms contradict themselves: the noise of the fewest people who are "
                "released together does not keep epsilon and delta"
            )


_TRUSTED = "whoever collects is the shuffler, and can read each vector off its envelope"


@dataclass(frozen=True)
class DeviceWordsQuestion(DeviceQuestion):
    """One level of a search for words: do you hold one that begins with one of these?

    A search is a sequence of such questions, each with a release file of its own. People are drawn
    for a level on their devices, and answer no other one.

    Attributes:
        column: name of what is searched.
        protocol: the plan of all levels; whoever receives reports sees who answers which.
        candidates: beginnings that this level asks about, in hexadecimal, in rising order.
        received: reports of each level before.
        min_reports: of all levels together, at least; each level's gate is its share of them.
        honest_fraction: share of the reports that are certainly not fake.
    """

    collected_by = "beam_ldp.release.devices.words:collected_words"

    column: str
    protocol: HeavyHitters
    candidates: tuple[str, ...]
    received: tuple[int, ...] = ()
    min_reports: int = 1
    honest_fraction: float = 1.0

    def __post_init__(self) -> None:
        if self.protocol.assignment != "visible":
            raise ValueError("questions: whoever receives reports sees their level")
        if self.level >= len(self.protocol.levels):
            raise ValueError("questions: the search has fewer levels")
        whole = all(len(row) == 16 * self.protocol.code.num_words for row in self.candidates)
        rising = list(self.candidates) == sorted(set(self.candidates))
        if not (whole and rising) or len(self.candidates) > self.asked.candidates:
            raise ValueError("questions: candidates are not those of a level")

    @classmethod
    def first(
        cls, column: str, protocol: HeavyHitters, min_reports: int, honest_fraction: float
    ) -> DeviceWordsQuestion:
        """What a search begins with."""
        root = _as_hex(protocol.root)
        return cls(column, protocol, root, (), min_reports, honest_fraction)

    def then(self, candidates: np.ndarray, num_reports: int) -> DeviceWordsQuestion:
        """What follows, where so many reports of this level came to these candidates."""
        received = (*self.received, num_reports)
        return replace(self, candidates=_as_hex(candidates), received=received)

    @property
    def level(self) -> int:
        """Which level this is, from 0."""
        return len(self.received)

    @property
    def asked(self) -> Level:
        """The level."""
        return self.protocol.levels[self.level]

    @property
    def rows(self) -> np.ndarray:
        """The candidates as the protocol takes them."""
        packed = np.frombuffer(bytes.fromhex("".join(self.candidates)), dtype=">u8")
        return packed.astype(np.uint64).reshape(-1, self.protocol.code.num_words)

    @property
    def least(self) -> tuple[int, ...]:
        """Gates of all levels."""
        return self.protocol.min_reports(self.min_reports)

    def to_json(self) -> dict[str, Any]:
        return {
            "column": self.column,
            "search": self.protocol.to_config(),
            "candidates": list(self.candidates),
            "received": list(self.received),
            "min_reports": self.min_reports,
            "honest_fraction": self.honest_fraction,
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> DeviceWordsQuestion:
        """Inverse of `to_json`. Raises ValueError."""
        try:
            told = {name: found[name] for name in ("column", "min_reports", "honest_fraction")}
            return cls(
                protocol=HeavyHitters.from_config(found["search"]),
                candidates=tuple(found["candidates"]),
                received=tuple(map(operator.index, found["received"])),
                **told,
            )
        except (TypeError, AttributeError):
            raise ValueError("questions hold a value of the wrong type") from None

    @property
    def asked_columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def values(self) -> bytes:
        return digest_of(self.text.encode())

    def check_fits(self, randomizer: LocalRandomizer) -> None:
        if randomizer.config_digest() != self.asked.oracle.config_digest():
            raise ValueError("release terms contradict themselves: mechanism of the level")


def search_of(identity: ReleaseIdentity) -> ReleaseIdentity:
    """The names of a search, from the identity of one of its levels: what its levels are drawn
    under. Another plan under the same names draws nobody anew."""
    return replace(identity, mechanism="", values="", part="search")


def _as_hex(rows: np.ndarray) -> tuple[str, ...]:
    return tuple(row.astype(">u8").tobytes().hex() for row in rows)


def place(named: str) -> Any:
    """What "module:name" names; other rooms are loaded where they are met."""
    module, name = named.split(":")
    return getattr(importlib.import_module(module), name)


_OF_NUMBER = {"column", "edges", "fan_out", "quantiles", "between"}
_OF_WORDS = {"column", "search", "candidates", "received", "min_reports", "honest_fraction"}


# By the keys of their text. Those of other rooms are loaded where they are met.
_KINDS = (
    ({"columns", "lists"}, f"{__name__}:DeviceListsQuestion"),
    ({"columns", "promised", "trusted"}, f"{__name__}:DeviceSharesQuestion"),
    (_OF_WORDS, f"{__name__}:DeviceWordsQuestion"),
    ({"column", "plan", "look"}, "beam_ldp.decisions.outcomes:OutcomeOnDevices"),
    ({"column", "batch", "plays"}, "beam_ldp.decisions.rewards:RewardOnDevices"),
)


def names_in(found: Any) -> tuple[str, ...]:
    """Names of a list that may hold anything. Raises ValueError."""
    if not isinstance(found, list) or not all(isinstance(name, str) and name for name in found):
        raise ValueError("questions must be a list of names, and lists a list of digests")
    return tuple(found)


def _number_question(found: dict[str, Any]) -> NumberQuestion:
    """What is asked about a number. Raises ValueError."""
    try:
        wanted = NumberQuestion(
            Bins(tuple(map(float, found["edges"]))),
            tuple(map(float, found.get("quantiles", ()))),
            tuple((float(low), float(high)) for low, high in found.get("between", ())),
            found.get("fan_out"),
        )
        if wanted.fan_out is not None and type(wanted.fan_out) is not int:
            raise TypeError
    except TypeError:
        raise ValueError("questions hold a value of the wrong type") from None
    try:
        check_number_question(wanted)
    except SettingError as error:
        raise ValueError(f"questions: {error}") from None
    return wanted
