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
from beam_ldp.decisions.bandit_advance import OpenBatch
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.template import build
from beam_ldp.pipelines.usage import frequency, mean, user_mean

PROGRAMS: dict[str, Any] = {
    "frequency": frequency.USAGE,
    "mean": mean.USAGE,
    "user-mean": user_mean.USAGE,
    "bandit advance": OpenBatch,
}


def main(jobs: str, out: str) -> None:
    """One dry run per job."""
    for name, job in json.loads(Path(jobs).read_text()).items():
        if "before" in job:
            group(job["before"], standalone_mode=False)
        pipeline, _, _ = build(PROGRAMS[job["program"]], job["flags"])
        result: Any = pipeline.run()
        graph = result.job.proto_pipeline.SerializeToString(deterministic=True)
        Path(out, f"{name}.pb").write_bytes(graph)
    Path(out, "about.json").write_text(json.dumps({"library": beam_ldp.__file__}))


if __name__ == "__main__":
    main(*sys.argv[1:])
