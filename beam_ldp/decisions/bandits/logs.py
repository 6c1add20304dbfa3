"""Who was asked what by a bandit: records for `audit-interactivity`, and what they must agree with.

A bandit is a function of its terms and of released sums (`Progress`). So whoever has both knows
what each batch had to ask, and a log of what was asked can be held against it: nobody in two
batches, nobody asked for more than the batch costs, no batch left out, no action played that does
not follow from the sums that were released before it.

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
from beam_ldp.decisions.bandits.progress import BanditProgress
from beam_ldp.protocols.interactivity.auditing import Finding, audit_records
from beam_ldp.protocols.interactivity.records import LOG_SCHEMA, NANO, records_of

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
    (`assign_seq`), and `audit_run` finds out whether that can be.

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


def audit_run(
    progress: BanditProgress,
    log: pa.Table,
    *,
    promise: float | None = None,
    runs: Sequence[str] | None = None,
) -> tuple[Finding, ...]:
    """What is wrong with the log of a run, by its terms and by what it released; nothing if empty.

    It trusts the log as `audit_records` does.

    Args:
        progress: the terms, and the sums that were released.
        log: records of all decided batches: of `batch_records`, or what workers wrote.
        promise: local epsilon of everybody; by default that of the dearest batch, once.
        runs: what `run` says in the records of each decided batch, in their order; by default the
            `round` is the number of a batch.

    Raises:
        ValueError: if a row is no record.
    """
    batches = [one.batch for one in progress.decided]
    if not batches:
        raise ValueError("progress must have a batch that was decided")
    numbers = _numbers(log, runs)
    dearest = max(batch.noise.log_ratio_max() for batch in batches)
    kernels = {randomizer_name(b): bit_randomizer(b.noise.epsilon).channel()
               for b in batches if b.noise.kind == "bit" and b.noise.epsilon}  # fmt: skip
    report = audit_records(records_of(log), promise or dearest, kernels=kernels)
    found = [one for one in report.findings if one.fault]
    strange = ~np.isin(numbers, [batch.number for batch in batches])
    if strange.any():
        said = "answers to batches that were not decided by these sums"
        found.append(Finding("not in the run", int(strange.sum()), said, True))
    for batch in batches:
        found += _of_batch(batch, log.filter(pa.array(numbers == batch.number)))
    return tuple(found)


def _numbers(log: pa.Table, runs: Sequence[str] | None) -> NDArray[np.int64]:
    """Of the batch of each record; 0 of none."""
    if runs is None:
        return np.asarray(log["round"].to_numpy(), dtype=np.int64)
    order = {run: number for number, run in enumerate(runs, 1)}
    return np.array([order.get(run, 0) for run in log["run"].to_pylist()], dtype=np.int64)


def _of_batch(batch: Batch, log: pa.Table) -> list[Finding]:
    """Records of one batch against what it had to ask."""
    if not log.num_rows:
        said = f"batch {batch.number} released sums, and nobody was asked"
        return [Finding("missing batch", 1, said, True)]
    found, wrong = [], np.array(log["randomizer"].to_pylist()) != randomizer_name(batch)
    wrong |= log["epsilon"].to_numpy() * NANO > batch.noise.log_ratio_max() * NANO + 1
    if wrong.any():
        said = f"answers to batch {batch.number} by another randomizer than its own"
        found.append(Finding("another randomizer", int(wrong.sum()), said, True))
    people = len(set(log["user"].to_pylist()))
    if people != batch.people:
        said = f"people in batch {batch.number}, whose sums are of {batch.people:,}"
        found.append(Finding("another number of people", people, said, True))
    if PLAY in log.column_names:
        found += _of_plays(batch, np.asarray(log.group_by(["user", PLAY]).aggregate([])[PLAY]))
    return found


def _of_plays(batch: Batch, plays: NDArray[np.int64]) -> list[Finding]:
    asked = dict(zip(batch.played.tolist(), batch.counts.tolist()))
    strange = int((~np.isin(plays, batch.played)).sum())
    if strange:
        said = f"people of batch {batch.number} had actions that the sums before it do not lead to"
        return [Finding("not led to by sums", strange, said, True)]
    counted = {action: int((plays == action).sum()) for action in asked}
    differ = sum(counted[action] != people for action, people in asked.items())
    if differ:
        said = f"actions of batch {batch.number} whose sums are of other numbers of people"
        return [Finding("another number of people", differ, said, True)]
    return []
