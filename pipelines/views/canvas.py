"""What all pictures share: a figure with its title, colours, and the way to a PNG."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from typing import Any

ESTIMATE, TRUTH, GREY, GRID = "#1f5fa8", "#d1495b", "#5f6b76", "#e3e7eb"
WIDTH = 9.0  # inches
ABOVE, BELOW = 1.15, 0.75  # inches around the axes: title, and the axis' own label


def figure_with(title: str, subtitle: str, height: float) -> Any:
    """A figure of that many inches, title and subtitle written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), dpi=150)
    FigureCanvasAgg(figure)
    figure.text(0.03, 1 - 0.36 / height, title, fontsize=13, fontweight="bold", parse_math=False)
    figure.text(0.03, 1 - 0.72 / height, subtitle, fontsize=9, color=GREY, parse_math=False)
    return figure


def bare(axes: Any, *sides: str) -> None:
    """No frame on these sides, no ticks on the vertical axis."""
    for side in sides:
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)


def label_ends(
    axes: Any, x: float, ends: Sequence[tuple[float, str, str]], gap: float = 0.075
) -> None:
    """Names right of the lines that end at `x`, pushed apart where they would overlap.

    Args:
        axes: with a logarithmic vertical axis, its limits set.
        x: where the lines end.
        ends: value, text and colour of each line.
        gap: least distance of two names, as a share of the height.
    """
    low, high = (math.log(limit) for limit in axes.get_ylim())
    ranked = sorted(ends)
    places = [(math.log(value) - low) / (high - low) for value, _, _ in ranked]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + gap)
    places[-1] = min(places[-1], max(1.0, gap * (len(places) - 1)))
    for i in reversed(range(len(places) - 1)):
        places[i] = min(places[i], places[i + 1] - gap)
    for (value, text, colour), place in zip(ranked, places):
        axes.annotate(
            text, (x, value), xytext=(1.03, place), textcoords="axes fraction", color=colour,
            fontsize=8, va="center", annotation_clip=False,
        )  # fmt: skip


def png(figure: Any) -> bytes:
    """The picture, without a word of warning about what its font lacks."""
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # what the font lacks becomes a box
        figure.savefig(stream, format="png", metadata={"Software": "beam-ldp"})
    return stream.getvalue()


def shortened(label: str, length: int = 24) -> str:
    """A label that fits beside the plot; what does not print becomes a box."""
    clean = "".join(c if c.isprintable() else "\u25a1" for c in label)
    return clean if len(clean) <= length else clean[: length - 1] + "\u2026"
