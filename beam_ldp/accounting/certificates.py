"""Certificates: what `beam_ldp.verifier.verify` needs to confirm a price without the accountant.

A certificate is JSON of integers and rationals; `docs/certificates.md` has the format and a proof
of each of the verifier's steps. It is written only where the verifier confirms it, here and now:
any other price gets one that says why it cannot be checked independently.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from beam_ldp.accounting.event_json import event_to_json as event_to_json
from beam_ldp.accounting.reports import UNKNOWN_GROUPS, unpack_pair
from beam_ldp.randomizers.shuffle_pair import ShufflePair, smallest_group
from beam_ldp.randomizers.special import brentq
from beam_ldp.verifier import verify

SLACK = Fraction(1, 2000)
_SCALE = 10**36  # of the integer weights
_NOISES = (0.02, 0.01, 0.004, 0.001)  # widths of the Gaussian over that of the sum
_DECAY = 5.5  # exp(-5.5^2 / 2): where frequencies are cut
_DIGITS = 12  # of a tilt, a noise and a spacing: any will do

_SHUFFLED = "ShuffledDpEvent"
_NO_BOUND = "it states no finite epsilon"
_SEVERAL = "certificates know local epsilons and one shuffle of one report each, and no more yet"
_TOO_TIGHT = "its event alone does not prove its epsilon, or not by a sum of few enough nodes"
_NOT_PROVED = "its bound is conjectured"


def certificate_for(statement: Mapping[str, Any]) -> dict[str, Any]:
    """The certificate of a statement, or one of kind "none" that says why there is no other.

    About 20 ms of one shuffled release, less of any other.

    Args:
        statement: what a privacy record holds: `epsilon` (None in a simulation), `delta`, `event`
            as `event_to_json` writes it, `proof_status`, and `identity_digest`, the release that
            the certificate is bound to.

    >>> from beam_ldp.accounting import LocalRandomizerDpEvent, event_epsilon
    >>> event = LocalRandomizerDpEvent(4.0).shuffled(100_000)
    >>> stated = {"epsilon": float(event_epsilon(event, 1e-6)), "delta": 1e-6,
    ...           "event": event_to_json(event), "proof_status": "proved"}
    >>> found = certificate_for(stated)
    >>> found["kind"], found["crowd"], len(found["sums"])
    ('shuffle', 100000, 1)
    >>> verify.verify({**stated, "certificate": found}).text
    'confirmed at epsilon 0.169856 delta 1e-06 (stated: 0.169771)'
    """
    epsilon, event = statement["epsilon"], statement["event"]
    if epsilon is None or event is None or not math.isfinite(epsilon):
        return _none(_NO_BOUND)
    if statement["proof_status"] != "proved":
        return _none(_NOT_PROVED)
    for found in _candidates(statement):
        if verify.verify({**statement, "certificate": found}).code == verify.CONFIRMED:
            return found
    why = _TOO_TIGHT if event["event"]["kind"] == _SHUFFLED else _SEVERAL
    return _none(why)


def _none(why: str) -> dict[str, Any]:
    return {"version": verify.VERSION, "kind": "none", "why": why}


def _head(statement: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {
        "version": verify.VERSION,
        "kind": kind,
        "epsilon": statement["epsilon"],
        "delta": statement["delta"],
        "identity": statement.get("identity_digest"),
    }


def _candidates(statement: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Certificates that may hold, the cheapest first."""
    slack = {"slack": f"{SLACK.numerator}/{SLACK.denominator}"}
    yield _head(statement, "local") | slack
    event = statement["event"]["event"]
    if event["kind"] != _SHUFFLED or event["local_event"]["public_groups"] == UNKNOWN_GROUPS:
        return
    local, honest = event["local_event"], event["num_reports"] - event["num_fakes"]
    crowd = smallest_group(honest, local["public_groups"])
    epsilon = statement["epsilon"] * (1.0 + float(SLACK))
    reports = {"reports": event["num_reports"], "honest": honest, "crowd": crowd}
    for any_randomizer, pair in _pairs(local):
        table = _weights(pair)
        weights: dict[str, Any] = {
            name: [str(w) for w in getattr(table, name)] for name in ("first", "second", "blanket")
        }
        weights |= {"scale": str(table.scale), "mass": f"{sum(table.blanket)}/{table.scale}"}
        facts = reports | {"any_randomizer": any_randomizer} | weights
        for noise in _NOISES:
            sums = [_grid(side, crowd, epsilon, noise) for side in table.sides()]
            yield _head(statement, "shuffle") | slack | facts | {"sums": sums}


def _pairs(local: Mapping[str, Any]) -> Iterator[tuple[bool, ShufflePair]]:
    """The pairs that the accountant tries, and whether each is that of every randomizer."""
    if local["pair"] is not None:
        own = unpack_pair(local["pair"])
        if own.proof_status == "proved":
            yield False, own
    yield True, ShufflePair.clones(local["local_epsilon"])


def _weights(pair: ShufflePair) -> verify.Table:
    """The pair in integers: both laws sum to the scale, and contain the blanket."""
    kept = [
        (Fraction(first), Fraction(second), Fraction(p))
        for (first, second), p in zip(pair.ratios, pair.probabilities, strict=True)
        if p > 0.0
    ]
    first = _integers([r * p for r, _, p in kept])
    second = _integers([r * p for _, r, p in kept])
    if len(kept) == 2 and kept[0][:2] == kept[1][1::-1]:  # two places to round, mirrored too
        second = first[::-1]
    total = sum(p for *_, p in kept)
    mass = Fraction(pair.blanket_mass) * _SCALE / total
    blanket = [
        min(f, s, math.floor(mass * p)) for f, s, (*_, p) in zip(first, second, kept, strict=True)
    ]
    return verify.Table(first, second, blanket, _SCALE)


def _integers(masses: list[Fraction]) -> list[int]:
    """In proportion to the masses, of the scale as their sum."""
    total = sum(masses)
    found = [math.floor(mass * _SCALE / total) for mass in masses]
    found[found.index(max(found))] += _SCALE - sum(found)
    return found


class _Law(NamedTuple):
    """The atoms of one summand other than zero."""

    values: list[float]
    probabilities: list[float]

    def log_moment(self, tilt: float) -> float:
        parts = zip(self.values, self.probabilities, strict=True)
        return math.log1p(math.fsum(p * math.expm1(min(tilt * x, 700.0)) for x, p in parts))

    def mean(self, tilt: float) -> float:
        """Of the tilted law."""
        parts = zip(self.values, self.probabilities, strict=True)
        total = math.fsum(p * x * math.exp(tilt * x) for x, p in parts)
        return total / math.exp(self.log_moment(tilt))

    def variance(self, tilt: float) -> float:
        """Of the tilted law."""
        parts = list(zip(self.values, self.probabilities, strict=True))
        total = math.exp(self.log_moment(tilt))
        mean = math.fsum(p * x * math.exp(tilt * x) for x, p in parts) / total
        square = math.fsum(p * x * x * math.exp(tilt * x) for x, p in parts) / total
        return max(square - mean * mean, 1e-300)


def _grid(table: verify.Table, crowd: int, epsilon: float, noise: float) -> dict[str, Any]:
    """The sum of a direction: its tilt at the saddle point, and as few nodes as it needs."""
    odds = Fraction(math.exp(epsilon))
    law = _Law(
        [float((f - odds * s) / b) for f, s, b in table.kinds()],
        [b / table.scale for *_, b in table.kinds()],
    )
    largest = max(law.values)
    if largest <= 0:
        return {"tilt": "1", "noise": "1", "spacing": "1", "nodes": 1}
    width = math.sqrt(crowd * law.variance(0.0))

    def slope(log_tilt: float) -> float:
        """Of crowd * log_moment - 2 log(tilt), whose least value is the saddle point."""
        tilt = math.exp(log_tilt)
        return crowd * law.mean(tilt) * tilt - 2.0

    high = math.log(600.0 / largest)
    low = min(math.log(1e-3 / width), high - 1.0)
    tilt = math.exp(brentq(slope, low, high, rtol=1e-6) if slope(high) > 0.0 else high)
    width = math.sqrt(crowd * law.variance(tilt))
    spacing = 2.0 * math.pi / (7.0 * width + 14.0 / tilt)
    nodes = math.ceil(_DECAY / (noise * width * spacing))
    numbers = {"tilt": tilt, "noise": noise * width, "spacing": spacing}
    return {**{name: _text(x) for name, x in numbers.items()}, "nodes": nodes}


def _text(value: float) -> str:
    """A positive number to a few digits, without an exponent."""
    places = max(0, _DIGITS - math.floor(math.log10(value)))
    return f"{value:.{places}f}"
