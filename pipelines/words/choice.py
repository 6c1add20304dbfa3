"""What a search for words is: its flags, its levels and their cost, and its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.prices import Price
from beam_ldp.pipelines.usage.heavy_hitters import USAGE, WordQuestion
from beam_ldp.protocols.heavy_hitters import Assignment, HeavyHitters, Level
from beam_ldp.protocols.heavy_hitters_plan import plan_heavy_hitters
from beam_ldp.randomizers.estimate import readable
from beam_ldp.release.job import (
    Settings,
    checked,
    need,
    section_from,
    settings_from,
    with_files,
)
from beam_ldp.release.planner import Choice, Planner, Rows
from beam_ldp.release.record import PrivacyRecord
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import TEXT_COLUMN, Arguments, Usage
from beam_ldp.wording import many, number

WordSettings = Settings[WordQuestion]


def check_words(given: Arguments) -> WordSettings:
    """The settings, with every rule checked. Raises SettingError."""
    need(USAGE, given, "source.paths", "privacy.delta", "output.folder")
    settings = with_files(checked_words(given, USAGE))
    column = settings.question.column or (TEXT_COLUMN,)
    return replace(settings, question=replace(settings.question, column=column))


def checked_words(given: Arguments, usage: Usage) -> WordSettings:
    """The settings, with every rule checked that needs no files. Raises SettingError."""
    need(usage, given, "privacy.local_epsilon")
    question = section_from(given, usage, "question", WordQuestion)
    if len(question.column) > 1:
        raise SettingError("--column must name one column: each search is a release of its own")
    return checked(settings_from(given, usage, question, WordSettings))


@dataclass(frozen=True)
class WordChoice(Choice[HeavyHitters]):
    """The plan of all levels, with its expected cost.

    Attributes:
        predicted_error: standard error of the share of people with a word that is just found.
        if_visible: price where readers may know who was asked at which level.
    """

    if_visible: Price | None


class WordPlanner(Planner[WordSettings]):
    """Which words do many people hold? Before the data."""

    @cached_property
    def protocol(self) -> HeavyHitters:
        """The plan of all levels. Raises SettingError."""
        settings, question = self.settings, self.settings.question
        assert settings.privacy.local_epsilon is not None
        try:
            found = plan_heavy_hitters(
                settings.planned_reports,
                settings.privacy.local_epsilon,
                max_bytes=question.max_bytes,
                num_bits=question.code_bits,
                beta=question.failure_probability,
                false_words=question.false_words,
                assignment=question.assignment,
            )
        except ValueError as error:
            raise SettingError(str(error)) from None
        if not found.threshold < 1:
            raise SettingError(
                "--expected-users must be larger: not even a word that everybody holds would be "
                "found"
            )
        return found

    def choose(self) -> WordChoice:
        people, protocol = self.settings.planned_reports, self.protocol
        simulated = self.settings.noise.seed is not None
        last = protocol.levels[-1]
        answers = max(1, int(people * last.share))
        truth = np.zeros(last.oracle.domain_size)
        truth[0], truth[-1] = protocol.threshold, 1 - protocol.threshold
        error = float(np.sqrt(last.oracle.variance(answers, truth, "iid")[0]))
        received = expected_of(protocol, people)
        return WordChoice(
            mechanism=protocol,
            num_reports=people,
            price=None if simulated else self.total(received),
            predicted_error=error,
            if_visible=None if simulated else self.total(received, "visible"),
        )

    def price_among(self, choice: Choice[Any], num_reports: int) -> Price | None:
        if choice.price is None:
            return None
        return self.total(self.protocol.min_reports(num_reports))

    def total(self, received: Sequence[int], assignment: Assignment | None = None) -> Price:
        """What all levels cost together, given how many people answer each."""
        protocol = self.protocol
        if assignment:
            protocol = replace(protocol, assignment=assignment)
        privacy = self.settings.privacy
        ran = protocol.reports(received, privacy.honest_fraction)
        bound = event_epsilon(ran, privacy.delta)
        return Price(bound, protocol.crowd(received, privacy.honest_fraction), ran)

    # What a plan says -------------------------------------------------------------------------

    def inputs(self) -> Rows:
        question = self.settings.question
        named = question.column[0] if question.column else "word"
        longest = f"words of up to {many(question.max_bytes, 'byte')}"
        coded = f"with a code of up to {question.code_bits:,} bits"
        return [("question", f"{named}: {longest}, {coded}, which nobody listed")]

    def expectation(self, choice: Choice[Any]) -> str:
        return (
            f"{many(len(self.protocol.levels), 'level')}; a word with a code (up to "
            f"{self.protocol.code.num_bits:,} bits) that {share(self.protocol.threshold)} of the "
            f"people hold will be found with probability {1 - self.protocol.miss:g}"
        )

    def expected(self, choice: Choice[Any]) -> Rows:
        assert isinstance(choice, WordChoice)
        protocol, people = self.protocol, choice.num_reports
        found: Rows = [
            (
                "found",
                f"words with a code of {share(protocol.threshold)} of the people "
                f"({round(protocol.threshold * people):,}) or more, each with probability "
                f"{1 - protocol.miss:g}; at most {readable(protocol.false_words)} that nobody "
                "holds, on average",
            ),
            ("best possible", f"{share(protocol.fano)}: below it no protocol of this local epsilon "
             "finds words (Fano)"),
            ("error of a share", f"about {share(choice.predicted_error)} for a word just found"),
        ]  # fmt: skip
        for i, level in enumerate(protocol.levels):
            count = int(people * level.share)
            asked = f"{asks_of(level)}, one of {level.none:,}; {count:,} people"
            found.append((f"level {i + 1}", asked))
        if choice.price is not None and choice.if_visible is not None:
            found.append(("who learns the level", self._assignment_said(choice)))
        return found

    def _assignment_said(self, choice: WordChoice) -> str:
        visible = f"epsilon {number(_bound(choice.if_visible))}"
        if self.protocol.assignment == "visible":
            secret = self.total(expected_of(self.protocol, choice.num_reports), "secret")
            return f"whoever shuffles: {visible}; {number(_bound(secret))} if nobody did"
        return f"nobody: it travels inside the report; {visible} if readers could see it"

    def expected_as_json(self, choice: Choice[Any]) -> dict[str, Any]:
        assert isinstance(choice, WordChoice)
        protocol = self.protocol
        return {
            "threshold": protocol.threshold,
            "fano": protocol.fano,
            "failure_probability": protocol.miss,
            "false_words": protocol.false_words,
            "assignment": protocol.assignment,
            "epsilon_if_visible": _bound(choice.if_visible),
            "levels": levels_of(protocol, expected_of(protocol, choice.num_reports)),
        }


def expected_of(protocol: HeavyHitters, people: int) -> tuple[int, ...]:
    """Of so many people, those of each level, on average."""
    return tuple(int(people * level.share) for level in protocol.levels)


def share(of_people: float) -> str:
    """A share in per cent, rounded up.

    >>> share(0.00123)
    '0.123 %'
    """
    return f"{number(100 * of_people)} %"


def _bound(price: Price | None) -> float | None:
    return None if price is None or price.bound is None else float(price.bound)


def asks_of(level: Level) -> str:
    """What the people of a level are asked, in words."""
    return f"the first {level.prefix_bits} bits" if level.new_bits else "the whole word"


def levels_of(protocol: HeavyHitters, received: Sequence[int]) -> list[dict[str, Any]]:
    """Of each level that was asked what the record says."""
    return [
        {
            "level": i + 1,
            "asks": asks_of(level),
            "prefix_bits": level.prefix_bits,
            "values": level.none + 1,
            "mechanism": type(level.oracle).__name__,
            "share": level.share,
            "people": people,
        }
        for i, (level, people) in enumerate(zip(protocol.levels, received))
    ]


# What its record and its statement say differently ------------------------------------------------


@dataclass(frozen=True)
class WordRecord(PrivacyRecord):
    """The record of a search for words.

    Attributes:
        statistic: "heavy_hitters".
        assignment: "secret", or "visible": readers may know who was asked at which level.
        epsilon_if_visible: the privacy cost if they do; None in a simulation.
        levels: of each level: its number, how many bits of a word it asks about, of how many
            values, its mechanism, its share of the people, and how many answered.
        num_words: that were found. A word has a code if it is within `max_bytes` and `code_bits`;
            what follows is about those only.
        complete: no word with a code and this frequency is missed, but with `failure_probability`
            for all.
        words_above: how many words with a code have the frequency `complete`: estimate, least,
            most.
        tested: words that the last level asked about.
        threshold: a word of this frequency was found but with `failure_probability`, with the
            people that came.
        fano: below this frequency no protocol of this local epsilon finds words.
        failure_probability, false_words: as planned.
        max_bytes, code_bits: the longest word that could be found, in bytes and in bits of its
            code.
    """

    kind = "heavy_hitters"

    statistic: str = "heavy_hitters"
    assignment: str = "secret"
    epsilon_if_visible: float | None = None
    levels: tuple[dict[str, Any], ...] = ()
    num_words: int = 0
    complete: float | None = None
    words_above: tuple[int, ...] = ()
    tested: int = 0
    threshold: float | None = None
    fano: float | None = None
    failure_probability: float = 0.0
    false_words: float = 0.0
    max_bytes: int = 0
    code_bits: int = 0
