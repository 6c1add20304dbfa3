"""A kind of question from outside the tree: how many people say yes. One round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_ldp.questions.base import Asked, Choice, Look, Part, Question, Rows
from beam_ldp.questions.encoders import ListEncoder
from beam_ldp.questions.frequency_view import FrequencyView
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.settings.fields import SettingError, setting


@dataclass(frozen=True, kw_only=True)
class YesQuestion(Question):
    """How many people say yes? Whatever else they say counts as no.

    It is a toy.
    """

    needs = ("question.column", "privacy.local_epsilon", "privacy.delta")

    column: tuple[str, ...] = setting(
        (), "column with what people say", flag="column", metavar="NAME", many=True, basic=True
    )
    word: str = setting("yes", "what a yes is (default yes)", flag="word", metavar="WORD")
    called: str = setting("yes", "what tables call it", flag="called", metavar="TEXT")

    def rules(self, job: Any) -> None:
        if len(self.column) != 1:
            raise SettingError("{question.column} must be given once")

    def bind(self, job: Any, look: Look) -> Yes:
        return Yes(self.column[0], self.word, called=self.called)


@dataclass(frozen=True, eq=False)
class Yes(Asked):
    """The same, of a column."""

    name: str
    word: str = "yes"
    bad_rows: str = "dead_letter"
    called: str = "yes"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def digest(self, mechanism: Any) -> bytes:
        return digest_of(b"toy yes", self.word.encode())

    def check(self, mechanism: Any) -> None:
        if not isinstance(mechanism, KRandomizedResponse) or mechanism.domain_size != 2:
            raise TypeError("randomizer must be a KRandomizedResponse of two values")

    def mechanism(self, privacy: Any) -> KRandomizedResponse:
        return KRandomizedResponse(2, privacy.local_epsilon)

    def encoder(self, mechanism: Any) -> ListEncoder:
        return ListEncoder((self.name,), Domain((self.word,), "anything else"), size=2)

    def choose(self, job: Any) -> Choice:
        return self.chosen(job, self.mechanism(job.privacy))

    def chosen(self, job: Any, mechanism: Any) -> Choice:
        from beam_ldp.accounting.prices import expected_price

        people, privacy, price = job.planned_reports, job.privacy, None
        if not job.noise.simulated:
            price = expected_price(mechanism, people, privacy.delta, privacy.honest_fraction)
        error = float(np.sqrt(mechanism.variance(people).max()))
        return Choice(mechanism, people, price, error)

    def expectation(self, job: Any, choice: Choice) -> str:
        return f"{choice.predicted_error:.2%} of the people more or fewer"

    def expected(self, job: Any, choice: Choice) -> Rows:
        return [("error of the yeses", self.expectation(job, choice))]

    def view(self, job: Any, choice: Choice, release: Part, truth: Any = None) -> FrequencyView:
        return FrequencyView(release, (self.called, "no"), job.output.top, truth)
