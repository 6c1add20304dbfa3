"""Reserve, settle, abandon: what fits, what is refused, and what counts."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffleAccountant, ShuffledDpEvent
from beam_ldp.ledger import (
    BudgetExceededError,
    BudgetLedger,
    LedgerCorruptedError,
    LedgerError,
    LedgerMissingError,
    ReleasedBeforeError,
    audit,
)
from beam_ldp.ledger.losses import as_json, loss_of
from tests.ledger.asked import KEY, asked, begun
from tests.ledger.conftest import Clock

pytestmark = pytest.mark.exact

EVENT = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 20_000)
FEWER = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 18_000)
MORE = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 25_000)
PURE = LocalRandomizerDpEvent(0.25)


def grant(ledger: BudgetLedger, dataset: str = "visits", **how: Any) -> None:
    ledger.set_budget(
        dataset, **{"epsilon": 1.0, "delta": 1e-6, "local_epsilon": 100.0, "why": "test", **how}
    )


def spend(ledger: BudgetLedger, run_id: str, event: Any = PURE, dataset: str = "visits") -> None:
    ledger.reserve(dataset, run_id, event, identity=asked(dataset, run_id))
    ledger.settle(run_id, event, identity=asked(dataset, run_id))


# Coming into being ------------------------------------------------------------------------


def test_a_mistyped_url_makes_no_ledger(tmp_path: Any) -> None:
    missing = tmp_path / "privcay.db"
    with pytest.raises(LedgerMissingError, match="budget init"):
        BudgetLedger(f"sqlite:///{missing}")
    assert not missing.exists()


def test_no_url_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BEAM_LDP_LEDGER", raising=False)
    with pytest.raises(LedgerError, match="BEAM_LDP_LEDGER"):
        BudgetLedger()


def test_the_environment_names_the_ledger(
    ledger: BudgetLedger, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEAM_LDP_LEDGER", url)
    assert BudgetLedger().state.ledger_id == ledger.state.ledger_id


@pytest.mark.parametrize("url", ["nonsense", "mysql://x/y", "sqlite://", "sqlite:///:memory:"])
def test_urls_that_cannot_hold_a_ledger(url: str) -> None:
    with pytest.raises(ValueError, match="url must"):
        BudgetLedger(url)


def test_creating_twice_keeps_what_is_there(ledger: BudgetLedger, url: str) -> None:
    grant(ledger)
    again = BudgetLedger.create(url)
    assert again.state.head == ledger.state.head
    assert again.status("visits").budget.epsilon == 1.0


def test_the_schema_has_a_version_of_its_own(ledger: BudgetLedger, url: str) -> None:
    import sqlalchemy as sa

    tables = sa.inspect(sa.create_engine(url)).get_table_names()
    assert sorted(tables) == ["beam_ldp_ledger", "beam_ldp_ledger_version"]


def test_a_ledger_shares_mlflows_database(tmp_path: Any) -> None:
    """The version table of MLflow stays as it is."""
    import sqlalchemy as sa

    url = f"sqlite:///{tmp_path / 'mlflow.db'}"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(sa.text("INSERT INTO alembic_version VALUES ('of mlflow')"))
    BudgetLedger.create(url)
    with engine.connect() as connection:
        found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalars()
        assert list(found) == ["of mlflow"]


def test_a_password_is_never_shown() -> None:
    from beam_ldp.ledger.store import RowStore

    pytest.importorskip("psycopg")
    store = RowStore("postgresql+psycopg://me:secret@nowhere/db")
    assert "secret" not in store.shown_url


def test_a_ledger_does_not_travel(ledger: BudgetLedger) -> None:
    with pytest.raises(TypeError, match="pass its URL"):
        pickle.dumps(ledger)


# Budgets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must"),
        ({"epsilon": float("nan")}, "epsilon must"),
        ({"delta": 0.0}, "delta must"),
        ({"delta": 1.0}, "delta must"),
        ({"delta": 1e-310}, r"delta must lie in \[1e-300, 1\)"),
        ({"local_epsilon": -1.0}, "local_epsilon must"),
        ({"orders": ()}, "orders must"),
        ({"orders": (1.0,)}, "orders must"),
        ({"period_days": 0}, "period_days must"),
        ({"neighbours": "add-remove"}, "neighbours must"),
        ({"population": ""}, "population must"),
    ],
)
def test_budgets_that_are_none(ledger: BudgetLedger, how: dict[str, Any], message: str) -> None:
    before = ledger.state.head
    with pytest.raises(ValueError, match=message):
        grant(ledger, **how)
    assert ledger.state.head == before


@pytest.mark.parametrize("epsilon", [1e-300, 1.0, 1e308])
@pytest.mark.parametrize("delta", [1e-300, 1e-6, 1 - 1e-16])
def test_the_most_extreme_budgets(ledger: BudgetLedger, epsilon: float, delta: float) -> None:
    """They are granted, and refuse or take a pure loss as any other."""
    grant(ledger, epsilon=epsilon, delta=delta)
    assert ledger.status("visits").spent == 0
    if epsilon < 0.25 and delta < 0.5:
        with pytest.raises(BudgetExceededError):
            spend(ledger, "one")
    else:
        spend(ledger, "one")
        assert 0 <= ledger.status("visits").spent <= 0.25 * (1 + 1e-12)


def test_names_of_any_script_but_no_control_characters(ledger: BudgetLedger) -> None:
    for name in ("телеметрия", "'; DROP TABLE beam_ldp_ledger; --", "<script>", "../../etc", "名"):
        grant(ledger, name)
        assert name in ledger.state.datasets
    for name in ("", "a\nb", "a" * 201, "\x00"):
        with pytest.raises(ValueError, match="dataset must"):
            grant(ledger, name)


def test_an_unknown_dataset_is_refused_and_the_nearest_named(ledger: BudgetLedger) -> None:
    grant(ledger, "telemetry")
    with pytest.raises(LedgerError, match="did you mean 'telemetry'"):
        ledger.reserve("telemetrie", "run", PURE, identity=asked("telemetrie", "run"))
    assert ledger.state.datasets == ["telemetry"]


def test_another_privacy_unit_is_refused(ledger: BudgetLedger) -> None:
    grant(ledger, privacy_unit="user")
    with pytest.raises(LedgerError, match="protects one user"):
        ledger.reserve("visits", "run", PURE, identity=asked("visits", "run"), privacy_unit="row")
    with pytest.raises(LedgerError, match="privacy unit"):
        grant(ledger, privacy_unit="row")


def test_a_dataset_keeps_its_people(ledger: BudgetLedger) -> None:
    grant(ledger, population="shop")
    with pytest.raises(LedgerError, match="cannot change"):
        grant(ledger, population="others")


# What fits ------------------------------------------------------------------------------------


def test_the_last_epsilon_fits_and_no_more(ledger: BudgetLedger) -> None:
    grant(ledger)
    for i in range(4):
        spend(ledger, f"run {i}")
    assert ledger.status("visits").committed == 1.0
    with pytest.raises(BudgetExceededError, match="would make it"):
        ledger.reserve("visits", "one more", PURE, identity=asked("visits", "one more"))
    assert ledger.status("visits").left == 0.0


def test_a_budget_that_is_just_exceeded_is_not_said_to_be_just_full(ledger: BudgetLedger) -> None:
    grant(ledger)
    why = r"would make it 1\.001\. This sum holds .* more .* than the price .*`beam-ldp check` with"
    with pytest.raises(BudgetExceededError, match=why):
        spend(ledger, "a little more", LocalRandomizerDpEvent(1.00001))


def test_open_reservations_count_at_their_worst_case(ledger: BudgetLedger) -> None:
    grant(ledger)
    for i in range(4):
        ledger.reserve("visits", f"run {i}", PURE, identity=asked("visits", f"run {i}"))
    assert (ledger.status("visits").spent, ledger.status("visits").reserved) == (0.0, 1.0)
    with pytest.raises(BudgetExceededError):
        ledger.reserve("visits", "one more", PURE, identity=asked("visits", "one more"))


def test_different_events_compose_tightly(ledger: BudgetLedger) -> None:
    grant(ledger, epsilon=4.0)
    for i in range(10):
        spend(ledger, f"run {i}", EVENT if i % 2 else MORE)
    status = ledger.status("visits")
    orders = status.budget.orders
    total = loss_of(as_json(EVENT), orders)
    for event in [EVENT] * 4 + [MORE] * 5:
        total += loss_of(as_json(event), orders)
    assert status.spent == pytest.approx(total.epsilon(orders, 1e-6)[0], rel=1e-9)
    singly = ShuffleAccountant().compose(EVENT).get_epsilon(1e-6)
    assert status.spent < 5 * singly


def test_the_order_of_runs_does_not_matter(tmp_path: Any) -> None:
    spent = []
    for name, events in (("a", [EVENT, PURE, MORE]), ("b", [MORE, EVENT, PURE])):
        ledger = BudgetLedger.create(f"sqlite:///{tmp_path / name}.db")
        grant(ledger, epsilon=4.0)
        for i, event in enumerate(events):
            spend(ledger, f"run {i}", event)
        spent.append(ledger.status("visits").spent)
    assert spent[0] == pytest.approx(spent[1], rel=1e-12)


def test_datasets_about_the_same_people_share_a_budget(ledger: BudgetLedger) -> None:
    grant(ledger, "visits", population="shop")
    grant(ledger, "purchases", population="shop")
    for i in range(4):
        spend(ledger, f"run {i}", dataset="visits" if i % 2 else "purchases")
    with pytest.raises(BudgetExceededError):
        ledger.reserve("purchases", "more", PURE, identity=asked("purchases", "more"))
    grant(ledger, "other people")
    ledger.reserve("other people", "theirs", PURE, identity=asked("other people", "theirs"))


def test_the_local_budget_binds_too(ledger: BudgetLedger) -> None:
    grant(ledger, epsilon=100.0, local_epsilon=4.0)
    ledger.reserve("visits", "one", MORE, identity=asked("visits", "one"))
    ledger.reserve("visits", "two", MORE, identity=asked("visits", "two"))
    with pytest.raises(BudgetExceededError, match="local epsilons"):
        ledger.reserve("visits", "three", MORE, identity=asked("visits", "three"))


def test_what_is_left_is_said_in_runs(ledger: BudgetLedger) -> None:
    grant(ledger)
    spend(ledger, "first")
    status = ledger.status("visits")
    assert status.times_left(PURE, 0.25) == 3
    assert status.epsilon_with(PURE, 3) == 1.0
    assert status.times_left(PURE, 60.0) == 1  # the local budget binds


def test_a_period_grants_the_budget_anew(ledger: BudgetLedger, clock: Clock) -> None:
    grant(ledger, period_days=30)
    for i in range(4):
        spend(ledger, f"run {i}")
    clock.move(days=29)
    with pytest.raises(BudgetExceededError):
        spend(ledger, "early")
    clock.move(days=1)
    spend(ledger, "next month")
    assert (ledger.status("visits").period, ledger.status("visits").spent) == (1, 0.25)


def test_a_new_budget_forgets_nothing(ledger: BudgetLedger, clock: Clock) -> None:
    grant(ledger, period_days=30)
    for i in range(3):
        spend(ledger, f"run {i}")
    clock.move(days=10)
    before = ledger.status("visits").budget.orders
    grant(ledger, epsilon=2.0, period_days=30, why="more was asked for")
    status = ledger.status("visits")
    assert status.budget.orders == before  # chosen later they would prove nothing
    with pytest.raises(LedgerError, match="orders were fixed"):
        grant(ledger, epsilon=2.0, period_days=30, orders=(16.0,))
    assert (status.period, status.spent) == (0, 0.75)
    assert [b.why for b in ledger.state.populations["visits"].budgets] == [
        "test",
        "more was asked for",
    ]


# What became of it --------------------------------------------------------------------------


def test_settling_gives_back_what_was_not_used(ledger: BudgetLedger) -> None:
    grant(ledger)
    ledger.reserve("visits", "run", FEWER, identity=asked("visits", "run"))
    worst = ledger.status("visits").committed
    charge = ledger.settle("run", MORE, identity=asked("visits", "run"))
    assert (charge.status, charge.overspent) == ("settled", False)
    assert ledger.status("visits").committed < worst


NAMED = {"": "token of the release"}


@pytest.mark.parametrize("tokens", [None, NAMED], ids=["by one process", "by workers"])
def test_settling_twice_is_once_and_of_the_very_same_thing(
    tokens: dict[str, str] | None, ledger: BudgetLedger
) -> None:
    """Another release can cost the same: what it costs never makes it the same one."""
    grant(ledger)
    run = asked("visits", "run")
    charge = ledger.reserve("visits", "run", FEWER, identity=run)
    same: dict[str, Any] = {
        "event": EVENT, "attempt": charge.attempt, "tokens": tokens, "about": {"question": "q"},
    }  # fmt: skip
    first = ledger.settle("run", identity=run, **same)
    head = ledger.state.head
    assert ledger.settle("run", identity=run, **same) == first
    others: list[dict[str, Any]] = [
        {"event": MORE}, {"attempt": None}, {"attempt": "another"}, {"report_digest": "d"},
        {"about": {"question": "another"}}, {"tokens": {"": "another"}},
        {"tokens": None if tokens else NAMED},
    ]  # fmt: skip
    for other in others:
        with pytest.raises(ReleasedBeforeError, match="settled already"):
            ledger.settle("run", identity=run, **{**same, **other})
    assert ledger.state.head == head


def test_a_charge_of_groups_covers_one_release_of_each(ledger: BudgetLedger) -> None:
    """Groups may come in parts; a group that was released is not released again."""
    grant(ledger)
    run = asked("visits", "run")
    charge = ledger.reserve("visits", "run", EVENT, identity=run)

    def settle(**tokens: str) -> Any:
        return ledger.settle("run", EVENT, identity=run, attempt=charge.attempt, tokens=tokens)

    first, spent = settle(a="1", b="2"), ledger.status("visits").spent
    assert settle(b="2") == settle(a="1") == first
    assert dict(settle(c="3").tokens) == {"a": "1", "b": "2", "c": "3"}
    head = ledger.balances.head
    for again in ({"a": "4"}, {"a": "1", "c": "4"}, {"c": "4", "d": "5"}):
        with pytest.raises(ReleasedBeforeError):
            settle(**again)
    assert settle(a="1", c="3").published == 1 and ledger.balances.head == head
    assert ledger.status("visits").spent == spent and audit(ledger.rows()).clean


def test_a_run_of_a_pipeline_begins_once(ledger: BudgetLedger) -> None:
    """What is reserved once, where a graph is built, pays for one of its runs."""
    grant(ledger)
    run = asked("visits", "run")
    charge = ledger.reserve("visits", "run", EVENT, identity=run)
    assert begun(ledger, "run", "first") == begun(ledger, "run", "first")  # a retry
    for token, reserved in (("second", charge.attempt), ("third", "another")):
        with pytest.raises(LedgerError, match="began before"):
            ledger.begin("run", attempt=reserved, start=token)
    for attempt in (None, charge.attempt, "second"):
        with pytest.raises(LedgerError, match="name the run of it|took over"):
            ledger.settle("run", EVENT, identity=run, attempt=attempt)
    settled = ledger.settle("run", EVENT, identity=run, attempt="first", tokens=NAMED)
    assert (settled.attempt, settled.attempts) == ("first", 1)
    assert ledger.begin("run", attempt=charge.attempt, start="first") == settled
    with pytest.raises(LedgerError, match="is settled, and its charge covers one run"):
        begun(ledger, "run")
    assert audit(ledger.rows()).clean


@pytest.mark.parametrize("runs", [0, 1])
def test_people_who_may_have_been_asked_stay_charged(runs: int, ledger: BudgetLedger) -> None:
    """Whoever gives a charge back cannot say that nobody was asked once its pipeline ran."""
    grant(ledger)
    ledger.reserve("visits", "run", PURE, identity=asked("visits", "run"))
    for _ in range(runs):
        begun(ledger, "run")
    assert ledger.abandon("run", randomized=False, why="").local_epsilon == runs * 0.25
    with pytest.raises(LedgerError, match="is abandoned"):
        begun(ledger, "run")
    assert audit(ledger.rows()).clean


def test_more_than_reserved_is_an_alarm_not_a_loss(ledger: BudgetLedger) -> None:
    grant(ledger)
    ledger.reserve("visits", "run", MORE, identity=asked("visits", "run"))
    assert ledger.settle("run", FEWER, identity=asked("visits", "run")).overspent
    ledger.reserve("visits", "second", MORE, identity=asked("visits", "second"))
    dearer = ShuffledDpEvent(LocalRandomizerDpEvent(2.1), 10**9)  # centrally it costs less
    assert ledger.settle("second", dearer, identity=asked("visits", "second")).overspent


def test_abandoning_gives_back_the_central_price_only(ledger: BudgetLedger) -> None:
    grant(ledger)
    ledger.reserve("visits", "never began", EVENT, identity=asked("visits", "never began"))
    ledger.abandon("never began", randomized=False, why="the input was missing")
    assert ledger.status("visits").local_committed == 0.0
    ledger.reserve("visits", "began", EVENT, identity=asked("visits", "began"))
    ledger.abandon("began", randomized=True, why="the cluster went away")
    status = ledger.status("visits")
    assert (status.committed, status.local_committed) == (0.0, 2.0)
    with pytest.raises(LedgerError, match="abandoned already"):
        ledger.settle("began", EVENT, identity=asked("visits", "began"))


def test_a_crashed_run_stays_charged(ledger: BudgetLedger, url: str, clock: Clock) -> None:
    grant(ledger)
    ledger.reserve("visits", "crashed", PURE, identity=asked("visits", "crashed"))
    clock.move(days=1000)
    assert BudgetLedger(url, clock=clock).status("visits").committed == 0.25


def test_a_repetition_is_a_new_charge(ledger: BudgetLedger) -> None:
    grant(ledger)
    ledger.reserve("visits", "run", PURE, identity=asked("visits", "run"))
    with pytest.raises(LedgerError, match="a new name and a new charge"):
        ledger.reserve("visits", "run", PURE, identity=asked("visits", "run"))


def test_a_memoized_repetition_keeps_its_charge_until_the_release(ledger: BudgetLedger) -> None:
    grant(ledger)
    run = asked("visits", "run", key=KEY)
    ledger.reserve("visits", "run", PURE, identity=run, memoized=True)
    again = ledger.reserve("visits", "run", PURE, identity=run, memoized=True)
    assert (again.attempts, ledger.status("visits").committed) == (2, 0.25)
    with pytest.raises(LedgerError, match="another worst case"):
        ledger.reserve("visits", "run", LocalRandomizerDpEvent(0.1), identity=run, memoized=True)
    ledger.settle("run", PURE, identity=run, attempt=again.attempt)
    with pytest.raises(LedgerError, match="settled"):
        ledger.reserve("visits", "run", PURE, identity=run, memoized=True)


def test_unknown_runs_are_refused(ledger: BudgetLedger) -> None:
    grant(ledger)
    with pytest.raises(LedgerError, match="no reservation"):
        ledger.settle("nobody", PURE, identity=asked("visits", "nobody"))
    with pytest.raises(LedgerError, match="no reservation"):
        ledger.abandon("nobody", randomized=False, why="")


def test_two_programs_see_each_other(ledger: BudgetLedger, url: str, clock: Clock) -> None:
    grant(ledger)
    other = BudgetLedger(url, clock=clock)
    for i in range(2):
        ledger.reserve("visits", f"ours {i}", PURE, identity=asked("visits", f"ours {i}"))
        other.reserve("visits", f"theirs {i}", PURE, identity=asked("visits", f"theirs {i}"))
    for one in (ledger, other):
        with pytest.raises(BudgetExceededError):
            one.reserve("visits", "more", PURE, identity=asked("visits", "more"))
    assert other.settle("ours 0", PURE, identity=asked("visits", "ours 0")).status == "settled"


# Tampering that a running program meets ----------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE beam_ldp_ledger SET body = replace(body, '0.25', '0.01') WHERE kind = 'reserve'",
        "DELETE FROM beam_ldp_ledger WHERE kind = 'reserve'",
        "UPDATE beam_ldp_ledger SET hash = lower(hex(randomblob(32))) WHERE kind = 'settle'",
    ],
)
def test_a_changed_ledger_refuses_to_go_on(
    ledger: BudgetLedger, url: str, clock: Clock, statement: str
) -> None:
    import sqlalchemy as sa

    grant(ledger)
    spend(ledger, "run")
    with sa.create_engine(url).begin() as connection:
        connection.execute(sa.text(statement))
    with pytest.raises(LedgerCorruptedError):
        BudgetLedger(url, clock=clock).reserve(
            "visits", "next", PURE, identity=asked("visits", "next")
        )


def test_a_program_notices_that_the_tail_was_cut(ledger: BudgetLedger, url: str) -> None:
    import sqlalchemy as sa

    grant(ledger)
    spend(ledger, "run")
    with sa.create_engine(url).begin() as connection:
        connection.execute(sa.text("DELETE FROM beam_ldp_ledger WHERE kind = 'settle'"))
    with pytest.raises(LedgerCorruptedError, match="gone or changed"):
        ledger.reserve("visits", "next", PURE, identity=asked("visits", "next"))


@pytest.mark.parametrize("over", [1e-4, 1e-9])
def test_a_budget_is_used_up_to_its_edge_and_not_beyond(ledger: BudgetLedger, over: float) -> None:
    """Four quarters fit one; a hair more is refused, centrally and locally."""
    grant(ledger, local_epsilon=1.0)
    grant(ledger, "others", epsilon=2.0, local_epsilon=1.0)
    for name in ("one", "two", "three"):
        spend(ledger, name)
        spend(ledger, f"others {name}", dataset="others")
    more = LocalRandomizerDpEvent(0.25 + over)
    with pytest.raises(BudgetExceededError, match="would make it"):
        ledger.reserve("visits", "four", more, identity=asked("visits", "four"))
    with pytest.raises(BudgetExceededError, match="local epsilons that sum to 1 per user"):
        ledger.reserve("others", "others four", more, identity=asked("others", "four"))
    spend(ledger, "four")
    assert ledger.status("visits").left == 0
    with pytest.raises(BudgetExceededError):
        ledger.reserve(
            "visits", "five", LocalRandomizerDpEvent(over), identity=asked("visits", "five")
        )


def test_a_memoized_run_that_starts_again_is_the_same_run_in_everything(
    ledger: BudgetLedger,
) -> None:
    grant(ledger)
    grant(ledger, "other", population="visits")
    ledger.reserve("visits", "run", PURE, identity=asked("visits", "run", key=KEY), memoized=True)
    for dataset, event, change in (
        ("visits", EVENT, {}),
        ("other", PURE, {}),
        ("visits", PURE, {"columns": ("hepc",)}),
        ("visits", PURE, {"key": "cd" * 16}),
    ):
        identity = asked(dataset, "run", **{"key": KEY, **change})
        with pytest.raises(LedgerError, match="already has its charge"):
            ledger.reserve(dataset, "run", event, identity=identity, memoized=True)
