"""The end of a training: its files are finished, its rounds settled, and only then it appears."""

from __future__ import annotations

from typing import Any

from beam_ldp.pipelines import outputs
from beam_ldp.pipelines.records import publishing
from beam_ldp.pipelines.records.charging import NoCharge
from beam_ldp.pipelines.training.charge import ModelScore, TrainingRun
from beam_ldp.pipelines.training.files import curves_as_json, write
from beam_ldp.pipelines.training.plan import TrainingPlan
from beam_ldp.pipelines.training.record import TrainRecord, make_record


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
    curves = curves_as_json(plan, ran, beside)
    write(folder, plan, model, record, curves)
    publishing.release(charge, record, folder, staging)
    return record, curves
