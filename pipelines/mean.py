"""`beam-ldp mean`: the mean of vectors of numbers, one per person.

The same program as `python -m beam_ldp.pipelines.mean`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from rich.console import Console

from beam_ldp.accounting.prices import Price
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.commands import start
from beam_ldp.pipelines.means.answer import MeanAnswer, mean_view, picture_shape
from beam_ldp.pipelines.means.choice import (
    MeanChoice,
    MeanPlanner,
    MeanSettings,
    VectorPlanner,
    check_mean,
    comparison_of,
    local_price,
    shape_of,
)
from beam_ldp.pipelines.usage.mean import USAGE
from beam_ldp.release.gates import gate_length
from beam_ldp.release.inputs.previews import choose_fields, dimension_of, read_fields
from beam_ldp.release.inputs.sources import InputFileError
from beam_ldp.release.job import S
from beam_ldp.release.planner import Choice
from beam_ldp.release.question import Question
from beam_ldp.release.record import MeanRecord
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms.composite import PrivateEstimate
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.queries import MeanQuery, Query


class VectorQuestion(VectorPlanner[S], Question[S]):
    """What all means have in common: a `VectorPlanner` that also runs.

    Attributes:
        shape: rows and columns, where the mean is a picture.
    """

    def __init__(self, settings: S) -> None:
        """Reads the names of columns, and no rows. Raises SettingError."""
        self.settings = settings  # which say where the coordinates are
        super().__init__(settings, *self.coordinates())
        self.shape = shape_of(settings.question.shape) or picture_shape(self.labels)
        if self.shape is not None and self.shape[0] * self.shape[1] != self.dimension:
            raise SettingError(
                f"--shape {self.shape[0]}x{self.shape[1]} must have as many pixels as there are "
                f"coordinates, {self.dimension:,}"
            )

    def coordinates(self) -> tuple[Sequence[str], int]:
        """Columns, and numbers per person: of the first input, whose header or footer is read.

        Raises:
            SettingError: if it does not fit what is asked.
        """
        settings = self.settings
        form, delimiter = settings.source.format, settings.source.delimiter
        try:
            known = read_fields(settings.files[0], form, delimiter)
        except InputFileError as error:
            raise SettingError(f"--input {error}") from None
        fields = choose_fields(
            settings.question.column, known, settings.people.id, delimiter if form == "csv" else ""
        )
        return [field.name for field in fields], dimension_of(fields, settings.question.dimension)

    @property
    def about(self) -> str:
        return ",".join(self.settings.question.column)

    @property
    def plausible(self) -> tuple[Any, Any]:
        if self.ranges is not None:
            return np.array(self.ranges.low), np.array(self.ranges.high)
        radius = self.settings.question.radius
        return (0.0, 1.0) if self.settings.question.norm == "binary" else (-radius, radius)

    def warnings(self, release: Release) -> tuple[str, ...]:
        """What noise does not explain, of coordinates and of the whole length."""
        asked, found = self.settings.question, super().warnings(release)
        if self.ranges is not None or asked.norm != "l2":
            return found
        return (*found, *gate_length(release, asked.radius))

    @property
    def bad_rows(self) -> Literal["dead_letter", "zero"]:
        """What becomes of rows that cannot be used."""
        return "dead_letter" if self.settings.bad_rows_leave_a_trace else "zero"

    @property
    def value_columns(self) -> tuple[str, ...]:
        return self.columns

    @property
    def vector_size(self) -> int:
        return self.dimension


class Mean(MeanPlanner, VectorQuestion[MeanSettings]):
    """What is the mean of people's vectors?"""

    usage = USAGE

    @property
    def record_type(self) -> type[MeanRecord]:
        return MeanRecord

    @classmethod
    def check(cls, given: Arguments) -> MeanSettings:
        return check_mean(given, USAGE)

    @classmethod
    def run_otherwise(cls, given: Arguments, console: Console) -> int | None:
        if not given["output"].get("publish"):
            return None
        from beam_ldp.pipelines.devices.shares import publish

        return publish(given, console)

    @property
    def query(self) -> Query:
        return MeanQuery(self.columns, self.ranges, self.about, self.bad_rows)

    def composite(self, choice: Choice[Any]) -> Any:
        how = self.how
        how["one_row_each"] = self.settings.question.one_row_each
        return PrivateEstimate(choice.mechanism, self.query, **how)

    def price(self, release: Release) -> Price:
        if self.settings.trusts_the_shuffler or release.simulated:
            return super().price(release)
        return local_price(release.mechanism["local_epsilon"])

    def facts(self, choice: Choice[Any], release: Release) -> dict[str, Any]:
        randomizer, estimate = choice.mechanism, release.estimate
        budgets = getattr(randomizer, "message_epsilons", None)
        return dict(
            model=self.settings.privacy.model,
            dimension=self.dimension,
            messages_per_user=randomizer.messages_per_user,
            compression=randomizer.compression,
            message_epsilon=None if budgets is None or release.simulated else max(budgets),
            values=self.bounds,
            in_ranges=self.ranges is not None,
            sampling=self.settings.sampling,
            outside=self.settings.question.outside,
            mean_squared_error=estimate.mean_squared_error,  # type: ignore[attr-defined]
            bias_bound=estimate.bias_bound,  # type: ignore[attr-defined]
            error_bars=estimate.error_bars,  # type: ignore[attr-defined]
            expected_bias=estimate.expected_bias,  # type: ignore[attr-defined]
        )

    def answer(self, release: Release, choice: Choice[Any], truth: np.ndarray | None) -> MeanAnswer:
        assert isinstance(choice, MeanChoice)
        view = mean_view(release.estimate, self.labels, truth, self.ranges, self.shape)
        comparison = comparison_of(*choice.against_the_best)
        return MeanAnswer(release, view, self.settings.output.top, comparison)


PROGRAM = programs.program_of(Mean)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(USAGE))
