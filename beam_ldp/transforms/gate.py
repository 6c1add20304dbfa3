"""Which part of a release something is, and what is said about one that did not happen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindow

from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.transforms.blocks import Release, WithheldRelease
from beam_ldp.transforms.portable import PortableDomain
from beam_ldp.transforms.sums import NO_KEY

TOO_FEW = "fewer reports than min_reports"


def window_bounds(window: Any) -> tuple[int, int] | None:
    """Start and end in microseconds since 1970; None for the global window."""
    if isinstance(window, GlobalWindow):
        return None
    return window.start.micros, window.end.micros


def part_of(identity: ReleaseIdentity, said: Release | WithheldRelease) -> ReleaseIdentity:
    """The identity of a window of a release: late reports of it, and sums of panes, are others.

    Memoized noise is drawn under that of the window, late or not: a person reports in it once.
    """
    if said.window is None:
        return identity
    window = identity.of_window(*said.window)
    kind = " sum" if getattr(said, "derived", False) else " late" if said.late else ""
    return replace(window, part=window.part + kind)


class GroupNames:
    """Public names of the groups whose indices are the keys inside a stage."""

    def __init__(self, groups: PortableDomain | None) -> None:
        self._groups = groups
        self._labels: tuple[str, ...] | None = None

    @property
    def grouped(self) -> bool:
        return self._groups is not None

    def key_type(self, inner: Any) -> Any:
        """Type of the key that leaves the stage, given the one inside."""
        return str if self.grouped else inner

    def load(self) -> None:
        """Read the list; to be called on the worker."""
        if self._groups is not None:
            self._labels = self._groups.load().labels

    def name(self, key: Any) -> Any:
        """The key that leaves the stage."""
        return key if self._labels is None else self._labels[key]

    def withheld(self, key: Any, num_reports: int, min_reports: int, window: Any) -> TaggedOutput:
        bounds = window_bounds(window)
        return TaggedOutput("withheld", self.notice(key, num_reports, min_reports, TOO_FEW, bounds))

    def notice(
        self,
        key: Any,
        num_reports: int,
        min_reports: int,
        reason: str,
        bounds: tuple[int, int] | None,
        late: bool = False,
    ) -> WithheldRelease:
        """What is said about reports of a group and window that are not released."""
        group = None if key == NO_KEY else group_name(self.name(key))
        return WithheldRelease(
            num_reports, min_reports, reason, group=group, window=bounds, late=late
        )


def group_name(key: Any) -> str:
    """A key as the name of a public group."""
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)
