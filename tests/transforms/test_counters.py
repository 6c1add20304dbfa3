"""What the stages count: the list is whole, the page says the same, and no data is in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.metrics.metric import MetricsFilter

from beam_ldp.questions.columns import REASONS
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.wire import encode_envelope
from beam_ldp.settings import People, Shuffling
from beam_ldp.transforms import (
    Aggregate,
    EncodeRows,
    EstimateFrequencies,
    PrivateFrequencies,
    Randomize,
    ReadReports,
    Shuffle,
    WriteReports,
)
from beam_ldp.transforms.elements.stages import (
    BY_REASON,
    CROWD,
    METRICS,
    ReasonCounters,
    Stopwatch,
    counter,
    distribution,
    reason_name,
)
from tests.randomizers.wire_terms import terms_of
from tests.transforms.helpers import ORACLE, blocks_of, local, value_blocks

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "monitoring.md"
COLOURS = Domain(("red", "green", "blue"))
SECRET = "the-raw-value"


def metrics_of(build: Callable[[beam.Pipeline], Any]) -> dict[str, Any]:
    """Sums of counters, and merged distributions, of all steps."""
    pipeline = local()
    build(pipeline)
    result = pipeline.run()
    result.wait_until_finish()
    found = result.metrics().query(MetricsFilter().with_namespace("beam_ldp"))
    counted: dict[str, Any] = {}
    for one in found["counters"]:
        name = one.key.metric.name
        counted[name] = counted.get(name, 0) + one.result
    for one in found["distributions"]:
        name, told = one.key.metric.name, one.result
        least, most, total, count = counted.get(name, (told.min, told.max, 0, 0))
        counted[name] = (
            min(least, told.min), max(most, told.max), total + told.sum, count + told.count
        )  # fmt: skip
    return counted


def rows() -> list[dict[str, Any]]:
    good = [{"c": "red", "id": i} for i in range(60)] + [{"c": SECRET, "id": i} for i in range(40)]
    return [*good, {"c": None, "id": 1}, {"c": None, "id": 2}, {"c": "red", "id": None}]


@pytest.mark.pipeline
@pytest.mark.parametrize("output", ["statistic", "reports"])
def test_every_stage_counts(output: Any) -> None:
    """In, out, rejected by reason; sizes and times of blocks."""
    oracle = KRandomizedResponse(COLOURS.size, 2.0)
    found = metrics_of(
        lambda pipeline: (
            pipeline
            | beam.Create(rows())
            | PrivateFrequencies(
                oracle,
                domain=COLOURS,
                column="c",
                people=People(id="id"),
                min_reports=90,
                shuffle=Shuffling(output=output),
            )
        )
    )
    expected = {
        "rows_read": 103, "bad_rows": 3, "bad_rows_null": 2, "bad_rows_no_user_id": 1,
        "users": 60, "reports_randomized": 60, "shuffle_reports_in": 60, "reports_withheld": 60,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert found.get("reports_released", 0) == 0 == found.get("releases", 0)
    least, most, total, count = found["encode_block_rows"]
    assert total == 103 and 1 <= least <= most <= 103 and count >= 1
    assert found["randomize_block_reports"][2] == 60 == found["shuffle_block_reports"][2]
    assert found["shuffle_microseconds"][3] == found["shuffle_block_reports"][3]
    assert not {"encode_microseconds", "randomize_microseconds"} & set(found)  # of too few people
    assert SECRET not in repr(found)


@pytest.mark.pipeline
@pytest.mark.parametrize(
    ("output", "scope"), [("statistic", "batch"), ("reports", "batch"), ("reports", "global")]
)
def test_what_is_released_is_counted(output: Any, scope: Any) -> None:
    found = metrics_of(
        lambda pipeline: (
            blocks_of(pipeline, value_blocks(np.zeros(3000, dtype=int), 700))
            | Randomize(ORACLE)
            | Shuffle(ORACLE, 100, output, scope)
            | Aggregate(ORACLE)
            | EstimateFrequencies(ORACLE, min_reports=100)
        )
    )
    expected = {
        "reports_randomized": 3000, "shuffle_reports_in": 3000, "reports_released": 3000,
        "aggregate_reports_in": 3000, "releases": 1,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert found["randomize_block_reports"] == (200, 700, 3000, 5)
    assert found["shuffle_block_reports"] == (200, 700, 3000, 5)
    assert found["aggregate_block_reports"][2] == 3000
    assert found["aggregate_microseconds"][3] == found["aggregate_block_reports"][3] >= 1
    assert found["estimate_microseconds"][3] == 1
    assert 0 < found.get("randomize_microseconds", (0, 0, 0, 1))[3] <= 3
    assert "bad_rows" not in found or found["bad_rows"] == 0


@pytest.mark.pipeline
def test_too_few_for_an_estimate_are_counted() -> None:
    found = metrics_of(
        lambda pipeline: (
            blocks_of(pipeline, value_blocks(np.zeros(300, dtype=int), 300))
            | Randomize(ORACLE)
            | Shuffle(ORACLE, 100, "statistic")
            | Aggregate(ORACLE)
            | EstimateFrequencies(ORACLE, min_reports=400)
        )
    )
    assert found["estimates_withheld"] == 1 and not found.get("releases")


@pytest.mark.pipeline
def test_bad_rows_that_leave_no_trace_leave_none_here() -> None:
    oracle = KRandomizedResponse(COLOURS.size, 2.0)
    found = metrics_of(
        lambda pipeline: (
            pipeline
            | beam.Create(rows())
            | EncodeRows(COLOURS, "c", bad_rows="other", domain_size=oracle.domain_size)
        )
    )
    assert found["rows_read"] == 103
    assert not [name for name in found if name.startswith("bad_rows")]


@pytest.mark.pipeline
def test_envelopes_are_counted_by_reason(tmp_path: Path) -> None:
    terms = terms_of(ORACLE)
    found = metrics_of(
        lambda pipeline: (
            blocks_of(pipeline, value_blocks(np.zeros(500, dtype=int), 500))
            | Randomize(ORACLE)
            | WriteReports(str(tmp_path), terms)
        )
    )
    assert found["reports_written"] == 500
    old = encode_envelope(terms_of(ORACLE, "week-46"), np.zeros(1, dtype=np.uint8))
    mine = encode_envelope(terms, np.zeros(1, dtype=np.uint8), bytes([1] * 16))
    (tmp_path / "more").write_bytes(old + old + mine + mine + mine[:-1])
    found = metrics_of(lambda pipeline: pipeline | ReadReports(str(tmp_path), terms))
    expected = {
        "envelopes_read": 502, "envelopes_refused": 2,
        "envelopes_refused_another_release_question_or_mechanism": 1,
        "envelopes_refused_cut_short": 1, "envelopes_repeated": 1, "reports_received": 501,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


@pytest.mark.exact
def test_the_page_lists_what_there_is() -> None:
    """Row by row: docs/monitoring.md and the list in the code."""
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+?) \| (.+?) \|$", PAGE.read_text(), re.M)
    assert [tuple(row) for row in listed] == [
        (m.name, m.kind, m.stage if m.stage in ("encode", "estimate") else f"`{m.stage}`",
         m.meaning)
        for m in METRICS
    ]  # fmt: skip


@pytest.mark.exact
def test_every_metric_is_used_and_no_other_is() -> None:
    sources = [path.read_text() for path in (ROOT / "beam_ldp").rglob("*.py")]
    text = "\n".join(sources)
    made = set(
        re.findall(
            r'(?:[^.]counter|distribution|ReasonCounters|Stopwatch)\("(\w+)"(?:, CROWD)?\)', text
        )
    )
    for stage in map(str.lower, re.findall(r'\bGate\("(\w+)"', text)):
        made |= {f"{stage}_reports_in", f"{stage}_block_reports", f"{stage}_microseconds"}
    assert made == {metric.name for metric in METRICS}
    stages = (ROOT / "beam_ldp" / "transforms").rglob("*.py")
    assert sum("Metrics.counter(" in path.read_text() for path in stages) == 1  # stages.py itself


@pytest.mark.exact
def test_metrics_outside_of_the_list_cannot_be_made() -> None:
    for make in (counter, distribution, ReasonCounters):
        with pytest.raises(KeyError, match="is no"):
            make("something")
    with pytest.raises(KeyError):
        counter("encode_microseconds")
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    names = [reason_name("bad_rows" + BY_REASON, reason) for reason in REASONS if reason]
    assert len(set(names)) == len(names) and all(re.fullmatch(r"[a-z_0-9]+", n) for n in names)


class Told:
    """Takes the place of a distribution."""

    def __init__(self) -> None:
        self.found: list[int] = []

    def update(self, number: int) -> None:
        self.found.append(number)


@pytest.mark.exact
def test_no_time_of_fewer_than_a_thousand_people_is_told(monkeypatch) -> None:
    """Blocks of one report each, as a stream has them: what is told is a sum over a crowd."""
    told, clock = Told(), iter(range(0, 10**9, 3_000))
    monkeypatch.setattr("beam_ldp.transforms.elements.stages.distribution", lambda name: told)
    monkeypatch.setattr(
        "beam_ldp.transforms.elements.stages.time.perf_counter_ns", lambda: next(clock)
    )
    timed = Stopwatch("randomize_microseconds", CROWD)
    for _ in range(CROWD - 1):
        with timed(1):
            pass
    assert told.found == []
    with timed(1):
        pass
    assert told.found == [3 * CROWD]
    with timed(5 * CROWD):
        pass
    assert told.found == [3 * CROWD, 3]
