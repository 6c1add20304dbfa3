"""Ways to make a true statement false, each by more than the slack of its certificate."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from beam_ldp.verifier.verify import REFUTED, verify

Mutate = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], object]


def _both(told: dict[str, Any], name: str, value: Any) -> None:
    told[name] = told["certificate"][name] = value


def _event(told: dict[str, Any], **changed: Any) -> None:
    """The event is another one, and the certificate repeats that."""
    told["event"]["event"].update(changed)
    told["certificate"]["parts"] = [without_facts(part) for part in told["certificate"]["parts"]]


def without_facts(part: dict[str, Any]) -> dict[str, Any]:
    """Without what repeats the event."""
    return {name: part[name] for name in part if name not in FACTS}


FACTS = {"count", "crowd", "rate", "share", "shift", "weights", "scale", "mass"}


def _fewer(told: dict[str, Any], share: float) -> None:
    reports = told["event"]["event"]["num_reports"]
    _event(told, num_reports=reports - int(reports * share))


def _first(name: str, change: Callable[[Any], Any]) -> Mutate:
    """A change of what the certificate says of its first part."""
    return lambda told, c, e: c["parts"][0].update({name: change(c["parts"][0][name])})


def _more(text: str) -> str:
    return str(int(text) * 101 // 100)


COMMON: dict[str, Mutate] = {  # of a statement, its certificate and the content of its event
    "epsilon": lambda told, c, e: _both(told, "epsilon", told["epsilon"] * (1 - 1.1e-3)),
    "half of epsilon": lambda told, c, e: _both(told, "epsilon", told["epsilon"] / 2),
    "epsilon of the statement alone": lambda told, c, e: told.update(epsilon=0.9 * told["epsilon"]),
    "delta": lambda told, c, e: _both(told, "delta", told["delta"] * 0.95),
    "delta of the statement alone": lambda told, c, e: told.update(delta=0.99 * told["delta"]),
    "release": lambda told, c, e: told.update(identity_digest="00" * 32),
    "slack": lambda told, c, e: c.update(slack="1/100"),
    "version": lambda told, c, e: c.update(version=2),
    "kind": lambda told, c, e: c.update(kind="local"),
    "unknown kind": lambda told, c, e: c.update(kind="trust me"),
    "an unknown field": lambda told, c, e: e.update(num_absent=3),
    "an unknown event": lambda told, c, e: e.update(kind="LaplaceDpEvent"),
    "a row of the certificate": lambda told, c, e: c["parts"].append(c["parts"][0]),
    "no rows": lambda told, c, e: c.update(parts=[]),
}

MUTANTS: dict[str, Mutate] = COMMON | {
    "reports of the event": lambda told, c, e: e.update(num_reports=e["num_reports"] - 1),
    "a percent fewer reports": lambda told, c, e: _fewer(told, 0.01),
    "half of the reports": lambda told, c, e: _fewer(told, 0.5),
    "a larger crowd": _first("crowd", lambda crowd: crowd + 1),
    "fakes": lambda told, c, e: e.update(num_fakes=e["num_fakes"] + 1),
    "more fakes": lambda told, c, e: _event(told, num_fakes=e["num_reports"] // 2),
    "groups": lambda told, c, e: e["local_event"].update(public_groups=3),
    "messages": lambda told, c, e: e["local_event"].update(messages=2),
    "an unknown field of a report": lambda told, c, e: e["local_event"].update(shared_key=True),
    "a weight": _first("weights", lambda rows: [[_more(rows[0][0]), *rows[0][1:]], *rows[1:]]),
    "a larger blanket": _first("weights", lambda rows: [[f, s, _more(b)] for f, s, b in rows]),
    "a weight is text": _first("weights", lambda rows: [["1e3", *rows[0][1:]], *rows[1:]]),
    "a mass": _first("mass", lambda mass: "1/3"),
    "a row of the table": _first("weights", lambda rows: rows[1:]),
    "a scale": _first("scale", lambda scale: "1" + scale),
    "another rate": _first("rate", lambda rate: "1/2"),
    "another count": _first("count", lambda count: 2),
    "another budget": lambda told, c, e: e["local_event"].update(local_epsilon=5.0, pair=None),
    "a direction": lambda told, c, e: c["tilts"].pop(),
    "a wide smoothing": lambda told, c, e: c.update(smoothing="0.5"),
    "another tilt": lambda told, c, e: c.update(tilts=["0.000000000001" for _ in c["tilts"]]),
    "a sampled event": lambda told, c, e: e.update(kind="SubsampledShuffledDpEvent"),
    "composed": lambda told, c, e: c.update(kind="composed"),
}


def _knot(at: int, place: int, change: Callable[[str], str]) -> Mutate:
    def mutate(told: dict[str, Any], c: dict[str, Any], e: dict[str, Any]) -> None:
        knot = c["parts"][0]["knots"][at]
        knot[place] = change(knot[place])

    return mutate


def _times(share: str) -> Callable[[str], str]:
    return lambda text: f"{Decimal(text) * Decimal(share):f}"


OF_ROUNDS: dict[str, Mutate] = (
    COMMON
    | {  # of equal rounds of everybody, or of a sample
        "a round more": lambda told, c, e: _event(told, count=e["count"] + 1 + e["count"] // 100),
        "a round less in the certificate": _first("count", lambda count: count - 1),
        "a delta of the losses": _knot(3, 1, _times("0.999")),
        "the last delta": _knot(-1, 1, _times("0.5")),
        "no delta": _knot(-1, 1, lambda height: "0"),
        "a smaller loss": _knot(3, 0, _times("0.99")),
        "a tilt": _knot(3, 2, _times("0.00001")),
        "no first loss": lambda told, c, e: c["parts"][0]["knots"].pop(0),
        "no last losses": lambda told, c, e: c["parts"][0].update(
            knots=c["parts"][0]["knots"][:30]
        ),
        "losses out of order": lambda told, c, e: c["parts"][0]["knots"].reverse(),
        "few losses": lambda told, c, e: c["parts"][0].update(knots=c["parts"][0]["knots"][::8]),
        "a delta that is not convex": _knot(9, 1, _times("1.5")),
        "a wide smoothing": lambda told, c, e: c.update(smoothing="0.5"),
        "a wide smoothing of losses": _first("smoothing", lambda wide: "0.5"),
        "another tilt": lambda told, c, e: c.update(tilt="1.000001"),
        "tilt below one": lambda told, c, e: c.update(tilt="0.9"),
        "shuffle": lambda told, c, e: c.update(kind="shuffle"),
    }
)
OF_SAMPLES: dict[str, Mutate] = {
    "fewer people": lambda told, c, e: _inner(told, num_users=e["event"]["num_users"] * 99 // 100),
    "fewer came": lambda told, c, e: _inner(told, num_received=e["event"]["num_drawn"] // 2),
    "fakes": lambda told, c, e: _inner(told, num_fakes=1),
    "points sampled": lambda told, c, e: _inner(told, points_sampled=2),
    "unknown sampling": lambda told, c, e: _inner(told, sampling="by hand"),
    "another rate": _first("rate", lambda rate: "1/31"),
}


OF_COINS: dict[str, Mutate] = {
    "fakes": lambda told, c, e: _inner(told, num_fakes=e["event"]["num_users"] // 50),
    "fewer came": lambda told, c, e: _inner(told, num_received=e["event"]["num_drawn"] // 2),
    "fewer people": lambda told, c, e: _inner(told, num_users=e["event"]["num_users"] * 99 // 100),
}


def _inner(told: dict[str, Any], **changed: Any) -> None:
    """The event of a round is another one."""
    told["event"]["event"]["event"].update(changed)
    _event(told)


def _leaf(told: dict[str, Any]) -> dict[str, Any]:
    """The release that an event has so many of."""
    found = told["event"]["event"]
    while found["kind"] in ("SelfComposedDpEvent", "CommittedDpEvent"):
        found = found["event"]
    assert isinstance(found, dict)
    return found


def _of_leaf(**change: Callable[[Any], Any]) -> Mutate:
    """The release is another one, and the certificate repeats that, but for what it chose."""

    def mutate(told: dict[str, Any], c: dict[str, Any], e: dict[str, Any]) -> None:
        leaf = _leaf(told)
        for name, by in change.items():
            holder = leaf if name in leaf else leaf.get("event") or leaf["local_event"]
            holder[name] = by(holder[name])
        _event(told)

    return mutate


def _share(of: float) -> Callable[[Any], Any]:
    return lambda number: type(number)(number * of)


OF_NOISE = {"less noise": _of_leaf(noise_multiplier=_share(0.99))}
OF_ANY_SAMPLE = {"fewer people": _of_leaf(num_users=_share(0.99))}
OF_A_KIND: dict[str, dict[str, Mutate]] = {
    "local reports": {"a larger budget": _of_leaf(local_epsilon=_share(1.01))},
    "few local reports": {  # a third of delta less lessens epsilon by less than half a percent
        "a larger budget": _of_leaf(local_epsilon=_share(1.01)),
        "two thirds of delta": lambda told, c, e: _both(told, "delta", told["delta"] * 0.66),
    },
    "local answers": {
        "an answer that tells more": _of_leaf(
            pair=lambda pair: [pair[0], pair[1], [[a * 1.01, b, p] for a, b, p in pair[2]], pair[3]]
        ),
        "a conjecture": _of_leaf(pair=lambda pair: [pair[0], 0, *pair[2:]]),
    },
    "a committed schedule": {
        "fewer reports": _of_leaf(num_reports=_share(0.99)),
        "a round more": lambda told, c, e: (e["event"].update(count=52), _event(told)),
    },
    "fakes in a sample": {
        **OF_ANY_SAMPLE,
        "more fakes": _of_leaf(num_fakes=_share(1.1)),
        "fewer came": _of_leaf(num_received=_share(0.99)),
        "hardly a fake is drawn": _first("crowd", lambda crowd: 1_790),
        "two points of each": _of_leaf(points_sampled=lambda n: 2, points_per_client=lambda n: 2),
    },
    "a point of several": {
        **OF_ANY_SAMPLE,
        "a point less": _of_leaf(points_per_client=lambda n: 3),
        "a share": _first("share", lambda share: "1/5"),
    },
    "points by coins": {
        **OF_ANY_SAMPLE,
        "more fakes": _of_leaf(num_fakes=_share(20)),
        "some did not come": _of_leaf(num_received=lambda n: 1_000),
    },
    "epochs": {
        "fewer people": _of_leaf(num_users=_share(0.9)),
        "fakes": _of_leaf(num_fakes=lambda n: 600),
        "fewer came": _of_leaf(num_received=lambda n: 1_950),
        "another sampling": _of_leaf(sampling=lambda name: "by hand"),
    },
    "epochs that lost people": {
        "fewer came": _of_leaf(num_received=_share(0.99)),
        "more fakes": _of_leaf(num_fakes=_share(20)),
    },
    "parts of epochs": {
        **OF_ANY_SAMPLE,
        "more fakes": _of_leaf(num_fakes=_share(2)),
        "more rounds than there are": _of_leaf(rounds=lambda n: 31),
    },
    "several budgets": {
        "fewer reports": _of_leaf(num_reports=_share(0.99)),
        "a fake": _of_leaf(num_fakes=lambda n: 1),
        "more than it is for": _of_leaf(pair=lambda pair: [pair[0], 2_001, *pair[2:]]),
        "a smaller blanket": _of_leaf(pair=lambda pair: [pair[0] * 0.99, *pair[1:]]),
    },
    "noise of a sample": {
        **OF_NOISE,
        "more are drawn": _of_leaf(sample_size=lambda n: 11),
        "more than there are": _of_leaf(sample_size=lambda n: 1_001),
        "fewer people": _of_leaf(source_dataset_size=_share(0.99)),
        "a shift": _first("shift", lambda shift: "1/2"),
    },
    "noise by coins": {
        **OF_NOISE,
        "likelier": _of_leaf(sampling_probability=_share(1.01)),
        "no coin": _of_leaf(sampling_probability=lambda q: 1.5),
    },
}


def unrefuted(told: dict[str, Any], mutants: dict[str, Mutate]) -> Iterator[str]:
    """Those that are not refuted."""
    for name, mutate in mutants.items():
        changed = copy.deepcopy(told)
        mutate(changed, changed["certificate"], changed["event"]["event"])
        found = verify(changed)
        if found.code != REFUTED:
            yield f"{name}: {found.text}"
