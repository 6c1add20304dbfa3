"""What each number of a report is about, where it is more than one value of one list. Public.

The text of it stands in `release.json`; what it is digested to stands in the release's identity.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from beam_ldp.pipelines.flags import UsageError
from beam_ldp.pipelines.frequencies.numbers import NumberQuestion, check_number_question
from beam_ldp.randomizers.base import FrequencyOracle, LocalRandomizer
from beam_ldp.randomizers.domain import Bins
from beam_ldp.randomizers.hierarchy import Hierarchy
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.randomizers.questions import Questions
from beam_ldp.transforms.questions import LevelsQuestion


class DeviceQuestion(ABC):
    """Several lists, or a number."""

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

    @staticmethod
    def from_text(text: Any) -> DeviceQuestion:
        """Inverse of `text`. Raises ValueError."""
        found = json.loads(text) if isinstance(text, str) else None
        if isinstance(found, dict) and set(found) == {"columns", "lists"}:
            return DeviceListsQuestion(_names(found["columns"]), _names(found["lists"]))
        if isinstance(found, dict) and {"column", "edges"} <= set(found) <= _OF_NUMBER:
            (column,) = _names([found["column"]])
            return DeviceNumberQuestion(column, _number_question(found))
        raise ValueError(
            "questions must be the text of a JSON object about lists or about a number"
        )


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


_OF_NUMBER = {"column", "edges", "fan_out", "quantiles", "between"}


def _names(found: Any) -> tuple[str, ...]:
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
    except UsageError as error:
        raise ValueError(f"questions: {error}") from None
    return wanted
