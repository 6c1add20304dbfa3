"""Sums, shares and charges by themselves: pure functions, at the edges where they turn."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from beam_ldp.accounting.divergences.moments import rdp_to_epsilon
from beam_ldp.ledger.accounts import Account, ExactLoss, ExactSum
from beam_ldp.ledger.admission import capacity, quota_refusal, share_of, status_of
from beam_ldp.ledger.balances import Balances, Population
from beam_ldp.ledger.charges import (
    Budget,
    Quota,
    followed,
    of_run,
    part_of,
    release_key,
    reservation,
)
from beam_ldp.ledger.losses import Loss, limit, no_loss, orders_for, shares, times
from beam_ldp.ledger.rows import ChainHead, LedgerCorruptedError, Row, next_row
from tests.ledger.asked import KEY, asked

pytestmark = pytest.mark.exact

LOSS = Loss((0.5, 0.25), 1.5)


# Sums ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, 5e-324, 0.1, 1.0, 1e300, 1.7976931348623157e308])
def test_a_sum_holds_every_bit(value: float) -> None:
    total = ExactSum()
    total.add(value, 3)
    total.add(value, -2)
    assert total.value == value
    assert ExactSum.from_json(total.to_json()) == total
    total.add(value, -1)
    assert total == ExactSum() and total.value == 0.0


def test_a_sum_is_rounded_up_and_never_down() -> None:
    total = ExactSum()
    total.add(1.0)
    total.add(5e-324)
    assert total.value == math.nextafter(1.0, 2.0)
    total.add(5e-324, -1)
    assert total.value == 1.0


def test_infinite_and_too_large_sums() -> None:
    total = ExactSum()
    total.add(math.inf, 2)
    total.add(math.inf, -1)
    assert total.value == math.inf and ExactSum.from_json(total.to_json()) == total
    total.add(math.inf, -1)
    assert total.value == 0.0
    total.add(1.7976931348623157e308, 2)
    assert total.value == math.inf  # beyond all floats


def test_what_is_no_sum_is_refused() -> None:
    assert ExactSum.from_json("3:16384:0").finite == 3 << 16384
    for told in ("1:-1:0", "1:16385:0", "1:0", "x:0:0"):
        with pytest.raises(ValueError):
            ExactSum.from_json(told)


def test_totals_add_figure_by_figure() -> None:
    one, other = ExactLoss(2), ExactLoss(2)
    one.add(LOSS, 2)
    other.add(Loss((1.0, 2.0), 3.0, 0.125))
    both = one + other
    assert both.loss == Loss((2.0, 2.5), 6.0, 0.125)
    assert ExactLoss.from_json(both.to_json()).loss == both.loss
    assert one.loss == times(LOSS, 2)  # neither is changed


# Accounts -----------------------------------------------------------------------------------------


def row_of(kind: str, **how: Any) -> dict[str, Any]:
    return {
        "count": 1, "loss": LOSS.to_json(), "local_epsilon": 1.5, "gives_back": LOSS.to_json(),
        "gives_back_local": 1.5, **how,
    }  # fmt: skip


def test_an_account_takes_what_rows_say() -> None:
    account = Account.empty(2)
    account.take("reserve", row_of("reserve", count=3))
    assert (account.open, account.charges, account.local) == (3, 1, 4.5)
    assert account.loss == times(LOSS, 3) and account.spent.loss == no_loss((0.0, 0.0))
    less = Loss((0.25, 0.125), 1.0)
    account.take("settle", row_of("settle", loss=less.to_json(), local_epsilon=1.0))
    assert account.open == 2 and account.spent.loss == less
    assert (account.local_spent.value, account.local_reserved.value) == (1.0, 3.0)
    account.take("abandon", row_of("abandon", count=2, local_epsilon=0.5))
    assert account.open == 0 and account.loss == less
    assert (account.local, account.local_reserved.value, account.charges) == (2.0, 0.0, 1)
    account.take("replace", {"gives_back": less.to_json(), "loss": LOSS.to_json()})
    assert account.loss == LOSS and account.local == 2.0
    account.take("resume", {})
    assert Account.from_json(account.to_json()).to_json() == account.to_json()


def test_what_has_no_local_epsilon_has_none_while_it_is_open() -> None:
    account = Account.empty(2)
    account.take("reserve", row_of("reserve", local_epsilon=None))
    assert account.local == math.inf
    account.take("settle", row_of("settle", gives_back_local=None, local_epsilon=0.5))
    assert account.local == 0.5


# Shares -------------------------------------------------------------------------------------------


def people(epsilon: float = 1.0, local: float | None = None, **shares: float) -> Population:
    found = Population("visits", "user", "replace-one")
    orders = orders_for(epsilon, 1e-6)
    found.budgets.append(Budget(epsilon, 1e-6, local, orders, None, "", 0))
    found.quotas = {name: Quota(name, share) for name, share in shares.items()}
    return found


def loss_at_first(people: Population, share: float) -> Loss:
    budget = people.budget
    assert budget is not None
    first = share * capacity(budget)
    return Loss((first, *[0.0] * (len(budget.orders) - 1)), 0.0)


def test_what_is_kept_whole_leaves_nothing() -> None:
    found = people(a=0.5, b=0.5)
    assert share_of(found.quotas, "") == 0.0
    assert share_of(found.quotas, "a") == 0.5
    assert "all without a quota" in str(
        status_of(found, 0).refusal(loss_at_first(found, 1e-3), 0.0)
    )
    assert quota_refusal(found, 0, Quota("c", 0.0)) is None
    assert "more than the budget" in str(quota_refusal(found, 0, Quota("c", 1e-6)))


def test_a_share_is_full_and_not_fuller() -> None:
    found = people(local=8.0, a=0.25)
    assert status_of(found, 0).refusal(loss_at_first(found, 0.25), 2.0, quota="a") is None
    assert status_of(found, 0).refusal(loss_at_first(found, 0.2501), 0.0, quota="a") is not None
    assert status_of(found, 0).refusal(no_loss((0.0,) * 5), 2.001, quota="a") is not None
    assert status_of(found, 0).refusal(loss_at_first(found, 0.75), 6.0) is None
    assert status_of(found, 0).refusal(loss_at_first(found, 0.25), 2.0, quota="a") is None
    assert status_of(found, 0).refusal(loss_at_first(found, 0.375), 3.0, quota="a") is not None


@pytest.mark.parametrize("epsilon", [1e-3, 0.05, 1.0, 20.0])
def test_the_capacity_fills_the_budget_at_its_first_order(epsilon: float) -> None:
    """Small budgets too: their capacity is far below one, and can be shared."""
    found = people(epsilon)
    budget = found.budget
    assert budget is not None
    full = capacity(budget)
    delta = shares(len(budget.orders))[0] * budget.delta
    epsilon_then, _ = rdp_to_epsilon(budget.orders[:1], (full,), delta)
    assert full > 0 and epsilon_then == pytest.approx(epsilon, rel=1e-9)
    assert quota_refusal(found, 0, Quota("a", 0.5)) is None


def test_a_first_order_that_never_fits_cannot_be_shared() -> None:
    found = people()
    found.budgets[0] = Budget(0.1, 1e-6, None, (1.05, 40.0), None, "", 0)
    assert capacity(found.budgets[0]) <= 0
    assert "nothing to share" in str(quota_refusal(found, 0, Quota("a", 0.5)))


def test_a_smaller_share_than_is_spent_is_refused() -> None:
    found = people(local=8.0)
    found.accounts[0] = found.quota_accounts[("", 0)] = Account.empty(5)
    found.accounts[0].local_spent.add(4.0)
    assert quota_refusal(found, 0, Quota("a", 0.5)) is None
    assert "runs without a quota" in str(quota_refusal(found, 0, Quota("a", 0.51)))


@pytest.mark.parametrize("order", [0, 1])
def test_a_share_is_of_the_first_order_alone(order: int) -> None:
    """What was charged to it before counts at that order, and at no other."""
    found = people(a=0.5)
    budget = found.budget
    assert budget is not None
    spent = [0.0] * len(budget.orders)
    spent[order] = 0.4 * capacity(budget)
    found.quota_accounts[("a", 0)] = Account.empty(len(budget.orders))
    found.quota_accounts[("a", 0)].spent.add(Loss(tuple(spent), 0.0))
    found.accounts[0] = Account.empty(len(budget.orders))
    more = loss_at_first(found, 0.2)
    assert (status_of(found, 0).refusal(more, 0.0, quota="a") is None) == (order == 1)
    assert (quota_refusal(found, 0, Quota("a", 0.3)) is None) == (order == 1)


def test_orders_of_the_smallest_and_largest_budgets() -> None:
    """Where no charge fills a budget, the orders are those of the nearest one that does."""
    assert orders_for(1e-12, 1e-8)[0] > 1e4
    assert orders_for(1e12, 1e-8)[0] < 2
    assert orders_for(1.0, 1e-8)[0] == pytest.approx(30.7, abs=0.1)


# What became of a run -----------------------------------------------------------------------------


def reserved(is_block: bool = False, count: int = 1, memoized: bool = True, **how: Any) -> Row:
    identity = asked("visits", "week", key=KEY if memoized else "")
    body = {
        "run_id": "run", "part": "", "dataset": "visits", "population": "visits", "period": 0,
        "quota": "", "identity": identity.to_json(), "memoized": memoized, "attempt": "one",
        "event": {}, "loss": LOSS.to_json(), "local_event": None, "local_epsilon": 1.5,
        "count": count, "is_block": is_block, "left": count, "about": {}, "certificate": None,
        "time": "", **how,
    }  # fmt: skip
    return next_row(ChainHead(), "reserve", body)


def then(kind: str, **body: Any) -> Row:
    told = {
        "part": "", "about": {}, "event": {}, "loss": LOSS.to_json(), "local_epsilon": 1.5,
        "count": 1, "left": 0, "report_digest": None, **body,
    }  # fmt: skip
    return next_row(ChainHead(), kind, told)


@pytest.mark.parametrize(
    "how",
    [{"count": 0}, {"count": 2}, {"run_id": ""}, {"attempt": None}, {"dataset": 7},
     {"local_epsilon": -1.0}],
)  # fmt: skip
def test_what_is_no_reservation(how: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        reservation(reserved(**how))
    with pytest.raises(ValueError, match="begins with its reservation"):
        reservation(then("settle", **reserved().body))


def test_only_open_memoized_charges_are_taken_up() -> None:
    charge = reservation(reserved())
    assert followed(charge, then("resume", attempt="two")).attempts == 2
    ended = followed(charge, then("settle"))
    for one in (reservation(reserved(memoized=False)), ended):
        with pytest.raises(ValueError, match="can be resumed"):
            followed(one, then("resume", attempt="two"))
    for row in (then("settle"), then("abandon")):
        with pytest.raises(ValueError, match="ends once"):
            followed(ended, row)
    with pytest.raises(ValueError, match="ends once"):
        followed(charge, then("people"))


def test_only_what_was_released_is_released_again() -> None:
    charge = reservation(reserved())
    with pytest.raises(ValueError, match="released again"):
        followed(charge, then("replace"))
    twice = followed(followed(charge, then("settle")), then("replace", report_digest="d"))
    assert (twice.published, twice.report_digest) == (2, "d")


def test_a_block_is_used_up_part_by_part() -> None:
    block = reservation(reserved(is_block=True, count=3))
    assert block.local_total == 4.5
    one = followed(block, then("settle", part="1"))
    assert (one.count, one.status, one.local_epsilon) == (2, "reserved", 1.5)
    done = followed(one, then("abandon", count=2))
    assert (done.count, done.status, done.local_epsilon, done.event) == (0, "settled", 0.0, None)
    assert done.loss == no_loss((0.0, 0.0))
    with pytest.raises(ValueError, match="no more parts"):
        followed(one, then("abandon", count=3))
    with pytest.raises(ValueError, match="settled part by part"):
        followed(block, then("settle"))
    part = part_of(block, then("settle", part="1"))
    assert (part.run_id, part.identity.part, part.is_block) == ("run/1", "1", False)
    rest = part_of(block, then("abandon"))
    assert rest.run_id.startswith("run/rest at row") and rest.loss == no_loss((0.0, 0.0))


def test_a_run_is_folded_from_its_rows() -> None:
    first = reserved(is_block=True, count=4)
    folded = of_run([first, then("settle", part="1", left=3), then("settle", part="2", left=2)])
    assert (folded.count, folded.status) == (2, "reserved")
    used = of_run([first, then("settle", part="4", left=0)])
    assert (used.count, used.status) == (0, "settled")
    ended = of_run([reserved(), then("settle", overspent=False)])
    assert ended.status == "settled" and not ended.overspent
    dearer = Loss((0.5, limit(0.25) + 1e-9), 1.5)
    assert of_run([reserved(), then("settle", loss=dearer.to_json())]).overspent
    assert of_run([reserved(), then("settle", local_epsilon=1.6)]).overspent


def test_release_keys_fit_their_column_and_tell_releases_apart() -> None:
    """PostgreSQL refuses what is longer; SQLite would take it."""
    week = asked("visits", "week")
    keys = {
        release_key("visits", "visits", week),
        release_key("others", "visits", week),
        release_key("visits", "others", week),
        release_key("visits", "visits", asked("visits", "month")),
    }
    assert len(keys) == 4 and {len(key) for key in keys} == {32}
    assert release_key("visits", "visits", asked("other", "week", columns=("x",))) in keys


# Checkpoints --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "books",
    [None, {}, {"ledger_id": "x"}, {"ledger_id": "x", "of_dataset": {}, "first_names": {},
     "now_called": {}, "populations": {"visits": {}}}],
)  # fmt: skip
def test_what_is_no_checkpoint_opens_nothing(books: Any) -> None:
    """Half of its books would be a ledger in which less is spent."""
    row = next_row(ChainHead(7, "1" * 64), "checkpoint", {"time": "", "books": books})
    with pytest.raises(LedgerCorruptedError, match="row 7 is not a checkpoint"):
        Balances.from_checkpoint(row)
    whole = Balances().to_json()
    row = next_row(ChainHead(7, "1" * 64), "checkpoint", {"time": "2026", "books": whole})
    assert Balances.from_checkpoint(row).head == row.head
    with pytest.raises(LedgerCorruptedError, match="was changed"):
        Balances.from_checkpoint(replace(row, text=row.text.replace("2026", "2027")))


# Rows that nobody may have written ----------------------------------------------------------------


def told(*bodies: tuple[str, dict[str, Any]]) -> Balances:
    """The books of a ledger with a dataset `visits` and these rows after it."""
    people = {"privacy_unit": "user", "neighbours": "replace-one", "population": "visits"}
    first = [("genesis", {"ledger_id": "x"}), ("dataset", {"dataset": "visits", **people})]
    books = Balances()
    for kind, body in [*first, *bodies]:
        given = {**people, "by": "", "why": "", "time": "2026", **body}
        books.apply([next_row(books.head, kind, given)])
    return books


def test_a_forged_name_takes_over_nobodys_budget() -> None:
    books = told(("dataset", {"dataset": "other"}), ("rename", {"dataset": "other", "to": "third"}))
    assert books.datasets == ["third", "visits"] and books.renamed("other") == "third"
    for taken in ("visits", "third", "other"):
        for row in (
            ("rename", {"dataset": "visits", "to": taken}),
            ("dataset", {"dataset": taken}),
        ):
            with pytest.raises(LedgerCorruptedError, match="does not follow"):
                told(
                    ("dataset", {"dataset": "other"}),
                    ("rename", {"dataset": "other", "to": "third"}),
                    row,
                )


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_forged_share_is_none(share: float) -> None:
    assert (
        told(("quota", {"quota": "a", "share": 0.0})).populations["visits"].quotas["a"].share == 0
    )
    assert (
        told(("quota", {"quota": "a", "share": 1.0})).populations["visits"].quotas["a"].share == 1
    )
    for body in ({"quota": "a", "share": share}, {"quota": "", "share": 0.5}):
        with pytest.raises(LedgerCorruptedError, match="does not follow"):
            told(("quota", body))
