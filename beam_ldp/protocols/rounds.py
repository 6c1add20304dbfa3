"""Several rounds: what each one asks, who answers which, and what follows from the answers.

    plan:       rounds and roles ── public, decided before any data are seen
    device:     what a person holds ── the own role ──▶ round 0: the own cell ─▶ report
    collector:  sums of all cells of round 0 ──▶ state
    device:     the same person, where the role says so, asked under that state ─▶ report
    collector:  sums of all cells of round 1 ──▶ state, and at last the result

The number of rounds is static, so that a pipeline can be built before data flow; the state between
two rounds is what is dynamic. A role is drawn once, before round 0: it says of each round which of
its cells a person answers, or none. Nothing here knows Beam: `beam_ldp.transforms.rounds` runs a
plan over groups and windows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from beam_ldp.randomizers.base import LocalRandomizer, Rng
from beam_ldp.randomizers.identity import AnyIds, ReleaseIdentity
from beam_ldp.randomizers.randomness import word_source

NOBODY = -1  # the cell of people who do not answer a round


class Received(NamedTuple):
    """What came of one cell of a round.

    Attributes:
        num_reports: people who answered.
        smallest_batch: the least number of reports that were shuffled together.
    """

    num_reports: int
    smallest_batch: int


History = tuple[tuple[Received, ...], ...]  # round by round, cell by cell


class Round(ABC):
    """One question of a plan.

    Attributes:
        randomizer: the mechanism with which every cell answers.
        cells: parts of the people that are asked apart, and whose sums are read together.
        name: told apart in simulations: rounds of the same people need draws of their own.
    """

    cells: int = 1
    name: str = ""

    @property
    @abstractmethod
    def randomizer(self) -> LocalRandomizer: ...

    @abstractmethod
    def values(self, held: np.ndarray, cell: np.ndarray, state: Any) -> np.ndarray:
        """On the device: what people answer truthfully, as the randomizer takes it.

        Args:
            held: `(n, ...)` what they hold.
            cell: `(n,)` the cell that each of them answers.
            state: what the rounds before came to.
        """

    @abstractmethod
    def advance(
        self, state: Any, sums: Sequence[np.ndarray], received: Sequence[Received], before: History
    ) -> Any:
        """At the collector: what all cells together came to. Of the last round: the estimate.

        Args:
            state: under which they were asked.
            sums: the statistic of each cell.
            received: of each cell.
            before: of the rounds before this one.
        """

    def identity(self, release: ReleaseIdentity) -> ReleaseIdentity:
        """The part of a release under which memoized noise of this round is drawn."""
        return release

    def part(self, state: Any) -> str:
        """What more it is drawn under: of a round whose question depends on the state, that."""
        return ""


@dataclass(frozen=True)
class Outcome:
    """What a release says of its rounds.

    Attributes:
        num_reports: people who answered.
        reports: what the dearest person took part in (`beam_ldp.accounting.reports`).
        crowd: people among whom a report hides, at worst.
        config: what the mechanism's configuration adds to that of the plan.
    """

    num_reports: int
    reports: Any
    crowd: int
    config: dict[str, Any]


class RoundsPlan(ABC):
    """All rounds of a release.

    Attributes:
        rounds: in their order.
        roles: of each role, which cell of each round it answers; `NOBODY` where it answers none.
        secret: whether roles are drawn with words that nobody but the device knows. Else they are
            a public function of the id, which must not depend on the data either.
        start: the state of round 0.
        num_users: people expected.
        local_epsilon: what all that one person sends costs against whoever sees it unshuffled.
    """

    secret: bool
    start: Any = None
    num_users: int
    local_epsilon: float

    @property
    @abstractmethod
    def rounds(self) -> tuple[Round, ...]: ...

    @property
    @abstractmethod
    def roles(self) -> tuple[tuple[int, ...], ...]: ...

    @abstractmethod
    def roles_of(self, words: np.ndarray | None, user_ids: AnyIds | None) -> np.ndarray:
        """`(n,)` the role of each person: the same on every retry, whatever the person holds.

        Args:
            words: `(n,)` a secret uniform 64-bit word of each person; None unless `secret`.
            user_ids: of each person; None where it is not known.
        """

    @abstractmethod
    def least(self, people: int) -> tuple[int, ...]:
        """Gates of the rounds, each for one of its cells, for at least so many people."""

    @abstractmethod
    def outcome(self, received: History) -> Outcome:
        """What a release says, given what every round received."""

    @abstractmethod
    def worst(self, least: Sequence[int], honest_fraction: float = 1.0) -> Any:
        """What the dearest person takes part in where every cell of a round has the least reports,
        that share of them honest (`beam_ldp.accounting.reports`)."""

    @abstractmethod
    def to_config(self) -> dict[str, Any]:
        """As JSON-able values, for records."""

    @abstractmethod
    def config_digest(self) -> bytes:
        """16 bytes that identify the plan and all its parameters."""

    def for_release(self, identity: ReleaseIdentity) -> RoundsPlan:
        """The plan with the public seeds of one release."""
        return self

    def cells(self, roles: np.ndarray, number: int) -> np.ndarray:
        """`(n,)` the cell of a round that people of these roles answer, or `NOBODY`."""
        return np.array([role[number] for role in self.roles], dtype=np.int64)[roles]

    def run(self, held: np.ndarray, user_ids: AnyIds | None = None, rng: Rng = None) -> Any:
        """All parties in one process: for notebooks, tests and small releases.

        Args:
            held: `(n, ...)` what people hold, as the rounds take it.
            user_ids: `(n,)` of each person, where roles follow from them.
            rng: as in `LocalRandomizer.randomize`; a generator simulates, and protects nobody.

        Returns:
            What the last round came to, in the unit of the data.
        """
        words = None
        if self.secret:
            source = word_source(rng, self.config_digest(), np.empty(0))
            words = source.words(0, len(held), 1)[:, 0]
        roles = self.roles_of(words, user_ids)
        state: Any = self.start
        history: History = ()
        for number, asked in enumerate(self.rounds):
            cells, sums, received = self.cells(roles, number), [], []
            for cell in range(asked.cells):
                who = cells == cell
                values = asked.values(held[who], cells[who], state)
                reports = asked.randomizer.randomize(values, _of(rng, who))
                sums.append(asked.randomizer.accumulate(reports))
                received.append(Received(len(reports), len(reports)))
            state = asked.advance(state, sums, received, history)
            history = (*history, tuple(received))
        return state


def _of(rng: Rng, who: np.ndarray) -> Rng:
    """The same randomness for some of the people."""
    if rng is None or isinstance(rng, np.random.Generator):
        return rng
    return replace(rng, user_ids=np.asarray(rng.user_ids)[who])
