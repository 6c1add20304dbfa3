"""Certificates: what `beam_ldp.verifier.verify` needs to confirm a price without the accountant.

A certificate is JSON of integers and rationals; `docs/certificates.md` has the format and a proof
of each of the verifier's steps. It is written only where the verifier confirms it, here and now:
any other price gets one that says why it cannot be checked independently. What is stated is the
number that the verifier confirms: the price in four digits, rounded up, as it is printed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from beam_ldp.accounting.divergences.bit_counts import (
    Bit,
    bit_log_deltas,
    block_ends,
    sizes_that_matter,
)
from beam_ldp.accounting.divergences.crowd_sizes import CrowdSizes, of_groups
from beam_ldp.accounting.divergences.moments import log_sum
from beam_ldp.accounting.event_json import event_to_json as event_to_json
from beam_ldp.accounting.reports import (
    SHUFFLED_EPOCHS,
    WITHOUT_REPLACEMENT,
    LocalReports,
    SampledReports,
)
from beam_ldp.randomizers.special import brentq
from beam_ldp.verifier import verify
from beam_ldp.verifier.verify import Law, Leaves, Part
from beam_ldp.wording import number

MOST_ABOVE = 1 / 2000  # of the price, that is stated where the verifier cannot confirm less
_SMOOTHINGS = ("0.02", "0.01", "0.004", "0.001")  # of one shuffle; the first that does is taken
_DIGITS = 9  # of a tilt, a loss and its delta: any will do
_RARE = 1e-11  # that more fakes are drawn
_MANY = 8  # releases, of which large losses of one hardly matter
_NEGLIGIBLE = 1e-5  # of delta: that of losses beyond the last
_RARELY = 1e3  # times that, a delta below which knots are farther apart, as it falls
_ROOM = 1e-4  # of a log delta, that takes fewer blocks to prove
_MOST_PARTS = 24
_NARROW = 0.3  # deviations of a sum, times its tilt, that hardly a loss is left in
_FINER = ("0.01", "0.002", "0.0005")
_WIDE = ("0.05", "0.02")
_LEAST_EXCESS = 1e-3  # of a tilt above one
_HOPELESS = 2.0  # times the delta: no other tilt makes up for that

_NO_BOUND = "it states no finite epsilon"
_NOT_PROVED = "its bound is conjectured"
_NO_EVENT = "it names no event that its epsilon is that of"
_SAMPLED_COLUMNS = "it samples people of whom each sends several messages"
_TOO_MANY = f"it is composed of more than {_MOST_PARTS} kinds of releases"
_TOO_TIGHT = "its event alone does not prove its epsilon, or not by sums of few enough terms"
_IN_SHARES = "it rests on shares that only a shuffler hides, for which certificates have no step"
_IN_GROUPS = "it composes releases in public groups: a sum for every size that a group may have"
_BY_LENGTH = "its bound rests on how long a person's vector is, for which certificates have no step"


class _Grid(NamedTuple):
    """Losses of a shuffle among several: `growth` is that of their distance, beyond the steps."""

    steps_per_deviation: int
    growth: float
    smoothing: str


_MANY_RELEASES = _Grid(16, 0.03, "0.01")
_FEW_RELEASES = _Grid(16, 0.01, "0.01")
_RARE_REPORTS = _Grid(24, 0.01, "0.005")  # that tell a lot: a few of them make the losses


def certified(statement: Mapping[str, Any]) -> dict[str, Any]:
    """The statement with its certificate, and the epsilon that the certificate proves.

    Where there is none, `certificate` is of kind "none" and says why, and epsilon stays the price.
    About 20 ms of one shuffled release, half a second of each kind of release in a composition.

    Args:
        statement: what a privacy record holds: `epsilon` (None in a simulation), `delta`, `event`
            as `event_to_json` writes it, `proof_status`, and `identity_digest`, the release that
            the certificate is bound to.

    >>> from beam_ldp.accounting import LocalRandomizerDpEvent, event_epsilon
    >>> event = LocalRandomizerDpEvent(4.0).shuffled(100_000)
    >>> price = float(event_epsilon(event, 1e-6))
    >>> found = certified({"epsilon": price, "delta": 1e-6, "event": event_to_json(event),
    ...                    "proof_status": "proved"})
    >>> round(price, 6), found["epsilon"], found["certificate"]["kind"]
    (0.169771, 0.1698, 'shuffle')
    >>> verify.verify(found).text
    'confirmed at epsilon 0.1698 delta 1e-06'
    """
    epsilon, event = statement["epsilon"], statement["event"]
    why = None
    if epsilon is None or not math.isfinite(epsilon):
        why = _NO_BOUND
    elif event is None:
        why = _NO_EVENT
    elif statement["proof_status"] != "proved":
        why = _NOT_PROVED
    elif '"ShuffledSharesDpEvent"' in json.dumps(event):
        why = _IN_SHARES
    if why is not None:
        return {**statement, "certificate": _none(why)}
    found: dict[str, Any] = json.loads(_confirmed(json.dumps(event), epsilon, statement["delta"]))
    if found["kind"] == "none":
        return {**statement, "certificate": found}
    try:
        with localcontext(verify.CONTEXT):
            verify.compared(dict(statement), verify.leaves(event))
    except verify.Refuted as contradiction:
        return {**statement, "certificate": _none(str(contradiction))}
    certificate = found | {"identity": statement.get("identity_digest")}
    return {**statement, "epsilon": found["epsilon"], "certificate": certificate}


def _none(why: str) -> dict[str, Any]:
    return {"version": verify.VERSION, "kind": "none", "why": why}


@lru_cache(maxsize=64)
def _confirmed(event: str, epsilon: float, delta: float) -> str:
    """As JSON, the first that the verifier confirms, bound to no release yet."""
    content = json.loads(event)
    try:
        with localcontext(verify.CONTEXT):
            for found in _candidates(content, epsilon, delta):
                stated = {"epsilon": found["epsilon"], "delta": delta, "event": content}
                told = verify.verify({**stated, "certificate": found})
                if told.code == verify.CONFIRMED:
                    return json.dumps(found)
    except verify.Refuted as why:  # there is something in the event that it has no step for
        return json.dumps(_none(str(why)))
    except (ArithmeticError, ValueError):  # numbers too far apart for sums; no release waits for it
        return json.dumps(_none(_TOO_TIGHT))
    return json.dumps(_none(_TOO_TIGHT))


def _candidates(event: dict[str, Any], price: float, delta: float) -> Iterator[dict[str, Any]]:
    """Certificates that may hold, the cheapest first."""
    parts = verify.leaves(event)
    head = {"version": verify.VERSION, "delta": delta}
    epsilons = [*dict.fromkeys(float(number(x)) for x in (price, price * (1 + MOST_ABOVE)))]
    for epsilon in epsilons:
        yield head | {"epsilon": epsilon, "kind": "local"}
    if delta <= 0.0:
        return
    if len(parts) > _MOST_PARTS:
        raise verify.Refuted(_TOO_MANY)
    if any("sampling" in one and one["local_event"]["columns"] for one, _ in parts):
        raise verify.Refuted(_SAMPLED_COLUMNS)
    if [(one["kind"], times) for one, times in parts] == [("ShuffledDpEvent", 1)]:
        for epsilon in epsilons:
            yield from (head | found for found in _shuffled(parts, epsilon, delta))
        return
    if any(one.get("local_event", {}).get("public_groups", 1) > 1 for one, _ in parts):
        raise verify.Refuted(_IN_GROUPS)
    many = sum(times for _, times in parts) >= _MANY
    for grid in (_MANY_RELEASES if many else _FEW_RELEASES, _RARE_REPORTS):
        yield from (head | found for found in _composed(parts, epsilons, delta, grid))
    if any(one.get("squared_change") is not None for one, _ in parts):
        raise verify.Refuted(_BY_LENGTH)


def _shuffled(event: Leaves, epsilon: float, delta: float) -> Iterator[dict[str, Any]]:
    for choice in _choices(event[0][0]):
        (part,) = verify.parts_of(event, [choice])
        told = {"kind": "shuffle", "epsilon": epsilon, "parts": [choice]}
        if part.bit and part.sizes:
            few = {"crowds": _sizes_of_bits(event[0][0], part, epsilon)}
            each = [part._replace(crowd=size) for size in few["crowds"]]
            if all(blocks := [_blocks(one, epsilon) for one in each]):
                bits = {"parts": [choice | few], "tilts": blocks, "smoothing": _SMOOTHINGS[0]}
                yield told | bits
        elif part.bit and (blocks := _blocks(part, epsilon, delta - float(part.chance))):
            yield told | {"tilts": blocks, "smoothing": _SMOOTHINGS[0]}
        tilts = [_text(_tilt(side, epsilon)) for side in _sides(part)]
        for smoothing in _SMOOTHINGS:
            yield told | {"tilts": tilts, "smoothing": smoothing}


def _choices(one: dict[str, Any]) -> list[dict[str, Any]]:
    """What a certificate may suppose of a release: its own table first."""
    local = one.get("local_event", one)
    if "local_epsilon" not in local:  # noise, of which nothing is chosen
        return [{}]
    crowd: dict[str, Any] = {}
    if one is not local and local["public_groups"] > 1:
        crowd["crowds"] = list(_sizes(one).sizes)
    if one.get("sampling") in (WITHOUT_REPLACEMENT, SHUFFLED_EPOCHS) and one["num_fakes"]:
        crowd["crowd"] = _honest_drawn(one)
    own = local["pair"] is not None and local["pair"][1] % 2 == 1 and local["messages"] == 1
    return [{"any_randomizer": anybody} | crowd for anybody in ([False, True] if own else [True])]


def _sizes(one: dict[str, Any]) -> CrowdSizes:
    """Of a person's own public group."""
    found = of_groups(one["num_reports"] - one["num_fakes"], one["local_event"]["public_groups"])
    assert isinstance(found, CrowdSizes)
    return found


def _sizes_of_bits(one: dict[str, Any], part: Part, epsilon: float) -> list[int]:
    """Those of which it matters what a bit costs in just so many."""
    sizes = _sizes(one)
    some = sizes_that_matter(_bits(part)[0], sizes, np.array([epsilon]))[:, 0]
    return [size for size, matters in zip(sizes.sizes, some) if matters]


def _honest_drawn(one: dict[str, Any]) -> int:
    """Of those who came in a sample, the honest ones, but for a chance of `_RARE`."""
    fields = {name: one[name] for name in one if name not in ("kind", "local_event")}
    sample = SampledReports(LocalReports(1.0), **fields)
    total, came, fakes = int(sample.drawn_in_all), int(sample.came_in_all), sample.num_fakes
    least, most = total * fakes // sample.num_users + 1, min(fakes, total)  # of fakes
    if sample.drawn_rate == 1.0:
        least = most
    while least < most:
        half = (least + most) // 2
        honest = Fraction(sample.num_users - fakes, sample.num_users)
        if verify.rare(max(1, total - half - 1), total, honest) <= _RARE:
            most = half
        else:
            least = half + 1
    return came - most


# One shuffle -------------------------------------------------------------------------------


def _sides(part: Part) -> list[Part]:
    return [part._replace(table=side) for side in verify.sides(part.table)]


def _blocks(part: Part, epsilon: float, delta: float | None = None) -> list[Any]:
    """What proves it of a bit, for each direction: see `verify.bits_delta`; empty if too long."""
    share = float(part.share * part.rate)
    inner = math.log1p(math.expm1(epsilon) / share)
    goal = None if delta is None else delta / share
    found = [block_ends(bit, part.crowd, inner, goal) for bit in _bits(part)]
    return [] if None in found else found


def _bits(part: Part) -> list[Bit]:
    """Each direction of a table of two reports."""
    _, first, second = max((f / s, f, s) for f, s, _ in part.table)
    bits = [Bit(float(first), float(second))]
    return bits if first + second == 1 else [*bits, Bit(float(1 - second), float(1 - first))]


def _tilt(part: Part, epsilon: float) -> float:
    """Near the saddle point of the sum; of large crowds at least two over its deviation."""
    odds = Fraction(math.exp(epsilon))
    absent = (odds - 1) * (1 - part.rate) / part.rate
    blanket = [b for *_, b in part.table]
    values = np.array([-absent, *((f - odds * s) / b - absent for f, s, b in part.table)], float)
    probabilities = np.array([1 - sum(blanket), *blanket], float)
    largest = float(values.max())
    if largest <= 0.0 or part.crowd == 1:  # then it is known without any
        return 1.0
    mean = float(probabilities @ values)
    width = math.sqrt(part.crowd * float(probabilities @ (values - mean) ** 2))

    def slope(log_tilt: float) -> float:
        """Of crowd * log_moment - 2 log(tilt), whose least value is the saddle point."""
        tilt = math.exp(log_tilt)
        shares = probabilities * np.exp(tilt * (values - largest))
        return part.crowd * float(shares @ values / shares.sum()) * tilt - 2.0

    high = math.log(600.0 / largest)
    low = min(math.log(1e-3 / width), high - 1.0)
    if slope(low) >= 0.0 or slope(high) <= 0.0:
        return math.exp(low if slope(low) >= 0.0 else high)
    saddle = math.exp(brentq(slope, low, high, rtol=1e-4))
    return max(saddle, min(2.0 / width, 2.0 / largest))


# Several -----------------------------------------------------------------------------------


def _composed(
    event: Leaves, epsilons: list[float], delta: float, grid: _Grid
) -> Iterator[dict[str, Any]]:
    """Certificates of several tilts, the likeliest first."""
    choices: list[dict[str, Any]] = []
    for one, _ in event:
        if columns := one.get("messages" if "num_reports" in one else "columns"):
            choices += [{} for _ in columns]
        elif one["kind"] != "GaussianDpEvent":
            choices.append(_least(one))
    parts = verify.parts_of(event, choices)
    told, laws = [], []
    for part, choice in zip(parts, choices, strict=True):
        knots = _knots(part, _NEGLIGIBLE * delta / part.times, grid)
        told.append(choice | {"knots": knots, "smoothing": grid.smoothing})
        laws.append((part.times, verify.law_of(knots)[0]))
    noises = [(one["noise_multiplier"], n) for one, n in event if one["kind"] == "GaussianDpEvent"]
    variance = math.fsum(n * (2.0 / noise) ** 2 for noise, n in noises)
    missed = (p.times * (Fraction(c["knots"][-1][1]) + p.chance) for p, c in zip(parts, told))
    lost = sum(missed, Fraction(0))
    for epsilon in epsilons:
        sums = _Sums(laws, epsilon, variance)
        for tilt, smoothing in sums.tilts(grid.smoothing):
            share = sums.delta(_text(tilt), smoothing, lost) / delta
            if share <= 1.0:
                found = {"kind": "composed", "epsilon": epsilon, "parts": told}
                yield found | {"tilt": _text(tilt), "smoothing": smoothing}
            if _HOPELESS < share < math.inf:
                break


def _least(one: dict[str, Any]) -> dict[str, Any]:
    """The less informative of its tables."""
    return min(
        _choices(one), key=lambda choice: _deviation(verify.parts_of([(one, 1)], [choice])[0])
    )


def _deviation(part: Part) -> float:
    """Standard deviation of the loss of one release, for large crowds."""
    square = sum((f - s) ** 2 / b for f, s, b in part.table)
    spread = float(part.share) * float(part.rate) * math.sqrt(square / part.crowd)
    if not part.shift:
        return spread
    shift = float(part.shift)
    if part.share < 1:
        return min(shift, float(part.share) * math.sqrt(math.expm1(min(shift, 20.0) ** 2)))
    return min(shift, float(part.rate) * 2.0 * math.sqrt(math.sinh(min(shift, 20.0) ** 2 / 4)))


def _largest(part: Part) -> float:
    """The largest loss of one release, or one beyond which hardly any lies."""
    if part.shift:
        return 700.0
    ratio = max(max(f, s) / min(f, s) for f, s, _ in part.table)
    return math.log1p(float(part.share * part.rate * (ratio - 1)))


def _knots(part: Part, negligible: float, grid: _Grid) -> list[list[Any]]:
    """Losses, a delta at each, and what proves it: see `verify.law_of`."""
    top = _largest(part) * (1 + 1e-9)
    step = min(_deviation(part), top) / grid.steps_per_deviation
    tell = _unproved if part.bit else _proved
    found: list[list[Any]] = []
    loss, height = 0.0, 1.0
    while height > negligible and (not found or loss < top):
        growth = grid.growth * (1.0 + max(0.0, math.log(_RARELY * negligible / height)))
        loss = min(max(loss + step, loss * (1 + growth)), top) if found else 0.0
        found.append(tell(part, _text(loss), grid))
        height = float(found[-1][1])
    found = _convex(found)
    return (
        _convex([_proved(part, at, grid, *height) for at, *height in found]) if part.bit else found
    )


def _unproved(part: Part, at: str, grid: _Grid) -> list[Any]:
    """A knot of bits without its proof, which takes the verifier a hundred times as long."""
    share = float(part.share * part.rate)
    losses = np.array([math.log1p(math.expm1(float(at)) / share)])
    worst = min(float(bit_log_deltas(_bits(part)[0], part.crowd, losses)[0]) + _ROOM, 0.0)
    return [at, _text(share * math.exp(worst))]


def _proved(part: Part, at: str, grid: _Grid, height: str = "") -> list[Any]:
    """A knot with what proves it: blocks, which are to prove its height, or sums."""
    if height and (blocks := _blocks(part, float(at), float(height))):
        return [at, height, *blocks]
    inner = math.log1p(math.expm1(float(at)) / float(part.share))
    tilts = [] if part.shift else [_text(_tilt(side, inner)) for side in _sides(part)]
    return [at, _text(part.delta(Fraction(at), tilts, grid.smoothing)), *tilts]


def _convex(knots: list[list[str]]) -> list[list[str]]:
    """Without those above a chord of the others, which is proved too: the true curve is convex."""
    kept: list[tuple[Decimal, Decimal]] = []
    result: list[list[str]] = []
    for knot in knots:
        here = Decimal(knot[0]).exp(), Decimal(knot[1])
        while len(kept) > 1 and _slope(kept[-2], kept[-1]) > _slope(kept[-1], here):
            kept.pop()
            result.pop()
        kept.append(here)
        result.append(knot)
    return result


def _slope(one: tuple[Decimal, Decimal], other: tuple[Decimal, Decimal]) -> Decimal:
    return (other[1] - one[1]) / (other[0] - one[0])


class _Sums:
    """The sum of all losses less epsilon, under tilts."""

    def __init__(self, laws: list[tuple[int, Law]], epsilon: float, variance: float) -> None:
        self._exact, self._epsilon = laws, epsilon
        self._laws = [(times, *np.array(atoms, float).T) for times, atoms in laws]
        self._variance, self._mean = variance, -epsilon - variance / 2.0

    def delta(self, tilt: str, smoothing: str, lost: Fraction) -> float:
        """As the verifier has it; infinite where it does not sum so many terms."""
        variance = Fraction(self._variance)
        gaussian = (-Fraction(self._epsilon) - variance / 2, variance)
        try:
            found = verify.positive_part(
                self._exact, 1, Fraction(tilt), Fraction(smoothing), *gaussian
            )
            return float(found) * math.exp(self._epsilon) + float(lost)
        except (verify.Refuted, OverflowError):
            return math.inf

    def tilts(self, smoothing: str) -> Iterator[tuple[float, str]]:
        """Tilts, each with a smoothing.

        Near the least value of the transform at real tilts above one; less where few losses are
        left there, or where most are small and one large one makes the delta.
        """
        excess = self._least()
        yield 1.0 + excess, smoothing
        few = excess
        while self._deviation(1.0 + few) * few < _NARROW and few > _LEAST_EXCESS:
            few *= 0.8
        if few == excess:
            yield from ((1.0 + 0.7 * excess, wide) for wide in _WIDE)
        else:
            yield from ((1.0 + few, finer) for finer in _FINER)

    def _log_bound(self, tilt: float) -> float:
        total = tilt * self._mean + tilt * tilt * self._variance / 2.0
        for times, losses, masses in self._laws:
            total += times * log_sum(np.log(np.maximum(masses, 1e-300)) + tilt * losses)
        return total - math.log(tilt) - math.log(tilt - 1.0)

    def _least(self) -> float:
        low, high = math.log(_LEAST_EXCESS), math.log(1e6)
        for _ in range(40):
            third = (high - low) / 3.0
            if self._log_bound(1.0 + math.exp(low + third)) < self._log_bound(
                1.0 + math.exp(high - third)
            ):
                high -= third
            else:
                low += third
        return math.exp(low)

    def _deviation(self, tilt: float) -> float:
        """Of the tilted sum."""
        square = self._variance
        for times, losses, masses in self._laws:
            logs = np.log(np.maximum(masses, 1e-300)) + tilt * losses
            shares = np.exp(logs - log_sum(logs))
            square += times * float(shares @ (losses - shares @ losses) ** 2)
        return math.sqrt(square)


def _text(value: float | Fraction) -> str:
    """A number >= 0 to a few digits, rounded up, without an exponent."""
    exact = Fraction(value)
    number = Decimal(exact.numerator) / Decimal(exact.denominator)
    digits = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    return f"{digits.plus(number):f}"
