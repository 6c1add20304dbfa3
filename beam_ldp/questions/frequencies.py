"""Frequencies: how often each value of a public list, or each bin of a number, occurs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_ldp.questions.base import Asked, Choice, ListSize, Part, Rows
from beam_ldp.randomizers.estimate import readable
from beam_ldp.settings import SettingError

if TYPE_CHECKING:  # what help need not wait for
    from beam_ldp.planning import Plan
    from beam_ldp.questions.encoders import ListEncoder
    from beam_ldp.questions.frequency_view import FrequencyView
    from beam_ldp.questions.published import Published
    from beam_ldp.randomizers.base import FrequencyOracle
    from beam_ldp.randomizers.domain import Bins, Domain
    from beam_ldp.settings import Privacy
    from beam_ldp.settings.job import Job


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

    def on_devices(self, job: Job, mechanism: Any) -> Published | None:
        from beam_ldp.questions.bins import PublishedNumber

        wanted = job.question.numbers
        return None if wanted is None else PublishedNumber(self.name, wanted)

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
