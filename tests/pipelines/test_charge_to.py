"""`--budget-windows`: a Beam program on unbounded data stops when its windows are used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import BytesCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_ldp.ledger import BudgetExceededError, BudgetLedger
from beam_ldp.pipelines.frequency import main
from beam_ldp.pipelines.programs import MISUSED
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.release.reserving import charge_to
from beam_ldp.settings import People, SettingError
from beam_ldp.transforms import PrivateFrequencies

ANSWERS = Domain(("yes", "no"))
ORACLE = KRandomizedResponse(ANSWERS.size, local_epsilon=1.0)
PEOPLE = 20
_KEPT: list[Any] = []


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("BEAM_LDP_LEDGER", raising=False)
    found = f"sqlite:///{tmp_path / 'privacy.db'}"
    made = BudgetLedger.create(found)
    made.set_budget("visits", epsilon=10.0, delta=1e-6, local_epsilon=2.0)
    return found


def _keep(element: Any) -> None:
    _KEPT.append(element)


def program(flags: list[str], num_windows: int) -> list[Any]:
    """A Beam program with the flags of the programs here, on data that never end; its releases.

    The same people answer in every window.
    """
    _KEPT.clear()
    runner = "apache_beam.runners.direct.direct_runner.BundleBasedDirectRunner"
    options = PipelineOptions([f"--runner={runner}", *flags], streaming=True)
    source = TestStream(coder=BytesCoder())
    for window in range(num_windows):
        arriving = [
            TimestampedValue(f"{person};yes".encode(), 60 * window + 1) for person in range(PEOPLE)
        ]
        source = source.add_elements(arriving).advance_watermark_to(60 * (window + 1) + 1)
    asked = PrivateFrequencies(
        ORACLE,
        domain=ANSWERS,
        column="answer",
        people=People(id="uid"),
        min_reports=PEOPLE - 2,
        budget=charge_to(options),
    )
    with beam.Pipeline(options=options) as pipeline:
        releases = (
            pipeline
            | source.advance_watermark_to_infinity()
            | beam.Map(lambda line: dict(zip(("uid", "answer"), line.decode().split(";"))))
            | beam.WindowInto(FixedWindows(60))
            | asked
        )
        releases | beam.Map(_keep)
    return list(_KEPT)


@pytest.mark.pipeline
def test_an_unbounded_job_stops_when_its_windows_are_used(url: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(bytes(32))
    flags = [f"--ledger={url}", "--dataset=visits", "--budget-windows=2", "--run-id=days",
             f"--people-store={tmp_path}/people", f"--people-key-file={tmp_path}/key"]  # fmt: skip
    releases = program(flags, num_windows=4)
    assert len(releases) == 2 and {r.num_reports for r in releases} == {PEOPLE}
    ledger = BudgetLedger(url)
    charges = ledger.state.population_of("visits").charges_of(0)
    ended = [charge.status for charge in charges if charge.identity.part]
    assert ended == ["settled"] * 2
    assert ledger.status("visits").local_committed == 2.0
    counted = ledger.count_people("visits", f"{tmp_path}/people")
    assert counted.distribution == ((2.0, PEOPLE),), counted.left_out
    with pytest.raises(BudgetExceededError, match="local epsilons"):  # all is spent
        program([f"--ledger={url}", "--dataset=visits", "--budget_windows=1"], num_windows=1)


@pytest.mark.exact
def test_unbounded_data_need_a_number_of_windows(url: str) -> None:
    with pytest.raises(ValueError, match="windows="):
        program([f"--ledger={url}", "--dataset=visits"], num_windows=1)
    assert BudgetLedger(url).status("visits").charges == ()


@pytest.mark.exact
def test_flags_become_a_budget(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ["--dataset=visits", "--honest-fraction=0.5", "--privacy-unit=device"]
    with pytest.raises(SettingError, match="--ledger is missing"):
        charge_to(PipelineOptions(flags))
    monkeypatch.setenv("BEAM_LDP_LEDGER", url)
    found = charge_to(PipelineOptions(flags))
    assert found is not None and found.url is None and found.windows is None
    assert (found.dataset, found.honest_fraction, found.privacy_unit) == ("visits", 0.5, "device")
    assert charge_to(PipelineOptions([*flags, "--no-ledger"])) is None
    with pytest.raises(SettingError, match="--dataset"):
        charge_to(PipelineOptions([]))
    with pytest.raises(SettingError, match="windows must"):
        charge_to(PipelineOptions([*flags, "--budget-windows=0"]))
    with pytest.raises(SettingError, match="belong together"):
        charge_to(PipelineOptions([*flags, "--people-store=x"]))


@pytest.mark.exact
def test_programs_that_end_release_once(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("people", "domain"):
        (tmp_path / f"{name}.txt").write_text("yes\nno\n")
    flags = [f"--input={tmp_path}/people.txt", f"--domain={tmp_path}/domain.txt",
             f"--output={tmp_path}/out", "--local-epsilon=1", "--delta=1e-6", "--min-reports=1",
             "--dry-run", f"--ledger={url}", "--dataset=visits",
             "--one-row-per-person"]  # fmt: skip
    assert main([*flags, "--budget-windows=2"]) == MISUSED
    assert "releases once" in " ".join(capsys.readouterr().err.split())
    assert main([*flags, "--budget-windows=1"]) == 0


@pytest.mark.exact
@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        (bytes(32), 0o644, "--memoize-key-file must be readable by its owner alone: chmod 600"),
        (b"short", 0o600, "--memoize-key-file must hold at least 32 secret bytes"),
        (None, 0o600, "--memoize-key-file must be readable on every worker"),
    ],
)
def test_a_key_that_cannot_be_used_says_why_and_nothing_is_charged(
    tmp_path: Path,
    url: str,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    mode: int,
    message: str,
) -> None:
    (tmp_path / "people.csv").write_text("uid,answer\n1,yes\n2,no\n")
    (tmp_path / "domain.txt").write_text("yes\nno\n")
    if content is not None:
        (tmp_path / "key").write_bytes(content)
        (tmp_path / "key").chmod(mode)
    flags = [f"--input={tmp_path}/people.csv", f"--domain={tmp_path}/domain.txt", "--column=answer",
             "--user-id=uid", f"--output={tmp_path}/out", "--local-epsilon=1", "--delta=1e-6",
             "--min-reports=1", f"--ledger={url}", "--dataset=visits", "--release-id=monday",
             f"--memoize-key-file={tmp_path}/key"]  # fmt: skip
    assert main(flags) == MISUSED
    said = " ".join(capsys.readouterr().err.split())
    assert message in said and "short" not in said
    assert not (tmp_path / "out").exists()
    assert BudgetLedger(url).status("visits").local_spent == 0
