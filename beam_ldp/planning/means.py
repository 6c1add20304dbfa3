"""Which mean mechanism, at which budget, with what error: before any data is read."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Literal

from beam_ldp.accounting.divergences.hockey_stick import check_reports
from beam_ldp.accounting.reports import hidden_users
from beam_ldp.planning.mean_tunings import MeanTask, earned, mechanisms, variants
from beam_ldp.planning.plan import Plan, best_first, check_target, local_limit
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.mean import MeanRandomizer
from beam_ldp.randomizers.mean.base import Norm
from beam_ldp.randomizers.mean.block_mean import BlockMean
from beam_ldp.randomizers.walsh_hadamard import padded_size
from beam_ldp.wording import number

Model = Literal["shuffle", "local"]

MAX_DIMENSION = 1 << 20
_LADDERED = 1 << 14  # dimensions: beyond, a plan of many messages takes seconds
_ALIKE = 1.01
_MET = 1 + 1e-9


def plan_means(
    num_users: int,
    dimension: int,
    norm: Norm | float = "l2",
    *,
    radius: float = 1.0,
    epsilon: float | None = None,
    local_epsilon: float | None = None,
    delta: float | None = None,
    max_bits: int | None = None,
    max_local_epsilon: float | None = None,
    model: Model = "shuffle",
    honest_fraction: float = 1.0,
    only: Collection[str] | None = None,
    max_messages: int | None = None,
    several: bool = False,
    trust_shuffler: bool = False,
) -> list[Plan]:
    """Every mean mechanism for this task, best first, unusable ones last with the reason.

    Args:
        num_users: Users expected; 1 to 1e12.
        dimension: Coordinates per vector; 1 to a million (2**20).
        norm: Ball that the vectors lie in: "l2", "l1", "linf", "binary" (entries 0 and 1), or the
            p >= 1 of an l_p norm. Mechanisms of an enclosing ball are considered too.
        radius: Of the ball, in the unit of the data.
        epsilon: Central target, with `delta`; in the local model the local budget.
        local_epsilon: Local budget instead; exactly one of the two.
        delta: Central delta in (0, 1). Without it the price is the local epsilon itself.
        max_bits: Most bits that a user may send.
        max_local_epsilon: Most that a user may lose to somebody who sees the own messages before
            the shuffle; budgets are cut to it.
        model: "shuffle", or "local": nobody but the device is trusted.
        honest_fraction: Share of the reports that are certainly not fake, in (0, 1]; only those
            hide anybody.
        only: Names of the mechanisms to consider; None for all.
        max_messages: Most messages that a user may send.
        several: Whether a mechanism may have more rows than its most accurate one: every way to
            tune it that no row is better than in error, bits and local epsilon.
        trust_shuffler: Whether people may be protected by the shuffler alone: a central target
            then has `SplitAndMixMean` beside the others, whose local epsilon is infinite.

    Returns:
        One row per mechanism, or several. First those that may be used, by `rms_error`; among
        errors that are equal to 1 %, by bits.

    >>> plans = plan_means(10_000, 16, epsilon=1.0, delta=1e-6)
    >>> plans[0].mechanism, plans[0].epsilon <= 1.0, plans[0].messages_per_user > 1
    ('L2Mean', True, True)
    >>> plan_means(10_000, 16, epsilon=1.0, model="local")[0].times_lower_bound < 1.02
    True
    """
    if model not in ("shuffle", "local"):
        raise ValueError(f'model must be "shuffle" or "local", got {model!r}')
    hidden = hidden_users(check_reports(num_users), honest_fraction)
    check_target(epsilon, local_epsilon, delta, max_bits, shuffled=model == "shuffle")
    if model == "local":
        hidden, epsilon, local_epsilon, delta = 1, None, local_epsilon or epsilon, None
    size = check_integer("dimension", dimension, 1, MAX_DIMENSION)
    if max_messages is not None:
        check_integer("max_messages", max_messages, 1)
    task = MeanTask(
        num_users=int(num_users), hidden=hidden, dimension=size, norm=norm, radius=float(radius),
        epsilon=epsilon, local_epsilon=local_epsilon, delta=delta, max_bits=max_bits or math.inf,
        max_local_epsilon=local_limit(max_local_epsilon), max_messages=max_messages or math.inf,
        trust_shuffler=trust_shuffler and model == "shuffle",
    )  # fmt: skip
    usable = [(cls, o) for cls, o in mechanisms(task) if only is None or cls.__name__ in only]
    plans = best_first([_best(task, cls, outer) for cls, outer in usable])
    if not several:
        return plans
    longest = {plan.mechanism: plan.bits_per_report for plan in plans if not plan.excluded}
    more = [row for cls, outer in usable for row in _shorter(task, cls, outer, longest)]
    return best_first([*plans, *_frontier(task, plans, more)])


def recommend_mean(
    num_users: int, dimension: int, norm: Norm | float = "l2", **constraints: Any
) -> Plan:
    """The first row of `plan_means`, which see for the arguments.

    Raises:
        ValueError: If no mechanism meets the constraints.

    >>> recommend_mean(10_000, 16, epsilon=1.0, delta=1e-6, max_bits=64).bits_per_report <= 64
    True
    """
    first = plan_means(num_users, dimension, norm, **constraints)[0]
    if first.excluded:
        raise ValueError(f"no mechanism meets the constraints: {first.excluded}")
    return first


def _best(task: MeanTask, cls: type[MeanRandomizer], radius: float) -> Plan:
    """The best way to tune one mechanism, or one with the reason against it."""
    rows = []
    try:
        for randomizer in variants(task, cls, radius):
            rows.append(_row(task, randomizer))
    except ValueError as error:
        if not rows:
            return _absent(cls, str(error))
    ranked = best_first(rows)
    for row in ranked:
        if not row.excluded:  # prices take longer than errors: only where they matter
            priced = _priced(task, row)
            if not priced.excluded:
                return priced
    return ranked[0] if ranked[0].excluded else _priced(task, ranked[0])


_LADDER = (1 / 8, 1 / 4, 1)  # bits per coordinate, beside as many as the best takes


def _shorter(
    task: MeanTask, cls: type[MeanRandomizer], radius: float, longest: dict[str, int]
) -> list[Plan]:
    """Further ways to tune a mechanism, without their prices: those of fewer bits."""
    found = []
    allowed = [task.max_bits]
    if issubclass(cls, BlockMean) and task.local_epsilon is None and task.dimension <= _LADDERED:
        size = padded_size(task.dimension)
        allowed = [each * size for each in _LADDER if each * size < longest.get(cls.__name__, 0)]
    for bits in allowed:
        with contextlib.suppress(ValueError):
            for randomizer in variants(replace(task, max_bits=bits), cls, radius):
                found.append(_row(task, randomizer))
    return found


def _frontier(task: MeanTask, plans: Sequence[Plan], more: Sequence[Plan]) -> list[Plan]:
    """Those of `more` that no row is better than in everything, priced."""
    kept = [plan for plan in plans if not plan.excluded]
    added = []
    for row in best_first([one for one in more if not one.excluded]):
        if any(_as_good(other, row) for other in kept):
            continue
        priced = _priced(task, row)
        if not priced.excluded:
            kept.append(priced)
            added.append(priced)
    return added


def _as_good(one: Plan, other: Plan) -> bool:
    """In error (to 1 %), bits and local epsilon."""
    return (
        one.rms_error <= _ALIKE * other.rms_error
        and one.bits_per_report <= other.bits_per_report
        and one.local_epsilon <= _ALIKE * other.local_epsilon
    )


def _row(task: MeanTask, randomizer: MeanRandomizer) -> Plan:
    n, bits, budget = task.num_users, randomizer.bits_per_report, randomizer.local_epsilon
    noise = randomizer.mean_squared_error(n)
    error = noise + randomizer.shift_bound**2
    reference, name = task.reference()
    excluded = ""
    if bits > task.max_bits:
        excluded = f"{bits:,} bits per user, max_bits is {task.max_bits:,}"
    elif randomizer.messages_per_user > task.max_messages:
        sent = randomizer.messages_per_user
        excluded = f"{sent:,} messages per user, max_messages is {task.max_messages:,}"
    elif budget > task.max_local_epsilon * _MET:
        excluded = f"local epsilon {number(budget)}, above the limit of {task.max_local_epsilon:g}"
    return Plan(
        mechanism=type(randomizer).__name__,
        randomizer=randomizer,
        rms_error=math.sqrt(error),
        standard_errors=(math.sqrt(float(randomizer.variance(n).max())),),
        mean_squared_error=noise,
        times_lower_bound=error / reference if reference > 0 else math.inf,
        lower_bound_name=name,
        decoding=randomizer.decoding,
        excluded=excluded,
    )


def _priced(task: MeanTask, row: Plan) -> Plan:
    """With its price; with a budget of its own where that of its first variant costs too much."""
    row, randomizer = replace(row, num_hidden=task.hidden, delta=task.delta or 0.0), row.randomizer
    assert row.epsilon is not None
    if task.epsilon is not None and row.epsilon > task.epsilon * _MET:
        if row.messages_per_user == 1 and not isinstance(randomizer, BlockMean):
            own = earned(task, lambda budget: replace(randomizer, local_epsilon=budget))
            if own < randomizer.local_epsilon:
                return _priced(task, _row(task, replace(randomizer, local_epsilon=own)))
        reason = f"central epsilon {number(row.epsilon)}, the target is {task.epsilon:g}"
        return replace(row, excluded=reason)
    return row


def _absent(cls: type[MeanRandomizer], reason: str) -> Plan:
    return Plan(cls.__name__, None, decoding=cls.decoding, excluded=reason)
