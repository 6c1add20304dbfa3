"""What `beam-ldp heavy-hitters` takes, and its help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from beam_ldp.settings.fields import NUMBER, SWITCH, WHOLE, SettingError, setting
from beam_ldp.settings.sections import (
    DEAD_LETTER,
    Charge,
    Noise,
    Output,
    People,
    Privacy,
    Shuffling,
    Source,
)
from beam_ldp.settings.usage import DATA, MECHANISM, OUTPUT, PRIVACY, RELEASE, Part, Usage

MOST_BYTES, MOST_BITS = 256, 4096  # of a word, and of its code


@dataclass(frozen=True, kw_only=True)
class WordQuestion:
    """Which words do many people hold, of a column of text that nobody listed?"""

    column: tuple[str, ...] = setting(
        (), "column with the word (not for text input, where each line is one)",
        flag="column", metavar="NAME", many=True, basic=True,
    )  # fmt: skip
    max_bytes: int = setting(
        32,
        "longest word that can be found, in bytes of UTF-8 (default 32); people with a longer "
        "one take part, and it is never found",
        WHOLE, flag="max-bytes", metavar="N", basic=True,
    )  # fmt: skip
    code_bits: int = setting(
        64,
        "longest code of a word that can be found, in bits (default 64: nearly all words of a "
        "language in Latin script; addresses take 128 or more, other scripts 6 to 11 a byte); "
        "the fewer, the rarer words are found",
        WHOLE, flag="code-bits", metavar="BITS",
    )  # fmt: skip
    false_words: float = setting(
        1.0,
        "words that may be released, on average, though hardly anybody holds them (default 1); "
        "with more, rarer words are found",
        NUMBER, flag="false-words", metavar="K",
    )  # fmt: skip
    failure_probability: float = setting(
        0.05,
        "probability that a word as frequent as the plan says is missed (default 0.05)",
        NUMBER, flag="failure-probability", metavar="P",
    )  # fmt: skip
    assignment: Literal["secret", "visible"] = setting(
        "secret",
        "who learns at which level a person answers: nobody, for the level travels inside the "
        "report (secret), or whoever shuffles (visible); the privacy cost is much smaller where "
        "nobody does",
        flag="assignment", choices=("secret", "visible"),
    )  # fmt: skip
    bad_rows: str = setting(
        DEAD_LETTER,
        "what happens to rows that cannot be used: they are listed in bad_rows.jsonl, or reported "
        "as a word that is not found, without a trace",
        flag="bad-rows", choices=(DEAD_LETTER, "other"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        if not 1 <= self.max_bytes <= MOST_BYTES:
            raise SettingError(
                f"{{question.max_bytes}} must lie in [1, {MOST_BYTES}], got {self.max_bytes}"
            )
        if not 1 <= self.code_bits <= MOST_BITS:
            raise SettingError(
                f"{{question.code_bits}} must lie in [1, {MOST_BITS}], got {self.code_bits}"
            )
        if not self.false_words > 0:
            raise SettingError(f"{{question.false_words}} must be > 0, got {self.false_words:g}")
        if not 0 < self.failure_probability < 1:
            raise SettingError(
                "{question.failure_probability} must lie in (0, 1), got "
                f"{self.failure_probability:g}"
            )


@dataclass(frozen=True, kw_only=True)
class PublishedSearch:
    """Whether devices answer, level by level."""

    publish: bool = setting(
        False,
        "read no rows: write release.json, the question of the first level, for devices to answer "
        "(`beam-ldp randomize --release`); `beam-ldp collect` makes the next one of their reports",
        SWITCH, flag="publish",
    )  # fmt: skip


_PEOPLE: dict[str, dict[str, Any]] = {
    "id": {"help": "column with the user id: one row per person is drawn at random; without it "
           "every row counts as a person"},
}  # fmt: skip
PARTS = (
    Part("source", Source, DATA),
    Part("question", WordQuestion, DATA),
    Part("people", People, DATA, without=("group_by", "groups"), own=_PEOPLE),
    Part(
        "privacy", Privacy, PRIVACY,
        without=("epsilon", "allow_over_target", "model"),
    ),
    Part("shuffle", Shuffling, MECHANISM, only=("min_reports",)),
    Part("release", Noise, RELEASE),
    Part("release", Charge, RELEASE),
    Part("output", Output, OUTPUT),
    Part("output", PublishedSearch, OUTPUT),
)  # fmt: skip

EXAMPLES = """examples:
  which words would be found, at what privacy cost (reads no rows)
    beam-ldp heavy-hitters --input words.parquet --column word --user-id uid \\
        --local-epsilon 6 --delta 1e-8 --expected-users 1e7 --output found --dry-run
  the words that many people hold, with how many
    beam-ldp heavy-hitters --input words.parquet --column word --user-id uid --max-bytes 32 \\
        --local-epsilon 6 --delta 1e-8 --expected-users 1e7 --output found
  the same, charged to a budget; and again without a second report of anybody
    beam-ldp heavy-hitters ... --dataset telemetry --ledger sqlite:///privacy.db \\
        --release-id week-47 --memoize-key-file key
  words that devices hold: the first question for them (then `randomize --release`, `collect`)
    beam-ldp heavy-hitters --publish --column word --user-id uid --local-epsilon 6 --delta 1e-8 \\
        --expected-users 1e7 --dataset telemetry --release-id week-47 --output level-1
"""

USAGE = Usage(
    name="heavy-hitters",
    module="beam_ldp.pipelines.heavy_hitters",
    summary="Which words do many people hold, where nobody can list them in advance: addresses, "
    "names of programs, queries. Each person answers one level: whether the beginning of the own "
    "word is among those that others hold, level by level longer. What comes out are whole words "
    "with how many people hold them, honest error bars and a stated privacy cost.",
    synopsis="--input PATH --column NAME --local-epsilon EPS0 --delta D --expected-users N "
    "--output DIR [...]",
    examples=EXAMPLES,
    parts=PARTS,
    question="heavy_hitters",
)
