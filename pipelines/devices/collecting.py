"""What `collect` does whether reports are about a list or about numbers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import apache_beam as beam
from rich.console import Console

from beam_ldp.pipelines.devices.receipts import (
    Receipts,
    WriteReceipts,
    outsized,
    read_receipts,
)
from beam_ldp.pipelines.devices.release_file import ReleaseFile
from beam_ldp.pipelines.jobs import results
from beam_ldp.pipelines.jobs.job import Outputs
from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.question import Choice
from beam_ldp.pipelines.records.reserving import ledger_url
from beam_ldp.pipelines.records.statement import Words
from beam_ldp.pipelines.settings import SHOWN, Settings, check_common
from beam_ldp.randomizers.identity import ROW, ReleaseIdentity
from beam_ldp.transforms import Aggregate, ReadReports
from beam_ldp.transforms.absent_groups import with_absent_groups
from beam_ldp.transforms.blocks import Release
from beam_ldp.transforms.portable import PortableDomain
from beam_ldp.transforms.report_files import find_report_files
from beam_ldp.transforms.shuffle import Shuffle, ShuffleInParts

PERSONS_UNKNOWN = (
    "each report was counted as a person: whoever lets devices send must see to it that nobody "
    "sends two"
)

_IDS = "ids"  # folder in staging

S = TypeVar("S", bound=Settings)


def check_collected(
    values: argparse.Namespace, agreed: ReleaseFile, kind: type[S], **own: Any
) -> S:
    """The settings, with every rule checked that holds for all reports from elsewhere.

    Raises:
        UsageError: naming the flag and what is allowed.
    """
    target, strict, frozen = values.epsilon, values.strict, values.frozen_values
    if strict and target is None:
        raise UsageError("--strict needs --epsilon, the target to enforce")
    if frozen and not agreed.terms.identity.key:
        raise UsageError(
            "--frozen-values is about a second publication of the same reports, and the devices of "
            "this release draw new noise each time (`randomize --memoize-key-file` does not)"
        )
    _check_named(values, agreed)
    for name, value in _decided_elsewhere(agreed).items():
        setattr(values, name, value)
    values.input = values.reports
    try:
        files = find_report_files(values.reports)
    except ValueError as error:
        raise UsageError(f"--reports {error}") from None
    if values.top < 1:
        raise UsageError("--top must be >= 1")
    own |= {"release": values.release, "agreed": agreed, "num_files": len(files)}
    settings = check_common(values, kind, **own)
    _check_whose(settings, agreed)
    return replace(settings, epsilon=target, strict=strict, frozen_values=frozen)


def _check_whose(settings: Settings, agreed: ReleaseFile) -> None:
    """Refuse to charge a budget of people for rows of which nobody said whose they are."""
    terms = agreed.terms
    charged = not terms.simulated and ledger_url(settings) is not None
    if charged and settings.privacy_unit == "user" and terms.identity.bounding == ROW:
        raise UsageError(
            "a budget of people cannot be charged for this release: the number of rows per person "
            "was not bounded where its reports were made (bounding: row), so that a person with "
            "ten rows sent ten reports and would be charged for one. `randomize --user-id` draws "
            "one row of each person, and --one-row-per-person declares that nobody has two; "
            "reports that are already out can be counted with --no-ledger"
        )


def _check_named(values: argparse.Namespace, agreed: ReleaseFile) -> None:
    """What a flag names must be what `release.json` names."""
    identity = agreed.terms.identity
    for flag, given, found in (
        ("--dataset", values.dataset, identity.dataset),
        ("--release-id", values.release_id, identity.release_id),
        ("--privacy-unit", values.privacy_unit, identity.privacy_unit),
    ):
        if given and given != found:
            raise UsageError(f"{flag} {given}: {values.release} is of {found!r}")


def _decided_elsewhere(agreed: ReleaseFile) -> dict[str, object]:
    """The flags of the other programs that this one has not: where the values are, they were
    decided, or nobody decides them."""
    terms = agreed.terms
    return {
        "input_format": "envelopes",
        "csv_delimiter": None,
        "user_id": None,
        "bad_rows": SHOWN,
        "epsilon": None,
        "local_epsilon": terms.randomizer.local_epsilon,
        "max_local_epsilon": None,
        "strict": False,
        "frozen_values": False,  # of a key that is not here
        "mechanism": type(terms.randomizer).__name__,
        "max_bits": None,
        "memoize_key_file": None,
        "dataset": terms.identity.dataset,
        "release_id": terms.identity.release_id,
        "seed": 0 if terms.simulated else None,
        "staged": None,
        "one_row_per_person": True,  # of reports; whoever lets devices send sees to it
        "people_store": None,
        "people_key_file": None,
    }


def count(
    pipeline: beam.Pipeline,
    settings: Settings,
    agreed: ReleaseFile,
    estimate: beam.PTransform,
    groups: str | None = None,
    staging: str | None = None,
) -> Outputs:
    """Read, shuffle, add, estimate; beside it, what was received of each file.

    Args:
        pipeline: to build into.
        settings: the flags, checked.
        agreed: what `release.json` says.
        estimate: the last stage.
        groups: path of the public list of groups, if any.
        staging: folder that all workers can read and write, gone afterwards.
    """
    terms = agreed.terms
    scratch = None if staging is None else f"{staging}/{_IDS}"
    read = ReadReports(settings.input, terms, groups=groups, scratch=scratch)
    reports = pipeline | "Read" >> read
    if staging is not None:
        reports.received | "Write received" >> WriteReceipts(staging)
    shuffle = Shuffle(
        terms.randomizer,
        settings.min_reports,
        settings.shuffle_output,  # type: ignore[arg-type]
        settings.scope,  # type: ignore[arg-type]
        groups=groups,
    )
    shuffled = reports | "Shuffle" >> ShuffleInParts(shuffle)
    released = shuffled | "Aggregate" >> Aggregate(terms.randomizer) | "Estimate" >> estimate
    withheld = (shuffled[0].withheld, released.withheld) | "Withheld" >> beam.Flatten()
    if groups is not None:
        listed = PortableDomain(groups)
        withheld = with_absent_groups(released, withheld, listed, settings.min_reports)
        released = released | "Groups" >> beam.Values().with_output_types(Release)
    return Outputs(released, withheld, (reports.bad_rows,))


def collected_words(words: Words, num_refused: int, sampling: str) -> Words:
    """What a statement says differently about reports that came from elsewhere."""
    drawn = (
        "* errors include the drawing of one row per person, which was done on the side of the "
        "devices\n"
        if sampling == "iid"
        else ""
    )
    return replace(
        words,
        person="Everybody who sent a report is one person. Copies of an envelope are counted once, "
        "but a second report of the same person cannot be told from another person's: whoever lets "
        "devices send must see to it that nobody sends two.",
        person_briefly="whoever sent a report; copies of an envelope count once",
        readers="It was never seen here: only randomized reports came in.",
        shuffler="The shuffler**, that is the workers of the runner, sees each randomized report "
        "as it arrived; whoever received it may know who sent it. Against it, a person is "
        "protected by the local epsilon alone.",
        refused="that envelopes, or stretches of anything else, were refused, and how many: "
        f"{num_refused:,}",
        noise=f"{drawn}* noise: drawn on the devices. That they did so, and with fresh randomness, "
        "is what they promise their owners; it could not be checked here",
    )


class DeviceReports:
    """What questions have in common whose reports were randomized elsewhere. Mixed in first.

    Attributes:
        staging: where workers leave what they leave, while the pipeline is built and run.
        received: of each file.
    """

    settings: Any
    staging: str | None = None
    received: Receipts = Receipts()

    def identity(self, choice: Choice) -> ReleaseIdentity:
        """What `release.json` says."""
        found: ReleaseIdentity = self.settings.agreed.terms.identity
        return found

    def collect(
        self, choice: Choice, flags: Sequence[str], staging: str, console: Console
    ) -> results.WorkerResults:
        """Run the pipeline; what was received of each file is kept for the warnings."""
        self.staging = staging
        found: results.WorkerResults = super().collect(choice, flags, staging, console)  # type: ignore[misc]
        self.received = read_receipts(staging)
        return found

    def warnings(self, release: Release) -> tuple[str, ...]:
        """Who sent an outsized share, and what no honest reports say."""
        return (*outsized(self.received), *super().warnings(release))  # type: ignore[misc]


@dataclass(frozen=True, kw_only=True)
class CollectOptions:
    """What settings of `collect` have beside those of the program that they come from.

    Attributes:
        release: path of `release.json`.
        agreed: what it holds.
    """

    release: str
    agreed: ReleaseFile

    @property
    def doing(self) -> str:
        return "reading and counting"

    @property
    def one_report_per(self) -> str:
        return f"envelope, {self.agreed.terms.identity.bounding}"

    @property
    def persons_unknown(self) -> str:
        return PERSONS_UNKNOWN
