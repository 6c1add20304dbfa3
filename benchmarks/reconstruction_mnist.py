"""MNIST with messages protected against reconstruction: the paper's figure, on smaller models.

    make mnist
    python -m benchmarks.reconstruction_mnist run [--seeds 1 2 3] [--only logistic]
    python -m benchmarks.reconstruction_mnist show

600 people of 100 images each, of whom 200 join a round by coins; five local steps; the change goes
through PrivUnit (direction) and a grid (length), is shortened to 100 by the server, and the mean
gets noise: Bhowmick et al. 2018, section 5. `run` adds what is missing to the record
(reconstruction_mnist.json), training by training; `show` makes page and plot of what is there. A
training of 100 rounds takes 10 s of processor time (logistic regression), or 35 (32 hidden units).

The paper's network has 3.3 million parameters, which take a day here; these have some thousands.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from beam_ldp.accounting import ShuffleAccountant
from beam_ldp.accounting.reconstruction import excluded_cosine
from beam_ldp.accounting.two_ledgers import (
    add_remove_epsilon,
    central_round_event,
    multiplier_of_average,
)
from beam_ldp.randomizers import special
from beam_ldp.randomizers.mean import PrivUnit, ScalarMean
from beam_ldp.randomizers.mean.scalar_mean import paper_cells

ROUNDS, PEOPLE, JOINING, ITEMS, LOCAL_STEPS = 100, 600, 200, 100, 5
LONGEST, LENGTH_EPSILON = 5.0, 10.0  # r_max and eps2 of the paper
PROJECTION, DEVIATION, DELTA = 100.0, 0.005, 1e-9  # rho; of the mean's noise; of the central price
ASSUMED, OUT_OF = 20_000, 10_000_000  # people in a round, and in all, of the paper's accounting
PAPER_DIMENSION, PAPER_EPSILONS = 3_274_634, (500.0, 250.0, 100.0, 50.0)
SIZES = {"logistic": (784, 10), "mlp": (784, 32, 10)}
RATES = {"logistic": 0.2, "mlp": 0.3}  # of local steps, and of the server's
SAME_BUDGET, SAME_RATIO = "the paper's budget", "the paper's noise"
NEAR, FAR = 0.05, 0.1  # of accuracy: what counts as near, and as far
COLOURS = dict(zip(PAPER_EPSILONS, ("#1f5fa8", "#1b998b", "#e08e0b", "#d1495b")))
Weights = list[np.ndarray]
Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One curve of the figure.

    Attributes:
        model: of `SIZES`.
        series: `SAME_BUDGET`, with the paper's parameters of PrivUnit, or `SAME_RATIO`: the budget
            at which the optimal ones err, in the mean of a round, as much as the paper's did in its
            dimension. Empty without a mechanism.
        paper_epsilon: eps1 in the paper; infinite without a mechanism.
    """

    model: str
    series: str = ""
    paper_epsilon: float = math.inf

    @property
    def dimension(self) -> int:
        return sum((a + 1) * b for a, b in zip(SIZES[self.model], SIZES[self.model][1:]))

    @property
    def direction(self) -> PrivUnit | None:
        """What the direction of a change is sent through."""
        if self.series == SAME_BUDGET:
            return of_the_paper(self.dimension, self.paper_epsilon)
        if self.series == SAME_RATIO:
            error = of_the_paper(PAPER_DIMENSION, self.paper_epsilon).marginal
            return PrivUnit(self.dimension, as_accurate(self.dimension, error), **SPHERE)
        return None


SPHERE: dict[str, Any] = {"inputs": "sphere", "coordinate_bits": 16}
SETTINGS = tuple(
    setting
    for model in SIZES
    for setting in (
        Setting(model),
        *(Setting(model, s, e) for s in (SAME_BUDGET, SAME_RATIO) for e in PAPER_EPSILONS),
    )
)


def of_the_paper(dimension: int, epsilon: float) -> PrivUnit:
    """99 % of the budget in the cap, whose threshold is the paper's sufficient one."""
    return PrivUnit(dimension, epsilon, preset="experiments", cap_condition="paper", **SPHERE)


@cache
def as_accurate(dimension: int, marginal: float) -> float:
    """The budget at which PrivUnit's optimal parameters shrink a direction to that share of it."""

    def short(log_epsilon: float) -> float:
        return math.log(PrivUnit(dimension, math.exp(log_epsilon), **SPHERE).marginal / marginal)

    return math.exp(special.brentq(short, -5.0, 7.0, xtol=1e-10))


def noise_to_signal(direction: PrivUnit) -> float:
    """Root of the squared error of a round's mean direction, if all were one: sqrt(D/B)."""
    return math.sqrt((direction.marginal**-2 - 1) / JOINING)


# A training -------------------------------------------------------------------------------------


def first_weights(sizes: Sequence[int], rng: np.random.Generator) -> Weights:
    """Zeros where one layer is all; else as Glorot and Bengio draw them. Last rows are biases."""
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        reach = math.sqrt(6 / (inputs + outputs)) if len(sizes) > 2 else 0.0  # noqa: PLR2004
        drawn = rng.uniform(-1.0, 1.0, (inputs, outputs)) * reach
        layers.append(np.concatenate([drawn, np.zeros((1, outputs))]).astype(np.float32))
    return layers


def logits(layers: Weights, x: np.ndarray) -> list[np.ndarray]:
    """What goes into every layer, and what comes out of the last one."""
    flowing = [x]
    for i, w in enumerate(layers):
        out = flowing[-1] @ w[..., :-1, :] + w[..., -1:, :]
        flowing.append(np.maximum(out, 0) if i + 1 < len(layers) else out)
    return flowing


def gradients(layers: Weights, x: np.ndarray, y: np.ndarray) -> Weights:
    """Of the mean cross-entropy of each person: x is (people, items, 784), y (people, items)."""
    flowing = logits(layers, x)
    slope = np.exp(flowing[-1] - flowing[-1].max(axis=-1, keepdims=True))
    slope /= slope.sum(axis=-1, keepdims=True)
    slope -= np.eye(slope.shape[-1], dtype=slope.dtype)[y]
    slope /= x.shape[-2]
    found: Weights = []
    for i in reversed(range(len(layers))):
        of_kernel = np.swapaxes(flowing[i], -1, -2) @ slope
        found.append(np.concatenate([of_kernel, slope.sum(axis=-2, keepdims=True)], axis=-2))
        if i:
            slope = (slope @ np.swapaxes(layers[i][..., :-1, :], -1, -2)) * (flowing[i] > 0)
    return found[::-1]


def changes(layers: Weights, x: np.ndarray, y: np.ndarray, rate: float) -> np.ndarray:
    """Of people who take five steps, each on a fifth of their items: (people, d), over the rate."""
    own = [np.broadcast_to(w, (len(x), *w.shape)) for w in layers]
    for s in range(LOCAL_STEPS):
        steps = gradients(own, x[:, s::LOCAL_STEPS], y[:, s::LOCAL_STEPS])
        own = [w - np.float32(rate) * step for w, step in zip(own, steps)]
    moved = [(w - start).reshape(len(x), -1) / rate for w, start in zip(own, layers)]
    return np.concatenate(moved, axis=1, dtype=np.float64)


def sent(vectors: np.ndarray, direction: PrivUnit | None, rng: np.random.Generator) -> np.ndarray:
    """What the server adds up: messages, shortened; without a mechanism vectors of length r_max."""
    length = np.linalg.norm(vectors, axis=1)
    kept = np.minimum(length, LONGEST)
    unit = vectors / np.maximum(length, 1e-30)[:, None]
    if direction is None:
        return unit * kept[:, None]
    scalar = ScalarMean(1, LENGTH_EPSILON, LONGEST, cells=paper_cells(LENGTH_EPSILON))
    told = scalar.response.decoded[scalar.randomize(kept[:, None], rng=rng)].reshape(-1, 1)
    messages = told * direction.fixed_point.decode(direction.randomize(unit, rng=rng))
    norms = np.linalg.norm(messages, axis=1, keepdims=True)
    return messages * np.minimum(1.0, PROJECTION / np.maximum(norms, 1e-30))


def train(setting: Setting, seed: int, images: Any, rounds: int = ROUNDS) -> Row:
    """Accuracy before the first round and after each. A seed has one deal, start and coins."""
    start, deal = time.process_time(), np.random.default_rng(seed)
    owners = deal.permutation(len(images.labels))[: PEOPLE * ITEMS].reshape(PEOPLE, ITEMS)
    sizes = SIZES[setting.model]
    layers = first_weights(sizes, deal)
    examples = images.examples.reshape(len(images.labels), -1)
    test = images.test.reshape(len(images.test_labels), -1)
    coins = deal.random((rounds, PEOPLE)) < JOINING / PEOPLE
    rate, direction, accuracy = RATES[setting.model], setting.direction, []
    for t in range(rounds + 1):
        right = logits(layers, test)[-1].argmax(axis=1) == images.test_labels
        accuracy.append(round(float(right.mean()), 4))
        if t == rounds:
            break
        chosen = owners[coins[t]]
        moved = changes(layers, examples[chosen], images.labels[chosen], rate)
        rng = np.random.default_rng([seed, t])
        step = sent(moved, direction, rng).sum(axis=0) / JOINING
        if direction is not None:
            step += DEVIATION * rng.standard_normal(len(step))
        parts = np.split(step, np.cumsum([w.size for w in layers])[:-1])
        layers = [
            w + np.float32(rate) * p.reshape(w.shape).astype(np.float32)
            for w, p in zip(layers, parts)
        ]
    return {
        **described(setting), "seed": seed, "most_rounds": int(coins.sum(axis=0).max()),
        "accuracy": accuracy, "seconds": round(time.process_time() - start, 1),
    }  # fmt: skip


def described(setting: Setting) -> Row:
    """A setting and its budget, as they stand in the record."""
    direction = setting.direction
    told = asdict(setting) | {"rate": RATES[setting.model], "dimension": setting.dimension}
    if direction is None:
        return told | {"paper_epsilon": None, "epsilon": None, "noise_to_signal": 0.0}
    return told | {
        "epsilon": round(direction.local_epsilon, 3),
        "noise_to_signal": round(noise_to_signal(direction), 3),
    }


# The record, and what it says ---------------------------------------------------------------------


def run(settings: Sequence[Setting], options: argparse.Namespace) -> None:
    """Train what the record lacks, and add each training as it ends."""
    from benchmarks.paper_trainings import Images

    path = options.output / "reconstruction_mnist.json"
    images = Images(options.data)
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    known = {(*_key(row), row["seed"]) for row in rows}
    for seed in options.seeds:
        for setting in settings:
            told = described(setting) | {"images": images.digest}
            if options.only not in (None, setting.model) or (*_key(told), seed) in known:
                continue
            rows.append(told | train(setting, seed, images, options.rounds))
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".part")
            partial.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
            os.replace(partial, path)
            print(f"{setting}, seed {seed}: {rows[-1]['accuracy'][-1]}", flush=True)


def _key(row: Row) -> tuple[Any, ...]:
    """What a training is of, seed apart: with other images or rates it is another."""
    names = ("model", "series", "paper_epsilon", "epsilon", "rate", "images")
    return tuple(row[name] for name in names)


@dataclass(frozen=True)
class Curve:
    """Trainings of one setting, over seeds.

    Attributes:
        row: of the first of them.
        accuracy: (seeds, rounds + 1).
        gap: the same, below the training without a mechanism of the same seed.
    """

    row: Row
    accuracy: np.ndarray
    gap: np.ndarray

    def final(self, of: str) -> str:
        """Mean and standard deviation after the last round."""
        last = getattr(self, of)[:, -1]
        return _short(last.mean()) + (f" +- {last.std(ddof=1):.3f}" if len(last) > 1 else "")


def curves_of(rows: Sequence[Row]) -> list[Curve]:
    """Settings in order, as far as they are recorded, with those without a mechanism first."""
    free = {(r["model"], r["seed"]): r["accuracy"] for r in rows if not r["series"]}
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if (row["model"], row["seed"]) in free:
            found.setdefault(_key(row), []).append(row)
    curves = []
    for same in found.values():
        accuracy = np.array([r["accuracy"] for r in same])
        gap = np.array([free[r["model"], r["seed"]] for r in same]) - accuracy
        curves.append(Curve(same[0], accuracy, gap))
    return curves


def claims(curves: Sequence[Curve]) -> list[tuple[str, str, bool, str]]:
    """What the paper says in words (no accuracy stands in its text), for each model and series."""
    found = []
    for model, series in dict.fromkeys(
        (c.row["model"], c.row["series"]) for c in curves if c.row["series"]
    ):
        of = [c for c in curves if (c.row["model"], c.row["series"]) == (model, series)]
        gap = {c.row["paper_epsilon"]: float(c.gap[:, -1].mean()) for c in of}
        if len(gap) == 1:  # says nothing of what more or less would do
            continue
        best, least = max(gap), min(gap)
        told = ", ".join(f"{e:g}: {_short(gap[e])}" for e in sorted(gap, reverse=True))
        found += [
            (f"{model}, {series}", f"near the accuracy without privacy at eps1 = {best:g}",
             gap[best] < NEAR, told),
            (f"{model}, {series}", f"far below it at eps1 = {least:g}", gap[least] > FAR, told),
        ]  # fmt: skip
    return found


def page(rows: Sequence[Row]) -> str:
    """The results as Markdown."""
    curves = curves_of(rows)
    lines = [
        "# MNIST with messages protected against reconstruction", "",
        f"{PEOPLE} people of {ITEMS} images, {JOINING} of them in each of {ROUNDS} rounds by "
        f"coins, {LOCAL_STEPS} local steps on {ITEMS // LOCAL_STEPS} images each; eps2 = "
        f"{LENGTH_EPSILON:g}, r_max = {LONGEST:g}, rho = {PROJECTION:g}, noise of {DEVIATION:g} on "
        "the mean (Bhowmick et al. 2018, section 5). "
        "Mean and standard deviation over seeds. `make mnist`, `python -m "
        "benchmarks.reconstruction_mnist run`, then `show` write this page.", "",
        "![accuracy below the training without privacy](reconstruction_mnist.png)", "",
        f"**These are not the paper's networks.** It has {PAPER_DIMENSION:,} parameters, which "
        "take a day here. Its figure is therefore run twice, and the truth about it lies between: "
        f"at {SAME_BUDGET}, where a smaller model has less noise for its length, since the squared "
        "error of a direction is about d/(2 eps1); and at budgets that give "
        f"{SAME_RATIO} (the same sqrt(D/B), with PrivUnit's optimal parameters), where each "
        "weight has more of it, since as much is spread over fewer.", "",
        "| model | parameters | rows | eps1 of the paper | eps1 here | sqrt(D/B) | final accuracy "
        "| below no privacy | seeds | one image: no guess above cosine (1 %) |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for curve in curves:
        row, epsilon = curve.row, curve.row["epsilon"]
        budgets = [f"{row[e]:.3g}" if epsilon else "none" for e in ("paper_epsilon", "epsilon")]
        cells = [row["model"], f"{row['dimension']:,}", row["series"] or "no mechanism", *budgets,
                 f"{row['noise_to_signal']:.3g}", curve.final("accuracy"), curve.final("gap"),
                 str(len(curve.accuracy)), _excluded(epsilon)]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "", "What the paper says in words (its text has no accuracy), with a gap below "
        f"{NEAR:g} counted as near and one above {FAR:g} as far:", "",
        "| model, rows | claim | | gaps by eps1 of the paper |", "|---|---|---|---|",
    ]  # fmt: skip
    for where, text, holds, detail in claims(curves):
        verdict = "reproduced" if holds else "**not reproduced**"
        lines.append(f"| {where} | {text} | {verdict} | {detail} |")
    return "\n".join([*lines, "", *_privacy(max(r["most_rounds"] for r in rows)), ""])


def _short(share: float) -> str:
    """Three digits, and no zero below zero."""
    return f"{round(float(share), 3) + 0.0:.3f}"


def _excluded(epsilon: float | None) -> str:
    if epsilon is None:
        return "-"
    return f"{excluded_cosine(epsilon + LENGTH_EPSILON, 784, 0.01):.3f}"


def _privacy(most_rounds: int) -> list[str]:
    """Both ledgers; the central one with the batch that ran, and with the one assumed."""
    ran = JOINING / PEOPLE, multiplier_of_average(DEVIATION, PROJECTION, JOINING)
    assumed = ASSUMED / OUT_OF, multiplier_of_average(DEVIATION, PROJECTION, ASSUMED)
    lines = [
        f"Whoever sees messages: eps1 + {LENGTH_EPSILON:g} for each, and a person sends up to "
        f"{most_rounds}, which add up (the paper counts one); at eps1 = 500 that is "
        f"{most_rounds * (500 + LENGTH_EPSILON):,.0f}. The last column of the first table "
        "is one message and one image whose direction nobody knew anything about. "
        f"Whoever sees models only, at delta = {DELTA:g}, whatever eps1:", "",
        "| people in a round, of | noise multiplier | epsilon, somebody replaced | "
        "added or removed | printed |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for people, out_of, (rate, noise), printed in (
        (JOINING, PEOPLE, ran, "-"), (ASSUMED, OUT_OF, assumed, "1.9"),
    ):  # fmt: skip
        event = central_round_event(rate, noise)
        replaced = ShuffleAccountant().compose(event, ROUNDS).get_epsilon(DELTA)
        moved = add_remove_epsilon(event, ROUNDS, DELTA)
        lines.append(
            f"| {people:,} of {out_of:,} | {noise:g} | {replaced:.3g} | {moved:.3g} | {printed} |"
        )
    return [
        *lines, "",
        "The first row is what was trained, here and there: no central privacy at all. The second "
        "is a batch that the paper's accounting supposes and nobody trained with; what it prints "
        "counts by moments, which cost more than the losses themselves.", "",
        "Rates (" + ", ".join(f"{rate:g} for {name}" for name, rate in RATES.items()) + ") were "
        "chosen with seed 0, which is not shown, by the accuracy without a mechanism; the paper's "
        "are unknown, as is whether its local steps share a batch.",
    ]  # fmt: skip


def plot(rows: Sequence[Row], path: Path) -> None:
    """Gap against rounds: models as rows, the two kinds of budgets as columns."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    curves = [c for c in curves_of(rows) if c.row["series"]]
    models = list(dict.fromkeys(c.row["model"] for c in curves))
    figure = Figure(figsize=(9.5, 3.6 * len(models)), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(models), 2, sharex=True, sharey=True, squeeze=False)
    for i, model in enumerate(models):
        for axes, series in zip(panels[i], (SAME_BUDGET, SAME_RATIO)):
            for curve in curves:
                row = curve.row
                if (row["model"], row["series"]) != (model, series):
                    continue
                colour = COLOURS[row["paper_epsilon"]]
                label = f"eps1 = {row['epsilon']:.3g}"
                if series == SAME_RATIO:
                    label += f" (as {row['paper_epsilon']:g} there)"
                mean, at = curve.gap.mean(axis=0), np.arange(curve.gap.shape[1])
                axes.plot(at, mean, color=colour, label=label)
                if len(curve.gap) > 1:
                    spread = curve.gap.std(axis=0, ddof=1)
                    axes.fill_between(at, mean - spread, mean + spread, color=colour, alpha=0.2,
                                      linewidth=0)  # fmt: skip
            axes.axhline(0, color="#1d1d1f", linewidth=0.8)
            axes.set_title(f"{model}: {series}", fontsize=10)
            axes.grid(color="#e3e7eb")
            if axes.get_legend_handles_labels()[1]:
                axes.legend(fontsize=8, frameon=False)
    for axes in panels[-1]:
        axes.set_xlabel("rounds")
    for axes in panels[:, 0]:
        axes.set_ylabel("accuracy below no privacy")
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None, settings: Sequence[Setting] = SETTINGS) -> None:
    """Train, or show what was trained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("run", "show"))
    parser.add_argument("--only", choices=sorted(SIZES), help="this model alone")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--data", type=Path, default=Path(".data/mnist"))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    if options.action == "run":
        run(settings, options)
        return
    path = options.output / "reconstruction_mnist.json"
    rows = json.loads(path.read_text())["rows"]
    path.with_suffix(".md").write_text(page(rows))
    plot(rows, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
