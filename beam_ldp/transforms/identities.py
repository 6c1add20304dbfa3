"""What a composite or a device releases: the identity under which noise is drawn and charged."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.identity import (
    ONE_ROW_DECLARED,
    ROW,
    ReleaseIdentity,
    digest_of,
    one_row_of,
)
from beam_ldp.settings import Noise, People
from beam_ldp.transforms.device.noise import read_key
from beam_ldp.transforms.elements.portable import PortableDomain

if TYPE_CHECKING:
    from beam_ldp.transforms.budgeted import ChargeTo


def bounding_of(people: People, privacy_unit: str = "user") -> str:
    """The rule that bounds what one person contributes, as identities name it."""
    if people.id is not None:
        return one_row_of(people.id)
    return ONE_ROW_DECLARED if people.one_row and privacy_unit == "user" else ROW


def release_identity(
    mechanism: bytes,
    *,
    columns: Sequence[str],
    values_digest: Callable[[], bytes],
    people: People,
    noise: Noise,
    bounding: str,
    privacy_unit: str = "user",
    budget: ChargeTo | None = None,
) -> ReleaseIdentity | None:
    """What is released; None where nobody named it, and so nothing can go by its name.

    It is committed to the secret key where that can be read here, and must be where a budget is
    charged: the ledger keeps the commitment.

    Args:
        mechanism: digest of its configuration.
        columns: what is asked for.
        values_digest: gives the digest of what reports are about; asked only where it is needed,
            for it may read a file.
        people, noise: as for the composites.
        bounding: the rule that bounds contributions.
        privacy_unit, budget: as for the composites; a budget says the data set and the unit.

    Raises:
        ValueError: if noise is memoized and no data set or release is named.
    """
    dataset, release_id = noise.dataset, noise.id
    if budget is not None:
        if dataset not in ("", budget.dataset):
            raise ValueError("dataset must be the one of the budget, or be left out")
        dataset, privacy_unit = budget.dataset, budget.privacy_unit
        if not noise.memoized:  # so a run is a release of its own
            release_id = release_id or budget.run_id or uuid.uuid4().hex
    for name, value in (("dataset", dataset), ("release_id", release_id)):
        if noise.memoized and not value:
            raise ValueError(f"{name} must be a declared name where noise is memoized")
    if not (dataset and release_id):
        return None
    identity = ReleaseIdentity(
        dataset,
        release_id,
        mechanism.hex(),
        tuple(columns),
        values_digest().hex(),
        groups_digest(people).hex(),
        bounding,
        privacy_unit=privacy_unit,
    )
    if noise.key_file is None:
        return identity
    try:
        return identity.committed(read_key(noise.key_file))
    except ValueError:
        if budget is not None:
            raise
        return identity  # the key is where the workers are; they check it


def of_release(
    randomizer: LocalRandomizer, identity: ReleaseIdentity | None
) -> tuple[LocalRandomizer, ReleaseIdentity | None]:
    """The mechanism with the public seeds of its release, and the identity with its digest.

    A release that nobody named has no seeds of its own.
    """
    if identity is None:
        return randomizer, None
    own = randomizer.for_release(identity)
    return own, replace(identity, mechanism=own.config_digest().hex())


def groups_digest(people: People) -> bytes:
    """16 bytes for the public list of groups and the column that holds a person's; none without."""
    if people.groups is None:
        return b""
    return digest_of((people.group_by or "").encode(), PortableDomain(people.groups).digest)
