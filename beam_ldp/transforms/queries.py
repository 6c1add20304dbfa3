"""What a release asks of people: how rows are encoded, how sums are read, and what it is called.

One small class per kind of question; the two halves and everything around them are the same for
all (`beam_ldp.transforms.composite`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import apache_beam as beam

from beam_ldp.protocols.rounds import RoundsPlan
from beam_ldp.questions.columns import MAX_VALUE_BYTES, IntegerDomain
from beam_ldp.questions.encoders import ListEncoder, RowEncoder, VectorEncoder
from beam_ldp.randomizers.base import FrequencyOracle, LocalRandomizer, Sampling
from beam_ldp.randomizers.domain import Bins, Domain
from beam_ldp.settings import People, Privacy
from beam_ldp.transforms.collector.side import EstimateFrequencies, EstimateMean
from beam_ldp.transforms.device.encode import Encode, list_encoder
from beam_ldp.transforms.elements.portable import PortableDomain, check_mean

if TYPE_CHECKING:
    from beam_ldp.randomizers.mean.ranges import CoordinateRanges

BadLists = Literal["dead_letter", "other"]
BadNumbers = Literal["dead_letter", "zero"]


class Query(ABC):
    """What is asked.

    Attributes:
        name: public name of it, for the record; "" where nobody gave one.
        bad_rows, only_listed: as in `Encode`.
    """

    name: str
    bad_rows: str = "dead_letter"
    only_listed: ClassVar[bool] = False

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """What identities call it: the columns, or the name."""

    @abstractmethod
    def digest(self, randomizer: Any) -> bytes:
        """Of what reports are about: the public list, bins or ranges. It may read a file."""

    @abstractmethod
    def check(self, randomizer: Any) -> None:
        """A TypeError unless the mechanism answers such a question."""

    @abstractmethod
    def plan(self, privacy: Privacy) -> LocalRandomizer:
        """The most accurate mechanism for `privacy.expected_users`. A ValueError without one."""

    @abstractmethod
    def encoder(self, randomizer: Any) -> RowEncoder:
        """How rows become what the mechanism takes."""

    def encode(self, randomizer: Any, people: People) -> Encode:
        """Rows to `ValueBlock`s."""
        return Encode(
            self.encoder(randomizer),
            people=people,
            bad_rows=self.bad_rows,
            only_listed=self.only_listed,
        )

    def estimator(
        self,
        randomizer: Any,
        min_reports: int,
        *,
        sampling: Sampling = "fixed",
        permanent: bool = False,
    ) -> beam.PTransform:
        """Sums to `Release`s."""
        kind, own = self.estimates
        return kind(
            randomizer,
            min_reports=min_reports,
            sampling=sampling,
            question=self.name,
            permanent=permanent,
            **own,
        )

    @property
    def estimates(self) -> tuple[type[beam.PTransform], dict[str, Any]]:
        """The stage that estimates, and what it is told besides."""
        return EstimateFrequencies, {}

    def reduce(self, plan: Any) -> beam.PTransform | None:
        """All rows of a person to one value; None where one row of each is drawn."""
        return None

    def split(self, randomizer: Any, releases: beam.PCollection) -> beam.PCollection:
        """One `Release` per part of the question, where it has several."""
        return releases


@dataclass(frozen=True)
class FrequencyQuery(Query):
    """How often each value of a public list occurs.

    Attributes:
        domain: the list, as `EncodeRows` takes it; None for values that are indices.
        column: with the value; None where elements are values.
        name: for the record.
        bad_rows, max_value_bytes: as in `EncodeRows`.
    """

    domain: Domain | IntegerDomain | Bins | PortableDomain | str | Path | None = None
    column: str | None = None
    name: str = ""
    bad_rows: BadLists = "dead_letter"
    max_value_bytes: int = MAX_VALUE_BYTES

    @property
    def columns(self) -> tuple[str, ...]:
        named = self.column or self.name
        return (named,) if named else ()

    @cached_property
    def _listed(self) -> PortableDomain | None:
        return None if self.domain is None else PortableDomain.of(self.domain)

    def _list_for(self, randomizer: FrequencyOracle) -> PortableDomain:
        return self._listed or PortableDomain(IntegerDomain(randomizer.domain_size))

    def digest(self, randomizer: Any) -> bytes:
        return self._list_for(randomizer).digest

    def check(self, randomizer: Any) -> None:
        if not isinstance(randomizer, FrequencyOracle):
            raise TypeError(
                f"randomizer must be a FrequencyOracle, got {type(randomizer).__name__}"
            )

    def plan(self, privacy: Privacy) -> FrequencyOracle:
        from beam_ldp.planning import recommend

        if self._listed is None:
            raise ValueError('domain must be given with "auto": the mechanism depends on its size')
        found = recommend(
            int(privacy.expected_users or 0),
            self._listed.load().size,
            max_local_epsilon=privacy.local_limit,
            **target_of(privacy),
        )
        assert found.randomizer is not None
        return found.randomizer

    def encoder(self, randomizer: Any) -> ListEncoder:
        listed, size = self._list_for(randomizer), randomizer.domain_size
        return list_encoder(listed, self.column, self.max_value_bytes, size)


@dataclass(frozen=True)
class MeanQuery(Query):
    """What the mean of people's vectors is.

    Attributes:
        names: the columns, as `EncodeVectors` takes them; None where elements are vectors.
        ranges: public ranges of the coordinates, for mechanisms of norm "linf" and radius 1.
        name: for the record.
        bad_rows: as in `EncodeVectors`.
    """

    names: str | Sequence[str] | None = None
    ranges: CoordinateRanges | None = None
    name: str = ""
    bad_rows: BadNumbers = "dead_letter"

    @property
    def columns(self) -> tuple[str, ...]:
        named = self.names or self.name
        return tuple(name for name in ((named,) if isinstance(named, str) else named) if name)

    def digest(self, randomizer: Any) -> bytes:
        return b"" if self.ranges is None else self.ranges.digest

    def check(self, randomizer: Any) -> None:
        check_mean(randomizer)

    def plan(self, privacy: Privacy) -> LocalRandomizer:
        from beam_ldp.planning import plan_means
        from beam_ldp.randomizers import registry

        if self.ranges is None or isinstance(self.names, str) or not self.names:
            numbers = 0 if self.ranges is None else len(self.ranges)
        else:
            numbers = len(self.names)
        if not numbers:
            raise ValueError('ranges must be given with "auto": the mechanism depends on them')
        plans = plan_means(
            int(privacy.expected_users or 0),
            numbers,
            "linf",
            max_local_epsilon=privacy.local_limit,
            model=privacy.model,
            only=[kind.__name__ for kind in registry.offered("mean") if kind.norm == "linf"],
            **target_of(privacy),
        )
        if plans[0].excluded or plans[0].randomizer is None:
            raise ValueError(f"no mechanism fits: {plans[0].excluded}")
        return plans[0].randomizer

    def encoder(self, randomizer: Any) -> VectorEncoder:
        binary = randomizer.norm == "binary"
        return VectorEncoder.of(self.names, randomizer.dimension, self.ranges, binary)

    @property
    def estimates(self) -> tuple[type[beam.PTransform], dict[str, Any]]:
        return EstimateMean, {"ranges": self.ranges}


def target_of(privacy: Privacy) -> dict[str, Any]:
    """What every plan is told of the privacy that is asked for."""
    local = privacy.model == "local"
    return {
        "epsilon": None if local else privacy.epsilon,
        "local_epsilon": privacy.local_epsilon or (privacy.epsilon if local else None),
        "delta": None if local else privacy.delta or None,
        "honest_fraction": privacy.honest_fraction,
    }


def check_plan(plan: Any, kind: type[RoundsPlan]) -> None:
    """A TypeError unless the plan is one of these rounds."""
    if not isinstance(plan, kind):
        raise TypeError(f"protocol must be a {kind.__name__}, got {type(plan).__name__}")
