"""Who of a new population was asked before, as one of another: looked up in the tags of its runs.

Tags of two populations cannot be compared with each other: each population has a key of its own.
Whoever holds the file's key and the ids of the new people can look each of them up. That is asked
before a budget is granted beside another one: somebody who is in both loses the sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from beam_ldp.ledger.books import Population
from beam_ldp.ledger.people import AskedPeople, Files, PeopleKey, folder_of, shards_of
from beam_ldp.randomizers.user_ids import AnyIds


@dataclass(frozen=True)
class AskedElsewhere:
    """How many of some people a population's runs have asked.

    Attributes:
        population: whose runs.
        people: how many different people were looked up.
        found: how many of them left a tag in one of its runs.
        runs, known: its runs that may have asked somebody, and those of them that ended and left a
            tag of everybody they asked, under this key. Whom the others asked nobody can tell.
    """

    population: str
    people: int
    found: int
    runs: int
    known: int

    def __str__(self) -> str:
        said = (
            f"{self.found:,} of {self.people:,} people were asked by runs about {self.population!r}"
        )
        if self.known == self.runs:
            return said
        return (
            f"{said}, as far as {self.known:,} of its {self.runs:,} runs tell: the others did "
            "not leave everybody's hashed id under this key"
        )


def asked_elsewhere(
    user_ids: AnyIds, key: bytes, store: str, files: Files, populations: Iterable[Population]
) -> list[AskedElsewhere]:
    """Look people up in the tags of other populations' runs.

    Args:
        user_ids: of the people of whom it is asked.
        key: what the key file holds; each population's own is derived from it.
        store: folder of all tags.
        files: where it lies.
        populations: with their charges, as a `LedgerState` has them.

    Raises:
        DamagedTagsError: if a file is not what was written.
        ValueError: if the key is too short.
    """
    return [_asked_by(user_ids, key, store, files, population) for population in populations]


def _asked_by(
    user_ids: AnyIds, key: bytes, store: str, files: Files, population: Population
) -> AskedElsewhere:
    theirs = PeopleKey(key, population.name)
    wanted = dict(shards_of(theirs.tags(user_ids)))
    found: dict[int, np.ndarray] = {}
    known = 0
    runs = [charge for charge in population.charges.values() if charge.local_epsilon > 0]
    for charge in runs:
        folder = folder_of(store, population.name, charge.group, charge.about.get("window"))
        asked = AskedPeople.open(files, folder)
        if asked.key_ids != {theirs.key_id}:
            continue
        reports = charge.about.get("num_reports")
        known += isinstance(reports, int) and asked.num_people >= reports
        for shard, tags in wanted.items():
            again = np.intersect1d(tags, asked.tags(shard), assume_unique=True)
            found[shard] = np.union1d(found.get(shard, again), again)
    return AskedElsewhere(
        population.name,
        sum(map(len, wanted.values())),
        sum(map(len, found.values())),
        len(runs),
        known,
    )
