"""Files of envelopes to reports: where a collector begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import AsDict
from apache_beam.typehints import typehints

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.transforms.blocks import BadRowBlock, ReportBlock
from beam_ldp.transforms.envelope_copies import TakeOnce, copies_of, ids_of
from beam_ldp.transforms.envelopes import BAD_REPORTS, EnvelopeBlock, ReadFile
from beam_ldp.transforms.report_terms import CarriedTerms


class ReadReports(beam.PTransform):
    """Reads files of envelopes into the reports that `Shuffle` takes.

    Every envelope is checked: one of another release, mechanism or list, one that is cut short,
    changed, or holds what the mechanism cannot send is refused, whole, and listed in the attribute
    `bad_rows` of the result, a collection of `BadRowBlock`: file, offset and reason, never content.

    **Copies.** An envelope whose id was seen before in any of the files is refused as well: a
    transport that retries, a file that is read twice, an attacker who sends recorded bytes again
    change nothing; the first one in the order of files and offsets counts. What is impossible
    without knowing people: to tell a second report of one person, freshly randomized under a new
    id, from the report of another person. Whoever lets devices send must see to it that each sends
    once (an account, a one-time token at the transport). Envelopes without id are taken as they
    come: two equal ones may well be of two people.

    Takes the root of a pipeline. Files whose names begin with `_` or `.` or end in `.json` are left
    out. Compressed files are recognised by their ending.

    Args:
        patterns: paths and globs, on any file system that Beam knows; a folder stands for the files
            in it.
        terms: of the release.
        groups: the public list of groups, where every envelope is of one of them; one of a group
            that is not in the list is of another release.

    Raises:
        ValueError: at run time, if nothing matches or a file cannot be read.
    """

    def __init__(
        self,
        patterns: str | Sequence[str],
        terms: ReleaseTerms,
        *,
        groups: Domain | str | Path | None = None,
    ) -> None:
        super().__init__()
        self._patterns = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        self._terms = CarriedTerms(terms, groups)

    def expand(self, root: Any) -> beam.PCollection:
        pipeline = root.pipeline if hasattr(root, "pipeline") else root
        read = (
            pipeline
            | "Patterns" >> beam.Create([self._patterns])
            | "Find files" >> beam.FlatMap(find_report_files).with_output_types(str)
            | "Spread files" >> beam.Reshuffle()
            | "Read"
            >> beam.ParDo(ReadFile(self._terms))
            .with_output_types(EnvelopeBlock)
            .with_outputs(BAD_REPORTS, main="envelopes")
        )
        copies = (
            read.envelopes
            | "Ids" >> beam.FlatMap(ids_of).with_output_types(typehints.Tuple[int, Any])
            | "By id" >> beam.GroupByKey()
            | "Copies" >> beam.FlatMap(copies_of).with_output_types(typehints.Tuple[str, bytes])
            | "By source" >> beam.GroupByKey()
            | "As list" >> beam.MapTuple(lambda source, found: (source, b"".join(found)))
        )
        out = read.envelopes | "Once each" >> beam.ParDo(
            TakeOnce(self._terms), AsDict(copies)
        ).with_output_types(ReportBlock).with_outputs(BAD_REPORTS, main="reports")
        refused = []
        for name, part in (("Refused", read[BAD_REPORTS]), ("Repeated", out[BAD_REPORTS])):
            part.element_type = BadRowBlock
            refused.append(part | name >> beam.Map(_same).with_output_types(BadRowBlock))
        reports: beam.PCollection = out.reports
        reports.element_type = ReportBlock
        reports.bad_rows = refused | "All refused" >> beam.Flatten()
        return reports

    def display_data(self) -> dict[str, Any]:
        return {"patterns": ", ".join(self._patterns)}


def find_report_files(patterns: Sequence[str]) -> list[str]:
    """The files that the patterns mean, each once.

    Raises:
        ValueError: for a pattern that matches no file.
    """
    found: set[str] = set()
    for pattern in patterns:
        try:
            listed = _listed(pattern)
        except (BeamIOError, OSError, ValueError) as error:
            raise ValueError(f"{pattern}: cannot be listed ({type(error).__name__})") from None
        paths = {path for path in listed if not _left_out(path)}
        if not paths:
            raise ValueError(f"{pattern}: no file of reports matches")
        found |= paths
    return sorted(found)


def _listed(pattern: str) -> list[str]:
    """Paths that match; a pattern that names a folder stands for what is in it."""
    found = [file.path for file in FileSystems.match([pattern])[0].metadata_list]
    own = pattern.rstrip("/")
    if all(path.rstrip("/") == own for path in found):
        inside = [file.path for file in FileSystems.match([f"{own}/*"])[0].metadata_list]
        found = inside or found
    return found


def _left_out(path: str) -> bool:
    name = path.rstrip("/").rsplit("/", 1)[-1]
    return name.startswith(("_", ".")) or name.endswith(".json")


def _same(rows: BadRowBlock) -> BadRowBlock:
    return rows
