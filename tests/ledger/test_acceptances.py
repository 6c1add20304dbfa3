"""An auditor can accept a raise; nobody else can."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import (
    Acceptance,
    Anchor,
    BudgetLedger,
    Check,
    LedgerError,
    Row,
    audit,
)
from beam_ldp.ledger.rows import next_row
from beam_ldp.pipelines.cli import group
from tests.ledger.asked import asked
from tests.ledger.keys import make_key, private_bytes, public_bytes

pytestmark = pytest.mark.exact

KEY, OTHER = make_key(), make_key()


@pytest.fixture
def ledger(tmp_path: Path) -> BudgetLedger:
    """A budget that was raised in row 4, after a charge."""
    made = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    made.set_budget("visits", epsilon=1.0, delta=1e-6)
    made.reserve("visits", "run", LocalRandomizerDpEvent(0.5), identity=asked("visits", "run"))
    made.set_budget("visits", epsilon=2.0, delta=1e-6, by="Bob", why="a second question")
    return made


def raised(rows: list[Row], key: Any = KEY) -> Check:
    report = audit(rows, public_key=None if key is None else key.public_key())
    (check,) = [c for c in report.checks if "raised" in c.name]
    return check


def with_row(rows: list[Row], acceptance: Acceptance) -> list[Row]:
    """The ledger with this acceptance in it, however it came about."""
    time = rows[-1].body["time"]
    return [*rows, next_row(rows[-1].head, "accept", {**acceptance.to_json(), "time": time})]


def sound(ledger: BudgetLedger, row: int = 4) -> Acceptance:
    found = ledger.rows()[row]
    return Acceptance(ledger.state.ledger_id, row, found.hash, "Ada", "the board agreed")


def test_an_accepted_raise_is_told_and_is_no_fault(ledger: BudgetLedger) -> None:
    assert raised(ledger.rows()).outcome == "failed"
    ledger.accept(4, KEY, why="the board agreed", by="Ada")
    check = raised(ledger.rows())
    assert check.outcome == "passed"
    assert "Bob" in check.findings[0] and "Accepted by the auditor (Ada)" in check.findings[0]
    assert audit(ledger.rows(), public_key=KEY.public_key()).exit_code == 0


def test_without_the_auditors_public_key_nothing_is_believed(ledger: BudgetLedger) -> None:
    ledger.accept(4, KEY, why="the board agreed", by="Ada")
    check = raised(ledger.rows(), None)
    assert check.outcome == "failed"
    assert "public key would show" in check.findings[0]


@pytest.mark.parametrize(
    "forge",
    [
        lambda a: a,  # unsigned
        lambda a: a.sign(OTHER),
        lambda a: replace(a.sign(KEY), why="another reason"),
        lambda a: replace(a.sign(KEY), by="Eve"),
        lambda a: replace(a.sign(KEY), signature=a.sign(KEY).signature[:-2]),
        lambda a: replace(a.sign(KEY), signature="not hexadecimal"),
        lambda a: replace(a, hash="0" * 64).sign(KEY),
        lambda a: replace(a, ledger_id="0" * 32).sign(KEY),
        lambda a: replace(replace(a, row=2).sign(KEY), row=4),
        # The auditor's signature of something else: an anchor of the same words.
        lambda a: replace(
            a, signature=Anchor(a.ledger_id, a.row, a.hash, a.why).sign(KEY).signature or ""
        ),
    ],
)
def test_forged_acceptances(ledger: BudgetLedger, forge: Any) -> None:
    """Whoever writes the database can write any row, and none silences the finding."""
    rows = with_row(ledger.rows(), forge(sound(ledger)))
    report = audit(rows, public_key=KEY.public_key())
    assert [c.outcome for c in report.checks[:2]] == ["passed", "passed"]  # the rows are chained
    assert raised(rows).outcome == "failed"
    assert report.exit_code == 1


def test_the_forgeries_differ_from_a_sound_one_alone(ledger: BudgetLedger) -> None:
    assert raised(with_row(ledger.rows(), sound(ledger).sign(KEY))).outcome == "passed"


def test_a_forgery_does_not_spoil_a_sound_one(ledger: BudgetLedger) -> None:
    rows = with_row(ledger.rows(), sound(ledger))
    assert raised(with_row(rows, sound(ledger).sign(KEY))).outcome == "passed"


def test_an_acceptance_covers_one_raise(ledger: BudgetLedger) -> None:
    ledger.accept(4, KEY, why="the board agreed")
    ledger.set_budget("visits", epsilon=3.0, delta=1e-6)
    check = raised(ledger.rows())
    assert check.outcome == "failed" and len(check.findings) == 2
    assert "Accepted" not in check.findings[0] and "Accepted" in check.findings[1]


def test_an_accepted_row_that_is_written_anew(ledger: BudgetLedger) -> None:
    """The raise is made larger, with all hashes set right and the acceptance kept."""
    ledger.accept(4, KEY, why="the board agreed")
    rows = ledger.rows()
    forged = rows[:4]
    for row in rows[4:]:
        body = {**row.body, **({"epsilon": 50.0} if row.number == 4 else {})}
        forged.append(next_row(forged[-1].head, row.kind, body))
    assert raised(rows).outcome == "passed"
    assert raised(forged).outcome == "failed"


def test_what_cannot_be_accepted(ledger: BudgetLedger) -> None:
    for row in (0, 1, 3, 5, -1):
        with pytest.raises(LedgerError, match="neither a budget"):
            ledger.accept(row, KEY, why="x")
    with pytest.raises(ValueError, match="why"):
        ledger.accept(4, KEY, why="\x1b[2J")


@pytest.mark.parametrize("told", [{"row": "4"}, {"hash": None}, {"why": 3}, {"signature": None}])
def test_rows_that_are_no_acceptance(ledger: BudgetLedger, told: dict[str, Any]) -> None:
    body = {**sound(ledger).to_json(), **told, "time": ledger.state.time}
    rows = ledger.rows()
    assert not audit([*rows, next_row(rows[-1].head, "accept", body)]).clean


def test_a_tracking_servers_heads_need_no_signature(ledger: BudgetLedger) -> None:
    head = ledger.state.head
    anchor = Anchor(ledger.state.ledger_id, head.count, head.hash, "")

    def anchored(**how: Any) -> str:
        report = audit(ledger.rows(), public_key=KEY.public_key(), **how)
        (check,) = [c for c in report.checks if "anchored" in c.name]
        return check.outcome

    assert anchored(elsewhere=[anchor]) == "passed"
    assert anchored(anchors=[anchor]) == "failed"
    assert anchored(anchors=[anchor.sign(KEY)]) == "passed"
    assert anchored(elsewhere=[replace(anchor, count=99)]) == "failed"


def test_on_the_command_line(ledger: BudgetLedger, tmp_path: Path) -> None:
    (tmp_path / "auditor.pem").write_bytes(private_bytes(KEY))
    (tmp_path / "auditor.pub.pem").write_bytes(public_bytes(KEY))
    (tmp_path / "eve.pem").write_bytes(private_bytes(OTHER))

    def command(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(group, [*arguments, "--ledger", ledger.url])
        return done.exit_code, " ".join(done.output.split())

    def accept(key: str, row: int = 4) -> tuple[int, str]:
        return command("budget", "accept", str(row), "--sign-with", f"{tmp_path}/{key}",
                       "--why", "the board agreed", "--by", "Ada")  # fmt: skip

    checked = ("audit", "--public-key", f"{tmp_path}/auditor.pub.pem")
    assert command(*checked)[0] == 1
    assert accept("eve.pem")[0] == 0
    code, said = command(*checked)
    assert code == 1 and "not signed with the auditor's key" in said
    assert accept("auditor.pem") == (0, "row 4 is accepted")
    code, said = command(*checked, "--html", f"{tmp_path}/report.html")
    assert code == 0 and "Accepted by the auditor (Ada)" in said
    assert "Accepted by the auditor (Ada)" in (tmp_path / "report.html").read_text()
    assert command("audit")[0] == 1
    assert accept("auditor.pem", 3)[0] == 2
    assert accept("auditor.pub.pem")[0] == 2 and accept("none.pem")[0] == 2


def test_the_curve_shows_what_was_granted_when(ledger: BudgetLedger) -> None:
    curve = audit(ledger.rows()).curves["visits"]
    assert [(point.number, point.budget) for point in curve] == [(3, 1.0), (4, 2.0)]
    assert [point.committed for point in curve] == pytest.approx([0.5, 0.5])
