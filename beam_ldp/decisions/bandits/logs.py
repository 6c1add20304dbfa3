"""Who was asked what by a bandit: its records, for `audit-interactivity`.

A log says in which batch a person was. That is not protected. Which action she had may have to be
(`amplify_over="batch"`): then no record says it, and records are in the order of people.

What a bandit costs a person: the dearest of its batches, or all those that she was in.

Batches learn from one another through released sums alone. Whoever is in one batch pays for that
one, and the run costs the *maximum* over its batches. Whoever comes back pays for each batch at its
own crowd, and the costs add up as those of releases that were chosen by earlier ones do.

Source: specification of linear bandits, sections 7.4 and 10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_ldp.accounting.lower import PrivacyBound
from beam_ldp.accounting.prices import event_epsilon
from beam_ldp.accounting.reports import LocalReports, ShuffledReports
from beam_ldp.accounting.shuffle.one_release import local_reports, shuffled_reports
from beam_ldp.decisions.bandits.elimination import Batch, LinearBandit
from beam_ldp.decisions.bandits.noise import bit_randomizer
from beam_ldp.protocols.interaction import LOG_SCHEMA

# What a person pays -------------------------------------------------------------------------------


def batch_reports(bandit: LinearBandit, batch: Batch) -> LocalReports | ShuffledReports:
    """What one batch is to somebody in it, as a record that accountants and ledgers price.

    Against whoever sees everything that the batch releases: reports with their senders for the
    model "local", sums for "central", shuffled reports otherwise. A person hides among those with
    her action, of the action that has the fewest, or with `amplify_over="batch"` among all of the
    batch: that is the price of a secret assignment, and of no other.

    Args:
        bandit: which asked.
        batch: as it was asked, or with the people who came.

    Raises:
        ValueError: for rewards without noise, which have no price.

    >>> import numpy as np
    >>> bandit = LinearBandit(actions=np.eye(2), horizon=100_000, amplify_over="batch")
    >>> batch = bandit.batch(8, np.arange(2))
    >>> batch.people, batch_reports(bandit, batch).crowd
    (4826, 4826)
    """
    noise = batch.noise
    if noise.kind == "none":
        raise ValueError('model must have a price: "none" sends rewards as they are')
    if noise.kind == "bit":
        assert noise.epsilon is not None
        bit = bit_randomizer(noise.epsilon)
        if bandit.model != "shuffled":
            return local_reports(bit)
        return shuffled_reports(bit, _crowd(bandit, batch))
    pure = LocalReports(noise.log_ratio_max())
    return pure.shuffled(_crowd(bandit, batch)) if bandit.model == "shuffled" else pure


def _crowd(bandit: LinearBandit, batch: Batch) -> int:
    return int(batch.counts.sum() if bandit.amplify_over == "batch" else batch.counts.min())


def price_once(bandit: LinearBandit, batches: Sequence[Batch], delta: float) -> float:
    """Epsilon at `delta` of a run whose people are in one batch each: of the dearest one.

    At the bandit's delta it never exceeds the bandit's epsilon, whatever sums decide about later
    batches, so it may be promised before the run; but for the text's noise (`width="printed"`),
    which costs twice that.
    """
    return max(float(event_epsilon(batch_reports(bandit, b), delta)) for b in batches)


def price_of_all(bandit: LinearBandit, batches: Sequence[Batch], delta: float) -> PrivacyBound:
    """Epsilon at `delta` of all these batches together, to somebody who is in each of them.

    Noise and crowds of later batches depend on earlier sums, so losses are read in ways that hold
    for releases that are chosen, each at its share of delta: local epsilons (no delta), epsilons
    of batches at equal parts of one half of delta, and Rényi divergences at the other half. The
    least of them is the budget that lets her into all of these batches: whoever fixes a budget, and
    lets her in while one of the readings stays within it, has promised it, since what can happen is
    parted by the first reading that fits at the end, and shares sum to delta.

    >>> import numpy as np
    >>> bandit = LinearBandit(actions=np.eye(2), horizon=100_000)
    >>> batches = [bandit.batch(number, np.arange(2)) for number in (7, 8)]
    >>> round(price_once(bandit, batches, 1e-6), 2), round(price_of_all(bandit, batches, 1e-6), 2)
    (1.0, 2.11)
    """
    from beam_ldp.accounting.composition.accountant import ShuffleAccountant
    from beam_ldp.accounting.events import as_event

    records = [batch_reports(bandit, batch) for batch in batches]
    accountant = ShuffleAccountant(adaptive=True)
    for one in records:
        accountant.compose(as_event(one))
    part = delta / (2 * len(records))
    readings = {
        "local epsilons": math.fsum(one.local_epsilon for one in records),
        "epsilons of batches": math.fsum(float(event_epsilon(one, part)) for one in records),
        "Rényi divergences": float(accountant.get_epsilon(delta / 2)),
    }
    method = min(readings, key=lambda name: readings[name])
    return PrivacyBound(readings[method], method=method)


# What a log holds of it ---------------------------------------------------------------------------


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
