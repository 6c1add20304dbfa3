"""`beam-ldp heavy-hitters`: which words do many people hold, where nobody listed them?

The same program as `python -m beam_ldp.pipelines.heavy_hitters`.
"""

from __future__ import annotations

import sys
from typing import Any, Literal

import numpy as np
from rich.console import Console

from beam_ldp.accounting.prices import Price
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.commands import start
from beam_ldp.pipelines.usage.heavy_hitters import USAGE
from beam_ldp.pipelines.words.answer import WordAnswer, words_above
from beam_ldp.pipelines.words.choice import (
    WordPlanner,
    WordRecord,
    WordSettings,
    check_words,
    levels_of,
)
from beam_ldp.release.planner import Choice
from beam_ldp.release.question import Answer, Question
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.heavy_hitters import EncodeWords, PrivateHeavyHitters


class FrequentWords(WordPlanner, Question[WordSettings]):
    """Which words do many people hold?"""

    usage = USAGE

    @property
    def record_type(self) -> type[WordRecord]:
        return WordRecord

    @classmethod
    def check(cls, given: Arguments) -> WordSettings:
        return check_words(given)

    @classmethod
    def run_otherwise(cls, given: Arguments, console: Console) -> int | None:
        if not given["output"].get("publish"):
            return None
        from beam_ldp.pipelines.devices.word_levels import publish

        return publish(given, console)

    @property
    def about(self) -> str:
        return self.settings.question.column[0]

    @property
    def value_columns(self) -> tuple[str, ...]:
        return self.settings.question.column

    @property
    def bad_rows(self) -> Literal["dead_letter", "other"]:
        return "dead_letter" if self.settings.bad_rows_leave_a_trace else "other"

    def composite(self, choice: Choice[Any]) -> Any:
        how: Any = self.how
        return PrivateHeavyHitters(
            self.protocol, column=self.about, bad_rows=self.bad_rows, question=self.about, **how
        )

    def encoder(self, mechanism: Any) -> Any:
        return EncodeWords(self.protocol, self.about, people=self.settings.people)

    def price(self, release: Release) -> Price:
        received = release.mechanism["received"]
        if release.simulated:
            honest = self.settings.privacy.honest_fraction
            return Price(None, self.protocol.crowd(received, honest))
        return self.total(received)

    def facts(self, choice: Choice[Any], release: Release) -> dict[str, Any]:
        protocol, found = self.protocol, release.estimate
        received = release.mechanism["received"]
        visible = None if release.simulated else self.total(received, "visible").bound
        return dict(
            assignment=protocol.assignment,
            epsilon_if_visible=None if visible is None else float(visible),
            levels=tuple(levels_of(protocol, received)),
            num_words=len(found.texts),  # type: ignore[attr-defined]
            complete=found.complete,  # type: ignore[attr-defined]
            words_above=words_above(found),  # type: ignore[arg-type]
            tested=found.tested,  # type: ignore[attr-defined]
            threshold=found.threshold,  # type: ignore[attr-defined]
            fano=protocol.fano,
            failure_probability=protocol.miss,
            false_words=protocol.false_words,
            max_bytes=protocol.code.max_bytes,
            code_bits=protocol.code.num_bits,
        )

    def answer(self, release: Release, choice: Choice[Any], truth: np.ndarray | None) -> Answer:
        return WordAnswer(release, self.settings.output.top, truth)


PROGRAM = programs.program_of(FrequentWords)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(USAGE))
