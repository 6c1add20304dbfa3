"""Curves of an audit's report: what was spent row by row against the budget, without a script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
