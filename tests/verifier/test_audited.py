"""`audit` runs the verifier on every row that has a certificate; every release is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dp_accounting
import pytest

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
from beam_ldp.ledger import BudgetLedger, Check, audit
from tests.ledger.asked import asked
from tests.verifier.statements import bounded_length, statement

pytestmark = pytest.mark.exact

EVENT = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 10_000)


def _certified(path: Path, event: Any, about: dict[str, Any]) -> Check:
    """What the audit says of the certificates of a ledger with one release."""
    ledger = BudgetLedger.create(f"sqlite:///{path / 'p.db'}")
    ledger.set_budget("visits", epsilon=30.0, delta=1e-5)
    ledger.reserve("visits", "run", event, identity=asked("visits", "run"))
    ledger.settle("run", event, identity=asked("visits", "run"), about=about)
    (found,) = [check for check in audit(ledger.rows()).checks if "certificate" in check.name]
    return found


def _about(event: Any, run: str = "run", **changed: Any) -> dict[str, Any]:
    told = statement(event, 1e-6, asked("visits", run).digest.hex())
    return {name: told[name] for name in ("epsilon", "delta", "certificate")} | changed


def test_a_release_is_confirmed(tmp_path: Path) -> None:
    found = _certified(tmp_path, EVENT, _about(EVENT))
    assert found.outcome == "passed"
    said, total = found.findings
    assert said.startswith("run 'run': confirmed at epsilon 0.155")
    assert total.startswith("population 'visits': 1 of 1 releases are confirmed, together at eps")


def test_what_is_confirmed_is_added_up(tmp_path: Path) -> None:
    """Of each run once, whatever its certificate; what has none is counted, and not added."""
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path / 'p.db'}")
    ledger.set_budget("visits", epsilon=30.0, delta=1e-5)
    rounds = dp_accounting.SelfComposedDpEvent(LocalRandomizerDpEvent(2.0).shuffled(10**6), 100)
    events = {"one": EVENT, "again": EVENT, "rounds": rounds, "long": bounded_length()}
    for run, event in events.items():
        identity, about = asked("visits", run), _about(event, run)
        attempt = ledger.reserve("visits", run, event, identity=identity).attempt
        for _ in range(2):  # settled again, which changes nothing
            ledger.settle(run, event, identity=identity, attempt=attempt, about=about)
    (found,) = [c for c in audit(ledger.rows()).checks if "certificate" in c.name]
    assert found.outcome == "passed" and len(found.findings) == 5
    epsilon = 2 * _about(EVENT)["epsilon"] + _about(rounds)["epsilon"]
    assert found.findings[-1] == (
        "population 'visits': 3 of 4 releases are confirmed, together at epsilon "
        f"{epsilon:.6g} delta 3e-06 by adding up"
    )


def test_a_release_without_one_is_said_to_have_none(tmp_path: Path) -> None:
    event = bounded_length()
    found = _certified(tmp_path, event, _about(event))
    assert found.outcome == "passed"
    assert "not independently checkable: its bound rests on how long" in found.findings[0]
    (tmp_path / "p.db").unlink()
    assert _certified(tmp_path, EVENT, {}).outcome == "no evidence"


@pytest.mark.parametrize(
    ("about", "why"),
    [
        (_about(EVENT, epsilon=0.1), "another epsilon"),
        (_about(ShuffledDpEvent(EVENT.local_event, 11_000)), "delta is 2.12"),
        (_about(EVENT, run="another"), "another identity"),
    ],
)
def test_a_certificate_is_bound_to_its_row(tmp_path: Path, about: dict[str, Any], why: str) -> None:
    found = _certified(tmp_path, EVENT, about)
    assert found.outcome == "failed"
    assert why in found.findings[0]
