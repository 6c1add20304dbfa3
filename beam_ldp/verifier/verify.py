"""Confirm a privacy statement from its certificate, by exact arithmetic and nothing else.

    python verify.py privacy.json [row.json]

prints `confirmed at epsilon ... delta ...` (exit 0), `not confirmed, because ...` (exit 1), or why
there is nothing to check (exit 2). It trusts no number that it can derive. Confirmed is (epsilon,
delta)-DP of one person's value (replace-one), if the mechanism is as its event: no pair of values
tells more than its table, every report holds its blanket. Proofs: `docs/certificates.md`.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

VERSION, OLD_SLACK = 2, Fraction(1, 2000)  # those of version 1 may confirm more than was stated
MOST_ATOMS, MOST_WORK, MOST_COUNT, MOST_DIGITS = 4096, 10**7, 10**12, 300
NEAR = Fraction(1, 10**9)  # relatively, what the floats of an event may miss a sum or a ratio by
DIGITS, BITS = 60, 128  # of a Decimal, and of a fixed-point number: in units of 2**-BITS
CONTEXT = Context(prec=DIGITS, Emin=-(10**9), Emax=10**9)
ONE = 1 << BITS  # as a fixed-point number
SAFE, TINY = Decimal("1.000000000000000000000000000001"), Decimal("1e-20")  # cover roundings
PI_BELOW = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
CONFIRMED, REFUTED, NOTHING = 0, 1, 2

Json = dict[str, Any]
Leaves = list[tuple[Json, int]]  # releases, and how often there was each
Law = list[tuple[Fraction, Fraction]]  # values and their probabilities
Table = list[Any]  # kinds of reports: their chance by either value, and blanket
Point = tuple[int, int]  # a complex number, fixed-point
_MALFORMED = LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError

class Verdict(NamedTuple):
    """What came of a statement: exit code of the program, and words for people."""
    code: int
    text: str
class Refuted(Exception):
    """The statement does not follow; the message says why."""

def verify(statement: Json, row: Json | None = None) -> Verdict:
    """The verdict on what privacy.json says; body of a ledger's `row` must say the same."""
    certificate = statement.get("certificate") or {"kind": "none", "why": "it has no certificate"}
    try:
        if certificate["kind"] == "none":
            return Verdict(NOTHING, f"not independently checkable: {certificate['why']}")
        with localcontext(CONTEXT):
            return _verdict(statement, certificate, row)
    except (Refuted, *_MALFORMED) as error:
        why = error if isinstance(error, Refuted) else f"it is malformed ({type(error).__name__})"
        return Verdict(REFUTED, f"not confirmed, because {why}")

def _need(holds: bool, why: str) -> None:
    if not holds:
        raise Refuted(why)
def _number(value: Any) -> Fraction:
    """A number >= 0 of a statement, exactly as it is written, in decimal."""
    good = type(value) in (int, float) and math.copysign(1, value) > 0 and value < math.inf
    _need(good, "a number of the statement is none")
    return Fraction(repr(value))
def _rational(text: Any) -> Fraction:
    """A number of a certificate: text such as "1/2000" or "0.125", exactly."""
    good = isinstance(text, str) and len(text) <= MOST_DIGITS and {*text} <= {*"0123456789./"}
    _need(good, "a rational is not written as such")
    return Fraction(text)
def _whole(value: Any, least: int, most: int = MOST_COUNT) -> int:
    _need(type(value) is int and least <= value <= most, f"an integer is not in [{least}, {most}]")
    return int(value)
def _near(one: Any, other: Any) -> bool:
    return abs(Fraction(one) - Fraction(other)) <= NEAR * Fraction(other)
def read(text: str) -> Any:
    """JSON that has one reading: no key twice, numbers as Python or RFC 8785 (ledgers) write."""
    def once(pairs: list[tuple[str, Any]]) -> Json:
        _need(len(dict(pairs)) == len(pairs), "a key stands there twice")
        return dict(pairs)
    def number(told: str) -> Any:
        usual = json.dumps(json.loads(told))
        forms = {usual, usual.replace("e-0", "e-"), f"{Decimal(usual):f}"} - {"-0.0"}
        _need(told[-1].isdigit() and told in forms, f"{told:.20} is not the usual form of a number")
        return json.loads(told)
    return json.loads(text, object_pairs_hook=once, parse_int=number, parse_float=number,
                      parse_constant=number)

# Step 1. Bound: the certificate is of this statement, and the statement of this row --------
_CHOSEN = {"version", "kind", "epsilon", "delta", "identity", "parts", "tilts", "tilt", "smoothing",
           "any_randomizer", "crowd", "crowds", "knots"}
_READ = {"certificate", "event", "epsilon", "delta", "identity_digest", "schema_version"}
def _verdict(statement: Json, certificate: Json, row: Json | None) -> Verdict:
    names = {*certificate}.union(*certificate.get("parts", ()))
    old = _whole(certificate["version"], 1, VERSION) == 1
    _need(old or names <= _CHOSEN, "its certificate says what no step reads")
    stated = statement | {"identity": statement.get("identity_digest")}
    for name in ("epsilon", "delta", "identity"):
        _need(certificate.get(name) == stated[name], f"the certificate is of another {name}")
    if row is not None:  # not every row says how many reports there were, or of which release
        said = {"num_reports": statement.get("num_reports"), **row["about"]}
        said["identity"] = row.get("identity_digest") or stated["identity"]
        for name in ("epsilon", "delta", "certificate", "num_reports", "identity"):
            _need(said.get(name) == stated.get(name), f"the row has another {name}")
    epsilon, delta = _number(stated["epsilon"]), _number(stated["delta"])
    event, charged = (leaves(told["event"]) for told in (statement, row or statement))
    _need(event == charged, "the row has another event")
    agreed, found = compared(statement, event), _delta(event, certificate, epsilon)
    if old and found > delta >= _delta(event, certificate, epsilon * (1 + OLD_SLACK)):
        return Verdict(NOTHING, "not independently checkable: it holds at 0.05 % more than stated")
    _need(found <= delta, f"delta is {float(found):.6g} there, above {float(delta):.6g}")
    rest = [n for n, x in statement.items() if n not in agreed and type(x) in (int, float, list)]
    lists = ("its event agrees with", agreed), ("not independently checkable:", {*rest} - _READ)
    told = [f"; {what} {', '.join(sorted(names))}" for what, names in lists if names]
    told = [f"epsilon {stated['epsilon']!r} delta {stated['delta']!r}", *told]
    return Verdict(CONFIRMED, f"confirmed at {''.join(told)}")

# Step 2. Event: the releases that it is composed of, and what one person sent in each ------
_FIELDS = {  # of a committed schedule any delta
    "LocalRandomizer": "local_epsilon pair witnesses public_groups messages columns",
    "Shuffled": "local_event num_reports num_fakes", "Laplace": "noise_multiplier",
    "ShuffledMessages": "messages num_reports local_epsilon witness", "Composed": "events",
    "SubsampledShuffled": "local_event num_users num_drawn num_received num_fakes "
    "points_per_client points_sampled sampling rounds", "Gaussian": "noise_multiplier",
    "DiscreteLaplace": "noise_parameter sensitivity", "SelfComposed": "event count", "NoOp": "",
    "PoissonSampled": "sampling_probability event", "Committed": "event delta",
    "SampledWithoutReplacement": "source_dataset_size sample_size event"}
def leaves(event: Json) -> Leaves:
    """The releases that an event is composed of; equal ones together."""
    _need(_whole(event["version"], 1) == 1, "the event's version is unknown")
    found: dict[str, tuple[Json, int]] = {}
    def add(one: Json, count: int) -> None:
        _known(one)
        if one["kind"] == "ComposedDpEvent":
            for part in one["events"]:
                add(part, count)
        elif one["kind"] in ("SelfComposedDpEvent", "CommittedDpEvent"):
            add(one["event"], count * _whole(one.get("count", 1), 0))
        elif one["kind"] != "NoOpDpEvent" and count:
            _consistent(one)
            name = json.dumps(one, sort_keys=True)
            found[name] = one, count + found.get(name, (one, 0))[1]
    add(event["event"], 1)
    return list(found.values())
def _known(event: Json) -> None:  # one field more may mean anything; what can only lessen it not
    _need(event.get("outputs", 2) == 2, "its reports are neither bits nor said to be more")
    kind, names = str(event["kind"]), {*event} - {
        "squared_change", "places", "telling_groups", "outputs"}
    known = kind.endswith("DpEvent") and names == {"kind", *_FIELDS.get(kind[:-7], "?").split()}
    _need(known, f"there is no step for events such as its {kind:.40}")
    for told in event.values():  # no truth value, nor anything else that only counts as a number
        _need(type(told) in (dict, list, str, type(None)) or _number(told) >= 0, "it is no number")
def _consistent(one: Json) -> None:
    """Refuted where a release says of itself what cannot all be true."""
    local: Any = one.get("event", one.get("local_event", one))  # of noise, or of one person
    _known(local)
    kind, inner = one["kind"], "GaussianDpEvent" if "event" in one else "LocalRandomizerDpEvent"
    _need(local is one or local["kind"] == inner, f"there is no step for events such as its {kind}")
    if "local_epsilon" in local:
        budget, whole = _number(local["local_epsilon"]), "pair" in local
        columns = [(_whole(n, 1), _number(x)) for n, x in local["columns" if whole else "messages"]]
        total, sent = sum(n * x for n, x in columns), sum(n for n, _ in columns)
        good = _near(total, budget) and (not whole or sent == local["messages"])
        _need(good or not columns, f"its {sent} messages cost {float(total):.6g} together")
        pairs = (local["pair"], *local["witnesses"]) if whole else ()
        _need(all(own_table(x, budget, x is pairs[0]) for x in pairs if x), "its table is empty")
def _pure(one: Json) -> Fraction:  # of all that one release has of a person; sums move both ways
    local = one.get("local_event", one)
    if one["kind"] in ("LaplaceDpEvent", "DiscreteLaplaceDpEvent"):
        scale = _number(one.get("noise_parameter", 1)) / _number(one.get("noise_multiplier", 1))
        return 2 * _number(one.get("sensitivity", 1)) * scale
    _need("local_epsilon" in local, "Gaussian noise alone has no epsilon without a delta")
    points = _whole(one.get("points_per_client", 1), 1)
    return _whole(one.get("points_sampled", 1), 1, points) * _number(local["local_epsilon"])

# Step 3. Compared: what the statement says besides, and its event implies ------------------
_SAMPLED = {"num_users": "num_clients", "source_dataset_size": "num_clients", "sample_size":
            "clients_per_round", "num_drawn": "clients_per_round", "num_received": "least_clients"}
def compared(statement: Json, event: Leaves) -> set[str]:
    """Names of what it says besides, between what its event implies; anything else is refuted."""
    said = {name: told for name, told in statement.items() if told not in (None, "", [], {})}
    ones, once = [one for one, _ in event], [times for _, times in event] == [1]
    between: Json = {} if ones else dict.fromkeys(("num_reports", "mechanism"), (0, 0))
    if crowds := [one for one in ones if "num_reports" in one]:
        sizes = [(_whole(one["num_reports"] - one.get("num_fakes", 0), 1), one.get(
            "local_event", one).get("public_groups", 1) or 1) for one in crowds]
        honest, hidden = min(n for n, _ in sizes), min(-(-n // groups) for n, groups in sizes)
        came = _whole(said.get("num_reports", MOST_COUNT), 1)
        share = Fraction(honest - (honest == 1), _whole(said.get("smallest_batch", came), 1))
        between |= {"honest_reports": (hidden, hidden), "smallest_batch": (honest, came),
                    "honest_fraction": (share, 1), "num_reports": (
                        max(one["num_reports"] for one in crowds), MOST_COUNT)}
    if ones and all("local_epsilon" in one.get("local_event", one) for one in ones):
        local, own = sum(n * _pure(one) for one, n in event), said.get("local_epsilon")
        levels = [reader["local_epsilon"] for reader in said.get("readers", ())]
        said |= {"local_epsilon": max(levels)} if own in levels else {}  # of the reader of most
        between["local_epsilon"] = local, local
        if isinstance(mechanism := said.get("mechanism"), dict) and "local_epsilon" in mechanism:
            said["mechanism"] = mechanism["local_epsilon"]
            between["mechanism"] = (_number(own),) * 2 if once and own else (0, local)
            _configured(ones[0].get("local_event", ones[0]), mechanism)
    for one in ones:
        if one["kind"] == "ShuffledMessagesDpEvent" and once:
            between["messages_per_user"] = (sum(count for count, _ in one["messages"]),) * 2
        between |= {to: (_number(one[n]),) * 2 for n, to in _SAMPLED.items() if one.get(n)}
        between |= {n: (one[n], MOST_COUNT) for n in ["points_per_client"] if n in one}
    if type(said.get("rounds")) is int and ones:
        between["rounds"] = 1, max(times * (one["num_users"] // one["num_drawn"] if one.get(
            "sampling") == "shuffled_epochs" else 1) for one, times in event)
    for name in {*between} & {*said}:
        least, told, most = between[name][0], _number(said[name]), between[name][1]
        _need(least * (1 - NEAR) <= told <= most * (1 + NEAR), f"its event has another {name}")
    if of := said.get("identity"):
        text = json.dumps(of, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        digest = hashlib.sha256(f"beam-ldp release identity\n{text}".encode()).hexdigest()
        _need(digest == statement["identity_digest"], "its identity has another digest")
    return {*between, "identity"} & {*said}
def _configured(local: Json, mechanism: Json) -> None:
    """Refuted where its configuration implies another table than a mechanism's event has."""
    kind, k, d = (mechanism.get(n) or 1 for n in ("mechanism", "domain_size", "subset_size"))
    if kind in ("KRandomizedResponse", "SubsetSelection") and k > 1 and local.get("pair"):
        (mass, proved, rows, _), odds = local["pair"], _exp(_number(local["local_epsilon"]), True)
        low, only = k / (k + (odds - 1) * d), Fraction(d * (k - d), k * (k - 1))  # d favoured of k
        good = [_near(sum(_number(p) for f, s, p in rows if f > s), only), mass <= low * (1 + NEAR)]
        good += [_near(x, low) or _near(x, low * odds) for row in rows for x in row[:2]]
        _need(all(good) and proved % 2 == 1, "its mechanism has another table")

# Step 4. Table: what one report tells, and the blanket that everybody's report contains -----
def sides(table: Table) -> list[Table]:
    """Both directions, or one where the table is its own mirror image."""
    other = [(s, f, b) for f, s, b in table]
    return [table] if sorted(table) == sorted(other) else [table, other]
def two_kinds(budget: Fraction, bit: bool = False) -> Table:
    """Two reports of odds e^budget: those of a noisy bit, or of whatever has that epsilon."""
    ratio = _exp(budget, up=True)
    often, part = ratio / (1 + ratio), 1 / (1 + ratio) if bit else 1 / (2 * ratio)
    return [(often, 1 - often, part), (1 - often, often, part)]
def own_table(pair: list[Any], budget: Fraction, own: bool = True) -> Table:
    """The event's own: rows (first, second, blanket law) in units of that law. Each column is a
    law, `own` tells exactly as much as the budget, no other more, and above the blanket."""
    (mass, proved, every, _), odds = pair, _exp(budget, up=True)
    rows = [(f * p, s * p, p) for f, s, p in ([_number(x) for x in row] for row in every)]
    totals = [sum(column) for column in zip(*rows, strict=True)]
    laws = min(map(min, rows)) > 0 and all(_near(total, 1) for total in totals)
    _need(laws and 0 < _number(mass) <= 1 and len(rows) <= MOST_ATOMS, "its table holds no laws")
    most = max(max(f, s) / min(f, s) for f, s, _ in rows)
    _need(_near(most, odds) or (most < odds and not own), "its table has another local epsilon")
    found = [(f / totals[0], s / totals[1], _number(mass) * p / totals[2]) for f, s, p in rows]
    if _whole(proved, 0) > 1 or not own:  # its blanket is that of others in a crowd
        return found
    _need(all(b <= min(f, s) * (1 + 4 * NEAR) for f, s, b in found), "its blanket is no part")
    return [(f, s, min(f, s, b)) for f, s, b in found]

# Step 5. Crowd: how many reports hide a person, and how likely the person's is among them ----
class Part(NamedTuple):
    """So many releases, a `share` of each about a person: Gaussian noise, or a shuffle of `crowd`
    honest reports, with the person's by a chance of `rate`; one is worse by one of `chance`."""
    times: int
    table: Table
    crowd: int = 1
    rate: Fraction = Fraction(1)
    share: Fraction = Fraction(1)
    chance: Fraction = Fraction(0)
    sizes: Law = []  # noqa: RUF012  # of a crowd by chance: how likely it is of at least so many
    shift: Fraction = Fraction(0)  # of noise: what a person changes, in its standard deviations
    bit: bool = False  # a report is one of two, and everybody's chances lie between the table's
    def delta(self, loss: Fraction, told: list[Any], smoothing: str) -> Fraction:
        """An upper bound of the least delta of one of them at a loss: for each direction there is
        told a tilt, or blocks; of blocks in a crowd by chance, for each of its sizes."""
        _need(0 < self.rate <= 1 >= self.share > 0, "it samples more than there are")
        blocks = bool(told) and not isinstance(told[0], str)
        share = self.share * self.rate if blocks else self.share
        odds = 1 + (_exp(loss, up=False) - 1) / share  # smaller odds give a larger delta
        if self.shift:
            return share * noise_delta(self, odds)
        crowds, total = self.sizes or [(Fraction(self.crowd), Fraction(1))], Fraction(0)
        each = told if blocks and self.sizes else [told] * len(crowds)
        for (size, chance), proofs in zip(crowds, each, strict=True):
            both = [self._replace(table=t, crowd=int(size)) for t in sides(self.table)]
            _need(len(both) == len(proofs), "a direction is not proved")
            total += chance * max(bit_delta(one, odds, *proof) if blocks else
                                  shuffle_delta(one, odds, _rational(proof), smoothing)
                                  for one, proof in zip(both, proofs))
        return share * total
def parts_of(event: Leaves, choices: list[Json]) -> list[Part]:
    """The releases of an event, of which a certificate may choose `any_randomizer` and `crowd`."""
    found: list[Part] = []
    for one, times in event:
        if noise := one.get("event"):  # its multiplier is of half of what may change
            rate, shift = _number(one.get("sampling_probability", 1)), noise["noise_multiplier"]
            share = Fraction(one.get("sample_size", 1), one.get("source_dataset_size", 1))
            found.append(Part(times, [], 1, rate, share, shift=2 / _number(shift)))
        elif bits := one.get("messages" if "num_reports" in one else "columns"):
            crowd = _whole(one.get("num_reports", 1), 1)
            tables, two = [two_kinds(_number(bit), bit=True) for _, bit in bits], "outputs" in one
            found += [Part(times * n, t, crowd, bit=two) for t, (n, _) in zip(tables, bits)]
        elif one["kind"] != "GaussianDpEvent":
            part, local = _shuffle(one, times, choices[len(found)]), one.get("local_event", one)
            bit = local.get("outputs") == 2 and not choices[len(found)]["any_randomizer"]
            found.append(part._replace(bit=bit and one.get("sampling") != "shuffled_epochs"))
    _need(len(found) == len(choices), "it counts other releases than the event")
    return found
def _shuffle(one: Json, times: int, choice: Json) -> Part:
    """So many shuffles of one report per person; what is not shuffled is a crowd of one."""
    local = one.get("local_event", one)
    _need("local_epsilon" in local, f"there is no step to compose its {one['kind']}")
    anybody, budget = choice["any_randomizer"], _number(local["local_epsilon"])
    _need(anybody or local["pair"][1] % 2 == 1, "the event's table is not said to be proved")
    _need(local["messages"] == 1 or (anybody and one["kind"] != "ShuffledDpEvent"),
          "its event is of several messages in one shuffle")
    table = two_kinds(budget) if anybody else own_table(local["pair"], budget)
    if one is local:
        return Part(times, table)
    groups, mixed = _whole(local["public_groups"], 1), 0 if anybody else local["pair"][1] // 2
    if one["kind"] == "SubsampledShuffledDpEvent":
        _need(groups == 1 and not mixed, "it samples people in groups, or of several budgets")
        return _sample(one, times, table, choice)
    honest = _whole(one["num_reports"] - _whole(one["num_fakes"], 0), 1)
    _need(not mixed or (groups == 1 and honest == one["num_reports"] <= mixed + 1),
          "its table is of another crowd of several budgets")
    if groups == 1:
        return Part(times, table, honest)
    if sizes := choice.get("crowds"):
        telling = Fraction(_whole(local.get("telling_groups", groups), 1, groups), groups)
        sizes = in_groups(sizes, honest, groups, telling)
        return Part(times, table, honest // groups + 1, sizes=sizes)  # crowd: about as many
    crowd = _whole(choice["crowd"], 2, honest)  # at least, but for the chance of a smaller group
    return Part(times, table, crowd, chance=groups * rare(crowd - 1, honest, Fraction(1, groups)))
def in_groups(sizes: list[int], honest: int, groups: int, telling: Fraction) -> Law:
    """Sizes of the person's own group, each with the chance of it or more up to the next: a
    binomial's, term by term; times that of a group in which reports of two values differ."""
    _need(sizes == sorted({_whole(n, 1, honest) for n in sizes}), "its crowds do not ascend")
    _need(sizes[0] == 1 and sizes[-1] <= MOST_WORK // 10, "its least crowd is none, or too many")
    found, at = [Decimal(0)] * len(sizes), 0
    term = _decimal(1 - Fraction(1, groups)) ** (honest - 1)
    for size in range(1, sizes[-1]):
        at += size == sizes[at + 1]
        found[at] += term
        term *= Decimal(honest - size) / (size * (groups - 1))
    found[-1] = max(1 - sum(found), Decimal(0)) + Decimal("1e-50")
    return [(Fraction(n), Fraction(p * SAFE) * telling) for n, p in zip(sizes, found)]
def _sample(one: Json, times: int, table: Table, choice: Json) -> Part:
    """The same of a random sample of people, where what is seen is how many there are."""
    users, drawn, came = _whole(one["num_users"], 1), one["num_drawn"], one["num_received"]
    fakes, points = _whole(one["num_fakes"], 0, users - 1), _whole(one["points_per_client"], 1)
    way, epoch = one["sampling"], one["sampling"] == "shuffled_epochs"
    known = epoch or way in ("self", "poisson", "without_replacement")
    _need(known and one["points_sampled"] == 1, "it samples several points of a person, or oddly")
    if way in ("self", "poisson"):  # by coins; to be absent is one more report, of the blanket
        each = points if way == "poisson" else 1
        join = _number(drawn) / users / each
        _need(came is None and join <= 1, "it counts who came by coins")
        table = [tuple(join * x for x in kind) for kind in table] + [(1 - join,) * 3] * (join < 1)
        return Part(times, table, (users - fakes) * each, share=Fraction(each, points))
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
        chance = rare(total - gone - 1, total, 1 - Fraction(fakes, users))
    return Part(times, table, crowd, rate, Fraction(1, points), chance)
def rare(few: int, of: int, likely: Fraction) -> Fraction:
    """How likely at most so few of so many are of a kind, with this share on average: Chernoff."""
    share = Fraction(few, of)
    _need(0 < share < likely < 1, "what is to be rare is not")
    one, other = (_decimal(x) * _decimal(x / y).ln() for x, y in (
        (share, likely), (1 - share, 1 - likely)))
    return Fraction((-of * (one + other)).exp() * SAFE)

# Step 6. Sum: the delta of one shuffle is the positive part of a sum of independent numbers -
def shuffle_delta(part: Part, odds: Fraction, tilt: Fraction, smoothing: str) -> Fraction:
    """An upper bound of the least delta at these odds, in the direction of the table:
    rate E[max(X_1 + ... + X_crowd, 0)] / crowd: X is (first - odds second) / blanket
    with the probabilities of the blanket, 0 otherwise, less a number if one may be absent."""
    absent = (odds - 1) * (1 / part.rate - 1)
    atoms = [((f - odds * s) / b - absent, b) for f, s, b in part.table]
    atoms = [(-absent, 1 - sum((p for _, p in atoms), Fraction(0))), *atoms]
    mean = sum((x * p for x, p in atoms if x > 0), Fraction(0))
    if part.crowd > 1 and mean > 0:
        mean = positive_part([(part.crowd, atoms)], 0, tilt, _rational(smoothing))
    return part.rate * mean / part.crowd
def noise_delta(part: Part, odds: Fraction) -> Fraction:
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
def positive_part(laws: list[tuple[int, Law]], bend: int, tilt: Fraction, smoothing: Fraction,
                  mean: Fraction = Fraction(0), variance: Fraction = Fraction(0)) -> Fraction:
    """At least E[max(S, 0)], or E[max(e^S - 1, 0)] with a `bend` of 1. S sums so many numbers of
    each law and a Gaussian; any `tilt`, and `smoothing`, the relative width of one added, do."""
    _need(tilt > bend and all(times <= MOST_COUNT for times, _ in laws), "its tilt is none")
    square, top, moment, tilted = float(variance), float(mean + tilt * variance), Decimal(0), []
    for times, law in laws:
        raised = [_decimal(p) * _decimal(tilt * x).exp() for x, p in law]
        total = sum(raised, Decimal(0))
        tilted.append((times, law, [int(w / total * ONE) for w in raised]))  # shares of the total
        moment += times * total.ln()
        pairs = [(float(x), float(w / total)) for (x, _), w in zip(law, raised)]
        middle = math.fsum(p * x for x, p in pairs)
        top += times * middle
        square += times * math.fsum(p * (x - middle) ** 2 for x, p in pairs)
    reach = max((float(max(law)[0] - min(law)[0]) for _, law in laws), default=0.0)
    width = math.sqrt(square)
    variance += (smoothing * Fraction(width)) ** 2
    wide = 1 if top > 0 else 2  # where what counts is rare, even under the tilt
    turn = 2 * math.pi / max(15 * wide / float(tilt - bend) - min(top, 0.0), top + 5.5 * width)
    nodes, spacing = math.ceil(3.2 * wide / math.sqrt(variance) / turn), Fraction(turn)
    _need(nodes * (1 + sum(len(law) for _, law in laws)) <= MOST_WORK, "its sum is too long")
    near = min(nodes, math.ceil(19 / (width * turn))) if nodes * turn * reach < 3.1 else nodes
    w, v = _decimal(spacing / tilt), _decimal(spacing / (tilt - bend))
    decay, moment = _decimal(spacing**2 * variance) / 2, moment + _decimal(
        tilt * mean + tilt**2 * variance / 2)
    inside = _nodes(tilted, near, spacing, decay, w, v, _unit(spacing * (mean + tilt * variance)))
    inside += 2 * nodes * Decimal(-69).exp()  # what is left out
    beyond = 2 * (-decay * nodes**2).exp() / ((2 * decay * nodes).exp() - 1) / (w * v * nodes**2)
    found = moment.exp() * w / _decimal(tilt - bend) / (2 * PI_BELOW) * (inside + beyond)
    return Fraction(min(max(found * SAFE, Decimal("1e-400")), Decimal("1e400")))
def _nodes(laws: list[Any], nodes: int, spacing: Fraction, decay: Decimal, w: Decimal, v: Decimal,
           phase_step: Point) -> Decimal:
    """1 + 2 Re sum over m of phi(m) gauss(m) / ((1 + i m w) (1 + i m v)), and its roundings."""
    steps = [[_unit(spacing * x) for x, _ in law] for _, law, _ in laws]
    turns, phase = [[(ONE, 0)] * len(law) for _, law, _ in laws], (ONE, 0)
    gauss, factor = ONE, int((-decay).exp() * ONE)
    squared_ratio, total = factor * factor >> BITS, 0
    for m in range(1, nodes + 1):
        power = phase = _times(phase, phase_step)
        gauss = gauss * factor >> BITS  # exp(-decay m^2) by the ratios exp(-decay (2 m - 1))
        factor = factor * squared_ratio >> BITS
        for i, (times, _, weights) in enumerate(laws):
            turns[i] = [*map(_times, turns[i], steps[i])]
            re = sum(p * a for p, (a, _) in zip(weights, turns[i])) >> BITS
            im = sum(p * b for p, (_, b) in zip(weights, turns[i])) >> BITS
            small = times * (ONE - (re * re + im * im >> BITS)) >> BITS > 140  # below exp(-70)
            power = (0, 0) if small else _times(power, _power((re, im), times))
        one, other = int(m * w * ONE), int(m * v * ONE)
        real, both = ONE - (one * other >> BITS), one + other
        below = real * real + both * both >> BITS
        total += (real * power[0] + both * power[1] >> BITS) * gauss // below
    most = 1 + sum((times + 1) * (len(weights) + 1) for times, _, weights in laws)
    error = nodes * (nodes + 1) * most << 8  # see "Rounding"
    return Decimal(ONE + 2 * total + error) / ONE

# Step 7. Bits: two kinds of reports, and everybody's chances between those of the table ----
def bit_delta(part: Part, odds: Fraction, nodes: int, counted: int, places: int,
              ends: list[int]) -> Fraction:
    """An upper bound of the delta of any data set in the direction of the table; told are numbers
    of nodes, of those that count, of places, and those of ones at which blocks end."""
    _need(part.bit and len(part.table) == 2, "blocks of ones are for what is one bit")
    _, *pair = max((f / s, f, s) for f, s, _ in part.table)
    b, others = max(odds - 1, Fraction(0)), part.crowd - 1  # none but rounding makes it less
    if (a := pair[0] - (b + 1) * pair[1]) <= 0:
        return Fraction(0)
    good = ends == sorted({*ends, 0, others}) and {*map(type, ends)} == {int}
    work = _whole(counted, 1, _whole(nodes, 2)) * _whole(places, 2) * len(ends)
    _need(good and work <= MOST_WORK, "its blocks do not hold all numbers of ones")
    step, tilted = _decimal((a + b) / a).ln(), [p * (a + b) / (a + p * b) for p in pair]
    levels = [(1 + _decimal(p * b / a)).ln() - _decimal(q) * step for p, q in zip(pair, tilted)]
    chance, shift = Decimal(0), others * max(q - p for p, q in zip(pair, tilted))
    for laws, moved in ((pair, shift), (tilted, 0)):  # that a count is so far away (Bernstein)
        away = _decimal(2 * nodes - 3 - Fraction(moved))
        _need(away > 0, "its nodes are too few")
        chance += (-away**2 / (2 * _decimal(others * max(p - p * p for p in laws)) + away)).exp()
    odd = [2 * j + 1 for j in range(counted)]
    angles = [Fraction(PI_BELOW) * j / (2 * nodes) for j in odd]
    at = [_node(angle, tilted, levels, _decimal(a / b) if b else 1 / TINY**2) for angle in angles]
    bends = [(step**2 + _decimal(x) ** 2) / (2 * (places - 1) ** 2) for x in angles]
    def turned(w: Fraction) -> tuple[Decimal, Any]:
        return (-_decimal(w) * step).exp(), [*zip(*_powers(_unit(-w * angles[0]), odd))]
    def highest(terms: list[Point], turns: list[tuple[Decimal, Any]]) -> Decimal:
        """The largest sum of them, turned to so many places."""
        (re, im), by = zip(*terms), int.__mul__
        sums = ((w, sum(map(by, re, u)) - sum(map(by, im, v))) for w, (u, v) in turns)
        return max(w * (x >> BITS) / ONE for w, x in sums)
    grid, rows, worst = [turned(Fraction(2 * i, places - 1)) for i in range(places)], [], Decimal(0)
    back = [others - m for m in reversed(ends)]
    powers = [map(_times, _powers(x, ends), _powers(y, back)[::-1]) for x, y, *_ in at]
    for m, each in zip(ends, zip(*powers)):
        scale = (m * levels[0] + (others - m) * levels[1]).exp() / nodes
        terms = [_times(power, kernel) for power, (_, _, kernel, _) in zip(each, at)]
        left = nodes * (2 * _size(each[-1]) * (counted < nodes) + 8 * chance + TINY)
        rows.append((m, scale, terms, [scale * _size(x) for x in terms], scale * left))
    for one, two in zip(rows, rows[1:] or rows):
        if (length := two[0] - one[0]) < 2:  # no other is between, and the threshold is known
            means = [m * tilted[0] + (others - m) * tilted[1] for m, *_ in (one, two)]
            found = max(scale * highest(terms, [turned(math.floor(x) + i - x) for i in (1, 2)])
                        for x, (_, scale, terms, *_) in zip(means, (one, two)))
        else:
            sizes = [max(both) * steep**2 for *both, (*_, steep) in zip(one[3], two[3], at)]
            found = Decimal(length) ** 2 / 8 * sum(sizes) + max(
                scale * highest(terms, grid) + sum(x * y for x, y in zip(size, bends))
                for _, scale, terms, size, _ in (one, two))
        worst = max(worst, found + max(one[4], two[4]))
    lift = _decimal(b) * (4 * chance + TINY - 1 / ((2 * nodes * step).exp() + 1))
    return Fraction(max(worst * _decimal(a + b) + lift, Decimal(0)) * SAFE)
def _node(angle: Fraction, tilted: list[Fraction], levels: list[Decimal], odd: Decimal) -> Any:
    """What a bit of either kind of others is at an angle, the kernel, and how steep it is in m."""
    (re, im), ones = _unit(angle), []
    for share, back in ((int(q * ONE), _unit(-q * angle)) for q in tilted):
        ones.append(_times((ONE - share + (share * re >> BITS), share * im >> BITS), back))
    x, y = int(odd * (ONE - re)) + ONE, int(odd * im)  # of e^(i angle) - b / (a c - a e^(-i angle))
    kernel = re - (x * ONE * ONE // (x * x + y * y)), im + (y * ONE * ONE // (x * x + y * y))
    size = (levels[0] - levels[1]).exp() / _size(ones[1]) ** 2
    u, v = (Decimal(x) / ONE for x in _times(ones[0], (ones[1][0], -ones[1][1])))
    norm = (u * u + v * v).sqrt()
    apart = ((u / norm - 1) ** 2 + (v / norm) ** 2).sqrt()  # an angle is hardly more than its chord
    turn = apart + apart**3 / 7
    return *ones, kernel, ((size * norm).ln() ** 2 + turn * turn).sqrt()
def _size(point: Point) -> Decimal:
    return Decimal(math.isqrt(point[0] ** 2 + point[1] ** 2) + 1) / ONE

# Step 8. Composed: independent releases, by the losses of each -----------------------------
def _delta(event: Leaves, certificate: Json, epsilon: Fraction) -> Fraction:
    """An upper bound of the least delta at epsilon of all releases together."""
    if (kind := certificate["kind"]) == "local":
        return Fraction(sum(count * _pure(one) for one, count in event) > epsilon)  # none, or all
    smoothing, choices = certificate["smoothing"], certificate["parts"]
    parts, lost, laws = parts_of(event, choices), Fraction(0), []
    if kind == "shuffle" and [part.times for part in parts] == [1] == [n for _, n in event]:
        return parts[0].delta(epsilon, certificate["tilts"], smoothing) + parts[0].chance
    _need(kind == "composed", "it is of another kind than its event")
    for part, choice in zip(parts, choices):
        for loss, height, *tilts in choice["knots"]:
            found = part.delta(_rational(loss), tilts, choice["smoothing"])
            _need(found <= _rational(height), f"a delta at the loss {loss[:20]} is too small")
        atoms, beyond = law_of(choice["knots"])
        lost += part.times * (beyond + part.chance)
        laws.append((part.times, atoms))
    noises = [(times, one) for one, times in event if one["kind"] == "GaussianDpEvent"]
    spread = sum((n * (2 / _number(o["noise_multiplier"])) ** 2 for n, o in noises), Fraction(0))
    mean = positive_part(laws, 1, _rational(certificate["tilt"]), _rational(smoothing),
                         -epsilon - spread / 2, spread)
    return mean * _exp(epsilon, up=True) + lost
def law_of(knots: list[list[Any]]) -> tuple[Law, Fraction]:
    """Losses of a pair whose hockey stick is the chords between knots, and the mass of no bound."""
    at, heights = ([_rational(knot[place]) for knot in knots] for place in (0, 1))
    ratios = [_decimal(loss).exp() for loss in at]
    _need(at[0] == 0 and at == sorted({*at}), "its losses do not ascend from zero")
    atoms, steps = [], zip(ratios, ratios[1:], heights, heights[1:])
    slopes, rest = [_decimal(d - c) / (b - a) for a, b, c, d in steps], _decimal(1 - heights[-1])
    for loss, ratio, before, after in zip(at[1:], ratios[1:], slopes, [*slopes[1:], Decimal()]):
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
def _powers(base: Point, exponents: list[int]) -> list[Point]:
    """Those of ascending exponents, by the steps between them, of which many are alike."""
    gaps = [b - a for a, b in zip([0, *exponents], exponents)]
    steps = {gap: _power(base, gap) for gap in {*gaps}}
    return [*accumulate([steps[gap] for gap in gaps], _times)]
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
        statement, *row = (read(Path(path).read_text("utf-8")) for path in arguments)
        code, text = verify(statement, *row)
    except Refuted as error:
        code, text = REFUTED, f"not confirmed, because {error}"
    except (OSError, *_MALFORMED) as error:
        code, text = NOTHING, f"cannot be read ({type(error).__name__})\n\n{__doc__}"
    print(text)
    return code

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
