"""The elements that travel between the stages: blocks of many users, one class per stage.

A pipeline that skips a stage fails when it is built, because the classes are distinct:

    TableBlock -> ValueBlock -> ReportBlock
        -> ShuffledBlock | ShuffledSum -> StatisticBlock -> Release

Every class has a registered, deterministic coder (`block_coder`): raw array bytes in the smallest
dtype, no pickle, a version byte in front.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from beam_ldp.questions.columns import by_kind
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.identity import canonical_ids
from beam_ldp.transforms.elements.block_coder import (
    INTEGER,
    JSON,
    BlockReader,
    FieldType,
    register,
    travels,
)


@travels
@dataclass(frozen=True, eq=False)
class TableBlock:
    """Rows as they were read: not private yet.

    Attributes:
        source: where the rows come from, usually a file name; the same on every retry.
        first_position: position of the first row in the source; the others follow one by one.
        batch: the rows, as an Arrow record batch.
    """

    source: str
    first_position: int
    batch: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.batch.num_rows)


@travels
@dataclass(frozen=True, eq=False)
class ValueBlock:
    """Raw values of many users, ready for `Randomize`. Not private yet.

    Attributes:
        values: `(n,)` indices or numbers, or `(n, dimension)` vectors, in the input domain of the
            mechanism.
        user_ids: `(n,)` int64, or `(n,)` object array of bytes, in which integers are their digits;
            None where each row is a person. What they may be given as: `randomizers.user_ids`.
        groups: `(n,)` indices in the public list of groups; None where there is one histogram.
        source: where the rows come from; the same on every retry.
        positions: `(n,)` position of each row in the source; None where that is unknown.
    """

    values: np.ndarray
    user_ids: np.ndarray | None = None
    groups: np.ndarray | None = None
    source: str = ""
    positions: np.ndarray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", np.asarray(self.values))
        if self.user_ids is not None:
            object.__setattr__(self, "user_ids", _as_ids(self.user_ids))
        for name in ("user_ids", "groups", "positions"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.values):
                raise ValueError(f"{name} must hold one entry per value")

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, start: int, stop: int) -> ValueBlock:
        """The rows start <= i < stop as a block of their own."""
        return self.where(slice(start, stop))

    def where(self, rows: np.ndarray | slice) -> ValueBlock:
        """Some of the rows as a block of their own."""
        columns = (self.user_ids, self.groups, self.positions)
        ids, groups, positions = (None if c is None else c[rows] for c in columns)
        return ValueBlock(self.values[rows], ids, groups, self.source, positions)

    def by_kind(self) -> Iterator[ValueBlock]:
        """The rows whose ids are integers, then those whose ids are text.

        Ids of two blocks of one kind are one person exactly where they are equal.
        """
        assert self.user_ids is not None
        for rows, ids in by_kind(self.user_ids):
            yield replace(self.where(rows), user_ids=ids)


@travels
@dataclass(frozen=True, eq=False)
class CandidateBlock:
    """Rows that compete to be the one that counts for their user. Not private yet.

    Attributes:
        values, groups: as in `ValueBlock`.
        user_ids: of one kind: integers, or text that spells none.
        ranks: `(n,)` uint64; the row of a user with the least rank counts.
    """

    values: np.ndarray
    user_ids: np.ndarray
    ranks: np.ndarray
    groups: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.values)


class _Reports:
    """What all blocks of reports have. Attribute `reports`: one person's in each row."""

    reports: np.ndarray

    def __len__(self) -> int:
        return len(self.reports)

    @property
    def num_reports(self) -> int:
        """How many people's reports."""
        return len(self.reports)


@travels
@dataclass(frozen=True, eq=False)
class ReportBlock(_Reports):
    """Randomized reports, still in the order of their users: locally private, not shuffled.

    Attributes:
        reports: `(n,) + report_shape`, or `(n, messages) + report_shape`.
        mechanism_digest: 16 bytes that identify the mechanism and its parameters.
        groups: as in `ValueBlock`.
        origin: bytes that identify the block on every retry; the shuffler routes by them.
        simulated: drawn with a seed: protects nobody.
    """

    reports: np.ndarray
    mechanism_digest: bytes
    groups: np.ndarray | None = None
    origin: bytes = b""
    simulated: bool = False


@travels
@dataclass(frozen=True, eq=False)
class LeveledBlock(_Reports):
    """Public reports for readers of several levels, with the ids of the envelopes they travel in.

    Attributes:
        reports, mechanism_digest, origin, simulated: as in `ReportBlock`.
        ids: `(n, 16)` uint8.
    """

    reports: np.ndarray
    ids: np.ndarray
    mechanism_digest: bytes
    origin: bytes = b""
    simulated: bool = False

    @property
    def groups(self) -> None:
        """None: levels and public groups do not go together."""
        return


@travels
@dataclass(frozen=True, eq=False)
class ShuffledBlock(_Reports):
    """Reports in uniformly random order, without ids, keys and times.

    Attributes:
        reports: as in `ReportBlock`.
        mechanism_digest: as in `ReportBlock`.
        batch_size: reports that were permuted together; this block may be a part of them.
        simulated: drawn with a seed: protects nobody.
        late: of a window of which something was released before.
    """

    reports: np.ndarray
    mechanism_digest: bytes
    batch_size: int
    simulated: bool = False
    late: bool = False


@travels
@dataclass(frozen=True, eq=False)
class StatisticBlock:
    """A sum of reports, and of how many.

    Attributes:
        statistic: `statistic_shape` array.
        num_reports: users whose reports were summed.
        smallest_batch: the least number of reports that were shuffled together.
        mechanism_digest: as in `ReportBlock`.
        simulated: drawn with a seed: protects nobody.
        output: "reports" or "statistic": what left the shuffler.
        late: as in `ShuffledBlock`.
    """

    statistic: np.ndarray
    num_reports: int
    smallest_batch: int
    mechanism_digest: bytes
    simulated: bool = False
    output: str = "statistic"
    late: bool = False


@travels
@dataclass(frozen=True, eq=False)
class ShuffledSum:
    """The sum of all reports of a group and window: all that left the shuffler.

    Attributes: as in `StatisticBlock`.
    """

    statistic: np.ndarray
    num_reports: int
    mechanism_digest: bytes
    simulated: bool = False
    late: bool = False


UNKNOWN_POSITION = -1


@travels
@dataclass(frozen=True)
class BadRow:
    """A row that could not be used: where it stands and why, never what it holds.

    Attributes:
        source: where the row comes from.
        position: its position in the source; -1 where that is unknown.
        reason: one of a few fixed phrases.
        length: bytes that it takes, where that is known; else 0.
    """

    source: str
    position: int
    reason: str
    length: int = 0


@travels
@dataclass(frozen=True, eq=False)
class BadRowBlock:
    """Bad rows of one source; iterating over it gives one `BadRow` each.

    Attributes:
        source: where the rows come from.
        positions: `(n,)` their positions in the source; None where those are unknown.
        codes: `(n,)` uint8, index of each row's reason in `reasons`.
        reasons: fixed phrases.
        lengths: `(n,)` bytes that each takes; None where rows are no ranges of bytes.
    """

    source: str
    positions: np.ndarray | None
    codes: np.ndarray
    reasons: tuple[str, ...]
    lengths: np.ndarray | None = None

    @classmethod
    def of(cls, source: str, rows: Sequence[tuple[int, str]]) -> BadRowBlock:
        """The bad rows of one source, each as `(position, reason)`."""
        positions, reasons = zip(*rows)
        known = tuple(dict.fromkeys(reasons))
        codes = np.array([known.index(reason) for reason in reasons], dtype=np.uint8)
        return cls(source, np.array(positions, dtype=np.int64), codes, known)

    def __len__(self) -> int:
        return len(self.codes)

    def listed_positions(self) -> list[int]:
        """The position of every row."""
        if self.positions is None:
            return [UNKNOWN_POSITION] * len(self)
        positions: list[int] = self.positions.tolist()
        return positions

    def listed_lengths(self) -> list[int]:
        """Bytes that every row takes; 0 where that is not known."""
        return [0] * len(self) if self.lengths is None else self.lengths.tolist()

    def __iter__(self) -> Iterator[BadRow]:
        rows = zip(self.listed_positions(), self.codes.tolist(), self.listed_lengths())
        for position, code, length in rows:
            yield BadRow(self.source, position, self.reasons[code], length)


@travels
@dataclass(frozen=True)
class WithheldRelease:
    """A release that did not happen, and why.

    Attributes:
        num_reports: reports received.
        min_reports: reports that were needed.
        reason: a fixed phrase.
        question, group, window: as in `Release`.
        late: these reports came late; what the window itself came to is another notice.
    """

    num_reports: int
    min_reports: int
    reason: str
    question: str = ""
    group: str | None = None
    window: tuple[int, int] | None = None
    late: bool = False


@dataclass(frozen=True, eq=False)
class Release:
    """One estimate that leaves the pipeline, and what is needed to price it.

    Attributes:
        estimate: the unbiased estimate with its standard error.
        num_reports: users whose reports were received.
        ran: what is to be priced (see `beam_ldp.accounting.reports`), or a privacy event; None
            where there is nothing (see `simulated`, `derived`).
        question: name of what was asked.
        group: public name of the group; None where there is one histogram.
        window: start and end in microseconds since 1970; None for the global window.
        mechanism: the mechanism's configuration.
        smallest_batch: the least number of reports that were shuffled together.
        output: "reports" or "statistic": what left the shuffler.
        simulated: drawn with a seed: epsilon is null.
        derived: computed from other releases only, which carry the price.
        answers: people who answered, where each answers one of several questions: one number for
            each question that the estimate is about; empty where everybody answers.
        late: of reports that came late, after the window itself was released.
    """

    estimate: Estimate
    num_reports: int
    ran: Any = field(repr=False)
    question: str = ""
    group: str | None = None
    window: tuple[int, int] | None = None
    mechanism: dict[str, Any] = field(default_factory=dict)
    smallest_batch: int = 0
    output: str = "statistic"
    simulated: bool = False
    derived: bool = False
    answers: tuple[int, ...] = ()
    late: bool = False

    @property
    def event(self) -> Any:
        """The privacy event to price, a `dp_accounting.DpEvent`; None where there is nothing."""
        from beam_ldp.accounting.events import as_event  # loads dp_accounting, a second

        return as_event(self.ran)


def _as_ids(user_ids: Any) -> np.ndarray:
    """Ids as int64, or as an object array of bytes."""
    objects = isinstance(user_ids, np.ndarray) and user_ids.dtype.kind == "O"
    if objects and {*map(type, user_ids.tolist())} <= {bytes}:
        return np.asarray(user_ids)
    return canonical_ids(user_ids).array


def shuffled_among(randomizer: LocalRandomizer, honest: int) -> Any:
    """What ran in one shuffled release of so many honest reports, in public groups as they are.

    `shuffled_reports` would apply the randomizer's own `crowd_size` to the number once more.
    """
    from beam_ldp.accounting.reports import with_reports
    from beam_ldp.accounting.shuffle.one_release import shuffled_reports

    return with_reports(shuffled_reports(randomizer, 1), honest)


_NO_EVENT, _WHOLE_EVENT = -1, -2


def _write_event(event: Any, out: list[bytes]) -> None:
    """A shuffled event is a function of the mechanism and of the number of reports: only that
    travels. Others, those of several rounds, travel as they are."""
    if event is None:
        INTEGER.write(_NO_EVENT, out)
    elif hasattr(event, "crowd"):
        INTEGER.write(event.num_reports, out)
    else:
        from beam_ldp.accounting.event_json import event_to_json

        INTEGER.write(_WHOLE_EVENT, out)
        JSON.write(event_to_json(event), out)


def _read_event(reader: BlockReader) -> Any:
    """The number of reports, or a whole event."""
    crowd = reader.size()
    if crowd != _WHOLE_EVENT:
        return crowd
    from beam_ldp.accounting.event_json import event_from_json

    return event_from_json(JSON.read(reader))


def _rebuild_release(**fields: Any) -> Release:
    ran, answers = fields.pop("ran"), tuple(fields.pop("answers"))
    if ran == _NO_EVENT:
        ran = None
    elif isinstance(ran, int):
        ran = shuffled_among(LocalRandomizer.from_config(fields["mechanism"]), ran)
    return Release(ran=ran, answers=answers, **fields)


register(Release, _rebuild_release, ran=FieldType(_write_event, _read_event))
