"""The device's half of a release: a person's row becomes a report that protects it."""

from __future__ import annotations

from dataclasses import dataclass

import apache_beam as beam

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.transforms.device.bounding import BoundContributions
from beam_ldp.transforms.device.noise import FRESH, NoiseSource
from beam_ldp.transforms.device.randomize import Randomize
from beam_ldp.transforms.elements.windows import DEFAULT_RULES, WindowRules


@dataclass(frozen=True)
class Values:
    """What people have, before anything protects it.

    Attributes:
        values: `ValueBlock`s; where one row of each person is drawn, every person once.
        bad_rows: `BadRowBlock`s of rows that cannot be used; None where values come encoded.
        late: `WithheldRelease`s about rows that came too late for their window, if any can.
    """

    values: beam.PCollection
    bad_rows: beam.PCollection | None = None
    late: beam.PCollection | None = None


@dataclass(frozen=True)
class Reports:
    """What leaves devices, and what stays with them.

    Attributes:
        reports: `ReportBlock`s, the only collection that protects anybody.
        persons: `ValueBlock`s with every person once; None where each row is a person.
        bad_rows, late: as in `Values`.
        traces: `Trace`s of who sent which report, where noise is memoized.
    """

    reports: beam.PCollection
    persons: beam.PCollection | None = None
    bad_rows: beam.PCollection | None = None
    late: beam.PCollection | None = None
    traces: beam.PCollection | None = None


class DeviceSide(beam.PTransform):
    """Encodes rows, draws one of each person, and randomizes it.

    Protects each value with the randomizer's local epsilon against everybody who sees the reports;
    nobody from the machines that this half runs on.

    In: what the encoder takes. Out: `Reports`.

    Args:
        encoder: rows to `ValueBlock`s, from a question.
        randomizer: the mechanism.
        noise: where noise comes from.
        one_each: whether one row of each person is drawn, whose ids stand in the blocks.
        windows: for unbounded data: when windows close, and what becomes of late rows.
    """

    def __init__(
        self,
        encoder: beam.PTransform,
        randomizer: LocalRandomizer,
        *,
        noise: NoiseSource = FRESH,
        one_each: bool = False,
        windows: WindowRules = DEFAULT_RULES,
    ) -> None:
        super().__init__()
        self._encoder = encoder
        self._bound = BoundContributions(noise=noise, windows=windows) if one_each else None
        self._randomize = Randomize(randomizer, noise=noise)

    def values(self, rows: beam.PCollection) -> Values:
        """The first two steps, for whoever randomizes and writes in one."""
        encoded = rows | "Encode" >> self._encoder
        bad_rows = getattr(encoded, "bad_rows", None)
        if self._bound is None:
            return Values(encoded, bad_rows)
        drawn = encoded | "Bound" >> self._bound
        return Values(drawn, bad_rows, getattr(drawn, "late", None))

    def expand(self, rows: beam.PCollection) -> Reports:
        found = self.values(rows)
        reports = found.values | "Randomize" >> self._randomize
        return Reports(
            reports,
            None if self._bound is None else found.values,
            found.bad_rows,
            found.late,
            getattr(reports, "traces", None),
        )
