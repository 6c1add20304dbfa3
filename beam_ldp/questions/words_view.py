"""Words that were found, as people and programs see them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.protocols.found_words import FoundWords
from beam_ldp.questions.base import Part, View
from beam_ldp.questions.pictures import TopList, plot_top, shortened
from beam_ldp.questions.tables import PLACE, place_columns
from beam_ldp.randomizers.domain import OTHER
from beam_ldp.wording import many, share

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PARTS = ("", "_standard_error", "_low", "_high")
SCHEMA = pa.schema(
    [
        *PLACE,
        ("word", pa.string()),
        ("kind", pa.string()),
        *((f"{scale}{part}", pa.float64()) for scale in ("count", "frequency") for part in _PARTS),
    ]
)
WORD, REST = "word", "rest"


class WordsView(View):
    """The words that many people hold, most frequent first, and the share of everybody else.

    Args:
        release: its estimate are `FoundWords`.
        length: of the printed list.
        truth: true counts of the words by their text, where they are known.
    """

    purposes = {
        "estimates.csv": "every word found, and the rest, with counts, frequencies and intervals",
        "words.txt": "the words alone, as a list for --domain: this week's people test it",
        "plot.png": "the most frequent words",
    }

    def __init__(self, release: Part, length: int, truth: Any = None) -> None:
        super().__init__(release, None)
        self._length, self._true = length, truth

    def more_files(self) -> dict[str, bytes]:
        listed = [word for word in self.words if word == word.strip("\r\n\ufeff") != ""]
        lines = [word for word in listed if "\n" not in word and word != OTHER]
        return {"words.txt": "".join(f"{line}\n" for line in lines).encode()} if lines else {}

    @property
    def found(self) -> FoundWords:
        """What was found."""
        return cast(FoundWords, cast(Any, self.release.estimate))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words as text. Rows are text, so each word that anybody holds is."""
        return tuple(text.decode("utf-8", "replace") for text in self.found.texts)

    @cached_property
    def top(self) -> TopList:
        """The most frequent ones, in people."""
        found, length = self.found, self._length
        people = float(found.num_users)
        count, low, high = (
            people * part[:length] for part in (found.frequency, found.low, found.high)
        )
        true = None
        if self._true is not None:
            true = np.array([self._true.get(word, 0) for word in self.words[:length]], dtype=float)
        return TopList(np.arange(len(count)), self.words[:length], count, low, high, count, true)

    def table(self) -> pa.Table:
        return word_table(self.release, self.found, self.words)

    def figure(self, price: str) -> Figure:
        asked = shortened(self.release.question, 60)
        return plot_top(self.top, f"{asked}: {many(len(self.words), 'word')} found", price)

    def listed(self, caption: str) -> Table:
        top = self.top
        table = Table(title=caption, title_justify="left", header_style="bold")
        table.add_column("#", justify="right", style="dim")
        table.add_column("word")
        for heading in (*(() if top.truth is None else ("truth",)), *top.headings):
            table.add_column(heading, justify="right")
        for i, word in enumerate(top.labels):
            cells = [str(i + 1), escape(shortened(word, 40))]
            cells += [] if top.truth is None else [f"{top.truth[i]:,.0f}"]
            cells += [f"{top.estimate[i]:,.0f}", f"{top.low[i]:,.0f} … {top.high[i]:,.0f}"]
            table.add_row(*cells)
        return table

    def show(self, console: Console) -> None:
        found = self.found
        console.print(self.listed(self._caption))
        value, low, high = (f"{100 * np.clip(part, 0, 1):.1f}" for part in (
            found.rest.value, found.rest.low, found.rest.high
        ))  # fmt: skip
        if above := words_above(found):
            count, fewest, most = above
            console.print(
                f"{many(count, 'word')} ({fewest:,} … {most:,}) with a code that "
                f"{share(found.complete)} of the people or more hold: all of them are found, as "
                "the plan says.",
                highlight=False,
            )
        console.print(
            f"Any other word: {value} % of the people ({low} … {high} %). Words of more than "
            f"{self._code['max_bytes']} bytes, or {self._code['num_bits']:,} bits in the public "
            "code, have no code and are never found.",
            highlight=False,
        )

    @property
    def _code(self) -> dict[str, int]:
        """How long a word with a code may be."""
        return cast("dict[str, int]", self.release.mechanism["code"])

    @property
    def _caption(self) -> str:
        found = many(len(self.words), "word")
        if len(self.words) > self._length:
            return f"The {self._length} most frequent of {found} found"
        return f"{found} found"

    def as_json(self) -> dict[str, Any]:
        found, people = self.found, self.found.num_users
        above = words_above(found)
        return {
            "words": [
                {
                    "word": word,
                    "count": float(found.frequency[i]) * people,
                    "frequency": float(found.frequency[i]),
                    "frequency_low_simultaneous": float(found.low[i]),
                    "frequency_high_simultaneous": float(found.high[i]),
                }
                for i, word in enumerate(self.words)
            ],
            "rest": found.rest._asdict(),
            "tested": found.tested,
            "threshold": found.threshold,
            "complete": found.complete,
            "words_above": dict(zip(("value", "low", "high"), above)) or None,
        }

    def errors(self) -> dict[str, float]:
        if self._true is None:
            return {}
        people = self.found.num_users
        true = np.array([self._true.get(word, 0) for word in self.words], dtype=float) / people
        off = np.abs(self.found.frequency - true)
        return {"error.largest": float(off.max())} if len(off) else {}


def words_above(found: FoundWords) -> tuple[int, ...]:
    """How many words there are of which none is missed: estimate, least and most; () where the
    people that came are too few for any."""
    return found.count_above(found.complete) if 0 < found.complete < 1 else ()


def word_table(release: Part, found: FoundWords, words: tuple[str, ...]) -> pa.Table:
    """One row per word, most frequent first, with intervals that hold for all at once; the last row
    is everybody else."""
    columns = place_columns(len(words) + 1, release.question, release.group, release.window)
    columns["word"], columns["kind"] = [*words, None], [WORD] * len(words) + [REST]
    parts = zip(
        _PARTS,
        (found.frequency, found.standard_error, found.low, found.high),
        (found.rest.value, found.rest.standard_error, found.rest.low, found.rest.high),
    )
    for part, of_words, of_rest in parts:
        values = np.append(of_words, of_rest)
        columns[f"count{part}"] = values * found.num_users
        columns[f"frequency{part}"] = values
    return pa.table(columns, schema=SCHEMA)
