"""Release terms for tests that care about one thing alone."""

from __future__ import annotations

from typing import Any

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.wire import ReleaseTerms


def terms_of(
    randomizer: LocalRandomizer,
    release: str = "week-47",
    *,
    simulated: bool = False,
    **more: Any,
) -> ReleaseTerms:
    """The terms of a release that is known by its name."""
    named = {"dataset": "people", "mechanism": randomizer.config_digest().hex(), **more}
    return ReleaseTerms(randomizer, ReleaseIdentity(release_id=release, **named), simulated)
