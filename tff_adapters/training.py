"""Rounds of TensorFlow Federated's processes under a budget: what leaves clients is read first.

`train` runs any process of ours, `train_adaped` one of DP-AdaPeD, whose clients keep models of
their own. For programs that run rounds themselves, `PrivacyReleaseManager` puts them into MLflow,
and into the ledger, through a privacy tracker.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Protocol

import dp_accounting
import numpy as np
import tensorflow as tf

from beam_ldp.accounting import PrivacyBound
from beam_ldp.federated import training
from beam_ldp.federated.record import least_left, planned_event, privacy_records, rounds_run
from beam_ldp.federated.samplers import FixedSizeSampling
from beam_ldp.federated.training import (
    EpsilonBudget,
    Round,
    Training,
    TrainingBudget,
    refuse_another_training,
    refuse_half_an_epoch,
)
from tff_adapters.adaped import AdapedOutput, AdapedProcess, AdapedState
from tff_adapters.adaped_steps import Classifier
from tff_adapters.compat import tff
from tff_adapters.flows import check_flows


def train(
    process: Any,
    clients_for: Callable[[int], Sequence[Any]],
    num_rounds: int,
    budget: TrainingBudget | None,
    *,
    state: Any = None,
    on_round: Callable[[Round], None] | None = None,
    release_managers: Sequence[Any] = (),
    public_flows: Mapping[str, str] | None = None,
    keep: Callable[[Round], None] | None = None,
) -> Training:
    """Run rounds until all are done or the next one would exceed the budget.

    Before the first, what leaves clients is read from the computation (`tff_adapters.flows`): what
    is neither an aggregator's of ours nor declared public is refused, and nothing runs. All else is
    `beam_ldp.federated.train`.

    Args:
        process: a learning process (or an aggregation process of client values) whose aggregator
            is one of ours.
        clients_for, num_rounds, budget, state, on_round, release_managers, keep: as there. Without
            a budget nothing is read.
        public_flows: what leaves clients without a price, by its name in `flows_of(process)`, and
            the reason why it may (clients' metrics of public data, say). It is no part of any
            epsilon.

    Raises:
        UnpricedFlowError, SamplingMismatchError, ValueError: as there.
    """
    return training.train(
        process,
        clients_for,
        num_rounds,
        budget,
        state=state,
        on_round=on_round,
        release_managers=release_managers,
        flows=() if budget is None else check_flows(process, public_flows),
        keep=keep,
    )


Weights = list[np.ndarray]


@dataclass
class PersonalModels:
    """What devices would keep in a file: their own weights, here in the host's memory.

    Only `AdapedProcess.next` takes them, at the clients, and gives them back there.
    """

    weights: list[Weights]
    trained: set[int] = field(default_factory=set)

    @classmethod
    def start(cls, process: AdapedProcess) -> PersonalModels:
        """Everybody begins with the same public weights."""
        return cls([process.personal] * process.num_clients)

    def of(self, clients: Sequence[int]) -> list[Weights]:
        return [self.weights[client] for client in clients]

    def keep(self, clients: Sequence[int], personal: Sequence[Any]) -> None:
        for client, own in zip(clients, personal):
            self.weights[client] = list(own)
            self.trained.add(client)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Who has trained, and their weights, for a file that only their host reads."""
        who = sorted(self.trained)
        layers = zip(*self.of(who)) if who else ()
        return {"who": np.array(who, np.int64)} | {
            f"own{i}": np.stack(layer) for i, layer in enumerate(layers)
        }

    def put_back(self, arrays: Mapping[str, np.ndarray]) -> None:
        """What `to_arrays` gave."""
        layers = [arrays[f"own{i}"] for i in range(len(arrays) - 1)]
        self.keep(arrays["who"].tolist(), list(zip(*layers)))


class PersonalRounds:
    """DP-AdaPeD as `tff_adapters.train` runs it: clients are given by number, and keep their own.

    Args:
        process: from `build_dp_adaped`.
        data: one `tf.data.Dataset` of batches per client, all n.

    Attributes:
        personal: own models.

    Raises:
        ValueError: if there are not as many datasets as clients.
    """

    def __init__(self, process: AdapedProcess, data: Sequence[Any]) -> None:
        if len(data) != process.num_clients:
            raise ValueError(f"data must hold {process.num_clients} datasets, got {len(data)}")
        self._process, self._data = process, data
        self.personal = PersonalModels.start(process)

    @property
    def computation(self) -> Any:
        """What a round runs, and what therefore leaves clients."""
        return self._process.next

    def initialize(self) -> AdapedState:
        state: AdapedState = self._process.initialize()
        return state

    def next(self, state: AdapedState, clients: Sequence[int]) -> AdapedOutput:
        """A round of these clients."""
        chosen = [self._data[client] for client in clients]
        output: AdapedOutput = self._process.next(state, self.personal.of(clients), chosen)
        self.personal.keep(clients, output.personal)
        return output


@dataclass(frozen=True)
class AdapedRun:
    """What a training left behind.

    Attributes:
        state: of the server.
        personal: own models of the clients.
        rounds: that ran.
        epsilon: spent, at `delta`; zero for "local-only".
        delta: of the price.
        stopped: whether the target came before the planned end.
        reader: whom the price is about.
    """

    state: AdapedState
    personal: PersonalModels
    rounds: int
    epsilon: PrivacyBound
    delta: float
    stopped: bool
    reader: str


def train_adaped(
    process: AdapedProcess,
    data: Sequence[Any],
    *,
    rounds: int,
    delta: float,
    target_epsilon: float | None = None,
    on_round: Callable[[int, AdapedState, PersonalModels], None] | None = None,
    generator: np.random.Generator | None = None,
) -> AdapedRun:
    """Runs rounds until they are over, or until one more would exceed the target.

    Args:
        process: from `build_dp_adaped`.
        data: one `tf.data.Dataset` of batches per client, all n.
        rounds: at most so many.
        delta: of the price.
        target_epsilon: the budget: the round that would exceed it does not run.
        on_round: called after each round, with its number, the server's state and the own models.
            What it shows of own models is priced by nothing: for simulations on public data.
        generator: draws clients, for simulations only; by default the operating system does.

    Raises:
        ValueError: if there are not as many datasets as clients.
    """
    rounds_of = PersonalRounds(process, data)
    sampling = FixedSizeSampling(process.num_clients, process.clients_per_round)
    budget = EpsilonBudget(target_epsilon, delta)

    def tell(done: Round) -> None:
        if on_round is not None:
            on_round(done.number + 1, done.state, rounds_of.personal)

    training = train(
        rounds_of, lambda _: sampling.sample(generator).clients, rounds, budget, on_round=tell
    )
    return AdapedRun(
        training.state,
        rounds_of.personal,
        training.rounds,
        budget.spent.bound,
        delta,
        training.stopped_by == "budget",
        process.reader,
    )


def build_accuracy(model: Any) -> Callable[[Sequence[Any], np.ndarray, np.ndarray], float]:
    """`(weights, x, y)` to the share of examples that the model with these weights gets right.

    Of a client's own examples it is about that client: nothing here prices it.
    """
    classifier = Classifier(model)
    weights_type = tff.to_type(tuple(tff.TensorType(w.dtype, w.shape) for w in classifier.initial))
    x_type, y_type = tff.types.tensorflow_to_type(classifier.model.input_spec)

    @tff.tensorflow.computation(weights_type, x_type, y_type)
    def share(weights: Any, x: Any, y: Any) -> Any:
        guess = tf.argmax(classifier.logits(weights, x, training=False), axis=-1)
        return tf.reduce_mean(tf.cast(tf.equal(guess, tf.cast(y, guess.dtype)), tf.float32))

    return lambda weights, x, y: float(share(tuple(weights), x, y))


class Tracker(Protocol):
    """What is used of `mlflow_ldp.PrivacyTracker`."""

    def charge(
        self,
        event: dp_accounting.DpEvent,
        step: int | None = None,
        *,
        num_reports: int | None = None,
    ) -> Any: ...
    def log(self, values: Mapping[str, float], step: int) -> None: ...


class ChargedProcess(tff.learning.templates.LearningProcess):
    """A learning process whose every round is charged before any client is asked.

    For programs that run rounds themselves, and may be killed and go on from a saved state
    (`tff.learning.programs.train_model` with a state manager): a round that ran and was lost was
    charged, and its repetition is charged anew. The ledger so counts at least the rounds that ran.
    What a client that sends nonsense adds to the cost of its round is not known before it, and not
    charged here: `tff_adapters.train` does. An epoch of `ShuffledEpochs` is charged at its first
    round. None of its other rounds is run but once, and after the one before it, by the same
    object: a saved state must be of the end of an epoch.

    Args:
        process: a learning process whose aggregator is ours.
        tracker: an open `mlflow_ldp.PrivacyTracker`.
        public_flows: as for `train`.

    Raises:
        UnpricedFlowError: if something leaves clients that nothing prices.
        BudgetExceededError: by `next`, if the round does not fit: nobody was asked.
        ValueError: by `next`, if the state is that of another training (another mechanism, say, at
            another price), or amid an epoch, and not of the round that ran last.
    """

    def __init__(
        self, process: Any, tracker: Tracker, *, public_flows: Mapping[str, str] | None = None
    ) -> None:
        self.flows = check_flows(process, public_flows)
        self._tracker, self._round = tracker, process.next
        self._start = _initial_state(process)
        self._due: int | None = None  # the round after the one that was begun last
        super().__init__(
            process.initialize, process.next, process.get_model_weights, process.set_model_weights
        )

    @property
    def next(self) -> Any:
        """A round: charged, then run."""
        return self._charged

    def _charged(self, state: Any, clients: Sequence[Any]) -> Any:
        refuse_another_training(state, self._start)
        number = rounds_run(state)
        if number != self._due:
            refuse_half_an_epoch(state)
        event = planned_event(state, len(clients))
        if event is not None and not isinstance(event, dp_accounting.NoOpDpEvent):
            self._tracker.charge(event, num_reports=len(clients))
        self._due = number + 1
        return self._round(state, clients)


def _initial_state(process: Any) -> Any:
    """A process's initial state, in an asynchronous context too, and amid a loop of events."""
    stack = tff.framework.get_context_stack()
    context = stack.current

    async def begin() -> Any:
        return await tff.program.materialize_value(process.initialize())

    def run() -> Any:
        with stack.install(context):  # contexts are those of a thread
            return asyncio.run(begin())

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


class PrivacyReleaseManager(tff.program.ReleaseManager[Any, int]):
    """Writes the metrics of rounds to MLflow, with what they cost.

    For programs that are not `tff_adapters.train`, such as `tff.learning.programs.train_model`:
    give it the process's initial state, and it charges each round before any number of it is
    logged; a round that does not fit raises `BudgetExceededError`, and the program ends. That is
    after the round has run: to ask before, use `tff_adapters.train`, whose budget charges, and
    leave `state` out here. Where a program goes on (its first round here is not 0 or 1, or `state`
    has run some), the round before is charged once more: it may have been saved and not released.

    Numbers are logged under their path in the structure (`aggregator/mean/reports`); arrays,
    text and model weights are not.

    Args:
        tracker: an open `mlflow_ldp.PrivacyTracker`.
        state: of a process whose aggregator is ours; None: nothing is charged here.
        process: that the program runs; needed with `state`. What it lets leave clients is read.
        public_flows: as for `train`.

    Raises:
        UnpricedFlowError: if something leaves clients that nothing prices.
        ValueError: if `state` holds no privacy record, or more than one, or comes without its
            process.
    """

    def __init__(
        self,
        tracker: Tracker,
        state: Any = None,
        *,
        process: Any = None,
        public_flows: Mapping[str, str] | None = None,
    ) -> None:
        if state is not None and len(privacy_records(state)) != 1:
            raise ValueError("state must hold one privacy record, of an aggregator of tff_adapters")
        if (state is None) != (process is None):
            raise ValueError("state and process must be given together")
        self.flows = () if process is None else check_flows(process, public_flows)
        self._tracker, self._state = tracker, state
        self._released: set[int] = set()

    async def release(self, value: Any, key: int) -> None:
        """Charge and log round `key`, once.

        One of which too few reports were left for a result costs what one of the least costs.

        Raises:
            BudgetExceededError: if the round does not fit; nothing of it was logged.
            SamplingMismatchError: if its number of reports is not what the sampling gives.
        """
        numbers = dict(_numbers(value))
        counts = [int(n) for path, n in numbers.items() if path.split("/")[-2:] == _COUNT]
        if self._state is not None and counts and key not in self._released:
            event = planned_event(self._state, max(counts[0], least_left(self._state)))
            if event is not None and not isinstance(event, dp_accounting.NoOpDpEvent):
                if not self._released and (key > 1 or rounds_run(self._state)):
                    self._tracker.charge(event, key - 1)
                self._tracker.charge(event, key, num_reports=counts[0])
            self._released.add(key)
        self._tracker.log(numbers, key)


_COUNT = ["mean", "reports"]  # where the factory measures how many clients were received


def _numbers(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, float]]:
    """Finite numbers of a structure and their paths."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _numbers(part, (*path, str(name)))
    elif hasattr(value, "_asdict"):
        yield from _numbers(value._asdict(), path)
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield from _numbers(part, (*path, str(i)))
    else:
        number = value.item() if isinstance(value, np.generic) else value
        if isinstance(number, Real) and math.isfinite(number):
            yield "/".join(path) or "value", float(number)
