"""A bandit between two batches: what was heard so far says what is asked next.

What a bandit that serves people is: its terms, its batches, and what tells them from others.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

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


# A bandit that serves people ----------------------------------------------------------------------


_OF_BANDIT = tuple(
    field.name for field in fields(LinearBandit) if field.name not in ("actions", "report")
)


@dataclass(frozen=True, eq=False)
class ServiceTerms:
    """All that is fixed before anybody is served. Public.

    Attributes:
        dataset: public name of the people, and of their budget.
        name: public name of this service: another one has another name.
        names: of the actions, distinct.
        bandit: whose reports are bits, or whose server is trusted.
        thetas: of each action, by name of the feature, where actions are policies over contexts:
            what a person's device chooses by.

    Raises:
        ValueError: for names that do not fit, and for models that serve nobody.
    """

    dataset: str
    name: str
    names: tuple[str, ...]
    bandit: LinearBandit
    thetas: tuple[Mapping[str, float], ...] = ()

    def __post_init__(self) -> None:
        if not self.dataset or not self.name:
            raise ValueError("dataset and name must be given: they tell releases apart")
        distinct = len(set(self.names)) == len(self.names) == len(self.bandit.actions)
        if not distinct or not all(self.names):
            raise ValueError("names must be distinct, one for each action")
        if len(self.thetas) not in (0, len(self.names)):
            raise ValueError("thetas must be given for all actions or none")
        if self.bandit.model == "none":
            raise ValueError("model must be shuffled, local or central for people who are served")
        if self.bandit.epsilon > self.bandit.max_local_epsilon and self.trusts_the_server:
            raise ValueError(
                f"epsilon must be at most {self.bandit.max_local_epsilon:g} for people who are "
                f"served, got {self.bandit.epsilon:g}"
            )
        if self.bandit.report != "bit" or self.bandit.width == "printed":
            raise ValueError("report must be bit, and width one that is proven, to serve people")

    @property
    def trusts_the_server(self) -> bool:
        """Whether it is told rewards as they are."""
        return self.bandit.model == "central"

    def to_json(self) -> dict[str, Any]:
        """For a file; `from_json` reads it."""
        told = {name: getattr(self.bandit, name) for name in _OF_BANDIT}
        actions = [[float(value) for value in row] for row in self.bandit.actions]
        named: list[dict[str, Any]] = [
            {"name": name, "features": row} for name, row in zip(self.names, actions)
        ]
        for one, theta in zip(named, self.thetas):
            one["theta"] = dict(theta)
        return {"dataset": self.dataset, "name": self.name, **told, "actions": named}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ServiceTerms:
        """Inverse of `to_json`. Raises ValueError."""
        try:
            told = {name: found[name] for name in _OF_BANDIT}
            rows = np.array([one["features"] for one in found["actions"]], dtype=np.float64)
            names = tuple(one["name"] for one in found["actions"])
            thetas = tuple(one["theta"] for one in found["actions"] if "theta" in one)
            bandit = LinearBandit(actions=rows, **told)
            return cls(found["dataset"], found["name"], names, bandit, thetas)
        except (KeyError, TypeError):
            raise ValueError(
                "terms of a bandit lack something, or hold it in another form"
            ) from None

    @cached_property
    def digest(self) -> str:
        """Of all terms, 32 bytes in hexadecimal."""
        return _digest(self.to_json())

    def release_id(self, batch: int) -> str:
        """The name of what a batch releases."""
        return f"bandit-{self.digest[:16]}-batch-{batch}"

    def asks(self, progress: BanditProgress) -> BatchTerms | None:
        """What is asked after what was heard; None where nothing is."""
        batch = progress.open
        if batch is None:
            return None
        heard = [asdict(one) for one in progress.heard]
        return BatchTerms(self, batch, _digest({"terms": self.digest, "heard": heard}))


@dataclass(frozen=True, eq=False)
class BatchTerms:
    """What one batch asks of people. Public.

    Attributes:
        terms: of the service.
        batch: which actions, and how many people each.
        digest: of the terms and of everything that was heard before, in hexadecimal.
    """

    terms: ServiceTerms
    batch: Batch
    digest: str

    @property
    def number(self) -> int:
        return self.batch.number

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the actions that people get."""
        return tuple(self.terms.names[i] for i in self.batch.played)

    @property
    def plays(self) -> tuple[str, ...]:
        """What rewards call them: `2:blue` is action blue in batch 2, so that a reward counts in
        its own batch or in none."""
        return tuple(f"{self.number}:{name}" for name in self.actions)

    @property
    def counts(self) -> tuple[int, ...]:
        """People of each."""
        return tuple(int(count) for count in self.batch.counts)

    @property
    def least(self) -> int:
        """People of the action that has the fewest."""
        return min(self.counts)

    @property
    def local_epsilon(self) -> float:
        """Of each report; infinite where the server is told rewards as they are."""
        epsilon = self.batch.noise.epsilon
        assert epsilon is not None
        return math.inf if self.terms.trusts_the_server else epsilon

    @property
    def release_id(self) -> str:
        """Whoever decides this batch again, decides the same release."""
        return self.terms.release_id(self.number)

    def to_json(self) -> dict[str, Any]:
        """What whoever serves people has to know."""
        bandit = self.terms.bandit
        plays: list[dict[str, Any]] = [
            {"play": play, "action": action, "people": count}
            for play, action, count in zip(self.plays, self.actions, self.counts)
        ]
        for one, place in zip(plays, self.batch.played):
            if self.terms.thetas:
                one["theta"] = dict(self.terms.thetas[place])
        shuffled, told_all = bandit.model == "shuffled", self.terms.trusts_the_server
        return {
            "batch": self.number,
            "release_id": self.release_id,
            "digest": self.digest,
            "people": self.batch.people,
            "plays": plays,
            "local_epsilon": None if told_all else self.local_epsilon,
            "epsilon": bandit.epsilon if shuffled or told_all else None,
            "delta": bandit.delta if shuffled else 0.0 if told_all else None,
            "amplify_over": bandit.amplify_over if shuffled else None,
            "drops_gaps_above": 4 * self.batch.width,
        }

    def heard(self, found: Mapping[str, tuple[int, float]]) -> Heard:
        """People and sums of noisy rewards of each play, by its name."""
        told = [found[play] for play in self.plays]
        return Heard(tuple(count for count, _ in told), tuple(total for _, total in told))


def _digest(found: Mapping[str, Any]) -> str:
    text = json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
