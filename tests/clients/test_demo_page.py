"""The demo page in a real browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import collect
from beam_ldp.pipelines.programs import DONE
from beam_ldp.randomizers import frequency  # noqa: F401  makes the oracles known
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.identity import ONE_ROW_DECLARED, ROW
from beam_ldp.randomizers.wire import ReleaseTerms, decode_envelope, encode_envelope

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients" / "demo.html"


def embedded(name: str) -> Any:
    found = re.search(rf'id="{name}">(.*?)</script>', PAGE.read_text("utf-8"), re.DOTALL)
    assert found
    return json.loads(found[1])


def page_after(answer: str, folder: Path) -> str:
    """The page as the browser shows it after an answer was picked."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    assert browser, "this test needs Chromium (`make tools`)"
    address = f"{PAGE.as_uri()}#{quote(answer)}"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"]
    command = [browser, *flags, f"--user-data-dir={folder}", "--dump-dom", address]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.mark.exact
def test_terms_of_the_page():
    terms = ReleaseTerms.from_json(embedded("release"))
    assert terms.identity.values == Domain(tuple(embedded("values"))).digest.hex()
    assert terms.identity.bounding == ONE_ROW_DECLARED  # of whoever holds the device


@pytest.mark.exact
@pytest.mark.parametrize("bounded", [True, False])
def test_reports_of_the_page_are_charged_to_a_budget_of_people(tmp_path, bounded, capsys):
    terms = ReleaseTerms.from_json(embedded("release"))
    told = embedded("release")
    if not bounded:
        terms = replace(terms, identity=replace(terms.identity, bounding=ROW))
        told |= {
            "identity": terms.identity.to_json(),
            "identity_digest": terms.identity.digest.hex(),
        }
    values = embedded("values")
    (tmp_path / "release.json").write_text(json.dumps(told))
    (tmp_path / "values.txt").write_text("\n".join(values) + "\n")
    (tmp_path / "reports").write_bytes(encode_envelope(terms, terms.randomizer.randomize([1])))
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path}/privacy.db")
    ledger.set_budget("breakfasts", epsilon=9.0, delta=1e-6, local_epsilon=9.0)
    code = collect.main(
        [f"--reports={tmp_path}/reports", f"--release={tmp_path}/release.json", "--dry-run",
         f"--domain={tmp_path}/values.txt", "--delta=1e-8", "--min-reports=100",
         f"--output={tmp_path}/out", f"--ledger={ledger.url}", "--no-mlflow"]
    )  # fmt: skip
    assert (code == DONE) == bounded, capsys.readouterr().err


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("answer", ["most days", "never"])
def test_what_would_leave_is_an_envelope_of_the_report_shown(answer, tmp_path):
    """Needs a browser, which `make test` must not: hence slow."""
    shown = page_after(answer, tmp_path)
    assert f'aria-pressed="true">{answer}<' in shown

    def text(name: str) -> str:
        found = re.search(rf'id="{name}"[^>]*>(.*?)</(?:strong|span|p)>', shown)
        assert found, name
        return html.unescape(found[1])

    terms = ReleaseTerms.from_json(embedded("release"))
    assert text("picked") == answer and text("problem") == ""
    part = re.search(r'<p class="bytes" id="bytes">(.*?)</p>', shown)
    assert part
    envelope = bytes.fromhex(re.sub(r"<[^>]*>", "", part[1]))
    assert len(envelope) == int(text("length")) == terms.envelope_bytes(1)
    (report,) = decode_envelope(terms, envelope).reports
    assert Domain(tuple(embedded("values"))).decode([report]) == [text("said")]
    channel: Any = terms.randomizer.channel()
    shares = [float(found) for found in re.findall(r"([\d.]+) %</td>", shown)]
    assert shares == [round(100 * p, 1) for p in channel[report]]
