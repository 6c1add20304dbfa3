"""The audit's report for people: one page, no external resources, every value escaped.

What it says is worked out here; `templates/audit_page.html.j2` is how it looks.
"""

from __future__ import annotations

import io
import math
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from beam_ldp.release.statement import templates
from beam_ldp.wording import number, rounded_down

if TYPE_CHECKING:
    from beam_ldp.ledger import AuditReport, Budget, Charge, Population
    from beam_ldp.ledger.auditing import CumulativePoint

MOST_CHARGES = 1000  # that a page shows of a population, the last ones
MOST_POINTS = 2000  # of a curve; a longer one is thinned evenly


def audit_page(report: AuditReport, url: str, dataset: str | None = None) -> str:
    """The report as HTML.

    Args:
        report: what the audit found.
        url: of the ledger, without a password.
        dataset: report on its population alone; the checks are about the whole ledger.
    """
    chosen = None if dataset is None else report.state.population_of(dataset).name
    populations = report.state.populations.items()
    shown = [people for name, people in populations if chosen in (None, name)]
    page = templates().get_template("audit_page.html.j2")
    return page.render(
        report=report,
        url=url,
        now=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        verdict=Cell("clean", tone="good") if report.clean else Cell("NOT clean", tone="bad"),
        coverage=_coverage(report),
        checks=_checks(report),
        populations=[_population(people, report) for people in shown],
    )


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: what it says, in the colour of `tone` ("good", "bad", "unsure").
        notes: below it, small; empty ones are left out.
        fault: after it, in red.
        lines: in place of a text.
        meter: a bar, of a value and the most that it can be.
    """

    text: object = ""
    notes: tuple[object, ...] = ()
    tone: str = ""
    fault: str = ""
    lines: tuple[str, ...] = ()
    meter: tuple[int, int] | None = None


@dataclass(frozen=True)
class CellTable:
    """A table, and its class in the style sheet."""

    headings: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    kind: str = ""


def _coverage(report: AuditReport) -> Cell:
    """How much of the ledger is anchored, in a sentence."""
    if report.coverage is None:
        return Cell(
            "No anchors were given: that its end was cut, or all of it written anew, would not "
            "show."
        )
    tone = "good" if report.coverage.covered == report.coverage.rows else "unsure"
    return Cell(f"Anchored elsewhere: {report.coverage}.", tone=tone)


def _checks(report: AuditReport) -> CellTable:
    tone = {"passed": "good", "failed": "bad", "no evidence": "unsure"}
    return CellTable(
        ("what was checked", "outcome", "findings"),
        [
            (
                Cell(check.name),
                Cell(check.outcome, tone=tone[check.outcome]),
                Cell(lines=tuple(map(str, check.findings))),
            )
            for check in report.checks
        ],
        "stacked",
    )


def _population(population: Population, report: AuditReport) -> dict[str, Any]:
    """All that the page says of the people of a budget."""
    budget = population.budget
    charges = sorted(population.charges.values(), key=lambda charge: charge.number)
    shown = charges[-MOST_CHARGES:]
    left_out = f"The last {len(shown):,} of {len(charges):,} charges."
    about = {
        "name": population.name,
        "datasets": ", ".join(sorted(population.datasets)),
        "unit": population.privacy_unit,
        "neighbours": population.neighbours,
        "left_out": left_out if len(shown) < len(charges) else "",
        "budget": "",
    }
    if budget is None:
        return about
    return (
        about
        | _spent(budget, report.curves.get(population.name, ()))
        | {
            "quotas": _quotas(population),
            "people": _people(population),
            "granted": _granted(population),
            "charges": CellTable(
                ("when", "run", "what was asked", "reports", "epsilon", "local epsilon", "status"),
                [_charge(charge, budget, report) for charge in shown],
                "released",
            ),
        }
    )


def _spent(budget: Budget, curve: Sequence[CumulativePoint]) -> dict[str, Any]:
    """What is spent of a budget, now and row by row."""
    last = curve[-1] if curve else None
    stands = 0.0 if last is None else last.committed
    local = 0.0 if last is None else last.local
    limit = "no limit" if budget.local_epsilon is None else f"of {budget.local_epsilon:g}"
    drawings = (epsilon_curve(curve), local_curve(curve))
    return {
        "budget": f"{budget.epsilon:g} at delta = {budget.delta:g}",
        "stands": number(stands),
        "remains": rounded_down(max(0.0, budget.epsilon - stands)),
        "local": f"{number(local)} ({limit})",
        "curves": [drawing for drawing in drawings if drawing is not None],
    }


def _granted(population: Population) -> CellTable:
    """Every budget that was ever in force."""
    rows = [
        (
            b.number, f"{b.epsilon:g}", f"{b.delta:g}",
            "no limit" if b.local_epsilon is None else f"{b.local_epsilon:g}", b.by, b.why,
        )
        for b in population.budgets
    ]  # fmt: skip
    headings = ("row", "epsilon", "delta", "local epsilon", "by", "why")
    return CellTable(headings, [tuple(map(Cell, row)) for row in rows])


def _quotas(population: Population) -> CellTable | None:
    """Shares of the budget that are kept for somebody."""
    if not population.quotas:
        return None
    rows = [
        (Cell(q.name), Cell(f"{100 * q.share:g} %"), Cell(q.by), Cell(q.why))
        for q in population.quotas.values()
    ]
    return CellTable(("for whom", "share", "by", "why"), rows)


def _people(population: Population) -> dict[str, Any] | None:
    """What each person was charged locally, where people were counted by hashed ids."""
    if not population.people:
        return None
    period = max(population.people)
    people = population.people[period]
    others = [c for c in population.charges_of(period) if c.number not in people.numbers]
    uncounted = sum(1 for charge in others if charge.local_epsilon)
    largest = max((n for _, n in people.distribution), default=1)
    return {
        "most": number(population.local_maximum(period)),
        "hashed": f"{len(people.covered):,} runs left hashes of all ids"
        + (f"; {uncounted:,} did not and are taken to have asked everybody" if uncounted else ""),
        "number": f"{people.num_people:,}",
        "sums": CellTable(
            ("sum of local epsilons", "people", ""),
            [
                (Cell(number(total)), Cell(f"{n:,}"), Cell(meter=(n, largest)))
                for total, n in people.distribution
            ],
        ),
    }


def _charge(charge: Charge, budget: Budget, report: AuditReport) -> Sequence[Cell]:
    about, identity = charge.about, charge.identity
    asked = about.get("question") or ", ".join(identity.columns)
    group = f"group {identity.group}" if identity.group else ""
    places = (charge.dataset, f"release {identity.release_id}", identity.part, group)
    where = " · ".join(text for text in places if text)
    return (
        Cell(charge.time[:16].replace("T", " "), (f"row {charge.number:,}",)),
        Cell(charge.run_id, (where, f"identity {identity.digest.hex()[:16]}")),
        Cell(asked, (about.get("mechanism", ""),)),
        Cell(about.get("num_reports", ""), (_whose(charge),)),
        _epsilon(charge, budget, report),
        _local(charge),
        _status(charge),
    )


def _whose(charge: Charge) -> str:
    """Whose report was charged as one: what the run said, or the rule that its identity names."""
    per = charge.about.get("one_report_per")
    return f"one per {per}" if per else f"rule: {charge.identity.bounding}"


def _epsilon(charge: Charge, budget: Budget, report: AuditReport) -> Cell:
    """What readers of the output cost each person: recomputed, and as it was printed."""
    if charge.status == "abandoned":
        return Cell("0", ("given back",))
    price, printed = report.prices.get(charge.run_id), charge.about.get("epsilon")
    if price is None:  # at the budget's delta, of this charge alone
        alone = charge.loss.epsilon(budget.orders, budget.delta, chances=budget.chances)[0]
        return Cell(number(alone), ("at worst" if charge.status == "reserved" else "",))
    return Cell(number(price), (f"printed {number(printed)}" if _is_number(printed) else "",))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _local(charge: Charge) -> Cell:
    """What whoever sees reports costs each person."""
    said = number(charge.local_total)
    if charge.status == "abandoned":
        return Cell(said, ("spent: people had randomized" if charge.local_total else "",))
    return Cell(said, ("at worst" if charge.status == "reserved" else "",))


def _status(charge: Charge) -> Cell:
    status = "open" if charge.status == "reserved" else charge.status
    return Cell(
        status,
        tuple(_what_became(charge)),
        "unsure" if status in ("open", "abandoned") else "good",
        "more than reserved" if charge.overspent else "",
    )


def _what_became(charge: Charge) -> Iterator[str]:
    """Of a charge, where that is more than its status says."""
    if charge.status == "abandoned":
        yield str(charge.about.get("abandoned", ""))
    if charge.is_block and charge.count:
        yield f"{charge.count:,} parts are open"
    if charge.attempts > 1:
        yield f"started {charge.attempts} times"
    if charge.published > 1:
        yield f"published {charge.published} times"
    if charge.quota:
        yield f"share of {charge.quota}"


# Curves -------------------------------------------------------------------------------------------


def epsilon_curve(curve: Sequence[CumulativePoint]) -> Drawing | None:
    """Epsilon that was spent or reserved after each row; None without rows."""
    return _drawn(curve, [p.committed for p in curve], [p.budget for p in curve], "epsilon")


def local_curve(curve: Sequence[CumulativePoint]) -> Drawing | None:
    """Sums of local epsilons after each row; None without rows."""
    limits = [math.inf if p.local_budget is None else p.local_budget for p in curve]
    return _drawn(curve, [p.local for p in curve], limits, "sum of local epsilons")


class Drawing(NamedTuple):
    """A curve and the budget above it, row by row: what is drawn, and an SVG as a data URL."""

    what: str
    url: str


def _drawn(
    curve: Sequence[CumulativePoint], values: Sequence[float], limits: Sequence[float], what: str
) -> Drawing | None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    if not curve:
        return None
    figure = Figure(figsize=(8.0, 2.8), layout="constrained")
    axes = figure.subplots()
    for heights, label, style in (
        (values, f"{what}, spent or reserved", {"color": "#1f5fa8"}),
        (limits, "the budget then in force", {"color": "#b3261e", "linestyle": "--"}),
    ):
        rows = [(p.number, h) for p, h in zip(curve, heights) if math.isfinite(h)]
        rows = rows[:: math.ceil(len(rows) / MOST_POINTS) or 1] + rows[-1:]
        alone = "." if len(set(rows)) == 1 else None
        drawn = zip(*rows) if rows else ((), ())
        axes.step(*drawn, where="post", label=label, marker=alone, **style)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(f"row, from {curve[0].time[:10]} to {curve[-1].time[:10]}")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, loc="best")
    stream = io.BytesIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    return Drawing(what, f"data:image/svg+xml;base64,{b64encode(stream.getvalue()).decode()}")
