"""The rounds of a training: each priced before it runs, measured after each epoch, written down.

`TrainingLog` keeps them in MLflow. `baseline` is what else could be done with the same data: less
private, or not at all.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import dp_accounting
import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import mlflow_ldp
from beam_ldp.accounting import ShuffleAccountant
from beam_ldp.federated import TooFewCameError
from beam_ldp.federated.record import covers
from beam_ldp.federated.training import Spending
from beam_ldp.pipelines import outputs, run
from beam_ldp.pipelines.jobs.watch import JobError
from beam_ldp.pipelines.records.charging import NoCharge
from beam_ldp.pipelines.records.gates import NotPublishedError
from beam_ldp.pipelines.records.wording import number
from beam_ldp.pipelines.settings import LEDGER_VARIABLE
from beam_ldp.pipelines.training.charge import ModelScore, TrainingRun
from beam_ldp.pipelines.training.checkpoints import (
    CheckpointError,
    Keeper,
    Resumed,
    plain_leaves,
)
from beam_ldp.pipelines.training.learn import (
    AdapedLearner,
    Learner,
    ReportLearner,
    learner_for,
    measured,
)
from beam_ldp.pipelines.training.plan import TrainingPlan
from beam_ldp.pipelines.training.plans import AdapedPlan, ReportPlan
from beam_ldp.pipelines.training.record import TrainRecord, model_bytes, release
from beam_ldp.pipelines.training.view import TrainingResult
from beam_ldp.randomizers.identity import ReleaseIdentity
from mlflow_ldp.runs import IDENTITY_TAG
from tff_adapters import (
    PrivacyReleaseManager,
    Round,
    SamplingMismatchError,
    UnpricedFlowError,
    flows_of,
    privacy_events,
)
from tff_adapters import train as run_rounds
from tff_adapters.compat import end_workers, tff
from tff_adapters.data import Clients
from tff_adapters.models import build_keras_model


class TrainingLog:
    """One MLflow run with both curves; a server that is away costs the log, never the training.

    Args:
        plan: what is trained.
        tracker: charges each round in the record; None for no record.
        console: for warnings.
    """

    def __init__(self, plan: TrainingPlan, tracker: Any | None, console: Console) -> None:
        self._plan, self._tracker, self._console = plan, tracker, console

    def charge(self, number: int, num_reports: int) -> None:
        """Before round `number`, or the epoch of that number."""
        price = self._plan.round_price
        if self._tracker is not None and number < price.most:
            event, local = self._plan.charged_event, self._plan.local_epsilon_of(1) or 0.0
            if price.sends_in(number + 1) == price.sends_in(number):  # nobody sends any more
                local = 0.0
            step = number * self._plan.rounds_per_event
            self._tracker.charge(event, step, local_epsilon=local, num_reports=num_reports)

    @property
    def release_managers(self) -> list[Any]:
        """What gets the measurements of each round, where its readers may see them."""
        if self._tracker is None or not self._plan.counts_are_public:
            return []
        return [PrivacyReleaseManager(self._tracker)]

    def measured(self, measured: ModelScore, epsilon: float) -> None:
        """After an epoch, at the number of its last round."""
        if self._tracker is not None:
            found = {"loss": measured.loss, "accuracy": measured.accuracy, "epsilon": epsilon,
                     "personal_accuracy": measured.personal}  # fmt: skip
            known = {f"train.{name}": value for name, value in found.items() if value == value}
            self._tracker.log(known, measured.rounds - 1)

    def finish(
        self, folder: outputs.OutputFolder, record: TrainRecord, charge: NoCharge
    ) -> mlflow_ldp.LoggedRun | None:
        """The files, and what ties the run to its charge."""
        if self._tracker is None:
            return None
        logged = cast("mlflow_ldp.LoggedRun | None", self._tracker.logged)
        if logged is not None:
            from mlflow.tracking import MlflowClient

            try:
                self._tracker.tag(charge.tags(record.to_json()))
                self._tracker.log(charge.metrics(), max(0, self._tracker.spent.num_charges - 1))
                charge.show_budget(logged.tracking_uri, logged.experiment_id)
                if outputs.is_local(folder.path):
                    statement = Path(folder.path) / "privacy.md"
                    self._tracker.tag({"mlflow.note.content": statement.read_text("utf-8")})
                    client = MlflowClient(tracking_uri=logged.tracking_uri)
                    for file in outputs.files_in(folder.path):
                        client.log_artifact(logged.run_id, str(file), "release")
            except Exception as error:
                self._console.print(
                    "[yellow]warning:[/yellow] the files were not logged to MLflow "
                    f"({type(error).__name__})"
                )
        return logged


@contextmanager
def training_log(
    plan: TrainingPlan, charge: NoCharge, identity: ReleaseIdentity, console: Console
) -> Iterator[TrainingLog]:
    """The record of this training in MLflow, unless it is not wanted or not installed."""
    settings = plan.settings
    if settings.output.no_mlflow or not mlflow_ldp.available():
        if not settings.output.no_mlflow:
            console.print("MLflow is not installed: the run was not logged", style="dim")
        yield TrainingLog(plan, None, console)
        return
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    assert settings.output.folder is not None
    folder = outputs.OutputFolder(settings.output.folder, checked=False)
    uri = run.tracking_uri(settings.output, folder, charge.mlflow_uri)
    with _no_ledger(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no ledger is named")
        tracker = mlflow_ldp.PrivacyTracker(
            settings.dataset,
            settings.privacy.delta,
            adaptive=False,
            tracking_uri=uri,
            experiment=settings.output.mlflow_experiment,
            run_name=f"train {plan.model} on {settings.dataset}",
            params=_params(plan, charge),
            num_users=plan.data.num_clients,
        )
    with tracker:
        told = {"privacy.charged": charge.facts["charged"]}  # the tracker knows no ledger
        tracker.tag(told | {IDENTITY_TAG: identity.digest.hex()})
        yield TrainingLog(plan, tracker, console)


@contextmanager
def _no_ledger() -> Iterator[None]:
    """The whole training is charged by its own reservation: a tracker must not charge it again."""
    url = os.environ.pop(LEDGER_VARIABLE, None)
    try:
        yield
    finally:
        if url is not None:
            os.environ[LEDGER_VARIABLE] = url


def _params(plan: TrainingPlan, charge: NoCharge) -> dict[str, Any]:
    settings = plan.settings
    told = ("algorithm", "sampling", "points_per_client", "points_sampled", "norm", "epochs")
    charged = {f"privacy.{name}": value for name, value in charge.facts.items()}
    return {
        **charged,
        **{f"train.{name}": getattr(settings.question, name) for name in told},
        "train.clip": settings.clip,
        "train.adaptive_clip": settings.adaptive_clip,
        "train.learning_rate": settings.rates,
        "train.target_epsilon": settings.privacy.epsilon,
        "train.privacy_unit": settings.charge.privacy_unit,
        "train.model": plan.model,
        "train.parameters": plan.dimension,
        "train.mechanism": plan.config,
        "train.num_clients": plan.data.num_clients,
        "train.clients_per_round": plan.clients_per_round,
        "train.least_clients": plan.least_clients,
        "train.drop_colluders": settings.question.drop_colluders,
        "train.forged": plan.forged,
        "train.bits_per_report": plan.bits_per_report,
        "train.compression": plan.compression,
        "train.rounds": plan.rounds,
    }


_MODEL_SEED = 1  # as what they are compared with
_LOCAL_ONLY = 20  # clients whose own models are averaged over


class BaselineError(Exception):
    """A baseline that cannot be had with these settings."""


def central_noise(plan: TrainingPlan, epsilon: float) -> float:
    """TFF's noise multiplier whose central price is at most `epsilon`, same delta, replace-one.

    By the accountant of the training itself, which knows that replacing a client moves the sum by
    twice what TFF's multiplier counts from.
    """
    settings, data = plan.settings, plan.data
    k = plan.clients_per_round

    def make(noise: float) -> dp_accounting.DpEvent:
        event: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(noise)
        if k < data.num_clients:
            event = dp_accounting.SampledWithoutReplacementDpEvent(data.num_clients, k, event)
        return dp_accounting.SelfComposedDpEvent(event, plan.rounds)

    bracket = dp_accounting.ExplicitBracketInterval(1e-2, 1e4)
    found = dp_accounting.calibrate_dp_mechanism(
        ShuffleAccountant, make, epsilon, settings.privacy.delta, bracket, tol=1e-3
    )
    return float(found)


def baseline(name: str, plan: TrainingPlan, clients: Clients, epsilon: float) -> list[ModelScore]:
    """What else could be done with this data, measured after every epoch. Priced by nothing.

    * "non-private": the same algorithm without clipping and noise.
    * "central-dp": TFF's `dp_aggregator` (adaptive clipping), noise for the same epsilon.
    * "local-only": every client trains on its own data alone; the mean accuracy of a few of them,
      and for `adaped` of their own models as the run measures them.

    Raises:
        BaselineError: if TFF cannot do this one with so few clients in a round.
    """
    if isinstance(plan, AdapedPlan):
        return measured_rounds(AdapedLearner(plan, clients, alone=True))
    if name == "local-only":
        return [_local_only(plan, clients)]
    aggregator: Any = tff.aggregators.UnweightedMeanFactory()
    if name == "central-dp":
        noise = central_noise(plan, epsilon)
        try:
            aggregator = tff.learning.dp_aggregator(noise, plan.clients_per_round, zeroing=False)
        except ValueError:  # the noise multiplier must be below a tenth of the clients in a round
            raise BaselineError("it needs more clients per round") from None
    assert isinstance(plan, ReportPlan)
    return measured_rounds(ReportLearner(plan, clients, aggregator))


def measured_rounds(learner: Learner) -> list[ModelScore]:
    """All rounds of a baseline, measured before the first and after each epoch."""
    plan = learner.plan
    state = learner.process.initialize()
    found = [learner.measure(state, 0)]

    def tell(done: Round) -> None:
        rounds = done.number + 1
        if rounds % plan.rounds_per_epoch == 0 or rounds == plan.rounds:
            found.append(learner.measure(done.state, rounds))

    run_rounds(learner.process, learner.clients_for, plan.rounds, None, state=state, on_round=tell)
    return found


def _local_only(plan: TrainingPlan, clients: Clients) -> ModelScore:
    found = []
    for client in range(min(_LOCAL_ONLY, clients.num_clients)):
        model = build_keras_model(plan.model, plan.data.shape, plan.data.num_classes, _MODEL_SEED)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.legacy.SGD(0.1), loss)
        model.fit(clients.features[client], clients.labels[client], epochs=20, verbose=0)
        found.append(measured(model, clients, plan.rounds))
    mean = np.mean([(m.loss, m.accuracy) for m in found], axis=0)
    return ModelScore(plan.rounds, float(mean[0]), float(mean[1]))


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
    with folder.staging() as staging, training_log(plan, charge, ran.identity, console) as log:
        charge.leave_note(
            staging,
            ends_with_launcher=True,
            rounds=plan.round_price,
            overwrite=plan.settings.output.overwrite,
        )

        def released(
            model: bytes, beside: dict[str, list[ModelScore]]
        ) -> tuple[TrainRecord, dict[str, Any]]:
            left_out = clients.left_out.total()
            found = release(
                plan, ran, charge, folder, staging, model, beside=beside, left_out=left_out
            )
            ran.settled = True
            return found

        kept = None
        try:
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
                _release_last(learner, kept, ran, error, released, console)
            raise _as_told(error) from (error if isinstance(error, Exception) else None)
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
        check_events(plan, state, ran.released)
        ran.most_messages = learner.most_messages
        for number in range(
            plan.events_of(ran.begun)
        ):  # the run in MLflow is a new one, and knows of none
            log.charge(number, plan.reports_per_round)
    charged = charge.facts["charged"]
    keeper = Keeper(staging, ran.identity, job, charged, plan.rounds, plan.rounds_per_event)
    return Kept(learner, ran, keeper, state)


def _release_last(
    learner: Learner,
    kept: Kept,
    ran: TrainingRun,
    error: BaseException,
    released: Callable[[bytes, dict[str, list[ModelScore]]], Any],
    console: Console,
) -> None:
    """Release the model after the last round that ended; nothing, where that cannot be.

    Raises:
        NotPublishedError: as `release` does.
    """
    try:
        check_events(learner.plan, kept.state, kept.rounds)
        if isinstance(error, TooFewCameError):
            ran.withheld, ran.stopped = ran.withheld + 1, "too few"
        else:
            ran.stopped = "failed" if isinstance(error, Exception) else "interrupted"
        ran.lost = ran.begun - ran.withheld - kept.rounds
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
        return
    console.print(
        f"the model after round {kept.rounds:,} is released; {ran.begun:,} rounds are charged",
        soft_wrap=True,
    )


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
        plan = self._learner.plan
        charged = plan.event if covers(plan.event, event) else event
        return self._learner.budget.would_exceed(charged, count)

    def charge(
        self,
        event: dp_accounting.DpEvent,
        step: int | None = None,
        *,
        num_reports: int | None = None,
    ) -> Spending:
        """Before a round, or a shuffled epoch: as one to which as few came as may.

        Raises:
            SamplingMismatchError: if the round is not what was priced and reserved.
        """
        plan = self._learner.plan
        if not covers(plan.event, event):
            raise SamplingMismatchError(
                "the next round is not the one whose cost was reserved: nothing more is run"
            )
        spent = self._learner.budget.charge(plan.event, step, num_reports=num_reports)
        self._ran.begun = min(plan.rounds, self._ran.begun + plan.rounds_per_event)
        self._ran.most_messages = self._learner.most_messages
        few = plan.may_stay_away and plan.rounds_per_event == 1
        withheld = few and num_reports is not None and num_reports < plan.least_clients
        with _ends_where_the_disk_is_full():
            self._charge.begin_round(withheld)
        self._ran.withheld += withheld
        came = plan.clients_per_round
        if plan.counts_are_public and num_reports is not None:
            came = num_reports
        each = plan.reports_per_round // plan.clients_per_round
        self._log.charge(plan.events_of(self._ran.begun) - 1, came * each)
        return spent

    @property
    def spent(self) -> Spending:
        return self._learner.budget.spent


@contextmanager
def _ends_where_the_disk_is_full() -> Iterator[None]:
    """Leaves what was written before to those who go on, as a kill does.

    Raises:
        NotPublishedError: where the disk does not take what is written in the block.
    """
    try:
        yield
    except OSError as error:
        raise NotPublishedError(
            "the training ends here, since how far it came could not be written "
            f"({error.strerror or type(error).__name__}). `beam-ldp train --resume` goes on from "
            "the last checkpoint once there is room; `beam-ldp finalize` ends the charge"
        ) from None


class Kept:
    """The state after the last round whose result is out; on disk before that.

    Args:
        learner, ran: whose rounds.
        keeper: writes checkpoints.
        state: to begin with.
    """

    def __init__(self, learner: Learner, ran: TrainingRun, keeper: Keeper, state: Any) -> None:
        self._learner, self._ran, self._keeper = learner, ran, keeper
        self.state, self.rounds = state, 0 if state is None else ran.released

    def keep(self, done: Round) -> None:
        """After a round, before anybody gets its result.

        Raises:
            NotPublishedError: if the disk does not take it.
        """
        with _ends_where_the_disk_is_full():
            self._keeper.keep(
                done.number + 1,
                plain_leaves(tf.nest.flatten(done.state)),
                self._ran.curve,
                self._learner.kept_of_clients(),
            )
        self.state, self.rounds = done.state, done.number + 1


def rounds(
    learner: Learner,
    charge: NoCharge,
    ran: TrainingRun,
    log: TrainingLog,
    console: Console,
    kept: Kept,
) -> Any:
    """Train; the last state. What ran is in `ran`, whatever happens."""
    plan = learner.plan
    planned = plan.rounds - ran.lost - ran.withheld  # those that are gone stay charged
    with progress(console) as bar:
        shown = bar.add_task(
            "", total=planned, completed=kept.rounds, said="the first rounds take a moment"
        )

        def tell(done: Round) -> None:
            count, ran.metrics = done.number + 1, dict(done.metrics)
            bar.advance(shown)
            if count % plan.rounds_per_epoch and count != planned:
                return
            measured, epsilon = learner.measure(done.state, count), done.epsilon
            assert epsilon is not None
            ran.curve.append((measured, epsilon))
            log.measured(measured, epsilon)
            if diverged([score for score, _ in ran.curve]):
                console.print(DIVERGES, soft_wrap=True)
            said = _said(plan, measured, epsilon)
            if not console.is_terminal:
                console.print(said, highlight=False, soft_wrap=True)
            bar.update(shown, said=said)

        training = run_rounds(
            learner.process,
            learner.clients_for,
            planned,
            ChargedRounds(learner, charge, ran, log),
            state=kept.state,
            on_round=tell,
            release_managers=log.release_managers,
            keep=kept.keep,
        )
    if training.stopped_by == "budget":
        raise JobError("the budget and the plan disagree: nothing is released")
    if ran.withheld:
        console.print(
            f"{ran.withheld:,} rounds to which fewer than {plan.least_clients:,} clients came "
            "were not released; they stay charged",
            soft_wrap=True,
        )
    if training.withheld or not ran.curve or ran.curve[-1][0].rounds != kept.rounds:
        measured = learner.measure(training.state, kept.rounds)
        ran.curve.append((measured, float(plan.epsilon_of(ran.begun))))
        log.measured(*ran.curve[-1])
        console.print(_said(plan, *ran.curve[-1]), highlight=False, soft_wrap=True)
    check_events(plan, training.state, ran.released)
    ran.flows = training.flows
    ran.report = learner.report()
    return training.state


def check_events(plan: TrainingPlan, state: Any, begun: int) -> None:
    """Refuses a training whose own record is not what was priced.

    Raises:
        SamplingMismatchError: nothing of it is released.
    """
    events = privacy_events(state) or []
    charged = plan.events_of(begun)
    fits = all(covers(plan.event, event) for event, _ in events)
    if sum(times for _, times in events) != charged or not fits:
        raise SamplingMismatchError(
            "the record in the state of the training is not the one whose cost was reserved: "
            "nothing is released"
        )


DIVERGES = (
    "[yellow]warning:[/yellow] the shared model gets worse: its loss grew in two epochs on end, to "
    "more than at first. The noise may be larger than what is learned: less --clip (the noise is a "
    "multiple of it), a smaller learning rate, or more clients per round"
)
_IN_A_ROW = 3


def diverged(scores: list[ModelScore]) -> bool:
    """Whether the loss has grown twice on end, beyond the first one, and did not before.

    Said once: where it grew three times on end, it has been said.

    >>> diverged([ModelScore(i, loss, 0.1) for i, loss in enumerate([2.5, 2.6, 2.7])])
    True
    >>> diverged([ModelScore(i, loss, 0.1) for i, loss in enumerate([2.5, 2.6, 2.7, 2.8])])
    False
    """
    losses = [score.loss for score in scores]

    def grows(until: int) -> bool:
        last = losses[max(0, until - _IN_A_ROW) : until]
        return len(last) == _IN_A_ROW and losses[0] <= last[0] < last[1] < last[2]

    return grows(len(losses)) and not grows(len(losses) - 1)


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
    adaped, names = isinstance(plan, AdapedPlan), plan.question.baselines
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
