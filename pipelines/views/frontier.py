"""The rows of one table as a picture: error against bits, and against local epsilon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from beam_ldp.questions.pictures import BELOW, GREY, GRID, bare
from beam_ldp.settings.sections import MAX_LOCAL_EPSILON

TALL = 3.4  # inches
_LEFTS, _ACROSS = (0.09, 0.56), 0.38
_BEYOND = 4.0  # times the largest finite local epsilon: where an infinite one stands


@dataclass(frozen=True)
class Spot:
    """A row that may be used.

    Attributes:
        mechanism: name of the class.
        error: what the picture draws.
        bits: of everything that a person sends.
        local_epsilon: against whoever sees that; may be infinite.
    """

    mechanism: str
    error: float
    bits: int
    local_epsilon: float

    @property
    def alone(self) -> bool:
        """Whether a person is protected whoever sees all that she sends."""
        return self.local_epsilon <= MAX_LOCAL_EPSILON * (1 + 1e-9)


def draw_spots(
    figure: Any, spots: Sequence[Spot], colours: dict[str, str], height: float, upward: str
) -> None:
    """Two panels at the foot of a figure of so many inches; axes logarithmic.

    Full dots are mechanisms that protect a person alone, hollow ones those for which the shuffler
    must be trusted.
    """
    from matplotlib.ticker import LogLocator

    finite = [spot.local_epsilon for spot in spots if spot.local_epsilon < math.inf]
    edge = _BEYOND * max(finite, default=1.0)
    for j, left in enumerate(_LEFTS):
        axes = figure.add_axes((left, BELOW / height, _ACROSS, (TALL - BELOW - 0.5) / height))
        axes.set_xscale("log")
        axes.set_yscale("log")
        for spot in spots:
            colour = colours.get(spot.mechanism, GREY)
            axes.plot(
                [spot.bits if j == 0 else min(spot.local_epsilon, edge)], [spot.error], "o",
                color=colour, markerfacecolor=colour if spot.alone else "white", zorder=3,
                label=spot.mechanism,
            )  # fmt: skip
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,g}")
            axis.set_minor_formatter(lambda value, _: "")
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axes.yaxis.set_minor_formatter(lambda value, _: f"{value:,g}")
        axes.margins(x=0.06, y=0.1)
        axes.grid(which="major", color=GRID, linewidth=0.8, zorder=0)
        axes.set_axisbelow(True)
        bare(axes, "top", "right")
        if j == 0:
            axes.set_xlabel("bits that a person sends", color=GREY)
            axes.set_ylabel(upward, color=GREY, fontsize=8)
            axes.set_title("at this epsilon, every row of the table", fontsize=10, color=GREY,
                           loc="left")  # fmt: skip
        else:
            axes.set_xlabel("local epsilon of all that a person sends", color=GREY)
            axes.set_title("full: protected alone; hollow: by the shuffler", fontsize=10,
                           color=GREY, loc="left")  # fmt: skip
            for spot in spots:
                if spot.local_epsilon == math.inf:
                    axes.annotate("∞", (edge, spot.error), xytext=(0, 7), ha="center",
                                  textcoords="offset points", color=GREY)  # fmt: skip
