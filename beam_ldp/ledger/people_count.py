"""How much each person was charged locally: counted from tags, as a row of the ledger holds it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from beam_ldp.ledger.accounts import Sum
from beam_ldp.ledger.charges import Charge
from beam_ldp.ledger.people import NUM_SHARDS, AskedPeople, Files, folder_of

MOST_SUMS = 64  # different sums in a distribution; more are rounded up to so many
_DIGITS = 12  # of a sum: floats that differ later are one


@dataclass(frozen=True)
class PeopleCount:
    """The local ledger of a population in one period, person by person.

    Attributes:
        maximum: the largest sum of local epsilons of one person, over the runs counted.
        distribution: `(sum, people)`, rising; with more than 64 different sums they are rounded up.
        num_people: people who were asked by any of the runs counted.
        covered: `(charge, people)`: number of each charge that is counted, and whom it asked.
        key_id: of the key that made the tags, hexadecimal.
        digest: of all tags.
        exact: whether the sums are as they are, and not rounded up.
        left_out: run ids that are not counted, and why; empty when read from a row.
    """

    maximum: float
    distribution: tuple[tuple[float, int], ...]
    num_people: int
    covered: tuple[tuple[int, int], ...]
    key_id: str
    digest: str
    exact: bool = True
    left_out: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def numbers(self) -> frozenset[int]:
        """Numbers of the charges that are counted."""
        return frozenset(number for number, _ in self.covered)

    def quantile(self, share: float) -> float:
        """The least sum that this share of the people does not exceed."""
        seen = 0
        for total, people in self.distribution:
            seen += people
            if seen >= share * self.num_people:
                return total
        return self.maximum

    def to_json(self) -> dict[str, Any]:
        """As a row holds it."""
        return {
            "maximum": self.maximum,
            "distribution": [list(pair) for pair in self.distribution],
            "num_people": self.num_people,
            "covered": [list(pair) for pair in self.covered],
            "key_id": self.key_id,
            "digest": self.digest,
            "exact": self.exact,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> PeopleCount:
        """Inverse of `to_json`."""
        return cls(
            maximum=float(told["maximum"]),
            distribution=tuple((float(total), int(n)) for total, n in told["distribution"]),
            num_people=int(told["num_people"]),
            covered=tuple((int(number), int(n)) for number, n in told["covered"]),
            key_id=str(told["key_id"]),
            digest=str(told["digest"]),
            exact=bool(told["exact"]),
        )

    def check(self, charges: Mapping[int, Charge]) -> None:
        """A ValueError unless this can be true of these charges, which are by number.

        The sums of all people and those of all charges are the same money.
        """
        if len(self.numbers) != len(self.covered) or not self.numbers <= charges.keys():
            raise ValueError("people were counted for charges that have not ended")
        sums = [total for total, _ in self.distribution]
        people = [n for _, n in self.distribution]
        if (
            sums != sorted(set(sums))
            or sum(people) != self.num_people
            or min(people, default=1) < 1
        ):
            raise ValueError("a distribution must hold rising sums and all people")
        if not (math.isfinite(self.maximum) and self.maximum == (sums[-1] if sums else 0.0)):
            raise ValueError("the maximum must be the largest sum")
        asked = math.fsum(charges[number].local_epsilon * n for number, n in self.covered)
        charged = math.fsum(total * n for total, n in self.distribution)
        if charged < asked * (1 - 1e-9) or (self.exact and charged > asked * (1 + 1e-9)):
            raise ValueError("the sums of people must be the sums of charges")


def covered_local(counted: PeopleCount, charges: Mapping[int, Charge]) -> Sum:
    """The sum of the local epsilons of the charges that are counted, exactly."""
    total = Sum()
    for number in counted.numbers:
        total.add(charges[number].local_epsilon, charges[number].count)
    return total


def count_people(
    store: str, files: Files, population: str, charges: Sequence[Charge]
) -> PeopleCount:
    """Count what each person was charged by runs that have ended.

    Reads every tag three times, a shard at a time: memory is that of all runs' tags in one of 64
    shards; time is that of sorting them.

    Args:
        store: folder of all tags.
        files: where it lies.
        population: whose people.
        charges: those of a period that have ended.

    Raises:
        DamagedTagsError: if a file is not what was written.
    """
    left_out: dict[str, str] = {}
    asked: list[tuple[Charge, AskedPeople]] = []
    for charge in charges:
        if 0 < charge.local_epsilon < math.inf:
            folder = folder_of(store, population, charge.group, charge.about.get("window"))
            asked.append((charge, AskedPeople.open(files, folder)))
    newest = max((c.number for c, found in asked if found.names), default=None)
    keys = next((found.key_ids for c, found in asked if c.number == newest), frozenset())
    covered: list[tuple[Charge, AskedPeople, int]] = []
    for charge, found in asked:
        why = _unusable(charge, found, keys)
        if why is None:
            covered.append((charge, found, found.num_people))
        else:
            left_out[charge.run_id] = why
    sums: dict[float, int] = {}
    for shard in range(NUM_SHARDS):
        for total, people in _sums_of_shard(shard, covered):
            sums[total] = sums.get(total, 0) + people
    return PeopleCount(
        maximum=max(sums, default=0.0),
        distribution=_rounded_up(sums) if len(sums) > MOST_SUMS else tuple(sorted(sums.items())),
        exact=len(sums) <= MOST_SUMS,
        num_people=sum(sums.values()),
        covered=tuple((charge.number, n) for charge, _, n in covered),
        key_id=next(iter(keys)).hex() if covered else "",
        digest=_digest([found for _, found, _ in covered]),
        left_out=left_out,
    )


class FewerPeopleError(ValueError):
    """More reports came than people left hashes: somebody reported twice, or hashes are missing."""


def check_people(asked: AskedPeople, num_reports: int) -> None:
    """Every report is another person's: whoever is asked leaves a hash before anything is drawn.

    Raises:
        FewerPeopleError: if fewer people left hashes than reports came.
        DamagedTagsError: if a file is not what was written.
    """
    found = asked.num_people
    if found < num_reports:
        raise FewerPeopleError(
            f"{num_reports:,} reports came and {found:,} people left hashed ids: somebody reported "
            "twice, or hashes are missing"
        )


def _unusable(charge: Charge, found: AskedPeople, keys: frozenset[bytes]) -> str | None:
    """Why a run's tags cannot be counted; None if they can."""
    if not found.names:
        return "it left no hashed ids"
    if len(found.key_ids) != 1 or found.key_ids != keys:
        return "its ids were hashed with another key than those of the newest run"
    reports = charge.about.get("num_reports")
    if not isinstance(reports, int):
        return "it does not say how many reports came"
    if found.num_people < reports:
        return "it left fewer hashed ids than reports came"
    return None


def _sums_of_shard(
    shard: int, covered: Sequence[tuple[Charge, AskedPeople, int]]
) -> list[tuple[float, int]]:
    tags = [found.tags(shard) for _, found, _ in covered]
    if not any(map(len, tags)):
        return []
    prices = np.repeat([charge.local_epsilon for charge, _, _ in covered], list(map(len, tags)))
    _, person = np.unique(np.concatenate(tags), return_inverse=True)
    sums, people = np.unique(np.bincount(person, weights=prices), return_counts=True)
    return [(float(f"{s:.{_DIGITS}g}"), int(n)) for s, n in zip(sums.tolist(), people.tolist())]


def _rounded_up(sums: Mapping[float, int]) -> tuple[tuple[float, int], ...]:
    """The distribution with sums rounded up to an even grid that ends at the largest."""
    largest = max(sums)
    rounded: dict[float, int] = {}
    for total, people in sums.items():
        step = math.ceil(total / largest * MOST_SUMS)
        step += largest * step / MOST_SUMS < total
        edge = largest if step >= MOST_SUMS else largest * step / MOST_SUMS
        rounded[edge] = rounded.get(edge, 0) + people
    return tuple(sorted(rounded.items()))


def _digest(asked: Sequence[AskedPeople]) -> str:
    return hashlib.sha256("\n".join(found.digest for found in asked).encode()).hexdigest()
