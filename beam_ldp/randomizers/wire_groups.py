"""Releases of public groups: each group is a release of its own, known by the digest it carries.

The envelope has no field for a group and needs none: the release of the group `DE` of the release
`week-47` has the name `week-47`, a line feed, `DE`. A collector that knows the public list of
groups knows all their digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from beam_ldp.randomizers.wire import (
    DIGEST_BYTES,
    OTHER_RELEASE,
    PREFIX_BYTES,
    Envelope,
    EnvelopeError,
    ReleaseTerms,
    check_prefix,
    open_envelope,
    release_digest_of,
)

_HEAD_BYTES = PREFIX_BYTES - DIGEST_BYTES  # what all groups share


def group_release_id(release_id: str, group: str) -> str:
    """Name of the release that a group of a release is.

    Raises:
        ValueError: for a line feed in either name: two groups could then be one release.

    >>> group_release_id("week-47", "DE")
    'week-47\\nDE'
    """
    for name, value in (("release_id", release_id), ("group", group)):
        if "\n" in value:
            raise ValueError(f"{name} must have no line feed in it, where there are groups")
    return f"{release_id}\n{group}"


@dataclass(frozen=True)
class GroupTerms:
    """Release terms of all groups of a public list. All of it is public.

    Args:
        terms: what the groups share; its release is that of no group.
        groups: their names, in the order of their indices.

    Raises:
        ValueError: for no group, one that is named twice, and a line feed in a name.

    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> from beam_ldp.randomizers.wire import encode_envelope
    >>> shared = ReleaseTerms(KRandomizedResponse(4, 2.0), "week-47")
    >>> terms = GroupTerms(shared, ("DE", "FR", "other"))
    >>> sent = encode_envelope(terms.of(1), shared.randomizer.randomize([2]))
    >>> terms.decode(sent)[0]
    1
    """

    terms: ReleaseTerms
    groups: Sequence[str] = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        if not self.groups or len(set(self.groups)) < len(self.groups):
            raise ValueError("groups must be distinct names, at least one")
        group_release_id(self.terms.release_id, "".join(self.groups))

    @cached_property
    def _head(self) -> bytes:
        return self.terms.prefix[:_HEAD_BYTES]

    @cached_property
    def _index(self) -> dict[bytes, int]:
        names = (group_release_id(self.terms.release_id, group) for group in self.groups)
        return {release_digest_of(name): i for i, name in enumerate(names)}

    def of(self, group: int) -> ReleaseTerms:
        """The terms of one group, by its index."""
        name = group_release_id(self.terms.release_id, self.groups[group])
        return replace(self.terms, release_id=name)

    def begins_at(self, data: bytes, at: int) -> bool:
        """Whether an envelope of one of the groups begins there."""
        if not data.startswith(self._head, at):
            return False
        return data[at + _HEAD_BYTES : at + PREFIX_BYTES] in self._index

    def find_begin(self, data: bytes, start: int, stop: int) -> int:
        """Where an envelope of one of the groups begins, with all of its first bytes before `stop`;
        -1 if nowhere."""
        while 0 <= (at := data.find(self._head, start, stop)) <= stop - PREFIX_BYTES:
            if self.begins_at(data, at):
                return at
            start = at + 1
        return -1

    def envelope_bytes(self, num_reports: int) -> int:
        """Length of an envelope, the same for all groups."""
        return self.terms.envelope_bytes(num_reports)

    def decode(self, data: bytes) -> tuple[int, Envelope]:
        """Index of the group and what the envelope held, every byte of it checked.

        Raises:
            EnvelopeError: as `decode_envelope`; for a group that is not in the list too.
        """
        if not self.begins_at(data, 0):
            check_prefix(self.terms, data)  # says what is wrong,
            raise EnvelopeError(OTHER_RELEASE)  # or it names the release and none of its groups
        group = self._index[data[_HEAD_BYTES:PREFIX_BYTES]]
        return group, open_envelope(self.terms, data)
