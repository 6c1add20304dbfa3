"""A stream whose rows and watermarks a test decides, and what it leaves.

Engines that stream are not in `make test`, so what stands here is `frequency --stream` behind its
source of files: windows, the composite, the folder. `start` alone knows the product's stages.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.coders import BytesCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_ldp.ledger import BudgetLedger
from beam_ldp.release.streams.results import (
    WriteWindows,
    WriteWithheldReleases,
    begin,
)
from beam_ldp.settings import Noise, People
from beam_ldp.transforms import (
    ChargeTo,
    PrivateFrequencies,
    SlidingSums,
    ValueBlock,
    WindowRules,
)
from tests.golden import devices, frozen, stores
from tests.pipelines.test_stream import ORACLE, a_run

KEPT = Path(__file__).parent / "streams"
LEDGER = "sqlite:///privacy.db"
LEAST = 50
RUNNER = "--runner=apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"


def rows(first: int, last: int, time: int) -> list[Any]:
    """One person each, who came at that time."""
    return [TimestampedValue(b"%d" % i, time) for i in range(first, last)]


def as_block(line: bytes) -> ValueBlock:
    person = np.array([int(line)])
    return ValueBlock(person % 2, person, source="s", positions=person)


def prepare(folder: Path) -> None:
    """A key and a ledger with a budget."""
    devices.write_secret(folder / "key")
    made = BudgetLedger.create(LEDGER)
    made.set_budget("people", epsilon=100, delta=1e-6, local_epsilon=100)


def start(*steps: Any, late: str = "release", lateness: int = 0, sums: bool = False) -> None:
    """One start of the stream in this folder, of which these rows and watermarks come."""
    source = TestStream(coder=BytesCoder())
    for step in steps:
        grows = isinstance(step, list)
        source = source.add_elements(step) if grows else source.advance_watermark_to(step)
    composite = PrivateFrequencies(
        ORACLE,
        column="colour",
        question="colour",
        min_reports=LEAST,
        noise=Noise(dataset="people", id="week", key_file="key"),
        people=People(one_row=True),
        budget=ChargeTo("people", LEDGER, run_id="live", windows=6),
        windows=WindowRules(late=late),  # type: ignore[arg-type]
    )
    identity = composite.identity
    assert identity is not None
    with beam.Pipeline(options=PipelineOptions([RUNNER], streaming=True)) as pipeline:
        releases = (
            pipeline
            | source.advance_watermark_to_infinity()
            | beam.Map(as_block)
            | beam.WindowInto(FixedWindows(60), allowed_lateness=lateness)
            | composite
        )
        releases | WriteWindows("out", a_run(), identity)
        if sums:
            slid = releases | SlidingSums(120, 60)
            slid | "Sums" >> WriteWindows("out", a_run(), identity)
        releases.withheld | beam.ParDo(WriteWithheldReleases("out"))
    begin(Path("out"), identity, "live")


def left(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a stream left: of each window its numbers, of the ledger its rows; and their columns."""
    numbers: dict[str, Any] = {"rows": frozen.ledger_rows(folder / "privacy.db")}
    text: dict[str, Any] = {}
    notices = []
    for path in sorted((folder / "out").iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            columns, *cells = devices.table(path / "estimates.csv")
            told = json.loads((path / "privacy.json").read_text("utf-8"))
            numbers[path.name] = {"price": devices.numbers_of(told), "cells": cells}
            text[path.name] = {"columns": columns, "keys": list(told)}
        elif "withheld" in path.name:
            notices.append(json.loads(path.read_text("utf-8")))
        elif path.is_file():
            numbers[path.name] = json.loads(path.read_text("utf-8"))
    notices.sort(key=lambda one: json.dumps(one, sort_keys=True))
    return {**numbers, "withheld": notices}, text


def keep(folder: Path) -> None:
    """Keep the folder and the ledger as they are, for later versions."""
    for path in (folder / "out").rglob("*"):
        if path.is_file():
            kept = KEPT / path.relative_to(folder)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(path.read_bytes())
    stores.dump(folder / "privacy.db", KEPT / "privacy.sql")
