"""Copies of envelopes: each id counts once, in the order of files and offsets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import TaggedOutput

from beam_ldp.randomizers.identity import length_prefixed
from beam_ldp.randomizers.wire import ID_BYTES
from beam_ldp.transforms.blocks import BadRowBlock, ReportBlock
from beam_ldp.transforms.counters import counter
from beam_ldp.transforms.envelopes import BAD_REPORTS, EnvelopeBlock
from beam_ldp.transforms.randomize import ORIGIN_BYTES
from beam_ldp.transforms.report_terms import CarriedTerms

DUPLICATE = "sent before: another envelope has its id"
_ID_SHARDS = 64


def ids_of(block: EnvelopeBlock) -> Iterator[tuple[int, tuple[str, bytes, bytes]]]:
    """Ids and offsets of the envelopes that have one, a part for every shard of ids."""
    named = np.flatnonzero(block.ids.any(axis=1))
    shards = block.ids[named, 0] % _ID_SHARDS
    for shard in np.unique(shards).tolist():
        rows = named[shards == shard]
        offsets = np.ascontiguousarray(block.offsets[rows], dtype="<i8")
        yield shard, (block.source, offsets.tobytes(), block.ids[rows].tobytes())


def copies_of(
    element: tuple[int, Iterable[tuple[str, bytes, bytes]]],
) -> Iterator[tuple[str, bytes]]:
    """Of every source the offsets of the envelopes whose id came before."""
    parts = sorted(element[1])
    sources = [source for source, _, _ in parts]
    offsets = [np.frombuffer(listed, dtype="<i8") for _, listed, _ in parts]
    ids = np.frombuffer(b"".join(listed for *_, listed in parts), dtype=f"V{ID_BYTES}")
    where = np.repeat(np.arange(len(parts)), [len(listed) for listed in offsets])
    places = np.concatenate(offsets)
    order = np.lexsort((places, _ranks(sources)[where]))
    _, first = np.unique(ids[order], return_index=True)
    copied = np.ones(len(ids), dtype=bool)
    copied[order[first]] = False
    for part in np.unique(where[copied]).tolist():
        yield sources[part], places[copied & (where == part)].tobytes()


def _ranks(names: list[str]) -> np.ndarray:
    """The place of each name among all of them."""
    return np.unique(np.array(names), return_inverse=True)[1]


class TakeOnce(beam.DoFn):
    """Envelopes to reports, without those that came before."""

    def __init__(self, terms: CarriedTerms) -> None:
        self._carried = terms

    def setup(self) -> None:
        terms = self._carried.terms
        self._digest, self._simulated = terms.randomizer.config_digest(), terms.simulated
        self._received = counter("reports_received")
        self._repeated = counter("envelopes_repeated")

    def process(self, block: EnvelopeBlock, copies: Mapping[str, bytes]) -> Iterator[Any]:
        again = np.isin(block.offsets, np.frombuffer(copies.get(block.source, b""), dtype="<i8"))
        if again.any():
            self._repeated.inc(int(again.sum()))
            rows = [(offset, DUPLICATE) for offset in block.offsets[again].tolist()]
            yield TaggedOutput(BAD_REPORTS, BadRowBlock.of(block.source, rows))
        kept = np.repeat(~again, block.counts)
        reports = block.reports[kept]
        groups = None
        if block.groups is not None:
            groups = np.repeat(block.groups, block.counts)[kept]
        if len(reports):
            self._received.inc(len(reports))
            place = b"%d" % block.offsets[0]
            origin = hashlib.blake2b(
                length_prefixed(block.source.encode(), place), digest_size=ORIGIN_BYTES
            ).digest()
            yield ReportBlock(reports, self._digest, groups, origin, self._simulated)
