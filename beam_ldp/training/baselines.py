"""What else could be done with the data of a training: less private, or not at all.

`baselines` trains those that were asked for, one after the other; `baseline` is one of them.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from rich.console import Console

from beam_ldp.training.charge import ModelScore, TrainingRun
from beam_ldp.training.learner import MODEL_SEED, Learner, measured
from beam_ldp.training.learners import AdapedLearner, ReportLearner
from beam_ldp.training.plan import TrainingPlan
from beam_ldp.training.report_plan import ReportPlan
from beam_ldp.training.server_plans import AdapedPlan
from tff_adapters import Round
from tff_adapters import train as run_rounds
from tff_adapters.compat import tff
from tff_adapters.data import Clients
from tff_adapters.models import build_keras_model

_LOCAL_ONLY = 20  # clients whose own models are averaged over


def baselines(
    plan: TrainingPlan, clients: Clients, ran: TrainingRun, console: Console
) -> dict[str, list[ModelScore]]:
    """The baselines that were asked for, trained one after the other."""
    found: dict[str, list[ModelScore]] = {}
    adaped, names = isinstance(plan, AdapedPlan), plan.question.baselines
    if adaped and ran.curve[-1][0].personal == ran.curve[-1][0].personal:
        names = ("local-only",)  # without it, accuracies of own models say little
    for name in names:
        with console.status(f"baseline {name}"):
            found[name] = baseline(name, plan, clients)
        last = found[name][-1]
        if adaped:
            ran.alone = last.personal
        reached = last.personal if adaped else last.accuracy
        console.print(f"{name}: accuracy {reached:.3f}", highlight=False, soft_wrap=True)
    return found


def baseline(name: str, plan: TrainingPlan, clients: Clients) -> list[ModelScore]:
    """What else could be done with this data, measured after every epoch. Priced by nothing.

    * "non-private": the same algorithm without clipping and noise.
    * "local-only": every client trains on its own data alone; the mean accuracy of a few of them,
      and for `adaped` of their own models as the run measures them.
    """
    if isinstance(plan, AdapedPlan):
        return measured_rounds(AdapedLearner(plan, clients, alone=True))
    if name == "local-only":
        return [_local_only(plan, clients)]
    assert isinstance(plan, ReportPlan)
    return measured_rounds(ReportLearner(plan, clients, tff.aggregators.UnweightedMeanFactory()))


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
