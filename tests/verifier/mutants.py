"""True statements of every kind that has a certificate, and false ones made of them.

A mutant is false, whatever the verifier says, for one of three reasons:

* **Too cheap.** Its epsilon is below a value that the accountant knows to be necessary
  (`PrivacyBound.lower`, of a concrete pair of data sets; for whatever has a local epsilon,
  `class_lower`), or its event became dearer until that value exceeds its epsilon. Fewer reports,
  more rounds and a smaller delta never cost less.
* **It contradicts itself.** One number was changed that others in the statement determine: no
  release has a local epsilon of 0.1 and a table of odds e^2. Some are signed again: the cheaper
  event has a valid certificate of its own, and only the rest of the statement is that of what ran.
* **No law, or of another release.** A table's columns do not sum to one, a number is a truth value,
  or the certificate and the identity are those of another release.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

import dp_accounting

from beam_ldp.accounting import event_epsilon, shuffled_event
from beam_ldp.accounting.certificates import certified
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.events import as_event, local_epsilon_of
from beam_ldp.accounting.reports import LocalReports
from beam_ldp.randomizers import frequency, mean
from beam_ldp.randomizers.identity import ReleaseIdentity
from tests.verifier.statements import compositions, events, samples

Told = dict[str, Any]
Mutation = Callable[[Told, "Kind", random.Random], object]


class Kind:
    """A true statement, and what its epsilon cannot be below."""

    def __init__(self, name: str, event: Any, delta: float, mechanism: Any = None) -> None:
        self.name, self.event = name, as_event(event)
        price = self._price = event_epsilon(self.event, delta)
        identity = ReleaseIdentity("visits", name)
        told = {
            "delta": delta,
            "epsilon": float(price),
            "proof_status": "proved",
            "event": event_to_json(event),
            "identity": identity.to_json(),
            "identity_digest": identity.digest.hex(),
            **_facts(self.event, mechanism),
        }
        self.told: Told = certified(told)
        self._dearer: dict[tuple[str, float], float] = {}

    @cached_property
    def floor(self) -> float:
        """What its event costs at least."""
        return self._least(self._price, self.told["event"])

    def costs_more(self, field: str, share: float, epsilon: float) -> bool:
        """Whether so many rounds, or so many times that number, cost more than epsilon at least.

        Hence what is further from the truth does too. Of one release only: others take seconds.
        """
        if self.told["event"]["event"]["kind"] not in ("ShuffledDpEvent", "GaussianDpEvent"):
            return False
        if (field, share) not in self._dearer:
            event = copy.deepcopy(self.told["event"])
            if field == "SelfComposedDpEvent":
                event["event"] = {"kind": field, "event": event["event"], "count": share}
            else:
                shrink(event["event"], field, share)
            price = event_epsilon(event_from_json(event), self.told["delta"])
            self._dearer[field, share] = self._least(price, event)
        return self._dearer[field, share] > epsilon

    def _least(self, price: Any, event: Told) -> float:
        """What is known to be necessary; 0 where nothing is."""
        locals_of = [_local(leaf) for leaf, _ in leaves_of(event["event"])]
        anybody = all(local.get("pair", 0) is None for local in locals_of)
        return float(max(price.lower, price.class_lower if anybody else 0.0))


def leaves_of(one: Told, times: int = 1) -> Iterator[tuple[Told, int]]:
    """The releases of an event, as JSON, and how often there was each."""
    for part in one.get("events", ()):
        yield from leaves_of(part, times)
    if one["kind"] in ("SelfComposedDpEvent", "CommittedDpEvent"):
        yield from leaves_of(one["event"], times * one.get("count", 1))
    elif "events" not in one and one["kind"] != "NoOpDpEvent":
        yield one, times


def _local(leaf: Told) -> Told:
    local = leaf.get("local_event", leaf)
    assert isinstance(local, dict)
    return local


def _hidden(leaves: Iterable[tuple[Told, int]]) -> int:
    """Honest reports of the smallest crowd; of a public group, on average."""
    return min(
        -(-(leaf["num_reports"] - leaf.get("num_fakes", 0)) // _local(leaf).get("public_groups", 1))
        for leaf, _ in leaves
        if "num_reports" in leaf
    )


def _facts(event: Any, mechanism: Any) -> Told:
    """What a record says besides."""
    leaves = list(leaves_of(event_to_json(event)["event"]))
    found: Told = {}
    crowds = [leaf for leaf, _ in leaves if "num_reports" in leaf]
    if crowds:
        found["num_reports"] = max(leaf["num_reports"] for leaf in crowds)
        found["honest_reports"] = _hidden(leaves)
    budgets: list[Any] = [_local(leaf).get("local_epsilon") for leaf, _ in leaves]
    if budgets and None not in budgets:
        found["local_epsilon"] = local_epsilon_of(event)
        found["mechanism"] = {"mechanism": "ours", "local_epsilon": max(budgets)}
    if mechanism is not None:
        found["mechanism"] = mechanism.to_config()
    for leaf, times in leaves:
        for mine, theirs in (
            ("num_users", "num_clients"), ("source_dataset_size", "num_clients"),
            ("num_drawn", "clients_per_round"), ("sample_size", "clients_per_round"),
        ):  # fmt: skip
            if mine in leaf:
                found |= {theirs: leaf[mine]}
                if leaf.get("sampling") != "shuffled_epochs":
                    found["rounds"] = times
    return found


_SHUFFLED = (
    *(getattr(frequency, name)(12, 2.0) for name in (
        "KRandomizedResponse", "SubsetSelection", "UnaryEncoding", "Rappor", "LocalHashing",
        "PairwiseIndependentRappor", "BinaryHadamard", "LimitedHadamard", "HadamardResponse",
        "ProjectiveGeometryResponse", "RecursiveHadamardResponse",
    )),
    frequency.SubsetSelection(40, 1.0), frequency.KRandomizedResponse(2, 2.0),
    frequency.BinaryHadamard(12, 2.0, row="public"),
    mean.ScalarMean(1, 2.0), mean.PrivUnit(8, 3.0), mean.PrivUnitInf(8, 3.0),
    mean.RandomCodebookMean(8, 2.0), mean.KashinMean(8, 2.0),
)  # fmt: skip


def kinds() -> list[Kind]:
    """One of each."""
    found = [
        Kind(f"{type(one).__name__} {at}", shuffled_event(one, 20_000), 1e-6, one)
        for at, one in enumerate(_SHUFFLED)
    ]
    found += [Kind(f"shuffle {at}", event, delta) for at, (event, delta) in enumerate(events(2))]
    found += [Kind(name, event, delta) for name, event, delta in compositions()]
    found += [Kind(name, event, delta) for name, event, delta in samples()]
    laplace = dp_accounting.LaplaceDpEvent(4.0)
    discrete = dp_accounting.dp_event.DiscreteLaplaceDpEvent(0.1, 2)
    found += [
        Kind(name, event, 0.0)
        for name, event in (
            ("of few", LocalReports(3.0).shuffled(5)),
            ("by itself", as_event(LocalReports(2.0))),
            ("twice", dp_accounting.SelfComposedDpEvent(as_event(LocalReports(0.1)), 3)),
            ("noise for a pure epsilon", laplace),
            ("noise of integers", dp_accounting.ComposedDpEvent([discrete, laplace])),
        )
    ]
    return found


# Too cheap ---------------------------------------------------------------------------------


def _stated(told: Told, **changed: Any) -> None:
    """The statement and its certificate say so."""
    told.update(changed)
    told["certificate"].update(changed)


def less_epsilon(told: Told, kind: Kind, draw: random.Random) -> bool:
    _stated(told, epsilon=kind.floor * draw.uniform(0.02, 0.999))
    return kind.floor > 0


def less_epsilon_in_one_place(told: Told, kind: Kind, draw: random.Random) -> bool:
    told["epsilon"] = kind.floor * draw.uniform(0.02, 0.999)
    return kind.floor > 0


def more_rounds(told: Told, kind: Kind, draw: random.Random) -> bool:
    """Of which the rest of the statement says the same."""
    content, factor = told["event"]["event"], draw.choice([2, 3, 5])
    told["event"]["event"] = {"kind": "SelfComposedDpEvent", "event": content, "count": factor}
    for name in ("local_epsilon", "rounds"):
        if name in told:
            told[name] *= factor
    return kind.costs_more("SelfComposedDpEvent", 2, told["epsilon"])


def rounds_unsaid(told: Told, kind: Kind, draw: random.Random) -> bool:
    """More rounds than the local epsilon that is stated."""
    content = told["event"]["event"]
    told["event"]["event"] = {"kind": "SelfComposedDpEvent", "event": content, "count": 2}
    return "local_epsilon" in told


def _shrunk(field: str, also: tuple[str, ...], most: float) -> Mutation:
    """So many times a number of every release, of which the statement says the same."""

    def mutate(told: Told, kind: Kind, draw: random.Random) -> bool:
        changed = shrink(told["event"]["event"], field, draw.uniform(most / 5, most))
        for name in also:
            if name in told:
                content = told["event"]["event"]
                hidden = name == "honest_reports"
                told[name] = _hidden(leaves_of(content)) if hidden else max(changed, default=0)
        return bool(changed) and kind.costs_more(field, most, told["epsilon"])

    return mutate


def shrink(content: Told, field: str, share: float) -> list[Any]:
    """The numbers of that name in an event, now so many times as large."""
    found = []
    for leaf, _ in leaves_of(content):
        holder = leaf if field in leaf else leaf.get("event", {})
        if field in holder and not leaf.get("num_fakes"):
            kept = type(holder[field])
            holder[field] = max(kept(1), kept(holder[field] * share))
            found.append(holder[field])
    return found


# Contradictions ----------------------------------------------------------------------------


def _scaled(name: str, low: float, high: float) -> Mutation:
    """A field of the statement that the event determines, times something."""

    def mutate(told: Told, kind: Kind, draw: random.Random) -> bool:
        if name not in told:
            return False
        kept = type(told[name])
        told[name] = kept(told[name] * draw.uniform(low, high))
        return bool(told[name] != kind.told[name])

    return mutate


def less_in_the_event(told: Told, kind: Kind, draw: random.Random) -> bool:
    """A smaller budget than that of the table, the messages, or the rest of the statement."""
    local = _local(draw.choice([leaf for leaf, _ in leaves_of(told["event"]["event"])]))
    if "local_epsilon" not in local:
        return False
    local["local_epsilon"] *= draw.uniform(0.001, 0.95)
    return "local_epsilon" in told or local.get("pair") is not None


def less_of_the_mechanism(told: Told, kind: Kind, draw: random.Random) -> bool:
    """Of one report the budget is that of the mechanism; of several it is no less."""
    if "mechanism" not in told:
        return False
    told["mechanism"]["local_epsilon"] = 1.05 * told["local_epsilon"] * draw.uniform(1.0, 3.0)
    return True


def another_list(told: Told, kind: Kind, draw: random.Random) -> bool:
    """Of a size that the table is not that of."""
    mechanism = told.get("mechanism", {})
    if mechanism.get("mechanism") not in ("KRandomizedResponse", "SubsetSelection"):
        return False
    mechanism["domain_size"] += draw.randint(1, 50)
    return True


def nothing_happened(told: Told, kind: Kind, draw: random.Random) -> bool:
    """Beside a mechanism, reports or rounds."""
    told["event"]["event"] = {"kind": "NoOpDpEvent"}
    told["certificate"] = {"version": 2, "kind": "local", "delta": told["delta"],
                           "identity": told["identity_digest"]}  # fmt: skip
    _stated(told, epsilon=0.0)
    return "mechanism" in told or "num_reports" in told


def _scaled_leaf(field: str) -> Mutation:
    """Of a release so many times as many, which the statement does not say."""

    def mutate(told: Told, kind: Kind, draw: random.Random) -> bool:
        return bool(shrink(told["event"]["event"], field, draw.uniform(0.1, 0.9)))

    return mutate


def a_message_changed(told: Told, kind: Kind, draw: random.Random) -> bool:
    """Columns dropped, added or cheaper than the local epsilon says."""
    leaf = draw.choice([leaf for leaf, _ in leaves_of(told["event"]["event"])])
    columns = leaf.get("messages") if isinstance(leaf.get("messages"), list) else None
    if not columns:
        return False
    at = draw.randrange(len(columns))
    match draw.choice(["fewer", "more", "cheaper", "one"]):
        case "fewer":
            del columns[at]
        case "more":
            columns.append([1, 0.01])
        case "cheaper":
            columns[at][1] *= draw.uniform(0.01, 0.9)
        case _:
            columns[at][0] += draw.choice([-1, 1])
    return True


def signed_again(told: Told, kind: Kind, draw: random.Random) -> bool:
    """A cheaper event with a certificate of its own; the rest is that of what ran."""
    leaves = list(leaves_of(told["event"]["event"]))
    leaf, local = leaves[0][0], _local(leaves[0][0])
    if len(leaves) > 1 or leaves[0][1] > 1 or "num_reports" not in leaf or "pair" not in local:
        return False
    if local["pair"] is not None and local["pair"][1] > 1:  # of a crowd of several budgets
        return False
    budget, more = 0.5 * local["local_epsilon"], draw.randint(2, 9)
    match draw.choice(["crowd", "budget"]):
        case "crowd":
            leaf["num_reports"] *= more
        case _:
            told["event"] = event_to_json(
                shuffled_event(frequency.KRandomizedResponse(more, budget), leaf["num_reports"])
            )
    event = event_from_json(told["event"])
    bare = {name: told[name] for name in ("delta", "event", "proof_status", "identity_digest")}
    made = certified({**bare, "epsilon": float(event_epsilon(event, told["delta"]))})
    told |= {"epsilon": made["epsilon"], "certificate": made["certificate"]}
    return made["certificate"]["kind"] != "none" and made["epsilon"] < kind.told["epsilon"]


# No law, no number, another release ----------------------------------------------------------


def _table(change: Callable[[list[Any], random.Random], object]) -> Mutation:
    def mutate(told: Told, kind: Kind, draw: random.Random) -> bool:
        leaves = leaves_of(told["event"]["event"])
        pairs: list[list[Any]] = [_local(leaf)["pair"] for leaf, _ in leaves if _has_pair(leaf)]
        if pairs:
            change(draw.choice(pairs), draw)
        return bool(pairs)

    return mutate


def _has_pair(leaf: Told) -> bool:
    return _local(leaf).get("pair") is not None


def _row(pair: list[Any], draw: random.Random) -> list[Any]:
    row = draw.choice(pair[2])
    assert isinstance(row, list)
    return row


def _scaled_row(pair: list[Any], draw: random.Random) -> None:
    _row(pair, draw)[2] *= draw.choice([0.01, 0.5, 2, 30])


def _negative_row(pair: list[Any], draw: random.Random) -> None:
    row = _row(pair, draw)
    row[2] = -row[2]


def _flat(pair: list[Any], draw: random.Random) -> None:
    """All ratios nearer to one, by much or little: sums stay, odds do not."""
    keep = draw.uniform(0.1, 0.99)
    pair[2] = [[1 + keep * (f - 1), 1 + keep * (s - 1), p] for f, s, p in pair[2]]


def of_true(told: Told, kind: Kind, draw: random.Random) -> bool:
    """Of each release `true` many, where there were several."""
    content = told["event"]["event"]
    if content["kind"] != "SelfComposedDpEvent":
        return False
    content["count"] = True
    return True


def another_release(told: Told, kind: Kind, draw: random.Random) -> bool:
    match draw.choice(["digest", "identity", "certificate"]):
        case "digest":
            told["identity_digest"] = draw.randbytes(32).hex()
        case "identity":
            told["identity"] |= {"release_id": f"week-{draw.randrange(10**6)}"}
        case _:
            told["certificate"]["identity"] = draw.randbytes(32).hex()
    return True


MUTATIONS: dict[str, Mutation] = {
    "less epsilon": less_epsilon,
    "less epsilon in one place": less_epsilon_in_one_place,
    "more rounds": more_rounds,
    "rounds that are not said": rounds_unsaid,
    "fewer reports": _shrunk("num_reports", ("num_reports", "honest_reports"), 0.2),
    "fewer people": _scaled_leaf("num_users"),
    "fewer data": _scaled_leaf("source_dataset_size"),
    "less local epsilon stated": _scaled("local_epsilon", 0.01, 0.99),
    "more honest reports stated": _scaled("honest_reports", 1.01, 9.0),
    "fewer reports stated than priced": _scaled("num_reports", 0.01, 0.99),
    "another number of clients": _scaled("num_clients", 0.1, 0.9),
    "more clients a round": _scaled("clients_per_round", 1.2, 3.0),
    "more rounds stated": _scaled("rounds", 1.1, 3.0),
    "less local epsilon in the event": less_in_the_event,
    "more of the mechanism": less_of_the_mechanism,
    "another list": another_list,
    "no event": nothing_happened,
    "other messages": a_message_changed,
    "signed again": signed_again,
    "a row dropped": _table(lambda pair, draw: pair[2].remove(_row(pair, draw))),
    "a row twice": _table(lambda pair, draw: pair[2].append(_row(pair, draw))),
    "a row of another weight": _table(_scaled_row),
    "a negative row": _table(_negative_row),
    "ratios nearer to one": _table(_flat),
    "more blanket": _table(lambda pair, draw: pair.__setitem__(0, draw.uniform(1.01, 20.0))),
    "true many": of_true,
    "another release": another_release,
}


def mutants(kind: Kind, count: int, seed: int) -> Iterator[tuple[str, Told]]:
    """So many false statements, in turn by each way that applies to the kind."""
    draw, made = random.Random(f"{seed} {kind.name}"), 0
    while made < count:
        for name, mutate in draw.sample(sorted(MUTATIONS.items()), len(MUTATIONS)):
            told = copy.deepcopy(kind.told)
            if mutate(told, kind, draw) and made < count:
                made += 1
                yield name, told
