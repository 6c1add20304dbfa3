"""What a training cost: the record of privacy.json."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import beam_ldp
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.pipelines.records.charging import NoCharge
from beam_ldp.pipelines.records.record import PrivacyRecord
from beam_ldp.pipelines.training.central_plan import LocalCentralPlan
from beam_ldp.pipelines.training.charge import TrainingRun, local_epsilon_of, sent_event
from beam_ldp.pipelines.training.plan import TrainingPlan
from beam_ldp.pipelines.training.report_plan import ReportPlan


@dataclass(frozen=True)
class TrainRecord(PrivacyRecord):
    """The record of a training.

    `local_epsilon` is what a client that was drawn in every round lost to whoever saw all its
    reports (with a limit of messages: by the client that sent most); None where a server is trusted
    with what clients send. `num_reports` and `priced_reports` are those of one round.

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
        stopped: why it ended: "finished" or "target".
        epsilon_any_mechanism: the price that holds for every mechanism of this local epsilon.
        epsilon_thesis: the price by the theorem of the thesis; None where it does not apply.
        epsilon_seen: the price against a reader who sees who takes part.
        test_accuracy, test_loss: of the model that is released, on public data.
        bits_per_client: what a client sent per round, measured.
        preset: of `adaped`.
        noise_multiplier, projection, max_participations: of the server's noise.
        most_messages: that one client sent.
        personal_accuracy, local_only_accuracy: mean over clients' own models, on public examples of
            their labels, after the training and after learning alone for as long.
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
    epsilon_any_mechanism: float | None = None
    epsilon_thesis: float | None = None
    epsilon_seen: float | None = None
    test_accuracy: float | None = None
    test_loss: float | None = None
    bits_per_client: int | None = None
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
    last, _ = run.curve[-1]
    bound = plan.epsilon_of(run.begun)
    point = plan.price_after(run.begun)
    warnings = []
    if plan.data.num_test == 0:
        warnings.append("no public test data: nothing is known about the model's accuracy")
    if run.begun < plan.planned_rounds:
        warnings.append("the target ended the training before all epochs had run")
    if plan.pricing_note.startswith("warning: "):
        warnings.append(plan.pricing_note.removeprefix("warning: "))
    return TrainRecord(
        question=f"train {plan.model}",
        dataset=settings.dataset,
        mechanism=plan.config,
        local_epsilon=local_epsilon_of(plan, run),
        epsilon=float(bound),
        epsilon_lower=float(bound.lower) or None,
        epsilon_class_lower=float(bound.class_lower) or None,
        delta=settings.delta,
        method=str(bound.method),
        proof_status=str(bound.proof_status),
        num_reports=plan.reports_per_round,
        num_bad_rows=clients_left_out,
        min_reports=plan.reports_per_round,
        honest_fraction=1.0,
        priced_reports=plan.reports_per_round,
        smallest_batch=plan.reports_per_round,
        output="statistic",
        scope="global",
        user_id=settings.client_id,
        bad_rows=settings.bad_rows,
        exactness=plan.exactness,
        bits_per_report=plan.bits_per_report,
        target_epsilon=settings.target_epsilon,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        version=beam_ldp.__version__,
        warnings=tuple(warnings),
        event=plan.round_price.event_of(run.begun),
        charged_epsilon=plan.charged_epsilon_of(run.begun),
        round_event=event_to_json(plan.event),
        local_event=sent_event(plan, run),
        algorithm=settings.algorithm,
        model=plan.model,
        dimension=plan.dimension,
        unit=settings.privacy_unit,
        report_epsilon=plan.report_epsilon,
        norm=settings.norm,
        clip=settings.clip,
        num_clients=plan.data.num_clients,
        clients_per_round=plan.clients_per_round,
        sampling=settings.sampling,
        points_per_client=settings.points_per_client,
        points_sampled=settings.points_sampled,
        rounds=run.begun,
        planned_rounds=plan.planned_rounds,
        stopped="finished" if run.begun == plan.planned_rounds else "target",
        epsilon_any_mechanism=point.any_mechanism,
        epsilon_thesis=point.thesis,
        epsilon_seen=plan.seen_epsilon_of(run.begun),
        test_accuracy=_known(last.accuracy),
        test_loss=_known(last.loss),
        bits_per_client=_bits(run.metrics),
        reader=plan.reader,
        personal_accuracy=_known(last.personal),
        local_only_accuracy=_known(run.alone),
        release_id=run.identity.release_id,
        identity=run.identity.to_json(),
        identity_digest=run.identity.digest.hex(),
        flows=tuple(flow.to_json() for flow in run.flows),
        **_of_algorithm(plan, run),
        **charge.facts,
    )


def _of_algorithm(plan: TrainingPlan, run: TrainingRun) -> dict[str, Any]:
    """What only some algorithms have."""
    settings = plan.settings
    if isinstance(plan, ReportPlan):
        bit = None if plan.bit is None else plan.bit.local_epsilon
        return {"adaptive_clip": settings.adaptive_clip, "bit_epsilon": bit}
    told: dict[str, Any] = {"noise_multiplier": settings.noise_multiplier}
    if not isinstance(plan, LocalCentralPlan):
        return told | {"preset": settings.preset}
    most = plan.messages_of(run.begun) if run.most_messages is None else run.most_messages
    return told | {
        "projection": settings.projection,
        "max_participations": settings.max_participations,
        "most_messages": most,
        "reconstruction": plan.audit(max(1, most)).to_dict(),
    }


def _known(value: float) -> float | None:
    return None if value != value else value


def _bits(metrics: Any) -> int | None:
    """Bits that a client handed over in the last round, wherever the measurements say so."""
    if not hasattr(metrics, "items"):
        return None
    for name, value in metrics.items():
        found = int(value) if name == "bits_per_client" else _bits(value)
        if found is not None:
            return found
    return None
