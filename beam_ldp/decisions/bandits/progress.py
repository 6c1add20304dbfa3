"""A bandit between two batches: what was heard so far says what is asked next."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from beam_ldp.decisions.bandits.elimination import Batch, Floats, Indices, LinearBandit
from beam_ldp.decisions.bandits.noise import Counts


@dataclass(frozen=True)
class Heard:
    """What was released of one batch, and all that is kept of it.

    Attributes:
        counts: people of each action that was played, in the order of the batch.
        sums: of their noisy rewards, likewise.
    """

    counts: tuple[int, ...]
    sums: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Decided:
    """A batch that was decided.

    Attributes:
        batch: with the people who came.
        estimates: (K,) mean rewards of its active actions.
        survivors: the actions that may still be best.
    """

    batch: Batch
    estimates: Floats
    survivors: Indices


@dataclass(frozen=True, eq=False)
class BanditProgress:
    """A bandit after some batches: a function of its terms and of released sums alone.

    Whoever has both can replay every decision, and nothing else went into one.

    Attributes:
        bandit: its terms.
        heard: of each batch so far.

    Raises:
        ValueError: if something was heard that the batch of its turn did not ask.

    >>> bandit = LinearBandit(actions=np.eye(2), horizon=100_000)
    >>> progress = BanditProgress(bandit)
    >>> progress.open.number, progress.open.counts.tolist()
    (1, [2, 2])
    >>> progress.after(Heard((2, 2), (1.5, -0.5))).open.number
    2
    """

    bandit: LinearBandit
    heard: tuple[Heard, ...] = ()

    def __post_init__(self) -> None:
        _ = self.decided

    @cached_property
    def decided(self) -> tuple[Decided, ...]:
        """All batches so far."""
        found: list[Decided] = []
        for heard in self.heard:
            batch = self._batch_after(found)
            if batch is None:
                raise ValueError("heard must end with the last batch that is asked")
            counts: Counts = np.array(heard.counts, dtype=np.int64)
            sums = np.array(heard.sums, dtype=np.float64)
            if sums.shape != counts.shape or not np.isfinite(sums).all():
                raise ValueError("heard must hold a finite sum for each action that was played")
            batch = self.bandit.counted(batch, counts)
            estimates = batch.estimates(sums)
            found.append(Decided(batch, estimates, batch.survivors(estimates)))
        return tuple(found)

    def _batch_after(self, decided: list[Decided]) -> Batch | None:
        active = decided[-1].survivors if decided else np.arange(len(self.bandit.actions))
        asked = sum(one.batch.people for one in decided)
        return self.bandit.batch(len(decided) + 1, active, asked)

    @cached_property
    def open(self) -> Batch | None:
        """What is asked next; None where everybody else has the best action."""
        return self._batch_after(list(self.decided))

    @property
    def active(self) -> Indices:
        """The actions that may still be best."""
        return self.decided[-1].survivors if self.decided else np.arange(len(self.bandit.actions))

    @property
    def best(self) -> int:
        """Index of the action with the largest estimate; of the first, before anything is heard."""
        if not self.decided:
            return 0
        last = self.decided[-1]
        return int(last.batch.active[np.argmax(last.estimates)])

    @property
    def asked(self) -> int:
        """People in the batches so far."""
        return sum(one.batch.people for one in self.decided)

    def after(self, heard: Heard) -> BanditProgress:
        """The bandit once the open batch was heard."""
        return replace(self, heard=(*self.heard, heard))
