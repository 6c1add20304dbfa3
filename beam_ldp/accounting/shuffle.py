"""What one shuffled release costs: any of (epsilon, delta, local epsilon, reports) from the others.

The value returned is the smallest one that is *proved* for the mechanism at hand: the local
epsilon itself (shuffling never hurts), the clone pair (every local randomizer), the mechanism's
own blanket. Beside it stand two lower bounds; see `PrivacyBound`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from beam_ldp.accounting.class_lower import (
    class_lower_epsilon,
    three_response_witnesses,
    two_response_witnesses,
)
from beam_ldp.accounting.events import LocalRandomizerDpEvent, ShuffledDpEvent
from beam_ldp.accounting.hockey_stick import (
    MAX_REPORTS,
    check_reports,
    directions,
    epsilon_bound,
    hockey_stick,
    largest_log_ratio,
)
from beam_ldp.accounting.mean_price import mean_epsilon
from beam_ldp.accounting.privacy_bound import PrivacyBound
from beam_ldp.accounting.randomizer_events import (
    Randomizer,
    crowd,
    local_event,
    messages_per_user,
)
from beam_ldp.randomizers.shuffle_pair import ShufflePair

MAX_LOCAL_EPSILON = 30.0  # beyond it a report is the value itself

_PURE = "local epsilon (no amplification)"
_NO_WITNESS = "none: the mechanism offers no concrete pair of data sets"


def shuffle_epsilon(
    local: float | Randomizer | LocalRandomizerDpEvent,
    num_reports: int,
    delta: float,
    *,
    conjectured: bool = False,
) -> PrivacyBound:
    """Central epsilon at `delta` of `num_reports` shuffled reports.

    Protects one person's value (replace-one; participation is not hidden) against a reader of the
    shuffled reports, or of any function of them, who knows everybody else's value.

    Args:
        local: A local epsilon (the result holds for every such randomizer), a randomizer, or its
            event. Several messages per user are permuted column by column: see `mean_epsilon`.
        num_reports: Honest reports received; 1 to 1e12. Where a randomizer splits the crowd, its
            `crowd_size` counts.
        delta: In [0, 1). At 0 nothing but the local epsilon holds.
        conjectured: Also admit pairs that are not proved (the strong clone pair for any
            randomizer); the result's `proof_status` then says which kind won.

    Returns:
        Upper value, certified lower ones, method and proof status.

    >>> bound = shuffle_epsilon(4.0, 100_000, 1e-6)
    >>> round(bound, 5), round(bound.class_lower, 4), bound.method
    (0.16977, 0.117, 'clones')
    """
    if messages_per_user(local) != 1:
        return mean_epsilon(local, num_reports, delta)
    target, n = _target(local, num_reports)
    _check_delta(delta)
    pure = target.local_epsilon
    if delta == 0.0:
        return _bound(pure, _PURE, "proved", target, _largest, pure)
    best = (pure, _PURE, "proved")
    for pair in target.pairs(conjectured):
        found = max(epsilon_bound(side, n, delta, upper=True) for side in directions(pair))
        if found < best[0]:
            best = (found, pair.source, pair.proof_status)

    def lower(pair: ShufflePair) -> float:
        return epsilon_bound(pair, n, delta, upper=False)

    return _bound(*best, target, lower, min(pure, class_lower_epsilon(pure, n, 1.0, 1, delta)))


def shuffle_delta(
    local: float | Randomizer | LocalRandomizerDpEvent,
    num_reports: int,
    epsilon: float,
    *,
    conjectured: bool = False,
) -> PrivacyBound:
    """Central delta at `epsilon` of `num_reports` shuffled reports; see `shuffle_epsilon`.

    >>> bound = shuffle_delta(4.0, 100_000, 0.16977)
    >>> 0.999e-6 < bound < 1.001e-6
    True
    """
    target, n = _target(local, num_reports)
    _check_epsilon(epsilon)
    value, method, status = _upper_delta(target, n, epsilon, conjectured)

    def lower(pair: ShufflePair) -> float:
        return hockey_stick(pair, n, epsilon).lower

    budget = target.local_epsilon
    witnesses = (*two_response_witnesses(budget), *three_response_witnesses(budget))
    floor = max(lower(witness) for witness in witnesses)
    return _bound(value, method, status, target, lower, floor)


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
    _check_epsilon(epsilon)
    _check_delta(delta)
    if epsilon == 0.0:
        raise ValueError("epsilon must be > 0 to solve for the local epsilon")
    n = check_reports(num_reports)
    build = randomizer if randomizer is not None else float
    goal = math.log(delta) if delta > 0.0 else -math.inf

    def excess(local_epsilon: float) -> float:
        """Log of the price over the target; only its sign matters far from the root."""
        try:
            target, size = _target(build(local_epsilon), n, False)
        except ValueError:
            return math.inf  # the mechanism does not exist at so large a budget
        found = _upper_delta(target, size, epsilon, False)[0]
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


@dataclass(frozen=True)
class _Target:
    """What is priced."""

    local_epsilon: float
    own: ShufflePair | None
    witnesses: tuple[ShufflePair, ...]

    def pairs(self, conjectured: bool) -> list[ShufflePair]:
        generic = ShufflePair.clones(self.local_epsilon)
        found = [generic]
        if self.own is not None and self.own != generic:
            found.append(self.own)
        if conjectured:
            found.append(ShufflePair.clones(self.local_epsilon, strong=True))
        return [pair for pair in found if conjectured or pair.proof_status == "proved"]


def _target(local: Any, num_reports: int, with_witnesses: bool = True) -> tuple[_Target, int]:
    if isinstance(local, ShuffledDpEvent):
        raise ValueError("local must be a local epsilon, a randomizer or a LocalRandomizerDpEvent")
    if isinstance(local, (int, float)):
        if not (math.isfinite(local) and 0.0 < local <= MAX_LOCAL_EPSILON):
            raise ValueError(f"local_epsilon must be in (0, {MAX_LOCAL_EPSILON}], got {local!r}")
        return _Target(float(local), None, ()), check_reports(num_reports)
    n = crowd(local, num_reports)
    if not isinstance(local, LocalRandomizerDpEvent):
        if messages_per_user(local) != 1:
            raise ValueError("local must send one message per user; price each message column")
        if with_witnesses:
            local = local_event(local)
        else:  # they can take long to find, and a search for an upper value has no use for them
            local = LocalRandomizerDpEvent(local.local_epsilon, local.dominating_pair())
    if local.local_epsilon > MAX_LOCAL_EPSILON:
        raise ValueError(
            f"local_epsilon must be in (0, {MAX_LOCAL_EPSILON}], got {local.local_epsilon!r}"
        )
    own = local.dominating_pair() if local.pair is not None else None
    return _Target(local.local_epsilon, own, local.witness_pairs()), n


def _upper_delta(
    target: _Target, n: int, epsilon: float, conjectured: bool
) -> tuple[float, str, str]:
    if epsilon >= target.local_epsilon:
        return 0.0, _PURE, "proved"
    best = (1.0, "trivial", "proved")
    for pair in target.pairs(conjectured):
        found = max(hockey_stick(side, n, epsilon).upper for side in directions(pair))
        if found < best[0]:
            best = (found, pair.source, pair.proof_status)
    return best


def _largest(pair: ShufflePair) -> float:
    return max(0.0, largest_log_ratio(pair))


def _bound(
    value: float,
    method: str,
    status: str,
    target: _Target,
    lower: Callable[[ShufflePair], float],
    class_lower: float,
) -> PrivacyBound:
    best, source = 0.0, _NO_WITNESS
    for witness in target.witnesses:
        for side in directions(witness):
            found = lower(side)
            if found > best or source is _NO_WITNESS:
                best, source = found, witness.source
    if best > value * (1.0 + 1e-6) + 1e-300 and status == "proved":
        raise ArithmeticError(
            f"the upper bound {value!r} ({method}) is below the lower bound {best!r} ({source}): "
            "the mechanism's dominating_pair() and witness_pairs() contradict each other"
        )
    return PrivacyBound(
        value,
        lower=min(best, value),
        class_lower=class_lower,
        method=method,
        proof_status=status,
        lower_method=source,
    )


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
    _check_epsilon(epsilon)
    _check_delta(delta)

    def enough(n: int) -> bool:
        target, size = _target(local, n, False)
        return _upper_delta(target, size, epsilon, False)[0] <= delta

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


def _check_delta(delta: float) -> None:
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta must be in [0, 1), got {delta!r}")


def _check_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon >= 0.0):
        raise ValueError(f"epsilon must be a finite number >= 0, got {epsilon!r}")
