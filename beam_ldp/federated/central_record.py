"""What a process with noise at its server has run so far, in its state.

The record is one privacy event per round, as JSON, and how many rounds there were.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import dp_accounting
import numpy as np

from beam_ldp.accounting.event_json import event_from_json, event_to_json


class CentralRecord(NamedTuple):
    """The part of a state that says what ran.

    Attributes:
        event: of one round: JSON text.
        rounds: int64, how many there were.
        num_clients: int64, that every round must have; 0 for any number.
    """

    event: Any
    rounds: Any
    num_clients: Any


def start_record(event: dp_accounting.DpEvent, num_clients: int = 0) -> CentralRecord:
    """The record before the first round, each of which costs `event`."""
    return CentralRecord(json.dumps(event_to_json(event)), np.int64(0), np.int64(num_clients))


def one_more(record: CentralRecord) -> CentralRecord:
    """The record after one more round."""
    return CentralRecord(record.event, record.rounds + 1, record.num_clients)


def round_event(record: CentralRecord) -> dp_accounting.DpEvent:
    """What the next round costs: ask the accountant before it runs."""
    text = record.event
    return event_from_json(json.loads(text.item() if isinstance(text, np.ndarray) else text))


def events_so_far(record: CentralRecord) -> list[tuple[dp_accounting.DpEvent, int]]:
    """Events and how often each ran, for `ShuffleAccountant.compose(event, count)`."""
    rounds = int(record.rounds)
    return [(round_event(record), rounds)] if rounds else []
