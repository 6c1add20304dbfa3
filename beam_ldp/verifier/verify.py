"""Confirm a privacy statement from its certificate, by exact arithmetic and nothing else.

    python verify.py privacy.json [row.json]

prints `confirmed at epsilon ... delta ...` (exit 0), `not confirmed, because ...` (exit 1), or why
there is nothing to check (exit 2). It imports the standard library only and trusts no number that
it can work out. `docs/certificates.md` has a proof for each step below, under the same name.

Confirmed is (epsilon, delta)-DP of one person's value (replace-one), if the mechanism is what the
event says: no pair of values tells more than its table, and every report contains its blanket.
"""

from __future__ import annotations

import json
import math
import sys
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

VERSION = 1
MOST_SLACK = Fraction(1, 2000)
MOST_ATOMS, MOST_WORK, MOST_COUNT, MOST_GROUP, MOST_DIGITS = 4096, 10**7, 10**12, 10**6, 300
DIGITS, BITS = 60, 128  # of a Decimal, and of a fixed-point number: in units of 2**-BITS
CONTEXT = Context(prec=DIGITS, Emin=-(10**9), Emax=10**9)
ONE = 1 << BITS
SCALE = 10**36  # of the integer weights of a table
SAFE = Decimal("1.000000000000000000000000000001")  # covers roundings of Decimals, "Rounding"
PI_BELOW = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
CONFIRMED, REFUTED, NOTHING = 0, 1, 2

Json = dict[str, Any]
Leaves = list[tuple[Json, int]]  # releases, and how often there was each
Point = tuple[int, int]  # a complex number, fixed-point
_MALFORMED = LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError


class Verdict(NamedTuple):
    """What came of a statement."""

    code: int  # of the program
    text: str  # for people


class Refuted(Exception):
    """The statement does not follow; the message says why."""


def verify(statement: Json, row: Json | None = None) -> Verdict:
    """The verdict on what privacy.json says; body of a ledger's `row` must say the same."""
    certificate = statement.get("certificate") or {"kind": "none", "why": "it has no certificate"}
    try:
        if certificate["kind"] == "none":
            return Verdict(NOTHING, f"not independently checkable: {certificate['why']}")
        with localcontext(CONTEXT):
            return Verdict(CONFIRMED, f"confirmed at {_confirmed(statement, certificate, row)}")
    except Refuted as why:
        return Verdict(REFUTED, f"not confirmed, because {why}")
    except _MALFORMED as error:
        kind = type(error).__name__
        return Verdict(REFUTED, f"not confirmed, because the certificate is malformed ({kind})")


def _confirmed(statement: Json, certificate: Json, row: Json | None) -> str:
    _need(certificate["version"] == VERSION, f"only certificates of version {VERSION} are known")
    epsilon, delta = _bound(statement, certificate, row)
    slack = _rational(certificate["slack"])
    _need(slack <= MOST_SLACK, f"its slack is above {float(MOST_SLACK):.2%}")
    loosened = epsilon * (1 + slack)
    _need(statement["event"]["version"] == 1, "the event's version is unknown")
    event = leaves(statement["event"]["event"])
    if certificate["kind"] == "local":
        total = sum(count * _local(one) for one, count in event)
        _need(total <= loosened, f"a person's reports cost {float(total):.6g} without a crowd")
    else:
        found = _delta(event, certificate, loosened)
        _need(found <= delta, f"delta is {float(found):.6g} there, above {float(delta):.6g}")
    said = f"epsilon {float(loosened):.6g} delta {float(delta):.6g}"
    return f"{said} (stated: {float(epsilon):.6g})"


def _need(holds: bool, why: str) -> None:
    if not holds:
        raise Refuted(why)


def _number(value: Any) -> Fraction:
    """A number of a statement, exactly as written: a float is the binary number it stands for."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
    _need(good, "a number of the statement is none")
    return Fraction(value)


def _rational(text: Any) -> Fraction:
    """A number of a certificate: text such as "1/2000" or "0.125", exactly."""
    good = isinstance(text, str) and len(text) <= MOST_DIGITS and not {*text} & {*"eE-"}
    _need(good, "a rational is not written as such")
    return Fraction(text)


def _whole(value: Any, least: int, most: int = MOST_COUNT) -> int:
    good = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    _need(good, f"an integer is not in [{least}, {most}]")
    return int(value)


# Step 1. Bound: the certificate is of this statement, and the statement of this row --------
def _bound(statement: Json, certificate: Json, row: Json | None) -> tuple[Fraction, Fraction]:
    """Epsilon and delta."""
    stated = {"epsilon": statement["epsilon"], "delta": statement["delta"]}
    for name, value in (stated | {"identity": statement.get("identity_digest")}).items():
        _need(certificate.get(name) == value, f"the certificate is of another {name}")
    if row is not None:
        told = {"num_reports": statement.get("num_reports")}  # not every row says it
        charged = told | row["about"] | {"event": row["event"]}
        for name in ("epsilon", "delta", "event", "certificate", "num_reports"):
            _need(charged.get(name) == statement.get(name), f"the row has another {name}")
    return _number(stated["epsilon"]), _number(stated["delta"])


def statement_of(row: Json) -> Json:
    """The statement that a ledger's row holds (the body of a settlement)."""
    told = {name: row["about"].get(name) for name in ("epsilon", "delta", "certificate")}
    identity = (told["certificate"] or {}).get("identity")
    return {**told, "event": row["event"], "identity_digest": identity}


# Step 2. Event: the releases that it is composed of, and what one person sent in each ------

_FIELDS = {
    "LocalRandomizerDpEvent": "local_epsilon pair witnesses public_groups messages columns",
    "ShuffledDpEvent": "local_event num_reports num_fakes",
    "ShuffledMessagesDpEvent": "messages num_reports squared_change local_epsilon witness places",
    "SubsampledShuffledDpEvent": "local_event num_users num_drawn num_received num_fakes "
    "points_per_client points_sampled sampling rounds",
    "GaussianDpEvent": "noise_multiplier",
    "ComposedDpEvent": "events",
    "SelfComposedDpEvent": "event count",
    "NoOpDpEvent": "",
}


def leaves(event: Json) -> Leaves:
    """The releases that an event is composed of; equal ones together."""
    found: dict[str, tuple[Json, int]] = {}

    def add(one: Json, count: int) -> None:
        _known(one)
        if one["kind"] == "ComposedDpEvent":
            for part in one["events"]:
                add(part, count)
        elif one["kind"] == "SelfComposedDpEvent":
            add(one["event"], count * _whole(one["count"], 0))
        elif one["kind"] != "NoOpDpEvent" and count:
            name = json.dumps(one, sort_keys=True)
            found[name] = one, count + found.get(name, (one, 0))[1]

    add(event, 1)
    return list(found.values())


def _known(event: Json) -> None:
    """Every field of it is known: one more may mean anything."""
    kind = str(event["kind"])
    known = {*event} == {"kind", *_FIELDS.get(kind, "?").split()}
    _need(known, f"there is no step for events such as its {kind[:40]}")


def _local(one: Json) -> Fraction:
    """Local epsilon of everything that one person sends in one release."""
    _need(one["kind"] != "GaussianDpEvent", "a server's noise has no local epsilon")
    points = _whole(one.get("points_sampled", 1), 1)
    return points * _number(one.get("local_event", one)["local_epsilon"])


# Step 3. Table: what one report tells, and the blanket that everybody's report contains -----
class Table(NamedTuple):
    """Kinds of reports: integer weights under either value and of the blanket, over `scale`."""

    kinds: list[tuple[int, ...]]
    scale: int = SCALE

    def sides(self) -> list[Table]:
        """Both directions, or one where the table is its own mirror image."""
        other = self._replace(kinds=[(s, f, b) for f, s, b in self.kinds])
        return [self] if sorted(self.kinds) == sorted(other.kinds) else [self, other]

    def thinned(self, join: Fraction) -> Table:
        """Of reports that arrive with probability `join`; to be absent is in the blanket."""
        some, absent = join.numerator, (join.denominator - join.numerator) * self.scale
        kinds = [tuple(some * weight for weight in kind) for kind in self.kinds]
        return Table(kinds + [(absent,) * 3] * (absent > 0), self.scale * join.denominator)


def two_kinds(budget: Fraction, bit: bool) -> Table:
    """Two reports of odds e^budget: those of a noisy bit, or of whatever has that epsilon."""
    ratio = _exp(budget, up=True)
    often = math.ceil(SCALE * ratio / (1 + ratio))
    part = SCALE - often if bit else math.floor(SCALE / (2 * ratio))
    return Table([(often, SCALE - often, part), (SCALE - often, often, part)])


def own_table(pair: list[Any], budget: Fraction) -> Table:
    """The event's own: rows (first, second, blanket law) in units of that law, as integers."""
    mass, proved, every, _ = pair
    rows = [[_number(x) for x in row] for row in every if row[2] > 0]
    _need(proved == 1 and len(rows) <= MOST_ATOMS, "the event's table is not said to be proved")
    both = [[row[side] * row[2] for row in rows] for side in (0, 1)]
    first, second = ([math.floor(x * SCALE / t) for x in c] for c, t in zip(both, map(sum, both)))
    for column in (first, second):
        column[column.index(max(column))] += SCALE - sum(column)
    share = _number(mass) * SCALE / sum(row[2] for row in rows)
    blanket = [min(f, s, math.floor(share * row[2])) for f, s, row in zip(first, second, rows)]
    _need(min(blanket) > 0, "the event's blanket lacks a report")
    most = max(Fraction(max(f, s), min(f, s)) for f, s in zip(first, second))
    allowed = _exp(budget, up=True) * (1 + Fraction(1, 10**8))  # the event's own are floats
    _need(most <= allowed, "a report tells more than its local epsilon")
    return Table(list(zip(first, second, blanket)))


# Step 4. Crowd: how many reports hide a person, and how likely the person's is among them ----
class Part(NamedTuple):
    """`times` shuffles of `crowd` honest reports; a person's is there with probability `rate`.

    The crowd of one of them is smaller with a probability of at most `chance`.
    """

    times: int
    table: Table
    crowd: int
    rate: Fraction = Fraction(1)
    chance: Fraction = Fraction(0)

    def facts(self) -> Json:
        """What a certificate may say of it, and then must."""
        weights, scale = [[*map(str, kind)] for kind in self.table.kinds], self.table.scale
        mass = Fraction(sum(b for *_, b in self.table.kinds), scale)
        return {"count": self.times, "crowd": self.crowd, "rate": str(self.rate),
                "weights": weights, "scale": str(scale), "mass": str(mass)}  # fmt: skip


def parts_of(event: Leaves, choices: list[Json]) -> list[Part]:
    """The shuffles of an event. `any_randomizer` and `crowd` are chosen, the rest repeats it."""
    found: list[Part] = []
    for one, times in event:
        if one["kind"] == "ShuffledMessagesDpEvent":
            crowd = _whole(one["num_reports"], 1)
            for count, budget in one["messages"]:
                bit = two_kinds(_number(budget), bit=True)
                found.append(Part(times * _whole(count, 1), bit, crowd))
        elif one["kind"] != "GaussianDpEvent":
            found.append(_shuffle(one, times, choices[len(found)]))
    _need(len(found) == len(choices), "it counts other releases than the event")
    for part, choice in zip(found, choices):
        for name, fact in part.facts().items():
            _need(choice.get(name, fact) == fact, f"its {name} is not that of the event")
    return found


def _shuffle(one: Json, count: int, choice: Json) -> Part:
    """So many shuffles of one report per person; what is not shuffled is a crowd of one."""
    local = one.get("local_event", one)
    _known(local)
    anybody, budget = local["pair"] is None or choice["any_randomizer"], _local(local)
    single = local["messages"] == 1 or (anybody and one is local)
    _need(single, "its event is of several messages in one shuffle")
    table = two_kinds(budget, bit=False) if anybody else own_table(local["pair"], budget)
    if one is local:
        return Part(count, table, 1)
    groups = _whole(local["public_groups"], 1)
    if one["kind"] == "SubsampledShuffledDpEvent":
        _need(groups == 1, "it samples people in groups")
        return _sample(one, count, table)
    honest = _whole(_whole(one["num_reports"], 1) - _whole(one["num_fakes"], 0), 1)
    crowd = honest if groups == 1 else _whole(choice["crowd"], 1, min(honest, MOST_GROUP))
    if groups == 1:
        return Part(count, table, crowd)
    smaller = term = (honest * (1 - Decimal(1) / groups).ln()).exp()
    for others in range(1, crowd):
        term = term * (honest - others + 1) / others / (groups - 1)
        smaller += term
    return Part(count, table, crowd, chance=groups * Fraction(smaller * SAFE))


def _sample(one: Json, count: int, table: Table) -> Part:
    """The same of a random sample of people, where what is seen is how many there are."""
    users, drawn, came = _whole(one["num_users"], 1), _number(one["num_drawn"]), one["num_received"]
    fakes, points = _whole(one["num_fakes"], 0, users - 1), _whole(one["points_per_client"], 1)
    rate, way = drawn / (users * points), one["sampling"] if one["rounds"] is None else "rounds"
    _need(0 < rate <= 1 and one["points_sampled"] == 1, "it samples more than a point of each")
    _need(points == 1 or way == "poisson", "it samples one of several points")
    if way in ("self", "poisson") and came is None:
        return Part(count, table.thinned(rate), (users - fakes) * points)
    fixed = way == "without_replacement" and fakes == 0 and drawn.denominator == 1
    _need(fixed, "it samples in a way, or with fakes, that has no step")
    crowd = _whole(drawn.numerator if came is None else came, 1, drawn.numerator)
    return Part(count, table, crowd, rate)


# Step 5. Sum: the delta of one shuffle is the positive part of a sum of independent numbers -
def shuffle_delta(part: Part, epsilon: Fraction, tilts: list[str], smoothing: str) -> Fraction:
    """An upper bound of the least delta at epsilon, in each direction, with a tilt for each.

    It is rate E[max(X_1 + ... + X_crowd, 0)] / crowd: X is (first - e^epsilon second) / blanket
    with the probabilities of the blanket, 0 otherwise, less a number if one may be absent.
    """
    odds, scale = _exp(epsilon, up=False), part.table.scale  # smaller odds give a larger delta
    absent, sides = (odds - 1) * (1 - part.rate) / part.rate, part.table.sides()
    _need(len(sides) == len(tilts), "a direction has no tilt")
    found = Fraction(0)
    for side, tilt in zip(sides, tilts):
        atoms = [((f - odds * s) / b - absent, Fraction(b, scale)) for f, s, b in side.kinds]
        atoms = [(-absent, Fraction(1) - sum(p for _, p in atoms)), *atoms]
        if any(x > 0 for x, _ in atoms):
            law = Law.tilted(atoms, part.crowd, _rational(tilt))
            mean = positive_part([law], 0, _rational(tilt), _rational(smoothing))
            found = max(found, part.rate * mean / part.crowd)
    return found


class Law(NamedTuple):
    """The tilted law of one of so many equal summands."""

    times: int
    log_total: Decimal  # log E[e^(tilt X)]
    first: Fraction  # of the values; the others are told from it
    values: list[Fraction]
    weights: list[int]  # what each adds to E[e^(tilt X)], as a share, fixed-point

    @classmethod
    def tilted(cls, atoms: list[tuple[Fraction, Fraction]], count: int, tilt: Fraction) -> Law:
        _need(count <= MOST_COUNT, "it counts too many")
        weights = [_decimal(p) * _decimal(tilt * x).exp() for x, p in atoms]
        total, first = sum(weights, Decimal(0)), atoms[0][0]
        shares = [int(w / total * ONE) for w in weights]
        return cls(count, total.ln(), first, [x - first for x, _ in atoms], shares)


def positive_part(
    laws: list[Law], bend: int, tilt: Fraction, smoothing: Fraction,
    mean: Fraction = Fraction(0), variance: Fraction = Fraction(0),
) -> Fraction:  # fmt: skip
    """At least E[max(S, 0)], or E[max(e^S - 1, 0)] with a `bend` of 1.

    S is the sum of all laws and of a Gaussian of this mean and variance; `tilt` and `smoothing`,
    the width of a Gaussian that is added relative to that of S, may be any: good ones are tight.
    """
    _need(tilt > bend, "its tilt is none")
    top, square = float(mean + tilt * variance), float(variance)
    for law in laws:
        pairs = [(float(x), weight / ONE) for x, weight in zip(law.values, law.weights)]
        middle = math.fsum(p * x for x, p in pairs)
        top += law.times * (middle + float(law.first))
        square += law.times * math.fsum(p * (x - middle) ** 2 for x, p in pairs)
    width = math.sqrt(square)
    variance += (smoothing * Fraction(width)) ** 2
    turn = 2 * math.pi / max(15 / float(tilt - bend), max(top, 0.0) + 5.5 * width)
    nodes, spacing = math.ceil(3.2 / math.sqrt(variance) / turn), Fraction(turn)
    _need(nodes * (1 + sum(len(law.values) for law in laws)) <= MOST_WORK, "its sum is too long")
    reach = max((float(max(law.values) - min(law.values)) for law in laws), default=0.0)
    near = math.ceil(19 / (width * turn)) if nodes * turn * reach < 3.1 else nodes
    near, w, v = min(near, nodes), _decimal(spacing / tilt), _decimal(spacing / (tilt - bend))
    start = mean + tilt * variance + sum(law.times * law.first for law in laws)
    decay = _decimal(spacing**2 * variance) / 2
    inside = _nodes(laws, near, spacing, decay, w, v, _unit(spacing * start))
    inside += 2 * nodes * Decimal(-69).exp()  # what is left out
    beyond = 2 * (-decay * nodes**2).exp() / ((2 * decay * nodes).exp() - 1) / (w * v * nodes**2)
    log_moment = sum((x.times * x.log_total for x in laws), _decimal(tilt * mean))
    moment = (log_moment + _decimal(tilt**2 * variance / 2)).exp()
    found = moment * w / _decimal(tilt - bend) / (2 * PI_BELOW) * (inside + beyond)
    return Fraction(min(max(found * SAFE, Decimal("1e-400")), Decimal("1e400")))


def _nodes(
    laws: list[Law], nodes: int, spacing: Fraction, decay: Decimal, w: Decimal, v: Decimal,
    phase_step: Point,
) -> Decimal:  # fmt: skip
    """1 + 2 Re sum over m of phi(m) gauss(m) / ((1 + i m w) (1 + i m v)), and its roundings."""
    steps = [[_unit(spacing * x) for x in law.values] for law in laws]
    turns = [[(ONE, 0)] * len(law.values) for law in laws]
    phase, gauss, factor = (ONE, 0), ONE, int((-decay).exp() * ONE)
    squared_ratio, total = factor * factor >> BITS, 0
    for m in range(1, nodes + 1):
        phase = _times(phase, phase_step)
        gauss = gauss * factor >> BITS  # exp(-decay m^2) by the ratios exp(-decay (2 m - 1))
        factor = factor * squared_ratio >> BITS
        points, missing = [], 0
        for i, law in enumerate(laws):
            turns[i] = turned = [turns[i][0], *map(_times, turns[i][1:], steps[i][1:])]
            re = sum(p * a for p, (a, _) in zip(law.weights, turned)) >> BITS
            im = sum(p * b for p, (_, b) in zip(law.weights, turned)) >> BITS
            points.append((re, im))
            missing += law.times * (ONE - (re * re + im * im >> BITS))
        if missing >> BITS > 140:  # |phi(m)| is below exp(-70)
            continue
        power = phase
        for law, point in zip(laws, points):
            power = _times(power, _power(point, law.times))
        one, other = int(m * w * ONE), int(m * v * ONE)
        real, both = ONE - (one * other >> BITS), one + other
        below = real * real + both * both >> BITS
        total += (real * power[0] + both * power[1] >> BITS) * gauss // below
    most = 1 + sum((law.times + 1) * (len(law.values) + 1) for law in laws)
    error = nodes * (nodes + 1) * most << 8  # see "Rounding"
    return Decimal(ONE + 2 * total + error) / ONE


# Step 6. Composed: independent releases, by the losses of each -----------------------------
def _delta(event: Leaves, certificate: Json, epsilon: Fraction) -> Fraction:
    """An upper bound of the least delta at epsilon of all releases together."""
    kind, lost, laws = certificate["kind"], Fraction(0), []
    parts = parts_of(event, certificate["parts"])
    if kind == "shuffle" and [part.times for part in parts] == [1] == [n for _, n in event]:
        (part,) = parts
        found = shuffle_delta(part, epsilon, certificate["tilts"], certificate["smoothing"])
        return found + part.chance
    _need(kind == "composed", "it is of another kind than its event")
    tilt, smoothing = (_rational(certificate[name]) for name in ("tilt", "smoothing"))
    for part, choice in zip(parts, certificate["parts"]):
        for loss, height, *tilts in choice["knots"]:
            found = shuffle_delta(part, _rational(loss), tilts, choice["smoothing"])
            _need(found <= _rational(height), f"a delta at the loss {loss[:20]} is too small")
        atoms, beyond = law_of(choice["knots"])
        lost += part.times * (beyond + part.chance)
        laws.append(Law.tilted(atoms, part.times, tilt))
    noises = [(one["noise_multiplier"], n) for one, n in event if "noise_multiplier" in one]
    variance = sum((n * (2 / _number(noise)) ** 2 for noise, n in noises), Fraction(0))
    found = positive_part(laws, 1, tilt, smoothing, -epsilon - variance / 2, variance)
    return found * _exp(epsilon, up=True) + lost


def law_of(knots: list[list[str]]) -> tuple[list[tuple[Fraction, Fraction]], Fraction]:
    """Losses of a pair whose hockey stick is the chords between knots, and the mass of no bound."""
    at, heights = ([_rational(knot[place]) for knot in knots] for place in (0, 1))
    ratios = [_decimal(loss).exp() for loss in at]
    _need(at[0] == 0 and at == sorted({*at}), "its losses do not ascend from zero")
    steps = zip(ratios, ratios[1:], heights, heights[1:])
    slopes = [_decimal(d - c) / (b - a) for a, b, c, d in steps] + [Decimal(0)]
    atoms, rest = [], _decimal(1 - heights[-1])
    for loss, ratio, before, after in zip(at[1:], ratios[1:], slopes, slopes[1:]):
        mass = after - before
        _need(mass >= 0, "its deltas are not convex")
        atoms += [(loss, Fraction(mass)), (-loss, Fraction(mass * ratio))]
        rest -= mass * (1 + ratio)
    return [(Fraction(0), Fraction(max(rest, Decimal(0)))), *atoms], heights[-1]


# Rounding: numbers of fixed point, and the few transcendental ones -------------------------
def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _exp(value: Fraction, up: bool) -> Fraction:
    """e^value, rounded outward: Decimal's own is off by half a unit of its last digit at most."""
    away = (2 + value) / 10 ** (DIGITS - 2)
    return Fraction(_decimal(value).exp()) * (1 + (away if up else -away))


def _times(a: Point, b: Point) -> Point:
    return a[0] * b[0] - a[1] * b[1] >> BITS, a[0] * b[1] + a[1] * b[0] >> BITS


def _power(base: Point, exponent: int) -> Point:
    if exponent == 1:
        return base
    half = _power(_times(base, base), exponent >> 1)
    return _times(half, base) if exponent & 1 else half


def _unit(angle: Fraction) -> Point:
    """(cos, sin) of an angle: Taylor's series at a small part of it, which is squared again."""
    halvings = math.floor(abs(angle)).bit_length() + 8
    _need(halvings < 64, "its values are too far apart")
    bits = BITS + 2 * halvings + 16
    x = (angle.numerator << bits) // (angle.denominator << halvings)
    re, im, a, b = 1 << bits, 0, 1 << bits, 0
    for k in range(1, 26):  # of x below 2^-8
        a, b = (-b * x >> bits) // k, (a * x >> bits) // k
        re, im = re + a, im + b
    for _ in range(halvings):
        re, im = re * re - im * im >> bits, 2 * re * im >> bits
    return re >> bits - BITS, im >> bits - BITS


# The program -------------------------------------------------------------------------------
def main(arguments: list[str]) -> int:
    """Exit code of the program; see the module."""
    try:
        statement, *row = (json.loads(Path(path).read_text("utf-8")) for path in arguments)
        code, text = verify(statement_of(statement) if "about" in statement else statement, *row)
    except (OSError, *_MALFORMED) as error:
        code, text = NOTHING, f"cannot be read ({type(error).__name__})\n\n{__doc__}"
    print(text)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
