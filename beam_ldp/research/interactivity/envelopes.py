"""Envelopes of devices as records: what was sent, from bytes that name nobody.

An envelope says the release, its reports, and an id that was drawn for it alone: by it a copy is
told, and two different envelopes that claim to be one. Whose it is nobody can tell, nor whether two
are one person's, nor what the question depended on.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from beam_ldp.protocols.interaction import NANO, hash_texts, mixed
from beam_ldp.randomizers.frequency.refinable_response import RefinableResponse
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.randomizers.wire_stream import StreamPart, margin, read_part
from beam_ldp.research.interactivity.records import ROW, UNKNOWN, About, Declared, RecordBlock

_ODD = np.uint64(0x9E3779B97F4A7C15)


def read_envelopes(terms: ReleaseTerms, path: Path, start: int, stop: int) -> RecordBlock:
    """The reports of the envelopes that begin in some bytes of a file, one record each.

    A person is the id of an envelope and a place in it; reports without an id are people of their
    own. The epsilon is that of whoever reads most of a report.
    """
    around = margin(terms)
    begin = max(0, start - around)
    with path.open("rb") as file:
        file.seek(begin)
        data = file.read(stop + around - begin)
    found = read_part(terms, data, begin, start, stop)
    rows = np.empty(len(found.reports), dtype=ROW)
    rows["person"] = _senders(found, path)
    rows["question"] = hash_texts([terms.identity.digest])[0]
    packed = terms.randomizer.pack_each(found.reports)
    rows["answer"] = hash_texts([one.tobytes() for one in packed]) | np.uint64(1)
    nano = int(np.ceil(most_epsilon(terms) * NANO))
    rows["nano"], rows["femto"], rows["seq"], rows["assigned"] = nano, 0, 0, UNKNOWN
    refused = int((found.refused.stops - found.refused.starts).sum())
    return RecordBlock(rows, _about(terms, len(rows), nano, refused))


def most_epsilon(terms: ReleaseTerms) -> float:
    """The local epsilon of a report against the reader who reads most of it."""
    randomizer = terms.randomizer
    levels = randomizer.all_levels if isinstance(randomizer, RefinableResponse) else ()
    return float(max(levels, default=randomizer.local_epsilon))


def _about(terms: ReleaseTerms, records: int, nano: int, refused: int) -> About:
    randomizer, identity = terms.randomizer, terms.identity
    name = f"{type(randomizer).__name__} {randomizer.config_digest().hex()[:16]}"
    declared = {name: Declared(records, nano, nano)} if records else {}
    run = int(hash_texts([f"{identity.dataset}/{identity.release_id}".encode()])[0])
    return About(declared, frozenset([run]), refused)


def _senders(found: StreamPart, path: Path) -> np.ndarray:
    """A word for each report's sender."""
    halves = np.ascontiguousarray(found.ids).view("<u8").reshape(-1, 2)
    words = mixed(mixed(halves[:, 0]) * _ODD + halves[:, 1])
    without = ~found.ids.any(axis=1)
    place = mixed(found.offsets) + hash_texts([str(path).encode()])[0]
    words[without] = mixed(place[without] * _ODD)
    first = np.repeat(np.cumsum(found.counts) - found.counts, found.counts)
    inside = (np.arange(len(found.reports)) - first).astype(np.uint64)
    return mixed(np.repeat(words, found.counts) * _ODD + inside)
