"""Releases of public groups: the identity of each has the group in it, so each has its own digest.

The envelope has no field for a group and needs none: a collector that knows the public list of
groups knows all their digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from beam_ldp.randomizers.wire import (
    DIGEST_BYTES,
    Envelope,
    ReleaseTerms,
    check_prefix,
    open_envelope,
)


@dataclass(frozen=True)
class GroupTerms:
    """Release terms of all groups of a public list. All of it is public.

    Args:
        terms: what the groups share; its release is that of no group.
        groups: their names, in the order of their indices.

    Raises:
        ValueError: for no group, one that is named twice, and names that an identity refuses.

    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> from beam_ldp.randomizers.identity import ReleaseIdentity
    >>> from beam_ldp.randomizers.wire import encode_envelope
    >>> oracle = KRandomizedResponse(4, 2.0)
    >>> week = ReleaseIdentity("telemetry", "week-47", oracle.config_digest().hex())
    >>> terms = GroupTerms(ReleaseTerms(oracle, week), ("DE", "FR", "other"))
    >>> terms.decode(encode_envelope(terms.of(1), oracle.randomize([2])))[0]
    1
    """

    terms: ReleaseTerms
    groups: Sequence[str] = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", tuple(self.groups))
        if not all(self.groups) or not self.groups or len(set(self.groups)) < len(self.groups):
            raise ValueError("groups must be distinct names, at least one")
        if self.terms.identity.group:
            raise ValueError("terms must be those of no group")
        self.digests  # noqa: B018  (names that an identity refuses are refused here)

    @cached_property
    def digests(self) -> tuple[bytes, ...]:
        """What envelopes of each group carry."""
        of_group = self.terms.identity.of_group
        return tuple(of_group(group).digest[:DIGEST_BYTES] for group in self.groups)

    def of(self, group: int) -> ReleaseTerms:
        """The terms of one group, by its index."""
        return replace(self.terms, identity=self.terms.identity.of_group(self.groups[group]))

    def decode(self, data: bytes) -> tuple[int, Envelope]:
        """Index of the group and what the envelope held, every byte of it checked.

        Raises:
            EnvelopeError: as `decode_envelope`; for a group that is not in the list too.
        """
        group = check_prefix(self.terms.head, self.digests, data)
        return group, open_envelope(self.terms, data)


AnyTerms = ReleaseTerms | GroupTerms


def shared(terms: AnyTerms) -> ReleaseTerms:
    """What all groups share; the terms themselves where there are none."""
    return terms.terms if isinstance(terms, GroupTerms) else terms


def digests_of(terms: AnyTerms) -> tuple[bytes, ...]:
    """What envelopes may carry: a digest for each group."""
    return terms.digests if isinstance(terms, GroupTerms) else (terms.digest,)
