"""`beam-ldp frequency`: how often does each value of a public list occur?

The same program as `python -m beam_ldp.pipelines.frequency`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import apache_beam as beam
import numpy as np
from apache_beam.io.filesystems import FileSystems
from rich.console import Console

from beam_ldp.pipelines import results, run
from beam_ldp.pipelines.charging import ledger_url
from beam_ldp.pipelines.flags import DATA, MECHANISM, OUTPUT, whole_number, with_own
from beam_ldp.pipelines.frequency_answer import FrequencyAnswer
from beam_ldp.pipelines.job import Outputs
from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.oracle_choice import choose
from beam_ldp.pipelines.question import Choice, Question, Rows
from beam_ldp.pipelines.run import DONE, FAILED, MISUSED, NOTHING_RELEASED
from beam_ldp.pipelines.settings import Settings, check_common, need
from beam_ldp.pipelines.sources import BAD_ROWS, ROWS, TEXT_COLUMN, ReadTable
from beam_ldp.randomizers.domain import Domain
from beam_ldp.transforms import PrivateFrequencies
from beam_ldp.transforms.blocks import Release
from beam_ldp.transforms.carried import CarriedDomain

__all__ = ["DONE", "FAILED", "MISUSED", "NOTHING_RELEASED", "Frequency", "main"]

FLAGS = with_own(
    {
        DATA: {
            "--column": {"metavar": "NAME", "help": "column that holds the value (not for text)"},
            "--domain": {
                "metavar": "FILE",
                "help": "public list of values, one per line; the rest is counted as `other`",
            },
            "--other-label": {
                "default": "other", "metavar": "NAME",
                "help": "what the rest is called, where the list holds the value `other` itself",
            },
            "--bad-rows": {
                "choices": ["dead-letter", "other"], "default": "dead-letter",
                "help": "rows that cannot be used: listed in bad_rows.jsonl, or reported as "
                "`other` without a trace",
            },
        },
        MECHANISM: {
            "--mechanism": {
                "default": "auto", "metavar": "NAME",
                "help": "a frequency oracle, or auto: the most accurate one (see `beam-ldp plan`)",
            },
        },
        OUTPUT: {
            "--top": {
                "type": whole_number, "default": 20, "metavar": "N",
                "help": "values in the printed table and in the plot (default 20)",
            },
            "--staged": {
                "metavar": "DIR",
                "help": "run no job: finish what a template's job with the same flags left here",
            },
        },
    }
)  # fmt: skip

EXAMPLES = """examples:
  what would it cost, and how accurate would it be? (reads no data)
    beam-ldp frequency --input 'events/*.parquet' --column url --domain urls.txt \\
        --epsilon 1 --delta 1e-8 --expected-users 1e6 --output out --dry-run
  the same for real, one report per person
    beam-ldp frequency --input 'events/*.parquet' --column url --user-id uid --domain urls.txt \\
        --epsilon 1 --delta 1e-8 --expected-users 1e6 --output out
  on a cluster (all of Beam's flags are understood)
    beam-ldp frequency ... --runner=SparkRunner --job_endpoint=host:8099 --environment_type=LOOPBACK
  from a file of flags
    beam-ldp frequency --config job.json --overwrite
"""


@dataclass(frozen=True, kw_only=True)
class FrequencySettings(Settings):
    """The flags of `frequency`, checked. Attributes: as the flags of the same names."""

    column: str
    domain: str
    other_label: str
    top: int
    staged: str | None


class Frequency(Question[FrequencySettings]):
    """How often does each value of a public list occur?"""

    name = "frequency"
    summary = (
        "How often does each value of a public list occur? Every person's value is randomized "
        "before it is counted; the result has honest error bars and a stated price."
    )
    usage = (
        "--input PATH --column NAME --domain FILE --delta D "
        "(--epsilon EPS --expected-users N | --local-epsilon EPS0) --output DIR [...]"
    )
    examples = EXAMPLES
    flags = FLAGS

    def __init__(self, settings: FrequencySettings) -> None:
        super().__init__(settings)
        self.domain = load_domain(settings.domain, settings.other_label)

    @classmethod
    def check(cls, values: argparse.Namespace) -> FrequencySettings:
        need(values, "input", "domain", "delta", "output")
        column = values.column or TEXT_COLUMN
        settings = check_common(values, FrequencySettings, column=column)
        check_column(values, settings.input_format)
        if values.top < 1:
            raise UsageError("--top must be >= 1")
        if settings.staged is not None and ledger_url(settings) is not None:
            raise UsageError(
                "--staged cannot be charged to a ledger, which is asked before data are read: run "
                "without a template, or say --no-ledger"
            )
        return settings

    @property
    def about(self) -> str:
        return self.settings.column

    def choose(self) -> Choice:
        return choose(self.settings, self.domain.size)

    def expectation(self, choice: Choice) -> str:
        people = choice.predicted_error * choice.num_reports
        return (
            f"a rare value's count will be off by about {people:,.0f} of "
            f"{choice.num_reports:,} people"
        )

    def inputs(self) -> Rows:
        return [("list", f"{self.domain.size - 1:,} values and {self.settings.other_label!r}")]

    def expected(self, choice: Choice) -> Rows:
        error, n = choice.predicted_error, choice.num_reports
        said = f"{error:.3g} of the people, that is {error * n:,.0f} of {n:,}"
        return [("error of a rare value", said)]

    def expected_as_json(self, choice: Choice) -> dict[str, Any]:
        return {"domain_size": self.domain.size}

    def stages(self, pipeline: beam.Pipeline, choice: Choice) -> Outputs:
        settings = self.settings
        bad_rows: Literal["dead_letter", "other"] = (
            "dead_letter" if settings.bad_rows_leave_a_trace else "other"
        )
        table = pipeline | "Read" >> ReadTable(
            settings.input,
            settings.input_format,  # type: ignore[arg-type]
            settings.column,
            settings.user_id,
            bad_rows=bad_rows,
            delimiter=settings.csv_delimiter,
        )
        released = table[ROWS] | "PrivateFrequencies" >> PrivateFrequencies(
            choice.randomizer,  # type: ignore[arg-type]
            domain=CarriedDomain(settings.domain, settings.other_label),
            column=settings.column,
            user_id_column=settings.user_id,
            min_reports=settings.min_reports,
            output=settings.shuffle_output,  # type: ignore[arg-type]
            scope=settings.scope,  # type: ignore[arg-type]
            bad_rows=bad_rows,
            question=self.about,
            memoize_key_file=settings.memoize_key_file,
            release_id=settings.release_id,
            dataset=settings.dataset,
            seed=settings.seed,
        )
        return Outputs(released, released.withheld, (table[BAD_ROWS], released.bad_rows))

    def collect(
        self, choice: Choice, flags: Sequence[str], staging: str, console: Console
    ) -> results.Collected:
        """Run the pipeline, or read what a template's job left."""
        if self.settings.staged is None:
            return super().collect(choice, flags, staging, console)
        found = results.read_all(self.settings.staged)
        if not (found.releases or found.withheld):
            raise UsageError(
                f"--staged {self.settings.staged}: no results, or the job is not done yet"
            )
        expected = choice.randomizer.to_config()
        if any(dict(release.mechanism) != expected for release in found.releases):
            raise UsageError(
                f"--staged {self.settings.staged}: made with other flags than these, by another "
                "mechanism"
            )
        return found

    def answer(self, release: Release, choice: Choice, truth: np.ndarray | None) -> FrequencyAnswer:
        return FrequencyAnswer(release, self.domain.labels, self.settings.top, truth)


def check_column(values: argparse.Namespace, input_format: str) -> None:
    """A UsageError unless `--column` fits the format."""
    if input_format == "text" and (values.user_id or values.column):
        raise UsageError("--column and --user-id are not for text: each line is one value")
    if input_format != "text" and not values.column:
        raise UsageError(f"--column is missing: which column of the {input_format} files?")


def load_domain(path: str, other: str) -> Domain:
    """The public list, from any file system that Beam knows."""
    try:
        with FileSystems.open(path, "application/octet-stream") as file:
            content = file.read()
    except Exception as error:
        raise UsageError(f"--domain {path}: cannot be read ({type(error).__name__})") from None
    try:
        return Domain.from_lines(content, other)
    except ValueError as error:
        hint = " (see --other-label)" if "other" in str(error) else ""
        raise UsageError(f"--domain {path}: {error}{hint}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """The program; the exit codes are in `--help`."""
    return run.main(Frequency, argv)


if __name__ == "__main__":
    # The module that runs is called __main__; what workers unpickle must have its real name.
    from beam_ldp.pipelines.frequency import main as program

    sys.exit(program())
