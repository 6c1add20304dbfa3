"""One release of a job: what every program does with its question, whatever that is."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import apache_beam as beam
from rich.console import Console

from beam_ldp.accounting.prices import Price
from beam_ldp.questions.base import View
from beam_ldp.questions.parts import PartsView
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.release import beam_job
from beam_ldp.release import worker_results as results
from beam_ldp.release.charging import NoCharge
from beam_ldp.release.gates import gate_estimates, gate_length, gate_reports
from beam_ldp.release.inputs.sources import BAD_ROWS, ROWS, ReadTable
from beam_ldp.release.job_monitor import rows_read
from beam_ldp.release.parts import Parts, gate_parts, part_facts
from beam_ldp.release.planned import PlannedRun
from beam_ldp.release.record import PrivacyRecord
from beam_ldp.settings import SettingError
from beam_ldp.transforms.composite import HowReleased, PrivateEstimate
from beam_ldp.transforms.device.encode import Encode
from beam_ldp.transforms.device.keyed import PeopleFolder
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.elements.stages import element_of
from beam_ldp.transforms.queries import encode


class Run(PlannedRun):
    """A release, from its job to what is shown of it.

    Args:
        usage, job, asked: as of `PlannedRun`.

    Attributes:
        people: where hashes of the people asked are left, once a budget was reserved.
        publication: name of the folder in it for hashes of their memoized reports.
    """

    people: PeopleFolder | None = None
    publication: str = ""

    @cached_property
    def run_id(self) -> str:
        """The name of this run, and of its charge."""
        job = self.job
        return job.charge.run_id or f"{job.dataset[:100]}-{uuid.uuid4().hex[:12]}"

    @property
    def memoized(self) -> bool:
        """Whether the same reports may have been published before."""
        return self.job.noise.memoized

    def uncharged(self) -> NoCharge | None:
        """What stands for a charge where another run was charged for this one; else None."""
        return None

    # What is released -------------------------------------------------------------------------

    @property
    def how(self) -> HowReleased:
        """What composites are told of people, shuffler, noise and the limits of a mechanism.

        Where noise is fresh every run is a release of its own, unless it is given a name.
        """
        job = self.job
        named = job.noise.id or self.run_id
        told: HowReleased = {
            "people": job.people,
            "shuffle": replace(job.shuffle, min_reports=job.min_reports),
            "noise": replace(job.noise, dataset=job.dataset, id=named, frozen_values=False),
            "privacy": job.privacy.limits,
            "privacy_unit": job.charge.privacy_unit,
        }
        if self.asked.one_row_each:
            told["one_row_each"] = True
        return told

    def composite(self) -> Any:
        """Rows in, releases out: a transform whose `identity` is that of the release."""
        return PrivateEstimate(self.choice.mechanism, self.asked, **self.how)

    @cached_property
    def identity(self) -> ReleaseIdentity:
        """What will be released. Raises SettingError for names that are none."""
        try:
            found: ReleaseIdentity = self.composite().identity
        except ValueError as error:
            said = str(error)
            if self.job.noise.id is None:  # then it is the name of the run
                said = said.replace("release_id", "run_id")
            raise SettingError(said) from None
        return found

    # The pipeline -----------------------------------------------------------------------------

    @property
    def wanted(self) -> dict[str, str]:
        """The columns that are read, each with the flag that names it."""
        people, flag_of = self.job.people, self.usage.flag_of
        found = dict.fromkeys(self.declared.read_columns, flag_of("question.column"))
        if found and people.group_by is not None:
            found[people.group_by] = flag_of("people.group_by")
        if found and people.id is not None:
            found[people.id] = flag_of("people.id")
        return found

    @property
    def table(self) -> ReadTable:
        """The input, as workers read it."""
        source, people = self.job.source, self.job.people
        group = () if people.group_by is None else (people.group_by,)
        return ReadTable(
            source.paths,
            source.format,  # type: ignore[arg-type]
            (*self.declared.read_columns, *group),
            people.id,
            bad_rows=self.declared.bad_rows,  # type: ignore[arg-type]
            delimiter=source.delimiter,
            dimension=self.declared.vector_size,
        )

    def encoder(self) -> Encode:
        """What workers make of rows: a stage whose `in_hand` does the same here."""
        return encode(self.asked, self.choice.mechanism, self.job.people)

    def stages(self, pipeline: beam.Pipeline) -> beam_job.Outputs:
        """Read, and both halves of the release."""
        table = pipeline | "Read" >> self.table
        composite = self.composite()
        released = table[ROWS] | "Estimate" >> composite
        return beam_job.Outputs(
            without_groups(released),
            released.withheld,
            (table[BAD_ROWS], released.bad_rows),
            released.persons,
            released.traces,
            composite.identity,
        )

    def collect(
        self, flags: Sequence[str], staging: str, console: Console
    ) -> results.WorkerResults:
        """Run the pipeline and read what it left in `staging`; or read what a template's job left.

        Raises:
            JobError: if the job fails.
        """
        staged = getattr(self.job.question, "staged", None)
        if staged is not None:
            return self._staged(staged)

        def build(pipeline: beam.Pipeline) -> beam_job.Outputs:
            found = self.stages(pipeline)
            found.leave_hashes(self.people, self.publication)
            return found

        ran = beam_job.run_pipeline(build, self.job, flags, staging, console)
        return replace(results.read_all(staging), rows_read=rows_read(ran))

    def _staged(self, folder: str) -> results.WorkerResults:
        """Results of a template's job; a release without a name takes that of its job."""
        found = results.read_all(folder)
        if not (found.releases or found.withheld):
            raise SettingError(
                f"--staged {folder}: there are no results, or the job is not done yet"
            )
        asked, made = self.identity, found.identity
        if made is not None and not (self.job.noise.id or self.job.charge.run_id):
            self.run_id = made.release_id
            asked = replace(asked, release_id=made.release_id)
        if made != asked:
            differs = "its identity" if made is None else ", ".join(asked.differences(made))
            raise SettingError(
                f"--staged {folder}: it was made with other flags, for another release: it "
                f"differs in {differs}"
            )
        expected = self.choice.mechanism.to_config()
        if any(dict(release.mechanism) != expected for release in found.releases):
            raise SettingError(
                f"--staged {folder}: it was made with other flags, by another mechanism"
            )
        return found

    # After the data ---------------------------------------------------------------------------

    @property
    def in_parts(self) -> bool:
        """Whether several releases come out."""
        return self.job.people.group_by is not None or self.asked.split is not None

    def gate(self, found: results.WorkerResults) -> Release:
        """What is released. Raises NothingReleasedError where there is nothing."""
        told = (found.releases, found.withheld, self.job)
        if not self.in_parts:
            return gate_reports(*told, found.bad_rows)
        return gate_parts(*told, self.asked.name, found.bad_rows, self.asked.names)

    def price(self, release: Release) -> Price:
        """What was received costs."""
        return self.asked.price(self.job, self.choice, release)

    def warnings(self, release: Release) -> tuple[str, ...]:
        """What is odd about the reports themselves, said before the result."""
        bounds, longest = self.asked.plausible, self.asked.longest
        found = () if bounds is None else gate_estimates(release, *bounds)
        return found if longest is None else (*found, *gate_length(release, longest))

    @property
    def exactness(self) -> str:
        """What the local epsilon rests on, as `LocalRandomizer.exactness` says it."""
        found: str = self.choice.mechanism.exactness
        return found

    def facts(self, release: Release) -> dict[str, Any]:
        """What only releases of this kind tell in their record."""
        told = self.asked.facts(self.job, self.choice, release)
        if not isinstance(release, Parts):
            return told
        of_parts = part_facts(
            release, self.choice.mechanism, self.job, self.price, self.job.people.group_by
        )
        return {**of_parts, **told}

    def view(self, release: Release, truth: Any = None) -> View:
        """The release, ready to be shown."""
        job, choice = self.job, self.choice
        if not isinstance(release, Parts):
            return self.asked.view(job, choice, release, truth)
        together = self.asked.view_of_parts(job, choice, release)
        if together is not None:
            return together
        return PartsView(release, [self.asked.view(job, choice, one) for one in release.releases])

    def conclude(self, view: View) -> None:
        """What is decided and then holds, once everything else is known.

        Raises:
            NothingReleasedError: if it may not be published.
        """


def without_groups(released: beam.PCollection) -> beam.PCollection:
    """The releases alone: each says its group itself."""
    if not element_of(released).keyed:
        return released
    return released | "Groups" >> beam.Values().with_output_types(Release)


@dataclass(frozen=True)
class RunResult:
    """What one run gave.

    Attributes:
        run: what was asked, and of whom.
        view: the estimate.
        record: the privacy record.
        output: where the files are.
        logged: the MLflow run, if there is one.
        bad_rows_file: where bad rows are listed, if there are some.
    """

    run: Run
    view: View
    record: PrivacyRecord
    output: str
    logged: Any
    bad_rows_file: str | None = None
