"""`beam-ldp audit`: exit codes, anchors, a page that no name can break."""

from __future__ import annotations

import json
import re
import sqlite3
from base64 import b64decode
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import BudgetLedger
from beam_ldp.ledger import audit as check
from beam_ldp.ledger.sinks import FileAnchors
from beam_ldp.pipelines.cli import group
from beam_ldp.release.audit_page import epsilon_curve, local_curve
from tests.ledger.asked import asked
from tests.ledger.keys import make_key, private_bytes, public_bytes

pytestmark = pytest.mark.e2e

PURE = LocalRandomizerDpEvent(0.25)
HOSTILE = "</td><script>alert(1)</script>\"'><img src=x onerror=alert(1)> {0} %s 名"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "privacy.db"


@pytest.fixture
def url(file: Path) -> str:
    return f"sqlite:///{file}"


@pytest.fixture
def ledger(url: str) -> BudgetLedger:
    """One run that was settled, and one that is open."""
    made = BudgetLedger.create(url)
    made.set_budget("visits", epsilon=1.0, delta=1e-6, local_epsilon=3.0, by="Ada", why="2026")
    made.reserve("visits", "first", PURE, identity=asked("visits", "first"))
    made.settle(
        "first",
        PURE,
        identity=asked("visits", "first"),
        about={"epsilon": 0.25, "delta": 1e-6, "question": "answers"},
    )
    made.reserve("visits", "second", PURE, identity=asked("visits", "second"))
    return made


def audit(url: str, *more: str) -> Result:
    return CliRunner().invoke(group, ["audit", "--ledger", url, *more])


def outcomes(url: str, *more: str) -> dict[str, str]:
    told = json.loads(audit(url, "--format", "json", *more).output)
    return {check["name"]: check["outcome"] for check in told["checks"]}


def change(file: Path, statement: str) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute(statement)


# Exit codes ---------------------------------------------------------------------------------------


def test_clean(ledger: BudgetLedger, url: str) -> None:
    found = audit(url)
    assert found.exit_code == 0
    assert "The ledger is clean" in found.output
    assert "no evidence against an operator" in " ".join(found.output.split())


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE beam_ldp_ledger SET body = replace(body, '0.25', '0.01') WHERE kind = 'settle'",
        "DELETE FROM beam_ldp_ledger WHERE kind = 'settle'",
        "UPDATE beam_ldp_ledger SET body = 'no json' WHERE number = 3",
        "UPDATE beam_ldp_ledger SET body = '{\"time\": NaN}' WHERE number = 3",
        "UPDATE beam_ldp_ledger SET body = '[' || replace(hex(zeroblob(50000)), '00', '[') "
        "WHERE number = 3",
        "UPDATE beam_ldp_ledger SET kind = 'gift' WHERE number = 3",
        "UPDATE beam_ldp_ledger SET hash = 'x' WHERE number = 3",
        "DELETE FROM beam_ldp_ledger WHERE number = 0",
    ],
)
def test_changed(ledger: BudgetLedger, url: str, file: Path, statement: str) -> None:
    change(file, statement)
    found = audit(url)
    assert found.exit_code == 1, found.output
    assert "NOT clean" in found.output
    assert found.exception is None or isinstance(found.exception, SystemExit)


def test_over_budget(ledger: BudgetLedger, url: str) -> None:
    ledger.settle("second", LocalRandomizerDpEvent(2.0), identity=asked("visits", "second"))
    assert audit(url).exit_code == 1


@pytest.mark.parametrize(
    "more",
    [
        ["--anchors", "/no/such/anchors.jsonl"],
        ["--public-key", "/no/such/key.pem"],
        ["--mlflow-uri", "file:///no/such/store"],
        ["--mlflow-uri", "http://127.0.0.1:9"],
        ["--html", "/no/such/folder/report.html"],
        ["--dataset", "visit"],
    ],
)
def test_unreadable(
    ledger: BudgetLedger, url: str, more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    found = audit(url, *more)
    assert found.exit_code == 2, found.output


def test_what_is_no_ledger_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database " * 1000)
    found = audit(f"sqlite:///{tmp_path}/text.db")
    assert found.exit_code == 2 and "not a database" in found.output


# Anchors ------------------------------------------------------------------------------------------


def test_anchors_are_written_signed_and_checked(
    ledger: BudgetLedger, url: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, other = make_key(), make_key()
    (tmp_path / "secret.pem").write_bytes(private_bytes(key))
    (tmp_path / "public.pem").write_bytes(public_bytes(key))
    (tmp_path / "other.pem").write_bytes(public_bytes(other))
    anchors = tmp_path / "anchors.jsonl"
    sign = ["--write-anchor", str(anchors), "--sign-with", str(tmp_path / "secret.pem")]
    assert audit(url, *sign).exit_code == 0
    ledger.settle("second", PURE, identity=asked("visits", "second"))
    assert audit(url, *sign).exit_code == 0
    assert [a.count for a in FileAnchors(anchors).all()] == [6, 7]

    given = ["--anchors", str(anchors), "--public-key", str(tmp_path / "public.pem")]
    anchored = "the rows are those that were anchored elsewhere"
    assert outcomes(url, *given)[anchored] == "passed"
    assert outcomes(url, *given[:2], "--public-key", str(tmp_path / "other.pem"))[anchored] == (
        "failed"
    )
    change(file, "DELETE FROM beam_ldp_ledger WHERE number = 6")  # the tail is cut
    assert audit(url).exit_code == 1  # this user's programs have seen more
    monkeypatch.setenv("BEAM_LDP_ANCHORS", "none")
    assert audit(url).exit_code == 0
    assert audit(url, *given).exit_code == 1
    assert "1 rows are gone" in audit(url, *given).output


def test_an_empty_file_of_anchors_is_a_fault(
    ledger: BudgetLedger, url: str, tmp_path: Path
) -> None:
    (tmp_path / "anchors.jsonl").touch()
    found = audit(url, "--anchors", str(tmp_path / "anchors.jsonl"))
    assert found.exit_code == 1 and "holds no anchor" in found.output


def test_the_places_of_a_sink_can_be_audited(
    ledger: BudgetLedger, url: str, tmp_path: Path
) -> None:
    place = f"file://{tmp_path}/anchors.jsonl"
    assert audit(url, "--write-anchor", str(tmp_path / "anchors.jsonl")).exit_code == 0
    ledger.settle("second", PURE, identity=asked("visits", "second"))
    told = json.loads(audit(url, "--anchors", place, "--format", "json").output)
    assert (told["clean"], told["anchored"]["rows"], told["anchored"]["of"]) == (True, 6, 7)
    found = audit(url, "--anchors", place, "--anchor-lag", "0")
    assert found.exit_code == 1
    assert "covers 6 of 7 rows, last anchored at 20" in " ".join(found.output.split())


def test_no_anchor_is_written_of_a_ledger_with_faults(
    ledger: BudgetLedger, url: str, file: Path, tmp_path: Path
) -> None:
    change(file, "UPDATE beam_ldp_ledger SET hash = 'x' WHERE number = 3")
    assert audit(url, "--write-anchor", str(tmp_path / "anchors.jsonl")).exit_code == 1
    assert not (tmp_path / "anchors.jsonl").exists()


def test_a_key_that_is_none(ledger: BudgetLedger, url: str, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("very private")
    written = ["--write-anchor", str(tmp_path / "anchors.jsonl")]
    found = audit(url, *written, "--sign-with", str(tmp_path / "key.pem"))
    assert found.exit_code == 2 and "very private" not in found.output


# The page -----------------------------------------------------------------------------------------


def test_the_page_tells_everything_and_fetches_nothing(
    ledger: BudgetLedger, url: str, tmp_path: Path
) -> None:
    assert audit(url, "--html", str(tmp_path / "report.html")).exit_code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for part in ("visits", "first", "second", "answers", "Ada", "2026", "How to recompute"):
        assert part in page
    assert not re.search(r"""(src|href)\s*=(?!"data:image)|url\(|@import|https?://""", page)
    for drawing in re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page):
        drawn = b64decode(drawing).decode()
        assert drawn.startswith("<?xml") and "<script" not in drawn and "<image" not in drawn


def test_hostile_names_stay_text(ledger: BudgetLedger, url: str, tmp_path: Path) -> None:
    ledger.set_budget(HOSTILE, epsilon=1.0, delta=1e-6, privacy_unit=HOSTILE, why=HOSTILE)
    about = {"question": HOSTILE, "mechanism": HOSTILE, "num_reports": HOSTILE, "epsilon": HOSTILE}
    ledger.reserve(
        HOSTILE, HOSTILE, PURE, identity=asked(HOSTILE, HOSTILE), privacy_unit=HOSTILE, about=about
    )
    ledger.settle(HOSTILE, PURE, identity=asked(HOSTILE, HOSTILE), about=about)
    assert audit(url, "--html", str(tmp_path / "report.html")).exit_code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page and "onerror" not in re.sub("&lt;img.*?&gt;", "", page)
    assert page.count("<img") == page.count('<img src="data:image/svg+xml;base64,')
    assert page.count("&lt;script&gt;") >= 6
    assert "名" in page


def test_the_page_of_one_population(ledger: BudgetLedger, url: str, tmp_path: Path) -> None:
    ledger.set_budget("others", epsilon=1.0, delta=1e-6)
    audit(url, "--dataset", "visits", "--html", str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "visits" in page and "others" not in page


def test_a_page_of_many_points(ledger: BudgetLedger) -> None:
    points: Any = check(ledger.rows()).curves["visits"] * 3000
    drawn = epsilon_curve(points)
    assert drawn is not None and 1000 < len(drawn.url) < 200_000
    assert epsilon_curve([]) is local_curve([]) is None


def cells(page: str, run_id: str) -> dict[str, str]:
    """The cells of a charge, without tags."""
    (row,) = [r for r in page.split("<tr>") if f">{run_id}<" in r]
    found = re.findall(r'<td data-name="([^"]+)">(.*?)</td>', row)
    return {name: " ".join(re.sub("<[^>]+>", " ", cell).split()) for name, cell in found}


def test_every_charge_says_what_it_cost_and_what_became_of_it(
    ledger: BudgetLedger, url: str, tmp_path: Path
) -> None:
    """A run that was given up burned its local epsilon: it is no empty row."""
    identity = asked("visits", "third", columns=("hiv",), part="window 1 2")
    ledger.reserve("visits", "third", PURE, identity=identity)
    ledger.abandon("third", randomized=True, why="too few came")
    audit(url, "--html", str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    third = cells(page, "third")
    assert third["status"] == "abandoned too few came"
    assert third["local epsilon"] == "0.25 spent: people had randomized"
    assert third["epsilon"] == "0 given back"
    assert third["what was asked"] == "hiv"
    for part in ("visits · release third · window 1 2", identity.digest.hex()[:16]):
        assert part in third["run"]
    assert cells(page, "first")["epsilon"] == "0.25 printed 0.25"
    second = cells(page, "second")
    assert (second["status"], second["local epsilon"]) == ("open", "0.25 at worst")
    assert second["epsilon"] == "0.25 at worst"


def test_the_page_says_whose_report_was_charged_as_one(
    ledger: BudgetLedger, url: str, tmp_path: Path
) -> None:
    """As the run said it, which a settlement does not take away; else the identity's rule."""
    for name, per, settled in (("declared", "row, declared to be a person's", True),
                               ("drawn", HOSTILE, False)):  # fmt: skip
        identity = asked("visits", name)
        ledger.reserve("visits", name, PURE, identity=identity, about={"one_report_per": per})
        if settled:
            ledger.settle(name, PURE, identity=identity, about={"num_reports": 900})
    audit(url, "--html", str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert unescape(cells(page, "declared")["reports"]) == (
        "900 one per row, declared to be a person's"
    )
    assert unescape(cells(page, "drawn")["reports"]) == f"one per {HOSTILE}"
    assert cells(page, "first")["reports"] == "rule: row" and "<script" not in page


def test_the_page_says_how_much_is_anchored(ledger: BudgetLedger, url: str, tmp_path: Path) -> None:
    page, anchors = tmp_path / "report.html", str(tmp_path / "anchors.jsonl")
    audit(url, "--html", str(page), "--write-anchor", anchors)
    assert "No anchors were given" in page.read_text(encoding="utf-8")
    audit(url, "--html", str(page), "--anchors", anchors)
    assert "Anchored elsewhere: covers 6 of 6 rows" in page.read_text(encoding="utf-8")


# A way on -----------------------------------------------------------------------------------------


def test_a_damaged_ledger_has_a_successor(
    ledger: BudgetLedger, url: str, file: Path, tmp_path: Path
) -> None:
    change(file, "UPDATE beam_ldp_ledger SET hash = 'x' WHERE run_id = 'second'")
    new = f"sqlite:///{tmp_path / 'new.db'}"
    told = ["budget", "succeed", "--from", url, "--ledger", new]
    assert CliRunner().invoke(group, told).exit_code == 2  # no reason
    found = CliRunner().invoke(group, [*told, "--why", "the disk", "--by", "Ada"])
    assert found.exit_code == 0, found.output
    assert "whole budget" in " ".join(found.output.split())
    assert audit(new).exit_code == 0
    assert "the disk" in audit(new).output
    again = CliRunner().invoke(group, [*told, "--why", "again"])
    assert again.exit_code == 2 and "already holds a ledger" in again.output


def test_a_sample_is_told(ledger: BudgetLedger, url: str) -> None:
    other = LocalRandomizerDpEvent(0.5)
    ledger.reserve("visits", "third", other, identity=asked("visits", "third"))
    found = audit(url, "--sample", "1")
    assert found.exit_code == 0
    assert "1 of 2 distinct events were recomputed" in " ".join(found.output.split())
