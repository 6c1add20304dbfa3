"""The audit: everything recomputed from stored rows, every check with its outcome.

Works on rows alone: on a database, on a copy of it, on what somebody sent. It trusts nothing that
the rows say of themselves but the events, and prices those anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.ledger import kinds
from beam_ldp.ledger.accounts import PeopleCount
from beam_ldp.ledger.admission import status_of
from beam_ldp.ledger.charges import Charge
from beam_ldp.ledger.connection import signer_of
from beam_ldp.ledger.losses import event_digest, released
from beam_ldp.ledger.recomputing import CumulativePoint as CumulativePoint
from beam_ldp.ledger.recomputing import (
    Replay,
    Repricing,
    charged_twice,
    free_parts,
    price,
    reservations,
    stated_by,
    two_questions,
)
from beam_ldp.ledger.rows import Anchor, Row, faults
from beam_ldp.ledger.state import LedgerState
from beam_ldp.ledger.succession import Succession
from beam_ldp.verifier.verify import CONFIRMED, REFUTED, verify

Outcome = Literal["passed", "failed", "no evidence"]
CLEAN, FAULTY, UNREADABLE = 0, 1, 2

ANCHOR_LAG = 64  # rows; as for a sink (`sinks.Lag`)
CLOCK_TOLERANCE = timedelta(days=1)  # by which an anchor's clock may be behind a row's
_PRINTED_TOLERANCE = 1e-6  # relative; what a printed price may lie below the recomputed one


@dataclass(frozen=True)
class Check:
    """One check and what came of it.

    Attributes:
        name: what was checked, in plain words.
        outcome: "no evidence" where nothing could be checked.
        findings: each fault; or why there is no evidence, or what else an auditor should know.
    """

    name: str
    outcome: Outcome
    findings: tuple[str, ...] = ()


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
    tracked: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    budgets: Iterable[Mapping[str, Any]] = (),
    people: Mapping[str, PeopleCount] | None = None,
    sample: int | None = None,
    workers: int = 1,
) -> AuditReport:
    """Check everything that can be checked.

    The chain and all sums take about 0.2 ms a row. Distinct events are priced once each.

    Args:
        rows: all of a ledger, in the order of their numbers.
        anchors: heads that were kept elsewhere; None if none were given. None in what was given
            is a fault.
        anchor_lag: number of rows after the newest anchor that may lack one.
        elsewhere: heads that a tracking server holds; those are never signed.
        public_key: the auditor's; `anchors` that it did not sign are then faults, and changes of
            budgets that it has accepted are none.
        tracked: per run id, what each run of a tracking server shows of it, one for each
            publication: `epsilon`, `delta`, `local_epsilon`, `event_sha256`, `identity`; None if
            none was asked.
        budgets: what such a server shows of budgets, each: `run_id`, `ledger_id`, `population`,
            `step`, `period`, `spent`, `local_spent`.
        people: per population, what each person was charged locally in its latest period that has
            such a count, counted anew from hashed ids; None if nobody did.
        sample: price so many distinct events, drawn at random; None: all.
        workers: processes that price. More than one start as new interpreters: call this behind
            `if __name__ == "__main__"`.
    """
    replay, chain = _replayed(rows)
    state = replay.state
    sound = rows[: state.head.count]
    repricing = _repriced(rows, state, not chain, sample, workers)
    prices = _prices(state, repricing)
    given, others = None if anchors is None else list(anchors), list(elsewhere)
    anchored, coverage = _anchored(rows, given, others, _id(state, rows), public_key, anchor_lag)
    checks = [
        _check("the rows are chained without a gap or a change", chain),
        _check("every row follows from the rows before it", replay.broken),
        anchored,
        _clocks(replay, rows, [*(given or ()), *others]),
        _signed(sound),
        _succession(sound, state, public_key),
        _priced(repricing, state),
        _check("every local epsilon is at least that of the event", repricing.local),
        _check("no budget was ever exceeded", replay.exceeded),
        _quotas(replay),
        _check("no run released more than it had reserved", _overspent(state)),
        _check("no release id stands for two questions", two_questions(state)),
        _check("no memoized release was charged as two", charged_twice(state)),
        _raised(replay, public_key),
        _printed(state, prices),
        _certified(state, sample),
        _tracked(sound, state, tracked, budgets),
        _people(state, people),
    ]
    curves = {name: tuple(points) for name, points in replay.curves.items()}
    return AuditReport(tuple(checks), state, curves, prices, len(rows), coverage)


def _replayed(rows: Sequence[Row]) -> tuple[Replay, list[str]]:
    """The ledger's life again, and what is wrong with the chain: if anything, nothing follows."""
    replay = Replay()
    replay.run(rows)
    chain = list(faults(rows)) if replay.broken else []
    return (Replay(), chain) if chain else (replay, chain)


def _repriced(
    rows: Sequence[Row], state: LedgerState, chained: bool, sample: int | None, workers: int
) -> Repricing:
    """What charges cost, worked out anew; of the first row that does not follow too."""
    sound = rows[: state.head.count]
    repricing = stated_by(sound, state)
    if chained:
        repricing.look_at_next(rows[len(sound) : len(sound) + 1])
    price(repricing, sample=sample, workers=workers)
    return repricing


def _id(state: LedgerState, rows: Sequence[Row]) -> str:
    """The ledger's id; what the first row says, of a ledger that does not hold together."""
    return state.ledger_id or (str(rows[0].body.get("ledger_id", "")) if rows else "")


def _prices(state: LedgerState, repricing: Repricing) -> dict[str, float]:
    """Per run, the recomputed price at the delta that was printed for it."""
    found = {}
    for charge in reservations(state):
        delta = charge.about.get("delta")
        orders = state.populations[charge.population].granted.orders
        if charge.settled is not None and isinstance(delta, (int, float)):
            epsilon = repricing.epsilon(charge.settled, orders, float(delta))
            if epsilon is not None:
                found[charge.run_id] = epsilon
    return found


def _priced(repricing: Repricing, state: LedgerState) -> Check:
    name = "every row states at least what its event costs"
    uncharged, said = free_parts(state)
    faults = repricing.findings() + uncharged
    total, done = len(repricing.stated), len(repricing.answers)
    if done < total:
        said.append(f"{done:,} of {total:,} distinct events were recomputed, drawn at random")
    return _check(name, faults, () if faults else said)


def _quotas(replay: Replay) -> Check:
    name = "no share of a budget was exceeded"
    if not any(population.quotas for population in replay.state.populations.values()):
        return _nothing(name, "no share is kept for anybody")
    return _check(name, replay.quotas)


def _clocks(replay: Replay, rows: Sequence[Row], anchors: Sequence[Anchor]) -> Check:
    """Time that somebody vouched for is told; time that an anchor contradicts is a fault."""
    name = "no row is of a later time than its anchor"
    findings = []
    for anchor in anchors:
        if 0 < anchor.count <= len(rows):
            time = str(rows[anchor.count - 1].body.get("time", ""))
            if _later(time, anchor.time):
                findings.append(
                    f"row {anchor.count - 1} says {time}, and was there at {anchor.time}: a clock "
                    "was ahead, and budgets may have been granted anew by it"
                )
    if not anchors:
        return _nothing(name, "no anchor was given", *replay.clocks)
    return _check(name, findings, replay.clocks)


def _later(time: str, anchored: str) -> bool:
    """Whether a row's time is later than its anchor's by more than clocks differ."""
    try:
        ahead = datetime.fromisoformat(time) - datetime.fromisoformat(anchored)
    except (ValueError, TypeError):
        return False
    return ahead > CLOCK_TOLERANCE


def _signed(rows: Sequence[Row]) -> Check:
    """Signatures of writers, where rows have some."""
    name = "rows that are signed are signed by whom they name"
    findings, keys, unsigned = [], set(), 0
    for row in rows:
        try:
            key = signer_of(row)
        except ValueError as error:
            findings.append(str(error))
            continue
        unsigned += key is None
        keys.add(key)
    keys.discard(None)
    if not keys and not findings:
        return _nothing(name, "no row is signed by its writer")
    said = f"{len(rows) - unsigned:,} of {len(rows):,} rows, by {len(keys)} keys"
    return _check(name, findings, () if findings else (said,))


def _check(name: str, findings: Iterable[str], told: Iterable[str] = ()) -> Check:
    """A check that fails with findings; behind them, what else an auditor should know."""
    findings = tuple(findings)
    return Check(name, "failed" if findings else "passed", (*findings, *told))


def _nothing(name: str, *why: str) -> Check:
    return Check(name, "no evidence", why)


def _raised(replay: Replay, key: Ed25519PublicKey | None) -> Check:
    """Raises after the fact. What the auditor has accepted is told, and is no fault."""
    judged = _judged(replay.raised, replay.state, key)
    return _check("no budget was raised to make room for what was spent", *judged)


def _judged(
    told: Iterable[tuple[Row, str]], state: LedgerState, key: Ed25519PublicKey | None
) -> tuple[list[str], list[str]]:
    """What was said of rows, as faults, and as what the auditor has accepted."""
    faults, accepted = [], []
    for row, said in told:
        about = [a for a in state.acceptances if a.row == row.number]
        doubts = [(a, a.fault(row, state.ledger_id, key)) for a in about]
        believed = [a for a, doubt in doubts if doubt is None]
        if believed:
            by, why = believed[0].by, believed[0].why or "none"
            accepted.append(f"{said}. Accepted by the auditor ({by}); reason given: {why}")
        else:
            faults.append(". ".join([said, *(doubt for _, doubt in doubts if doubt)]))
    return faults, accepted


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
        return _nothing(name, why), None
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
    charged = any(row.kind == kinds.RESERVE for row in rows)
    if len(rows) - best.count > lag:
        findings.append(f"the anchors are stale: {found}; at most {lag:,} rows may have none")
    elif charged and not any(row.kind == kinds.RESERVE for row in rows[: best.count]):
        findings.append(f"the anchors are stale: {found}, and no charge")
    return _check(name, findings, () if findings else (str(found),)), found


def _overspent(state: LedgerState) -> list[str]:
    return [f"run {c.run_id!r} of {c.dataset!r}" for c in reservations(state) if c.overspent]


def _printed(state: LedgerState, prices: Mapping[str, float]) -> Check:
    findings, seen = [], 0
    for charge in reservations(state):
        printed, price = charge.about.get("epsilon"), prices.get(charge.run_id)
        if price is None or not isinstance(printed, (int, float)):
            continue
        seen += 1
        if printed < price * (1 - _PRINTED_TOLERANCE):
            findings.append(
                f"run {charge.run_id!r} printed epsilon = {printed:.6g}; its event costs "
                f"{price:.6g}"
            )
    name = "every privacy cost that was printed is at least that of what was released"
    if not seen:
        return _nothing(name, "no run says what it printed")
    return _check(name, findings)


def _certified(state: LedgerState, sample: int | None) -> Check:
    """What a program that knows nothing of ours says of each release, from its certificate.

    And of all that it confirmed about the same people, where it read everything: the sums, which
    need no accountant either (basic composition, also of releases that were chosen adaptively).
    """
    name = "an independent program confirms each certificate of a release"
    settled = [c for c in reservations(state) if c.settled and c.about.get("certificate")]
    if not settled:
        return _nothing(name, "no run left a certificate")
    chosen = settled if sample is None else settled[:: -(-len(settled) // sample)]
    told, refuted = [], False
    confirmed: dict[str, list[Mapping[str, Any]]] = {}
    for charge in chosen:
        code, text = verify({
            **charge.about,
            "event": charge.settled,
            "identity_digest": charge.identity.digest.hex(),
        })  # fmt: skip
        refuted |= code == REFUTED
        told.append(f"run {charge.run_id!r}: {text}")
        if code == CONFIRMED:
            confirmed.setdefault(charge.population, []).append(charge.about)
    if len(chosen) < len(settled):
        told.append(f"{len(chosen):,} of {len(settled):,} certificates were read")
        return Check(name, "failed" if refuted else "passed", tuple(told))
    settlements = Counter(c.population for c in reservations(state) if c.settled is not None)
    for people, abouts in confirmed.items():
        epsilon = math.fsum(about["epsilon"] for about in abouts)
        delta = math.fsum(about["delta"] for about in abouts)
        told.append(
            f"population {people!r}: {len(abouts):,} of {settlements[people]:,} releases are "
            f"confirmed, together at epsilon {epsilon:.6g} delta {delta:.6g} by adding up"
        )
    return Check(name, "failed" if refuted else "passed", tuple(told))


def _tracked(
    rows: Sequence[Row],
    state: LedgerState,
    tracked: Mapping[str, Sequence[Mapping[str, Any]]] | None,
    budgets: Iterable[Mapping[str, Any]],
) -> Check:
    title = "the tracking server shows the same"
    if tracked is None:
        return _nothing(title, "no tracking server was asked")
    groups: dict[str, list[Charge]] = {}
    blocks: dict[str, Charge] = {}
    for charge in reservations(state):
        if charge.is_block:
            blocks[charge.run_id] = charge
        elif charge.status == "settled":
            groups.setdefault(charge.group, []).append(charge)
    events: dict[str, list[dict[str, Any]]] = {}  # that each charge had, one after the other
    for row in rows:
        if row.kind in (kinds.SETTLE, kinds.REPLACE) and row.body["event"]:
            events.setdefault(row.body["run_id"], []).append(row.body["event"])
    findings, under_way = [], 0
    untracked: Counter[str] = Counter()  # by the reason that they gave
    for name, charges in groups.items():
        why = charges[-1].about.get("untracked")
        if name not in tracked and why:  # it said so when it was reserved
            untracked[str(why)] += 1
        elif name not in tracked:
            findings.append(f"run {name!r} is in the ledger and not on the server")
        else:
            block = blocks.get(name)
            is_open = block is not None and block.count > 0
            under_way += is_open
            for shown in tracked[name]:
                findings += _differences(name, charges, shown, events, block, is_open)
    findings += [
        f"run {name!r} is on the server and not in the ledger"
        for name in tracked
        if name not in groups
    ]
    findings += _budgets_differ(rows, state, list(budgets))
    said = [f"{n} runs were not to be logged, and said so ({w})" for w, n in untracked.items()]
    if under_way:
        said.append(f"{under_way} streams may go on: no more of these is shown than was released")
    return _check(title, findings, said)


def _budgets_differ(
    rows: Sequence[Row], state: LedgerState, budgets: list[Mapping[str, Any]]
) -> list[str]:
    """Runs of this ledger's budgets that show another spend, or were left behind."""
    found, then = [], LedgerState()
    ours_only = (b for b in budgets if b["ledger_id"] == state.ledger_id)
    for shown in sorted(ours_only, key=lambda budget: budget["step"]):
        said = f"MLflow run {shown['run_id']} of the budget of {shown['population']!r}"
        if shown["population"] not in state.populations or shown["step"] > len(rows):
            found.append(f"{said} shows what the ledger does not hold")
            continue
        then.apply(rows[then.head.count : shown["step"]])
        stood = status_of(then.populations[shown["population"]], shown["period"])
        ours = {"spent": stood.spent, "local_spent": stood.local_spent}
        found += [
            f"{said} shows {name} = {shown[name]:.6g} and not {value:.6g} after "
            f"{shown['step']:,} rows"
            for name, value in ours.items()
            if not _equal(shown[name], value)
        ]
        behind = _settled_after(rows, state, shown)
        if behind is not None:
            found.append(
                f"{said} shows {shown['step']:,} rows, and run {behind!r} was settled "
                "after them: mlflow_ldp.mirror brings it up to date"
            )
    return found


def _settled_after(rows: Sequence[Row], state: LedgerState, shown: Mapping[str, Any]) -> str | None:
    """A run that was settled and logged, and that the run of its budget does not show."""
    for row in rows[shown["step"] :]:
        if (
            row.kind in (kinds.SETTLE, kinds.REPLACE)
            and row.body["population"] == shown["population"]
        ):
            charge = state.charge(row.body["run_id"])
            if not charge.about.get("untracked") and not (charge.is_block and charge.count):
                return charge.run_id
    return None


def _succession(rows: Sequence[Row], state: LedgerState, key: Ed25519PublicKey | None) -> Check:
    """What this ledger took over from a damaged one; told for ever."""
    name = "what was taken over from another ledger is stated"
    found = Succession.of(rows[0]) if rows else None
    if found is None:
        return _nothing(name, "this ledger began with nothing")
    faults, accepted = _judged([(rows[0], said) for said in found.leniencies()], state, key)
    faults += found.faults(rows)
    return _check(name, faults, [*accepted, *found.told()])


def _people(state: LedgerState, people: Mapping[str, PeopleCount] | None) -> Check:
    title = "what each person was charged locally is what hashed ids say"
    told = {p.name: p.people[max(p.people)] for p in state.populations.values() if p.people}
    if people is None or not told:
        why = "nobody was counted" if not told else "no hashed ids were given (--people-store)"
        return _nothing(title, why)
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


def _differences(
    name: str,
    charges: Sequence[Charge],
    shown: Mapping[str, Any],
    events: Mapping[str, Sequence[dict[str, Any]]],
    block: Charge | None = None,
    is_open: bool = False,
) -> list[str]:
    """What a server shows otherwise; of a run that was charged in parts, only their sum.

    Args:
        name: of the run.
        charges: what it released.
        shown: of it on the server, by one run.
        events: that each charge had, one after the other: of each publication.
        block: of a stream, what is left of its charge.
        is_open: whether more may be released: the server then lags behind the ledger.
    """
    local = sum(charge.local_total for charge in charges)
    ours: dict[str, Any] = {"local_epsilon": local if math.isfinite(local) else None}
    if is_open and shown.get("local_epsilon", 0.0) <= local:
        ours = {}
    if block is not None:
        ours["identity"] = block.identity.digest.hex()
    if len(charges) == 1 and charges[0].group == charges[0].run_id and charges[0].settled:
        ours |= _cost_of(charges[0], shown, events[charges[0].run_id])
        ours["identity"] = charges[0].identity.digest.hex()
    return [
        f"run {name!r} shows {key} = {shown[key]} and not {value}"
        for key, value in ours.items()
        if shown.get(key) is not None and value is not None and not _equal(shown[key], value)
    ]


def _cost_of(
    charge: Charge, shown: Mapping[str, Any], events: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """What a run must show of a charge: the event and the cost of one of its publications.

    The first publication shows what the ledger was told; a later one what its event costs at its
    own delta, or what was printed when less could be proved.
    """
    digests = [event_digest(released(event)) for event in events]
    digest = shown.get("event_sha256", digests[-1])
    if digest not in digests:
        return {"event_sha256": digests[-1]}
    printed, delta = (charge.about.get(key) for key in ("epsilon", "delta"))
    if digest == digests[0] and shown.get("delta", delta) == delta:
        return {"epsilon": printed}
    epsilon, event = shown.get("epsilon"), released(events[digests.index(digest)])
    try:
        costs = float(event_epsilon(event_from_json(event), shown["delta"]))
    except (KeyError, ValueError, TypeError):
        return {"delta": delta}
    most = math.inf if printed is None else costs
    most = max(most, printed or 0.0) if shown["delta"] == delta else most
    within = epsilon is None or costs * (1 - _PRINTED_TOLERANCE) <= epsilon <= most * (1 + 1e-9)
    return {} if within else {"epsilon": costs}


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)
