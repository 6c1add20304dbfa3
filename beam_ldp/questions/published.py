"""A question as release.json publishes it, beyond what an envelope can say: several lists, a
number, one level of a search for words, or a mean in shares and what its senders are promised. The
text of it is digested to what stands in the release's identity."""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from beam_ldp.randomizers.base import LocalRandomizer


class Published(ABC):
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
    def from_json(cls, found: dict[str, Any]) -> Published:
        """Inverse of `to_json`, whose keys are there. Raises ValueError."""

    @staticmethod
    def from_text(text: Any) -> Published:
        """Inverse of `text`. Raises ValueError."""
        found = json.loads(text) if isinstance(text, str) else None
        keys = frozenset(found) if isinstance(found, dict) else frozenset()
        kind = next((kind for least, most, kind in _KINDS if least <= keys <= most), None)
        if kind is None:
            raise ValueError(
                "questions must be the text of a JSON object about lists, a number, an experiment, "
                "a bandit's batch, words or shares"
            )
        made: Published = place(kind).from_json(found)
        return made


def place(named: str) -> Any:
    """What "module:name" names; other rooms are loaded where they are met."""
    module, name = named.split(":")
    return getattr(importlib.import_module(module), name)


def names_in(found: Any) -> tuple[str, ...]:
    """Names of a list that may hold anything. Raises ValueError."""
    if not isinstance(found, list) or not all(isinstance(name, str) and name for name in found):
        raise ValueError("questions must be a list of names, and lists a list of digests")
    return tuple(found)


def _only(*keys: str) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(keys), frozenset(keys)


# By the keys that their text has at least and at most.
_KINDS = (
    (*_only("columns", "lists"), "beam_ldp.questions.surveys:PublishedLists"),
    (
        frozenset(("column", "edges")),
        frozenset(("column", "edges", "fan_out", "quantiles", "between")),
        "beam_ldp.questions.bins:PublishedNumber",
    ),
    (*_only("columns", "promised", "trusted"), "beam_ldp.questions.means:PublishedShares"),
    (
        *_only("column", "search", "candidates", "received", "min_reports", "honest_fraction"),
        "beam_ldp.questions.heavy_hitters:PublishedWords",
    ),
    (
        *_only("column", "plan", "look"),
        "beam_ldp.decisions.outcomes:OutcomeOnDevices",
    ),
    (
        *_only("column", "batch", "plays"),
        "beam_ldp.decisions.rewards:RewardOnDevices",
    ),
)
