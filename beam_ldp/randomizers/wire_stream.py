"""Envelopes one after the other, as in a file: read many at a time, whatever lies between them.

All envelopes of a release begin with the same 24 bytes, which no payload holds by chance. So what
an envelope is follows from its own bytes and the place of the next beginning, nowhere else: a file
can be cut into parts at any bytes, each part owns the envelopes that begin in it, and damage costs
the envelopes that it hits and no other. An envelope in which another one begins is cut short.

Everything that is in no sound envelope is refused, in ranges: one for each envelope of the release
that is broken, and one for all bytes together that are refused for the same reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from beam_ldp.randomizers.bits import crc32_at
from beam_ldp.randomizers.wire import (
    CHECKSUM_BYTES,
    FORMAT_VERSION,
    HEADER_BYTES,
    ID_BYTES,
    IMPOSSIBLE,
    MAGIC,
    NO_REPORTS,
    NOT_AN_ENVELOPE,
    NOT_SIMULATED,
    ONLY_COLUMN,
    OTHER_RELEASE,
    OVERHEAD_BYTES,
    PREFIX_BYTES,
    REASONS,
    SIMULATED,
    SIMULATED_FLAG,
    TOO_MANY,
    TOO_SHORT,
    UNKNOWN_COLUMN,
    UNKNOWN_FLAGS,
    UNKNOWN_VERSION,
    WITHOUT_ID,
    WRONG_CHECKSUM,
    AnyTerms,
    digests_of,
    shared,
)
from beam_ldp.randomizers.words import kernel

_CODES = {reason: code for code, reason in enumerate(REASONS)}
_SOUND = len(REASONS)
_HEAD_WIDTH = 48  # a header, in whole words
_MAGIC_WORD = int.from_bytes(MAGIC, "little")


Row = tuple[int, int, int, bool]


@dataclass(frozen=True, eq=False)
class Ranges:
    """Bytes that are in no sound envelope.

    Attributes:
        starts, stops: `(n,)` int64, places in the stream, in order.
        codes: `(n,)` uint8, index of each range's reason in `REASONS`.
        own: `(n,)` bool: it begins as an envelope of this release does.
    """

    starts: np.ndarray
    stops: np.ndarray
    codes: np.ndarray
    own: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Ranges:
        """Inverse of `rows`."""
        columns = zip(*rows) if rows else ((), (), (), ())
        kinds = (np.int64, np.int64, np.uint8, np.bool_)
        return cls(*(np.array(column, kind) for column, kind in zip(columns, kinds)))

    @property
    def rows(self) -> list[Row]:
        """Start, stop, code and whether it is the release's own, of each."""
        columns = (self.starts, self.stops, self.codes, self.own)
        return list(zip(*(column.tolist() for column in columns)))

    def where(self, chosen: np.ndarray) -> Ranges:
        """Some of them."""
        return Ranges(*(a[chosen] for a in (self.starts, self.stops, self.codes, self.own)))


@dataclass(frozen=True, eq=False)
class StreamPart:
    """What a part of a stream holds: the sound envelopes that begin in it, in their order.

    Attributes:
        offsets: `(m,)` int64, where in the stream each begins.
        counts: `(m,)` int64, people's reports in each.
        ids: `(m, 16)` uint8; zeros where there is none.
        groups: `(m,)` index of each envelope's group, 0 without groups.
        reports: of all of them, one after the other.
        refused: all other bytes of the part.
    """

    offsets: np.ndarray
    counts: np.ndarray
    ids: np.ndarray
    groups: np.ndarray
    reports: np.ndarray
    refused: Ranges

    def __len__(self) -> int:
        return len(self.offsets)


def margin(terms: AnyTerms) -> int:
    """Bytes before and after a part that can decide what is in it."""
    common = shared(terms)
    return common.envelope_bytes(common.max_reports) + PREFIX_BYTES


def read_part(
    terms: AnyTerms, data: bytes, begin: int = 0, start: int = 0, stop: int | None = None
) -> StreamPart:
    """The envelopes that begin in `[start, stop)` of a stream.

    Args:
        terms: of the release, or of the releases of all groups.
        data: bytes of the stream from `begin` on: at least `margin` bytes before `start` and after
            `stop`, or all that there are.
        begin, start, stop: places in the stream; by default the data are all of it.

    Time and memory: linear, some 200 ns and 150 bytes an envelope.
    """
    array = np.frombuffer(data, dtype=np.uint8)
    low = start - begin
    high = len(array) if stop is None else min(len(array), stop - begin)
    marks = _find_magic(array)
    heads = _heads(array, marks)
    codes, groups = _read_prefixes(terms, array, marks, heads)
    own = codes == _SOUND
    at = marks[own]
    lengths, counts = _open(terms, array, at, heads[own], codes, own)
    sound = codes[own] == _SOUND
    reports = _unpack(terms, array, at, lengths, counts, sound)
    codes[np.flatnonzero(own)[~sound & (codes[own] == _SOUND)]] = _CODES[IMPOSSIBLE]
    ours = sound & (at >= low) & (at < high)
    refused = _refused(marks, codes, own, at[sound], (at + lengths)[sound], low, high)
    kept = np.repeat(ours[sound], counts[sound])
    return StreamPart(
        at[ours] + begin,
        counts[ours],
        heads[own][ours, PREFIX_BYTES : PREFIX_BYTES + ID_BYTES],
        groups[own][ours],
        reports[kept],
        Ranges(refused.starts + begin, refused.stops + begin, refused.codes, refused.own),
    )


def join_ranges(parts: Iterable[tuple[int, Sequence[Row]]]) -> Ranges:
    """Ranges of neighbouring parts, each part with the place where it begins: what goes on from one
    to the next becomes one range.

    What stands at the begin of a part, and is no begin of anything, belongs to what was refused
    before it.
    """
    found: list[Row] = []
    for begin, rows in sorted(parts, key=lambda part: part[0]):
        for start, stop, code, own in rows:
            if found and found[-1][1] == start:
                first, _, last_code, last_own = found[-1]
                goes_on = start == begin and code == _CODES[NOT_AN_ENVELOPE]
                if goes_on or (last_code == code and not own and not last_own):
                    found[-1] = (first, stop, last_code, last_own)
                    continue
            found.append((start, stop, code, own))
    return Ranges.of(found)


def _find_magic(array: np.ndarray) -> np.ndarray:
    """Every place where the magic stands: as a word of four bytes, in each of four alignments."""
    found = []
    for shift in range(min(4, max(0, len(array) - 3))):
        words = np.frombuffer(array, "<u4", (len(array) - shift) // 4, shift)
        found.append(4 * np.flatnonzero(words == _MAGIC_WORD) + shift)
    # Four runs that are sorted, which this kind of sort merges.
    return np.sort(np.concatenate(found), kind="stable") if found else np.zeros(0, np.int64)


def _heads(array: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """The bytes from each mark on: `(n, 48)`, zeros beyond the end."""
    heads = np.zeros((len(marks), _HEAD_WIDTH), dtype=np.uint8)
    stops = np.minimum(marks + _HEAD_WIDTH, len(array))
    _copy(array, marks, stops, np.arange(len(marks)) * _HEAD_WIDTH, heads.reshape(-1))
    return heads


def _read_prefixes(
    terms: AnyTerms, array: np.ndarray, marks: np.ndarray, heads: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Of each mark why it begins no envelope of this release, and the index of its group.

    In the order of `check_prefix`, so the last rule that applies is written last.
    """
    digests = np.frombuffer(b"".join(digests_of(terms)), dtype="<u8").reshape(-1, 2)
    order = np.argsort(digests[:, 0], kind="stable")
    words = heads.view("<u8")
    place = np.minimum(np.searchsorted(digests[order, 0], words[:, 1]), len(order) - 1)
    groups = order[place]
    known = (digests[groups, 0] == words[:, 1]) & (digests[groups, 1] == words[:, 2])
    flags, left = heads[:, 5], len(array) - marks
    simulated = shared(terms).simulated
    codes = np.full(len(marks), _SOUND, dtype=np.uint8)
    for reason, applies in (
        (NOT_SIMULATED if simulated else SIMULATED, flags != (SIMULATED_FLAG * simulated)),
        (OTHER_RELEASE, ~known),
        (UNKNOWN_COLUMN, heads[:, 6:8].view(">u2")[:, 0] != ONLY_COLUMN),
        (UNKNOWN_FLAGS, (flags & ~np.uint8(SIMULATED_FLAG)) != 0),
        (TOO_SHORT, left < PREFIX_BYTES),
        (UNKNOWN_VERSION, (left > len(MAGIC)) & (heads[:, 4] != FORMAT_VERSION)),
    ):
        codes[applies] = _CODES[reason]
    return codes, groups


def _open(
    terms: AnyTerms,
    array: np.ndarray,
    at: np.ndarray,
    heads: np.ndarray,
    codes: np.ndarray,
    own: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Lengths and numbers of reports that envelopes of this release say; what is wrong with them
    goes into `codes`. In the order of `open_envelope`."""
    common = shared(terms)
    room = np.diff(at, append=len(array))
    counts = heads[:, HEADER_BYTES - 4 : HEADER_BYTES].view(">u4")[:, 0].astype(np.int64)
    lengths = OVERHEAD_BYTES + common.report_bytes * counts
    nameless = ~heads[:, PREFIX_BYTES : PREFIX_BYTES + ID_BYTES].any(axis=1)
    found = np.full(len(at), _SOUND, dtype=np.uint8)
    for reason, applies in (
        (TOO_SHORT, room < lengths),
        (WITHOUT_ID, nameless & common.needs_ids),
        (TOO_MANY, counts > common.max_reports),
        (NO_REPORTS, counts == 0),
        (TOO_SHORT, room < HEADER_BYTES),
    ):
        found[applies] = _CODES[reason]
    whole = np.flatnonzero(found == _SOUND)
    ends = (at + lengths)[whole] - CHECKSUM_BYTES
    stated = np.zeros((len(whole), CHECKSUM_BYTES), dtype=np.uint8)
    places = np.arange(len(whole)) * CHECKSUM_BYTES
    _copy(array, ends, ends + CHECKSUM_BYTES, places, stated.reshape(-1))
    wrong = crc32_at(array, at[whole], ends) != stated.view(">u4")[:, 0]
    found[whole[wrong]] = _CODES[WRONG_CHECKSUM]
    codes[own] = found
    return lengths, counts


def _unpack(
    terms: AnyTerms,
    array: np.ndarray,
    at: np.ndarray,
    lengths: np.ndarray,
    counts: np.ndarray,
    sound: np.ndarray,
) -> np.ndarray:
    """The reports of the sound envelopes; those that the mechanism cannot send leave `sound`."""
    common = shared(terms)
    width, number = common.report_bytes, counts[sound]
    payload = np.empty((int(number.sum()), width), dtype=np.uint8)
    starts = at[sound] + HEADER_BYTES
    first = np.cumsum(number) - number
    _copy(array, starts, starts + width * number, width * first, payload.reshape(-1))
    reports, possible = common.randomizer.unpack_each(payload)
    if not possible.all():
        good = np.logical_and.reduceat(possible, first)
        reports = reports[np.repeat(good, number)]
        sound[np.flatnonzero(sound)[~good]] = False
    return reports


def _refused(
    marks: np.ndarray,
    codes: np.ndarray,
    own: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    low: int,
    high: int,
) -> Ranges:
    """All bytes from `low` to `high` that lie in no sound envelope, cut where a magic stands."""
    free = _outside(marks, begins, ends)
    edges = np.append(ends, low)
    edges = edges[~_among(edges, marks) & _outside(edges, begins, ends)]
    starts = np.concatenate([marks[free], edges])
    nothing = np.full(len(edges), _CODES[NOT_AN_ENVELOPE], dtype=np.uint8)
    all_codes, mine = np.concatenate([codes[free], nothing]), np.r_[own[free], nothing < 0]
    order = np.argsort(starts, kind="stable")
    order = order[(starts[order] >= low) & (starts[order] < high)]
    starts, all_codes, mine = starts[order], all_codes[order], mine[order]
    bounds = np.concatenate([begins, [high]])
    stops = np.minimum(np.append(starts[1:], high), bounds[np.searchsorted(begins, starts)])
    stops = np.minimum(stops, high)
    new = np.ones(len(starts), dtype=bool)
    new[1:] = (starts[1:] != stops[:-1]) | (all_codes[1:] != all_codes[:-1]) | mine[1:] | mine[:-1]
    last = np.append(np.flatnonzero(new)[1:], len(starts)) - 1 if len(starts) else np.zeros(0, int)
    return Ranges(starts[new], stops[last], all_codes[new], mine[new])


def _outside(places: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Which places lie in none of the spans, which do not overlap."""
    if not len(begins):
        return np.ones(len(places), dtype=bool)
    before = np.searchsorted(begins, places, side="right") - 1
    found: np.ndarray = (before < 0) | (places >= ends[before])
    return found


def _among(places: np.ndarray, marks: np.ndarray) -> np.ndarray:
    """Which places are marks."""
    if not len(marks):
        return np.zeros(len(places), dtype=bool)
    found: np.ndarray = marks[np.minimum(np.searchsorted(marks, places), len(marks) - 1)] == places
    return found


@kernel
def _copy(data, starts, stops, places, out):  # type: ignore[no-untyped-def]
    for i in range(starts.size):
        place = places[i]
        for at in range(starts[i], stops[i]):
            out[place] = data[at]
            place += 1
