"""The papers' trainings on MNIST, at the papers' scale: accuracy, and what it costs.

    make mnist
    .venv-tff/bin/python -m benchmarks.paper_trainings train [--only NAME] [--seeds 1] [--share 1]
    .venv-tff/bin/python -m benchmarks.paper_trainings plot

`train` goes on where it was stopped, killed or not, on this machine or another: after every epoch
the accuracy goes into paper_trainings.json, and the weights into the folder of that name. Who is
drawn in a round, and its noise, follow from seed and round, so that an interrupted training has the
numbers of an uninterrupted one. `--data .data/fashion-mnist` has files of its own; other images
under a name are refused. All trainings are brought to a share of their rounds before any goes
further: whenever it ends, all have come about as far. `plot` makes the page and the plot from the
record.

60,000 clients of one image; a process plays them all (`tff_adapters.simulated`). Seeds also give
the initial weights. Figures of the papers are known by the numbers in their text alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

DELTA = 1e-5
SHARES = (0.02, 0.06, 0.12, 0.25, 0.5, 1.0)  # of the rounds, to which all are brought in turn
POINTS = 40  # of a curve
PIXELS = 0.1307, 0.3081  # mean and standard deviation of MNIST's, as everybody has them
Rates = tuple[tuple[int, float], ...]  # (epochs, rate)
Prices = dict[str, dict[int, float]]  # by accountant and epochs


@dataclass(frozen=True)
class Setting:
    """One training of the papers.

    Attributes:
        name: of it.
        source: the figure whose text gives the numbers, and what is ours.
        model: see `tff_adapters.models`.
        norm, clip, local_epsilon: of a report.
        clients_per_round, epochs: of the training; an epoch is 60,000 reports.
        rates: learning rates, (epochs, rate) in order; the last goes on.
        clients: of one image each.
        clip_by: how (`tff_adapters.vectors.clipped`).
        standardised: whether inputs have mean zero and variance one, or are those of the files,
            from 0 to 1. The papers do not say.
    """

    name: str
    source: str
    model: str
    norm: str
    clip: float
    local_epsilon: float
    clients_per_round: int
    epochs: int
    rates: Rates
    clients: int = 60_000
    clip_by: str = "norm"
    standardised: bool = False

    @property
    def rounds_per_epoch(self) -> int:
        return self.clients // self.clients_per_round


PRIV_UNIT = dict(norm="l2", clip=0.005, local_epsilon=2.0, clients_per_round=2_000, epochs=200)
SETTINGS = (
    Setting("CNN, l2", "arXiv Fig 5(b)", "cnn-16", rates=((30, 12.0), (30, 4.0), (140, 3.5)),
            **PRIV_UNIT),
    Setting("CNN, linf", "thesis Fig 5.7, arXiv Fig 5(a), clipped by coordinate", "cnn-16", "linf",
            0.01, 1.5, 10_000, 200, ((70, 0.3), (130, 0.18)), clip_by="coordinate"),
    Setting("CNN, linf, by norm", "thesis Fig 5.7, arXiv Fig 5(a), clipped as in the algorithm",
            "cnn-16", "linf", 0.01, 1.5, 10_000, 50, ((50, 0.3),)),
    Setting("CNN of 32, linf", "thesis Fig 4.2, clipped by coordinate", "cnn-32", "linf", 0.01, 2.0,
            10_000, 80, ((70, 0.3), (10, 0.18)), clip_by="coordinate"),
    Setting("CNN, l2, standardised", "arXiv Fig 5(b), inputs standardised", "cnn-16",
            rates=((30, 12.0), (30, 4.0), (140, 3.5)), standardised=True, **PRIV_UNIT),
    Setting("CNN, linf, standardised",
            "thesis Fig 5.7, arXiv Fig 5(a), clipped by coordinate, inputs standardised", "cnn-16",
            "linf", 0.01, 1.5, 10_000, 200, ((70, 0.3), (130, 0.18)), clip_by="coordinate",
            standardised=True),
    Setting("logistic, l2", "arXiv Fig 5(b) with logistic regression and one rate, both ours",
            "logistic", rates=((200, 20.0),), **PRIV_UNIT),
)  # fmt: skip
# In the papers' text: (epsilon by their theorem, accuracy, standard deviation over runs), and the
# epochs after which the theorem gives it. Figure 4.2 has another, and its epochs are lost.
PRINTED: dict[str, tuple[tuple[float, float, float, int | None], ...]] = {
    "CNN, l2": ((3.0, 0.8115, 0.007, 50), (5.8, 0.897, 0.005, 200)),
    "CNN, linf": ((1.4, 0.80, 0.018, 35), (2.91, 0.90, 0.005, 178)),
    "CNN, linf, by norm": ((1.4, 0.80, 0.018, 35),),
    "CNN, l2, standardised": ((3.0, 0.8115, 0.007, 50), (5.8, 0.897, 0.005, 200)),
    "CNN, linf, standardised": ((1.4, 0.80, 0.018, 35), (2.91, 0.90, 0.005, 178)),
    "CNN of 32, linf": ((5.0, 0.767, 0.02, None), (10.0, 0.879, 0.01, None)),
}
ACCOUNTANTS = {
    "thesis": "thesis, Theorem 5.4.1",
    "any mechanism": "clone pair, privacy losses",
    "this mechanism": "own pair, privacy losses",
}
COLOURS = {"thesis": "#d1495b", "any mechanism": "#1f5fa8", "this mechanism": "#1b998b"}


def mechanism_of(setting: Setting, dimension: int) -> Any:
    """What a client sends its gradient through."""
    from beam_ldp.randomizers.mean import LInfMean, PrivUnit

    kind: Any = PrivUnit if setting.norm == "l2" else LInfMean
    return kind(dimension, setting.local_epsilon, radius=setting.clip)


def digest_of(setting: Setting) -> str:
    """What a run and its checkpoint are of: another setting of the same name is another run."""
    told = asdict(setting)
    if not setting.standardised:  # as before there was a choice
        del told["standardised"]
    return json.dumps(told, sort_keys=True)


class Images:
    """A folder of IDX files, as `make mnist` leaves it."""

    def __init__(self, folder: Path) -> None:
        from beam_ldp.federated.idx import IdxFolder

        found = IdxFolder.open(folder)
        self.shape = found.shape
        self.examples, self.labels = found.examples(10)
        self.test, self.test_labels = found.test(10)
        held = hashlib.sha256()
        for part in (self.examples, self.labels, self.test, self.test_labels):
            held.update(part.data)
        self.digest = held.hexdigest()

    @cached_property
    def standardised(self) -> tuple[np.ndarray, np.ndarray]:
        """The same examples, and the same tests, by what is public of MNIST."""
        examples, test = ((x - PIXELS[0]) / PIXELS[1] for x in (self.examples, self.test))
        return examples.astype(np.float32), test.astype(np.float32)


class Run:
    """A setting and a seed, as far as it has come."""

    def __init__(self, setting: Setting, seed: int, images: Images, folder: Path) -> None:
        from tff_adapters.cldp_sgd import piecewise
        from tff_adapters.models import build_keras_model, count_parameters
        from tff_adapters.simulated import SimulatedTraining

        self.setting, self.seed, self.images = setting, seed, images
        self._examples, self._test = images.examples, images.test
        if setting.standardised:
            self._examples, self._test = images.standardised
        self.dimension = count_parameters(setting.model, images.shape, 10)
        model = build_keras_model(setting.model, images.shape, 10, seed)
        each = setting.rounds_per_epoch
        *steps, (_, last) = setting.rates
        self.training = SimulatedTraining(
            model,
            mechanism_of(setting, self.dimension),
            piecewise([(epochs * each, rate) for epochs, rate in steps], last),
            clip_by=setting.clip_by,
            seed=seed,
        )
        self.accuracy: list[float] = []
        self.seconds = 0.0
        self._digest = digest_of(setting)
        self._file = folder / f"{setting.name.replace(', ', '-').replace(' ', '-')}-{seed}.npz"
        if self._file.exists():
            self._restore()
        else:
            self._measure()

    def to(self, epochs: int) -> None:
        """Train up to so many epochs, and keep each."""
        while len(self.accuracy) - 1 < epochs:
            start = time.process_time()
            for _ in range(self.setting.rounds_per_epoch):
                draw = np.random.default_rng([self.seed, self.training.rounds])
                chosen = draw.choice(
                    self.setting.clients, self.setting.clients_per_round, replace=False
                )
                self.training.round(self._examples[chosen], self.images.labels[chosen])
            self._measure()
            self.seconds += time.process_time() - start
            self._keep()

    @property
    def record(self) -> dict[str, Any]:
        """What the page and the plot are made from."""
        return {
            "setting": self.setting.name, "digest": self._digest, "data": self.images.digest,
            "seed": self.seed,
            "parameters": self.dimension, "epochs": len(self.accuracy) - 1,
            "rounds": self.training.rounds, "seconds": round(self.seconds, 1),
            "accuracy": [round(a, 4) for a in self.accuracy],
        }  # fmt: skip

    def _measure(self) -> None:
        from tff_adapters.models import evaluate

        found = evaluate(self.training.model, self._test, self.images.test_labels)
        self.accuracy.append(found["accuracy"])

    def _keep(self) -> None:
        """Both files or neither: the record is in the checkpoint, and is copied from there."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_suffix(".part.npz")
        np.savez(partial, digest=self._digest, data=self.images.digest, accuracy=self.accuracy,
                 seconds=self.seconds, **self.training.state)  # fmt: skip
        os.replace(partial, self._file)

    def _restore(self) -> None:
        with np.load(self._file) as kept:
            of = str(kept["digest"]), str(kept["data"])
            if of != (self._digest, self.images.digest):
                raise SystemExit(f"{self._file} is of other settings or images: move it away")
            self.training.restore(kept)
            self.accuracy, self.seconds = kept["accuracy"].tolist(), float(kept["seconds"])


def stem(data: Path) -> str:
    """What the files of these images are called."""
    return "paper_trainings" if data.name == "mnist" else f"paper_trainings_{data.name}"


def train(settings: Sequence[Setting], options: argparse.Namespace) -> None:
    """Bring all trainings to the share of rounds that was asked for, step by step."""
    images = Images(options.data)
    path = options.output / f"{stem(options.data)}.json"
    checkpoints = options.output / stem(options.data)
    runs: dict[tuple[str, int], Run] = {}
    for share in [s for s in SHARES if s < options.share] + [options.share]:
        for seed in options.seeds:
            for setting in settings:
                if options.only not in (None, setting.name):
                    continue
                key = setting.name, seed
                if key not in runs:
                    runs[key] = Run(setting, seed, images, checkpoints)
                    remember(path, runs[key].record)
                run = runs[key]
                for epoch in range(len(run.accuracy), round(share * setting.epochs) + 1):
                    run.to(epoch)
                    remember(path, run.record)
                    print(f"{setting.name}, seed {seed}: epoch {epoch} of {setting.epochs}, "
                          f"accuracy {run.accuracy[-1]:.4f}", flush=True)  # fmt: skip


def remember(path: Path, record: dict[str, Any]) -> None:
    """Put a run into the record, in place of what is known of it unless that goes further.

    Without its checkpoint a run begins anew: the record does not go back with it.
    """
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    if any(r["data"] != record["data"] for r in runs):
        raise SystemExit(f"{path} is of other images: move it away")
    key = record["digest"], record["seed"]
    known = [r for r in runs if (r["digest"], r["seed"]) == key] + [record]
    kept = [r for r in runs if (r["digest"], r["seed"]) != key]
    kept.append(max(known, key=lambda r: int(r["epochs"])))
    kept.sort(key=lambda r: (r["setting"], r["seed"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(
        json.dumps({"schema_version": 1, "delta": DELTA, "runs": kept}, indent=1) + "\n"
    )
    os.replace(partial, path)


# The page and the plot, from the record ------------------------------------------------------


def price(setting: Setting, dimension: int, accountant: str, epochs: int) -> float:
    """Epsilon of so many epochs, at `DELTA`."""
    from beam_ldp.accounting.schedule import Schedule
    from beam_ldp.research.published.methods import price_of

    mechanism = mechanism_of(setting, dimension)
    rounds = epochs * setting.rounds_per_epoch
    schedule = Schedule(
        setting.local_epsilon, setting.clients, setting.clients_per_round, rounds,
        randomizer=mechanism,
    )  # fmt: skip
    return float(price_of(ACCOUNTANTS[accountant], schedule, DELTA) or np.nan)


@dataclass(frozen=True)
class Curve:
    """The runs of a setting, by seed, each as far as it has come."""

    setting: Setting
    runs: list[dict[str, Any]]

    @property
    def lengths(self) -> list[int]:
        """The epochs to which runs have come, the shortest first: all have come to that one."""
        return sorted({run["epochs"] for run in self.runs})

    @property
    def shown(self) -> list[int]:
        """The epochs that page and plot show: those, and some forty more, close at first."""
        between = np.geomspace(1, self.lengths[-1], POINTS).round().astype(int).tolist()
        return sorted({*self.lengths, *between} - {0})

    def seeds(self, epochs: int) -> list[int]:
        """Of the runs that have come so far."""
        return [run["seed"] for run in self.runs if run["epochs"] >= epochs]

    def accuracy(self, epochs: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation over those, after every epoch; a deviation of zero of one."""
        found = np.array(
            [run["accuracy"][: epochs + 1] for run in self.runs if run["epochs"] >= epochs]
        )
        return found.mean(axis=0), found.std(axis=0, ddof=1) if len(found) > 1 else 0 * found[0]

    def words(self, epochs: int) -> str:
        """The accuracy after so many epochs."""
        mean, spread = self.accuracy(epochs)
        return f"{mean[-1]:.3f}" + (f" +- {spread[-1]:.3f}" if spread[-1] else "")


def priced(curve: Curve) -> Prices:
    """Epsilon by each accountant, after the epochs that are shown."""
    dimension = curve.runs[0]["parameters"]
    return {
        name: {epochs: price(curve.setting, dimension, name, epochs) for epochs in curve.shown}
        for name in ACCOUNTANTS
    }


def curves_of(settings: Sequence[Setting], record: dict[str, Any]) -> list[Curve]:
    """What is known of each setting; runs of settings that have changed since are left out."""
    found = []
    for setting in settings:
        mine = [run for run in record["runs"] if run["digest"] == digest_of(setting)]
        if mine:
            found.append(Curve(setting, mine))
    return found


def page(name: str, curves: Sequence[Curve], prices: Sequence[Prices]) -> str:
    """What is known, as Markdown."""
    lines = [
        f"# The papers' trainings on {name.upper()}, at the papers' scale", "",
        "Command: `make mnist`, `python -m benchmarks.paper_trainings train`, then `plot` (in "
        f"`.venv-tff`). 60,000 clients of one image, 10,000 public images, delta = {DELTA:g}. "
        f"**How far it went stands in the third column**; `train` goes on from the weights in "
        f"`{stem(Path(name))}/`, and the plot is of what is recorded.", "",
        "| training | parameters | epochs run | seeds | accuracy | eps, thesis | eps, any "
        "mechanism | eps, this mechanism | seconds of processor a round |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for curve, epsilon in zip(curves, prices):
        one, runs = curve.setting, curve.runs
        rounds = sum(run["rounds"] for run in runs)
        seconds = sum(run["seconds"] for run in runs) / rounds if rounds else 0.0
        for epochs in filter(None, curve.lengths):
            cells = [
                one.name, f"{runs[0]['parameters']:,}", f"{epochs} of {one.epochs}",
                ", ".join(map(str, curve.seeds(epochs))), curve.words(epochs),
                *(f"{epsilon[whose][epochs]:.3g}" for whose in ACCOUNTANTS), f"{seconds:.2f}",
            ]  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "What the papers print, and what that many epochs cost:", "",
              "| training | eps printed | accuracy printed | epochs | eps, thesis | eps, any "
              "mechanism | eps, this mechanism | accuracy here | seeds |",
              "|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for curve in curves if name == "mnist" else ():
        for printed, accuracy, sd, epochs in PRINTED.get(curve.setting.name, ()):
            cells = [curve.setting.name, f"{printed:g}", f"{accuracy:.4g} +- {sd:g}"]
            if epochs is None:
                cells += ["lost in print", *("" for _ in ACCOUNTANTS), "", ""]
            else:
                cost = (price(curve.setting, curve.runs[0]["parameters"], whose, epochs)
                        for whose in ACCOUNTANTS)  # fmt: skip
                seeds = len(curve.seeds(epochs))
                here = curve.words(epochs) if seeds else "not reached"
                cells += [str(epochs), *(f"{c:.3g}" for c in cost), here, str(seeds or "")]
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "The trainings:", ""]
    lines += [
        f"* {c.setting.name}: {c.setting.source}; {c.setting.clients_per_round:,} clients a round, "
        f"{c.setting.norm} clip {c.setting.clip:g}, local epsilon {c.setting.local_epsilon:g}, "
        "rates " + ", ".join(f"{rate:g} for {n} epochs" for n, rate in c.setting.rates)
        for c in curves
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def plot(name: str, curves: Sequence[Curve], prices: Sequence[Prices], path: Path) -> None:
    """Accuracy against epsilon, by three accountants; the papers' numbers as points."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(3, len(curves))
    down = -(-len(curves) // across)
    figure = Figure(figsize=(4.6 * across, 4.2 * down), dpi=140, layout="constrained")
    FigureCanvasAgg(figure)
    for panel, (curve, epsilon) in enumerate(zip(curves, prices)):
        axes = figure.add_subplot(down, across, panel + 1)
        for whose, colour in COLOURS.items():
            for i, epochs in enumerate(curve.lengths):
                at = [e for e in curve.shown if e <= epochs]
                mean, spread = (part[at] for part in curve.accuracy(epochs))
                costs = [epsilon[whose][e] for e in at]
                axes.plot(costs, mean, color=colour, linewidth=1, marker="." if i == 0 else "",
                          markersize=3, zorder=3 - i,
                          label=f"ours, priced by: {whose}" if i == 0 else None)  # fmt: skip
                axes.fill_between(costs, mean - spread, mean + spread, color=colour, alpha=0.25,
                                  linewidth=0)  # fmt: skip
        printed = PRINTED.get(curve.setting.name, ()) if name == "mnist" else ()
        for n, (where, accuracy, sd, _) in enumerate(printed):
            axes.errorbar(where, accuracy, sd, color="#1d1d1f", marker="s", markersize=4,
                          capsize=3, linestyle="",
                          label="papers, at their epsilon" if n == 0 else None)  # fmt: skip
        axes.set_xscale("log")
        axes.set_ylim(0, 1)
        axes.set_xlabel(f"epsilon at delta = {DELTA:g}")
        axes.set_ylabel("accuracy, 10,000 public images")
        axes.set_title(
            f"{curve.setting.name}, of {curve.setting.epochs} epochs:\n"
            + ", ".join(_came(len(curve.seeds(epochs)), epochs) for epochs in curve.lengths),
            fontsize=10,
        )
        axes.grid(color="#e3e7eb")
        axes.legend(fontsize=7, frameon=False, loc="upper left")
    figure.suptitle(
        f"{name.upper()}, 60,000 clients: the same training, priced by the thesis and by us"
    )
    figure.savefig(path)


def _came(seeds: int, epochs: int) -> str:
    return f"{seeds} seed{'s' if seeds > 1 else ''} to {epochs}"


def show(settings: Sequence[Setting], data: Path, output: Path) -> str:
    """Write the page and the plot; the page."""
    target = output / stem(data)
    curves = curves_of(settings, json.loads(target.with_suffix(".json").read_text()))
    prices = [priced(curve) for curve in curves]
    text = page(data.name, curves, prices)
    target.with_suffix(".md").write_text(text)
    plot(data.name, curves, prices, target.with_suffix(".png"))
    return text


def main(arguments: Sequence[str] | None = None, settings: Sequence[Setting] = SETTINGS) -> None:
    """Train, or show what was trained."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("train", "plot"))
    parser.add_argument("--only", choices=[s.name for s in settings], help="this training alone")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--share", type=float, default=1.0, help="of the rounds (default: all)")
    parser.add_argument("--data", type=Path, default=Path(".data/mnist"))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    if options.action == "train":
        train(settings, options)
    else:
        print(show(settings, options.data, options.output))


if __name__ == "__main__":
    main()
