"""Messages of a queue become rows whose place is the same when they are handed out again."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders import PickleCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.release.inputs.sources import BAD_ROWS, ROWS
from beam_ldp.release.streams import source as messages
from beam_ldp.release.streams.source import NO_TIME, Message, MessagesToTables, _Gather
from beam_ldp.settings import Noise, People
from beam_ldp.transforms import PrivateFrequencies, WindowRules

COLUMNS = ["who", "colour", "t"]


def message(source: str, position: int, time: str | None = "1", colour: str = "red") -> Message:
    return Message(source, position, {"who": f"{source}-{position}", "colour": colour, "t": time})


def gathered(*bundle: Message) -> list[tuple[str, int, int, float]]:
    """Source, first position, rows and time of each block of one bundle."""
    doer = _Gather(COLUMNS)
    doer.start_bundle()
    found = [out for i, one in enumerate(bundle) for out in doer.process(one, timestamp=7.0 + i)]
    found += doer.finish_bundle()
    return [
        (block.source, block.first_position, block.batch.num_rows, float(out.timestamp))
        for out in found
        for block in [out.value]
    ]


@pytest.mark.exact
def test_messages_that_follow_each_other_are_one_block_per_partition() -> None:
    found = gathered(message("a/0", 5), message("a/1", 9), message("a/0", 6), message("a/1", 10))
    assert found == [("a/0", 5, 2, 7.0), ("a/1", 9, 2, 8.0)]


@pytest.mark.exact
def test_a_gap_and_a_message_that_comes_again_begin_a_new_block() -> None:
    """Positions within a block are counted on from its first, so they must be consecutive."""
    places = (5, 6, 9, 9, 10)
    found = gathered(*(message("a/0", place) for place in places))
    # A block is at the time of its first message, as long as it was held.
    assert [block[1:] for block in found] == [(5, 2, 7.0), (9, 1, 9.0), (9, 2, 10.0)]


@pytest.mark.exact
def test_a_bundle_of_many_messages_is_held_in_bounded_blocks(monkeypatch: Any) -> None:
    monkeypatch.setattr(messages, "HELD_ROWS", 3)
    found = gathered(*(message("a/0", place) for place in range(7)))
    assert [(first, rows) for _, first, rows, _ in found] == [(0, 3), (3, 3), (6, 1)]


@pytest.mark.exact
def test_nothing_is_held_from_one_bundle_to_the_next() -> None:
    doer = _Gather(COLUMNS)
    doer.start_bundle()
    list(doer.process(message("a/0", 0), timestamp=1.0))
    assert len(list(doer.finish_bundle())) == 1
    assert list(doer.finish_bundle()) == []


@pytest.mark.exact
def test_the_time_must_be_one_of_the_columns() -> None:
    with pytest.raises(ValueError, match="columns must hold the time column 'when'"):
        MessagesToTables(COLUMNS, "when", 5.0)


LOCAL = "apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"
_KEPT: dict[str, list[Any]] = {}


def keep(element: Any, name: str) -> None:
    _KEPT.setdefault(name, []).append(element)


@pytest.mark.pipeline
def test_messages_without_a_time_are_bad_rows_with_a_place() -> None:
    _KEPT.clear()
    sent = [message("a/0", 4, None), message("a/0", 5), message("a/0", 6, "soon")]
    with beam.Pipeline(LOCAL) as pipeline:
        table = pipeline | beam.Create(sent, reshuffle=False) | MessagesToTables(COLUMNS, "t", 5.0)
        table[BAD_ROWS] | "Bad" >> beam.Map(keep, "bad")
        table[ROWS] | "Rows" >> beam.Map(keep, "rows")
    bad = [(row.source, row.position, row.reason) for block in _KEPT["bad"] for row in block]
    assert sorted(bad) == [("a/0", 4, NO_TIME), ("a/0", 6, NO_TIME)]
    assert [(b.source, b.first_position, b.batch.num_rows) for b in _KEPT["rows"]] == [
        ("a/0", 5, 1)
    ]


KEY = bytes(range(32))


def released(tmp_path: Any, *parts: list[Message]) -> list[Any]:
    """The releases of one window of memoized reports, for messages that come in these parts."""
    key_file = tmp_path / "key"
    key_file.write_bytes(KEY)
    stream = TestStream(coder=PickleCoder()).advance_watermark_to(0)
    for part in parts:
        stream = stream.add_elements([TimestampedValue(one, 1) for one in part])
    stream = stream.advance_watermark_to_infinity()
    _KEPT.clear()
    domain = Domain(("red", "green"))
    with beam.Pipeline(LOCAL, PipelineOptions(streaming=True)) as pipeline:
        releases = (
            (pipeline | stream | MessagesToTables(COLUMNS, "t", 60.0))[ROWS]
            | beam.WindowInto(FixedWindows(60))
            | PrivateFrequencies(
                KRandomizedResponse(domain.size, 2.0),
                domain=domain,
                column="colour",
                people=People(id="who"),
                min_reports=1,
                noise=Noise(dataset="d", id="r", key_file=str(key_file)),
                windows=WindowRules(),
            )
        )
        releases | "Keep" >> beam.Map(keep, "released")
    return [(r.num_reports, r.estimate.value.tolist()) for r in _KEPT["released"]]


@pytest.mark.pipeline
def test_a_message_that_comes_again_changes_nothing(tmp_path: Any) -> None:
    """In the same bundle, in another one, cut otherwise: the same count and the same noise."""
    colours = np.random.default_rng(1).choice(["red", "green"], 60).tolist()
    sent = [message("a/0", i, colour=c) for i, c in enumerate(colours)]
    once = released(tmp_path, sent)
    assert [count for count, _ in once] == [60]
    assert released(tmp_path, sent[:30], sent[20:], sent[:10]) == once
