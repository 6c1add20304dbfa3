"""Numbers in public bins, and trees over them: what is asked, and what is published of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from beam_ldp.questions.published import Published, names_in
from beam_ldp.randomizers.base import FrequencyOracle, LocalRandomizer
from beam_ldp.randomizers.domain import Bins
from beam_ldp.randomizers.hierarchy import Hierarchy
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.randomizers.questions import Questions
from beam_ldp.settings import SettingError


@dataclass(frozen=True)
class NumberQuestion:
    """What is asked about the numbers.

    Attributes:
        bins: the public edges.
        quantiles: levels in (0, 1).
        ranges: `(low, high)`, edges or infinities.
        fan_out: of the tree; None for the best.
    """

    bins: Bins
    quantiles: tuple[float, ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()
    fan_out: int | None = None

    @property
    def needs_tree(self) -> bool:
        """Whether more than a histogram is asked for."""
        return bool(self.quantiles or self.ranges)


def check_number_question(wanted: NumberQuestion) -> None:
    """A SettingError unless the bins can tell what is asked."""
    if not wanted.needs_tree:
        if wanted.fan_out is not None:
            raise SettingError("--fan-out needs --quantiles or --between")
        return
    if not all(0 < level < 1 for level in wanted.quantiles):
        raise SettingError("--quantiles must be numbers in (0, 1), separated by commas")
    try:
        tree = Hierarchy(wanted.bins, 2 if wanted.fan_out is None else wanted.fan_out)
    except ValueError as error:
        raise SettingError(f"--bins: {error}") from None
    edges = (*tree.bins.edges, -math.inf, math.inf)
    for low, high in wanted.ranges:
        if low not in edges or high not in edges or not low < high:
            raise SettingError(
                f"--between {low:g}:{high:g}: both must be edges of --bins (or inf), increasing"
            )


def tree_digest(tree: Hierarchy) -> bytes:
    """16 bytes that identify bins and the tree over them."""
    return digest_of(b"tree", tree.bins.digest, b"%d" % tree.fan_out)


@dataclass(frozen=True)
class PublishedNumber(Published):
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
    def from_json(cls, found: dict[str, Any]) -> PublishedNumber:
        (column,) = names_in([found["column"]])
        return cls(column, _number_question(found))

    @property
    def asked_columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def values(self) -> bytes:
        bins, fan_out = self.wanted.bins, self.wanted.fan_out
        return bins.digest if fan_out is None else digest_of(tree_digest(Hierarchy(bins, fan_out)))

    def check_fits(self, randomizer: LocalRandomizer) -> None:
        found: tuple[int, ...] = ()
        bins, fan_out = self.wanted.bins, self.wanted.fan_out
        if isinstance(randomizer, Questions) and fan_out is not None:
            found = randomizer.domain_sizes
        elif isinstance(randomizer, FrequencyOracle) and fan_out is None:
            found = (randomizer.domain_size,)
        if found != ((bins.size,) if fan_out is None else Hierarchy(bins, fan_out).sizes):
            raise ValueError("release terms contradict themselves: number of bins")


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
