"""Release terms as they travel to the workers that write and read envelopes."""

from __future__ import annotations

from pathlib import Path

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.randomizers.wire_groups import AnyTerms, GroupTerms
from beam_ldp.transforms.portable import PortableDomain, PortableRandomizer

SUFFIX = ".ldp"
BINARY = "application/octet-stream"


class PortableTerms:
    """Release terms that travel as their parameters, and the public list of groups, if any."""

    def __init__(self, terms: ReleaseTerms, groups: Domain | str | Path | None) -> None:
        self.carried = PortableRandomizer(terms.randomizer)
        self._rest = (terms.identity, terms.simulated)
        self._groups = None if groups is None else PortableDomain(groups)

    @property
    def terms(self) -> ReleaseTerms:
        return ReleaseTerms(self.carried.randomizer, *self._rest)

    @property
    def of_groups(self) -> GroupTerms | None:
        """The terms of every group; None where there are no groups."""
        return None if self._groups is None else GroupTerms(self.terms, self._groups.load().labels)

    @property
    def any(self) -> AnyTerms:
        """The terms of every group, or the terms."""
        return self.of_groups or self.terms
