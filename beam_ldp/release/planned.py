"""What can be said of a release before its data: mechanism, privacy cost, error."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from beam_ldp.accounting.prices import Price
from beam_ldp.questions.base import Asked, Choice, ListSize, Rows, finite
from beam_ldp.randomizers.domain import Domain
from beam_ldp.release.gates import weak_warnings
from beam_ldp.release.inputs.public_lists import load_list
from beam_ldp.settings.job import Job
from beam_ldp.settings.usage import Usage


class PlannedRun:
    """A release before its data: loads no Beam.

    Args:
        usage: the command, whose flags messages name.
        job: the checked settings.
        asked: the question, bound to what the job's files say.

    Attributes:
        declared: the question, before a mechanism was chosen.
    """

    def __init__(self, usage: Usage, job: Job, asked: Asked) -> None:
        self.usage, self.job, self.declared = usage, job, asked

    @property
    def name(self) -> str:
        """The command."""
        return self.usage.name

    @cached_property
    def choice(self) -> Choice:
        """What devices run, with its expected price and error. Raises SettingError."""
        return self.declared.choose(self.job)

    @cached_property
    def asked(self) -> Asked:
        """The question as the chosen mechanism answers it."""
        return self.declared.planned(self.choice)

    # Before the data --------------------------------------------------------------------------

    def price_among(self, num_reports: int) -> Price | None:
        """The price if so many arrive."""
        return self.asked.price_among(self.job, self.choice, num_reports)

    @property
    def worst_price(self) -> Price | None:
        """The price if only `min_reports` arrive: what a budget sets aside."""
        return self.price_among(self.job.min_reports)

    def inputs(self) -> Rows:
        """What a plan says about the public inputs."""
        found = self.declared.inputs(self.job)
        if self.groups is not None:
            listed = f"{self.groups.size - 1:,} of a public list and {self.groups.other!r}"
            found.append(("groups", f"column {self.job.people.group_by}: {listed}"))
        return found

    @cached_property
    def groups(self) -> Domain | ListSize | None:
        """The public list of groups of a file, if there is one. Raises SettingError."""
        groups = self.job.people.groups
        return load_list("--groups", groups) if isinstance(groups, str) else None

    def as_json(self) -> dict[str, Any]:
        """What the release would be, for programs."""
        job, choice = self.job, self.choice
        bound = None if choice.price is None else choice.price.bound
        return {
            "mechanism": choice.mechanism.to_config(),
            "local_epsilon": None if bound is None else finite(choice.mechanism.local_epsilon),
            "epsilon": None if bound is None else float(bound),
            "delta": job.privacy.delta,
            "num_reports": choice.num_reports,
            "min_reports": job.min_reports,
            "bits_per_report": choice.mechanism.bits_per_report,
            "predicted_standard_error": choice.predicted_error,
            "warnings": list(weak_warnings(choice.mechanism, job)),
            **self.asked.expected_as_json(job, choice),
        }
