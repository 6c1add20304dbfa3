"""People against epsilon: asking the same people again, fresh ones in their place, or neither.

    python -m benchmarks.interactivity [--output benchmarks/results]

Nothing is simulated. Two protocols, a median by bisection and a descent through three levels of
places; for each the people of five ways to run it, beside one round of the project's own reports
(`beam-ldp frequency`). Then the price of asking everybody once for any protocol, and the depth at
which a theorem says that it must cost people at all. Writes interactivity.json, .md and .png.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from scipy import stats

from beam_ldp.planning.ranges import plan_ranges
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
from beam_ldp.randomizers.domain import Bins
from beam_ldp.randomizers.frequency import SubsetSelection
from beam_ldp.randomizers.hierarchy import rare_variance
from beam_ldp.research.interactivity.descents import separation_depth
from beam_ldp.research.interactivity.places import PlaceSearch
from beam_ldp.research.interactivity.quantiles import QuantileSearch
from beam_ldp.research.interactivity.sequential import SequentialPrice

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0)
MEDIAN = QuantileSearch(cells=64, level=0.5, epsilon=1.0, error=0.05)
PLACES = PlaceSearch(depth=3, children=4, epsilon=1.0, share=0.2, rival=0.1)
WAYS = ("one round", "once", "again", "plain", "tight", "paper")
ANY = (1000, 5)  # people and questions to each, of any protocol
_PLANNED, _HEIGHT = 10**6, 4.6
Row = dict[str, Any]


def median_in_one_round(epsilon: float) -> int:
    """People of a tree over the same cells whose distribution function is as good everywhere.

    In normal approximation: no edge that is further off than `error` is on the wrong side.
    """
    bins = Bins.parse(f"0:{MEDIAN.cells - 2}:{MEDIAN.cells - 2}")
    plan = plan_ranges(_PLANNED, bins, local_epsilon=epsilon)[0]
    variance = _PLANNED * plan.worst_error**2
    if max(plan.randomizer.shares(_PLANNED)) >= _PLANNED:
        variance += 0.25  # of the draw of people, which plans leave out where all answer all
    reach = stats.norm.isf(MEDIAN.beta / (MEDIAN.cells - 1))
    return math.ceil((reach / MEDIAN.error) ** 2 * variance)


def places_in_one_round(epsilon: float) -> int:
    """People of one report about all places whose counts have the same order.

    In normal approximation: none of the sisters of the three right places is counted oftener.
    """
    oracle = SubsetSelection(PLACES.data, epsilon)
    variance = 2 * rare_variance(oracle, 1) + PLACES.share + PLACES.rival
    reach = stats.norm.isf(PLACES.beta / (PLACES.depth * (PLACES.children - 1)))
    return math.ceil((reach / (PLACES.share - PLACES.rival)) ** 2 * variance)


def row(epsilon: float, once: QuantileSearch | PlaceSearch, one_round: int) -> Row:
    """One protocol at one epsilon, by way."""
    once = replace(once, epsilon=epsilon)
    again = replace(once, again=True)
    fresh = {mode: math.ceil(price) for mode, price in modes_of(again.price).items()}
    people = {"one round": one_round, "once": once.people, "again": again.people, **fresh}
    return {"epsilon": epsilon, "people": people}


def modes_of(price: SequentialPrice) -> dict[str, float]:
    """Expected people by mode."""
    return {mode: told["expected_people"] for mode, told in price.to_json().items()}


def any_protocol(epsilon: float, k: float) -> Row:
    """Expected people, and people that are exceeded once in twenty, of a protocol by its size."""
    people, questions = ANY
    price = SequentialPrice(people, people * questions, k, epsilon)
    return {
        "epsilon": epsilon,
        "k": k,
        "expected": modes_of(price),
        "rarely_more": {mode: price.at_most(mode, 0.05) for mode in ("plain", "tight", "paper")},
    }


def computed() -> dict[str, Any]:
    """All numbers of the page."""
    return {
        "schema_version": 1,
        "median": [row(e, MEDIAN, median_in_one_round(e)) for e in EPSILONS],
        "places": [row(e, PLACES, places_in_one_round(e)) for e in EPSILONS],
        "any": [any_protocol(e, k) for k in (1.0, 5.0) for e in EPSILONS[:5]],
        "separation": [
            {
                "epsilon": e,
                "depth": separation_depth(e),
                "of_the_paper": separation_depth(e, of_the_paper=True),
            }
            for e in EPSILONS[:5]
        ],
    }


def picture(found: dict[str, Any]) -> bytes:
    """People against epsilon, both protocols side by side."""
    figure = figure_with(
        "People against epsilon: again, once, or in one round",
        "blue: the same people; red: people for each wave; grey: one round; "
        "dashed, dotted: fresh people (plain, tight)",
        _HEIGHT,
    )
    styles = (
        ("again", ESTIMATE, "-"), ("once", TRUTH, "-"), ("one round", GREY, "-"),
        ("plain", ESTIMATE, "--"), ("tight", ESTIMATE, ":"),
    )  # fmt: skip
    for left, name, label in ((0.08, "median", "a median of 64 cells"), (0.57, "places", "a city")):
        axes = figure.add_axes((left, BELOW / _HEIGHT, 0.4, 1 - (ABOVE + BELOW) / _HEIGHT))
        for way, colour, style in styles:
            people = [one["people"][way] for one in found[name]]
            axes.plot(EPSILONS, people, color=colour, linestyle=style, linewidth=2.2)
        axes.set_xscale("log", base=2)
        axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axes.set_yscale("log")
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        bare(axes, "top", "right")
        axes.set_xlabel(f"local epsilon of a person ({label})", color=GREY)
        axes.set_ylabel("people", color=GREY)
    return png(figure)


def page(found: dict[str, Any]) -> str:
    """Tables as a Markdown page."""
    lines = [
        "# What it takes to ask everybody once",
        "",
        "`python -m benchmarks.interactivity` writes this page. Everybody is promised the local "
        "epsilon of the row; fresh people of `tight` and `paper` have up to twice that. Waves have "
        "proved sizes; those of one round are normal approximations, of a tree over the cells that "
        "gives all quantiles and of counts of all places (`beam-ldp frequency`).",
        "",
        "![people against epsilon](interactivity.png)",
    ]
    titles = {
        "median": f"A median of {MEDIAN.cells} cells, to {MEDIAN.error:.0%} of the people, "
        f"in {1 - MEDIAN.beta:.0%} of cases",
        "places": f"A descent through {PLACES.depth} levels of {PLACES.children} children, "
        f"{PLACES.share:.0%} against {PLACES.rival:.0%}, in {1 - PLACES.beta:.0%} of cases",
    }
    for name, title in titles.items():
        lines += [
            "", f"## {title}", "",
            "| epsilon | one round, everybody once | waves, people of their own "
            "| waves, the same people | fresh in their place: `plain` | `tight` | `paper` |",
            "|---|---|---|---|---|---|---|",
        ]  # fmt: skip
        for one in found[name]:
            people = " | ".join(f"{one['people'][way]:,}" for way in WAYS)
            lines.append(f"| {one['epsilon']:g} | {people} |")
    people, questions = ANY
    lines += [
        "", f"## Any protocol of {people:,} people who are asked {questions} times", "",
        "Expected at most, and in brackets what is exceeded once in twenty. The compositionality k "
        "is 1 where epsilons add up to the promise, and the number of questions where each has all "
        "of it.", "",
        "| k | epsilon | `plain` | `tight` | `paper` |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for one in found["any"]:
        told = " | ".join(
            f"{one['expected'][mode]:,.0f} ({one['rarely_more'][mode]:,})"
            for mode in ("plain", "tight", "paper")
        )
        lines.append(f"| {one['k']:g} | {one['epsilon']:g} | {told} |")
    lines += [
        "", "## Where asking once must take more people", "",
        "The least depth of multi-party pointer jumping, in a tree of depth^4 children, at which "
        "the lower bound for people who are asked once exceeds what is enough for people who are "
        "asked again.", "",
        "| epsilon | depth | as printed |", "|---|---|---|",
    ]  # fmt: skip
    lines += [
        f"| {one['epsilon']:g} | {one['depth']:.2g} | {one['of_the_paper']:.2g} |"
        for one in found["separation"]
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Compute, write everything, print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    found = computed()
    (options.output / "interactivity.json").write_text(json.dumps(found, indent=2) + "\n")
    (options.output / "interactivity.md").write_text(page(found))
    (options.output / "interactivity.png").write_bytes(picture(found))
    print(page(found))
    return found


if __name__ == "__main__":
    main()
