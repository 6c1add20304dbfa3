"""The audit finds every edit, deletion, reordering, truncation and rewrite, and every overspend."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent, event_epsilon
from beam_ldp.ledger import BudgetLedger, PeopleKey, record_people
from beam_ldp.ledger.auditing import AuditReport, audit
from beam_ldp.ledger.losses import event_digest
from beam_ldp.ledger.rows import (
    Anchor,
    ChainHead,
    Row,
    canonical,
    load_private,
    load_public,
    next_row,
)
from beam_ldp.ledger.sinks import FileAnchors
from tests.ledger.asked import asked
from tests.ledger.conftest import Clock
from tests.ledger.keys import make_key, private_bytes, public_bytes

pytestmark = pytest.mark.exact

PURE = LocalRandomizerDpEvent(0.25)
SHUFFLED = ShuffledDpEvent(LocalRandomizerDpEvent(1.0), 10_000)
PRICE = float(event_epsilon(SHUFFLED, 1e-6))


@pytest.fixture
def lived(ledger: BudgetLedger) -> BudgetLedger:
    """A ledger with every kind of row."""
    ledger.set_budget("visits", epsilon=1.0, delta=1e-6, local_epsilon=3.0, by="Ada", why="start")
    ledger.reserve("visits", "first", SHUFFLED, identity=asked("visits", "first"))
    told = {"epsilon": PRICE, "delta": 1e-6}
    ledger.settle("first", SHUFFLED, identity=asked("visits", "first"), about=told)
    ledger.reserve("visits", "second", PURE, identity=asked("visits", "second"))
    ledger.abandon("second", randomized=True, why="the cluster went away")
    ledger.reserve("visits", "third", PURE, identity=asked("visits", "third"))
    return ledger


@pytest.fixture
def rows(lived: BudgetLedger) -> list[Row]:
    return lived.rows()


@pytest.fixture
def anchor(lived: BudgetLedger) -> Anchor:
    state = lived.state
    return Anchor(state.ledger_id, state.head.count, state.head.hash, "2026-01-01T00:00:00+00:00")


def outcome(report: AuditReport, part: str) -> str:
    (found,) = [check.outcome for check in report.checks if part in check.name]
    return found


def test_a_sound_ledger_is_clean(rows: list[Row], anchor: Anchor) -> None:
    report = audit(rows, [anchor])
    assert (report.clean, report.exit_code, report.num_rows) == (True, 0, 8)
    assert report.prices == {"first": PRICE}
    assert {check.outcome for check in report.checks} == {"passed", "no evidence"}
    assert outcome(report, "tracking server") == "no evidence"


def test_the_curve_ends_where_the_ledger_stands(lived: BudgetLedger, rows: list[Row]) -> None:
    report = audit(rows)
    last = report.curves["visits"][-1]
    status = lived.status("visits")
    assert (last.committed, last.local) == (status.committed, status.local_committed)
    assert (last.local, last.budget) == (1.5, 1.0)


def test_without_an_anchor_there_is_no_evidence_against_the_operator(rows: list[Row]) -> None:
    report = audit(rows)
    (check,) = [c for c in report.checks if "anchored" in c.name]
    assert check.outcome == "no evidence"
    assert "no evidence against an operator" in check.findings[0]


# Every change ---------------------------------------------------------------------------------


def changes(value: Any) -> Iterator[Any]:
    """Every value that differs from this JSON value in one leaf, or lacks one entry."""
    if isinstance(value, dict):
        for key, inner in value.items():
            for changed in changes(inner):
                yield {**value, key: changed}
            yield {k: v for k, v in value.items() if k != key}
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            for changed in changes(inner):
                yield [*value[:i], changed, *value[i + 1 :]]
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield value + 1
        yield value / 2
    elif isinstance(value, str):
        yield value + "x"
    else:
        yield 0


def test_every_single_field_of_every_row(rows: list[Row]) -> None:
    tried = 0
    for i, row in enumerate(rows):
        mutants = [
            replace(row, text=canonical(body).decode())
            for body in changes(row.body)
            if body != row.body
        ]
        mutants += [
            replace(row, number=row.number + 1),
            replace(row, kind="settle" if row.kind == "reserve" else "reserve"),
            replace(row, previous="f" * 64),
            replace(row, hash=row.hash[:-1] + ("0" if row.hash[-1] != "0" else "1")),
        ]
        for mutant in mutants:
            tried += 1
            assert not audit([*rows[:i], mutant, *rows[i + 1 :]]).clean, mutant
    assert tried > 80


def test_every_single_field_of_counts_and_acceptances(lived: BudgetLedger, tmp_path: Path) -> None:
    """The two kinds of rows that the ledger above has not."""
    record_people(str(tmp_path / "people"), PeopleKey(bytes(32), "visits"), "second", [1, 2])
    lived.reserve("visits", "fourth", PURE, identity=asked("visits", "fourth"))
    record_people(str(tmp_path / "people"), PeopleKey(bytes(32), "visits"), "fourth", [2, 3])
    lived.settle("fourth", PURE, identity=asked("visits", "fourth"), about={"num_reports": 2})
    lived.count_people("visits", str(tmp_path / "people"))
    lived.accept(2, make_key(), why="the board agreed", by="Ada")
    rows = lived.rows()
    assert [row.kind for row in rows[-2:]] == ["people", "accept"] and audit(rows).clean
    for row in rows[-2:]:
        for body in (body for body in changes(row.body) if body != row.body):
            forged = [
                *rows[: row.number],
                replace(row, text=canonical(body).decode()),
                *rows[row.number + 1 :],
            ]
            assert not audit(forged).clean, body


def test_every_deletion_and_every_swap(rows: list[Row]) -> None:
    for i in range(len(rows) - 1):
        assert not audit([*rows[:i], *rows[i + 1 :]]).clean
        swapped = [*rows]
        swapped[i], swapped[i + 1] = rows[i + 1], rows[i]
        assert not audit(swapped).clean


def test_every_truncation_against_an_anchor(rows: list[Row], anchor: Anchor) -> None:
    for kept in range(len(rows)):
        report = audit(rows[:kept], [anchor])
        assert outcome(report, "anchored") == "failed"
        assert report.exit_code == 1


def rewritten(rows: list[Row]) -> list[Row]:
    """All of the ledger anew, with another name for the first run: hashes all fit."""
    head, new = ChainHead(), []
    for row in rows:
        body = copy.deepcopy(row.body)
        if body.get("run_id") == "first":
            body["run_id"] = "1st"
        new.append(next_row(head, row.kind, body))
        head = new[-1].head
    return new


def test_a_complete_rewrite_against_an_anchor(rows: list[Row], anchor: Anchor) -> None:
    forged = rewritten(rows)
    assert audit(forged).clean  # a chain alone cannot show it
    assert outcome(audit(forged, [anchor]), "anchored") == "failed"


def test_an_old_anchor_still_holds_after_more_rows(lived: BudgetLedger, anchor: Anchor) -> None:
    lived.settle("third", PURE, identity=asked("visits", "third"))
    assert outcome(audit(lived.rows(), [anchor]), "anchored") == "passed"


def test_an_anchor_of_another_ledger_is_a_fault(
    rows: list[Row], tmp_path: Path, clock: Clock
) -> None:
    other = BudgetLedger.create(f"sqlite:///{tmp_path / 'other.db'}", clock=clock).state
    anchor = Anchor(other.ledger_id, other.head.count, other.head.hash, "")
    assert outcome(audit(rows, [anchor]), "anchored") == "failed"


# Signatures -------------------------------------------------------------------------------------


def test_an_audit_says_how_much_is_anchored(lived: BudgetLedger, anchor: Anchor) -> None:
    lived.settle("third", PURE, identity=asked("visits", "third"))
    report = audit(lived.rows(), [replace(anchor, count=6, hash=lived.rows()[5].hash), anchor])
    assert str(report.coverage) == (
        "covers 8 of 9 rows, last anchored at 2026-01-01T00:00:00+00:00"
    )
    (check,) = [c for c in report.checks if "anchored" in c.name]
    assert (check.outcome, check.findings) == ("passed", (str(report.coverage),))


def test_empty_and_stale_anchors_are_no_evidence_and_a_fault(
    lived: BudgetLedger, anchor: Anchor
) -> None:
    rows = lived.rows()
    for anchors, lag, why in (
        ([], 64, "holds no anchor"),
        ([replace(anchor, count=0, hash="0" * 64)], 64, "covers nothing"),
        ([replace(anchor, count=1, hash=rows[0].hash)], 64, "covers 1 of 8 rows.*and no charge"),
        ([replace(anchor, count=5, hash=rows[4].hash)], 2, "covers 5 of 8 rows.*at most 2"),
    ):
        report = audit(rows, anchors, anchor_lag=lag)
        (check,) = [c for c in report.checks if "anchored" in c.name]
        assert check.outcome == "failed" and not report.clean
        assert re.search(why, " ".join(check.findings)), check.findings
    assert audit(rows, [replace(anchor, count=5, hash=rows[4].hash)], anchor_lag=3).clean


def test_signed_anchors(rows: list[Row], anchor: Anchor) -> None:
    key = make_key()
    public = load_public(public_bytes(key))
    signed = anchor.sign(load_private(private_bytes(key)))
    assert signed.is_signed_by(public)
    assert outcome(audit(rows, [signed], public_key=public), "anchored") == "passed"
    for forged in (
        anchor,
        replace(signed, count=3),
        replace(signed, time="2027"),
        replace(signed, signature="not hex"),
        anchor.sign(make_key()),
    ):
        assert not forged.is_signed_by(public)
        assert outcome(audit(rows, [forged], public_key=public), "anchored") == "failed"


def test_anchors_in_a_file(tmp_path: Path, anchor: Anchor) -> None:
    path = tmp_path / "anchors.jsonl"
    signed = anchor.sign(make_key())
    FileAnchors(path).put(anchor)
    FileAnchors(path).put(signed)
    assert FileAnchors(path).all() == [anchor, signed]
    path.write_text('{"count": 1}\n')
    with pytest.raises(ValueError, match="line 1"):
        FileAnchors(path).all()


@pytest.mark.parametrize("load", [load_private, load_public])
def test_what_is_no_key(load: Any) -> None:
    with pytest.raises(ValueError, match="key must be") as caught:
        load(b"-----BEGIN SECRET-----\nvery private\n")
    assert "very private" not in str(caught.value)


# What the rows themselves admit ---------------------------------------------------------------


def test_a_ledger_that_was_overspent_by_other_software(rows: list[Row]) -> None:
    """Rows that hash well and say that the budget was ignored."""
    head, forged = rows[-1].head, [*rows]
    for i in range(8):
        body = {**rows[3].body, **rows[-1].body, "run_id": f"ignored {i}"}
        forged.append(next_row(head, "reserve", body))
        head = forged[-1].head
    report = audit(forged)
    assert outcome(report, "ever exceeded") == "failed"
    (check,) = [c for c in report.checks if "ever exceeded" in c.name]
    assert any("local epsilons" in finding for finding in check.findings)


def test_rows_that_do_not_follow(rows: list[Row]) -> None:
    twice = next_row(rows[-1].head, "settle", rows[3].body)
    report = audit([*rows, twice])
    assert outcome(report, "follows from") == "failed"


def test_a_budget_that_was_raised_after_the_fact(lived: BudgetLedger) -> None:
    lived.set_budget("visits", epsilon=5.0, delta=1e-6, local_epsilon=3.0, by="Bob", why="more")
    report = audit(lived.rows())
    (check,) = [c for c in report.checks if "raised" in c.name]
    assert check.outcome == "failed"
    assert "Bob" in check.findings[0] and "more" in check.findings[0]


def test_a_budget_that_was_lowered_is_no_fault(lived: BudgetLedger) -> None:
    lived.set_budget("visits", epsilon=0.9, delta=1e-6, local_epsilon=3.0)
    assert outcome(audit(lived.rows()), "raised") == "passed"


def test_more_released_than_reserved(lived: BudgetLedger) -> None:
    lived.settle("third", LocalRandomizerDpEvent(0.3), identity=asked("visits", "third"))
    assert outcome(audit(lived.rows()), "released more") == "failed"


def test_a_price_that_was_printed_too_small(ledger: BudgetLedger) -> None:
    ledger.set_budget("visits", epsilon=1.0, delta=1e-6)
    ledger.reserve("visits", "run", SHUFFLED, identity=asked("visits", "run"))
    ledger.settle(
        "run",
        SHUFFLED,
        identity=asked("visits", "run"),
        about={"epsilon": PRICE * 0.9, "delta": 1e-6},
    )
    assert outcome(audit(ledger.rows()), "printed") == "failed"


# The tracking server ---------------------------------------------------------------------------


def test_what_a_tracking_server_shows(lived: BudgetLedger, rows: list[Row]) -> None:
    charge = lived.state.charge("first")
    shown = {
        "epsilon": PRICE,
        "delta": 1e-6,
        "local_epsilon": 1.0,
        "event_sha256": event_digest(charge.settled),
    }
    assert outcome(audit(rows, tracked={"first": [shown]}), "tracking server") == "passed"
    for tracked in (
        {},
        {"first": [{**shown, "epsilon": 0.01}]},
        {"first": [shown, {**shown, "local_epsilon": 0.5}]},
        {"first": [{**shown, "event_sha256": "0" * 64}]},
        {"first": [shown], "unknown": [shown]},
    ):
        assert outcome(audit(rows, tracked=tracked), "tracking server") == "failed"
