"""The model and the record of a training, in a file that is either the old one or the new one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord

from beam_ldp.federated import RoundsRecord

_CONFIG, _ROUNDS, _NAMES, _TRAINING = "config", "rounds", "names", "training"


def write_checkpoint(path: Path, state: Any, training: str) -> None:
    """Replaces the file, which its owner alone can read. It holds no data and nobody's id."""
    held: dict[str, Any] = {f"array_{i}": a.numpy() for i, a in enumerate(state.arrays.values())}
    held[_NAMES] = np.array(list(state.arrays), dtype=np.str_)
    held[_CONFIG], held[_ROUNDS] = np.array(state.record.config), state.record.rounds
    held[_TRAINING] = np.array(training)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(beside, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "wb") as file:
        np.savez(file, **held)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def read_checkpoint(path: Path, training: str) -> tuple[ArrayRecord, RoundsRecord] | None:
    """What the file holds; None if there is none.

    Raises:
        ValueError: if it is that of a training of another name.
    """
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as file:
        if (name := str(file[_TRAINING])) != training:
            raise ValueError(f"checkpoint must be of training {training!r}, and is of {name!r}")
        arrays = {
            str(name): Array(file[f"array_{i}"]) for i, name in enumerate(file[_NAMES].tolist())
        }
        return ArrayRecord(arrays), RoundsRecord(str(file[_CONFIG]), file[_ROUNDS])
