"""What can be said of a release before its data: mechanism, privacy cost, error. Loads no Beam.

The program of a question plans with its `Planner`, and so does `beam-ldp plan`, which is told the
sizes that a program finds in its files.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from beam_ldp.accounting.prices import Price, expected_price
from beam_ldp.release.gates import weak_warnings
from beam_ldp.release.job import S

Rows = list[tuple[str, str]]  # of a printed table: heading and text


class DeviceMechanism(Protocol):
    """What every release needs to know of what devices run: a randomizer, or a plan of rounds."""

    @property
    def local_epsilon(self) -> float: ...
    @property
    def messages_per_user(self) -> int: ...
    @property
    def bits_per_report(self) -> float: ...
    def to_config(self) -> dict[str, Any]: ...


M = TypeVar("M", bound=DeviceMechanism)


@dataclass(frozen=True)
class Choice(Generic[M]):
    """A mechanism with its expected price and error.

    Attributes:
        mechanism: what the devices run.
        num_reports: reports that the expectations are about.
        price: the central price if so many arrive; None in a simulation.
        predicted_error: standard error of what is estimated, in its own unit.
    """

    mechanism: M
    num_reports: int
    price: Price | None
    predicted_error: float


class Planner(ABC, Generic[S]):
    """A question before its data.

    Attributes:
        settings: the flags after every check.
    """

    def __init__(self, settings: S) -> None:
        self.settings = settings

    @abstractmethod
    def choose(self) -> Choice[Any]:
        """The mechanism for these settings. Raises SettingError if there is none."""

    def worst_price(self, choice: Choice[Any]) -> Price | None:
        """The price if only `min_reports` arrive: what a budget sets aside."""
        return self.price_among(choice, self.settings.min_reports)

    def price_among(self, choice: Choice[Any], num_reports: int) -> Price | None:
        """The price if so many arrive."""
        if choice.price is None:
            return None
        privacy = self.settings.privacy
        return expected_price(choice.mechanism, num_reports, privacy.delta, privacy.honest_fraction)

    @abstractmethod
    def expectation(self, choice: Choice[Any]) -> str:
        """Half a sentence about the expected error."""

    @abstractmethod
    def inputs(self) -> Rows:
        """What a plan says about the public inputs."""

    @abstractmethod
    def expected(self, choice: Choice[Any]) -> Rows:
        """What a plan says about the expected error."""

    @abstractmethod
    def expected_as_json(self, choice: Choice[Any]) -> dict[str, Any]:
        """The same for programs."""

    def as_json(self, choice: Choice[Any]) -> dict[str, Any]:
        """What the release would be, for programs."""
        bound, settings = None if choice.price is None else choice.price.bound, self.settings
        return {
            "mechanism": choice.mechanism.to_config(),
            "local_epsilon": None if bound is None else _finite(choice.mechanism.local_epsilon),
            "epsilon": None if bound is None else float(bound),
            "delta": settings.privacy.delta,
            "num_reports": choice.num_reports,
            "min_reports": settings.min_reports,
            "bits_per_report": choice.mechanism.bits_per_report,
            "predicted_standard_error": choice.predicted_error,
            "warnings": list(weak_warnings(choice.mechanism, settings)),
            **self.expected_as_json(choice),
        }


def _finite(local_epsilon: float) -> float | None:
    """As JSON has it: null where nothing but a shuffler or a server protects people."""
    return None if math.isinf(local_epsilon) else local_epsilon
