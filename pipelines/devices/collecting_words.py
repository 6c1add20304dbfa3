"""What `collect` makes of the reports of one level of a search: the next question, or the words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import apache_beam as beam
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.accounting.prices import Price
from beam_ldp.pipelines.devices.collecting import (
    CollectSettings,
    DeviceReports,
    check_collected,
    count,
)
from beam_ldp.pipelines.devices.later_levels import later_level
from beam_ldp.pipelines.devices.questions import DeviceWordsQuestion
from beam_ldp.pipelines.devices.release_file import RELEASE_FILE, ReleaseFile, release_of_level
from beam_ldp.pipelines.heavy_hitters import FrequentWords
from beam_ldp.pipelines.usage.collect import USAGE
from beam_ldp.pipelines.usage.heavy_hitters import WordQuestion
from beam_ldp.pipelines.words.answer import SCHEMA, WordAnswer
from beam_ldp.pipelines.words.choice import WordRecord, asks_of, levels_of
from beam_ldp.protocols.heavy_hitters import HeavyHitters
from beam_ldp.release import outputs
from beam_ldp.release.beam_job import Outputs
from beam_ldp.release.charging import NoCharge
from beam_ldp.release.outputs import place_columns
from beam_ldp.release.pictures import TopList, plot_top, shortened
from beam_ldp.release.planner import Choice, Rows
from beam_ldp.release.question import Answer
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.word_levels import EstimateLevel
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


@dataclass(frozen=True)
class CollectWordRecord(WordRecord):
    """The record of one level of a search whose reports came from devices.

    Attributes:
        level: which one, from 1; `levels` are those up to it.
        levels_of_search: how many there are.
    """

    collected = True

    level: int = 1
    levels_of_search: int = 2


class CollectWords(DeviceReports, FrequentWords):
    """Which words do many people hold, from reports of one level after the other?"""

    usage = USAGE
    settings: CollectSettings[WordQuestion]

    def __init__(self, settings: CollectSettings[WordQuestion]) -> None:
        super().__init__(settings)
        assert isinstance(settings.agreed.asked, DeviceWordsQuestion)
        self.asked: DeviceWordsQuestion = settings.agreed.asked
        self.protocol: HeavyHitters = self.asked.protocol

    @classmethod
    def check_agreed(cls, given: Arguments, agreed: ReleaseFile) -> CollectSettings[WordQuestion]:
        """The settings, with every rule checked. Raises SettingError."""
        asked = agreed.asked
        assert isinstance(asked, DeviceWordsQuestion)
        for home, name in _DECIDED:
            if name in given[home]:
                raise SettingError(
                    f"{USAGE.flag_of(f'{home}.{name}')}: the question of the level says it, or it "
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
        return check_collected(Arguments(told, []).over(given), agreed, question)

    @property
    def is_last(self) -> bool:
        """Whether words come out, and no further question."""
        return self.asked.level == len(self.protocol.levels) - 1

    def uncharged(self, choice: Choice[Any]) -> NoCharge | None:
        if not self.asked.level:
            return None
        return later_level(self.settings, self.asked, self.identity(choice))

    def inputs(self) -> Rows:
        level, count = self.asked.level + 1, len(self.protocol.levels)
        about = f"level {level} of {count}: {asks_of(self.asked.asked)}"
        named = self.settings.agreed.terms.identity.release_id
        return [("release", named), ("level", about), *super().inputs()]

    def stages(self, pipeline: beam.Pipeline, choice: Choice[Any]) -> Outputs:
        return count(pipeline, self.settings, cast(Any, self), self.staging)

    def estimator(self, randomizer: Any, least: int, sampling: Any = "fixed") -> beam.PTransform:
        """What is made of the sum of the level, as `count` asks for it."""
        doer = EstimateLevel(self.protocol, self.asked.received, self.asked.rows, self.about)
        return beam.ParDo(doer).with_output_types(Release)

    def split(self, randomizer: Any, releases: beam.PCollection) -> beam.PCollection:
        """One release."""
        return releases

    # What it costs ----------------------------------------------------------------------------

    def price(self, release: Release) -> Price:
        """Of all levels together: those to come count at their gates, below which they are none."""
        return self._priced(tuple(release.mechanism["received"]))

    def price_among(self, choice: Choice[Any], num_reports: int) -> Price | None:
        return self._priced(self.asked.received)

    def _priced(self, received: tuple[int, ...]) -> Price:
        return self.total((*received, *self.asked.least[len(received) :]))

    # What came out ----------------------------------------------------------------------------

    @property
    def record_type(self) -> type[CollectWordRecord]:
        return CollectWordRecord

    def facts(self, choice: Choice[Any], release: Release) -> dict[str, Any]:
        told = super().facts(choice, release) if self.is_last else self._begun(release)
        return {
            **told,
            "level": self.asked.level + 1,
            "levels_of_search": len(self.protocol.levels),
        }

    def _begun(self, release: Release) -> dict[str, Any]:
        """The same of a level that finds no words yet."""
        protocol, bound = self.protocol, self.price(release).bound
        return dict(
            assignment="visible",
            epsilon_if_visible=None if bound is None else float(bound),
            levels=tuple(levels_of(protocol, release.mechanism["received"])),
            fano=protocol.fano,
            failure_probability=protocol.miss,
            false_words=protocol.false_words,
            max_bytes=protocol.code.max_bytes,
            code_bits=protocol.code.num_bits,
        )

    def answer(self, release: Release, choice: Choice[Any], truth: np.ndarray | None) -> Answer:
        if self.is_last:
            return WordAnswer(release, self.settings.output.top, truth)
        return LevelAnswer(release, self.settings.output.top, self.settings.agreed)


class LevelAnswer(Answer):
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

    def __init__(self, release: Release, length: int, agreed: ReleaseFile) -> None:
        super().__init__(release, None)
        assert isinstance(agreed.asked, DeviceWordsQuestion)
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

    def plot(self, price: str) -> Figure:
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
