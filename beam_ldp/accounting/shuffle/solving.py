"""Any of (epsilon, delta, local epsilon, reports) of one shuffled release from the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from beam_ldp.accounting.divergences.bit_counts import (
    Bit,
    Releases,
    bit_epsilon,
    epsilon_bounds,
)
from beam_ldp.accounting.divergences.crowd_sizes import Crowd
from beam_ldp.accounting.divergences.hockey_stick import (
    MAX_REPORTS,
    check_reports,
    directions,
    epsilon_uppers,
)
from beam_ldp.accounting.shuffle.one_release import (
    MAX_LOCAL_EPSILON,
    Randomizer,
    check_delta,
    check_epsilon,
    crowd,
    messages_per_user,
    price_target,
    sends_bits,
    shuffle_delta,
    shuffle_epsilon,
    upper_delta,
)
from beam_ldp.randomizers.shuffle_pair import ShufflePair


def local_epsilon_for(
    epsilon: float,
    delta: float,
    num_reports: int,
    randomizer: Callable[[float], Randomizer] | None = None,
) -> float:
    """The largest local epsilon whose shuffled price is at most `epsilon` at `delta`.

    Args:
        epsilon: Central target, > 0. The result is at least this.
        delta: In [0, 1).
        num_reports: Honest reports.
        randomizer: Builds the mechanism for a local epsilon, so that its own pair is priced; by
            default the price that holds for every randomizer.

    Returns:
        A local epsilon of at most `MAX_LOCAL_EPSILON`, to six digits, on the safe side. Where a
        mechanism's price is not monotone, one such local epsilon.

    >>> round(local_epsilon_for(1.0, 1e-8, 1_000_000), 3)
    8.994
    """
    check_epsilon(epsilon)
    check_delta(delta)
    if epsilon == 0.0:
        raise ValueError("epsilon must be > 0 to solve for the local epsilon")
    n = check_reports(num_reports)
    build = randomizer if randomizer is not None else float
    goal = math.log(delta) if delta > 0.0 else -math.inf

    def excess(local_epsilon: float) -> float:
        """Log of the price over the target; only its sign matters far from the root."""
        try:
            target, size = price_target(build(local_epsilon), n, False)
        except ValueError:
            return math.inf  # the mechanism does not exist at so large a budget
        found = upper_delta(target, size, epsilon, False)[0]
        return (math.log(found) if found > 0.0 else -800.0) - goal

    low = high = min(epsilon, MAX_LOCAL_EPSILON)
    build(low)  # errors of the builder itself come out here
    if delta == 0.0 or epsilon >= MAX_LOCAL_EPSILON:
        return low
    below = -800.0
    while True:
        high = min(1.3 * high + 0.2, MAX_LOCAL_EPSILON)
        above = excess(high)
        if above > 0.0:
            break
        low, below = high, above
        if high == MAX_LOCAL_EPSILON:
            return high
    return _largest_within(excess, low, high, below, above)


def solve(
    *,
    epsilon: float | None = None,
    local_epsilon: float | None = None,
    delta: float | None = None,
    num_reports: int | None = None,
    randomizer: Callable[[float], Randomizer] | None = None,
) -> float:
    """The one of the four that is left out, from the other three.

    Args:
        epsilon: Central epsilon.
        local_epsilon: Local epsilon.
        delta: Central delta.
        num_reports: Shuffled, honest reports.
        randomizer: Builds the mechanism for a local epsilon; by default any randomizer.

    Returns:
        A `PrivacyBound` for epsilon and delta, the largest admissible local epsilon, or the least
        admissible number of reports.

    Raises:
        ValueError: Unless exactly one of the four is None, or if no number of reports suffices.

    >>> round(solve(local_epsilon=4.0, delta=1e-6, num_reports=100_000), 5)
    0.16977
    >>> solve(local_epsilon=4.0, delta=1e-6, epsilon=0.16978)
    99991
    """
    given = dict(epsilon=epsilon, local_epsilon=local_epsilon, delta=delta, num_reports=num_reports)
    absent = [name for name, value in given.items() if value is None]
    if len(absent) != 1:
        raise ValueError(
            "exactly one of epsilon, local_epsilon, delta, num_reports must be None, got "
            f"{len(absent)}: {absent}"
        )
    if local_epsilon is None:
        assert epsilon is not None and delta is not None and num_reports is not None
        return local_epsilon_for(epsilon, delta, num_reports, randomizer)
    local: Any = local_epsilon if randomizer is None else randomizer(local_epsilon)
    if epsilon is None:
        assert delta is not None and num_reports is not None
        return shuffle_epsilon(local, num_reports, delta)
    if delta is None:
        assert num_reports is not None
        return shuffle_delta(local, num_reports, epsilon)
    return _least_reports(local, epsilon, delta)


def _largest_within(
    excess: Callable[[float], float], low: float, high: float, below: float, above: float
) -> float:
    """Regula falsi with bisection; `low` is always admissible."""
    for turn in range(200):
        if high - low <= 1e-6 * low:
            break
        share = 0.5
        if turn % 3 < 2 and below > -50.0 and above < math.inf:
            share = min(0.98, max(0.02, -below / (above - below)))
        middle = low + share * (high - low)
        # Steps of this size past the secant's guess close the bracket from both sides.
        middle += (0.3e-6 if turn % 3 == 0 else -0.3e-6) * low if share != 0.5 else 0.0
        middle = min(max(middle, low + 1e-9 * low), high - 1e-9 * low)
        found = excess(middle)
        if found > 0.0:
            high, above = middle, found
        else:
            low, below = middle, found
    return low


def _least_reports(local: Any, epsilon: float, delta: float) -> int:
    check_epsilon(epsilon)
    check_delta(delta)

    def enough(n: int) -> bool:
        target, size = price_target(local, n, False)
        return upper_delta(target, size, epsilon, False)[0] <= delta

    high = 1
    while not enough(high):
        if high >= MAX_REPORTS:
            raise ValueError(
                f"no number of reports up to 1e12 reaches epsilon={epsilon!r} at delta={delta!r}"
            )
        high = min(4 * high, MAX_REPORTS)
    low = 0 if high == 1 else high // 4
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


# Prices of many shuffles at once, for planners and plots ----------------------------------


def shuffle_epsilons(
    local_epsilons: ArrayLike | Sequence[Randomizer],
    num_reports: ArrayLike,
    delta: ArrayLike,
    *,
    randomizer: Callable[[float], Randomizer] | None = None,
) -> np.ndarray:
    """Upper values of `shuffle_epsilon` for arrays of arguments, which broadcast.

    All searches go on at once, and lower bounds are left out: many times faster than one call per
    value, and equal to them (to 1e-8).

    Args:
        local_epsilons: Local epsilons in (0, 30], or randomizers of one message.
        num_reports: Honest reports; 1 to 1e12.
        delta: In [0, 1).
        randomizer: Builds a mechanism of one message from a local epsilon, so that its own pair is
            priced; by default what holds for every randomizer.

    Returns:
        float64 array of the broadcast shape.

    >>> shuffle_epsilons([1.0, 4.0], 100_000, 1e-6).round(4)
    array([0.0153, 0.1698])
    >>> shuffle_epsilons([[1.0], [2.0]], [1e4, 1e6], 1e-6).shape
    (2, 2)
    """
    arrays = np.broadcast_arrays(np.asarray(local_epsilons), num_reports, delta)
    cases: dict[tuple[Any, Any, float], int] = {}
    flat = zip(*(array.ravel().tolist() for array in arrays), strict=True)
    where = [cases.setdefault(case, len(cases)) for case in flat]
    values, releases, owners = np.empty(len(cases)), [], []
    bits: list[tuple[int, Bit, int, float]] = []
    for case, (local, reports, each_delta) in enumerate(cases):
        check_delta(each_delta)
        mechanism = local if hasattr(local, "dominating_pair") else None
        values[case] = local if mechanism is None else mechanism.local_epsilon
        if not 0 < values[case] <= MAX_LOCAL_EPSILON:
            raise ValueError(f"local_epsilons must lie in (0, {MAX_LOCAL_EPSILON:g}]")
        if mechanism is None and randomizer is not None:
            mechanism = randomizer(local)
        pairs = [ShufflePair.clones(float(values[case]))]
        size: Crowd = check_reports(reports)  # in all groups together
        if mechanism is not None:
            if messages_per_user(mechanism) != 1:
                raise ValueError("local_epsilons must be of randomizers that send one message")
            own = mechanism.dominating_pair()
            pairs += [own] if own.proof_status == "proved" else []
            size = crowd(mechanism, check_reports(reports))
            if each_delta > 0.0 and sends_bits(mechanism):
                bit = Bit.of([(*both, p) for both, p in zip(own.ratios, own.probabilities)])
                if isinstance(size, int):
                    bits += [(case, side, size, each_delta) for side in bit.directions]
                else:  # takes all its sizes at once
                    values[case] = min(values[case], bit_epsilon(bit, size, each_delta)[1])
        for pair in pairs if each_delta > 0.0 else ():
            releases.append([(side, size, each_delta) for side in directions(pair)])
            owners.append(case)
    if releases:
        found = epsilon_uppers([side for sides in releases for side in sides])
        starts = np.cumsum([0, *map(len, releases[:-1])])
        np.minimum.at(values, owners, np.maximum.reduceat(found, starts))
    if bits:
        places, sides, sizes, lefts = zip(*bits)
        found = epsilon_bounds(Releases.of(list(zip(sides, sizes))), np.array(lefts))[1]
        worst = np.zeros(len(cases))
        some = np.unique(places)
        np.maximum.at(worst, np.array(places), found)
        values[some] = np.minimum(values[some], worst[some])
    return np.asarray(values[where]).reshape(arrays[0].shape)
