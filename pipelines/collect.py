"""`beam-ldp collect`: count reports that were randomized elsewhere; no raw value is ever seen.

The same program as `python -m beam_ldp.pipelines.collect`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam

from beam_ldp.pipelines import run
from beam_ldp.pipelines.devices.collecting import (
    FLAGS,
    Agreed,
    check_collected,
    collected_words,
    count,
)
from beam_ldp.pipelines.devices.means import CollectMean
from beam_ldp.pipelines.devices.release_file import ReleaseFile, load_release
from beam_ldp.pipelines.frequencies.choice import rare_error
from beam_ldp.pipelines.frequencies.groups import check_groups
from beam_ldp.pipelines.frequencies.parts import PartsRecord
from beam_ldp.pipelines.frequency import Frequency, FrequencySettings
from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.question import Choice, Rows
from beam_ldp.pipelines.records.price import expected_price
from beam_ldp.pipelines.records.record import PrivacyRecord
from beam_ldp.pipelines.records.statement_words import Words, words_of
from beam_ldp.pipelines.running.job import Outputs
from beam_ldp.pipelines.settings import need
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.transforms import EstimateFrequencies
from beam_ldp.transforms.blocks import Release

EXAMPLES = """examples:
  what would it cost, and how accurate would it be? (reads no report)
    beam-ldp collect --reports reports --release reports/release.json --domain urls.txt \\
        --delta 1e-8 --min-reports 9e5 --output out --dry-run
  the same for real
    beam-ldp collect --reports reports --release reports/release.json --domain urls.txt \\
        --delta 1e-8 --min-reports 9e5 --output out
  numbers: what they are stands in release.json
    beam-ldp collect --reports reports --release reports/release.json \\
        --delta 1e-8 --min-reports 9e5 --output out
  one histogram per group; smaller groups are withheld
    beam-ldp collect --reports reports --release reports/release.json --domain urls.txt \\
        --groups countries.txt --delta 1e-8 --min-reports 20000 --output out
  devices can lie: at least four reports of five are taken to be honest
    beam-ldp collect ... --honest-fraction 0.8
"""


@dataclass(frozen=True, kw_only=True)
class CollectSettings(Agreed, FrequencySettings):
    """The flags of `collect`, checked; what others chose stands in `release.json`."""


@dataclass(frozen=True)
class CollectRecord(PrivacyRecord):
    """The record of reports that came from elsewhere.

    Attributes:
        sampling: "iid" where errors allow for the draw of one row of each person, else "fixed".
    """

    sampling: str = "fixed"


@dataclass(frozen=True)
class CollectPartsRecord(PartsRecord):
    """The same for groups. Attributes: as there."""

    sampling: str = "fixed"


class Collect(Frequency):
    """How often does each value occur, from reports that were randomized elsewhere?"""

    name = "collect"
    summary = (
        "How often does each value of a public list occur, or what is the mean, among people whose "
        "devices have sent randomized reports? Starts at the shuffle: no raw value is ever seen. "
        "What cannot be a report of this release is refused and listed, and copies count once."
    )
    usage = (
        "--reports PATH --release FILE [--domain FILE] --delta D "
        "(--min-reports N | --expected-users N) --output DIR [...]"
    )
    examples = EXAMPLES
    flags = FLAGS
    record_type = CollectRecord
    settings: CollectSettings

    def __init__(self, settings: CollectSettings) -> None:
        super().__init__(settings)
        agreed = settings.agreed
        if agreed.terms.domain_digest != self.domain.digest:
            raise UsageError(
                f"--domain {settings.domain}: not the list that the devices had (another value, "
                "another order or another --other-label)"
            )
        if self.in_parts:
            self.record_type = CollectPartsRecord  # type: ignore[assignment,misc]
            if agreed.groups_digest != self.groups.digest:
                raise UsageError(
                    f"--groups {settings.groups}: not the list of groups that the devices had"
                )

    @classmethod
    def of(cls, values: argparse.Namespace) -> Collect | CollectMean:
        """The program for these flags: `release.json` says what was asked. Raises UsageError."""
        need(values, "reports", "release", "delta", "output")
        agreed = load_release(values.release)
        if agreed.coordinates is not None:
            return CollectMean(CollectMean.check_agreed(values, agreed))
        return cls(cls.check_agreed(values, agreed))

    @classmethod
    def check_agreed(cls, values: argparse.Namespace, agreed: ReleaseFile) -> CollectSettings:
        """The settings, with every rule checked. Raises UsageError."""
        need(values, "domain")
        if values.shape is not None:
            raise UsageError("--shape is for numbers; these reports are about values of a list")
        values.column, values.user_id, values.group_by = None, None, agreed.group_by
        if (values.groups is None) != (agreed.group_by is None):
            raise UsageError(
                "--groups is missing: the public list of groups that the devices had"
                if values.groups is None
                else "--groups is not for reports without groups"
            )
        check_groups(values)
        return check_collected(
            values,
            agreed,
            CollectSettings,
            column=values.question or agreed.terms.release_id,
            domains=(values.domain,),
        )

    @property
    def oracle(self) -> FrequencyOracle:
        """What the devices ran."""
        randomizer = self.settings.agreed.terms.randomizer
        assert isinstance(randomizer, FrequencyOracle)
        return randomizer

    def choose(self) -> Choice:
        settings, n = self.settings, self.settings.planned_reports
        price = None
        if not settings.agreed.terms.simulated:
            price = expected_price(self.oracle, n, settings.delta, settings.honest_fraction)
        return Choice(self.oracle, n, price, rare_error(self.oracle, n))

    def inputs(self) -> Rows:
        return [("release", self.settings.agreed.terms.release_id), *super().inputs()]

    def stages(self, pipeline: beam.Pipeline, choice: Choice) -> Outputs:
        settings, agreed = self.settings, self.settings.agreed
        estimate = EstimateFrequencies(
            self.oracle,
            min_reports=settings.min_reports,
            sampling=agreed.sampling,
            question=self.about,
        )
        return count(pipeline, settings, agreed, estimate, settings.groups)

    def facts(self, choice: Choice, release: Release) -> dict[str, Any]:
        return {**super().facts(choice, release), "sampling": self.settings.agreed.sampling}


@words_of.register
def _collected(record: CollectRecord) -> Words:
    words = words_of.dispatch(PrivacyRecord)(record)
    return collected_words(words, record.num_bad_rows or 0, record.sampling)


@words_of.register
def _collected_parts(record: CollectPartsRecord) -> Words:
    words = words_of.dispatch(PartsRecord)(record)
    return collected_words(words, record.num_bad_rows or 0, record.sampling)


def main(argv: Sequence[str] | None = None) -> int:
    """The program; the exit codes are in `--help`."""
    return run.main(Collect, argv)


if __name__ == "__main__":
    # The module that runs is called __main__; what workers unpickle must have its real name.
    from beam_ldp.pipelines.collect import main as program

    sys.exit(program())
