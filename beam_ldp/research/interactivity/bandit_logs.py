"""The log of a bandit held against what the bandit released.

A bandit is a function of its terms and of released sums (`BanditProgress`). So whoever has both
knows what each batch had to ask, and a log of what was asked can be held against it: nobody in two
batches, nobody asked for more than the batch costs, no batch left out, no action played that does
not follow from the sums that were released before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_ldp.decisions.bandits.elimination import Batch
from beam_ldp.decisions.bandits.logs import PLAY, randomizer_name
from beam_ldp.decisions.bandits.noise import bit_randomizer
from beam_ldp.decisions.bandits.progress import BanditProgress
from beam_ldp.protocols.interaction import NANO
from beam_ldp.research.interactivity.auditing import AuditFinding, audit_records
from beam_ldp.research.interactivity.records import records_of


def audit_run(
    progress: BanditProgress,
    log: pa.Table,
    *,
    promise: float | None = None,
    runs: Sequence[str] | None = None,
) -> tuple[AuditFinding, ...]:
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
        found.append(AuditFinding("not in the run", int(strange.sum()), said, True))
    for batch in batches:
        found += _of_batch(batch, log.filter(pa.array(numbers == batch.number)))
    return tuple(found)


def _numbers(log: pa.Table, runs: Sequence[str] | None) -> NDArray[np.int64]:
    """Of the batch of each record; 0 of none."""
    if runs is None:
        return np.asarray(log["round"].to_numpy(), dtype=np.int64)
    order = {run: number for number, run in enumerate(runs, 1)}
    return np.array([order.get(run, 0) for run in log["run"].to_pylist()], dtype=np.int64)


def _of_batch(batch: Batch, log: pa.Table) -> list[AuditFinding]:
    """Records of one batch against what it had to ask."""
    if not log.num_rows:
        said = f"batch {batch.number} released sums, and nobody was asked"
        return [AuditFinding("missing batch", 1, said, True)]
    found, wrong = [], np.array(log["randomizer"].to_pylist()) != randomizer_name(batch)
    wrong |= log["epsilon"].to_numpy() * NANO > batch.noise.log_ratio_max() * NANO + 1
    if wrong.any():
        said = f"answers to batch {batch.number} by another randomizer than its own"
        found.append(AuditFinding("another randomizer", int(wrong.sum()), said, True))
    people = len(set(log["user"].to_pylist()))
    if people != batch.people:
        said = f"people in batch {batch.number}, whose sums are of {batch.people:,}"
        found.append(AuditFinding("another number of people", people, said, True))
    if PLAY in log.column_names:
        found += _of_plays(batch, np.asarray(log.group_by(["user", PLAY]).aggregate([])[PLAY]))
    return found


def _of_plays(batch: Batch, plays: NDArray[np.int64]) -> list[AuditFinding]:
    asked = dict(zip(batch.played.tolist(), batch.counts.tolist()))
    strange = int((~np.isin(plays, batch.played)).sum())
    if strange:
        said = f"people of batch {batch.number} had actions that the sums before it do not lead to"
        return [AuditFinding("not led to by sums", strange, said, True)]
    counted = {action: int((plays == action).sum()) for action in asked}
    differ = sum(counted[action] != people for action, people in asked.items())
    if differ:
        said = f"actions of batch {batch.number} whose sums are of other numbers of people"
        return [AuditFinding("another number of people", differ, said, True)]
    return []
