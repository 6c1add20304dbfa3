"""Accuracy against rounds and against the price: chapter 3's mechanisms beside PrivUnit.

    .venv-tff/bin/python -m benchmarks.message_curves [--quick] [--seeds 8] [--output DIR]

Logistic regression on the digits that ship with scikit-learn, 1,437 clients of one image, 240 in a
round, every report with the same local epsilon; and PrivUnit once more, with about the central
epsilon of sixteen messages. Mechanisms and prices are those that `beam-ldp
train` makes of the flags in the table; the rounds run in memory (`tff_adapters.simulated`, the same
law of reports). A mechanism's step is the best of `STEPS` in a trial with a seed of its own, which
is not reported. Writes message_curves.json, .md and .png.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

DELTA, LOCAL_EPSILON, DRAWN = 1e-5, 8.0, 240
TRIAL = 1_000  # the seed of the trials of steps
STEPS = tuple(0.0025 * 2**i for i in range(8))  # moved along one gradient, in its norm
ROUNDS, MEASURED = 240, 12
COMMON = (
    f"--data digits --model logistic --delta {DELTA:g} "
    f"--clients-per-round {DRAWN} --epochs 40 --dry-run"
)


@dataclass(frozen=True)
class Curve:
    """One mechanism.

    Attributes:
        name: shown.
        flags: of `beam-ldp train`, beside `COMMON`.
        colour, dashes: of its line.
        local_epsilon: of one report.
        step: moved along one clipped gradient.
    """

    name: str
    flags: str
    colour: str
    dashes: str = "-"
    local_epsilon: float = LOCAL_EPSILON
    step: float = 0.0


CURVES = (
    Curve("PrivUnit", "--norm l2", "#5f6b76"),
    Curve("PrivUnit, local epsilon 2", "--norm l2", "#5f6b76", "--", 2.0),
    Curve("L2Mean, 1 message", "--norm l2 --mechanism L2Mean --messages 1", "#1f5fa8", ":"),
    Curve("L2Mean, 4 messages", "--norm l2 --mechanism L2Mean --messages 4", "#1f5fa8", "--"),
    Curve("L2Mean, 16 messages", "--norm l2 --mechanism L2Mean --messages 16", "#1f5fa8"),
    Curve("LInfMean, 1 message", "--norm linf --clip 0.1 --messages 1", "#d1495b", ":"),
    Curve("LInfMean, 4 messages", "--norm linf --clip 0.1 --messages 4", "#d1495b", "--"),
    Curve("LInfMean, 16 messages", "--norm linf --clip 0.1 --messages 16", "#d1495b"),
)


def flags_of(curve: Curve) -> str:
    """Beside those of all."""
    return f"--local-epsilon {curve.local_epsilon:g} {curve.flags}"


def plan_of(curve: Curve) -> Any:
    """The plan of `beam-ldp train` with these flags."""
    from beam_ldp.pipelines.flags import read_flags
    from beam_ldp.training.facts import bundled_facts
    from beam_ldp.training.plans import make_plan
    from beam_ldp.training.settings import check_train
    from beam_ldp.training.usage import USAGE

    settings = check_train(read_flags(USAGE, f"{COMMON} {flags_of(curve)}".split()))
    return make_plan(settings, bundled_facts("digits", 1))


def accuracies(curve: Curve, seed: int, rounds: int, every: int) -> list[float]:
    """Held-out accuracy after every so many rounds, from the start on."""
    from tff_adapters.data import load
    from tff_adapters.models import build_keras_model, evaluate
    from tff_adapters.simulated import SimulatedTraining

    data = load("digits")
    x, y = np.concatenate(list(data.features)), np.concatenate(list(data.labels))
    model = build_keras_model("logistic", data.shape, data.num_classes, seed)
    mechanism = plan_of(curve).mechanism
    training = SimulatedTraining(model, mechanism, curve.step / mechanism.radius, seed=seed)
    sampler = np.random.default_rng(seed)

    def measured() -> float:
        return float(evaluate(model, data.test_features, data.test_labels)["accuracy"])

    found = [measured()]
    for number in range(1, rounds + 1):
        chosen = sampler.choice(len(y), DRAWN, replace=False)
        training.round(x[chosen], y[chosen])
        if number % every == 0:
            found.append(measured())
    return found


def tuned(curve: Curve, rounds: int, steps: tuple[float, ...]) -> Curve:
    """With the step of the best mean accuracy over the second half of a trial."""
    tried = [replace(curve, step=step) for step in steps]

    def score(one: Curve) -> float:
        return float(np.mean(accuracies(one, TRIAL, rounds, max(1, rounds // 8))[-4:]))

    return max(tried, key=score)


def measure(curve: Curve, seeds: int, rounds: int, every: int) -> dict[str, Any]:
    """A mechanism's curve with its prices."""
    start, plan = time.perf_counter(), plan_of(curve)
    curves = np.array([accuracies(curve, seed, rounds, every) for seed in range(1, seeds + 1)])
    at = list(range(0, rounds + 1, every))
    prices = [0.0, *(float(plan.epsilon_of(n)) for n in at[1:])]
    spread = curves.std(axis=0, ddof=1) if seeds > 1 else 0 * curves[0]
    return {
        **asdict(curve), "seeds": seeds, "rounds": at, "epsilon": prices,
        "messages": plan.messages, "bits": plan.bits_per_report,
        "mean": curves.mean(axis=0).round(4).tolist(), "sd": spread.round(4).tolist(),
        "seconds": round(time.perf_counter() - start, 1),
    }  # fmt: skip


def page(result: dict[str, Any]) -> str:
    """As Markdown."""
    curves = result["curves"]
    half, last = len(curves[0]["rounds"]) // 2, -1
    first, final = curves[0]["rounds"][half], curves[0]["rounds"][last]
    lines = [
        "# Several messages a report, in training", "",
        "Command: `python -m benchmarks.message_curves` (in `.venv-tff`). Logistic regression on "
        f"digits (650 parameters), 1,437 clients of one image, {DRAWN} drawn in a round, local "
        f"epsilon {LOCAL_EPSILON:g} of a report against everybody where nothing else is said, "
        f"delta = {DELTA:g}; central prices are those of `beam-ldp train`. Accuracy on "
        f"360 public images, mean +- standard deviation of {curves[0]['seeds']} seeds. Steps were "
        f"chosen among {len(STEPS)} in a trial with another seed on these public images: a "
        "deployment would have to price that. The longest of them, "
        f"{max(STEPS):g}, is the end of what was tried.", "",
        f"| mechanism | step | bits | accuracy after {first} | eps | after {final} | eps |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for one in curves:
        cells = [one["name"], f"{one['step']:g}", f"{one['bits']:,}"]
        for at in (half, last):
            cells += [_shown(one, at), f"{one['epsilon'][at]:.3g}"]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "", "## At equal central epsilon", "",
        "The last measured round whose price does not exceed it, with its number.", "",
        "| mechanism | " + " | ".join(f"eps {e:g}" for e in result["targets"]) + " |",
        "|---|" + "---|" * len(result["targets"]),
    ]  # fmt: skip
    for one in curves:
        cells = [_at(one, epsilon) for epsilon in result["targets"]]
        lines.append("| " + " | ".join([one["name"], *cells]) + " |")
    lines += ["", "Flags of `beam-ldp train`, beside `" + COMMON + "`:", ""]
    lines += [f"* {one['name']}: `{flags_of(_curve(one))}`" for one in curves]
    return "\n".join(lines) + "\n"


def _curve(one: dict[str, Any]) -> Curve:
    return Curve(**{name: one[name] for name in Curve.__dataclass_fields__})


def _at(one: dict[str, Any], epsilon: float) -> str:
    fits = [i for i, e in enumerate(one["epsilon"]) if i and e <= epsilon]
    return f"{_shown(one, fits[-1])} ({one['rounds'][fits[-1]]})" if fits else "none"


def _shown(one: dict[str, Any], at: int) -> str:
    return f"{one['mean'][at]:.3f} +- {one['sd'][at]:.3f}"


def plot(result: dict[str, Any], path: Path) -> None:
    """Accuracy against rounds, and against what they cost together."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    for one in result["curves"]:
        mean, sd = np.array(one["mean"]), np.array(one["sd"])
        style = {"color": one["colour"], "linestyle": one["dashes"], "label": one["name"]}
        equal = one["local_epsilon"] == LOCAL_EPSILON
        for axes, across in ((left, one["rounds"]), (right, one["epsilon"]))[not equal :]:
            axes.plot(across[1:], mean[1:], linewidth=1.6, **style)
            axes.fill_between(
                across[1:], (mean - sd)[1:], (mean + sd)[1:], color=one["colour"], alpha=0.13,
                linewidth=0,
            )  # fmt: skip
    left.set_xlabel("rounds")
    left.set_ylabel("accuracy, held out")
    left.set_title(f"At equal local epsilon, {LOCAL_EPSILON:g}", fontsize=10)
    right.set_xscale("log")
    right.set_xlabel(f"central epsilon at delta = {DELTA:g}")
    right.set_title("The same trainings against their central price", fontsize=10)
    left.set_ylim(0, 1)
    for axes in (left, right):
        axes.grid(color="#e3e7eb")
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        *right.get_legend_handles_labels(), fontsize=8, frameon=False, loc="outside lower center",
        ncols=4,
    )  # fmt: skip
    figure.savefig(path)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Choose steps, train, and write everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two mechanisms, a few rounds")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    curves, rounds, every, steps = CURVES, ROUNDS, MEASURED, STEPS
    if options.quick:
        curves, rounds, every, steps = (CURVES[0], CURVES[-1]), 8, 2, STEPS[2:4]
    found = []
    for curve in curves:
        chosen = tuned(curve, rounds, steps)
        found.append(measure(chosen, options.seeds, rounds, every))
        print(f"{chosen.name}: step {chosen.step:g}, {found[-1]['seconds']} s", flush=True)
    result = {"schema_version": 1, "delta": DELTA, "targets": [0.5, 1, 2, 4], "curves": found}
    (options.output / "message_curves.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.output / "message_curves.md").write_text(page(result))
    plot(result, options.output / "message_curves.png")
    print(page(result))
    return result


if __name__ == "__main__":
    main()
