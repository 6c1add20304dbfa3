"""Rows of people in, the words that many of them hold out, as rounds of one report a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_ldp.protocols.heavy_hitters import HeavyHitters
from beam_ldp.settings import People, Privacy, Shuffling
from beam_ldp.transforms.composite import HowReleased, PrivateEstimate
from beam_ldp.transforms.device.encode import ColumnNames, EncodeBlocks, EncodeStage, checked_choice
from beam_ldp.transforms.elements.columns import SOUND, Codes, Column, texts_of
from beam_ldp.transforms.elements.portable import groups_of
from beam_ldp.transforms.queries import BadLists, Query, check_plan

if TYPE_CHECKING:
    from typing_extensions import Unpack

_NO_CODE = np.uint64(2**64 - 1)  # in all places: a word that is no string's code
_FEW = 0.01  # of the first words without a code: nothing is said of fewer


class EncodeWords(EncodeStage):
    """Turns rows into `ValueBlock`s of words, as rows of bits. Nothing is private yet.

    A word that is longer than the protocol finds becomes one that nobody finds. A row that is no
    word (missing column, null, wrong type, undecodable text, more than 4,096 bytes) goes to the
    attribute `bad_rows` of the result, a collection of `BadRowBlock`: where it stands and why,
    never what it holds.

    In: as `EncodeRows`. Out: `ValueBlock`s of uint64 `(n, words of 64 bits of a code)`.

    Args:
        protocol: which says the code.
        column: name of the column with the word; None where elements are words.
        people: as in `EncodeRows`.
        bad_rows: "dead_letter" as said; "other" turns them into a word that nobody finds, and
            leaves no trace of them; rows without a user id are bad rows in both.
    """

    def __init__(
        self,
        protocol: HeavyHitters,
        column: str | None = None,
        *,
        people: People = People(),
        bad_rows: BadLists = "dead_letter",
    ) -> None:
        super().__init__()
        self._doer = _EncodeWords(
            names=ColumnNames.of(None if column is None else (column,), people),
            groups=groups_of(people),
            hide_bad=checked_choice(bad_rows, "other"),
            protocol=protocol,
        )

    def doubts(self, values: Sequence[np.ndarray]) -> Iterator[str]:
        code = self._doer.protocol.code
        words = sum(map(len, values))
        none = sum(int((block == _NO_CODE).all(axis=1).sum()) for block in values)
        if none > _FEW * words:
            yield (
                f"{none / words:.0%} of the first words have no code and are never found: they "
                f"are longer than {code.max_bytes} bytes (--max-bytes) or their code is longer "
                f"than {code.num_bits} bits (--code-bits). A byte takes 4 to 6 bits in Latin "
                "script and 6 to 11 in others; choose by the language, not by what people hold"
            )

    def display_data(self) -> dict[str, Any]:
        return {"bad_rows": "other" if self._doer.hide_bad else "dead_letter"}


@dataclass(eq=False, kw_only=True)
class _EncodeWords(EncodeBlocks):
    protocol: HeavyHitters

    def encode_values(
        self, columns: Mapping[str, Column], num_rows: int
    ) -> tuple[np.ndarray, Codes]:
        names = self.names.values or tuple(columns)[:1]
        texts, codes = texts_of(columns.get(names[0], Column(None, num_rows)))
        words = texts.cast(pa.large_binary()).fill_null(b"")
        starts = np.frombuffer(words.buffers()[1], dtype=np.int64)[words.offset :][: num_rows + 1]
        held = np.frombuffer(words.buffers()[2] or b"", dtype=np.uint8)
        bits, lengths = self.protocol.code.encode_buffer(held, starts)
        bits[(lengths == 0) | (codes != SOUND)] = _NO_CODE
        return bits, codes

    def encode_array(self, array: np.ndarray) -> tuple[np.ndarray, Codes] | None:
        if array.ndim != 1:
            return None
        return self.encode_values({"": Column(array.tolist(), len(array))}, len(array))


@dataclass(frozen=True)
class WordsQuery(Query):
    """Which words many people hold.

    Attributes:
        column: with the word; None where elements are words.
        name: for the record.
        bad_rows: as in `EncodeWords`.
    """

    column: str | None = None
    name: str = ""
    bad_rows: BadLists = "dead_letter"

    @property
    def columns(self) -> tuple[str, ...]:
        named = self.column or self.name
        return (named,) if named else ()

    def digest(self, randomizer: Any) -> bytes:
        return b""  # the plan says all that is public

    def check(self, randomizer: Any) -> None:
        check_plan(randomizer, HeavyHitters)

    def plan(self, privacy: Privacy) -> Any:
        raise ValueError("protocol must be given: plan_heavy_hitters makes it")

    def encoder(self, randomizer: Any, people: People) -> beam.PTransform:
        return EncodeWords(randomizer, self.column, people=people, bad_rows=self.bad_rows)


class PrivateHeavyHitters(PrivateEstimate):
    """The words that many people hold, of all that have a code, under local privacy.

    Each person answers one level, drawn in secret, with one report about the beginning of the own
    word; one row of each person is drawn before. Protects the word with the protocol's local
    epsilon against everybody who sees the report, and at the smaller price of the release's
    `event` against whoever sees only what this transform puts out.

    In: rows as `EncodeWords` takes them. Out: as in `PrivateEstimate`; estimates name the words
    found, in each group by itself. A level with too few reports releases nothing, of no level.

    Args:
        protocol: the plan of all levels, from `plan_heavy_hitters`. It says how long the code of a
            word may be: words of scripts other than Latin need 6 to 11 bits a byte.
        column: name of the column with the word; None where elements are words.
        bad_rows: as in `EncodeWords`.
        question: name of what is asked, for the record.
        how: `people`, `shuffle` (sums only), `noise` (for the draw of levels too), `privacy`,
            `min_reports`, `privacy_unit`, `budget`, as in `PrivateEstimate`. The gate of a level is
            its share of the people, less five standard deviations.

    Raises:
        BudgetExceededError: when it is built into a pipeline, if the worst case does not fit.
        ValueError: for arguments that do not fit together.
    """

    def __init__(
        self,
        protocol: HeavyHitters,
        *,
        column: str | None = None,
        bad_rows: BadLists = "dead_letter",
        question: str = "",
        **how: Unpack[HowReleased],
    ) -> None:
        if how.get("shuffle", Shuffling()).output != "statistic":
            raise ValueError('shuffle.output must be "statistic": only sums of a level leave')
        super().__init__(protocol, WordsQuery(column, question, bad_rows), **how)
