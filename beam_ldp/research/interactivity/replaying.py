"""What a log and a plan tell beyond sums of epsilons: likelihoods, and who read whose answers.

Where the kernels of all randomizers are known and answers are logged as the numbers of their
outputs, each person's filter is run over the own answers, in the order of publication: a question
fits if no answer to it could have moved the range of likelihoods above the promise
(`LikelihoodFilter`). Whose questions all fit is within the promise, whatever the epsilons sum to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from beam_ldp.protocols.interaction import asks_that_fit, check_kernel, hash_people
from beam_ldp.research.interactivity.kernels import pair_costs
from beam_ldp.research.interactivity.log_files import columns_of

MOST_RECORDS = 2_000_000  # held in memory
_MOST_PAIRS = 1 << 24  # of inputs, over all kernels
_NEEDED = ("seq", "user", "randomizer", "round", "output")


@dataclass(frozen=True)
class Replay:
    """What everybody's likelihood filter says.

    Attributes:
        over: people who were asked a question that did not fit the promise.
        most: largest range of log-likelihoods that one person's answers came to: what they tell of
            one datum or another.
    """

    over: int
    most: float


@dataclass(frozen=True)
class _Asked:
    """Queries in the order of publication, `(n,)`: numbers of people, kernels and answers."""

    people: np.ndarray
    kernels: np.ndarray
    answers: np.ndarray


def replay_logs(paths: Sequence[Path], kernels: Mapping[str, Any], epsilon: float) -> Replay | None:
    """Replay logs that were found sound.

    Time: queries times inputs times outputs. Memory: queries times inputs.

    Args:
        paths: of the logs.
        kernels: by name of the randomizer.
        epsilon: what everybody was promised.

    Returns:
        None where a filter cannot run: a randomizer without a kernel of positive probabilities,
        kernels of different inputs, an answer that is no output's number, or more than two million
        records.
    """
    tables = [columns_of(path, _NEEDED, MOST_RECORDS) for path in paths]
    rows = [row for table in tables if table is not None for row in table.to_pylist()]
    if None in tables or not rows or len(rows) > MOST_RECORDS:
        return None
    names = {name: number for number, name in enumerate(sorted({r["randomizer"] for r in rows}))}
    logs = _logs(kernels, list(names))
    asked = None if logs is None else _queries(rows, names, logs)
    return None if logs is None or asked is None else replay(asked, logs, epsilon)


def _logs(kernels: Mapping[str, Any], names: Sequence[str]) -> list[np.ndarray] | None:
    try:
        logs = [np.log(check_kernel(kernels[name])) for name in names]
    except (KeyError, ValueError):
        return None
    return logs if len({len(one) for one in logs}) == 1 else None


def _queries(
    rows: list[dict[str, Any]], names: Mapping[str, int], logs: Sequence[np.ndarray]
) -> _Asked | None:
    """The records without retries."""
    words = hash_people([row["user"] for row in rows]).tolist()
    seen, found = set(), []
    for row, word in sorted(zip(rows, words), key=lambda one: one[0]["seq"]):
        number, answer = names[row["randomizer"]], row["output"]
        if isinstance(answer, bool) or not isinstance(answer, int):
            return None
        if not 0 <= answer < logs[number].shape[1]:
            return None
        query = (row.get("run"), word, number, row["round"], answer)
        if query not in seen:
            seen.add(query)
            found.append((word, number, answer))
    people, kernels, answers = zip(*found)
    numbers = np.unique(np.array(people, dtype=np.uint64), return_inverse=True)[1]
    return _Asked(numbers, np.array(kernels), np.array(answers))


def replay(asked: _Asked, logs: Sequence[np.ndarray], epsilon: float) -> Replay:
    """Everybody's first question, then everybody's second, and so on."""
    size, inputs = int(asked.people.max()) + 1, len(logs[0])
    state = np.zeros((size, inputs))
    over, most = np.zeros(size, dtype=bool), 0.0
    order = np.argsort(asked.people, kind="stable")
    people = asked.people[order]
    turn = np.empty(len(people), dtype=np.int64)
    turn[order] = np.arange(len(people)) - np.searchsorted(people, people)
    for own in _parts(turn, asked.kernels):
        who, kernel = asked.people[own], logs[asked.kernels[own[0]]]
        over[who] |= ~asks_that_fit(state[who], kernel, epsilon)
        state[who] += kernel.T[asked.answers[own]]
        most = max(most, float(np.ptp(state[who], axis=1).max()))
    return Replay(int(over.sum()), most)


def _parts(turn: np.ndarray, kernels: np.ndarray) -> list[np.ndarray]:
    """Queries of one turn and one kernel together, the turns in order: each person once in each."""
    order = np.lexsort((kernels, turn))
    changes = (np.diff(turn[order]) != 0) | (np.diff(kernels[order]) != 0)
    return np.split(order, np.flatnonzero(changes) + 1)


def epsilon_of_plans(paths: Sequence[Path], kernels: Mapping[str, Any]) -> float | None:
    """What all answers of one person to the questions of plans tell, at most, and exactly.

    Source: specification of interactivity, section 2, item 2.

    Returns:
        None where that is not computed: a randomizer without a kernel of positive probabilities,
        kernels of different inputs or too large, or more than two million questions.
    """
    tables = [columns_of(path, ("user", "randomizer", "round"), MOST_RECORDS) for path in paths]
    rows = [row for table in tables if table is not None for row in table.to_pylist()]
    if None in tables or not rows or len(rows) > MOST_RECORDS:
        return None
    names = sorted({row["randomizer"] for row in rows})
    logs = _logs(kernels, names)
    if logs is None or len(names) * len(logs[0]) ** 2 > _MOST_PAIRS:
        return None
    costs = {name: pair_costs(kernels[name]) for name in names}
    words = hash_people([row["user"] for row in rows]).tolist()
    asked: dict[int, set[Any]] = {}
    for word, row in zip(words, rows):
        asked.setdefault(word, set()).add((row["randomizer"], row["round"], row.get("run")))
    different = {tuple(sorted(Counter(name for name, *_ in own).items())) for own in asked.values()}
    return max(float(np.max(sum(n * costs[name] for name, n in own))) for own in different)


# Which questions could have been asked at once, by what each of them really read ----------
#
# Every person's records become one node, with an arrow from each person whose answer was read.
# Where that graph has no cycle, each person can answer all own questions in one go, in topological
# order: the protocol is sequentially interactive as it is, at no cost. A cycle (one person's answer
# led to another one's question and that answer back) needs fresh people, or several visits.
#
# Sound only for a protocol whose graph is the same for all answers: one log shows one of them.


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
        table = columns_of(path, ("seq", "user", "depends_on"), MOST_RECORDS)
        if table is None or len(seqs) + table.num_rows > MOST_RECORDS:
            return None
        seqs += table.column("seq").to_pylist()
        users += map(str, table.column("user").to_pylist())
        reads += table.column("depends_on").to_pylist()
    return contract(seqs, users, reads) if seqs else None
