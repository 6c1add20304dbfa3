"""The audit's report for people: one page, no external resources, every value escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from html import escape
from typing import TYPE_CHECKING

from beam_ldp.pipelines.records.statement import number

if TYPE_CHECKING:
    from beam_ldp.ledger import AuditReport, Charge, Population
    from beam_ldp.ledger.auditing import CumulativePoint

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 800, 300, 80, 20, 12, 44
_MOST_POINTS = 2000


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
        f"<p>{report.num_rows:,} rows of {_said(url)}, read {_said(now)}.</p>",
        _checks(report),
    ]
    for name, population in report.state.populations.items():
        if chosen in (None, name):
            parts.append(_population(population, report))
    parts.append(_how(report))
    return _PAGE.format(title="Privacy audit", style=_STYLE, body="\n".join(parts))


def _said(text: object) -> str:
    return escape(str(text))


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table of cells that are HTML already."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows)
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
            curve_svg(curve),
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
    parts += [
        "<h3>What was released</h3>",
        _table(
            ("when", "run", "data set", "question", "mechanism", "reports", "epsilon printed",
             "recomputed", "local epsilon", "status"),
            [_charge(charge, report) for charge in population.charges.values()],
            "released",
        ),
    ]  # fmt: skip
    return "\n".join(parts)


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


def _charge(charge: Charge, report: AuditReport) -> Sequence[str]:
    about = charge.about
    printed, price = about.get("epsilon"), report.prices.get(charge.run_id)
    status = charge.status + (" (more than reserved)" if charge.overspent else "")
    return (
        f"<span>{_said(charge.time[:16].replace('T', ' '))}</span>",
        _said(charge.run_id),
        _said(charge.dataset),
        _said(about.get("question", "")),
        _said(about.get("mechanism", "")),
        _said(about.get("num_reports", "")),
        number(printed) if isinstance(printed, float) else "",
        "" if price is None else number(price),
        number(charge.local_epsilon),
        _said(status),
    )


def curve_svg(curve: Sequence[CumulativePoint]) -> str:
    """Committed epsilon after each row, against the budget: a picture without a script."""
    if not curve:
        return ""
    every = max(1, len(curve) // _MOST_POINTS)
    points = [*curve[::every], curve[-1]]
    most = max(max(p.committed, p.budget) for p in points) * 1.05
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    steps = max(1, len(points) - 1)

    def x(i: int) -> float:
        return _LEFT + wide * i / steps

    def y(value: float) -> float:
        return _TOP + high * (1 - value / most)

    def path(values: Sequence[float]) -> str:
        start = f"M{x(0):.1f},{y(values[0]):.1f}"
        return start + "".join(f"H{x(i):.1f}V{y(v):.1f}" for i, v in enumerate(values) if i)

    marks = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(v):.1f}" y2="{y(v):.1f}" class="grid"/>'
        f'<text x="{_LEFT - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.3g}</text>'
        for v in (0.0, most / 3, 2 * most / 3)
    )
    granted = points[-1].budget
    marks += (
        f'<text x="{_LEFT - 8}" y="{y(granted) + 4:.1f}" text-anchor="end">{granted:.3g}</text>'
    )
    ends = (
        f'<text x="{_LEFT}" y="{_HEIGHT - 14}">{_said(points[0].time[:10])}</text>'
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 14}" text-anchor="end">'
        f"{_said(points[-1].time[:10])}</text>"
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="cumulative epsilon">'
        f'{marks}{ends}<path d="{path([p.budget for p in points])}" class="limit"/>'
        f'<path d="{path([p.committed for p in points])}" class="spent"/></svg>'
        '<p class="key"><span class="spent">—</span> epsilon spent or reserved, row by row; '
        '<span class="limit">- -</span> the budget</p>'
    )


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
color:#1b2733;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2rem}h3{font-size:1rem}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.9rem;width:100%}
th,td{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid #d5dbe1;
overflow-wrap:break-word;min-width:4.5rem;max-width:24rem}
td span{white-space:nowrap}
th{overflow-wrap:normal;white-space:nowrap}
.good{color:#17683a;font-weight:600}.bad{color:#b3261e;font-weight:700}
.unsure{color:#8a5a00;font-weight:600}
svg{width:100%;height:auto}svg text{font-size:13px;fill:#5f6b76}
svg .grid{stroke:#e3e8ec}svg path{fill:none;stroke-width:2}
path.spent{stroke:#1f5fa8}path.limit{stroke:#b3261e;stroke-dasharray:6 4}
.key{font-size:.9rem;color:#5f6b76}.key .spent{color:#1f5fa8}.key .limit{color:#b3261e}
meter{width:8rem}
code{overflow-wrap:anywhere}
@media(max-width:600px){svg text{font-size:24px}.released{min-width:60rem}meter{width:5rem}
td,th{min-width:0}.stacked th{display:none}.stacked td{display:block;border:0;max-width:none}
.stacked tr{display:block;border-bottom:1px solid #d5dbe1;padding:.4rem 0}
.stacked td:empty{display:none}}
"""

_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1"><title>{title}</title>
<style>{style}</style></head><body>
{body}
</body></html>
"""
