"""The flags of `frequency --stream`, and what they come to."""

from __future__ import annotations

from dataclasses import fields

from beam_ldp.pipelines.flags import Arguments, UsageError
from beam_ldp.pipelines.settings import section_from
from beam_ldp.pipelines.usage.frequency import USAGE
from beam_ldp.pipelines.usage.stream import STREAM, StreamSettings

_NOT_STREAMED = {
    "people": ("group_by", "groups"),
    "question": ("bins", "quantiles", "between", "fan_out", "staged"),
    "source": ("max_bad_rows",),
    "output": ("bad_rows_file",),
    "release": ("people_store",),
}


def check_stream(given: Arguments) -> StreamSettings:
    """What a stream was told, with the rules checked that hold for streams.

    Raises:
        UsageError: naming the flag and what is allowed.
    """
    stream: StreamSettings = section_from(given, USAGE, "stream", StreamSettings)
    _check_windows(stream, given["people"].get("id"))
    if (given["release"].get("windows") or 0) < 1:
        raise UsageError(
            "--budget-windows must be >= 1: the number of releases to reserve budget for"
        )
    if given["source"].get("format") == "text":
        raise UsageError("--stream needs a format with columns, which text has not")
    for home, names in _NOT_STREAMED.items():
        for name in names:
            if name in given[home]:
                flag = USAGE.flag_of(f"{home}.{name}")
                raise UsageError(f"{flag} cannot be used with --stream")
    if len(given["question"].get("column", ())) > 1:
        raise UsageError(
            "--column must be given once with --stream: several questions need input that is "
            "complete (docs/streaming.md)"
        )
    if given["privacy"].get("strict"):
        raise UsageError(
            "--strict cannot be used with --stream, where --min-reports and the budget are the "
            "limits"
        )
    return stream


def _check_windows(stream: StreamSettings, user_id: str | None) -> None:
    if not stream.time_column:
        raise UsageError("--time-column is missing: which column holds the event time?")
    if (stream.window is None) == (stream.session_gap is None):
        raise UsageError("give one of --window and --session-gap")
    if stream.session_gap is not None:
        if not stream.public_bounds:
            raise UsageError(
                "--session-gap needs --public-bounds: a session begins and ends at the time "
                "of a single row, so its bounds reveal when somebody sent something"
            )
        if user_id is not None:
            raise UsageError(
                "--session-gap and --user-id exclude each other: see docs/streaming.md"
            )
    for name in ("window", "slide", "session_gap"):
        length = getattr(stream, name)
        if length is not None and length < 0.001:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1ms")
    if stream.slide is not None:
        if stream.window is None:
            raise UsageError("--slide needs --window")
        if round(stream.window * 1e6) % round(stream.slide * 1e6) or stream.slide > stream.window:
            raise UsageError("--window must be a multiple of --slide")


def refuse_without_stream(given: Arguments) -> None:
    """A UsageError for a flag that only a stream has."""
    if given["stream"].get("on"):
        return
    for field in fields(StreamSettings):
        if field.name in given["stream"]:
            raise UsageError(f"--{STREAM.settings[field.name].flag} needs --stream")
