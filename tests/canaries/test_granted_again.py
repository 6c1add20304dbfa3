"""Attackers who are granted something a second time: what leaves proves no more than the charge.

The ledger and the set digest decide what leaves, as they do in programs; what left is attacked as
in `test_several_releases`, on the library as it is and on the decision that once was taken. Each
comparison fails by chance once in a million times (`MISS`).
"""

from __future__ import annotations

from pathlib import Path

import dp_accounting
import numpy as np
import pytest

from beam_ldp.accounting import local_event, shuffle_epsilon
from beam_ldp.ledger import BudgetLedger, Charge, LedgerError
from beam_ldp.randomizers.set_digest import same_set, set_digest, set_records
from tests.canaries.lower_bounds import Views, lower_epsilon
from tests.canaries.test_several_releases import (
    CROWD,
    DELTA,
    LOCAL,
    ORACLE,
    RELEASE,
    fresh,
    memoized,
    proved,
)
from tests.randomizers.forged import forged_id, old_sum

pytestmark = pytest.mark.statistical

ROUNDS, SET_BACK = 12, 3


@pytest.fixture
def ledger(tmp_path: Path) -> BudgetLedger:
    made = BudgetLedger.create(f"sqlite:///{tmp_path}/privacy.db")
    made.set_budget("people", epsilon=100.0, delta=1e-6, local_epsilon=100.0)
    return made


def fresh_reports(count: int) -> float:
    """What so many reports with noise of their own prove of one person's value."""

    def ones(value: int) -> Views:
        return np.sum([fresh(seed=seed + 1)(value) for seed in range(count)], axis=0)

    return lower_epsilon(ones(1), ones(0))


# One graph, run twice ---------------------------------------------------------------------------


def test_of_a_graph_that_runs_twice_one_report_leaves(ledger: BudgetLedger) -> None:
    event = local_event(ORACLE)
    charge, left = ledger.reserve("people", "graph", event, identity=RELEASE), 0
    for run in ("one", "two"):
        try:
            ledger.begin("graph", attempt=charge.attempt, start=run)
            ledger.settle("graph", event, identity=RELEASE, attempt=run, tokens={"": run})
        except LedgerError:
            continue
        left += 1
    charged = ledger.status("people").local_spent
    assert 0.9 * LOCAL < fresh_reports(left) <= charged == LOCAL


def test_broken_a_charge_was_settled_again_at_the_same_price() -> None:
    assert fresh_reports(2) > 1.5 * LOCAL


# One envelope swapped ---------------------------------------------------------------------------


def collections() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Ids and packed reports: of everybody, and with one forged in place of the first person's."""
    generator = np.random.default_rng(1)
    ids = generator.integers(0, 256, (CROWD, 16), np.uint8)
    reports = np.ones(CROWD, ORACLE.report_dtype)
    reports[1:] = np.arange(1, CROWD) % 2
    packed = ORACLE.pack_each(reports)
    others, lie = ids.copy(), packed.copy()
    lie[0] = ORACLE.pack_each(np.zeros(1, ORACLE.report_dtype))[0]
    others[0] = forged_id(RELEASE, old_sum(RELEASE, ids[:1], packed[:1]), lie[0])
    return [ids, packed], [others, lie]


def swapped(published: bool) -> float:
    """What the counts prove that are published: of everybody, then without the victim."""
    without = memoized(RELEASE, CROWD, absent=True, first=1)
    if not published:
        return lower_epsilon(*(memoized(RELEASE, CROWD)(v) for v in (1, 0)), delta=DELTA)
    return proved(memoized(RELEASE, CROWD), without, delta=DELTA, views=np.subtract)


def test_other_envelopes_are_not_the_same() -> None:
    digests = [set_digest(RELEASE, set_records(*these)) for these in collections()]
    assert same_set(digests[0], digests[0])
    published = same_set(*digests)
    assert swapped(published) <= shuffle_epsilon(ORACLE, CROWD, DELTA)


def test_broken_envelopes_were_known_by_a_sum() -> None:
    one, other = (old_sum(RELEASE, *these) for these in collections())
    assert one == other
    assert swapped(published=True) > 1.2 * shuffle_epsilon(ORACLE, CROWD, DELTA)


# A count of rounds that is set back -------------------------------------------------------------


def rounds_of(count: int) -> dp_accounting.DpEvent:
    return dp_accounting.SelfComposedDpEvent(local_event(ORACLE), count)


def settled(ledger: BudgetLedger, charge: Charge, rounds: int) -> float:
    """What is charged locally; a proof says that no more rounds began."""
    ledger.settle("training", rounds_of(rounds), identity=RELEASE, attempt=charge.attempt,
                  proof=f"{rounds} rounds began")  # fmt: skip
    return ledger.status("people").local_spent


def test_no_older_count_makes_rounds_cheaper(ledger: BudgetLedger) -> None:
    charge = ledger.reserve("people", "training", rounds_of(30), identity=RELEASE)
    for begun in range(1, ROUNDS + 1):
        charge = ledger.begin("training", rounds=begun, attempt=charge.attempt)
    with pytest.raises(LedgerError, match="12 rounds of run 'training' have begun"):
        settled(ledger, charge, SET_BACK)
    assert SET_BACK * LOCAL < fresh_reports(ROUNDS) <= settled(ledger, charge, ROUNDS)


def test_broken_a_file_counted_the_rounds(ledger: BudgetLedger) -> None:
    charge = ledger.reserve("people", "training", rounds_of(30), identity=RELEASE)
    assert fresh_reports(ROUNDS) > 1.5 * settled(ledger, charge, SET_BACK)
