"""The privacy statement: who is protected, against whom, and on what that rests, in plain words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from beam_ldp.pipelines.records.record import PrivacyRecord
from beam_ldp.pipelines.records.statement_words import words_of

_EXACTNESS = {
    "exact": "exact: the law of the implemented mechanism satisfies the local epsilon",
    "real-arithmetic": "private in exact real arithmetic only (`exactness=real-arithmetic`)",
    "computational": "private against readers who cannot break AES (`exactness=computational`)",
}


def privacy_statement(record: PrivacyRecord) -> str:
    """Markdown, for people who decide whether a release is acceptable."""
    sections = [f"# Privacy statement: {_code(record.question)} of {_code(record.dataset)}"]
    if record.simulated:
        sections.append(_simulated())
    else:
        sections += [_in_short(record), _who(record)]
    sections += [_what_is_public(record), _how(record)]
    if not record.simulated:
        sections.append(_rests_on(record))
    if record.warnings:
        sections.append("## Warnings\n\n" + "\n".join(f"* {w}" for w in record.warnings))
    made = f"Written {record.created} by beam-ldp {record.version}." if record.created else ""
    return "\n\n".join([*sections, made]).rstrip() + "\n"


def _simulated() -> str:
    return (
        "**No privacy guarantee: this is a simulation.** The noise was drawn with a seed and can "
        "be recomputed by anybody who knows it. There is no epsilon for this release, local or "
        "central. Never run real people's data with a seed."
    )


def number(value: float | None) -> str:
    """Four significant digits, rounded up: a price that is printed is never below the real one."""
    if value is None:
        return "none"
    if not math.isfinite(value):
        return "unbounded"
    if value == 0:
        return "0"
    digits = 3 - math.floor(math.log10(abs(value)))
    scaled = math.ceil(round(value * 10.0**digits, 6)) / 10.0**digits
    return f"{scaled:.{max(digits, 0)}f}".rstrip("0").rstrip(".") if digits > 0 else f"{scaled:.0f}"


def rounded_down(value: float | None) -> str:
    """Four significant digits, rounded down: for lower bounds."""
    if value is None or not math.isfinite(value) or value == 0:
        return number(value)
    digits = 3 - math.floor(math.log10(abs(value)))
    scaled = math.floor(round(value * 10.0**digits, 6)) / 10.0**digits
    return f"{scaled:.{max(digits, 0)}f}".rstrip("0").rstrip(".") if digits > 0 else f"{scaled:.0f}"


def _in_short(record: PrivacyRecord) -> str:
    words = words_of(record)
    lower, class_lower = record.epsilon_lower, record.epsilon_class_lower
    rows = [
        "| against whom | price | holds for |",
        "|---|---|---|",
        f"| everybody who sees {words.whole} | local epsilon = {number(record.local_epsilon)} "
        "| any other knowledge, any amount of computing |",
        f"| everybody who sees only what left the shuffler | epsilon = {number(record.epsilon)} "
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
    return "## In short\n\n" + "\n".join(rows) + weak + f"\n\n{text}"


def _who(record: PrivacyRecord) -> str:
    person = (
        f"A person is whoever has one value in the column {_code(record.user_id)}; one of their "
        "rows was drawn and the others were not used."
        if record.user_id is not None
        else "**Each row is taken for a person.** "
        + (
            "`--one-row-per-person` declares it and nothing checked it: "
            if record.one_row_per_person
            else "No user id was named, so "
        )
        + "somebody with several rows is protected for each of them separately and pays the price "
        "once per row."
    )
    words = words_of(record)
    return "\n\n".join(
        [
            "## Who is protected, and against whom",
            f"{words.person or person} What is protected is the *value* that a person holds: "
            "replacing it by any other changes the probability of anything that is seen by at most "
            "the stated price (replace-one). **That a person took part is not protected.**",
            "* **The device** (or the trusted edge that runs `Randomize`) sees the value itself. "
            f"{words.readers}\n"
            f"* **{words.shuffler}\n"
            f"* **The collector**, and everybody who reads the result. {words.left} {words.credit}",
            "Epsilon bounds how much better anybody can tell one value from another: their odds "
            f"change at most by a factor of e^epsilon, {_odds(record.epsilon)} here (but for a "
            f"probability of delta = {record.delta:g}), and e^(local epsilon), "
            f"{_odds(record.local_epsilon)}, for somebody who sees {words.itself}.",
        ]
    )


def _odds(epsilon: float | None) -> str:
    return "without bound" if epsilon is None or epsilon > 700 else f"{math.exp(epsilon):,.3g}"


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
            f"used were reported as {words.hidden_as} and left no trace;"
        )
    else:
        lines.append(
            f"* that rows were bad, and how many: {record.num_bad_rows or 0:,} rows "
            f"(`--bad-rows {words.hide_flag}` hides that);"
        )
    lines.append("* that a person took part.")
    return "## What is public\n\n" + "\n".join(lines)


def _how(record: PrivacyRecord) -> str:
    bits = "" if record.bits_per_report is None else f", {record.bits_per_report} bits per report"
    lines = [f"* mechanism: {_mechanism(record.mechanism, bits)}"]
    if ":" in str(record.mechanism.get("mechanism", "")):
        lines.append(
            "* it does not come with beam-ldp: that it spends no more than its budget, and how "
            "well its reports hide each other, is its author's word"
        )
    if record.simulated:
        lines.append("* its `local_epsilon` is the level of the noise here, not a promise")
    if not record.simulated:
        lines.append(f"* {_EXACTNESS[record.exactness]}")
        lines.append((words_of(record).noise or _noise(record)) + _again(record))
    lines.append(f"* nothing would have been released below {record.min_reports:,} reports")
    words = words_of(record)
    lines += [f"* intervals: 95 %, {words.intervals}", *(f"* {note}" for note in words.notes)]
    return "## How\n\n" + "\n".join(lines)


def _mechanism(config: Mapping[str, Any], more: str = "") -> str:
    """A mechanism with its parameters; those of its rounds likewise, where it has rounds."""
    parameters = ", ".join(
        f"{name}: {_mechanism(value)}" if isinstance(value, Mapping) else f"{name} = {value}"
        for name, value in config.items()
        if name not in ("mechanism", "version") and value is not None
    )
    return f"{config.get('mechanism', '?')} ({parameters}{more})"


def _again(record: PrivacyRecord) -> str:
    """What is said of a publication of the same reports that is not the first."""
    if record.publication == 1:
        return ""
    declared = "nobody's value changed in between: their keyed hashes show it"
    if record.frozen_values:
        declared = "that nobody's value changed in between was **declared, not checked**"
    return (
        f". **The same reports were published before, this is number {record.publication}:** the "
        f"prices above are those of all publications together, for whoever reads them all; "
        f"{declared}"
    )


def _noise(record: PrivacyRecord) -> str:
    if record.memoized:
        return (
            f"* noise: a function of a secret key, the user, the value and the release "
            f"{_code(record.release_id)}. A retry repeats a report; a value that changes inside "
            "the release is revealed as a change; whoever holds the key can undo every report. "
            "Destroy it when this release is settled, and never use its name again"
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
        f"{_code(record.run_id)}; the ledger {record.ledger_id} knows what all releases about the "
        "same people cost together"
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
    lines.append("one window, all of the input: nothing was released more than once")
    return "## What the price rests on\n\n" + "\n".join(f"* {line}" for line in lines)


def _code(text: str | None) -> str:
    """A name between backquotes, on one line."""
    clean = "".join(c if c.isprintable() and c != "`" else " " for c in str(text))
    return f"`{clean}`"
