"""A training in MLflow: its prices round by round, its measurements, its files."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from rich.console import Console

import mlflow_ldp
from beam_ldp.pipelines import outputs, run
from beam_ldp.pipelines.records.charging import NoCharge
from beam_ldp.pipelines.settings import LEDGER_VARIABLE
from beam_ldp.pipelines.training.charge import ModelScore
from beam_ldp.pipelines.training.plan import TrainingPlan
from beam_ldp.pipelines.training.record import TrainRecord
from beam_ldp.randomizers.identity import ReleaseIdentity
from mlflow_ldp.runs import IDENTITY_TAG
from tff_adapters import PrivacyReleaseManager


class TrainingLog:
    """One MLflow run with both curves; a server that is away costs the log, never the training.

    Args:
        plan: what is trained.
        tracker: charges each round in the record; None for no record.
        uri: of the tracking server.
        console: for warnings.
    """

    def __init__(
        self, plan: TrainingPlan, tracker: Any | None, uri: str | None, console: Console
    ) -> None:
        self._plan, self._tracker, self._uri, self._console = plan, tracker, uri, console

    def charge(self, number: int, num_reports: int) -> None:
        """Before round `number`."""
        price = self._plan.round_price
        if self._tracker is not None and number < price.most:
            event, local = self._plan.charged_event, self._plan.local_epsilon_of(1) or 0.0
            self._tracker.charge(event, number, local_epsilon=local, num_reports=num_reports)

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
    ) -> str | None:
        """The files, and what ties the run to its charge."""

        if self._tracker is None:
            return None
        run_id = cast("str | None", self._tracker.mlflow_run_id)
        if run_id is not None:
            from mlflow.tracking import MlflowClient

            try:
                self._tracker.tag(charge.tags(record.to_json()))
                self._tracker.log(charge.metrics(), max(0, self._tracker.spent.num_charges - 1))
                charge.show_budget(*self._tracker.logged_at)
                if outputs.is_local(folder.path):
                    statement = Path(folder.path) / "privacy.md"
                    self._tracker.tag({"mlflow.note.content": statement.read_text("utf-8")})
                    client = MlflowClient(tracking_uri=self._uri)
                    client.log_artifacts(run_id, folder.path, "release")
            except Exception as error:
                self._console.print(
                    "[yellow]warning:[/yellow] the files were not logged to MLflow "
                    f"({type(error).__name__})"
                )
        return run_id


@contextmanager
def training_log(
    plan: TrainingPlan, charge: NoCharge, identity: ReleaseIdentity, console: Console
) -> Iterator[TrainingLog]:
    """The record of this training in MLflow, unless it is not wanted or not installed."""
    settings = plan.settings
    if settings.no_mlflow or not mlflow_ldp.available():
        if not settings.no_mlflow:
            console.print("MLflow is not installed: the run was not logged", style="dim")
        yield TrainingLog(plan, None, None, console)
        return
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    assert settings.output is not None
    uri = run.tracking_uri(settings.mlflow_uri, outputs.OutputFolder(settings.output, True))
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
        told = {"privacy.charged": charge.facts["charged"]}  # the tracker knows no ledger
        tracker.tag(told | {IDENTITY_TAG: identity.digest.hex()})
        yield TrainingLog(plan, tracker, uri, console)


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
    told = ("algorithm", "sampling", "points_per_client", "points_sampled", "norm", "clip",
            "adaptive_clip", "epochs", "learning_rate", "target_epsilon",
            "privacy_unit")  # fmt: skip
    charged = {f"privacy.{name}": value for name, value in charge.facts.items()}
    return {
        **charged,
        **{f"train.{name}": getattr(settings, name) for name in told},
        "train.model": plan.model,
        "train.parameters": plan.dimension,
        "train.mechanism": plan.config,
        "train.num_clients": plan.data.num_clients,
        "train.clients_per_round": plan.clients_per_round,
        "train.rounds": plan.rounds,
    }
