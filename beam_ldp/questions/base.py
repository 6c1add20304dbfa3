"""What a kind of question is, whatever door it comes through.

    Question   declared: settings of a job, before any file is looked at
       │ bind(look)
    Asked      bound: its lists, columns and ranges are known; both halves of a release hold it
       │ choose(job)
    Choice     a mechanism, with its expected price and error
       │ ... reports of people ...
    View       what came out, as a table, a picture, text and JSON

A kind is one module with a `Question` and an `Asked`; doors know these two and no kind. Nothing
here knows Beam: `beam_ldp.transforms` makes stages of an `Asked`, `beam_ldp.release` runs it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from beam_ldp.settings import SettingError
from beam_ldp.settings.sections import DEAD_LETTER

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.table import Table

    from beam_ldp.accounting.prices import Price
    from beam_ldp.planning import Plan
    from beam_ldp.questions.encoders import RowEncoder
    from beam_ldp.questions.pictures import TopList
    from beam_ldp.questions.published import Published
    from beam_ldp.randomizers.domain import Domain
    from beam_ldp.randomizers.mean.ranges import CoordinateRanges
    from beam_ldp.settings import Privacy
    from beam_ldp.settings.job import Job
    from beam_ldp.settings.usage import Arguments

Rows = list[tuple[str, str]]  # of a printed table: heading and text


class Part(Protocol):
    """What a pipeline releases about a question, a group and a window: a `Release`."""

    @property
    def question(self) -> str: ...
    @property
    def group(self) -> str | None: ...
    @property
    def window(self) -> tuple[int, int] | None: ...
    @property
    def estimate(self) -> Any: ...
    @property
    def num_reports(self) -> int: ...
    @property
    def answers(self) -> tuple[int, ...]: ...
    @property
    def mechanism(self) -> Mapping[str, Any]: ...
    @property
    def simulated(self) -> bool: ...


class Look(Protocol):
    """What a question may look at as it is bound: of files their lists and headers, no rows."""

    def domain(self, path: str, other: str) -> Domain | ListSize:
        """The list of a file; only its size, where nothing else is known yet."""

    def columns(self, named: tuple[str, ...]) -> tuple[str, ...]:
        """Those that are named; lines of text have one, which nobody names."""

    def coordinates(self, columns: Sequence[str], dimension: int | None) -> tuple[list[str], int]:
        """Columns of numbers, and how many numbers a person has."""

    def ranges(self, path: str) -> Mapping[str, tuple[float, float]]:
        """Of each column, as a file lists them."""

    def carried(self, domain: Any, other: str = "other") -> Any:
        """A list, or that of a file, as workers read it."""


@dataclass(frozen=True)
class ListSize:
    """A public list of which only the size is known.

    Attributes:
        size: of the list, `other` included.
        other: what everything else is called.
    """

    size: int
    other: str = "other"

    @property
    def labels(self) -> tuple[str, ...]:
        """None: they are not known."""
        return ()


class DeviceMechanism(Protocol):
    """What every release needs to know of what devices run: a randomizer, or a plan of rounds."""

    @property
    def local_epsilon(self) -> float: ...
    @property
    def messages_per_user(self) -> int: ...
    @property
    def bits_per_report(self) -> float: ...
    @property
    def exactness(self) -> str: ...
    def to_config(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Choice:
    """A mechanism with its expected price and error.

    Attributes:
        mechanism: what devices run: a `LocalRandomizer`, or a plan of rounds.
        num_reports: reports that the expectations are about.
        price: the central price if so many arrive; None in a simulation.
        predicted_error: standard error of what is estimated, in its own unit.
        plan: that it comes from; None where somebody else chose the mechanism.
    """

    mechanism: Any
    num_reports: int
    price: Price | None
    predicted_error: float
    plan: Plan | None = None


class Question(ABC):
    """A question as a job declares it: a frozen dataclass whose fields are settings.

    Attributes:
        needs: settings without which it is not asked, as `section.field`.
        refuses: doors that it has not, each with the sentence that says why: by their flags, and
            "python", "transform", "yaml" (docs/questions.md has a table of them).
        chooses: fields of the section `mechanism` that a kind of another package takes.
        column: columns that it is about.
        bad_rows: "dead-letter", or what rows that cannot be used are reported as.
        one_row_each: every person has one row, so errors need not allow for the draw of one.
        told_once: a release is never told again with other people, whatever that would cost.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    refuses: ClassVar[Mapping[str, str]] = {}
    chooses: ClassVar[tuple[str, ...]] = ()
    told_once: ClassVar[bool] = False
    column: tuple[str, ...]
    bad_rows: str = DEAD_LETTER
    one_row_each: bool = False

    @classmethod
    def needed(cls, given: Arguments) -> tuple[str, ...]:
        """The settings without which it is not asked, beside what else was asked for."""
        return cls.needs

    def settled(self, given: Arguments) -> Question:
        """The question with what follows from other settings filled in. Raises SettingError."""
        return self

    def filled(self, job: Job) -> Job:
        """The job with what follows from the question, where nobody said it."""
        return job

    def rules(self, job: Job) -> None:
        """A SettingError where it does not fit the other sections of a job."""
        return

    @abstractmethod
    def bind(self, job: Job, look: Look) -> Asked:
        """What is asked, once its lists and columns are known. Raises SettingError."""


class Asked(ABC):
    """What people are asked, bound to its public lists, columns and ranges.

    Attributes:
        name: public name of it, for the record; "" where nobody gave one.
        bad_rows: "dead_letter", or what a row that cannot be used is reported as.
        only_listed: a row of a group that is not listed is a bad row.
        estimates: what sums of reports become.
        reduces: all rows of a person become one value; else one row of each is drawn.
        one_row_each: errors need not allow for that draw.
        ranges: public ranges of the coordinates of a mean, if each has its own.
        split: a function of a mechanism, a release and `names`, which gives a release for each of
            its parts; None where it has but one.
    """

    name: str
    bad_rows: str = "dead_letter"
    only_listed: ClassVar[bool] = False
    estimates: ClassVar[Literal["frequencies", "mean", "level"]] = "frequencies"
    reduces: ClassVar[bool] = False
    one_row_each: bool = False
    ranges: CoordinateRanges | None = None
    split: ClassVar[Any] = None

    # What both halves of a release need -------------------------------------------------------

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """What identities call it: the columns, or the name."""

    @abstractmethod
    def digest(self, mechanism: Any) -> bytes:
        """Of what reports are about: the public list, bins or ranges. It may read a file."""

    @abstractmethod
    def check(self, mechanism: Any) -> None:
        """A TypeError unless the mechanism answers such a question."""

    @abstractmethod
    def mechanism(self, privacy: Privacy) -> Any:
        """The most accurate one for `privacy.expected_users`. A ValueError without one."""

    @abstractmethod
    def encoder(self, mechanism: Any) -> RowEncoder:
        """How rows become what the mechanism takes."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of its parts."""
        return (self.name,)

    @property
    def read_columns(self) -> tuple[str, ...]:
        """Columns of the input that hold what is asked."""
        return self.columns

    @property
    def portable(self) -> Asked:
        """The same without lists that workers read themselves."""
        return self

    @property
    def vector_size(self) -> int | None:
        """Numbers in a value, where it is a vector."""
        return None

    def unlisted(self, values: np.ndarray) -> tuple[str, ...]:
        """Of values as the encoder gives them, the columns none of whose values is in its list."""
        return ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the coordinates of a mean."""
        return ()

    @property
    def level(self) -> tuple[Any, ...]:
        """Of one level of a search, what `EstimateLevel` is told."""
        return ()

    def on_devices(self, job: Job, mechanism: Any) -> Published | None:
        """What release.json says of it beside list, columns and ranges; None for nothing."""
        return None

    # Before the data --------------------------------------------------------------------------

    def best(self, job: Job) -> Plan:
        """The plan for a job that may be used and is the most accurate. Raises SettingError."""
        raise SettingError(f"{type(self).__name__} is not planned")

    def chosen(self, job: Job, mechanism: Any) -> Choice:
        """A mechanism that somebody chose, with what is expected of it."""
        raise NotImplementedError

    def choose(self, job: Job) -> Choice:
        """The mechanism for a job. Raises SettingError if there is none."""
        plan = self.best(job)
        return replace(self.chosen(job, plan.randomizer), plan=plan)

    def planned(self, choice: Choice) -> Asked:
        """The question as the mechanism answers it, where that decides what is asked."""
        return self

    def price_among(self, job: Job, choice: Choice, num_reports: int) -> Price | None:
        """The price if so many arrive."""
        if choice.price is None:
            return None
        from beam_ldp.accounting.prices import expected_price

        privacy = job.privacy
        return expected_price(choice.mechanism, num_reports, privacy.delta, privacy.honest_fraction)

    def expectation(self, job: Job, choice: Choice) -> str:
        """Half a sentence about the expected error."""
        return ""

    def inputs(self, job: Job) -> Rows:
        """What a plan says about the public inputs."""
        return []

    def expected(self, job: Job, choice: Choice) -> Rows:
        """What a plan says about the expected error."""
        return []

    def expected_as_json(self, job: Job, choice: Choice) -> dict[str, Any]:
        """The same for programs."""
        return {}

    # After the data ---------------------------------------------------------------------------

    def price(self, job: Job, choice: Choice, release: Any) -> Price:
        """What was received costs."""
        from beam_ldp.accounting.prices import price_of

        return price_of(release, job.privacy.delta, job.privacy.honest_fraction)

    @property
    def plausible(self) -> tuple[Any, Any] | None:
        """Between which numbers an estimate without noise lies; None where that is not known."""
        return None

    @property
    def longest(self) -> float | None:
        """The Euclidean length of a mean without noise, at most; None where that is not known."""
        return None

    def facts(self, job: Job, choice: Choice, release: Any) -> dict[str, Any]:
        """What only such releases tell in their record. `kind` names the template of the
        statement."""
        return {}

    @abstractmethod
    def view(self, job: Job, choice: Choice, release: Part, truth: Any = None) -> View:
        """A release, ready to be shown.

        Args:
            job, choice: of which it came.
            release: about one question, group and window.
            truth: what the estimate should be, where that is known (simulations, tests).
        """

    def view_of_parts(self, job: Job, choice: Choice, parts: Any) -> View | None:
        """Several of them together; None where they are shown one beside the other."""
        return None


class View(ABC):
    """What came out, and how it is shown.

    Attributes:
        release: the estimate, as it left the pipeline.
        truth: what it should be, where that is known (simulations, tests).
        purposes: what the files are for whose content differs between kinds.
        unit: of what panels show; "people" are whole.
        shows: what panels show, in a title.
    """

    purposes: ClassVar[dict[str, str]]
    unit: ClassVar[str] = "people"
    shows: ClassVar[str] = "the most frequent values"

    def __init__(self, release: Part, truth: Any = None) -> None:
        self.release = release
        self.truth = truth

    @abstractmethod
    def table(self) -> pa.Table:
        """All estimates, for estimates.csv and estimates.parquet."""

    def more_files(self) -> dict[str, bytes]:
        """Further files of the output, by name."""
        return {}

    @property
    def top(self) -> TopList:
        """What a panel of a part shows, where several are drawn side by side."""
        raise NotImplementedError

    def listed(self, caption: str) -> Table:
        """The table of a part, where several are shown below each other."""
        raise NotImplementedError

    @abstractmethod
    def figure(self, price: str) -> Figure:
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


def finite(number: float) -> float | None:
    """As JSON has it: null where it is infinite, or not known."""
    return number if math.isfinite(number) else None
