"""Rows of people in, the words that many of them hold out, as rounds of one report a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_ldp.protocols.heavy_hitters import HeavyHitters
from beam_ldp.questions.heavy_hitters import HeavyWords
from beam_ldp.settings import Shuffling
from beam_ldp.transforms.composite import BadLists, HowReleased, PrivateEstimate

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
        super().__init__(protocol, HeavyWords(column, question, bad_rows), **how)
