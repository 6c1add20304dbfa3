"""What `beam-ldp heavy-hitters` takes, and its help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from beam_ldp.questions.heavy_hitters import WordQuestion
from beam_ldp.settings.fields import SWITCH, setting
from beam_ldp.settings.sections import (
    Charge,
    Noise,
    Output,
    People,
    Privacy,
    Shuffling,
    Source,
)
from beam_ldp.settings.usage import DATA, MECHANISM, OUTPUT, PRIVACY, RELEASE, Part, Usage


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
    Part("people", People, DATA, own=_PEOPLE),
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
