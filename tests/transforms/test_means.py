"""Means through Beam: every mechanism, every form of crowd, and what must be refused."""

from __future__ import annotations

import math
import subprocess
import sys

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders import registry

from beam_ldp.accounting import shuffled_event
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.mean import (
    BinaryVectorMean,
    CoordinateRanges,
    L2Mean,
    LInfMean,
    PrivUnit,
    ScalarMean,
)
from beam_ldp.randomizers.randomness import UserRandomness
from beam_ldp.settings import Noise, People, Shuffling
from beam_ldp.transforms import (
    Aggregate,
    EncodeVectors,
    EstimateFrequencies,
    EstimateMean,
    MeanRow,
    MismatchError,
    PrivateFrequencies,
    PrivateMean,
    Randomize,
    Release,
    ReleaseToRows,
    ReportBlock,
    Shuffle,
    ShuffledBlock,
    SlidingSums,
    StatisticBlock,
    ValueBlock,
)
from beam_ldp.transforms.device import bounding
from beam_ldp.transforms.device.keyed import NoiseSource
from beam_ldp.transforms.elements.stages import StageError
from beam_ldp.transforms.shuffler.sums import RunningSum
from tests.identities import identity
from tests.transforms.helpers import ORACLE, blocks_of, held_blocks_of, run, value_blocks
from tests.transforms.mean_mechanisms import MECHANISMS, vectors_for

pytestmark = pytest.mark.pipeline

KEY = bytes(range(32))
GROUPS = Domain(("de", "fr"))
LINF = LInfMean(4, 6.0)
PRIV_UNIT = PrivUnit(6, 4.0)


@pytest.fixture
def memoized(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(KEY)
    return Noise(key_file=str(path), id="r", dataset="d")


def test_every_mechanism_gives_what_it_gives_without_beam(memoized):
    """Blocks of any size, through the composite and through the stages one by one."""
    vectors = {name: vectors_for(m, 400) for name, m in MECHANISMS.items()}

    def build(pipeline):
        found = []
        for i, (name, mechanism) in enumerate(MECHANISMS.items()):
            blocks = value_blocks(vectors[name], (37, 111, 400)[i % 3], ids=True)
            values = blocks_of(pipeline, blocks, name)
            stage = PrivateMean(mechanism, min_reports=9, noise=memoized)
            whole = values | f"{name} whole" >> stage
            noise = NoiseSource(stage.identity, memoized.key_file)
            bound = mechanism.for_release(stage.identity)
            parts = (
                values
                | f"{name} r" >> Randomize(bound, noise=noise)
                | f"{name} s" >> Shuffle(bound, 9)
                | f"{name} a" >> Aggregate(bound)
                | f"{name} e" >> EstimateMean(bound)
            )
            for way, releases in (("whole", whole), ("parts", parts)):
                found.append(releases | f"{name} {way} n" >> beam.Map(_named, (name, way)))
        return found | beam.Flatten()

    releases = dict(run(build))
    assert len(releases) == 2 * len(MECHANISMS)
    for (name, _), release in releases.items():
        mechanism = MECHANISMS[name]
        drawn_under = PrivateMean(mechanism, min_reports=9, noise=memoized).identity
        mechanism = mechanism.for_release(drawn_under)
        rng = UserRandomness(KEY, np.arange(400), drawn_under)
        direct = mechanism.estimate(
            mechanism.accumulate(mechanism.randomize(vectors[name], rng)), 400
        )
        assert np.array_equal(release.estimate.value, direct.value), name
        assert np.array_equal(release.estimate.standard_error, direct.standard_error), name
        assert release.estimate.mean_squared_error == direct.mean_squared_error
        assert release.estimate.expected_bias == direct.expected_bias
        assert release.event == shuffled_event(mechanism, 400)


def _named(release, name):
    return name, release


@pytest.mark.exact
@pytest.mark.parametrize("name", MECHANISMS)
def test_impossible_reports_are_refused_before_they_count(name):
    """The largest or the smallest number of the dtype, and reports of another shape."""
    mechanism = MECHANISMS[name]
    reports = mechanism.randomize(vectors_for(mechanism, 20))
    running = RunningSum(mechanism)
    running.add(reports, 20, False)
    refused = 0
    for wrong in (np.iinfo(reports.dtype).max, np.iinfo(reports.dtype).min):
        forged = reports.copy()
        forged[7] = wrong
        try:
            mechanism.accumulate(forged)
        except ValueError:
            refused += 1
    assert refused >= 1
    if reports.ndim == 2:
        with pytest.raises(ValueError, match="reports must"):
            mechanism.accumulate(reports[:, :-1])
    assert running.total().num_reports == 20


@pytest.mark.parametrize("output", ["reports", "statistic"])
def test_a_forged_message_stops_the_run(output):
    reports = LINF.randomize(np.zeros((50, 4)))
    reports[3, 1] = 255
    block = ReportBlock(reports, LINF.config_digest())

    def build(pipeline):
        shuffled = blocks_of(pipeline, [block]) | Shuffle(LINF, 5, output)
        return shuffled | Aggregate(LINF) | EstimateMean(LINF)

    with pytest.raises(Exception, match="reports must name coordinates inside their blocks"):
        run(build)


@pytest.mark.parametrize("change", ["missing", "doubled", "moved"])
def test_every_message_of_every_user_counts_once(change):
    """A sum that lost or repeated a message, and one that counts a column for another."""
    reports = LINF.randomize(np.zeros((50, 4)))
    statistic = LINF.accumulate(reports)
    if change == "moved":
        statistic[0, 0, 0] += 1
        statistic[1, 0, 0] -= 1
    else:
        statistic[0, 0, 1] += 1 if change == "doubled" else -1
    block = StatisticBlock(statistic, 50, 50, LINF.config_digest())
    with pytest.raises(Exception, match="every message of num_users users, once"):
        run(lambda p: blocks_of(p, [block]) | EstimateMean(LINF))


def test_messages_of_a_user_part_in_the_shuffler():
    """Every user's messages agree before the shuffle; afterwards columns are independent."""
    mechanism = MECHANISMS["linf, every coordinate"]
    reports = np.repeat(np.arange(1000) % 2, 8).reshape(1000, 8).astype(np.uint8)
    block = ReportBlock(reports, mechanism.config_digest())
    (shuffled,) = run(lambda p: blocks_of(p, [block]) | Shuffle(mechanism, 5))
    assert (shuffled.reports.sum(axis=0) == 500).all()
    same = (shuffled.reports[:, 0] == shuffled.reports[:, 1]).mean()
    assert 0.4 < same < 0.6, "independent halves agree in half of the rows: 6 sigma"


@pytest.mark.exact
def test_a_shard_must_not_tie_a_users_messages():
    with pytest.raises(ValueError, match='Use output="statistic", where every report hides'):
        Shuffle(LINF, 5, "reports", "global")
    with pytest.raises(ValueError, match='scope="global" takes mechanisms of one message'):
        PrivateMean(LINF, min_reports=5, shuffle=Shuffling(output="reports", scope="global"))
    PrivateMean(LINF, min_reports=5, shuffle=Shuffling(output="statistic", scope="global"))
    Shuffle(PRIV_UNIT, 5, "reports", "global")


@pytest.mark.parametrize(
    ("mechanism", "scope"),
    [(LINF, "batch"), (PRIV_UNIT, "batch"), (PRIV_UNIT, "global")],
    ids=["several messages", "one message", "global"],
)
def test_permuted_reports_have_the_same_sum(mechanism, scope, memoized):
    vectors = vectors_for(mechanism, 600)

    def build(pipeline):
        values = blocks_of(pipeline, value_blocks(vectors, 100, ids=True))
        both = [
            values
            | form
            >> PrivateMean(
                mechanism,
                min_reports=9,
                shuffle=Shuffling(output=form, scope=scope),
                noise=memoized,
            )
            for form in ("reports", "statistic")
        ]
        return both | beam.Flatten()

    one, other = run(build)
    assert {one.output, other.output} == {"reports", "statistic"}
    assert np.array_equal(one.estimate.value, other.estimate.value)
    assert one.num_reports == one.smallest_batch == other.smallest_batch == 600


def test_long_reports_wait_in_few_bytes():
    """Batches are cut by bytes, never below min_reports, and all of them are counted."""
    mechanism = L2Mean(1024, 2048.0, messages=(1024,), message_epsilons=(2.0,), cutoff=4.0)
    reports = np.zeros((20_000, 1024), dtype=np.uint8)
    block = ReportBlock(reports, mechanism.config_digest())

    def build(pipeline):
        return blocks_of(pipeline, [block]) | Shuffle(mechanism, 3000)

    sizes = [(len(found), found.batch_size) for found in run(build)]
    assert sum(size for size, _ in sizes) == 20_000
    assert min(batch for _, batch in sizes) >= 3000 and max(sizes)[0] < 20_000


# What a value is ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "elements",
    [
        [np.array([[0.1, 0.2], [0.3, 0.4]])],
        [np.array([0.1, 0.2]), np.array([0.3, 0.4])],
        [[0.1, 0.2], [0.3, 0.4]],
        [{"v": [0.1, 0.2]}, {"v": (0.3, 0.4)}],
        [ValueBlock(np.array([[0.1, 0.2], [0.3, 0.4]]))],
    ],
    ids=["block", "vectors", "lists", "rows of one field", "value block"],
)
def test_one_dimension_more_is_a_block(elements):
    mechanism = LInfMean(2, 2.0)
    found = run(lambda p: p | beam.Create(elements) | Randomize(mechanism))
    assert sum(map(len, found)) == 2
    assert all(block.reports.shape[1:] == mechanism.report_shape for block in found)


def test_numbers_are_values_of_dimension_one():
    for elements in ([0.1, 0.2, -1], [np.array([0.1, 0.2, -1])], [[0.1], [0.2], [-1.0]]):
        for mechanism in (LInfMean(1, 2.0), ScalarMean(1, 2.0, signed=True)):
            found = run(lambda p, e=elements, m=mechanism: p | beam.Create(e) | Randomize(m))
            assert sum(map(len, found)) == 3


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        ([np.zeros(3)], "Randomize takes vectors of 2 numbers"),
        ([np.zeros((5, 3))], r"values must be a numeric array of shape \(n, 2\)"),
        ([0.5], "Randomize takes vectors of 2 numbers"),
        ([np.float64(0.5)], "Randomize takes vectors of 2 numbers"),
        ([{"x": 0.1, "y": 0.2}], "use EncodeRows or EncodeVectors to choose one"),
        ([beam.Row(x=0.1, y=0.2)], "use EncodeRows or EncodeVectors to choose one"),
        ([["secret", "other"]], "Randomize takes numbers"),
        ([[0.1, [0.2]]], "Randomize takes numbers"),
        ([np.array([[0.1, np.nan]])], "values must be finite"),
        ([np.array([[np.inf, 0.1]])], "values must be finite"),
    ],
)
def test_what_is_no_vector_stops_the_run_and_is_not_quoted(elements, message):
    with pytest.raises(Exception, match=message) as error:
        run(lambda p: p | beam.Create(elements) | Randomize(LInfMean(2, 2.0)))
    assert "secret" not in str(error.value) and "0.1" not in str(error.value)


def test_a_pair_of_numbers_is_no_key_and_value():
    pipeline = beam.Pipeline(runner="FnApiRunner")
    pairs = pipeline | beam.Create([]).with_output_types(tuple[float, float])
    with pytest.raises(StageError, match="keys of type str, int or bytes, got float"):
        pairs | Randomize(LInfMean(2, 2.0))


def test_a_memoized_report_is_that_of_the_whole_vector(memoized):
    """Vectors that agree in all coordinates but one draw independent noise; equal ones the same."""
    wide = PrivUnit(8, 1.0)
    first = np.full((200, 8), 0.1)
    noise = NoiseSource(identity(), memoized.key_file)
    other = first.copy()
    other[:, -1] = np.nextafter(0.1, 1)

    def reports(vectors, size):
        blocks = value_blocks(vectors, size, ids=True)
        found = run(lambda p: blocks_of(p, blocks) | Randomize(wide, noise=noise))
        return np.sort(np.concatenate([block.reports for block in found]), axis=0)

    assert np.array_equal(reports(first, 200), reports(first, 33))
    assert np.array_equal(reports(first, 50), reports(first.astype(np.float64), 50))
    assert not (reports(first, 200) == reports(other, 200)).all(axis=1).any()


# Outside the ball ---------------------------------------------------------------------------


def test_vectors_outside_the_ball_are_clipped_or_stop_the_run(memoized):
    outside = np.array([[3.0, -4.0], [0.0, 0.2]] * 200)
    clipped = np.array([[1.0, -1.0], [0.0, 0.2]] * 200)

    def release(vectors, clipping):
        mechanism = LInfMean(2, 2.0, clipping=clipping)
        blocks = value_blocks(vectors, 100, ids=True)
        stage = PrivateMean(mechanism, min_reports=9, noise=memoized)
        (found,) = run(lambda p: blocks_of(p, blocks) | stage)
        return found.estimate.value.tolist()

    assert release(outside, "clip") == release(clipped, "clip")
    with pytest.raises(Exception, match="values must lie in the linf ball of radius 1"):
        release(outside, "raise")


def test_ranges_come_back_in_the_unit_of_the_data(memoized):
    """Scaled by hand around the mechanism: the same reports, the same mean."""
    ranges = CoordinateRanges((0, 18), (1440, 98))
    mechanism = LInfMean(2, 6.0)
    generator = np.random.default_rng(4)
    rows = np.stack([generator.uniform(0, 1440, 900), generator.uniform(18, 98, 900)], axis=1)
    blocks = value_blocks(rows, 250, ids=True)
    stage = PrivateMean(mechanism, ranges=ranges, min_reports=9, noise=memoized)
    (release,) = run(lambda p: blocks_of(p, blocks) | stage)
    rng = UserRandomness(KEY, np.arange(900), stage.identity)
    inside = mechanism.estimate(
        mechanism.accumulate(mechanism.randomize(ranges.encode(rows), rng)), 900
    )
    assert np.array_equal(release.estimate.value, ranges.decode(inside).value)
    score = (release.estimate.value - rows.mean(axis=0)) / release.estimate.standard_error
    assert (np.abs(score) < 5).all()
    assert release.event == shuffled_event(mechanism, 900)


# Crowds -------------------------------------------------------------------------------------


def test_groups_keys_and_rows():
    mechanism = LInfMean(2, 8.0)
    rows = [{"x": 0.5, "y": (-0.5, 0.25)[i % 2], "land": ("de", "fr")[i % 2]} for i in range(4000)]
    stage = PrivateMean(
        mechanism,
        columns=["x", "y"],
        people=People(groups=GROUPS, group_by="land"),
        min_reports=1500,
        question="q",
    )
    found = dict(run(lambda p: p | beam.Create(rows) | stage))
    assert set(found) == {"de", "fr"}
    for name, truth in (("de", [0.5, -0.5]), ("fr", [0.5, 0.25])):
        release = found[name]
        assert (release.group, release.question, release.num_reports) == (name, "q", 2000)
        error = release.estimate.standard_error
        assert (np.abs(release.estimate.value - truth) < 5 * error).all()
    pairs = [("a", [0.5, 0.5])] * 1500 + [("b", [0.0, 0.0])] * 100

    def keyed(pipeline):
        shuffled = (
            pipeline
            | beam.Create(pairs).with_output_types(tuple[str, list[float]])
            | Randomize(mechanism)
            | Shuffle(mechanism, 200)
        )
        estimates = shuffled | Aggregate(mechanism) | EstimateMean(mechanism)
        return (estimates, shuffled.withheld) | beam.Flatten()

    outcomes = run(keyed)
    (released,) = [found for found in outcomes if isinstance(found, tuple)]
    (withheld,) = [found for found in outcomes if not isinstance(found, tuple)]
    assert released[0] == "a" and released[1].num_reports == 1500
    assert (withheld.group, withheld.num_reports) == ("b", 100)


def test_windows_rows_and_sliding_sums():
    mechanism = LInfMean(2, 8.0)
    vectors = vectors_for(mechanism, 3000)
    stamped = [
        beam.window.TimestampedValue(ValueBlock(vectors[start : start + 1000]), 30 + start * 0.06)
        for start in (0, 1000, 2000)
    ]

    def build(pipeline):
        releases = (
            pipeline
            | beam.Create(stamped).with_output_types(ValueBlock)
            | beam.WindowInto(beam.window.FixedWindows(60))
            | PrivateMean(mechanism, min_reports=900, noise=Noise(seed=5), question="q")
        )
        rows = releases | ReleaseToRows(coordinates=("x", "y"))
        sums = releases | SlidingSums(120, 60)
        return (releases, sums, rows) | beam.Flatten()

    outcomes = run(build)
    rows = [found for found in outcomes if isinstance(found, MeanRow)]
    releases = [found for found in outcomes if isinstance(found, Release)]
    panes = sorted((r for r in releases if not r.derived), key=lambda r: r.window)
    sums = sorted((r for r in releases if r.derived), key=lambda r: r.window)
    assert [pane.num_reports for pane in panes] == [1000] * 3 and len(sums) == 2
    assert all(pane.simulated and pane.event is None for pane in panes)
    for i, total in enumerate(sums):
        one, two = (pane.estimate for pane in panes[i : i + 2])
        assert total.estimate.value == pytest.approx((one.value + two.value) / 2)
        assert total.estimate.mean_squared_error == pytest.approx(one.mean_squared_error / 2)
        assert total.estimate.bias_bound == one.bias_bound
        assert total.estimate.expected_bias == one.expected_bias
    assert len(rows) == 6 and {row.coordinate for row in rows} == {"x", "y"}
    assert {float(row.window_start) for row in rows} == {0, 60, 120}
    for row in rows:
        assert row.question == "q" and row.low < row.mean < row.high
        assert any(
            (row.low, row.high) in zip(*pane.estimate.confidence_interval()) for pane in panes
        )


def test_one_row_per_person(memoized, monkeypatch):
    """Persons with 1 to 5 rows; the draw of a row is the same for any blocks and any memory."""
    mechanism = PrivUnit(4, 6.0)
    ids = np.repeat(np.arange(900), 1 + np.arange(900) % 5)
    vectors = vectors_for(mechanism, len(ids))

    def release(size):
        blocks = [
            ValueBlock(
                vectors[start : start + size],
                ids[start : start + size],
                source="test",
                positions=np.arange(len(ids))[start : start + size],
            )
            for start in range(0, len(ids), size)
        ]
        stage = PrivateMean(mechanism, min_reports=900, people=People(id="user id"), noise=memoized)
        (found,) = run(lambda p: blocks_of(p, blocks) | stage)
        return found

    one = release(100)
    monkeypatch.setattr(bounding, "HELD_BYTES", 50 * 32)
    other = release(777)
    assert one.num_reports == 900 and np.array_equal(one.estimate.value, other.estimate.value)
    iid = np.sqrt(mechanism.variance(900, vectors, "iid"))
    assert one.estimate.error_bars == "measured"
    assert one.estimate.standard_error == pytest.approx(iid, rel=0.2), "the draw is noise"
    means = np.array([vectors[ids == person].mean(axis=0) for person in range(900)]).mean(axis=0)
    assert (np.abs(one.estimate.value - means) < 5 * one.estimate.standard_error).all()


def test_too_few_and_none_at_all():
    def build(elements, **how):
        def made(pipeline):
            stage = PrivateMean(LINF, min_reports=101, question="q", **how)
            source = pipeline | beam.Create(elements).with_output_types(ValueBlock)
            releases = source | stage
            return (releases, releases.withheld) | beam.Flatten()

        return run(made)

    for elements, number in (([], 0), ([ValueBlock(np.zeros((100, 4)))], 100)):
        for how in ({}, {"shuffle": Shuffling(output="reports")}):
            (notice,) = build(elements, **how)
            assert (notice.num_reports, notice.min_reports, notice.question) == (number, 101, "q")
    nobody = LINF.estimate(np.zeros(LINF.statistic_shape, dtype=np.int64), 0)
    assert np.isnan(nobody.value).all() and math.isinf(nobody.mean_squared_error)


def test_bad_rows_of_a_composite():
    rows = [{"v": [0.1, 0.2]}] * 50 + [{"v": [0.1]}, {"v": None}, {}]

    def build(bad_rows):
        def made(pipeline):
            stage = PrivateMean(LInfMean(2, 2.0), columns="v", min_reports=9, bad_rows=bad_rows)
            releases = pipeline | beam.Create(rows) | stage
            reasons = releases.bad_rows | beam.FlatMap(lambda block: [r.reason for r in block])
            return (releases | beam.Map(lambda r: r.num_reports), reasons) | beam.Flatten()

        return sorted(run(made), key=str)

    assert build("dead_letter") == [50, "missing column", "null", "wrong number of coordinates"]
    assert build("zero") == [53]


# Mixed and missing --------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["Shuffle", "Aggregate", "EstimateMean"])
def test_reports_of_another_mechanism_stop_the_run(stage):
    other = LInfMean(4, 6.5)

    def build(pipeline):
        made = {name: LINF for name in ("Shuffle", "Aggregate", "EstimateMean")} | {stage: other}
        return (
            pipeline
            | beam.Create([np.zeros((50, 4))])
            | Randomize(LINF if stage != "Shuffle" else other)
            | Shuffle(made["Shuffle"] if stage != "Shuffle" else LINF, 9)
            | Aggregate(made["Aggregate"])
            | EstimateMean(made["EstimateMean"])
        )

    with pytest.raises(Exception, match="by another mechanism or with other parameters") as error:
        run(build)
    assert MismatchError.__name__ in repr(error.value) or isinstance(error.value, Exception)


@pytest.mark.exact
def test_questions_are_not_mixed():
    with pytest.raises(TypeError, match="must be a MeanRandomizer, got KRandomizedResponse"):
        PrivateMean(ORACLE, min_reports=5)
    with pytest.raises(TypeError, match="must be a MeanRandomizer, got KRandomizedResponse"):
        EstimateMean(ORACLE)
    with pytest.raises(TypeError, match="must be a FrequencyOracle, got LInfMean: use Estim"):
        EstimateFrequencies(LINF)
    with pytest.raises(TypeError, match="must be a FrequencyOracle, got LInfMean"):
        PrivateFrequencies(LINF, min_reports=5)
    with pytest.raises(ValueError, match='norm "linf", signed'):
        PrivateMean(PRIV_UNIT, ranges=CoordinateRanges(0, 1), min_reports=5)
    with pytest.raises(ValueError, match="or 4 columns of numbers, got 3 names"):
        PrivateMean(LINF, columns=["a", "b", "c"], min_reports=5)
    with pytest.raises(ValueError, match="coordinates for means: give one"):
        ReleaseToRows(GROUPS, coordinates=3)


def test_rows_of_the_other_kind_are_refused():
    def release(pipeline, stage):
        return pipeline | beam.Create([np.zeros((9, 4))]) | PrivateMean(LINF, min_reports=5) | stage

    with pytest.raises(Exception, match=r"coordinates=\.\.\. for releases of means"):
        run(lambda p: release(p, ReleaseToRows()))
    with pytest.raises(Exception, match="coordinates must name 4 values, got 3"):
        run(lambda p: release(p, ReleaseToRows(coordinates=3)))
    rows = run(lambda p: release(p, ReleaseToRows(coordinates=4, level=0.5, simultaneous=True)))
    assert [row.coordinate for row in rows] == ["0", "1", "2", "3"]


@pytest.mark.exact
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p: typed(p, ValueBlock) | Shuffle(LINF, 5), "put Randomize before it"),
        (lambda p: typed(p, ReportBlock) | Aggregate(LINF), "put Shuffle before it"),
        (lambda p: typed(p, ShuffledBlock) | EstimateMean(LINF), "put Aggregate before it"),
        (lambda p: typed(p, ReportBlock) | EstimateMean(LINF), "Shuffle and then Aggregate"),
        (lambda p: typed(p, Release) | EstimateMean(LINF), "already past EstimateMean"),
        (lambda p: typed(p, StatisticBlock) | ReleaseToRows(coordinates=4), "put EstimateMean"),
        (lambda p: typed(p, object) | EstimateMean(LINF), "typed output of Aggregate"),
    ],
)
def test_the_missing_stage_is_named(build, message):
    with pytest.raises(StageError, match=message):
        build(beam.Pipeline(runner="FnApiRunner"))


def test_tables_need_encode_vectors():
    from beam_ldp.transforms import TableBlock

    with pytest.raises(StageError, match="put EncodeVectors before it"):
        typed(beam.Pipeline(runner="FnApiRunner"), TableBlock) | Randomize(LINF)


def typed(pipeline, kind):
    return pipeline | beam.Create([]) | beam.Map(lambda x: x).with_output_types(kind)


def test_a_release_survives_the_wire():
    coder = registry.get_coder(Release)
    mechanism = L2Mean(8, 8.0, cutoff=2.0)
    statistic = mechanism.accumulate(mechanism.randomize(vectors_for(mechanism, 50)))
    estimate = mechanism.estimate(statistic, 50)
    assert estimate.expected_bias > 0
    for sent in (estimate, estimate.project_to_ball("l2"), CoordinateRanges(0, 5).decode(estimate)):
        back = coder.decode(coder.encode(Release(sent, 50, None, mechanism=mechanism.to_config())))
        found = back.estimate
        assert type(found) is type(sent) and np.array_equal(found.value, sent.value)
        assert found.mean_squared_error == sent.mean_squared_error
        assert found.expected_bias == sent.expected_bias and found.steps == sent.steps
        assert np.array_equal(found.raw.value, sent.raw.value)
        low, high = sent.confidence_interval()
        assert np.array_equal(np.stack(found.confidence_interval()), np.stack([low, high]))


def test_a_worker_that_ran_no_mechanism_reads_a_release(tmp_path):
    """In a process of its own, where nothing but the stages was imported."""
    mechanism = L2Mean(8, 8.0, cutoff=2.0)
    estimate = mechanism.estimate(mechanism.accumulate(mechanism.randomize(np.zeros((9, 8)))), 9)
    event = shuffled_event(mechanism, 9)
    release = Release(estimate, 9, event, mechanism=mechanism.to_config())
    (tmp_path / "release").write_bytes(registry.get_coder(Release).encode(release))
    code = (
        "from apache_beam.coders import registry; from beam_ldp.transforms import Release;"
        f"data = open({str(tmp_path / 'release')!r}, 'rb').read();"
        "release = registry.get_coder(Release).decode(data);"
        "print(release.event.num_reports, type(release.estimate).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["9", "MeanEstimate"]


# Errors -------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize(
    "mechanism",
    [LInfMean(200, 20.0), PrivUnit(200, 6.0), BinaryVectorMean(200, 60.0), L2Mean(128, 20.0)],
    ids=["linf", "privunit", "binary", "l2"],
)
def test_errors_are_as_large_as_predicted(mechanism):
    """Through all stages: the mean square of 128 or 200 z-scores is one within 4.5 sigma, and no
    interval at level 1 - 1e-6 (all at once) misses. Fixed seed; chance of a false alarm 1e-5."""
    num_users = 2000
    vectors = vectors_for(mechanism, num_users)
    blocks = value_blocks(vectors, 500)
    stage = PrivateMean(mechanism, min_reports=100, noise=Noise(seed=11))
    (release,) = run(lambda p: held_blocks_of(p, blocks) | stage)
    truth = vectors.mean(axis=0)
    scores = (release.estimate.value - truth) / np.sqrt(mechanism.variance(num_users, vectors))
    assert abs(np.mean(scores**2) - 1) < 4.5 * math.sqrt(2 / mechanism.dimension)
    low, high = release.estimate.confidence_interval(1 - 1e-6, simultaneous=True)
    assert ((low < truth) & (truth < high)).all()
    worst = release.estimate.mean_squared_error
    assert np.sum((release.estimate.value - truth) ** 2) < worst * (1 + 4.5 * math.sqrt(2 / 128))


def test_encode_vectors_feeds_the_stages():
    rows = [{"a": "0.5", "b": 1}] * 100 + [{"a": "x", "b": 1}]
    mechanism = LInfMean(2, 2.0)

    def build(pipeline):
        values = pipeline | beam.Create(rows) | EncodeVectors(["a", "b"], 2)
        return values | Randomize(mechanism) | Shuffle(mechanism, 50, "statistic")

    (total,) = run(build)
    assert total.num_reports == 100
