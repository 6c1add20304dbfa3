"""Frequencies: how often each value of a public list, or each bin of numbers, occurs among people.

Three questions share these settings: one list (or bins) here, several lists in `surveys`, ranges
and quantiles of a number in `numbers`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_ldp.questions.base import Asked, Choice, ListSize, Look, Part, Question, Rows
from beam_ldp.randomizers.estimate import readable
from beam_ldp.settings import SettingError
from beam_ldp.settings.fields import WHOLE, setting
from beam_ldp.settings.sections import DEAD_LETTER
from beam_ldp.settings.usage import TEXT_COLUMN, Arguments

if TYPE_CHECKING:  # what help need not wait for
    from beam_ldp.planning import Plan
    from beam_ldp.questions.encoders import ListEncoder
    from beam_ldp.questions.frequency_view import FrequencyView
    from beam_ldp.questions.numbers import NumberQuestion
    from beam_ldp.questions.on_devices import DeviceQuestion
    from beam_ldp.randomizers.base import FrequencyOracle
    from beam_ldp.randomizers.domain import Bins, Domain
    from beam_ldp.settings import Privacy
    from beam_ldp.settings.job import Job


@dataclass(frozen=True, kw_only=True)
class FrequencyQuestion(Question):
    """How often each value occurs: of a public list, of several, or of numbers in bins.

    Attributes: the settings, and what the program makes of them once they are checked:

        columns, domains: a column and a list for each question.
        name: public name of all that is asked.
        numbers: what is asked about numbers; None for values of lists.
    """

    column: tuple[str, ...] = setting(
        (), "column with the value (not for text input); repeat it to ask several questions",
        flag="column", metavar="NAME", many=True, basic=True,
    )  # fmt: skip
    domain: tuple[str, ...] = setting(
        (),
        "public list of values, one per line; all other values count as `other`. With "
        "several questions, one for each {question.column}",
        flag="domain", metavar="FILE", many=True, basic=True,
    )  # fmt: skip
    other: str = setting(
        "other", "name for all values not listed, if the list itself holds a value `other`",
        flag="other-label", metavar="NAME",
    )  # fmt: skip
    bins: str | None = setting(
        None,
        "for a column of numbers, instead of {question.domain}: public edges such as "
        "0,10,20,50,100, or LOW:HIGH:COUNT; numbers outside count as `other`",
        flag="bins", metavar="EDGES",
    )  # fmt: skip
    quantiles: str | None = setting(
        None,
        "quantiles to estimate, such as 0.1,0.5,0.9, with confidence intervals; as fine"
        " as {question.bins}",
        flag="quantiles", metavar="LEVELS",
    )  # fmt: skip
    between: tuple[str, ...] = setting(
        (),
        "range to count: how many numbers lie in [LOW, HIGH), each an edge of "
        "{question.bins} or inf; may be repeated",
        flag="between", metavar="LOW:HIGH", many=True,
    )  # fmt: skip
    fan_out: int | None = setting(
        None,
        "fan-out: children of each node in the tree behind {question.quantiles} and "
        "{question.between} (default: the most accurate one, see docs/questions.md)",
        WHOLE, flag="fan-out", metavar="N",
    )  # fmt: skip
    design: str = setting(
        "auto",
        "for several questions: each person answers one of them, drawn at random, or "
        "all of them with a split budget; auto takes the more accurate one whose "
        "privacy cost is no higher, locally or centrally",
        flag="design", choices=("auto", "one", "all"),
    )  # fmt: skip
    bad_rows: str = setting(
        DEAD_LETTER,
        "what happens to rows that cannot be used: they are listed in bad_rows.jsonl, "
        "or reported as `other` without a trace",
        flag="bad-rows", choices=(DEAD_LETTER, "other"),
    )  # fmt: skip
    postprocess: str = setting(
        "none",
        "what is done to frequencies that noise made negative: nothing; each is cut to [0, 1]; or "
        "all are shifted and cut so that they sum to one. The raw estimate, whose error bars these "
        "are, stays in columns of its own",
        flag="postprocess", choices=("none", "clip", "norm-sub"),
    )  # fmt: skip
    staged: str | None = setting(
        None, "run no job: finish the release from what the job of a template with the same "
        "flags left in this folder",
        flag="staged", metavar="DIR",
    )  # fmt: skip
    columns: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    name: str = ""
    numbers: NumberQuestion | None = None

    @classmethod
    def needed(cls, given: Arguments) -> tuple[str, ...]:
        """What devices promise alone needs no delta."""
        return () if given["privacy"].get("model") == "local" else ("privacy.delta",)

    def settled(self, given: Arguments) -> FrequencyQuestion:
        from beam_ldp.questions.numbers import number_question_of

        numbers = number_question_of(self)
        if numbers is None and not self.domain:
            raise SettingError("{question.domain} is missing")
        columns = columns_of(self)
        if numbers is not None and len(columns) > 1:
            raise SettingError(
                "--bins takes a single --column; to combine lists and bins, write a pipeline of "
                "your own (PrivateQuestions, docs/questions.md)"
            )
        question = replace(
            self,
            columns=columns or (TEXT_COLUMN,),
            domains=() if numbers is not None else domains_of(self, columns),
            name=", ".join(columns) or TEXT_COLUMN,
            numbers=numbers,
        )
        question.check_postprocess()
        return question

    def check_postprocess(self) -> None:
        """A SettingError where frequencies are made consistent in another way already."""
        if self.postprocess != "none" and self.numbers and self.numbers.needs_tree:
            raise SettingError(
                "--postprocess is for frequencies of a list or of bins; --quantiles and --between "
                "come from a tree, whose levels are made consistent with each other, and would not "
                "be any more"
            )

    def rules(self, job: Job) -> None:
        several = len(self.columns) > 1 or len(self.domains) > 1
        if job.mechanism.random_bits is None:
            return
        if several or self.numbers and self.numbers.needs_tree:
            raise SettingError("--random-bits is for a single question to each person")
        if job.noise.memoized:
            raise SettingError(
                "--random-bits needs rows and coins that the value does not decide; those of "
                "--memoize-key-file follow from it: leave one of the two out"
            )

    def bind(self, job: Job, look: Look) -> Asked:
        bad_rows = "dead_letter" if job.bad_rows_leave_a_trace else "other"
        if self.numbers is not None and self.numbers.needs_tree:
            from beam_ldp.questions.numbers import NumberTree

            return NumberTree.of(self.name, self.numbers, self.design)
        lists = [look.domain(path, self.other) for path in self.domains]
        if len(self.columns) > 1:
            from beam_ldp.questions.surveys import ListQuestion, Survey

            asked = (
                ListQuestion(column, look.carried(path, self.other))
                for column, path in zip(self.columns, self.domains)
            )
            return Survey(
                tuple(asked),
                bad_rows,
                at_hand=tuple(lists),
                design=self.design,
                postprocess=self.postprocess,
            )
        if self.design != "auto":
            raise SettingError("--design is for several questions: name several columns")
        listed = self.numbers.bins if self.numbers else self.domains[0]
        return Frequencies(
            look.carried(listed, self.other),
            self.name,
            self.name,
            bad_rows,
            at_hand=self.numbers.bins if self.numbers else lists[0],
            postprocess=self.postprocess,
            other=self.other,
        )


def columns_of(question: FrequencyQuestion) -> tuple[str, ...]:
    """The columns of `--column`, each once. Raises SettingError."""
    columns = tuple(question.column)
    if len(set(columns)) < len(columns):
        raise SettingError("--column names a column twice")
    if not all(columns):
        raise SettingError("--column is missing: it is empty")
    return columns


def domains_of(question: FrequencyQuestion, columns: Sequence[str]) -> tuple[str, ...]:
    """The lists of the columns: one for each, or one for all. Raises SettingError."""
    paths = tuple(question.domain)
    if len(paths) == 1:
        return paths * max(1, len(columns))
    if len(paths) != max(1, len(columns)):
        raise SettingError(
            f"--domain must be given once, or once for each --column in their order: "
            f"{len(paths)} lists for {len(columns)} columns"
        )
    return paths


@dataclass(frozen=True, eq=False)
class Frequencies(Asked):
    """How often each value of a public list occurs, or each bin of a number.

    Attributes:
        listed: the list, or what workers read it from; None for values that are indices.
        column: with the value; None where elements are values.
        max_value_bytes: longer values are bad rows.
        at_hand: the list, or only its size, where it was looked at already.
        postprocess: what is done to shown frequencies that noise made negative.
        other: what values that are not listed are called.
    """

    listed: Any = None
    column: str | None = None
    name: str = ""
    bad_rows: str = "dead_letter"
    max_value_bytes: int = 4096
    at_hand: Domain | Bins | ListSize | None = None
    postprocess: str = "none"
    other: str = "other"

    @property
    def columns(self) -> tuple[str, ...]:
        named = self.column or self.name
        return (named,) if named else ()

    @cached_property
    def domain(self) -> Any:
        """The list, read where it is not at hand."""
        from beam_ldp.questions.encoders import loaded

        if self.at_hand is not None:
            return self.at_hand
        if self.listed is None:
            raise ValueError('domain must be given with "auto": the mechanism depends on its size')
        return loaded(self.listed)

    @property
    def portable(self) -> Frequencies:
        return self if self.listed is None else replace(self, at_hand=None)

    def _list_for(self, mechanism: Any) -> Any:
        from beam_ldp.questions.columns import IntegerDomain

        return self.listed or IntegerDomain(mechanism.domain_size)

    def digest(self, mechanism: Any) -> bytes:
        found: bytes = self._list_for(mechanism).digest
        return found

    def check(self, mechanism: Any) -> None:
        from beam_ldp.randomizers.base import FrequencyOracle

        if not isinstance(mechanism, FrequencyOracle):
            raise TypeError(f"randomizer must be a FrequencyOracle, got {type(mechanism).__name__}")

    def mechanism(self, privacy: Privacy) -> Any:
        from beam_ldp.planning import recommend

        found = recommend(
            int(privacy.expected_users or 0),
            self.domain.size,
            max_local_epsilon=privacy.local_limit,
            **target_of(privacy),
        )
        return found.randomizer

    def encoder(self, mechanism: Any) -> ListEncoder:
        from beam_ldp.questions.encoders import ListEncoder

        listed, size = self._list_for(mechanism), mechanism.domain_size
        if hasattr(listed, "check_size"):
            listed.check_size(size)
        column = None if self.column is None else (self.column,)
        return ListEncoder(column, listed, self.max_value_bytes, size)

    def unlisted(self, values: np.ndarray) -> tuple[str, ...]:
        return self.columns if (values == self.domain.size - 1).all() else ()

    def on_devices(self, job: Job, mechanism: Any) -> DeviceQuestion | None:
        from beam_ldp.questions.on_devices import DeviceNumberQuestion

        wanted = job.question.numbers
        return None if wanted is None else DeviceNumberQuestion(self.name, wanted)

    # Before the data --------------------------------------------------------------------------

    def plans(self, job: Job) -> list[Plan]:
        """All mechanisms, the best first."""
        from beam_ldp.planning import plan_frequencies

        privacy = job.privacy
        return plan_frequencies(
            job.planned_reports,
            self.domain.size,
            privacy.epsilon,
            privacy.local_epsilon,
            privacy.delta or None,
            job.mechanism.max_bits,
            job.hiding_share,
            max_local_epsilon=privacy.local_limit,
            random_bits=job.mechanism.random_bits,
        )

    def best(self, job: Job) -> Plan:
        """Of a mechanism that is named, the first variant that is short enough. A delta of zero
        asks for the local promise and nothing else."""
        from beam_ldp.planning import Plan

        if job.mechanism.name == "auto":
            plans = [plan for plan in self.plans(job) if not plan.excluded]
            if not plans:
                raise SettingError("no mechanism fits these flags (see `beam-ldp plan frequency`)")
            return plans[0]
        builds = _named(job, self.domain.size)
        found = [_tuned(build, job, job.planned_reports) for build in builds]
        longest = job.mechanism.max_bits or math.inf
        short = [one for one in found if one.bits_per_report <= longest]
        oracle = _short_enough((short or found)[0], job)
        return Plan(type(oracle).__name__, oracle)

    def chosen(self, job: Job, mechanism: FrequencyOracle) -> Choice:
        from beam_ldp.accounting.prices import expected_price

        n, privacy, price = job.planned_reports, job.privacy, None
        if not job.noise.simulated:
            price = expected_price(mechanism, n, privacy.delta, privacy.honest_fraction)
        return Choice(mechanism, n, price, rare_error(mechanism, n))

    def expectation(self, job: Job, choice: Choice) -> str:
        people = choice.predicted_error * choice.num_reports
        return (
            f"a rare value's count will be off by about {people:,.0f} of "
            f"{choice.num_reports:,} people"
        )

    def inputs(self, job: Job) -> Rows:
        label = "list" if job.question.numbers is None else "bins"
        return [(label, f"{self.domain.size - 1:,} values and {self.other!r}")]

    def expected(self, job: Job, choice: Choice) -> Rows:
        from beam_ldp.questions.forging import forged_rows

        error, n = choice.predicted_error, choice.num_reports
        said = f"{readable(error)} of the people, that is {error * n:,.0f} of {n:,}"
        return [("error of a rare value", said), *forged_rows(choice.mechanism, n)]

    def expected_as_json(self, job: Job, choice: Choice) -> dict[str, Any]:
        return {"domain_size": self.domain.size}

    # After the data ---------------------------------------------------------------------------

    @property
    def plausible(self) -> tuple[Any, Any]:
        return 0.0, 1.0

    def facts(self, job: Job, choice: Choice, release: Any) -> dict[str, Any]:
        return {"postprocess": self.postprocess}

    def view(self, job: Job, choice: Choice, release: Part, truth: Any = None) -> FrequencyView:
        from beam_ldp.questions.frequency_view import FrequencyView

        shown = postprocessed(release, self.postprocess)
        return FrequencyView(shown, self.domain.labels, job.output.top, truth)


def postprocessed(release: Any, method: str) -> Any:
    """A release as it is shown."""
    return replace(release, estimate=release.estimate.postprocess(method))


def target_of(privacy: Privacy) -> dict[str, Any]:
    """What every plan is told of the privacy that is asked for."""
    local = privacy.model == "local"
    return {
        "epsilon": None if local else privacy.epsilon,
        "local_epsilon": privacy.local_epsilon or (privacy.epsilon if local else None),
        "delta": None if local else privacy.delta or None,
        "honest_fraction": privacy.honest_fraction,
    }


# Which oracle --------------------------------------------------------------------------------


def rare_error(randomizer: FrequencyOracle, num_reports: int) -> float:
    """Standard error of the frequency of a value that hardly anybody holds, worst value."""
    truth = np.zeros(randomizer.domain_size)
    truth[-1] = 1.0
    return float(np.sqrt(randomizer.variance(num_reports, truth)[:-1].max()))


def _tuned(
    build: Callable[[float], FrequencyOracle], job: Job, num_reports: int
) -> FrequencyOracle:
    """The mechanism with the local budget that the flags leave it."""
    from beam_ldp.accounting import local_epsilon_for
    from beam_ldp.accounting.reports import hidden_users

    local = job.privacy.local_epsilon
    if local is None:
        assert job.privacy.epsilon is not None
        hidden_among = hidden_users(num_reports, job.hiding_share)
        local = local_epsilon_for(job.privacy.epsilon, job.privacy.delta, hidden_among, build)
    return build(min(local, job.privacy.local_limit))


def _named(job: Job, domain_size: int) -> list[Callable[[float], FrequencyOracle]]:
    """What makes the variants of the named mechanism. Raises SettingError."""
    from beam_ldp.planning.frequencies import variants_of
    from beam_ldp.planning.mechanisms import mechanism_of
    from beam_ldp.randomizers.frequency.recoverable_response import RecoverableResponse

    name, random_bits = job.mechanism.name, job.mechanism.random_bits
    try:
        kind: type[FrequencyOracle] = mechanism_of(name, "frequency", auto=True)
    except ValueError as error:
        raise SettingError(str(error)) from None
    if issubclass(kind, RecoverableResponse):
        raise SettingError(f"--mechanism {name} belongs to `beam-ldp randomize --recover-key-file`")

    def build(local_epsilon: float, **options: Any) -> FrequencyOracle:
        try:
            return kind(domain_size, local_epsilon, **options)
        except (TypeError, ValueError) as error:
            raise SettingError(f"--mechanism {name}: {error}") from None

    variants = list(variants_of(kind, domain_size, random_bits))
    if not variants:
        raise SettingError(f"--mechanism {name} needs --random-bits")
    return [partial(build, **options) for options in variants]


def _short_enough(randomizer: FrequencyOracle, job: Job) -> FrequencyOracle:
    if job.mechanism.max_bits is not None and randomizer.bits_per_report > job.mechanism.max_bits:
        raise SettingError(
            f"--mechanism {job.mechanism.name} sends {randomizer.bits_per_report} bits, "
            f"--max-bits is {job.mechanism.max_bits}"
        )
    if job.mechanism.random_bits is not None:
        lacks = randomizer.lacks_random_bits(job.mechanism.random_bits)
        if lacks:
            raise SettingError(f"--mechanism {job.mechanism.name}: {lacks}")
    return randomizer
