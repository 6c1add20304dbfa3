"""The figures: what is drawn in each panel, and how. One file per figure of the thesis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
from beam_ldp.accounting.composition.loss_curves import renyi_divergences
from beam_ldp.accounting.divergences.shuffle_rdp import thesis_upper_1
from beam_ldp.accounting.schedule_prices import OutOfRangeError
from beam_ldp.research.published.closed_forms import balle_2019_bennett, balle_2019_hoeffding
from beam_ldp.research.published.renyi import (
    erlingsson_2019,
    thesis_upper_2,
    two_response_direction,
    two_response_lower,
)
from benchmarks.paper_figures import bounds
from benchmarks.paper_figures.bounds import Run

# Ink of the thesis' bounds, then grey ones for others', then ours. Dashed lines are lower bounds.
STYLES = {
    "Theorem 5.3.1": ("#c1531b", "-"),
    "Theorem 5.4.1": ("#c1531b", "-"),
    "Theorem 5.3.2": ("#e0a458", "-"),
    "Theorem 5.3.1, Poisson sampled": ("#c1531b", "-"),
    "Theorem 5.3.1, then Wang et al. 2019": ("#e0a458", "-"),
    "lower bound as printed": ("#c1531b", "--"),
    "printed lower bound, converted": ("#c1531b", "--"),
    "Erlingsson et al. 2019": ("#9aa3ab", "-"),
    "blanket, Balle et al. 2019": ("#b48ead", "-"),
    "clones, closed form": ("#6c757d", ":"),
    "clones + strong composition": ("#4a4e69", "-"),
    "eps0 + strong composition": ("#4a4e69", ":"),
    "beam-ldp": ("#1f5fa8", "-"),
    "some randomizer costs this": ("#1f5fa8", "--"),
}


class Panel(NamedTuple):
    """One pair of axes. Lines are functions of x; a value beyond the axes is left out."""

    title: str
    x_label: str
    y_label: str
    x: Sequence[float]
    lines: dict[str, Callable[[float], float]]
    limits: tuple[float, float]
    points: Sequence[tuple[float, float, str]] = ()
    log_x: bool = True


class Drawn(NamedTuple):
    """A figure."""

    name: str
    title: str
    panels: Sequence[Panel]


def figure_52() -> Drawn:
    """Divergence of one shuffle against the order."""
    panels = []
    for eps0, n in ((0.1, 10**4), (0.5, 10**4), (1.0, 10**4), (2.0, 10**5), (3.0, 10**6)):

        def ours(a: float, eps0: float = eps0, n: int = n) -> float:
            event = ShuffledDpEvent(LocalRandomizerDpEvent(eps0), n)
            return float(renyi_divergences(event, np.array([a]))[0])

        lines = {
            "Erlingsson et al. 2019": _bound(erlingsson_2019, eps0, n),
            "Theorem 5.3.2": _bound(thesis_upper_2, eps0, n),
            "Theorem 5.3.1": _bound(thesis_upper_1, eps0, n),
            "beam-ldp": ours,
            "some randomizer costs this": _bound(two_response_lower, eps0, n),
            "lower bound as printed": _bound(two_response_direction, eps0, n),
        }
        orders = np.unique(np.geomspace(2, 3000, 22).round())
        least = two_response_lower(2.0, eps0, n)
        title = f"eps0 = {eps0:g}, n = {_power(n)}"
        panels.append(
            Panel(title, "order", "Rényi divergence", orders, lines, (0.6 * least, 3 * eps0))
        )
    return Drawn("5.2", "One shuffle: Rényi divergence", panels)


def figure_53() -> Drawn:
    """Epsilon of one shuffle against eps0 and against the number of people."""
    delta = 1e-6

    def lines(run: Callable[[float], Run]) -> dict[str, Callable[[float], float]]:
        return {
            "Erlingsson et al. 2019": lambda x: bounds.erlingsson(run(x)),
            "blanket, Balle et al. 2019": lambda x: _blanket(run(x)),
            "Theorem 5.3.1": lambda x: bounds.theorem_531(run(x)),
            "clones, closed form": lambda x: bounds.clones_closed_composed(run(x)),
            "beam-ldp": lambda x: bounds.ours(run(x)),
            "some randomizer costs this": lambda x: bounds.floor(run(x)),
            "printed lower bound, converted": lambda x: bounds.printed_lower(run(x)),
        }

    def panel(title: str, label: str, x: Sequence[float], run: Callable[[float], Run]) -> Panel:
        low = min(bounds.floor(run(v)) for v in (x[0], x[-1]))
        return Panel(title, label, "epsilon", x, lines(run), (0.6 * low, 4.0), (), label == "n")

    budgets, crowds = np.linspace(0.25, 4, 12), np.geomspace(1e3, 1e7, 11).round()
    return Drawn(
        "5.3",
        f"One shuffle: epsilon at delta = {delta:g}",
        [
            panel("n = 10⁴", "eps0", budgets, lambda x: Run(x, 10**4, 10**4, 1, delta)),
            panel("n = 10⁶", "eps0", budgets, lambda x: Run(x, 10**6, 10**6, 1, delta)),
            panel("eps0 = 0.5", "n", crowds, lambda x: Run(0.5, int(x), int(x), 1, delta)),
            panel("eps0 = 2", "n", crowds, lambda x: Run(2.0, int(x), int(x), 1, delta)),
        ],
    )


def figure_54() -> Drawn:
    """Epsilon of many shuffles of everybody."""
    panels = []
    for eps0, n in ((0.5, 10**6), (1.0, 10**6), (2.0, 10**6)):

        def run(rounds: float, eps0: float = eps0, n: int = n) -> Run:
            return Run(eps0, n, n, int(rounds), 1e-8)

        lines = _over(
            run,
            {
                "Erlingsson et al. 2019": bounds.erlingsson,
                "Theorem 5.3.1": bounds.theorem_531,
                "clones + strong composition": bounds.clones_composed,
            },
        )
        title = f"eps0 = {eps0:g}, n = {_power(n)}"
        rounds = np.geomspace(1, 1e5, 11).round()
        panels.append(_of_rounds(title, rounds, lines, 30))
    return Drawn("5.4", "Many shuffles: epsilon at delta = 1e-8", panels)


def figure_55() -> Drawn:
    """Poisson sampling in the text; ours draws as many people as that does on average."""
    panels = []
    for eps0, n in ((1.0, 10**6), (2.0, 10**6), (1.0, 10**7)):

        def run(rounds: float, eps0: float = eps0, n: int = n) -> Run:
            return Run(eps0, n, n // 1000, int(rounds), 1e-8)

        lines = _over(
            run,
            {
                "Theorem 5.3.1, Poisson sampled": bounds.zhu,
                "clones + strong composition": bounds.clones_composed,
                "eps0 + strong composition": bounds.fallback_composed,
            },
        )
        title = f"eps0 = {eps0:g}, n = {_power(n)}, rate 0.001"
        panels.append(_of_rounds(title, np.geomspace(10, 1e5, 9).round(), lines, 30))
    return Drawn("5.5", "Many shuffles of a random part: epsilon at delta = 1e-8", panels)


def figure_56() -> Drawn:
    """Fixed-size samples."""
    methods = {
        "Theorem 5.4.1": bounds.theorem_541,
        "Theorem 5.3.1, then Wang et al. 2019": bounds.wang,
        "clones + strong composition": bounds.clones_composed,
        "eps0 + strong composition": bounds.fallback_composed,
    }
    panels = []
    for eps0, n, k in ((2.0, 10**6, 10**3), (1.0, 10**7, 10**4)):

        def run(rounds: float, eps0: float = eps0, n: int = n, k: int = k) -> Run:
            return Run(eps0, n, k, int(rounds), 1e-8)

        title = f"eps0 = {eps0:g}, {_power(k)} of {_power(n)} people"
        rounds = np.geomspace(10, 1e5, 9).round()
        panels.append(_of_rounds(title, rounds, _over(run, methods), 30))

    def people(n: float) -> Run:
        return Run(2.0, int(n), 1000, 10**5, 1e-8)

    title = "eps0 = 2, 1000 people per round, T = 10⁵"
    lines, n = _over(people, methods), np.geomspace(1e5, 1e7, 9).round()
    panels.append(Panel(title, "people", "epsilon", n, lines, (0.01, 300)))
    return Drawn("5.6", "Many shuffles of a random part: epsilon at delta = 1e-8", panels)


def figure_57() -> Drawn:
    """What the epochs of the two training runs cost; circles are the points that the texts name."""
    sup = ((35, 1.4, "80 % accurate"), (178, 2.91, "90 %"), (178, 4.82, "90 %, clones"))
    two = ((50, 3.0, "81 %"), (200, 5.8, "90 %"), (200, 18.3, "90 %, clones"))
    panels = []
    for title, eps0, k, per_epoch, points in (
        ("sup norm: 10,000 of 60,000 people, eps0 = 1.5", 1.5, 10_000, 6, sup),
        ("Euclidean norm: 2,000 of 60,000 people, eps0 = 2", 2.0, 2_000, 30, two),
    ):

        def run(epoch: float, eps0: float = eps0, k: int = k, per_epoch: int = per_epoch) -> Run:
            return Run(eps0, 60_000, k, round(epoch * per_epoch), 1e-5)

        lines = _over(
            run,
            {
                "Theorem 5.4.1": bounds.theorem_541,
                "clones + strong composition": bounds.clones_composed,
            },
        )
        epochs = np.array([2, 5, 10, 20, 35, 50, 80, 120, 178, 200.0])
        panels.append(Panel(title, "epoch", "epsilon", epochs, lines, (0.02, 30), points))
    return Drawn("5.7", "The training runs on MNIST: epsilon at delta = 1e-5", panels)


FIGURES = {
    "5.2": figure_52,
    "5.3": figure_53,
    "5.4": figure_54,
    "5.5": figure_55,
    "5.6": figure_56,
    "5.7": figure_57,
}


def draw(drawn: Drawn, folder: Path) -> Iterator[str]:
    """Computes line by line, saying which, and writes the PNG in the end."""
    columns = 2 if len(drawn.panels) in (2, 4) else 3
    rows = math.ceil(len(drawn.panels) / columns)
    figure = Figure(figsize=(5.2 * columns, 4.1 * rows + 1.1), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"Figure {drawn.name}, computed anew. {drawn.title}", fontsize=13)
    axes = np.atleast_1d(figure.subplots(rows, columns)).reshape(-1)
    handles: dict[str, object] = {}
    for axis, panel in zip(axes, drawn.panels, strict=False):
        for name, line in panel.lines.items():
            yield f"{panel.title}: {name}"
            handles.setdefault(name, _plot(axis, panel, name, line))
        _frame(axis, panel)
    for axis in axes[len(drawn.panels) :]:
        axis.set_axis_off()
    names = [name for name in STYLES if name in handles]
    figure.legend(
        [handles[name] for name in names], names, loc="outside lower center", ncols=4, frameon=False
    )
    figure.savefig(folder / f"figure_{drawn.name.replace('.', '_')}.png", dpi=110)


def _plot(axis: Axes, panel: Panel, name: str, line: Callable[[float], float]) -> object:
    colour, dashes = STYLES[name]
    y = np.array([line(float(x)) for x in panel.x])
    y[(y > 20 * panel.limits[1]) | ~np.isfinite(y)] = np.nan
    width = 2.4 if name == "beam-ldp" else 1.6
    (handle,) = axis.plot(panel.x, y, color=colour, linestyle=dashes, linewidth=width)
    return handle


def _frame(axis: Axes, panel: Panel) -> None:
    axis.set_yscale("log")
    if panel.log_x:
        axis.set_xscale("log")
    axis.set_ylim(*panel.limits)
    axis.set_title(panel.title, fontsize=11)
    axis.set_xlabel(panel.x_label)
    axis.set_ylabel(panel.y_label)
    axis.grid(which="major", color="#e3e6e8", linewidth=0.8)
    axis.spines[["top", "right"]].set_visible(False)
    for x, y, text in panel.points:
        axis.plot(
            [x], [y], "o", color="#333333", markersize=5, markerfacecolor="none", clip_on=False
        )
        axis.annotate(
            text,
            (x, y),
            (-6, 6),
            textcoords="offset points",
            fontsize=8,
            ha="right",
            color="#333333",
        )


def _of_rounds(
    title: str, rounds: Sequence[float], lines: dict[str, Callable[[float], float]], top: float
) -> Panel:
    low = lines["some randomizer costs this"](rounds[0])
    return Panel(title, "rounds", "epsilon", rounds, lines, (0.6 * low, top))


def _over(
    run: Callable[[float], Run], methods: dict[str, Callable[[Run], float]]
) -> dict[str, Callable[[float], float]]:
    """Methods as functions of x, ours added."""
    every = {
        **methods,
        "beam-ldp": bounds.ours,
        "some randomizer costs this": bounds.floor,
        "printed lower bound, converted": bounds.printed_lower,
    }
    return {
        name: lambda x, method=method: method(run(x))  # type: ignore[misc]
        for name, method in every.items()
    }


def _bound(bound: Callable[..., float], eps0: float, n: int) -> Callable[[float], float]:
    return lambda order: bound(int(order), eps0, n)


def _blanket(run: Run) -> float:
    """The better of the two inequalities."""
    found = [run.local_epsilon]
    for bound in (balle_2019_hoeffding, balle_2019_bennett):
        try:
            found.append(bound(run.local_epsilon, run.num_users, run.delta))
        except OutOfRangeError:
            continue
    return min(found)


def _power(n: int) -> str:
    exponent = round(math.log10(n))
    superscript = str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{superscript}" if 10**exponent == n else f"{n:,}"
