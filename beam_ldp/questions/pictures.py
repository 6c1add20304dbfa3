"""What all pictures share (a figure with its title, colours, and the way to a PNG), and the picture
of a release: the most frequent values with intervals that hold for all at once.
"""

from __future__ import annotations

import io
import logging
import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_ldp.randomizers.estimate import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ESTIMATE, TRUTH, GREY, GRID = "#1f5fa8", "#d1495b", "#5f6b76", "#e3e7eb"
WIDTH = 9.0  # inches
ABOVE, BELOW = 1.15, 0.75  # inches around the axes: title, and the axis' own label

_BOXES = "Last Resort"  # a font that has all characters, each as a box


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


def logarithmic(axes: Any, across: str, upward: str) -> None:
    """Both axes: plain figures, a grid, what they say, and a legend of the lines drawn so far."""
    from matplotlib.ticker import LogLocator

    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(across, color=GREY)
    axes.set_ylabel(upward, color=GREY)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_minor_formatter(lambda value, _: "")
    axes.grid(color=GRID)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8)
    bare(axes, "top", "right")


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


_BOXES_STAY = (
    "pictures: no installed font has all characters of the labels, which are boxes there; a font "
    "such as Noto Sans CJK has them"
)


def png(figure: Any) -> bytes:
    """The picture; where its font lacks a character, in another font that is installed."""
    from matplotlib.text import Text

    texts = figure.findobj(Text)
    others, lacking = fallback_fonts("".join(text.get_text() for text in texts))
    for text in texts:
        text.set_family([*text.get_family(), *others])
    if lacking:
        warnings.warn(_BOXES_STAY, stacklevel=2)
    stream, searching = io.BytesIO(), logging.getLogger("matplotlib.font_manager")
    level = searching.level
    with warnings.catch_warnings():
        searching.setLevel(logging.ERROR)  # a font without a bold face takes its plain one
        if lacking:
            warnings.filterwarnings("ignore", "Glyph")  # what no font has becomes a box
        figure.savefig(stream, format="png", metadata={"Software": "beam-ldp"})
        searching.setLevel(level)
    return stream.getvalue()


def fallback_fonts(text: str) -> tuple[tuple[str, ...], bool]:
    """Installed fonts that have what Matplotlib's own lacks of a text, the fewest that do.

    Returns:
        Their names, and whether characters are left that none of them has.
    """
    from matplotlib import font_manager

    usual = font_manager.get_font(font_manager.findfont(font_manager.FontProperties()))
    left = {c for c in text if not c.isspace() and not usual.get_char_index(ord(c))}
    if not left:
        return (), False
    covered: dict[str, set[str]] = {}
    for entry in font_manager.fontManager.ttflist:
        upright = entry.style == "normal" and str(entry.weight) in ("400", "normal", "regular")
        if upright and not entry.name.startswith(_BOXES):
            with suppress(OSError, RuntimeError):  # a file that is gone, or is no font
                font = font_manager.get_font(entry.fname)
                covered[entry.name] = {c for c in left if font.get_char_index(ord(c))}
    chosen: list[str] = []
    while left and any(found & left for found in covered.values()):
        ranked = sorted(covered, key=lambda name: (-len(covered[name] & left), _rank(name)))
        chosen.append(ranked[0])
        left -= covered[ranked[0]]
    return tuple(chosen), bool(left)


def _rank(name: str) -> tuple[bool, str]:
    """Fonts without serifs first."""
    return not ("Sans" in name or "Gothic" in name), name


def shortened(label: str, length: int = 24) -> str:
    """A label that fits beside the plot; what does not print becomes a box."""
    clean = "".join(c if c.isprintable() else "\u25a1" for c in label)
    return clean if len(clean) <= length else clean[: length - 1] + "\u2026"


@dataclass(frozen=True)
class TopList:
    """The `count` largest estimates, in counts of users, with simultaneous 95 % intervals.

    Attributes:
        indices, labels, estimate, low, high: one entry per listed value, largest first.
        raw: the unbiased estimate, whose intervals these are.
        truth: true counts in the same order, where they are known.
        step: what made `estimate` of `raw`; "" where they are the same.
    """

    indices: np.ndarray
    labels: tuple[str, ...]
    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    raw: np.ndarray
    truth: np.ndarray | None = None
    step: str = ""

    @property
    def headings(self) -> tuple[str, ...]:
        """Of the estimates and their interval."""
        if not self.step:
            return "estimate", "95 % interval, all at once"
        return f"estimate, {self.step}", "raw estimate", "95 % interval of the raw one, all at once"


def top_list(
    estimate: Estimate,
    labels: Sequence[str],
    count: int,
    truth: np.ndarray | None = None,
    leave_out: Sequence[int] = (),
) -> TopList:
    """Ranked by estimate, before any post-processing; no values in `leave_out`, such as `other`."""
    counts = estimate.to_counts()
    leading = counts.raw if estimate.postprocessed else counts
    ranked = np.argsort(-leading.value, kind="stable")
    ranked = ranked[~np.isin(ranked, np.asarray(leave_out, dtype=int))][:count]
    low, high = counts.confidence_interval(0.95, simultaneous=True)
    return TopList(
        ranked,
        tuple(labels[i] for i in ranked),
        counts.value[ranked],
        low[ranked],
        high[ranked],
        leading.value[ranked],
        None if truth is None else np.asarray(truth)[ranked],
        estimate.postprocessed,
    )


def plot_top(top: TopList, title: str, subtitle: str) -> Figure:
    """Picture of a list: a dot and a bar per value, and a cross where the truth is known."""
    from matplotlib.ticker import FuncFormatter

    inside = 0.3 * max(1, len(top.labels))
    height = ABOVE + BELOW + inside
    figure = figure_with(title, subtitle, height)
    axes = figure.add_axes((0.24, BELOW / height, 0.71, inside / height))
    places = np.arange(len(top.labels))[::-1]
    axes.hlines(places, top.low, top.high, color=ESTIMATE, alpha=0.3, linewidth=7, zorder=2)
    named, *_, interval = top.headings
    axes.plot(top.estimate, places, "o", color=ESTIMATE, markersize=5, zorder=4, label=named)
    axes.plot([], [], color=ESTIMATE, alpha=0.3, linewidth=7, label=interval)
    if top.truth is not None:
        axes.plot(
            top.truth, places, "x", color=TRUTH, markersize=7, markeredgewidth=1.6, zorder=5,
            label="truth",
        )  # fmt: skip
    axes.set_yticks(places, [shortened(label) for label in top.labels], parse_math=False)
    axes.set_ylim(-0.7, len(top.labels) - 0.3)
    axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
    axes.grid(axis="x", color=GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    bare(axes, "top", "right", "left")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("people", color=GREY)
    axes.legend(loc="lower right", frameon=False, fontsize=9)
    return figure
