"""What is spent in one period: exact running totals, and what each person was charged locally."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from beam_ldp.ledger import kinds
from beam_ldp.ledger.charges import Charge
from beam_ldp.ledger.losses import Loss, read_loss
from beam_ldp.ledger.participants import NUM_SHARDS, AskedPeople, Files, folder_of

# Exact sums of floats: what was added can be taken away again, in any order, without a trace.
#
# A running total must not drift. Floats that are added and taken away leave rounding behind,
# which could read as less than what is spent. These sums hold every bit, and are rounded up when
# read.


_UNIT = 1074  # every finite float is a whole multiple of 2^-1074


@dataclass
class ExactSum:
    """An exact sum of floats >= 0; infinite ones are counted.

    >>> total = ExactSum()
    >>> total.add(0.1); total.add(1e300); total.add(1e300, -1)
    >>> total.value
    0.1
    """

    finite: int = 0
    infinite: int = 0

    def add(self, value: float, count: int = 1) -> None:
        """Add a float so many times; a negative count takes it away."""
        if math.isinf(value):
            self.infinite += count
            return
        above, below = value.as_integer_ratio()
        self.finite += count * (above << (_UNIT + 1 - below.bit_length()))

    def __add__(self, other: ExactSum) -> ExactSum:
        return ExactSum(self.finite + other.finite, self.infinite + other.infinite)

    @property
    def value(self) -> float:
        """The sum, rounded up to the next float."""
        if self.infinite:
            return math.inf
        try:
            found = self.finite / (1 << _UNIT)
        except OverflowError:
            return math.inf
        above, below = found.as_integer_ratio()
        exact = above << (_UNIT + 1 - below.bit_length())
        return found if exact >= self.finite else math.nextafter(found, math.inf)

    def to_json(self) -> str:
        """Every bit: hexadecimal digits, how many binary zeros follow, and infinities."""
        zeros = (self.finite & -self.finite).bit_length() - 1 if self.finite else 0
        return f"{self.finite >> zeros:x}:{zeros}:{self.infinite}"

    @classmethod
    def from_json(cls, told: str) -> ExactSum:
        """Inverse of `to_json`."""
        digits, zeros, infinite = told.split(":")
        if not 0 <= int(zeros) <= 1 << 14:
            raise ValueError("a sum has its point somewhere else")
        return cls(int(digits, 16) << int(zeros), int(infinite))


class ExactLoss:
    """An exact sum of losses at the same orders."""

    def __init__(self, orders: int, sums: list[ExactSum] | None = None) -> None:
        self._sums = sums or [ExactSum() for _ in range(orders + 2)]  # `Loss.figures`

    def add(self, loss: Loss, count: int = 1) -> None:
        """Add a loss so many times; a negative count takes it away."""
        for total, value in zip(self._sums, loss.figures, strict=True):
            total.add(value, count)

    @property
    def loss(self) -> Loss:
        """The sum, each figure rounded up."""
        return Loss.of(total.value for total in self._sums)

    def to_json(self) -> list[str]:
        return [total.to_json() for total in self._sums]

    @classmethod
    def from_json(cls, told: list[str]) -> ExactLoss:
        return cls(len(told) - 2, [ExactSum.from_json(text) for text in told])

    def __add__(self, other: ExactLoss) -> ExactLoss:
        return ExactLoss(0, [a + b for a, b in zip(self._sums, other._sums, strict=True)])


# What is spent and reserved in one period: running totals, exact, that rows add to --------
#
# Each row of a charge says what it adds and what it gives back. So totals follow from rows one by
# one, without a look at any earlier row; that a row says the truth of them is what a full reading
# checks (`state`), and every audit is one.


@dataclass
class Account:
    """Totals of one population, or of one quota in it, in one period.

    Attributes:
        spent, reserved: losses of what ended, and of what is open at its worst.
        local_spent, local_reserved: likewise of local epsilons.
        open: charges that are open, parts of blocks each counted.
        charges: reservations so far.
    """

    spent: ExactLoss
    reserved: ExactLoss
    local_spent: ExactSum = field(default_factory=ExactSum)
    local_reserved: ExactSum = field(default_factory=ExactSum)
    open: int = 0
    charges: int = 0

    @classmethod
    def empty(cls, orders: int) -> Account:
        return cls(ExactLoss(orders), ExactLoss(orders))

    @property
    def loss(self) -> Loss:
        """All that is spent or reserved."""
        return (self.spent + self.reserved).loss

    @property
    def local(self) -> float:
        """What a person lost locally, at worst, who took part in everything."""
        return (self.local_spent + self.local_reserved).value

    def take(self, kind: str, body: dict[str, Any]) -> None:
        """Add what a row of a charge adds."""
        if kind == kinds.RESERVE:
            count = int(body["count"])
            self.reserved.add(Loss.from_json(body["loss"]), count)
            self.local_reserved.add(read_loss(body["local_epsilon"]), count)
            self.open += count
            self.charges += 1
        elif kind in (kinds.SETTLE, kinds.ABANDON):
            count = int(body["count"])
            self.reserved.add(Loss.from_json(body["gives_back"]), -count)
            self.local_reserved.add(read_loss(body["gives_back_local"]), -count)
            self.local_spent.add(read_loss(body["local_epsilon"]), count)
            self.open -= count
            if kind == kinds.SETTLE:
                self.spent.add(Loss.from_json(body["loss"]), count)
        elif kind == kinds.REPLACE:
            self.spent.add(Loss.from_json(body["gives_back"]), -1)
            self.spent.add(Loss.from_json(body["loss"]))

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint holds it."""
        sums = {name: getattr(self, name).to_json() for name in _SUMS}
        return {**sums, "open": self.open, "charges": self.charges}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Account:
        sums = {name: kind.from_json(told[name]) for name, kind in _SUMS.items()}
        return cls(**sums, open=int(told["open"]), charges=int(told["charges"]))


_SUMS: dict[str, Any] = {
    "spent": ExactLoss,
    "reserved": ExactLoss,
    "local_spent": ExactSum,
    "local_reserved": ExactSum,
}


# How much each person was charged locally: counted from tags, as a row of the ledger holds it.


MOST_SUMS = 64  # different sums in a distribution; more are rounded up to so many
_DIGITS = 12  # of a sum: floats that differ later are one


@dataclass(frozen=True)
class PeopleCount:
    """The local ledger of a population in one period, person by person.

    Attributes:
        maximum: the largest sum of local epsilons of one person, over the runs counted.
        distribution: `(sum, people)`, rising; with more than 64 different sums they are rounded up.
        num_people: people who were asked by any of the runs counted.
        covered: `(charge, people)`: number of each charge that is counted, and whom it asked.
        key_id: of the key that made the tags, hexadecimal.
        digest: of all tags.
        exact: whether the sums are as they are, and not rounded up.
        left_out: run ids that are not counted, and why; empty when read from a row.
    """

    maximum: float
    distribution: tuple[tuple[float, int], ...]
    num_people: int
    covered: tuple[tuple[int, int], ...]
    key_id: str
    digest: str
    exact: bool = True
    left_out: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def numbers(self) -> frozenset[int]:
        """Numbers of the charges that are counted."""
        return frozenset(number for number, _ in self.covered)

    def quantile(self, share: float) -> float:
        """The least sum that this share of the people does not exceed."""
        seen = 0
        for total, people in self.distribution:
            seen += people
            if seen >= share * self.num_people:
                return total
        return self.maximum

    def to_json(self) -> dict[str, Any]:
        """As a row holds it."""
        told = {name: value for name, value in vars(self).items() if name != "left_out"}
        pairs = {name: list(map(list, told[name])) for name in ("distribution", "covered")}
        return {**told, **pairs}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> PeopleCount:
        """Inverse of `to_json`."""
        return cls(
            maximum=float(told["maximum"]),
            distribution=tuple((float(total), int(n)) for total, n in told["distribution"]),
            num_people=int(told["num_people"]),
            covered=tuple((int(number), int(n)) for number, n in told["covered"]),
            key_id=str(told["key_id"]),
            digest=str(told["digest"]),
            exact=bool(told["exact"]),
        )

    def check(self, charges: Mapping[int, Charge]) -> None:
        """A ValueError unless this can be true of these charges, which are by number.

        The sums of all people and those of all charges are the same money.
        """
        if len(self.numbers) != len(self.covered) or not self.numbers <= charges.keys():
            raise ValueError("people were counted for charges that have not ended")
        sums = [total for total, _ in self.distribution]
        people = [n for _, n in self.distribution]
        if (
            sums != sorted(set(sums))
            or sum(people) != self.num_people
            or min(people, default=1) < 1
        ):
            raise ValueError("a distribution must hold rising sums and all people")
        if not (math.isfinite(self.maximum) and self.maximum == (sums[-1] if sums else 0.0)):
            raise ValueError("the maximum must be the largest sum")
        asked = math.fsum(charges[number].local_epsilon * n for number, n in self.covered)
        charged = math.fsum(total * n for total, n in self.distribution)
        if charged < asked * (1 - 1e-9) or (self.exact and charged > asked * (1 + 1e-9)):
            raise ValueError("the sums of people must be the sums of charges")


def covered_local(counted: PeopleCount, charges: Mapping[int, Charge]) -> ExactSum:
    """The sum of the local epsilons of the charges that are counted, exactly."""
    total = ExactSum()
    for number in counted.numbers:
        total.add(charges[number].local_epsilon, charges[number].count)
    return total


def count_people(
    store: str, files: Files, population: str, charges: Sequence[Charge]
) -> PeopleCount:
    """Count what each person was charged by runs that have ended.

    Reads every tag three times, a shard at a time: memory is that of all runs' tags in one of 64
    shards; time is that of sorting them.

    Args:
        store: folder of all tags.
        files: where it lies.
        population: whose people.
        charges: those of a period that have ended.

    Raises:
        DamagedTagsError: if a file is not what was written.
    """
    left_out: dict[str, str] = {}
    asked: list[tuple[Charge, AskedPeople]] = []
    for charge in charges:
        if 0 < charge.local_epsilon < math.inf:
            folder = folder_of(store, population, charge.group, charge.about.get("window"))
            asked.append((charge, AskedPeople.open(files, folder)))
    newest = max((c.number for c, found in asked if found.names), default=None)
    keys = next((found.key_ids for c, found in asked if c.number == newest), frozenset())
    covered: list[tuple[Charge, AskedPeople, int]] = []
    for charge, found in asked:
        why = _unusable(charge, found, keys)
        if why is None:
            covered.append((charge, found, found.num_people))
        else:
            left_out[charge.run_id] = why
    sums: dict[float, int] = {}
    for shard in range(NUM_SHARDS):
        for total, people in _sums_of_shard(shard, covered):
            sums[total] = sums.get(total, 0) + people
    return PeopleCount(
        maximum=max(sums, default=0.0),
        distribution=_rounded_up(sums) if len(sums) > MOST_SUMS else tuple(sorted(sums.items())),
        exact=len(sums) <= MOST_SUMS,
        num_people=sum(sums.values()),
        covered=tuple((charge.number, n) for charge, _, n in covered),
        key_id=next(iter(keys)).hex() if covered else "",
        digest=_digest([found for _, found, _ in covered]),
        left_out=left_out,
    )


class FewerPeopleError(ValueError):
    """More reports came than people left hashes: somebody reported twice, or hashes are missing."""


def check_people(asked: AskedPeople, num_reports: int) -> None:
    """Every report is another person's: whoever is asked leaves a hash before anything is drawn.

    Raises:
        FewerPeopleError: if fewer people left hashes than reports came.
        DamagedTagsError: if a file is not what was written.
    """
    found = asked.num_people
    if found < num_reports:
        raise FewerPeopleError(
            f"{num_reports:,} reports came and {found:,} people left hashed ids: somebody reported "
            "twice, or hashes are missing"
        )


def _unusable(charge: Charge, found: AskedPeople, keys: frozenset[bytes]) -> str | None:
    """Why a run's tags cannot be counted; None if they can."""
    if not found.names:
        return "it left no hashed ids"
    if len(found.key_ids) != 1 or found.key_ids != keys:
        return "its ids were hashed with another key than those of the newest run"
    reports = charge.about.get("num_reports")
    if not isinstance(reports, int):
        return "it does not say how many reports came"
    if found.num_people < reports:
        return "it left fewer hashed ids than reports came"
    return None


def _sums_of_shard(
    shard: int, covered: Sequence[tuple[Charge, AskedPeople, int]]
) -> list[tuple[float, int]]:
    tags = [found.tags(shard) for _, found, _ in covered]
    if not any(map(len, tags)):
        return []
    prices = np.repeat([charge.local_epsilon for charge, _, _ in covered], list(map(len, tags)))
    _, person = np.unique(np.concatenate(tags), return_inverse=True)
    sums, people = np.unique(np.bincount(person, weights=prices), return_counts=True)
    return [(float(f"{s:.{_DIGITS}g}"), int(n)) for s, n in zip(sums.tolist(), people.tolist())]


def _rounded_up(sums: Mapping[float, int]) -> tuple[tuple[float, int], ...]:
    """The distribution with sums rounded up to an even grid that ends at the largest."""
    largest = max(sums)
    rounded: dict[float, int] = {}
    for total, people in sums.items():
        step = math.ceil(total / largest * MOST_SUMS)
        step += largest * step / MOST_SUMS < total
        edge = largest if step >= MOST_SUMS else largest * step / MOST_SUMS
        rounded[edge] = rounded.get(edge, 0) + people
    return tuple(sorted(rounded.items()))


def _digest(asked: Sequence[AskedPeople]) -> str:
    return hashlib.sha256("\n".join(found.digest for found in asked).encode()).hexdigest()
