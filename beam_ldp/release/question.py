"""What a program is: a question before the data are read, and an answer afterwards.

`run` does the rest, which is the same for every question: plan, pipeline, gates, price, record,
files, log. A new program is one `Question` and one `Answer`.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
from rich.console import Console

from beam_ldp.accounting.prices import Price, price_of
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.release import beam_job as job
from beam_ldp.release import worker_results as results
from beam_ldp.release.charging import NoCharge
from beam_ldp.release.gates import gate_estimates, gate_reports
from beam_ldp.release.inputs.sources import BAD_ROWS, ROWS, ReadTable
from beam_ldp.release.job import S
from beam_ldp.release.job_monitor import rows_read
from beam_ldp.release.planner import Choice, Planner
from beam_ldp.release.record import PrivacyRecord
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import Arguments, Usage
from beam_ldp.transforms.composite import HowReleased, PrivateEstimate
from beam_ldp.transforms.device.keyed import PeopleFolder
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.elements.stages import element_of
from beam_ldp.transforms.queries import Query

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Answer(ABC):
    """What came out, and how it is shown.

    Attributes:
        release: the estimate, as it left the pipeline.
        truth: what it should be, where that is known (simulations, tests).
        purposes: what the files are for whose content differs between programs.
    """

    purposes: ClassVar[dict[str, str]]

    def __init__(self, release: Release, truth: np.ndarray | None) -> None:
        self.release = release
        self.truth = truth

    @abstractmethod
    def table(self) -> pa.Table:
        """All estimates, for estimates.csv and estimates.parquet."""

    def more_files(self) -> dict[str, bytes]:
        """Further files of the output, by name."""
        return {}

    @abstractmethod
    def plot(self, price: str) -> Figure:
        """The picture, with the price written below its title."""

    @abstractmethod
    def show(self, console: Console) -> None:
        """The estimates for people."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """The estimates for programs: what `--format json` prints beside the price."""

    @abstractmethod
    def errors(self) -> dict[str, float]:
        """How far the estimate is from the truth, by metric; nothing where that is not known."""


class Question(Planner[S]):
    """What is asked of people, once: a `Planner` that also runs. A subclass is a program.

    Attributes:
        name: the command.
        usage: what it takes, and its help.
        people: where hashes of the people asked are left, once a budget was reserved.
        publication: name of the folder in it for hashes of their memoized reports.
    """

    name: ClassVar[str]
    usage: ClassVar[Usage]
    people: PeopleFolder | None = None
    publication: str = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "usage"):  # else what several programs share
            cls.name = cls.usage.name

    @classmethod
    @abstractmethod
    def check(cls, given: Arguments) -> S:
        """The settings, with every rule checked. Raises SettingError."""

    @classmethod
    def of(cls, given: Arguments) -> Question[Any]:
        """The question as it was asked; reads what is public beside the flags, and no data.

        Raises:
            SettingError: if that does not fit the flags.
        """
        return cls(cls.check(given))

    @classmethod
    def run_otherwise(cls, given: Arguments, console: Console) -> int | None:
        """Run what is no single release, such as a stream; the exit code, or None where it is."""
        return None

    @property
    @abstractmethod
    def about(self) -> str:
        """The public name of what is asked."""

    # What is released ------------------------------------------------------------------------

    @cached_property
    def run_id(self) -> str:
        """The name of this run, and of its charge."""
        settings = self.settings
        return settings.charge.run_id or f"{settings.dataset[:100]}-{uuid.uuid4().hex[:12]}"

    def uncharged(self, choice: Choice[Any]) -> NoCharge | None:
        """What stands for a charge where another run was charged for this one; else None."""
        return None

    @property
    def query(self) -> Query:
        """What people are asked, as both halves of a release need it."""
        raise NotImplementedError

    @property
    def how(self) -> HowReleased:
        """What composites are told of people, shuffler, noise and the limits of a mechanism.

        Where noise is fresh every run is a release of its own, unless it is given a name.
        """
        settings = self.settings
        named = settings.noise.id or self.run_id
        return {
            "people": settings.people,
            "shuffle": replace(settings.shuffle, min_reports=settings.min_reports),
            "noise": replace(
                settings.noise, dataset=settings.dataset, id=named, frozen_values=False
            ),
            "privacy": settings.privacy.limits,
            "privacy_unit": settings.charge.privacy_unit,
        }

    def composite(self, choice: Choice[Any]) -> Any:
        """Rows in, releases out: a transform whose `identity` is that of the release."""
        return PrivateEstimate(choice.mechanism, self.query, **self.how)

    @property
    def memoized(self) -> bool:
        """Whether the same reports may have been published before."""
        return self.settings.noise.memoized

    def identity(self, choice: Choice[Any]) -> ReleaseIdentity:
        """What will be released. Raises SettingError for names that are none."""
        try:
            found: ReleaseIdentity = self.composite(choice).identity
        except ValueError as error:
            said = str(error)
            if self.settings.noise.id is None:  # then it is the name of the run
                said = said.replace("release_id", "run_id")
            raise SettingError(said) from None
        return found

    # The pipeline ----------------------------------------------------------------------------

    @property
    def value_columns(self) -> tuple[str, ...]:
        """Columns of the input that hold what is asked."""
        return ()

    @property
    def vector_size(self) -> int | None:
        """Numbers in a value, where it is a vector."""
        return None

    @property
    def bad_rows(self) -> Any:
        """What becomes of rows that cannot be used."""
        return "dead_letter"

    @property
    def wanted(self) -> dict[str, str]:
        """The columns that are read, each with the flag that names it."""
        people, flag_of = self.settings.people, self.usage.flag_of
        found = dict.fromkeys(self.value_columns, flag_of("question.column"))
        if found and people.group_by is not None:
            found[people.group_by] = flag_of("people.group_by")
        if found and people.id is not None:
            found[people.id] = flag_of("people.id")
        return found

    @property
    def table(self) -> ReadTable:
        """The input, as workers read it."""
        source, people = self.settings.source, self.settings.people
        group = () if people.group_by is None else (people.group_by,)
        return ReadTable(
            source.paths,
            source.format,  # type: ignore[arg-type]
            (*self.value_columns, *group),
            people.id,
            bad_rows=self.bad_rows,
            delimiter=source.delimiter,
            dimension=self.vector_size,
        )

    def encoder(self, mechanism: Any) -> Any:
        """What workers make of its rows: a stage whose `in_hand` does the same here."""
        return self.query.encode(mechanism, self.settings.people)

    def unlisted(self, values: np.ndarray) -> tuple[str, ...]:
        """Of values as the stage gives them, the columns none of whose values is in its list."""
        return ()

    def read(self, pipeline: beam.Pipeline) -> dict[str, beam.PCollection]:
        """The rows, and those that cannot be used."""
        found: dict[str, beam.PCollection] = pipeline | "Read" >> self.table
        return found

    def stages(self, pipeline: beam.Pipeline, choice: Choice[Any]) -> job.Outputs:
        """Read, and both halves of the release."""
        table = self.read(pipeline)
        composite = self.composite(choice)
        released = table[ROWS] | "Estimate" >> composite
        return job.Outputs(
            without_groups(released),
            released.withheld,
            (table[BAD_ROWS], released.bad_rows),
            released.persons,
            released.traces,
            composite.identity,
        )

    def collect(
        self, choice: Choice[Any], flags: Sequence[str], staging: str, console: Console
    ) -> results.WorkerResults:
        """Run the pipeline and read what it left in `staging`. Raises JobError."""

        def build(pipeline: beam.Pipeline) -> job.Outputs:
            found = self.stages(pipeline, choice)
            found.leave_hashes(self.people, self.publication)
            return found

        ran = job.run_pipeline(build, self.settings, flags, staging, console)
        return replace(results.read_all(staging), rows_read=rows_read(ran))

    # After the data --------------------------------------------------------------------------

    def gate(self, found: results.WorkerResults) -> Release:
        """What is released. Raises NothingReleasedError where there is nothing."""
        return gate_reports(found.releases, found.withheld, self.settings, found.bad_rows)

    def price(self, release: Release) -> Price:
        """What was received costs."""
        return price_of(release, self.settings.privacy.delta, self.settings.privacy.honest_fraction)

    def warnings(self, release: Release) -> tuple[str, ...]:
        """What is odd about the reports themselves, said before the result."""
        bounds = self.plausible
        return () if bounds is None else gate_estimates(release, *bounds)

    @property
    def plausible(self) -> tuple[Any, Any] | None:
        """Between which numbers an estimate without noise lies; None where that is not known."""
        return None

    def exactness(self, choice: Choice[Any]) -> str:
        """What the local epsilon rests on, as `LocalRandomizer.exactness` says it."""
        found: str = choice.mechanism.exactness
        return found

    @property
    def record_type(self) -> type[PrivacyRecord]:
        """What privacy.json is read back as."""
        return PrivacyRecord

    def facts(self, choice: Choice[Any], release: Release) -> dict[str, Any]:
        """Fields of the record that only this program has."""
        return {}

    @abstractmethod
    def answer(self, release: Release, choice: Choice[Any], truth: np.ndarray | None) -> Answer:
        """The release, ready to be shown."""

    def last_word(self, answer: Answer) -> None:
        """Whether it may be published, once everything else is known.

        Raises:
            NothingReleasedError: if not.
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
        question: what was asked.
        choice: the mechanism and what was expected of it.
        answer: the estimate.
        record: the privacy record.
        output: where the files are.
        logged: the MLflow run, if there is one.
        bad_rows_file: where bad rows are listed, if there are some.
    """

    question: Question[Any]
    choice: Choice[Any]
    answer: Answer
    record: PrivacyRecord
    output: str
    logged: Any
    bad_rows_file: str | None = None
