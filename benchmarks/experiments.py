"""People that tests need for one power: ours, other local ones, central ones, none private, bounds.

    python -m benchmarks.experiments [--runs 100000] [--output benchmarks/results]

All powers are computed from laws, none is simulated; `experiment_baselines.py` has the tests of
others. Only false alarms are counted besides, over runs without an effect whose reports are drawn
by their laws. Writes experiments.json, experiments.md and experiments.png. Takes three minutes.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from beam_ldp.decisions import (
    ArmCounts,
    ExperimentPlan,
    decide,
    design_compound,
    design_experiment,
    separate_hulls,
)
from beam_ldp.decisions.experiments.arms import arms_power
from beam_ldp.decisions.experiments.channel import NO_NOISE
from beam_ldp.decisions.experiments.plan import people_needed
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
from beam_ldp.randomizers.frequency import KRandomizedResponse
from benchmarks import experiment_baselines as others

ALPHA, POWER, DELTA = 0.05, 0.9, 1e-8
RATES = (0.10, 0.12)  # the known one, and with the effect
EPSILONS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0)
BEFORE, AFTER = (0.10, 0.10, 0.20, 0.30, 0.30), (0.08, 0.08, 0.18, 0.31, 0.35)  # one to five stars
_HEIGHT = 5.6  # inches


def designed(local_epsilon: float, arms: tuple[str, ...] = ("everybody",)) -> ExperimentPlan:
    """Our plan for the question of this page."""
    return design_experiment(
        local_epsilon=local_epsilon, null=RATES[0], effect=RATES[1] - RATES[0], alpha=ALPHA,
        power=POWER, delta=DELTA, arms=arms,
    )  # fmt: skip


def of_one_rate(local_epsilon: float) -> dict[str, float]:
    """People of one sample against a known rate, by every test."""
    plan = designed(local_epsilon)
    price = float(plan.central_epsilon())
    best = others.best_bit_power(plan.channel, RATES, ALPHA)
    tests = {
        "best_local": best,
        "rappor": others.rappor_power(local_epsilon, RATES, ALPHA),
        "laplace": others.local_laplace_power(local_epsilon, RATES, ALPHA),
        "gaussian": others.local_gaussian_power(local_epsilon, DELTA, RATES, ALPHA),
        "central_count": others.central_power(local_epsilon, RATES, ALPHA, "count"),
        "central_best": others.central_power(local_epsilon, RATES, ALPHA, "best"),
        "central_at_our_price": others.central_power(price, RATES, ALPHA, "best"),
    }
    return {
        "local_epsilon": local_epsilon,
        "ours": plan.people,
        "sequential_bound": math.ceil(plan.least_people.sequential),
        "interactive_bound": math.ceil(plan.least_people.interactive),
        "central_epsilon": price,
        "share_of_best_power": plan.power_of("everybody", {"everybody": plan.people})
        / best(plan.people),
        **{name: others.people_for(power, POWER) for name, power in tests.items()},
    }


def of_two_arms(local_epsilon: float) -> dict[str, float]:
    """People of both arms, the rate of the control not known."""
    plan = designed(local_epsilon, ("control", "variant"))
    return {
        "local_epsilon": local_epsilon,
        "ours": plan.people,
        "sequential_bound": math.ceil(plan.least_people.sequential),
        "interactive_bound": math.ceil(plan.least_people.interactive),
        "without_noise": people_needed(plan, NO_NOISE),
        "central_epsilon": float(plan.central_epsilon()),
    }


def of_stars(local_epsilon: float) -> dict[str, float]:
    """People of one sample of five values: our bit, the reports of all values, the best channel."""
    laws = np.array(BEFORE), np.array(AFTER)
    plan = design_compound(
        separate_hulls([BEFORE], [AFTER]), local_epsilon=local_epsilon, alpha=ALPHA, power=POWER
    )
    best = others.likelihood_power(others.best_channel(laws, local_epsilon), laws, ALPHA)
    every = KRandomizedResponse(len(BEFORE), local_epsilon).channel()
    return {
        "local_epsilon": local_epsilon,
        "ours": plan.people,
        "all_values": others.people_for(others.likelihood_power(every, laws, ALPHA), POWER),
        "best_channel": others.people_for(best, POWER),
        "share_of_best_power": plan.power_of("everybody", {"everybody": plan.people})
        / best(plan.people),
    }


def false_alarms(runs: int) -> list[dict[str, Any]]:
    """Share of runs without an effect that decide one, by `decide`."""
    rng, rows = np.random.default_rng(18), []
    small = {"null": 0.3, "alpha": ALPHA, "power": 0.8}
    for local_epsilon in (1.0, 4.0):
        for arms in (("everybody",), ("control", "variant")):
            plan = design_experiment(local_epsilon=local_epsilon, effect=0.1, arms=arms, **small)
            rate = plan.channel.rate(plan.null)
            people = list(plan.arm_people().values())
            if len(arms) == 2:
                exact = arms_power(plan.channel, (people[0], people[1]), (0.3, 0.3), ALPHA)
            else:
                exact = plan_level(plan)
            counts = rng.binomial(people, rate, (runs, len(arms)))
            different, times = np.unique(counts, axis=0, return_counts=True)
            decided = np.array([
                decide(plan, {
                    arm: ArmCounts(n, one) for arm, n, one in zip(arms, people, ones)
                }).decision == "effect"
                for ones in different.tolist()
            ])  # fmt: skip
            share = float(times[decided].sum() / runs)
            rows.append({
                "local_epsilon": local_epsilon, "arms": len(arms), "people": plan.people,
                "level": exact, "share": share,
                "sigmas": (share - exact) / math.sqrt(exact * (1 - exact) / runs),
            })  # fmt: skip
    return rows


def plan_level(plan: ExperimentPlan) -> float:
    """Of one sample: the binomial probability beyond the threshold."""
    assert plan.threshold is not None
    law = others.binomial_law(plan.people, plan.channel.rate(plan.null))
    return law.split(plan.threshold)[1]


def computed(runs: int) -> dict[str, Any]:
    """All numbers of the page."""
    free = people_needed(designed(1.0), NO_NOISE)
    return {
        "schema_version": 1,
        "runs": runs,
        "without_noise": free,
        "one_rate": [of_one_rate(epsilon) for epsilon in EPSILONS],
        "two_arms": [of_two_arms(epsilon) for epsilon in EPSILONS],
        "stars": [of_stars(epsilon) for epsilon in EPSILONS if epsilon >= 0.5],
        "false_alarms": false_alarms(runs),
    }


_LINES = (
    ("gaussian", "bit + normal noise", "#b8860b", "-"),
    ("rappor", "RAPPOR", "#1b998b", "-"),
    ("laplace", "bit + Laplace noise", "#8d6cab", "-"),
    ("ours", "ours = the best local test", ESTIMATE, "-"),
    ("sequential_bound", "bound, asked once", ESTIMATE, "--"),
    ("interactive_bound", "bound, asked again", ESTIMATE, ":"),
    ("central_at_our_price", "curator, our shuffled price", TRUTH, "--"),
    ("central_count", "curator, same epsilon", TRUTH, "-"),
    ("without_noise", "no privacy", GREY, "-"),
)


def picture(found: dict[str, Any]) -> bytes:
    """People against local epsilon."""
    figure = figure_with(
        "People until 12 % is told from 10 % with power 0.9",
        "one sample, false alarms 5 %; all powers computed; a curator's test sees everybody's bit",
        _HEIGHT,
    )
    axes = figure.add_axes((0.12, BELOW / _HEIGHT, 0.6, 1 - (ABOVE + BELOW) / _HEIGHT))
    rows = [{**row, "without_noise": found["without_noise"]} for row in found["one_rate"]]
    x = [row["local_epsilon"] for row in rows]
    axes.set_xscale("log")
    axes.set_yscale("log")
    for name, said, colour, style in _LINES:
        people = [row[name] for row in rows]
        axes.plot(x, people, style, color=colour, linewidth=2, label=said)
    axes.set_xticks(x, [f"{epsilon:g}" for epsilon in x])
    axes.minorticks_off()
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    bare(axes, "top", "right")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.margins(x=0)
    axes.set_xlabel("epsilon of one report (of a curator: of the answer)", color=GREY)
    axes.set_ylabel("people", color=GREY)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.02, 1.0),
                handlelength=3, labelspacing=0.9)  # fmt: skip
    return png(figure)


_HEADERS = {
    "one_rate": (
        "local epsilon", "ours", "share of the best local power", "RAPPOR", "Laplace noise",
        "normal noise", "bound, asked once", "bound, asked again", "curator, best test",
        "curator, noisy count", "our shuffled price", "curator at that price",
    ),
    "two_arms": (
        "local epsilon", "ours", "bound, asked once", "bound, asked again", "shuffled price",
    ),
    "stars": (
        "local epsilon", "our bit", "all values", "best channel", "share of the best power",
    ),
    "false_alarms": (
        "local epsilon", "arms", "people", "level", "share of runs", "sigmas apart",
    ),
}  # fmt: skip
_CELLS = {
    "one_rate": (
        "local_epsilon:g", "ours:,", "share_of_best_power:.4f", "rappor:,", "laplace:,",
        "gaussian:,", "sequential_bound:,", "interactive_bound:,", "central_best:,",
        "central_count:,", "central_epsilon:.4f", "central_at_our_price:,",
    ),
    "two_arms": (
        "local_epsilon:g", "ours:,", "sequential_bound:,", "interactive_bound:,",
        "central_epsilon:.4f",
    ),
    "stars": (
        "local_epsilon:g", "ours:,", "all_values:,", "best_channel:,", "share_of_best_power:.3f",
    ),
    "false_alarms": (
        "local_epsilon:g", "arms", "people:,", "level:.5f", "share:.5f", "sigmas:+.1f",
    ),
}  # fmt: skip
_PAGE = """# People that tests need: ours, other local ones, a curator's, and bounds

`python -m benchmarks.experiments` writes this page. Is a rate 10 % (known), or 12 %? False alarms
5 %, power 0.9; people until then, every power computed from the laws.

![people against local epsilon](experiments.png)

{one_rate}

Without privacy: {without_noise:,} people. Every mechanism of a bit can be had from randomized
response of its local epsilon (Kairouz, Oh and Viswanath 2016), however people are asked one after
the other: the test of Neyman and Pearson of those bits is the best local test, and ours differs
from it by the coin that it tosses at its threshold. RAPPOR spends half the budget on each of two
bits; normal noise is private with a delta of 1e-8 only. A curator's best test is that of Awan and
Slavkovic (2018), which nothing central beats (like a coin, its noise lets it use up its 5 %, so
that it may need fewer people than exact tests without noise); the noisy count is what OpenDP and
diffprivlib release. The last column is what trusting a curator would save at the epsilon that our
shuffled reports cost.

## Two arms

The control's rate is not known; Fisher's exact test of the reports; people of both arms. Without
privacy: {arms_without_noise:,}.

{two_arms}

## Five values

One to five stars, {before} against {after}. Ours is the bit "more frequent with the effect";
beside it reports of all values (k-ary randomized response) with the test of likelihood ratios, and
the same of the channel that has the largest KL divergence of all.

{stars}

## False alarms

{runs:,} experiments each without an effect, reports drawn by their laws; at most 5 %. "Level" is
computed.

{false_alarms}
"""


def table(name: str, rows: list[dict[str, Any]]) -> str:
    """One of the page's tables."""
    lines = [_HEADERS[name], ["---"] * len(_HEADERS[name])]
    for row in rows:
        cells = (cell.partition(":") for cell in _CELLS[name])
        lines.append([format(row[key], how) for key, _, how in cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page(found: dict[str, Any]) -> str:
    """Tables as a Markdown page."""
    before, after = (", ".join(f"{share:.0%}" for share in law) for law in (BEFORE, AFTER))
    return _PAGE.format(
        **{name: table(name, found[name]) for name in _CELLS},
        runs=found["runs"],
        without_noise=found["without_noise"],
        arms_without_noise=found["two_arms"][0]["without_noise"],
        before=before,
        after=after,
    )


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Compute, write everything, print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    found = computed(options.runs)
    (options.output / "experiments.json").write_text(json.dumps(found, indent=2) + "\n")
    (options.output / "experiments.md").write_text(page(found))
    (options.output / "experiments.png").write_bytes(picture(found))
    print(page(found))
    return found


if __name__ == "__main__":
    main()
