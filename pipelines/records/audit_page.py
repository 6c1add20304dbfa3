"""The audit's report for people: one page, no external resources, every value escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from html import escape
from typing import TYPE_CHECKING

from beam_ldp.pipelines.records.statement import number

if TYPE_CHECKING:
    from beam_ldp.ledger import AuditReport, Budget, Charge, Population
    from beam_ldp.ledger.auditing import CumulativePoint


_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 800, 260, 80, 20, 16, 40
_MOST_POINTS = 2000
_MOST_TICKS = 5


def epsilon_svg(curve: Sequence[CumulativePoint]) -> str:
    """Epsilon that was spent or reserved after each row."""
    return _svg(curve, [p.committed for p in curve], [p.budget for p in curve], "epsilon")


def local_svg(curve: Sequence[CumulativePoint]) -> str:
    """Sums of local epsilons after each row."""
    limits = [math.inf if p.local_budget is None else p.local_budget for p in curve]
    return _svg(curve, [p.local for p in curve], limits, "sum of local epsilons")


def ticks(most: float, count: int = _MOST_TICKS) -> list[float]:
    """At most so many round numbers from 0 to `most`: multiples of 1, 2, 2.5 or 5 times a power
    of ten.

    >>> ticks(1.05)
    [0.0, 0.25, 0.5, 0.75, 1.0]
    >>> ticks(27.5)
    [0.0, 10.0, 20.0]
    """
    if not (math.isfinite(most) and most > 0):
        return [0.0]
    power = 10.0 ** math.floor(math.log10(most / count))
    steps = (factor * power for factor in (1, 2, 2.5, 5, 10, 20))
    step = next(step for step in steps if int(most / step + 1e-9) < count)
    return [round(i * step, 12) for i in range(int(most / step + 1e-9) + 1)]


def _svg(
    curve: Sequence[CumulativePoint], values: Sequence[float], limits: Sequence[float], what: str
) -> str:
    if not curve:
        return ""
    every = math.ceil(len(curve) / _MOST_POINTS)
    kept = sorted({*range(0, len(curve), every), len(curve) - 1})
    finite = [v for i in kept for v in (values[i], limits[i]) if math.isfinite(v)]
    most = 1.08 * max(finite, default=0.0) or 1.0
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    first, last = curve[kept[0]].number, curve[kept[-1]].number

    def x(number: int) -> float:
        return _LEFT + wide * (number - first) / max(1, last - first)

    def y(value: float) -> float:
        return _TOP + high * (1 - min(value, most) / most)

    def path(heights: Sequence[float]) -> str:
        found = [(x(curve[i].number), y(heights[i])) for i in kept if math.isfinite(heights[i])]
        if not found:
            return ""
        start = f"M{found[0][0]:.1f},{found[0][1]:.1f}"
        steps = "".join(f"H{a:.1f}V{b:.1f}" for a, b in found[1:])
        return start + (steps or f"H{_WIDTH - _RIGHT}")

    marks = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(v):.1f}" y2="{y(v):.1f}" class="grid"/>'
        f'<text x="{_LEFT - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v:g}</text>'
        for v in ticks(most)
    )
    limit = limits[-1]
    if math.isfinite(limit):
        marks += (
            f'<text x="{_WIDTH - _RIGHT}" y="{y(limit) - 5:.1f}" text-anchor="end" class="limit">'
            f"budget {limit:g}</text>"
        )
    ends = (
        f'<text x="{_LEFT}" y="{_HEIGHT - 12}">row {first:,}, {escape(curve[0].time[:10])}</text>'
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 12}" text-anchor="end">row {last:,}, '
        f"{escape(curve[-1].time[:10])}</text>"
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{what} row by row">'
        f'{marks}{ends}<path d="{path(limits)}" class="limit"/>'
        f'<path d="{path(values)}" class="spent"/></svg>'
        f'<p class="key"><span class="spent">—</span> {what}, spent or reserved, row by row; '
        '<span class="limit">- -</span> the budget then in force</p>'
    )


MOST_CHARGES = 1000  # that a page shows of a population, the last ones


def audit_page(report: AuditReport, url: str, dataset: str | None = None) -> str:
    """The report as HTML.

    Args:
        report: what the audit found.
        url: of the ledger, without a password.
        dataset: report on its population alone; the checks are about the whole ledger.
    """
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    verdict, tone = ("clean", "good") if report.clean else ("NOT clean", "bad")
    chosen = None if dataset is None else report.state.population_of(dataset).name
    parts = [
        f"<h1>Privacy audit: the ledger is <span class={tone}>{verdict}</span></h1>",
        f"<p>{report.num_rows:,} rows of {_said(url)}, read {_said(now)}. {_coverage(report)}</p>",
        _checks(report),
    ]
    for name, population in report.state.populations.items():
        if chosen in (None, name):
            parts.append(_population(population, report))
    parts.append(_how(report))
    return _PAGE.format(title="Privacy audit", style=_STYLE, body="\n".join(parts))


def _coverage(report: AuditReport) -> str:
    """How much of the ledger is anchored, in a sentence."""
    if report.coverage is None:
        return (
            "No anchors were given: that its end was cut, or all of it written anew, would not "
            "show."
        )
    tone = "good" if report.coverage.covered == report.coverage.rows else "unsure"
    said = _said(report.coverage)
    return f'<span class="{tone}">Anchored elsewhere: {said}.</span>'


def _said(text: object) -> str:
    return escape(str(text))


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table of cells that are HTML already."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    names = [escape(heading, quote=True) for heading in headings]
    body = "".join(
        "<tr>" + "".join(f'<td data-name="{n}">{c}</td>' for n, c in zip(names, row)) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table class="{kind}"><tr>{head}</tr>{body}</table></div>'


def _checks(report: AuditReport) -> str:
    tone = {"passed": "good", "failed": "bad", "no evidence": "unsure"}
    rows = [
        (
            _said(check.name),
            f'<span class="{tone[check.outcome]}">{check.outcome}</span>',
            "<br>".join(_said(finding) for finding in check.findings),
        )
        for check in report.checks
    ]
    return "<h2>Checks</h2>" + _table(("what was checked", "outcome", "findings"), rows, "stacked")


def _population(population: Population, report: AuditReport) -> str:
    budget = population.budget
    names = ", ".join(sorted(population.datasets))
    parts = [
        f"<h2>{_said(population.name)}</h2>",
        f"<p>Data sets: {_said(names)}. What is protected: everything about one "
        f"{_said(population.privacy_unit)}, against {_said(population.neighbours)} neighbours.</p>",
    ]
    curve = report.curves.get(population.name, ())
    if budget is not None:
        last = curve[-1] if curve else None
        stands = 0.0 if last is None else last.committed
        local = 0.0 if last is None else last.local
        limit = "no limit" if budget.local_epsilon is None else f"of {budget.local_epsilon:g}"
        parts += [
            f"<p><strong>{number(stands)}</strong> of epsilon = {budget.epsilon:g} at delta = "
            f"{budget.delta:g} is spent or reserved; {max(0.0, budget.epsilon - stands):.4g} "
            f"remains. Local epsilons of one {_said(population.privacy_unit)} sum to at most "
            f"{number(local)} ({limit}), for somebody who took part in everything.</p>",
            epsilon_svg(curve),
            local_svg(curve),
            *_quotas(population),
            *_people(population),
            "<h3>Budgets that were granted</h3>",
            _table(
                ("row", "epsilon", "delta", "local epsilon", "by", "why"),
                [
                    (
                        str(b.number), f"{b.epsilon:g}", f"{b.delta:g}",
                        "no limit" if b.local_epsilon is None else f"{b.local_epsilon:g}",
                        _said(b.by), _said(b.why),
                    )
                    for b in population.budgets
                ],
            ),
        ]  # fmt: skip
    charges = sorted(population.charges.values(), key=lambda charge: charge.number)
    shown = charges[-MOST_CHARGES:]
    parts.append("<h3>What was charged</h3>")
    if len(shown) < len(charges):
        parts.append(f"<p>The last {len(shown):,} of {len(charges):,} charges.</p>")
    if budget is not None:
        parts.append(
            _table(
                ("when", "run", "what was asked", "reports", "epsilon", "local epsilon", "status"),
                [_charge(charge, budget, report) for charge in shown],
                "released",
            )
        )
    return "\n".join(parts)


def _quotas(population: Population) -> list[str]:
    """Shares of the budget that are kept for somebody."""
    if not population.quotas:
        return []
    rows = [
        (_said(q.name), f"{100 * q.share:g} %", _said(q.by), _said(q.why))
        for q in population.quotas.values()
    ]
    return [
        "<h3>Shares that are kept</h3>",
        _table(("for whom", "share", "by", "why"), rows),
    ]


def _people(population: Population) -> list[str]:
    """What each person was charged locally, where people were counted by hashed ids."""
    if not population.people:
        return []
    period = max(population.people)
    people, unit = population.people[period], _said(population.privacy_unit)
    others = [c for c in population.charges_of(period) if c.number not in people.numbers]
    uncounted = sum(1 for charge in others if charge.local_epsilon)
    said = f"{len(people.covered):,} runs left hashes of all ids" + (
        f"; {uncounted:,} did not and are taken to have asked everybody" if uncounted else ""
    )
    largest = max((n for _, n in people.distribution), default=1)
    return [
        f"<h3>What each {unit} was charged locally</h3>",
        f"<p>No {unit} more than <strong>{number(population.local_maximum(period))}</strong>: "
        f"people are known by keyed hashes of their ids, and {said}. "
        f"{people.num_people:,} people, by the sum of their local epsilons:</p>",
        _table(
            ("sum of local epsilons", "people", ""),
            [
                (number(total), f"{n:,}", f'<meter max="{largest}" value="{n}"></meter>')
                for total, n in people.distribution
            ],
        ),
    ]


def _charge(charge: Charge, budget: Budget, report: AuditReport) -> Sequence[str]:
    about, identity = charge.about, charge.identity
    asked = about.get("question") or ", ".join(identity.columns)
    where = " · ".join(
        text
        for text in (
            charge.dataset,
            f"release {identity.release_id}",
            identity.part,
            f"group {identity.group}" if identity.group else "",
        )
        if text
    )
    return (
        f"{_said(charge.time[:16].replace('T', ' '))}{_small(f'row {charge.number:,}')}",
        f"{_said(charge.run_id)}{_small(where)}{_small(f'identity {identity.digest.hex()[:16]}')}",
        f"{_said(asked)}{_small(about.get('mechanism', ''))}",
        f"{_said(about.get('num_reports', ''))}{_small(_whose(charge))}",
        _epsilon(charge, budget, report),
        _local(charge),
        _status(charge),
    )


def _whose(charge: Charge) -> str:
    """Whose report was charged as one: what the run said, or the rule that its identity names."""
    per = charge.about.get("one_report_per")
    return f"one per {per}" if per else f"rule: {charge.identity.bounding}"


def _small(text: object) -> str:
    return f"<small>{_said(text)}</small>" if text else ""


def _epsilon(charge: Charge, budget: Budget, report: AuditReport) -> str:
    """What readers of the output cost each person: recomputed, and as it was printed."""
    if charge.status == "abandoned":
        return f"0{_small('given back')}"
    price, printed = report.prices.get(charge.run_id), charge.about.get("epsilon")
    if price is None:  # at the budget's delta, of this charge alone
        alone = charge.loss.epsilon(budget.orders, budget.delta)[0]
        return f"{number(alone)}{_small('at worst' if charge.status == 'reserved' else '')}"
    return f"{number(price)}{_small(f'printed {number(printed)}') if _is_number(printed) else ''}"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _local(charge: Charge) -> str:
    """What whoever sees reports costs each person."""
    said = number(charge.local_total)
    if charge.status == "abandoned":
        return f"{said}{_small('spent: people had randomized' if charge.local_total else '')}"
    return f"{said}{_small('at worst' if charge.status == 'reserved' else '')}"


def _status(charge: Charge) -> str:
    notes = [
        str(charge.about.get("abandoned", "")) if charge.status == "abandoned" else "",
        f"{charge.count:,} parts are open" if charge.is_block and charge.count else "",
        f"started {charge.attempts} times" if charge.attempts > 1 else "",
        f"published {charge.published} times" if charge.published > 1 else "",
        f"share of {charge.quota}" if charge.quota else "",
    ]
    status = "open" if charge.status == "reserved" else charge.status
    tone = {"open": "unsure", "abandoned": "unsure"}.get(status, "good")
    said = f'<span class="{tone}">{status}</span>'
    if charge.overspent:
        said += ' <span class="bad">more than reserved</span>'
    return said + "".join(map(_small, notes))


def _how(report: AuditReport) -> str:
    head = report.state.head
    return (
        "<h2>How to recompute this</h2><p>With the ledger at hand: <code>beam-ldp audit --ledger "
        "URL --html report.html</code>. Every row's hash is the SHA-256 of the canonical JSON "
        "(RFC 8785) of its version, number, kind, body and the hash of the row before it; the "
        f"first row follows a hash of zeros. This ledger is {_said(report.state.ledger_id)}; after "
        f"{head.count:,} rows its hash is <code>{_said(head.hash)}</code>. Epsilon is recomputed "
        "from the stored privacy event of each release. Charges of different runs are composed "
        "as Rényi divergences at orders that were fixed with the budget, because later runs were "
        "chosen after seeing earlier results.</p>"
    )


_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:64rem;padding:0 1rem;
color:#1b2733;background:#fff;overflow-wrap:anywhere}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2rem}h3{font-size:1rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;width:100%}
th,td{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid #d5dbe1}
th{overflow-wrap:normal}td{overflow-wrap:anywhere;min-width:4rem}
small{display:block;color:#5f6b76;font-size:.8rem}
.released td:first-child{min-width:6.2rem}.released td:nth-child(2){min-width:11rem}
.released td:nth-child(4){min-width:7rem}
.good{color:#17683a;font-weight:600}.bad{color:#b3261e;font-weight:700}
.unsure{color:#8a5a00;font-weight:600}td>.unsure{white-space:nowrap}
svg{width:100%;height:auto}svg text{font-size:13px;fill:#5f6b76}
svg .grid{stroke:#e3e8ec}svg path{fill:none;stroke-width:2}svg text.limit{fill:#b3261e}
path.spent{stroke:#1f5fa8}path.limit{stroke:#b3261e;stroke-dasharray:6 4}
.key{font-size:.9rem;color:#5f6b76;margin-top:0}.key .spent{color:#1f5fa8}.key .limit{color:#b3261e}
meter{width:8rem}
@media(max-width:600px){svg text{font-size:24px}meter{width:5rem}th{display:none}
tr{display:block;border-bottom:1px solid #d5dbe1;padding:.4rem 0}
td{display:block;border:0;padding:.1rem .6rem}td:empty{display:none}
td::before{content:attr(data-name) ": ";color:#5f6b76}
.stacked td::before{content:none}small{display:inline;margin-left:.4rem}}
"""

_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1"><title>{title}</title>
<style>{style}</style></head><body>
{body}
</body></html>
"""
