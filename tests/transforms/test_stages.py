"""A pipeline that skips a stage, or would release twice, fails when it is built."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms import trigger
from apache_beam.transforms import window as windows

from beam_ldp.settings import Shuffling
from beam_ldp.transforms import (
    Aggregate,
    BoundContributions,
    EstimateFrequencies,
    PrivateFrequencies,
    Randomize,
    ReleaseToRows,
    ReportBlock,
    Shuffle,
    ShuffledBlock,
    ShuffledSum,
    StageError,
    StatisticBlock,
    TableBlock,
    ValueBlock,
)
from beam_ldp.transforms.device.keyed import NoiseSource
from tests.identities import identity
from tests.transforms.helpers import ORACLE

pytestmark = pytest.mark.exact

STAGES = {
    "Shuffle": Shuffle(ORACLE, 10),
    "Aggregate": Aggregate(ORACLE),
    "EstimateFrequencies": EstimateFrequencies(ORACLE),
    "ReleaseToRows": ReleaseToRows(),
    "Randomize": Randomize(ORACLE),
    "BoundContributions": BoundContributions(),
}


def typed(pipeline, kind, label="typed"):
    return pipeline | label >> beam.Create([]).with_output_types(kind)


@pytest.mark.parametrize(
    ("stage", "kind", "message"),
    [
        ("Aggregate", ValueBlock, "put Randomize and then Shuffle before it"),
        ("Aggregate", ReportBlock, "put Shuffle before it"),
        ("Aggregate", int, "put Randomize and then Shuffle before it"),
        ("Aggregate", TableBlock, "put Randomize and then Shuffle before it"),
        ("Aggregate", StatisticBlock, "already past Aggregate"),
        ("Shuffle", ValueBlock, "put Randomize before it"),
        ("Shuffle", ShuffledBlock, "already past Shuffle"),
        ("Shuffle", str, "put Randomize before it"),
        ("EstimateFrequencies", ShuffledSum, "put Aggregate before it"),
        ("EstimateFrequencies", ReportBlock, "put Shuffle and then Aggregate before it"),
        ("ReleaseToRows", StatisticBlock, "put EstimateFrequencies before it"),
        ("Randomize", ReportBlock, "already past this stage"),
        ("Randomize", StatisticBlock, "already past this stage"),
        ("Randomize", TableBlock, "put EncodeRows before it"),
        ("BoundContributions", TableBlock, "put EncodeRows or EncodeVectors before it"),
        ("BoundContributions", ReportBlock, "already past"),
    ],
)
@pytest.mark.parametrize("keyed", [False, True])
def test_the_message_names_the_missing_stage(stage, kind, message, keyed):
    pipeline = beam.Pipeline(runner="FnApiRunner")
    with pytest.raises(StageError, match=message) as error:
        typed(pipeline, tuple[str, kind] if keyed else kind) | STAGES[stage]
    assert str(error.value).startswith(stage)


@pytest.mark.parametrize("stage", ["Shuffle", "Aggregate", "EstimateFrequencies", "ReleaseToRows"])
def test_undeclared_types_are_refused_after_randomize(stage):
    pipeline = beam.Pipeline(runner="FnApiRunner")
    untyped = pipeline | beam.Create([]) | beam.Map(lambda x: x)
    with pytest.raises(StageError, match="elements of undeclared type"):
        untyped | STAGES[stage]
    with pytest.raises(StageError, match="with_output_types"):
        typed(pipeline, object, "object") | "again" >> STAGES[stage]


@pytest.mark.parametrize("key", [float, np.int64, tuple[str, str]])
def test_keys_that_do_not_group_reliably_are_refused(key):
    pipeline = beam.Pipeline(runner="FnApiRunner")
    with pytest.raises(StageError, match="keys of type str, int or bytes"):
        typed(pipeline, tuple[key, ReportBlock]) | Shuffle(ORACLE, 10)


def test_one_report_per_person_over_all_keys():
    pipeline = beam.Pipeline(runner="FnApiRunner")
    with pytest.raises(ValueError, match="once per key"):
        typed(pipeline, tuple[str, ValueBlock]) | BoundContributions()


@pytest.mark.parametrize(
    ("windowing", "message"),
    [
        (lambda: beam.WindowInto(windows.SlidingWindows(60, 30)), "refuses sliding windows"),
        (lambda: beam.WindowInto(windows.Sessions(60)), "refuses session windows"),
        (
            lambda: beam.WindowInto(
                windows.FixedWindows(60),
                trigger=trigger.AfterWatermark(early=trigger.AfterCount(5)),
                accumulation_mode=trigger.AccumulationMode.ACCUMULATING,
            ),
            "refuses accumulating panes",
        ),
    ],
)
@pytest.mark.parametrize("stage", [Shuffle(ORACLE, 10), BoundContributions()])
def test_windows_that_release_twice_are_refused(windowing, message, stage):
    pipeline = beam.Pipeline(runner="FnApiRunner")
    kind = ReportBlock if isinstance(stage, Shuffle) else ValueBlock
    with pytest.raises(ValueError, match=message):
        typed(pipeline, kind) | windowing() | stage


def test_the_composite_refuses_them_too():
    pipeline = beam.Pipeline(runner="FnApiRunner")
    sliding = typed(pipeline, int) | beam.WindowInto(windows.SlidingWindows(60, 30))
    with pytest.raises(ValueError, match="SlidingSums"):
        sliding | PrivateFrequencies(ORACLE, min_reports=5)


def test_types_go_through_all_stages():
    pipeline = beam.Pipeline(runner="FnApiRunner")
    for key in (None, str):
        kinds = [ValueBlock, ReportBlock, ShuffledBlock, StatisticBlock]
        stages = [Randomize(ORACLE), Shuffle(ORACLE, 5), Aggregate(ORACLE)]
        pcoll = typed(pipeline, ValueBlock if key is None else tuple[key, ValueBlock], str(key))
        for i, stage in enumerate(stages):
            pcoll = pcoll | f"{key} {i}" >> stage
            found = pcoll.element_type if key is None else pcoll.element_type.tuple_types[1]
            assert found is kinds[i + 1]
    summed = typed(pipeline, ReportBlock) | "sum" >> Shuffle(ORACLE, 5, "statistic")
    assert summed.element_type is ShuffledSum


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Shuffle(ORACLE, 0), "min_reports must be an integer >= 1, got 0"),
        (lambda: Shuffle(ORACLE, 2.5), "min_reports must be an integer >= 1, got 2.5"),
        (lambda: Shuffle(ORACLE, 5, "sum"), 'output must be "reports" or "statistic"'),
        (lambda: Shuffle(ORACLE, 5, scope="all"), 'scope must be "batch" or "global"'),
        (lambda: Shuffle(ORACLE, 5, num_shards=3), "num_shards must be a power of two, got 3"),
        (lambda: NoiseSource(key_file="k"), "identity must say which release"),
        (
            lambda: NoiseSource(identity(), key_file="k", seed=1),
            "seed must be None",
        ),
        (lambda: NoiseSource(seed=-1), "seed must be an integer >= 0"),
        (lambda: EstimateFrequencies(ORACLE, sampling="all"), 'sampling must be "fixed" or "iid"'),
        (lambda: PrivateFrequencies(ORACLE), "min_reports or expected_users must be given"),
        (
            lambda: PrivateFrequencies(ORACLE, min_reports=5, shuffle=Shuffling(min_reports=5)),
            "min_reports must not be given twice",
        ),
    ],
)
def test_arguments(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_randomizer_is_asked_for():
    for stage in (Randomize, Aggregate, EstimateFrequencies):
        with pytest.raises(TypeError, match="randomizer must be a LocalRandomizer, got str"):
            stage("k-RR")
    with pytest.raises(TypeError, match="randomizer must be a FrequencyOracle, got str"):
        PrivateFrequencies("k-RR", min_reports=5)


FIXED = windows.FixedWindows(60)
DISCARDING = {"accumulation_mode": trigger.AccumulationMode.DISCARDING}


@pytest.mark.parametrize(
    "windowing",
    [
        beam.WindowInto(FIXED, allowed_lateness=5),
        beam.WindowInto(
            FIXED, trigger=trigger.AfterWatermark(early=trigger.AfterCount(9)), **DISCARDING
        ),
        beam.WindowInto(FIXED, trigger=trigger.Repeatedly(trigger.AfterCount(9)), **DISCARDING),
    ],
)
def test_windows_that_fire_twice_are_refused(windowing):
    """A global shuffle counts its crowd apart from its reports: a late one would leave with an old
    count. And one row per person needs all rows of the person."""
    reports = typed(beam.Pipeline(), ReportBlock) | windowing
    with pytest.raises(ValueError, match="fire once"):
        reports | "global" >> Shuffle(ORACLE, 10, scope="global")
    for label, how in {"batch": {}, "statistic": {"output": "statistic"}}.items():
        assert (reports | label >> Shuffle(ORACLE, 10, **how)).element_type is not None
    rows = reports | beam.Map(lambda _: ValueBlock([1])).with_output_types(ValueBlock)
    with pytest.raises(ValueError, match="would report twice"):
        rows | BoundContributions()


def test_the_global_shuffle_takes_windows_that_fire_once():
    reports = typed(beam.Pipeline(), ReportBlock) | beam.WindowInto(
        FIXED, trigger=trigger.AfterWatermark(), **DISCARDING
    )
    assert (reports | Shuffle(ORACLE, 10, scope="global")).element_type is ShuffledBlock
