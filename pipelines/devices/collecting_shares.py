"""What `collect` does with shares: the collector is the shuffler that their senders trust."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from beam_ldp.pipelines.devices.collecting import (
    CollectMean,
    CollectMeanRecord,
    CollectMeanSettings,
)
from beam_ldp.pipelines.devices.questions import DeviceSharesQuestion
from beam_ldp.pipelines.devices.release_file import ReleaseFile
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import Arguments


@dataclass(frozen=True)
class CollectSharesRecord(CollectMeanRecord):
    """The record of shares that came from devices."""


class CollectShares(CollectMean):
    """What is the mean, from envelopes of shares that nothing but the collector protects?"""

    @property
    def record_type(self) -> type[CollectMeanRecord]:
        return CollectSharesRecord

    @classmethod
    def check_agreed(cls, given: Arguments, agreed: ReleaseFile) -> CollectMeanSettings:
        """The settings, which keep what people were promised, or more. Raises SettingError."""
        asked = agreed.asked
        assert isinstance(asked, DeviceSharesQuestion)
        privacy, path = given["privacy"], given["reports"]["release"]
        for name, value, promised, kept in (
            ("epsilon", privacy.get("epsilon"), asked.epsilon, "at most"),
            ("delta", privacy.get("delta"), asked.delta, "at most"),
            ("honest-fraction", privacy.get("honest_fraction"), asked.honest_fraction, "at most"),
            ("min-reports", given["shuffle"].get("min_reports"), asked.min_reports, "at least"),
        ):
            if value is None:
                continue
            if value < promised if kept == "at least" else value > promised:
                raise SettingError(
                    f"--{name} must be {kept} {promised:,}, as {path} promises people"
                )
        if privacy.get("allow_over_target"):
            raise SettingError(f"--allow-over-target: {path} promises people a privacy cost")
        if given["shuffle"].get("output", "statistic") != "statistic":
            raise SettingError(
                "--shuffle-output must be statistic: shares are added up, and none of them leaves"
            )
        told: dict[str, dict[str, Any]] = {
            "privacy": {
                "epsilon": asked.epsilon,
                "delta": asked.delta,
                "honest_fraction": asked.honest_fraction,
            },
            "shuffle": {"min_reports": asked.min_reports},
        }
        return super().check_agreed(given.over(Arguments(told, [])), agreed)
