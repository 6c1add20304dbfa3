"""Several questions through the stages; absent groups; bad rows in Beam's error handler."""

from __future__ import annotations

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.util import assert_that
from apache_beam.transforms import error_handling

from beam_ldp.randomizers.domain import Bins, Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.hierarchy import Hierarchy
from beam_ldp.randomizers.questions import EveryQuestion, OneQuestion
from beam_ldp.settings import People, Shuffling
from beam_ldp.transforms import PrivateFrequencies, Randomize, ReleaseToRows, ValueBlock
from beam_ldp.transforms.device.keyed import NoiseSource
from beam_ldp.transforms.questions import (
    BinQuestion,
    EncodeQuestions,
    LevelsQuestion,
    ListQuestion,
    PrivateQuestions,
)
from tests.identities import identity
from tests.transforms.helpers import local, run

pytestmark = pytest.mark.pipeline

HAIR, GROUPS = Domain(("red", "fair")), Domain(("DE", "FR", "AT"))
TREE = Hierarchy(Bins.parse("0,10,20"), 2)
ASKED = (
    ListQuestion("hair", HAIR),
    BinQuestion("height", Bins.parse("0,100,200")),
    LevelsQuestion("age", TREE),
)
ROWS = [
    {"id": i, "hair": ("red", "fair")[i % 2], "height": 50 + i % 100, "age": 5.0 + i % 20,
     "land": "DE" if i % 3 else "FR"}
    for i in range(900)
]  # fmt: skip


def survey(kind):
    return kind(tuple(KRandomizedResponse(size, 2.0) for size in (3, 3, 2, 4)))


@pytest.mark.parametrize("kind", [OneQuestion, EveryQuestion])
@pytest.mark.parametrize("output", ["statistic", "reports"])
def test_every_group_and_question_has_a_release(kind, output):
    """Their event is that of the whole; answers add up; the absent group is withheld."""
    randomizer = survey(kind)

    def build(pipeline):
        releases = (
            pipeline
            | beam.Create(ROWS)
            | PrivateQuestions(
                randomizer,
                ASKED,
                people=People(id="id", groups=GROUPS, group_by="land"),
                min_reports=200,
                shuffle=Shuffling(output=output),
            )
        )
        notices = releases.withheld | "as pairs" >> beam.Map(lambda w: (w.group, w))
        return (releases, notices) | beam.Flatten()

    found = run(build)
    releases = [r for _, r in found if hasattr(r, "estimate")]
    (notice,) = [w for _, w in found if not hasattr(w, "estimate")]
    assert (notice.group, notice.num_reports, notice.min_reports) == ("AT", 0, 200)
    assert len(releases) == 8
    for group, people in (("DE", 600), ("FR", 300)):
        own = [r for r in releases if r.group == group]
        assert {r.question for r in own} == {"hair", "height", "age, 2 parts", "age, 4 parts"}
        assert all(r.num_reports == r.estimate.num_users == people for r in own)
        answers = [r.answers for r in own]
        if kind is OneQuestion:
            assert sum(count for (count,) in answers) == people
            assert {r.event.num_reports for r in own} == {people}
        else:
            assert answers == [()] * 4
            assert {e.num_reports for r in own for e in r.event.events} == {people}


def test_bad_rows_and_where_they_hide():
    rows = [
        {"hair": "red", "height": 10}, {"hair": None, "height": 10}, {"hair": "red"},
        {"hair": "red", "height": "x"}, {"hair": "green", "height": 999},
    ]  # fmt: skip

    def encode(mode):
        def build(pipeline):
            values = pipeline | beam.Create(rows) | EncodeQuestions(ASKED[:2], bad_rows=mode)
            bad = values.bad_rows | "bad" >> beam.FlatMap(lambda block: [("bad", r) for r in block])
            good = values | "good" >> beam.FlatMap(
                lambda block: [("good", v) for v in block.values.tolist()]
            )
            return (good, bad) | beam.Flatten()

        found = run(build)
        return (
            sorted(v for kind, v in found if kind == "good"),
            sorted(r.reason for kind, r in found if kind == "bad"),
        )

    assert encode("dead_letter") == ([[0, 0], [2, 2]], ["missing column", "not a number", "null"])
    good, bad = encode("other")
    assert good == [[0, 0], [0, 2], [0, 2], [2, 0], [2, 2]] and bad == []
    with pytest.raises(ValueError, match="dead_letter"):
        EncodeQuestions(ASKED, bad_rows="other")
    with pytest.raises(ValueError, match="different names"):
        EncodeQuestions((ASKED[0], ASKED[0]))
    with pytest.raises(ValueError, match="one index per oracle"):
        EncodeQuestions(ASKED, domain_sizes=(3, 3))
    with pytest.raises(TypeError, match="OneQuestion or EveryQuestion"):
        PrivateQuestions(KRandomizedResponse(3, 1.0), ASKED[:1], min_reports=1)


def test_memoized_answers_are_the_same_on_every_run(tmp_path):
    """The drawn question too, whatever the order of rows."""
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    values = np.stack([np.arange(400) % 3, np.arange(400) % 3, np.arange(400) % 2,
                       np.arange(400) % 4], axis=1)  # fmt: skip

    def once(order):
        block = ValueBlock(values[order], np.arange(400)[order])
        (found,) = run(
            lambda p: (
                p
                | beam.Create([block]).with_output_types(ValueBlock)
                | Randomize(survey(OneQuestion), noise=NoiseSource(identity(), str(key)))
            )
        )
        back = np.argsort(order)
        return found.reports[back]

    assert np.array_equal(once(np.arange(400)), once(np.random.default_rng(0).permutation(400)))


class _Errors(beam.PTransform):
    """What a user's own sink for errors looks like."""

    def expand(self, errors):
        return errors | beam.FlatMap(list) | beam.Map(lambda row: (row.reason, row.position))


def test_beams_own_error_handler_takes_bad_rows():
    oracle = KRandomizedResponse(3, 2.0)
    with local() as pipeline:
        with error_handling.ErrorHandler(_Errors()) as handler:
            releases = (
                pipeline
                | beam.Create([{"hair": "red"}] * 50 + [{"hair": None}, {"hare": "red"}])
                | PrivateFrequencies(oracle, domain=HAIR, column="hair", min_reports=50)
            )
            handler.add_error_pcollection(releases.bad_rows)

        def check(found):
            assert sorted(reason for reason, _ in found) == ["missing column", "null"]

        assert_that(handler.output(), check)


SCHEMA = {
    "question": "STRING", "group": "STRING", "window_start": "TIMESTAMP",
    "window_end": "TIMESTAMP", "value": "STRING", "count": "FLOAT64",
    "count_standard_error": "FLOAT64", "count_low": "FLOAT64", "count_high": "FLOAT64",
    "frequency": "FLOAT64", "frequency_standard_error": "FLOAT64", "frequency_low": "FLOAT64",
    "frequency_high": "FLOAT64",
}  # fmt: skip


def test_rows_fit_parquet_and_a_table_of_bigquery(tmp_path):
    """Rows go into Beam's Parquet sink as dictionaries, and have the names and types of a table."""
    from beam_ldp.transforms.collector.release_rows import FrequencyRow

    assert list(FrequencyRow._fields) == list(SCHEMA)
    arrow = pa.schema(
        [
            (name, {"STRING": pa.string(), "TIMESTAMP": pa.timestamp("us", tz="UTC"),
                    "FLOAT64": pa.float64()}[kind])
            for name, kind in SCHEMA.items()
        ]
    )  # fmt: skip
    with local() as pipeline:
        (
            pipeline
            | beam.Create(["red"] * 60)
            | PrivateFrequencies(KRandomizedResponse(3, 2.0), domain=HAIR, min_reports=50,
                                 question="hair")
            | ReleaseToRows(HAIR)
            | beam.Map(lambda row: row._asdict())
            | beam.io.WriteToParquet(str(tmp_path / "rows"), arrow, file_name_suffix=".parquet")
        )  # fmt: skip
    (path,) = tmp_path.glob("rows*.parquet")
    table = pq.read_table(path)
    assert table.schema.equals(arrow) and table["value"].to_pylist() == ["red", "fair", "other"]
    assert table["question"].to_pylist() == ["hair"] * 3 and table["group"].null_count == 3
