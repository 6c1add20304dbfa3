"""What a training cost: the record of privacy.json."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import beam_ldp
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.federated.training import measured
from beam_ldp.questions.forging import forged_shown
from beam_ldp.release.charging import NoCharge
from beam_ldp.release.record import PrivacyRecord
from beam_ldp.training.charge import TrainingRun, known, local_epsilon_of, sent_event
from beam_ldp.training.plan import TrainingPlan
from beam_ldp.training.report_plan import ReportPlan
from beam_ldp.training.server_plans import LocalCentralPlan
from beam_ldp.wording import many, verb


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
        withheld_rounds: those that are charged and were not released, since fewer came, or since
            fewer of their reports were left by the check.
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

    kind: str = "training"

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
            f"{many(plan.planned_rounds, 'round')}"
        )
    elif run.begun < plan.planned_rounds:
        found.append("the target ended the training before all epochs had run")
    if run.withheld:
        found.append(
            f"{run.withheld:,} of the rounds that are charged {verb(run.withheld, 'was', 'were')} "
            f"not released: fewer than {many(plan.least_clients, 'client')} came"
        )
    if run.emptied:
        found.append(
            f"{run.emptied:,} of the rounds that are charged {verb(run.emptied, 'was', 'were')} "
            f"not released: the check left fewer than {many(plan.least_clients, 'report')}"
        )
    if run.lost:
        was = verb(run.lost, "was", "were")
        began = f"began and {was} lost"
        if plan.rounds_per_event > 1:
            began = f"{was} lost or never ran, since an epoch is charged whole"
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
        "withheld_rounds": run.withheld + run.emptied,
        "test_accuracy": known(last.accuracy),
        "test_loss": known(last.loss),
        "personal_accuracy": known(last.personal),
        "local_only_accuracy": known(run.alone),
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
        "bits_per_client": measured(run.metrics, "bits_per_client"),
        "forged": plan.forged,
        "dropped_reports": measured(run.metrics, "impossible"),
        "colluding_reports": measured(run.metrics, "colluding"),
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


def _checked(plan: TrainingPlan, run: TrainingRun) -> dict[str, float] | None:
    agreement = measured(run.metrics, "agreement", float)
    if plan.check is None or agreement is None or measured(run.metrics, "result") == 0:
        return None
    return forged_shown(plan.check, measured(run.metrics, "reports") or 0, agreement)
