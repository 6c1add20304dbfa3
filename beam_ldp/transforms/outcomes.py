"""Outcomes of an experiment: rows to bits and public arms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.settings import People, Privacy
from beam_ldp.transforms.device.encode import ColumnNames, EncodeBlocks, EncodeStage
from beam_ldp.transforms.device.number_columns import VectorEncoder
from beam_ldp.transforms.elements.columns import NOT_BINARY, SOUND, Codes, Column
from beam_ldp.transforms.elements.portable import groups_of
from beam_ldp.transforms.queries import Query

if TYPE_CHECKING:  # which workers need not load
    from beam_ldp.experiments import ExperimentPlan


def outcome_digest(plan: str, look: int) -> bytes:
    """What stands for the question of an experiment in the identity of a release.

    Args:
        plan: digest of the plan, in hexadecimal.
        look: from 1.
    """
    return digest_of(b"experiment", bytes.fromhex(plan), b"%d" % look)


@dataclass(frozen=True)
class OutcomeQuery(Query):
    """How many people of each arm have the outcome.

    Attributes:
        experiment: its plan. Its digest is part of the release's identity: another plan is
            another release.
        column: with the outcome, 0 or 1.
        look: which look at the experiment it is, from 1.
        name: for the record.
    """

    experiment: ExperimentPlan
    column: str
    look: int = 1
    name: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def digest(self, randomizer: Any) -> bytes:
        return outcome_digest(self.experiment.digest, self.look)

    def check(self, randomizer: Any) -> None:
        if not isinstance(randomizer, FrequencyOracle) or randomizer.domain_size != 2:
            raise TypeError("randomizer must be a FrequencyOracle of two values")

    def plan(self, privacy: Privacy) -> KRandomizedResponse:
        return self.experiment.randomizer()

    def encoder(self, randomizer: Any, people: People) -> beam.PTransform:
        return EncodeOutcomes(self.column, people=people)


class EncodeOutcomes(EncodeStage):
    """Turns rows into `ValueBlock`s of bits. Nothing is private yet.

    An outcome is 0 or 1, a truth value, or text that spells one of them. Any other row, and a row
    of an arm that is not in the plan, goes to the attribute `bad_rows` of the result.

    Args:
        column: name of the column with the outcome.
        people: the columns with a person's id and arm, and the public list of arms.
    """

    def __init__(self, column: str, *, people: People = People()) -> None:
        super().__init__()
        self._doer = _EncodeBits(
            names=ColumnNames.of((column,), people),
            groups=groups_of(people),
            hide_bad=False,
            only_listed=True,
            column=column,
        )

    def display_data(self) -> dict[str, Any]:
        return {"outcome": "0 or 1"}


@dataclass(eq=False, kw_only=True)
class _EncodeBits(EncodeBlocks):
    column: str

    def encode_values(
        self, columns: Mapping[str, Column], num_rows: int
    ) -> tuple[np.ndarray, Codes]:
        told = _spelled(columns.get(self.column, Column(None, num_rows)))
        numbers, codes = VectorEncoder(1).encode([told], num_rows)
        bits = numbers[:, 0]
        codes[(codes == SOUND) & (bits != 0) & (bits != 1)] = NOT_BINARY
        return (bits == 1).astype(np.uint8), codes


def _spelled(column: Column) -> Column:
    """The column with `true` and `false`, however they are written, as digits."""
    data = column.data
    if not isinstance(data, pa.Array):
        return column
    if not (pa.types.is_string(data.type) or pa.types.is_large_string(data.type)):
        return column
    lower = pc.ascii_lower(pc.ascii_trim_whitespace(data))
    digits = pc.replace_substring_regex(lower, "^true$", "1")
    return Column(pc.replace_substring_regex(digits, "^false$", "0"), column.num_rows)
