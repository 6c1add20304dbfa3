"""Estimates and error bars through the pipeline; every way to hold data back."""

from __future__ import annotations

import itertools
import math

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.entropy import critical_bits
from beam_ldp.randomizers.frequency import LimitedHadamard
from beam_ldp.randomizers.frequency.k_randomized_response import KRandomizedResponse
from beam_ldp.settings import Noise, People, Shuffling
from beam_ldp.transforms import PrivateFrequencies, ReleaseToRows, SlidingSums, ValueBlock
from beam_ldp.transforms.collector.panes import add_releases
from tests.transforms.helpers import (
    ORACLE,
    TRUTH,
    blocks_of,
    local,
    run,
    truth_values,
    value_blocks,
)

pytestmark = pytest.mark.pipeline

FORMS = [("statistic", "batch"), ("reports", "batch"), ("reports", "global")]


@pytest.mark.statistical
@pytest.mark.parametrize(("output", "scope"), FORMS)
def test_estimates_lie_within_their_error_bars(output, scope):
    """50,000 users, fixed seed, five components at 4 sigma: 3e-4 by chance."""
    blocks = value_blocks(truth_values(50_000), 3000)
    stage = PrivateFrequencies(
        ORACLE,
        min_reports=1000,
        shuffle=Shuffling(output=output, scope=scope),
        noise=Noise(seed=11),
    )
    (release,) = run(lambda p: blocks_of(p, blocks) | stage)
    error = np.abs(release.estimate.value - TRUTH) / release.estimate.standard_error
    assert error.max() < 4
    assert release.num_reports == 50_000 and release.output == output
    assert release.simulated and release.event is None and release.smallest_batch == 50_000


@pytest.mark.statistical
def test_error_bars_have_the_right_size():
    """200 windows of 500 users: the z-scores of all components have unit variance (4 sigma).

    The variance of 1000 z-scores, in groups of five that sum to zero, has standard error below
    (2 / 800)**0.5; a second test with error bars off by 12 % would fail.
    """
    blocks = [
        TimestampedValue(
            ValueBlock(truth_values(500), source=f"w{w}", positions=np.arange(500)), w * 60
        )
        for w in range(200)
    ]

    def build(pipeline):
        return (
            pipeline
            | beam.Create(blocks)
            | beam.Map(lambda block: block).with_output_types(ValueBlock)
            | beam.WindowInto(FixedWindows(60))
            | PrivateFrequencies(ORACLE, min_reports=400, noise=Noise(seed=5))
        )

    releases = run(build)
    assert len({release.window for release in releases}) == 200
    assert {release.num_reports for release in releases} == {500}
    exact = np.sqrt(ORACLE.variance(500, TRUTH))
    scores = np.array([(release.estimate.value - TRUTH) / exact for release in releases])
    assert abs((scores**2).mean() - 1) < 4 * (2 / 800) ** 0.5
    assert np.abs(scores.mean(axis=0)).max() < 4 / 200**0.5
    bars = np.array([release.estimate.standard_error for release in releases])
    assert abs(bars.mean() / exact.mean() - 1) < 0.02


@pytest.mark.statistical
def test_few_random_bits_have_the_error_they_declare():
    """Each mode, 100 values of 20,000 people at half of the bits that answers take: z-scores at the
    exact variance have mean zero and mean square one (4.5 sigma; chance of a false alarm 4e-5)."""
    k, num = 100, 20_000
    values = np.minimum(np.arange(num) * 7919 % 199, k - 1)
    truth = np.bincount(values, minlength=k) / num
    blocks = value_blocks(values, 3000)
    made = {}
    for mode, row in itertools.product(("binary", "ternary", "timeshare"), ("sent", "public")):
        made[f"{mode}, {row}"] = LimitedHadamard(k, 1.0, critical_bits(1.0) / 2, mode, row)

    def build(pipeline):
        values = blocks_of(pipeline, blocks)
        for name, oracle in made.items():
            stage = PrivateFrequencies(oracle, min_reports=1000, noise=Noise(seed=5))
            yield values | name >> stage | f"{name} named" >> beam.Map(lambda r, n=name: (n, r))

    found = dict(run(lambda pipeline: tuple(build(pipeline)) | beam.Flatten()))
    assert found.keys() == made.keys()
    for name, release in found.items():
        error = np.sqrt(made[name].variance(num, truth))
        scores = (release.estimate.value - truth) / error
        assert abs(scores.mean()) < 4.5 / math.sqrt(k), name
        assert abs((scores**2).mean() - 1) < 4.5 * math.sqrt(2 / k), name
        assert made[name].mode == name.split(", ")[0]


@pytest.mark.statistical
def test_drawn_rows_need_the_wider_error_bars():
    """Half of the persons have one row, half have four: the mean of their shares, 4 sigma."""
    num = 20_000
    ids = np.concatenate([np.arange(num), np.tile(np.arange(num // 2), 3)])
    values = np.concatenate([np.zeros(num, dtype=np.int64), np.full(3 * (num // 2), 4)])
    order = np.random.default_rng(1).permutation(len(ids))
    rows = [order[i : i + 7000] for i in range(0, len(ids), 7000)]
    blocks = [ValueBlock(values[r], ids[r], source="s", positions=r) for r in rows]
    oracle = KRandomizedResponse(5, 6.0)
    stage = PrivateFrequencies(
        oracle, min_reports=100, people=People(id="user id"), noise=Noise(seed=2)
    )
    (release,) = run(lambda p: blocks_of(p, blocks) | stage)
    shares = np.array([0.5 + 0.5 * 0.25, 0, 0, 0, 0.5 * 0.75])
    error = np.abs(release.estimate.value - shares) / release.estimate.standard_error
    assert release.num_reports == num and error.max() < 4
    assert stage.sampling == "iid"
    drawn = oracle.variance(num, release.estimate.value.clip(0, 1), "iid")
    assert np.allclose(release.estimate.standard_error, np.sqrt(drawn))


@pytest.mark.parametrize(("output", "scope"), FORMS)
def test_zero_users(output, scope):
    with local() as pipeline:
        empty = pipeline | beam.Create([]).with_output_types(int)
        releases = empty | PrivateFrequencies(
            ORACLE, min_reports=1, shuffle=Shuffling(output=output, scope=scope), question="q"
        )
        assert_that(releases, equal_to([]), label="releases")
        notices = releases.withheld | beam.Map(lambda w: (w.question, w.num_reports, w.min_reports))
        assert_that(notices, equal_to([("q", 0, 1)]), label="withheld")
        assert_that(releases.bad_rows, equal_to([]), label="bad")


def test_default_threshold_is_nine_tenths_of_the_expected_users():
    for num, released in ((89, 0), (90, 1)):
        stage = PrivateFrequencies(ORACLE, expected_users=100)
        values = [1] * num
        assert len(run(lambda p, v=values, s=stage: p | beam.Create(v) | s)) == released


def test_the_event_prices_the_reports_received():
    from beam_ldp.accounting import shuffled_event

    (release,) = run(
        lambda p: p | beam.Create([1] * 250) | PrivateFrequencies(ORACLE, min_reports=9)
    )
    assert release.event == shuffled_event(ORACLE, 250)
    assert release.mechanism == ORACLE.to_config()


def test_windows_are_priced_and_withheld_one_by_one():
    stamped = [TimestampedValue(i % 5, 60 * (i >= 300)) for i in range(400)]
    with local() as pipeline:
        releases = (
            pipeline
            | beam.Create(stamped)
            | beam.WindowInto(FixedWindows(60))
            | PrivateFrequencies(ORACLE, min_reports=200)
        )
        facts = releases | beam.Map(lambda r: (r.num_reports, r.event.num_reports, r.window))
        assert_that(facts, equal_to([(300, 300, (0, 60_000_000))]), label="releases")
        held = releases.withheld | beam.Map(lambda w: (w.num_reports, w.window))
        assert_that(held, equal_to([(100, (60_000_000, 120_000_000))]), label="withheld")


def test_two_uses_need_only_a_label_each():
    with local() as pipeline:
        values = pipeline | beam.Create([0] * 20)
        for label in ("first", "second"):
            releases = values | label >> PrivateFrequencies(ORACLE, min_reports=5)
            facts = releases | f"facts {label}" >> beam.Map(lambda r: r.num_reports)
            assert_that(facts, equal_to([20]), label=label)
    with pytest.raises(RuntimeError, match="already exists"):
        pipeline = local()
        values = pipeline | beam.Create([0])
        for _ in range(2):
            values | PrivateFrequencies(ORACLE, min_reports=5)


@pytest.mark.parametrize(("output", "scope"), FORMS)
def test_many_groups(output, scope):
    """2000 groups with eight values each, one of them with half of all rows."""
    names = Domain(tuple(f"group {i}" for i in range(2000)))
    rng = np.random.default_rng(3)
    groups = np.where(rng.random(60_000) < 0.5, 7, rng.integers(0, 2000, 60_000))
    values = rng.integers(0, 5, 60_000)
    blocks = [
        ValueBlock(values[i : i + 9000], groups=groups[i : i + 9000], source="s",
                   positions=np.arange(i, min(i + 9000, 60_000)))
        for i in range(0, 60_000, 9000)
    ]  # fmt: skip
    stage = PrivateFrequencies(
        ORACLE,
        people=People(groups=names),
        min_reports=5,
        shuffle=Shuffling(output=output, scope=scope),
        noise=Noise(seed=1),
    )
    if scope == "global":
        stage._halves.collector._shuffle.num_shards = 2
    found = dict(run(lambda p: blocks_of(p, blocks) | stage))
    counts = np.bincount(groups, minlength=2001)
    assert {name: release.num_reports for name, release in found.items()} == {
        names.labels[i]: counts[i] for i in np.flatnonzero(counts >= 5)
    }
    assert all(release.group == name for name, release in found.items())
    assert found["group 7"].num_reports > 29_000


def test_rows_of_a_release():
    names = Domain(("a", "b", "c", "d"))
    blocks = value_blocks(truth_values(5000), 5000)
    stage = PrivateFrequencies(ORACLE, min_reports=5, noise=Noise(seed=1), question="colour")
    (release,) = run(lambda p: blocks_of(p, blocks) | stage)
    rows = run(lambda p: blocks_of(p, blocks) | stage | ReleaseToRows(names, level=0.9))
    assert [row.value for row in rows] == ["a", "b", "c", "d", "other"]
    low, high = release.estimate.confidence_interval(0.9)
    for i, row in enumerate(rows):
        assert (row.question, row.group, row.window_start) == ("colour", None, None)
        assert row.frequency == release.estimate.value[i]
        assert (row.frequency_low, row.frequency_high) == (low[i], high[i])
        assert row.count == pytest.approx(5000 * row.frequency)
        assert row.count_standard_error == pytest.approx(5000 * row.frequency_standard_error)
        assert row.count_low < row.count < row.count_high
    with pytest.raises(Exception, match="domain must name 5 values, got 3"):
        run(lambda p: blocks_of(p, blocks) | stage | ReleaseToRows(Domain(("a", "b"))))


def test_sliding_windows_are_sums_of_panes():
    stamped = [TimestampedValue(i % 5, 60 * (i // 100)) for i in range(500)]

    def panes(pipeline):
        return (
            pipeline
            | beam.Create(stamped)
            | beam.WindowInto(FixedWindows(60))
            | PrivateFrequencies(ORACLE, min_reports=50)
        )

    found = run(lambda p: panes(p) | SlidingSums(180, 60))
    assert sorted(release.window for release in found) == [
        (start * 10**6, (start + 180) * 10**6) for start in (0, 60, 120)
    ]
    for release in found:
        assert release.num_reports == release.estimate.num_users == 300
        assert release.derived and release.event is None and not release.simulated
        assert release.estimate.value.sum() == pytest.approx(1)
    with pytest.raises(ValueError, match="size must be a multiple of period"):
        SlidingSums(100, 60)
    with pytest.raises(ValueError, match=r"FixedWindows\(30\)"):
        run(lambda p: panes(p) | SlidingSums(60, 30))


@pytest.mark.exact
def test_sums_of_panes_weigh_by_users():
    blocks = [value_blocks(truth_values(n), n) for n in (1000, 3000)]
    stage = PrivateFrequencies(ORACLE, min_reports=5, noise=Noise(seed=1))
    releases = [run(lambda p, b=b: blocks_of(p, b) | stage)[0] for b in blocks]
    total = add_releases(releases, None)
    one, two = (release.estimate for release in releases)
    assert np.allclose(total.estimate.value, 0.25 * one.value + 0.75 * two.value)
    assert np.allclose(
        total.estimate.standard_error**2,
        (0.25 * one.standard_error) ** 2 + (0.75 * two.standard_error) ** 2,
    )
    assert total.simulated and total.smallest_batch == 1000
