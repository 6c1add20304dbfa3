"""What a charge is of: one question per release id, one attempt that settles, no report twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dp_accounting
import pytest

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
from beam_ldp.ledger import (
    BlockUsedUpError,
    BudgetExceededError,
    BudgetLedger,
    Charge,
    LedgerCorruptedError,
    LedgerError,
    audit,
)
from beam_ldp.ledger.rows import Row, next_row
from beam_ldp.randomizers.identity import ReleaseIdentity
from tests.ledger.asked import KEY, asked

pytestmark = pytest.mark.exact

PURE = LocalRandomizerDpEvent(0.25)
FEW, MANY = (ShuffledDpEvent(LocalRandomizerDpEvent(2.0), n) for n in (2_000, 100_000))
NIGHTLY = asked("visits", "nightly", columns=("hiv",), key=KEY)
DIGEST, OTHER = "set1:" + "5a" * 32, "set1:" + "00" * 32


@pytest.fixture(autouse=True)
def granted(ledger: BudgetLedger) -> None:
    ledger.set_budget("visits", epsilon=3.0, delta=1e-6, local_epsilon=20.0)


def reserve(ledger: BudgetLedger, run: str, identity: ReleaseIdentity, event: Any = PURE,
            **how: Any) -> Charge:  # fmt: skip
    return ledger.reserve(
        "visits", run, event, identity=identity, **{"memoized": bool(identity.key), **how}
    )


def clean(ledger: BudgetLedger) -> bool:
    return ledger.audit().clean


# One question -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"columns": ("hepc",)}, "columns"),
        ({"mechanism": "01"}, "mechanism"),
        ({"values": "01"}, "list, bins or ranges"),
        ({"groups": "01"}, "list of groups"),
        ({"bounding": "one row of each uid"}, "rule that bounds"),
        ({"privacy_unit": "household"}, "privacy unit"),
        ({"reports_per_envelope": 2}, "reports per envelope"),
        ({"key": "cd" * 16}, "secret key"),
        ({"key": ""}, "secret key"),
    ],
)
@pytest.mark.parametrize("settled", [False, True])
def test_a_release_id_stands_for_one_question(
    ledger: BudgetLedger, change: dict[str, Any], named: str, settled: bool
) -> None:
    """The first exploit of all: two columns on one charge, under one run id or under another."""
    reserve(ledger, "first", NIGHTLY)
    if settled:
        ledger.settle("first", PURE, identity=NIGHTLY)
    head = ledger.balances.head
    with pytest.raises(LedgerError, match=named):
        reserve(ledger, "second", replace(NIGHTLY, **change))
    with pytest.raises(LedgerError, match="already has its charge"):
        reserve(ledger, "first", replace(NIGHTLY, **change))
    assert ledger.balances.head == head


def test_another_release_id_is_another_release(ledger: BudgetLedger) -> None:
    reserve(ledger, "first", NIGHTLY)
    reserve(ledger, "second", replace(NIGHTLY, release_id="week-48", columns=("hepc",)))
    assert ledger.status("visits").committed == 0.5 and clean(ledger)


def test_settling_needs_the_identity_that_was_reserved(ledger: BudgetLedger) -> None:
    reserve(ledger, "run", NIGHTLY)
    with pytest.raises(LedgerError, match="differs in its columns"):
        ledger.settle("run", PURE, identity=replace(NIGHTLY, columns=("hepc",)))
    with pytest.raises(ValueError, match="identity must be of dataset"):
        ledger.reserve("visits", "other", PURE, identity=asked("elsewhere", "x"))
    with pytest.raises(ValueError, match="commit to a key only where memoized"):
        ledger.reserve("visits", "other", PURE, identity=NIGHTLY, memoized=False)


def test_the_same_reports_at_the_same_moment(ledger: BudgetLedger) -> None:
    reserve(ledger, "first", NIGHTLY)
    with pytest.raises(LedgerError, match="is releasing this very release"):
        reserve(ledger, "second", NIGHTLY)
    ledger.settle("first", PURE, identity=NIGHTLY)
    with pytest.raises(LedgerError, match="was published by run 'first'"):
        reserve(ledger, "second", NIGHTLY)


def test_fresh_noise_adds_up(ledger: BudgetLedger) -> None:
    fresh = replace(NIGHTLY, key="")
    for run in ("first", "second"):
        reserve(ledger, run, fresh)
        ledger.settle(run, PURE, identity=fresh)
    assert ledger.status("visits").local_spent == 0.5


def test_reports_from_devices_stay_the_same_without_a_key(ledger: BudgetLedger) -> None:
    """Two collections of the same envelopes, but for a person's, show that person's report."""
    sent = replace(NIGHTLY, key="")

    def collected(run: str) -> Charge:
        return ledger.reserve("visits", run, PURE, identity=sent, memoized=True)

    collected("first")
    with pytest.raises(LedgerError, match="is releasing this very release"):
        collected("second")
    going_on = collected("first")
    assert going_on.attempts == 2 and ledger.published(sent) is None
    ledger.settle("first", PURE, identity=sent, attempt=going_on.attempt)
    with pytest.raises(LedgerError, match="was published by run 'first'"):
        collected("second")
    published = ledger.published(sent)
    assert published is not None and published.run_id == "first"
    reserve(ledger, "drawn here", sent)  # fresh noise, which is charged as such
    assert ledger.status("visits").local_committed == 0.5 and clean(ledger)


# Attempts -----------------------------------------------------------------------------------------


def test_only_the_newest_start_settles(ledger: BudgetLedger, url: str, clock: Any) -> None:
    older = reserve(ledger, "run", NIGHTLY)
    newer = reserve(BudgetLedger(url, clock=clock), "run", NIGHTLY)
    assert older.attempt != newer.attempt and newer.attempts == 2
    for end in (
        lambda: ledger.settle("run", PURE, identity=NIGHTLY, attempt=older.attempt),
        lambda: ledger.abandon("run", randomized=False, why="", attempt=older.attempt),
    ):
        with pytest.raises(LedgerError, match="another start of run 'run' took over"):
            end()
    with pytest.raises(LedgerError, match="started 2 times"):
        ledger.settle("run", PURE, identity=NIGHTLY)
    ledger.settle("run", PURE, identity=NIGHTLY, attempt=newer.attempt)
    assert ledger.status("visits").spent == 0.25 and clean(ledger)


def test_a_lost_answer_is_taken_up_again(ledger: BudgetLedger) -> None:
    """The same attempt is the same start, of fresh noise too; another one is a repetition."""
    fresh = asked("visits", "fresh")
    first = reserve(ledger, "run", fresh, attempt="token")
    head = ledger.balances.head
    assert reserve(ledger, "run", fresh, attempt="token") == first
    assert ledger.balances.head == head
    with pytest.raises(LedgerError, match="a new charge"):
        reserve(ledger, "run", fresh, attempt="other")


def test_a_run_that_began_twice_gives_no_local_epsilon_back(ledger: BudgetLedger) -> None:
    """The first start may have asked people, whatever the second one knows of itself."""
    reserve(ledger, "run", NIGHTLY)
    newer = reserve(ledger, "run", NIGHTLY)
    ledger.abandon("run", randomized=False, why="no input", attempt=newer.attempt)
    status = ledger.status("visits")
    assert (status.committed, status.local_spent) == (0.0, 0.25) and clean(ledger)


# What people lose locally -------------------------------------------------------------------------


def rounds(event: Any, count: int) -> Any:
    return dp_accounting.SelfComposedDpEvent(event, count)


def test_the_local_epsilon_is_the_events(ledger: BudgetLedger) -> None:
    assert reserve(ledger, "run", asked("visits", "run"), rounds(MANY, 3)).local_epsilon == 6.0
    with pytest.raises(BudgetExceededError, match="local epsilons"):
        reserve(ledger, "more", asked("visits", "more"), rounds(MANY, 8))
    with pytest.raises(TypeError, match="local_epsilon"):
        reserve(ledger, "more", asked("visits", "more"), MANY, local_epsilon=0.1)


def test_nothing_is_no_charge(ledger: BudgetLedger) -> None:
    for event in (dp_accounting.NoOpDpEvent(), rounds(dp_accounting.NoOpDpEvent(), 5)):
        with pytest.raises(ValueError, match="releases nothing"):
            reserve(ledger, "run", asked("visits", "run"), event)


def test_a_part_is_free_where_another_part_of_its_release_was_charged_for_it(
    ledger: BudgetLedger,
) -> None:
    """Others of its reports are refused; nothing else becomes free by it."""
    nothing = dp_accounting.NoOpDpEvent()
    one, two = (asked("visits", "search", part=f"level {i}") for i in (1, 2))
    with pytest.raises(LedgerError, match="no part of release 'search' is charged here"):
        reserve(ledger, "search/2", two, nothing, memoized=True)
    with pytest.raises(ValueError, match="releases nothing"):
        reserve(ledger, "search/2", two, rounds(nothing, 5), memoized=True)

    reserve(ledger, "search", one, MANY, memoized=True)
    with pytest.raises(ValueError, match="releases nothing"):
        ledger.settle("search", nothing, identity=one)
    ledger.settle("search", MANY, identity=one, report_digest="11")
    before = ledger.status("visits")
    reserve(ledger, "search/2", two, nothing, memoized=True)
    begun = reserve(ledger, "search/2", two, nothing, memoized=True)  # killed, and begun again
    ledger.settle("search/2", nothing, identity=two, attempt=begun.attempt, report_digest="22")
    assert ledger.published(two).report_digest == "22"  # type: ignore[union-attr]
    after = ledger.status("visits")
    assert (after.committed, after.local_spent) == (before.committed, before.local_spent)
    with pytest.raises(LedgerError, match="was published by run 'search/2'"):
        reserve(ledger, "again", two, nothing, memoized=True)
    assert clean(ledger) and "run 'search/2' is free: another part" in str(audit(ledger.rows()))


@pytest.mark.parametrize("begun", [False, True])
def test_an_abandoned_part_pays_for_no_other(ledger: BudgetLedger, begun: bool) -> None:
    """Neither for one that is reserved after it, nor for one that was reserved before and ends or
    starts again after it."""
    nothing = dp_accounting.NoOpDpEvent()
    one, two = (asked("visits", "search", part=f"level {i}") for i in (1, 2))
    reserve(ledger, "search", one, MANY, memoized=True)
    if begun:
        reserve(ledger, "search/2", two, nothing, memoized=True)
    ledger.abandon("search", randomized=True, why="too few came")
    with pytest.raises(LedgerError, match="abandoned charge pays for no part"):
        reserve(ledger, "search/2", two, nothing, memoized=True)
    if begun:
        with pytest.raises(LedgerError, match="abandoned charge pays for no part"):
            ledger.settle("search/2", nothing, identity=two)
        ledger.abandon("search/2", randomized=False, why="its first part was abandoned")
    assert ledger.status("visits").spent == 0.0 and clean(ledger)


def test_a_charge_that_pays_for_a_settled_part_is_not_abandoned(ledger: BudgetLedger) -> None:
    nothing = dp_accounting.NoOpDpEvent()
    one, two, three = (asked("visits", "search", part=f"level {i}") for i in (1, 2, 3))
    reserve(ledger, "search", one, MANY, memoized=True)
    reserve(ledger, "search/2", two, nothing, memoized=True)
    ledger.settle("search/2", nothing, identity=two)
    with pytest.raises(LedgerError, match="run 'search' pays for run 'search/2'"):
        ledger.abandon("search", randomized=True, why="too few came")
    reserve(ledger, "search/3", three, MANY, memoized=True)  # which pays as well
    ledger.abandon("search", randomized=True, why="too few came")
    assert ledger.status("visits").local_committed == 4.0 and clean(ledger)


def test_audits_find_a_part_that_is_free_though_no_part_of_its_release_was_charged(
    ledger: BudgetLedger,
) -> None:
    """It was to be charged when the part said so, and was given back."""
    one, two = (asked("visits", "search", part=f"level {i}") for i in (1, 2))
    reserve(ledger, "search", one, MANY, memoized=True)
    reserve(ledger, "search/2", two, dp_accounting.NoOpDpEvent(), memoized=True)
    assert clean(ledger)
    ledger.abandon("search", randomized=True, why="too few came")
    assert "run 'search/2' says that another part of 'search' was charged for it: none was" in str(
        audit(ledger.rows())
    )
    assert not clean(ledger)


def test_a_settlement_lowers_nothing_without_a_proof(ledger: BudgetLedger) -> None:
    cheaper = ShuffledDpEvent(LocalRandomizerDpEvent(0.1), 2_000)
    run = asked("visits", "run")
    reserve(ledger, "run", run, FEW)
    assert ledger.settle("run", cheaper, identity=run).local_epsilon == 2.0
    assert ledger.status("visits").local_spent == 2.0 and clean(ledger)


@pytest.mark.parametrize(("randomized", "local"), [(None, 4.0), (0, 0.0)])
def test_rounds_that_never_began_are_not_spent(
    ledger: BudgetLedger, randomized: int | None, local: float
) -> None:
    run = asked("visits", "run")
    reserve(ledger, "run", run, rounds(MANY, 5))
    charge = ledger.settle("run", rounds(MANY, 2), identity=run, proof="2 rounds began",
                           num_randomized=randomized)  # fmt: skip
    assert charge.local_epsilon == local == ledger.status("visits").local_spent
    assert clean(ledger)


def test_a_trusted_server_has_no_local_epsilon(ledger: BudgetLedger) -> None:
    noise = dp_accounting.GaussianDpEvent(30.0)
    run = asked("visits", "run")
    with pytest.raises(BudgetExceededError, match=r"this run has none \(it is infinite\)"):
        reserve(ledger, "run", run, noise)
    sent = rounds(LocalRandomizerDpEvent(3.0), 2)
    charge = reserve(ledger, "run", run, noise, local_event=sent)
    assert charge.local_epsilon == 6.0
    ledger.settle("run", noise, identity=run)
    assert ledger.status("visits").local_spent == 6.0
    ledger.set_budget("pictures", epsilon=3.0, delta=1e-6)  # no limit
    ledger.reserve("pictures", "other", noise, identity=asked("pictures", "other"))
    assert ledger.status("pictures").local_committed == float("inf") and clean(ledger)


def test_a_run_that_sends_something_else_does_not_start_again(ledger: BudgetLedger) -> None:
    """What clients send is part of what was reserved, also where the server publishes the same."""
    noise = dp_accounting.GaussianDpEvent(30.0)
    reserve(ledger, "run", NIGHTLY, noise, local_event=LocalRandomizerDpEvent(1.0))
    for sent in (LocalRandomizerDpEvent(3.0), None):
        with pytest.raises(LedgerError, match="already has its charge"):
            reserve(ledger, "run", NIGHTLY, noise, local_event=sent)
    ledger.set_quota("visits", "team", share=0.5)
    for other in ({"quota": "team"}, {"count": 1}):
        with pytest.raises(LedgerError, match="already has its charge"):
            reserve(ledger, "run", NIGHTLY, noise, local_event=LocalRandomizerDpEvent(1.0), **other)
    again = reserve(ledger, "run", NIGHTLY, noise, local_event=LocalRandomizerDpEvent(1.0))
    assert again.attempts == 2 and again.reserved_local == 1.0


# Blocks -------------------------------------------------------------------------------------------

HOURS = asked("visits", "hours", key=KEY)


def test_a_block_is_one_row_and_each_part_ends_once(ledger: BudgetLedger) -> None:
    before = ledger.balances.head.count
    block = reserve(ledger, "hours", HOURS, PURE, count=5)
    assert ledger.balances.head.count == before + 1
    assert ledger.status("visits").local_committed == 1.25
    one, two, three, late = (HOURS.of_window(i, i + 1) for i in range(4))
    how = {"attempt": block.attempt}
    first = ledger.settle("hours", PURE, identity=one, **how)
    assert ledger.settle("hours", PURE, identity=one, **how) == first
    with pytest.raises(LedgerError, match="settled already"):
        ledger.settle("hours", LocalRandomizerDpEvent(0.2), identity=one, **how)
    ledger.abandon("hours", part=two.part, randomized=True, why="too few", **how)
    ledger.abandon("hours", count=1, randomized=True, why="ended", **how)
    ledger.settle("hours", PURE, identity=three, **how)
    assert ledger.charge("hours").count == 1
    ledger.abandon("hours", randomized=False, why="ended", **how)
    with pytest.raises(BlockUsedUpError):
        ledger.settle("hours", PURE, identity=late, **how)
    status = ledger.status("visits")
    assert (status.spent, status.local_spent, status.num_open) == (0.5, 1.0, 0)
    assert ledger.charge("hours", one.part) == first and clean(ledger)


def test_a_window_is_not_released_by_two_blocks(ledger: BudgetLedger) -> None:
    """A stream that is continued under another name keeps its windows apart."""
    reserve(ledger, "2026", HOURS, PURE, count=1)
    with pytest.raises(LedgerError, match="is releasing"):
        reserve(ledger, "2027", HOURS, PURE, count=2)
    noon, night = HOURS.of_window(12, 13), HOURS.of_window(0, 1)
    ledger.settle("2026", PURE, identity=noon)
    reserve(ledger, "2027", HOURS, PURE, count=2)
    with pytest.raises(LedgerError, match="was published by run '2026/window 12 13'"):
        ledger.settle("2027", PURE, identity=noon)
    ledger.settle("2027", PURE, identity=night)
    assert clean(ledger)


# A second publication -----------------------------------------------------------------------------


def published(ledger: BudgetLedger) -> None:
    reserve(ledger, "run", NIGHTLY, FEW)
    ledger.settle("run", MANY, identity=NIGHTLY, report_digest=DIGEST)


def test_equal_reports_again_are_free(ledger: BudgetLedger) -> None:
    published(ledger)
    head = ledger.balances.head
    charge = ledger.republish("run", identity=NIGHTLY, report_digest=DIGEST)
    assert (charge.published, ledger.balances.head) == (1, head)


def test_other_people_are_priced_in_place_of_the_first_charge(ledger: BudgetLedger) -> None:
    published(ledger)
    before = ledger.status("visits")
    with pytest.raises(LedgerError, match="differ from those published"):
        ledger.republish("run", identity=NIGHTLY, report_digest=OTHER)
    charge = ledger.republish("run", FEW, identity=NIGHTLY, report_digest=OTHER, cells=[2000])
    after = ledger.status("visits")
    assert charge.published == 2 and before.spent < after.spent
    assert after.spent == pytest.approx(before.epsilon_with(FEW), rel=0.5)
    assert after.spent < before.epsilon_with(FEW)  # it is not added
    assert after.local_spent == before.local_spent == 2.0  # the same reports
    assert ledger.republish("run", identity=NIGHTLY, report_digest=OTHER) == charge
    assert clean(ledger)


def test_equal_reports_of_which_more_is_shown_are_charged(ledger: BudgetLedger) -> None:
    """A group that was too small for the first publication; told again, it is free again."""
    published(ledger)
    before = ledger.status("visits")
    free = ledger.republish("run", MANY, identity=NIGHTLY, report_digest=DIGEST)
    assert free.published == 1 and ledger.status("visits").loss == before.loss
    charge = ledger.republish("run", FEW, identity=NIGHTLY, report_digest=DIGEST, published=1)
    after = ledger.status("visits")
    assert charge.published == 2 and before.spent < after.spent
    assert after.local_spent == before.local_spent
    again = ledger.republish("run", FEW, identity=NIGHTLY, report_digest=DIGEST, published=1)
    assert again == charge and ledger.status("visits").loss == after.loss and clean(ledger)


def test_a_second_publication_never_costs_less(ledger: BudgetLedger) -> None:
    published(ledger)
    before = ledger.status("visits").loss
    more = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 10**9)
    ledger.republish("run", more, identity=NIGHTLY, report_digest=OTHER)
    assert ledger.status("visits").loss == before and clean(ledger)


def test_reports_that_nobody_knows_are_not_equal(ledger: BudgetLedger) -> None:
    """Settled without a digest of the reports: whether they are the same cannot be told."""
    reserve(ledger, "run", NIGHTLY, MANY)
    ledger.settle("run", MANY, identity=NIGHTLY)
    with pytest.raises(LedgerError, match="differ from those published"):
        ledger.republish("run", identity=NIGHTLY, report_digest=DIGEST)


def test_other_reports_that_no_key_decides_have_no_price(ledger: BudgetLedger) -> None:
    """Envelopes of devices: whatever event is given, two sums of them show who came in between."""
    drawn = asked("visits", "nightly", columns=("hiv",))
    reserve(ledger, "run", drawn, FEW, memoized=True)
    ledger.settle("run", MANY, identity=drawn, report_digest=DIGEST)
    assert ledger.republish("run", MANY, identity=drawn, report_digest=DIGEST).published == 1
    with pytest.raises(LedgerError, match="differ from those published"):
        ledger.republish("run", FEW, identity=drawn, report_digest=OTHER)


@pytest.mark.parametrize("identity", [NIGHTLY, replace(NIGHTLY, key="")], ids=["key", "no key"])
def test_a_digest_of_an_earlier_version_proves_nothing(
    ledger: BudgetLedger, identity: ReleaseIdentity
) -> None:
    reserve(ledger, "run", identity, FEW, memoized=True)
    ledger.settle("run", MANY, identity=identity, report_digest="5a" * 16)
    for digest, event in (("5a" * 16, None), ("5a" * 16, MANY), (DIGEST, None)):
        with pytest.raises(LedgerError, match="Copy the files that were published then"):
            ledger.republish("run", event, identity=identity, report_digest=digest)


def test_what_cannot_be_published_again(ledger: BudgetLedger) -> None:
    with pytest.raises(LedgerError, match="no finite epsilon"):
        ledger.republish("run", FEW, identity=NIGHTLY, report_digest=OTHER, reason="values")
    with pytest.raises(LedgerError, match="no reservation"):
        ledger.republish("run", FEW, identity=NIGHTLY, report_digest=OTHER)
    reserve(ledger, "run", NIGHTLY)
    with pytest.raises(LedgerError, match="not a settled release"):
        ledger.republish("run", FEW, identity=NIGHTLY, report_digest=OTHER)
    dear = rounds(LocalRandomizerDpEvent(1.0), 9)
    ledger.settle("run", PURE, identity=NIGHTLY, report_digest=DIGEST)
    with pytest.raises(BudgetExceededError):
        ledger.republish("run", dear, identity=NIGHTLY, report_digest=OTHER)


# Rows that lie about it ---------------------------------------------------------------------------


def forged(rows: list[Row], kind: str, **body: Any) -> list[Row]:
    return [*rows, next_row(rows[-1].head, kind, body)]


LIES: list[tuple[str, dict[str, Any]]] = [
    ("reserve", {"local_epsilon": 0.1}),
    ("reserve", {"population": "others"}),
    ("reserve", {"period": 1}),
    ("reserve", {"release_key": "00"}),
    ("reserve", {"count": 0}),
    ("reserve", {"loss": {"divergences": [0.0], "pure": 0.0}}),
    ("settle", {"local_epsilon": 0.1}),
    ("settle", {"gives_back_local": 9.0}),
    ("settle", {"gives_back": {"divergences": [1.0] * 5, "pure": 1.0}}),
    ("settle", {"count": 2}),
    ("settle", {"period": 3}),
    ("settle", {"quota": "x"}),
]


@pytest.mark.parametrize(("kind", "lie"), LIES)
def test_a_full_reading_believes_no_row(
    ledger: BudgetLedger, kind: str, lie: dict[str, Any]
) -> None:
    run = asked("visits", "run")
    reserve(ledger, "run", run, MANY)
    rows = ledger.rows()
    body = rows[-1].body
    if kind == "settle":
        ledger.settle("run", MANY, identity=run)
        body = ledger.rows()[-1].body
    else:
        rows = rows[:-1]
    assert audit(forged(rows, kind, **body)).clean
    report = audit(forged(rows, kind, **{**body, **lie}))
    assert [c.outcome for c in report.checks if "follows" in c.name] == ["failed"]


def test_a_checkpoint_that_lies_is_found(ledger: BudgetLedger, url: str, clock: Any) -> None:
    run = asked("visits", "run")
    reserve(ledger, "run", run, PURE)
    ledger.checkpoint()
    *rows, last = ledger.rows()
    assert clean(ledger)
    books = last.body["books"]
    books["populations"]["visits"]["accounts"] = []
    report = audit(forged(rows, "checkpoint", **{**last.body, "books": books}))
    assert not report.clean
    with pytest.raises(LedgerCorruptedError):
        from beam_ldp.ledger import Balances

        Balances.from_checkpoint(replace(last, text=last.text.replace("visits", "wisits")))
