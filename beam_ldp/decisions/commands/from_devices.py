"""A decision from reports that were randomized elsewhere: what both commands do alike."""

from __future__ import annotations

from typing import Any

import apache_beam as beam

from beam_ldp.release.beam_job import Outputs
from beam_ldp.release.devices.collecting import CollectSettings, DeviceReports, count
from beam_ldp.release.planner import Choice, Rows
from beam_ldp.transforms.elements.blocks import Release


class DecidesFromReports(DeviceReports):
    """Stands before the program that decides from raw data."""

    settings: CollectSettings

    def inputs(self) -> Rows:
        told = super().inputs()  # type: ignore[safe-super]  # of the program behind it
        return [("release", self.settings.agreed.terms.identity.release_id), *told]

    def stages(self, pipeline: beam.Pipeline, choice: Choice[Any]) -> Outputs:
        return count(pipeline, self.settings, self.query, self.staging)

    def facts(self, choice: Choice[Any], release: Release) -> dict[str, Any]:
        return {**super().facts(choice, release), "sampling": self.settings.agreed.sampling}
