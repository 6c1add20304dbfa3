"""Confirm a privacy statement from its certificate, by exact arithmetic and nothing else.

    python verify.py privacy.json [--row row.json]

prints `confirmed at epsilon ... delta ...` (exit 0), `not confirmed, because ...` (exit 1), or why
there is nothing to check (exit 2). It imports the standard library only and trusts no number that
it can work out. `docs/certificates.md` has a proof for each step below, under the same name.

What is confirmed: a person's value is hidden among the reports that the event counts, by
(epsilon, delta)-DP under replace-one, if the mechanism is what the event says of it: for all pairs
of values, nothing tells more than its table, and every report contains its blanket.
"""

from __future__ import annotations

import json
import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

VERSION = 1
MOST_SLACK = Fraction(1, 2000)
MOST_ATOMS, MOST_NODES, MOST_REPORTS, MOST_GROUP = 4096, 50_000, 10**12, 10**6
DIGITS = 60  # of a Decimal
BITS = 192  # of a fixed-point number: an integer in units of 2**-BITS
ONE = 1 << BITS
SAFE = Decimal(
    "1.000000000000000000000000000001"
)  # covers all roundings of Decimals, see "Rounding"
PI_BELOW = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
MOST_DIGITS = 300  # of a rational
_NO_TEXT = "a rational is not written as such"
TABLE_TOLERANCE = Fraction(1, 10**9)  # between the event's floats and the table's integers

CONFIRMED, REFUTED, NOTHING = 0, 1, 2


_MALFORMED = (
    KeyError, IndexError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError
)  # fmt: skip


class Verdict(NamedTuple):
    """What came of a statement: `code` is the exit code, `text` a line for people."""

    code: int
    text: str


class Refuted(Exception):
    """The statement does not follow; the message says why."""


class Nothing(Exception):
    """There is nothing to check; the message says why."""


def verify(statement: dict[str, Any], row: dict[str, Any] | None = None) -> Verdict:
    """The verdict on a statement: privacy.json, or a ledger's row as `statement_of` reads it.

    Args:
        statement: with `epsilon`, `delta`, `event`, `identity_digest` and `certificate`.
        row: body of the row that charged it, which must say the same.
    """
    try:
        with localcontext(Context(prec=DIGITS, Emin=-(10**9), Emax=10**9)):
            return Verdict(CONFIRMED, _confirmed(statement, row))
    except Nothing as why:
        return Verdict(NOTHING, f"not independently checkable: {why}")
    except Refuted as why:
        return Verdict(REFUTED, f"not confirmed, because {why}")
    except _MALFORMED as error:
        kind = type(error).__name__
        return Verdict(REFUTED, f"not confirmed, because the certificate is malformed ({kind})")


def _confirmed(statement: dict[str, Any], row: dict[str, Any] | None) -> str:
    certificate = statement.get("certificate")
    if not isinstance(certificate, dict):
        raise Nothing("the statement carries no certificate")
    _need(certificate["version"] == VERSION, f"only certificates of version {VERSION} are known")
    if certificate["kind"] == "none":
        raise Nothing(str(certificate["why"]))
    if row is not None:
        _same_as_row(statement, row)
    _bound(statement, certificate)
    slack = _rational(certificate["slack"])
    _need(0 <= slack <= MOST_SLACK, f"its slack is above {float(MOST_SLACK):.2%}")
    epsilon, delta = _number(statement["epsilon"]), _number(statement["delta"])
    _need(epsilon >= 0 and 0 <= delta < 1, "epsilon and delta are none")
    loosened = epsilon * (1 + slack)
    if certificate["kind"] == "local":
        _local(statement["event"], loosened)
    elif certificate["kind"] == "shuffle":
        _shuffled(statement["event"], certificate, loosened, delta)
    else:
        raise Refuted(f"its kind {str(certificate['kind'])[:20]!r} is unknown")
    said = float(loosened)
    return (
        f"confirmed at epsilon {said:.6g} delta {float(delta):.6g} (stated: {float(epsilon):.6g})"
    )


def _need(holds: bool, why: str) -> None:
    if not holds:
        raise Refuted(why)


def _number(value: Any) -> Fraction:
    """A number of a statement, exactly as written: a float is the binary number it stands for."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refuted("a number of the statement is none")
    return Fraction(value)


def _rational(text: Any) -> Fraction:
    """A number of a certificate: text such as "1/2000" or "0.125", exactly."""
    _need(isinstance(text, str) and len(text) <= MOST_DIGITS and "e" not in text.lower(), _NO_TEXT)
    return Fraction(text)


def _weight(text: Any) -> int:
    """A positive integer as text: JSON's own are floats to some readers."""
    found = _rational(text)
    _need(found.denominator == 1 and found > 0, "a weight is no positive integer")
    return int(found)


def _whole(value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Refuted(f"an integer is not in [{least}, {most}]")
    return value


# Step 1. Bound: the certificate is of this statement, and the statement of this row --------


def _bound(statement: dict[str, Any], certificate: dict[str, Any]) -> None:
    for name in ("epsilon", "delta"):
        same = _number(certificate[name]) == _number(statement[name])
        _need(same, f"the certificate is of another {name}")
    same = certificate.get("identity") == statement.get("identity_digest")
    _need(same, "the certificate is of another release")


def statement_of(row: dict[str, Any]) -> dict[str, Any]:
    """The statement that a ledger's row holds (the body of a settlement)."""
    about = row["about"]
    return {
        "epsilon": about.get("epsilon"),
        "delta": about.get("delta"),
        "event": row["event"],
        "identity_digest": (about.get("certificate") or {}).get("identity"),
        "certificate": about.get("certificate"),
    }


def _same_as_row(statement: dict[str, Any], row: dict[str, Any]) -> None:
    charged = statement_of(row)
    for name in ("epsilon", "delta", "event", "certificate"):
        _need(charged[name] == statement[name], f"the ledger's row has another {name}")
    told = row["about"].get("num_reports")
    if told is not None and told != statement.get("num_reports"):
        raise Refuted("the ledger's row has another num_reports")


# Step 2. Local: without any amplification the reports of one person cost their sum ---------


def _local(event: dict[str, Any], epsilon: Fraction) -> None:
    total = _local_sum(_content(event))
    _need(total <= epsilon, f"a person's reports cost {float(total):.6g} without a crowd")


def _content(event: dict[str, Any]) -> dict[str, Any]:
    _need(event["version"] == 1, "the event's version is unknown")
    content: dict[str, Any] = event["event"]
    return content


def _local_sum(event: dict[str, Any]) -> Fraction:
    """Sum of the local epsilons of everything that one person sends."""
    kind = event["kind"]
    if kind == "NoOpDpEvent":
        return Fraction(0)
    if kind == "ComposedDpEvent":
        return sum((_local_sum(one) for one in event["events"]), Fraction(0))
    if kind == "SelfComposedDpEvent":
        return _whole(event["count"], 0, MOST_REPORTS) * _local_sum(event["event"])
    if kind == "ShuffledDpEvent":
        return _local_sum(event["local_event"])
    if kind == "SubsampledShuffledDpEvent":
        points = _whole(event["points_sampled"], 1, MOST_REPORTS)
        return points * _local_sum(event["local_event"])
    if kind in ("LocalRandomizerDpEvent", "ShuffledMessagesDpEvent"):
        found = _number(event["local_epsilon"])
        _need(found > 0, "a local epsilon is not positive")
        return found
    raise Refuted("the event has a part that no local epsilon bounds")


# Step 3. Table: what one report tells, and the blanket that all reports contain ------------


class Table(NamedTuple):
    """Integer weights over one `scale`: per kind of report, of two values and of the blanket."""

    first: list[int]
    second: list[int]
    blanket: list[int]
    scale: int

    def swapped(self) -> Table:
        return Table(self.second, self.first, self.blanket, self.scale)

    def kinds(self) -> list[tuple[int, int, int]]:
        return sorted(zip(self.first, self.second, self.blanket, strict=True))

    def sides(self) -> list[Table]:
        """Both directions, or one where the table is its own mirror image."""
        other = self.swapped()
        return [self] if self.kinds() == other.kinds() else [self, other]


def _table(certificate: dict[str, Any], local_event: dict[str, Any]) -> Table:
    scale = _weight(certificate["scale"])
    columns = [certificate[name] for name in ("first", "second", "blanket")]
    atoms = len(columns[0])
    _need(0 < atoms <= MOST_ATOMS and all(len(c) == atoms for c in columns), "its table is ragged")
    first, second, blanket = ([_weight(w) for w in column] for column in columns)
    table = Table(first, second, blanket, scale)
    _need(sum(table.first) == scale == sum(table.second), "its weights are no probabilities")
    if any(b > min(f, s) for f, s, b in table.kinds()):
        raise Refuted("its blanket is not contained in the reports of both values")
    mass = Fraction(sum(table.blanket), scale)
    _need(_rational(certificate["mass"]) == mass, "its blanket's mass is not that of its weights")
    budget = _number(local_event["local_epsilon"])
    most = max(Fraction(max(f, s), min(f, s)) for f, s, _ in table.kinds())
    _need(most <= _exp(budget, ROUND_CEILING) * (1 + TABLE_TOLERANCE), "a report tells too much")
    if local_event["pair"] is None or certificate["any_randomizer"]:
        _clones(table, budget)
    else:
        _same_as_pair(table, local_event["pair"])
    return table


def _clones(table: Table, budget: Fraction) -> None:
    """Of every randomizer: two reports, of odds e^budget, and each other's report one time in that.

    `docs/certificates.md`, "Table", has the theorem; nothing larger is proved for all of them.
    """
    ratio = _exp(budget, ROUND_FLOOR)
    _need(len(table.first) == 2, "the table of any randomizer has two kinds of reports")
    (f0, s0, b0), (f1, s1, b1) = table.kinds()
    _need(b0 == b1 and f0 == s1 and f1 == s0, "the table of any randomizer is symmetric")
    close = 1 + TABLE_TOLERANCE
    _need(Fraction(f1, f0) * close >= ratio, "its odds are below those of the local epsilon")
    _need(Fraction(b0 + b1, table.scale) * ratio <= close, "its blanket is larger than proved")


def _same_as_pair(table: Table, pair: list[Any]) -> None:
    """The event's own table, whose floats are (first, second, blanket law) in units of that law."""
    mass, proved, rows, _ = pair
    _need(proved == 1, "the event's table is not said to be proved")
    kept = [[_number(x) for x in row] for row in rows if row[2] > 0]
    total = sum(p for *_, p in kept)
    _need(len(kept) == len(table.first), "its table is not that of the event")
    close = TABLE_TOLERANCE
    for (first, second, p), f, s, b in zip(
        kept, table.first, table.second, table.blanket, strict=True
    ):
        for said, weight in ((p * first, f), (p * second, s), (p * _number(mass), b)):
            if abs(said / total * table.scale - weight) > close * weight:
                raise Refuted("its table is not that of the event")


# Step 4. Crowd: how many honest reports hide a person --------------------------------------


def _crowd(event: dict[str, Any], certificate: dict[str, Any]) -> tuple[int, Fraction]:
    """Reports that hide each other, and the chance that there are fewer."""
    known = {"kind", "local_event", "num_reports", "num_fakes"}
    _need(event["kind"] == "ShuffledDpEvent" and set(event) == known, "its event is no one shuffle")
    received = _whole(event["num_reports"], 1, MOST_REPORTS)
    honest = received - _whole(event["num_fakes"], 0, received - 1)
    _need(certificate["reports"] == received, "it counts other reports than the event")
    _need(certificate["honest"] == honest, "it counts other honest reports than the event")
    local = event["local_event"]
    _need(local["kind"] == "LocalRandomizerDpEvent", "its event is of no local randomizer")
    _need(local["messages"] == 1, "its event is of several messages")
    groups = _whole(local["public_groups"], 1, MOST_REPORTS)
    crowd = _whole(certificate["crowd"], 1, honest)
    if groups == 1 or crowd == 1:  # oneself is always there
        return crowd, Fraction(0)
    return crowd, groups * _binomial_below(crowd, honest, groups)


def _binomial_below(least: int, trials: int, groups: int) -> Fraction:
    """At least the probability that fewer than `least` of the trials fall into one group."""
    _need(least <= MOST_GROUP, "its groups are too large to add up")
    total = term = (trials * (1 - Decimal(1) / groups).ln()).exp()
    for count in range(1, least):
        term = term * (trials - count + 1) / count / (groups - 1)
        total += term
    return _above(total)


# Step 5. Sum: the delta of one shuffle is the positive part of a sum of independent numbers -


def _shuffled(
    event: dict[str, Any], certificate: dict[str, Any], epsilon: Fraction, delta: Fraction
) -> None:
    content = _content(event)
    crowd, chance = _crowd(content, certificate)
    table = _table(certificate, content["local_event"])
    sides, sums = table.sides(), certificate["sums"]
    _need(len(sums) == len(sides), "a direction has no sum")
    for side, one in zip(sides, sums, strict=True):
        found = delta_at(side, crowd, epsilon, one) + chance
        if found > delta:
            raise Refuted(f"delta is {float(found):.6g} there, which is above {float(delta):.6g}")


def delta_at(table: Table, crowd: int, epsilon: Fraction, grid: dict[str, Any]) -> Fraction:
    """An upper bound of the least delta at epsilon: E[max(X_1 + ... + X_crowd, 0)] / crowd.

    X is (first - e^epsilon second) / blanket with the probabilities of the blanket, 0 otherwise.

    Args:
        grid: `tilt`, `noise` (standard deviation of an added Gaussian), `spacing` and `nodes`: any
            positive numbers give a bound, good ones a tight one.
    """
    tilt, noise, spacing = (_rational(grid[name]) for name in ("tilt", "noise", "spacing"))
    nodes = _whole(grid["nodes"], 1, MOST_NODES)
    _need(tilt > 0 and noise > 0 and spacing > 0, "its grid is none")
    odds = _exp(epsilon, ROUND_FLOOR)  # a smaller one gives a larger delta
    atoms = [(_up((f - odds * s) / b), Fraction(b, table.scale)) for f, s, b in table.kinds()]
    if all(value <= 0 for value, _ in atoms):
        return Fraction(0)
    rest = 1 - Fraction(sum(table.blanket), table.scale)
    law = Law.tilted([*atoms, (Fraction(0), rest)], tilt)
    width = _decimal(spacing / tilt)
    decay = _decimal((noise * spacing) ** 2) / 2
    spread = _decimal((noise * tilt) ** 2)
    inside = _nodes(law, crowd, spacing, nodes, width, decay, spread)
    last = decay * nodes * nodes
    beyond = (-last).exp() / ((2 * decay * nodes).exp() - 1) / (width * nodes) ** 2
    moment = (crowd * law.total.ln() + spread / 2).exp()
    scale = moment * _decimal(spacing / tilt**2) / (2 * PI_BELOW * crowd)
    return _above(scale * (inside + 2 * beyond))


class Law(NamedTuple):
    """The tilted law of one summand: E[e^(tilt X)], and values with what each adds to it."""

    total: Decimal
    values: list[Fraction]
    weights: list[int]  # fixed-point, sum 1

    @classmethod
    def tilted(cls, atoms: list[tuple[Fraction, Fraction]], tilt: Fraction) -> Law:
        weights = [_decimal(p) * _decimal(tilt * x).exp() for x, p in atoms]
        total = sum(weights, Decimal(0))
        return cls(total, [x for x, _ in atoms], [_fixed(w / total) for w in weights])


def _nodes(
    law: Law,
    crowd: int,
    spacing: Fraction,
    nodes: int,
    width: Decimal,
    decay: Decimal,
    spread: Decimal,
) -> Decimal:
    """1 + 2 Re sum over m of phi(m)^crowd gauss(m) / (1 + i m width)^2, and its roundings."""
    steps = [_unit(spacing * x) for x in law.values]
    turns = [(ONE, 0)] * len(steps)
    phase_step = _unit(Fraction(spread) * Fraction(width))
    phase = (ONE, 0)
    square = _fixed((-decay).exp())
    gauss, factor = ONE, square  # exp(-decay m^2) by the ratios exp(-decay (2 m - 1))
    squared_ratio = square * square >> BITS
    total, left_out = 0, 0
    for m in range(1, nodes + 1):
        turns = [_times(a, b) for a, b in zip(turns, steps, strict=True)]
        phase = _times(phase, phase_step)
        gauss = gauss * factor >> BITS
        factor = factor * squared_ratio >> BITS
        re = sum(w * a for w, (a, _) in zip(law.weights, turns, strict=True)) >> BITS
        im = sum(w * b for w, (_, b) in zip(law.weights, turns, strict=True)) >> BITS
        missing = ONE - (re * re + im * im >> BITS)
        if crowd * missing >> BITS > 140:  # |phi|^crowd is below exp(-70)
            left_out += 1
            continue
        power = _times(_power((re, im), crowd), phase)
        u = _fixed(m * width)
        below = ONE + (u * u >> BITS)
        part = (2 * ONE - below) * power[0] + 2 * u * power[1] >> BITS
        total += (part * gauss // below << BITS) // below
    error = nodes * (crowd + 1) * (nodes + 1) * (len(steps) + 1) << 8  # see "Rounding"
    return Decimal(ONE + 2 * total + error) / ONE + 2 * left_out * Decimal(-69).exp()


# Rounding: numbers of fixed point, and the few transcendental ones -------------------------


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _fixed(value: Decimal | Fraction) -> int:
    """Rounded down to a multiple of 2**-BITS."""
    if isinstance(value, Decimal) and value.adjusted() < -DIGITS:
        return 0
    exact = Fraction(value)
    return (exact.numerator << BITS) // exact.denominator


def _above(value: Decimal) -> Fraction:
    """A rational that is surely no less than what `value` stands for, of few digits."""
    if value.adjusted() > 9:
        return Fraction(10**10)
    return Fraction(max(value * SAFE, Decimal("1e-400")))


def _up(value: Fraction) -> Fraction:
    """Rounded up to a multiple of 2**-BITS."""
    return Fraction(-((-value.numerator << BITS) // value.denominator), ONE)


def _exp(value: Fraction, rounding: str) -> Fraction:
    """e^value, rounded outward: Decimal's own is off by half a unit of its last digit at most."""
    sign = 1 if rounding == ROUND_CEILING else -1
    return Fraction(_decimal(value).exp()) * (1 + sign * (2 + abs(value)) / 10 ** (DIGITS - 2))


def _times(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0] * b[0] - a[1] * b[1] >> BITS, a[0] * b[1] + a[1] * b[0] >> BITS


def _power(base: tuple[int, int], exponent: int) -> tuple[int, int]:
    found = base
    for bit in bin(exponent)[3:]:
        found = _times(found, found)
        if bit == "1":
            found = _times(found, base)
    return found


def _unit(angle: Fraction) -> tuple[int, int]:
    """(cos, sin) of an angle: Taylor series at a small part of it, which is doubled again."""
    part = abs(angle)
    halvings = (part.numerator // part.denominator).bit_length() + 8
    bits = BITS + 2 * halvings + 16
    x = (part.numerator << bits) // (part.denominator << halvings)
    cosine, sine, term, k = 1 << bits, 0, 1 << bits, 0
    while term:
        k += 1
        term = (term * x >> bits) // k
        signed = -term if k % 4 in (2, 3) else term
        cosine, sine = (cosine, sine + signed) if k % 2 else (cosine + signed, sine)
    for _ in range(halvings):
        cosine, sine = cosine * cosine - sine * sine >> bits, 2 * cosine * sine >> bits
    down = bits - BITS
    return cosine >> down, (sine if angle >= 0 else -sine) >> down


# The program -------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Exit code of the program; see the module."""
    row = None
    if "--row" in arguments:
        at = arguments.index("--row")
        arguments, row_path = arguments[:at] + arguments[at + 2 :], arguments[at + 1 : at + 2]
        row = row_path[0] if row_path else None
    if len(arguments) != 1:
        print(__doc__)
        return NOTHING
    try:
        statement = json.loads(Path(arguments[0]).read_text("utf-8"))
        body = None if row is None else json.loads(Path(row).read_text("utf-8"))
        if "about" in statement:
            statement = statement_of(statement)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"cannot be read ({type(error).__name__})")
        return NOTHING
    code, text = verify(statement, body)
    print(text)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
