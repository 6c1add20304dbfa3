"""Flower without its servers: a grid that calls client apps in this process, and may lose some.

Messages are made, read and answered by Flower's own classes; what is left out is what carries them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from flower_adapters import LocallyPrivateMod
from flower_adapters.messages import ARRAYS, PRIVACY, Question, Report

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 7, 1, 1
TRAINING = "digits"
Answer = Callable[[Message, Context], Message]


def model(values: Any = (0.0, 0.0, 0.0)) -> ArrayRecord:
    """Of two arrays, so that order and shapes matter."""
    values = np.asarray(values, dtype=np.float32)
    return ArrayRecord({"weights": Array(values[:-1].reshape(1, -1)), "bias": Array(values[-1:])})


def flat(record: ArrayRecord) -> np.ndarray:
    return np.concatenate([array.numpy().ravel() for array in record.values()])


def training(update: Any) -> Answer:
    """A training that moves the model by `update`, or answers with `update(arrays)`."""

    def train(message: Message, context: Context) -> Message:
        before = message.content[ARRAYS]
        after = update(before) if callable(update) else moved(before, update)
        metrics = MetricRecord({"num-examples": 12345, "loss": 0.25})
        return Message(RecordDict({ARRAYS: after, "metrics": metrics}), reply_to=message)

    return train


def moved(before: ArrayRecord, update: Any) -> ArrayRecord:
    values = flat(before) + np.asarray(update)
    split = before["weights"].numpy().size
    weights = values[:split].reshape(before["weights"].shape)
    return ArrayRecord({"weights": Array(weights), "bias": Array(values[split:])})


def app_of(mod: LocallyPrivateMod, update: Any) -> ClientApp:
    """A client app with this training, and an evaluation that nothing prices."""
    app = ClientApp(mods=[mod])
    app.train()(training(update))

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return Message(RecordDict({"m": MetricRecord({"loss": 0.25})}), reply_to=message)

    return app


def context(node: int, memory: Path | None) -> Context:
    config = {} if memory is None else {"privacy-memory": str(memory)}
    return Context(7, node, config, RecordDict(), {})


def question_to(
    mechanism: Any,
    number: int = 1,
    node: int = 11,
    arrays: ArrayRecord | None = None,
    kind: str = "train",
    training: str = TRAINING,
    **config: Any,
) -> Message:
    """A message as the strategy sends it."""
    asked = Question(training, number, mechanism.config_digest().hex())
    content = RecordDict(
        {
            ARRAYS: model() if arrays is None else arrays,
            "config": ConfigRecord(config),
            PRIVACY: asked.to_record(),
        }
    )
    return Message(content, node, kind, group_id=str(number))


@dataclass
class Network(Grid):
    """A grid of nodes, each of which is something that answers a message; None: does not answer.

    Attributes:
        nodes: by id.
        sent: all messages that were sent.
    """

    nodes: dict[int, Answer | None]
    sent: list[Message] = field(default_factory=list)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        replies = []
        for message in messages:
            self.sent.append(message)
            answer = self.nodes[message.metadata.dst_node_id]
            if answer is None:
                continue
            reply = answer(copy.deepcopy(message), context(message.metadata.dst_node_id, None))
            replies += reply if isinstance(reply, list) else [reply]
        return replies

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        raise NotImplementedError


def node_of(app: ClientApp, number: int, memory: Path) -> Answer:
    """A SuperNode of this app with this file."""
    return lambda message, _: app(message, context(number, memory))


def nodes_of(mod: LocallyPrivateMod, updates: Any, folder: Path) -> dict[int, Answer | None]:
    """One node per update, each with its own memory."""
    return {
        100 + i: node_of(app_of(mod, update), 100 + i, folder / f"{i}.db")
        for i, update in enumerate(updates)
    }


def forged(payload: bytes, identity: bytes = b"f" * 16) -> Answer:
    return lambda message, _: Report(payload, identity).reply_to(message)


def failing(message: Message, _: Context) -> Message:
    return Message(Error(code=ErrorCode.LOAD_CLIENT_APP_EXCEPTION, reason="no"), reply_to=message)


def unreachable(message: Message, _: Context) -> Message:
    """What the SuperLink answers for a node that is gone."""
    return Message(Error(code=ErrorCode.NODE_UNAVAILABLE, reason="gone"), reply_to=message)
