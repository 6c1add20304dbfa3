"""Rows of clients are gathered whole, and none is copied more than once per level."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
gathering = pytest.importorskip("tff_adapters.transport")

pytestmark = [pytest.mark.tff, pytest.mark.exact]

COLUMNS = 3
SHAPES = (tf.TensorSpec([None, COLUMNS], tf.uint8),) * (gathering.SLOTS * gathering.LEVELS + 1)


@tf.function(input_signature=[SHAPES, tf.TensorSpec([None, COLUMNS], tf.uint8)])
def add(gathered, rows):
    return gathering.with_client(gathered, rows)


def of(clients: range, rows: int = 1):
    """A gathering of so many clients; each row says whose it is."""
    gathered = gathering.nothing_gathered(COLUMNS)
    for client in clients:
        mine = np.zeros((rows, COLUMNS), np.uint8)
        mine[:, 0], mine[:, 1], mine[:, 2] = client % 256, client // 256, np.arange(rows)
        gathered = add(gathered, tf.constant(mine))
    return gathered


def owners(gathered) -> list[int]:
    rows = gathering.gathered_rows(gathered).numpy().astype(int)
    return sorted(rows[:, 0] + 256 * rows[:, 1])


@pytest.mark.parametrize("clients", [0, 1, 7, 8, 9, 63, 64, 65, 600])
def test_every_row_is_there_once(clients: int) -> None:
    assert owners(of(range(clients))) == list(range(clients))


@pytest.mark.parametrize("clients", [7, 8, 64, 600])
def test_levels_are_digits(clients: int) -> None:
    """A tensor of level l holds SLOTS**l clients, and there are as many as the digit says."""
    *slots, rest = of(range(clients), rows=2)
    for level in range(gathering.LEVELS):
        here = slots[level * gathering.SLOTS : (level + 1) * gathering.SLOTS]
        held = [len(tensor) for tensor in here if len(tensor)]
        assert set(held) <= {2 * gathering.SLOTS**level}
        assert len(held) == clients // gathering.SLOTS**level % gathering.SLOTS
    assert len(rest) == 0


def test_beyond_the_last_level_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "SLOTS", 2)
    monkeypatch.setattr(gathering, "LEVELS", 2)
    gathered = gathering.nothing_gathered(1)
    for client in range(11):
        gathered = gathering.with_client(gathered, tf.constant([[client]], tf.uint8))
    assert len(gathered) == 5
    assert len(gathered[-1]) == 8
    assert sorted(gathering.gathered_rows(gathered).numpy()[:, 0]) == list(range(11))


def test_two_gatherings_are_one() -> None:
    joined = gathering.merged((of(range(20)), of(range(20, 90))))
    assert owners(joined) == list(range(90))
    again = add(joined, tf.constant([[90, 0, 0]], tf.uint8))
    assert owners(again) == list(range(91))
