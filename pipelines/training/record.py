"""What a training cost: the record of privacy.json, and the files that are written beside it.

Its files are finished, its rounds settled, and only then it appears (`release`).
"""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from apache_beam.io.filesystem import BeamIOError

import beam_ldp
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.pipelines import outputs
from beam_ldp.pipelines.jobs.watch import JobError
from beam_ldp.pipelines.records import publishing
from beam_ldp.pipelines.records.charging import NoCharge
from beam_ldp.pipelines.records.forging import forged_shown
from beam_ldp.pipelines.records.record import PrivacyRecord
from beam_ldp.pipelines.records.wording import number
from beam_ldp.pipelines.training.charge import ModelScore, TrainingRun, local_epsilon_of, sent_event
from beam_ldp.pipelines.training.plan import TrainingPlan
from beam_ldp.pipelines.training.plans import AdapedPlan, LocalCentralPlan, ReportPlan
from beam_ldp.pipelines.training.statement import training_statement
from beam_ldp.pipelines.views.pictures import (
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


@dataclass(frozen=True)
class TrainRecord(PrivacyRecord):
    """The record of a training.

    `local_epsilon` is what a client that was drawn in every round lost to whoever saw all its
    reports (with a limit of messages: by the client that sent most); None where a server is trusted
    with what clients send. `num_reports` and `honest_reports` are those of one round.

    Attributes:
        statistic: "model".
        algorithm: "cldp-sgd", "fedavg", "adaped" or "local-central".
        model, dimension: name, and how many parameters.
        unit: what is protected: "user", or "example" where a client has several.
        report_epsilon: what one report promises against everybody.
        norm, clip: of the clipping; with `adaptive_clip` of the first round.
        adaptive_clip, bit_epsilon: whether the norm follows the median, and the part of
            `report_epsilon` that the bit for it takes.
        reader: against whom `epsilon` holds.
        num_clients, clients_per_round, sampling: who took part in a round.
        points_per_client, points_sampled: and with which of their data points.
        rounds, planned_rounds: that ran, and that were planned.
        stopped: why it ended: "finished", "target", "interrupted", "failed" or "too few" (clients
            in a round of a shuffled epoch).
        least_clients: of those drawn, how many come at least to a round that is released.
        withheld_rounds: those that are charged and were not released, since fewer came.
        lost_rounds: others that are charged and whose results are not in the model: they began and
            were lost, or, of a shuffled epoch, never ran.
        epsilon_any_mechanism: the price that holds for every mechanism of this local epsilon.
        epsilon_thesis: the price by the theorem of the thesis; None where it does not apply.
        epsilon_seen: the price against a reader who sees who takes part.
        test_accuracy, test_loss: of the model that is released, on public data.
        bits_per_client: what a client sent per round, measured.
        compression: how many times as long a vector is in 32 bits a coordinate as its report.
        preset: of `adaped`.
        noise_multiplier, projection, max_participations: of the server's noise.
        most_messages: that one client sent.
        personal_accuracy, local_only_accuracy: mean over clients' own models, on public examples of
            their labels, after the training and after learning alone for as long.
        forged: how far liars move the mean of a round at most, by their share of its clients, in
            Euclidean length; with `adaptive_clip` in multiples of the round's norm.
        dropped_reports: clients of the last round who sent what no honest client can.
        colluding_reports: clients of the last round who were left out because their reports pointed
            one way together; None where nobody looked.
        forged_checked: `forged` of the last round, as far as its other reports agree, whichever of
            them are forged.
        round_event: what one round releases, as `epsilon` counts it; `event` is what a ledger is
            charged for all, `charged_epsilon` what that costs where it is another.
        local_event: what the client that sent most told whoever sees all reports, where `event`
            says only what a trusted server publishes.
        reconstruction: the audit of all messages of the client that sent most.
        identity: of the training, as `ReleaseIdentity.to_json` tells it, and
        identity_digest: its digest, hexadecimal.
        flows: everything that left clients in a round, read from the computation
            (`tff_adapters.Flow`).
    """

    statistic: str = "model"
    algorithm: str = ""
    model: str = ""
    dimension: int = 0
    unit: str = "user"
    report_epsilon: float | None = None
    norm: str = ""
    clip: float = 0.0
    num_clients: int = 0
    clients_per_round: int = 0
    sampling: str = "fixed"
    points_per_client: int = 1
    points_sampled: int = 1
    rounds: int = 0
    planned_rounds: int = 0
    stopped: str = "finished"
    lost_rounds: int = 0
    least_clients: int = 0
    withheld_rounds: int = 0
    epsilon_any_mechanism: float | None = None
    epsilon_thesis: float | None = None
    epsilon_seen: float | None = None
    test_accuracy: float | None = None
    test_loss: float | None = None
    bits_per_client: int | None = None
    compression: float | None = None
    adaptive_clip: bool = False
    bit_epsilon: float | None = None
    reader: str = ""
    preset: str | None = None
    noise_multiplier: float | None = None
    projection: float | None = None
    max_participations: int | None = None
    most_messages: int | None = None
    personal_accuracy: float | None = None
    local_only_accuracy: float | None = None
    charged_epsilon: float | None = None
    forged: dict[str, float] | None = None
    dropped_reports: int | None = None
    colluding_reports: int | None = None
    forged_checked: dict[str, float] | None = None
    round_event: dict[str, Any] | None = None
    local_event: dict[str, Any] | None = None
    reconstruction: dict[str, Any] | None = None
    identity: dict[str, Any] | None = None
    identity_digest: str | None = None
    flows: tuple[dict[str, str], ...] = ()


def make_record(
    plan: TrainingPlan, clients_left_out: int, run: TrainingRun, charge: NoCharge
) -> TrainRecord:
    """What privacy.json will hold."""
    settings = plan.settings
    told: dict[str, Any] = {
        **_trained(plan, run),
        **_cost(plan, run),
        **_who_took_part(plan, clients_left_out),
        **_of_algorithm(plan, run),
        **charge.facts,
    }
    return TrainRecord(
        question=f"train {plan.model}",
        dataset=settings.dataset,
        mechanism=plan.config,
        output="statistic",
        scope="global",
        trust_shuffler=settings.privacy.trust_shuffler,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        version=beam_ldp.__version__,
        warnings=_warnings(plan, run),
        algorithm=settings.question.algorithm,
        unit=settings.charge.privacy_unit,
        norm=settings.question.norm,
        clip=settings.clip,
        release_id=run.identity.release_id,
        identity=run.identity.to_json(),
        identity_digest=run.identity.digest.hex(),
        flows=tuple(flow.to_json() for flow in run.flows),
        **told,
    )


def _warnings(plan: TrainingPlan, run: TrainingRun) -> tuple[str, ...]:
    found = []
    if plan.data.num_test == 0:
        found.append("no public test data: nothing is known about the model's accuracy")
    if run.stopped:
        why = {
            "interrupted": "the training was interrupted",
            "failed": "a round failed",
            "too few": "too few clients came to a round of an epoch",
        }
        found.append(
            f"{why[run.stopped]}: the model is that after {run.released:,} of "
            f"{plan.planned_rounds:,} rounds"
        )
    elif run.begun < plan.planned_rounds:
        found.append("the target ended the training before all epochs had run")
    if run.withheld:
        found.append(
            f"{run.withheld:,} of the rounds that are charged were not released: fewer than "
            f"{plan.least_clients:,} clients came to them"
        )
    if run.lost:
        began = "began and were lost"
        if plan.rounds_per_event > 1:
            began = "were lost or never ran, since an epoch is charged whole"
        found.append(
            f"{run.lost:,} of the rounds that are charged {began}: the model knows nothing of them"
        )
    if plan.pricing_note.startswith("warning: "):
        found.append(plan.pricing_note.removeprefix("warning: "))
    return tuple(found)


def _trained(plan: TrainingPlan, run: TrainingRun) -> dict[str, Any]:
    """The model, the rounds that it took, and what it gave on public data."""
    last, _ = run.curve[-1]
    return {
        "model": plan.model,
        "dimension": plan.dimension,
        "rounds": run.begun,
        "planned_rounds": plan.planned_rounds,
        "stopped": run.stopped or ("finished" if run.begun == plan.planned_rounds else "target"),
        "lost_rounds": run.lost,
        "withheld_rounds": run.withheld,
        "test_accuracy": _known(last.accuracy),
        "test_loss": _known(last.loss),
        "personal_accuracy": _known(last.personal),
        "local_only_accuracy": _known(run.alone),
    }


def _cost(plan: TrainingPlan, run: TrainingRun) -> dict[str, Any]:
    """What the rounds that began cost, by each accountant and against each reader."""
    bound, point = plan.epsilon_of(run.begun), plan.price_after(run.begun)
    return {
        "local_epsilon": local_epsilon_of(plan, run),
        "epsilon": float(bound),
        "epsilon_lower": float(bound.lower) or None,
        "epsilon_class_lower": float(bound.class_lower) or None,
        "delta": plan.settings.privacy.delta,
        "method": str(bound.method),
        "proof_status": str(bound.proof_status),
        "exactness": plan.exactness,
        "target_epsilon": plan.settings.privacy.epsilon,
        "event": plan.stored_event_of(run.begun),
        "charged_epsilon": plan.charged_epsilon_of(run.begun),
        "round_event": event_to_json(plan.event),
        "local_event": sent_event(plan, run),
        "report_epsilon": plan.report_epsilon,
        "epsilon_any_mechanism": point.any_mechanism,
        "epsilon_thesis": point.thesis,
        "epsilon_seen": plan.seen_epsilon_of(run.begun),
        "reader": plan.reader,
        "bits_per_report": plan.bits_per_report,
        "compression": plan.compression,
        "bits_per_client": _measured(run.metrics, "bits_per_client"),
        "forged": plan.forged,
        "dropped_reports": _measured(run.metrics, "impossible"),
        "colluding_reports": _measured(run.metrics, "colluding"),
        "forged_checked": _checked(plan, run),
    }


def _who_took_part(plan: TrainingPlan, left_out: int) -> dict[str, Any]:
    """Clients, with which of their data points, and the reports of a round."""
    settings, reports = plan.settings, plan.reports_per_round
    return {
        "num_clients": plan.data.num_clients,
        "clients_per_round": plan.clients_per_round,
        "sampling": settings.question.sampling,
        "points_per_client": settings.question.points_per_client,
        "points_sampled": settings.question.points_sampled,
        "user_id": settings.question.client_id,
        "bad_rows": settings.question.bad_rows,
        "num_bad_rows": left_out,
        "least_clients": plan.least_clients,
        "num_reports": reports,
        "min_reports": plan.least_reports,
        "honest_fraction": 1.0,
        "honest_reports": plan.least_reports,
        "smallest_batch": plan.least_reports,
    }


def _of_algorithm(plan: TrainingPlan, run: TrainingRun) -> dict[str, Any]:
    """What only some algorithms have."""
    settings = plan.settings
    if isinstance(plan, ReportPlan):
        bit = None if plan.bit is None else plan.bit.local_epsilon
        return {"adaptive_clip": settings.adaptive_clip, "bit_epsilon": bit}
    told: dict[str, Any] = {"noise_multiplier": settings.question.noise_multiplier}
    if not isinstance(plan, LocalCentralPlan):
        return told | {"preset": settings.question.preset}
    most = plan.messages_of(run.begun) if run.most_messages is None else run.most_messages
    return told | {
        "projection": settings.question.projection,
        "max_participations": settings.question.max_participations,
        "most_messages": most,
        "reconstruction": plan.audit(max(1, most)).to_dict(),
    }


def _known(value: float) -> float | None:
    return None if value != value else value


def _checked(plan: TrainingPlan, run: TrainingRun) -> dict[str, float] | None:
    agreement = _measured(run.metrics, "agreement", float)
    if plan.check is None or agreement is None:
        return None
    return forged_shown(plan.check, _measured(run.metrics, "reports") or 0, agreement)


def _measured(metrics: Any, what: str, kind: Any = int) -> Any:
    """What the last round measured under this name, wherever it stands; None if nothing."""
    if not hasattr(metrics, "items"):
        return None
    for name, value in metrics.items():
        found = kind(value) if name == what else _measured(value, what, kind)
        if found is not None:
            return found
    return None


_HEIGHT = 5.0  # inches
_BASELINES = {"non-private": "#6b7b8c", "central-dp": "#e08e2b", "local-only": "#9b5de5"}


def plot_training(
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
        "delta": plan.settings.privacy.delta,
        "training": [row(*one) for one in ran.curve],
        "baselines": {name: [plain(m) for m in points] for name, points in beside.items()},
    }


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
