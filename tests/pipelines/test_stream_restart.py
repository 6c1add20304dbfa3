"""A stream that is lost and started again: what was released stays, and is charged once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders import BytesCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_ldp.ledger import BudgetLedger, LedgerError, audit
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.release.streams.results import (
    PRICE,
    TABLE,
    WriteWindows,
    WriteWithheldReleases,
    begin,
    read_folder,
    span,
)
from beam_ldp.research.interactivity.auditing import InteractivityReport, audit_logs
from beam_ldp.settings import Noise, People
from beam_ldp.transforms import ChargeTo, PrivateFrequencies, ValueBlock
from beam_ldp.transforms.budgeted import ENDED_BEFORE
from beam_ldp.transforms.device.side import RandomizeBlocks
from tests.ledger.parts import parts_of
from tests.pipelines.test_stream import ORACLE, a_run

pytestmark = pytest.mark.pipeline

RUNNER = "--runner=apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"
SECOND = 10**6


def rows(first: int, last: int, time: int) -> list[Any]:
    """One person each, who came at that time."""
    return [TimestampedValue(b"%d" % i, time) for i in range(first, last)]


def as_block(line: bytes) -> ValueBlock:
    person = np.array([int(line)])
    return ValueBlock(person % 2, person, source="s", positions=person)


def a_start(folder: Path, *steps: Any, question: str = "colour") -> None:
    """One start of the stream, of which these rows and watermarks come."""
    url = f"sqlite:///{folder / 'ledger.db'}"
    source = TestStream(coder=BytesCoder())
    for step in steps:
        source = (
            source.add_elements(step)
            if isinstance(step, list)
            else source.advance_watermark_to(step)
        )
    composite = PrivateFrequencies(
        ORACLE,
        column=question,
        min_reports=50,
        noise=Noise(
            dataset="people",
            id="week",
            key_file=str(folder / "key"),
            log=str(folder / "log"),
            log_key_file=str(folder / "log key"),
        ),
        question=question,
        people=People(one_row=True),
        budget=ChargeTo("people", url, run_id="live", windows=4),
    )
    identity = composite.identity
    assert identity is not None
    out = str(folder / "out")
    with beam.Pipeline(options=PipelineOptions([RUNNER], streaming=True)) as pipeline:
        blocks = (
            pipeline
            | source.advance_watermark_to_infinity()
            | beam.Map(as_block)
            | beam.WindowInto(FixedWindows(60))
        )
        releases = blocks | composite
        releases | WriteWindows(out, a_run(), identity)
        releases.withheld | beam.ParDo(WriteWithheldReleases(out))
    begin(Path(out), identity, "live")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name, secret in (("key", bytes(range(32))), ("log key", bytes(32))):
        (tmp_path / name).write_bytes(secret)
        (tmp_path / name).chmod(0o600)
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.set_budget("people", epsilon=100, delta=1e-6, local_epsilon=100)
    return tmp_path


def ledger_of(folder: Path) -> BudgetLedger:
    return BudgetLedger(f"sqlite:///{folder / 'ledger.db'}")


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in (folder / "out").glob("*/*")
    }


def asked_in(folder: Path, epsilon: float) -> InteractivityReport:
    """The audit of who was asked what, in all starts."""
    return audit_logs(sorted((folder / "log").iterdir()), epsilon)


def test_windows_that_were_released_stay_as_they_are(place):
    """The second start sees all rows again, and more of the first window than the first did."""
    a_start(place, 0, rows(0, 100, 10), 61)
    released, (charged,) = files_of(place), parts_of(ledger_of(place), "live")
    a_start(place, 0, rows(0, 160, 10), 61, rows(0, 90, 70), 121)
    after = files_of(place)
    assert {name: after[name] for name in released} == released
    first, second = (span(t * SECOND, (t + 60) * SECOND) for t in (0, 60))
    assert {name.split("/")[1] for name in after} == {first, second}
    parts = parts_of(ledger_of(place), "live")
    assert [part.status for part in parts] == ["settled", "settled"] and parts[0] == charged
    notices = [told for name, told in read_folder(place / "out", set()) if "withheld" in name]
    assert [(told["num_reports"], told["reason"]) for told in notices] == [(160, ENDED_BEFORE)]
    assert audit(ledger_of(place).rows()).clean
    asked = asked_in(place, 4.0)
    assert asked.clean and asked.people.by_queries == {1: 70, 2: 90}  # each window is a round
    assert asked.people.retries == 100 and asked.people.records == 100 + 160 + 90
    assert asked.noninteractive and asked.depth == 1 and asked.mergeable == 90
    assert asked_in(place, 2.0).people.over == 90


def test_a_stream_that_draws_anew_when_it_starts_again_fails_its_audit(place, monkeypatch):
    monkeypatch.setattr(RandomizeBlocks, "_rng", lambda *_: None)
    for _ in range(2):
        a_start(place, 0, rows(0, 100, 10), 61)
    asked = asked_in(place, 2.0)
    found = {one.name: one.count for one in asked.findings}
    assert not asked.clean and found["re-randomized on retry"] == 100 - asked.people.retries > 0
    assert found["over budget"] == found["re-randomized on retry"]


def test_price_and_ledger_name_each_window_alike(place):
    a_start(place, 0, rows(0, 100, 10), 61, rows(0, 90, 70), 121)
    for part in parts_of(ledger_of(place), "live"):
        start, end = part.about["window"]
        told = json.loads((place / "out" / span(start, end) / PRICE).read_text())
        identity = ReleaseIdentity.from_json(told["identity"])
        assert identity.part == f"window {start} {end}" and identity == part.identity
        assert identity.digest.hex() == told["identity_digest"]
        assert told["event"]["event"]["num_reports"] == part.about["num_reports"]


def test_a_window_that_was_open_sends_the_same_reports(place, tmp_path_factory):
    """Lost before it was released, and started again: as if it had never been lost."""
    a_start(place, 0)
    a_start(place, 0, rows(0, 100, 10), 61)
    (lost,) = (place / "out").glob(f"*/{TABLE}")
    other = tmp_path_factory.mktemp("other")
    for name in ("key", "log key"):
        shutil.copy(place / name, other / name)
    ledger = BudgetLedger.create(f"sqlite:///{other / 'ledger.db'}")
    ledger.set_budget("people", epsilon=100, delta=1e-6, local_epsilon=100)
    a_start(other, 0, rows(0, 100, 10), 61)
    (whole,) = (other / "out").glob(f"*/{TABLE}")
    assert lost.read_bytes() == whole.read_bytes()


def test_another_question_does_not_go_on(place):
    a_start(place, 0, rows(0, 100, 10), 61)
    with pytest.raises(LedgerError, match="its release differs in its columns"):
        a_start(place, 0, rows(0, 100, 10), 61, question="shape")
    assert [part.status for part in parts_of(ledger_of(place), "live")] == ["settled"]
