"""Who was asked what, in pipelines: the audit is that of the log."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.transforms.window import FixedWindows

from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.research.interactivity.auditing import audit_records
from beam_ldp.research.interactivity.records import records_of
from beam_ldp.research.interactivity.stages import AuditInteractivity
from beam_ldp.transforms import PerPersonFilter, Randomize, Shuffle
from beam_ldp.transforms.elements.blocks import ReportBlock, ValueBlock
from beam_ldp.transforms.elements.stages import StageError
from tests.transforms.helpers import run

pytestmark = pytest.mark.pipeline

ORACLE = KRandomizedResponse(4, local_epsilon=0.75)


def records() -> list[dict[str, Any]]:
    rng = np.random.default_rng(8)
    people, outputs = rng.integers(0, 60, 200).tolist(), rng.integers(0, 2, 200).tolist()
    return [
        {"seq": i, "user": people[i], "randomizer": f"r{i % 3}", "round": i % 2, "epsilon": 0.25,
         "output": outputs[i], "assign_seq": 0 if i < 100 else 100}
        for i in range(200)
    ]  # fmt: skip


def collected(build: Any) -> dict[str, list[Any]]:
    """What the named collections of one small pipeline hold."""

    def named(pipeline: beam.Pipeline) -> beam.PCollection:
        parts = [
            pcoll | f"Name {name}" >> beam.Map(lambda one, name=name: (name, one))
            for name, pcoll in build(pipeline).items()
        ]
        return parts | "All" >> beam.Flatten()

    found: dict[str, list[Any]] = defaultdict(list)
    for name, element in run(named):
        found[name].append(element)
    return found


def test_the_report_is_that_of_the_log_whatever_the_elements_are() -> None:
    rows = records()
    table = pa.Table.from_pylist(rows)
    expected = audit_records(records_of(table), 1.0).to_json()
    assert not expected["clean"] and expected["num_retries"] and expected["waves"] == 2
    batches = table.to_batches(max_chunksize=70)
    mixed = [*batches[:2], *rows[140:170], *(beam.Row(**row) for row in rows[170:])]

    def build(pipeline: beam.Pipeline) -> dict[str, beam.PCollection]:
        elements = pipeline | beam.Create(mixed)
        nobody = pipeline | "Nobody" >> beam.Create([])
        told = elements | AuditInteractivity(1.0)
        empty = nobody | "Of nobody" >> AuditInteractivity(1.0)
        return {"told": told, "bad": told.bad_rows, "empty": empty}

    found = collected(build)
    (told,), bad, (empty,) = found["told"], found["bad"], found["empty"]
    assert told == {**expected, "num_bad_rows": 0} and bad == []
    assert empty["num_people"] == 0 and empty["clean"] and empty["waves"] is None


def test_what_is_no_record_is_a_dead_letter_and_the_report_says_so() -> None:
    good = records()[:5]
    batch = pa.Table.from_pylist([good[3], {**good[4], "epsilon": -1.0}]).to_batches()[0]
    bad = ["text", {"seq": 1}, {**good[0], "epsilon": None}, {**good[0], "user": True}]

    def build(pipeline: beam.Pipeline) -> dict[str, beam.PCollection]:
        told = pipeline | beam.Create([*good[:3], *bad, batch]) | AuditInteractivity(9.0)
        return {"told": told, "bad": told.bad_rows}

    found = collected(build)
    (told,) = found["told"]
    assert (told["num_records"], told["num_bad_rows"], told["clean"]) == (4, 5, False)
    reasons = sorted(row.reason for row in found["bad"])
    assert len(reasons) == 5 and "epsilon must be in [0, 10000]" in reasons
    assert not any("text" in row.reason and "integer" not in row.reason for row in found["bad"])


def test_behind_a_shuffle_both_are_refused_when_the_pipeline_is_built() -> None:
    pipeline = beam.Pipeline()
    values = pipeline | beam.Create([ValueBlock(np.arange(4))]).with_output_types(ValueBlock)
    reports = values | Randomize(ORACLE)
    shuffled = reports | Shuffle(ORACLE, min_reports=1)
    permuted = reports | "Permute" >> Shuffle(ORACLE, min_reports=1, output="reports")
    for i, late in enumerate((shuffled, permuted)):
        for stage in (AuditInteractivity(1.0), PerPersonFilter(1.0, ORACLE)):
            with pytest.raises(StageError, match="before the shuffle.* linked to people again"):
                _ = late | f"{type(stage).__name__} {i}" >> stage
    with pytest.raises(StageError, match="PerPersonFilter takes ValueBlock"):
        _ = reports | "Of reports" >> PerPersonFilter(1.0, ORACLE)
    assert reports.element_type is ReportBlock
    windowed = values | beam.WindowInto(FixedWindows(1))
    with pytest.raises(StageError, match="global window"):
        _ = windowed | "Windowed" >> AuditInteractivity(1.0)
    for wrong in (0.0, float("nan")):
        with pytest.raises(ValueError, match="epsilon must"):
            PerPersonFilter(wrong, ORACLE)
        with pytest.raises(ValueError, match="epsilon must"):
            AuditInteractivity(wrong)
