"""What else could be done with the data of a training: less private, or not at all.

`baselines` trains those that were asked for, one after the other; `baseline` is one of them.
"""

from __future__ import annotations

from typing import Any

import dp_accounting
import numpy as np
import tensorflow as tf
from rich.console import Console

from beam_ldp.accounting import ShuffleAccountant
from beam_ldp.pipelines.training.charge import ModelScore, TrainingRun
from beam_ldp.pipelines.training.learner import MODEL_SEED, Learner, measured
from beam_ldp.pipelines.training.learners import AdapedLearner, ReportLearner
from beam_ldp.pipelines.training.plan import TrainingPlan
from beam_ldp.pipelines.training.report_plan import ReportPlan
from beam_ldp.pipelines.training.server_plans import AdapedPlan
from tff_adapters import Round
from tff_adapters import train as run_rounds
from tff_adapters.compat import tff
from tff_adapters.data import Clients
from tff_adapters.models import build_keras_model

_LOCAL_ONLY = 20  # clients whose own models are averaged over


class BaselineError(Exception):
    """A baseline that cannot be had with these settings."""


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
        model = build_keras_model(plan.model, plan.data.shape, plan.data.num_classes, MODEL_SEED)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.legacy.SGD(0.1), loss)
        model.fit(clients.features[client], clients.labels[client], epochs=20, verbose=0)
        found.append(measured(model, clients, plan.rounds))
    mean = np.mean([(m.loss, m.accuracy) for m in found], axis=0)
    return ModelScore(plan.rounds, float(mean[0]), float(mean[1]))
