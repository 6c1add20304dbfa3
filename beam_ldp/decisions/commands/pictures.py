"""What pictures of decisions share: a row for each arm or action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_ldp.questions.pictures import ABOVE, BELOW, GREY, GRID, bare, figure_with


def figure_of_rows(
    title: str,
    subtitle: str,
    labels: Sequence[str],
    inside: float,
    sides: tuple[float, float],
    across: str,
) -> tuple[Any, Any, np.ndarray]:
    """A figure with a labelled row for each of several values, the first on top.

    Args:
        title, subtitle: of the figure.
        labels: of the rows.
        inside: height of the rows together, in inches.
        sides: where they begin and end, as shares of the width.
        across: what the horizontal axis says.

    Returns:
        The figure, its axes, and where the rows are.
    """
    height = ABOVE + BELOW + inside
    figure = figure_with(title, subtitle, height)
    axes = figure.add_axes((sides[0], BELOW / height, sides[1] - sides[0], inside / height))
    places = np.arange(len(labels))[::-1]
    axes.set_yticks(places, labels, parse_math=False)
    axes.set_ylim(-0.7, len(labels) - 0.3)
    axes.grid(axis="x", color=GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    bare(axes, "top", "right", "left")
    axes.set_xlabel(across, color=GREY)
    return figure, axes, places
