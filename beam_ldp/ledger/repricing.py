"""What charges cost, worked out anew: once for each distinct event, and by several processes.

Rows state the divergences of their events, so that to open a ledger costs no pricing. Audits do not
believe them: they price each distinct event at the orders of its budget, and at the deltas at which
prices of it were printed. Of very large ledgers a sample can be drawn, at random and unforeseeable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from random import SystemRandom
from typing import Any, NamedTuple

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.ledger.losses import Loss, local_loss_of, loss_of, read_loss
from beam_ldp.ledger.rows import REPLACE, RESERVE, SETTLE, Row
from beam_ldp.ledger.state import LedgerState

_TOLERANCE = 1e-6  # relative; what a row may state below the recomputed
_FEW = 64  # events that are priced here, and not by other processes


class Question(NamedTuple):
    """What is priced: an event (JSON), at the orders of a budget, and at printed deltas."""

    event: str
    orders: tuple[float, ...]


class Answer(NamedTuple):
    """What it costs: the loss, and epsilon by delta; a reason where it has no price."""

    loss: Loss | None
    epsilons: dict[float, float]
    fault: str = ""


@dataclass
class Repricing:
    """What rows state, and what it really is.

    Attributes:
        stated: per event, each loss that is stated for it, with the first row that does.
        local: rows that state a smaller local epsilon than their event's, in words.
        deltas: per event, at which prices of it were printed.
        answers: what was priced anew.
    """

    stated: dict[Question, dict[Loss, int]] = field(default_factory=dict)
    local: list[str] = field(default_factory=list)
    deltas: dict[Question, set[float]] = field(default_factory=dict)
    answers: dict[Question, Answer] = field(default_factory=dict)

    def look_at_next(self, rows: Iterable[Row]) -> None:
        """Look at the row that does not follow: maybe it is its local epsilon that is too small."""
        for row in rows:
            with suppress(Exception):  # it may hold anything
                if row.kind == RESERVE:
                    _look_at_local(self, row)

    def epsilon(self, event: Mapping[str, Any], orders: tuple[float, ...], delta: float) -> Any:
        """Epsilon of an event at a delta; None if it was not priced."""
        answer = self.answers.get(Question(_text(event), orders))
        return None if answer is None else answer.epsilons.get(delta)

    def findings(self) -> list[str]:
        """Rows that state less than their event costs."""
        found = []
        for question, answer in self.answers.items():
            for loss, number in self.stated[question].items():
                if answer.loss is None:
                    found.append(f"row {number} holds an event without a price: {answer.fault}")
                elif _less(loss, answer.loss):
                    found.append(f"row {number} states a smaller loss than that of its event")
        return found


def stated_by(rows: Iterable[Row], state: LedgerState) -> Repricing:
    """What rows state of their events; nothing is priced yet.

    Args:
        rows: of a ledger, as far as they follow from each other.
        state: what they amount to.
    """
    found = Repricing()
    for row in rows:
        if row.kind in (RESERVE, SETTLE, REPLACE) and row.body["event"]:
            body = row.body
            budget = state.populations[body["population"]].budget
            assert budget is not None  # or it could not have been charged
            question = Question(_text(body["event"]), budget.orders)
            found.stated.setdefault(question, {}).setdefault(
                Loss.from_json(body["loss"]), row.number
            )
            if row.kind == RESERVE:
                _look_at_local(found, row)
            delta = body["about"].get("delta")
            if row.kind != RESERVE and isinstance(delta, (int, float)) and 0 < delta < 1:
                found.deltas.setdefault(question, set()).add(float(delta))
    return found


def _look_at_local(found: Repricing, row: Row) -> None:
    body = row.body
    local = local_loss_of(body["local_event"] or body["event"])
    stated = read_loss(body["local_epsilon"])
    if stated < local * (1 - _TOLERANCE):
        found.local.append(
            f"row {row.number}: run {body['run_id']!r} states a local epsilon of {stated:.4g}; its "
            f"event's is {local:.4g}"
        )


def price(found: Repricing, *, sample: int | None = None, workers: int = 1) -> None:
    """Price the distinct events.

    Args:
        found: from `stated_by`; its `answers` are filled in.
        sample: so many of them, drawn at random; None: all.
        workers: processes. More than one start as new interpreters: call this behind
            `if __name__ == "__main__"`.
    """
    questions = list(found.stated)
    if sample is not None and sample < len(questions):
        questions = SystemRandom().sample(questions, sample)
    asked = [(q, tuple(sorted(found.deltas.get(q, ())))) for q in questions]
    if workers <= 1 or len(asked) < _FEW:
        answers = [_answer(one) for one in asked]
    else:
        chunk = max(1, len(asked) // (8 * workers))
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            answers = list(pool.map(_answer, asked, chunksize=chunk))
    found.answers.update(zip(questions, answers))


def _answer(asked: tuple[Question, tuple[float, ...]]) -> Answer:
    question, deltas = asked
    event = json.loads(question.event)
    try:
        loss = loss_of(event, question.orders)
        parsed = event_from_json(event)
        return Answer(loss, {delta: float(event_epsilon(parsed, delta)) for delta in deltas})
    except Exception as error:  # a forged row may hold anything
        return Answer(None, {}, type(error).__name__)


def _text(event: Mapping[str, Any]) -> str:
    return json.dumps(event, sort_keys=True)


def _less(stated: Loss, real: Loss) -> bool:
    pairs = zip(stated.figures, real.figures)
    return any(a < b * (1 - _TOLERANCE) for a, b in pairs)
