"""The flags of `frequency --stream`, and what they come to."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from beam_ldp.pipelines.flags import Groups
from beam_ldp.pipelines.options import UsageError, parse_flags
from beam_ldp.pipelines.usage.stream import STREAM_FLAGS

_NOT_STREAMED = (
    "group_by", "groups", "bins", "quantiles", "between", "fan_out", "staged", "max_bad_rows",
    "bad_rows_file", "people_store",
)  # fmt: skip


@dataclass(frozen=True)
class StreamSettings:
    """The flags, checked. Attributes: as the flags of the same names, in seconds."""

    time_column: str
    window: float | None
    slide: float | None
    session_gap: float | None
    public_bounds: bool
    allowed_lateness: float
    late: str
    watermark_delay: float
    budget_windows: int
    stop_after: float | None

    @property
    def period(self) -> float | None:
        """Length of what is released: a window, or a pane of it; None for sessions."""
        return self.window if self.slide is None else self.slide

    @property
    def poll(self) -> float:
        """Seconds between two looks at the folder; Flink's checkpoints grow with every one."""
        return min(60.0, max(0.5, (self.period or self.session_gap or 10.0) / 10))


def check_stream(values: argparse.Namespace) -> StreamSettings:
    """The flags of a stream, with every rule checked.

    Raises:
        UsageError: naming the flag and what is allowed.
    """
    if values.time_column is None:
        raise UsageError("--time-column is missing: which column holds the event time?")
    if (values.window is None) == (values.session_gap is None):
        raise UsageError("give one of --window and --session-gap")
    if values.session_gap is not None:
        if not values.public_bounds:
            raise UsageError(
                "--session-gap needs --public-bounds: a session begins and ends at the time of a "
                "single row, so its bounds reveal when somebody sent something"
            )
        if values.user_id is not None:
            raise UsageError(
                "--session-gap and --user-id exclude each other: see docs/streaming.md"
            )
    for name in ("window", "slide", "session_gap"):
        if getattr(values, name) is not None and getattr(values, name) < 0.001:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1ms")
    if values.slide is not None:
        if values.window is None:
            raise UsageError("--slide needs --window")
        if round(values.window * 1e6) % round(values.slide * 1e6) or values.slide > values.window:
            raise UsageError("--window must be a multiple of --slide")
    if values.budget_windows is None or values.budget_windows < 1:
        raise UsageError(
            "--budget-windows must be >= 1: the number of releases to reserve budget for"
        )
    if values.input_format == "text":
        raise UsageError("--stream needs a format with columns, which text lacks")
    for name in _NOT_STREAMED:
        if getattr(values, name, None) is not None:
            raise UsageError(f"--{name.replace('_', '-')} cannot be used with --stream")
    if len(getattr(values, "column", None) or ()) > 1:
        raise UsageError(
            "--column must be given once with --stream: several questions need input that is "
            "complete (docs/streaming.md)"
        )
    if values.strict:
        raise UsageError(
            "--strict cannot be used with --stream, where --min-reports and the "
            "budget set the limits"
        )
    taken = StreamSettings.__dataclass_fields__
    return StreamSettings(**{name: getattr(values, name) for name in taken})


def refuse_without_stream(values: argparse.Namespace) -> None:
    """A UsageError for a flag that only a stream has."""
    if values.stream:
        return
    for name, how in STREAM_FLAGS.items():
        if getattr(values, name[2:].replace("-", "_")) != how.get("default"):
            raise UsageError(f"{name} needs --stream")


def is_stream(argv: Sequence[str], groups: Groups) -> bool:
    """Whether the flags, or their `--config`, ask for a stream. Wrong flags are said elsewhere."""
    try:
        return bool(parse_flags(argv, groups)[0].stream)
    except UsageError:
        return "--stream" in argv
