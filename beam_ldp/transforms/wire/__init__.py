"""Files of envelopes: reports that were randomized elsewhere, on devices or at an edge."""

from __future__ import annotations

from beam_ldp.transforms.wire.file_parts import SUFFIX, find_report_files
from beam_ldp.transforms.wire.read_reports import BAD_REPORTS, DUPLICATE, FileTally, ReadReports
from beam_ldp.transforms.wire.write_reports import WriteMemoizedReports, WriteReports

__all__ = [
    "BAD_REPORTS",
    "DUPLICATE",
    "SUFFIX",
    "FileTally",
    "ReadReports",
    "WriteMemoizedReports",
    "WriteReports",
    "find_report_files",
]
