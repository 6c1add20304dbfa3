"""How a training went: accuracy by epoch beside the price so far, as JSON, CSV and picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

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
from beam_ldp.training.charge import ModelScore, TrainingRun, known
from beam_ldp.training.plan import TrainingPlan
from beam_ldp.training.record import TrainRecord
from beam_ldp.training.server_plans import AdapedPlan
from beam_ldp.wording import many, number

_HEIGHT = 5.0  # inches
_BASELINES = {"non-private": "#6b7b8c", "local-only": "#9b5de5"}


def curves_as_json(
    plan: TrainingPlan, ran: TrainingRun, beside: dict[str, list[ModelScore]], stated: float | None
) -> dict[str, Any]:
    """Loss and accuracy by epoch with the price so far, by our accountant and by the thesis'.

    Prices are rounded up as in the record; the last is `stated`, the one that the record states.
    """
    personal = isinstance(plan, AdapedPlan)
    chosen = {point.rounds: point for point in plan.price_list()}

    def row(measured: ModelScore, epsilon: float) -> dict[str, Any]:
        point = chosen.get(measured.rounds)
        return {
            "epoch": -(-measured.rounds // plan.rounds_per_epoch),
            "rounds": measured.rounds,
            "loss": known(measured.loss),
            "accuracy": known(measured.accuracy),
            "epsilon": stated if measured is ran.curve[-1][0] else float(number(epsilon)),
            "epsilon_thesis": None if point is None else point.thesis,
            **({"personal_accuracy": known(measured.personal)} if personal else {}),
        }

    def plain(measured: ModelScore) -> dict[str, Any]:
        told = asdict(measured)
        return {name: known(value) for name, value in told.items()}

    return {
        "delta": plan.settings.privacy.delta,
        "training": [row(*one) for one in ran.curve],
        "baselines": {name: [plain(m) for m in points] for name, points in beside.items()},
    }


def curve_as_csv(curves: dict[str, Any]) -> bytes:
    """The rows of the training itself."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(curves["training"][0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(curves["training"])
    return text.getvalue().encode()


def picture(record: TrainRecord, curves: dict[str, Any]) -> bytes:
    """Accuracy against epsilon, PNG."""
    rows = curves["training"]
    personal = record.personal_accuracy is not None
    local = ""
    if record.report_epsilon is not None:
        local = f"local epsilon = {number(record.report_epsilon)}, "
    shown = "personal_accuracy" if personal else "accuracy"
    priced = [row for row in rows if row["epsilon_thesis"] is not None]
    return _plot(
        [row["epsilon"] for row in rows],
        [row[shown] for row in rows],
        ([r["epsilon_thesis"] for r in priced], [r["accuracy"] for r in priced]),
        {
            name: points[-1]["personal" if personal else "accuracy"]
            for name, points in curves["baselines"].items()
        },
        f"{record.model} on {record.dataset}, {record.algorithm}",
        f"{many(record.num_clients, 'client')}, {record.clients_per_round:,} in a round, {local}"
        f"delta = {record.delta:g}; against {record.reader}",
    )


def _plot(
    epsilons: Sequence[float],
    accuracies: Sequence[float],
    thesis: tuple[Sequence[float], Sequence[float]],
    baselines: Mapping[str, float],
    title: str,
    subtitle: str,
) -> bytes:
    """PNG.

    Args:
        epsilons, accuracies: after each epoch, by our accountant.
        thesis: (epsilons, accuracies) of the same training by the theorem of the thesis; empty
            where it does not apply.
        baselines: final accuracy by name.
        title, subtitle: above it.
    """
    figure = figure_with(title, subtitle, _HEIGHT)
    axes = figure.add_axes((0.09, BELOW / _HEIGHT, 0.87, 1 - (ABOVE + BELOW) / _HEIGHT))
    axes.plot(
        epsilons, accuracies, "o-", color=ESTIMATE, markersize=4, linewidth=2, zorder=4,
        label="priced by beam-ldp",
    )  # fmt: skip
    if len(thesis[0]):
        axes.plot(
            *thesis, "o--", color=TRUTH, markersize=4, linewidth=1.4, zorder=3,
            label="the same training, by the theorem of the thesis",
        )  # fmt: skip
    for name, accuracy in baselines.items():
        axes.axhline(accuracy, color=_BASELINES[name], linewidth=1.4, linestyle=":", zorder=2)
        axes.annotate(
            f"{name} {accuracy:.3f}", (1.0, accuracy), xycoords=("axes fraction", "data"),
            xytext=(-4, 3), textcoords="offset points", ha="right", fontsize=8,
            color=_BASELINES[name],
        )  # fmt: skip
    _style_axes(axes, np.array([*epsilons, *thesis[0]]))
    return png(figure)


def _style_axes(axes: Any, epsilons: np.ndarray) -> None:
    seen = epsilons[epsilons > 0]
    if len(seen) > 1 and seen.max() / seen.min() > 4:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_formatter(lambda value, _: "")
    axes.set_ylim(0, 1)
    axes.grid(color=GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    bare(axes, "top", "right")
    axes.set_xlabel("epsilon so far", color=GREY)
    axes.set_ylabel("accuracy on public data", color=GREY)
    axes.legend(loc="lower right", frameon=False, fontsize=9)
