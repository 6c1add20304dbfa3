"""Files of envelopes: reports that were randomized elsewhere, on devices or at an edge."""

from __future__ import annotations

from beam_ldp.transforms.envelope_copies import DUPLICATE
from beam_ldp.transforms.envelopes import BAD_REPORTS, Tally
from beam_ldp.transforms.file_parts import find_report_files
from beam_ldp.transforms.read_reports import ReadReports
from beam_ldp.transforms.report_terms import SUFFIX
from beam_ldp.transforms.write_reports import WriteMemoizedReports, WriteReports

__all__ = [
    "BAD_REPORTS",
    "DUPLICATE",
    "SUFFIX",
    "Tally",
    "ReadReports",
    "WriteMemoizedReports",
    "WriteReports",
    "find_report_files",
]
