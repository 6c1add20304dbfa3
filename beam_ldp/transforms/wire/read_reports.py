"""Files of envelopes to reports: where a collector begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.typehints import typehints

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.transforms.elements.blocks import BadRowBlock, ReportBlock
from beam_ldp.transforms.wire.envelopes import (
    BAD_REPORTS,
    EDGES,
    PARTS,
    TALLIES,
    Aside,
    JoinEdges,
    ListIds,
    TakeOnce,
    Tally,
    copies_of,
)
from beam_ldp.transforms.wire.file_parts import PortableTerms, find_parts

ID_BYTES_AT_A_TIME = 1 << 28
_Name = typehints.Tuple[str, int]


class ReadReports(beam.PTransform):
    """Reads files of envelopes into the reports that `Shuffle` takes.

    Every envelope is checked: one of another release, question or mechanism, one that is cut short,
    changed, holds more people's reports than it may, or what the mechanism cannot send is refused,
    whole, and listed in the attribute `bad_rows` of the result, a collection of `BadRowBlock`:
    file, offset, length and reason, never content. Other bytes are listed by the range.

    **Copies.** An envelope whose id was seen before in any of the files is refused as well: a
    transport that retries, a file that is read twice, an attacker who sends recorded bytes again
    change nothing; the first one in the order of files and offsets counts. What is impossible
    without knowing people: to tell a second report of one person, freshly randomized under a new
    id, from the report of another person. Whoever lets devices send must see to it that each sends
    once (an account, a one-time token at the transport). Envelopes without id are taken as they
    come: two equal ones may well be of two people.

    Files are read twice, in parts of 16 MiB (compressed ones whole): for ids, and for reports. What
    comes out does not depend on how parts are spread over workers.

    Takes the root of a pipeline. Files whose names begin with `_` or `.` or end in `.json` are left
    out. Compressed files are recognised by their ending. The attribute `received` of the result
    holds a `Tally` for every file with reports that count, as `(path, Tally)`.

    Args:
        patterns: paths and globs, on any file system that Beam knows; a folder stands for the files
            in it.
        terms: of the release.
        groups: the public list of groups, where every envelope is of one of them; one of a group
            that is not in the list is of another release.
        id_bytes: memory for ids that a worker compares at a time; 64 bytes each.
        scratch: a folder that all workers can read and write, where ids lie between the passes, 24
            bytes each; its caller deletes it afterwards. Default: the engine exchanges them, which
            Beam's local runner does in memory.

    Raises:
        ValueError: at run time, if nothing matches, or a file cannot be read or changes meanwhile.
    """

    def __init__(
        self,
        patterns: str | Sequence[str],
        terms: ReleaseTerms,
        *,
        groups: Domain | str | Path | None = None,
        id_bytes: int = ID_BYTES_AT_A_TIME,
        scratch: str | None = None,
    ) -> None:
        super().__init__()
        if isinstance(id_bytes, bool) or id_bytes != int(id_bytes) or id_bytes < 1:
            raise ValueError(f"id_bytes must be an integer >= 1, got {id_bytes}")
        self._patterns = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        self._terms = PortableTerms(terms, groups)
        self._smallest = terms.envelope_bytes(1)
        self._id_bytes = int(id_bytes)
        self._aside = Aside("" if scratch is None else scratch.rstrip("/"))

    def expand(self, root: Any) -> beam.PCollection:
        pipeline = root.pipeline if hasattr(root, "pipeline") else root
        listed = (
            pipeline
            | "Patterns" >> beam.Create([self._patterns])
            | "Find files" >> beam.FlatMap(find_parts, self._id_bytes, self._smallest)
            # Fixes the parts and the routing of ids before anything is read.
            | "Spread parts" >> beam.Reshuffle()
            | "List ids"
            >> beam.ParDo(ListIds(self._terms, self._aside)).with_outputs(PARTS, main="ids")
        )
        listed.ids.element_type = typehints.Tuple[int, Any]
        listed[PARTS].element_type = typehints.Tuple[_Name, Any]
        copies = (
            listed.ids
            | "By id" >> beam.GroupByKey()
            | "Copies"
            >> beam.FlatMap(copies_of, self._aside).with_output_types(typehints.Tuple[_Name, Any])
        )
        out = (
            {"parts": listed[PARTS], "copies": copies}
            | "By part" >> beam.CoGroupByKey()
            | "Take once"
            >> beam.ParDo(TakeOnce(self._terms)).with_outputs(
                BAD_REPORTS, EDGES, TALLIES, main="reports"
            )
        )
        reports: beam.PCollection = out.reports
        reports.element_type = ReportBlock
        reports.bad_rows = self._refused(out)
        out[TALLIES].element_type = typehints.Tuple[str, Any]
        reports.received = out[TALLIES] | "Received" >> beam.CombinePerKey(_add)
        return reports

    def _refused(self, out: Any) -> beam.PCollection:
        out[EDGES].element_type = typehints.Tuple[str, Any]
        out[BAD_REPORTS].element_type = BadRowBlock
        joined = (
            out[EDGES]
            | "By file" >> beam.GroupByKey()
            | "Join" >> beam.ParDo(JoinEdges()).with_output_types(BadRowBlock)
        )
        return (out[BAD_REPORTS], joined) | "All refused" >> beam.Flatten()

    def display_data(self) -> dict[str, Any]:
        return {"patterns": ", ".join(self._patterns)}


def _add(tallies: Iterable[Tally]) -> Tally:
    """What was received of a file in all of its parts."""
    listed = list(tallies)
    if not listed:
        return Tally(0, 0, 0)
    reports, envelopes, largest = zip(*listed)
    return Tally(sum(reports), sum(envelopes), max(largest))
