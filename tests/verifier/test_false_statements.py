"""The verifier refutes what is false, and what is true of another release."""

from __future__ import annotations

import copy
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from beam_ldp.accounting import shuffled_event
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.accounting.reports import LocalReports
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.verifier import verify as program
from beam_ldp.verifier.verify import CONFIRMED, NOTHING, REFUTED, verify
from tests.verifier.mutants import MUTATIONS, Kind, mutants
from tests.verifier.statements import statement

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("each", [4, pytest.param(43, marks=pytest.mark.slow)])
def test_false_statements_of_every_kind_are_not_confirmed(kinds: list[Kind], each: int) -> None:
    """43 of each are 2,000. Why each is false: `tests.verifier.mutants`."""
    tried: set[str] = set()
    for kind in kinds:
        assert verify(json.loads(json.dumps(kind.told))).code == CONFIRMED, kind.name
        for name, told in mutants(kind, each, seed=each):
            found = verify(told)
            assert found.code != CONFIRMED, (kind.name, name, found.text)
            tried.add(name)
    assert len(kinds) >= 40 and (each < 43 or tried == {*MUTATIONS})


# Texts, and what an event says twice ---------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"num_fakes": 0', '"num_fakes": 0, "num_fakes": 0', "a key stands there twice"),
        ('"delta": 1e-06', '"delta": 1.0e-06', "1.0e-06 is not the usual form of a number"),
        ('"delta": 1e-06', '"delta": 0.0000010', "0.0000010 is not the usual form of a number"),
        ('"delta": 1e-06', '"delta": -1e-06', "a number of the statement is none"),
        ('"num_fakes": 0', '"num_fakes": -0.0', "-0.0 is not the usual form of a number"),
        ('"num_fakes": 0', '"num_fakes": NaN', "NaN is not the usual form of a number"),
        ('"num_fakes": 0', '"num_fakes": 1e400', "1e400 is not the usual form of a number"),
        ('"num_fakes": 0', '"num_fakes": false', "a number of the statement is none"),
        ('"num_reports": 3000,', '"num_reports": "3000",', "it is malformed"),
        ('"messages": 1', '"messages": true', "a number of the statement is none"),
        ('"version": 1, "event"', '"version": true, "event"', "an integer is not in"),
    ],
)
def test_a_text_has_one_reading(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, why: str
) -> None:
    told = json.dumps(statement(LocalReports(2.0).shuffled(3000), 1e-6))
    assert old in told
    path = tmp_path / "privacy.json"
    for text, code in ((told, CONFIRMED), (told.replace(old, new), REFUTED)):
        path.write_text(text)
        assert program.main([str(path)]) == code
    assert why in capsys.readouterr().out


def _messages(budgets: list[list[float]], local: float) -> dict[str, Any]:
    return {"kind": "ShuffledMessagesDpEvent", "messages": budgets, "num_reports": 2,
            "local_epsilon": local, "witness": []}  # fmt: skip


_KRR = event_to_json(shuffled_event(KRandomizedResponse(3, 2.0), 3000))["event"]


@pytest.mark.parametrize(
    ("event", "epsilon", "why"),
    [
        (_messages([[8, 4.0]], 32.0), 32.0, ""),
        (_messages([[8, 4.0]], 0.001), 0.001, "its 8 messages cost 32 together"),
        (_KRR | {"local_event": _KRR["local_event"] | {"local_epsilon": 0.1}}, 0.1,
         "its table has another local epsilon"),
        (_KRR["local_event"] | {"messages": 50, "columns": [[1, 0.01]]}, 2.0, "its 1 messages"),
        ({"kind": "PoissonSampledDpEvent", "sampling_probability": 0.1,
          "event": {"kind": "LaplaceDpEvent", "noise_multiplier": 1.0}}, 9.0, "there is no step"),
    ],
)  # fmt: skip
def test_an_event_that_contradicts_itself(event: Any, epsilon: float, why: str) -> None:
    """Also where a local epsilon needs neither table nor crowd."""
    bound = {"epsilon": epsilon, "delta": 0, "identity": None}
    told = {"epsilon": epsilon, "delta": 0, "event": {"version": 1, "event": event},
            "certificate": {"version": 1, "kind": "local", "slack": "1/2000", **bound}}  # fmt: skip
    found = verify(told)
    assert (found.code == CONFIRMED) == (not why) and why in found.text


def test_old_certificates_confirm_what_was_stated_or_nothing() -> None:
    """Those of version 1 were written for 0.05 % more."""
    told = statement(LocalReports(2.0).shuffled(10_000), 1e-6)
    for share, code in ((1.0, CONFIRMED), (0.9995, NOTHING), (0.99, REFUTED)):
        exact = {"epsilon": told["epsilon"] * share}
        old = told["certificate"] | exact | {"version": 1, "slack": "1/2000"}
        assert verify({**told, **exact, "certificate": old}).code == code


def _knot(at: int, place: int, times: str) -> Any:
    def damage(certificate: dict[str, Any]) -> None:
        knot = certificate["parts"][0]["knots"][at]
        knot[place] = f"{Decimal(knot[place]) * Decimal(times):f}"

    return damage


def _part(**changed: Any) -> Any:
    return lambda certificate: certificate["parts"][0].update(
        {name: change(certificate["parts"][0]) for name, change in changed.items()}
    )


@pytest.mark.parametrize(
    "damage",
    [
        _knot(3, 1, "0.999"), _knot(-1, 1, "0.5"), _knot(-1, 1, "0"), _knot(3, 0, "0.99"),
        _knot(3, 2, "0.00001"), _knot(9, 1, "1.5"),
        _part(knots=lambda part: part["knots"][1:]), _part(knots=lambda part: part["knots"][:30]),
        _part(knots=lambda part: part["knots"][::-1]), _part(knots=lambda part: part["knots"][::8]),
        _part(smoothing=lambda part: "0.5"), _part(count=lambda part: 1),
        lambda certificate: certificate.update(smoothing="0.5"),
        lambda certificate: certificate.update(tilt="1.000001"),
        lambda certificate: certificate.update(tilt="0.9"),
        lambda certificate: certificate.update(kind="shuffle"),
        lambda certificate: certificate["parts"].clear(),
        lambda certificate: certificate["parts"].append(certificate["parts"][0]),
    ],
)  # fmt: skip
def test_a_certificate_that_does_not_prove_it(
    composed: dict[str, dict[str, Any]], damage: Any
) -> None:
    told = copy.deepcopy(composed["rounds of everybody"])
    damage(told["certificate"])
    assert verify(told).code == REFUTED


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
