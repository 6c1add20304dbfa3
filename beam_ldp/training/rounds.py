"""The rounds of a training: each priced before it runs, kept before anybody gets its result.

* `ChargedRounds`: the budget, and what is written down before a round runs.
* `Kept`: the state after the last round, in checkpoints.
* `rounds`: the loop, which measures after each epoch and says so.
* `check_events`: what the training recorded of itself must be what was priced.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dp_accounting
import tensorflow as tf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from beam_ldp.federated.record import covers, rounds_withheld
from beam_ldp.federated.training import Spending
from beam_ldp.release.charging import NoCharge
from beam_ldp.release.gates import NotPublishedError
from beam_ldp.release.job_monitor import JobError
from beam_ldp.training.charge import ModelScore, TrainingRun
from beam_ldp.training.checkpoints import Keeper, plain_leaves
from beam_ldp.training.learner import Learner
from beam_ldp.training.log import TrainingLog
from beam_ldp.training.plan import TrainingPlan
from beam_ldp.wording import many, number, verb
from tff_adapters import Round, SamplingMismatchError, privacy_events
from tff_adapters import train as run_rounds

DIVERGES = (
    "[yellow]warning:[/yellow] the shared model gets worse: its loss grew in two epochs on end, to "
    "more than at first. The noise may be larger than what is learned: less --clip (the noise is a "
    "multiple of it), a smaller learning rate, or more clients per round"
)
CLIENTS_FAIL = (
    "the training ends here: in three rounds in a row the updates of most clients were not finite, "
    "so further rounds would spend budget and teach nothing. Lower --client-learning-rate or "
    "--learning-rate, or scale the features"
)
_IN_A_ROW = 3


class ChargedRounds:
    """The budget that the rounds are run under: what is charged is written down everywhere.

    A round is charged once, as one to which as few came as may: that of some reports were left out
    makes it no dearer.

    Args:
        learner: whose budget is asked.
        charge: the reservation: on disk it knows of each round before that runs.
        ran: told of each round.
        log: MLflow.
        kept: the state after the last round whose result is out.
    """

    def __init__(
        self, learner: Learner, charge: NoCharge, ran: TrainingRun, log: TrainingLog, kept: Kept
    ) -> None:
        self._learner, self._charge, self._ran, self._log = learner, charge, ran, log
        self._kept = kept

    @property
    def _amid_a_round(self) -> bool:
        """Whether one is charged whose result is not out."""
        return self._ran.recorded > self._kept.rounds

    def would_exceed(self, event: dp_accounting.DpEvent, count: int = 1) -> bool:
        plan = self._learner.plan
        if not covers(plan.event, event):
            return self._learner.budget.would_exceed(event, count)
        return not self._amid_a_round and self._learner.budget.would_exceed(plan.event, count)

    def charge(
        self,
        event: dp_accounting.DpEvent,
        step: int | None = None,
        *,
        num_reports: int | None = None,
    ) -> Spending:
        """Before a round, or a shuffled epoch; nothing more of one that is under way.

        Raises:
            SamplingMismatchError: if the round is not what was priced and reserved.
        """
        plan = self._learner.plan
        if not covers(plan.event, event):
            raise SamplingMismatchError(
                "the next round is not the one whose cost was reserved: nothing more is run"
            )
        if self._amid_a_round:
            return self.spent
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


class Kept:
    """The state after the last round whose result is out; on disk before that.

    Args:
        learner, ran: whose rounds.
        keeper: writes checkpoints.
        state: to begin with.
    """

    def __init__(self, learner: Learner, ran: TrainingRun, keeper: Keeper, state: Any) -> None:
        self._learner, self._ran, self._keeper = learner, ran, keeper
        self.state, self.rounds = state, 0 if state is None else ran.recorded

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
            ChargedRounds(learner, charge, ran, log, kept),
            state=kept.state,
            on_round=tell,
            release_managers=log.release_managers,
            keep=kept.keep,
        )
    if training.stopped_by == "budget":
        raise JobError("the budget and the plan disagree: nothing is released")
    if training.stopped_by == "failures":
        raise JobError(CLIENTS_FAIL)
    ran.emptied = rounds_withheld(training.state)
    least = plan.least_clients
    for withheld, why in (
        (ran.withheld, f"to which fewer than {many(least, 'client')} came"),
        (ran.emptied, f"of which fewer than {many(least, 'report')} were left"),
    ):
        if withheld:
            console.print(
                f"{many(withheld, 'round')} {why} {verb(withheld, 'was', 'were')} not released, "
                "and charged",
                soft_wrap=True,
            )
    if training.withheld or not ran.curve or ran.curve[-1][0].rounds != kept.rounds:
        measured = learner.measure(training.state, kept.rounds)
        ran.curve.append((measured, float(plan.epsilon_of(ran.begun))))
        log.measured(*ran.curve[-1])
        console.print(_said(plan, *ran.curve[-1]), highlight=False, soft_wrap=True)
    check_events(plan, training.state, ran.recorded)
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
