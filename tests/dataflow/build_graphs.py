"""Builds job graphs as a user of the installed wheel does, and writes them to files.

    python build_graphs.py JOBS OUT

JOBS is a JSON object: name to {"program", "flags"}, and "before" where a command of ours prepares
it. OUT gets NAME.pb, the graph that DataflowRunner would submit, and about.json, which says where
the library was imported from.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import beam_ldp
from beam_ldp.decisions.bandit_advance import bound_batch
from beam_ldp.decisions.usage import ADVANCE
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.template import build
from beam_ldp.pipelines.usage import frequency, mean, user_mean
from beam_ldp.release.binding import bound

PROGRAMS: dict[str, Any] = {
    "frequency": (frequency.USAGE, bound),
    "mean": (mean.USAGE, bound),
    "user-mean": (user_mean.USAGE, bound),
    "bandit advance": (ADVANCE, bound_batch),
}


def main(jobs: str, out: str) -> None:
    """One dry run per job."""
    for name, job in json.loads(Path(jobs).read_text()).items():
        if "before" in job:
            group(job["before"], standalone_mode=False)
        usage, bind = PROGRAMS[job["program"]]
        pipeline, _, _ = build(usage, job["flags"], bind)
        result: Any = pipeline.run()
        graph = result.job.proto_pipeline.SerializeToString(deterministic=True)
        Path(out, f"{name}.pb").write_bytes(graph)
    Path(out, "about.json").write_text(json.dumps({"library": beam_ldp.__file__}))


if __name__ == "__main__":
    main(*sys.argv[1:])
