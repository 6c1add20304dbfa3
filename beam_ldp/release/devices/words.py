"""One level of a search for words, from reports of devices: the next question, or the words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.accounting.prices import Price
from beam_ldp.questions.base import Choice, Part, Rows, View
from beam_ldp.questions.heavy_hitters import (
    HeavyWords,
    PublishedWords,
    WordQuestion,
    asks_of,
    told_of_search,
    total,
)
from beam_ldp.questions.pictures import TopList, plot_top, shortened
from beam_ldp.questions.tables import place_columns
from beam_ldp.questions.words_view import SCHEMA, WordsView
from beam_ldp.release import outputs
from beam_ldp.release.charging import NoCharge
from beam_ldp.release.devices.collecting import CollectedRun, collected_job
from beam_ldp.release.devices.later_levels import later_level
from beam_ldp.release.devices.release_file import RELEASE_FILE, ReleaseFile, release_of_level
from beam_ldp.release.job import need
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job
from beam_ldp.settings.usage import Arguments, Usage
from beam_ldp.wording import many

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BEGINNING = "beginning"
_DECIDED = (
    ("shuffle", "min_reports"), ("privacy", "honest_fraction"), ("privacy", "expected_users"),
    ("privacy", "epsilon"), ("question", "domain"), ("question", "postprocess"),
    ("question", "quantiles"), ("question", "between"), ("question", "shape"),
    ("people", "groups"), ("reports", "level_key"),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class WordLevel(HeavyWords):
    """One level of a search that others planned, whose reports come from devices.

    Attributes:
        agreed: the question of the level.
    """

    estimates = "level"
    agreed: ReleaseFile = None  # type: ignore[assignment]

    @property
    def of_level(self) -> PublishedWords:
        """What devices were asked."""
        assert isinstance(self.agreed.asked, PublishedWords)
        return self.agreed.asked

    @property
    def level(self) -> tuple[Any, ...]:
        """What `EstimateLevel` is told."""
        asked = self.of_level
        return asked.protocol, asked.received, asked.rows, self.name

    @property
    def is_last(self) -> bool:
        """Whether words come out, and no further question."""
        return self.of_level.level == len(self.of_level.protocol.levels) - 1

    def chosen(self, job: Job, mechanism: Any) -> Choice:
        return super().chosen(job, self.of_level.protocol)

    def inputs(self, job: Job) -> Rows:
        asked = self.of_level
        count = len(asked.protocol.levels)
        about = f"level {asked.level + 1} of {count}: {asks_of(asked.asked)}"
        return [("level", about), *super().inputs(job)]

    def price(self, job: Job, choice: Choice, release: Any) -> Price:
        """Of all levels together: those to come count at their gates, below which they are none."""
        return self._priced(job, tuple(release.mechanism["received"]))

    def price_among(self, job: Job, choice: Choice, num_reports: int) -> Price | None:
        return self._priced(job, self.of_level.received)

    def _priced(self, job: Job, received: Sequence[int]) -> Price:
        asked = self.of_level
        return total(job, asked.protocol, (*received, *asked.least[len(received) :]))

    def facts(self, job: Job, choice: Choice, release: Any) -> dict[str, Any]:
        """With `level`, from 1, of `levels_of_search`; `levels` are those up to it."""
        protocol = self.of_level.protocol
        if self.is_last:
            told = super().facts(job, choice, release)
        else:
            priced = self.price(job, choice, release)
            told = told_of_search(protocol, release.mechanism["received"], priced)
        count = len(protocol.levels)
        return {**told, "level": self.of_level.level + 1, "levels_of_search": count}

    def view(self, job: Job, choice: Choice, release: Part, truth: Any = None) -> View:
        if self.is_last:
            return WordsView(release, job.output.top, truth)
        return LevelView(release, job.output.top, self.agreed)


class CollectedLevel(CollectedRun):
    """A release of one level: charged with the first, for all of them."""

    def uncharged(self) -> NoCharge | None:
        asked = self.collected.agreed.asked
        assert isinstance(asked, PublishedWords)
        return later_level(self.job, asked, self.identity) if asked.level else None


def collected_words(usage: Usage, given: Arguments, agreed: ReleaseFile) -> CollectedRun:
    """Which words do many people hold? Raises SettingError."""
    asked = agreed.asked
    assert isinstance(asked, PublishedWords)
    need(usage, given, "privacy.delta")
    for home, name in _DECIDED:
        if name in given[home]:
            raise SettingError(
                f"{usage.flag_of(f'{home}.{name}')}: the question of the level says it, or it "
                "does not go with a search for words"
            )
    if given["shuffle"].get("output", "statistic") != "statistic":
        raise SettingError("--shuffle-output must be statistic: only the sum of a level leaves")
    told: dict[str, dict[str, Any]] = {
        "shuffle": {"min_reports": asked.least[asked.level], "output": "statistic"},
        "privacy": {
            "expected_users": asked.protocol.num_users,
            "honest_fraction": asked.honest_fraction,
        },
    }
    question = WordQuestion(
        column=(asked.column,),
        max_bytes=asked.protocol.code.max_bytes,
        code_bits=asked.protocol.code.num_bits,
        false_words=asked.protocol.false_words,
        failure_probability=asked.protocol.miss,
        assignment="visible",
    )
    job = collected_job(usage, Arguments(told, []).over(given), agreed, question)
    level = WordLevel(asked.column, asked.column, declared=question, agreed=agreed)
    return CollectedLevel(usage, job, level)


class LevelView(View):
    """Beginnings that many words have, and the question that follows from them.

    Args:
        release: its estimate is that of the level's oracle.
        length: of the printed list.
        agreed: the question of this level.
    """

    purposes = {
        "estimates.csv": "beginnings of words that the next level is asked about",
        RELEASE_FILE: "the question of the next level, for devices; public",
        "plot.png": "the most frequent beginnings",
    }

    def __init__(self, release: Part, length: int, agreed: ReleaseFile) -> None:
        super().__init__(release, None)
        assert isinstance(agreed.asked, PublishedWords)
        self._length, self._asked = length, agreed.asked

        protocol, level, asked = self._asked.protocol, self._asked.level, self._asked.rows
        rows = protocol.extend(level, release.estimate, asked)
        places = protocol.encode(rows, level, asked)
        shares = release.estimate.value[places]
        order = np.argsort(-shares, kind="stable")  # the most frequent ones first
        bits = self._asked.asked.prefix_bits
        self._texts = tuple(
            protocol.code.decode(row, bits).text.decode("utf-8", "replace") for row in rows[order]
        )
        # For a look: chosen by the same reports, so they are rather too large.
        self._shares = shares[order]
        self._errors = release.estimate.standard_error[places[order]]
        following = self._asked.then(rows, release.num_reports)
        self._following = release_of_level(following, agreed.terms.identity)

    def more_files(self) -> dict[str, bytes]:
        return {RELEASE_FILE: outputs.as_json(self._following.to_json())}

    def table(self) -> pa.Table:
        texts, people = self._texts, self.release.num_reports
        columns = place_columns(
            len(texts), self.release.question, self.release.group, self.release.window
        )
        columns["word"], columns["kind"] = list(texts), [BEGINNING] * len(texts)
        for scale, factor in (("count", people), ("frequency", 1)):
            columns[scale] = self._shares * factor
            columns[f"{scale}_standard_error"] = self._errors * factor
            columns[f"{scale}_low"] = columns[f"{scale}_high"] = [None] * len(texts)
        return pa.table(columns, schema=SCHEMA)

    def figure(self, price: str) -> Figure:
        count = self._shares[: self._length] * self.release.num_reports
        labels = self._texts[: self._length]
        top = TopList(np.arange(len(count)), labels, count, count, count, count)
        asked = shortened(self.release.question, 60)
        return plot_top(top, f"{asked}: {many(len(self._texts), 'beginning')} found", price)

    def show(self, console: Console) -> None:
        level, levels = self._asked.level + 1, len(self._asked.protocol.levels)
        table = Table(
            title=f"Level {level} of {levels}: {many(len(self._texts), 'beginning')} found",
            title_justify="left", header_style="bold",
        )  # fmt: skip
        table.add_column("beginning")
        table.add_column("about", justify="right")
        for text, share in list(zip(self._texts, self._shares))[: self._length]:
            table.add_row(escape(shortened(text, 40)), f"{100 * share:.1f} %")
        console.print(table)
        console.print(
            f"{RELEASE_FILE} is the question of level {level + 1}: devices answer it with "
            "`beam-ldp randomize --release`",
            highlight=False,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "beginnings": [
                {"beginning": text, "frequency": float(share)}
                for text, share in zip(self._texts, self._shares)
            ],
            "release": self._following.to_json(),
        }

    def errors(self) -> dict[str, float]:
        return {}
