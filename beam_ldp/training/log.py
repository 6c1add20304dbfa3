"""What is kept in MLflow of a training: `TrainingLog`, told of each round and each epoch."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from rich.console import Console

import mlflow_ldp
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.release import outputs, runner
from beam_ldp.release.charging import NoCharge
from beam_ldp.training.charge import ModelScore
from beam_ldp.training.checkpoints import address_of
from beam_ldp.training.plan import TrainingPlan
from beam_ldp.training.record import TrainRecord
from beam_ldp.wording import number
from mlflow_ldp.runs import IDENTITY_TAG, STAGING_TAG
from tff_adapters import PrivacyReleaseManager


class TrainingLog:
    """One MLflow run with both curves; a server that is away costs the log, never the training.

    Args:
        plan: what is trained.
        tracker: charges each round in the record; None for no record.
        console: for warnings.
        address: of the store; "" for no record.
    """

    def __init__(
        self, plan: TrainingPlan, tracker: Any | None, console: Console, address: str = ""
    ) -> None:
        self._plan, self._tracker, self._console = plan, tracker, console
        self.address = address and address_of(address)

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
            price = float(number(epsilon))
            found = {"loss": measured.loss, "accuracy": measured.accuracy, "epsilon": price,
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
    plan: TrainingPlan,
    charge: NoCharge,
    identity: ReleaseIdentity,
    console: Console,
    staging: str,
) -> Iterator[TrainingLog]:
    """The record of this training in MLflow, unless it is not wanted or not installed.

    One that goes on, in the same staging folder, goes on in its run too.
    """
    settings = plan.settings
    if settings.output.no_mlflow or not mlflow_ldp.available():
        if not settings.output.no_mlflow:
            console.print("MLflow is not installed: the run was not logged", style="dim")
        yield TrainingLog(plan, None, console)
        return
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    import mlflow

    assert settings.output.folder is not None
    folder = outputs.OutputFolder(settings.output.folder, checked=False)
    uri = runner.tracking_uri(settings.output, folder, charge.mlflow_uri)
    tracker = mlflow_ldp.PrivacyTracker(
        settings.dataset,
        settings.privacy.delta,
        adaptive=False,
        tracking_uri=uri,
        experiment=settings.output.mlflow_experiment,
        run_name=f"train {plan.model} on {settings.dataset}",
        params=_params(plan, charge),
        num_users=plan.data.num_clients,
        charged_elsewhere=charge.facts["charged"],
        goes_on={IDENTITY_TAG: identity.digest.hex(), STAGING_TAG: Path(staging).name},
    )
    with tracker:
        yield TrainingLog(plan, tracker, console, uri or mlflow.get_tracking_uri())


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
