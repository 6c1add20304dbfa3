"""What all pictures share: a figure with its title, colours, and the way to a PNG."""

from __future__ import annotations

import io
import warnings
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
