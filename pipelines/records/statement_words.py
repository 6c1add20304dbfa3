"""What the privacy statement says differently for each kind of question.

A program with a record of its own registers `words_of` for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

from beam_ldp.pipelines.records.record import MeanRecord, PrivacyRecord

WEAK_LOCAL_EPSILON = 8.0  # odds of 3000 to 1 for whoever sees the report


def many(count: int, noun: str) -> str:
    """So many of them.

    >>> many(1, "file"), many(2000, "file")
    ('1 file', '2,000 files')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


@dataclass(frozen=True)
class Words:
    """Phrases of the statement and of the printed table.

    Attributes:
        whole, whole_briefly, itself: what the local epsilon speaks about.
        crowd: among whom the central price hides a person.
        shuffler: what the shuffler sees, a bullet without its opening.
        left: what left the shuffler, sentences.
        credit: when the central price holds.
        counted: what the price counts.
        public: the public inputs.
        hidden_as, hide_flag: what `--bad-rows` makes of unusable rows, and its value for that.
        intervals: what they hold for.
        notes: further lines on how.
        weak: a paragraph below the prices, where one of them needs it.
        person, person_briefly: who counts as a person, where it is not whose row was drawn.
        readers: who sees values beside the device, where it is not whoever reads the input.
        refused: what is public of what could not be used, where that is not rows.
        noise: where it came from, where it was not drawn in this run.
    """

    whole: str
    whole_briefly: str
    itself: str
    crowd: str
    shuffler: str
    left: str
    credit: str
    counted: str
    public: str
    hidden_as: str
    hide_flag: str
    intervals: str
    notes: tuple[str, ...] = ()
    weak: str = ""
    person: str = ""
    person_briefly: str = ""
    readers: str = "So does whoever can read the input."
    refused: str = ""
    noise: str = ""


@singledispatch
def words_of(record: PrivacyRecord) -> Words:
    """The words for one report per person about a public list; others start from them."""
    return Words(
        whole="a person's report",
        whole_briefly="a report",
        itself="the report itself",
        crowd=f"{record.priced_reports:,} reports that hide each other",
        shuffler="The shuffler**, that is the workers of the runner, sees each randomized report "
        "and whose it is. There a person is protected by the local epsilon alone.",
        left=_left(record),
        credit="There the central epsilon holds, if the shuffler does its job and does not "
        "collude.",
        counted=_counted(record),
        public="the list of values, the mechanism and its parameters",
        hidden_as="`other`",
        hide_flag="other",
        intervals="of each value by itself, in the files; for all values at once in the list of "
        "the most frequent ones, because that list was chosen by its estimates",
    )


def _left(record: PrivacyRecord) -> str:
    if record.output == "statistic":
        return (
            "Only sums left the shuffler: no individual report did. A sum does not depend on the "
            "order of the reports, so its reader learns no more than one who sees them shuffled."
        )
    return "A shuffled batch of individual reports left the shuffler, permuted " + _together(record)


def _together(record: PrivacyRecord) -> str:
    if record.scope == "global":
        return "all together."
    return (
        "in batches of which each is a crowd of its own; the smallest one, "
        f"{record.smallest_batch:,} reports, sets the price."
    )


def _counted(record: PrivacyRecord) -> str:
    batches = " in every batch" if record.smallest_batch < record.num_reports else ""
    return (
        f"{record.num_reports:,} reports were received; {100 * record.honest_fraction:g} % of "
        f"them{batches} are declared honest (`--honest-fraction`), "
        f"since fake reports hide nobody. The price counts {record.priced_reports:,}"
    )


@words_of.register
def _mean(record: MeanRecord) -> Words:
    """Vectors of numbers; one message or several per person, or no trust in a shuffler at all."""
    words = replace(
        words_of.dispatch(PrivacyRecord)(record),
        public=f"the names of {many(record.dimension, 'coordinate')}, the bounds that values are "
        "held to, the mechanism and its parameters, random rotations and codebooks included",
        hidden_as="the zero vector" if not record.in_ranges else "the middle of all ranges",
        hide_flag="zero",
        intervals="of each coordinate by itself, in the files; for all coordinates at once in the "
        "table and in the plot. Errors are those of the values that are worst for the mechanism"
        + _draw(record)
        + _bias(record),
        notes=(f"values: {record.values}", _outside(record)),
    )
    if record.messages_per_user > 1:
        words = with_messages(words, record)
    return _without_shuffler(words, record) if record.model == "local" else words


def _draw(record: MeanRecord) -> str:
    if record.sampling == "iid":
        return ", the draw of one row of each person included"
    if record.user_id is not None:
        return ", and suppose that every person has one row (`--one-row-each`)"
    return ""


def _bias(record: MeanRecord) -> str:
    if record.expected_bias:
        return (
            f", and intervals allow for the mechanism's truncation, which shifts a coordinate by "
            f"{record.expected_bias:.3g} at most, on average over the public rotation"
        )
    if record.bias_bound == 0:
        return ""
    return f", and intervals are widened by {record.bias_bound:.3g} for the mechanism's truncation"


def _outside(record: MeanRecord) -> str:
    if record.outside == "raise":
        return "a value outside those bounds would have stopped the run"
    return (
        "a value outside those bounds was moved to their edge on the device. Nobody counts how "
        "often, and no interval covers what it shifts the mean by"
    )


def with_messages(words: Words, record: Any) -> Words:
    """What is said differently where people send several messages each."""
    count = f"{record.messages_per_user:,}"
    each = (
        "" if record.message_epsilon is None
        else f", {record.message_epsilon:.3g} each at most"
    )  # fmt: skip
    weak = ""
    if record.local_epsilon is not None and record.local_epsilon > WEAK_LOCAL_EPSILON:
        weak = (
            f"**Before the shuffle there is next to no protection.** A person sends {count} "
            f"messages, and the local epsilon is the sum of their budgets{each}: whoever sees "
            "all messages of a person, and whose they are, learns the values almost surely. "
            "All protection rests on the shuffling (`--max-local-epsilon` limits that)."
        )
    left = (
        "Only sums over all people left the shufflers: no individual message did. A sum does not "
        "depend on the order of the messages, so its reader learns no more than one who sees every "
        "column shuffled."
        if record.output == "statistic"
        else "Individual messages left the shufflers, each of the columns permuted on its own, so "
        f"that nothing links the messages of a person, {_together(record)}"
    )
    return replace(
        words,
        whole="all messages of a person",
        whole_briefly="all messages of a person",
        itself="all messages of a person",
        shuffler=f"The shufflers**, one for each of the {count} message columns, see the "
        "randomized messages and whose they are. Here all of them are the workers of one runner, "
        "which therefore sees all messages of a person: there only the local epsilon protects.",
        left=left,
        credit="There the central epsilon holds, if every column is permuted on its own and no "
        "shuffler colludes.",
        weak=weak,
    )


def _without_shuffler(words: Words, record: MeanRecord) -> Words:
    return replace(
        words,
        crowd="every person alone: nothing is credited to shuffling",
        credit="Nobody but the device is trusted (`--model local`): there, too, what is promised "
        "is the local epsilon.",
        counted=f"{record.num_reports:,} reports were received. The price does not depend on "
        "their number, nor on whether they are honest: no shuffler is trusted",
        weak="",
    )
