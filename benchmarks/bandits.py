"""Regret of linear bandits by model of trust: the setting of the text's Figure 6.2, and its claims.

    python -m benchmarks.bandits [--output benchmarks/results]

Simulated runs with rewards of -1 and 1, sums drawn in law; nobody's data. Regret by model, report
and accountant at a million and a hundred thousand people; slopes in people and in 1/epsilon beside
the orders of the text's Table 6.1; few actions that tell of all against all actions (claim C5 of
the specification); who hides among whom; and the time of ten million people. About ten minutes.
Writes bandits.json, .md and two pictures.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from beam_ldp.decisions.bandit_views import plot
from beam_ldp.decisions.bandits.elimination import LinearBandit
from beam_ldp.decisions.bandits.simulating import (
    VARIANTS,
    RegretCurve,
    circle,
    directions,
    run_in_law,
    simulate,
)
from beam_ldp.questions.pictures import (
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

Row = dict[str, Any]

PLANE = LinearBandit(actions=np.eye(2), horizon=10**6)  # actions are drawn anew for each run
EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0)
_WHOLE = {"model": "shuffled", "amplify_over": "batch"}
_LAPLACE = {**_WHOLE, "report": "laplace"}
FIGURE: dict[str, dict[str, Any]] = {
    **{name: dict(changes) for name, changes in VARIANTS.items() if "core_set" not in changes},
    "shuffled-batch, clones": {**_WHOLE, "accountant": "clones"},
    "shuffled-batch-laplace": _LAPLACE,
    "shuffled-batch-laplace, closed form": {**_LAPLACE, "accountant": "closed-form"},
}
RUNS = 100

# Regret at a million people that the specification prints, in thousands, for `EPSILONS`.
SPECIFIED: dict[str, tuple[float, ...]] = {
    "none": (6.90,),
    "central": (17.2, 10.9, 8.55, 7.33, 6.97, 7.01, 7.00, 7.01),
    "shuffled-batch-laplace": (26.0, 17.8, 12.6, 9.68, 8.79, 8.39, 8.23, 7.95),
    "shuffled-batch-laplace, closed form": (74.9, 45.0, 26.4, 14.3, 10.5, 9.73, 9.19, 8.07),
    "local-laplace": (421, 313, 175, 73.8, 34.0, 15.8, 11.1, 8.44),
    "local": (404, 241, 133, 50.7, 21.7, 10.4, 7.82, 6.96),
    "shuffled-batch, clones": (18.6, 12.6, 10.0, 8.09, 7.55, 7.15, 7.10, 6.99),
}
SPECIFIED_1E5 = {"none": 3.57, "central": 3.61, "local-laplace": 13.7,
                 "shuffled-batch-laplace, closed form": 6.77}  # fmt: skip

DECADES = (10**4, 10**5, 10**6, 10**7, 10**8)
ORDERS = {  # Table 6.1 and its theorems, with the factors of the dimension left out
    "none": "sqrt(T log T)",
    "central": "sqrt(T log T) + log(T)^2 / epsilon",
    "shuffled": "sqrt(T log T) + log(T)^1.5 / epsilon",
    "local": "(1 + 1/epsilon) sqrt(T) log T",
}
CORE_EPSILONS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0)
CORE_SETTINGS = (("printed", 10**6), ("safe", 10**6), ("printed", 10**7))
CORE_SPECIFIED = {  # thousands, widths as printed, a million people, with and without a core set
    0.02: (146, 461), 0.05: (104, 369), 0.1: (90, 259), 0.2: (77, 149), 0.5: (71, 82),
    1.0: (68, 61), 3.0: (66, 41),
}  # fmt: skip
CROWDS_SPECIFIED = {0.1: (64.9, 48.2), 0.5: (19.5, 16.5), 1.0: (13.6, 12.2)}
_TIMED = ("none", "central", "shuffled", "shuffled-laplace", "local", "local-laplace")


# What is computed ---------------------------------------------------------------------------------


def figures(
    horizon: int, names: tuple[str, ...] = tuple(FIGURE), runs: int = RUNS
) -> list[RegretCurve]:
    """Variants at all epsilons, ten actions of the plane."""
    chosen = {name: FIGURE[name] for name in names}
    bandit = replace(PLANE, horizon=horizon)
    return simulate(bandit, EPSILONS, chosen, actions=circle(10), repeat=runs)


def told_of(curves: list[RegretCurve]) -> dict[str, Row]:
    """Means and standard errors by variant."""
    return {
        curve.variant: {
            "regret": curve.mean.tolist(), "standard_error": curve.standard_error.tolist(),
            "missed": curve.missed,
        }
        for curve in curves
    }  # fmt: skip


def slopes(runs: int = 30) -> dict[str, Any]:
    """Regret at epsilon 1 by decade of people, and slopes: in people, and in 1/epsilon."""
    regret: dict[str, list[float]] = {name: [] for name in ORDERS}
    for horizon in DECADES:
        for curve in simulate(
            replace(PLANE, horizon=horizon), [1.0], tuple(ORDERS), actions=circle(10), repeat=runs
        ):
            regret[curve.variant].append(float(curve.mean[0]))
    return {
        "regret": regret,
        "in_people": {name: np.diff(np.log10(found)).tolist() for name, found in regret.items()},
    }


def slopes_in_epsilon(curves: dict[str, Row]) -> dict[str, Row]:
    """Exponent of 1/epsilon of what regret exceeds that without privacy by, for small epsilons."""
    few = [place for place, epsilon in enumerate(EPSILONS) if epsilon <= 0.5]
    small = np.log(np.array(EPSILONS)[few])
    plain = curves["none"]["regret"][0]
    found = {}
    for name in ("central", "shuffled", "local"):
        excess = np.array(curves[name]["regret"])[few] - plain
        found[name] = {
            "excess": excess.tolist(),
            "slope": -float(np.polyfit(small, np.log(excess), 1)[0]),
        }
    return found


def core_sets(runs: int = 30) -> list[Row]:
    """A trusted server that asks about few actions that tell of all, or about all, of a "
    "thousand."""
    found = []
    for width, horizon in CORE_SETTINGS:
        variants = {
            f"{model}, {name}": {"model": model, "core_set": name == "core set"}
            for model in ("none", "central") for name in ("core set", "all actions")
        }  # fmt: skip
        bandit = replace(PLANE, horizon=horizon, width=width)
        curves = simulate(bandit, CORE_EPSILONS, variants, actions=circle(1000), repeat=runs)
        found.append({"width": width, "horizon": horizon, "curves": told_of(curves)})
    return found


def crowds(runs: int = 30) -> list[Row]:
    """People of one action hide among each other, or all of a batch."""
    settings = {"closed form, Laplace": {**_LAPLACE, "accountant": "closed-form"}, "bits": _WHOLE}
    variants = {
        f"{name}, {over}": {**changes, "amplify_over": over}
        for name, changes in settings.items() for over in ("action", "batch")
    }  # fmt: skip
    found = []
    for rounding in ("floor", "real"):
        bandit = replace(PLANE, rounding=rounding)
        curves = simulate(
            bandit, tuple(CROWDS_SPECIFIED), variants, actions=circle(10), repeat=runs
        )
        found.append({"rounding": rounding, "curves": told_of(curves)})
    return found


def seconds(horizon: int = 10**7) -> dict[str, float]:
    """CPU time of one run of each model, prices of its crowds computed on the way."""
    found = {}
    rng = np.random.default_rng(0)
    for name in _TIMED:
        rows, theta = directions(rng, 1000, 2), directions(rng, 1, 2)[0]
        begun = time.process_time()
        bandit = LinearBandit(actions=rows, horizon=horizon, **VARIANTS[name])
        run_in_law(bandit, theta, rng)
        found[name] = time.process_time() - begun
    return found


def computed() -> tuple[dict[str, Any], bytes]:
    """All numbers of the page, and the picture of the first."""
    curves = figures(10**6)
    told = told_of(curves)
    found = {
        "schema_version": 1,
        "seconds": seconds(),
        "million": told,
        "hundred_thousand": told_of(figures(10**5)),
        "slopes": slopes(),
        "slopes_in_epsilon": slopes_in_epsilon(told),
        "core_sets": core_sets(),
        "crowds": crowds(),
    }
    shown = [curve for curve in curves if curve.variant in VARIANTS]
    return found, png(
        plot(replace(PLANE, actions=directions(np.random.default_rng(0), 10, 2)), shown)
    )


# What is shown ------------------------------------------------------------------------------------


def page(found: dict[str, Any]) -> str:
    """Tables as a Markdown page."""
    lines = [
        "# Regret of linear bandits by model of trust",
        "",
        "`python -m benchmarks.bandits` writes this page. Two features; rewards are -1 or 1; "
        "actions and "
        "the truth are uniform on the circle, anew for each run and the same for all models. "
        "Standard errors "
        "in brackets. Nobody's data was read.",
        "",
        "![regret](bandits.png)",
        "",
        "The setting of the text's Figure 6.2, whose own figures no copy of the text still has; "
        "its number "
        "of people is a million in one place and a hundred thousand in another.",
    ]
    lines += _figure(found["million"], "A million people", SPECIFIED)
    at_one = {name: (None,) * 4 + (value,) for name, value in SPECIFIED_1E5.items()}
    at_one["none"] = (SPECIFIED_1E5["none"],)
    lines += _figure(found["hundred_thousand"], "A hundred thousand people", at_one)
    lines += _slopes(found) + _cores(found["core_sets"]) + _crowds(found["crowds"])
    lines += [
        "", "## Ten million people", "",
        "CPU seconds of one run among 1000 actions, prices of shuffled crowds computed on the "
        "way.", "",
        "| model | seconds |", "|---|---|",
    ]  # fmt: skip
    lines += [f"| {name} | {value:.2f} |" for name, value in found["seconds"].items()]
    return "\n".join(lines) + "\n"


def _figure(curves: dict[str, Row], title: str, specified: dict[str, tuple[Any, ...]]) -> list[str]:
    """Ours, and the farthest from what the specification prints, in standard errors of both."""
    heads = " | ".join(f"{epsilon:g}" for epsilon in EPSILONS)
    lines = [
        "", f"## {title}", "",
        f"Thousands, means of {RUNS} runs. `z` is the largest distance to the figure of the same "
        "setting in the specification (100 other runs), in standard errors of the difference. All "
        "rows have the same actions and truths, so that their distances go together.", "",
        f"| epsilon | {heads} | z |", "|---|" + "---|" * (len(EPSILONS) + 1),
    ]  # fmt: skip
    for name, row in curves.items():
        cells = [
            f"{mean / 1e3:.3g} ({error / 1e3:.2g})"
            for mean, error in zip(row["regret"], row["standard_error"], strict=True)
        ]
        cells += [""] * (len(EPSILONS) - len(cells))
        far = distance(row, specified.get(name, ()))
        shown = "" if far is None else f"{far:.1f}"
        lines.append(f"| {name} | {' | '.join(cells)} | {shown} |")
    missed = sum(row["missed"] for row in curves.values())
    return [*lines, "", f"Runs in which an estimate was farther off than its width: {missed}."]


def distance(row: Row, specified: tuple[float | None, ...]) -> float | None:
    """Largest distance of means to those specified, where both have about the same error."""
    far = [
        (mean - 1e3 * given) / (error * 2**0.5)
        for mean, error, given in zip(row["regret"], row["standard_error"], specified, strict=False)
        if given is not None
    ]
    return max(far, key=abs) if far else None


def _slopes(found: dict[str, Any]) -> list[str]:
    steps = [
        f"{a:.0e} to {b:.0e}".replace("e+0", "e")
        for a, b in zip(DECADES, DECADES[1:], strict=False)
    ]
    lines = [
        "", "## Orders and slopes", "",
        "The orders of the text's Table 6.1, and what regret at epsilon 1 grew by: the slope of "
        "its logarithm "
        "from one number of people to the next (30 runs). The orders are upper bounds for the "
        "worst actions; at "
        "these numbers of people slopes are not theirs.", "",
        f"| model | order | {' | '.join(steps)} |", "|---|---|" + "---|" * len(steps),
    ]  # fmt: skip
    for name, order in ORDERS.items():
        cells = " | ".join(f"{slope:.2f}" for slope in found["slopes"]["in_people"][name])
        lines.append(f"| {name} | {order} | {cells} |")
    lines += [
        "",
        "In epsilon, of a million people and for epsilons up to 0.5: regret beyond that without "
        "privacy grew "
        "with 1/epsilon to the power of",
        "",
        "| model | power |", "|---|---|",
    ]  # fmt: skip
    return lines + [
        f"| {name} | {told['slope']:.2f} |" for name, told in found["slopes_in_epsilon"].items()
    ]


def _cores(settings: list[Row]) -> list[str]:
    lines = [
        "", "## Few actions that tell of all, or all actions", "",
        "A thousand actions, a trusted server; thousands, 30 runs. The text claims that a core set "
        "of two or three "
        "actions is never worse. It is so for small epsilons only: a core set is played at the "
        "extremes of what is "
        "left, which costs more once noise no longer matters. What holds is that regret with a "
        "core set hardly depends "
        "on epsilon.", "",
        "![few actions against all](bandits_core_set.png)",
    ]  # fmt: skip
    heads = " | ".join(f"{epsilon:g}" for epsilon in CORE_EPSILONS)
    for one in settings:
        lines += [
            "", f"Widths `{one['width']}`, {one['horizon']:,} people:", "",
            f"| epsilon | {heads} | no privacy |", "|---|" + "---|" * (len(CORE_EPSILONS) + 1),
        ]  # fmt: skip
        for name in ("core set", "all actions"):
            rows = [one["curves"][f"{model}, {name}"] for model in ("central", "none")]
            cells = " | ".join(_thousands(row) for row in rows)
            lines.append(f"| {name} | {cells} |")
        if (one["width"], one["horizon"]) == CORE_SETTINGS[0]:
            for place, name in enumerate(("core set", "all actions")):
                given = (CORE_SPECIFIED.get(epsilon, ("", ""))[place] for epsilon in CORE_EPSILONS)
                lines.append(
                    f"| {name}, specification | {' | '.join(map(str, given))} | {(66, 30)[place]} |"
                )
    return lines


def _crowds(settings: list[Row]) -> list[str]:
    lines = [
        "", "## Who hides among whom", "",
        "A million people, ten actions, thousands, 30 runs: people of one action hide among each "
        "other "
        "(`--amplify-over action`, which holds where the server logs who saw what), or all of a "
        "batch.", "",
        "| schedule | reports | epsilon | action | batch |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for one in settings:
        for name in ("closed form, Laplace", "bits"):
            for place, epsilon in enumerate(CROWDS_SPECIFIED):
                cells = []
                for over in ("action", "batch"):
                    row = one["curves"][f"{name}, {over}"]
                    cells.append(
                        f"{row['regret'][place] / 1e3:.3g} "
                        f"({row['standard_error'][place] / 1e3:.2g})"
                    )
                lines.append(f"| {one['rounding']} | {name} | {epsilon:g} | {' | '.join(cells)} |")
    told = ", ".join(f"{a}/{b} at {e:g}" for e, (a, b) in CROWDS_SPECIFIED.items())
    return [*lines, "", f"The specification, `floor` and closed form: {told}."]


def _thousands(row: Row) -> str:
    return " | ".join(
        f"{mean / 1e3:.3g} ({error / 1e3:.2g})"
        for mean, error in zip(row["regret"], row["standard_error"], strict=True)
    )


def core_picture(settings: list[Row]) -> bytes:
    """Few actions against all, with the text's widths, by epsilon."""
    height = 4.6
    figure = figure_with(
        "Few actions that tell of all, or all of a thousand: a trusted server",
        "blue: few; red: all; dotted: the same without privacy; bands are two standard errors of "
        "30 runs",
        height,
    )
    for left, one, ticks in (
        (0.11, settings[0], (50_000, 100_000, 200_000, 500_000)),
        (0.61, settings[-1], (100_000, 200_000, 500_000, 1_000_000)),
    ):
        axes = figure.add_axes((left, BELOW / height, 0.37, 1 - (ABOVE + BELOW) / height))
        for name, colour in (("core set", ESTIMATE), ("all actions", TRUTH)):
            row = one["curves"][f"central, {name}"]
            mean, error = np.array(row["regret"]), np.array(row["standard_error"])
            axes.plot(CORE_EPSILONS, mean, color=colour, linewidth=2.2, marker=".")
            axes.fill_between(
                CORE_EPSILONS, mean - 2 * error, mean + 2 * error, color=colour, alpha=0.12
            )
            axes.axhline(one["curves"][f"none, {name}"]["regret"][0], color=colour, linestyle=":")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(CORE_EPSILONS, [f"{epsilon:g}" for epsilon in CORE_EPSILONS])
        axes.xaxis.set_minor_formatter(lambda value, _: "")
        axes.set_yticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.yaxis.set_minor_formatter(lambda value, _: "")
        axes.grid(color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        bare(axes, "top", "right")
        axes.set_xlabel(f"epsilon ({one['horizon']:,} people)", color=GREY)
        axes.set_ylabel("regret", color=GREY)
    return png(figure)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Compute, write everything, print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    found, picture = computed()
    (options.output / "bandits.json").write_text(json.dumps(found, indent=2) + "\n")
    (options.output / "bandits.md").write_text(page(found))
    (options.output / "bandits.png").write_bytes(picture)
    (options.output / "bandits_core_set.png").write_bytes(core_picture(found["core_sets"]))
    print(page(found))
    return found


if __name__ == "__main__":
    main()
