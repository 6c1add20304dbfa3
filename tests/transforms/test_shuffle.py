"""The contract of the shuffler: enough reports together, nothing else with them, nothing lost."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.pvalue import TaggedOutput
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, GlobalWindow, TimestampedValue

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.transforms import ReportBlock, Shuffle, ShuffledBlock, ShuffledSum
from beam_ldp.transforms.elements.portable import PortableRandomizer
from beam_ldp.transforms.elements.stages import Element
from beam_ldp.transforms.shuffler import batches as batches_module
from beam_ldp.transforms.shuffler import exchange as exchange_module
from beam_ldp.transforms.shuffler import shuffle as shuffle_module
from beam_ldp.transforms.shuffler.batches import BatchCutter
from beam_ldp.transforms.shuffler.exchange import (
    CACHED_BYTES,
    EXCHANGE_BYTES,
    MANY_SHARDS,
    MOST_EXCHANGES,
    SHARD_BYTES,
    PieceFormat,
    _Scatter,
    exchanges_for,
    routing_words,
    shards_for,
)
from beam_ldp.transforms.shuffler.sums import Gate
from tests.transforms.helpers import ORACLE, local, run
from tests.transforms.mean_mechanisms import MECHANISMS, vectors_for

pytestmark = pytest.mark.pipeline

DIGEST = ORACLE.config_digest()
FORMS = [("reports", "batch"), ("reports", "global"), ("statistic", "batch")]


def report_blocks(num, size=100, groups=None, origin=True):
    reports = np.random.default_rng(1).integers(0, 5, num).astype(np.uint8)
    return [
        ReportBlock(
            reports[i : i + size],
            DIGEST,
            None if groups is None else groups[i : i + size],
            b"block %d" % i if origin else b"",
        )
        for i in range(0, num, size)
    ], reports


def typed(pipeline, blocks, kind=ReportBlock):
    return pipeline | "Reports" >> beam.Create(blocks).with_output_types(kind)


def histogram(released):
    total = np.zeros(5, dtype=np.int64)
    for block in released:
        if isinstance(block, ShuffledBlock):
            total += np.bincount(block.reports, minlength=5)
        else:
            total += block.statistic
    return total.tolist()


@pytest.mark.parametrize(("output", "scope"), FORMS)
@pytest.mark.parametrize("origin", [True, False])
def test_all_reports_leave_once(output, scope, origin):
    blocks, reports = report_blocks(2500, origin=origin)
    released = run(lambda p: typed(p, blocks) | Shuffle(ORACLE, 1000, output, scope))
    assert histogram(released) == np.bincount(reports, minlength=5).tolist()
    kind = ShuffledSum if output == "statistic" else ShuffledBlock
    assert all(type(block) is kind for block in released)


@pytest.mark.parametrize(("output", "scope"), FORMS)
@pytest.mark.parametrize("num", [0, 999])
def test_too_few_release_nothing_and_say_why(output, scope, num):
    blocks, _ = report_blocks(num)
    with local() as pipeline:
        released = typed(pipeline, blocks) | Shuffle(ORACLE, 1000, output, scope)
        notices = released.withheld | beam.Map(lambda w: (w.num_reports, w.min_reports, w.reason))
        assert_that(released, equal_to([]), label="released")
        assert_that(notices, equal_to([(num, 1000, "fewer reports than min_reports")]))


@pytest.mark.parametrize(("output", "scope"), FORMS)
def test_exactly_enough_are_released(output, scope):
    blocks, _ = report_blocks(1000)
    with local() as pipeline:
        released = typed(pipeline, blocks) | Shuffle(ORACLE, 1000, output, scope)
        assert_that(released.withheld, equal_to([]), label="withheld")
        assert_that(released | beam.Map(_size) | beam.CombineGlobally(sum), equal_to([1000]))


def _size(block):
    return block.num_reports if isinstance(block, ShuffledSum) else len(block)


@pytest.mark.parametrize(("output", "scope"), FORMS)
def test_only_reports_group_and_window_end_survive(output, scope):
    """Distinct times and origins go in; the window's end and the group come out."""
    blocks, _ = report_blocks(600, size=10)
    stamped = [
        TimestampedValue((["de", "fr"][i % 2], block), i * 2) for i, block in enumerate(blocks)
    ]

    def build(pipeline):
        return (
            pipeline
            | beam.Create(stamped)
            | beam.Map(lambda pair: pair).with_output_types(tuple[str, ReportBlock])
            | beam.WindowInto(FixedWindows(60))
            | Shuffle(ORACLE, 100, output, scope, num_shards=4)
            | beam.ParDo(_Everything())
        )

    found = run(build)
    assert {(key, start) for key, start, _, _ in found} == {
        (key, start) for key in ("de", "fr") for start in (0, 60)
    }
    assert all(start + 60 - 0.001 <= stamp < start + 60 for _, start, stamp, _ in found)
    allowed = {
        ShuffledBlock: {"reports", "mechanism_digest", "batch_size", "simulated", "late"},
        ShuffledSum: {"statistic", "num_reports", "mechanism_digest", "simulated", "late"},
    }
    for _, _, _, block in found:
        assert set(vars(block)) == allowed[type(block)]
    for _, start, _, block in found:
        size = block.num_reports if output == "statistic" else block.batch_size
        assert size == 150, start


class _Everything(beam.DoFn):
    def process(self, element, stamp=beam.DoFn.TimestampParam, window=beam.DoFn.WindowParam):
        key, block = element
        yield key, float(window.start), float(stamp), block


@pytest.mark.parametrize(("output", "scope"), FORMS)
def test_groups_in_blocks_leave_under_their_names(output, scope):
    groups = np.random.default_rng(2).integers(0, 3, 3000)
    groups[groups == 2] = np.where(np.arange(np.sum(groups == 2)) < 50, 2, 0)
    blocks, reports = report_blocks(3000, groups=groups)
    names = Domain(("de", "fr"))
    with local() as pipeline:
        released = typed(pipeline, blocks) | Shuffle(ORACLE, 500, output, scope, groups=names)
        sums = released | beam.MapTuple(lambda k, b: (k, histogram([b]))) | beam.GroupByKey()
        totals = sums | beam.MapTuple(lambda k, hs: (k, np.sum(list(hs), axis=0).tolist()))
        expected = [
            (name, np.bincount(reports[groups == i], minlength=5).tolist())
            for i, name in enumerate(names.values)
        ]
        assert_that(totals, equal_to(expected))
        withheld = released.withheld | beam.Map(lambda w: (w.group, w.num_reports))
        assert_that(withheld, equal_to([("other", 50)]), label="withheld")


@pytest.mark.parametrize(("output", "scope"), FORMS)
def test_groups_are_never_mixed_by_accident(output, scope):
    grouped, _ = report_blocks(100, groups=np.zeros(100, dtype=np.int64))
    plain, _ = report_blocks(100)
    with pytest.raises(Exception, match="needs groups=... exactly where blocks hold groups"):
        run(lambda p: typed(p, grouped) | Shuffle(ORACLE, 10, output, scope))
    with pytest.raises(Exception, match="needs groups=... exactly where blocks hold groups"):
        run(lambda p: typed(p, plain) | Shuffle(ORACLE, 10, output, scope, groups=Domain(("a",))))


@pytest.mark.parametrize(("output", "scope"), FORMS)
def test_reports_of_another_mechanism_stop_the_run(output, scope):
    blocks = [ReportBlock(np.zeros(100, np.uint8), b"x" * 16)]
    with pytest.raises(Exception, match="another mechanism"):
        run(lambda p: typed(p, blocks) | Shuffle(ORACLE, 10, output, scope))


@pytest.mark.parametrize(("output", "scope"), FORMS)
def test_one_simulated_block_marks_the_whole(output, scope):
    blocks, _ = report_blocks(300)
    blocks[1] = ReportBlock(blocks[1].reports, DIGEST, None, blocks[1].origin, simulated=True)
    released = run(lambda p: typed(p, blocks) | Shuffle(ORACLE, 300, output, scope, num_shards=1))
    assert released and all(block.simulated for block in released)


@pytest.mark.exact
@pytest.mark.parametrize("sizes", [[5] * 100, [1000], [3, 400, 1, 96], [40] * 5])
def test_cutter_never_releases_a_small_batch(monkeypatch, sizes):
    """Batches hold at least `min_reports`, and what is kept back too once anything was released."""
    for name, value in (("BATCH_REPORTS", 120), ("SMALL_REPORTS", 60), ("KEPT_REPORTS", 8)):
        monkeypatch.setattr(batches_module, name, value)
    cutter = BatchCutter(ORACLE, 50)
    released, given = [], []
    for i, size in enumerate(sizes):
        reports = np.full(size, i % 5, dtype=np.uint8)
        given.append(reports)
        released.extend(cutter.add(reports, False))
        assert len(cutter) < 120 + 50 or size > 120
    released.extend(cutter.end_bundle())
    leftover = cutter.leftover()
    assert all(len(b) >= 50 and b.batch_size == len(b) for b in released)
    assert not released or len(leftover) >= 50
    everything = np.concatenate([*(b.reports for b in released), leftover.reports])
    assert np.array_equal(np.sort(everything), np.sort(np.concatenate(given)))


def test_large_collections_are_permuted_in_the_worker(monkeypatch):
    """Only what bundles keep back is exchanged; every batch is large enough; none is lost."""
    monkeypatch.setattr(batches_module, "BATCH_REPORTS", 1000)
    monkeypatch.setattr(batches_module, "SMALL_REPORTS", 500)
    monkeypatch.setattr(batches_module, "KEPT_REPORTS", 10)
    blocks, reports = report_blocks(20_000)
    released = run(lambda p: typed(p, blocks) | Shuffle(ORACLE, 300))
    assert len(released) > 5
    assert min(len(block) for block in released) >= 300
    assert histogram(released) == np.bincount(reports, minlength=5).tolist()


@pytest.mark.exact
def test_routes_are_repeated_for_a_block_and_new_for_all_else():
    key = bytes(32)
    words = routing_words(key, b"block", 1000)
    assert np.array_equal(words, routing_words(key, b"block", 1000))
    assert np.array_equal(words[:10], routing_words(key, b"block", 10))
    for other in (
        routing_words(key, b"other", 1000),
        routing_words(b"\1" + key[1:], b"block", 1000),
        routing_words(key, b"", 1000),
    ):
        assert not np.intersect1d(words, other).size
    assert not np.array_equal(routing_words(key, b"", 9), routing_words(key, b"", 9))


@pytest.mark.statistical
def test_the_shard_of_a_report_says_nothing_of_its_place():
    """The mean place in each of four shards of 20,000 rows is that of all; 5 sigma."""
    num = 20_000
    oracle = KRandomizedResponse(num, 3.0)
    block = ReportBlock(
        np.arange(num, dtype=np.uint16), oracle.config_digest(), origin=b"one source"
    )
    shards = run(lambda p: typed(p, [block]) | Shuffle(oracle, num, scope="global", num_shards=4))
    assert sorted(np.concatenate([shard.reports for shard in shards])) == list(range(num))
    for shard in shards:
        deviation = num / (12 * len(shard)) ** 0.5
        assert abs(shard.reports.mean() - num / 2) < 5 * deviation


@pytest.mark.parametrize("messages", ["one", "several"])
def test_a_batch_that_fits_no_worker_is_permuted_by_the_exchange(monkeypatch, messages):
    """Unless its messages would be tied together by their shard."""
    monkeypatch.setattr(shuffle_module, "LARGE_BATCH_BYTES", 1000)
    several = MECHANISMS["linf, every coordinate"]
    oracle, values = (
        (ORACLE, np.zeros(2000, dtype=int))
        if messages == "one"
        else (several, vectors_for(several, 2000))
    )
    assert (oracle.messages_per_user == 1) == (messages == "one")
    block = ReportBlock(oracle.randomize(values), oracle.config_digest(), origin=b"one source")
    pipeline = beam.Pipeline(runner="FnApiRunner")
    released = typed(pipeline, [block]) | Shuffle(oracle, 2000)
    names = [t.unique_name for t in pipeline.to_runner_api().components.transforms.values()]
    assert any("Exchange" in name for name in names) == (messages == "one")
    assert_that(
        released | beam.Map(lambda block: block.batch_size) | beam.Distinct(), equal_to([2000])
    )
    pipeline.run().wait_until_finish()


@pytest.mark.exact
def test_shards_keep_what_a_worker_holds_small():
    oracle = KRandomizedResponse(266, 4.0)
    assert shards_for(oracle, 1) == shards_for(oracle, 10**6) == 64
    for num in (10**9, 3 * 10**10, 10**12):
        shards = shards_for(oracle, num)
        assert shards & (shards - 1) == 0
        assert num / shards * 2 <= SHARD_BYTES
        assert shards == MANY_SHARDS or num / shards * 4 > SHARD_BYTES


@pytest.mark.exact
@pytest.mark.parametrize("num", [10**8, 5 * 10**8, 10**9])
def test_shards_fit_a_cache_where_not_too_many_do(num):
    shards = shards_for(KRandomizedResponse(266, 4.0), num)
    assert CACHED_BYTES / 2 < 2 * num / shards <= CACHED_BYTES
    assert shards <= MANY_SHARDS


@pytest.mark.exact
def test_exchanges_keep_small_what_an_engine_may_hold_at_once():
    oracle = KRandomizedResponse(266, 4.0)
    assert exchanges_for(oracle, 1) == exchanges_for(oracle, EXCHANGE_BYTES // 2) == 1
    assert exchanges_for(oracle, EXCHANGE_BYTES // 2 + 1) == 2
    for num in (5 * 10**8, 10**9, 10**12):
        exchanges = exchanges_for(oracle, num)
        assert exchanges & (exchanges - 1) == 0
        assert 2 * num / exchanges <= EXCHANGE_BYTES or exchanges == MOST_EXCHANGES


@pytest.mark.parametrize("form", ["plain", "groups"])
def test_several_exchanges_release_what_one_does(monkeypatch, form):
    """And nothing before the number of all reports is known, whichever exchange they are in."""
    monkeypatch.setattr(exchange_module, "EXCHANGE_BYTES", 1000)
    groups = np.arange(4000) % 2 if form == "groups" else None
    blocks, reports = report_blocks(4000, groups=groups)
    crowd = 4000 if groups is None else 2000
    options = {} if groups is None else {"groups": Domain(("even", "odd"))}
    names = []

    def build(pipeline):
        released = typed(pipeline, blocks) | Shuffle(ORACLE, crowd, scope="global", **options)
        names.extend(t.unique_name for t in pipeline.to_runner_api().components.transforms.values())
        return released

    found = run(build)
    last = exchanges_for(ORACLE, crowd) - 1
    assert last == crowd // 1000 - 1
    assert any(f"Exchange {last}" in name for name in names)
    assert not any(f"Exchange {last + 1}" in name for name in names)
    parts = found if groups is None else [part for _, part in found]
    assert {part.batch_size for part in parts} == {crowd}
    assert histogram(parts) == np.bincount(reports, minlength=5).tolist()
    if groups is not None:
        even = [part for name, part in found if name == "even"]
        assert histogram(even) == np.bincount(reports[groups == 0], minlength=5).tolist()


def test_several_exchanges_withhold_together(monkeypatch):
    monkeypatch.setattr(exchange_module, "EXCHANGE_BYTES", 1000)
    blocks, _ = report_blocks(3999)
    assert run(lambda p: typed(p, blocks) | Shuffle(ORACLE, 4000, scope="global")) == []
    told = run(lambda p: (typed(p, blocks) | Shuffle(ORACLE, 4000, scope="global")).withheld)
    assert [(notice.num_reports, notice.min_reports) for notice in told] == [(3999, 4000)]


@pytest.mark.exact
def test_what_waits_in_a_bundle_is_bounded(monkeypatch):
    """However many groups and shards there are, and nothing is lost."""
    monkeypatch.setattr(exchange_module, "WAITING_BYTES", 500)
    blocks, reports = report_blocks(5000, size=300)
    gate = Gate("Shuffle", PortableRandomizer(ORACLE), Element(ReportBlock))
    scatter = _Scatter(gate, num_shards=64, num_exchanges=4)
    scatter.setup()
    scatter.start_bundle()
    found = []
    for block in blocks:
        found += scatter.process(block, bytes(32), GlobalWindow())
        assert scatter._all_waiting < 500
    found += [out for out in scatter.finish_bundle() if isinstance(out, TaggedOutput)]
    for out in found:  # a shard is in one exchange
        assert out.tag == f"exchange {out.value.value[0][1] // 16}"
    reader = PieceFormat(ORACLE)
    everything = np.concatenate([reader.read(out.value.value[1]) for out in found])
    assert sorted(everything.tolist()) == sorted(reports.tolist())
