"""The frequency job without a launcher that waits: what a Dataflow template runs.

A template's launcher builds the job and ends. What the job found stays in a folder beside
`--output`, in files that the workers wrote; gates, price, record and tables are made afterwards, by
`beam-ldp frequency` with the same flags and `--staged FOLDER`:

    python -m beam_ldp.pipelines.template FLAGS --output gs://bucket/out --runner=DataflowRunner ...
    beam-ldp frequency FLAGS --output gs://bucket/out --staged gs://bucket/out.staged

Nothing in that folder is a release yet: it holds the estimate, to be read by nobody but the second
command. A budget is reserved before data are read, and a launcher that ends cannot do that: runs
that are charged to a ledger go without a template.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from rich.console import Console

from beam_ldp.pipelines.flags import read_flags
from beam_ldp.pipelines.programs import DONE, MISUSED, Bind
from beam_ldp.pipelines.usage.frequency import USAGE
from beam_ldp.release.beam_job import pipeline_flags
from beam_ldp.release.binding import bound
from beam_ldp.release.reserving import ledger_url
from beam_ldp.release.run import Run
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import Usage
from beam_ldp.transforms.files import paths_matching

STAGED = ".staged"


def build(usage: Usage, argv: Sequence[str], bind: Bind = bound) -> tuple[beam.Pipeline, Run, str]:
    """`(pipeline, run, folder)`: the job, not started, and where it will leave its results.

    Raises:
        SettingError: if a flag is wrong, a ledger is named, or the folder holds results already.
    """
    given = read_flags(usage, argv)
    run = bind(usage, given)
    if ledger_url(run.job) is not None:
        raise SettingError(
            "a template cannot charge a ledger, which must grant the budget before data is read: "
            f"run `beam-ldp {usage.name}`, or give --no-ledger"
        )
    folder = run.job.output.folder.rstrip("/") + STAGED
    if paths_matching(f"{folder}/*/*", or_none=True):
        raise SettingError(f"{folder} holds the results of a job: finish it, or remove the folder")
    pipeline = beam.Pipeline(options=PipelineOptions(pipeline_flags(run.job, given.beam_flags)))
    run.stages(pipeline).write(folder)
    return pipeline, run, folder


def main(argv: Sequence[str] | None = None) -> int:
    """Build the job, hand it to the runner, say how to finish it."""
    console = Console(stderr=True)
    try:
        pipeline, run, folder = build(USAGE, sys.argv[1:] if argv is None else argv)
    except SettingError as error:
        console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
        return MISUSED
    pipeline.run()
    console.print(
        f"when the job is done: beam-ldp {run.name} (the same flags) --staged {folder}",
        markup=False,
        soft_wrap=True,
    )
    return DONE


if __name__ == "__main__":
    # The module that runs is called __main__; what workers unpickle must have its real name.
    from beam_ldp.pipelines.template import main as program

    sys.exit(program())
