"""The picture of a training: accuracy on public data against what it has cost so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beam_ldp.pipelines.views.pictures import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    GRID,
    TRUTH,
    bare,
    figure_with,
    png,
)

_HEIGHT = 5.0  # inches
_BASELINES = {"non-private": "#6b7b8c", "central-dp": "#e08e2b", "local-only": "#9b5de5"}


def plot_training(
    epsilons: Sequence[float],
    accuracies: Sequence[float],
    thesis: tuple[Sequence[float], Sequence[float]],
    baselines: Mapping[str, float],
    title: str,
    subtitle: str,
) -> bytes:
    """PNG.

    Args:
        epsilons, accuracies: after each epoch, by our accountant.
        thesis: (epsilons, accuracies) of the same training by the theorem of the thesis; empty
            where it does not apply.
        baselines: final accuracy by name.
        title, subtitle: above it.
    """
    figure = figure_with(title, subtitle, _HEIGHT)
    axes = figure.add_axes((0.09, BELOW / _HEIGHT, 0.87, 1 - (ABOVE + BELOW) / _HEIGHT))
    axes.plot(
        epsilons, accuracies, "o-", color=ESTIMATE, markersize=4, linewidth=2, zorder=4,
        label="priced by beam-ldp",
    )  # fmt: skip
    if len(thesis[0]):
        axes.plot(
            *thesis, "o--", color=TRUTH, markersize=4, linewidth=1.4, zorder=3,
            label="the same training, priced by the theorem of the thesis",
        )  # fmt: skip
    for name, accuracy in baselines.items():
        axes.axhline(accuracy, color=_BASELINES[name], linewidth=1.4, linestyle=":", zorder=2)
        axes.annotate(
            f"{name} {accuracy:.3f}", (1.0, accuracy), xycoords=("axes fraction", "data"),
            xytext=(-4, 3), textcoords="offset points", ha="right", fontsize=8,
            color=_BASELINES[name],
        )  # fmt: skip
    _style(axes, np.array([*epsilons, *thesis[0]]))
    return png(figure)


def _style(axes: Any, epsilons: np.ndarray) -> None:
    seen = epsilons[epsilons > 0]
    if len(seen) > 1 and seen.max() / seen.min() > 4:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
    axes.set_ylim(0, 1)
    axes.grid(color=GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    bare(axes, "top", "right")
    axes.set_xlabel("epsilon so far", color=GREY)
    axes.set_ylabel("accuracy on public data", color=GREY)
    axes.legend(loc="lower right", frameon=False, fontsize=9)
