"""The privacy statement: who is protected, against whom, and on what that rests, in plain words.

What it says differently for each kind of question is in `Words`: a program with a record of its own
registers `words_of` for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

from beam_ldp.pipelines.records.forging import forged_said, mechanism_of
from beam_ldp.pipelines.records.record import MeanRecord, PrivacyRecord
from beam_ldp.pipelines.records.shares_words import is_in_shares, words_in_shares
from beam_ldp.randomizers.estimate import readable
from beam_ldp.settings.sections import MAX_LOCAL_EPSILON, odds
from beam_ldp.wording import factor, many, number, promise, rounded_down, verb


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
        hidden_as, hide_flag: what `--bad-rows` makes of unusable rows, and its value for that; no
            value where nothing hides them.
        intervals: what they hold for.
        notes: further lines on how.
        weak: a paragraph below the prices, where one of them needs it.
        person, person_briefly: who counts as a person, where it is not whose row was drawn.
        readers: who sees values beside the device, where it is not whoever reads the input.
        refused: what is public of what could not be used, where that is not rows.
        noise: where it came from, where it was not drawn in this run.
        first: a paragraph before everything else, where people must know of something at once.
        actors: who sees what, bullets, where it is not device, shuffler and collector.
        outside: what readers of the result see.
        promised: which epsilon the law of the mechanism satisfies.
        unit: of means, where it is not that of the data.
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
    first: str = ""
    actors: str = ""
    outside: str = "what left the shuffler"
    promised: str = "the local epsilon"
    unit: str = ""


@singledispatch
def words_of(record: PrivacyRecord) -> Words:
    """The words for one report per person about a public list; others start from them."""
    return Words(
        whole="a person's report",
        whole_briefly="a report",
        itself="the report itself",
        crowd=f"{record.honest_reports:,} reports that hide each other",
        shuffler="The shuffler**, that is the workers of the runner, sees each randomized report "
        "and whose it is. Against it, a person is protected by the local epsilon alone.",
        left=_left(record),
        credit="Against them the central epsilon holds, if the shuffler does its job and does not "
        "collude.",
        counted=_counted(record),
        public="the list of values, the mechanism and its parameters",
        hidden_as="`other`",
        hide_flag="other",
        intervals="for each value by itself in the files, for all values at once in the list of "
        "the most frequent ones, because that list was chosen by the estimates",
    )


def _left(record: PrivacyRecord) -> str:
    if record.output == "statistic":
        return (
            "Only sums left the shuffler: no individual report did. A sum does not depend on the "
            "order of the reports, so it reveals no more than the shuffled reports would."
        )
    return "A shuffled batch of individual reports left the shuffler, permuted " + _together(record)


def _together(record: PrivacyRecord) -> str:
    if record.scope == "global":
        return "all together."
    return (
        f"in batches, each a crowd of its own; the smallest one, {record.smallest_batch:,} "
        "reports, determines the privacy cost."
    )


def _received(record: PrivacyRecord) -> str:
    came = record.num_reports
    return f"{many(came, 'report')} {verb(came, 'was', 'were')} received"


def _counted(record: PrivacyRecord) -> str:
    batches = " in every batch" if record.smallest_batch < record.num_reports else ""
    return (
        f"{_received(record)}; {100 * record.honest_fraction:g} % of "
        f"them{batches} are declared honest (`--honest-fraction`), since fake reports hide nobody. "
        f"The privacy cost counts {record.honest_reports:,}"
    )


@words_of.register
def _mean(record: MeanRecord) -> Words:
    """Vectors of numbers; one message or several per person, or no trust in a shuffler at all."""
    words = replace(
        words_of.dispatch(PrivacyRecord)(record),
        public=f"the names of {many(record.dimension, 'coordinate')}, the bounds on the values, "
        "the mechanism and its parameters, including random rotations and codebooks",
        hidden_as="the zero vector" if not record.in_ranges else "the middle of all ranges",
        hide_flag="zero",
        intervals="for each coordinate by itself in the files, for all coordinates at once in the "
        "table and in the plot. Errors are " + _error_bars(record) + _draw(record) + _bias(record),
        notes=(f"values: {record.values}", _outside(record)),
        unit="(half ranges, Euclidean length)" if record.in_ranges else "",
    )
    if is_in_shares(record):
        told = words_in_shares(record, _together(record))
        return replace(words, **told | {"notes": words.notes + told["notes"]})
    if record.messages_per_user > 1:
        words = with_messages(words, record)
    return _without_shuffler(words, record) if record.model == "local" else words


def _error_bars(record: MeanRecord) -> str:
    if record.error_bars == "measured":
        return "measured: those of the reports that came"
    return "those of the values that are worst for the mechanism"


def _draw(record: MeanRecord) -> str:
    if record.sampling == "iid":
        return ", including the drawing of one row per person"
    if record.user_id is not None:
        return ", and assume that every person has one row (`--one-row-each`)"
    return ""


def _bias(record: MeanRecord) -> str:
    if record.expected_bias:
        return (
            ", and intervals allow for the mechanism's truncation, which shifts a coordinate by at "
            f"most {readable(record.expected_bias)}, on average over the public rotation"
        )
    if record.bias_bound == 0:
        return ""
    most = readable(record.bias_bound)
    return f", and intervals are widened by {most} for the mechanism's truncation"


def _outside(record: MeanRecord) -> str:
    if record.outside == "raise":
        return "a value outside those bounds would have stopped the run"
    return (
        "a value outside those bounds was clipped to them on the device. How often is not counted, "
        "and no interval covers the bias of the mean that results"
    )


def with_messages(words: Words, record: Any) -> Words:
    """What is said differently where people send several messages each."""
    count = f"{record.messages_per_user:,}"
    each = (
        "" if record.message_epsilon is None
        else f", {readable(record.message_epsilon)} each at most"
    )  # fmt: skip
    weak = ""
    if record.local_epsilon is not None and record.local_epsilon > MAX_LOCAL_EPSILON:
        weak = (
            f"**Before the shuffle there is almost no protection.** A person sends {count} "
            f"messages, and the local epsilon is the sum of their budgets{each}: a reader who sees "
            "all messages of a person, and whose they are, learns the values almost surely. All "
            "protection rests on the shuffling."
        )
    left = (
        "Only sums over all people left the shufflers: no individual message did. A sum does not "
        "depend on the order of the messages, so it reveals no more than the shuffled columns "
        "would."
        if record.output == "statistic"
        else "Individual messages left the shufflers, each column permuted independently, so that "
        f"nothing links the messages of a person, {_together(record)}"
    )
    return replace(
        words,
        whole="all messages of a person",
        whole_briefly="all messages of a person",
        itself="all messages of a person",
        shuffler=f"The shufflers**, one for each of the {count} message columns, see the "
        "randomized messages and whose they are. Here all of them are the workers of one runner, "
        "which therefore sees all messages of a person: against it, only the local epsilon "
        "protects.",
        left=left,
        credit="Against them the central epsilon holds, if every column is permuted independently "
        "and no shuffler colludes.",
        weak=weak,
    )


def _without_shuffler(words: Words, record: PrivacyRecord) -> Words:
    return replace(
        words,
        crowd="every person on their own: shuffling is given no credit",
        credit="Only the device is trusted (`--model local`): here, too, the local epsilon is the "
        "guarantee.",
        counted=f"{_received(record)}. The privacy cost does not depend "
        "on how many there are, nor on whether they are honest: no shuffler is trusted",
        weak="",
    )


_RECOVERABLE = (
    "* **single values can be read later by the holder of the release's key:** with it, and with "
    "the stored report, `beam-ldp recover` reads the value of a person who consented. Against that "
    "holder there is no epsilon, and whether somebody consented is the holder's word. Against "
    "everybody else the epsilons above hold as long as AES is not broken; who sees a stored report "
    "is held to the local one"
)

_EXACTNESS = {
    "exact": "exact: the law of the implemented mechanism satisfies {}",
    "real-arithmetic": "private in exact real arithmetic only (`exactness=real-arithmetic`)",
    "computational": "private against readers who cannot break AES (`exactness=computational`)",
}


def privacy_statement(record: PrivacyRecord) -> str:
    """Markdown, for people who decide whether a release is acceptable."""
    sections = [f"# Privacy statement: {_code(record.question)} of {_code(record.dataset)}"]
    if record.simulated:
        sections.append(_simulated())
    else:
        words = words_of(record)
        sections += [words.first] if words.first else []
        if record.local_epsilon != math.inf:  # else it has been said
            sections += trusted_alone(record, record.local_epsilon, words.itself)
        sections += [_in_short(record), _who(record)]
    sections += [_what_is_public(record), _how(record)]
    if not record.simulated:
        sections.append(_rests_on(record))
    if record.warnings:
        sections.append("## Warnings\n\n" + "\n".join(f"* {w}" for w in record.warnings))
    made = f"Written {record.created} by beam-ldp {record.version}." if record.created else ""
    return "\n\n".join([*sections, made]).rstrip() + "\n"


def trusted_alone(
    record: PrivacyRecord, local: float | None, seen: str, who: str = "the shuffler"
) -> list[str]:
    """What a statement begins with where only the shuffler protects people.

    Args:
        record: of the release.
        local: local epsilon of what a person sends in it.
        seen: what a person sends.
        who: to whom.
    """
    if not record.trust_shuffler or local is None or local <= MAX_LOCAL_EPSILON:
        return []
    return [
        f"**Only {who} protects these people: it was declared that it may be trusted "
        f"(`--trust-shuffler`).** The local epsilon is {number(local)}: whoever sees {seen}, as "
        f"{who} does, can tell two values apart at odds of {odds(local)}."
    ]


def _simulated() -> str:
    return (
        "**No privacy guarantee: this is a simulation.** The noise was drawn with a seed and can "
        "be recomputed by anybody who knows it. There is no epsilon for this release, local or "
        "central. Never run real people's data with a seed."
    )


def _recoverable(record: PrivacyRecord) -> bool:
    return record.mechanism.get("mechanism") == "RecoverableResponse"


def _computing(record: PrivacyRecord, usual: str) -> str:
    return "but the key, and no break of AES" if _recoverable(record) else usual


def _in_short(record: PrivacyRecord) -> str:
    words = words_of(record)
    lower, class_lower = record.epsilon_lower, record.epsilon_class_lower
    bounded = record.exactness == "computational"
    computing = "any computing that does not break AES" if bounded else "any amount of computing"
    knowing = f"any other knowledge, {_computing(record, computing)}"
    if record.local_epsilon == math.inf:
        knowing = "nobody: there is no protection"
    rows = [
        "| against whom | privacy cost | holds for |",
        "|---|---|---|",
        f"| everybody who sees {words.whole} | local epsilon = {promise(record.local_epsilon)} "
        f"| {knowing} |",
        f"| everybody who sees only {words.outside} | epsilon = {number(record.epsilon)} "
        f"at delta = {record.delta:g} | {words.crowd} |",
    ]
    below = []
    if lower is not None:
        below.append(
            f"No analysis of this mechanism can prove less than {rounded_down(lower)} (there are "
            "two datasets that differ by that much)."
        )
    if class_lower is not None:
        below.append(
            "No analysis that knows nothing but the local epsilon can prove less than "
            f"{rounded_down(class_lower)}."
        )
    how = {
        "proved": "The bound is proved for this mechanism.",
        "conjectured": "**The bound is conjectured, not proved.**",
    }.get(record.proof_status, f"Status of the bound: {record.proof_status}.")
    text = f"Method: {record.method}. {how} {' '.join(below)}".rstrip()
    weak = f"\n\n{words.weak}" if words.weak else ""
    return "## In short\n\n" + "\n".join(rows) + weak + f"\n\n{text}\n\n{checkable(record)}"


def checkable(record: PrivacyRecord) -> str:
    """Whether somebody else's program can confirm the cost against readers of the output."""
    certificate = record.certificate
    if certificate["kind"] == "none":
        return f"**Not independently checkable**: {certificate['why']}."
    return (
        "Independently checkable: `privacy.json` has a certificate, from which "
        "`python -m beam_ldp.verifier.verify privacy.json` confirms epsilon at this delta without "
        "the accountant that computed it."
    )


def _who(record: PrivacyRecord) -> str:
    person = (
        f"Rows with the same value in the column {_code(record.user_id)} belong to one person; one "
        "of them was drawn, and the others were not used."
        if record.user_id is not None
        else "**Every row is counted as a person.** "
        + (
            "This was declared by `--one-row-per-person`, and not checked: "
            if record.one_row_per_person
            else "No column of user ids was given, so "
        )
        + "somebody with several rows is protected for each of them separately, at this privacy "
        "cost per row."
    )
    words = words_of(record)
    return "\n\n".join(
        [
            "## Who is protected, and against whom",
            f"{words.person or person} What is protected is the *value* that a person holds: "
            "replacing it by any other changes the probability of anything that is seen by at most "
            "what the stated epsilon allows (replace-one). **That a person took part is not "
            "protected.**",
            words.actors
            or "* **The device** (or the trusted edge that runs `Randomize`) sees the value "
            f"itself. {words.readers}\n"
            f"* **{words.shuffler}\n"
            f"* **The collector**, and everybody who reads the result. {words.left} {words.credit}",
            "Epsilon bounds how well anybody can tell one value from another: the odds change by "
            f"at most a factor of e^epsilon, {factor(record.epsilon)} here (but for a probability "
            f"of delta = {record.delta:g}), and e^(local epsilon), {factor(record.local_epsilon)}, "
            f"for somebody who sees {words.itself}.",
        ]
    )


def _what_is_public(record: PrivacyRecord) -> str:
    words = words_of(record)
    lines = [
        f"* {words.public} (public input, never derived from the data);",
        f"* the number of reports: {record.num_reports:,};",
    ]
    if words.refused:
        lines.append(f"* {words.refused};")
    elif record.bad_rows == words.hide_flag:
        lines.append(
            "* of rows without a user id, that they were rejected. Other rows that could not be "
            f"used were reported as {words.hidden_as}, without a trace;"
        )
    else:
        hides = f" (`--bad-rows {words.hide_flag}` hides that)" if words.hide_flag else ""
        lines.append(
            f"* that rows were bad, and how many: {many(record.num_bad_rows or 0, 'row')}{hides};"
        )
    lines.append("* that a person took part.")
    return "## What is public\n\n" + "\n".join(lines)


def _how(record: PrivacyRecord) -> str:
    sent = record.bits_per_report
    bits = "" if sent is None else f", {many(sent, 'bit')} per report"
    lines = [f"* mechanism: {_mechanism(record.mechanism, bits)}"]
    if ":" in str(record.mechanism.get("mechanism", "")):
        lines.append(
            "* it does not come with beam-ldp: that it spends no more than its budget, and how "
            "well its reports hide each other, rests on the word of its author"
        )
    if record.simulated:
        lines.append("* its `local_epsilon` is the level of the noise here, not a promise")
    if not record.simulated:
        lines.append(f"* {_EXACTNESS[record.exactness].format(words_of(record).promised)}")
        lines.append((words_of(record).noise or _noise(record)) + _again(record))
        if _recoverable(record):
            lines.append(_RECOVERABLE)
    lines.append(f"* nothing would have been released below {many(record.min_reports, 'report')}")
    words = words_of(record)
    lines += [f"* intervals: 95 %, {words.intervals}"]
    if forged := forged_said(mechanism_of(record.mechanism), unit=words.unit):
        lines.append(f"* no interval covers people who send what they like: {forged}")
    if record.postprocess != "none":
        lines.append(
            f"* the frequencies shown were post-processed, {_POSTPROCESS[record.postprocess]}, "
            "which costs no privacy and biases them. Intervals and standard errors are those of "
            "the raw estimate, which stands in the columns `count_raw` and `frequency_raw`"
        )
    lines += [f"* {note}" for note in words.notes]
    return "## How\n\n" + "\n".join(lines)


_POSTPROCESS = {
    "clip": "each cut to [0, 1] (`clip`)",
    "norm-sub": "all shifted by one number and cut at zero, so that they sum to one (`norm-sub`)",
}


def _mechanism(config: Mapping[str, Any], more: str = "") -> str:
    """A mechanism with its parameters; those of its rounds likewise, where it has rounds; what is
    told level by level stands elsewhere."""
    parameters = ", ".join(
        f"{name}: {_mechanism(value)}" if isinstance(value, Mapping) else f"{name} = {value}"
        for name, value in config.items()
        if name not in ("mechanism", "version", "protocol", "levels") and value is not None
    )
    return f"{config.get('mechanism', '')} ({parameters}{more})".lstrip()


def _again(record: PrivacyRecord) -> str:
    """What is said of a publication of the same reports that is not the first."""
    if record.publication == 1:
        return ""
    declared = "nobody's value changed in between, as keyed hashes show"
    if getattr(record, "readers", ()) or not record.memoized:
        declared = "they are the same envelopes, as a digest of them shows"
    if record.frozen_values:
        declared = "that nobody's value changed in between was **declared, not checked**"
    return (
        f". **The same reports were published before, this is number {record.publication}:** the "
        "privacy costs above are for all publications together, against a reader of all of them; "
        f"{declared}"
    )


def _noise(record: PrivacyRecord) -> str:
    if record.memoized:
        return (
            "* noise: a function of a secret key, the user, the value and the release "
            f"{_code(record.release_id)}. A retry repeats a report; a value that changes within "
            "the release is revealed as a change; whoever holds the key can undo every report. "
            "Destroy it when this release is settled, and never reuse its name"
        )
    return (
        "* noise: fresh from the operating system's generator. If the engine repeated work, the "
        "shuffler saw a second report of the people concerned, which costs their local epsilon "
        "once more there"
    )


def _charged(record: PrivacyRecord) -> str:
    if record.run_id is None:
        why = record.charged.removeprefix("no: ")
        return (
            f"this release alone, **which was not charged to any budget** ({why}): several "
            "releases about the same people add up"
        )
    return (
        f"this release alone. It was charged to the budget of {_code(record.dataset)} as run "
        f"{_code(record.run_id)}; the ledger {record.ledger_id} holds the total cost of all "
        "releases about the same people"
    )


def _rests_on(record: PrivacyRecord) -> str:
    lines = [
        words_of(record).counted,
        _charged(record),
    ]
    if record.expected_users is not None:
        target = (
            f" for a target of epsilon = {record.target_epsilon:g}"
            if record.target_epsilon is not None
            else ""
        )
        lines.append(f"{record.expected_users:,} reports were expected{target}")
    lines.append("one window with all of the input: nothing was released more than once")
    return "## What the privacy cost rests on\n\n" + "\n".join(f"* {line}" for line in lines)


def _code(text: str | None) -> str:
    """A name between backquotes, on one line."""
    clean = "".join(c if c.isprintable() and c != "`" else " " for c in str(text))
    return f"`{clean}`"
