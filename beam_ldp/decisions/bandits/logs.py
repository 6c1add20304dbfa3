"""Who was asked what by a bandit: its records, for `audit-interactivity`.

A log says in which batch a person was. That is not protected. Which action she had may have to be
(`amplify_over="batch"`): then no record says it, and records are in the order of people.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_ldp.decisions.bandits.elimination import Batch, LinearBandit
from beam_ldp.decisions.bandits.noise import bit_randomizer
from beam_ldp.protocols.interaction import LOG_SCHEMA

PLAY = "play"  # column with the index of the action, where that is public


def asks_in_secret(bandit: LinearBandit) -> bool:
    """Whether nobody may know who had which action."""
    return bandit.model == "shuffled" and bandit.amplify_over == "batch"


def randomizer_name(batch: Batch) -> str:
    """What a log calls the randomizer of a batch; of bits, what workers call it in their logs."""
    noise = batch.noise
    if noise.kind == "bit":
        assert noise.epsilon is not None
        bit = bit_randomizer(noise.epsilon)
        return f"{type(bit).__name__} {bit.config_digest().hex()[:16]}"
    return f"laplace {noise.log_ratio_max():.6g}"


def batch_records(
    bandit: LinearBandit,
    batch: Batch,
    people: Sequence[int] | Sequence[str],
    plays: NDArray[np.intp],
    answers: Sequence[int] | None = None,
) -> pa.Table:
    """The records of one batch, which `audit-interactivity` reads; those of all batches make a log.

    Its questions read what earlier batches released, and nothing else: it says so of itself
    (`assign_seq`), and `audit_run` of `beam_ldp.research` finds
    out whether that can be.

    Args:
        bandit: which asks.
        batch: as it came.
        people: ids of the people who answered, best keyed digests, all numbers or all text.
        plays: (n,) index of the action that each of them had.
        answers: digests of what they sent, by which retries are told.

    Raises:
        ValueError: for rewards that are sent as they are, or to a server that adds the noise:
            nobody randomizes there, and a log of epsilons would say nothing.
    """
    if batch.noise.kind not in ("bit", "laplace"):
        raise ValueError("model must be local or shuffled: in others nobody is asked for noise")
    if not len(people) == len(plays) == len(people if answers is None else answers):
        raise ValueError("people, plays and answers must be of one length")
    size, before = len(people), batch.number - 1
    told = {
        "seq": [before] * size,
        "user": list(people),
        "randomizer": [randomizer_name(batch)] * size,
        "round": [batch.number] * size,
        "epsilon": [batch.noise.log_ratio_max()] * size,
        "output": list(answers) if answers is not None else [None] * size,
        "assign_seq": [before] * size,
        PLAY: np.asarray(plays).tolist(),
    }
    if asks_in_secret(bandit):
        told.pop(PLAY)
    types = {name: LOG_SCHEMA.field(name).type for name in told if name in LOG_SCHEMA.names}
    types |= {"user": None, PLAY: pa.int64()}
    table = pa.table({name: pa.array(column, types[name]) for name, column in told.items()})
    return table.sort_by("user")
