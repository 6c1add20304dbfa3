"""What each person was asked, added up: vectorised, mergeable, in bounded memory.

    logs ──▶ records ──by a hash of the person──▶ shards ──one by one──▶ tallies ──sum──▶ one

All records of a person lie in one shard, so a shard's tally is exact and tallies only add. Shards
are kept in memory as far as the bound allows, and on disk beyond it.

A record that repeats person, question and answer is a retry and counts once, at its largest cost;
one that repeats person and question with another answer is a second query, and flagged.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock

import numpy as np

from beam_ldp.protocols.interaction import mixed
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.research.interactivity.log_files import LogPart, parts_of, read_part
from beam_ldp.research.interactivity.records import NOT_LOGGED, ROW, UNKNOWN, About, Declared

WORKERS = 2
LEAST_MEMORY = 1 << 26
MOST_SHARDS = 4096
MOST_PROVENANCE = 1 << 20  # pairs kept of what was published and what was assigned
_DIGITS = 4  # of totals in the distribution, rounded up
_COPIES = 6  # of a shard, while it is added up


@dataclass(frozen=True)
class Claim:
    """What every person was promised, in the units of `RecordBlock`."""

    nano: int
    femto: int = 0


@dataclass(frozen=True, eq=False)
class Provenance:
    """What questions may have depended on, as far as the depth of adaptivity needs it.

    Attributes:
        assigned, seqs: `(n,)` int64, increasing both: of all records whose question was fixed
            after so much was published, the earliest.
        first: smallest `seq` of all records; None of none.
        unknown: records that do not say.
        cut: whether pairs were left out, so that the depth is at least what comes out.
    """

    assigned: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    seqs: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    first: int | None = None
    unknown: int = 0
    cut: bool = False

    @classmethod
    def of(cls, seqs: np.ndarray, assigned: np.ndarray) -> Provenance:
        """Of records."""
        if not len(seqs):
            return cls()
        unknown = int(np.count_nonzero(assigned == UNKNOWN))
        adaptive = assigned > 0
        frontier = _frontier(assigned[adaptive], seqs[adaptive])
        return cls(*frontier, int(seqs.min()), unknown)

    def __add__(self, other: Provenance) -> Provenance:
        together = _frontier(
            np.concatenate([self.assigned, other.assigned]),
            np.concatenate([self.seqs, other.seqs]),
        )
        cut = len(together[0]) > MOST_PROVENANCE
        if cut:
            together = (together[0][::2], together[1][::2])
        firsts = [one for one in (self.first, other.first) if one is not None]
        return Provenance(
            *together,
            min(firsts, default=None),
            self.unknown + other.unknown,
            self.cut or other.cut or cut,
        )

    @property
    def depth(self) -> int:
        """Waves: 1 + the longest chain of questions, each of which may have read the one before.

        A record is of wave w + 1 if its question was fixed after the first record of wave w. One
        step per wave.
        """
        if self.first is None:
            return 0
        depth, reached = 1, self.first
        while True:
            after = int(np.searchsorted(self.assigned, reached, side="right"))
            if after == len(self.assigned):
                return depth
            depth, reached = depth + 1, int(self.seqs[after])


def _frontier(assigned: np.ndarray, seqs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of which no other one was fixed later and published earlier; increasing."""
    if not len(assigned):
        return assigned, seqs
    order = np.lexsort((-seqs, assigned))[::-1]
    assigned, seqs = assigned[order], seqs[order]
    least = np.minimum.accumulate(seqs)
    kept = np.r_[True, least[1:] < least[:-1]]
    return assigned[kept][::-1], seqs[kept][::-1]


@dataclass(frozen=True, eq=False)
class Tally:
    """What is known of people together; tallies of different people add.

    Attributes:
        people: how many.
        records, queries: answers logged, and those that count: retries are not.
        retries: records with the answer of an earlier one to the same question.
        rerandomized: second answers to a question that differ from the first.
        unlogged: second answers of which nobody can tell, for they are not logged.
        by_queries: number of people by the queries of each.
        by_total: number of people by the sum of epsilons of each (1e-9), rounded up to four digits.
        nano: sum over people.
        most_nano, most_femto, largest_nano: most of one person in sum, and of one query.
        over: people over the claim, by more than rounding: whoever is within it never counts, and
            whoever exceeds it by a unit for each query always does.
        repeated, mergeable: people with several queries, and those of them whose questions were
            all fixed before their first answer.
        unplanned: records of questions that no plan has.
        provenance: what questions depended on.
    """

    people: int = 0
    records: int = 0
    queries: int = 0
    retries: int = 0
    rerandomized: int = 0
    unlogged: int = 0
    by_queries: Counter[int] = field(default_factory=Counter)
    by_total: Counter[int] = field(default_factory=Counter)
    nano: int = 0
    most_nano: int = 0
    most_femto: int = 0
    largest_nano: int = 0
    over: int = 0
    repeated: int = 0
    mergeable: int = 0
    unplanned: int = 0
    provenance: Provenance = field(default_factory=Provenance)

    def __add__(self, other: Tally) -> Tally:
        largest = {"most_nano", "most_femto", "largest_nano"}
        return Tally(
            **{
                name: max(mine, theirs) if name in largest else mine + theirs
                for name, mine in vars(self).items()
                for theirs in [getattr(other, name)]
            }
        )


def tally(rows: np.ndarray, claim: Claim, planned: np.ndarray | None = None) -> Tally:
    """The tally of all records of some people, in time n log n.

    Args:
        rows: `(n,)` of the type `ROW`: everything that these people were asked.
        claim: what each was promised.
        planned: `(m,)` questions of the plan about these people, of the same type; None where
            there is none.

    Raises:
        OverflowError: if the costs of one person exceed 9e9.
    """
    if not len(rows):
        return Tally()
    pairs = _pairs(rows)
    known = pairs if planned is None else _pairs(planned)
    unplanned = 0 if planned is None else int(np.count_nonzero(~np.isin(pairs, known)))
    records = len(rows)
    rows, rerandomized, unlogged = _without_retries(rows, pairs)
    people = rows["person"]
    order = np.argsort(people)
    people = people[order]
    starts = np.flatnonzero(np.r_[True, people[1:] != people[:-1]])
    counts = np.diff(np.r_[starts, len(people)])
    nano, femto = rows["nano"][order], rows["femto"][order]
    for costs in (nano, femto):
        if int(counts.max()) * int(costs.max()) >= 2**63:
            raise OverflowError("the costs of one person are beyond what is counted")
    nanos, femtos = (np.add.reduceat(costs, starts) for costs in (nano, femto))
    again = counts > 1
    rounding = counts - 1  # of n terms, each rounded up, more than that of their sum
    over = (nanos > claim.nano + rounding) | (femtos > claim.femto + rounding * bool(claim.femto))
    seqs, assigned = rows["seq"], rows["assigned"]
    # Fixed before the first answer; what does not say when, might have been fixed later.
    latest = np.where(assigned == UNKNOWN, np.iinfo(np.int64).max, assigned)
    fixed = np.maximum.reduceat(latest[order], starts) <= np.minimum.reduceat(seqs[order], starts)
    return Tally(
        people=len(starts),
        records=records,
        queries=len(rows),
        retries=records - len(rows),
        rerandomized=rerandomized,
        unlogged=unlogged,
        by_queries=_counted(counts),
        by_total=_counted(rounded_up(nanos)),
        nano=_exact_sum(nanos),
        most_nano=int(nanos.max()),
        most_femto=int(femtos.max()),
        largest_nano=int(nano.max()),
        over=int(np.count_nonzero(over)),
        repeated=int(np.count_nonzero(again)),
        mergeable=int(np.count_nonzero(again & fixed)),
        unplanned=unplanned,
        provenance=Provenance.of(seqs, assigned),
    )


def _pairs(rows: np.ndarray) -> np.ndarray:
    """A hash of person and question together.

    Not by the mixing alone that made both: person 1 in round 1 would cancel to person 0 in round 0.
    """
    return mixed(rows["person"] * np.uint64(0x9E3779B97F4A7C15) + rows["question"])


def _without_retries(rows: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Rows that count, and how many of them are second answers: other ones, and not logged ones."""
    ordered = np.sort(pairs)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(twice):
        return rows, 0, 0
    repeated = np.isin(pairs, twice)
    own = rows[repeated]
    own = own[np.lexsort((own["seq"], own["answer"], pairs[repeated]))]
    after, before = own[1:], own[:-1]
    asked_again = (after["person"] == before["person"]) & (after["question"] == before["question"])
    logged = (after["answer"] != NOT_LOGGED) & (before["answer"] != NOT_LOGGED)
    retry = asked_again & logged & (after["answer"] == before["answer"])
    starts = np.flatnonzero(np.r_[True, ~retry])
    kept = own[starts]
    for cost in ("nano", "femto"):
        kept[cost] = np.maximum.reduceat(own[cost], starts)
    second = asked_again & ~retry
    unlogged = int(np.count_nonzero(second & ~logged))
    found = np.concatenate([rows[~repeated], kept])
    return found, int(np.count_nonzero(second)) - unlogged, unlogged


def _counted(values: np.ndarray) -> Counter[int]:
    found, counts = np.unique(values, return_counts=True)
    return Counter(dict(zip(found.tolist(), counts.tolist())))


def _exact_sum(values: np.ndarray) -> int:
    """Of integers >= 0, whatever their number."""
    return (int(np.sum(values >> 32)) << 32) + int(np.sum(values & 0xFFFFFFFF))


def rounded_up(totals: np.ndarray) -> np.ndarray:
    """Totals to four significant digits, upward.

    >>> rounded_up(np.array([0, 7, 9999, 10001, 123456789])).tolist()
    [0, 7, 9999, 10010, 123500000]
    """
    unit = np.ones(len(totals), dtype=np.int64)
    for _ in range(19 - _DIGITS):
        unit = np.where(totals >= unit * 10**_DIGITS, unit * 10, unit)
    return -(-totals // unit) * unit


# Shards -------------------------------------------------------------------------------------------


class Shards:
    """Records by a hash of the person, in memory as far as the bound allows, and in files.

    Args:
        records: about how many are to come.
        memory: bytes for records, while they are read and while they are added up.
        folder: a new one, for files.
    """

    def __init__(self, records: int, memory: int, folder: Path) -> None:
        needed = 2 * WORKERS * _COPIES * ROW.itemsize * records / memory
        self.number = 1 << min(max(int(needed), 0).bit_length(), MOST_SHARDS.bit_length() - 1)
        self._held: list[list[np.ndarray]] = [[] for _ in range(self.number)]
        self._bytes, self._most = 0, memory // 2
        self._folder, self._lock = folder, Lock()
        folder.mkdir()

    def add(self, rows: np.ndarray) -> None:
        """Keep records."""
        shard = (rows["person"] & np.uint64(self.number - 1)).astype(np.uint16)
        order = np.argsort(shard, kind="stable")
        rows = rows[order]
        edges = np.searchsorted(shard[order], np.arange(1, self.number, dtype=np.uint16))
        with self._lock:
            for held, part in zip(self._held, np.split(rows, edges)):
                held.append(part)
            self._bytes += rows.nbytes
            if self._bytes > self._most:
                self._write()

    def _write(self) -> None:
        for shard, held in enumerate(self._held):
            with self._path(shard).open("ab") as file:
                for part in held:
                    part.tofile(file)
            held.clear()
        self._bytes = 0

    def _path(self, shard: int) -> Path:
        return self._folder / f"{shard:04d}"

    def rows(self, shard: int) -> np.ndarray:
        """All records of a shard; they are let go."""
        parts, path = self._held[shard], self._path(shard)
        self._held[shard] = []
        if path.exists():
            parts.append(np.fromfile(path, dtype=ROW))
        return np.concatenate(parts) if parts else np.empty(0, dtype=ROW)


# Logs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LogTally:
    """What logs hold.

    Attributes:
        people: the tally of everybody.
        declared: by name of the randomizer; None where there are more than 10,000.
        runs: how many runs the logs name; 0 where they name none.
        plan: the tally of the plan's questions; None without a plan.
        anonymous: whether people are ids of envelopes, of which nobody knows whose they are.
        refused: bytes of files of envelopes that are in none.
    """

    people: Tally
    declared: Mapping[str, Declared] | None
    runs: int
    plan: Tally | None = None
    anonymous: bool = False
    refused: int = 0


def tally_logs(
    paths: Sequence[Path],
    claim: Claim,
    *,
    memory: int = 1 << 30,
    plan: Sequence[Path] = (),
    releases: Mapping[Path, ReleaseTerms] | None = None,
) -> LogTally:
    """Read logs and add them up.

    Two threads; time n log n, 0.6 microseconds per record from Parquet. Memory: what is said,
    beside the interpreter, as long as no person alone has more records than a shard.

    Args:
        paths: files with records.
        claim: what everybody was promised.
        memory: bytes, at least 64 MiB.
        plan: files with the questions that were committed to before anybody was asked.
        releases: what files of envelopes are of; then all files are.

    Raises:
        MalformedLogError: for a row or line that is no record.
        OSError: if a file cannot be read, or the disk is full.
        ValueError: for too little memory, and for logs or a plan beside envelopes.
    """
    if memory < LEAST_MEMORY:
        raise ValueError(f"memory must be at least {LEAST_MEMORY >> 20} MiB, got {memory} bytes")
    if releases and (plan or not set(paths) <= set(releases)):
        raise ValueError("envelopes name nobody: neither logs nor a plan can be about their people")
    parts, records = parts_of(paths, releases)
    planned_parts, questions = parts_of(plan)
    about = About()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(WORKERS) as pool:
        log, committed = (
            Shards(records + questions, memory // (2 if plan else 1), Path(folder, name))
            for name in ("log", "plan")
        )
        for part in pool.map(partial(_read, shards=log), parts):
            about += part
        for _ in pool.map(partial(_read, shards=committed, planned=True), planned_parts):
            pass

        def add_up(shard: int) -> tuple[Tally, Tally]:
            rows = committed.rows(shard)
            mine = tally(log.rows(shard), claim, rows if plan else None)
            return mine, tally(rows, claim)

        both = list(pool.map(add_up, range(log.number)))
    people = merged(mine for mine, _ in both)
    return LogTally(
        people,
        about.declared,
        len(about.runs),
        merged(of_plan for _, of_plan in both) if plan else None,
        bool(releases),
        about.refused,
    )


def merged(tallies: Iterable[Tally]) -> Tally:
    """Of different people."""
    total = Tally()
    for one in tallies:
        total += one
    return total


def _read(part: LogPart, shards: Shards, planned: bool = False) -> About:
    """Records to their shards, and what else is known of them."""
    about = About()
    for block in read_part(part, planned=planned):
        shards.add(block.rows)
        about += block.about
    return about
