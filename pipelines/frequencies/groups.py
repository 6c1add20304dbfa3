"""Public groups on the command line: `--group-by country --groups countries.txt`."""

from __future__ import annotations

import argparse

from beam_ldp.pipelines.inputs.public_lists import load_list
from beam_ldp.pipelines.options import UsageError
from beam_ldp.randomizers.domain import Domain


def check_groups(values: argparse.Namespace) -> None:
    """A UsageError unless the flags about groups fit together."""
    if (values.group_by is None) != (values.groups is None):
        raise UsageError("--group-by and --groups belong together: the list of groups is public")
    if values.group_by is None:
        return
    if values.min_reports is None:
        raise UsageError(
            "--group-by needs --min-reports: the least number of reports in a group, which decides "
            "how much noise the smallest group takes"
        )
    if values.group_by in (*(values.column or ()), values.user_id):
        raise UsageError("--group-by must name a column of its own")


def load_groups(path: str | None) -> Domain:
    """The public list of groups."""
    assert path is not None
    return load_list("--groups", path)
