"""The client's side: a Flower mod after which one private report leaves the client, and no more."""

from __future__ import annotations

import secrets
from logging import ERROR, INFO
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    Context,
    Error,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.supercore import log

from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.randomizers.mean.failures import failure_vector
from flower_adapters.memory import ClientMemory, RefusedQuestionError
from flower_adapters.messages import ARRAYS, ID_BYTES, PRIVACY, Question, Report

MEMORY = "privacy-memory"
_FAULT = "a fault of this client, which stands in its log"
_ANOTHER_STRATEGY = (
    "none: clients with LocallyPrivateMod answer flower_adapters.LocallyPrivateFedAvg, whose "
    "rounds have a price, and no other strategy"
)


class LocallyPrivateMod:
    """Goes around a client's training: the server gets one local report of what training changed.

    Protects all data of the client, by `mechanism.local_epsilon` for each round that it answers,
    against everybody who sees the report, the server and its operator included (replace-one; that
    it takes part is not hidden). Randomness is the library's own, from the operating system and
    AES, in NumPy.

    The app inside answers as it would under FedAvg: `arrays` with the model after its training.
    The update is what that differs by from the model that came, flattened and clipped to
    `mechanism.radius`. Everything else that the app answers (metrics, numbers of examples) stays.
    A training that fails or gives anything but finite numbers reports a public vector of the round,
    as private as any update (`beam_ldp.randomizers.mean.failures`), and stands in the client's log:
    Flower would send the text of the exception to the server, and a client that keeps silent says
    something about itself too. Of a fault of the client itself, as a memory that cannot be written,
    the server learns that there was one.

    What a client tells is counted in its own file (`ClientMemory`), whose absolute path stands in
    the SuperNode's `--node-config` as `privacy-memory`; a server cannot raise the limit, and nor
    can it choose the mechanism: one of another configuration is refused. Messages other than
    `train` are refused: evaluate on public data. Another strategy than `LocallyPrivateFedAvg` gets
    nothing that it can read: it ends in an error that says so.

    What it cannot hide: how long the training took, which a SuperNode tells its SuperLink; that a
    process died of its training (memory, say); what is raised outside of mods, in the app's
    `lifespan`. What it cannot help against: a server that sends clients another app
    (docs/flower.md).

    Args:
        mechanism: of the update; its `dimension` is that of all arrays together.
        local_epsilon_limit: for the sum of what this client tells, over all rounds and trainings
            of the file.

    Raises:
        TypeError, ValueError: on a mechanism that protects nobody alone, or that does not clip.

    Cost: the mechanism's, and a transaction in SQLite.
    """

    def __init__(self, mechanism: MeanRandomizer, *, local_epsilon_limit: float) -> None:
        check_mechanism(mechanism)
        self.mechanism, self.limit = mechanism, local_epsilon_limit

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """The mod: calls the app, and answers with its report."""
        if _of_another_strategy(message):
            log(ERROR, "LocallyPrivateMod refuses: %s", _ANOTHER_STRATEGY)
            return _unreadable(message)
        try:
            memory = self._memory(context)
            question = self._question(message)
            epsilon = self.mechanism.local_epsilon
            report = memory.recall(question, epsilon)
            if report is None:
                update = self._update(message, context, call_next)
                if update is None:
                    update = failure_vector(self.mechanism, question.training, question.number)
                report = memory.keep(question, epsilon, lambda: self._report(update))
        except RefusedQuestionError as refusal:
            log(ERROR, "LocallyPrivateMod refuses: %s (limit %g)", refusal, self.limit)
            return _refusal(str(refusal), message)
        except Exception as error:  # its text, with paths and more, stays here
            log(ERROR, "LocallyPrivateMod: a fault of this client", exc_info=error)
            return _refusal(_FAULT, message)
        log(
            INFO,
            "LocallyPrivateMod: %d bytes, local epsilon %g; told so far %g of %g",
            len(report.payload), epsilon, memory.local_epsilon, self.limit,
        )  # fmt: skip
        return report.reply_to(message)

    def _memory(self, context: Context) -> ClientMemory:
        path = context.node_config.get(MEMORY)
        if not isinstance(path, str) or not path:
            raise RefusedQuestionError(
                f"this node has no {MEMORY!r} in its --node-config: a file of its own, in which it "
                "counts what it tells"
            )
        if not Path(path).is_absolute():
            raise RefusedQuestionError(
                f"{MEMORY!r} must be an absolute path: elsewhere this node would count anew"
            )
        return ClientMemory(path, self.limit)

    def _question(self, message: Message) -> Question:
        if message.metadata.message_type.partition(".")[0] != MessageType.TRAIN:
            raise RefusedQuestionError(
                f"{message.metadata.message_type!r} asks for values of clients' data that nothing "
                "prices: evaluate on public data"
            )
        try:
            question = Question.of(message)
        except ValueError as error:
            raise RefusedQuestionError(str(error)) from None
        if question.mechanism != self.mechanism.config_digest().hex():
            raise RefusedQuestionError("the server supposes another mechanism than this client has")
        try:
            size = sum(array.size for array in _model(message).to_numpy_ndarrays())
        except ValueError as error:
            raise RefusedQuestionError(str(error)) from None
        if size != self.mechanism.dimension:
            raise RefusedQuestionError(
                f"the model has {size} numbers, and the mechanism is for {self.mechanism.dimension}"
            )
        return question

    def _update(
        self, message: Message, context: Context, call_next: ClientAppCallable
    ) -> np.ndarray | None:
        """What training changed, `(dimension,)` float64; None if it failed."""
        try:
            model = _model(message)
            names, before = list(model), _flat(model)  # the app may change the arrays themselves
            answer = _model(call_next(message, context))
            after = _flat(answer)
            if list(answer) != names or after.shape != before.shape:
                raise ValueError("the app must answer with the arrays that it got")
            update = after - before
            if np.isfinite(update).all():
                return update
            log(ERROR, "LocallyPrivateMod: the training failed: its update is not finite")
        except (Exception, SystemExit) as error:  # whatever it says stays here
            log(ERROR, "LocallyPrivateMod: the training failed", exc_info=error)
        return None

    def _report(self, update: np.ndarray) -> Report:
        payload = self.mechanism.pack_each(self.mechanism.randomize(update[None]))
        return Report(payload[0].tobytes(), secrets.token_bytes(ID_BYTES))


def _of_another_strategy(message: Message) -> bool:
    kind = message.metadata.message_type.partition(".")[0]
    return kind == MessageType.TRAIN and PRIVACY not in message.content.config_records


def _unreadable(message: Message) -> Message:
    """A model that no strategy can read, and that says why.

    Flower's own strategies pass over errors: they would run all their rounds, and end with no model
    and no word.
    """
    nothing = Array(dtype="float32", shape=(0,), stype=_ANOTHER_STRATEGY, data=b"")
    held = {ARRAYS: ArrayRecord({"none": nothing}), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(held), reply_to=message)


def _refusal(reason: str, message: Message) -> Message:
    return Message(Error(code=ErrorCode.MOD_FAILED_PRECONDITION, reason=reason), reply_to=message)


def check_mechanism(mechanism: MeanRandomizer) -> None:
    """Refuses what is no local mechanism of means that clips.

    Raises:
        TypeError, ValueError: saying what is allowed.
    """
    if not isinstance(mechanism, MeanRandomizer):
        raise TypeError("mechanism must be one of beam_ldp.randomizers.mean")
    if not mechanism.protects_alone:
        raise ValueError(
            "mechanism must protect each report by itself: through Flower nothing is shuffled"
        )
    if mechanism.norm == "binary" or getattr(mechanism, "clipping", "clip") != "clip":
        raise ValueError('mechanism must be one of real vectors, with clipping="clip"')


def _model(message: Message) -> ArrayRecord:
    """The model in a message: its only arrays, or those that are called `arrays`."""
    records: Any = message.content.array_records
    if ARRAYS in records:
        return records[ARRAYS]
    if len(records) != 1:
        raise ValueError(f'message must hold one record of arrays, or one named "{ARRAYS}"')
    return next(iter(records.values()))


def _flat(record: ArrayRecord) -> np.ndarray:
    arrays = record.to_numpy_ndarrays()
    return np.concatenate([np.asarray(array, dtype=np.float64).ravel() for array in arrays])
