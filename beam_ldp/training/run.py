"""A training from its first round to its release, whole or cut short after some of its rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.console import Console

from beam_ldp.federated import TooFewCameError
from beam_ldp.federated.record import rounds_withheld
from beam_ldp.release import outputs
from beam_ldp.release.charging import NoCharge
from beam_ldp.release.gates import NotPublishedError
from beam_ldp.release.job_monitor import JobError
from beam_ldp.training.baselines import baselines
from beam_ldp.training.charge import ModelScore, TrainingRun
from beam_ldp.training.checkpoints import (
    CheckpointError,
    Keeper,
    Resumed,
    has_checkpoint,
    order_of,
)
from beam_ldp.training.learner import Learner
from beam_ldp.training.learners import learner_for
from beam_ldp.training.log import TrainingLog, training_log
from beam_ldp.training.plan import TrainingPlan
from beam_ldp.training.record import TrainRecord
from beam_ldp.training.release import model_bytes, release
from beam_ldp.training.rounds import Kept, check_events, rounds
from beam_ldp.training.view import TrainingResult
from beam_ldp.wording import many, verb
from tff_adapters import SamplingMismatchError, UnpricedFlowError, flows_of
from tff_adapters.compat import end_workers
from tff_adapters.data import Clients


def train(
    plan: TrainingPlan,
    clients: Clients,
    folder: outputs.OutputFolder,
    charge: NoCharge,
    ran: TrainingRun,
    console: Console,
    *,
    job: dict[str, Any],
    resumed: Resumed | None = None,
) -> TrainingResult:
    """All of it, after the budget has been set aside.

    Where it is interrupted or a round fails, the model after the last round that ended is released,
    charged for the rounds that had begun.

    Args:
        plan, clients, folder, charge, ran, console: what is trained, and what is charged for it.
        job: how it was started, for checkpoints.
        resumed: where it goes on.

    Raises:
        JobError: if a round fails, or is not as declared.
        NotPublishedError: if the ledger could not be written at the end, or a checkpoint on the
            way: what there is is kept.
    """
    plan = plan.for_release(ran.identity)
    folder.keep = ran.kept = resumed is not None  # until something newer is whole
    with (
        folder.staging() as staging,
        training_log(plan, charge, ran.identity, console, staging) as log,
    ):

        def released(
            model: bytes, beside: dict[str, list[ModelScore]]
        ) -> tuple[TrainRecord, dict[str, Any]]:
            left_out = clients.left_out.total()
            try:
                found = release(
                    plan, ran, charge, folder, staging, model, beside=beside, left_out=left_out
                )
            except NotPublishedError:
                if "run_id" not in charge.facts:  # its checkpoint is enough, for `--resume`
                    folder.discard()
                raise
            ran.settled, ran.kept = True, False
            return found

        kept = None
        try:
            charge.leave_note(
                staging,
                ends_with_launcher=True,
                rounds=plan.round_price,
                overwrite=plan.settings.output.overwrite,
            )
            learner = learner_for(plan, clients)
            kept = _begun(learner, staging, charge, ran, log, job, resumed)
            state = rounds(learner, charge, ran, log, console, kept)
            beside = baselines(plan, clients, ran, console)
            model = model_bytes(learner.model(state))
        except NotPublishedError:  # what was kept stays, for whoever goes on
            folder.keep = True
            raise
        except BaseException as error:
            if kept is not None and kept.rounds:
                folder.keep = ran.kept = has_checkpoint(staging)
                if _release_last(learner, kept, ran, error, released, console):
                    folder.keep = ran.kept = False
            if ran.kept:
                charge.let_go(staging)
            raise _as_told(error) from (error if isinstance(error, Exception) else None)
        folder.keep = ran.kept = has_checkpoint(staging)
        record, curves = released(model, beside)
        logged = log.finish(folder, record, charge)
    return TrainingResult(plan, record, curves, folder.path, logged, ran.report)


def _as_told(error: BaseException) -> BaseException:
    """What a training that failed says: not what may quote a client's data."""
    if isinstance(error, JobError) or not isinstance(error, Exception):
        return error
    if isinstance(error, (SamplingMismatchError, UnpricedFlowError, CheckpointError)):
        return JobError(str(error))
    return JobError(f"the training failed ({type(error).__name__})")


def _begun(
    learner: Learner,
    staging: str,
    charge: NoCharge,
    ran: TrainingRun,
    log: TrainingLog,
    job: dict[str, Any],
    resumed: Resumed | None,
) -> Kept:
    """Where a training begins or goes on, and what writes down how far it came."""
    plan, state = learner.plan, None
    if resumed is not None:
        state = learner.go_on(resumed)
        check_events(plan, state, ran.recorded)
        ran.most_messages = learner.most_messages
        for number in range(plan.events_of(ran.begun)):  # the tracker is a new one
            log.charge(number, plan.reports_per_round)
        order = resumed.checkpoint.order
    else:
        order = order_of(learner.clients.names) if learner.kept_of_clients() else ""
    charged = charge.facts["charged"]
    keeper = Keeper(
        staging, ran.identity, job, charged, plan.rounds, plan.rounds_per_event, order, log.address
    )
    return Kept(learner, ran, keeper, state)


def _release_last(
    learner: Learner,
    kept: Kept,
    ran: TrainingRun,
    error: BaseException,
    released: Callable[[bytes, dict[str, list[ModelScore]]], Any],
    console: Console,
) -> bool:
    """Release the model after the last round that ended; whether nobody need go on with it.

    Raises:
        NotPublishedError: as `release` does.
    """
    try:
        check_events(learner.plan, kept.state, kept.rounds)
        if isinstance(error, TooFewCameError):
            ran.withheld, ran.stopped = ran.withheld + 1, "too few"
        else:
            ran.stopped = "failed" if isinstance(error, Exception) else "interrupted"
        ran.lost, ran.emptied = ran.begun - ran.withheld - kept.rounds, rounds_withheld(kept.state)
        end_workers()  # Ctrl-C reached them too: the next computation starts another
        measured = learner.measure(kept.state, kept.rounds)
        epsilon = float(learner.plan.epsilon_of(ran.begun))
        ran.curve = [
            *(one for one in ran.curve if one[0].rounds < kept.rounds),
            (measured, epsilon),
        ]
        ran.flows = tuple(flows_of(learner.process))
        released(model_bytes(learner.model(kept.state)), {})
    except NotPublishedError:
        raise
    except Exception as failed:
        console.print(
            f"[yellow]warning:[/yellow] the model after round {kept.rounds:,} could not be "
            f"released ({type(failed).__name__})",
            soft_wrap=True,
        )
        return isinstance(failed, SamplingMismatchError)  # which it is whoever tries again
    console.print(
        f"the model after round {kept.rounds:,} is released; {many(ran.begun, 'round')} "
        f"{verb(ran.begun, 'is', 'are')} charged",
        soft_wrap=True,
    )
    return True
