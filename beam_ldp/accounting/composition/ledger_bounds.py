"""What the releases of a ledger cost at most, and at least.

At most: one event by Rényi orders, all by their losses, for schedules that were fixed beforehand.
Every kind of release is composed with itself on a grid that fits its own spread, and the kinds then
meet on one grid that fits the spread of them all: a few thousand points, whatever was composed.
Nothing is rounded but upwards. At least: by concrete data sets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import attr
import numpy as np

from beam_ldp.accounting.composition import loss_curves
from beam_ldp.accounting.composition.loss_curves import hopeless, renyi_divergences
from beam_ldp.accounting.composition.sampled_curves import (
    message_columns,
    messages_divergences,
    sampled_top,
)
from beam_ldp.accounting.composition.sampled_gaussian import SampledGaussian
from beam_ldp.accounting.divergences.crowd_sizes import Crowd
from beam_ldp.accounting.divergences.curve_losses import NEGLIGIBLE, STEPS_PER_DEVIATION, loss_knots
from beam_ldp.accounting.divergences.hockey_stick import directions
from beam_ldp.accounting.divergences.loss_grid import (
    MOST_RELEASES,
    LossGrid,
    composed_grids,
    composed_losses,
    less_rounding,
    together,
)
from beam_ldp.accounting.divergences.moments import Atoms
from beam_ldp.accounting.lower import bit_atoms, witness_atoms
from beam_ldp.accounting.reports import (
    SELF,
    LocalReports,
    SampledReports,
    ShuffledMessages,
    ShuffledReports,
    failure_of,
)
from beam_ldp.accounting.shares import ShuffledShares
from beam_ldp.accounting.shuffle.one_release import MAX_LOCAL_EPSILON
from beam_ldp.accounting.shuffle.split_and_mix import sum_atoms
from beam_ldp.randomizers import special
from beam_ldp.randomizers.shuffle_pair import two_level_witnesses

# One event by Rényi orders, and without any delta -----------------------------------------


class CommittedReports(NamedTuple):
    """Releases that were fixed beforehand, as one: see `CommittedDpEvent`.

    Attributes:
        parts: Events, and how often.
        delta: What its tail has of a hockey stick.
    """

    parts: tuple[tuple[Any, int], ...]
    delta: float

    @property
    def failure_probability(self) -> float:
        """That its divergences do not hold."""
        return self.delta + math.fsum(count * failure_of(event) for event, count in self.parts)


@lru_cache(maxsize=256)
def event_divergences(event: Any, orders: tuple[float, ...]) -> np.ndarray:
    """Upper bounds of the Rényi divergence at each real order above one; infinite where unknown."""
    values = np.array(orders)
    if isinstance(event, CommittedReports):
        whole = sum(count * event_divergences(part, orders) for part, count in event.parts)
        return np.minimum(whole, _without_tail(event, values))
    if isinstance(event, ShuffledMessages):
        return messages_divergences(event, values)
    if isinstance(event, ShuffledShares):
        return event.losses.divergences(values)
    if isinstance(event, LocalReports):
        return _randomized_response(event.local_epsilon, values)
    if isinstance(event, (ShuffledReports, SampledReports)):
        if hopeless(event):
            return np.full(len(values), largest_loss(event))
        return renyi_divergences(event, values)
    from beam_ldp.accounting.composition import (
        central,  # loads dp_accounting, whose events these are
    )

    return central.divergences(event, values)


def largest_loss(event: Any) -> float:
    """Pure epsilon of one release, about one person (with several points: about one of them)."""
    if isinstance(event, CommittedReports):
        return math.fsum(count * largest_loss(part) for part, count in event.parts)
    if isinstance(event, (LocalReports, ShuffledReports, ShuffledMessages, ShuffledShares)):
        return event.local_epsilon
    if not isinstance(event, SampledReports):
        from beam_ldp.accounting.composition import central  # as above

        return central.largest_loss(event)
    return event.local_epsilon if hopeless(event) else sampled_top(event)


def _without_tail(schedule: CommittedReports, orders: np.ndarray) -> np.ndarray:
    """The divergences of a schedule whose losses are cut where the hockey stick is its `delta`.

    With P and Q of the distribution of losses, and L that loss, P' = min(P, e^L Q) misses no more
    of P than `delta`, and is what happens but for a chance. What the schedule releases is made of
    that pair by post-processing, whose divergences are no larger.
    """
    losses = ledger_losses(dict(schedule.parts))
    cut = math.inf if losses is None else losses.epsilon(schedule.delta)
    if losses is None or math.isinf(cut):
        return np.full(len(orders), math.inf)
    # Of P' where the loss is l: its ratio to Q is at most e^L, and there P' is e^(L - l) of P.
    ratio = np.minimum(losses.losses, cut)
    with np.errstate(divide="ignore"):
        log_mass = np.log(np.maximum(losses.mass, 0.0)) + ratio - losses.losses
    # What lies above all listed losses is cut as well.
    log_mass = np.append(log_mass, math.log(max(losses.beyond, 1e-300)))
    ratio = np.append(ratio, cut)
    found = [np.logaddexp.reduce(log_mass + (order - 1) * ratio) / (order - 1) for order in orders]
    return np.maximum(0.0, found)


def _randomized_response(local_epsilon: float, orders: np.ndarray) -> np.ndarray:
    """The largest divergence of any mechanism with this epsilon: binary randomized response."""
    truth, lie = -np.log1p(np.exp(-local_epsilon)), -np.log1p(np.exp(local_epsilon))
    first = orders * truth + (1 - orders) * lie
    second = orders * lie + (1 - orders) * truth
    return np.minimum(np.logaddexp(first, second) / (orders - 1), local_epsilon)


# A whole ledger by its losses -------------------------------------------------------------


_OWN = (ShuffledReports, SampledReports)
_LONG = 1 << 18  # more releases than that are composed in two steps
_LARGEST_GRID = 1 << 20  # 8 MB
_COMMON_STEPS_PER_DEVIATION = 100
_STEPS_PER_ROOT = 20  # times the root of the number of kinds
_AT_ONCE = 32  # kinds

Counts = Mapping[Any, int]  # events, or what events are made of


def ledger_losses(counts: Counts) -> LossGrid | None:
    """The losses of so many releases of each kind; None where those of a kind are not known."""
    return _composed(tuple(counts.items()))


@lru_cache(maxsize=32)
def _composed(counts: tuple[tuple[Any, int], ...]) -> LossGrid | None:
    parts = _parts(dict(counts))
    if (
        not parts
        or sum(parts.values()) > MOST_RELEASES
        or any(_deviation(p) is None for p in parts)
    ):
        return None
    alone = [repeated_losses(part, count) for part, count in parts.items()]
    if len(alone) == 1:
        return alone[0]
    # Chords between knots add to the spread of every kind: many kinds need more knots.
    steps = max(_COMMON_STEPS_PER_DEVIATION, _STEPS_PER_ROOT * math.sqrt(len(alone)))
    step = _total_deviation(parts) / steps
    step = max(step, *(losses.highest / _LARGEST_GRID for losses in alone))
    grids = [_on(losses, step) for losses in alone]
    while len(grids) > _AT_ONCE:  # whose transforms need not be as long as that of them all
        chunks = [grids[i : i + _AT_ONCE] for i in range(0, len(grids), _AT_ONCE)]
        grids = [together([(grid, 1) for grid in chunk]) for chunk in chunks]
    return together([(grid, 1) for grid in grids])


@lru_cache(maxsize=64)  # a stream of many windows asks for all kinds but one again and again
def repeated_losses(part: Any, count: int) -> LossGrid:
    """The losses of `count` equal releases."""
    if count <= _LONG:
        return _repeated(_losses(part), count)
    most, rest = divmod(count, _LONG // 2)
    step = _total_deviation({part: count - rest}) / _COMMON_STEPS_PER_DEVIATION
    many = repeated_losses(part, _LONG // 2)
    many = many.on(max(step / math.sqrt(most), many.highest / _LARGEST_GRID))
    long = _repeated(many, most)
    if not rest:
        return long.on(max(step, long.highest / _LARGEST_GRID))
    short = repeated_losses(part, rest)
    step = max(step, long.highest / _LARGEST_GRID, short.highest / _LARGEST_GRID)
    return together([(long.on(step), 1), (short.on(step), 1)])


def _repeated(losses: LossGrid, count: int) -> LossGrid:
    """So many releases, on a coarser grid where a fine one would fill the memory."""
    while (places := losses.places(count, _LARGEST_GRID)) > _LARGEST_GRID:
        losses = losses.on(losses.step * math.ceil(places / _LARGEST_GRID))
    return losses.repeated(count)


@lru_cache(maxsize=64)
def _on(losses: LossGrid, step: float) -> LossGrid:
    return losses.on(step)


def _losses(part: Any) -> LossGrid:
    """Those of one release."""
    if isinstance(part, _OWN):
        return loss_curves.loss_grid(part)
    if isinstance(part, ShuffledShares):
        return _shares_grid(part)
    from beam_ldp.accounting.composition import (
        central,  # loads dp_accounting, whose events these are
    )

    deviation = central.deviation(part)
    assert deviation is not None
    return central.loss_grid(part, deviation / STEPS_PER_DEVIATION)


def _parts(counts: Counts) -> dict[Any, int]:
    """The kinds that have a distribution of their own: several messages are columns."""
    parts: dict[Any, int] = {}
    for event, count in counts.items():
        columns = [(1, event)]
        if isinstance(event, ShuffledMessages):
            columns = list(message_columns(event))
        elif isinstance(event, LocalReports):
            columns = list(loss_curves.alone(event))
        for each, part in columns:
            parts[part] = parts.get(part, 0) + each * count
    return parts


def _deviation(part: Any) -> float | None:
    if isinstance(part, ShuffledShares):
        return _shares_deviation(part)
    if not isinstance(part, _OWN):
        from beam_ldp.accounting.composition import central  # as above

        return central.deviation(part)
    if hopeless(part):
        return None
    return loss_curves.loss_deviation(part)


def _total_deviation(parts: Counts) -> float:
    return math.sqrt(sum(count * (_deviation(part) or 0.0) ** 2 for part, count in parts.items()))


# What the releases of a ledger cost at least, all together --------------------------------
#
# Each release is made of concrete data sets, the victim's value differing between them and
# everybody else's the same. Different releases ask about different things, so the values of each
# may be chosen alone, and either way round. Releases of which no concrete pair is known are left
# out: nobody learns more from fewer of them.


# Where counts of participants are cut, in standard deviations; within a block the least one counts.
_CUTS = np.array([-6.0, -2.5, -1.8, -1.2, -0.7, -0.3, 0.0, 0.3, 0.7, 1.2, 1.8, 2.5])
_BINS_PER_DEVIATION = 100
_REACH = 10.0
_ROUNDED = 1e-7  # relative: what chances of sizes may be above the truth
_TINY = 1e-40  # a chance that is not looked at
_LARGEST_SHIFT = 25.0  # of a Gaussian; more costs more, and overflows


def lower_value(counts: Counts, delta: float) -> tuple[float, str]:
    """What concrete data sets cost with the very mechanisms of a ledger, and of how many kinds."""
    known = {event: n for event, n in counts.items() if _has_witness(event)}
    value = _ledger_epsilon(tuple(known.items()), delta)
    if not known:
        return 0.0, "none: the mechanisms offer no concrete pair of data sets"
    left_out = len(counts) - len(known)
    method = "concrete data sets, composed"
    return value, f"{method}; {left_out} kinds of release left out" if left_out else method


def class_lower_value(counts: Counts, delta: float) -> float:
    """What the ledger costs with binary or ternary randomized response of the same budgets.

    Nobody who knows the releases by their local epsilons alone can prove less: those might be the
    mechanisms. Mechanisms at a curator are what they are.
    """
    replaced: dict[Any, int] = {}
    for event, count in counts.items():
        for part, times in _responses(event):
            replaced[part] = replaced.get(part, 0) + times * count
    return _ledger_epsilon(tuple(replaced.items()), delta)


@lru_cache(maxsize=256)
def _ledger_epsilon(counts: tuple[tuple[Any, int], ...], delta: float) -> float:
    if not counts or not 0 < delta < 1:
        return 0.0
    parts = [_part(event, count, delta) for event, count in counts]
    found = max(grid.epsilon(delta) for grid in (*parts, composed_grids(parts)))
    return less_rounding(found, sum(count for _, count in counts))


@lru_cache(maxsize=128)
def _part(event: Any, count: int, delta: float) -> LossGrid:
    """The worst concrete pair of a kind of release, in its worse direction, `count` times."""
    grids = [
        composed_losses([(times * count, pair) for times, pair in columns])
        for columns in _pairs(event)
    ]
    return max(grids, key=lambda grid: (grid.epsilon(delta), grid.mass @ grid.losses))


def _responses(event: Any) -> list[tuple[Any, int]]:
    """The release with randomized response in the place of its mechanism, and how often."""
    if isinstance(event, ShuffledMessages):
        return [
            (ShuffledReports(_response(budget), event.num_reports), columns)
            for columns, budget in event.messages
            if budget <= MAX_LOCAL_EPSILON
        ]
    if isinstance(event, LocalReports):
        fits = event.local_epsilon <= MAX_LOCAL_EPSILON
        return [(_response(event.local_epsilon), 1)] if fits else []
    if isinstance(event, (ShuffledReports, SampledReports)):
        if event.local_epsilon > MAX_LOCAL_EPSILON or event.local_event.columns:
            return []
        local = event.local_event
        groups = {name: getattr(local, name) for name in ("public_groups", "telling_groups")}
        response = attr.evolve(_response(event.local_epsilon), **groups)
        return [(attr.evolve(event, local_event=response), 1)]
    return [(event, 1)] if _has_witness(event) else []


def _response(local_epsilon: float) -> LocalReports:
    """Binary or ternary randomized response, whichever is worse where it is used.

    All others hold one of the victim's two values, or the third.
    """
    ratio = math.exp(local_epsilon)
    binary = two_level_witnesses(ratio, 1 / 2, 0.0)
    _, ternary = two_level_witnesses(ratio, 1 / 3, 0.0, (0.0,))
    return LocalReports(local_epsilon, None, (*binary, ternary))


def _has_witness(event: Any) -> bool:
    if isinstance(event, ShuffledMessages):
        return bool(event.witness)
    if isinstance(event, LocalReports):
        return bool(event.witnesses)
    if isinstance(event, (ShuffledReports, SampledReports)):
        return bool(event.local_event.witnesses)
    if isinstance(event, ShuffledShares):
        return sum_atoms(event) is not None
    from beam_ldp.accounting.composition import central  # loads dp_accounting, whose event this is

    gaussian = central.sampled(event)
    return gaussian is not None and math.isfinite(gaussian.shift)


def _pairs(event: Any) -> list[list[tuple[int, Atoms]]]:
    """Concrete pairs of data sets of one release: of each, so many independent columns."""
    if isinstance(event, ShuffledMessages):
        forth = [
            (columns, bit_atoms(first, second, event.num_reports))
            for columns, first, second in event.witness
        ]
        return [forth, [(columns, pair.swapped()) for columns, pair in forth]]
    if isinstance(event, (LocalReports, ShuffledReports, SampledReports)):
        local = event if isinstance(event, LocalReports) else event.local_event
        return [
            [(1, _mixture([(c, witness_atoms(side, k, rate)) for c, k, rate in _batches(event)]))]
            for witness in local.witness_pairs()
            for side in directions(witness)
        ]
    if isinstance(event, ShuffledShares):
        sums = sum_atoms(event)
        assert sums is not None
        return [[(1, sums)]]  # its own mirror image
    from beam_ldp.accounting.composition import central  # as above

    gaussian = central.sampled(event)
    assert gaussian is not None
    atoms = _gaussians(gaussian)
    return [[(1, atoms)], [(1, atoms.swapped())]]


def _batches(event: Any) -> list[tuple[float, int, float]]:
    """Chances, reports in the batch, and chance that the victim's point is among them.

    With coins the number of reports is rounded down: the reader throws some away.
    """
    if isinstance(event, LocalReports):
        return [(1.0, 1, 1.0)]
    if isinstance(event, ShuffledReports):
        return _crowds(event.hiding(len(_CUTS)))
    if event.fixed_size:  # all honest, as they may be: one of those who could come, a whole number
        came = int(event.came * event.drawn_in_all / event.num_drawn)
        rate = came / max(came, event.least_available)
        share = event.points_sampled / event.points_per_client
        return [(1.0, came * event.points_sampled, rate * share)]
    from scipy import stats  # takes half a second to load, and only coins ask for it

    points = event.num_honest * event.points_per_client
    coins = event.num_honest if event.sampling == SELF else points
    law = stats.binom(coins, event.drawn_rate)
    cuts = np.unique(np.clip(np.ceil(law.mean() + law.std() * _CUTS), 1, coins)).astype(int)
    chances = -np.diff(np.append(law.sf(cuts - 1), 0.0))
    return [(float(c), int(k), int(k) / points) for c, k in zip(chances, cuts) if c > 0]


def _crowds(crowd: Crowd) -> list[tuple[float, int, float]]:
    """The same of a crowd that may be one of public groups, each block at its largest size."""
    if isinstance(crowd, int):
        return [(1.0, crowd, 1.0)]
    most = np.append(np.array(crowd.sizes)[1:] - 1, crowd.most).tolist()
    chances = ((1.0 - _ROUNDED) * crowd.share * math.exp(log) for log in crowd.log_chances)
    return [(chance, size, 1.0) for chance, size in zip(chances, most) if chance > _TINY]


def _mixture(parts: list[tuple[float, Atoms]]) -> Atoms:
    """Which part it is can be seen; both laws are one where there is none."""
    none = 1.0 - math.fsum(chance for chance, _ in parts)
    if none > 0.0:
        parts = [*parts, (none, Atoms(np.zeros(1), np.ones(1), np.ones(1)))]
    return Atoms(
        np.concatenate([math.log(chance) + atoms.log_mass for chance, atoms in parts]),
        np.concatenate([atoms.first for _, atoms in parts]),
        np.concatenate([atoms.second for _, atoms in parts]),
    )


def _gaussians(noise: SampledGaussian) -> Atoms:
    """A curator's noise around what everybody else adds up to, seen in bins.

    Somebody who comes by a coin moves it one way or the other. In a sample of fixed size another
    person comes in their place, whose value is one of the two.
    """
    shift = min(noise.shift, _LARGEST_SHIFT)
    up, down = (shift / 2, -shift / 2) if noise.coins else (shift, 0.0)
    edges = np.arange(down - _REACH, up + _REACH, 1 / _BINS_PER_DEVIATION)
    log_base, log_up, log_down = (
        np.where(
            edges[:-1] > centre,
            _log_difference(
                special.log_ndtr(centre - edges[:-1]), special.log_ndtr(centre - edges[1:])
            ),
            _log_difference(
                special.log_ndtr(edges[1:] - centre), special.log_ndtr(edges[:-1] - centre)
            ),
        )
        for centre in (0.0, up, down)
    )
    first, second = (
        (1 - noise.rate) + noise.rate * np.exp(moved - log_base) for moved in (log_up, log_down)
    )
    seen = (first > 0) & (second > 0)  # leaving bins out only lowers the result
    return Atoms(log_base[seen], first[seen], second[seen])


def _log_difference(more: np.ndarray, less: np.ndarray) -> np.ndarray:
    return more + np.log(-np.expm1(np.minimum(less - more, -1e-300)))


# Shuffled shares: a Gaussian mechanism, but for little -----------------------------------


_SHARES_GROWTH = 1.005  # of distances between losses


def _shares_deviation(event: ShuffledShares) -> float | None:
    """Standard deviation of the loss of one release; None where nothing hides anybody."""
    losses = event.losses
    return losses.mu if losses.apart < 1 else None


@lru_cache(maxsize=64)
def _shares_grid(event: ShuffledShares) -> LossGrid:
    """The losses of one release, but for its `failure_probability`."""
    losses = event.losses
    noise = SampledGaussian(1.0, losses.mu, coins=False)
    step = losses.mu / STEPS_PER_DEVIATION
    last = math.ceil((noise.largest_loss + 2 * losses.apart) / step)
    knots = loss_knots(step, losses.mu, last, _SHARES_GROWTH)
    # The stick at a loss below zero is above that at zero by no more than the distance.
    within = knots * step - 2 * losses.apart
    sticks = noise.sticks(np.maximum(within, 0.0)) + np.maximum(-within, 0.0)
    sticks = np.minimum(math.exp(losses.apart) * sticks, 1.0)
    kept = 1 + np.count_nonzero(sticks >= NEGLIGIBLE)
    return LossGrid.connecting(step, knots[:kept], sticks[:kept])
