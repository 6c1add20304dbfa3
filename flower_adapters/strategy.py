"""The server's side: a Flower strategy whose rounds are charged before anybody is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from logging import ERROR, INFO, WARNING
from pathlib import Path
from secrets import SystemRandom
from typing import Any, Literal, NamedTuple

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.supercore import log

from beam_ldp.federated import DeclaredSampling, Round, RoundsRecord, train
from beam_ldp.federated.collusion import CollusionCheck
from beam_ldp.federated.record import Reader, RoundConfig, rounds_run
from beam_ldp.federated.training import Spending, TrainingBudget
from beam_ldp.randomizers.checks import check_integer, check_positive
from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.randomizers.mean.failures import LEAST_ROUNDS, Failures
from beam_ldp.wording import number
from flower_adapters.checkpoint import read_checkpoint, write_checkpoint
from flower_adapters.client import check_mechanism
from flower_adapters.messages import ARRAYS, CONFIG, PRIVACY, Question
from flower_adapters.received import LEFT_OUT, Received, read_replies

_RANDOM = SystemRandom()
# Of batch normalisation, in PyTorch and in Keras.
_BUFFERS = ("running_mean", "running_var", "moving_mean", "moving_variance")
_WAIT = 1.0  # seconds between looks at who is connected


class State(NamedTuple):
    """A training after some rounds.

    Attributes:
        arrays: the model.
        record: what ran.
    """

    arrays: ArrayRecord
    record: RoundsRecord


class _ClientsFailError(Exception):
    """Ends a training from within a round."""


@dataclass
class PrivateResult(Result):
    """Flower's result, and how the training ended.

    Attributes:
        rounds: that this call ran.
        stopped_by: "budget" if the next round would have exceeded it, "failures" if the training
            failed on most clients in the last three rounds or more, else "rounds".
        spent: as the budget tells: of a tracker, what was charged since it was opened. Of a
            training that went on, the ledger knows the rest.
    """

    rounds: int = 0
    stopped_by: Literal["rounds", "budget", "failures"] = "rounds"
    spent: Spending | None = field(default=None, repr=False)


class LocallyPrivateFedAvg(Strategy):
    """Federated averaging of reports that `LocallyPrivateMod` made, under a budget.

    A round is asked and charged before any message is sent (`beam_ldp.federated.train`), and where
    the budget does not hold it nobody is asked and the training ends. The new model is the old one
    plus `learning_rate` times the unbiased estimate of the mean clipped update.

    **Who is trusted.** Flower's server sees who sent which report, so `reader="local"` charges what
    that costs: the mechanism's local epsilon for everybody in every round. `reader="shuffled"`
    charges the (smaller) price for whoever sees models only; that supposes that the server, its
    operator and the SuperLink's database are trusted to forget who sent what. Nothing is shuffled
    on the way there. Local epsilons are counted beside it all the same.

    **Who comes.** All connected nodes are asked, or as many as `sampling` declares, drawn from the
    operating system's randomness. A node that does not answer until the timeout is left out, and
    its question expires. What no honest client sends (another format, a vector of a length that
    the mechanism does not send, two reports of one node) is dropped and counted; so is the same
    report under a second node. If fewer than `min_reports` are left, the round has no result, and
    stays charged. Against "shuffled" readers it is charged as one of `min_reports`, and of more
    reports as many are kept at random. Numbers of reports are public. Where it was a check of them
    that left too few, it counts as that in the record too: that there is no result tells of them.

    **Clients that fail.** If the training fails on most clients in three rounds in a row, or nobody
    reports in three, it ends (`beam_ldp.randomizers.mean.failures`).

    Only its own `start` runs rounds: `configure_train` by itself raises.

    Args:
        mechanism: that clients have, down to the last parameter.
        budget: a `mlflow_ldp.PrivacyTracker` (ledger, and curves in MLflow) or an `EpsilonBudget`.
        training: a name; a client answers each of its rounds once, whatever server asks.
        min_reports: of a round with a result; default: what `sampling` lets come at least.
        reader: see above.
        sampling: how many of how many nodes are drawn, without replacement. It makes rounds cheaper
            against "shuffled" readers only. At least `num_users` nodes must be connected.
        learning_rate: of the server.
        drop_colluders: leaves out reports that point one way together further than honest ones do
            (`beam_ldp.federated.collusion`), before it is looked at whether enough are left.
        buffers: names of arrays that look like running statistics of a layer (`*.running_mean`)
            and are averaged all the same. They take their share of the clip; without their name
            here they are refused.
        checkpoint: a file (`.npz`) that holds the model and the record after each round, before
            anybody gets its result. Where it exists, the training goes on after its last round.

    Raises:
        TypeError, ValueError: on parameters that do not fit.
    """

    def __init__(
        self,
        mechanism: MeanRandomizer,
        budget: TrainingBudget,
        *,
        training: str,
        min_reports: int | None = None,
        reader: Reader = "local",
        sampling: DeclaredSampling | None = None,
        learning_rate: float = 1.0,
        drop_colluders: bool = False,
        buffers: Sequence[str] = (),
        checkpoint: str | Path | None = None,
    ) -> None:
        check_mechanism(mechanism)
        check_positive("learning_rate", learning_rate)
        if not training:
            raise ValueError("training must be a name")
        if reader not in ("local", "shuffled"):
            raise ValueError(f'reader must be "local" or "shuffled", got {reader!r}')
        self.mechanism, self.budget, self.training = mechanism, budget, training
        self.reader, self.sampling = reader, sampling
        self.min_reports = _least(min_reports, sampling)
        self.learning_rate, self.buffers = float(learning_rate), tuple(buffers)
        self.check = CollusionCheck(mechanism) if drop_colluders else None
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        self.timeout = 3600.0  # seconds for the answers of a round
        self._open: Question | None = None  # the question that was charged
        self._asked: tuple[int, ArrayRecord, list[int]] | None = None
        self._failures = Failures(mechanism, training)

    # Rounds --------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> PrivateResult:
        """Run rounds until all are done, or the budget does not hold the next one.

        Args:
            grid, initial_arrays, num_rounds, train_config: as Flower's strategies take them.
            timeout: seconds for the answers of a round.
            evaluate_config: must be None; clients evaluate nothing.
            evaluate_fn: measures the model on public data, before the first round and after each;
                what it returns is public, and goes to MLflow where the budget is a tracker.

        Raises:
            SamplingMismatchError: if what ran is not what was charged.
            ValueError: on an `evaluate_config`, on `initial_arrays` that are no parameters in
                floats, or on a checkpoint that is damaged, of another
                training, or charged to another ledger.
        """
        if evaluate_config is not None:
            raise ValueError(
                "evaluate_config must be None: what clients measure on their data has no price. "
                "Evaluate on public data (evaluate_fn)"
            )
        check_positive("timeout", timeout)
        check_arrays(initial_arrays, self.buffers)
        self.timeout = float(timeout)
        self.summary()
        self._failures = Failures(self.mechanism, self.training)
        result = PrivateResult(arrays=initial_arrays)
        rounds = _Rounds(self, grid, initial_arrays, train_config or ConfigRecord())
        state = self._kept()
        if state is None:
            self._evaluate(0, initial_arrays, evaluate_fn, result)
        else:
            result.arrays = state.arrays
            log(INFO, "going on after round %d of %s", rounds_run(state), self.checkpoint)
            log(INFO, "spent is told from here on; what was charged before stands in the ledger")

        def tell(done: Round) -> None:
            result.arrays = done.state.arrays
            metrics = dict(done.metrics)
            if done.spent is not None:
                metrics |= {
                    "epsilon": done.spent.epsilon,
                    "local-epsilon": done.spent.local_epsilon,
                }
            result.train_metrics_clientapp[done.number + 1] = MetricRecord(metrics)
            log(INFO, "[ROUND %d/%d] %s", done.number + 1, num_rounds, _in_words(metrics))
            self._log_figures("round", done.metrics, done.number)
            self._evaluate(done.number + 1, done.state.arrays, evaluate_fn, result)
            result.rounds, result.spent = result.rounds + (not done.withheld), done.spent
            if self._failures.share is not None:
                raise _ClientsFailError

        def keep(done: Round) -> None:
            if self.checkpoint is not None:
                write_checkpoint(self.checkpoint, done.state, self.training, self._ledger)

        try:
            done = train(
                rounds,
                lambda _: range(self.min_reports),
                num_rounds,
                self.budget,
                state=state,
                on_round=tell,
                keep=keep,
                reader=self.reader,
            )
        except _ClientsFailError:
            share = self._failures.share or 0.0
            log(
                ERROR,
                "stopped: in the last %d rounds the training failed on about %.0f %% of the "
                "clients, or nobody reported. Their logs say why (LocallyPrivateMod: ...)",
                LEAST_ROUNDS, 100 * min(1.0, share),
            )  # fmt: skip
            result.stopped_by = "failures"
            return result
        result.rounds, result.stopped_by, result.spent = done.rounds, done.stopped_by, done.spent
        if done.stopped_by == "budget":
            log(WARNING, "the budget does not hold another round: nobody was asked")
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of a round, for nodes that are drawn now; each expires with the round.

        Raises:
            RuntimeError: unless the round was charged: only `start` does that.
        """
        question = self._open
        if question is None or question.number != server_round:
            raise RuntimeError("rounds are charged and run by start(), and this one is not")
        nodes = self._nodes(grid)
        self._asked = server_round, arrays, nodes
        content = RecordDict(
            {
                ARRAYS: arrays,
                CONFIG: ConfigRecord({**config, "server-round": server_round}),
                PRIVACY: question.to_record(),
            }
        )
        return [
            Message(content, node, MessageType.TRAIN, ttl=self.timeout, group_id=str(server_round))
            for node in nodes
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The model after a round, None if too few reports are left; and what was counted."""
        if self._asked is None or self._asked[0] != server_round:
            raise RuntimeError("replies must be those of the round that was asked last")
        _, arrays, nodes = self._asked
        received = read_replies(self.mechanism, nodes, replies, str(server_round))
        if self.check is not None:
            received = received.without_colluders(self.check)
        received = received.at_most(self._most(received))
        updated = None
        count = len(received.reports)
        if count >= self.min_reports:
            statistic = self.mechanism.accumulate(received.reports)
            mean = self.mechanism.estimate(statistic, count).value
            updated = self._updated(arrays, mean * self.learning_rate)
            self._failures.add(server_round, mean, count)
        else:
            if count + received.colluding == 0:
                self._failures.add_silent()
            log(WARNING, "too few reports: the round has no result, and stays charged")
        return updated, MetricRecord(self._metrics(received, updated is not None))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody is asked."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Nobody was asked."""
        return None

    def summary(self) -> None:
        """Who is trusted with what, into Flower's log."""
        trusted = {
            "local": "nobody: the server sees who sent what, and that is what is charged",
            "shuffled": "the server, to forget who sent what: the price is for readers of models",
        }
        log(INFO, "Starting LocallyPrivateFedAvg, training %r:", self.training)
        log(INFO, "\t├──> %s, local epsilon %g a round", type(self.mechanism).__name__,
            self.mechanism.local_epsilon)  # fmt: skip
        log(INFO, "\t├──> Trusted: %s", trusted[self.reader])
        log(INFO, "\t└──> Reports that a result needs: %d", self.min_reports)

    # Inside --------------------------------------------------------------------------------

    @property
    def _ledger(self) -> str:
        """Id of the one that is charged; "" for none."""
        return str(getattr(self.budget, "ledger_id", ""))

    def _kept(self) -> State | None:
        if self.checkpoint is None:
            return None
        found = read_checkpoint(self.checkpoint, self.training, self._ledger)
        return None if found is None else State(*found)

    def question(self, number: int) -> Question:
        """What a round asks, from 1."""
        return Question(self.training, number, self.mechanism.config_digest().hex())

    def _nodes(self, grid: Grid) -> list[int]:
        """Who is asked: waits until enough are connected."""
        needed = self.min_reports if self.sampling is None else self.sampling.num_users
        while len(nodes := sorted(set(grid.get_node_ids()))) < needed:
            log(INFO, "%d nodes are connected, %d are needed", len(nodes), needed)
            time.sleep(_WAIT)
        if self.sampling is None:
            return nodes
        return _RANDOM.sample(nodes, int(self.sampling.num_drawn))

    def _most(self, received: Received) -> int:
        """Reports that count: as many as were priced, or as the draw declares."""
        if self.reader == "shuffled":
            return self.min_reports
        return received.asked if self.sampling is None else self.sampling.allowed[1]

    def _updated(self, arrays: ArrayRecord, step: np.ndarray) -> ArrayRecord:
        updated, at = {}, 0
        for name, array in arrays.items():
            before = array.numpy()
            moved = step[at : at + before.size].reshape(before.shape)
            updated[name] = Array(np.asarray(before + moved).astype(before.dtype))
            at += before.size
        return ArrayRecord(updated)

    def _metrics(self, received: Received, result: bool) -> dict[str, int | float]:
        reports = len(received.reports)
        found: dict[str, int | float] = {
            **received.counts,
            "reports": reports,
            "result": int(result),
            "bits": self.mechanism.bits_per_report,
        }
        if result:
            error = self.mechanism.mean_squared_error(reports)
            found["predicted-error"] = float(np.sqrt(error))
        if received.agreement is not None:
            found["agreement"] = received.agreement
        return found

    def _evaluate(
        self,
        number: int,
        arrays: ArrayRecord,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None,
        result: PrivateResult,
    ) -> None:
        found = None if evaluate_fn is None else evaluate_fn(number, arrays)
        if found is not None:
            result.evaluate_metrics_serverapp[number] = found
            log(INFO, "evaluated after round %d: %s", number, found)
            if number:
                self._log_figures("public", found, number - 1)

    def _log_figures(self, kind: str, figures: Any, number: int) -> None:
        """Into MLflow, where the budget is a tracker; steps are those of its prices, from 0."""
        if hasattr(self.budget, "log"):
            told = {k: float(v) for k, v in figures.items() if isinstance(v, (int, float))}
            self.budget.log({f"{kind}.{k}": v for k, v in told.items() if np.isfinite(v)}, number)


@dataclass
class _Rounds:
    """A strategy and a grid as the process that `beam_ldp.federated.train` runs."""

    strategy: LocallyPrivateFedAvg
    grid: Grid
    initial: ArrayRecord
    config: ConfigRecord

    def initialize(self) -> State:
        s = self.strategy
        size = sum(array.size for array in self.initial.to_numpy_ndarrays())
        if size != s.mechanism.dimension:
            raise ValueError(
                f"mechanism must be for the {size} numbers of initial_arrays, and is for "
                f"{s.mechanism.dimension}"
            )
        config = RoundConfig(
            (s.mechanism.to_config(),), 1, s.sampling, seeded=False, min_reports=s.min_reports
        )
        nothing = np.zeros((0, 2), dtype=np.int64)
        return State(self.initial, RoundsRecord(config.to_json(), nothing))

    def next(self, state: State, clients: Any) -> _Output:
        """One round, which was charged; `clients` are as many as it was charged for."""
        number, strategy = rounds_run(state) + 1, self.strategy
        strategy._open = strategy.question(number)
        try:
            messages = strategy.configure_train(number, state.arrays, self.config, self.grid)
            replies = self.grid.send_and_receive(messages, timeout=strategy.timeout)
            arrays, metrics = strategy.aggregate_train(number, replies)
        finally:
            strategy._open = strategy._asked = None
        assert metrics is not None
        counted = int(metrics["reports"])
        if arrays is None:
            came = counted + int(metrics["colluding"])
            counted = min(came, strategy.min_reports)
            if strategy.reader == "shuffled" and came < strategy.min_reports:
                counted = 0  # nobody sees anything of it but how many came
        record = RoundsRecord(state.record.config, _one_more(state.record.rounds, counted))
        return _Output(State(arrays or state.arrays, record), dict(metrics))


class _Output(NamedTuple):
    state: State
    metrics: dict[str, Any]


def check_arrays(arrays: ArrayRecord, buffers: Sequence[str] = ()) -> None:
    """Refuses arrays that a mean of clipped updates ruins.

    Raises:
        ValueError: naming those that are no floats (rounded after every round, they move toward
            zero), and those that are running statistics by their names and not among `buffers`.
    """
    refused = []
    for name, array in arrays.items():
        dtype = np.dtype(array.numpy().dtype)
        if dtype.kind != "f":
            refused.append(f"{name!r} ({dtype})")
        elif name.endswith(_BUFFERS) and name not in buffers:
            refused.append(f"{name!r} (a running statistic, unless buffers=[...] declares it)")
    if refused:
        raise ValueError(
            f"initial_arrays must be parameters in floats, and these are not: {', '.join(refused)}."
            " Send parameters only (in PyTorch ArrayRecord(dict(model.named_parameters())), and "
            "load_state_dict(..., strict=False)), and keep the others on the client"
        )


def _in_words(metrics: dict[str, Any]) -> str:
    """What a reader of the log looks for."""
    told = f"reports {metrics['reports']} of {metrics['asked']}"
    for name in LEFT_OUT:
        if metrics[name]:
            told += f", {metrics[name]} {name}"
    if "predicted-error" in metrics:
        told += f"; error {metrics['predicted-error']:.3g}"
    if "epsilon" in metrics:
        told += f"; spent: epsilon {number(metrics['epsilon'])}"
        told += f", local {number(metrics['local-epsilon'])}"
    return told


def _one_more(rounds: np.ndarray, reports: int) -> np.ndarray:
    """The record's runs of equal rounds, with one more round."""
    if len(rounds) and rounds[-1, 0] == reports:
        return np.vstack([rounds[:-1], rounds[-1:] + [[0, 1]]])
    return np.vstack([rounds, np.array([[reports, 1]], dtype=np.int64)])


def _least(min_reports: int | None, sampling: DeclaredSampling | None) -> int:
    if sampling is None:
        if min_reports is None:
            raise ValueError("min_reports must be given where no sampling is declared")
        check_integer("min_reports", min_reports, 1)
        return min_reports
    if sampling.sampling != "without_replacement":
        raise ValueError(
            'sampling must be "without_replacement": a server that draws knows who is asked'
        )
    if sampling.points_per_client != 1:
        raise ValueError(
            "sampling must have points_per_client=1: a report is about all data of its client, of "
            "which no part is drawn"
        )
    low, high = sampling.allowed
    least = low if min_reports is None else min_reports
    if not low <= least <= high:
        raise ValueError(f"min_reports must lie in [{low}, {high}], as sampling declares")
    return least
