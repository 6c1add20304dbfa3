"""What stages carry to the workers: small things in the job graph, big ones as paths."""

from __future__ import annotations

import functools
import os
import socket
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apache_beam.io.filesystems import FileSystems

from beam_ldp.questions.columns import IntegerDomain
from beam_ldp.questions.encoders import check_domain_size
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.domain import OTHER, Bins, Domain
from beam_ldp.settings import People

if TYPE_CHECKING:
    from typing import TypeGuard

    from beam_ldp.randomizers.mean.base import MeanRandomizer
    from beam_ldp.transforms.elements.stages import Task


INLINE_BYTES = 1 << 18


class UnseenFileError(FileNotFoundError):
    """A file that a worker needs is not where it looks. The message says where that is."""


def unseen_here() -> str:
    """What is said of a file that the launcher saw and a worker does not see."""
    return (
        f"on the worker {socket.gethostname()} (its folder is {os.getcwd()}): give every worker "
        "the same folder under the same path, or use an object store"
    )


class PortableRandomizer:
    """A randomizer that travels as its parameters: tables computed from them stay behind."""

    def __init__(self, randomizer: LocalRandomizer) -> None:
        if not isinstance(randomizer, LocalRandomizer):
            raise TypeError(
                f"randomizer must be a LocalRandomizer, got {type(randomizer).__name__}"
            )
        self.randomizer = randomizer

    def __reduce__(self) -> tuple[Any, ...]:
        kind: Any = type(self.randomizer)
        parameters = tuple(
            (f.name, getattr(self.randomizer, f.name)) for f in fields(kind) if f.init
        )
        return _rebuild, (kind, parameters)


@functools.lru_cache(maxsize=32)
def _rebuild(
    kind: type[LocalRandomizer], parameters: tuple[tuple[str, Any], ...]
) -> PortableRandomizer:
    return PortableRandomizer(kind(**dict(parameters)))


class PortableDomain:
    """A public list of values that travels inline where it is small, else as a path.

    Args:
        domain: a `Domain`, an `IntegerDomain`, `Bins`, or the path of a file with one value per
            line, which every worker reads through Beam's file systems.
        other: label of `other`, where `domain` is a path.

    Raises:
        ValueError: if an inline list is larger than 256 KiB.
    """

    def __init__(
        self, domain: Domain | IntegerDomain | Bins | str | Path, other: str = OTHER
    ) -> None:
        if isinstance(domain, Path):
            domain = str(domain)
        if not isinstance(domain, (Domain, IntegerDomain, Bins, str)):
            raise TypeError(
                "domain must be a Domain, an IntegerDomain, Bins or the path of a file, got "
                f"{type(domain).__name__}"
            )
        if isinstance(domain, Domain) and sum(map(len, domain.values)) > INLINE_BYTES:
            raise ValueError(
                "domain is too large for the job graph: write it to a file, one value per line, "
                "and pass the path"
            )
        self._domain = domain
        self._other = other

    @classmethod
    def of(
        cls, domain: Domain | IntegerDomain | Bins | PortableDomain | str | Path
    ) -> PortableDomain:
        """The list as it travels, unless it does already."""
        return domain if isinstance(domain, PortableDomain) else cls(domain)

    def check_size(self, expected: int) -> None:
        """At construction, where the list is at hand: it must fit the randomizer."""
        if not isinstance(self._domain, str):
            check_domain_size(self._domain.size, expected)

    @property
    def of_numbers(self) -> bool:
        """Whether these are bins of numbers, and no list."""
        return isinstance(self._domain, Bins)

    @property
    def has_leading_zeros(self) -> bool:
        """Whether a value that is at hand is spelled by digits that begin with a zero, as 01 is."""
        known = self._domain.values if isinstance(self._domain, Domain) else ()
        return any(value[0] == "0" and value[1:].isdecimal() for value in known if value)

    def load(self) -> Domain | IntegerDomain | Bins:
        """The list; read once per worker and version of the file."""
        if not isinstance(self._domain, str):
            return self._domain
        found = FileSystems.match([self._domain], [1])[0].metadata_list
        if not found:
            raise UnseenFileError(f"domain: no file {self._domain} {unseen_here()}")
        return _read_domain(
            self._domain, self._other, found[0].size_in_bytes, found[0].last_updated_in_seconds
        )

    @property
    def digest(self) -> bytes:
        """16 bytes that identify the list, which is read for them."""
        return self.load().digest

    def describe(self) -> str:
        if isinstance(self._domain, str):
            return self._domain
        return f"{self._domain.size} values"


def groups_of(people: People) -> PortableDomain | None:
    """The public list of the groups that people are parted into, if they are.

    Raises:
        ValueError: for a column of groups without the list.
    """
    if people.groups is not None:
        return PortableDomain(people.groups)
    if people.group_by is not None:
        raise ValueError("groups must be given with group_by: the list of groups is public")
    return None


@functools.lru_cache(maxsize=4)
def _read_domain(path: str, other: str, size: int, updated: float) -> Domain:
    with FileSystems.open(path, mime_type="application/octet-stream") as file:
        return Domain.from_lines(file.read(), other)


def check_min_reports(min_reports: int) -> int:
    """The argument as an int, or a ValueError."""
    return check_integer("min_reports", min_reports, 1)


# What stages ask of a mechanism before any value is at hand -------------------------------


BLOCK_BYTES = 1 << 23  # reports that are made, counted or passed on together
BLOCK_ROWS = 1 << 20


def is_mean(randomizer: Any) -> TypeGuard[MeanRandomizer]:
    """Whether the mechanism takes vectors.

    Mean mechanisms take long to import; a program that has not done so has none.
    """
    module = sys.modules.get("beam_ldp.randomizers.mean.base")
    return module is not None and isinstance(randomizer, module.MeanRandomizer)


def task_of(randomizer: Any) -> Task:
    """What the mechanism's reports are for."""
    return "mean" if is_mean(randomizer) else "frequency"


def check_mean(randomizer: Any) -> None:
    """A TypeError unless the mechanism is one for means."""
    if not is_mean(randomizer):
        raise TypeError(f"randomizer must be a MeanRandomizer, got {type(randomizer).__name__}")


def vector_size(randomizer: LocalRandomizer) -> int | None:
    """Numbers in one value; None where a value is one number."""
    return randomizer.dimension if is_mean(randomizer) and randomizer.dimension > 1 else None


def report_bytes(randomizer: LocalRandomizer) -> int:
    """What one user's report takes in memory."""
    size = randomizer.report_dtype.itemsize
    for length in randomizer.report_shape:
        size *= length
    return max(1, size)


def rows_in(num_bytes: int, row_bytes: int) -> int:
    """Rows of that size in a block of at most `num_bytes` bytes and `BLOCK_ROWS` rows."""
    return min(BLOCK_ROWS, max(1, num_bytes // row_bytes))
