"""Windows of messages from Kafka: the pipeline that the tests run, and docs/streaming.md tells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.io.kafka import ReadFromKafka
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.external import ExternalTransform, ImplicitSchemaPayloadBuilder
from apache_beam.transforms.window import FixedWindows

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.release.inputs.sources import BAD_ROWS, ROWS
from beam_ldp.release.streams.results import (
    WriteStreamBadRows,
    WriteWindows,
    WriteWithheldReleases,
)
from beam_ldp.release.streams.source import Message, MessagesToTables
from beam_ldp.settings import Noise, People
from beam_ldp.transforms import ChargeTo, PrivateFrequencies, WindowRules
from tests.engines.kafka import TOPIC, Kafka
from tests.pipelines.test_stream import a_run

DOMAIN = Domain(("red", "green"))
ORACLE = KRandomizedResponse(DOMAIN.size, 4.0)
SECONDS = 5  # of a window
MIN_REPORTS = 200
RUN = "kafka"


def read(queue: Kafka) -> ExternalTransform:
    """`ReadFromKafka`, asked for what Beam 2.62 knows: with services of the version of Beam for
    Python it is `ReadFromKafka(consumer_config, topics, timestamp_policy=..., ...)`."""
    bytes_of = ReadFromKafka.byte_array_deserializer
    asked = {
        "consumer_config": {"bootstrap.servers": queue.broker, "auto.offset.reset": "earliest"},
        "topics": [TOPIC],
        "key_deserializer": bytes_of,
        "value_deserializer": bytes_of,
        "commit_offset_in_finalize": False,
        "timestamp_policy": ReadFromKafka.create_time_policy,
    }
    payload = ImplicitSchemaPayloadBuilder(asked)
    return ExternalTransform(ReadFromKafka.URN_WITH_METADATA, payload, queue.expansion_service)


def as_message(message: Any) -> Message:
    """A message with a person as its key and `colour,time` as its value."""
    colour, _, at = message.value.decode().partition(",")
    row = {"person": message.key.decode(), "colour": colour, "at": at}
    return Message(f"{message.topic}/{message.partition}", message.offset, row)


def build(options: Sequence[str], queue: Kafka, folder: Path, windows: int) -> beam.Pipeline:
    """The pipeline.

    Args:
        options: Beam's flags.
        queue: where the messages are.
        folder: holds `key` and `ledger.db`; gets `out`.
        windows: that the budget pays for.
    """
    pipeline = beam.Pipeline(options=PipelineOptions([*options, "--streaming"]))
    messages = pipeline | "Kafka" >> read(queue)
    table = (
        messages
        | "Places" >> beam.Map(as_message).with_output_types(Message)
        | "Rows" >> MessagesToTables(["person", "colour", "at"], "at", SECONDS)
    )
    released = (
        table[ROWS]
        | "Windows" >> beam.WindowInto(FixedWindows(SECONDS), allowed_lateness=10)
        | "Frequencies"
        >> PrivateFrequencies(
            ORACLE,
            domain=DOMAIN,
            column="colour",
            people=People(id="person"),
            min_reports=MIN_REPORTS,
            noise=Noise(dataset="people", id=RUN, key_file=str(folder / "key")),
            budget=ChargeTo(
                "people", f"sqlite:///{folder / 'ledger.db'}", run_id=RUN, windows=windows
            ),
            windows=WindowRules(delay=3.0),
        )
    )
    out = str(folder / "out")
    released | "Write" >> WriteWindows(out, a_run(ORACLE), None)
    released.withheld | "Write withheld" >> beam.ParDo(WriteWithheldReleases(out))
    table[BAD_ROWS] | "Write bad rows" >> beam.ParDo(WriteStreamBadRows(out))
    return pipeline
