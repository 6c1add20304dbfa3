"""The verifier refutes what is false, and what is true of another release."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest

from beam_ldp.accounting.reports import LocalReports
from beam_ldp.verifier.verify import CONFIRMED, NOTHING, REFUTED, verify
from tests.verifier.mutants import (
    COMMON,
    MUTANTS,
    OF_A_KIND,
    OF_COINS,
    OF_ROUNDS,
    OF_SAMPLES,
    unrefuted,
    without_facts,
)
from tests.verifier.statements import statement

pytestmark = pytest.mark.exact


def test_what_is_false_of_samples_and_noise_is_rejected(sampled: dict[str, dict[str, Any]]) -> None:
    """Each in one way, by more than the slack; rounds that are a few more besides."""
    common = {name: COMMON[name] for name in ("epsilon", "slack", "no rows")}
    assert set(OF_A_KIND) == set(sampled)
    for name, told in sampled.items():
        found = [*unrefuted(told, common | OF_A_KIND[name])]
        assert found == [], name
        if told["event"]["event"]["kind"] == "SelfComposedDpEvent":
            assert [*unrefuted(told, {"a round more": OF_ROUNDS["a round more"]})] == [], name


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


def test_a_thousand_false_statements_are_rejected(statements: list[dict[str, Any]]) -> None:
    """Each false by more than the slack of the certificate, in one way."""
    shuffled = [told for told in statements if told["certificate"]["kind"] == "shuffle"]
    assert len(MUTANTS) * len(shuffled) >= 1000
    assert [kept for told in shuffled for kept in unrefuted(told, MUTANTS)] == []


def test_what_is_composed_falsely_is_rejected(composed: dict[str, dict[str, Any]]) -> None:
    rounds, samples = composed["rounds of everybody"], composed["rounds of a sample"]
    coins = composed["rounds of coins"]
    found = [
        *unrefuted(rounds, OF_ROUNDS),
        *unrefuted(samples, OF_SAMPLES),
        *unrefuted(coins, OF_COINS),
    ]
    assert found == []
    told = copy.deepcopy(composed["two questions"])
    told["event"]["event"]["events"].append(told["event"]["event"]["events"][0])  # asked again
    assert verify(told).code == REFUTED
    told["certificate"]["parts"] = [without_facts(part) for part in told["certificate"]["parts"]]
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
