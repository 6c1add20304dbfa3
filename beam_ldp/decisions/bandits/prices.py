"""What a bandit costs a person: the dearest of its batches, or all those that she was in.

Batches learn from one another through released sums alone. Whoever is in one batch pays for that
one, and the run costs the *maximum* over its batches. Whoever comes back pays for each batch at its
own crowd, and the costs add up as those of releases that were chosen by earlier ones do.

Source: specification of linear bandits, sections 7.4 and 10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from beam_ldp.accounting.lower import PrivacyBound
from beam_ldp.accounting.prices import event_epsilon
from beam_ldp.accounting.reports import LocalReports, ShuffledReports
from beam_ldp.accounting.shuffle.one_release import local_reports, shuffled_reports
from beam_ldp.decisions.bandits.elimination import Batch, LinearBandit
from beam_ldp.decisions.bandits.noise import bit_randomizer


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
