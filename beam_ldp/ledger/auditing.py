"""The audit: everything recomputed from stored rows, every check with its outcome.

Works on rows alone: on a database, on a copy of it, on what somebody sent. It trusts nothing that
the rows say of themselves but the events, and prices those anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.ledger.anchors import Anchor
from beam_ldp.ledger.charges import Budget, Charge
from beam_ldp.ledger.losses import event_digest, limit
from beam_ldp.ledger.people_count import PeopleCount
from beam_ldp.ledger.rows import BUDGET, RESERVE, SETTLE, LedgerCorruptedError, Row, faults
from beam_ldp.ledger.state import LedgerState, Population
from beam_ldp.ledger.status import epsilon_of, fits_locally

Outcome = Literal["passed", "failed", "no evidence"]
CLEAN, FAULTY, UNREADABLE = 0, 1, 2

ANCHOR_LAG = 64  # rows; as for a sink (`sinks.Lag`)
_PRINTED_TOLERANCE = 1e-6  # relative; what a printed price may lie below the recomputed one


@dataclass(frozen=True)
class Check:
    """One check and what came of it.

    Attributes:
        name: what was checked, in plain words.
        outcome: "no evidence" where nothing could be checked.
        findings: each fault, or why there is no evidence.
    """

    name: str
    outcome: Outcome
    findings: tuple[str, ...] = ()


@dataclass(frozen=True)
class CumulativePoint:
    """Where a population stood after a row.

    Attributes:
        number, time: of the row.
        committed: epsilon at the delta of the budget then in force, reservations included.
        local: sum of local epsilons per person, reservations included.
        budget: epsilon of the budget then in force.
    """

    number: int
    time: str
    committed: float
    local: float
    budget: float


@dataclass(frozen=True)
class Coverage:
    """How much of a ledger is anchored elsewhere.

    Attributes:
        covered, rows: rows that the newest sound anchor covers, of how many.
        time: when it was left; "" if there is none.
    """

    covered: int
    rows: int
    time: str

    def __str__(self) -> str:
        if not self.covered:
            return f"no anchor covers any of {self.rows:,} rows"
        return f"covers {self.covered:,} of {self.rows:,} rows, last anchored at {self.time}"


@dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    Attributes:
        checks: in a fixed order.
        state: the ledger as its rows tell it; up to the first fault.
        curves: per population, where it stood after every row.
        prices: per run, the recomputed central epsilon at the delta that was printed for it.
        num_rows: rows that were read.
        coverage: what anchors cover; None if none were given.
    """

    checks: tuple[Check, ...]
    state: LedgerState
    curves: Mapping[str, tuple[CumulativePoint, ...]]
    prices: Mapping[str, float]
    num_rows: int
    coverage: Coverage | None = None

    @property
    def clean(self) -> bool:
        """Whether nothing was found. Missing evidence is not a finding."""
        return all(check.outcome != "failed" for check in self.checks)

    @property
    def exit_code(self) -> int:
        return CLEAN if self.clean else FAULTY


def audit(
    rows: Sequence[Row],
    anchors: Iterable[Anchor] | None = None,
    *,
    anchor_lag: int = ANCHOR_LAG,
    elsewhere: Iterable[Anchor] = (),
    public_key: Ed25519PublicKey | None = None,
    tracked: Mapping[str, Mapping[str, Any]] | None = None,
    people: Mapping[str, PeopleCount] | None = None,
) -> AuditReport:
    """Check everything that can be checked.

    Args:
        rows: all of a ledger, in the order of their numbers.
        anchors: heads that were kept elsewhere; None if none were given. None in what was given
            is a fault.
        anchor_lag: rows after the newest anchor that may have none.
        elsewhere: heads that a tracking server holds; those are never signed.
        public_key: the auditor's; `anchors` that it did not sign are then faults, and changes of
            budgets that it has accepted are none.
        tracked: per run id, what a tracking server shows: `epsilon`, `delta`, `local_epsilon`,
            `event_sha256`; None if none was asked.
        people: per population, what each person was charged locally in its latest period that has
            such a count, counted anew from hashed ids; None if nobody did.
    """
    replay = _Replay()
    chain = list(faults(rows))
    if not chain:
        replay.run(rows)
    state = replay.state
    given = None if anchors is None else list(anchors)
    anchored, coverage = _anchored(
        rows, given, list(elsewhere), state.ledger_id, public_key, anchor_lag
    )
    checks = [
        _check("the rows are chained without a gap or a change", chain),
        _check("every row follows from the rows before it", replay.broken),
        anchored,
        _check("no budget was ever exceeded", replay.exceeded),
        _check("no run released more than it had reserved", _overspent(state)),
        _raised(replay, public_key),
        _printed(state, replay.prices),
        _tracked(state, tracked),
        _people(state, people),
    ]
    curves = {name: tuple(points) for name, points in replay.curves.items()}
    return AuditReport(tuple(checks), state, curves, replay.prices, len(rows), coverage)


@dataclass
class _Replay:
    """The ledger's life again, row by row, with prices of our own."""

    state: LedgerState = field(default_factory=LedgerState)
    broken: list[str] = field(default_factory=list)
    exceeded: list[str] = field(default_factory=list)
    raised: list[tuple[Row, str]] = field(default_factory=list)
    prices: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[CumulativePoint]] = field(default_factory=dict)

    def run(self, rows: Sequence[Row]) -> None:
        for row in rows:
            try:
                self.state.apply([row])
                self._look(row)
            except LedgerCorruptedError as error:
                self.broken.append(str(error))
                return
            except Exception as error:  # a forged row may hold anything
                self.broken.append(f"row {row.number} has no meaning ({type(error).__name__})")
                return

    def _look(self, row: Row) -> None:
        if row.kind == BUDGET:
            self._budget_changed(self.state.populations[row.body["population"]], row)
        elif "run_id" in row.body:
            charge = self.state.charge(row.body["run_id"])
            if row.kind == SETTLE:
                self._price(charge)
            self._stand(self.state.populations[charge.population], row, charge.period)

    def _point(self, population: Population, row: Row, period: int) -> CumulativePoint:
        """Where the population stands, as a point of its curve."""
        budget = population.budget
        assert budget is not None
        committed = epsilon_of(population.loss(period), budget)
        local = population.local_loss(period)
        found = CumulativePoint(row.number, row.body["time"], committed, local, budget.epsilon)
        self.curves.setdefault(population.name, []).append(found)
        return found

    def _stand(self, population: Population, row: Row, period: int) -> None:
        budget = population.budget
        assert budget is not None
        point = self._point(population, row, period)
        committed, local = point.committed, point.local
        # A settlement that released too much is told apart: see `_overspent`.
        if row.kind == RESERVE and committed > limit(budget.epsilon):
            self.exceeded.append(
                f"row {row.number}: {population.name!r} stood at epsilon = {committed:.4g} of "
                f"{budget.epsilon:g}"
            )
        if row.kind == RESERVE and not fits_locally(local, budget):
            self.exceeded.append(
                f"row {row.number}: {population.name!r} stood at local epsilons of {local:.4g} of "
                f"{budget.local_epsilon:g}"
            )

    def _budget_changed(self, population: Population, row: Row) -> None:
        if population.charges:
            self._point(population, row, population.budgets[-1].period_of(row.body["time"]))
        if len(population.budgets) < 2:
            return
        before, now = population.budgets[-2:]
        looser = now.epsilon > before.epsilon or now.delta > before.delta
        if before.local_epsilon is not None:
            looser |= now.local_epsilon is None or now.local_epsilon > before.local_epsilon
        # Charges fall into other periods, or are read at orders that were chosen afterwards.
        looser |= now.period_days not in (before.period_days, None) or now.orders != before.orders
        if looser and population.charges:
            said = (
                f"row {row.number}: {now.by or 'somebody'} changed the budget of "
                f"{population.name!r} from epsilon = {before.epsilon:g} at delta = "
                f"{before.delta:g} to {now.epsilon:g} at {now.delta:g}"
                f"{_otherwise(before, now)} after {len(population.charges)} charges; "
                f"reason given: {now.why or 'none'}"
            )
            self.raised.append((row, said))

    def _price(self, charge: Charge) -> None:
        delta = charge.about.get("delta")
        if charge.settled is not None and isinstance(delta, (int, float)) and 0 < delta < 1:
            event = event_from_json(charge.settled)
            self.prices[charge.run_id] = float(event_epsilon(event, float(delta)))


def _otherwise(before: Budget, now: Budget) -> str:
    """What else of a budget was changed."""
    names = ("local_epsilon", "period_days", "orders")
    changed = [name for name in names if getattr(before, name) != getattr(now, name)]
    return f" (and its {', '.join(changed)})" if changed else ""


def _check(name: str, findings: Sequence[str]) -> Check:
    return Check(name, "failed" if findings else "passed", tuple(findings))


def _raised(replay: _Replay, key: Ed25519PublicKey | None) -> Check:
    """Raises after the fact. What the auditor has accepted is told, and is no fault."""
    name = "no budget was raised to make room for what was spent"
    faults, accepted = [], []
    for row, said in replay.raised:
        about = [a for a in replay.state.acceptances if a.row == row.number]
        doubts = [(a, a.fault(row, replay.state.ledger_id, key)) for a in about]
        believed = [a for a, doubt in doubts if doubt is None]
        if believed:
            by, why = believed[0].by, believed[0].why or "none"
            accepted.append(f"{said}. Accepted by the auditor ({by}); reason given: {why}")
        else:
            faults.append(". ".join([said, *(doubt for _, doubt in doubts if doubt)]))
    return Check(name, "failed" if faults else "passed", (*faults, *accepted))


def _anchored(
    rows: Sequence[Row],
    anchors: list[Anchor] | None,
    elsewhere: list[Anchor],
    ledger_id: str,
    public_key: Ed25519PublicKey | None,
    lag: int,
) -> tuple[Check, Coverage | None]:
    name = "the rows are those that were anchored elsewhere"
    if anchors is None and not elsewhere:
        why = (
            "no anchor was given: there is no evidence against an operator who cut the tail or "
            "wrote everything anew"
        )
        return Check(name, "no evidence", (why,)), None
    findings, sound = [], []
    for anchor, is_ours in [*((a, True) for a in anchors or ()), *((a, False) for a in elsewhere)]:
        fault = anchor.fault(rows, ledger_id)
        if fault is None and is_ours and public_key is not None:
            fault = anchor.signature_fault(public_key)
        if fault is None:
            sound.append(anchor)
        else:
            findings.append(fault)
    if anchors is not None and not anchors:
        findings.append("what was named holds no anchor: it was emptied, or is another place")
    best = max(sound, key=lambda anchor: anchor.count, default=None)
    if best is None:
        return _check(name, findings), Coverage(0, len(rows), "")
    found = Coverage(best.count, len(rows), best.time)
    charged = any(row.kind == RESERVE for row in rows)
    if len(rows) - best.count > lag:
        findings.append(f"the anchors are stale: {found}; at most {lag:,} rows may have none")
    elif charged and not any(row.kind == RESERVE for row in rows[: best.count]):
        findings.append(f"the anchors are stale: {found}, and no charge")
    if findings:
        return _check(name, findings), found
    return Check(name, "passed", (str(found),)), found


def _charges(state: LedgerState) -> list[Charge]:
    found = [c for p in state.populations.values() for c in p.charges.values()]
    return sorted(found, key=lambda charge: charge.number)


def _overspent(state: LedgerState) -> list[str]:
    return [f"run {c.run_id!r} of {c.dataset!r}" for c in _charges(state) if c.overspent]


def _printed(state: LedgerState, prices: Mapping[str, float]) -> Check:
    findings, seen = [], 0
    for charge in _charges(state):
        printed, price = charge.about.get("epsilon"), prices.get(charge.run_id)
        if price is None or not isinstance(printed, (int, float)):
            continue
        seen += 1
        if printed < price * (1 - _PRINTED_TOLERANCE):
            findings.append(
                f"run {charge.run_id!r} printed epsilon = {printed:.6g}; its event costs "
                f"{price:.6g}"
            )
    name = "every price that was printed is at least the price of what was released"
    if not seen:
        return Check(name, "no evidence", ("no run says what it printed",))
    return _check(name, findings)


def _tracked(
    state: LedgerState,
    tracked: Mapping[str, Mapping[str, Any]] | None,
) -> Check:
    title = "the tracking server shows the same"
    if tracked is None:
        return Check(title, "no evidence", ("no tracking server was asked",))
    groups: dict[str, list[Charge]] = {}
    for charge in _charges(state):
        if charge.status == "settled":
            groups.setdefault(charge.group, []).append(charge)
    findings = []
    untracked = 0
    for name, charges in groups.items():
        if name not in tracked and charges[-1].about.get("untracked"):
            untracked += 1  # it said so when it was reserved
        elif name not in tracked:
            findings.append(f"run {name!r} is in the ledger and not on the server")
        else:
            findings += _differences(name, charges, tracked[name])
    findings += [
        f"run {name!r} is on the server and not in the ledger"
        for name in tracked
        if name not in groups
    ]
    if untracked:
        findings = [*findings, f"{untracked} runs were not to be logged, and said so (--no-mlflow)"]
    return Check(title, "failed" if len(findings) > bool(untracked) else "passed", tuple(findings))


def _people(state: LedgerState, people: Mapping[str, PeopleCount] | None) -> Check:
    title = "what each person was charged locally is what hashed ids say"
    told = {p.name: p.people[max(p.people)] for p in state.populations.values() if p.people}
    if people is None or not told:
        why = "nobody was counted" if not told else "no hashed ids were given (--people-store)"
        return Check(title, "no evidence", (why,))
    findings = []
    for name, before in told.items():
        now = people.get(name)
        if now is None or (now.digest, now.covered) != (before.digest, before.covered):
            findings.append(f"the hashed ids of {name!r} are not those that were counted")
        elif now != before:
            findings.append(
                f"{name!r}: the ledger says that nobody was charged more than "
                f"{before.maximum:g}; hashed ids say {now.maximum:g}, or another distribution"
            )
    return _check(title, findings)


def _differences(name: str, charges: Sequence[Charge], shown: Mapping[str, Any]) -> list[str]:
    """What a server shows otherwise; of a run that was charged in blocks, only their sum."""
    local = sum(charge.local_total for charge in charges)
    ours: dict[str, Any] = {"local_epsilon": local if math.isfinite(local) else None}
    if charges[0].group == charges[0].run_id:
        ours |= {key: charges[0].about.get(key) for key in ("epsilon", "delta")}
        ours["event_sha256"] = event_digest(charges[0].settled)
    return [
        f"run {name!r} shows {key} = {shown[key]} and not {value}"
        for key, value in ours.items()
        if shown.get(key) is not None and value is not None and not _equal(shown[key], value)
    ]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)
