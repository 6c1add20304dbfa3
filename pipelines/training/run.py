"""The rounds of a training: each priced before it runs, measured after each epoch, written down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dp_accounting
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from beam_ldp.federated.budget import Spending
from beam_ldp.pipelines import outputs
from beam_ldp.pipelines.jobs.watch import JobError
from beam_ldp.pipelines.records.charging import NoCharge
from beam_ldp.pipelines.records.statement import number
from beam_ldp.pipelines.training.baselines import BaselineError, baseline
from beam_ldp.pipelines.training.central_plan import AdapedPlan
from beam_ldp.pipelines.training.charge import ModelScore, TrainingRun
from beam_ldp.pipelines.training.files import model_bytes
from beam_ldp.pipelines.training.learn import Learner, learner_for
from beam_ldp.pipelines.training.log import TrainingLog, training_log
from beam_ldp.pipelines.training.plan import TrainingPlan
from beam_ldp.pipelines.training.release import release
from beam_ldp.pipelines.training.view import TrainingResult
from tff_adapters import Round, SamplingMismatchError, UnpricedFlowError, privacy_events
from tff_adapters import train as run_rounds
from tff_adapters.data import Clients


def train(
    plan: TrainingPlan,
    clients: Clients,
    folder: outputs.OutputFolder,
    charge: NoCharge,
    ran: TrainingRun,
    console: Console,
) -> TrainingResult:
    """All of it, after the budget has been set aside.

    Raises:
        JobError: if a round fails, or is not as declared.
        NotPublishedError: if the ledger could not be written at the end; the output is kept.
    """
    plan = plan.for_release(ran.identity)
    with folder.staging() as staging, training_log(plan, charge, ran.identity, console) as log:
        charge.leave_note(
            staging,
            ends_with_launcher=True,
            rounds=plan.round_price,
            overwrite=plan.settings.overwrite,
        )
        try:
            learner = learner_for(plan, clients)
            state = rounds(learner, charge, ran, log, console)
            beside = baselines(plan, clients, ran, console)
            model = model_bytes(learner.model(state))
        except (JobError, KeyboardInterrupt):
            raise
        except (SamplingMismatchError, UnpricedFlowError) as error:
            raise JobError(str(error)) from None
        except Exception as error:  # what it says may quote a client's data
            raise JobError(f"the training failed ({type(error).__name__})") from error
        left_out = clients.left_out.total()
        record, curves = release(
            plan, ran, charge, folder, staging, model, beside=beside, left_out=left_out
        )
        run_id = log.finish(folder, record, charge)
    return TrainingResult(plan, record, curves, folder.path, run_id, ran.report)


class ChargedRounds:
    """The budget that the rounds are run under: what is charged is written down everywhere.

    Args:
        learner: whose budget is asked.
        charge: the reservation: on disk it knows of each round before that runs.
        ran: told of each round.
        log: MLflow.
    """

    def __init__(
        self, learner: Learner, charge: NoCharge, ran: TrainingRun, log: TrainingLog
    ) -> None:
        self._learner, self._charge, self._ran, self._log = learner, charge, ran, log

    def would_exceed(self, event: dp_accounting.DpEvent, count: int = 1) -> bool:
        return self._learner.budget.would_exceed(event, count)

    def charge(
        self,
        event: dp_accounting.DpEvent,
        step: int | None = None,
        *,
        num_reports: int | None = None,
    ) -> Spending:
        """Before a round.

        Raises:
            SamplingMismatchError: if the round is not what was priced and reserved.
        """
        plan = self._learner.plan
        if event != plan.event:
            raise SamplingMismatchError(
                "the next round is not what was priced: nothing more is run"
            )
        spent = self._learner.budget.charge(event, step, num_reports=num_reports)
        self._ran.begun += 1
        self._ran.most_messages = self._learner.most_messages
        self._charge.begin_round()
        came = plan.clients_per_round
        if plan.counts_are_public and num_reports is not None:
            came = num_reports
        each = plan.reports_per_round // plan.clients_per_round
        self._log.charge(self._ran.begun - 1, came * each)
        return spent

    @property
    def spent(self) -> Spending:
        return self._learner.budget.spent


def rounds(
    learner: Learner, charge: NoCharge, ran: TrainingRun, log: TrainingLog, console: Console
) -> Any:
    """Train; the last state. What ran is in `ran`, whatever happens."""
    plan = learner.plan
    with progress(console) as bar:
        shown = bar.add_task("", total=plan.rounds, said="the first rounds take a moment")

        def tell(done: Round) -> None:
            count, ran.metrics = done.number + 1, dict(done.metrics)
            bar.advance(shown)
            if count % plan.rounds_per_epoch and count != plan.rounds:
                return
            measured, epsilon = learner.measure(done.state, count), done.epsilon
            assert epsilon is not None
            ran.curve.append((measured, epsilon))
            log.measured(measured, epsilon)
            said = _said(plan, measured, epsilon)
            if not console.is_terminal:
                console.print(said, highlight=False, soft_wrap=True)
            bar.update(shown, said=said)

        training = run_rounds(
            learner.process,
            learner.clients_for,
            plan.rounds,
            ChargedRounds(learner, charge, ran, log),
            on_round=tell,
            release_managers=log.release_managers,
        )
    if training.stopped_by == "budget":
        raise JobError("the budget and the plan do not agree: nothing is released")
    check_events(plan, training.state, ran.begun)
    ran.flows = training.flows
    ran.report = learner.report()
    return training.state


def check_events(plan: TrainingPlan, state: Any, begun: int) -> None:
    """Refuses a training whose own record is not what was priced.

    Raises:
        SamplingMismatchError: nothing of it is released.
    """
    events = privacy_events(state) or []
    if sum(times for _, times in events) != begun or any(e != plan.event for e, _ in events):
        raise SamplingMismatchError(
            "the record in the state of the training is not what was priced: nothing is released"
        )


def _said(plan: TrainingPlan, measured: ModelScore, epsilon: float) -> str:
    epoch = -(-measured.rounds // plan.rounds_per_epoch)
    known = measured.personal == measured.personal
    own = f"own models {measured.personal:.3f}  " if known else ""
    return (
        f"epoch {epoch:>3}  loss {measured.loss:.4f}  accuracy {measured.accuracy:.3f}  {own}"
        f"epsilon {number(epsilon)}"
    )


@contextmanager
def progress(console: Console) -> Iterator[Progress]:
    """Rounds, and what the last epoch gave; on a terminal only."""
    columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.fields[said]}"))
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        yield bar


def baselines(
    plan: TrainingPlan, clients: Clients, ran: TrainingRun, console: Console
) -> dict[str, list[ModelScore]]:
    """The baselines that were asked for, trained one after the other."""
    found: dict[str, list[ModelScore]] = {}
    adaped, names = isinstance(plan, AdapedPlan), plan.settings.baselines
    if adaped and ran.curve[-1][0].personal == ran.curve[-1][0].personal:
        names = ("local-only",)  # without it, accuracies of own models say little
    for name in names:
        try:
            with console.status(f"baseline {name}"):
                found[name] = baseline(name, plan, clients, ran.curve[-1][1])
        except BaselineError as error:
            console.print(f"[yellow]warning:[/yellow] {name} was not trained: {error}")
            continue
        last = found[name][-1]
        if adaped:
            ran.alone = last.personal
        reached = last.personal if adaped else last.accuracy
        console.print(f"{name}: accuracy {reached:.3f}", highlight=False, soft_wrap=True)
    return found
