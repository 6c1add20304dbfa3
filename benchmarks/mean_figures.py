"""Figures 3.2a, 3.2b and 3.2c of the thesis, computed anew: which of their claims hold.

    python -m benchmarks.mean_figures [--output benchmarks/results]

Every number is an exact or proven mean squared error of one release, nothing is simulated. Writes
mean_figures.json, mean_figures.md and three plots. Takes about a minute.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from beam_ldp.accounting.shuffle.mean_price import calibrate_l2_messages
from beam_ldp.accounting.shuffle.multi_message import gaussian_mu
from beam_ldp.randomizers.mean import L2Mean, LInfMean, ScalarMean
from beam_ldp.randomizers.mean.allocation import level_weights, printed_local
from benchmarks import mean_baselines as baselines

USERS, DELTA, RADIUS = 1000, 1e-5, 0.5
DIMENSION, MESSAGES, FAILURE = 300, 200, 0.01
LOCAL_BUDGETS = [1.0, 2.0, 4.0, 6.0, 8.0]
SCALAR_BUDGETS = [0.5, 1.0, 1.5, 2.0, 2.5]
VECTOR_BUDGETS = [0.8, 1.0, 1.5, 2.0, 2.4]
Series = dict[str, list[float]]


def series(budgets: list[float], columns: dict[str, Callable[[float], float]]) -> Series:
    """Each column at each budget."""
    return {name: [float(function(e)) for e in budgets] for name, function in columns.items()}


# Figure 3.2a: one user, one number, local model -----------------------------------------------


def printed_levels(epsilon: float, num_levels: int) -> float:
    """Algorithm 3.5.1 with the printed parameters, one message per level."""
    messages, epsilons = printed_local(1, epsilon, num_levels)
    return LInfMean(
        1, epsilon, RADIUS, messages=messages, message_epsilons=epsilons, preset="thesis"
    ).mean_squared_error(1)


LOCAL: dict[str, Callable[[float], float]] = {
    **{f"text, m = {m}": lambda e, m=m: printed_levels(e, m) for m in (1, 2, 3, 4)},  # type: ignore[misc]
    "Laplace": lambda e: baselines.laplace(e, RADIUS),
    "staircase": lambda e: baselines.staircase(e, RADIUS),
    "Duchi": lambda e: baselines.duchi(e, RADIUS),
    "piecewise": lambda e: baselines.piecewise(e, RADIUS),
    "ours, LInfMean": lambda e: LInfMean(1, e, RADIUS).mean_squared_error(1),
    "ours, ScalarMean": lambda e: ScalarMean(1, e, RADIUS, signed=True).mean_squared_error(1),
}


# Figure 3.2b: 1000 users, one number, multi-message shuffle -----------------------------------


def shuffled_scalar(budgets: np.ndarray, printed: bool) -> float:
    """One message per level with these budgets; decoded as printed, or centred."""
    return LInfMean(
        1, float(budgets.sum()) * (1 + 1e-12), RADIUS, messages=(1,) * len(budgets),
        message_epsilons=tuple(budgets.tolist()), preset="thesis" if printed else None,
    ).mean_squared_error(USERS)  # fmt: skip


def text_scalar(epsilon: float, num_levels: int) -> float:
    """The text's route: its Theorem 5.3.1 and its allocation."""
    shape = baselines.printed_shape(num_levels)
    return shuffled_scalar(baselines.text_budgets(shape, epsilon, DELTA, USERS), printed=True)


def exact_scalar(epsilon: float) -> float:
    """Six levels, calibrated to one concrete pair of data sets: a limit, not a promise."""
    shape = np.sqrt(level_weights(6))
    budgets = baselines.exact_pair_budgets(shape, epsilon, DELTA, USERS)
    return shuffled_scalar(budgets, printed=False)


SCALAR: dict[str, Callable[[float], float]] = {
    "SMS, Laplace": lambda e: baselines.shuffled_laplace(e, DELTA, USERS, RADIUS),
    "text's route, m = 4": lambda e: text_scalar(e, 4),
    "text's route, m = 6": lambda e: text_scalar(e, 6),
    "Theorem 3.5.2 as printed, m = 4": lambda e: shuffled_scalar(
        baselines.printed_budgets(4, e, DELTA, USERS), printed=True
    ),
    "ours, m = 6": lambda e: LInfMean.for_shuffle(
        1, e, DELTA, USERS, radius=RADIUS, levels=6
    ).mean_squared_error(USERS),
    "one pair exactly, m = 6": exact_scalar,
    "central Gaussian": lambda e: baselines.central_gaussian(1, e, DELTA, USERS, 2 * RADIUS),
}


# Figure 3.2c: 1000 users, 300 coordinates, multi-message shuffle -------------------------------


def squared_cutoff(kind: str) -> float:
    """R^2 d / r^2: the printed radius, the union bound, and that of flat data."""
    union = 2 * math.log(2 * USERS * DIMENSION / FAILURE)
    printed = 100 * math.log(USERS * DIMENSION / FAILURE)
    return {"printed": printed, "union": union, "flat": 1.0}[kind]


def text_vector(epsilon: float, kind: str) -> float:
    """200 messages on balanced blocks of one level, not centred, priced by Theorem 5.3.1."""
    shape = np.ones(1)
    (budget,) = baselines.text_budgets(shape, epsilon, DELTA, USERS, columns=MESSAGES)
    sizes = LInfMean(
        DIMENSION, 1e6, messages=(MESSAGES,), message_epsilons=(1.0,)
    ).layout.coordinate_laws(0)[0]
    held = np.minimum(1.0, sizes / 2)  # the bit of most variance: max of a q - q^2
    noise = sizes / (2 * math.sinh(budget / 2)) ** 2 + sizes * held - held**2
    return float(4 * squared_cutoff(kind) / (DIMENSION * USERS) * noise.sum())


def exact_vector(epsilon: float) -> float:
    """One message per coordinate, centred, union radius, one pair's Renyi divergence."""
    shape = np.ones(1)
    (budget,) = baselines.exact_rdp_budgets(shape, epsilon, DELTA, USERS, columns=DIMENSION)
    return squared_cutoff("union") / (USERS * math.tanh(budget / 2) ** 2)


def length_aware(epsilon: float, repeats: int) -> float:
    """The same, priced by the length of vectors, with so many bits per coordinate."""
    square = squared_cutoff("union")
    mu = gaussian_mu(epsilon, DELTA)
    change = repeats * DIMENSION / square
    budget = calibrate_l2_messages(repeats * DIMENSION, change, epsilon, DELTA, USERS, mu)
    return square / (USERS * repeats * math.tanh(budget / 2) ** 2)


VECTOR: dict[str, Callable[[float], float]] = {
    "SMS, PrivUnit": lambda e: baselines.shuffled_priv_unit(DIMENSION, e, DELTA, USERS),
    "text's route, printed radius": lambda e: text_vector(e, "printed"),
    "text's route, union radius": lambda e: text_vector(e, "union"),
    "text's route, flat data": lambda e: text_vector(e, "flat"),
    "one pair exactly, union radius": exact_vector,
    "length-aware, 1 bit": lambda e: length_aware(e, 1),
    "length-aware, 4 bits": lambda e: length_aware(e, 4),
    "ours, L2Mean": lambda e: L2Mean.for_shuffle(DIMENSION, e, DELTA, USERS).mean_squared_error(
        USERS
    ),
    "central Gaussian": lambda e: baselines.central_gaussian(DIMENSION, e, DELTA, USERS, 2.0),
}


# Claims ---------------------------------------------------------------------------------------


def ratios(numbers: Series, above: str, below: str) -> tuple[float, float]:
    """Smallest and largest quotient of two columns."""
    quotient = np.array(numbers[above]) / np.array(numbers[below])
    return float(quotient.min()), float(quotient.max())


def claims_a(numbers: Series) -> list[tuple[str, bool, str]]:
    """What the text says of Figure 3.2a."""
    levels = np.array([numbers[f"text, m = {m}"] for m in (1, 2, 3, 4)])
    farthest = (levels.min(axis=0) / np.array(numbers["Laplace"])).max()
    best = levels.argmin(axis=0) + 1
    until = [e for e, m in zip(LOCAL_BUDGETS, best) if m <= 3]
    others = np.array([v for name, v in numbers.items() if name != "ours, ScalarMean"])
    ahead = others.min(axis=0) / np.array(numbers["ours, ScalarMean"])
    return [
        ("close to Laplace", bool(farthest <= 2), f"within {farthest:.2f}x with the best m"),
        (
            "three levels suffice",
            max(until) >= 6,
            f"the best m is {', '.join(map(str, best))} at eps = "
            f"{', '.join(f'{e:g}' for e in LOCAL_BUDGETS)}; three levels are within "
            f"{(levels[:3].min(axis=0) / levels.min(axis=0)).max():.3f}x of four",
        ),
        (
            "nothing here beats a grid with randomized response (ours, ScalarMean)",
            bool(ahead.min() > 0.999),
            f"the next best has {ahead[0]:.2f}x to {ahead.max():.2f}x its error",
        ),
    ]


def claims_b(numbers: Series) -> list[tuple[str, bool, str]]:
    """What the text says of Figure 3.2b."""
    sms = np.array(numbers["SMS, Laplace"])
    route = np.array(numbers["text's route, m = 4"]) / sms
    low, high = ratios(numbers, "Theorem 3.5.2 as printed, m = 4", "SMS, Laplace")
    gain = ratios(numbers, "SMS, Laplace", "ours, m = 6")
    return [
        (
            "many messages beat one, mostly at large eps",
            bool(route[-1] < 1 and (np.diff(route) < 0).all()),
            f"by the text's route the ratio to SMS falls from {route[0]:.2f} to {route[-1]:.2f}, "
            "and crosses one near eps = 1",
        ),
        (
            "Theorem 3.5.2's parameters do so",
            bool(high < 1),
            f"they lose to SMS by {low:.0f}x to {high:.0f}x: the figure cannot have used them",
        ),
        (
            "many messages beat one (our accounting and allocation)",
            gain[0] > 1,
            f"by {gain[0]:.1f}x to {gain[1]:.1f}x",
        ),
    ]


def claims_c(numbers: Series) -> list[tuple[str, bool, str]]:
    """What the text says of Figure 3.2c."""
    found = []
    for kind, name in (
        ("printed radius", "with the printed radius"),
        ("union radius", "with the radius of the union bound"),
        ("flat data", "with the radius of flat data"),
    ):
        low, high = ratios(numbers, f"text's route, {kind}", "SMS, PrivUnit")
        holds = high < 1
        said = f"{1 / high:.1f}x to {1 / low:.1f}x better" if holds else (
            f"{low:.0f}x to {high:.0f}x worse"
        )  # fmt: skip
        found.append((f"many messages beat one, {name}", holds, f"{said} than SMS PrivUnit"))
    gain = ratios(numbers, "SMS, PrivUnit", "ours, L2Mean")
    found.append(
        (
            "many messages beat one (our accounting)",
            gain[0] > 1,
            f"by {gain[0]:.1f}x to {gain[1]:.1f}x, for every data set",
        )
    )
    return found


FIGURES: dict[str, dict[str, Any]] = {
    "3.2a": {
        "title": "Figure 3.2a: one number, local model, one user, radius 0.5",
        "axis": "local epsilon", "budgets": LOCAL_BUDGETS, "columns": LOCAL, "claims": claims_a,
        "curve": np.arange(0.5, 8.01, 0.25).tolist(),
    },
    "3.2b": {
        "title": "Figure 3.2b: one number, n = 1000, delta = 1e-5, radius 0.5, shuffled",
        "axis": "central epsilon", "budgets": SCALAR_BUDGETS, "columns": SCALAR,
        "claims": claims_b,
    },
    "3.2c": {
        "title": "Figure 3.2c: 300 coordinates, n = 1000, delta = 1e-5, l2 radius 1, shuffled",
        "axis": "central epsilon", "budgets": VECTOR_BUDGETS, "columns": VECTOR,
        "claims": claims_c,
    },
}  # fmt: skip


# Output ---------------------------------------------------------------------------------------


def plot(figure: dict[str, Any], budgets: list[float], numbers: Series, path: Path) -> None:
    """Error against budget, one line per mechanism, named at its right end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    canvas, axes = plt.subplots(figsize=(9.5, 5.6))
    colours = [_colour(i, name) for i, name in enumerate(numbers)]
    marker = "o" if len(budgets) < 10 else None
    for i, (name, values) in enumerate(numbers.items()):
        ours = name.startswith("ours")
        style = "-" if ours else ("--" if name.startswith(("text", "Theorem")) else ":")
        axes.semilogy(
            budgets, values, style, color=colours[i], marker=marker, markersize=4,
            linewidth=2.8 if ours else 1.6, label=name,
        )  # fmt: skip
    _label_ends(axes, budgets[-1], numbers, colours)
    axes.set_xlim(budgets[0], budgets[-1] + 0.42 * (budgets[-1] - budgets[0]))
    axes.set_xticks([e for e in figure["budgets"]])
    axes.set_xlabel(figure["axis"])
    axes.set_ylabel("mean squared error")
    axes.set_title(figure["title"], loc="left", fontsize=11)
    axes.grid(True, which="major", alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    canvas.tight_layout()
    canvas.savefig(path, dpi=120)
    plt.close(canvas)


def _colour(place: int, name: str) -> str:
    others = [
        "#1f77b4",
        "#d95f02",
        "#2ca02c",
        "#c51b7d",
        "#7b5ea7",
        "#8c564b",
        "#17829c",
        "#666666",
    ]
    return "black" if name.startswith("ours") else others[place % len(others)]


def _label_ends(axes: Any, x: float, numbers: Series, colours: list[Any]) -> None:
    """Names beside the last points, moved apart where they would touch."""
    ends = np.log10([values[-1] for values in numbers.values()])
    everything = np.log10([v for values in numbers.values() for v in values])
    gap = (everything.max() - everything.min()) / 22
    order = np.argsort(ends)
    heights = ends[order]
    for _ in range(200):
        for k in range(len(heights) - 1):
            overlap = gap - (heights[k + 1] - heights[k])
            if overlap > 0:
                heights[k] -= overlap / 2
                heights[k + 1] += overlap / 2
    names = list(numbers)
    for k, height in zip(order, heights):
        axes.annotate(
            names[k], (x, 10 ** ends[k]), (x * 1.03, 10**height), color=colours[k], fontsize=8.5,
            va="center", arrowprops={"arrowstyle": "-", "color": colours[k], "lw": 0.5},
        )  # fmt: skip


def page(result: dict[str, Any]) -> str:
    """Tables and claims as a Markdown page."""
    lines = [
        "# Figures 3.2a to 3.2c of the thesis, computed anew",
        "",
        "Mean squared errors, exact or proven, worst data. SMS is one report per user, amplified "
        "by shuffling (clones). `python -m benchmarks.mean_figures` writes this page.",
    ]
    for key, figure in FIGURES.items():
        numbers, found = result[key]["errors"], result[key]["claims"]
        heads = [f"{figure['axis']} {e:g}" for e in figure["budgets"]]
        lines += ["", f"## {figure['title']}", "", f"![{key}](mean_figure_{key}.png)", ""]
        lines += ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
        for name, values in numbers.items():
            lines.append(f"| {name} | " + " | ".join(f"{v:.3g}" for v in values) + " |")
        lines += ["", "| claim | | |", "|---|---|---|"]
        for claim, holds, why in found:
            lines.append(f"| {claim} | {'holds' if holds else '**does not hold**'} | {why} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Compute, write everything, print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"schema_version": 1}
    for key, figure in FIGURES.items():
        print(f"figure {key} ...", flush=True)
        numbers = series(figure["budgets"], figure["columns"])
        result[key] = {
            "budgets": figure["budgets"], "errors": numbers, "claims": figure["claims"](numbers),
        }  # fmt: skip
        curve = figure.get("curve", figure["budgets"])
        drawn = series(curve, figure["columns"]) if "curve" in figure else numbers
        plot(figure, curve, drawn, options.output / f"mean_figure_{key}.png")
    (options.output / "mean_figures.json").write_text(json.dumps(result, indent=2) + "\n")
    (options.output / "mean_figures.md").write_text(page(result))
    print(page(result))
    return result


if __name__ == "__main__":
    main()
