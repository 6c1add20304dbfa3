"""Rows to values; bad rows to the dead letters, with a place and a reason and nothing else."""

from __future__ import annotations

import logging
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.metrics import MetricsFilter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_ldp.randomizers.domain import Domain
from beam_ldp.settings import People
from beam_ldp.transforms import BadRow, EncodeRows, IntegerDomain, TableBlock, ValueBlock
from tests.transforms.helpers import local, run

pytestmark = pytest.mark.pipeline

COLOURS = Domain(("red", "green"))
GROUPS = Domain(("de", "fr"))
SECRET = "a value that nobody may see"


class Row(NamedTuple):
    colour: object
    uid: object = None


def encode(elements, *arguments, kind=None, **keywords):
    """`(values, bad rows, counters)` of one run."""
    pipeline = local()
    source = pipeline | beam.Create(elements)
    if kind is not None:
        source = source | "Typed" >> beam.Map(lambda e: e).with_output_types(kind)
    encoded = source | EncodeRows(*arguments, **keywords)
    tagged = (
        encoded | "v" >> beam.Map(lambda block: ("value", block)),
        encoded.bad_rows | "b" >> beam.FlatMap(lambda block: [("bad", row) for row in block]),
    ) | beam.Flatten()
    from tests.transforms import helpers

    helpers._KEPT.clear()
    tagged | "Keep" >> beam.Map(helpers._keep)
    result = pipeline.run()
    counters = {
        counter.key.metric.name: counter.committed
        for counter in result.metrics().query(MetricsFilter().with_namespace("beam_ldp"))[
            "counters"
        ]
    }
    values = [block for tag, block in helpers._KEPT if tag == "value"]
    return values, [row for tag, row in helpers._KEPT if tag == "bad"], counters


def indices(blocks):
    return sorted(np.concatenate([block.values for block in blocks]).tolist()) if blocks else []


def test_every_kind_of_row():
    values = ["red", "green", "mauve"]
    inputs = {
        "scalars": (values, None),
        "mappings": ([{"colour": v, "more": 1} for v in values], "colour"),
        "rows": ([beam.Row(colour=v) for v in values], "colour"),
        "named tuples": ([Row(v) for v in values], "colour"),
        "batches": ([pa.RecordBatch.from_pydict({"colour": values})], "colour"),
        "tables": ([pa.table({"colour": values})], "colour"),
        "table blocks": (
            [TableBlock("f", 0, pa.RecordBatch.from_pydict({"colour": values}))],
            "colour",
        ),
        "one column": ([pa.RecordBatch.from_pydict({"anything": values})], None),
        "arrays": ([np.array(values)], None),
    }
    for name, (elements, column) in inputs.items():
        blocks, bad, counters = encode(elements, COLOURS, column)
        assert indices(blocks) == [0, 1, 2], name
        assert not bad and counters["rows_read"] == 3, name


def test_bad_rows_have_a_place_and_a_reason():
    table = pa.RecordBatch.from_pydict(
        {"colour": ["red", None, SECRET * 300, "green"], "uid": [1, 2, 3, None]}
    )
    blocks, bad, counters = encode(
        [TableBlock("file.parquet", 40, table)], COLOURS, "colour", people=People(id="uid")
    )
    assert sorted(bad, key=lambda row: row.position) == [
        BadRow("file.parquet", 41, "null"),
        BadRow("file.parquet", 42, "over-long value"),
        BadRow("file.parquet", 43, "no user id"),
    ]
    (block,) = blocks
    assert (block.values.tolist(), block.user_ids.tolist()) == ([0], [1])
    assert (block.source, block.positions.tolist()) == ("file.parquet", [40])
    assert counters == {
        "rows_read": 4, "bad_rows": 3, "bad_rows_null": 1, "bad_rows_over_long_value": 1,
        "bad_rows_no_user_id": 1,
    }  # fmt: skip


def test_missing_columns():
    table = pa.RecordBatch.from_pydict({"more": [1, 2]})
    blocks, bad, _ = encode([TableBlock("f", 0, table)], COLOURS, "colour")
    assert not blocks and [row.reason for row in bad] == ["missing column"] * 2
    _, bad, _ = encode([{"colour": "red"}, {"uid": 3}], COLOURS, "colour", people=People(id="uid"))
    assert sorted(row.reason for row in bad) == ["missing column", "no user id"]


def test_other_leaves_no_trace_of_bad_rows():
    """The same rows, bad or merely unlisted, give the same blocks, dead letters and counters."""
    bad_rows = [None, 1.5, float("nan"), "x" * 5000, [1], b"\xff"]
    outcomes = []
    for column in (bad_rows, ["mauve"] * 6):
        rows = [{"colour": value, "uid": i} for i, value in enumerate(column)]
        rows += [{"uid": 6} if column is bad_rows else {"colour": "blue", "uid": 6}]
        rows += [{"colour": "red"}]
        blocks, bad, counters = encode(
            rows, COLOURS, "colour", people=People(id="uid"), bad_rows="other"
        )
        ids = sorted(np.concatenate([block.user_ids for block in blocks]).tolist())
        outcomes.append((indices(blocks), ids, bad, counters))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == [2] * 7 and outcomes[0][1] == list(range(7))
    assert outcomes[0][2] == [BadRow("", -1, "no user id")]


def test_groups():
    rows = [
        {"c": "red", "g": "fr"},
        {"c": "green", "g": "nowhere"},
        {"c": "red", "g": None},
        {"c": "red"},
        {"c": "red", "g": 1.5},
    ]
    blocks, bad, _ = encode(rows, COLOURS, "c", people=People(groups=GROUPS, group_by="g"))
    pairs = sorted((v, g) for b in blocks for v, g in zip(b.values.tolist(), b.groups.tolist()))
    assert pairs == [(0, 1), (1, 2)]
    assert [row.reason for row in bad] == ["no group", "no group", "wrong type"]
    pairs = [("de", "red"), ("fr", "green")]
    blocks, bad, _ = encode(pairs, COLOURS, people=People(groups=GROUPS), kind=tuple[str, str])
    assert not bad
    assert sorted((int(b.values[i]), int(b.groups[i])) for b in blocks for i in range(len(b))) == [
        (0, 0),
        (1, 1),
    ]


def test_ids_of_any_type_have_one_form():
    rows = [{"c": "red", "u": u} for u in (1, "1", "1.0", 1.0)]
    (block,), bad, _ = encode(rows, COLOURS, "c", people=People(id="u"))
    assert not bad and block.user_ids.dtype == np.int64 and block.user_ids.tolist() == [1] * 4
    rows = [{"c": "red", "u": u} for u in (1, "1", b"x", 2, 1.5, True)]
    (block,), bad, _ = encode(rows, COLOURS, "c", people=People(id="u"))
    assert block.user_ids.tolist() == [b"1", b"1", b"x", b"2"]
    assert [row.reason for row in bad] == ["user id of wrong type"] * 2


def test_value_blocks_pass_and_indices_are_values():
    block = ValueBlock(np.array([4, 0]), [7, 8])
    blocks, _, counters = encode([block], IntegerDomain(5))
    assert blocks[0].values.tolist() == [4, 0] and blocks[0].user_ids.tolist() == [7, 8]
    assert counters["rows_read"] == 2
    blocks, _, _ = encode([np.array([0, 4, 9, -1])], IntegerDomain(5))
    assert indices(blocks) == [0, 4, 4, 4]


def test_domain_of_a_file_is_read_on_the_worker(tmp_path):
    path = tmp_path / "domain.txt"
    path.write_text("red\ngreen\n")
    assert indices(encode(["green", "blue"], str(path))[0]) == [1, 2]
    path.write_text("green\n")
    assert indices(encode(["green", "blue"], path)[0]) == [0, 1], "a new file is read anew"
    with pytest.raises(Exception, match="domain has 2 values .* domain_size is 5"):
        encode(["green"], str(path), domain_size=5)


def test_arguments():
    with pytest.raises(ValueError, match="domain has 3 values"):
        EncodeRows(COLOURS, domain_size=4)
    with pytest.raises(ValueError, match="write it to a file"):
        EncodeRows(Domain(tuple(f"value number {i}" for i in range(30_000))))
    with pytest.raises(ValueError, match="groups must be given with group_by"):
        EncodeRows(COLOURS, "c", people=People(group_by="g"))
    with pytest.raises(ValueError, match="column must name"):
        EncodeRows(COLOURS, people=People(group_by="u", groups=COLOURS))
    with pytest.raises(ValueError, match='bad_rows must be "dead_letter" or "other"'):
        EncodeRows(COLOURS, bad_rows="drop")
    with pytest.raises(TypeError, match="domain must be a Domain, an IntegerDomain"):
        EncodeRows(("red", "green"))
    with pytest.raises(ValueError, match="max_value_bytes must be an integer >= 20"):
        EncodeRows(COLOURS, max_value_bytes=3)


anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.binary(max_size=8),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.just("c"), st.text(), max_size=1),
)  # fmt: skip


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.fixed_dictionaries({}, optional={"c": anything, "u": anything}), max_size=20))
def test_any_row_is_a_value_or_a_dead_letter(rows):
    """Nothing raises because of what a row holds, and every row is accounted for."""
    from apache_beam.transforms.window import GlobalWindow

    doer = EncodeRows(COLOURS, "c", people=People(id="u"))._doer
    doer.setup()
    doer.start_bundle()
    outputs = [out for row in rows for out in doer.process(row, GlobalWindow())]
    outputs += list(doer.finish_bundle())
    blocks = [out.value for out in outputs if not isinstance(out, beam.pvalue.TaggedOutput)]
    tagged = [out.value for out in outputs if isinstance(out, beam.pvalue.TaggedOutput)]
    bad = [getattr(block, "value", block) for block in tagged]
    assert sum(map(len, blocks)) + sum(map(len, bad)) == len(rows)
    for block in blocks:
        assert ((block.values >= 0) & (block.values < 3)).all()


def test_values_are_never_logged(caplog):
    caplog.set_level(logging.DEBUG)
    rows = [{"c": SECRET * 200}, {"c": [SECRET]}, {"c": SECRET, "u": 1.5}, {"c": SECRET, "u": 1}]
    _, bad, _ = encode(rows, COLOURS, "c", people=People(id="u"))
    assert len(bad) == 3
    assert SECRET not in caplog.text and SECRET not in repr(bad)


def test_windows_stay():
    stamped = [beam.window.TimestampedValue(v, t) for v, t in (("red", 1), ("red", 61), (None, 62))]

    def build(pipeline):
        encoded = (
            pipeline
            | beam.Create(stamped)
            | beam.WindowInto(beam.window.FixedWindows(60))
            | EncodeRows(COLOURS)
        )
        bad = encoded.bad_rows | "b" >> beam.ParDo(_Window())
        return (encoded | beam.ParDo(_Window()), bad) | beam.Flatten()

    assert sorted(run(build)) == [("BadRowBlock", 60), ("ValueBlock", 0), ("ValueBlock", 60)]


class _Window(beam.DoFn):
    def process(self, element, window=beam.DoFn.WindowParam):
        yield type(element).__name__, int(window.start)


def test_a_column_that_is_no_name_is_refused_before_anything_runs():
    with pytest.raises(TypeError, match="column must be a name, got Domain"):
        EncodeRows("list.txt", COLOURS)
