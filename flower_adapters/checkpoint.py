"""The model and the record of a training, in a file that is either the old one or the new one."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

from beam_ldp.federated import RoundsRecord
from beam_ldp.whole_files import replace_file

_CONFIG, _ROUNDS, _NAMES, _TRAINING, _LEDGER = "config", "rounds", "names", "training", "ledger"


def write_checkpoint(path: Path, state: Any, training: str, ledger: str) -> None:
    """Replaces the file, which its owner alone can read. It holds no data and nobody's id."""
    held: dict[str, Any] = {f"array_{i}": a.numpy() for i, a in enumerate(state.arrays.values())}
    held[_NAMES] = np.array(list(state.arrays), dtype=np.str_)
    held[_CONFIG], held[_ROUNDS] = np.array(state.record.config), state.record.rounds
    held[_TRAINING], held[_LEDGER] = np.array(training), np.array(ledger)
    stream = io.BytesIO()
    np.savez(stream, **held)
    replace_file(path, stream.getvalue())


def read_checkpoint(
    path: Path, training: str, ledger: str
) -> tuple[ArrayRecord, RoundsRecord] | None:
    """What the file holds; None if there is none.

    Args:
        path: of the file.
        training: its name.
        ledger: id of the one that its rounds are charged to; "" for none.

    Raises:
        ValueError: if it is no checkpoint, that of a training of another name, or charged
            elsewhere.
    """
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            held = {name: file[name] for name in file}
        arrays = ArrayRecord(
            {str(n): Array(held[f"array_{i}"]) for i, n in enumerate(held[_NAMES].tolist())}
        )
        record = RoundsRecord(str(held[_CONFIG]), held[_ROUNDS])
        name, charged_to = str(held[_TRAINING]), str(held[_LEDGER])
    except Exception:
        raise ValueError("checkpoint must be one of this version, and whole") from None
    if name != training:
        raise ValueError(f"checkpoint must be of training {training!r}, and is of {name!r}")
    if charged_to != ledger:
        raise ValueError(
            "checkpoint must be of a training that was charged to this ledger, which would not "
            "hold its rounds otherwise"
        )
    return arrays, record
