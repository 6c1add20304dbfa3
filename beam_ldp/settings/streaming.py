"""When the windows of a stream open and close, for every command whose question can be streamed."""

from __future__ import annotations

from dataclasses import dataclass

from beam_ldp.settings.fields import SECONDS, SWITCH, SettingError, setting
from beam_ldp.settings.usage import DATA, Part


@dataclass(frozen=True, kw_only=True)
class Streaming:
    """When windows open and close. Times are in seconds."""

    on: bool = setting(
        False,
        "files keep arriving: release one window after another, until Ctrl-C or until "
        "the budget is used up (docs/streaming.md)",
        SWITCH, flag="stream",
    )  # fmt: skip
    time_column: str = setting(
        "", "with {stream.on}: column with the event time of each row", flag="time-column",
        metavar="NAME",
    )  # fmt: skip
    window: float | None = setting(
        None, "with {stream.on}: length of a window, such as 60s", SECONDS,
        flag="window", metavar="TIME",
    )  # fmt: skip
    slide: float | None = setting(
        None,
        "with {stream.window}: release each pane of this length once, and add panes up "
        "to overlapping windows",
        SECONDS, flag="slide", metavar="TIME",
    )  # fmt: skip
    session_gap: float | None = setting(
        None,
        "with {stream.on}: session windows, which end after a gap of this length; needs"
        " {stream.public_bounds}",
        SECONDS, flag="session-gap", metavar="TIME",
    )  # fmt: skip
    public_bounds: bool = setting(
        False, "declares that the times at which single rows were sent are public", SWITCH,
        flag="public-bounds",
    )  # fmt: skip
    allowed_lateness: float = setting(
        0.0, "how long late rows of a window are accepted (default: not at all)", SECONDS,
        flag="allowed-lateness", metavar="TIME",
    )  # fmt: skip
    late: str = setting(
        "release", "late rows: released on their own, if there are enough of them, or only counted",
        flag="late", choices=("release", "dead-letter"),
    )  # fmt: skip
    watermark_delay: float = setting(
        10.0, "how long after its end a window closes (default 10s)", SECONDS,
        flag="watermark-delay", metavar="TIME",
    )  # fmt: skip
    stop_after: float | None = setting(
        None, "stop after this time, as with Ctrl-C", SECONDS, flag="stop-after", metavar="TIME"
    )

    def __post_init__(self) -> None:
        if not self.on:
            return
        if not self.time_column:
            raise SettingError(
                "{stream.time_column} is missing: which column holds the event time?"
            )
        if (self.window is None) == (self.session_gap is None):
            raise SettingError("give one of {stream.window} and {stream.session_gap}")
        if self.session_gap is not None and not self.public_bounds:
            raise SettingError(
                "{stream.session_gap} needs {stream.public_bounds}: a session begins and ends at "
                "the time of a single row, so its bounds reveal when somebody sent something"
            )
        for name in ("window", "slide", "session_gap"):
            length = getattr(self, name)
            if length is not None and length < 0.001:
                raise SettingError(f"{{stream.{name}}} must be at least 1ms")
        if self.slide is None:
            return
        if self.window is None:
            raise SettingError("{stream.slide} needs {stream.window}")
        if round(self.window * 1e6) % round(self.slide * 1e6) or self.slide > self.window:
            raise SettingError("{stream.window} must be a multiple of {stream.slide}")

    @property
    def period(self) -> float | None:
        """Length of what is released: a window, or a pane of it; None for sessions."""
        return self.window if self.slide is None else self.slide

    @property
    def poll(self) -> float:
        """Seconds between two looks at the folder; Flink's checkpoints grow with every one."""
        return min(60.0, max(0.5, (self.period or self.session_gap or 10.0) / 10))


STREAM = Part("stream", Streaming, DATA)
