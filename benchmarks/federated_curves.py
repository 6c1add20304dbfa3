"""Accuracy of private training against its price, by the thesis' accountant and by ours.

    .venv-tff/bin/python -m benchmarks.federated_curves [--quick] [--minutes 30] [--output DIR]

Each setting is trained once per seed, with accuracy on held-out images after every epoch; any
accountant then maps rounds to epsilon. The papers' Figs 4.2 and 5.7 (MNIST, 60,000 clients, 10,000
or 2,000 in a round) are scaled to data that ships in packages; every setting says how. One process
holds all clients (`tff_adapters.simulated`): the law of the reports is that of
`build_cldp_sgd`, and tested to be. Training is resumable: what is in federated_curves.json is not
trained again, and after --minutes no further seed is started. Writes federated_curves.json, .md and
.png.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

DELTA = 1e-5
SEEDS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Setting:
    """One curve.

    Attributes:
        name: of it.
        scaled: from which figure, and how.
        data, model: see `tff_adapters.data.load` and `tff_adapters.models`.
        norm: of the mechanism; None: no clipping, no noise.
        local_epsilon: of one report.
        clients_per_round, epochs: of the training.
        clip: radius.
        step: length moved along one clipped gradient of that norm: learning rate times clip.
    """

    name: str
    scaled: str
    data: str
    model: str
    norm: str | None
    local_epsilon: float
    clients_per_round: int
    epochs: int
    clip: float
    step: float


# The papers: n = 60,000 clients of one image.
SETTINGS = (
    Setting("digits, l2", "Fig 5.7 (l2): n 1,437 for 60,000, k 100 for 2,000, logistic for a CNN",
            "digits", "logistic", "l2", 2.0, 100, 60, 0.005, 0.1),
    Setting("digits, linf", "Fig 5.7 (linf): n 1,437, k 240 for 10,000 (the same 1/6), logistic",
            "digits", "logistic", "linf", 1.5, 240, 120, 0.1, 0.03),
    Setting("digits, no privacy", "the same without clipping and noise",
            "digits", "logistic", None, 0.0, 100, 60, 1.0, 0.5),
    Setting("mnist5k, l2", "Fig 5.7 (l2): n 4,000 for 60,000, k 200 for 2,000, logistic",
            "mnist5k", "logistic", "l2", 2.0, 200, 60, 0.005, 0.1),
    Setting("mnist5k, no privacy", "the same without clipping and noise",
            "mnist5k", "logistic", None, 0.0, 200, 60, 1.0, 0.1),
    Setting("mnist5k CNN, l2", "Fig 5.7 (l2): n 4,000, k 200, the 13,706-parameter network",
            "mnist5k", "cnn-16", "l2", 2.0, 200, 30, 0.005, 0.05),
)  # fmt: skip
QUICK = (
    Setting("digits, l2", "smoke", "digits", "logistic", "l2", 4.0, 200, 2, 0.005, 0.1),
    Setting("digits, no privacy", "smoke", "digits", "logistic", None, 0.0, 200, 2, 1.0, 0.5),
)  # fmt: skip


def facts(setting: Setting) -> tuple[int, int]:
    """Clients, and rounds per epoch."""
    from beam_ldp.training.facts import bundled_facts

    clients = bundled_facts(setting.data, 1).num_clients
    return clients, max(1, round(clients / setting.clients_per_round))


def mechanism_of(setting: Setting, dimension: int) -> Any:
    """The mechanism of a setting; None without noise."""
    from beam_ldp.randomizers.mean import L1Mean, LInfMean, PrivUnit

    if setting.norm is None:
        return None
    kinds: dict[str, Any] = {"l2": PrivUnit, "linf": LInfMean, "l1": L1Mean}
    return kinds[setting.norm](dimension, setting.local_epsilon, radius=setting.clip)


def trained(setting: Setting, seed: int) -> dict[str, Any]:
    """Accuracy after every epoch, from the first (before any round) on."""

    from tff_adapters.data import load
    from tff_adapters.models import build_keras_model, count_parameters, evaluate
    from tff_adapters.simulated import SimulatedTraining

    data = load(setting.data)
    x, y = np.concatenate(list(data.features)), np.concatenate(list(data.labels))
    dimension = count_parameters(setting.model, data.shape, data.num_classes)
    model = build_keras_model(setting.model, data.shape, data.num_classes, seed)
    training = SimulatedTraining(
        model,
        mechanism_of(setting, dimension),
        setting.step / setting.clip,
        seed=seed,
    )
    sampler = np.random.default_rng(seed)
    clients, rounds = facts(setting)
    assert clients == len(y)
    start, accuracies = time.perf_counter(), []
    for epoch in range(setting.epochs + 1):
        for _ in range(rounds if epoch else 0):
            chosen = sampler.choice(clients, setting.clients_per_round, replace=False)
            training.round(x[chosen], y[chosen])
        accuracies.append(evaluate(model, data.test_features, data.test_labels)["accuracy"])
    seconds = time.perf_counter() - start
    return {
        "setting": setting.name, "digest": asdict(setting), "seed": seed, "parameters": dimension,
        "test": len(data.test_labels), "accuracy": accuracies, "seconds": round(seconds, 1),
    }  # fmt: skip


def prices(setting: Setting, dimension: int) -> dict[str, list[float | None]]:
    """Epsilon after every epoch, by each accountant; nothing without noise."""
    from beam_ldp.accounting.schedule import Schedule
    from beam_ldp.accounting.schedule_prices import CLONES
    from beam_ldp.research.published.methods import price_of

    if setting.norm is None:
        return {}
    clients, per_epoch = facts(setting)
    mechanism = mechanism_of(setting, dimension)
    names = {
        "thesis": "thesis, Theorem 5.4.1",
        "any mechanism": CLONES.name,
        "this mechanism": "own pair, privacy losses",
    }
    found: dict[str, list[float | None]] = {name: [0.0] for name in names}
    for epoch in range(1, setting.epochs + 1):
        schedule = Schedule(
            mechanism.local_epsilon, clients, setting.clients_per_round, epoch * per_epoch,
            randomizer=mechanism,
        )  # fmt: skip
        for name, method in names.items():
            found[name].append(price_of(method, schedule, DELTA))
    return found


def summary(setting: Setting, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation over seeds, with the prices."""
    curves = np.array([run["accuracy"] for run in runs])
    return {
        **asdict(setting),
        "clients": facts(setting)[0],
        "rounds_per_epoch": facts(setting)[1],
        "parameters": runs[0]["parameters"],
        "seeds": [run["seed"] for run in runs],
        "seconds": [run["seconds"] for run in runs],
        "mean": curves.mean(axis=0).round(4).tolist(),
        "sd": (curves.std(axis=0, ddof=1) if len(runs) > 1 else 0 * curves[0]).round(4).tolist(),
        "epsilon": prices(setting, runs[0]["parameters"]),
    }


def page(result: dict[str, Any]) -> str:
    """What is known, as Markdown."""
    lines = [
        "# Accuracy of private training against its price", "",
        "Command: `python -m benchmarks.federated_curves` (in `.venv-tff`). Mean and standard "
        f"deviation over seeds; delta = {DELTA:g}; accuracy on every fifth image, held out and "
        "public. Clips and steps were chosen by trying a few on these images (seven for linf): a "
        "deployment would have to price that.", "",
        "| setting | parameters | rounds | seeds | final accuracy | eps, thesis "
        "| eps, any mechanism | eps, this mechanism |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for one in result["settings"]:
        last = {name: values[-1] for name, values in one["epsilon"].items()}
        cells = [f"{last[n]:.3g}" if last.get(n) else "-"
                 for n in ("thesis", "any mechanism", "this mechanism")]  # fmt: skip
        rounds = one["epochs"] * one["rounds_per_epoch"]
        final = _shown(one, -1)
        row = (one["name"], f"{one['parameters']:,}", f"{rounds:,}", len(one["seeds"]), final)
        lines.append("| " + " | ".join(map(str, [*row, *cells])) + " |")
    lines += ["", "How each was scaled:", ""]
    lines += [f"* {one['name']}: {one['scaled']}; local epsilon {one['local_epsilon']:g}, clip "
              f"{one['clip']:g}, step {one['step']:g}" for one in result["settings"]]  # fmt: skip
    lines += [
        "", "## Accuracy at an epsilon", "",
        "The last epoch whose price does not exceed it, by each accountant.", "",
        "| setting | epsilon | thesis | any mechanism | this mechanism |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for one in result["settings"]:
        for epsilon in (0.25, 0.5, 1.4, 2.91, 3.0, 5.8) if one["epsilon"] else ():
            cells = [_at(one, name, epsilon)
                     for name in ("thesis", "any mechanism", "this mechanism")]  # fmt: skip
            lines.append(f"| {one['name']} | {epsilon:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _at(one: dict[str, Any], name: str, epsilon: float) -> str:
    fits = [i for i, e in enumerate(one["epsilon"][name]) if e is not None and e <= epsilon]
    if not fits or fits[-1] == 0:
        return "not one epoch"
    end = " (all epochs)" if fits[-1] == one["epochs"] else ""
    return _shown(one, fits[-1]) + end


def _shown(one: dict[str, Any], epoch: int) -> str:
    spread = f"+- {one['sd'][epoch]:.3f}" if len(one["seeds"]) > 1 else "(one seed)"
    return f"{one['mean'][epoch]:.3f} {spread}"


def plot(result: dict[str, Any], path: Path) -> None:
    """Accuracy against epsilon, by both accountants, one panel per private setting."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    private = [one for one in result["settings"] if one["epsilon"]]
    free = {one["data"]: one for one in result["settings"] if not one["epsilon"]}
    columns = 2
    rows = -(-len(private) // columns)
    figure = Figure(figsize=(10, 3.6 * rows + 0.6), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    colours = {"thesis": "#d1495b", "any mechanism": "#1f5fa8", "this mechanism": "#1b998b"}
    for i, one in enumerate(private):
        axes = figure.add_subplot(rows, columns, i + 1)
        mean, sd = np.array(one["mean"]), np.array(one["sd"])
        for name, colour in colours.items():
            epsilon = np.array([np.nan if e is None else e for e in one["epsilon"][name]])[1:]
            axes.plot(epsilon, mean[1:], color=colour, label=f"priced by: {name}")
            axes.fill_between(
                epsilon, (mean - sd)[1:], (mean + sd)[1:], color=colour, alpha=0.2, linewidth=0
            )
        if one["data"] in free:
            axes.axhline(free[one["data"]]["mean"][-1], color="#5f6b76", linestyle=":")
        axes.set_xscale("log")
        axes.set_ylim(0, 1)
        axes.set_xlabel(f"epsilon at delta = {DELTA:g}")
        axes.set_ylabel("accuracy, held out")
        axes.set_title(
            f"{one['name']}, eps0 = {one['local_epsilon']:g}, k = {one['clients_per_round']} of "
            f"{one['clients']:,}, {len(one['seeds'])} seeds", fontsize=9,
        )  # fmt: skip
        axes.grid(color="#e3e7eb")
        axes.legend(fontsize=7, frameon=False, loc="upper left")
    figure.suptitle("The same trainings, priced by the thesis and by us (dotted: no privacy)")
    figure.savefig(path)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train what is missing, then write everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two small settings, two seeds")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no seed after that")
    parser.add_argument("--only", help="train this setting alone")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    settings, seeds = (QUICK, SEEDS[:2]) if options.quick else (SETTINGS, SEEDS)
    path = options.output / "federated_curves.json"
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    end = time.monotonic() + 60 * options.minutes
    for seed in seeds:  # all settings of a seed first: whenever it ends, all have as many
        for setting in settings:
            if any(r["digest"] == asdict(setting) and r["seed"] == seed for r in runs):
                continue
            if time.monotonic() > end or options.only not in (None, setting.name):
                continue
            print(f"{setting.name}, seed {seed} ...", flush=True)
            runs.append(trained(setting, seed))
            path.write_text(json.dumps({"schema_version": 1, "runs": runs, "settings": []}) + "\n")
    result: dict[str, Any] = {"schema_version": 1, "delta": DELTA, "runs": runs, "settings": []}
    for setting in settings:
        mine = [run for run in runs if run["digest"] == asdict(setting)]
        if mine:
            result["settings"].append(summary(setting, mine))
    path.write_text(json.dumps(result, indent=1) + "\n")
    (options.output / "federated_curves.md").write_text(page(result))
    plot(result, options.output / "federated_curves.png")
    print(page(result))
    return result


if __name__ == "__main__":
    main()
