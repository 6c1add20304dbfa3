"""`beam-ldp mean`: the mean of vectors of numbers, one per person.

The same program as `python -m beam_ldp.pipelines.mean`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, Literal

import apache_beam as beam
import numpy as np
from rich.console import Console

from beam_ldp.pipelines import run
from beam_ldp.pipelines.flags import Arguments, UsageError
from beam_ldp.pipelines.inputs.fields import choose_fields, dimension_of, read_fields
from beam_ldp.pipelines.inputs.sources import (
    InputFileError,
    ReadTable,
    find_all_files,
)
from beam_ldp.pipelines.means.answer import MeanAnswer, comparison_of
from beam_ldp.pipelines.means.choice import MeanChoice, choose, local_price
from beam_ldp.pipelines.means.settings import MeanSettings, check_mean, ranges_of, shape_of
from beam_ldp.pipelines.means.view import mean_view, picture_shape
from beam_ldp.pipelines.question import Choice, Question, Rows
from beam_ldp.pipelines.records.gates import Price
from beam_ldp.pipelines.records.record import MeanRecord
from beam_ldp.pipelines.records.statement import many, number
from beam_ldp.pipelines.usage.mean import USAGE
from beam_ldp.transforms.composite import PrivateEstimate
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.queries import MeanQuery, Query


class Mean(Question[MeanSettings]):
    """What is the mean of people's vectors?"""

    usage = USAGE

    @property
    def record_type(self) -> type[MeanRecord]:
        return MeanRecord

    def __init__(self, settings: MeanSettings) -> None:
        super().__init__(settings)
        path = find_all_files(settings.source.paths)[0][0]
        try:
            known = read_fields(path, settings.source.format, settings.source.delimiter)
        except InputFileError as error:
            raise UsageError(f"--input {error}") from None
        fields = choose_fields(settings.question.column, known, settings.people.id)
        self.dimension = dimension_of(fields, settings.question.dimension)
        self.columns = tuple(field.name for field in fields)
        self.labels = self.columns
        if len(self.columns) < self.dimension:
            self.labels = tuple(map(str, range(self.dimension)))
        self.ranges = ranges_of(settings, self.labels)
        self.shape = shape_of(settings.question.shape) or picture_shape(self.labels)
        if self.shape is not None and self.shape[0] * self.shape[1] != self.dimension:
            raise UsageError(
                f"--shape {self.shape[0]}x{self.shape[1]} must have as many pixels as there are "
                f"coordinates, {self.dimension:,}"
            )

    @classmethod
    def check(cls, given: Arguments) -> MeanSettings:
        return check_mean(given, USAGE)

    @property
    def about(self) -> str:
        return ",".join(self.settings.question.column)

    @property
    def bounds(self) -> str:
        """In words, where the values of a person lie."""
        settings = self.settings
        if settings.question.range is not None:
            return "each number in [{:g}, {:g}]".format(*settings.question.range)
        if settings.question.ranges is not None:
            return "each number in the public range of its column"
        if settings.question.norm == "binary":
            return "numbers 0 and 1"
        kinds = {"l2": "Euclidean length", "l1": "sum of absolute values", "linf": "each number"}
        norm = settings.question.norm
        kind = kinds[norm] if isinstance(norm, str) else f"l_{norm:g} norm"
        return f"{kind} at most {settings.question.radius:g}"

    @property
    def plausible(self) -> tuple[Any, Any]:
        if self.ranges is not None:
            return np.array(self.ranges.low), np.array(self.ranges.high)
        radius = self.settings.question.radius
        return (0.0, 1.0) if self.settings.question.norm == "binary" else (-radius, radius)

    def choose(self) -> MeanChoice:
        return choose(self.settings, self.dimension, self.ranges)

    def expectation(self, choice: Choice) -> str:
        assert isinstance(choice, MeanChoice)
        which = "the mean" if self.dimension == 1 else "each coordinate of the mean"
        return f"{which} will be off by about {_error_said(self, choice)}"

    def inputs(self) -> Rows:
        names = self.columns if len(self.columns) <= 6 else (*self.columns[:5], "…")
        return [
            ("columns", f"{', '.join(names)} ({many(self.dimension, 'number')} per person)"),
            ("values", self.bounds),
        ]

    def expected(self, choice: Choice) -> Rows:
        assert isinstance(choice, MeanChoice)
        best = comparison_of(*choice.against_the_best)
        said = [("error of a coordinate", _error_said(self, choice))]
        return [*said, ("against the best possible", best)] if best else said

    def expected_as_json(self, choice: Choice) -> dict[str, Any]:
        assert isinstance(choice, MeanChoice)
        times, name = choice.against_the_best
        return {
            "dimension": self.dimension,
            "messages_per_user": choice.randomizer.messages_per_user,
            "predicted_relative_error": choice.relative_error,
            "times_lower_bound": times if math.isfinite(times) else None,
            "lower_bound_name": name,
        }

    @property
    def bad_rows(self) -> Literal["dead_letter", "zero"]:
        """What becomes of rows that cannot be used."""
        return "dead_letter" if self.settings.bad_rows_leave_a_trace else "zero"

    def read(self, pipeline: beam.Pipeline) -> dict[str, beam.PCollection]:
        """The rows, and those that cannot be used."""
        settings = self.settings
        return pipeline | "Read" >> ReadTable(
            settings.source.paths,
            settings.source.format,  # type: ignore[arg-type]
            self.columns,
            settings.people.id,
            bad_rows=self.bad_rows,
            delimiter=settings.source.delimiter,
            dimension=self.dimension,
        )

    @property
    def query(self) -> Query:
        return MeanQuery(self.columns, self.ranges, self.about, self.bad_rows)

    def composite(self, choice: Choice) -> Any:
        how = self.how
        how["one_row_each"] = self.settings.question.one_row_each
        return PrivateEstimate(choice.randomizer, self.query, **how)

    def worst_price(self, choice: Choice) -> Price | None:
        if self.settings.trusts_the_shuffler:
            return super().worst_price(choice)
        return choice.price  # does not depend on how many report

    def price(self, release: Release) -> Price:
        if self.settings.trusts_the_shuffler or release.simulated:
            return super().price(release)
        return local_price(release.mechanism["local_epsilon"])

    def facts(self, choice: Choice, release: Release) -> dict[str, Any]:
        randomizer, estimate = choice.randomizer, release.estimate
        budgets = getattr(randomizer, "message_epsilons", None)
        return dict(
            model=self.settings.privacy.model,
            dimension=self.dimension,
            messages_per_user=randomizer.messages_per_user,
            message_epsilon=None if budgets is None or release.simulated else max(budgets),
            values=self.bounds,
            in_ranges=self.ranges is not None,
            sampling=self.settings.sampling,
            outside=self.settings.question.outside,
            mean_squared_error=estimate.mean_squared_error,  # type: ignore[attr-defined]
            bias_bound=estimate.bias_bound,  # type: ignore[attr-defined]
            expected_bias=estimate.expected_bias,  # type: ignore[attr-defined]
        )

    def answer(self, release: Release, choice: Choice, truth: np.ndarray | None) -> MeanAnswer:
        assert isinstance(choice, MeanChoice)
        view = mean_view(release.estimate, self.labels, truth, self.ranges, self.shape)
        comparison = comparison_of(*choice.against_the_best)
        return MeanAnswer(release, view, self.settings.output.top, comparison)


def _error_said(question: Mean, choice: MeanChoice) -> str:
    ranges = question.ranges
    if ranges is not None and len(set(zip(ranges.low, ranges.high))) > 1:
        return f"{number(100 * choice.relative_error / 2)} % of its range"
    return number(choice.predicted_error)


def run_given(given: Arguments, console: Console) -> int:
    """The program as it was told, by flags or a job file."""
    return run.run_and_show(Mean, given, console)


def main(argv: Sequence[str] | None = None) -> int:
    """The program; the exit codes are in `--help`."""
    return run.main(Mean, argv)


if __name__ == "__main__":
    # The module that runs is called __main__; what workers unpickle must have its real name.
    from beam_ldp.pipelines.mean import main as program

    sys.exit(program())
