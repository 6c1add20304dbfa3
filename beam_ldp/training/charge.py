"""The charge of a training: all rounds reserved before the first, those that began settled."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from beam_ldp.accounting.prices import Price
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.release import reserving
from beam_ldp.release.charging import NoCharge
from beam_ldp.release.gates import NothingReleasedError, NotPublishedError
from beam_ldp.training.plan import TrainingPlan
from beam_ldp.training.settings import TrainSettings
from beam_ldp.wording import many

if TYPE_CHECKING:
    from beam_ldp.training.checkpoints import Resumed
    from tff_adapters import Flow


_GOES_ON = (
    "nothing was released, and its checkpoint is kept: `beam-ldp train --resume` continues this "
    "training; where a ledger holds it, `beam-ldp finalize` ends its charge"
)


@dataclass(frozen=True)
class ModelScore:
    """A model on public data, after so many rounds; what is not known is NaN.

    Attributes:
        rounds: after which.
        loss, accuracy: of the (shared) model.
        personal: mean accuracy of clients' own models, on public examples of their labels.
    """

    rounds: int
    loss: float
    accuracy: float
    personal: float = math.nan


def known(measured: float) -> float | None:
    """What was measured; None where it is not known."""
    return None if math.isnan(measured) else measured


@dataclass
class TrainingRun:
    """What has run so far.

    Attributes:
        identity: of the training.
        begun: rounds that were charged, whether or not they ended.
        curve: measurements on public data with the price so far, one per epoch.
        metrics: TensorFlow Federated's, of the last round.
        most_messages: sent by one client; None where everybody may be in every round.
        alone: mean accuracy of own models that learned alone; NaN where not known.
        report: more to be printed with the run.
        flows: what left clients in each round.
        lost: of them, those whose results are not in the model: a program was killed, or a round
            failed; or, of a shuffled epoch, which is charged whole, it never ran.
        withheld: of them, those to which too few clients came; others than the lost ones.
        emptied: of the others, those that changed no model, since the check of their reports left
            too few; the state after them says which.
        stopped: why it ended before all rounds had run: "interrupted", "failed" or "too few"; else
            "".
        settled: whether the ledger knows what began, and that no more will.
        kept: whether a checkpoint outlives this program: whoever goes on, or `beam-ldp finalize`,
            ends the charge.
    """

    identity: ReleaseIdentity
    begun: int = 0
    curve: list[tuple[ModelScore, float]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    most_messages: int | None = None
    alone: float = math.nan
    report: str = ""
    flows: tuple[Flow, ...] = ()
    lost: int = 0
    withheld: int = 0
    emptied: int = 0
    stopped: str = ""
    settled: bool = False
    kept: bool = False

    @property
    def recorded(self) -> int:
        """Rounds that the state of the training has gone through."""
        return self.begun - self.lost - self.withheld

    @property
    def released(self) -> int:
        """Rounds whose results are in the model."""
        return self.recorded - self.emptied


def local_epsilon_of(plan: TrainingPlan, run: TrainingRun) -> float | None:
    """What the client that sent most lost to whoever sees all reports; None: a trusted server."""
    if run.most_messages is not None and plan.report_epsilon is not None:
        return run.most_messages * plan.report_epsilon
    return plan.local_epsilon_of(run.begun)


def sent_event(plan: TrainingPlan, run: TrainingRun) -> dict[str, Any] | None:
    """What the client that sent most told whoever sees all reports, where `event` says less."""
    sent = run.begun if run.most_messages is None else run.most_messages
    return plan.round_price.sent_in(sent)


@contextmanager
def charged(
    plan: TrainingPlan, console: Console, resumed: Resumed | None = None
) -> Iterator[tuple[NoCharge, TrainingRun]]:
    """Reserve all rounds; settle at those that began, however it ends.

    What is finished is settled by `release`, before it is published. A training that goes on has
    its reservation, and rounds that have begun.

    Raises:
        NothingReleasedError: if the budget does not allow it.
        CheckpointError: if what goes on is not what was reserved.
    """
    charge, run = _reserved(plan) if resumed is None else _reserved_before(plan, resumed)
    try:
        yield charge, run
    except NotPublishedError:  # it is settled, or is kept until somebody settles it
        raise
    except BaseException:
        if run.kept:
            console.print(_GOES_ON, soft_wrap=True)
        elif "run_id" in charge.facts and not run.settled:
            _settle_part(plan, charge, run, console)
        raise
    finally:
        charge.end_rounds()


def _reserved_before(plan: TrainingPlan, resumed: Resumed) -> tuple[NoCharge, TrainingRun]:
    """What a training that goes on has been charged, and what ran of it."""
    identity = plan.identity(resumed.identity.release_id)
    resumed.check(identity, plan.rounds)
    curve = [(ModelScore(**score), epsilon) for score, epsilon in resumed.checkpoint.curve]
    run = TrainingRun(
        identity, resumed.rounds_begun, curve, lost=resumed.lost, withheld=resumed.withheld
    )
    event, sent = plan.stored_event_of(plan.rounds), plan.round_price.sent_in(plan.rounds)
    return resumed.charge(plan.settings, event, sent), run


def _reserved(plan: TrainingPlan) -> tuple[NoCharge, TrainingRun]:
    settings = plan.settings
    name = settings.charge.run_id or f"{settings.dataset}-{uuid.uuid4().hex[:12]}"
    run = TrainingRun(plan.identity(name))
    event = plan.charged_event_of(plan.rounds)
    worst = Price(plan.epsilon_of(plan.rounds), plan.reports_per_round, event)
    local = plan.local_epsilon_of(plan.rounds)
    if local is None:
        refuse_where_local(settings)
    sent = plan.round_price.sent_in(plan.rounds)
    charge = reserving.reserve(
        settings,
        worst,
        f"train {plan.model}",
        identity=run.identity,
        run_id=name,
        local_event=sent,
        schedule=True,
    )
    return charge, run


def refuse_where_local(settings: TrainSettings) -> None:
    """A budget that limits local epsilons has no room for a training that has none."""
    url = reserving.ledger_url(settings)
    if url is None:
        return
    try:
        from beam_ldp.ledger import BudgetLedger

        limit = BudgetLedger(url).status(settings.dataset).budget.local_epsilon
    except Exception:
        return  # whatever it is, the reservation meets it too, and says what is wrong
    if limit is not None:
        raise NothingReleasedError(
            f"the budget of {settings.dataset!r} allows a local epsilon of {limit:g}, but "
            f"--algorithm {settings.question.algorithm} has none: its server is trusted with what "
            "clients send. Nothing was trained"
        )


def _settle_part(plan: TrainingPlan, charge: NoCharge, run: TrainingRun, console: Console) -> None:
    run_id = escape(charge.facts["run_id"])
    try:
        if run.begun:
            charge.settle(settlement(plan, charge, run))
            rounds = (
                f"all of {many(plan.rounds, 'round')}, to which it was committed"
                if charge.whole
                else many(run.begun, "round")
            )
            console.print(f"run {run_id} was charged for {rounds}", soft_wrap=True)
        else:
            charge.abandon("no round began", randomized=False)
    except Exception as error:
        console.print(
            f"[yellow]warning:[/yellow] the ledger could not be written ({type(error).__name__}): "
            f"run {run_id} stays charged at its worst case until `beam-ldp budget abandon`",
            soft_wrap=True,
        )


def settlement(plan: TrainingPlan, charge: NoCharge, run: TrainingRun) -> dict[str, Any]:
    """What the ledger is told of the rounds of a training that ended early."""
    charged = plan.rounds if charge.whole else run.begun
    bound = plan.epsilon_of(charged)
    return {
        "run_id": charge.facts["run_id"],
        "identity": run.identity.to_json(),
        "event": plan.stored_event_of(charged),
        "local_event": sent_event(plan, run),
        "proof": f"{run.begun:,} rounds began",
        "mechanism": plan.config,
        "question": f"train {plan.model}",
        "epsilon": float(bound),
        "charged_epsilon": plan.charged_epsilon_of(charged),
        "delta": plan.settings.privacy.delta,
        "method": str(bound.method),
        "proof_status": str(bound.proof_status),
        "num_reports": plan.reports_per_round,
    }
