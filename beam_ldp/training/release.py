"""A training's files: finished, its rounds settled, and only then they appear (`release`)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from apache_beam.io.filesystem import BeamIOError

from beam_ldp.release import outputs, publishing
from beam_ldp.release.charging import NoCharge
from beam_ldp.release.job_monitor import JobError
from beam_ldp.release.statement import statement
from beam_ldp.training.charge import ModelScore, TrainingRun
from beam_ldp.training.curves import curve_as_csv, curves_as_json, picture
from beam_ldp.training.plan import TrainingPlan
from beam_ldp.training.record import TrainRecord, make_record


def release(
    plan: TrainingPlan,
    ran: TrainingRun,
    charge: NoCharge,
    folder: outputs.OutputFolder,
    staging: str,
    model: bytes,
    *,
    beside: dict[str, list[ModelScore]],
    left_out: int = 0,
) -> tuple[TrainRecord, dict[str, Any]]:
    """Publish a training whose rounds have run, once they are settled.

    Args:
        plan, ran: what was to run, and what did.
        charge: the reservation.
        folder: of the output.
        staging: where the run left its note.
        model: as Keras keeps it in a file.
        beside: baselines.
        left_out: clients that could not take part.

    Returns:
        The record and the curves, as they stand in the output.

    Raises:
        JobError: if the files cannot be written.
        NotPublishedError: if the ledger or the place does not take them; where somebody may go on
            with it later (`beam-ldp finalize`), they are kept.
    """
    record = make_record(plan, left_out, ran, charge)
    curves = curves_as_json(plan, ran, beside, record.epsilon)
    _write(folder, plan, model, record, curves)
    publishing.release(charge, record, folder, staging)
    return record, curves


def _write(
    folder: outputs.OutputFolder,
    plan: TrainingPlan,
    model: bytes,
    record: TrainRecord,
    curves: dict[str, Any],
) -> None:
    """All files of the output, aside. Raises JobError where the disk or store refuses."""
    try:
        with folder.finishing() as out:
            out.put("model.keras", model)
            out.put("privacy.json", outputs.as_json(record.to_json()))
            out.put("privacy.md", statement(record.told()).encode())
            out.put("curve.csv", curve_as_csv(curves))
            out.put("curves.json", outputs.as_json(curves))
            if plan.data.num_test:
                out.put("plot.png", picture(record, curves))
    except (OSError, BeamIOError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise JobError(f"--output {folder.path} could not be written ({why})") from error


def model_bytes(model: Any) -> bytes:
    """A model in Keras' own format."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model.keras"
        model.save(path)
        return path.read_bytes()
