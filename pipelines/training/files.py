"""The files of a training: model, curves, picture, record, statement."""

from __future__ import annotations

import csv
import io
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from apache_beam.io.filesystem import BeamIOError

from beam_ldp.pipelines import outputs
from beam_ldp.pipelines.jobs.watch import JobError
from beam_ldp.pipelines.records.statement import number
from beam_ldp.pipelines.training.central_plan import AdapedPlan
from beam_ldp.pipelines.training.charge import ModelScore, TrainingRun
from beam_ldp.pipelines.training.plan import TrainingPlan
from beam_ldp.pipelines.training.plot import plot_training
from beam_ldp.pipelines.training.record import TrainRecord
from beam_ldp.pipelines.training.statement import training_statement


def curves_as_json(
    plan: TrainingPlan, ran: TrainingRun, beside: dict[str, list[ModelScore]]
) -> dict[str, Any]:
    """Loss and accuracy by epoch with the price so far, by our accountant and by the thesis'."""
    personal = isinstance(plan, AdapedPlan)
    chosen = {point.rounds: point for point in plan.price_list()}

    def row(measured: ModelScore, epsilon: float) -> dict[str, Any]:
        point = chosen.get(measured.rounds)
        return {
            "epoch": -(-measured.rounds // plan.rounds_per_epoch),
            "rounds": measured.rounds,
            "loss": _known(measured.loss),
            "accuracy": _known(measured.accuracy),
            "epsilon": epsilon,
            "epsilon_thesis": None if point is None else point.thesis,
            **({"personal_accuracy": _known(measured.personal)} if personal else {}),
        }

    def plain(measured: ModelScore) -> dict[str, Any]:
        told = asdict(measured)
        return {name: _known(value) for name, value in told.items()}

    return {
        "delta": plan.settings.delta,
        "training": [row(*one) for one in ran.curve],
        "baselines": {name: [plain(m) for m in points] for name, points in beside.items()},
    }


def _known(value: float) -> float | None:
    return None if value != value else value


def write(
    folder: outputs.OutputFolder,
    plan: TrainingPlan,
    model: bytes,
    record: TrainRecord,
    curves: dict[str, Any],
) -> None:
    """All files of the output, aside. Raises JobError where the disk or store refuses."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(curves["training"][0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(curves["training"])
    try:
        with folder.finishing() as out:
            out.put("model.keras", model)
            out.put("privacy.json", outputs.as_json(record.to_json()))
            out.put("privacy.md", training_statement(record).encode())
            out.put("curve.csv", text.getvalue().encode())
            out.put("curves.json", outputs.as_json(curves))
            if plan.data.num_test:
                out.put("plot.png", picture(plan, record, curves))
    except (OSError, BeamIOError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise JobError(f"--output {folder.path} could not be written ({why})") from error


def model_bytes(model: Any) -> bytes:
    """A model in Keras' own format."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model.keras"
        model.save(path)
        return path.read_bytes()


def picture(plan: TrainingPlan, record: TrainRecord, curves: dict[str, Any]) -> bytes:
    """Accuracy against epsilon, PNG."""
    rows = curves["training"]
    personal = record.personal_accuracy is not None
    local = ""
    if record.report_epsilon is not None:
        local = f"local epsilon = {number(record.report_epsilon)}, "
    shown = "personal_accuracy" if personal else "accuracy"
    priced = [row for row in rows if row["epsilon_thesis"] is not None]
    return plot_training(
        [row["epsilon"] for row in rows],
        [row[shown] for row in rows],
        ([r["epsilon_thesis"] for r in priced], [r["accuracy"] for r in priced]),
        {
            name: points[-1]["personal" if personal else "accuracy"]
            for name, points in curves["baselines"].items()
        },
        f"{record.model} on {record.dataset}, {record.algorithm}",
        f"{record.num_clients:,} clients, {record.clients_per_round:,} in a round, {local}delta = "
        f"{record.delta:g}; against {record.reader}",
    )
