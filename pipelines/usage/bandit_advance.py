"""What `beam-ldp bandit advance` takes, and its help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from beam_ldp.pipelines.usage import DATA, OUTPUT, RELEASE, Part, Usage
from beam_ldp.settings.fields import SECONDS, SWITCH, SettingError, setting
from beam_ldp.settings.sections import (
    DEAD_LETTER,
    Charge,
    Noise,
    Output,
    People,
    Source,
)


@dataclass(frozen=True, kw_only=True)
class RewardQuestion:
    """What is the reward of each play of the open batch?"""

    reward: str = setting(
        "reward", "column with the reward, from -1 to 1 (default reward)", flag="reward",
        metavar="NAME",
    )  # fmt: skip
    state: str = setting(
        "", "folder of the service, as `beam-ldp bandit start` made it", flag="state",
        metavar="DIR", basic=True,
    )  # fmt: skip

    @property
    def column(self) -> tuple[str, ...]:
        """The columns that hold what is asked."""
        return (self.reward,)

    @property
    def told_once(self) -> bool:
        """Whether reports of other people are never told under the same name."""
        return True

    @property
    def bad_rows(self) -> str:
        """Rows that cannot be used are listed: no value stands for a reward."""
        return DEAD_LETTER


@dataclass(frozen=True, kw_only=True)
class RewardStream:
    """Rewards that keep arriving: which batch is open, their plays say."""

    on: bool = setting(
        False,
        "files keep arriving in {source.paths}: decide one batch after another, each when all of "
        "its slots have their rewards, until the winner is named, or Ctrl-C",
        SWITCH, flag="stream",
    )  # fmt: skip
    stop_after: float | None = setting(
        None, "with {stream.on}: stop after this time, as with Ctrl-C", SECONDS, flag="stop-after",
        metavar="TIME",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if self.stop_after is not None and not self.on:
            raise SettingError("{stream.stop_after} needs {stream.on}")


PLAY: dict[str, dict[str, Any]] = {
    "group_by": {
        "flag": "play", "basic": False,
        "help": "column with the play, as the batch's slots name it: 2:blue (default play)",
    },
}  # fmt: skip
REWARDS: dict[str, dict[str, Any]] = {
    "paths": {
        "flag": "rewards",
        "help": "rewards of the open batch, a row for each visitor: files, folders or globs, on "
        "any file system that Beam knows; may be repeated",
    },
}  # fmt: skip
OF_BATCH: dict[str, dict[str, Any]] = {
    "bad_rows_file": {
        "help": "where rows that cannot be used are listed; keep this file private (default: "
        "STATE.private/batch-N.bad_rows.jsonl)"
    },
}  # fmt: skip
PARTS = (
    Part("source", Source, DATA, own=REWARDS),
    Part("question", RewardQuestion, DATA),
    Part("people", People, DATA, without=("groups",), own=PLAY),
    Part("stream", RewardStream, DATA),
    Part("release", Noise, RELEASE, without=("id", "dataset", "seed")),
    Part("release", Charge, RELEASE, without=("run_id",)),
    Part("output", Output, OUTPUT, without=("folder", "overwrite", "top"), own=OF_BATCH),
)  # fmt: skip

EXAMPLES = """examples:
  what the batch would cost (reads no rows), then its decision
    beam-ldp bandit advance --state service --rewards batch1.parquet --user-id uid --dry-run
    beam-ldp bandit advance --state service --rewards batch1.parquet --user-id uid
  charged to a budget of these people, which is asked before anything is read
    beam-ldp bandit advance --state service --rewards batch1.parquet --user-id uid \\
        --ledger sqlite:///privacy.db
  batch after batch, from files that keep arriving
    beam-ldp bandit advance --state service --rewards inbox --user-id uid --stream
"""

USAGE = Usage(
    name="bandit advance",
    module="beam_ldp.pipelines.bandit_advance",
    asks=("",),
    summary="Decide the open batch of a service: each person's reward becomes one random bit, only "
    "sums of bits of each play are kept, actions that cannot be best are dropped, and the next "
    "batch is written, or the winner. Where the server is trusted, rewards are summed, and noise "
    "is added to each sum. A batch decides once; its own rewards given again change nothing.",
    synopsis="--state DIR --rewards PATH [...]",
    examples=EXAMPLES,
    parts=PARTS,
)
