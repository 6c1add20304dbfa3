"""Confirm a privacy statement from its certificate, by exact arithmetic and nothing else.

    python verify.py privacy.json [row.json]

prints `confirmed at epsilon ... delta ...` (exit 0), `not confirmed, because ...` (exit 1), or why
there is nothing to check (exit 2). It trusts no number that it can work out. Confirmed is (epsilon,
delta)-DP of one person's value (replace-one), if the mechanism is what the event says: no pair of
values tells more than its table, and every report contains its blanket. `docs/certificates.md`
proves each step below, under the same name.
"""

from __future__ import annotations

import json
import math
import sys
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

VERSION, MOST_SLACK = 1, Fraction(1, 2000)
MOST_ATOMS, MOST_WORK, MOST_COUNT, MOST_DIGITS = 4096, 10**7, 10**12, 300
DIGITS, BITS = 60, 128  # of a Decimal, and of a fixed-point number: in units of 2**-BITS
CONTEXT = Context(prec=DIGITS, Emin=-(10**9), Emax=10**9)
ONE, SCALE = 1 << BITS, 10**36  # of a fixed-point number, of the integer weights of a table
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
    except (Refuted, *_MALFORMED) as error:
        why = error if isinstance(error, Refuted) else f"it is malformed ({type(error).__name__})"
        return Verdict(REFUTED, f"not confirmed, because {why}")

def _need(holds: bool, why: str) -> None:
    if not holds:
        raise Refuted(why)

def _number(value: Any) -> Fraction:
    """A number of a statement, exactly as written: a float is the binary number it stands for."""
    _need(type(value) in (int, float) and value >= 0, "a number of the statement is none")
    return Fraction(value)

def _rational(text: Any) -> Fraction:
    """A number of a certificate: text such as "1/2000" or "0.125", exactly."""
    good = isinstance(text, str) and len(text) <= MOST_DIGITS and not {*text} & {*"eE-"}
    _need(good, "a rational is not written as such")
    return Fraction(text)

def _whole(value: Any, least: int, most: int = MOST_COUNT) -> int:
    good = type(value) is int and least <= value <= most
    _need(good, f"an integer is not in [{least}, {most}]")
    return int(value)

# Step 1. Bound: the certificate is of this statement, and the statement of this row --------
def _confirmed(statement: Json, certificate: Json, row: Json | None) -> str:
    _need(certificate["version"] == VERSION, f"only certificates of version {VERSION} are known")
    stated = statement | {"identity": statement.get("identity_digest")}
    for name in ("epsilon", "delta", "identity"):
        _need(certificate.get(name) == stated[name], f"the certificate is of another {name}")
    if row is not None:  # not every row says how many reports there were
        said = {"num_reports": statement.get("num_reports"), **row["about"]}
        for name in ("epsilon", "delta", "certificate", "num_reports"):
            _need(said.get(name) == statement.get(name), f"the row has another {name}")
    epsilon, delta = _number(stated["epsilon"]), _number(stated["delta"])
    loosened = epsilon * (1 + _rational(certificate["slack"]))
    _need(loosened <= epsilon * (1 + MOST_SLACK), f"its slack is above {float(MOST_SLACK):.2%}")
    both = [told["event"] for told in (statement, row or statement)]
    _need(all(one["version"] == 1 for one in both), "the event's version is unknown")
    event, charged = (leaves(one["event"]) for one in both)
    _need(event == charged, "the row has another event")
    if certificate["kind"] == "local":
        total = sum(count * _pure(one) for one, count in event)
        _need(total <= loosened, f"a person's reports cost {float(total):.6g} without a crowd")
    else:
        found = _delta(event, certificate, loosened)
        _need(found <= delta, f"delta is {float(found):.6g} there, above {float(delta):.6g}")
    told = [f"{float(x):.6g}" for x in (loosened, delta, epsilon)]
    return "epsilon {} delta {} (stated: {})".format(*told)

# Step 2. Event: the releases that it is composed of, and what one person sent in each ------
_FIELDS = {
    "LocalRandomizerDpEvent": "local_epsilon pair witnesses public_groups messages columns",
    "ShuffledDpEvent": "local_event num_reports num_fakes",
    "ShuffledMessagesDpEvent": "messages num_reports local_epsilon witness",
    "SubsampledShuffledDpEvent": "local_event num_users num_drawn num_received num_fakes "
    "points_per_client points_sampled sampling rounds",
    "GaussianDpEvent": "noise_multiplier", "LaplaceDpEvent": "noise_multiplier",
    "DiscreteLaplaceDpEvent": "noise_parameter sensitivity", "NoOpDpEvent": "",
    "PoissonSampledDpEvent": "sampling_probability event", "ComposedDpEvent": "events",
    "SampledWithoutReplacementDpEvent": "source_dataset_size sample_size event",
    "CommittedDpEvent": "event delta", "SelfComposedDpEvent": "event count",  # of any delta
}

def leaves(event: Json) -> Leaves:
    """The releases that an event is composed of; equal ones together."""
    found: dict[str, tuple[Json, int]] = {}
    def add(one: Json, count: int) -> None:
        _known(one)
        if one["kind"] == "ComposedDpEvent":
            for part in one["events"]:
                add(part, count)
        elif one["kind"] in ("SelfComposedDpEvent", "CommittedDpEvent"):
            add(one["event"], count * _whole(one.get("count", 1), 0))
        elif one["kind"] != "NoOpDpEvent" and count:
            name = json.dumps(one, sort_keys=True)
            found[name] = one, count + found.get(name, (one, 0))[1]
    add(event, 1)
    return list(found.values())

def _known(event: Json) -> None:  # one field more may mean anything, but how long vectors are
    told = {*event} - {"squared_change", "places"}  # can only lessen what it costs
    known = told == {"kind", *_FIELDS.get(str(event["kind"]), "?").split()}
    _need(known, f"there is no step for events such as its {event['kind']!s:.40}")

def _pure(one: Json) -> Fraction:  # of all that one release has of a person; sums move both ways
    local = one.get("local_event", one)
    if one["kind"] == "LaplaceDpEvent":
        return 2 / _number(one["noise_multiplier"])
    if one["kind"] == "DiscreteLaplaceDpEvent":
        return 2 * _number(one["sensitivity"]) * _number(one["noise_parameter"])
    _need("local_epsilon" in local, "Gaussian noise alone has no epsilon without a delta")
    return _whole(one.get("points_sampled", 1), 1) * _number(local["local_epsilon"])

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
        _need(0 < join <= 1, "it samples more than there are")
        some, absent = join.numerator, (join.denominator - join.numerator) * self.scale
        kinds = [tuple(some * weight for weight in kind) for kind in self.kinds]
        return Table(kinds + [(absent,) * 3] * (absent > 0), self.scale * join.denominator)

def two_kinds(budget: Fraction, bit: bool = False) -> Table:
    """Two reports of odds e^budget: those of a noisy bit, or of whatever has that epsilon."""
    ratio = _exp(budget, up=True)
    often = math.ceil(SCALE * ratio / (1 + ratio))
    part = SCALE - often if bit else math.floor(SCALE / (2 * ratio))
    return Table([(often, SCALE - often, part), (SCALE - often, often, part)])

def own_table(pair: list[Any], budget: Fraction) -> Table:
    """The event's own: rows (first, second, blanket law) in units of that law, as integers."""
    mass, proved, every, _ = pair
    rows = [[_number(x) for x in row] for row in every if row[2] > 0]
    _need(proved % 2 == 1 and len(rows) <= MOST_ATOMS, "the event's table is not said to be proved")
    both = [[row[side] * row[2] for row in rows] for side in (0, 1)]
    first, second = ([math.floor(x * SCALE / t) for x in c] for c, t in zip(both, map(sum, both)))
    for column in (first, second):
        column[column.index(max(column))] += SCALE - sum(column)
    share = _number(mass) * SCALE / sum(row[2] for row in rows)
    blanket = [math.floor(share * row[2]) for row in rows]
    if proved == 1:  # else the crowd's budgets differ, and its blanket is not the person's
        blanket = [*map(min, blanket, first, second)]
    _need(min(blanket) > 0, "the event's blanket lacks a report")
    most = _exp(budget, up=True) * (1 + Fraction(1, 10**8))  # the event's own are floats
    _need(all(max(f, s) <= most * min(f, s) for f, s in zip(first, second)), "it tells too much")
    return Table(list(zip(first, second, blanket)))

# Step 4. Crowd: how many reports hide a person, and how likely the person's is among them ----
class Part(NamedTuple):
    """So many releases, of each of which a `share` is about a person: Gaussian noise, or a shuffle
    of `crowd` honest reports. The person's is in it with probability `rate`; one of them is worse
    than that with a probability of at most `chance`."""
    times: int
    table: Table
    crowd: int = 1
    rate: Fraction = Fraction(1)
    share: Fraction = Fraction(1)
    chance: Fraction = Fraction(0)
    shift: Fraction = Fraction(0)  # of noise: what a person changes, in its standard deviations

    def facts(self) -> Json:
        """What a certificate may say of it, and then must."""
        kinds, scale = self.table
        mass, weights = Fraction(sum(b for *_, b in kinds), scale), [[*map(str, k)] for k in kinds]
        numbers = map(str, (self.rate, self.share, self.shift, scale, mass))
        told = dict(zip(("rate", "share", "shift", "scale", "mass"), numbers))
        return {"count": self.times, "crowd": self.crowd, "weights": weights, **told}

    def delta(self, loss: Fraction, tilts: list[str], smoothing: str) -> Fraction:
        """An upper bound of the least delta of one of them at a loss."""
        _need(0 < self.rate <= 1 >= self.share > 0, "it samples more than there are")
        odds = 1 + (_exp(loss, up=False) - 1) / self.share  # smaller odds give a larger delta
        one = noise_delta if self.shift else shuffle_delta
        return self.share * one(self, odds, tilts, smoothing)

def parts_of(event: Leaves, choices: list[Json]) -> list[Part]:
    """The releases of an event. `any_randomizer` and `crowd` are chosen, the rest repeats it."""
    found: list[Part] = []
    for one, times in event:
        if "noise_multiplier" in one.get("event", ()):  # which is of half of what may change
            _known(one["event"])
            rate = _number(one.get("sampling_probability", 1))
            size, people = one.get("sample_size", 1), one.get("source_dataset_size", 1)
            shift, share = 2 / _number(one["event"]["noise_multiplier"]), Fraction(size, people)
            found.append(Part(times, Table([]), 1, rate, share, shift=shift))
        elif bits := one.get("messages" if "num_reports" in one else "columns"):
            crowd = _whole(one.get("num_reports", 1), 1)
            tables = [(_whole(count, 1), two_kinds(_number(bit), bit=True)) for count, bit in bits]
            found += [Part(times * count, table, crowd) for count, table in tables]
        elif one["kind"] != "GaussianDpEvent":
            found.append(_shuffle(one, times, choices[len(found)]))
    _need(len(found) == len(choices), "it counts other releases than the event")
    for part, choice in zip(found, choices):
        for name, fact in part.facts().items():
            _need(choice.get(name, fact) == fact, f"its {name} is not that of the event")
    return found

def _shuffle(one: Json, times: int, choice: Json) -> Part:
    """So many shuffles of one report per person; what is not shuffled is a crowd of one."""
    local = one.get("local_event", one)
    _need("local_epsilon" in local, f"there is no step to compose its {one['kind']}")
    _known(local)
    anybody, budget = local["pair"] is None or choice["any_randomizer"], local["local_epsilon"]
    single = local["messages"] == 1 or (anybody and one["kind"] != "ShuffledDpEvent")
    _need(single, "its event is of several messages in one shuffle")
    table = two_kinds(_number(budget)) if anybody else own_table(local["pair"], _number(budget))
    if one is local:
        return Part(times, table)
    groups, mixed = _whole(local["public_groups"], 1), 0 if anybody else local["pair"][1] // 2
    if one["kind"] == "SubsampledShuffledDpEvent":
        _need(groups == 1 and not mixed, "it samples people in groups, or of several budgets")
        return _sample(one, times, table, choice)
    honest = _whole(_whole(one["num_reports"], 1) - _whole(one["num_fakes"], 0), 1)
    alike = not mixed or (groups == 1 and honest == one["num_reports"] <= mixed + 1)
    _need(alike, "its table is of another crowd of several budgets")
    if groups == 1:
        return Part(times, table, honest)
    crowd = _whole(choice["crowd"], 1, honest)
    small, of = crowd - 1, Decimal(groups)  # the most people of a group that is too small
    likely = choose(honest, small) - of.ln() * small + (1 - 1 / of).ln() * (honest - small)
    fewer = Decimal(small * (groups - 1)) / (honest - small + 1)
    return Part(times, table, crowd, chance=groups * tail(likely, fewer))

def _sample(one: Json, times: int, table: Table, choice: Json) -> Part:
    """The same of a random sample of people, where what is seen is how many there are."""
    users, drawn, came = _whole(one["num_users"], 1), one["num_drawn"], one["num_received"]
    fakes, points = _whole(one["num_fakes"], 0, users - 1), _whole(one["points_per_client"], 1)
    way, epoch = one["sampling"], one["sampling"] == "shuffled_epochs"
    _need(one["points_sampled"] == 1, "it samples several points of a person")
    if way in ("self", "poisson"):
        each = points if way == "poisson" else 1
        thinned, crowd = table.thinned(_number(drawn) / users / each), (users - fakes) * each
        _need(came is None, "it counts who came by coins")
        return Part(times, thinned, crowd, share=Fraction(each, points))
    _need(epoch or way == "without_replacement", "it samples in an unknown way")
    size = _whole(drawn, 1, users)
    came = _whole(size if came is None else came, 1, size)
    rounds, lost = users // size if epoch else 1, epoch and came < size
    rounds = rounds if lost or one["rounds"] is None else _whole(one["rounds"], 1, rounds)
    total, most = size * rounds, came * rounds
    crowd, could = _whole(choice.get("crowd", most), 1, most), users * most - fakes * total
    rate = Fraction(1) if lost or could < most * total else Fraction(most * total, could)
    gone, chance = most - crowd, Fraction(0)  # more fakes than that are drawn with this chance
    _need(not lost or gone >= fakes, "it knows who came in which round")
    if gone < min(fakes, total):
        more, honest, rest = gone + 1, users - fakes, total - gone - 1
        likely = choose(fakes, more) + choose(honest, rest) - choose(users, total, up=False)
        chance = tail(likely, Decimal((fakes - more) * rest) / ((more + 1) * (honest - rest + 1)))
    return Part(times, table, crowd, rate, Fraction(1, points), chance)

def choose(n: int, k: int, up: bool = True) -> Decimal:
    """Logarithm of n choose k, at most or at least: by Stirling's formula."""
    _need(0 <= k <= n, "a chance is none")
    if k in (0, n):
        return Decimal(0)
    whole, part, rest = Decimal(n), Decimal(k), Decimal(n - k)
    root = (whole / part / rest / (2 * PI_BELOW if up else 8)).ln() / 2
    return whole * whole.ln() - part * part.ln() - rest * rest.ln() + root

def tail(log_first: Decimal, falls: Decimal) -> Fraction:
    """A sum of chances: the logarithm of the first, and what share of it the next is, at most."""
    _need(0 <= falls < 1, "a chance is none of a tail")
    return Fraction(log_first.exp() / (1 - falls) * SAFE)

# Step 5. Sum: the delta of one shuffle is the positive part of a sum of independent numbers -
def shuffle_delta(part: Part, odds: Fraction, tilts: list[str], smoothing: str) -> Fraction:
    """An upper bound of the least delta at these odds, in each direction, with a tilt for each:
    rate E[max(X_1 + ... + X_crowd, 0)] / crowd: X is (first - odds second) / blanket
    with the probabilities of the blanket, 0 otherwise, less a number if one may be absent."""
    sides, found, absent = part.table.sides(), Fraction(0), (odds - 1) * (1 / part.rate - 1)
    _need(len(sides) == len(tilts), "a direction has no tilt")
    for side, tilt in zip(sides, map(_rational, tilts)):
        atoms = [((f - odds * s) / b - absent, Fraction(b, side.scale)) for f, s, b in side.kinds]
        atoms = [(-absent, Fraction(1) - sum(p for _, p in atoms)), *atoms]
        mean = sum((x * p for x, p in atoms if x > 0), Fraction(0))
        if part.crowd > 1 and mean > 0:
            law = Law.tilted(atoms, part.crowd, tilt)
            mean = positive_part([law], 0, tilt, _rational(smoothing))
        found = max(found, part.rate * mean / part.crowd)
    return found

def noise_delta(part: Part, odds: Fraction, *_: Any) -> Fraction:
    """That of the half-line of all places with larger odds; who came by a coin moves it by half."""
    t, m, q = _decimal(odds), _decimal(part.shift) / 2, _decimal(part.rate)
    absent, k = (1 - q) * (t - 1), q * (-m * m / 2).exp()
    at = ((absent + (absent * absent + 4 * k * k * t).sqrt()) / 2 / k).ln() / m
    found = q * (_normal(m - at) - t * _normal(-m - at)) - absent * _normal(-at)
    return Fraction(found + (1 + t) / 10**38)

def _normal(x: Decimal) -> Decimal:
    """How likely a standard normal number is below x, to 40 places."""
    if abs(x) > 14:
        return Decimal(x > 0)
    term = total = x
    for odd in range(3, 900, 2):
        term = term * x * x / odd
        total += term
    return total * (-x * x / 2).exp() / (2 * PI_BELOW).sqrt() + Decimal("0.5")

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
        values, shares = [x - first for x, _ in atoms], [int(w / total * ONE) for w in weights]
        return cls(count, total.ln(), first, values, shares)

def positive_part(laws: list[Law], bend: int, tilt: Fraction, smoothing: Fraction,
                  mean: Fraction = Fraction(0), variance: Fraction = Fraction(0)) -> Fraction:
    """At least E[max(S, 0)], or E[max(e^S - 1, 0)] with a `bend` of 1. S is the sum of all laws
    and of a Gaussian of this mean and variance; `tilt` and `smoothing`, the width of a Gaussian
    that is added relative to that of S, may be any: good ones are tight."""
    _need(tilt > bend, "its tilt is none")
    top, square = float(mean + tilt * variance), float(variance)
    for law in laws:
        pairs = [(float(x), weight / ONE) for x, weight in zip(law.values, law.weights)]
        middle = math.fsum(p * x for x, p in pairs)
        top += law.times * (middle + float(law.first))
        square += law.times * math.fsum(p * (x - middle) ** 2 for x, p in pairs)
    width = math.sqrt(square)
    variance += (smoothing * Fraction(width)) ** 2
    wide = 1 if top > 0 else 2  # where what counts is rare, even under the tilt
    turn = 2 * math.pi / max(15 * wide / float(tilt - bend) - min(top, 0.0), top + 5.5 * width)
    nodes, spacing = math.ceil(3.2 * wide / math.sqrt(variance) / turn), Fraction(turn)
    _need(nodes * (1 + sum(len(law.values) for law in laws)) <= MOST_WORK, "its sum is too long")
    reach = max((float(max(law.values) - min(law.values)) for law in laws), default=0.0)
    near = min(nodes, math.ceil(19 / (width * turn))) if nodes * turn * reach < 3.1 else nodes
    w, v = _decimal(spacing / tilt), _decimal(spacing / (tilt - bend))
    start = mean + tilt * variance + sum(law.times * law.first for law in laws)
    decay = _decimal(spacing**2 * variance) / 2
    inside = _nodes(laws, near, spacing, decay, w, v, _unit(spacing * start))
    inside += 2 * nodes * Decimal(-69).exp()  # what is left out
    beyond = 2 * (-decay * nodes**2).exp() / ((2 * decay * nodes).exp() - 1) / (w * v * nodes**2)
    log_moment = _decimal(tilt * mean + tilt**2 * variance / 2)
    moment = sum((x.times * x.log_total for x in laws), log_moment).exp()
    found = moment * w / _decimal(tilt - bend) / (2 * PI_BELOW) * (inside + beyond)
    return Fraction(min(max(found * SAFE, Decimal("1e-400")), Decimal("1e400")))

def _nodes(laws: list[Law], nodes: int, spacing: Fraction, decay: Decimal, w: Decimal, v: Decimal,
           phase_step: Point) -> Decimal:
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
    kind, smoothing, choices = certificate["kind"], certificate["smoothing"], certificate["parts"]
    parts, lost, laws = parts_of(event, choices), Fraction(0), []
    if kind == "shuffle" and [part.times for part in parts] == [1] == [n for _, n in event]:
        return parts[0].delta(epsilon, certificate["tilts"], smoothing) + parts[0].chance
    _need(kind == "composed", "it is of another kind than its event")
    tilt, spread = _rational(certificate["tilt"]), Fraction(0)
    for part, choice in zip(parts, choices):
        for loss, height, *tilts in choice["knots"]:
            found = part.delta(_rational(loss), tilts, choice["smoothing"])
            _need(found <= _rational(height), f"a delta at the loss {loss[:20]} is too small")
        atoms, beyond = law_of(choice["knots"])
        lost += part.times * (beyond + part.chance)
        laws.append(Law.tilted(atoms, part.times, tilt))
    for noise, times in ((o, n) for o, n in event if o["kind"] == "GaussianDpEvent"):
        spread += times * (2 / _number(noise["noise_multiplier"])) ** 2
    mean = positive_part(laws, 1, tilt, _rational(smoothing), -epsilon - spread / 2, spread)
    return mean * _exp(epsilon, up=True) + lost

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
    half = _power(_times(base, base), exponent >> 1) if exponent > 1 else (ONE, 0)
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
        if "about" in statement:  # the body of a row: a settlement
            about, identity = statement["about"], statement["about"]["certificate"].get("identity")
            statement = about | {"event": statement["event"], "identity_digest": identity}
        code, text = verify(statement, *row)
    except (OSError, *_MALFORMED) as error:
        code, text = NOTHING, f"cannot be read ({type(error).__name__})\n\n{__doc__}"
    print(text)
    return code

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
