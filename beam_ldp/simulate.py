"""What would I see? Private frequencies and means of data that you hold, beside the truth.

For choosing a mechanism and a budget before anything is collected: the mechanism's own randomizer
runs on values at hand, and its estimate stands beside what it estimates. **Nothing here protects
anybody**: whoever simulates holds the values, and sees the truth. Use data that you may look at
(public, synthetic, your own), and never release a simulation of data that you may not.

Needs NumPy and SciPy; pandas only for `to_pandas`. No Beam.

>>> answers = ["yes"] * 7000 + ["no"] * 3000
>>> seen = frequencies(answers, local_epsilon=1.0, seed=3)
>>> seen.labels, seen.truth.round(3).tolist(), bool(seen.inside.all())
(('no', 'yes', 'other'), [0.3, 0.7, 0.0], True)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_ldp.accounting.lower import PrivacyBound
from beam_ldp.planning import plan_frequencies, plan_means
from beam_ldp.randomizers import registry
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.domain import Domain, written
from beam_ldp.randomizers.estimate import Estimate, readable
from beam_ldp.randomizers.mean import CoordinateRanges

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Simulation", "frequencies", "means"]


@dataclass(frozen=True)
class Simulation:
    """One simulated release beside the truth.

    Attributes:
        labels: name of each component.
        truth: what the estimate estimates: fractions of users, or means in the unit of the data.
        estimate: as a collector would see it.
        randomizer: the mechanism that ran.
        epsilon: what a real release of as many shuffled reports would cost readers of the result,
            at `delta`; None without a delta. The simulation itself promises nothing.
        delta: of that price.
        level: of the intervals that are shown.
        left_out: nulls, which no program counts: a real release lists them among its bad rows.
    """

    labels: tuple[str, ...]
    truth: np.ndarray
    estimate: Estimate
    randomizer: LocalRandomizer
    epsilon: PrivacyBound | None
    delta: float | None
    level: float = 0.95
    left_out: int = 0

    @property
    def inside(self) -> np.ndarray:
        """Whether each pointwise interval holds the truth."""
        low, high = self.estimate.confidence_interval(self.level)
        return (low <= self.truth) & (self.truth <= high)

    def to_pandas(self) -> pd.DataFrame:
        """One row per component: truth, estimate, standard error, interval, inside."""
        frame = self.estimate.to_pandas(self.labels, self.level)
        frame.insert(0, "truth", self.truth)
        frame["inside"] = self.inside
        return frame

    def __str__(self) -> str:
        price = f"local epsilon {readable(self.randomizer.local_epsilon)}"
        if self.epsilon is not None:
            price += f"; shuffled, epsilon {readable(self.epsilon)} at delta {self.delta:g}"
        held = int(np.count_nonzero(self.inside))
        return (
            f"simulated, protects nobody: {type(self.randomizer).__name__}, "
            f"{self.estimate.num_users:,} users, {price}; {held} of {self.truth.size} intervals "
            f"({self.level:.0%}) hold the truth"
            + (f"; {self.left_out:,} nulls left out" if self.left_out else "")
        )

    def _repr_html_(self) -> str:
        from beam_ldp.randomizers.estimate import table

        interval = self.estimate.confidence_interval(self.level)
        return table(
            self.labels, self.estimate.raw.value, interval, truth=self.truth, caption=str(self)
        )


def frequencies(
    values: Iterable[Any],
    *,
    local_epsilon: float | None = None,
    epsilon: float | None = None,
    delta: float | None = 1e-8,
    domain: Domain | Iterable[Any] | None = None,
    mechanism: str | None = None,
    max_bits: int | None = None,
    seed: int | None = None,
) -> Simulation:
    """How often each value would be seen to occur, one value per person.

    Args:
        values: one per person, as a list, an array or a pandas series; compared as text. Nulls
            (None, NaN, NA) are left out, and counted in `left_out`.
        local_epsilon: budget of a report; or
        epsilon: central target at `delta`, which buys the largest local epsilon that it allows.
        delta: delta of the central epsilon.
        domain: the public list of values. By default the distinct values at hand, sorted: a
            convenience that only a simulation may allow itself, because the list of values that
            occur is itself something about people.
        mechanism: name of a frequency oracle; None: the most accurate one.
        max_bits: largest report.
        seed: for a simulation that repeats.

    Raises:
        ValueError: without values, for an unknown mechanism, or one that does not fit.

    Complexity: O(n) and the mechanism's decoding (`docs/mechanisms.md`).
    """
    given = list(values)
    held = [value for value in given if not _is_null(value)]
    texts = list(map(_text, held))
    if not texts:
        raise ValueError("values must hold at least one value that is not null")
    if not isinstance(domain, Domain):
        domain = Domain(_distinct(held) if domain is None else written(domain, "domain"))
    plans = plan_frequencies(len(texts), domain.size, epsilon, local_epsilon, delta, max_bits)
    plan = _chosen(plans, mechanism)
    indices = domain.encode(texts)
    truth = np.bincount(indices, minlength=domain.size) / len(texts)
    estimate = _run(plan.randomizer, indices, seed)
    price = _price(plan, delta)
    seen = Simulation(domain.labels, truth, estimate, plan.randomizer, price, delta)
    return replace(seen, left_out=len(given) - len(held))


def means(
    values: Any,
    *,
    ranges: Mapping[str, tuple[float, float]] | Sequence[tuple[float, float]] | tuple[float, float],
    local_epsilon: float | None = None,
    epsilon: float | None = None,
    delta: float | None = 1e-8,
    mechanism: str | None = None,
    max_bits: int | None = None,
    max_local_epsilon: float | None = None,
    seed: int | None = None,
) -> Simulation:
    """The mean of each column that would be seen, one row per person.

    Args:
        values: a pandas frame, or an array `(n,)` or `(n, d)` of numbers.
        ranges: the public range `(low, high)` of each column of a frame, by name (other columns
            are left out), one range for all columns, or a list of one for each. Numbers outside
            are clipped, as a device would; the truth is of the numbers as they are, so clipping
            shows.
        local_epsilon, epsilon, delta, max_bits, seed: as for `frequencies`.
        mechanism: name of a mean mechanism that takes ranges; None: the most accurate one.
        max_local_epsilon: most that a person may lose to somebody who sees the own messages.

    Raises:
        ValueError: for ranges that do not fit, numbers that are not finite, or no rows.
    """
    labels, rows, public = _columns(values, ranges)
    cube = [kind.__name__ for kind in registry.offered("mean") if kind.norm == "linf"]
    plans = plan_means(
        len(rows), rows.shape[1], "linf", epsilon=epsilon, local_epsilon=local_epsilon,
        delta=delta, max_bits=max_bits, max_local_epsilon=max_local_epsilon, only=cube,
    )  # fmt: skip
    plan = _chosen(plans, mechanism)
    inside = _run(plan.randomizer, public.encode(rows), seed)
    estimate = public.decode(inside)
    return Simulation(
        labels, rows.mean(axis=0), estimate, plan.randomizer, _price(plan, delta), delta
    )


def _is_null(value: Any) -> bool:
    """Whether this is a missing value: None, NaN, pandas' NA and NaT, a null of Arrow."""
    if value is None or not getattr(value, "is_valid", True):
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # NA is not equal and not unequal to anything
        return type(value).__name__ == "NAType"


def _distinct(values: list[Any]) -> tuple[str, ...]:
    """In their own order where they have one (numbers by size), else in that of their texts."""
    try:
        ordered = sorted(set(values))
    except TypeError:
        ordered = sorted(map(_text, set(values)))
    return tuple(dict.fromkeys(map(_text, ordered)))


def _text(value: Any) -> str:
    """A value as columns are read; what no column holds, as Python writes it."""
    try:
        return written((value,))[0]
    except ValueError:
        return str(value)


def _chosen(plans: list[Any], mechanism: str | None) -> Any:
    named = {plan.mechanism: plan for plan in plans}
    if mechanism is not None and mechanism not in named:
        raise ValueError(f"mechanism must be one of {', '.join(sorted(named))}, got {mechanism!r}")
    plan = plans[0] if mechanism is None else named[mechanism]
    if plan.excluded:
        raise ValueError(f"no mechanism fits: {plan.mechanism}: {plan.excluded}")
    return plan


def _price(plan: Any, delta: float | None) -> PrivacyBound | None:
    return None if delta is None else plan.epsilon


def _run(randomizer: Any, values: np.ndarray, seed: int | None) -> Any:
    rng = None if seed is None else np.random.default_rng(seed)
    reports = randomizer.randomize(values, rng)
    return randomizer.estimate(randomizer.accumulate(reports), len(values))


def _columns(values: Any, ranges: Any) -> tuple[tuple[str, ...], np.ndarray, CoordinateRanges]:
    named = isinstance(ranges, Mapping)
    if hasattr(values, "columns"):
        columns = list(ranges) if named else list(values.columns)
        absent = [name for name in columns if name not in values.columns]
        if absent:
            raise ValueError(f"ranges names columns that the frame does not have: {absent}")
        rows = values[columns].to_numpy(dtype=np.float64)
    elif named:
        raise ValueError("ranges by name need a frame; for an array give one (low, high)")
    else:
        rows = np.asarray(values, dtype=np.float64)
        rows = rows[:, None] if rows.ndim == 1 else rows
        columns = list(range(rows.shape[1])) if rows.ndim == 2 else []
    if rows.ndim != 2 or not rows.size:
        raise ValueError("values must hold at least one row of numbers, shape (n,) or (n, d)")
    if not np.isfinite(rows).all():
        raise ValueError("values must hold finite numbers; leave rows with missing ones out")
    bounds = [ranges[name] for name in columns] if named else _bounds(ranges, len(columns))
    low, high = zip(*bounds)
    return tuple(map(str, columns)), rows, CoordinateRanges(low, high)


def _bounds(ranges: Any, count: int) -> list[Any]:
    """A range for each of so many columns, of one for all or of a list of them."""
    listed = list(ranges)
    pairs = [np.shape(one) == (2,) for one in listed]
    if not any(pairs) and len(listed) == 2:
        return [tuple(listed)] * count
    if not all(pairs) or len(listed) != count:
        raise ValueError(
            f"ranges must be one (low, high), or a list of {count} of them, one for each column"
        )
    return listed
