"""Estimates as HTML for notebooks: a table with its error bars drawn, no script, no resource."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

MOST_ROWS = 30
_WIDTH, _HEIGHT = 240, 16


def table(
    labels: Sequence[object],
    value: np.ndarray,
    interval: tuple[np.ndarray, np.ndarray],
    *,
    truth: np.ndarray | None = None,
    caption: str = "",
) -> str:
    """A table of estimates: name, value, interval, and the interval as a bar on a common scale.

    Args:
        labels: a name for each component; escaped.
        value: estimates, flat.
        interval: `(low, high)`, flat.
        truth: what they should be, where it is known; drawn as a tick.
        caption: plain text under the table; escaped.

    Only the first 30 rows are shown, and the caption says so.
    """
    low, high = interval
    shown = min(value.size, MOST_ROWS)
    parts = [low[:shown], high[:shown], value[:shown]] + ([] if truth is None else [truth[:shown]])
    numbers = np.concatenate(parts)
    finite = numbers[np.isfinite(numbers)]
    left, right = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    heads = ["", *(["truth"] if truth is not None else []), "estimate", "interval", ""]
    rows = []
    for i in range(shown):
        cells = [escape(str(labels[i]))]
        cells += [] if truth is None else [f"{truth[i]:.4g}"]
        cells += [f"{value[i]:.4g}", f"{low[i]:.4g} … {high[i]:.4g}"]
        tick = None if truth is None else float(truth[i])
        cells.append(_bar(float(low[i]), float(value[i]), float(high[i]), tick, left, right))
        rows.append("".join(f"<td style='text-align:right'>{cell}</td>" for cell in cells))
    if shown < value.size:
        caption = f"The first {shown} of {value.size:,}. {caption}".strip()
    head = "".join(f"<th style='text-align:right'>{name}</th>" for name in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<p style='font-size:smaller'>{escape(caption)}</p>"
    )


def _bar(
    low: float, value: float, high: float, truth: float | None, left: float, right: float
) -> str:
    if not np.isfinite([low, value, high]).all():
        return "no reports"

    def at(number: float) -> float:
        share = (number - left) / (right - left) if right > left else 0.5
        return 4 + share * (_WIDTH - 8)

    middle = _HEIGHT / 2
    drawn = [
        f"<line x1='{at(low):.1f}' x2='{at(high):.1f}' y1='{middle}' y2='{middle}' "
        "stroke='#4c78a8' stroke-width='3'/>",
        f"<circle cx='{at(value):.1f}' cy='{middle}' r='3.5' fill='#4c78a8'/>",
    ]
    if truth is not None:
        drawn.append(
            f"<line x1='{at(truth):.1f}' x2='{at(truth):.1f}' y1='1' y2='{_HEIGHT - 1}' "
            "stroke='#e45756' stroke-width='2'/>"
        )
    return f"<svg width='{_WIDTH}' height='{_HEIGHT}' role='img'>{''.join(drawn)}</svg>"
