"""The verifier confirms what is true, refuses what is false, and rounds outward."""

from __future__ import annotations

import ast
import copy
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import dp_accounting
import mpmath
import pytest

from beam_ldp.accounting import event_epsilon, shuffled_event
from beam_ldp.accounting import events as all_events
from beam_ldp.accounting.certificates import SLACK, certificate_for
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.accounting.events import CommittedDpEvent, as_event
from beam_ldp.accounting.reports import LocalReports
from beam_ldp.accounting.shuffle.one_release import local_event
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.mean import BinaryVectorMean
from beam_ldp.verifier import verify as program
from beam_ldp.verifier.verify import CONFIRMED, NOTHING, REFUTED, Law, Part, Table, verify
from tests.confirmed import EXCUSES
from tests.verifier.statements import (
    IDENTITY,
    bounded_length,
    compositions,
    events,
    rare_noise,
    samples,
    statement,
)

pytestmark = pytest.mark.exact

SOURCE = Path(program.__file__)


@pytest.fixture(scope="module")
def statements() -> list[dict[str, Any]]:
    return [statement(event, delta) for event, delta in events(30)]


@pytest.fixture(scope="module")
def composed() -> dict[str, dict[str, Any]]:
    return {name: statement(event, delta) for name, event, delta in compositions()}


@pytest.fixture(scope="module")
def sampled() -> dict[str, dict[str, Any]]:
    return {name: statement(event, delta) for name, event, delta in samples()}


# What it is ------------------------------------------------------------------------------


def test_it_is_one_short_program_of_the_standard_library() -> None:
    source = SOURCE.read_text()
    assert len(source.splitlines()) <= 500
    names = {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        str(node.module).partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
    }
    assert names <= sys.stdlib_module_names
    assert "numpy" not in source.replace("NumPy", "")


def test_as_a_program(tmp_path: Path, statements: list[dict[str, Any]]) -> None:
    """Exit codes 0, 1 and 2 with a line each; it runs where nothing is installed."""
    good, bad, none = (tmp_path / name for name in ("good", "bad", "none"))
    good.write_text(json.dumps(statements[1]))
    bad.write_text(json.dumps(statements[1] | {"delta": statements[1]["delta"] / 2}))
    none.write_text("{}")
    for path, code, begins in (
        (good, 0, "confirmed at epsilon "),
        (bad, 1, "not confirmed, because "),
        (none, 2, "not independently checkable: "),
    ):
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(SOURCE), str(path)], capture_output=True, text=True
        )
        assert (done.returncode, done.stdout.startswith(begins)) == (code, True), done


def test_a_row_of_the_ledger_says_the_same(
    tmp_path: Path, statements: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    told = statements[1]
    names = ("epsilon", "delta", "num_reports", "certificate")
    row = {"event": told["event"], "about": {name: told[name] for name in names}}
    paths = [tmp_path / name for name in ("statement", "row", "fewer")]
    fewer = {**row, "about": {**row["about"], "num_reports": told["num_reports"] - 1}}
    for path, content in zip(paths, (told, row, fewer), strict=True):
        path.write_text(json.dumps(content))
    here, there, wrong = map(str, paths)
    assert program.main([here, there]) == CONFIRMED
    assert program.main([there]) == CONFIRMED
    assert program.main([here, wrong]) == REFUTED
    assert "another num_reports" in capsys.readouterr().out
    assert program.main([]) == program.main([str(tmp_path)]) == NOTHING
    assert "python verify.py privacy.json" in capsys.readouterr().out


# True statements -------------------------------------------------------------------------


def test_it_confirms_what_the_accountant_states(statements: list[dict[str, Any]]) -> None:
    for told in statements:
        found = verify(told)
        assert found.code == CONFIRMED, (found.text, told["event"])
    kinds = [told["certificate"]["kind"] for told in statements]
    assert kinds.count("shuffle") >= 28  # hardly any is confirmed only for lack of a crowd
    assert {len(told["certificate"].get("tilts", "")) for told in statements} >= {1, 2}


def test_it_confirms_what_is_composed(composed: dict[str, dict[str, Any]]) -> None:
    """Vectors, rounds, samples, several questions, a server's noise: what the accountant states."""
    for name, told in composed.items():
        assert told["certificate"]["kind"] == "composed", (name, told["certificate"])
        assert verify(json.loads(json.dumps(told))).code == CONFIRMED, name
    assert [len(told["certificate"]["parts"]) for told in composed.values()][-1] == 3
    knots = composed["lopsided rounds"]["certificate"]["parts"][0]["knots"]
    assert len(knots[0]) == 4  # of both directions


def test_rare_reports_that_tell_a_lot_take_more_losses() -> None:
    """Of a thousand answers from a thousand, two or so hide a person."""
    event = shuffled_event(KRandomizedResponse(1000, 1.0), 1000)
    told = statement(dp_accounting.SelfComposedDpEvent(event, 2), 1e-5)
    assert verify(told).code == CONFIRMED
    assert told["certificate"]["smoothing"] == "0.005"


def test_it_confirms_samples_noise_and_what_no_crowd_hides(
    sampled: dict[str, dict[str, Any]],
) -> None:
    for name, told in sampled.items():
        assert told["certificate"]["kind"] in ("composed", "shuffle"), (name, told["certificate"])
        assert verify(json.loads(json.dumps(told))).code == CONFIRMED, name


@pytest.mark.slow
def test_losses_that_are_rare_even_under_a_tilt() -> None:
    assert verify(statement(*rare_noise())).code == CONFIRMED


@pytest.mark.slow
def test_a_thousand_statements_take_less_than_a_minute() -> None:
    """A tenth of them composed."""
    made = [statement(event, delta) for event, delta in events(900, seed=1)]
    made += [statement(e, delta) for seed in range(1, 11) for _, e, delta in compositions(seed)]
    begun = time.process_time()
    assert [verify(told).code for told in made] == [CONFIRMED] * 1000
    assert time.process_time() - begun < 60


def test_pure_epsilons_need_no_sum() -> None:
    event = LocalReports(8.0).shuffled(5)
    told = statement(event, 1e-9)
    assert told["certificate"]["kind"] == "local"
    assert verify(told).text.startswith("confirmed at epsilon 8.004 delta 1e-09")


def test_what_has_no_certificate_says_so() -> None:
    told = statement(bounded_length(), 1e-6)
    assert "how long a person's vector is" in told["certificate"]["why"]
    found = verify(told)
    assert found.code == NOTHING
    assert found.text == f"not independently checkable: {told['certificate']['why']}"
    conjectured = certificate_for(told | {"proof_status": "conjectured"})
    assert "conjectured" in conjectured["why"]
    assert "no finite" in certificate_for(told | {"epsilon": None})["why"]


def _every_event() -> Iterator[tuple[str, Any]]:
    """Of each kind of event that has a price, those that have a certificate and others."""
    shuffled, any_of = LocalReports(2.0).shuffled(10_000), LocalReports(2.0)
    noise = dp_accounting.GaussianDpEvent(2.0)
    several = local_event(BinaryVectorMean(8, 4.0))
    yield "LocalRandomizerDpEvent", as_event(any_of)
    yield "ShuffledDpEvent", as_event(shuffled)
    yield "ShuffledMessagesDpEvent", bounded_length()
    yield "ShuffledMessagesDpEvent", shuffled_event(BinaryVectorMean(8, 4.0), 10_000)
    for how in (
        {}, {"sampling": "self"}, {"sampling": "poisson"}, {"sampling": "shuffled_epochs"},
        {"points_per_client": 3, "points_sampled": 2},
    ):  # fmt: skip
        yield "SubsampledShuffledDpEvent", as_event(any_of.sampled(50_000, 10_000, **how))
    yield "SubsampledShuffledDpEvent", as_event(several.sampled(50_000, 10_000))
    yield "ShuffledSharesDpEvent", all_events.ShuffledSharesDpEvent(16, 1000, 3.0, 24, 9, 10_000)
    yield "CommittedDpEvent", CommittedDpEvent(as_event(shuffled), 1e-9)
    yield "GaussianDpEvent", noise
    yield "LaplaceDpEvent", dp_accounting.LaplaceDpEvent(2.0)
    yield "DiscreteLaplaceDpEvent", dp_accounting.dp_event.DiscreteLaplaceDpEvent(0.1, 2)
    yield "PoissonSampledDpEvent", dp_accounting.PoissonSampledDpEvent(0.1, noise)
    fixed = dp_accounting.SampledWithoutReplacementDpEvent(100, 10, noise)
    yield "SampledWithoutReplacementDpEvent", fixed
    yield "ComposedDpEvent", dp_accounting.ComposedDpEvent([noise, as_event(shuffled)])
    laplace = dp_accounting.ComposedDpEvent([dp_accounting.LaplaceDpEvent(20.0), noise])
    yield "ComposedDpEvent", laplace
    yield "SelfComposedDpEvent", dp_accounting.SelfComposedDpEvent(noise, 3)
    yield "NoOpDpEvent", dp_accounting.NoOpDpEvent()
    yield "ZCDpEvent", dp_accounting.ZCDpEvent(0.1)
    yield "RandomizedResponseDpEvent", dp_accounting.RandomizedResponseDpEvent(0.5, 4)
    truncated = dp_accounting.dp_event.TruncatedSubsampledGaussianDpEvent(1000, 0.1, 130, 2.0)
    yield "TruncatedSubsampledGaussianDpEvent", truncated


def test_every_event_has_a_certificate_or_a_reason() -> None:
    """Never neither, and never an error; whatever has a price."""
    told = []
    for kind, event in _every_event():
        assert type(event).__name__ == kind
        stated = statement(event, 1e-6)
        found = verify(json.loads(json.dumps(stated)))
        assert found.code in (CONFIRMED, NOTHING), (kind, found.text)
        told.append((kind, found.text.partition(": ")[2] if found.code == NOTHING else ""))
    own = {name for name in vars(all_events) if name.endswith("DpEvent")}
    assert own <= {kind for kind, _ in told}
    reasons = {(kind, why) for kind, why in told if why}
    assert {kind for kind, _ in reasons} == {
        "ShuffledMessagesDpEvent", "SubsampledShuffledDpEvent", "ComposedDpEvent", "ZCDpEvent",
        "RandomizedResponseDpEvent", "TruncatedSubsampledGaussianDpEvent",
        "ShuffledSharesDpEvent",
    }  # fmt: skip
    assert all(why.startswith(EXCUSES) for _, why in reasons), reasons
    assert len({why for _, why in reasons}) == len(reasons)  # each its own


def test_a_statement_that_is_too_small_gets_no_certificate(
    statements: list[dict[str, Any]],
) -> None:
    small = statements[1] | {"epsilon": statements[1]["epsilon"] * (1 - 2 * float(SLACK))}
    assert certificate_for(small)["kind"] == "none"


# False statements ------------------------------------------------------------------------


Mutate = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], object]


def _both(told: dict[str, Any], name: str, value: Any) -> None:
    told[name] = told["certificate"][name] = value


def _event(told: dict[str, Any], **changed: Any) -> None:
    """The event is another one, and the certificate repeats that."""
    told["event"]["event"].update(changed)
    told["certificate"]["parts"] = [_bare(part) for part in told["certificate"]["parts"]]


def _bare(part: dict[str, Any]) -> dict[str, Any]:
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


def test_what_is_false_of_samples_and_noise_is_rejected(sampled: dict[str, dict[str, Any]]) -> None:
    """Each in one way, by more than the slack; rounds that are a few more besides."""
    common = {name: COMMON[name] for name in ("epsilon", "slack", "no rows")}
    assert set(OF_A_KIND) == set(sampled)
    for name, told in sampled.items():
        kept = [*_kept(told, common | OF_A_KIND[name])]
        assert kept == [], name
        if told["event"]["event"]["kind"] == "SelfComposedDpEvent":
            assert [*_kept(told, {"a round more": OF_ROUNDS["a round more"]})] == [], name


def test_a_row_may_hold_the_schedule_that_was_committed(
    sampled: dict[str, dict[str, Any]],
) -> None:
    """What is released is what it holds; another schedule is another event."""
    told = sampled["a committed schedule"]
    bare = {"version": 1, "event": told["event"]["event"]["event"]}
    row = {"event": told["event"], "about": {name: told[name] for name in ("epsilon", "delta")}}
    row["about"]["certificate"] = told["certificate"]
    assert verify(told | {"event": bare}, row).code == CONFIRMED
    more = json.loads(json.dumps(row))
    more["event"]["event"]["event"]["count"] += 1
    assert verify(told, more).text == "not confirmed, because the row has another event"


def _kept(told: dict[str, Any], mutants: dict[str, Mutate]) -> Iterator[str]:
    """Those that are not refuted."""
    for name, mutate in mutants.items():
        changed = copy.deepcopy(told)
        mutate(changed, changed["certificate"], changed["event"]["event"])
        found = verify(changed)
        if found.code != REFUTED:
            yield f"{name}: {found.text}"


def test_a_thousand_false_statements_are_rejected(statements: list[dict[str, Any]]) -> None:
    """Each false by more than the slack of the certificate, in one way."""
    shuffled = [told for told in statements if told["certificate"]["kind"] == "shuffle"]
    assert len(MUTANTS) * len(shuffled) >= 1000
    assert [kept for told in shuffled for kept in _kept(told, MUTANTS)] == []


def test_what_is_composed_falsely_is_rejected(composed: dict[str, dict[str, Any]]) -> None:
    rounds, samples = composed["rounds of everybody"], composed["rounds of a sample"]
    coins = composed["rounds of coins"]
    kept = [*_kept(rounds, OF_ROUNDS), *_kept(samples, OF_SAMPLES), *_kept(coins, OF_COINS)]
    assert kept == []
    told = copy.deepcopy(composed["two questions"])
    told["event"]["event"]["events"].append(told["event"]["event"]["events"][0])  # asked again
    assert verify(told).code == REFUTED
    told["certificate"]["parts"] = [_bare(part) for part in told["certificate"]["parts"]]
    assert verify(told).text.startswith("not confirmed, because delta is ")


@pytest.mark.parametrize("multiplier", [0.0, 19.9, -20.0, math.nan])
def test_a_servers_noise_is_what_it_is(
    composed: dict[str, dict[str, Any]], multiplier: float
) -> None:
    told = copy.deepcopy(composed["a server's noise"])
    told["event"]["event"]["event"]["noise_multiplier"] = multiplier
    assert verify(told).code == REFUTED


def test_what_is_malformed_never_escapes(
    statements: list[dict[str, Any]], composed: dict[str, dict[str, Any]]
) -> None:
    for told in (statements[1], composed["rounds of everybody"]):
        for name in told["certificate"]:
            for value in (None, [], {}, "x", -1, 1e400, "1" * 400, "1/0", "-1", True):
                changed = copy.deepcopy(told)
                changed["certificate"][name] = value
                if (name, value) != ("version", True):
                    assert verify(changed).code in (REFUTED, NOTHING), (name, value)


# Pairs of statements ---------------------------------------------------------------------


def test_a_certificate_of_another_release(statements: list[dict[str, Any]]) -> None:
    """It is bound to the release, and to the very event, whatever is charged there."""
    one, other = statements[1:3]
    moved = one | {"certificate": other["certificate"]}
    assert verify(moved).code == REFUTED
    again = one | {"identity_digest": "ab" * 32}  # the same mechanism, people and cost
    assert verify(again).text == "not confirmed, because the certificate is of another identity"


def test_an_old_statement_after_another_publication(tmp_path: Path) -> None:
    """Of memoized reports: the row that charges both publications no longer says what it said."""
    first, both = (statement(LocalReports(2.0).shuffled(n), 1e-6) for n in (50_000, 20_000))
    names = ("epsilon", "delta", "certificate")
    old, new = (
        {"event": told["event"], "about": {name: told[name] for name in names}}
        for told in (first, both)
    )
    assert verify(first, old).code == verify(both, new).code == CONFIRMED
    assert verify(first, new).text == "not confirmed, because the row has another epsilon"
    cheap = both | {name: first[name] for name in names}  # the old price for both
    assert verify(cheap, new).code == verify(cheap).code == REFUTED


# Rounding --------------------------------------------------------------------------------


def _exact(table: Table, crowd: int, odds: Fraction) -> Fraction:
    """E[max(X_1 + ... + X_crowd, 0)] / crowd, by every sequence of reports."""
    law = [((f - odds * s) / b, Fraction(b, table.scale)) for f, s, b in table.kinds]
    law.append((Fraction(0), 1 - sum(p for _, p in law)))
    total = Fraction(0)
    for seen in product(law, repeat=crowd):
        value = sum((x for x, _ in seen), Fraction(0))
        if value > 0:
            total += value * math.prod(p for _, p in seen)
    return total / crowd


SMALL = Table([(6, 1, 1), (1, 5, 1), (3, 4, 3)], 10)


@pytest.mark.parametrize("crowd", [1, 2, 5])
@pytest.mark.parametrize("smoothing", ["0.5", "0.02"])
def test_every_sum_is_above_the_enumerated_one_and_close(crowd: int, smoothing: str) -> None:
    """By Jensen's inequality, at any smoothing; as it narrows, no more than it adds."""
    epsilon = Fraction(1, 2)
    with localcontext(program.CONTEXT):
        odds = program._exp(epsilon, up=False)
        exact = max(_exact(side, crowd, odds) for side in SMALL.sides())
        found = Part(1, SMALL, crowd).delta(epsilon, ["0.7", "0.7"], smoothing)
    assert exact <= found <= exact * (1 + 4 * Fraction(smoothing))


def test_who_may_be_absent() -> None:
    """A sample of two of three, and three who come by coins: by every sample and every report."""
    law = {"x": (6, 1, 3), "y": (1, 5, 4), "z": (4, 2, 4)}  # of ten; all contain (1, 1, 3)
    table = Table([(6, 1, 1), (1, 5, 1), (3, 4, 3)], 10)
    epsilon = Fraction(1, 5)
    with localcontext(program.CONTEXT):
        odds = program._exp(epsilon, up=False)
        for chances, part in (
            ({2: Fraction(1, 3)}, Part(1, table, 2, Fraction(2, 3))),
            (
                {k: Fraction(2 ** (3 - k), 27) for k in range(4)},
                Part(1, table.thinned(Fraction(1, 3)), 3),
            ),
        ):
            seen = [_shown(law, [victim, "z", "z"], chances) for victim in "xy"]
            for one, other in (seen, seen[::-1]):
                least = sum(max(p - odds * other.get(batch, 0), 0) for batch, p in one.items())
                found = part.delta(epsilon, ["0.4", "0.4"], "0.02")
                assert 0 < least <= found <= 2 * least


def _shown(
    law: dict[str, tuple[int, ...]], people: list[str], chances: dict[int, Fraction]
) -> dict[tuple[int, ...], Fraction]:
    """Of each batch how likely it is, where each set of so many people comes with that chance."""
    found: dict[tuple[int, ...], Fraction] = {}
    for present in product((0, 1), repeat=len(people)):
        came = [law[value] for value, here in zip(people, present, strict=True) if here]
        for reports in product(range(3), repeat=len(came)):
            chance = chances.get(len(came), Fraction(0))
            for each, report in zip(came, reports, strict=True):
                chance *= Fraction(each[report], 10)
            batch = tuple(sorted(reports))
            found[batch] = found.get(batch, Fraction(0)) + chance
    return found


def test_the_chords_between_losses_are_what_is_composed() -> None:
    """Three rounds by every sequence of losses, of a law that has the hockey stick of its knots."""
    knots = [["0", "0.2"], ["0.3", "0.1"], ["0.9", "0.01"], ["1.5", "0.001"]]
    with localcontext(program.CONTEXT):
        atoms, beyond = program.law_of(knots)
        ratios = [(program._exp(abs(loss), up=True) ** (1 if loss >= 0 else -1), q)
                  for loss, q in atoms]  # fmt: skip
        for loss, height in knots:
            odds = program._exp(Fraction(loss), up=True)
            stick = beyond + sum(max(ratio - odds, Fraction(0)) * q for ratio, q in ratios)
            assert abs(stick - Fraction(height)) < Fraction(1, 10**40)
        mass = sum(q for _, q in ratios), sum(ratio * q for ratio, q in ratios)
        assert all(abs(total - (1 - beyond)) < Fraction(1, 10**40) for total in mass)
        epsilon = Fraction(1, 2)
        odds = program._exp(epsilon, up=False)
        exact = sum(
            max(math.prod(ratio for ratio, _ in seen) - odds, Fraction(0))
            * math.prod(q for _, q in seen)
            for seen in product(ratios, repeat=3)
        )
        tilt, smoothing = Fraction(3), Fraction(1, 50)
        law = Law.tilted(atoms, 3, tilt)
        found = odds * program.positive_part([law], 1, tilt, smoothing, -epsilon)
    assert exact <= found <= exact * Fraction(101, 100)


@pytest.mark.parametrize(
    ("knots", "why"),
    [
        ([["0", "0.2"], ["0.3", "0.19"], ["0.9", "0.01"]], "its deltas are not convex"),
        ([["0", "0.2"], ["0.3", "0.1"], ["0.9", "0.11"]], "its deltas are not convex"),
        ([["0.1", "0.2"], ["0.3", "0.1"]], "its losses do not ascend from zero"),
        ([["0", "0.2"], ["0.3", "0.1"], ["0.3", "0.1"]], "its losses do not ascend from zero"),
    ],
)
def test_what_is_no_law_of_losses(knots: list[list[str]], why: str) -> None:
    with localcontext(program.CONTEXT), pytest.raises(program.Refuted, match=why):
        program.law_of(knots)


@pytest.mark.parametrize(("noise", "delta"), [(20.0, 1e-6), (2.0, 1e-9), (100.0, 1e-4)])
def test_a_servers_noise_is_gaussian(noise: float, delta: float) -> None:
    """No less than the closed form of Balle and Wang (2018), and close to it."""
    mu, epsilon = (
        mpmath.mpf(2 / noise),
        Fraction(event_epsilon(dp_accounting.GaussianDpEvent(noise), delta)),
    )
    cut = mpmath.mpf(float(epsilon)) / mu
    exact = mpmath.ncdf(mu / 2 - cut) - mpmath.exp(float(epsilon)) * mpmath.ncdf(-mu / 2 - cut)
    with localcontext(program.CONTEXT):
        variance = Fraction(4 / noise**2)
        tilt = 1 + Fraction(float(cut / mu))
        args = (tilt, Fraction(0), -epsilon - variance / 2, variance)
        found = program.positive_part([], 1, *args) * program._exp(epsilon, up=True)
    assert 1 - 1e-9 <= float(found) / float(exact) < 1 + 1e-3


def test_a_sum_agrees_with_sixty_digits() -> None:
    """The same series by mpmath, of which the program's is no less, and within 1e-30."""
    mpmath.mp.dps = 60
    atoms = [(Fraction(-1, 7), Fraction(1, 2)), (Fraction(2, 9), Fraction(1, 3)),
             (Fraction(5, 3), Fraction(1, 6))]  # fmt: skip
    w, v, decay = Decimal("0.21"), Decimal("0.42"), Decimal("0.0013")
    spacing, phase = Fraction(1, 5), Fraction(17, 10)
    with localcontext(program.CONTEXT):
        for times in (1, 3, 1000):
            law = Law.tilted(atoms, times, Fraction(2))
            mine = program._nodes([law] * 2, 60, spacing, decay, w, v, program._unit(phase))
            exact = _series(law, 60, spacing, phase, *map(str, (decay, w, v)))
            assert 0 <= mpmath.mpf(str(mine)) - exact < mpmath.mpf("1e-28")
    mpmath.mp.dps = 15


def _series(law: Law, nodes: int, spacing: Fraction, phase: Fraction, *grid: str) -> mpmath.mpf:
    """1 + 2 Re sum over m, as `docs/certificates.md` has it, of two equal laws."""
    decay, w, v = map(mpmath.mpf, grid)
    pairs = [(mpmath.mpf(x.numerator) / x.denominator, mpmath.mpf(p) / program.ONE)
             for x, p in zip(law.values, law.weights, strict=True)]  # fmt: skip
    step, turn = (mpmath.mpf(x.numerator) / x.denominator for x in (spacing, phase))
    total = mpmath.mpf(1)
    for m in range(1, nodes + 1):
        phi = mpmath.fsum(p * mpmath.expj(m * step * x) for x, p in pairs) ** (2 * law.times)
        term = phi * mpmath.expj(m * turn) * mpmath.exp(-decay * m * m)
        total += 2 * mpmath.re(term / mpmath.mpc(1, m * w) / mpmath.mpc(1, m * v))
    return total


def test_nodes_that_are_left_out_do_not_count(
    composed: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of large crowds hardly any node is looked at; eight times as many change nothing."""
    asked, nodes = [], program._nodes

    def more(laws: list[Law], count: int, *grid: Any) -> Decimal:
        few, many = nodes(laws, count, *grid), nodes(laws, 8 * count, *grid)
        asked.append((count, float(abs(many - few))))
        return few

    monkeypatch.setattr(program, "_nodes", more)
    part = Part(1, program.two_kinds(Fraction(2)), 10**6)
    with localcontext(program.CONTEXT):
        part.delta(Fraction(1, 100), ["0.0006"], "0.01")
    ((count, change),) = asked
    assert count < 60 and change < 1e-20


def test_turns_and_exponentials_round_as_they_say() -> None:
    mpmath.mp.dps = 80
    with localcontext(program.CONTEXT):
        for angle in (Fraction(1, 3), Fraction(-22, 7), Fraction(10**6, 7), Fraction(1, 10**30)):
            cosine, sine = program._unit(angle)
            exact = mpmath.mpf(angle.numerator) / angle.denominator
            assert abs(mpmath.mpf(cosine) / program.ONE - mpmath.cos(exact)) < mpmath.mpf("1e-37")
            assert abs(mpmath.mpf(sine) / program.ONE - mpmath.sin(exact)) < mpmath.mpf("1e-37")
        for value in (Fraction(0), Fraction(1, 3), Fraction(20), Fraction(1, 10**12)):
            low, high = (program._exp(value, up=side) for side in (False, True))
            exact = mpmath.exp(mpmath.mpf(value.numerator) / value.denominator)
            assert mpmath.mpf(low.numerator) / low.denominator < exact
            assert mpmath.mpf(high.numerator) / high.denominator > exact
            assert high - low < high / 10**55
    mpmath.mp.dps = 15


@pytest.mark.parametrize(("people", "groups", "crowd"), [(20, 4, 1), (20, 4, 2), (900, 5, 110)])
def test_the_chance_of_a_smaller_group_is_a_binomials(people: int, groups: int, crowd: int) -> None:
    """Its lower tail, never less, and by an eighth more at most."""
    exact = Fraction(0)
    for size in range(crowd):
        exact += math.comb(people, size) * Fraction(groups - 1) ** (people - size)
    exact *= groups / Fraction(groups) ** people
    event = event_to_json(LocalReports(1.0, public_groups=groups).shuffled(people))["event"]
    with localcontext(program.CONTEXT):
        (part,) = program.parts_of([(event, 1)], [{"any_randomizer": True, "crowd": crowd}])
    assert exact <= part.chance <= exact * Fraction(9, 8)


@pytest.mark.parametrize(("users", "drawn", "fakes", "gone"), [(60, 20, 9, 5), (900, 90, 90, 30)])
def test_the_chance_of_more_fakes_is_a_hypergeometric_one(
    users: int, drawn: int, fakes: int, gone: int
) -> None:
    """Its upper tail, never less, and by a quarter more at most."""
    ways = sum(
        math.comb(fakes, more) * math.comb(users - fakes, drawn - more)
        for more in range(gone + 1, min(fakes, drawn) + 1)
    )
    exact = Fraction(ways, math.comb(users, drawn))
    event = event_to_json(LocalReports(1.0).sampled(users, drawn, num_fakes=fakes))["event"]
    choice = {"any_randomizer": True, "crowd": drawn - gone}
    with localcontext(program.CONTEXT):
        (part,) = program.parts_of([(event, 1)], [choice])
    assert exact <= part.chance <= exact * Fraction(5, 4)


def test_who_is_in_a_sample_is_what_the_accountant_says() -> None:
    """Rates and crowds of a hundred samples, by either's own arithmetic."""
    draw, seen = random.Random(1), set()
    for _ in range(100):
        drawn, came = draw.randint(50, 99), draw.choice([None, draw.randint(40, 50)])
        sampling = draw.choice(["without_replacement", "shuffled_epochs"])
        rounds = draw.choice([None, 3]) if sampling == "shuffled_epochs" else None
        event = LocalReports(1.0).sampled(
            draw.randint(300, 999), drawn, num_received=came, num_fakes=draw.choice([0, 7]),
            sampling=sampling, rounds=rounds, points_per_client=draw.randint(1, 3),
        )  # fmt: skip
        told = event_to_json(event)["event"]
        choice = {"any_randomizer": True, "crowd": int(event.num_hiding)}
        with localcontext(program.CONTEXT):
            (part,) = program.parts_of([(told, 1)], [choice])
        assert part.rate * part.share == pytest.approx(event.rate, rel=1e-12)
        assert part.rate == pytest.approx(event.drawn_rate, rel=1e-12)
        assert float(part.chance) <= 1.2 * event.failure_probability
        seen.add((sampling, came is None, rounds is None, event.num_fakes > 0))
    assert len(seen) == 12


def test_a_point_of_two_that_somebody_holds() -> None:
    """Everybody reports one of two points: by every report, against the bound of a share."""
    first, second, other = (6, 1, 3), (1, 5, 4), (4, 2, 4)  # of ten; all contain (1, 1, 3)
    table = Table([(6, 1, 1), (1, 5, 1), (3, 4, 3)], 10)
    mixed = [[Fraction(a + b, 20) for a, b in zip(x, other)] for x in (first, second)]
    seen: list[dict[tuple[int, ...], Fraction]] = [{}, {}]
    for world, law in zip(seen, mixed, strict=True):
        for reports in product(range(3), repeat=3):
            chance = law[reports[0]] * Fraction(math.prod(other[r] for r in reports[1:]), 100)
            batch = tuple(sorted(reports))
            world[batch] = world.get(batch, Fraction(0)) + chance
    part = Part(1, table, 3, share=Fraction(1, 2))
    with localcontext(program.CONTEXT):
        for epsilon in (Fraction(1, 20), Fraction(1, 10)):
            odds = program._exp(epsilon, up=False)
            least = max(
                sum(max(p - odds * another[batch], Fraction(0)) for batch, p in one.items())
                for one, another in (seen, seen[::-1])
            )
            found = part.delta(epsilon, ["0.4", "0.4"], "0.02")
            assert 0 < least <= found <= 2 * least


@pytest.mark.parametrize("rate", ["1", "0.3", "0.002"])
@pytest.mark.parametrize("shift", ["0.4", "2", "5"])
@pytest.mark.parametrize("loss", ["0", "0.3", "2"])
def test_noise_agrees_with_sixty_digits(rate: str, shift: str, loss: str) -> None:
    """By integrating the positive part of the difference of both densities, to 25 places."""
    mpmath.mp.dps = 40
    q, m, t = mpmath.mpf(rate), mpmath.mpf(shift) / 2, mpmath.exp(mpmath.mpf(loss))

    def excess(x: Any) -> Any:
        here, there = (mpmath.npdf(x, side * m, 1) for side in (1, -1))
        return mpmath.re(q * (here - t * there) - (1 - q) * (t - 1) * mpmath.npdf(x))

    at = mpmath.findroot(lambda x: excess(x) / mpmath.npdf(x), (mpmath.mpf(-1), m + 30), "anderson",
                         tol=1e-35, maxsteps=200, verify=False)  # fmt: skip
    exact = mpmath.quad(excess, [at + k for k in range(0, 16, 2)])
    part = Part(1, Table([]), rate=Fraction(rate), shift=Fraction(shift))
    with localcontext(program.CONTEXT):
        found = part.delta(Fraction(loss), [], "")
    assert -1e-25 < mpmath.mpf(found.numerator) / found.denominator - exact < 1e-25
    mpmath.mp.dps = 15


def test_normal_numbers_are_right_to_forty_places() -> None:
    mpmath.mp.dps = 60
    with localcontext(program.CONTEXT):
        for x in ("0", "1e-20", "0.3", "-0.3", "5", "-5", "13.9", "-13.9", "14.1", "-14.1", "60"):
            found = mpmath.mpf(str(program._normal(Decimal(x))))
            assert abs(found - mpmath.ncdf(mpmath.mpf(x))) < mpmath.mpf("1e-40")
    mpmath.mp.dps = 15


def test_who_is_alone_is_hidden_by_nobody() -> None:
    """Then the hockey stick of the table is the sum, exactly."""
    table = Table([(6, 1, 1), (1, 5, 1), (3, 4, 3)], 10)
    with localcontext(program.CONTEXT):
        odds = program._exp(Fraction(1, 2), up=False)
        found = Part(1, table).delta(Fraction(1, 2), ["1", "1"], "")
    assert found == max(Fraction(6) - odds, 5 - odds) / 10


def test_two_kinds_of_reports_are_rounded_outward() -> None:
    """The odds are no smaller, and the blanket no larger, than those of the proofs."""
    mpmath.mp.dps = 60
    with localcontext(program.CONTEXT):
        for budget in (Fraction(1, 1000), Fraction(1), Fraction(20)):
            ratio = mpmath.exp(mpmath.mpf(budget.numerator) / budget.denominator)
            for bit, mass in ((True, 2 / (ratio + 1)), (False, 1 / ratio)):
                (often, seldom, part), _ = program.two_kinds(budget, bit=bit).kinds
                assert often + seldom == program.SCALE and part <= seldom
                assert mpmath.mpf(often) / seldom >= ratio
                assert 0 <= mass - mpmath.mpf(2 * part) / program.SCALE < mpmath.mpf("1e-35")
    mpmath.mp.dps = 15


def test_identities_bind(statements: list[dict[str, Any]]) -> None:
    assert {told["certificate"]["identity"] for told in statements} == {IDENTITY}
    event = LocalReports(2.0).shuffled(10_000)
    assert math.isclose(statement(event, 1e-6)["epsilon"], event_epsilon(event, 1e-6))
