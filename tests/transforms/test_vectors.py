"""Rows to vectors: every form of a table gives the same blocks; bad rows have a place, no value."""

from __future__ import annotations

import logging
from dataclasses import replace

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.mean import CoordinateRanges
from beam_ldp.settings import People
from beam_ldp.transforms import BadRow, EncodeVectors, TableBlock, ValueBlock
from beam_ldp.transforms.device import encode as encode_module
from beam_ldp.transforms.elements.stages import StageError
from tests.transforms.helpers import run

pytestmark = pytest.mark.exact

ROWS = [[1.0, 2.0], [-3.0, 0.5], [0.0, 1e9]]
XY = {"x": [1.0, -3.0, 0.0], "y": [2.0, 0.5, 1e9]}
GROUPS = Domain(("de", "fr"))
SECRET = "a value that nobody may see"


def encode(elements, columns, dimension=2, *, pairs=False, **how):
    """`(blocks, bad rows)` of one bundle, without a runner."""
    doer = replace(EncodeVectors(columns, dimension, **how)._doer, pairs=pairs)
    doer.setup()
    doer.start_bundle()
    outputs = [out for element in elements for out in doer.process(element, GlobalWindow())]
    outputs += [getattr(out, "value", out) for out in doer.finish_bundle()]
    bad = [out for out in outputs if not isinstance(out, ValueBlock)]
    bad = [out.value if isinstance(out, TaggedOutput) else out for out in bad]
    bad = [getattr(block, "value", block) for block in bad]
    return [out for out in outputs if isinstance(out, ValueBlock)], [r for b in bad for r in b]


def vectors(blocks):
    return [row for block in blocks for row in block.values.tolist()]


LISTED = {"v": ROWS}
INPUTS = {
    "two-dimensional array": ([np.array(ROWS)], None),
    "arrays, each a vector": ([np.array(row) for row in ROWS], None),
    "lists": (ROWS, None),
    "tuples": ([tuple(row) for row in ROWS], None),
    "mappings": ([{"y": y, "x": x} for x, y in ROWS], ["x", "y"]),
    "mappings of lists": ([{"v": row} for row in ROWS], "v"),
    "rows": ([beam.Row(x=x, y=y) for x, y in ROWS], ("x", "y")),
    "rows of lists": ([beam.Row(v=row) for row in ROWS], ["v"]),
    "batch": ([pa.RecordBatch.from_pydict(XY)], ["x", "y"]),
    "batch of nothing else": ([pa.RecordBatch.from_pydict(XY)], None),
    "batch of lists": ([pa.RecordBatch.from_pydict(LISTED)], "v"),
    "batch of text": ([pa.RecordBatch.from_pydict({"v": [str(r) for r in ROWS]})], "v"),
    "table": ([pa.table(XY)], ["x", "y"]),
    "table block": ([TableBlock("f", 5, pa.RecordBatch.from_pydict(XY))], ["x", "y"]),
    "block": ([ValueBlock(np.array(ROWS))], None),
}


@pytest.mark.parametrize("name", INPUTS)
def test_every_form_of_input(name):
    blocks, bad = encode(*INPUTS[name])
    assert vectors(blocks) == ROWS and not bad
    assert all(block.values.dtype == np.float64 for block in blocks)


def test_one_number_per_person():
    for elements in ([1.0, 2, True], [np.array([1.0, 2, 1])], [[1.0], [2.0], [1]]):
        assert vectors(encode(elements, None, 1)[0]) == [[1], [2], [1]]
    assert vectors(encode([{"age": 5}], "age", 1)[0]) == [[5]]
    batch = pa.RecordBatch.from_pydict({"age": ["5", "x"]})
    blocks, (bad,) = encode([TableBlock("f", 0, batch)], "age", 1)
    assert vectors(blocks) == [[5]] and bad == BadRow("f", 1, "not a number")


def test_bad_rows_have_a_place_and_a_reason():
    table = pa.RecordBatch.from_pydict(
        {"x": [1.0, None, 3, float("nan"), 5], "y": ["1", "2", SECRET, "4", "inf"], "u": [7] * 5}
    )
    blocks, bad = encode([TableBlock("f", 40, table)], ["x", "y"], people=People(id="u"))
    assert vectors(blocks) == [[1, 1]] and blocks[0].positions.tolist() == [40]
    assert blocks[0].user_ids.tolist() == [7]
    reasons = ["null", "not a number", "NaN", "infinite"]
    assert bad == [BadRow("f", 41 + i, reason) for i, reason in enumerate(reasons)]


def test_missing_columns_and_wrong_lengths():
    table = pa.RecordBatch.from_pydict({"x": [1.0, 2.0]})
    assert [r.reason for r in encode([table], ["x", "y"])[1]] == ["missing column"] * 2
    _, bad = encode([{"x": 1, "y": 2}, {"x": 1}], ["x", "y"])
    assert [r.reason for r in bad] == ["missing column"]
    length = "wrong number of coordinates"
    for elements in ([np.zeros((2, 3))], [[1, 2, 3]] * 2, [np.zeros(3)] * 2):
        assert [r.reason for r in encode(elements, None)[1]] == [length] * 2
    assert [r.reason for r in encode([ValueBlock(np.zeros((2, 3)))], None)[1]] == [length] * 2


def test_binary_vectors_hold_zeros_and_ones():
    """Anything else is a bad row, or zero; the array that came in stays as it was."""
    rows = np.array([[0.0, 1.0], [1.0, 0.5], [1.0, -0.0], [2.0, 0.0], [np.nan, 1.0]])
    for elements in ([rows], [ValueBlock(rows, positions=np.arange(5))], list(rows)):
        blocks, bad = encode(elements, None, binary=True)
        assert vectors(blocks) == [[0, 1], [1, 0]]
        assert [row.reason for row in bad] == ["neither 0 nor 1"] * 2 + ["NaN"]
    blocks, bad = encode([rows], None, binary=True, bad_rows="zero")
    assert vectors(blocks) == [[0, 1], [0, 0], [1, 0], [0, 0], [0, 0]] and not bad
    assert rows[3, 0] == 2.0
    text = pa.RecordBatch.from_pydict({"x": ["1", "0.5"], "y": [True, False]})
    blocks, bad = encode([text], ["x", "y"], binary=True)
    assert vectors(blocks) == [[1, 1]] and bad[0].reason == "neither 0 nor 1"
    with pytest.raises(ValueError, match="ranges must be None"):
        EncodeVectors(None, 2, binary=True, ranges=CoordinateRanges(0, 1))


def test_zero_leaves_no_trace_of_bad_rows():
    """The same rows, bad or zero, give the same blocks and dead letters."""
    bad_values = [None, "x", float("nan"), float("inf"), {1}, [1]]
    outcomes = []
    for values in (bad_values, [0.0] * 6):
        rows = [{"x": value, "y": 0, "u": i} for i, value in enumerate(values)]
        rows += [{"x": 1, "y": 2, "u": 9}, {"x": 1, "y": 2}]
        blocks, bad = encode(rows, ["x", "y"], people=People(id="u"), bad_rows="zero")
        ids = [u for block in blocks for u in block.user_ids.tolist()]
        outcomes.append((vectors(blocks), ids, bad))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == [[0, 0]] * 6 + [[1, 2]] and outcomes[0][1] == [*range(6), 9]
    assert outcomes[0][2] == [BadRow("", -1, "no user id")]
    blocks, bad = encode([ValueBlock(np.array([[np.nan, 1]]))], None, bad_rows="zero")
    assert vectors(blocks) == [[0, 0]] and not bad


def test_ranges_scale_and_hide_bad_rows_in_the_middle():
    ranges = CoordinateRanges((0, 10), (4, 20))
    table = pa.RecordBatch.from_pydict({"x": [0.0, 4, None, 5], "y": [20.0, 15, 12, 10]})
    blocks, bad = encode([table], ["x", "y"], ranges=ranges)
    assert vectors(blocks) == [[-1, 1], [1, 0], [1.5, -1]], "outside stays outside"
    assert [row.reason for row in bad] == ["null"]
    blocks, bad = encode([table], ["x", "y"], ranges=ranges, bad_rows="zero")
    assert vectors(blocks)[2] == [0, 0] and not bad


def test_groups_and_pairs():
    rows = [
        {"x": 1, "y": 2, "g": "fr"},
        {"x": 3, "y": 4, "g": "nowhere"},
        {"x": 5, "y": 6, "g": None},
    ]
    blocks, bad = encode(rows, ["x", "y"], people=People(groups=GROUPS, group_by="g"))
    assert vectors(blocks) == [[1, 2], [3, 4]] and blocks[0].groups.tolist() == [1, 2]
    assert [row.reason for row in bad] == ["no group"]
    pairs = [("de", [1, 2]), ("fr", np.array([3, 4])), ("fr", [3])]
    blocks, bad = encode(pairs, None, people=People(groups=GROUPS), pairs=True)
    assert vectors(blocks) == [[1, 2], [3, 4]] and blocks[0].groups.tolist() == [0, 1]
    assert len(bad) == 1
    batch = pa.RecordBatch.from_pydict({**XY, "group": ["de", "fr", "de"]})
    blocks, bad = encode([batch], None, people=People(groups=GROUPS))
    assert vectors(blocks) == ROWS and not bad
    with pytest.raises(ValueError, match="groups must be given exactly where"):
        encode([ValueBlock(np.zeros((1, 2)))], None, people=People(groups=GROUPS))


def test_ids_of_two_kinds_are_read_in_one_form():
    """Stages take integers and texts of a block apart again (`ValueBlock.by_kind`)."""
    rows = [{"v": [i, i], "u": u} for i, u in enumerate((1, "1", b"x", 2))]
    blocks, bad = encode(rows, "v", people=People(id="u"))
    assert not bad
    (block,) = blocks
    assert block.user_ids.tolist() == [b"1", b"1", b"x", b"2"]
    parts = {str(part.user_ids.dtype): part for part in block.by_kind()}
    assert parts["int64"].user_ids.tolist() == [1, 1, 2] and len(vectors([parts["int64"]])) == 3
    assert parts["object"].user_ids.tolist() == [b"x"]


def test_value_blocks_are_checked_and_keep_what_they_have():
    values = np.array([[1, 2], [np.nan, 0], [3, 4]], dtype=np.float32)
    block = ValueBlock(values, [7, 8, 9], np.array([0, 1, 1]), "f", np.array([5, 6, 8]))
    blocks, bad = encode([block], None, people=People(groups=GROUPS))
    (kept,) = blocks
    assert kept.values.dtype == np.float32 and kept.values.tolist() == [[1, 2], [3, 4]]
    assert kept.user_ids.tolist() == [7, 9] and kept.groups.tolist() == [0, 1]
    assert (kept.source, kept.positions.tolist()) == ("f", [5, 8])
    assert bad == [BadRow("f", 6, "NaN")] and np.isnan(values[1, 0])


def test_long_tables_become_blocks_of_limited_size(monkeypatch):
    monkeypatch.setattr(encode_module, "BLOCK_BYTES", 10 * 8)
    table = pa.RecordBatch.from_pydict({"x": np.arange(25.0), "y": np.arange(25.0)})
    blocks, _ = encode([TableBlock("f", 100, table)], ["x", "y"])
    assert [len(block) for block in blocks] == [10, 10, 5]
    assert [block.positions[0] for block in blocks] == [100, 110, 120]
    assert vectors(blocks) == [[i, i] for i in range(25)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["x"] * 2, 2), "columns must be distinct"),
        ((["x", "y"], 3), "one column of lists or 3 columns of numbers, got 2 names"),
        ((None, 0), "dimension must be an integer >= 1, got 0"),
        ((None, 2.5), "dimension must be an integer >= 1"),
    ],
)
def test_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        EncodeVectors(*arguments)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"bad_rows": "other"}, 'bad_rows must be "dead_letter" or "zero"'),
        ({"people": People(group_by="g")}, "groups must be given with group_by"),
        ({"ranges": CoordinateRanges((0, 0, 0), 1)}, "ranges must hold one range or 2, got 3"),
    ],
)
def test_options(how, message):
    with pytest.raises(ValueError, match=message):
        EncodeVectors("v", 2, **how)
    with pytest.raises(ValueError, match="column must name"):
        EncodeVectors(None, 2, people=People(group_by="u", groups=GROUPS))


def test_blocks_with_keys_are_refused_when_the_pipeline_is_built():
    pipeline = beam.Pipeline(runner="FnApiRunner")
    keyed = pipeline | beam.Create([]).with_output_types(tuple[str, ValueBlock])
    with pytest.raises(StageError, match="without keys; give groups"):
        keyed | EncodeVectors(None, 2)


anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.binary(max_size=8), st.lists(st.one_of(st.integers(), st.none(), st.text()), max_size=3),
    st.dictionaries(st.just("c"), st.text(), max_size=1),
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.fixed_dictionaries({}, optional={"x": anything, "y": anything, "u": anything})),
    st.booleans(),
)
def test_any_row_is_a_vector_or_a_dead_letter(rows, one_column):
    """Nothing raises because of what a row holds, and every row is accounted for."""
    columns = "x" if one_column else ["x", "y"]
    blocks, bad = encode(rows, columns, people=People(id="u"))
    assert sum(map(len, blocks)) + len(bad) == len(rows)
    for block in blocks:
        assert block.values.shape == (len(block), 2) and np.isfinite(block.values).all()


@pytest.mark.pipeline
def test_through_a_pipeline_with_windows_and_nothing_logged(caplog):
    caplog.set_level(logging.DEBUG)
    rows = [([1, 2], 1), ([3, 4], 61), ([SECRET, 1], 62), (SECRET, 63)]
    stamped = [beam.window.TimestampedValue({"v": v}, t) for v, t in rows]

    def build(pipeline):
        encoded = (
            pipeline
            | beam.Create(stamped)
            | beam.WindowInto(beam.window.FixedWindows(60))
            | EncodeVectors("v", 2)
        )
        sound = encoded | beam.Map(lambda block: (block.values.tolist(),))
        bad = encoded.bad_rows | "b" >> beam.FlatMap(lambda block: [r.reason for r in block])
        return (sound | beam.ParDo(_Window()), bad | "w" >> beam.ParDo(_Window())) | beam.Flatten()

    found = run(build)
    assert ((([[1, 2]],), 0)) in found and (([[3, 4]],), 60) in found
    assert ("wrong type", 60) in found and ("wrong number of coordinates", 60) in found
    assert SECRET not in caplog.text


class _Window(beam.DoFn):
    def process(self, element, window=beam.DoFn.WindowParam):
        yield element, int(window.start)
