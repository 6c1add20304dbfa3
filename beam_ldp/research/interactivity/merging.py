"""Which questions of a log could have been asked at once, by what each of them really read.

Every person's records become one node, with an arrow from each person whose answer was read. Where
that graph has no cycle, each person can answer all own questions in one go, in topological order:
the protocol is sequentially interactive as it is, at no cost. A cycle (one person's answer led to
another one's question and that answer back) needs fresh people, or several visits.

Sound only for a protocol whose graph is the same for all answers: one log shows one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from beam_ldp.research.interactivity.log_files import columns_of

MOST_RECORDS = 2_000_000  # with `depends_on`, which are all held in memory


@dataclass(frozen=True)
class Contracted:
    """The graph of people, by what their questions read.

    Attributes:
        people: nodes.
        arrows: pairs of different people, of whom one's question read the other's answer.
        in_cycles: people on a cycle of several people.
    """

    people: int
    arrows: int
    in_cycles: int

    @property
    def acyclic(self) -> bool:
        """Whether everybody can answer all own questions at once."""
        return not self.in_cycles

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {**vars(self), "acyclic": self.acyclic}


def contract(
    seqs: Sequence[int], users: Sequence[Any], depends_on: Sequence[Sequence[int] | None]
) -> Contracted:
    """The graph of people.

    Args:
        seqs: of each record; records that share one are read together.
        users: whose each is.
        depends_on: the `seq`s that each question read.

    Raises:
        ValueError: if a question read what was not published before it.

    >>> contract([0, 1, 2], ["ada", "bob", "ada"], [[], [0], [1]]).acyclic
    False
    >>> contract([0, 1], ["ada", "ada"], [[], [0]]).acyclic
    True
    """
    numbers = {user: number for number, user in enumerate(dict.fromkeys(users))}
    of_seq: dict[int, set[int]] = {}
    for seq, user in zip(seqs, users):
        of_seq.setdefault(seq, set()).add(numbers[user])
    arrows = set()
    for seq, user, reads in zip(seqs, users, depends_on):
        for one in reads or ():
            if one >= seq or one not in of_seq:
                raise ValueError("depends_on must name answers with a smaller seq")
            arrows |= {(source, numbers[user]) for source in of_seq[one] - {numbers[user]}}
    size = len(numbers)
    if not arrows:
        return Contracted(size, 0, 0)
    sources, targets = np.array(sorted(arrows)).T
    graph = coo_array((np.ones(len(arrows), dtype=np.int8), (sources, targets)), (size, size))
    _, component = connected_components(graph, connection="strong")
    return Contracted(size, len(arrows), int((np.bincount(component)[component] > 1).sum()))


def contract_logs(paths: Sequence[Path]) -> Contracted | None:
    """The graph of logs; None if one has no `depends_on`, or they are too large.

    Raises:
        ValueError: if a question read what was not published before it.
    """
    seqs: list[int] = []
    users: list[str] = []
    reads: list[Any] = []
    for path in paths:
        table = columns_of(path, _NEEDED, MOST_RECORDS)
        if table is None or len(seqs) + table.num_rows > MOST_RECORDS:
            return None
        seqs += table.column("seq").to_pylist()
        users += map(str, table.column("user").to_pylist())
        reads += table.column("depends_on").to_pylist()
    return contract(seqs, users, reads) if seqs else None


_NEEDED = ("seq", "user", "depends_on")
