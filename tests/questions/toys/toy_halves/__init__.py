"""A kind of question from outside the tree: in which quarter of an interval are most people? Two
rounds: which half? And then, in that half, which half of it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from rich.table import Table

from beam_ldp.protocols.rounds import NOBODY, History, Outcome, Received, Round, RoundsPlan
from beam_ldp.questions.base import Asked, Choice, Look, Part, Question, View
from beam_ldp.questions.encoders import VectorEncoder
from beam_ldp.questions.pictures import TopList, plot_top
from beam_ldp.questions.tables import PLACE, place_columns
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.settings.fields import NUMBER, setting

SCHEMA = pa.schema([*PLACE, ("low", pa.float64()), ("high", pa.float64())])


@dataclass(frozen=True)
class Half(Round):
    """Is the number in the upper half of the interval?"""

    plan: Halves
    number: int
    cells: int = 1

    @property
    def randomizer(self) -> KRandomizedResponse:
        return KRandomizedResponse(2, self.plan.local_epsilon)

    def part(self, state: tuple[float, float]) -> str:
        return f"half {self.number} of {state}"

    def values(self, held: np.ndarray, cell: np.ndarray, state: Any) -> np.ndarray:
        return (held[:, 0] >= (state[0] + state[1]) / 2).astype(np.int64)

    def advance(
        self, state: Any, sums: Sequence[np.ndarray], received: Sequence[Received], before: History
    ) -> Any:
        total, people = sum(sums), sum(one.num_reports for one in received)
        upper = self.randomizer.estimate(np.asarray(total), people).value[1]
        middle = (state[0] + state[1]) / 2
        half = (middle, state[1]) if upper > 0.5 else (state[0], middle)
        return half if not self.number else Estimate(np.array(half), np.zeros(2), people)


@dataclass(frozen=True)
class Halves(RoundsPlan):
    """Everybody answers one of two rounds, drawn in secret; round one in as many cells as told."""

    local_epsilon: float = 8.0
    cells_of_first: int = 1
    num_users: int = 600
    start: Any = (0.0, 1.0)
    secret: bool = field(default=True, init=False)
    messages_per_user = 1
    bits_per_report = 1
    exactness = "exact"
    protects_alone = True

    @property
    def rounds(self) -> tuple[Round, ...]:
        return Half(self, 0, self.cells_of_first), Half(self, 1)

    @property
    def roles(self) -> tuple[tuple[int, ...], ...]:
        return *((cell, NOBODY) for cell in range(self.cells_of_first)), (NOBODY, 0)

    def roles_of(self, words: Any, user_ids: Any) -> np.ndarray:
        first = words % np.uint64(self.cells_of_first)
        return np.where(words >> np.uint64(63) == 0, first, self.cells_of_first).astype(np.int64)

    def least(self, people: int) -> tuple[int, ...]:
        return people // 3 // self.cells_of_first, people // 3

    def outcome(self, received: History) -> Outcome:
        crowds = [min(cell.smallest_batch for cell in cells) for cells in received]
        people = sum(cell.num_reports for cells in received for cell in cells)
        return Outcome(people, self.worst(crowds), min(crowds), self.to_config())

    def worst(self, least: Sequence[int], honest_fraction: float = 1.0) -> Any:
        from beam_ldp.accounting.reports import hidden_users
        from beam_ldp.accounting.shuffle.one_release import shuffled_reports

        hidden = hidden_users(min(least), honest_fraction)
        return shuffled_reports(self.rounds[0].randomizer, hidden)

    def to_config(self) -> dict[str, Any]:
        return {"mechanism": "Halves", "local_epsilon": self.local_epsilon}

    def config_digest(self) -> bytes:
        return digest_of(repr(self).encode())


@dataclass(frozen=True, kw_only=True)
class HalvesQuestion(Question):
    """In which quarter of an interval are most people?"""

    needs = ("question.column", "privacy.local_epsilon", "privacy.delta")
    told_once = True

    column: tuple[str, ...] = setting(
        (), "column of numbers", flag="column", metavar="NAME", many=True, basic=True
    )
    interval: tuple[float, float] = setting(
        (0.0, 1.0), "where they lie", NUMBER, flag="interval", metavar=("LOW", "HIGH"), arity=2
    )  # fmt: skip

    def bind(self, job: Any, look: Look) -> Quarter:
        from beam_ldp.release.statement import say_by

        say_by(__name__)
        return Quarter(self.column[0], self.interval)


@dataclass(frozen=True, eq=False)
class Quarter(Asked):
    """The same, of a column."""

    name: str
    interval: tuple[float, float] = (0.0, 1.0)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def digest(self, mechanism: Any) -> bytes:
        return digest_of(b"toy halves", repr(self.interval).encode())

    def check(self, mechanism: Any) -> None:
        if not isinstance(mechanism, Halves):
            raise TypeError("randomizer must be Halves")

    def mechanism(self, privacy: Any) -> Halves:
        people = int(privacy.expected_users)
        return Halves(privacy.local_epsilon, num_users=people, start=self.interval)

    def encoder(self, mechanism: Any) -> VectorEncoder:
        return VectorEncoder.of(self.name, 1, None, False)

    def choose(self, job: Any) -> Choice:
        plan = self.mechanism(job.privacy)
        plain = Choice(plan, job.planned_reports, None, 0.0)
        return replace(plain, price=self.price_among(job, plain, job.planned_reports))

    def price_among(self, job: Any, choice: Choice, num_reports: int) -> Any:
        from beam_ldp.accounting.prices import expected_price

        plan, told = choice.mechanism, job.privacy
        least, oracle = min(plan.least(num_reports)), plan.rounds[0].randomizer
        price = expected_price(oracle, least, told.delta, told.honest_fraction)
        return None if job.noise.simulated else price

    def facts(self, job: Any, choice: Choice, release: Any) -> dict[str, Any]:
        return {"kind": "halves", "interval": self.interval}

    def view(self, job: Any, choice: Choice, release: Part, truth: Any = None) -> QuarterView:
        return QuarterView(release, truth)


class QuarterView(View):
    """The quarter that was found."""

    purposes = {"estimates.csv": "the quarter", "plot.png": "the quarter"}

    @property
    def top(self) -> TopList:
        low, high = self.release.estimate.value[:, None]
        return TopList(np.arange(1), (self.release.question,), low, low, high, low)

    def table(self) -> pa.Table:
        release = self.release
        columns = place_columns(1, release.question, release.group, release.window)
        low, high = release.estimate.value
        return pa.table({**columns, "low": [low], "high": [high]}, schema=SCHEMA)

    def listed(self, caption: str) -> Table:
        table = Table("from", "to", title=caption)
        table.add_row(*(f"{end:g}" for end in self.release.estimate.value))
        return table

    def show(self, console: Any) -> None:
        console.print(self.listed("Most people are in"))

    def figure(self, price: str) -> Any:
        return plot_top(self.top, self.release.question, price)

    def as_json(self) -> dict[str, Any]:
        return dict(zip(("low", "high"), self.release.estimate.value.tolist()))

    def errors(self) -> dict[str, float]:
        return {}
