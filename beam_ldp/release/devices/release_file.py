"""`release.json`: what devices and collector agreed upon, beyond what an envelope can say.

The terms of the release (docs/wire-format.md), and beside them what the numbers of a mean are, what
several questions or the bins of a number are, which groups there are, and whether a person's report
is about one row that was drawn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from apache_beam.io.filesystems import FileSystems

import beam_ldp.randomizers.frequency
import beam_ldp.randomizers.mean  # noqa: F401  (so that configurations of all kinds can be read)
from beam_ldp.questions.heavy_hitters import PublishedWords
from beam_ldp.questions.means import PublishedShares
from beam_ldp.questions.published import Published
from beam_ldp.randomizers.base import FrequencyOracle, Sampling
from beam_ldp.randomizers.frequency.recoverable_response import RecoverableResponse
from beam_ldp.randomizers.identity import ReleaseIdentity, digest_of
from beam_ldp.randomizers.mean import MeanRandomizer
from beam_ldp.randomizers.mean.ranges import CoordinateRanges
from beam_ldp.randomizers.questions import Questions
from beam_ldp.randomizers.wire import DIGEST_BYTES, ReleaseTerms
from beam_ldp.settings import SettingError
from beam_ldp.transforms.files import reason

RELEASE_FILE = "release.json"


@dataclass(frozen=True)
class Coordinates:
    """What the numbers of a vector are. Public.

    Attributes:
        names: one per number.
        ranges: public ranges, where each number lies in one; None where a norm bounds them.
    """

    names: tuple[str, ...]
    ranges: CoordinateRanges | None = None

    @property
    def text(self) -> str:
        """As JSON."""
        found: dict[str, Any] = {"columns": list(self.names)}
        if self.ranges is not None:
            found |= {"low": list(self.ranges.low), "high": list(self.ranges.high)}
        return json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def values(self) -> bytes:
        """The digest of the ranges, as the identity of the release has it."""
        return b"" if self.ranges is None else self.ranges.digest

    @classmethod
    def from_text(cls, text: Any) -> Coordinates:
        """Inverse of `text`. Raises ValueError."""
        found = json.loads(text) if isinstance(text, str) else None
        if not isinstance(found, dict) or not set(found) <= {"columns", "low", "high"}:
            raise ValueError("coordinates must be the text of a JSON object")
        names = found.get("columns")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("coordinates must name columns")
        if not names:
            raise ValueError("coordinates must name at least one column")
        ranges = None
        if "low" in found or "high" in found:
            try:
                ranges = CoordinateRanges(found["low"], found["high"])
            except (KeyError, TypeError):
                raise ValueError("coordinates: low and high must be lists of numbers") from None
        return cls(tuple(names), ranges)


@dataclass(frozen=True)
class ReleaseFile:
    """All that `release.json` holds.

    Attributes:
        terms: of the release. Its identity must be of these coordinates, questions and groups.
        sampling: "iid" where a person has one report about one of their rows, drawn at random.
        coordinates: of a mean.
        group_by: column of the public group, where every report is of one.
        groups_digest: of the public list of groups, 16 bytes.
        asked: of several questions, of a number in bins, or of a mean in shares.
    """

    terms: ReleaseTerms
    sampling: Sampling = "fixed"
    coordinates: Coordinates | None = None
    group_by: str | None = None
    groups_digest: bytes | None = None
    asked: Published | None = None

    def __post_init__(self) -> None:
        randomizer, identity = self.terms.randomizer, self.terms.identity
        in_shares = isinstance(self.asked, PublishedShares)
        if not (randomizer.protects_alone or in_shares):
            raise ValueError("release terms of shares lack what people are promised")
        if isinstance(randomizer, MeanRandomizer) and (self.asked is None or in_shares):
            self._check_coordinates(randomizer, in_shares)
        elif not isinstance(randomizer, FrequencyOracle | Questions | MeanRandomizer):
            raise ValueError("release terms are about neither frequencies nor a mean")
        elif self.coordinates is not None:
            raise ValueError("release terms contradict themselves: only a mean has coordinates")
        self._check_asked()
        if (self.group_by is None) != (self.groups_digest is None):
            raise ValueError("group_by and groups_digest belong together")
        groups = b""
        if self.group_by is not None and self.groups_digest is not None:
            groups = digest_of(self.group_by.encode(), self.groups_digest)
        if groups.hex() != identity.groups or identity.group:
            raise ValueError("release terms contradict themselves: groups")
        if self.sampling not in ("fixed", "iid"):
            raise ValueError('sampling must be "fixed" or "iid"')

    def _check_coordinates(self, randomizer: MeanRandomizer, in_shares: bool) -> None:
        """Of a mean. The identity holds their ranges; that of shares has a promise instead."""
        identity, coordinates = self.terms.identity, self.coordinates
        if coordinates is None:
            raise ValueError("release terms of a mean lack coordinates")
        if in_shares and coordinates.ranges is not None:
            raise ValueError("release terms contradict themselves: shares have no ranges")
        if not in_shares and coordinates.values.hex() != identity.values:
            raise ValueError("release terms contradict themselves: coordinates")
        if coordinates.names != labels_of(identity.columns, randomizer.dimension):
            raise ValueError("release terms contradict themselves: names of coordinates")
        if coordinates.ranges is not None:
            coordinates.ranges.check_fits(randomizer)

    def _check_asked(self) -> None:
        if self.asked is None:
            if isinstance(self.terms.randomizer, Questions):
                raise ValueError("release terms of several questions lack questions")
            return
        identity = self.terms.identity
        if (self.asked.asked_columns, self.asked.values.hex()) != (
            identity.columns, identity.values,
        ):  # fmt: skip
            raise ValueError("release terms contradict themselves: questions")
        self.asked.check_fits(self.terms.randomizer)

    @property
    def recoverable(self) -> bool:
        """Whether the holder of the release's key can turn each report back into its value."""
        return isinstance(self.terms.randomizer, RecoverableResponse)

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        found: dict[str, Any] = {**self.terms.to_json(), "sampling": self.sampling}
        if self.coordinates is not None:
            found["coordinates"] = self.coordinates.text
        if self.asked is not None:
            found["questions"] = self.asked.text
        if self.groups_digest is not None:
            found |= {"group_by": self.group_by, "groups_digest": self.groups_digest.hex()}
        if self.recoverable:
            found["recoverable"] = True
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ReleaseFile:
        """Inverse of `to_json`.

        Raises:
            ValueError: if something is missing, unknown, or contradicts something else.
        """
        coordinates, digest = found.get("coordinates"), found.get("groups_digest")
        if digest is not None:
            digest = bytes.fromhex(digest) if isinstance(digest, str) else b""
            if len(digest) != DIGEST_BYTES:
                raise ValueError(f"groups_digest must be {DIGEST_BYTES} bytes in hexadecimal")
        group_by = found.get("group_by")
        if group_by is not None and not (isinstance(group_by, str) and group_by):
            raise ValueError("group_by must name a column")
        made = cls(
            ReleaseTerms.from_json(found),
            found.get("sampling", "fixed"),
            None if coordinates is None else Coordinates.from_text(coordinates),
            group_by,
            digest,
            None if found.get("questions") is None else Published.from_text(found["questions"]),
        )
        if found.get("recoverable", False) is not made.recoverable:
            raise ValueError("release terms contradict themselves: recoverable")
        return made


def load_release(path: str) -> ReleaseFile:
    """What a `release.json` holds.

    Raises:
        SettingError: if it cannot be read, or contradicts itself.
    """
    try:
        with FileSystems.open(path, "application/octet-stream") as file:
            content = file.read()
    except Exception as error:
        raise SettingError(f"--release {path}: cannot be read ({reason(path, error)})") from None
    try:
        found = json.loads(content)
        if not isinstance(found, dict):
            raise ValueError("no JSON object")
        return ReleaseFile.from_json(found)
    except (ValueError, RecursionError) as error:
        raise SettingError(f"--release {path}: {error}") from None


def labels_of(columns: Sequence[str], dimension: int) -> tuple[str, ...]:
    """Names of the numbers: those of their columns, or their places in a column of lists."""
    return tuple(columns) if len(columns) == dimension else tuple(map(str, range(dimension)))


def release_of_level(asked: PublishedWords, search: ReleaseIdentity) -> ReleaseFile:
    """One level of a search as it is published.

    Args:
        asked: the level.
        search: the names of the search; what tells its levels apart is filled in.
    """
    oracle = asked.asked.oracle
    identity = replace(
        search,
        mechanism=oracle.config_digest().hex(),
        columns=asked.asked_columns,
        values=asked.values.hex(),
        part=f"level {asked.level + 1}",
    )
    return ReleaseFile(ReleaseTerms(oracle, identity), asked=asked)
