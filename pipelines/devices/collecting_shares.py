"""What `collect` does with shares: the collector is the shuffler that their senders trust."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from beam_ldp.pipelines.devices.collecting import (
    CollectMean,
    CollectMeanRecord,
    CollectMeanSettings,
    collected_words,
)
from beam_ldp.pipelines.devices.questions import DeviceSharesQuestion
from beam_ldp.pipelines.devices.release_file import ReleaseFile
from beam_ldp.pipelines.flags import Arguments
from beam_ldp.pipelines.records.record import MeanRecord
from beam_ldp.pipelines.records.statement import Words, words_of
from beam_ldp.settings import SettingError


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


@words_of.register
def _collected_shares(record: CollectSharesRecord) -> Words:
    words = words_of.dispatch(MeanRecord)(record)
    collected = collected_words(words, record.num_bad_rows or 0, record.sampling)
    actors = (
        "* **The device** (or the trusted edge that makes shares for its people) sees the vector "
        "itself.\n"
        "* **The collector is the shuffler here**: it sees envelopes, each with all shares of one "
        "person, and is trusted to add up those of everybody and to look at nobody's. Against it, "
        "and against whoever else can read the envelopes, nothing protects.\n"
        f"* **Everybody who reads the result.** {words.left} Which shares came together was "
        "written nowhere. Against them the central epsilon holds, if the collector does not "
        "collude, and if as many people as are counted on were honest: only their noise protects."
    )
    return replace(collected, actors=actors)
