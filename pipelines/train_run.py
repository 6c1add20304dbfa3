"""The rounds of a training: each priced before it runs, measured after each epoch, written down."""

from __future__ import annotations

import csv
import io
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import mlflow_ldp
from beam_ldp.pipelines import outputs, run
from beam_ldp.pipelines.charging import NoCharge
from beam_ldp.pipelines.settings import LEDGER_VARIABLE, Settings
from beam_ldp.pipelines.statement import number
from beam_ldp.pipelines.train import Result, Run, make_record, settlement
from beam_ldp.pipelines.train_learn import (
    BaselineError,
    Measured,
    Training,
    baseline,
    sampler_of,
)
from beam_ldp.pipelines.train_plan import Plan
from beam_ldp.pipelines.train_plot import plot_training
from beam_ldp.pipelines.train_record import TrainRecord, training_statement
from beam_ldp.pipelines.watch import JobError
from tff_adapters import EpsilonBudget, SamplingMismatchError, privacy_events
from tff_adapters.data import Clients

_HEADINGS = ("epoch", "rounds", "loss", "accuracy", "epsilon", "epsilon_thesis")


def train(
    plan: Plan,
    clients: Clients,
    folder: outputs.OutputFolder,
    charge: NoCharge,
    ran: Run,
    console: Console,
) -> Result:
    """All of it, after the budget has been set aside.

    Raises:
        JobError: if a round fails, or is not as declared.
    """
    with folder.staging(), tracked(plan, charge, console) as record_step:
        try:
            training = rounds(plan, clients, ran, record_step, console)
            beside = baselines(plan, clients, ran, console)
        except (JobError, KeyboardInterrupt):
            raise
        except SamplingMismatchError as error:
            raise JobError(str(error)) from None
        except Exception as error:  # what it says may quote a client's data
            raise JobError(f"the training failed ({type(error).__name__})") from error
        record = make_record(plan, clients.left_out.total(), ran, charge)
        curves = curves_as_json(plan, ran, beside)
        write(folder, plan, training, record, curves)
        charged = "run_id" not in charge.facts or _settled(plan, charge, ran, console)
        run_id = record_step.finish(folder, record, charge if charged else NoCharge("later"))
    return Result(plan, record, curves, folder.path, run_id)


def rounds(
    plan: Plan, clients: Clients, ran: Run, record_step: Tracked, console: Console
) -> Training:
    """Train; what ran is in `ran`, whatever happens."""
    budget = EpsilonBudget(plan.settings.target_epsilon, plan.settings.delta)
    sampler = sampler_of(plan)
    training = Training(plan, clients)
    with progress(console) as bar:
        shown = bar.add_task("", total=plan.rounds, said="the first rounds take a moment")
        while ran.begun < plan.rounds:
            if budget.would_exceed(plan.event):
                raise JobError("the budget and the plan do not agree: nothing more is run")
            spent = budget.charge(plan.event)
            ran.begun += 1
            record_step.charge(ran.begun)
            ran.metrics = training.round(sampler)
            bar.advance(shown)
            if ran.begun % plan.rounds_per_epoch == 0 or ran.begun == plan.rounds:
                check_events(plan, training.state, ran.begun)
                measured = training.measure()
                ran.curve.append((measured, spent.epsilon))
                record_step.measured(measured, spent.epsilon)
                said = _said(plan, measured, spent.epsilon)
                if not console.is_terminal:
                    console.print(said, highlight=False, soft_wrap=True)
                bar.update(shown, said=said)
    return training


def check_events(plan: Plan, state: Any, begun: int) -> None:
    """Refuses a training whose own record is not what was priced.

    Raises:
        SamplingMismatchError: nothing of it is released.
    """
    events = privacy_events(state) or []
    if sum(times for _, times in events) != begun or any(e != plan.event for e, _ in events):
        raise SamplingMismatchError(
            "the record in the state of the training is not what was priced: nothing is released"
        )


def _said(plan: Plan, measured: Measured, epsilon: float) -> str:
    epoch = -(-measured.rounds // plan.rounds_per_epoch)
    return (
        f"epoch {epoch:>3}  loss {measured.loss:.4f}  accuracy {measured.accuracy:.3f}  "
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
    plan: Plan, clients: Clients, ran: Run, console: Console
) -> dict[str, list[Measured]]:
    """The baselines that were asked for, trained one after the other."""
    found = {}
    for name in plan.settings.baselines:
        try:
            with console.status(f"baseline {name}"):
                found[name] = list(baseline(name, plan, clients, ran.curve[-1][1]))
        except BaselineError as error:
            console.print(f"[yellow]warning:[/yellow] {name} was not trained: {error}")
            continue
        console.print(
            f"{name}: accuracy {found[name][-1].accuracy:.3f}", highlight=False, soft_wrap=True
        )
    return found


# What is kept ---------------------------------------------------------------------------------


def curves_as_json(plan: Plan, ran: Run, beside: dict[str, list[Measured]]) -> dict[str, Any]:
    """Loss and accuracy by epoch with the price so far, by our accountant and by the thesis'."""
    chosen = {point.rounds: point for point in plan.price_list()}

    def row(measured: Measured, epsilon: float) -> dict[str, Any]:
        point = chosen.get(measured.rounds)
        return {
            "epoch": -(-measured.rounds // plan.rounds_per_epoch),
            "rounds": measured.rounds,
            "loss": _known(measured.loss),
            "accuracy": _known(measured.accuracy),
            "epsilon": epsilon,
            "epsilon_thesis": None if point is None else point.thesis,
        }

    def plain(measured: Measured) -> dict[str, Any]:
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
    plan: Plan,
    training: Training,
    record: TrainRecord,
    curves: dict[str, Any],
) -> None:
    """All files of the output, as a whole."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _HEADINGS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(curves["training"])
    with folder.writing() as out:
        out.put("model.keras", model_bytes(training.model()))
        out.put("privacy.json", outputs.as_json(record.to_json()))
        out.put("privacy.md", training_statement(record).encode())
        out.put("curve.csv", text.getvalue().encode())
        out.put("curves.json", outputs.as_json(curves))
        if plan.data.num_test:
            out.put("plot.png", picture(plan, record, curves))


def model_bytes(model: Any) -> bytes:
    """A model in Keras' own format."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model.keras"
        model.save(path)
        return path.read_bytes()


def picture(plan: Plan, record: TrainRecord, curves: dict[str, Any]) -> bytes:
    """Accuracy against epsilon, PNG."""
    rows = curves["training"]
    priced = [row for row in rows if row["epsilon_thesis"] is not None]
    return plot_training(
        [row["epsilon"] for row in rows],
        [row["accuracy"] for row in rows],
        ([r["epsilon_thesis"] for r in priced], [r["accuracy"] for r in priced]),
        {name: points[-1]["accuracy"] for name, points in curves["baselines"].items()},
        f"{record.model} on {record.dataset}, {record.algorithm}",
        f"{record.num_clients:,} clients, {record.clients_per_round:,} in a round, local epsilon = "
        f"{number(record.report_epsilon)}, delta = {record.delta:g}; against readers of models who "
        "cannot see who took part",
    )


def _settled(plan: Plan, charge: NoCharge, ran: Run, console: Console) -> bool:
    """Settle; a ledger that is away keeps the worst case until later."""
    try:
        charge.settle(settlement(plan, charge, ran.begun))
    except Exception as error:
        console.print(
            f"[yellow]warning:[/yellow] the ledger could not be written ({type(error).__name__}): "
            "the run stays charged at its worst case until "
            f"`beam-ldp finalize {escape(str(plan.settings.output))}`",
            soft_wrap=True,
        )
        return False
    return True


# MLflow ---------------------------------------------------------------------------------------


class Tracked:
    """One MLflow run with both curves; a server that is away costs the log, never the training.

    Args:
        plan: what is trained.
        tracker: charges each round in the record; None for no record.
        uri: of the tracking server.
        console: for warnings.
    """

    def __init__(self, plan: Plan, tracker: Any | None, uri: str | None, console: Console) -> None:
        self._plan, self._tracker, self._uri, self._console = plan, tracker, uri, console

    def charge(self, rounds: int) -> None:
        """Before a round."""
        if self._tracker is not None:
            reports = self._plan.reports_per_round
            self._tracker.charge(self._plan.event, step=rounds, num_reports=reports)

    def measured(self, measured: Measured, epsilon: float) -> None:
        """After an epoch."""
        if self._tracker is not None:
            found = {"loss": measured.loss, "accuracy": measured.accuracy, "epsilon": epsilon}
            known = {f"train.{name}": value for name, value in found.items() if value == value}
            self._tracker.log(known, measured.rounds)

    def finish(
        self, folder: outputs.OutputFolder, record: TrainRecord, charge: NoCharge
    ) -> str | None:
        """The files, and what ties the run to its charge."""

        if self._tracker is None:
            return None
        run_id = cast("str | None", self._tracker.mlflow_run_id)
        if run_id is not None:
            from mlflow.tracking import MlflowClient

            try:
                self._tracker.tag(charge.tags(record.to_json()))
                if outputs.is_local(folder.path):
                    client = MlflowClient(tracking_uri=self._uri)
                    client.log_artifacts(run_id, folder.path, "release")
            except Exception as error:
                self._console.print(
                    "[yellow]warning:[/yellow] the files were not logged to MLflow "
                    f"({type(error).__name__})"
                )
        return run_id


@contextmanager
def tracked(plan: Plan, charge: NoCharge, console: Console) -> Iterator[Tracked]:
    """The record of this training in MLflow, unless it is not wanted or not installed."""
    settings = plan.settings
    if settings.no_mlflow or not mlflow_ldp.available():
        if not settings.no_mlflow:
            console.print("MLflow is not installed: the run was not logged", style="dim")
        yield Tracked(plan, None, None, console)
        return
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    assert settings.output is not None
    uri = run.tracking_uri(cast(Settings, settings), outputs.OutputFolder(settings.output, True))
    with _no_ledger(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no ledger is named")
        tracker = mlflow_ldp.PrivacyTracker(
            settings.dataset,
            settings.delta,
            adaptive=False,
            tracking_uri=uri,
            experiment=settings.mlflow_experiment,
            run_name=f"train {plan.model} on {settings.dataset}",
            params=_params(plan, charge),
            num_users=plan.data.num_clients,
        )
    with tracker:
        tracker.tag({"privacy.charged": charge.facts["charged"]})  # the tracker knows no ledger
        yield Tracked(plan, tracker, uri, console)


@contextmanager
def _no_ledger() -> Iterator[None]:
    """The whole training is charged by its own reservation: a tracker must not charge it again."""
    url = os.environ.pop(LEDGER_VARIABLE, None)
    try:
        yield
    finally:
        if url is not None:
            os.environ[LEDGER_VARIABLE] = url


def _params(plan: Plan, charge: NoCharge) -> dict[str, Any]:
    settings = plan.settings
    told = ("algorithm", "sampling", "points_per_client", "points_sampled", "norm", "clip",
            "epochs", "learning_rate", "target_epsilon", "privacy_unit")  # fmt: skip
    charged = {f"privacy.{name}": value for name, value in charge.facts.items()}
    return {
        **charged,
        **{f"train.{name}": getattr(settings, name) for name in told},
        "train.model": plan.model,
        "train.parameters": plan.dimension,
        "train.mechanism": plan.mechanism.to_config(),
        "train.num_clients": plan.data.num_clients,
        "train.clients_per_round": plan.clients_per_round,
        "train.rounds": plan.rounds,
    }
